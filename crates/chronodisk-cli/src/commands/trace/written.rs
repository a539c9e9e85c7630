//! Writes a block trace from any source to a file.

use std::io::Write;
use std::path::{Path, PathBuf};

use chronodisk_report::{AtomicFile, LogInfo, LogWriter};
use chronodisk_sim::RequestRecord;
use chronodisk_sweep::BlockTrace;
use chronodisk_trace::block::{Format, ReadCounts, TraceInfo, TraceWriter, WriteCounts};
use clap::Args;

use crate::block_trace;
use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Where a trace is written, and how.
#[derive(Debug, Args)]
pub struct OutputOptions {
    /// Writes this file, which is complete or not there
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    /// Writes this format (default: parquet for a file that ends so)
    #[arg(long, value_name = "FORMAT")]
    to: Option<String>,
}

/// A sequence of requests, with metadata.
pub trait Requests {
    fn next(&mut self) -> Result<Option<RequestRecord>, Failure>;
    /// Metadata, as far as they were read.
    fn info(&self) -> LogInfo;
    /// Reason why an empty trace is an error, after all requests were read.
    fn emptiness(&self) -> Option<Failure> {
        None
    }
    fn counts(&self) -> ReadCounts;
}

impl Requests for BlockTrace {
    fn next(&mut self) -> Result<Option<RequestRecord>, Failure> {
        Ok(self.next_record()?)
    }

    fn info(&self) -> LogInfo {
        BlockTrace::info(self)
    }

    fn counts(&self) -> ReadCounts {
        BlockTrace::counts(self)
    }
}

const PIECE_REQUESTS: usize = 4096;

/// Writes the requests of `open`, and reports changed and omitted ones. Formats that begin with the volumes' names need
/// all of them first: for these `open` is called twice.
pub fn write<R: Requests>(options: &OutputOptions, open: impl Fn() -> Result<R, Failure>) -> Outcome {
    let to = format_of(options)?;
    output::expect_place(&options.output)?;
    let mut requests = open()?;
    let written = match to {
        None => write_log(&mut requests, &options.output)?,
        Some(format) => {
            let mut first_pass = open()?;
            while first_pass.next()?.is_some() {}
            let LogInfo { origin_unix_ns, volumes, .. } = first_pass.info();
            write_format(&mut requests, format, TraceInfo { origin_unix_ns, volumes }, &options.output)?
        }
    };
    output::note(format_args!("{} requests", written.requests));
    tell(&requests.counts());
    if written.left_out > 0 {
        let count = written.left_out;
        output::note(format_args!("{count} requests were left out, because the format does not have their kind"));
    }
    Ok(status::FINE)
}

/// Reports changes made while a trace was read.
pub fn tell(counts: &ReadCounts) {
    for (count, what) in [
        (counts.widened, "requests were widened to whole sectors"),
        (counts.unordered, "requests arrive before the one that precedes them"),
        (counts.skipped, "lines or events are no requests"),
        (counts.bad, "wrong lines were passed over"),
        (counts.unissued, "requests of devices without a request queue (dm, md) were left out; --event Q reads those"),
    ] {
        if count > 0 {
            output::note(format_args!("{count} {what}"));
        }
    }
}

/// The format to write; `None` for the log in Parquet.
fn format_of(options: &OutputOptions) -> Result<Option<Format>, Failure> {
    let to = match options.to.as_deref() {
        Some("parquet") => None,
        Some(name) => Some(block_trace::format(name).map_err(Failure::usage)?),
        None if options.output.extension().is_some_and(|extension| extension == "parquet") => None,
        None => {
            let failure = Failure::usage(format!("the format of {} is not known", options.output.display()));
            return Err(failure.help("name it with --to, or let the name end with .parquet"));
        }
    };
    match to.filter(|format| !format.can_be_written()) {
        Some(format) => Err(Failure::usage(format!("traces of the format {format} are only read"))),
        None => Ok(to),
    }
}

fn pieces(
    requests: &mut impl Requests,
    mut piece: impl FnMut(&[RequestRecord]) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let (mut records, mut total) = (Vec::with_capacity(PIECE_REQUESTS), 0);
    while let Some(record) = requests.next()? {
        records.push(record);
        total += 1;
        if records.len() == PIECE_REQUESTS {
            piece(&records)?;
            records.clear();
        }
    }
    piece(&records)?;
    Ok(total)
}

fn write_log(requests: &mut impl Requests, path: &Path) -> Result<WriteCounts, Failure> {
    let mut writer = LogWriter::create(path).map_err(Failure::host)?;
    let requests_written = pieces(requests, |records| writer.append(records).map_err(Failure::host))?;
    if let Some(failure) = requests.emptiness().filter(|_| requests_written == 0) {
        return Err(failure);
    }
    writer.finish_with(&requests.info()).map_err(Failure::host)?;
    Ok(WriteCounts { requests: requests_written, left_out: 0 })
}

fn write_format(
    requests: &mut impl Requests,
    format: Format,
    info: TraceInfo,
    path: &Path,
) -> Result<WriteCounts, Failure> {
    let failed = |error: std::io::Error| Failure::host(format!("{}: can't write: {error}", path.display()));
    let mut file = AtomicFile::create(path).map_err(Failure::host)?;
    let mut out = Vec::new();
    let Some(mut writer) = TraceWriter::new(format, info, &mut out) else {
        return Err(Failure::usage(format!("traces of the format {format} are only read")));
    };
    pieces(requests, |records| {
        writer.write(records, &mut out);
        file.write_all(&out).map_err(failed)?;
        out.clear();
        Ok(())
    })?;
    let counts = writer.finish(&mut out);
    if let Some(failure) = requests.emptiness().filter(|_| counts.requests + counts.left_out == 0) {
        return Err(failure);
    }
    file.write_all(&out).map_err(failed)?;
    file.keep().map_err(Failure::host)?;
    Ok(counts)
}
