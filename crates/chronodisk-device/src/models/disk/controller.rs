//! The drive's state and its clock: what is in it, what happens next, and the [`DeviceModel`] around it.
//!
//! A [`Job`] is a request that the drive has accepted. Two resources serve jobs: the *arm* (`arm.rs`), one access to
//! the medium at a time, and the *link* (`link.rs`), the bus to the host; between them is the segmented buffer
//! (`buffer.rs`). Each has at most one next instant at which something happens; progress between these instants is
//! computed when it is asked for. Events are so many per track and per phase of the bus, never per block.

use std::collections::VecDeque;
use std::sync::Arc;

use chronodisk_sim::{Completion, Nanos, Op, RandomStream, Request, RequestId, Status};

use super::arm::Arm;
use super::buffer::Segment;
use super::drive::Drive;
use super::geometry::{BlockPosition, Spot, Track};
use super::link::Link;
use super::mechanics::{Access, Ticks, nanos, ticks};
use super::parameters::{FastWrite, InitialPhase};
use super::statistics::DiskStatistics;
use crate::{DeviceInfo, DeviceModel, Probe};

/// A disk drive: see the module's documentation.
#[derive(Clone, Debug)]
pub struct Disk {
    info: Arc<DeviceInfo>,
    pub(super) drive: Arc<Drive>,
    now: Nanos,
    /// The event that is being handled, or the last one.
    pub(super) clock: Ticks,
    /// Angle of the platter at instant zero.
    pub(super) phase: u64,
    /// What the platter falls behind with each block, for comparisons.
    pub(super) angle_lost: u64,
    /// Requests that the drive has not accepted yet.
    host_queue: VecDeque<Waiting>,
    outstanding: u32,
    /// Jobs accepted and not completed.
    pub(super) in_drive: u32,
    pub(super) jobs: Vec<Job>,
    pub(super) free_jobs: Vec<JobId>,
    /// Jobs that wait for the arm, in order of arrival.
    pub(super) pending: Vec<JobId>,
    pub(super) segments: Vec<Segment>,
    /// Segments from the least to the most recently used.
    pub(super) recency: Vec<usize>,
    pub(super) arm: Arm,
    pub(super) link: Link,
    /// Whether the last request that completed was a write.
    pub(super) last_was_write: bool,
    /// Flushes wait for writes that came before them.
    flushes: VecDeque<Flush>,
    /// When the first flush can complete, if nothing but its overhead is missing.
    flush_at: Ticks,
    next_sequence: u64,
    completed: Vec<Completion>,
    pub(super) statistics: DiskStatistics,
    pub(super) scan_upwards: bool,
    /// When progress was brought up to date last.
    pub(super) updated: Ticks,
    /// The block that was located last, and where it is.
    pub(super) located: (u64, BlockPosition),
}

pub(super) type JobId = usize;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: Request,
    arrival: Nanos,
    sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Flush {
    id: RequestId,
    /// Writes with a smaller number must be on the medium.
    before: u64,
    earliest: Ticks,
}

/// Where the heads are and how far the platter has turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Cylinder.
    pub cylinder: u32,
    /// Head.
    pub head: u32,
    /// Angle of the platter, in parts of a turn.
    pub angle: u64,
    /// Parts of a whole turn.
    pub turn: u64,
}

/// A request in the drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) id: RequestId,
    pub(super) write: bool,
    /// Whether a write may complete before it is on the medium.
    pub(super) fast: bool,
    /// Time of a block on the bus.
    pub(super) block_time: Ticks,
    pub(super) first: u64,
    pub(super) end: u64,
    /// Where `first` is, once the scheduler has asked for it.
    pub(super) spot: Option<Spot>,
    /// Next block to cross the bus.
    pub(super) out: u64,
    /// Next block of a write to reach the medium.
    pub(super) written: u64,
    pub(super) hit: Hit,
    pub(super) segment: Option<usize>,
    pub(super) owns_segment: bool,
    pub(super) had_arm: bool,
    pub(super) extra_disconnect: bool,
    /// The completion is on its way to the host.
    pub(super) sent: bool,
    /// The host has the completion.
    pub(super) acknowledged: bool,
    /// Water mark in blocks.
    pub(super) watermark: u64,
    /// The arm may not leave before.
    pub(super) arm_from: Ticks,
    pub(super) arrival: Nanos,
    pub(super) accepted: Ticks,
    pub(super) sequence: u64,
    pub(super) live: bool,
}

/// What the buffer holds of a job when it is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hit {
    Miss,
    Whole,
    Partial,
    /// A write that continues one in a segment.
    Append,
    /// It overlaps data that are not on the medium yet.
    Collision,
}

