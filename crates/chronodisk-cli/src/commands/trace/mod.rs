//! `chronodisk trace`: traces of block requests and of system calls.

mod bootstrap;
mod compare;
mod convert;
mod cut;
mod groups;
mod import;
mod merge;
mod record;
mod replay;
mod snapshot;
mod stats;
mod written;

use std::collections::BTreeSet;
use std::path::Path;

use chronodisk_report::{CallMemory, ReportError, read_calls_within};
use chronodisk_run::RecordedOptions;
use chronodisk_run::memory::{MemoryOptions, unreadable};
use chronodisk_trace::calls::{CallTrace, Header};
use clap::{Args, Subcommand};

use crate::failure::{Failure, Outcome};

/// Converts, cuts, merges, describes and compares traces of block requests; records, imports, examines, draws and
/// replays traces of system calls
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, subcommand_required = true, disable_help_subcommand = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Convert(convert::Arguments),
    Cut(cut::CutArguments),
    Merge(merge::Arguments),
    Scale(cut::ScaleArguments),
    Stats(stats::Arguments),
    Compare(compare::Arguments),
    Record(record::Arguments),
    Import(import::Arguments),
    Snapshot(snapshot::Arguments),
    Groups(groups::Arguments),
    Bootstrap(bootstrap::Arguments),
    Replay(Box<replay::Arguments>),
}

/// Executes the command.
pub fn execute(arguments: Arguments, options: RecordedOptions) -> Outcome {
    match arguments.command {
        Command::Convert(arguments) => convert::execute(&arguments),
        Command::Cut(arguments) => cut::cut(&arguments),
        Command::Merge(arguments) => merge::execute(&arguments),
        Command::Scale(arguments) => cut::scale(&arguments),
        Command::Stats(arguments) => stats::execute(&arguments),
        Command::Compare(arguments) => compare::execute(&arguments),
        Command::Record(arguments) => record::execute(&arguments),
        Command::Import(arguments) => import::execute(&arguments),
        Command::Snapshot(arguments) => snapshot::execute(&arguments),
        Command::Groups(arguments) => groups::execute(&arguments),
        Command::Bootstrap(arguments) => bootstrap::execute(&arguments),
        Command::Replay(arguments) => replay::execute(*arguments, options),
    }
}

/// Memory of a trace's groups per call, beyond the call: its place in the order and its paths.
const GROUPING_BYTES: u64 = 256;
/// Memory of a replay's plan per call.
const PLAN_BYTES: u64 = 512;

/// Reads a trace named by the user. The caller will need `further_bytes` of memory for each of its calls.
fn read(path: &Path, memory: MemoryOptions, further_bytes: u64) -> Result<CallTrace, Failure> {
    let memory = CallMemory { limit: memory.limit(), further_bytes };
    read_calls_within(path, memory).map_err(|error| {
        let other_kind = matches!(error, ReportError::Parquet { .. } | ReportError::Schema { .. });
        let failure = unreadable(error);
        if other_kind {
            failure.help("traces of system calls are made by `chronodisk trace record` and `chronodisk trace import`")
        } else {
            failure
        }
    })
}

/// A warning about missing parts of a trace; `None` if it is complete.
fn incompleteness(header: &Header) -> Option<String> {
    header.missing().map(|missing| format!("warning: the trace is incomplete: {missing}"))
}

/// Number of tasks that made calls.
fn tasks(trace: &CallTrace) -> usize {
    trace.records.iter().map(|record| record.task).collect::<BTreeSet<_>>().len()
}
