//! A writer that never pauses, and the time of a flush or a FUA write beside it.
//!
//! The *drain* of a request is the time that it takes if no request arrives after it. A fork of the device measures it.
//! Requests that arrive later may delay a flush or a FUA write by at most the device's age bound.

use chronodisk_sim::{Completion, Nanos, Op, RandomStream, Request, RequestId, SECTOR_BYTES, Status};

use super::step;
use crate::DeviceModel;

/// The pattern of an endless writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Writes of 128 KiB, each beginning at the end of the previous one.
    Sequential,
    /// Writes of 4 KiB at random places in the first half.
    Random,
    /// Sequential writes, random writes and random reads in turn.
    Mixed,
}

impl Writer {
    /// All patterns.
    pub const ALL: [Writer; 3] = [Writer::Sequential, Writer::Random, Writer::Mixed];

    /// The name used in tables and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Writer::Sequential => "sequential writes",
            Writer::Random => "random writes",
            Writer::Mixed => "mixed writes and reads",
        }
    }
}

/// Arrival times of an endless writer's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A closed loop: this number of requests is outstanding at any time.
    Closed(u32),
    /// At nine tenths of the rate of a closed loop of depth 4, independent of completions.
    Open,
}

impl Pace {
    /// The name used in tables and results.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Pace::Closed(depth) => format!("depth {depth}"),
            Pace::Open => "open loop".to_owned(),
        }
    }
}

/// The request that is measured beside a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// A flush after a completed write of 4 KiB, far from the writer, as in an `fsync`.
    Flush,
    /// A write of 4 KiB with FUA, far from the writer.
    Fua,
}

impl Barrier {
    /// Both kinds of barrier.
    pub const ALL: [Barrier; 2] = [Barrier::Flush, Barrier::Fua];

    /// The name used in tables and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Barrier::Flush => "flush",
            Barrier::Fua => "FUA write",
        }
    }
}

/// The service time of a flush or a FUA write beside a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// Time from arrival to completion. The measurement ends early if the wait exceeds [`GIVEN_UP`] times the bound.
    pub wait: Nanos,
    /// Time from arrival to completion on a device with no later arrivals.
    pub drain: Nanos,
}

/// A measurement ends when a request has waited this multiple of its bound.
pub const GIVEN_UP: u64 = 4;

/// Number of barriers beside a writer, one after the other.
const BARRIERS: u64 = 3;
/// Requests of the writer before the first barrier, and before each of the others.
const BEFORE: u64 = 2_048;
const BETWEEN: u64 = 96;
/// Longest wait for a full buffer.
const LONGEST_START: Nanos = Nanos::from_secs(3);
/// First number of barriers' request ids.
const BARRIER_ID: u64 = 1 << 48;

/// Measures barriers beside a writer on a new device, and returns the one whose wait exceeds its drain by most. `None`
/// if the device refuses the writes.
///
/// `allowed` is the accepted difference between a barrier's wait and its drain.
///
/// # Panics
/// If the device breaks the contract of [`DeviceModel`].
pub fn measure_barrier(
    device: &mut dyn DeviceModel,
    writer: Writer,
    pace: Pace,
    barrier: Barrier,
    allowed: Nanos,
) -> Option<Waited> {
    let mut session = Session::new(device, writer);
    let depth = match pace {
        Pace::Closed(depth) => depth,
        Pace::Open => 4,
    };
    session.depth = depth;
    session.go_on(BEFORE);
    if pace == Pace::Open {
        let each = session.device.now().as_nanos() / session.completed.max(1);
        session.gap = Some(Nanos::from_nanos((each * 10 / 9).max(1)));
        session.next_arrival = session.device.now();
        session.go_on(BETWEEN);
    }
    let mut worst: Option<Waited> = None;
    for number in 0..BARRIERS {
        session.go_on(BETWEEN);
        // A device with zones refuses requests at once, and so without end.
        if session.refused {
            return None;
        }
        let (waited, completed) = session.barrier(barrier, number, allowed);
        let beyond = |it: Waited| it.wait.as_nanos().saturating_sub(it.drain.as_nanos());
        if worst.is_none_or(|worst| beyond(waited) > beyond(worst)) {
            worst = Some(waited);
        }
        if !completed {
            break;
        }
    }
    worst.filter(|_| !session.refused)
}

struct Session<'a> {
    device: &'a mut dyn DeviceModel,
    writer: Writer,
    depth: u32,
    /// The time between two arrivals of an open loop.
    gap: Option<Nanos>,
    next_arrival: Nanos,
    stream: RandomStream,
    asked: u64,
    completed: u64,
    barriers_outstanding: u32,
    refused: bool,
    scratch: Vec<Completion>,
}

