//! The controller of a drive: command queue, read-ahead, a write buffer that combines.
//!
//! Modelled:
//! - *Commands* are decoded one after the other. The overhead depends on the operation, on whether the buffer has a
//!   read's first block, and on whether the command that completed last read or wrote. Up to `queue-depth` are in the
//!   drive; others wait outside in order of arrival.
//! - *Interface*: one request's data cross at a time, at the rate of the interface or of `[host-bus]`, the bus of the
//!   computer with which a drive was traced, if that is slower.
//! - *Reads* come from the buffer if it has all their blocks. Others wait for the arm. Reads that continue each other
//!   are served in one pass of the arm: each completes when its last block has passed and crossed the interface. Data
//!   cross once the first block has passed, or `read-water-mark` of the request, or all (`store-and-forward`). With
//!   `read-free-blocks` the blocks of the track that pass before the first wanted one are kept.
//!   Then the arm reads on, until the segment holds `read-ahead` beyond the requests, until the end of a track
//!   (`read-ahead-to`), or until other work waits. A stream, whose reads begin where the ones before ended, is read on
//!   for half of `read-ahead` before other work.
//! - *Writes* cross the interface into the buffer, where neighbours become one range. With `write-cache` a write
//!   completes there; without, or with FUA, when its blocks are on the medium. A range is written in one pass, to which
//!   blocks that arrive in time are added. A full buffer makes writes wait for room. A write makes the buffer forget
//!   the segments that it overlaps; with `read-hits-on-write-data` its own blocks become one. Blocks that arrive after
//!   a pass over their older data has begun are written by another one. With `preseek` the arm leaves for blocks that
//!   are still crossing, and writes them if each is in the buffer in time, else a turn later.
//! - *Order*: a pass goes on with what continues it. Else `scheduler` chooses the next target: by default the shortest
//!   positioning time (SPTF), of reads, and of writes that a request waits for. Other ranges are written when no read
//!   waits and nothing is to be read on, or when half of the buffer is full or three quarters of its ranges are in use;
//!   then both take turns. Of reads that continue each other the first one counts, or a pass would begin in the middle
//!   of a stream and leave the rest behind. With `fcfs`, requests are served in order of arrival: a write that has
//!   completed in the buffer goes to the medium before the next read, a command that needs the arm ends reading on at
//!   once, and neither streams nor ages count.
//! - *Flushes*: a flush waits for the writes that arrived before it. Until it completes, the arm writes nothing that
//!   arrived after it, and writes all ranges that arrived before as if a request waited for each.
//! - *Zero latency* (`immediate-read`, `immediate-write`): an access that comes to a track while wanted blocks pass
//!   begins with them and takes a turn. The head is then where it began, and not behind the last block. Reading on is
//!   always in order, as it must give way to a request.
//! - *Age*: a request that has waited for `age-bound` goes before all younger ones, a flush among them. A pass that has
//!   lasted `longest-pass` ends unless the oldest request continues it. So a request waits at most `age-bound` and the
//!   service of the requests before it (Seltzer, Chen, Ousterhout, "Disk Scheduling Revisited", 1990, show what
//!   shortest-time-first order does without; Jacobson and Wilkes, "Disk scheduling algorithms based on rotational
//!   position", 1991, bound it by age as here).
//!
//! That drives read ahead and combine writes in such segments is described by Ruemmler and Wilkes, "An introduction to
//! disk drive modeling" (IEEE Computer, 1994), and Shriver, Merchant and Wilkes, "An analytic behavior model for disk
//! drives with readahead caches and request reordering" (SIGMETRICS 1998).
//!
//! - *Interface extensions* (FAST 2002, section 6.3): background reads in the rotational latency of requests
//!   (`freeblock.rs`), and writes to one of several places (`soonest.rs`).
//!
//! Not modelled: gaps of slipped blocks within a track; a cache on the medium; errors; priorities.

mod arm;
mod commands;
mod dirty;
mod freeblock;
mod interface;
mod order;
mod read_buffer;
mod soonest;
mod wanted;
mod writes;

use std::ops::Range;
use std::sync::Arc;

use chronodisk_sim::{Completion, EventQueue, Lba, Nanos, Op, RandomStream, Request, RequestId, Status};

use super::drive::{Control, Drive};
use super::geometry::Spot;
use super::mechanics::{Access, Ticks, nanos, ticks};
use super::parameters::{InitialPhase, Scheduler};
use crate::sector_set::{SectorSet, changed};
use crate::{Background, DeviceInfo, DeviceModel, Probe, footprint};
use arm::{Arm, Rewritten};
use commands::Commands;
use dirty::Dirty;
use freeblock::Freeblock;
use interface::{Crossing, Interface};
use read_buffer::{Found, ReadBuffer, Segment};
use writes::{Writes, Writing};

