//! Writes records as a file's bytes.

use chronodisk_sim::RequestRecord;

use super::formats::{self, Encoder};
use super::{Format, TraceInfo};

/// Makes the bytes of a trace, piece by piece.
#[derive(Debug)]
pub struct TraceWriter {
    encoder: Box<dyn Encoder>,
    info: TraceInfo,
    counts: WriteCounts,
}

/// Counts of a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounts {
    /// Requests that were written.
    pub requests: u64,
    /// Requests of a kind that the format does not have.
    pub left_out: u64,
}

impl TraceWriter {
    /// A writer of a format, with the trace's metadata; `None` for a format that is only read. Appends the file's first
    /// bytes to `out`.
    #[must_use]
    pub fn new(format: Format, info: TraceInfo, out: &mut Vec<u8>) -> Option<Self> {
        let mut encoder = formats::encoder(format)?;
        encoder.head(&info, out);
        Some(TraceWriter { encoder, info, counts: WriteCounts::default() })
    }

    /// Appends records in the order of the file.
    pub fn write(&mut self, records: &[RequestRecord], out: &mut Vec<u8>) {
        for record in records {
            if self.encoder.record(record, &self.info, out) {
                self.counts.requests += 1;
            } else {
                self.counts.left_out += 1;
            }
        }
    }

    /// Adds the bytes after the last request.
    pub fn finish(mut self, out: &mut Vec<u8>) -> WriteCounts {
        self.encoder.tail(&self.info, out);
        self.counts
    }
}
