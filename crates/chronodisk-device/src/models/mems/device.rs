//! The device's state machine: arrivals, sleds, the bus, completions.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use chronodisk_sim::{Completion, Nanos, Op, Request, RequestId, Status};

use super::buffer::Buffer;
use super::geometry::Geometry;
use super::seek::{FEMTOS_PER_NANO, Femtos, Mechanics, Position};
use super::statistics::MemsStatistics;
use crate::sector_set::{SectorSet, changes};
use crate::{DeviceInfo, DeviceModel, Probe};

/// Immutable parts.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) geometry: Geometry,
    pub(super) mechanics: Mechanics,
    pub(super) sleds: u32,
    /// Bits of the travel in Y.
    pub(super) travel_bits: i32,
    /// Time from the arrival of a request to the beginning of its service.
    pub(super) overhead: Femtos,
    /// Time from the last bit of a write on the medium to its completion.
    pub(super) write_acknowledgement: Femtos,
    pub(super) bus_block: Femtos,
    pub(super) servo: Femtos,
    pub(super) row: Femtos,
    pub(super) park_after: Femtos,
    pub(super) startup: Femtos,
    pub(super) idle_sweep: IdleSweep,
    pub(super) buffer_segments: u32,
    pub(super) buffer_segment_blocks: u64,
}

/// Position model of an idle sled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleSweep {
    /// The sled sweeps from end to end at the access speed and turns at both ends.
    EndToEnd {
        /// The time to pass one bit.
        bit: Femtos,
        /// The time to turn round at an end.
        turn: Femtos,
    },
    /// The sled crosses the whole travel in `period`. The module has the reference simulator's formula for it.
    Scattered {
        /// Duration of crossing the travel, in femtoseconds times [`PERIOD_SCALE`].
        period: u128,
        /// Length of a bit in nm.
        bit_nm: i64,
        /// The travel in nm.
        travel_nm: i64,
    },
}

/// A MEMS device.
#[derive(Clone, Debug)]
pub(super) struct Mems {
    info: Arc<DeviceInfo>,
    parts: Arc<Parts>,
    now: Nanos,
    /// The inner instant of the last event or arrival.
    clock: Femtos,
    /// Rounding error of the last completion, carried over to later arrivals.
    carry: i64,
    jobs: Jobs,
    /// Requests in their command overhead, in order.
    arriving: VecDeque<(Femtos, u32)>,
    sleds: Vec<Sled>,
    bus: Bus,
    /// Completions with a known inner instant.
    done: BinaryHeap<Reverse<(Femtos, u64, RequestId, Status)>>,
    next_done: u64,
    outstanding: u32,
    buffer: Buffer,
    statistics: MemsStatistics,
}

/// A request that is under way.
#[derive(Clone, Copy, Debug)]
struct Job {
    id: RequestId,
    op: Op,
    arrival: Nanos,
    end: u64,
    /// The first block that is not yet done on the medium.
    medium: u64,
    /// The first block that has not yet crossed the bus.
    bus: u64,
    /// Whether the request occupies the bus or waits for it.
    on_bus: bool,
}

/// Jobs by number; numbers are used again.
#[derive(Clone, Debug, Default)]
struct Jobs {
    slots: Vec<Job>,
    free: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Sled {
    position: Position,
    state: State,
    active: Option<u32>,
    waiting: VecDeque<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Parked,
    Idle {
        since: Femtos,
    },
    /// Coming out of its parking place.
    Starting {
        until: Femtos,
    },
    /// Moving to a row of a write whose data may not have arrived.
    Seeking {
        until: Femtos,
        blocks: u32,
    },
    /// Passing the servo burst without a write, because the data have not arrived.
    Passing {
        until: Femtos,
    },
    /// Moving to a row and over it.
    Accessing {
        until: Femtos,
        blocks: u32,
    },
}

/// The bus shared by all sleds, in order of the requests for it.
#[derive(Clone, Debug, Default)]
struct Bus {
    user: Option<Transfer>,
    waiting: VecDeque<u32>,
    /// Number of reads that need only the bus.
    finishing: u32,
}

#[derive(Clone, Copy, Debug)]
struct Transfer {
    job: u32,
    begun: Femtos,
    until: Femtos,
    to: u64,
}

/// Next event.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival,
    Bus,
    Sled(usize),
    Done,
}

