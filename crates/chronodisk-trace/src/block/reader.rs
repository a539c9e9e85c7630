//! Reads records from a file's bytes.

use std::fmt;

use chronodisk_sim::RequestRecord;

use super::events::Events;
use super::formats::{self, Decoder};
use super::line::Problem;
use super::sink::{ReadCounts, Sink};
use super::{Format, TraceInfo};

/// Reads a trace piece by piece.
#[derive(Debug)]
pub struct TraceReader {
    decoder: Decoder,
    /// The beginning of an incomplete line or binary event.
    begun: Vec<u8>,
    /// Line, or binary event, counted from 1.
    number: u64,
    accepted: u64,
    had_heading: bool,
    sink: Sink,
}

/// An error in a trace, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// The format that was read.
    pub format: Format,
    /// Line or binary event, counted from 1; 0 if the error concerns no particular one.
    pub line: u64,
    /// The problem, and the value expected.
    pub problem: String,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.format == Format::Blktrace { "event" } else { "line" };
        match self.line {
            0 => write!(f, "{}", self.problem),
            line => write!(f, "{what} {line}: {}", self.problem),
        }
    }
}

impl std::error::Error for FormatError {}

impl FormatError {
    /// Adds the file's name to the error: `file:line: ...` for text formats.
    #[must_use]
    pub fn in_file(&self, file: impl fmt::Display) -> String {
        match self.line {
            line if line > 0 && self.format != Format::Blktrace => format!("{file}:{line}: {}", self.problem),
            _ => format!("{file}: {self}"),
        }
    }
}

/// Longest line in bytes.
pub const LINE_BYTES_MAX: usize = 1 << 16;

impl TraceReader {
    /// A reader of a whole file.
    #[must_use]
    pub fn new(format: Format) -> Self {
        let decoder = formats::decoder(format);
        TraceReader { decoder, begun: Vec::new(), number: 0, accepted: 0, had_heading: false, sink: Sink::new(format) }
    }

    /// Accepts and skips this number of malformed lines.
    #[must_use]
    pub fn accepting_bad(self, accepted: u64) -> Self {
        TraceReader { accepted, ..self }
    }

    /// Block traces: requests begin when they are queued, not when they are issued to the driver.
    #[must_use]
    pub fn from_queueing(mut self) -> Self {
        self.sink.events = Events::from_queueing();
        self
    }

    /// Takes the next bytes, and adds the records that they complete.
    ///
    /// # Errors
    /// The first malformed line beyond the accepted ones. The reader is unusable afterwards.
    pub fn read(&mut self, mut bytes: &[u8], records: &mut Vec<RequestRecord>) -> Result<(), FormatError> {
        if let Decoder::Binary(decoder) = &mut self.decoder {
            self.begun.extend_from_slice(bytes);
            let mut used = 0;
            while let Some(len) = decoder.next_len(&self.begun[used..]).map_err(|problem| FormatError {
                format: Format::Blktrace,
                line: self.number + 1,
                problem,
            })? {
                self.number += 1;
                let event = &self.begun[used..used + len];
                decoder.event(event, &mut self.sink, records).map_err(|problem| FormatError {
                    format: Format::Blktrace,
                    line: self.number,
                    problem,
                })?;
                used += len;
            }
            self.begun.drain(..used);
            return Ok(());
        }
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            if self.begun.is_empty() {
                self.line(line, records)?;
            } else {
                let mut whole = std::mem::take(&mut self.begun);
                whole.extend_from_slice(line);
                self.line(&whole, records)?;
                whole.clear();
                self.begun = whole;
            }
            bytes = rest;
        }
        self.begun.extend_from_slice(bytes);
        if self.begun.len() > LINE_BYTES_MAX {
            return Err(self.error(self.number + 1, format!("a line of more than {LINE_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    /// Ends the file: adds the rest.
    ///
    /// # Errors
    /// Like [`read`](Self::read), and on a trace without requests.
    pub fn finish(&mut self, records: &mut Vec<RequestRecord>) -> Result<(), FormatError> {
        let rest = std::mem::take(&mut self.begun);
        if !rest.is_empty() {
            if matches!(self.decoder, Decoder::Binary(_)) {
                return Err(self.error(self.number + 1, format!("the file ends after {} of its bytes", rest.len())));
            }
            self.line(&rest, records)?;
        }
        let Sink { events, state } = &mut self.sink;
        events.finish(|record| state.push(record, records));
        state.counts.unissued = events.unissued();
        if self.sink.state.counts.requests == 0 && self.sink.state.counts.unissued > 0 {
            let queued = self.sink.state.counts.unissued;
            return Err(self.error(
                0,
                format!(
                    "no request was issued to a driver (D), and {queued} were queued (Q), as on a device without a \
                     request queue (dm, md, pmem, zram); --event Q reads those"
                ),
            ));
        }
        if self.sink.state.counts.requests == 0 {
            return Err(
                self.error(0, format!("no requests; expected a trace of the format {}", self.sink.state.format))
            );
        }
        Ok(())
    }

    /// The trace's metadata, as far as it was read.
    #[must_use]
    pub fn info(&self) -> &TraceInfo {
        &self.sink.state.info
    }

    /// Counts so far.
    #[must_use]
    pub fn counts(&self) -> ReadCounts {
        self.sink.state.counts
    }

    fn line(&mut self, line: &[u8], records: &mut Vec<RequestRecord>) -> Result<(), FormatError> {
        self.number += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = std::str::from_utf8(line).map_err(|_| "no text in UTF-8".to_owned());
        let Decoder::Lines(decode) = &mut self.decoder else { return Ok(()) };
        let done = text.clone().and_then(|text| match text.trim().is_empty() {
            true => Ok(()),
            false => decode.line(text, &mut self.sink, records),
        });
        match done {
            Ok(()) => Ok(()),
            Err(_) if self.is_heading(text.unwrap_or_default()) => {
                self.sink.skip();
                self.had_heading = true;
                Ok(())
            }
            Err(_) if self.sink.state.counts.bad < self.accepted => {
                self.sink.state.counts.bad += 1;
                Ok(())
            }
            Err(problem) => Err(self.error(self.number, problem)),
        }
    }

    /// Whether a line before all requests has the names of the columns.
    fn is_heading(&self, line: &str) -> bool {
        let is_first = !self.had_heading && self.sink.state.counts.requests == 0;
        is_first && self.sink.state.format.may_have_heading() && formats::is_heading(line)
    }

    fn error(&self, line: u64, problem: Problem) -> FormatError {
        FormatError { format: self.sink.state.format, line, problem }
    }
}
