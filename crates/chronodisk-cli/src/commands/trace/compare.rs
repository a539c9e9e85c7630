//! `chronodisk trace compare`: two block traces side by side.

use chronodisk_report::{ComparedTrace, compare_traces};
use chronodisk_run::memory::{self, MemoryOptions};
use chronodisk_run::quantity;
use chronodisk_sim::ContentsLimit;
use clap::Args;

use crate::block_trace::{self, TraceOptions};
use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Compares the requests of two block traces in any order
///
/// Requests are equal if their operation, first sector and length are. Accesses to blocks of 4 KiB are compared, too,
/// because one trace may have two requests for a merged one in the other. Shares refer to the longer trace.
#[derive(Debug, Args)]
#[command(after_help = "Exit status 1 if a share is below --min-match.\n\n\
    Example: chronodisk trace compare recorded.parquet last --min-match 0.99 --times")]
pub struct Arguments {
    /// First trace
    #[arg(value_name = "A")]
    a: String,

    /// Second trace
    #[arg(value_name = "B")]
    b: String,

    /// Fails if the share of equal requests is below this, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = quantity::share)]
    min_match: Option<f64>,

    /// Compares arrivals and response times of equal requests, too
    #[arg(long)]
    times: bool,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    memory: MemoryOptions,

    #[command(flatten)]
    options: TraceOptions,
}

/// Compares.
pub fn execute(arguments: &Arguments) -> Outcome {
    let a = read(&arguments.a, arguments)?;
    let b = read(&arguments.b, arguments)?;
    let comparison = compare_traces(&a, &b);
    output::data(&if arguments.json { comparison.to_json() } else { comparison.render() })?;
    let share = comparison.requests.share;
    match arguments.min_match {
        Some(least) if share < least => {
            output::note(format_args!("{:.4} of the requests are equal; expected at least {least}", share));
            Ok(status::CHECK_FAILED)
        }
        _ => Ok(status::FINE),
    }
}

/// Reads all requests of a trace with one volume.
fn read(name: &str, arguments: &Arguments) -> Result<ComparedTrace, Failure> {
    let mut trace = block_trace::open(name, &arguments.options)?;
    let path = trace.path().display().to_string();
    // Both traces stay in memory, so each gets half of the limit.
    let half = ContentsLimit::of_bytes(arguments.memory.limit().bytes() / 2);
    let mut compared = ComparedTrace::new(arguments.times, half);
    let mut first = None;
    let claimed = trace.claimed_requests().filter(|_| arguments.times).unwrap_or(0);
    let exceeded = |over| memory::exceeded(&path, over);
    half.allow(ComparedTrace::bytes_with_times(claimed)).map_err(exceeded)?;
    while let Some(record) = trace.next_record()? {
        trace.expect_one_volume(*first.get_or_insert(record.device), record.device)?;
        compared.add(&record).map_err(exceeded)?;
    }
    Ok(compared)
}
