//! The arm and the medium: one access at a time, track by track.
//!
//! On a track, blocks pass the head one after the other; a [`Run`] of them is planned at once and its progress is a
//! division. A run ends where something is decided: the end of the request, of the reading on, of the track, of the
//! room or the data in the buffer.

use super::buffer::{State, Use};
use super::controller::{Disk, Hit, JobId};
use super::geometry::{Place, Track, mul_div};
use super::link::Phase;
use super::mechanics::{Access, Ticks};
use super::parameters::{FastWrite, Preseek, ReadAhead};

/// The arm, and what it does.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    /// Where the heads are, or where they were when they left.
    pub(super) track: Track,
    busy: bool,
    /// Whom it works for; nobody while it reads on after a request.
    pub(super) job: Option<JobId>,
    pub(super) segment: usize,
    write: bool,
    /// Nobody waits for the medium: the request is over, or its data are all there.
    pub(super) background: bool,
    /// The access begins with whatever wanted block passes first.
    immediate: bool,
    pub(super) motion: Motion,
    /// When the motion ends.
    pub(super) at: Ticks,
    /// A stopped access keeps the arm until then.
    stopped_until: Ticks,
    /// The track to which the arm goes or on which it is.
    place: Place,
    /// The block of which `place` tells the angle.
    place_block: u64,
    /// The block with which the access goes on.
    target: u64,
    /// Out of order: blocks from the first to before the second have passed already.
    done_early: Option<(u64, u64)>,
    /// A write's block at which the access to a track began out of order.
    entry: Option<u64>,
    /// The block behind the last one written, and when.
    finished: (u64, Ticks),
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
    first: u64,
    count: u64,
    since: Ticks,
    /// Whether they count at once, or only when those before them have passed.
    in_order: bool,
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
            place: Place::default(),
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

    fn set(&mut self, motion: Motion, at: Ticks) {
        self.motion = motion;
        self.at = at;
    }

    /// The block with which the last access went on.
    pub(super) fn last_block(&self) -> u64 {
        self.target
    }

    fn stand_still(&mut self) {
        self.set(Motion::Still, Ticks::MAX);
    }
}