impl Mems {
    pub(super) fn new(info: DeviceInfo, parts: Arc<Parts>) -> Self {
        let place = parts.geometry.place(parts.geometry.middle_block());
        let position = Position { x: place.x, y: place.low - parts.geometry.servo_bits, up: true };
        let sled = Sled { position, state: State::Parked, active: None, waiting: VecDeque::new() };
        Mems {
            info: Arc::new(info),
            now: Nanos::ZERO,
            clock: 0,
            carry: 0,
            jobs: Jobs::default(),
            arriving: VecDeque::new(),
            sleds: vec![sled; parts.sleds as usize],
            bus: Bus::default(),
            done: BinaryHeap::new(),
            next_done: 0,
            outstanding: 0,
            buffer: Buffer::new(parts.buffer_segments, parts.buffer_segment_blocks),
            statistics: MemsStatistics::default(),
            parts,
        }
    }

    /// The next internal event; events of one instant are in the order of [`Event`]'s variants.
    fn next(&self) -> Option<(Femtos, Event)> {
        let mut first: Option<(Femtos, Event)> = self.arriving.front().map(|&(at, _)| (at, Event::Arrival));
        let mut consider = |at: Femtos, event: Event| {
            if first.is_none_or(|(earliest, _)| at < earliest) {
                first = Some((at, event));
            }
        };
        if let Some(transfer) = &self.bus.user {
            consider(transfer.until, Event::Bus);
        }
        for (index, sled) in self.sleds.iter().enumerate() {
            if let Some(until) = sled.busy_until() {
                consider(until, Event::Sled(index));
            }
        }
        if let Some(Reverse((at, ..))) = self.done.peek() {
            consider(*at, Event::Done);
        }
        first
    }

    fn handle(&mut self, at: Femtos, event: Event, completed: &mut Vec<Completion>) {
        self.clock = at;
        match event {
            Event::Arrival => self.commanded(at),
            Event::Bus => self.transferred(at),
            Event::Sled(index) => self.sled_moves_on(index, at),
            Event::Done => {
                if let Some(Reverse((at, _, id, status))) = self.done.pop() {
                    let told = surface(at);
                    self.carry = (at as i128 - i128::from(told.as_nanos()) * FEMTOS_PER_NANO as i128) as i64;
                    self.outstanding -= 1;
                    completed.push(Completion { id, at: told, status });
                }
            }
        }
    }

    /// Ends the command overhead of the first arriving request.
    fn commanded(&mut self, at: Femtos) {
        let Some((_, number)) = self.arriving.pop_front() else { return };
        let job = self.jobs.slots[number as usize];
        match job.op {
            Op::Read if self.buffer.holds(job.medium, job.end) => {
                self.statistics.buffer_hits += 1;
                self.jobs.slots[number as usize].medium = job.end;
                return self.ask_for_bus(number, at);
            }
            Op::Write => self.ask_for_bus(number, at),
            Op::Read | Op::WriteZeroes => {}
            _ => return self.finish(number, at),
        }
        let index = (job.medium / self.parts.geometry.blocks()) as usize;
        let index = index.min(self.sleds.len() - 1);
        let sled = &mut self.sleds[index];
        sled.waiting.push_back(number);
        match sled.state {
            State::Parked => self.start(index, at),
            State::Idle { since } if at >= since + self.parts.park_after => {
                let place = self.parts.geometry.place(self.parts.geometry.middle_block());
                sled.position = Position { x: place.x, y: place.low - self.parts.geometry.servo_bits, up: true };
                self.start(index, at);
            }
            State::Idle { since } => {
                sled.position = self.parts.swept(sled.position, at - since);
                self.schedule(index, at);
            }
            State::Starting { .. } | State::Seeking { .. } | State::Passing { .. } | State::Accessing { .. } => {}
        }
    }

