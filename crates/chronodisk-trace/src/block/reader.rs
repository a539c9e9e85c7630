//! From a file's bytes to records.

use std::collections::BTreeMap;
use std::fmt;

use chronodisk_sim::{Lba, Nanos, Op, Priority, RequestRecord, SECTOR_BYTES, Status};

use super::events::Events;
use super::formats::{self, Decoder};
use super::line::{At, Problem, Said};
use super::{Format, TraceInfo};

/// Reads a trace piece by piece.
#[derive(Debug)]
pub struct TraceReader {
    decoder: Decoder,
    /// The beginning of a line, or of a binary event, whose end was not seen yet.
    begun: Vec<u8>,
    /// Line, or binary event, counted from 1.
    number: u64,
    accepted: u64,
    sink: Sink,
}

/// What was counted on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Requests that were given.
    pub requests: u64,
    /// Of these, requests of ranges that were not whole sectors, and that were widened.
    pub widened: u64,
    /// Of these, requests that arrive before the one that precedes them in the file.
    pub unordered: u64,
    /// Lines or events that are no request that can be replayed (opened files, blank kinds, merges, …).
    pub skipped: u64,
    /// Wrong lines that were passed over.
    pub bad: u64,
}

/// What is wrong with a trace, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// The format that was read.
    pub format: Format,
    /// Line, or binary event, counted from 1; 0 if it is none in particular.
    pub line: u64,
    /// What is wrong, and what was expected.
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

/// Longest line in bytes.
const LINE_BYTES_MAX: usize = 1 << 16;
/// Longest request in sectors: 1 GiB.
const SECTORS_MAX: u64 = 1 << 21;
/// Sectors of the largest device: no sum overflows.
const DEVICE_SECTORS_MAX: u64 = 1 << 55;
/// Most volumes of a trace.
const VOLUMES_MAX: usize = 1 << 16;
/// An origin with a calendar is a midnight, so that requests which a trace has in another order are after it, too.
const DAY_NS: u64 = 86_400 * 1_000_000_000;
/// Latest instant: 292 years.
const INSTANT_NS_MAX: u64 = i64::MAX as u64;

impl TraceReader {
    /// A reader of a whole file.
    #[must_use]
    pub fn new(format: Format) -> Self {
        let decoder = formats::decoder(format);
        TraceReader { decoder, begun: Vec::new(), number: 0, accepted: 0, sink: Sink::new(format) }
    }

    /// Passes over so many wrong lines.
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
    /// The first line that is wrong beyond those that are accepted. The reader is of no use afterwards.
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

    /// The file has ended: adds what is left.
    ///
    /// # Errors
    /// As [`read`](Self::read), and on a trace without requests.
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
        if self.sink.state.counts.requests == 0 {
            return Err(
                self.error(0, format!("no requests; expected a trace of the format {}", self.sink.state.format))
            );
        }
        Ok(())
    }

    /// What the trace says besides its requests, as far as it was read.
    #[must_use]
    pub fn info(&self) -> &TraceInfo {
        &self.sink.state.info
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> ReadCounts {
        self.sink.state.counts
    }

    fn line(&mut self, line: &[u8], records: &mut Vec<RequestRecord>) -> Result<(), FormatError> {
        self.number += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = std::str::from_utf8(line).map_err(|_| "no text in UTF-8".to_owned());
        let Decoder::Lines(decode) = &mut self.decoder else { return Ok(()) };
        let done = text.and_then(|text| match text.trim().is_empty() {
            true => Ok(()),
            false => decode.line(text, &mut self.sink, records),
        });
        match done {
            Ok(()) => Ok(()),
            Err(_) if self.sink.state.counts.bad < self.accepted => {
                self.sink.state.counts.bad += 1;
                Ok(())
            }
            Err(problem) => Err(self.error(self.number, problem)),
        }
    }

    fn error(&self, line: u64, problem: Problem) -> FormatError {
        FormatError { format: self.sink.state.format, line, problem }
    }
}

/// Where decoders put what they find.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) events: Events,
    pub(super) state: SinkState,
}

/// What makes records of what a trace says.
#[derive(Debug)]
pub(super) struct SinkState {
    format: Format,
    info: TraceInfo,
    indices: BTreeMap<String, u16>,
    /// The volume that was named last: most lines name the same.
    last: u16,
    counts: ReadCounts,
    latest: Nanos,
}

