//! The stations that a request passes, and the events between them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use chronodisk_sim::{
    Completion, EventOrder, EventQueue, Nanos, Op, RandomStream, Request, RequestId, SECTOR_BYTES, Status,
};

use super::Parameters;
use crate::composite::Slab;
use crate::sector_set::{SectorSet, changes};
use crate::{DeviceInfo, DeviceModel, Probe};

/// Approximate limit of the pieces of a request.
const MAX_PIECES: u64 = 1_024;

/// The device.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    info: Arc<DeviceInfo>,
    parameters: Arc<Parameters>,
    now: Nanos,
    events: EventQueue<Event>,
    /// Pieces on the link from the host, and when they have crossed it. The link carries them one after the other, so
    /// they need no priority queue.
    arriving: VecDeque<(EventOrder, u32, Piece)>,
    requests: Slab<Active>,
    outstanding: u32,
    /// Instant at which the controller takes up another request.
    controller_free: Nanos,
    /// Instant at which each direction of the link is free.
    to_host_free: Nanos,
    from_host_free: Nanos,
    units_free: Vec<Nanos>,
    /// Bytes in the write buffer, and the pieces that wait for room, in order of arrival.
    buffered_bytes: u64,
    waiting: VecDeque<(u32, Piece)>,
    read_times: RandomStream,
    write_times: RandomStream,
    statistics: MemoryStatistics,
}

/// Next event of a request, or of one of its pieces.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The controller has finished its work on the request.
    TakenUp(u32),
    /// The unit has read or written the piece.
    Accessed(u32, Piece),
    /// The unit has written a piece of a request that completed when the piece entered the buffer.
    Drained(Piece),
    /// The last part of the request is done.
    Complete(u32),
}

/// A request's part on one unit at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) unit: u32,
    pub(super) bytes: u64,
    /// Number of accesses by the unit: one, unless the request is very long.
    pub(super) accesses: u64,
}

/// A request that is not complete.
#[derive(Clone, Copy, Debug)]
struct Active {
    id: RequestId,
    op: Op,
    first_byte: u64,
    bytes: u64,
    /// Pieces that are not yet where they have to be for the request to be complete.
    remaining: u32,
}

impl Memory {
    pub(super) fn new(info: DeviceInfo, parameters: Arc<Parameters>, seed: u64) -> Self {
        Memory {
            info: Arc::new(info),
            now: Nanos::ZERO,
            events: EventQueue::new(),
            arriving: VecDeque::new(),
            requests: Slab::new(),
            outstanding: 0,
            controller_free: Nanos::ZERO,
            to_host_free: Nanos::ZERO,
            from_host_free: Nanos::ZERO,
            units_free: vec![Nanos::ZERO; parameters.units as usize],
            buffered_bytes: 0,
            waiting: VecDeque::new(),
            read_times: RandomStream::new(seed, "memory", "read-times"),
            write_times: RandomStream::new(seed, "memory", "write-times"),
            statistics: MemoryStatistics::default(),
            parameters,
        }
    }

    fn handle(&mut self, event: Event, completed: &mut Vec<Completion>) {
        match event {
            Event::TakenUp(number) => self.taken_up(number),
            Event::Accessed(number, piece) => self.accessed(number, piece),
            Event::Drained(piece) => self.drained(piece),
            Event::Complete(number) => {
                let request = self.requests.take(number);
                self.outstanding -= 1;
                completed.push(Completion { id: request.id, at: self.now, status: Status::Ok });
            }
        }
    }

    /// Continues after the controller: a read goes to its units, a write's data come from the host, other requests
    /// complete.
    fn taken_up(&mut self, number: u32) {
        let request = *self.requests.get(number);
        if !request.op.moves_data() || request.bytes == 0 {
            return self.events.push(self.now, Event::Complete(number));
        }
        let parameters = Arc::clone(&self.parameters);
        let mut count = 0;
        for piece in pieces(&parameters, request.first_byte, request.bytes) {
            count += 1;
            match request.op {
                Op::Read => {
                    let at = self.access(Op::Read, piece);
                    self.events.push(at, Event::Accessed(number, piece));
                }
                _ => {
                    let time = parameters.write.link.time_for(piece.bytes);
                    self.from_host_free = self.from_host_free.max(self.now).saturating_add(time);
                    self.statistics.from_host += time;
                    self.arriving.push_back((self.events.reserve(self.from_host_free), number, piece));
                }
            }
        }
        self.requests.get_mut(number).remaining = count;
    }