impl Disk {
    /// A drive at instant zero, its arm on cylinder 0, its buffer empty.
    #[must_use]
    pub fn new(info: DeviceInfo, drive: Arc<Drive>, seed: u64) -> Self {
        let phase = match drive.initial_phase {
            InitialPhase::Index => 0,
            InitialPhase::Random => RandomStream::new(seed, "disk", "phase").below(drive.mechanics.spindle().turn),
        };
        let volatile_cache = drive.cache.fast_write != FastWrite::Never;
        let segments = vec![Segment::default(); drive.cache.segments as usize];
        Disk {
            info: Arc::new(DeviceInfo { volatile_cache, rotational: true, ..info }),
            recency: (0..segments.len()).collect(),
            segments,
            drive,
            now: Nanos::ZERO,
            clock: 0,
            phase,
            angle_lost: 0,
            host_queue: VecDeque::new(),
            outstanding: 0,
            in_drive: 0,
            jobs: Vec::new(),
            free_jobs: Vec::new(),
            pending: Vec::new(),
            arm: Arm::default(),
            link: Link::default(),
            last_was_write: false,
            flushes: VecDeque::new(),
            flush_at: Ticks::MAX,
            next_sequence: 0,
            completed: Vec::new(),
            statistics: DiskStatistics::default(),
            scan_upwards: true,
            updated: Ticks::MAX,
            located: (u64::MAX, BlockPosition::default()),
        }
    }

    /// The same drive, whose platter falls behind by 2⁻²⁴ of a turn with every block that passes.
    ///
    /// That is what DiskSim 4.0's does, as it cuts each elapsed time to an angle of that grain (diskmodel's rotation).
    /// It matters to nothing but a comparison request by request over many seconds.
    #[must_use]
    pub fn with_angles_of_disksim(self) -> Self {
        Disk { angle_lost: self.turn() >> 24, ..self }
    }

    /// Where the heads are and where the platter is at an instant that is not in the past, if nothing moves the arm
    /// until then.
    #[must_use]
    pub fn position_at(&self, at: Nanos) -> Position {
        let Track { cylinder, head } = self.arm.track;
        Position { cylinder, head, angle: self.angle(ticks(at)), turn: self.turn() }
    }

    /// Time from `at` until the beginning of `block` is under the head, if the arm left then from where it is.
    ///
    /// # Panics
    /// If the drive has no such block.
    #[must_use]
    pub fn time_to_reach(&self, at: Nanos, block: u64, write: bool) -> Nanos {
        assert!(block < self.drive.capacity_blocks(), "block {block} is beyond the drive");
        nanos(self.positioning(self.arm.track, ticks(at), self.drive.geometry.spot(block), write))
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
        let moved = mechanics.positioning(self.arm.track, spot.track, write);
        match mechanics.access {
            Access::Full => self.begun(ticks(at) + moved, spot.angle, per_track),
            Access::HalfTurn(_) | Access::Constant(_) => u64::from(per_track),
        }
    }

    /// Blocks that will have begun to pass at an instant since the one at `angle` did.
    pub(super) fn begun(&self, at: Ticks, angle: u64, per_track: u32) -> u64 {
        self.drive.begun(self.phase, at, angle, per_track)
    }

    /// Parts of a turn.
    pub(super) fn turn(&self) -> u64 {
        self.drive.mechanics.spindle().turn
    }

    /// Seek, head switch, settling and rotation from a track at an instant to a place.
    pub(super) fn positioning(&self, from: Track, at: Ticks, spot: Spot, write: bool) -> Ticks {
        let moved = self.drive.mechanics.positioning(from, spot.track, write);
        moved + self.latency(at + moved, spot.angle)
    }

    /// Time from an instant until the platter is at an angle.
    pub(super) fn latency(&self, at: Ticks, angle: u64) -> Ticks {
        self.drive.latency(self.phase, at, angle)
    }

    pub(super) fn angle(&self, at: Ticks) -> u64 {
        self.drive.angle(self.phase, at)
    }

    /// The next instant at which something happens by itself.
    fn next_tick(&self) -> Option<Ticks> {
        let next = self.arm.at.min(self.link.at).min(self.link.watch).min(self.link.extra_at).min(self.flush_at);
        (next != Ticks::MAX).then_some(next)
    }