/// A drive with this controller.
#[derive(Clone, Debug)]
pub struct Disk {
    info: Arc<DeviceInfo>,
    drive: Arc<Drive>,
    control: Control,
    now: Nanos,
    clock: Ticks,
    /// Angle of the platter at instant zero.
    phase: u64,
    commands: Commands,
    /// Reads that wait for the medium, in order of arrival.
    reads: Vec<Reading>,
    read_buffer: ReadBuffer,
    writes: Writes,
    /// Blocks that are not on the medium.
    dirty: Dirty,
    interface: Interface,
    arm: Arm,
    due: EventQueue<Due>,
    completed: Vec<Completion>,
    /// Background requests, once there has been one.
    freeblock: Option<Box<Freeblock>>,
    statistics: DiskStatistics,
}

/// A request in the drive or before it.
#[derive(Clone, Copy, Debug)]
struct Command {
    request: Request,
    /// When the host asked; the age of a request counts from there.
    arrived: Ticks,
    /// Whether it is a write with the extra disconnection.
    has_extra_disconnect: bool,
}

impl Command {
    fn first(&self) -> u64 {
        self.request.lba.0
    }

    fn end(&self) -> u64 {
        self.request.end().0
    }
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    command: Command,
    /// The first block that has not passed. The blocks before it are on their way to the host.
    next: u64,
    /// When the interface would have moved the blocks that have passed, if it moved nothing else. Before the first one,
    /// when the command was decoded.
    crossed: Ticks,
    /// The pass under way has passed its beginning, or comes to it next.
    attached: bool,
    /// The buffer had its first block when its command was decoded.
    hit: bool,
    /// Where `next` is, once the arm has asked for it: it asks again at each choice of a target.
    spot: Option<Spot>,
    /// Writes of an earlier epoch arrived before it.
    epoch: u64,
}

/// A completion on its way.
#[derive(Clone, Copy, Debug)]
struct Due {
    id: RequestId,
    /// Of a read or of a write; `None` of others.
    write: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default)]
struct DiskStatistics {
    reads: u64,
    writes: u64,
    buffer_hits: u64,
    positionings: u64,
    /// Passes that begin for a request or for the write buffer: distances and times of their seeks, and their latency.
    accesses: u64,
    seek_cylinders: u64,
    seek_time: Ticks,
    rotation_time: Ticks,
    runs: u64,
    blocks_read: u64,
    blocks_written: u64,
    aged: u64,
}

/// Shortest time from a request to its completion.
pub(super) const SHORTEST: Nanos = Nanos::from_nanos(1);

/// An instant that does not come.
const NEVER: Ticks = Ticks::MAX;

/// Most blocks that cross the interface at once, so that the arm need not wait for a long request's last block.
const PIECE_BLOCKS: u64 = 128;

impl Disk {
    /// A drive at instant zero, its arm on cylinder 0, its buffer empty.
    #[must_use]
    pub fn new(info: DeviceInfo, drive: Arc<Drive>, seed: u64) -> Self {
        let control = drive.control;
        Disk::with_control(info, drive, control, seed)
    }

    /// The same drive on the bus of the computer with which it was traced, if its parameters have one.
    #[must_use]
    pub fn on_host_bus(info: DeviceInfo, drive: Arc<Drive>, seed: u64) -> Self {
        let control = drive.on_host_bus.unwrap_or(drive.control);
        Disk::with_control(info, drive, control, seed)
    }

    /// Most memory of a drive, in bytes.
    pub(crate) fn memory_bytes_max(drive: &Drive) -> u64 {
        let control = &drive.control;
        let ranges = footprint::array_bytes::<dirty::Range>(u64::from(control.write_ranges) + 2);
        let segments = footprint::array_bytes::<Segment>(control.all_segments() as u64);
        let commands = footprint::array_bytes::<[Reading; 3]>(control.depth.into());
        footprint::sum([footprint::DEVICE_BYTES, ranges, segments, commands])
    }

    /// Time from `at` until the beginning of `block` is under the head, if the arm left then from where it is.
    ///
    /// # Panics
    /// If the drive has no such block.
    #[must_use]
    pub fn time_to_reach(&self, at: Nanos, block: u64, write: bool) -> Nanos {
        assert!(block < self.drive.capacity_blocks(), "block {block} is beyond the drive");
        let spot = self.drive.geometry.spot(block);
        let moved = self.drive.mechanics.positioning(self.arm.track(), spot.track, write);
        nanos(moved + self.drive.latency(self.phase, ticks(at) + moved, spot.angle))
    }

