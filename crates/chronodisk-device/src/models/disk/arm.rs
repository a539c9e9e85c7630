//! The arm and the medium: one access at a time, track by track.
//!
//! On a track, blocks pass the head one after the other; a [`Run`] of them is planned at once and its progress is a
//! division. A run ends where something is decided: the end of the request, of the reading on, of the track, of the
//! room or the data in the buffer.

use super::buffer::{Segment, State, Use};
use super::controller::{Disk, Hit, Job, JobId};
use super::geometry::{BlockPosition, Track};
use super::link::Phase;
use super::mechanics::{Access, Ticks};
use super::parameters::{Caching, FastWrite, Preseek, ReadAhead};

/// The arm, and what it does.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    /// Where the heads are, or where they were when they left.
    pub(super) track: Track,
    pub(super) busy: bool,
    /// Whom it works for; nobody while it reads on after a request.
    pub(super) job: Option<JobId>,
    pub(super) segment: usize,
    pub(super) write: bool,
    /// Nobody waits for the medium: the request is over, or its data are all there.
    pub(super) background: bool,
    /// The access begins with whatever wanted block passes first.
    pub(super) immediate: bool,
    pub(super) motion: Motion,
    /// When the motion ends.
    pub(super) at: Ticks,
    /// A stopped access keeps the arm until then.
    pub(super) stopped_until: Ticks,
    /// The track to which the arm goes or on which it is.
    pub(super) place: BlockPosition,
    /// The block of which `place` tells the angle.
    pub(super) place_block: u64,
    /// The block with which the access goes on.
    pub(super) target: u64,
    /// Out of order: blocks from the first to before the second have passed already.
    pub(super) done_early: Option<(u64, u64)>,
    /// A write's block at which the access to a track began out of order.
    pub(super) entry: Option<u64>,
    /// The block behind the last one written, and when.
    pub(super) finished: (u64, Ticks),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Motion {
    Still,
    Seek,
    /// The head is on the track, the first wanted block has not come yet.
    Latency,
    /// Blocks pass that are not wanted, one by one since an instant.
    Rotate {
        since: Ticks,
    },
    /// Wanted blocks pass.
    Pass(Run),
    /// The access has been stopped and the block under the head ends.
    Stopping,
    /// An access of fixed duration.
    Fixed,
}

/// Blocks that pass one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) since: Ticks,
    /// Whether they count at once, or only when those before them have passed.
    pub(super) in_order: bool,
}

impl Default for Arm {
    fn default() -> Self {
        Arm {
            track: Track::default(),
            busy: false,
            job: None,
            segment: 0,
            write: false,
            background: false,
            immediate: false,
            motion: Motion::Still,
            at: Ticks::MAX,
            stopped_until: 0,
            place: BlockPosition::default(),
            place_block: 0,
            target: 0,
            done_early: None,
            entry: None,
            finished: (u64::MAX, 0),
        }
    }
}

impl Arm {
    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }

    pub(super) fn set(&mut self, motion: Motion, at: Ticks) {
        self.motion = motion;
        self.at = at;
    }

    /// The block with which the last access went on.
    pub(super) fn last_block(&self) -> u64 {
        self.target
    }

    pub(super) fn stand_still(&mut self) {
        self.set(Motion::Still, Ticks::MAX);
    }
}

impl Disk {
    /// Brings segments up to the present: what has come over the bus and from the medium.
    #[inline]
    pub(super) fn update(&mut self) {
        if self.updated != self.clock {
            self.updated = self.clock;
            self.move_data();
        }
    }

    fn move_data(&mut self) {
        let size = u64::from(self.drive.cache.segment_blocks);
        if let (Phase::Chunk { .. }, Some(owner)) = (self.link.phase, self.link.owner)
            && self.jobs[owner].write
        {
            let there = self.out_now(owner);
            self.data_arrived_up_to(owner, there);
        }
        if let Motion::Pass(run) = self.arm.motion
            && run.in_order
        {
            let elapsed = self.clock - run.since;
            let spindle = self.drive.mechanics.spindle();
            let passed = spindle.passed(elapsed, self.arm.place.blocks_per_track).min(run.count);
            let reached = run.first + passed;
            match self.arm.job.filter(|_| self.arm.write) {
                Some(job) => self.jobs[job].written = reached,
                None => {
                    let kept = &mut self.segments[self.arm.segment];
                    kept.end = reached;
                    kept.wrap(size);
                    let wanted = self.arm.job.map_or(reached, |job| self.jobs[job].end);
                    // A run's end is decided on by itself.
                    let goes_on = passed < run.count && (wanted..kept.most_ahead).contains(&reached);
                    self.arm.background |= goes_on;
                }
            }
        }
    }