    /// Handles what happens until an instant, that included; stops behind a completion if asked to.
    fn run(&mut self, until: Nanos, stop_at_completion: bool) {
        let limit = ticks(until);
        loop {
            let next = match self.next_tick() {
                Some(next) if next <= limit => next,
                None if self.in_drive > 0 && self.start_over() && self.next_tick().is_some() => continue,
                _ => break,
            };
            self.clock = self.clock.max(next);
            if self.link.at <= next {
                self.link_event();
            } else if self.arm.at <= next {
                self.arm_event();
            } else if self.link.extra_at <= next {
                self.extra_disconnect_over();
            } else if self.link.watch <= next {
                self.watch_event();
            } else {
                self.check_flushes();
            }
            if stop_at_completion && !self.completed.is_empty() {
                break;
            }
        }
    }

    /// Lets the drive accept what waits outside, if the link is free.
    pub(super) fn accept(&mut self) {
        let depth = self.drive.queue.depth.max(1);
        while self.in_drive < depth && self.link.is_free() {
            let Some(waiting) = self.host_queue.pop_front() else { return };
            let job = self.add_job(&waiting);
            self.in_drive += 1;
            self.decode(job);
        }
    }

    fn add_job(&mut self, &Waiting { request, arrival, sequence }: &Waiting) -> JobId {
        let control = &self.drive.control;
        let write = request.op != Op::Read;
        let fast = self.drive.cache.fast_write != FastWrite::Never && !request.fua;
        let block_time = match request.op {
            Op::Read => control.read_block,
            Op::Write => control.write_block,
            // The drive makes the zeros itself.
            _ => 0,
        };
        let first = request.lba.0;
        let job = Job {
            id: request.id,
            write,
            fast,
            block_time,
            first,
            end: first + u64::from(request.sectors),
            out: first,
            written: first,
            hit: Hit::Miss,
            segment: None,
            owns_segment: false,
            had_arm: false,
            extra_disconnect: false,
            sent: false,
            acknowledged: false,
            watermark: 1,
            arm_from: 0,
            arrival,
            accepted: self.clock,
            sequence,
            live: true,
            spot: None,
        };
        match self.free_jobs.pop() {
            Some(id) => {
                self.jobs[id] = job;
                id
            }
            None => {
                self.jobs.push(job);
                self.jobs.len() - 1
            }
        }
    }

    /// The host learns of a job's completion.
    pub(super) fn complete_to_host(&mut self, job: JobId) {
        self.in_drive -= 1;
        self.finish(self.jobs[job].id);
    }

    fn finish(&mut self, id: RequestId) {
        self.outstanding -= 1;
        self.completed.push(Completion { id, at: nanos(self.clock), status: Status::Ok });
    }

    /// A job is over: it may be forgotten, and flushes may be done.
    pub(super) fn free_job(&mut self, job: JobId) {
        self.jobs[job].live = false;
        self.free_jobs.push(job);
        if self.jobs[job].write {
            self.check_flushes();
        }
    }

    /// The first tick of which the host has not been told yet.
    pub(super) fn after_now(&self) -> Ticks {
        ticks(self.now) + 1
    }

    /// Completes the flushes whose writes are on the medium.
    fn check_flushes(&mut self) {
        self.flush_at = Ticks::MAX;
        while let Some(&Flush { id, before, earliest }) = self.flushes.front() {
            let in_drive = self.jobs.iter().any(|job| job.live && job.write && job.sequence < before);
            // In order of arrival: the first one tells.
            let outside = self.host_queue.iter().take_while(|waiting| waiting.sequence < before);
            if in_drive || outside.into_iter().any(|waiting| waiting.request.op != Op::Read) {
                return;
            }
            let earliest = earliest.max(self.after_now());
            if earliest > self.clock {
                self.flush_at = earliest;
                return;
            }
            self.flushes.pop_front();
            self.finish(id);
        }
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
        self.outstanding
    }

    fn submit(&mut self, request: Request) {
        self.clock = self.clock.max(ticks(self.now));
        self.outstanding += 1;
        self.statistics.count(&request);
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        match request.op {
            Op::Flush => {
                let overhead = self.drive.control.per_request + self.drive.control.write_completion;
                let earliest = self.clock + overhead.max(ticks(SHORTEST));
                self.flushes.push_back(Flush { id: request.id, before: sequence, earliest });
                self.check_flushes();
            }
            _ => {
                self.host_queue.push_back(Waiting { request, arrival: self.now, sequence });
                self.accept();
            }
        }
        self.run(self.now, false);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.next_tick().map(nanos)
    }

    fn completion_bound(&self) -> Option<Nanos> {
        if self.outstanding == 0 { None } else { self.next_event() }
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

    fn probe(&self, sink: &mut dyn Probe) {
        self.statistics.tell(sink);
    }
}

/// The contract's shortest service time.
pub(super) const SHORTEST: Nanos = Nanos::from_nanos(1);
