//! `chronodisk trace replay`: the system calls of a trace, made again in a guest.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronodisk_run::memory::MemoryOptions;
use chronodisk_run::{Draws, GuestArguments, RecordedOptions, Work, quantity, snapshot};
use chronodisk_sim::Nanos;
use chronodisk_trace::calls::{self, CallTrace, Draw, Plan, PlanError};
use clap::Args;

use super::{PLAN_BYTES, groups, read};
use crate::commands::run;
use crate::failure::{Failure, Outcome};
use crate::output;

/// Replays a trace of system calls in a Linux guest on an emulated device
///
/// Boots a guest as `chronodisk run` does, with the file system mounted where it was mounted when the trace was
/// recorded. Each recorded task makes its calls on the device again, with its recorded CPU time before them and in the
/// recorded order wherever tasks share files, directories, pipes or locks. Data are made up.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 if the trace was replayed, whatever its calls returned.\n\
    125 if the emulation failed after the replay had begun.\n\
    Before it begins: 2 for wrong usage or a trace that can't be replayed, 3 if this host lacks something.\n\n\
    Example: chronodisk trace replay calls.parquet --device wd-zn540 --clock exact")]
pub struct Arguments {
    /// Trace to replay, a Parquet file of schema chronodisk.calls/1
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// Replays an incomplete trace without its lost and unrepeatable calls
    #[arg(long)]
    accept_incomplete: bool,

    /// Replays a workload that is drawn from the trace's groups with replacement. With --reps B, replays the trace and
    /// B draws, and prints means, deviations and 95 % intervals of the run's figures
    #[arg(long, value_name = "SEED")]
    bootstrap: Option<u64>,

    /// Shifts the start of each copy of a group in a draw by a random delay of at least 0 and less than T, such as 5s
    #[arg(long, value_name = "T", default_value = "0s", value_parser = quantity::duration)]
    jitter: Nanos,

    /// Replays the trace without each of its groups as well, for bias-corrected and accelerated (BCa) intervals
    #[arg(long, requires = "bootstrap")]
    jackknife: bool,

    #[command(flatten)]
    memory: MemoryOptions,

    #[command(flatten)]
    guest: GuestArguments,
}

pub fn execute(mut arguments: Arguments, options: RecordedOptions) -> Outcome {
    arguments.guest.expect_mounted()?;
    if options.is_given("jitter") && arguments.bootstrap.is_none() {
        return Err(Failure::usage(
            "--jitter needs --bootstrap: it shifts the copies in a draw, and not the trace itself",
        ));
    }
    let file = arguments.trace.display();
    let trace = read(&arguments.trace, arguments.memory, PLAN_BYTES)?;
    if let Some(missing) = trace.header.missing().filter(|_| !arguments.accept_incomplete) {
        return Err(Failure::usage(format!("{file} is incomplete: {missing}"))
            .help("--accept-incomplete replays the calls that are there"));
    }
    let plan = plan_of(&arguments, &trace)?;
    if let (Some(snapshot), Some(expected)) = (&arguments.guest.snapshot, &trace.header.file_system_uuid) {
        same_file_system(snapshot, expected, &arguments.trace)?;
    }
    if let Some(mount) = &trace.header.mount {
        arguments.guest.mount_at(mount, options.is_given("mount"))?;
    }
    let Some(seed) = arguments.bootstrap else {
        let records = trace.records.len();
        // The plan is sufficient for the replay.
        drop(trace);
        output::note(format_args!("replaying {records} calls of {} tasks", plan.tasks.len()));
        return run::work(&arguments.guest, Work::Replay(Arc::new(plan)), options);
    };
    let groups = groups::find(&trace, &arguments.trace)?;
    let (count, elements) = (arguments.guest.repetitions()?, groups.groups.len());
    if count == 1 {
        if arguments.jackknife {
            return Err(Failure::usage("--jackknife needs --reps, the number of draws to be replayed"));
        }
        let draw = Draw { seed, number: 0, jitter: arguments.jitter };
        let drawn =
            calls::draw(&trace, &groups, draw).map_err(|message| Failure::usage(format!("{file}: {message}")))?;
        output::note(format_args!("replaying one draw of N = {elements} groups; --reps B replays B, with intervals"));
        return run::work(&arguments.guest, Work::Replay(Arc::new(plan_of(&arguments, &drawn)?)), options);
    }
    let (file, plan, jackknife) = (arguments.trace.clone(), Arc::new(plan), arguments.jackknife);
    let draws = Draws { file, trace, groups, plan, seed, jitter: arguments.jitter, count, jackknife };
    let left_out = if arguments.jackknife { ", and it without each of them" } else { "" };
    output::note(format_args!("replaying the trace, B = {count} draws of its N = {elements} groups{left_out}"));
    arguments.guest.repeat(draws.replays());
    run::work(&arguments.guest, Work::Draws(&draws), options)
}

/// Plans the replay of the trace, unless a part of it can't be replayed.
fn plan_of(arguments: &Arguments, trace: &CallTrace) -> Result<Plan, Failure> {
    let file = arguments.trace.display();
    let plan = calls::plan(trace).map_err(|error| {
        let failure = Failure::usage(format!("{file}: {error}"));
        match error {
            PlanError::NoMountPoint => failure.help("record or import it again with --mount"),
            PlanError::NoDeviceCalls(_) => {
                failure.help("its mount point may be wrong; record or import it again with --mount")
            }
            PlanError::Architecture(_) => {
                failure.help("replay it on a machine of that architecture, or record it again on this one")
            }
        }
    })?;
    if !plan.skipped.is_empty() && !arguments.accept_incomplete {
        let calls: Vec<String> = plan.skipped.iter().map(|(name, count)| format!("{count} of {name}")).collect();
        return Err(Failure::usage(format!(
            "{file} has calls on the device that can't be replayed: {}",
            calls.join(", ")
        ))
        .help("--accept-incomplete replays the others"));
    }
    Ok(plan)
}

/// Refuses a snapshot of another file system than the trace's.
fn same_file_system(snapshot: &Path, expected: &str, trace: &Path) -> Result<(), Failure> {
    let found = snapshot::examine(snapshot)?.uuid;
    if found == expected {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--snapshot {}: its file system has the UUID {found}; expected {expected}, on which {} was recorded",
        snapshot.display(),
        trace.display()
    ))
    .help("take a snapshot of that file system as it was before the recording: chronodisk trace snapshot"))
}