    /// The next block of a job to cross the bus at present.
    pub(super) fn out_now(&self, job: JobId) -> u64 {
        let current = &self.jobs[job];
        if self.link.owner != Some(job) {
            return current.out;
        }
        match self.link.phase {
            Phase::Chunk { since, blocks } => {
                let elapsed = self.clock - since;
                current.out + elapsed.checked_div(current.block_time).unwrap_or(blocks).min(blocks)
            }
            // As fast as the medium or faster: all but the block that just came.
            Phase::Hold { skip } if skip > 0 && !current.write => {
                let there = current.segment.map_or(0, |segment| self.segments[segment].end);
                current.out.max(there.saturating_sub(1).min(skip))
            }
            _ => current.out,
        }
    }

    pub(super) fn data_arrived(&mut self, job: JobId) {
        if self.jobs[job].write {
            self.data_arrived_up_to(job, self.jobs[job].out);
        }
    }

    fn data_arrived_up_to(&mut self, job: JobId, block: u64) {
        let size = u64::from(self.drive.cache.segment_blocks);
        if let Some(segment) = self.jobs[job].segment {
            let kept = &mut self.segments[segment];
            kept.end = kept.end.max(block);
            kept.wrap(size);
        }
    }

    /// Whether a segment is being filled for nobody.
    pub(super) fn is_pure_read_ahead(&self, segment: usize) -> bool {
        self.arm.busy && self.arm.segment == segment && self.arm.job.is_none()
    }

    /// How the arm's access and a job get along; asking changes nothing.
    fn way(&mut self, job: JobId) -> Way {
        if !self.arm.busy {
            return Way::Free;
        }
        let segment = self.arm.segment;
        let same = self.jobs[job].segment == Some(segment);
        match self.segments[segment].state {
            State::Reading => self.way_while_reading(job, segment, same),
            State::Writing => {
                let shared = same
                    && self.jobs[job].hit == Hit::Append
                    && self.segments[segment].end == self.jobs[job].first
                    && (self.drive.cache.fast_write != FastWrite::Sequential || self.pending.len() == 1)
                    && self.next_pending().is_none_or(|next| next == job);
                if shared { Way::Shared } else { Way::Blocked }
            }
            _ => Way::Blocked,
        }
    }

    fn way_while_reading(&mut self, job: JobId, segment: usize, same: bool) -> Way {
        let Job { first, write, .. } = self.jobs[job];
        let Segment { start, end, least_ahead: least, .. } = self.segments[segment];
        let in_reach = !write && same && (start..=end).contains(&first);
        if self.arm.job.is_some() && end < least && !in_reach {
            return Way::Blocked;
        }
        let least = if self.ends_read_ahead(job, segment) { end } else { least };
        let usable = first < end || self.drive.cache.almost_read_hits;
        if in_reach && usable && self.drive.cache.caching != Caching::None {
            let next = self.next_pending().is_none_or(|next| next == job);
            return if next { Way::Shared } else { Way::Blocked };
        }
        if let Some(current) = self.arm.job {
            let current = &self.jobs[current];
            let free = match self.drive.control.preseek {
                Preseek::AfterAcknowledgement => current.acknowledged,
                Preseek::DuringCompletion => current.sent,
                Preseek::AfterMedia => true,
            };
            if !free {
                return Way::Blocked;
            }
        }
        if end < least { Way::AfterMinimum } else { Way::Stops }
    }

    /// Whether a write goes where the arm reads on, and ends that.
    fn ends_read_ahead(&self, job: JobId, segment: usize) -> bool {
        let (new, kept) = (&self.jobs[job], &self.segments[segment]);
        new.write && self.drive.cache.write_hit_stops_read_ahead && new.first < kept.end && new.end > kept.start
    }