    fn start(&mut self, index: usize, at: Femtos) {
        self.statistics.starts += 1;
        self.sleds[index].state = State::Starting { until: at + self.parts.startup };
    }

    fn sled_moves_on(&mut self, index: usize, at: Femtos) {
        match self.sleds[index].state {
            State::Parked | State::Idle { .. } => {}
            State::Starting { .. } | State::Passing { .. } => self.schedule(index, at),
            State::Seeking { blocks, .. } => self.begin_access(index, at, blocks),
            State::Accessing { blocks, .. } => self.accessed(index, at, blocks),
        }
    }

    /// Gives the sled its next row, or lets it idle.
    fn schedule(&mut self, index: usize, at: Femtos) {
        let parts = &*self.parts;
        let sled = &mut self.sleds[index];
        let Some(number) = sled.active.or_else(|| sled.waiting.pop_front()) else {
            sled.state = State::Idle { since: at };
            return;
        };
        sled.active = Some(number);
        let job = &self.jobs.slots[number as usize];
        let place = parts.geometry.place(job.medium % parts.geometry.blocks());
        let row_end = job.end.min(job.medium + u64::from(place.blocks));
        let here = self.bus.arrived(job, number, at, parts.bus_block);
        // A pass over a row takes the blocks that have arrived, and its first block in any case, which is assumed to
        // arrive in time.
        let blocks = (row_end.min(here).saturating_sub(job.medium)).max(1) as u32;
        let seek = parts.mechanics.seek(sled.position, &place);
        self.statistics.seek(&seek);
        sled.position = seek.arrival;
        let until = at + seek.time;
        if here > job.medium {
            self.begin_access(index, until, blocks);
        } else {
            sled.state = State::Seeking { until, blocks };
        }
    }

    /// The sled is before the servo burst at `at`, which may lie ahead.
    fn begin_access(&mut self, index: usize, at: Femtos, blocks: u32) {
        let parts = &*self.parts;
        let sled = &mut self.sleds[index];
        let Some(number) = sled.active else { return };
        let job = &self.jobs.slots[number as usize];
        let direction = if sled.position.up { 1 } else { -1 };
        let (servo_bits, sector_bits) = (parts.geometry.servo_bits, parts.geometry.sector_bits);
        if self.bus.arrived(job, number, at, parts.bus_block) <= job.medium {
            self.statistics.vain_passes += 1;
            // Without servo bursts the sled passes the row instead, so that idle sweeping takes time.
            let (bits, time) = if servo_bits == 0 { (sector_bits, parts.row) } else { (servo_bits, parts.servo) };
            sled.position.y += direction * bits;
            sled.state = State::Passing { until: at + time };
            return;
        }
        sled.position.y += direction * (servo_bits + sector_bits);
        sled.state = State::Accessing { until: at + parts.servo + parts.row, blocks };
    }

    /// Ends the pass over a row.
    fn accessed(&mut self, index: usize, at: Femtos, blocks: u32) {
        let sled = &mut self.sleds[index];
        let Some(number) = sled.active else { return };
        let job = &mut self.jobs.slots[number as usize];
        let begin = job.medium;
        job.medium += u64::from(blocks);
        let job = *job;
        if job.medium >= job.end {
            sled.active = None;
        }
        self.buffer.insert(begin, job.medium);
        match job.op {
            Op::Read if !job.on_bus => self.ask_for_bus(number, at),
            Op::Read => self.bus.finishing += u32::from(job.medium >= job.end),
            Op::Write if job.medium >= job.end => self.finish(number, at + self.parts.write_acknowledgement),
            Op::WriteZeroes if job.medium >= job.end => self.finish(number, at),
            _ => {}
        }
        self.schedule(index, at);
    }

