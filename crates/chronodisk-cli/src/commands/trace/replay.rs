//! `chronodisk trace replay`: the system calls of a trace, made again in a guest.

use std::path::PathBuf;
use std::sync::Arc;

use chronodisk_trace::calls::{self, CallTrace, PlanError};
use clap::Args;

use crate::commands::run::{self, GuestArguments, Work};
use crate::failure::{Failure, Outcome};
use crate::options::CommandOptions;
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
    /// Replays this trace, a Parquet file of schema chronodisk.calls/1
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// Replays an incomplete trace: what was lost or can't be made again is left out
    #[arg(long)]
    accept_incomplete: bool,

    #[command(flatten)]
    guest: GuestArguments,
}

pub fn execute(mut arguments: Arguments, options: CommandOptions) -> Outcome {
    arguments.guest.expect_mounted()?;
    let file = arguments.trace.display();
    let trace = chronodisk_report::read_calls(&arguments.trace).map_err(Failure::usage)?;
    if !trace.header.is_complete() && !arguments.accept_incomplete {
        return Err(Failure::usage(format!("{file} is incomplete: {}", losses(&trace)))
            .help("--accept-incomplete replays what is there"));
    }
    let plan = calls::plan(&trace).map_err(|error| {
        let failure = Failure::usage(format!("{file}: {error}"));
        match error {
            PlanError::NoMountPoint => failure.help("import it again with --mount"),
            PlanError::NoDeviceCalls(_) => failure.help("its mount point may be wrong; import it again with --mount"),
            PlanError::Architecture(_) => failure,
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
    if let Some(mount) = &trace.header.mount {
        arguments.guest.mount_at(mount, options.is_given("mount"))?;
    }
    let records = trace.records.len();
    // The plan has what the replay needs.
    drop(trace);
    output::note(format_args!("replaying {records} calls of {} tasks", plan.tasks.len()));
    run::work(&arguments.guest, Work::Replay(Arc::new(plan)), options)
}

/// What an incomplete trace lacks.
fn losses(trace: &CallTrace) -> String {
    let header = &trace.header;
    let lost = (header.lost_events > 0).then(|| format!("{} lost calls", header.lost_events));
    let reasons = header.incomplete.iter().map(|(name, count)| format!("{name} ({count} times)"));
    lost.into_iter().chain(reasons).collect::<Vec<_>>().join(", ")
}