    /// Whether the arm's access would make way for a job at once, or go on for both.
    pub(super) fn would_make_way(&mut self, job: JobId) -> bool {
        match self.way(job) {
            Way::Free | Way::Shared => true,
            Way::Stops => match self.arm.motion {
                Motion::Still => true,
                Motion::Stopping | Motion::Fixed => false,
                motion => self.leaves_at_once(motion) || !self.drive.control.disconnect_in_seek,
            },
            Way::AfterMinimum | Way::Blocked => false,
        }
    }

    /// Makes the arm's access make way for a job, or go on for both; how it does, if at once.
    fn make_way(&mut self, job: JobId) -> Option<Way> {
        let way = self.way(job);
        let segment = self.arm.segment;
        let reading = self.arm.busy && self.segments[segment].state == State::Reading;
        let has_least = self.segments[segment].end >= self.segments[segment].least_ahead;
        if reading && (self.arm.job.is_none() || has_least) && self.ends_read_ahead(job, segment) {
            let kept = &mut self.segments[segment];
            kept.most_ahead = kept.end;
            kept.least_ahead = kept.end;
            self.plan_again();
        }
        match way {
            Way::Free | Way::Shared => Some(way),
            Way::Stops => self.stop_access().then_some(way),
            Way::AfterMinimum => {
                let kept = &mut self.segments[segment];
                kept.most_ahead = kept.least_ahead;
                None
            }
            Way::Blocked => None,
        }
    }

    /// Whether an access that is stopped in this motion leaves the medium at once.
    fn leaves_at_once(&self, motion: Motion) -> bool {
        motion != Motion::Seek && self.drive.cache.stop_read_ahead_in_block
    }

    /// Stops reading on; whether the arm is free at once, though it may not leave at once.
    fn stop_access(&mut self) -> bool {
        let spindle = self.drive.mechanics.spindle();
        let block_ends = |since: Ticks| {
            let per_track = self.arm.place.blocks_per_track;
            since + spindle.blocks(spindle.passed(self.clock - since, per_track) + 1, per_track)
        };
        let until = match self.arm.motion {
            Motion::Still => return true,
            Motion::Stopping | Motion::Fixed => return false,
            Motion::Seek | Motion::Latency => self.arm.at,
            Motion::Rotate { since } | Motion::Pass(Run { since, .. }) => block_ends(since),
        };
        let at_once = self.leaves_at_once(self.arm.motion);
        if self.drive.control.disconnect_in_seek && !at_once {
            self.arm.set(Motion::Stopping, until);
            return false;
        }
        if self.arm.motion == Motion::Seek {
            self.arm.track = self.arm.place.track;
        }
        if !at_once {
            self.arm.stopped_until = until;
        }
        self.arm.stand_still();
        self.statistics.prefetches_stopped += 1;
        true
    }

    /// Starts what a job needs of the arm, if the arm can make way; a `tentative` segment is given up otherwise.
    pub(super) fn activate(&mut self, job: JobId, tentative: bool) {
        let Job { segment, write, hit, had_arm, .. } = self.jobs[job];
        let dirty = segment.is_some_and(|segment| self.segments[segment].state == State::Dirty);
        let may_ask = write || (hit != Hit::Collision && !dirty);
        if !had_arm && self.arm.busy && self.arm.job != Some(job) && may_ask {
            match self.make_way(job) {
                Some(Way::Stops) => self.leave_read_ahead(),
                Some(Way::Shared) if !write && hit == Hit::Miss => self.leave_read_ahead(),
                Some(Way::Shared) if !write => self.take_over_read_ahead(job),
                _ => {}
            }
        }
        if tentative && self.jobs[job].segment.is_some() {
            if self.arm.busy {
                self.jobs[job].segment = None;
                self.jobs[job].hit = Hit::Miss;
            } else {
                self.attach(job);
            }
        }
        if self.jobs[job].segment.is_some() {
            self.own(job);
        }
        if !had_arm {
            // The arm may have been freed for a job that can't have it yet.
            let hint = (self.jobs[job].hit != Hit::Collision).then_some(job);
            self.start_arm(hint, true);
        }
    }