    /// No earlier does a sled end its present request.
    fn finish_bound(&self, sled: &Sled) -> Option<Femtos> {
        let until = sled.busy_until()?;
        let number = sled.active.or_else(|| sled.waiting.front().copied())?;
        let job = &self.jobs.slots[number as usize];
        let in_pass = if let State::Accessing { blocks, .. } = sled.state { u64::from(blocks) } else { 0 };
        let rows = (job.end - job.medium - in_pass).div_ceil(u64::from(self.parts.geometry.blocks_per_row));
        Some(until + Femtos::from(rows) * (self.parts.servo + self.parts.row))
    }

    fn ask_for_bus(&mut self, number: u32, at: Femtos) {
        let job = &mut self.jobs.slots[number as usize];
        job.on_bus = true;
        self.bus.finishing += u32::from(job.op == Op::Read && job.medium >= job.end);
        match self.bus.user {
            None => self.transfer(number, at),
            Some(_) => self.bus.waiting.push_back(number),
        }
    }

    /// Blocks that can cross now: all blocks of a write, or the blocks of a read that have been read.
    fn transfer(&mut self, number: u32, at: Femtos) {
        let job = &self.jobs.slots[number as usize];
        let to = if job.op == Op::Read { job.medium } else { job.end };
        let until = at + self.parts.bus_block * Femtos::from(to - job.bus);
        self.bus.user = Some(Transfer { job: number, begun: at, until, to });
    }

    /// Ends the bus's transfer.
    fn transferred(&mut self, at: Femtos) {
        let Some(Transfer { job: number, to, .. }) = self.bus.user.take() else { return };
        let job = &mut self.jobs.slots[number as usize];
        job.bus = to;
        let job = *job;
        if to < job.medium {
            return self.transfer(number, at);
        }
        self.jobs.slots[number as usize].on_bus = false;
        if job.op == Op::Read && to >= job.end {
            self.bus.finishing -= 1;
            self.finish(number, at);
        }
        if let Some(next) = self.bus.waiting.pop_front() {
            self.transfer(next, at);
        }
    }

    /// Ends the request at `at`.
    fn finish(&mut self, number: u32, at: Femtos) {
        let job = self.jobs.take(number);
        self.tell(job.id, job.arrival, at, Status::Ok);
    }

    /// A completion, at the earliest in the nanosecond after the arrival.
    fn tell(&mut self, id: RequestId, arrival: Nanos, at: Femtos, status: Status) {
        let earliest = (Femtos::from(arrival.as_nanos()) + 1) * FEMTOS_PER_NANO - FEMTOS_PER_NANO / 2;
        self.done.push(Reverse((at.max(earliest), self.next_done, id, status)));
        self.next_done += 1;
    }
}

impl DeviceModel for Mems {
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
        let now = i128::from(self.now.as_nanos()) * FEMTOS_PER_NANO as i128;
        let at = u128::try_from(now + i128::from(self.carry)).unwrap_or(0).max(self.clock);
        self.clock = at;
        self.outstanding += 1;
        self.statistics.count(&request);
        if request.op == Op::Discard && self.info.discard_unit_sectors.is_none() {
            return self.tell(request.id, self.now, at, Status::Unsupported);
        }
        let job = Job {
            id: request.id,
            op: request.op,
            arrival: self.now,
            end: request.end().0,
            medium: request.lba.0,
            bus: request.lba.0,
            on_bus: false,
        };
        let number = self.jobs.put(job);
        self.arriving.push_back((at + self.parts.overhead, number));
    }

    /// Rows and transfers without a completion are internal: the next event bounds the next completion.
    fn next_event(&self) -> Option<Nanos> {
        let arrival = self.arriving.front().map(|&(at, _)| at);
        let bus = self.bus.user.as_ref().filter(|_| self.bus.finishing > 0).map(|transfer| transfer.until);
        let sled = self.sleds.iter().filter_map(|sled| self.finish_bound(sled)).min();
        let done = self.done.peek().map(|Reverse((at, ..))| *at);
        [arrival, bus, sled, done].into_iter().flatten().min().map(surface)
    }

    fn completion_bound(&self) -> Option<Nanos> {
        if self.outstanding == 0 { None } else { self.next_event() }
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let already = completed.len();
        let mut last = limit.max(self.now);
        while let Some((at, event)) = self.next() {
            let instant = surface(at);
            if instant > last {
                break;
            }
            self.handle(at, event, completed);
            if completed.len() > already {
                last = instant;
            }
        }
        self.now = last;
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }

    /// The blocks of outstanding writes that no sled has written: there is no write cache.
    fn volatile(&self) -> Option<Vec<Range<u64>>> {
        let changing = self.jobs.in_use().filter(|job| changes(job.op));
        Some(changing.map(|job| job.medium..job.end).collect::<SectorSet>().into_ranges())
    }

    fn probe(&self, sink: &mut dyn Probe) {
        self.statistics.tell(sink);
    }
}