    /// Reserves the piece's unit. Returns the instant at which it is done.
    fn access(&mut self, op: Op, piece: Piece) -> Nanos {
        let (direction, times) = match op {
            Op::Read => (&self.parameters.read, &mut self.read_times),
            _ => (&self.parameters.write, &mut self.write_times),
        };
        let mut nanos = direction.latency.as_nanos().saturating_mul(piece.accesses);
        let variation = direction.variation.as_nanos();
        if variation > 0 {
            // One random draw for the whole piece: the variations of many accesses would cancel out.
            nanos = nanos - variation + times.below(2 * variation + 1);
        }
        let time = Nanos::from_nanos(nanos).saturating_add(direction.bandwidth.time_for(piece.bytes));
        let free = &mut self.units_free[piece.unit as usize];
        let start = self.now.max(*free);
        self.statistics.unit_wait = self.statistics.unit_wait.saturating_add(start - self.now);
        self.statistics.unit_busy = self.statistics.unit_busy.saturating_add(time);
        *free = start.saturating_add(time);
        *free
    }

    /// Continues after the link from the host.
    fn received(&mut self, number: u32, piece: Piece) {
        if self.parameters.buffer_bytes.is_none() {
            let at = self.access(Op::Write, piece);
            self.events.push(at, Event::Accessed(number, piece));
        } else if self.waiting.is_empty() && self.has_room(piece) {
            self.buffer(number, piece);
        } else {
            self.statistics.buffer_waits += 1;
            self.waiting.push_back((number, piece));
        }
    }

    /// Whether the piece fits into the buffer. A piece larger than the buffer needs it to be empty.
    fn has_room(&self, piece: Piece) -> bool {
        let size = self.parameters.buffer_bytes.unwrap_or(0);
        self.buffered_bytes == 0 || self.buffered_bytes + piece.bytes <= size
    }

    fn buffer(&mut self, number: u32, piece: Piece) {
        self.buffered_bytes += piece.bytes;
        let at = self.access(Op::Write, piece);
        self.events.push(at, Event::Drained(piece));
        self.piece_done(number, self.now);
    }

    fn drained(&mut self, piece: Piece) {
        self.buffered_bytes -= piece.bytes;
        while let Some(&(number, next)) = self.waiting.front()
            && self.has_room(next)
        {
            self.waiting.pop_front();
            self.buffer(number, next);
        }
    }

    fn accessed(&mut self, number: u32, piece: Piece) {
        let done = match self.requests.get(number).op {
            Op::Read => {
                let time = self.parameters.read.link.time_for(piece.bytes);
                self.to_host_free = self.to_host_free.max(self.now).saturating_add(time);
                self.statistics.to_host += time;
                self.to_host_free
            }
            _ => self.now,
        };
        self.piece_done(number, done);
    }

    /// The least time of a piece from the link to the completion of its request.
    fn least_write(&self) -> Nanos {
        let write = &self.parameters.write;
        let writes_through = self.parameters.buffer_bytes.is_none();
        if writes_through { write.latency.saturating_sub(write.variation) } else { Nanos::ZERO }
    }

    /// The least time from an event to the completion of its request: no waits, the shortest access, and the link.
    fn least_rest(&self, event: &Event) -> Nanos {
        let (read, write) = (&self.parameters.read, &self.parameters.write);
        match event {
            Event::TakenUp(number) => {
                let request = self.requests.get(*number);
                match request.op {
                    op if !op.moves_data() || request.bytes == 0 => Nanos::ZERO,
                    Op::Read => {
                        read.latency.saturating_sub(read.variation).saturating_add(read.link.time_for(request.bytes))
                    }
                    _ => write.link.time_for(request.bytes).saturating_add(self.least_write()),
                }
            }
            Event::Accessed(number, piece) => match self.requests.get(*number).op {
                Op::Read => read.link.time_for(piece.bytes),
                _ => Nanos::ZERO,
            },
            Event::Drained(_) | Event::Complete(_) => Nanos::ZERO,
        }
    }

    /// Notes the end of a piece. Calls are in the order of the ends, so the last one completes the request.
    fn piece_done(&mut self, number: u32, at: Nanos) {
        let request = self.requests.get_mut(number);
        request.remaining -= 1;
        if request.remaining == 0 {
            self.events.push(at, Event::Complete(number));
        }
    }
}

/// The pieces of `bytes` from `first_byte` on.
pub(super) fn pieces(parameters: &Parameters, first_byte: u64, bytes: u64) -> impl Iterator<Item = Piece> + use<> {
    let (interleave, units) = (parameters.interleave_bytes, u64::from(parameters.units));
    let end = first_byte + bytes;
    let first = first_byte / interleave;
    // Number of interleaved pieces that are combined; the last group may have fewer.
    let group = (end.div_ceil(interleave) - first).div_ceil(MAX_PIECES);
    let groups = (end.div_ceil(interleave) - first).div_ceil(group);
    (0..groups).map(move |index| {
        let from = (first + index * group) * interleave;
        let (from, to) = (from.max(first_byte), (from + group * interleave).min(end));
        Piece {
            unit: ((first + index) % units) as u32,
            bytes: to - from,
            accesses: to.div_ceil(interleave) - from / interleave,
        }
    })
}