    /// The stopped access's segment keeps what it has.
    fn leave_read_ahead(&mut self) {
        debug_assert!(!self.arm.write);
        let segment = self.arm.segment;
        let unfinished = self.arm.job.is_some();
        self.arm.stand_still();
        self.arm.busy = false;
        self.arm.job = None;
        self.segments[segment].state = if unfinished { State::Clean } else { self.state_after_read(segment) };
        self.find_owner(segment);
    }

    /// Takes the arm from whomever has it.
    pub(super) fn abandon_arm(&mut self) {
        self.arm.stand_still();
        self.arm.busy = false;
        self.arm.job = None;
    }

    /// The access goes on for a job that wants what it reads.
    fn take_over_read_ahead(&mut self, job: JobId) {
        let forward = self.arm.job.is_none_or(|current| self.jobs[current].first < self.jobs[job].first);
        if self.arm.background && forward && self.is_enabled(job) {
            self.arm.busy = false;
            self.arm.job = None;
        }
    }

    /// Gives the free arm to a job: this one if it can be served, else the scheduler's choice.
    pub(super) fn start_arm(&mut self, hint: Option<JobId>, with_bus: bool) {
        if self.arm.busy || self.drive.mechanics.is_constant() {
            return;
        }
        let hint = hint.filter(|&job| !self.jobs[job].had_arm && self.is_enabled(job));
        let Some(job) = hint.or_else(|| self.next_pending()) else { return };
        if self.jobs[job].segment.is_none() {
            self.select_segment(job, false);
            if self.jobs[job].segment.is_none() {
                return;
            }
            self.attach(job);
        }
        let Some(segment) = self.jobs[job].segment else { return };
        let (current, kept) = (&self.jobs[job], &self.segments[segment]);
        // The arm goes on with nothing but what the job is about to read.
        let wanted = !current.write && current.hit != Hit::Miss && (kept.start..=kept.end).contains(&current.out);
        if !wanted || segment != self.arm.segment {
            self.arm.stand_still();
        }
        self.own(job);
        self.pending.retain(|&other| other != job);
        self.jobs[job].had_arm = true;
        self.arm.job = Some(job);
        self.arm.busy = true;
        self.arm.segment = segment;
        self.arm.write = self.jobs[job].write;
        let (seek, least) = if self.arm.write { self.prepare_write(job) } else { self.prepare_read(job) };
        if with_bus && self.link.extra != Some(job) {
            self.check_bus(Some(job));
        }
        let release = match seek {
            Next::Seek => {
                let ready = self.jobs[job].arm_from.saturating_sub(self.clock);
                let stopped = self.arm.stopped_until.saturating_sub(self.clock);
                let target = if self.arm.write { self.jobs[job].written } else { self.segments[segment].end };
                self.statistics.accesses += 1;
                if !self.begin_seek(target, ready + stopped, least, true) {
                    self.release_arm();
                }
                false
            }
            Next::Release => {
                self.release_arm();
                true
            }
            Next::Continue => {
                self.plan_again();
                false
            }
        };
        let reads_on = self.arm.busy && self.arm.background && self.segments[self.arm.segment].state == State::Reading;
        if !release && reads_on {
            self.offer_arm();
        }
        self.watch_medium();
    }

    fn prepare_read(&mut self, job: JobId) -> (Next, Ticks) {
        let segment = self.arm.segment;
        if self.jobs[job].hit != Hit::Miss {
            // Who starts with an empty segment has just said how far it goes.
            self.extend_read_ahead(job, segment);
        }
        self.arm.immediate = self.drive.cache.immediate_read;
        self.arm.background = false;
        let moving = self.arm.motion != Motion::Still;
        let current = &self.jobs[job];
        let kept = &mut self.segments[segment];
        kept.state = State::Reading;
        kept.last_use = Some(Use::Read);
        if kept.start > current.out || kept.end < current.out {
            kept.start = current.out;
            kept.end = current.out;
        }
        let next = if kept.end < current.end || kept.start > current.out {
            Next::Seek
        } else if kept.end < kept.most_ahead {
            self.arm.background = true;
            if self.drive.cache.read_ahead_on_idle_hit { Next::Seek } else { Next::Continue }
        } else {
            Next::Release
        };
        (if moving { Next::Continue } else { next }, 0)
    }

