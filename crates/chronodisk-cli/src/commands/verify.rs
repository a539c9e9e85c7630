//! `chronodisk verify`: a run's log against a replay of its arrivals.

use std::path::Path;

use chronodisk_device::DeviceModel;
use chronodisk_engine::{Twin, Verification, twin, verify};
use chronodisk_report::DeviceUsed;
use clap::Args;
use serde::Serialize;

use crate::device::Device;
use crate::failure::{Failure, Outcome, status};
use crate::stored::{self, Repetition};
use crate::{device, output, runs};

/// Replays a run's requests in simulation and compares all completion times
///
/// Equal arrivals must give equal completions, whichever clock the run used. Every due time is compared to the
/// nanosecond. The command also reports how long the workload would have taken if every completion had been on time.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 if identical, 1 if not.\n\nExample: chronodisk verify last")]
pub struct Arguments {
    /// Replays this run: a directory, an id, or `last`
    run: String,

    /// Replays on this profile instead of the run's own; needed if the run's model was a program
    #[arg(long, short, value_name = "PROFILE")]
    device: Option<String>,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Name and version of the JSON form; added fields don't change it.
const SCHEMA: &str = "chronodisk.verify/1";

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    run: String,
    identical: bool,
    reps: Vec<RepReport>,
}

#[derive(Serialize)]
struct RepReport {
    index: usize,
    requests: usize,
    compared: u64,
    not_compared: u64,
    differences: u64,
    first_difference: Option<String>,
    /// From the first arrival to the last completion, as logged and with punctual completions.
    logged_ns: u64,
    punctual_ns: u64,
}

/// Replays, and says whether all was identical.
pub fn execute(arguments: Arguments) -> Outcome {
    let directory = runs::find(&arguments.run)?;
    let replayable = stored::read_replayable(&directory)?;
    let replayed = |used: &DeviceUsed| match &arguments.device {
        None => device::of_run(used),
        Some(name) => device::load(name, Some(used.capacity_bytes), used.seed),
    };
    let devices = replayable.devices.iter().map(replayed).collect::<Result<Vec<Device>, Failure>>()?;
    let reps = replayable.repetitions.iter().enumerate();
    let reps: Vec<RepReport> =
        reps.map(|(index, rep)| verify_repetition(&directory, &devices, index, rep)).collect::<Result<_, Failure>>()?;
    let report = Report {
        schema: SCHEMA,
        run: directory.display().to_string(),
        identical: reps.iter().all(|rep| rep.differences == 0),
        reps,
    };
    if arguments.json {
        output::json(&report)?;
    } else {
        output::data(&render(&report))?;
    }
    Ok(if report.identical { status::FINE } else { status::CHECK_FAILED })
}

fn verify_repetition(
    directory: &Path,
    devices: &[Device],
    index: usize,
    repetition: &Repetition,
) -> Result<RepReport, Failure> {
    let records = &repetition.records;
    // The log may have been written by anybody; one that can't be of this device is wrong input.
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("{}: the log of repetition {index} can't be replayed: {error}", directory.display()))
    };
    let models = || -> Result<Vec<Box<dyn DeviceModel>>, Failure> {
        let model =
            |device: &Device| repetition.seed.map_or_else(|| device.model(), |seed| device.model_with_seed(seed));
        devices.iter().map(model).collect()
    };
    let verification: Verification = verify(&mut models()?, records, repetition.end).map_err(|error| wrong(&error))?;
    let twin: Twin = twin(models()?, records).map_err(|error| wrong(&error))?;
    Ok(RepReport {
        index,
        requests: records.len(),
        compared: verification.compared,
        not_compared: verification.not_compared,
        differences: verification.differences,
        first_difference: verification.first_difference.map(|difference| difference.to_string()),
        logged_ns: twin.logged.as_nanos(),
        punctual_ns: twin.punctual.as_nanos(),
    })
}

fn render(report: &Report) -> String {
    let mut text = format!("{}\n", report.run);
    for rep in &report.reps {
        let verdict = match rep.differences {
            0 => "identical".to_owned(),
            differences => format!("{differences} DIFFERENT"),
        };
        text.push_str(&format!("repetition {}: {} requests replayed, {verdict}\n", rep.index, rep.compared));
        if rep.not_compared > 0 {
            text.push_str(&format!("  {} were outstanding at the end and could not be compared\n", rep.not_compared));
        }
        if let Some(difference) = &rep.first_difference {
            text.push_str(&format!("  the first: {difference}\n"));
        }
        let [logged, punctual] = [rep.logged_ns, rep.punctual_ns].map(chronodisk_sim::Nanos::from_nanos);
        text.push_str(&format!("  device time {logged}; with punctual completions {punctual}\n"));
    }
    text
}