    /// Blocks of a track that will have begun to pass since `block` did when the arm is there, if it leaves at `at`
    /// from where it is; the whole track's if the drive's times do not depend on angles.
    ///
    /// # Panics
    /// If the drive has no such block.
    #[must_use]
    pub fn begun_on_arrival(&self, at: Nanos, block: u64, write: bool) -> u64 {
        assert!(block < self.drive.capacity_blocks(), "block {block} is beyond the drive");
        let (geometry, mechanics) = (&self.drive.geometry, &self.drive.mechanics);
        let (spot, per_track) = (geometry.spot(block), geometry.blocks_per_track(block));
        let moved = mechanics.positioning(self.arm.track(), spot.track, write);
        match mechanics.access {
            Access::Full => self.drive.begun(self.phase, ticks(at) + moved, spot.angle, per_track),
            Access::HalfTurn(_) | Access::Constant(_) => u64::from(per_track),
        }
    }

    /// Times of a block of a read and of a write on the way to the host and from it.
    pub(super) fn block_times(&self) -> [Ticks; 2] {
        [self.control.read_block, self.control.write_block]
    }

    fn with_control(info: DeviceInfo, drive: Arc<Drive>, control: Control, seed: u64) -> Self {
        let phase = match drive.initial_phase {
            InitialPhase::Index => 0,
            InitialPhase::Random => RandomStream::new(seed, "disk", "phase").below(drive.mechanics.spindle().turn),
        };
        Disk {
            info: Arc::new(DeviceInfo { volatile_cache: control.write_cache, rotational: true, ..info }),
            drive,
            control,
            now: Nanos::ZERO,
            clock: 0,
            phase,
            commands: Commands::default(),
            reads: Vec::new(),
            read_buffer: ReadBuffer::new(&control),
            writes: Writes::default(),
            dirty: Dirty::new(control.write_ranges as usize),
            interface: Interface::default(),
            arm: Arm::default(),
            due: EventQueue::new(),
            completed: Vec::new(),
            freeblock: None,
            statistics: DiskStatistics::default(),
        }
    }

    /// The next event; [`NEVER`] without one.
    fn next_tick(&self) -> Ticks {
        self.interface.next_event().min(self.commands.next_event()).min(self.arm.next_event())
    }

    /// Handles events up to and including an instant; stops after a completion if requested.
    fn run(&mut self, until: Nanos, stop_at_completion: bool) {
        let limit = ticks(until).min(NEVER - 1);
        loop {
            let tick = self.next_tick();
            let due = self.due.next_at().unwrap_or(Nanos::MAX);
            if tick <= limit && nanos(tick) <= due {
                self.clock = self.clock.max(tick);
                self.handle(tick);
            } else if due <= until {
                self.clock = self.clock.max(ticks(due));
                let Some((at, Due { id, write })) = self.due.pop_until(due) else { break };
                self.commands.complete(write);
                self.completed.push(Completion { id, at, status: Status::Ok });
                self.accept();
            } else {
                break;
            }
            if stop_at_completion && !self.completed.is_empty() {
                break;
            }
        }
    }

    /// Data that arrive with the end of a run are there for the next one.
    fn handle(&mut self, tick: Ticks) {
        if self.interface.next_event() <= tick {
            self.crossed();
        } else if let Some(command) = self.commands.decoded(tick) {
            self.decoded(command);
            self.accept();
        } else {
            self.arm_event();
        }
    }

    /// Takes the next command if the drive has room for one.
    fn accept(&mut self) {
        let Some(command) = self.commands.take(self.control.depth) else { return };
        let in_order = self.control.scheduler == Scheduler::Fcfs;
        let matters = in_order || self.control.read_hit != self.control.read_miss;
        let hit = command.request.op == Op::Read && matters && self.finds(&command);
        let overhead = self.commands.overhead(&command, hit, &self.control);
        if in_order && !hit {
            self.stop_reading_on();
        }
        self.commands.decode(command, self.clock + overhead);
    }

    /// Whether the buffer has the first block of a read, on which its overhead depends.
    fn finds(&mut self, command: &Command) -> bool {
        self.update_segment();
        let first = command.first();
        self.read_buffer.find(first, first + 1) != Found::Nothing || self.dirty.covers(first, first + 1)
    }