    fn prepare_write(&mut self, job: JobId) -> (Next, Ticks) {
        let segment = self.arm.segment;
        let current = self.jobs[job];
        let sequential = current.hit == Hit::Append && self.arm.finished == (current.first, self.clock);
        let least = if sequential { 0 } else { self.drive.control.minimum_write_seek };
        self.arm.immediate = self.drive.cache.immediate_write;
        self.arm.background = current.acknowledged;
        let kept = &mut self.segments[segment];
        kept.state = State::Writing;
        kept.last_use = Some(Use::Write);
        // What has crossed the bus is there, whoever had the segment then.
        kept.end = kept.end.max(current.out);
        kept.start = kept.start.min(current.written);
        (if current.written < current.end { Next::Seek } else { Next::Release }, least)
    }

    /// Whether the access has what it is for.
    pub(super) fn is_done(&self) -> bool {
        let kept = &self.segments[self.arm.segment];
        match (self.arm.job.map(|job| &self.jobs[job]), self.arm.write) {
            (_, false) if self.arm.background => kept.end >= kept.most_ahead,
            (Some(job), false) => kept.end >= job.end,
            (None, false) => kept.end >= kept.most_ahead,
            (Some(job), true) if self.arm.background => kept.end <= job.written,
            (Some(job), true) => job.written >= job.end,
            (None, true) => true,
        }
    }

    /// Decides what a run's end means for the job; whether the arm's access is over.
    pub(super) fn made_progress(&mut self, block: u64) -> bool {
        let segment = self.arm.segment;
        let before = (self.arm.job, self.arm.segment);
        let reading = !self.arm.write;
        let done = self.is_done();
        if self.arm.background && reading && done {
            self.arm.stand_still();
            self.release_arm();
            return true;
        }
        if !self.arm.background {
            self.check_bus(self.arm.job);
            // Who got the bus may have got the arm with it.
            if (self.arm.job, self.arm.segment) != before || !self.arm.busy {
                return true;
            }
        }
        let mut over = done;
        if reading {
            let reaches_least = self.arm.background && self.segments[segment].end == self.segments[segment].least_ahead;
            if done {
                let kept = &self.segments[segment];
                if self.drive.cache.read_ahead != ReadAhead::None && kept.end < kept.most_ahead {
                    self.arm.background = true;
                    over = false;
                }
            }
            if (reaches_least || (done && !over)) && self.may_leave_early() {
                let motion = (self.arm.motion, self.arm.at);
                self.arm.stand_still();
                self.offer_arm();
                if (self.arm.job, self.arm.segment) != before || !self.arm.busy || self.arm.motion != Motion::Still {
                    return true;
                }
                self.arm.set(motion.0, motion.1);
            }
        }
        if over {
            self.arm.stand_still();
            if !reading {
                self.arm.finished = (block, self.clock);
            }
            self.release_arm();
        }
        over
    }

    /// Whether the preseeking level lets the arm leave now that its job has its data.
    fn may_leave_early(&self) -> bool {
        let Some(job) = self.arm.job else { return true };
        match self.drive.control.preseek {
            Preseek::AfterAcknowledgement => self.jobs[job].acknowledged,
            Preseek::DuringCompletion => self.jobs[job].sent,
            Preseek::AfterMedia => true,
        }
    }

    /// The arm's access is over; whether it may go on depends on its job.
    pub(super) fn release_arm(&mut self) {
        if !self.arm.busy {
            return;
        }
        let segment = self.arm.segment;
        let mut hint = None;
        match self.arm.job {
            None => {
                self.segments[segment].state = self.state_after_read(segment);
                self.arm.busy = false;
                self.find_owner(segment);
            }
            Some(_) if !self.arm.write => {
                if !self.may_leave_early() {
                    return;
                }
                self.segments[segment].state = State::Clean;
                self.arm.busy = false;
            }
            Some(job) => {
                let current = self.jobs[job];
                if !(current.acknowledged || self.may_leave_early()) {
                    return;
                }
                self.arm.busy = false;
                hint = self.close_write(job, segment);
            }
        }
        self.arm.job = None;
        self.start_arm(hint, true);
    }

