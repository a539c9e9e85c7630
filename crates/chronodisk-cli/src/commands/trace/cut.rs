//! `chronodisk trace cut` and `chronodisk trace scale`: a part of a block trace, and one at another speed.

use chronodisk_report::LogInfo;
use chronodisk_run::quantity;
use chronodisk_sim::{Nanos, RequestRecord};
use chronodisk_sweep::BlockTrace;
use chronodisk_trace::block::ReadCounts;
use clap::Args;

use super::written::{self, OutputOptions, Requests};
use crate::block_trace::{self, TraceOptions};
use crate::failure::{Failure, Outcome};

/// Cuts a part out of a block trace, by time
///
/// Times count from the arrival of the trace's first request. Requests keep their instants.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk trace cut usr_0.csv.gz --from-time 3600s --to-time 7200s -o hour.parquet")]
pub struct CutArguments {
    /// Trace to cut
    #[arg(value_name = "TRACE")]
    trace: String,

    /// Keeps requests that arrive at this time or later
    #[arg(long, value_name = "DURATION", default_value = "0ns", value_parser = quantity::duration)]
    from_time: Nanos,

    /// Keeps requests that arrive before this time (default: all)
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration)]
    to_time: Option<Nanos>,

    #[command(flatten)]
    output: OutputOptions,

    #[command(flatten)]
    options: TraceOptions,
}

/// Scales the times between the arrivals of a block trace
///
/// Times count from the arrival of the trace's first request, which stays. Response times do not change.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk trace scale usr_0.csv.gz --time 0.5 -o twice-as-fast.parquet")]
pub struct ScaleArguments {
    /// Trace to scale
    #[arg(value_name = "TRACE")]
    trace: String,

    /// Multiplies the times between arrivals by this factor
    #[arg(long, value_name = "FACTOR", value_parser = quantity::factor)]
    time: f64,

    #[command(flatten)]
    output: OutputOptions,

    #[command(flatten)]
    options: TraceOptions,
}

/// Cuts.
pub fn cut(arguments: &CutArguments) -> Outcome {
    let (from, to) = (arguments.from_time, arguments.to_time.unwrap_or(Nanos::MAX));
    if from >= to {
        return Err(Failure::usage(format!("--from-time {from} is not before --to-time {to}")));
    }
    let keep = |since: Nanos, record: RequestRecord| Ok((from..to).contains(&since).then_some(record));
    written::write(&arguments.output, || Changed::open(&arguments.trace, &arguments.options, keep))
}

/// Scales.
pub fn scale(arguments: &ScaleArguments) -> Outcome {
    let scaled = |since: Nanos, record: RequestRecord| {
        // Beyond 292 years no log has instants.
        let scaled_ns = since.as_nanos() as f64 * arguments.time;
        let begin = record.arrival.saturating_sub(since);
        let arrival = begin.checked_add(Nanos::from_nanos(scaled_ns.round() as u64));
        let arrival = arrival.filter(|arrival| arrival.as_nanos() < i64::MAX as u64 / 2).ok_or_else(|| {
            Failure::usage(format!("--time {:?}: a request would arrive after more than 146 years", arguments.time))
        })?;
        let moved = |at: Nanos| if at == Nanos::MAX { at } else { arrival + (at - record.arrival) };
        Ok(Some(RequestRecord { arrival, due: moved(record.due), completed: moved(record.completed), ..record }))
    };
    written::write(&arguments.output, || Changed::open(&arguments.trace, &arguments.options, scaled))
}

/// A trace whose requests are changed or omitted one by one.
struct Changed<F> {
    trace: BlockTrace,
    begin: Option<Nanos>,
    /// The latest arrival since the first.
    latest: Nanos,
    change: F,
}

impl<F: Fn(Nanos, RequestRecord) -> Result<Option<RequestRecord>, Failure>> Changed<F> {
    fn open(name: &str, options: &TraceOptions, change: F) -> Result<Self, Failure> {
        Ok(Changed { trace: block_trace::open(name, options)?, begin: None, latest: Nanos::ZERO, change })
    }
}

impl<F: Fn(Nanos, RequestRecord) -> Result<Option<RequestRecord>, Failure>> Requests for Changed<F> {
    fn next(&mut self) -> Result<Option<RequestRecord>, Failure> {
        while let Some(record) = self.trace.next_record()? {
            let begin = *self.begin.get_or_insert(record.arrival);
            let since = record.arrival.saturating_sub(begin);
            self.latest = self.latest.max(since);
            if let Some(changed) = (self.change)(since, record)? {
                return Ok(Some(changed));
            }
        }
        Ok(None)
    }

    fn info(&self) -> LogInfo {
        self.trace.info()
    }

    fn emptiness(&self) -> Option<Failure> {
        let (path, latest) = (self.trace.path().display(), self.latest);
        Some(Failure::usage(format!("{path}: no request arrives in this time; the last one arrives after {latest}")))
    }

    fn counts(&self) -> ReadCounts {
        self.trace.counts()
    }
}