    fn decoded(&mut self, mut command: Command) {
        match command.request.op {
            Op::Read => self.arrive_read(command),
            Op::Write | Op::WriteZeroes => {
                let extra = self.commands.extra_disconnect(&command, &self.control);
                let delay = extra.map_or(self.control.write_data_delay, |extra| extra.data_delay);
                command.has_extra_disconnect = extra.is_some();
                // Without a delay, data of a read that came before this instant have crossed while they came.
                if delay > 0 {
                    self.interface.hold_until(self.clock + delay);
                }
                // One that continues the last write is written with it, unless a read came between.
                let continues = self.commands.continues_last_write(&command) && self.reads.is_empty();
                if self.control.scheduler == Scheduler::Fcfs && !continues {
                    self.writes.begin_epoch();
                }
                self.commands.write(&command);
                self.forget_segments(command.first(), command.end());
                self.writes.arrive(command);
                self.cross();
                self.decide();
            }
            Op::Flush => {
                let Command { request, arrived, .. } = command;
                self.writes.flush(request.id, arrived);
                self.check_flushes();
                self.decide();
            }
            // It has no zones, and nothing that a discard would free.
            Op::Discard | Op::ZoneAppend | Op::ZoneReset | Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish => {
                self.complete(command.request.id, None, self.clock);
            }
        }
    }

    fn complete(&mut self, id: RequestId, write: Option<bool>, at: Ticks) {
        self.due.push(nanos(at).max(self.now + SHORTEST), Due { id, write });
    }

    fn complete_write(&mut self, command: &Command) {
        let extra = self.control.extra_disconnect.filter(|_| command.has_extra_disconnect);
        let completion = extra.map_or(self.control.write_completion, |extra| extra.completion);
        self.complete(command.request.id, Some(true), self.clock + completion);
    }

    fn arrive_read(&mut self, command: Command) {
        self.statistics.reads += 1;
        let (first, end) = (command.first(), command.end());
        self.update_segment();
        let found = self.read_buffer.find(first, end);
        if let Found::All(index) = found {
            self.use_segment(index, first, end);
        }
        if matches!(found, Found::All(_)) || self.dirty.covers(first, end) {
            self.statistics.buffer_hits += 1;
            self.deliver(command, self.clock);
        } else {
            self.reads.push(Reading {
                command,
                next: first,
                crossed: self.clock,
                attached: false,
                hit: found != Found::Nothing,
                spot: None,
                epoch: self.writes.epoch() + 1,
            });
        }
        self.decide();
    }

    /// A read's data are in the buffer: they cross the interface, which may have begun before now, while they came.
    fn deliver(&mut self, command: Command, begin: Ticks) {
        let end = self.interface.deliver(self.clock, command.request.sectors.into(), begin, &self.control);
        self.complete(command.request.id, Some(false), end + self.control.read_completion);
    }

    /// Begins to move the next blocks of the first write, if there is room for them.
    fn cross(&mut self) {
        let (None, Some(writing)) = (self.interface.crossing(), self.writes.first_arriving()) else { return };
        let (first, left) = (writing.next, writing.command.end() - writing.next);
        let room = self.control.write_buffer_blocks.saturating_sub(self.dirty.blocks());
        let block_time = if writing.command.request.op == Op::Write { self.control.write_block } else { 0 };
        let piece = if block_time == 0 { u64::MAX } else { PIECE_BLOCKS };
        let blocks = left.min(room).min(piece);
        // A little room would be taken by a little piece, which costs the arm as much as a large one.
        let least = left.min(piece).min((self.control.write_buffer_blocks / 8).max(1));
        let free = !self.arm.is_writing(first, first + blocks);
        if blocks >= least && free && self.dirty.has_place(first, first + blocks, writing.epoch) {
            self.interface.begin(self.clock, blocks, block_time);
            if self.control.preseek {
                self.dirty.insert(first, first + blocks, writing.epoch);
            }
        }
    }

    /// Whether the first write waits for a range, not for room.
    fn lacks_ranges(&self) -> bool {
        let front = self.writes.first_arriving().filter(|_| self.interface.crossing().is_none());
        front.is_some_and(|front| {
            let end = front.command.end().min(front.next + PIECE_BLOCKS);
            !self.dirty.has_place(front.next, end, front.epoch)
        })
    }

