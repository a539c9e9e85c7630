//! `chronodisk devices`: which profiles there are.

use chronodisk_device::{BuiltinProfile, Profile};
use chronodisk_report::{Align, Table};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::failure::{Outcome, status};
use crate::{device, output};

/// Lists the devices that can be emulated, and how well each is validated
///
/// Validation: by-definition (imitates nothing), unvalidated (figures that nobody compared with a
/// device), published (compared with published measurements), measured (compared with measurements
/// of the device itself).
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,

    /// Writes the list as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Shows a profile: every value with its unit and its source
    Show {
        /// A name from the list, or a file
        profile: String,
        /// Writes what it says as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Name and version of the JSON forms; added fields don't change it.
const LIST_SCHEMA: &str = "chronodisk.devices/1";
const DEVICE_SCHEMA: &str = "chronodisk.device/1";

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

/// Lists, or shows one.
pub fn execute(arguments: Arguments) -> Outcome {
    match arguments.action {
        None if arguments.json => {
            let devices = Profile::builtin().iter().map(entry).collect();
            output::json(&List { schema: LIST_SCHEMA, devices })?;
        }
        None => list()?,
        Some(Action::Show { profile, json }) => show(&device::find(&profile)?, json)?,
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

fn list() -> Result<(), crate::failure::Failure> {
    let columns =
        [("name", Align::Left), ("kind", Align::Left), ("validation", Align::Left), ("what it is", Align::Left)];
    let mut table = Table::new(columns);
    for profile in Profile::builtin() {
        let entry = entry(profile);
        table.row([entry.name, entry.kind, entry.validation, entry.description]);
    }
    output::data(&table.render())
}

fn show(profile: &Profile, json: bool) -> Result<(), crate::failure::Failure> {
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