    /// A write is on the medium: what becomes of its segment, and which write continues it.
    fn close_write(&mut self, job: JobId, segment: usize) -> Option<JobId> {
        let current = self.jobs[job];
        let unwritten =
            |&other: &JobId| other != job && self.jobs[other].write && self.jobs[other].written < self.jobs[other].end;
        let next = self.segments[segment].jobs.iter().copied().find(unwritten);
        let hint = next.filter(|&next| {
            self.drive.cache.fast_write == FastWrite::Sequential
                && self.jobs[next].hit == Hit::Append
                && self.jobs[next].first == current.end
        });
        if current.acknowledged {
            self.arm.job = None;
            self.detach(job);
            self.free_job(job);
        }
        if next.is_some() {
            self.segments[segment].state = State::Dirty;
        } else {
            self.segments[segment].state = self.state_after_write(segment);
        }
        if current.acknowledged {
            self.find_owner(segment);
        }
        hint
    }

    /// Reading on makes way for the next job, if one waits.
    pub(super) fn offer_arm(&mut self) {
        if !self.arm.busy || self.arm.write || !self.arm.background {
            return;
        }
        let Some(next) = self.next_pending() else { return };
        let tentative = self.jobs[next].segment.is_none();
        if tentative {
            self.select_segment(next, false);
        }
        self.activate(next, tentative);
    }

    /// Whether the scheduler may choose a job: a segment is or can be made free for it.
    pub(super) fn is_enabled(&mut self, job: JobId) -> bool {
        let known = self.jobs[job].segment;
        if known.is_none() {
            self.select_segment(job, false);
        }
        let current = self.jobs[job];
        let enabled = match current.segment {
            None => false,
            Some(segment) if !current.write => {
                let kept = &self.segments[segment];
                // What has passed out of the segment can be read again once nobody needs what is there.
                let needed = |&other: &JobId| {
                    other != job && !self.jobs[other].write && self.jobs[other].had_arm && !self.jobs[other].sent
                };
                let there = (kept.start..=kept.end).contains(&current.out) || current.hit == Hit::Miss;
                !matches!(kept.state, State::Writing | State::Dirty) && (there || !kept.jobs.iter().any(needed))
            }
            Some(segment) => {
                let owner = self.segment_owner(segment).filter(|&owner| owner != job);
                let size = u64::from(self.drive.cache.segment_blocks);
                owner.is_none_or(|owner| {
                    let from = self.jobs[owner].written;
                    current.end.saturating_sub(from) <= size || from == current.first
                })
            }
        };
        if known.is_none() {
            self.jobs[job].segment = None;
            self.jobs[job].hit = if current.hit == Hit::Collision { Hit::Collision } else { Hit::Miss };
        }
        enabled
    }

    /// Starts the next access of a drive with a fixed access time.
    pub(super) fn start_without_mechanics(&mut self) {
        if let (Access::Constant(time), false) = (self.drive.mechanics.access, self.arm.busy) {
            let Some(job) = self.next_pending() else { return };
            self.pending.retain(|&other| other != job);
            self.arm.job = Some(job);
            self.arm.busy = true;
            self.arm.set(Motion::Fixed, self.clock + time);
        }
    }

    pub(super) fn fixed_access_over(&mut self) {
        if !self.link.is_free() {
            return self.arm.set(Motion::Fixed, self.link.at);
        }
        let Some(job) = self.arm.job.take() else { return };
        self.arm.stand_still();
        self.arm.busy = false;
        self.link.owner = Some(job);
        self.finish_without_mechanics(job);
    }
}

/// How the arm's access and a job that wants the arm get along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The arm has nothing to do.
    Free,
    /// The access serves the job too.
    Shared,
    /// Reading on is stopped.
    Stops,
    /// Reading on may be stopped once the minimum is there.
    AfterMinimum,
    /// The job has to wait.
    Blocked,
}

/// How an access begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Seek,
    /// Nothing is left to do for the medium.
    Release,
    /// The arm is already on its way, or need not move.
    Continue,
}