    /// Blocks of the first write have crossed.
    fn crossed(&mut self) {
        let Some(Crossing { blocks, .. }) = self.interface.end() else { return };
        let Some((Writing { command, next: first, epoch }, done)) = self.writes.crossed(blocks) else { return };
        if !self.control.preseek {
            self.dirty.insert(first, first + blocks, epoch);
            self.arm.rewrite(Rewritten { first, end: first + blocks, epoch, id: command.request.id });
        }
        if done {
            self.statistics.writes += 1;
            if self.control.read_hits_on_write_data {
                self.read_buffer.keep_written(command.first(), command.end());
            }
            if self.completes_on_medium(&command) {
                self.writes.commit(command);
            } else {
                self.complete_write(&command);
            }
        }
        self.cross();
        self.decide();
    }

    /// Whether a write completes when its blocks are on the medium, not in the buffer.
    fn completes_on_medium(&self, write: &Command) -> bool {
        !self.control.write_cache || write.request.fua
    }

    /// Blocks have come to the medium: completes the writes and the flushes that waited for them. Rewritten blocks stay
    /// in the buffer. Writes that crossed before these do not wait for them.
    fn committed(&mut self, rewritten: Option<Rewritten>) {
        let (mut from, rewritten_by) = (0, rewritten.map(|blocks| blocks.id));
        while let Some(command) = self.writes.take_committed(&mut from, &self.dirty, rewritten_by) {
            self.complete_write(&command);
        }
        if let Some(Rewritten { first, end, epoch, .. }) = rewritten {
            self.dirty.insert(first, end, epoch);
        }
        self.check_flushes();
        self.cross();
    }

    fn check_flushes(&mut self) {
        while let Some(id) = self.writes.take_flushed(&self.dirty) {
            self.complete(id, None, self.clock);
        }
    }

    /// Whether a request waits for blocks to come to the medium.
    fn a_request_waits_for_writes(&self) -> bool {
        let blocked = self.writes.first_arriving().is_some_and(|front| match self.interface.crossing() {
            None => true,
            Some(_) => self.control.preseek && self.completes_on_medium(&front.command),
        });
        blocked || self.writes.wait_for_medium()
    }
}

impl DeviceModel for Disk {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn outstanding(&self) -> u32 {
        self.commands.outstanding()
    }

    fn submit(&mut self, request: Request) {
        self.clock = self.clock.max(ticks(self.now));
        self.commands.arrive(request, self.clock);
        self.accept();
        self.run(self.now, false);
    }

    fn soonest(&self, request: &Request, places: &[Lba]) -> usize {
        self.soonest_place(request, places)
    }

    fn background(&mut self) -> Option<&mut dyn Background> {
        Some(self)
    }

    fn next_event(&self) -> Option<Nanos> {
        let tick = Some(self.next_tick()).filter(|&tick| tick < NEVER).map(nanos);
        tick.into_iter().chain(self.due.next_at()).min()
    }

    fn completion_bound(&self) -> Option<Nanos> {
        if self.outstanding() == 0 { None } else { self.next_event() }
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let limit = limit.max(self.now);
        self.run(limit, true);
        self.now = match self.completed.first() {
            Some(first) => {
                let at = first.at;
                self.run(at, false);
                at
            }
            None => limit,
        };
        completed.append(&mut self.completed);
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }

    /// Writes up to the blocks that have crossed the interface, and the write buffer.
    fn volatile(&self) -> Option<Vec<Range<u64>>> {
        let before = self.commands.waiting().filter(|command| command.request.op != Op::Discard);
        let dirty = self.dirty.ranges().iter().map(|range| range.first..range.end);
        let all = before.map(|command| changed(&command.request)).chain(self.writes.arriving_blocks()).chain(dirty);
        Some(all.collect::<SectorSet>().into_ranges())
    }

    fn probe(&self, sink: &mut dyn Probe) {
        let statistics = &self.statistics;
        sink.counter("reads", statistics.reads);
        sink.counter("writes", statistics.writes);
        sink.counter("buffer-hits", statistics.buffer_hits);
        sink.counter("accesses", statistics.accesses);
        sink.counter("seek-cylinders", statistics.seek_cylinders);
        sink.counter("seek-nanoseconds", nanos(statistics.seek_time).as_nanos());
        sink.counter("rotation-nanoseconds", nanos(statistics.rotation_time).as_nanos());
        sink.counter("positionings", statistics.positionings);
        sink.counter("runs", statistics.runs);
        sink.counter("blocks-read", statistics.blocks_read);
        sink.counter("blocks-written", statistics.blocks_written);
        sink.counter("aged", statistics.aged);
        if let Some(freeblock) = &self.freeblock {
            freeblock.probe(sink);
        }
        sink.gauge("dirty", "blocks", self.dirty.blocks() as f64);
    }
}

#[cfg(test)]
mod tests;