impl Sink {
    fn new(format: Format) -> Self {
        let state = SinkState {
            format,
            info: TraceInfo::default(),
            indices: BTreeMap::new(),
            last: 0,
            counts: ReadCounts::default(),
            latest: Nanos::ZERO,
        };
        Sink { events: Events::default(), state }
    }

    pub(super) fn skip(&mut self) {
        self.state.counts.skipped += 1;
    }

    pub(super) fn add(&mut self, said: Said<'_>, records: &mut Vec<RequestRecord>) -> Result<(), Problem> {
        let record = self.state.record(said)?;
        self.state.push(record, records);
        Ok(())
    }
}

impl SinkState {
    /// Hands a record on.
    pub(super) fn push(&mut self, mut record: RequestRecord, records: &mut Vec<RequestRecord>) {
        record.order = self.counts.requests;
        self.counts.requests += 1;
        self.counts.unordered += u64::from(record.arrival < self.latest);
        self.latest = self.latest.max(record.arrival);
        records.push(record);
    }

    /// What a line says, as a record without its place in the order.
    pub(super) fn record(&mut self, said: Said<'_>) -> Result<RequestRecord, Problem> {
        let (lba, sectors) = if said.op == Op::Flush { (0, 0) } else { self.sectors(&said)? };
        let arrival = self.instant(said.at)?;
        let completed = match said.response_ns {
            Some(ns) => arrival.checked_add(Nanos::from_nanos(ns)).filter(|at| at.as_nanos() <= INSTANT_NS_MAX),
            None => Some(Nanos::MAX),
        };
        Ok(RequestRecord {
            device: self.volume(said.volume)?,
            order: 0,
            op: said.op,
            fua: said.fua,
            priority: Priority::default(),
            lba: Lba(lba),
            sectors: sectors as u32,
            queue: 0,
            issuer: said.issuer,
            arrival,
            due: Nanos::MAX,
            completed: completed.ok_or("a response time of more than 292 years")?,
            status: Status::Ok,
            store_failed: false,
            stolen: false,
            model_time: Nanos::ZERO,
            store_time: Nanos::ZERO,
        })
    }

    /// First sector and count of sectors that a range of bytes touches.
    fn sectors(&mut self, said: &Said<'_>) -> Result<(u64, u64), Problem> {
        let Said { offset_bytes, len_bytes, .. } = *said;
        let end = offset_bytes.checked_add(len_bytes).filter(|end| end / SECTOR_BYTES < DEVICE_SECTORS_MAX);
        let end = end.ok_or_else(|| format!("{len_bytes} bytes at byte {offset_bytes} are beyond any device"))?;
        let (first, last) = (offset_bytes / SECTOR_BYTES, end.div_ceil(SECTOR_BYTES));
        if len_bytes == 0 || last - first > SECTORS_MAX {
            return Err(format!("a request of {len_bytes} bytes; expected 1 byte to {} MiB", SECTORS_MAX >> 11));
        }
        self.counts.widened += u64::from(offset_bytes % SECTOR_BYTES != 0 || end % SECTOR_BYTES != 0);
        Ok((first, last - first))
    }

    fn instant(&mut self, at: At) -> Result<Nanos, Problem> {
        let ns = match at {
            At::Relative { ns } => ns,
            At::Unix { ns } => {
                let origin = *self.info.origin_unix_ns.get_or_insert(ns / DAY_NS * DAY_NS);
                ns.checked_sub(origin).ok_or("a request on a day before that of the first request")?
            }
        };
        Some(Nanos::from_nanos(ns)).filter(|_| ns <= INSTANT_NS_MAX).ok_or_else(|| "an instant after 292 years".into())
    }

    fn volume(&mut self, name: &str) -> Result<u16, Problem> {
        if self.info.volumes.get(usize::from(self.last)).is_some_and(|last| last == name) {
            return Ok(self.last);
        }
        if let Some(&index) = self.indices.get(name) {
            self.last = index;
            return Ok(index);
        }
        let index = self.info.volumes.len();
        if index >= VOLUMES_MAX {
            return Err(format!("more than {VOLUMES_MAX} volumes"));
        }
        self.info.volumes.push(name.to_owned());
        self.indices.insert(name.to_owned(), index as u16);
        Ok(index as u16)
    }
}
