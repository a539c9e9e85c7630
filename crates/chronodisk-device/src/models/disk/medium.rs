//! The medium under the head: seeks, waits, and runs of blocks that pass.

use super::arm::{Motion, Run};
use super::controller::{Disk, JobId};
use super::geometry::{BlockPosition, mul_div};
use super::link::Phase;
use super::mechanics::{Access, Ticks};
use super::parameters::{Preseek, ReadAhead};

impl Disk {
    /// Where a block is; the last answer is kept, as questions come in pairs.
    pub(super) fn locate(&mut self, block: u64) -> BlockPosition {
        if self.located.0 != block {
            self.located = (block, self.drive.geometry.locate(block));
        }
        self.located.1
    }

    /// Leaves for a block's track; false if reading on ends before it.
    pub(super) fn begin_seek(&mut self, block: u64, delay: Ticks, least: Ticks, first: bool) -> bool {
        self.arm.stand_still();
        self.arm.done_early = None;
        self.arm.entry = None;
        if block >= self.drive.capacity_blocks() {
            return false;
        }
        let place = self.locate(block);
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
            self.note_direction(from, place.track);
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
                // A job may have taken over what it found being stopped.
                let next = self.segments[self.arm.segment].end;
                let resumes = self.arm.job.is_some() && !self.arm.write && !self.is_done();
                if !(resumes && self.begin_seek(next, 0, 0, false)) {
                    self.release_arm();
                }
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
            let blocks = self.begun(self.clock, place.angle, place.blocks_per_track);
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
            let limit = limit.min(place.track_end).min(self.room_for_reading(entry));
            if entry < limit {
                self.arm.done_early = Some((entry, limit));
            }
        }
        let free = self.drive.cache.read_free_blocks && segment.start == segment.end;
        self.arm.target = if free { place.track_first } else { self.arm.target };
        self.rotate_to(self.arm.target);
    }

    /// Lets blocks pass until one begins.
    pub(super) fn rotate_to(&mut self, block: u64) {
        self.arm.target = block;
        let until = self.clock + self.latency(self.clock, self.angle_on_track(block));
        self.arm.set(Motion::Rotate { since: self.clock }, until);
    }

    /// Writes out of order what is in the buffer from a block on.
    fn pass_early(&mut self, block: u64) {
        let entry = self.arm.entry.unwrap_or(block);
        let there = self.data_in_time(block).min(self.arm.place.track_end);
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
    pub(super) fn begin_pass(&mut self, block: u64) {
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
    pub(super) fn continue_pass(&mut self, block: u64) {
        let limit = if self.arm.write { self.write_limit(block) } else { self.read_limit(block) };
        let limit = limit.min(self.arm.place.track_end);
        let limit = self.arm.done_early.map_or(limit, |(early, _)| limit.min(early.max(block)));
        if limit > block {
            self.pass(Run { first: block, count: limit - block, since: self.clock, in_order: true });
        } else if self.is_done() {
            // What was wanted has shrunk since the head left.
            self.made_progress(block);
        } else {
            self.arm.target = block;
            let until = self.clock + self.drive.mechanics.spindle().period();
            self.arm.set(Motion::Rotate { since: self.clock }, until);
            self.watch_medium();
        }
    }

    /// A run's end may have changed with what its segment is for; the block under the head still counts if it has room.
    pub(super) fn plan_again(&mut self) {
        let Motion::Pass(run) = self.arm.motion else { return };
        if !run.in_order || self.arm.write {
            return;
        }
        self.update();
        let per_track = self.arm.place.blocks_per_track;
        let passed = self.drive.mechanics.spindle().passed(self.clock - run.since, per_track);
        let limit = self.read_limit(run.first + passed).min(self.arm.place.track_end);
        let limit = self.arm.done_early.map_or(limit, |(early, _)| limit.min(early));
        let most = self.arm.place.track_end.min(self.room_now().max(run.first)) - run.first;
        let count = limit.saturating_sub(run.first).max(passed + 1).min(most).max(passed);
        self.pass(Run { count, ..run });
    }

    /// Where a run that begins with a block ends, for reading.
    fn read_limit(&self, block: u64) -> u64 {
        let kept = &self.segments[self.arm.segment];
        let limit = match self.arm.job.filter(|_| !self.arm.background) {
            Some(job) if kept.end < self.jobs[job].end => {
                // Nothing is decided at the request's end if the arm may not leave then and reads on anyway.
                let end = self.jobs[job].end;
                let decides = self.drive.control.preseek != Preseek::AfterAcknowledgement || kept.least_ahead > end;
                if decides { end } else { end.max(kept.most_ahead) }
            }
            _ if kept.end < kept.least_ahead => kept.least_ahead,
            _ => kept.most_ahead,
        };
        limit.min(self.room_for_reading(block))
    }

    /// The first block for which the buffer has no room when it passes, as data wait for the host, if blocks from
    /// `block` on pass from now on.
    pub(super) fn room_for_reading(&self, block: u64) -> u64 {
        let size = u64::from(self.drive.cache.segment_blocks);
        let room = self.readers().map(|job| self.bus_frees(job, block, size, self.out_now(job) + size));
        room.min().unwrap_or(u64::MAX)
    }

    /// The first block for which the buffer has no room at present.
    fn room_now(&self) -> u64 {
        let size = u64::from(self.drive.cache.segment_blocks);
        self.readers().map(|job| self.out_now(job) + size).min().unwrap_or(u64::MAX)
    }

    /// The jobs whose data must stay in the segment that is being filled.
    ///
    /// Who merely shares the data and has not had the arm gets it later if they are gone by then.
    fn readers(&self) -> impl Iterator<Item = JobId> {
        let jobs = self.segments[self.arm.segment].jobs.iter().copied();
        jobs.filter(|&job| !self.jobs[job].write && self.jobs[job].had_arm && !self.jobs[job].sent)
    }

    /// The first block that the bus does not make possible in time: block b can pass once the bus has moved block
    /// b − `behind`. Blocks from `block` on pass from now on; those before `least` are possible already.
    fn bus_frees(&self, job: JobId, block: u64, behind: u64, least: u64) -> u64 {
        let (Phase::Chunk { since, blocks }, true) = (self.link.phase, self.link.owner == Some(job)) else {
            return least;
        };
        let (current, per_track) = (&self.jobs[job], self.arm.place.blocks_per_track);
        let spindle = self.drive.mechanics.spindle();
        let most = current.out + blocks + behind;
        let first = least.max(block);
        // What the head does not reach on this track is not planned.
        let most = most.min(first.max(self.arm.place.track_end));
        let in_time = |b: u64| {
            since + (b - behind - current.out + 1) * current.block_time
                <= self.clock + spindle.blocks(b - block, per_track)
        };
        if first >= most || !in_time(first) {
            return least;
        }
        let (bus, medium) = (current.block_time, spindle.blocks(1, per_track));
        if bus <= medium {
            return most;
        }
        // The head gains on the bus by the difference with every block.
        let lead =
            self.clock + spindle.blocks(first - block, per_track) - (since + (first - behind - current.out + 1) * bus);
        let mut limit = (first + 1 + lead / (bus - medium)).min(most);
        while limit < most && in_time(limit) {
            limit += 1;
        }
        while limit > first + 1 && !in_time(limit - 1) {
            limit -= 1;
        }
        limit
    }

    /// Where a run that begins with a block ends, for writing.
    fn write_limit(&self, block: u64) -> u64 {
        let kept = &self.segments[self.arm.segment];
        let Some(job) = self.arm.job else { return 0 };
        let current = &self.jobs[job];
        if self.drive.control.extra.is_some() && current.out < current.end {
            // Drives with the extra disconnection collect some blocks before they write (DiskSim 4.0 does so for all
            // of them: a third of a short request's usual transfer, 15 blocks from 45 on).
            let blocks = current.end - current.first;
            let least = if blocks < 45 { blocks.min(10) } else { 15 };
            let least = least.min(u64::from(self.drive.cache.segment_blocks));
            if kept.end - kept.start < least {
                return 0;
            }
        }
        let there = self.data_in_time(block);
        if self.arm.background { there } else { there.min(current.end) }
    }

    /// What the platter loses in comparisons with DiskSim while blocks pass; nothing otherwise.
    fn lose_angle(&mut self, blocks: u64) {
        if self.angle_lost > 0 {
            let turn = self.turn();
            self.phase = (self.phase + turn - self.angle_lost * blocks % turn) % turn;
        }
    }

    /// The first block whose data do not come in time if blocks from `block` on pass from now on.
    fn data_in_time(&self, block: u64) -> u64 {
        let there = self.segments[self.arm.segment].end;
        match self.link.owner.filter(|&owner| self.jobs[owner].segment == Some(self.arm.segment)) {
            Some(owner) if self.jobs[owner].write => self.bus_frees(owner, block, 0, there),
            _ => there,
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
            // A job that came meanwhile may have left no room for all that was read early.
            block = if self.arm.write { end } else { end.min(self.room_now()).max(block) };
            self.arm.done_early = None;
            // Until the platter has come round to it, the head passes blocks that are done.
            self.arm.set(Motion::Rotate { since: self.clock }, Ticks::MAX);
            match self.arm.job.filter(|_| self.arm.write) {
                Some(job) => self.jobs[job].written = block,
                None => {
                    let size = u64::from(self.drive.cache.segment_blocks);
                    let kept = &mut self.segments[self.arm.segment];
                    kept.end = block;
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

    /// Plans when the link looks at the medium's progress again.
    pub(super) fn watch_medium(&mut self) {
        self.link.watch = Ticks::MAX;
        if let (Phase::Hold { .. }, Some(owner)) = (self.link.phase, self.link.owner) {
            return self.watch_for_holder(owner);
        }
        // Who has the bus looks for itself when it is done.
        if self.link.phase != Phase::Idle || self.link.waiting.is_empty() {
            return;
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
            true => current.out.saturating_sub(self.jobs[writer].written) < size,
        };
        let (mut at, mut skip) = (Ticks::MAX, 0);
        if ready {
            at = self.clock;
        } else if let Motion::Pass(run) = self.arm.motion
            && self.arm.segment == segment
            && run.in_order
            // What the arm writes of one that came later makes no room before the owner's blocks are written.
            && (!current.write || self.arm.job == Some(writer))
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
}