impl DeviceModel for Memory {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn outstanding(&self) -> u32 {
        self.outstanding
    }

    fn submit(&mut self, request: Request) {
        self.statistics.count(&request);
        let start = self.controller_free.max(self.now);
        self.controller_free = start.saturating_add(self.parameters.command_interval);
        let overhead = match request.op {
            Op::Write | Op::WriteZeroes => self.parameters.write.overhead,
            _ => self.parameters.read.overhead,
        };
        let number = self.requests.insert(Active {
            id: request.id,
            op: request.op,
            first_byte: request.lba.0 * SECTOR_BYTES,
            bytes: request.len_bytes(),
            remaining: 0,
        });
        self.outstanding += 1;
        self.events.push(start.saturating_add(overhead), Event::TakenUp(number));
    }

    fn next_event(&self) -> Option<Nanos> {
        let arrival = self.arriving.front().map(|(order, ..)| order.at);
        match (self.events.next_at(), arrival) {
            (Some(event), Some(arrival)) => Some(event.min(arrival)),
            (event, arrival) => event.or(arrival),
        }
    }

    fn completion_bound(&self) -> Option<Nanos> {
        let of_events = self.events.earliest_end(|event| self.least_rest(event));
        // They arrive in order, and have the same way before them.
        let of_arrivals = self.arriving.front().map(|(order, ..)| order.at.saturating_add(self.least_write()));
        let earliest = of_events.into_iter().chain(of_arrivals).min();
        earliest.filter(|_| self.outstanding > 0)
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let before = completed.len();
        while let Some(at) = self.next_event().filter(|&at| at <= limit) {
            self.now = at;
            loop {
                if let Some(&(order, number, piece)) = self.arriving.front()
                    && order.at == at
                    && self.events.first().is_none_or(|first| order < first)
                {
                    self.arriving.pop_front();
                    self.received(number, piece);
                } else if let Some((_, event)) = self.events.pop_until(at) {
                    self.handle(event, completed);
                } else {
                    break;
                }
            }
            if completed.len() > before {
                return;
            }
        }
        self.now = self.now.max(limit);
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }

    /// Outstanding requests: the write buffer keeps its contents without power.
    fn volatile(&self) -> Option<Vec<Range<u64>>> {
        let changing = self.requests.iter().filter(|request| changes(request.op));
        let sectors = changing.map(|request| {
            let first = request.first_byte / SECTOR_BYTES;
            first..first + request.bytes / SECTOR_BYTES
        });
        Some(sectors.collect::<SectorSet>().into_ranges())
    }

    fn probe(&self, sink: &mut dyn Probe) {
        self.statistics.tell(sink);
        sink.counter("buffered-bytes", self.buffered_bytes);
    }
}

/// Counts since instant zero; a request counts when it arrives, a unit's and the link's time when they are reserved.
#[derive(Clone, Debug, Default)]
struct MemoryStatistics {
    requests: [u64; Op::ALL.len()],
    read_sectors: u64,
    write_sectors: u64,
    unit_busy: Nanos,
    unit_wait: Nanos,
    to_host: Nanos,
    from_host: Nanos,
    buffer_waits: u64,
}

impl MemoryStatistics {
    fn count(&mut self, request: &Request) {
        self.requests[request.op as usize] += 1;
        match request.op {
            Op::Read => self.read_sectors += u64::from(request.sectors),
            Op::Write => self.write_sectors += u64::from(request.sectors),
            _ => {}
        }
    }

    fn tell(&self, sink: &mut dyn Probe) {
        for (op, name) in Op::ALL.into_iter().zip(REQUEST_NAMES) {
            sink.counter(name, self.requests[op as usize]);
        }
        sink.counter("read-sectors", self.read_sectors);
        sink.counter("write-sectors", self.write_sectors);
        sink.counter("unit-busy-time-ns", self.unit_busy.as_nanos());
        sink.counter("unit-wait-time-ns", self.unit_wait.as_nanos());
        sink.counter("link-to-host-time-ns", self.to_host.as_nanos());
        sink.counter("link-from-host-time-ns", self.from_host.as_nanos());
        sink.counter("buffer-waits", self.buffer_waits);
    }
}

/// In the order of [`Op::COMMON`].
const REQUEST_NAMES: [&str; Op::COMMON.len()] =
    ["read-requests", "write-requests", "flush-requests", "discard-requests", "write-zeroes-requests"];
