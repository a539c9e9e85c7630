//! `chronodisk trace stats`: statistics of a block trace.

use std::path::PathBuf;

use chronodisk_report::{StatisticsGatherer, plot_trace_statistics};
use chronodisk_run::quantity;
use chronodisk_sim::Nanos;
use chronodisk_trace::bootstrap::{Bootstrap, DRAWS};
use clap::Args;

use super::written;
use crate::block_trace::{self, TraceOptions};
use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Describes a block trace: rates, sizes, sequentiality, footprint, reuse distances, burstiness, idle times
///
/// Memory does not grow with the trace, but for --block. Footprints and cache hits of traces with more than 4 GiB of
/// distinct blocks are estimated from a sample of the blocks.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk trace stats usr_0.csv.gz --block 60s --plot usr_0.svg")]
pub struct Arguments {
    /// Trace to describe
    #[arg(value_name = "TRACE")]
    trace: String,

    /// Computes bootstrap intervals of the response times. Elements are blocks of time of this length, such as 10s, or
    /// requests
    #[arg(long, value_name = "DURATION|requests", value_parser = block)]
    block: Option<Block>,

    /// Sets the number of bootstrap draws
    #[arg(long, value_name = "B", default_value_t = DRAWS, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    draws: u32,

    /// Seeds the bootstrap draws
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Plots arrivals over time and cache hits to this file
    #[arg(long, value_name = "FILE.svg", value_parser = quantity::svg_file)]
    plot: Option<PathBuf>,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    options: TraceOptions,
}

/// Elements of the sample of response times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Requests,
    Time(Nanos),
}

fn block(text: &str) -> Result<Block, String> {
    match text {
        "requests" => Ok(Block::Requests),
        text => match quantity::duration(text) {
            Ok(length) if length > Nanos::ZERO => Ok(Block::Time(length)),
            _ => Err("expected a duration above 0, such as 10s, or requests".to_owned()),
        },
    }
}

/// Describes.
pub fn execute(arguments: &Arguments) -> Outcome {
    if let Some(path) = &arguments.plot {
        output::expect_place(path)?;
    }
    let mut trace = block_trace::open(&arguments.trace, &arguments.options)?;
    let mut gatherer = StatisticsGatherer::default();
    if let Some(block) = arguments.block {
        gatherer = gatherer.with_intervals(match block {
            Block::Requests => None,
            Block::Time(length) => Some(length),
        });
    }
    while let Some(record) = trace.next_record()? {
        gatherer.add(&record);
    }
    let bootstrap = Bootstrap { draws: arguments.draws, ..Bootstrap::new(arguments.seed) };
    let statistics = gatherer.finish(&trace.info().volumes, &bootstrap);
    if arguments.block.is_some() && statistics.intervals.is_none() {
        return Err(Failure::usage(format!(
            "{}: the trace has no completions; --block needs response times",
            trace.path().display()
        )));
    }
    written::tell(&trace.counts());
    output::data(&if arguments.json { statistics.to_json() } else { statistics.render() })?;
    if let Some(path) = &arguments.plot {
        plot_trace_statistics(path, &statistics).map_err(Failure::host)?;
        output::note(format_args!("plot: {}", path.display()));
    }
    Ok(status::FINE)
}
