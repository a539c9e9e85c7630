//! `chronodisk trace convert`: a block trace in another format.

use std::io::Write;
use std::path::PathBuf;

use chronodisk_report::{AtomicFile, LogWriter};
use chronodisk_sim::RequestRecord;
use chronodisk_trace::block::{Format, TraceInfo, TraceWriter};
use clap::Args;

use crate::block_trace::{self, BlockTrace, TraceOptions};
use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Converts a block trace from and to the formats of other tools
///
/// TRACE is a run, a log in Parquet, or a file of another tool, compressed with gzip or zstd or not. The log in Parquet
/// keeps all that any format says. Ranges of bytes become whole sectors, outward.
#[derive(Debug, Args)]
#[command(after_help = format!("Formats: parquet, {}; fiu can only be read.\n\n\
    Example: chronodisk trace convert usr_0.csv.gz -o usr_0.parquet", names()))]
pub struct Arguments {
    /// Converts this trace
    #[arg(value_name = "TRACE")]
    trace: String,

    /// Writes this file, which is complete or not there
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    /// Writes this format (default: parquet for a file that ends so)
    #[arg(long, value_name = "FORMAT")]
    to: Option<String>,

    #[command(flatten)]
    options: TraceOptions,
}

fn names() -> String {
    Format::ALL.map(Format::name).join(", ")
}

const PIECE_REQUESTS: usize = 4096;

/// Converts, and says what was left out.
pub fn execute(arguments: Arguments) -> Outcome {
    let to = match arguments.to.as_deref() {
        Some("parquet") => None,
        Some(name) => Some(block_trace::format(name).map_err(Failure::usage)?),
        None if arguments.output.extension().is_some_and(|extension| extension == "parquet") => None,
        None => {
            let failure = Failure::usage(format!("the format of {} is not known", arguments.output.display()));
            return Err(failure.help("name it with --to, or let the name end with .parquet"));
        }
    };
    if let Some(format) = to.filter(|format| !format.can_be_written()) {
        return Err(Failure::usage(format!("traces of the format {format} are only read")));
    }
    output::expect_place(&arguments.output)?;
    let mut trace = BlockTrace::open(&arguments.trace, &arguments.options)?;
    let (written, left_out) = match to {
        None => write_log(&mut trace, &arguments)?,
        Some(format) => write_format(&mut trace, format, &arguments)?,
    };
    let counts = trace.counts();
    output::note(format_args!("{written} requests"));
    for (count, what) in [
        (counts.widened, "requests were widened to whole sectors"),
        (counts.unordered, "requests arrive before the one that precedes them"),
        (counts.skipped, "lines or events are no requests"),
        (counts.bad, "wrong lines were passed over"),
        (left_out, "requests were left out, because the format does not have their kind"),
    ] {
        if count > 0 {
            output::note(format_args!("{count} {what}"));
        }
    }
    Ok(status::FINE)
}

fn pieces(
    trace: &mut BlockTrace,
    mut piece: impl FnMut(&BlockTrace, &[RequestRecord]) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let (mut records, mut total) = (Vec::with_capacity(PIECE_REQUESTS), 0);
    while let Some(record) = trace.next()? {
        records.push(record);
        total += 1;
        if records.len() == PIECE_REQUESTS {
            piece(trace, &records)?;
            records.clear();
        }
    }
    piece(trace, &records)?;
    Ok(total)
}

fn write_log(trace: &mut BlockTrace, arguments: &Arguments) -> Result<(u64, u64), Failure> {
    let mut writer = LogWriter::create(&arguments.output).map_err(Failure::host)?;
    let written = pieces(trace, |_, records| writer.append(records).map_err(Failure::host))?;
    writer.finish_with(&trace.info()).map_err(Failure::host)?;
    Ok((written, 0))
}

fn write_format(trace: &mut BlockTrace, format: Format, arguments: &Arguments) -> Result<(u64, u64), Failure> {
    let shown = arguments.output.display();
    let failed = |error: std::io::Error| Failure::host(format!("{shown}: can't write: {error}"));
    let mut file = AtomicFile::create(&arguments.output).map_err(Failure::host)?;
    let mut out = Vec::new();
    let mut writer: Option<TraceWriter> = None;
    // Formats that begin with the volumes need all of them at their beginning: those are found in a first pass.
    let info = volumes_of(arguments)?;
    pieces(trace, |_, records| {
        if writer.is_none() {
            writer = TraceWriter::new(format, info.clone(), &mut out);
        }
        if let Some(writer) = &mut writer {
            writer.write(records, &mut out);
        }
        file.write_all(&out).map_err(failed)?;
        out.clear();
        Ok(())
    })?;
    let counts = writer.map(|writer| writer.finish(&mut out)).unwrap_or_default();
    file.write_all(&out).map_err(failed)?;
    file.keep().map_err(Failure::host)?;
    Ok((counts.requests, counts.left_out))
}

/// What the whole trace says besides its requests.
fn volumes_of(arguments: &Arguments) -> Result<TraceInfo, Failure> {
    let mut trace = BlockTrace::open(&arguments.trace, &arguments.options)?;
    while trace.next()?.is_some() {}
    let info = trace.info();
    Ok(TraceInfo { origin_unix_ns: info.origin_unix_ns, volumes: info.volumes })
}