impl Parts {
    /// Position of a sled that has been idle for `idle` since it was at `from`.
    fn swept(&self, from: Position, idle: Femtos) -> Position {
        let half = self.travel_bits / 2;
        match self.idle_sweep {
            IdleSweep::EndToEnd { bit, turn } => {
                // A round goes there and back with a turn at either end. It begins at the sled's position.
                let stroke = bit * self.travel_bits as Femtos + turn;
                let passed = if from.up { from.y + half } else { half - from.y };
                let place = (idle + bit * passed.max(0) as Femtos) % (2 * stroke);
                let along = ((place % stroke) / bit).min(self.travel_bits as Femtos) as i32;
                let up = (place < stroke) == from.up;
                Position { y: if up { along - half } else { half - along }, up, ..from }
            }
            IdleSweep::Scattered { period, bit_nm, travel_nm } => {
                let part = (idle * PERIOD_SCALE) % period;
                let passed = ((part * travel_nm as u128 / period) as i64 / bit_nm) as i32;
                // Along the movement, and back from the end if it gets there.
                let along = passed + if from.up { from.y } else { -from.y };
                let (along, turned) = if along > half { (2 * half - along, true) } else { (along, false) };
                Position { y: if from.up { along } else { -along }, up: from.up != turned, ..from }
            }
        }
    }
}

impl Sled {
    fn busy_until(&self) -> Option<Femtos> {
        match self.state {
            State::Parked | State::Idle { .. } => None,
            State::Starting { until }
            | State::Seeking { until, .. }
            | State::Passing { until }
            | State::Accessing { until, .. } => Some(until),
        }
    }
}

impl Bus {
    /// The first block of a job whose data have not arrived at `at`, which may be in the future if the transfer has
    /// begun.
    fn arrived(&self, job: &Job, number: u32, at: Femtos, block: Femtos) -> u64 {
        if job.op != Op::Write {
            return job.end;
        }
        match &self.user {
            Some(transfer) if transfer.job == number => {
                let blocks = (at - transfer.begun).checked_div(block).unwrap_or(Femtos::MAX);
                job.end.min(job.bus + blocks.min(Femtos::from(u32::MAX)) as u64)
            }
            _ => job.bus,
        }
    }
}

impl Jobs {
    fn put(&mut self, job: Job) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = job;
                number
            }
            None => {
                self.slots.push(job);
                u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 requests are outstanding")
            }
        }
    }

    fn take(&mut self, number: u32) -> Job {
        self.free.push(number);
        self.slots[number as usize]
    }

    fn in_use(&self) -> impl Iterator<Item = &Job> {
        let mut is_free = vec![false; self.slots.len()];
        self.free.iter().for_each(|&number| is_free[number as usize] = true);
        self.slots.iter().zip(is_free).filter_map(|(job, free)| (!free).then_some(job))
    }
}

/// A scattered sweep's period is not a whole number of femtoseconds, and thousands of them are passed.
pub(super) const PERIOD_SCALE: u128 = 1 << 32;

/// The nearest nanosecond.
fn surface(at: Femtos) -> Nanos {
    Nanos::from_nanos(u64::try_from((at + FEMTOS_PER_NANO / 2) / FEMTOS_PER_NANO).unwrap_or(u64::MAX))
}
