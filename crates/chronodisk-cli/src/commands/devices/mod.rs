//! `chronodisk devices`: lists profiles, and imports new ones.

mod check;
mod new;

use std::io;
use std::path::PathBuf;

use chronodisk_device::rates::{Summary, summarise};
use chronodisk_device::{HeldOut, Profile, Validation};
use chronodisk_importers::disksim::{Import, import_file};
use chronodisk_report::{Align, ReportError, Table, write_text};
use chronodisk_run::device;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Lists the built-in device profiles, their rates, and how well each is validated
///
/// Rates are those of sequential requests of 128 KiB and random requests of 4 KiB at depth 32, on a fresh device.
/// Held-out errors are those of a fitted profile on measurements that the fit did not see: mean latency and 99th
/// percentile.
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
        /// Profile: a name from the list, or a file
        profile: String,
        /// Prints the profile as JSON
        #[arg(long)]
        json: bool,
    },
    /// Measures devices under plain and mixed loads and compares them with published figures
    Check(check::Arguments),
    /// Makes a profile from the figures of a data sheet
    New(new::Arguments),
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
    /// Parameter file to read
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
    capacity_bytes: u64,
    /// These four are `null` if a fresh device refuses such requests or has no data to read.
    sequential_read_bytes_per_second: Option<u64>,
    sequential_write_bytes_per_second: Option<u64>,
    random_reads_per_second: Option<u64>,
    random_writes_per_second: Option<u64>,
    /// Empty unless constants of the profile were fitted.
    held_out: Vec<HeldOutEntry<'a>>,
}

#[derive(Serialize)]
struct HeldOutEntry<'a> {
    left_out: &'a str,
    rows: u32,
    mean_error_percent: f64,
    p99_error_percent: Option<f64>,
}

#[derive(Serialize)]
struct Details<'a> {
    schema: &'static str,
    #[serde(flatten)]
    entry: Entry<'a>,
    source: &'a str,
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
    /// File of the profile.
    output: Option<String>,
    profile_toml: &'a str,
}

#[derive(Serialize)]
struct ImportWarning<'a> {
    at: &'a str,
    message: &'a str,
}

/// Lists, shows one, checks, or imports one.
pub fn execute(arguments: Arguments) -> Outcome {
    match arguments.action {
        None => list(arguments.json)?,
        Some(Action::Show { profile, json }) => show(&device::find(&profile)?, json)?,
        Some(Action::Check(arguments)) => return check::execute(&arguments),
        Some(Action::New(arguments)) => return new::execute(&arguments),
        Some(Action::Import(arguments)) => import(&arguments)?,
    }
    Ok(status::FINE)
}

fn entry<'a>(profile: &'a Profile, summary: &Summary) -> Entry<'a> {
    let percent = |millionths: u64| millionths as f64 / 1e4;
    let held_out = |it: &'a HeldOut| HeldOutEntry {
        left_out: &it.left_out,
        rows: it.rows,
        mean_error_percent: percent(it.mean_error_millionths),
        p99_error_percent: it.p99_error_millionths.map(percent),
    };
    Entry {
        name: profile.name(),
        kind: profile.kind(),
        description: profile.description(),
        validation: profile.validation().name(),
        capacity_bytes: profile.capacity_bytes(),
        sequential_read_bytes_per_second: summary.sequential_read,
        sequential_write_bytes_per_second: summary.sequential_write,
        random_reads_per_second: summary.random_read,
        random_writes_per_second: summary.random_write,
        held_out: profile.held_out().iter().map(held_out).collect(),
    }
}

fn list(json: bool) -> Result<(), Failure> {
    let mut listed = Vec::new();
    for builtin in Profile::builtin() {
        let profile = device::find(&builtin.name)?;
        let summary = match builtin.summary {
            Some(summary) => summary,
            None => summarise(&profile).map_err(device::failure)?,
        };
        listed.push((profile, summary));
    }
    if json {
        let devices = listed.iter().map(|(profile, summary)| entry(profile, summary)).collect();
        return output::json(&List { schema: LIST_SCHEMA, devices });
    }
    use Align::{Left, Right};
    let mut table = Table::new([
        ("name", Left),
        ("kind", Left),
        ("capacity", Right),
        ("read MB/s", Right),
        ("write MB/s", Right),
        ("4K reads/s", Right),
        ("4K writes/s", Right),
        ("validation", Left),
        ("held out", Left),
        ("description", Left),
    ]);
    for (profile, summary) in &listed {
        let held_out = HeldOut::overall(profile.held_out()).map_or_else(String::new, |it| {
            let percent = |millionths: u64| format!("{:.1} %", millionths as f64 / 1e4);
            let p99 = it.p99_error_millionths.map_or_else(String::new, |p99| format!(", p99 {}", percent(p99)));
            format!("{}{p99}", percent(it.mean_error_millionths))
        });
        // All requests of these devices overlap, so the rates only reflect the load's depth.
        let is_unlimited = matches!(profile.kind(), "null" | "constant") && !profile.has_limits();
        let limited = |rate: String| if is_unlimited { "no limit".to_owned() } else { rate };
        table.row([
            profile.name().to_owned(),
            profile.kind().to_owned(),
            decimal(profile.capacity_bytes()),
            limited(mega(summary.sequential_read)),
            limited(mega(summary.sequential_write)),
            limited(count(summary.random_read)),
            limited(count(summary.random_write)),
            profile.validation().name().to_owned(),
            held_out,
            profile.description().to_owned(),
        ]);
    }
    output::data(&table.render())
}

fn count(rate: Option<u64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string())
}

/// Bytes per second in MB/s, with a decimal where it matters.
fn mega(rate: Option<u64>) -> String {
    let Some(rate) = rate else { return "-".to_owned() };
    let mega = rate as f64 / 1e6;
    if mega < 100.0 { format!("{mega:.1}") } else { format!("{mega:.0}") }
}

/// A capacity as in advertisements: in units of 1,000, three digits.
fn decimal(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64 / 1e6, "MB");
    for next in ["GB", "TB"] {
        if value >= 999.5 {
            (value, unit) = (value / 1e3, next);
        }
    }
    let decimals = if value >= 99.5 {
        0
    } else if value >= 9.95 {
        1
    } else {
        2
    };
    format!("{value:.decimals$} {unit}")
}

fn show(profile: &Profile, json: bool) -> Result<(), Failure> {
    if !json {
        return output::data(profile.text());
    }
    let summary = summarise(profile).map_err(device::failure)?;
    output::json(&Details {
        schema: DEVICE_SCHEMA,
        entry: entry(profile, &summary),
        source: profile.source(),
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
