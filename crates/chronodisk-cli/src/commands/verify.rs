//! `chronodisk verify`: a run's log against a replay of its arrivals.

use chronodisk_device::DeviceModel;
use chronodisk_engine::{Verification, Verifier, twin};
use chronodisk_report::DeviceUsed;
use chronodisk_run::device::{self, Device};
use chronodisk_run::memory::MemoryOptions;
use chronodisk_run::{Repetition, RunDirectory, RunFolder};
use chronodisk_sim::{ContentsLimit, Nanos, OverLimit};
use clap::Args;
use serde::Serialize;

use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Replays a run's requests in simulation and compares all completion times
///
/// Equal arrivals must give equal completions, whichever clock the run used. Every due time is compared to the
/// nanosecond. The command also reports how long the workload would have taken if every completion had been on time.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 if identical, 1 if not.\n\nExample: chronodisk verify last")]
pub struct Arguments {
    /// Run to replay: a directory, an id, or `last`
    run: String,

    /// Replays on this profile instead of the run's own; needed if the run's model was a program
    #[arg(long, short, value_name = "PROFILE")]
    device: Option<String>,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    memory: MemoryOptions,
}

/// Memory of a logged request in the closed loop of punctual completions: its record, its cause, its followers.
const TWIN_BYTES: u64 = 512;
/// Memory of an outstanding request in a model and beside it.
const OUTSTANDING_BYTES: u64 = 1 << 10;

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
    requests: u64,
    compared: u64,
    not_compared: u64,
    differences: u64,
    first_difference: Option<String>,
    /// From the first arrival to the last completion, as logged and with punctual completions. The latter is left out
    /// if it needs more memory than is allowed.
    logged_ns: u64,
    punctual_ns: Option<u64>,
}

/// Replays the log, and reports whether all times were identical.
pub fn execute(arguments: Arguments) -> Outcome {
    let directory = RunFolder::find(&arguments.run)?;
    let replayable = directory.read_replayable()?;
    let replayed = |used: &DeviceUsed| match &arguments.device {
        None => device::of_run(used, &directory),
        Some(name) => device::load(name, Some(used.capacity_bytes), used.seed)?.with_zones_of(used, &directory),
    };
    let devices = replayable.devices.iter().map(replayed).collect::<Result<Vec<Device>, Failure>>()?;
    let limit = arguments.memory.limit();
    let reps = replayable.repetitions.iter().enumerate();
    let reps: Vec<RepReport> = reps
        .map(|(index, rep)| verify_repetition(&directory, &devices, index, rep, limit))
        .collect::<Result<_, _>>()?;
    let report = Report {
        schema: SCHEMA,
        run: directory.path().display().to_string(),
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
    directory: &RunDirectory,
    devices: &[Device],
    index: usize,
    repetition: &Repetition,
    limit: ContentsLimit,
) -> Result<RepReport, Failure> {
    // The log is untrusted; one that does not fit this device is invalid input.
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "{}: the log of repetition {index} can't be replayed: {error}",
            directory.path().display()
        ))
    };
    let models = || -> Result<Vec<Box<dyn DeviceModel>>, Failure> {
        let model =
            |device: &Device| repetition.seed.map_or_else(|| device.model(), |seed| device.model_with_seed(seed));
        devices.iter().map(model).collect()
    };
    let claimed = directory.open_log(&repetition.log_file)?.claimed_rows();
    let twin_allowed = limit.allow(claimed.saturating_mul(TWIN_BYTES));
    let outstanding_max = (limit.bytes() / OUTSTANDING_BYTES) as usize;
    let mut fresh = models()?;
    let mut verifier = Verifier::new(&mut fresh, repetition.end, outstanding_max);
    let (mut requests, mut first, mut last) = (0, None, Nanos::ZERO);
    let mut records = Vec::new();
    directory.each_request(&repetition.log_file, |record| {
        verifier.add(record).map_err(|error| wrong(&error))?;
        requests += 1;
        first.get_or_insert(record.arrival);
        if record.is_completed() {
            last = last.max(record.completed);
        }
        if twin_allowed.is_ok() {
            records.push(*record);
        }
        Ok(())
    })?;
    let verification: Verification = verifier.finish();
    let punctual = match twin_allowed {
        Ok(()) => Some(twin(models()?, &records).map_err(|error| wrong(&error))?.punctual),
        Err(over) => {
            output::note(format_args!(
                "{}: the time with punctual completions is left out: {over}; {}",
                directory.path().join(&repetition.log_file).display(),
                OverLimit::HELP
            ));
            None
        }
    };
    Ok(RepReport {
        index,
        requests,
        compared: verification.compared,
        not_compared: verification.not_compared,
        differences: verification.differences,
        first_difference: verification.first_difference.map(|difference| difference.to_string()),
        logged_ns: last.saturating_sub(first.unwrap_or_default()).as_nanos(),
        punctual_ns: punctual.map(Nanos::as_nanos),
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
        text.push_str(&format!("  device time {}", Nanos::from_nanos(rep.logged_ns)));
        if let Some(punctual) = rep.punctual_ns {
            text.push_str(&format!("; with punctual completions {}", Nanos::from_nanos(punctual)));
        }
        text.push('\n');
    }
    text
}
