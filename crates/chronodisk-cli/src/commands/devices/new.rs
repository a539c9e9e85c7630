//! `chronodisk devices new`: a profile from the few figures of a data sheet.

use std::path::PathBuf;

use chronodisk_device::rates::{Check, Effort, Verdict, check};
use chronodisk_device::{Profile, Rate, parse_rate};
use chronodisk_fit::data_sheet::{DataSheet, Drafted, Medium};
use chronodisk_report::write_text;
use chronodisk_run::{device, quantity};
use chronodisk_sim::Nanos;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{check as checks, unwritten};
use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Name and version of the JSON form; added fields don't change it.
const SCHEMA: &str = "chronodisk.new-device/1";

#[derive(Debug, Args)]
#[command(
    after_help = "The model is compared with the figures as `chronodisk devices check --short` does. If it misses one, \
    the status is 1, and no file is written without --force.\n\n\
    Example: chronodisk devices new my-nvme --kind flash --capacity 1TB --sequential-read 7000MB/s \
    --sequential-write 5000MB/s --random-read 1000000 --read-latency 80us -o my-nvme.toml"
)]
pub struct Arguments {
    /// Name of the profile: lower-case letters, digits, dashes, dots and underscores
    name: String,

    /// Selects the kind of drive
    #[arg(long, value_name = "KIND", value_enum)]
    kind: Kind,

    /// Sets the capacity, such as 1TB
    #[arg(long, value_name = "SIZE", value_parser = quantity::sector_bytes)]
    capacity: u64,

    /// Sets the rate of sequential reads, such as 7000MB/s; of a disk, in the outermost zone
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    sequential_read: Rate,

    /// Sets the rate of sequential writes (default: the rate of reads)
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    sequential_write: Option<Rate>,

    /// Sets the number of random reads of 4 KiB a second: of a flash drive at great depth, of a disk at depth 1
    #[arg(long, value_name = "N")]
    random_read: Option<u32>,

    /// Sets the number of random writes of 4 KiB a second at great depth; of flash drives
    #[arg(long, value_name = "N")]
    random_write: Option<u32>,

    /// Sets the latency of a random read of 4 KiB at depth 1; of flash drives
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    read_latency: Option<Nanos>,

    /// Sets the latency of a random write of 4 KiB at depth 1; of flash drives
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    write_latency: Option<Nanos>,

    /// Sets the turns per minute; of disks
    #[arg(long, value_name = "RPM")]
    rotation: Option<u32>,

    /// Sets the mean seek between two blocks anywhere; of disks
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    average_seek: Option<Nanos>,

    /// Sets the rate of sequential reads in the innermost zone; of disks
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    inner_rate: Option<Rate>,

    /// Sets the size of the buffer; of disks
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    buffer: Option<u64>,

    /// States the source of the figures
    #[arg(long, value_name = "TEXT", default_value = "the data sheet of the drive")]
    source: String,

    /// Writes the profile to this file (default: standard output)
    #[arg(long, short, value_name = "FILE.toml")]
    output: Option<PathBuf>,

    /// Replaces an existing profile, and writes one that misses a figure
    #[arg(long, requires = "output")]
    force: bool,

    /// Prints the profile, the assumptions and the comparison as JSON on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// An SSD, or another drive without moving parts
    Flash,
    /// A hard disk
    Disk,
}

#[derive(Serialize)]
struct Made<'a> {
    schema: &'static str,
    name: &'a str,
    kind: &'a str,
    assumptions: &'a [String],
    check: checks::Checked<'a>,
    output: Option<String>,
    profile_toml: &'a str,
}

/// Makes the profile, compares its model with the figures, and writes it.
pub fn execute(arguments: &Arguments) -> Outcome {
    let drafted = arguments.data_sheet()?.draft().map_err(Failure::usage)?;
    let profile = Profile::parse(&drafted.text, &arguments.name).map_err(device::failure)?;
    let checked = check(&profile, Effort::Short).map_err(device::failure)?;
    let has_failed = checked.verdict() == Verdict::Failed;
    let written = arguments.output.as_ref().filter(|_| !has_failed || arguments.force);
    if let Some(path) = written {
        write_text(path, &drafted.text, arguments.force).map_err(|error| unwritten(error, arguments.force))?;
    }
    if arguments.json {
        output::json(&Made {
            schema: SCHEMA,
            name: profile.name(),
            kind: profile.kind(),
            assumptions: &drafted.assumptions,
            check: checks::checked(&checked),
            output: written.map(|path| path.display().to_string()),
            profile_toml: &drafted.text,
        })?;
    } else {
        print(arguments, &drafted, &checked)?;
    }
    if has_failed && arguments.output.is_some() && written.is_none() {
        output::note(format_args!("the model misses a figure; no file was written, --force writes it"));
    }
    Ok(if has_failed { status::CHECK_FAILED } else { status::FINE })
}

/// The profile where no file takes it; the rest is for the user.
fn print(arguments: &Arguments, drafted: &Drafted, checked: &Check) -> Result<(), Failure> {
    for assumption in &drafted.assumptions {
        output::note(format_args!("assumed: {assumption}"));
    }
    let comparison = checks::render_figures(checked);
    match arguments.output {
        Some(_) => output::data(&comparison),
        None => {
            comparison.lines().for_each(|line| output::note(format_args!("{line}")));
            output::data(&drafted.text)
        }
    }
}

impl Arguments {
    fn data_sheet(&self) -> Result<DataSheet, Failure> {
        let of_flash = [
            ("--random-write", self.random_write.is_some()),
            ("--read-latency", self.read_latency.is_some()),
            ("--write-latency", self.write_latency.is_some()),
        ];
        let of_disks = [
            ("--rotation", self.rotation.is_some()),
            ("--average-seek", self.average_seek.is_some()),
            ("--inner-rate", self.inner_rate.is_some()),
            ("--buffer", self.buffer.is_some()),
        ];
        let (name, foreign) = match self.kind {
            Kind::Flash => ("flash", &of_disks[..]),
            Kind::Disk => ("disk", &of_flash[..]),
        };
        if let Some((option, _)) = foreign.iter().find(|(_, is_given)| *is_given) {
            return Err(Failure::usage(format!("{option} can't be used with --kind {name}")));
        }
        let medium = match self.kind {
            Kind::Flash => Medium::Flash { read_latency: self.read_latency, write_latency: self.write_latency },
            Kind::Disk => Medium::Disk {
                rotations_per_minute: self.rotation,
                average_seek: self.average_seek,
                inner_rate: self.inner_rate,
                buffer_bytes: self.buffer,
            },
        };
        Ok(DataSheet {
            name: self.name.clone(),
            source: self.source.clone(),
            capacity_bytes: self.capacity,
            sequential_read: self.sequential_read,
            sequential_write: self.sequential_write.unwrap_or(self.sequential_read),
            random_read: self.random_read,
            random_write: self.random_write,
            medium,
        })
    }
}
