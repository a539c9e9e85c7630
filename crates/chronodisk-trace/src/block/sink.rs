//! Turns decoded lines into records: byte ranges become sectors, instants count from an origin, volumes get numbers,
//! and events of one request become one record.

use std::collections::BTreeMap;

use chronodisk_sim::{Lba, Nanos, Op, Priority, RequestRecord, SECTOR_BYTES, Status};

use super::events::{Event, Events, Kind};
use super::line::{At, Problem, Said};
use super::{Format, TraceInfo};

/// Counts of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Requests that were given.
    pub requests: u64,
    /// Of these, requests of partial sectors that were widened to whole ones.
    pub widened: u64,
    /// Of these, requests with an earlier arrival than their predecessor in the file.
    pub unordered: u64,
    /// Lines or events that are no request that can be replayed (opened files, blank kinds, merges, …).
    pub skipped: u64,
    /// Skipped malformed lines.
    pub bad: u64,
    /// Requests that are omitted because no request was issued to their device's driver.
    pub unissued: u64,
}

/// Longest request in sectors: 1 GiB.
const SECTORS_MAX: u64 = 1 << 21;
/// Sectors of the largest device: no sum overflows.
const DEVICE_SECTORS_MAX: u64 = 1 << 55;
/// Most volumes of a trace.
pub const VOLUMES_MAX: usize = 1 << 16;
/// Longest name of a volume in bytes: a file's path.
pub const VOLUME_NAME_BYTES_MAX: usize = 4_096;
/// An origin with a calendar is a midnight, so that requests which a trace has in another order are after it, too.
const DAY_NS: u64 = 86_400 * 1_000_000_000;
/// Latest instant: 292 years.
const INSTANT_NS_MAX: u64 = i64::MAX as u64;

/// Destination of decoded lines.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) events: Events,
    pub(super) state: SinkState,
}

/// State of the conversion to records.
#[derive(Debug)]
pub(super) struct SinkState {
    pub(super) format: Format,
    pub(super) info: TraceInfo,
    indices: BTreeMap<String, u16>,
    /// The volume that was named last: most lines name the same.
    last: u16,
    pub(super) counts: ReadCounts,
    latest: Nanos,
}

impl Sink {
    pub(super) fn new(format: Format) -> Self {
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

    /// Takes an event, and adds the records that it completes.
    pub(super) fn event(&mut self, event: Event<'_>, records: &mut Vec<RequestRecord>) -> Result<(), Problem> {
        if event.preflush && event.op != Op::Flush && event.kind == Kind::Queue && self.events.begins == Kind::Queue {
            // The block layer makes a flush of its own, before the write.
            let flush = Event { op: Op::Flush, fua: false, preflush: false, lba: 0, sectors: 0, ..event };
            self.event(flush, records)?;
        }
        let is_flush = event.op == Op::Flush;
        let said = Said {
            at: At::Relative { ns: event.at_ns },
            op: event.op,
            fua: event.fua,
            offset_bytes: event
                .lba
                .checked_mul(512)
                .filter(|_| !is_flush)
                .or(is_flush.then_some(0))
                .unwrap_or(u64::MAX),
            len_bytes: if is_flush { 0 } else { event.sectors * 512 },
            volume: event.volume,
            issuer: event.issuer,
            response_ns: None,
        };
        let record = self.state.record(said)?;
        match event.kind {
            kind if kind == self.events.begins => self.events.begin(record),
            Kind::Complete | Kind::Requeue => {
                let taken = self.events.take(record.device, event.op, event.lba, event.sectors);
                if taken.is_empty() {
                    // The request was issued before the trace began.
                    self.skip();
                }
                for number in taken {
                    let Some(pending) = self.events.record_mut(number) else { continue };
                    match (event.kind, pending) {
                        (Kind::Complete, Some(begun)) => begun.completed = record.arrival.max(begun.arrival),
                        (_, pending) => *pending = None,
                    }
                }
            }
            Kind::Queue => self.events.queued(record.device),
            Kind::Issue => {}
        }
        while let Some(done) = self.events.pop() {
            if let Some(record) = done {
                self.state.push(record, records);
            }
        }
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

    /// A line's record without its place in the order.
    fn record(&mut self, said: Said<'_>) -> Result<RequestRecord, Problem> {
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
        if name.len() > VOLUME_NAME_BYTES_MAX {
            return Err(format!(
                "the name of a volume has {} bytes; expected at most {VOLUME_NAME_BYTES_MAX}",
                name.len()
            ));
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
