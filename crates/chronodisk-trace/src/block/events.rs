//! Events of a kernel's block layer, and the requests that they make.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chronodisk_sim::{Op, RequestRecord};

/// An event of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The block layer takes it (`Q`).
    Queue,
    /// The driver gets it (`D`).
    Issue,
    /// The driver returned the request, which will be issued again (`R`).
    Requeue,
    /// The device has done it (`C`).
    Complete,
}

/// An event of a range of sectors; a flush has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event<'a> {
    pub(super) kind: Kind,
    pub(super) at_ns: u64,
    pub(super) volume: &'a str,
    pub(super) op: Op,
    pub(super) fua: bool,
    /// Whether a flush precedes it.
    pub(super) preflush: bool,
    pub(super) lba: u64,
    pub(super) sectors: u64,
    pub(super) issuer: u32,
}

/// The requests that are under way, in order of arrival.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) begins: Kind,
    /// Requests in order of arrival; `None` for a returned one.
    pending: VecDeque<Option<RequestRecord>>,
    /// The number of the first pending one.
    first: u64,
    /// Numbers of the requests without a completion, by device and first sector.
    open: BTreeMap<(u16, u64), VecDeque<u64>>,
    /// Queued requests by device, where they do not begin so.
    queued: BTreeMap<u16, u64>,
    /// Devices to which requests were issued.
    issued: BTreeSet<u16>,
}

/// Requests that may wait for the completion of an older one; beyond that it counts as lost.
const PENDING_MAX: usize = 1 << 16;
/// Key of flushes, which have no sector.
const FLUSH: u64 = u64::MAX;

impl Default for Events {
    fn default() -> Self {
        Events {
            begins: Kind::Issue,
            pending: VecDeque::new(),
            first: 0,
            open: BTreeMap::new(),
            queued: BTreeMap::new(),
            issued: BTreeSet::new(),
        }
    }
}

impl Events {
    /// Requests begin when they are queued.
    pub(super) fn from_queueing() -> Self {
        Events { begins: Kind::Queue, ..Events::default() }
    }

    /// Emits the rest, without completions.
    pub(super) fn finish(&mut self, mut found: impl FnMut(RequestRecord)) {
        self.open.clear();
        self.pending.drain(..).flatten().for_each(&mut found);
    }

    /// Counts a queued request. This event does not begin a request.
    pub(super) fn queued(&mut self, device: u16) {
        *self.queued.entry(device).or_default() += 1;
    }

    /// Number of requests that were queued on devices without any issued request.
    pub(super) fn unissued(&self) -> u64 {
        let of_device = |(device, count): (&u16, &u64)| if self.issued.contains(device) { 0 } else { *count };
        self.queued.iter().map(of_device).sum()
    }

    pub(super) fn begin(&mut self, record: RequestRecord) {
        self.issued.insert(record.device);
        let number = self.first + self.pending.len() as u64;
        self.open.entry(key_of(&record)).or_default().push_back(number);
        self.pending.push_back(Some(record));
    }

    /// The numbers of open requests that begin in a range, which are open no longer.
    pub(super) fn take(&mut self, device: u16, op: Op, lba: u64, sectors: u64) -> Vec<u64> {
        let range = match op {
            Op::Flush => (device, FLUSH)..=(device, FLUSH),
            _ => (device, lba)..=(device, lba + sectors.max(1) - 1),
        };
        let keys: Vec<(u16, u64)> = self.open.range(range).map(|(key, _)| *key).collect();
        let mut taken = Vec::new();
        for key in keys {
            let Some(numbers) = self.open.get_mut(&key) else { continue };
            taken.extend(numbers.pop_front());
            if numbers.is_empty() {
                self.open.remove(&key);
            }
        }
        taken
    }

    pub(super) fn record_mut(&mut self, number: u64) -> Option<&mut Option<RequestRecord>> {
        self.pending.get_mut(number.checked_sub(self.first)? as usize)
    }

    /// The oldest request, if it is final.
    pub(super) fn pop(&mut self) -> Option<Option<RequestRecord>> {
        let is_done = match self.pending.front()? {
            Some(record) => record.is_completed(),
            None => true,
        };
        if !is_done && self.pending.len() <= PENDING_MAX {
            return None;
        }
        let record = self.pending.pop_front()?;
        if let Some(record) = record.filter(|record| !record.is_completed()) {
            let key = key_of(&record);
            if let Some(numbers) = self.open.get_mut(&key) {
                numbers.retain(|&number| number != self.first);
                if numbers.is_empty() {
                    self.open.remove(&key);
                }
            }
        }
        self.first += 1;
        Some(record)
    }
}

fn key_of(record: &RequestRecord) -> (u16, u64) {
    (record.device, if record.op == Op::Flush { FLUSH } else { record.lba.0 })
}

/// A request according to the letters of blktrace (`WFS`, `RA`, …).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Letters {
    /// `None` for an event without data, which is a flush or can be ignored.
    pub(super) op: Option<Op>,
    pub(super) fua: bool,
    pub(super) preflush: bool,
}

pub(super) fn letters(text: &str) -> Letters {
    let rest = text.trim_start_matches('F');
    let op = match rest.bytes().next() {
        Some(b'R') => Some(Op::Read),
        Some(b'W') => Some(Op::Write),
        Some(b'D') => Some(Op::Discard),
        _ => None,
    };
    Letters { op, fua: op.is_some() && rest[1..].contains('F'), preflush: text.starts_with('F') }
}
