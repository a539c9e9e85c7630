//! `chronodisk devices`: which profiles there are, and how new ones are imported.

use std::io;
use std::path::PathBuf;

use chronodisk_device::importers::disksim::{Import, import_file};
use chronodisk_device::{BuiltinProfile, Profile, Validation};
use chronodisk_report::{Align, ReportError, Table, write_text};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::failure::{Failure, Outcome, status};
use crate::{device, output};

/// Lists the built-in device profiles and how well each is validated
///
/// Validation states: by-definition (models no real device), unvalidated (not compared with a device), published
/// (compared with published measurements), measured (compared with measurements of the device itself).
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Example: chronodisk devices\n\
    \x20        chronodisk devices show first-disk")]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,

    /// Prints the list as JSON on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Prints a profile: every value with its unit and its source
    #[command(after_help = "Example: chronodisk devices show cheetah-9lp")]
    Show {
        /// Selects the profile: a name from the list, or a file
        profile: String,
        /// Prints the profile as JSON
        #[arg(long)]
        json: bool,
    },
    /// Converts a DiskSim parameter file to a profile
    ///
    /// The file, usually a .parv, describes an experiment; the device at the end of its topology becomes the profile.
    /// Included files are searched in the same directory. An unknown or invalid parameter ends the import with its
    /// file and line. Settings that the profile can't express are listed on standard error.
    Import(ImportArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk devices import cheetah9LP.parv -o cheetah-9lp.toml --name cheetah-9lp")]
struct ImportArguments {
    /// Reads this parameter file
    file: PathBuf,

    /// Writes the profile to this file (default: standard output)
    #[arg(long, short, value_name = "FILE.toml")]
    output: Option<PathBuf>,

    /// Names the profile (default: the name in the parameter file)
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Describes the device in a sentence
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    /// States the source of the values (default: the names of the parameter files)
    #[arg(long, value_name = "TEXT")]
    source: Option<String>,

    /// Sets the validation state of the profile
    #[arg(long, value_name = "STATE", default_value = "unvalidated", value_parser = validation_parser())]
    validation: Validation,

    /// Replaces an existing profile
    #[arg(long, requires = "output")]
    force: bool,

    /// Prints the profile and the warnings as JSON on standard output
    #[arg(long)]
    json: bool,
}

fn validation_parser() -> impl TypedValueParser<Value = Validation> {
    let state = |name: String| Validation::ALL.into_iter().find(|state| state.name() == name);
    PossibleValuesParser::new(Validation::ALL.map(Validation::name))
        .map(move |name| state(name).expect("the parser lets only their names through"))
}

/// Name and version of the JSON forms; added fields don't change it.
const LIST_SCHEMA: &str = "chronodisk.devices/1";
const DEVICE_SCHEMA: &str = "chronodisk.device/1";
const IMPORT_SCHEMA: &str = "chronodisk.import/1";

#[derive(Serialize)]
struct List<'a> {
    schema: &'static str,
    devices: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    kind: &'a str,
    description: &'a str,
    validation: &'static str,
}

#[derive(Serialize)]
struct Details<'a> {
    schema: &'static str,
    #[serde(flatten)]
    entry: Entry<'a>,
    source: &'a str,
    capacity_bytes: u64,
    profile_toml: &'a str,
}

#[derive(Serialize)]
struct Imported<'a> {
    schema: &'static str,
    name: &'a str,
    kind: &'a str,
    capacity_bytes: u64,
    /// The block of the parameter file that describes the device.
    block: &'a str,
    files: &'a [String],
    warnings: Vec<ImportWarning<'a>>,
    /// Where the profile went.
    output: Option<String>,
    profile_toml: &'a str,
}

#[derive(Serialize)]
struct ImportWarning<'a> {
    at: &'a str,
    message: &'a str,
}

/// Lists, shows one, or imports one.
pub fn execute(arguments: Arguments) -> Outcome {
    match arguments.action {
        None if arguments.json => {
            let devices = Profile::builtin().iter().map(entry).collect();
            output::json(&List { schema: LIST_SCHEMA, devices })?;
        }
        None => list()?,
        Some(Action::Show { profile, json }) => show(&device::find(&profile)?, json)?,
        Some(Action::Import(arguments)) => import(&arguments)?,
    }
    Ok(status::FINE)
}

fn entry(profile: &BuiltinProfile) -> Entry<'_> {
    Entry {
        name: &profile.name,
        kind: &profile.kind,
        description: &profile.description,
        validation: profile.validation.name(),
    }
}

fn list() -> Result<(), Failure> {
    let columns =
        [("name", Align::Left), ("kind", Align::Left), ("validation", Align::Left), ("what it is", Align::Left)];
    let mut table = Table::new(columns);
    for profile in Profile::builtin() {
        let entry = entry(profile);
        table.row([entry.name, entry.kind, entry.validation, entry.description]);
    }
    output::data(&table.render())
}

fn show(profile: &Profile, json: bool) -> Result<(), Failure> {
    if !json {
        return output::data(profile.text());
    }
    let entry = Entry {
        name: profile.name(),
        kind: profile.kind(),
        description: profile.description(),
        validation: profile.validation().name(),
    };
    output::json(&Details {
        schema: DEVICE_SCHEMA,
        entry,
        source: profile.source(),
        capacity_bytes: profile.capacity_bytes(),
        profile_toml: profile.text(),
    })
}

fn import(arguments: &ImportArguments) -> Result<(), Failure> {
    let import = import_file(&arguments.file).map_err(device::failure)?;
    device::note_warnings(&import);
    let mut description = import.describe();
    description.validation = arguments.validation;
    for (given, field) in [
        (&arguments.name, &mut description.name),
        (&arguments.description, &mut description.description),
        (&arguments.source, &mut description.source),
    ] {
        if let Some(given) = given {
            field.clone_from(given);
        }
    }
    let text = import.to_profile(&description).map_err(device::failure)?;
    if let Some(path) = &arguments.output {
        write_text(path, &text, arguments.force).map_err(|error| unwritten(error, arguments.force))?;
    }
    if arguments.json {
        return import_json(&import, arguments, &text);
    }
    match &arguments.output {
        Some(path) => {
            output::note(format_args!("{}: {} as {}", path.display(), import.name, description.name));
            Ok(())
        }
        None => output::data(&text),
    }
}

fn import_json(import: &Import, arguments: &ImportArguments, text: &str) -> Result<(), Failure> {
    let profile = Profile::parse(text, "the imported profile").map_err(device::failure)?;
    let warnings = import.warnings.iter().map(|warning| ImportWarning { at: &warning.at, message: &warning.message });
    output::json(&Imported {
        schema: IMPORT_SCHEMA,
        name: profile.name(),
        kind: profile.kind(),
        capacity_bytes: profile.capacity_bytes(),
        block: &import.name,
        files: &import.files,
        warnings: warnings.collect(),
        output: arguments.output.as_ref().map(|path| path.display().to_string()),
        profile_toml: text,
    })
}

fn unwritten(error: ReportError, force: bool) -> Failure {
    match &error {
        ReportError::Io { path, source, .. } if !force && source.kind() == io::ErrorKind::AlreadyExists => {
            Failure::usage(format!("{} already exists", path.display())).help("--force replaces it")
        }
        _ => Failure::host(error),
    }
}
