//! `chronodisk trace convert`: a block trace in another format.

use chronodisk_trace::block::Format;
use clap::Args;

use super::written::{self, OutputOptions};
use crate::block_trace::{self, TraceOptions};
use crate::failure::Outcome;

/// Converts a block trace from and to the formats of other tools
///
/// TRACE is a run, a log in Parquet, or a file of another tool, compressed with gzip or zstd or not. The log in Parquet
/// keeps all that any format says. Ranges of bytes become whole sectors, outward.
#[derive(Debug, Args)]
#[command(after_help = format!("Formats: parquet, {}; fiu can only be read.\n\n\
    Example: chronodisk trace convert usr_0.csv.gz -o usr_0.parquet", names()))]
pub struct Arguments {
    /// Trace to convert
    #[arg(value_name = "TRACE")]
    trace: String,

    #[command(flatten)]
    output: OutputOptions,

    #[command(flatten)]
    options: TraceOptions,
}

fn names() -> String {
    Format::ALL.map(Format::name).join(", ")
}

/// Converts, and reports omissions.
pub fn execute(arguments: &Arguments) -> Outcome {
    written::write(&arguments.output, || block_trace::open(&arguments.trace, &arguments.options))
}