impl<'a> Session<'a> {
    fn new(device: &'a mut dyn DeviceModel, writer: Writer) -> Self {
        Session {
            device,
            writer,
            depth: 1,
            gap: None,
            next_arrival: Nanos::ZERO,
            stream: RandomStream::new(1, "rates", "endless"),
            asked: 0,
            completed: 0,
            barriers_outstanding: 0,
            refused: false,
            scratch: Vec::new(),
        }
    }

    fn submit_next(&mut self) {
        const SMALL: u64 = (4 << 10) / SECTOR_BYTES;
        const LARGE: u64 = (128 << 10) / SECTOR_BYTES;
        let half = (self.device.info().capacity_sectors / 2).max(LARGE);
        let number = self.asked;
        let kind = match self.writer {
            Writer::Sequential => 0,
            Writer::Random => 1,
            Writer::Mixed => number % 3,
        };
        let stream_index = if self.writer == Writer::Mixed { number / 3 } else { number };
        let (op, lba, sectors) = match kind {
            0 => (Op::Write, stream_index % (half / LARGE) * LARGE, LARGE),
            1 => (Op::Write, self.stream.below(half / SMALL) * SMALL, SMALL),
            _ => (Op::Read, self.stream.below(half / SMALL) * SMALL, SMALL),
        };
        self.device.submit(Request::new(number, op, lba, sectors as u32));
        self.asked += 1;
    }

    fn submit(&mut self, barrier: Request) {
        self.device.submit(barrier);
        self.barriers_outstanding += 1;
    }

    /// Runs to the next event. Returns the instant of a barrier's completion, if it was one.
    fn turn(&mut self) -> Option<Nanos> {
        match self.gap {
            None => {
                while self.device.outstanding() < self.depth + self.barriers_outstanding {
                    self.submit_next();
                }
                step(self.device, &mut self.scratch);
            }
            Some(gap) => {
                let event = self.device.next_event().unwrap_or(Nanos::MAX);
                self.device.step(event.min(self.next_arrival), &mut self.scratch);
                if self.device.now() == self.next_arrival {
                    self.submit_next();
                    self.next_arrival = self.next_arrival.saturating_add(gap);
                }
            }
        }
        let mut at = None;
        for completion in self.scratch.drain(..) {
            if completion.id.0 >= BARRIER_ID {
                self.barriers_outstanding -= 1;
                at = Some(completion.at);
            } else {
                self.completed += 1;
                self.refused |= completion.status != Status::Ok;
            }
        }
        at
    }

    /// Runs until this number of further requests has completed.
    fn go_on(&mut self, requests: u64) {
        let (until, latest) = (self.completed + requests, self.device.now().saturating_add(LONGEST_START));
        while self.completed < until && self.device.now() < latest && !self.refused {
            self.turn();
        }
    }

    /// The service time of a barrier; false if it has not completed.
    fn barrier(&mut self, barrier: Barrier, number: u64, allowed: Nanos) -> (Waited, bool) {
        const SECTORS: u64 = (4 << 10) / SECTOR_BYTES;
        let places = self.device.info().capacity_sectors / SECTORS;
        let lba = places.saturating_sub(1 + number * 64) * SECTORS;
        let id = BARRIER_ID + 2 * number;
        let write = Request::new(id + 1, Op::Write, lba, SECTORS as u32);
        let request = match barrier {
            Barrier::Flush => {
                self.submit(write);
                while self.turn().is_none() && !self.refused {}
                Request::new(id, Op::Flush, 0, 0)
            }
            Barrier::Fua => Request { id: RequestId(id), fua: true, ..write },
        };
        let arrived = self.device.now();
        self.submit(request);
        let drain = drain(self.device.fork(), id) - arrived;
        let latest = arrived.saturating_add(Nanos::from_nanos((drain + allowed).as_nanos() * GIVEN_UP));
        loop {
            match self.turn() {
                Some(at) => return (Waited { wait: at - arrived, drain }, true),
                None if self.device.now() > latest || self.refused => {
                    return (Waited { wait: self.device.now() - arrived, drain }, false);
                }
                None => {}
            }
        }
    }
}

/// Instant at which a request completes if no further request arrives.
fn drain(mut device: Box<dyn DeviceModel>, id: u64) -> Nanos {
    let mut completed = Vec::new();
    loop {
        step(device.as_mut(), &mut completed);
        if let Some(completion) = completed.drain(..).find(|completion| completion.id.0 == id) {
            return completion.at;
        }
    }
}