impl Disk {
    /// Brings segments up to the present: what has come over the bus and from the medium.
    pub(super) fn update(&mut self) {
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
                }
            }
        }
    }

    /// The next block of a job to cross the bus at present.
    fn out_now(&self, job: JobId) -> u64 {
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

    /// Whether the arm's access can make way for a job, or go on for both; if it must make way, it is stopped.
    pub(super) fn stop_or_share(&mut self, job: JobId) -> bool {
        if !self.arm.busy {
            return true;
        }
        let segment = self.arm.segment;
        let new = self.jobs[job];
        let same = new.segment == Some(segment);
        match self.segments[segment].state {
            State::Reading => self.stop_or_share_reading(job, segment, same),
            State::Writing => {
                same && new.hit == Hit::Append
                    && self.segments[segment].end == new.first
                    && (self.drive.cache.fast_write != FastWrite::Sequential || self.pending.len() == 1)
                    && self.next_pending().is_none_or(|next| next == job)
            }
            _ => false,
        }
    }

    fn stop_or_share_reading(&mut self, job: JobId, segment: usize, same: bool) -> bool {
        let new = self.jobs[job];
        let (start, end, least) = {
            let kept = &self.segments[segment];
            (kept.start, kept.end, kept.least_ahead)
        };
        let in_reach = !new.write && same && (start..=end).contains(&new.first);
        if self.arm.job.is_some() && end < least && !in_reach {
            return false;
        }
        let kept = &mut self.segments[segment];
        if new.write && self.drive.cache.write_hit_stops_read_ahead && new.first < end && new.end > start {
            kept.most_ahead = end;
            kept.least_ahead = end;
            self.plan_again();
        }
        let least = self.segments[segment].least_ahead;
        let usable = new.first < end || self.drive.cache.almost_read_hits;
        if in_reach && usable && self.drive.cache.caching != super::parameters::Caching::None {
            return self.next_pending().is_none_or(|next| next == job);
        }
        if let Some(current) = self.arm.job {
            let current = &self.jobs[current];
            let free = match self.drive.control.preseek {
                Preseek::AfterAcknowledgement => current.acknowledged,
                Preseek::DuringCompletion => current.sent,
                Preseek::AfterMedia => true,
            };
            if !free {
                return false;
            }
        }
        if end < least {
            self.segments[segment].most_ahead = least;
            return false;
        }
        self.stop_access()
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
        let seeking = self.arm.motion == Motion::Seek;
        let at_once = !seeking && self.drive.cache.stop_read_ahead_in_block;
        if self.drive.control.disconnect_in_seek && !at_once {
            self.arm.set(Motion::Stopping, until);
            return false;
        }
        if seeking {
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
        let new = self.jobs[job];
        let dirty = new.segment.is_some_and(|segment| self.segments[segment].state == State::Dirty);
        let may_ask = new.write || (new.hit != Hit::Collision && !dirty);
        if !new.had_arm && self.arm.busy && self.arm.job != Some(job) && may_ask && self.stop_or_share(job) {
            let same = new.segment == Some(self.arm.segment);
            if new.write {
                if !same || new.hit != Hit::Append {
                    self.leave_read_ahead();
                }
            } else if !same || new.hit == Hit::Miss {
                self.leave_read_ahead();
            } else {
                self.take_over_read_ahead(job);
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
        if !new.had_arm && self.jobs[job].hit != Hit::Collision {
            self.start_arm(Some(job), true);
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

    /// The access goes on for a job that wants what it reads.
    fn take_over_read_ahead(&mut self, job: JobId) {
        let forward = self.arm.job.is_none_or(|current| self.jobs[current].first < self.jobs[job].first);
        if self.arm.background && forward {
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
        self.own(job);
        let Some(segment) = self.jobs[job].segment else { return };
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
        self.extend_read_ahead(job, segment);
        self.arm.immediate = self.drive.cache.immediate_read;
        self.arm.background = false;
        let moving = self.arm.motion != Motion::Still;
        let kept = &mut self.segments[segment];
        kept.state = State::Reading;
        kept.last_use = Some(Use::Read);
        let current = &self.jobs[job];
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
        if !matches!(kept.state, State::Writing | State::Dirty) {
            self.dirty_segments += 1;
        }
        kept.state = State::Writing;
        kept.last_use = Some(Use::Write);
        (if current.written < current.end { Next::Seek } else { Next::Release }, least)
    }

    /// Leaves for a block's track; false if reading on ends before it.
    fn begin_seek(&mut self, block: u64, delay: Ticks, least: Ticks, first: bool) -> bool {
        self.arm.stand_still();
        self.arm.done_early = None;
        self.arm.entry = None;
        if block >= self.drive.capacity_blocks() {
            return false;
        }
        let place = self.drive.geometry.locate(block);
        let from = self.arm.track;
        if self.arm.background && !self.arm.write {
            let leaves = match self.drive.cache.read_ahead {
                ReadAhead::ToTrackEnd => place.track != from,
                ReadAhead::ToCylinderEnd => place.track.cylinder != from.cylinder,
                _ => false,
            };
            if leaves {
                return false;
            }
        }
        let time = self.drive.mechanics.positioning(from, place.track, self.arm.write);
        if first {
            self.statistics.seek_cylinders += u64::from(from.cylinder.abs_diff(place.track.cylinder));
            self.statistics.seek_time += time;
        }
        if first {
            self.note_direction(from, block);
        }
        self.arm.place = place;
        self.arm.place_block = block;
        self.arm.target = block;
        self.arm.set(Motion::Seek, self.clock + delay + least.max(time));
        true
    }

    pub(super) fn arm_event(&mut self) {
        self.update();
        self.arm.at = Ticks::MAX;
        match self.arm.motion {
            Motion::Still => {}
            Motion::Seek => self.arrive_on_track(),
            Motion::Latency => match self.arm.entry.take() {
                Some(entry) => self.enter_track(entry),
                None => self.begin_pass(self.arm.target),
            },
            Motion::Rotate { since } => {
                let per_track = self.arm.place.blocks_per_track;
                self.lose_angle(self.drive.mechanics.spindle().passed(self.clock - since, per_track));
                self.begin_pass(self.arm.target);
            }
            Motion::Pass(run) => self.pass_over(run),
            Motion::Stopping => {
                self.arm.stand_still();
                self.arm.track = self.arm.place.track;
                self.release_arm();
            }
            Motion::Fixed => self.fixed_access_over(),
        }
    }

    /// The head is on the track: wait for the wanted block, or begin with one that comes earlier.
    fn arrive_on_track(&mut self) {
        let place = self.arm.place;
        self.arm.track = place.track;
        let reads_free = !self.arm.write && self.drive.cache.read_free_blocks && self.arm.target != place.track_first;
        let latency = self.latency(self.clock, place.angle);
        self.statistics.rotation_time += latency;
        let immediate = (self.arm.immediate || reads_free) && self.drive.mechanics.access == Access::Full;
        if immediate {
            let turn = self.turn();
            let behind = (self.angle(self.clock) + turn - place.angle) % turn;
            let blocks = mul_div(behind, u64::from(place.blocks_per_track), turn);
            let whole = mul_div(blocks, turn, u64::from(place.blocks_per_track));
            let blocks = if behind > whole { blocks + 1 } else { blocks };
            let entry = self.arm.target + blocks;
            if blocks > 0 && entry < place.track_end {
                self.arm.entry = Some(entry);
                let until = self.clock + self.latency(self.clock, self.angle_on_track(entry));
                return self.arm.set(Motion::Latency, until);
            }
        }
        self.arm.set(Motion::Latency, self.clock + latency);
    }

    /// The angle of a block of the present track; blocks follow each other without gaps.
    fn angle_on_track(&self, block: u64) -> u64 {
        let per_track = u64::from(self.arm.place.blocks_per_track);
        let (base, turn) = (self.arm.place_block, self.turn());
        let ahead = match block >= base {
            true => (block - base) % per_track,
            false => (per_track - (base - block) % per_track) % per_track,
        };
        (self.arm.place.angle + mul_div(ahead, turn, per_track)) % turn
    }

    /// The access begins behind the wanted block: what passes now is done early, then the platter comes round.
    fn enter_track(&mut self, entry: u64) {
        let place = self.arm.place;
        if self.arm.write {
            self.arm.entry = Some(entry);
            return self.pass_early(entry);
        }
        let segment = &self.segments[self.arm.segment];
        if self.arm.immediate {
            let limit = match self.arm.job.filter(|_| !self.arm.background) {
                Some(job) => self.jobs[job].end,
                None => segment.most_ahead,
            };
            let limit = limit.min(place.track_end).min(self.room_for_reading());
            if entry < limit {
                self.arm.done_early = Some((entry, limit));
            }
        }
        let free = self.drive.cache.read_free_blocks && segment.start == segment.end;
        self.arm.target = if free { place.track_first } else { self.arm.target };
        self.rotate_to(self.arm.target);
    }

    /// Lets blocks pass until one begins.
    fn rotate_to(&mut self, block: u64) {
        self.arm.target = block;
        let until = self.clock + self.latency(self.clock, self.angle_on_track(block));
        self.arm.set(Motion::Rotate { since: self.clock }, until);
    }

    /// Writes out of order what is in the buffer from a block on.
    fn pass_early(&mut self, block: u64) {
        let entry = self.arm.entry.unwrap_or(block);
        let there = self.segments[self.arm.segment].end.min(self.arm.place.track_end);
        if there > block {
            return self.pass(Run { first: block, count: there - block, since: self.clock, in_order: false });
        }
        self.arm.entry = None;
        if block > entry {
            self.arm.done_early = Some((entry, block));
        }
        self.rotate_to(self.arm.target);
    }

    fn pass(&mut self, run: Run) {
        let time = self.drive.mechanics.spindle().blocks(run.count, self.arm.place.blocks_per_track);
        self.arm.set(Motion::Pass(run), run.since + time);
        self.watch_medium();
    }

    /// A wanted block begins to pass.
    fn begin_pass(&mut self, block: u64) {
        if !self.arm.write {
            let kept = &mut self.segments[self.arm.segment];
            if block < kept.start {
                kept.start = block;
                kept.end = block;
            }
        }
        self.continue_pass(block);
    }

    /// A block begins to pass: plans the run up to the next decision, or waits a turn for room or data.
    fn continue_pass(&mut self, block: u64) {
        let limit = if self.arm.write { self.write_limit() } else { self.read_limit() };
        let limit = limit.min(self.arm.place.track_end);
        let limit = self.arm.done_early.map_or(limit, |(early, _)| limit.min(early.max(block)));
        if limit > block {
            self.pass(Run { first: block, count: limit - block, since: self.clock, in_order: true });
        } else {
            self.arm.target = block;
            let until = self.clock + self.drive.mechanics.spindle().period();
            self.arm.set(Motion::Rotate { since: self.clock }, until);
            self.watch_medium();
        }
    }

    /// A run's end may have changed with what its segment is for; the block under the head still counts.
    fn plan_again(&mut self) {
        let Motion::Pass(run) = self.arm.motion else { return };
        if !run.in_order || self.arm.write {
            return;
        }
        self.update();
        let per_track = self.arm.place.blocks_per_track;
        let passed = self.drive.mechanics.spindle().passed(self.clock - run.since, per_track);
        let limit = self.read_limit().min(self.arm.place.track_end);
        let limit = self.arm.done_early.map_or(limit, |(early, _)| limit.min(early));
        let count = limit.saturating_sub(run.first).max(passed + 1).min(self.arm.place.track_end - run.first);
        self.pass(Run { count: count.max(1), ..run });
    }

    fn read_limit(&self) -> u64 {
        let kept = &self.segments[self.arm.segment];
        let limit = match self.arm.job.filter(|_| !self.arm.background) {
            Some(job) if kept.end < self.jobs[job].end => self.jobs[job].end,
            _ if kept.end < kept.least_ahead => kept.least_ahead,
            _ => kept.most_ahead,
        };
        limit.min(self.room_for_reading())
    }

    /// The first block for which the buffer has no room, as data wait for the host.
    fn room_for_reading(&self) -> u64 {
        let size = u64::from(self.drive.cache.segment_blocks);
        let readers = self.segments[self.arm.segment].jobs.iter();
        let readers = readers.filter(|&&job| !self.jobs[job].write && !self.jobs[job].sent);
        readers.map(|&job| self.out_now(job) + size).min().unwrap_or(u64::MAX)
    }

    fn write_limit(&self) -> u64 {
        let kept = &self.segments[self.arm.segment];
        let Some(job) = self.arm.job else { return 0 };
        let current = &self.jobs[job];
        if self.drive.control.extra.is_some() {
            // Drives with the extra disconnection collect some blocks before they write (DiskSim 4.0 does so for all
            // of them: a third of a short request's usual transfer, 15 blocks from 45 on).
            let blocks = current.end - current.first;
            let least = if blocks < 45 { blocks.min(10) } else { 15 };
            if kept.end - kept.start < least {
                return 0;
            }
        }
        if self.arm.background { kept.end } else { kept.end.min(current.end) }
    }

    /// What the platter loses in comparisons with DiskSim while blocks pass; nothing otherwise.
    fn lose_angle(&mut self, blocks: u64) {
        if self.angle_lost > 0 {
            let turn = self.turn();
            self.phase = (self.phase + turn - self.angle_lost * blocks % turn) % turn;
        }
    }

    /// A run has passed.
    fn pass_over(&mut self, run: Run) {
        let mut block = run.first + run.count;
        self.lose_angle(run.count);
        if !run.in_order {
            return self.pass_early(block);
        }
        self.arm.target = block;
        let jump = self.arm.done_early.filter(|&(early, _)| early == block);
        if let Some((_, end)) = jump {
            block = end;
            self.arm.done_early = None;
            // Until the platter has come round to it, the head passes blocks that are done.
            self.arm.set(Motion::Rotate { since: self.clock }, Ticks::MAX);
            match self.arm.job.filter(|_| self.arm.write) {
                Some(job) => self.jobs[job].written = end,
                None => {
                    let size = u64::from(self.drive.cache.segment_blocks);
                    let kept = &mut self.segments[self.arm.segment];
                    kept.end = end;
                    kept.wrap(size);
                }
            }
        } else {
            self.arm.set(Motion::Rotate { since: self.clock }, Ticks::MAX);
        }
        if self.made_progress(block) {
            return;
        }
        if block >= self.arm.place.track_end {
            if !self.begin_seek(block, 0, 0, false) {
                self.release_arm();
            }
            self.watch_medium();
        } else if jump.is_some() {
            self.rotate_to(block);
            self.watch_medium();
        } else {
            self.continue_pass(block);
        }
    }

    /// Decides what a run's end means for the job; whether the arm's access is over.
    fn made_progress(&mut self, block: u64) -> bool {
        let segment = self.arm.segment;
        let before = (self.arm.job, self.arm.segment);
        let reading = !self.arm.write;
        let kept = &self.segments[segment];
        let done = match (self.arm.job.map(|job| self.jobs[job]), reading) {
            (_, true) if self.arm.background => kept.end >= kept.most_ahead,
            (Some(job), true) => kept.end >= job.end,
            (None, true) => kept.end >= kept.most_ahead,
            (Some(job), false) if self.arm.background => kept.end <= job.written,
            (Some(job), false) => job.written >= job.end,
            (None, false) => true,
        };
        if self.arm.background && reading && done {
            self.arm.stand_still();
            self.release_arm();
            return true;
        }
        if !self.arm.background {
            self.check_bus(self.arm.job);
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
            Some(job) if !self.arm.write => {
                if !self.may_leave_early() {
                    return;
                }
                self.segments[segment].state = State::Clean;
                let _ = job;
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
            self.dirty_segments -= 1;
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
                !matches!(self.segments[segment].state, State::Writing | State::Dirty) || current.hit == Hit::Whole
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

    /// Plans when the link looks at the medium's progress again.
    pub(super) fn watch_medium(&mut self) {
        self.link.watch = Ticks::MAX;
        if let (Phase::Hold { .. }, Some(owner)) = (self.link.phase, self.link.owner) {
            return self.watch_for_holder(owner);
        }
        let Some(job) = self.arm.job.filter(|job| self.arm.busy && self.link.waiting.contains(job)) else { return };
        let (current, kept) = (&self.jobs[job], &self.segments[self.arm.segment]);
        let block = match current.write {
            false => current.end.min(current.out + current.watermark.max(1)),
            true if current.out < current.end => kept.end.saturating_sub(current.watermark),
            true => return,
        };
        if let Some(at) = self.passes(block.saturating_sub(1)).filter(|&at| at > self.clock) {
            self.link.watch = at;
        }
    }

    /// The link holds on: until the next block, or if it keeps up with the medium until the run's last.
    fn watch_for_holder(&mut self, owner: JobId) {
        let current = self.jobs[owner];
        let Some(segment) = current.segment else {
            self.link.at = Ticks::MAX;
            return;
        };
        let kept = &self.segments[segment];
        let size = u64::from(self.drive.cache.segment_blocks);
        // What has passed lets the link move a block that is so much further on.
        let offset = if current.write { size } else { 0 };
        let writer = self.segment_owner(segment).unwrap_or(owner);
        let ready = match current.write {
            false => kept.end > current.out,
            true => current.out - self.jobs[writer].written < size,
        };
        let (mut at, mut skip) = (Ticks::MAX, 0);
        if ready {
            at = self.clock;
        } else if let Motion::Pass(run) = self.arm.motion
            && self.arm.segment == segment
            && run.in_order
        {
            let keeps_up =
                current.block_time <= self.drive.mechanics.spindle().blocks(1, self.arm.place.blocks_per_track);
            let last = (run.first + run.count - 1 + offset).min(current.end - 1);
            let block = if keeps_up { last.max(current.out) } else { current.out };
            if let Some(passes) = self.passes(block - offset) {
                at = passes;
                skip = block;
            }
        }
        self.link.phase = Phase::Hold { skip };
        self.link.at = at;
    }

    /// When a block of the present run has passed.
    fn passes(&self, block: u64) -> Option<Ticks> {
        let Motion::Pass(run) = self.arm.motion else { return None };
        if !run.in_order || block < run.first || block >= run.first + run.count {
            return None;
        }
        let blocks = block - run.first + 1;
        Some(run.since + self.drive.mechanics.spindle().blocks(blocks, self.arm.place.blocks_per_track))
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

    fn fixed_access_over(&mut self) {
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

/// How an access begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Seek,
    /// Nothing is left to do for the medium.
    Release,
    /// The arm is already on its way, or need not move.
    Continue,
}
