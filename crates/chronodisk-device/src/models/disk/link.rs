//! The bus to the host: commands, data, disconnections, completions.
//!
//! One job has the bus at a time. Data cross it in *chunks*: what is in the buffer when the bus gets to it, in one go.
//! A job that finds nothing either holds the bus until something comes or disconnects until the water mark.

use super::arm::Motion;
use super::buffer::State;
use super::controller::{Disk, Hit, JobId, SHORTEST};
use super::mechanics::{Ticks, ticks};
use super::parameters::{Caching, FastWrite, Preseek, ReadAheadOver};

/// The state of the bus.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) phase: Phase,
    /// When the phase ends.
    pub(super) at: Ticks,
    /// Who has the bus.
    pub(super) owner: Option<JobId>,
    /// Who is to have it next, whoever else waits: the owner, or a write between its two disconnections.
    pub(super) current: Option<JobId>,
    /// Disconnected jobs, the last one first in line.
    pub(super) waiting: Vec<JobId>,
    /// When the medium reaches what the disconnected job of the arm waits for.
    pub(super) watch: Ticks,
    /// The write that makes an extra disconnection.
    pub(super) extra: Option<JobId>,
    pub(super) extra_at: Ticks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    /// The drive looks at a new command.
    Decode,
    /// The command's overhead, before the data.
    Command,
    /// Data move since an instant.
    Chunk {
        since: Ticks,
        blocks: u64,
    },
    /// The job holds the bus and waits for the medium; blocks up to `skip` will have crossed as they came.
    Hold {
        skip: u64,
    },
    /// The job gives the bus up.
    Disconnect,
    /// The job takes the bus again.
    Reselect,
    /// The completion is on its way.
    Complete,
}

impl Default for Link {
    fn default() -> Self {
        Link {
            phase: Phase::Idle,
            at: Ticks::MAX,
            owner: None,
            current: None,
            waiting: Vec::new(),
            watch: Ticks::MAX,
            extra: None,
            extra_at: Ticks::MAX,
        }
    }
}

impl Link {
    /// Whether a new command can come.
    pub(super) fn is_free(&self) -> bool {
        self.phase == Phase::Idle
    }

    fn set(&mut self, phase: Phase, at: Ticks) {
        self.phase = phase;
        self.at = at;
    }

    /// Whether data move between the host and a segment.
    pub(super) fn moves_data_of(&self, disk: &Disk, segment: usize) -> bool {
        matches!(self.phase, Phase::Chunk { .. } | Phase::Hold { .. })
            && self.owner.is_some_and(|owner| disk.jobs[owner].segment == Some(segment))
    }
}

impl Disk {
    /// A command reaches the drive.
    pub(super) fn decode(&mut self, job: JobId) {
        self.link.owner = Some(job);
        match self.drive.control.per_request {
            0 => self.arrive(job),
            overhead => self.link.set(Phase::Decode, self.clock + overhead),
        }
    }

    pub(super) fn link_event(&mut self) {
        self.link.at = Ticks::MAX;
        let Some(job) = self.link.owner else { return };
        match self.link.phase {
            Phase::Idle => {}
            Phase::Decode => self.arrive(job),
            Phase::Command | Phase::Reselect => self.transfer(job),
            Phase::Chunk { blocks, .. } => {
                self.update();
                self.link.phase = Phase::Command;
                self.jobs[job].out += blocks;
                self.data_arrived(job);
                self.transfer(job);
            }
            Phase::Hold { skip } => {
                self.update();
                self.link.phase = Phase::Command;
                self.jobs[job].out = self.jobs[job].out.max(skip);
                self.data_arrived(job);
                self.transfer(job);
            }
            Phase::Disconnect => self.disconnected(job),
            Phase::Complete => self.completed(job),
        }
    }

    /// The drive has a command: what it finds in the buffer decides how it goes on.
    fn arrive(&mut self, job: JobId) {
        self.update();
        self.link.set(Phase::Command, Ticks::MAX);
        self.pending.push(job);
        if self.drive.mechanics.is_constant() {
            return self.arrive_without_mechanics();
        }
        self.select_segment(job, true);
        if self.jobs[job].write { self.arrive_write(job) } else { self.arrive_read(job) }
    }

    fn arrive_read(&mut self, job: JobId) {
        let control = &self.drive.control;
        let after = self.last_was_write;
        let (hit_overhead, miss_overhead) = (control.read_hit.after(after), control.read_miss.after(after));
        let disconnect = control.read_disconnect.after(after);
        let (prepare, never_disconnect) = (control.data_preparation, control.never_disconnect);
        let (full, partial) = (control.sneaky_full, control.sneaky_partial);
        self.jobs[job].arm_from = self.clock + miss_overhead;
        let hit = self.jobs[job].hit;
        let enough = match hit {
            Hit::Whole => true,
            Hit::Partial => self.drive.cache.immediate_partial_hits || self.has_watermark(job),
            _ => false,
        };
        let connected = never_disconnect
            || (enough
                && self.link.current.is_none()
                && ((full && hit == Hit::Whole)
                    || (partial && hit == Hit::Partial)
                    || (self.link.waiting.is_empty() && (!self.arm.is_busy() || self.would_make_way(job)))));
        if connected {
            self.link.current = Some(job);
            self.attach(job);
            let overhead = if hit == Hit::Miss { miss_overhead } else { hit_overhead };
            self.link.set(Phase::Command, self.clock + overhead + prepare);
            self.activate(job, false);
        } else {
            self.link.set(Phase::Disconnect, self.clock + miss_overhead + disconnect);
            self.activate(job, true);
        }
    }

    fn has_watermark(&self, job: JobId) -> bool {
        let Some(segment) = self.jobs[job].segment else { return false };
        let (first, end) = (self.jobs[job].first, self.jobs[job].end);
        let there = self.segments[segment].end;
        there > first && there - first >= self.watermark(job).min(end - first)
    }

    fn arrive_write(&mut self, job: JobId) {
        let control = &self.drive.control;
        let after = self.last_was_write;
        let level =
            if self.drive.cache.fast_write == FastWrite::Never { control.write_miss } else { control.write_hit };
        let overhead = level.after(after);
        let (prepare, never_disconnect) = (control.data_preparation, control.never_disconnect);
        let (prebuffering, disconnect) = (control.write_prebuffering, control.write_disconnect);
        let extra = control.extra;
        self.jobs[job].arm_from = self.clock + overhead;
        let connected = never_disconnect
            || (self.jobs[job].segment.is_some()
                && self.link.current.is_none()
                && (prebuffering
                    || (self.link.waiting.is_empty() && (!self.arm.is_busy() || self.would_make_way(job)))));
        if connected {
            self.link.current = Some(job);
            match extra.filter(|_| self.jobs[job].extra_disconnect) {
                Some(extra) => {
                    self.jobs[job].arm_from = self.clock + extra.command + extra.seek_delta;
                    self.link.extra = Some(job);
                    self.link.set(Phase::Disconnect, self.clock + extra.command + extra.disconnect);
                }
                None => self.link.set(Phase::Command, self.clock + overhead + prepare),
            }
            self.attach(job);
            self.activate(job, false);
        } else {
            self.jobs[job].extra_disconnect = false;
            self.link.set(Phase::Disconnect, self.clock + overhead + disconnect);
            self.activate(job, true);
        }
    }

    /// Moves the next chunk of a job that has the bus, or finds that there is none.
    pub(super) fn transfer(&mut self, job: JobId) {
        self.update();
        self.link.owner = Some(job);
        let Some(segment) = self.jobs[job].segment else {
            // Only a drive that never disconnects gets here without a segment; the arm will find one.
            return match self.may_hold(job) {
                true => self.link.set(Phase::Hold { skip: 0 }, Ticks::MAX),
                false => self.begin_disconnect(job),
            };
        };
        if self.drive.mechanics.is_constant() {
            return self.send_completion(job);
        }
        let current = self.jobs[job];
        let size = u64::from(self.drive.cache.segment_blocks);
        if current.write {
            if current.out == current.end {
                if current.fast || current.written >= current.end {
                    return self.send_completion(job);
                }
                return self.begin_disconnect(job);
            }
            let owner = self.segment_owner(segment).unwrap_or(job);
            let used = current.out.saturating_sub(self.jobs[owner].written);
            let ready = current.owns_segment || self.segments[segment].end >= current.out;
            match size.saturating_sub(used).min(current.end - current.out) {
                blocks if blocks > 0 && ready => self.begin_chunk(job, blocks),
                _ if self.drive.control.hold_for_write && self.may_hold(job) => self.hold(job),
                _ => self.begin_disconnect(job),
            }
        } else {
            if current.out >= current.end {
                return self.send_completion(job);
            }
            let there = self.readable(job, segment).min(current.end);
            match there.saturating_sub(current.out) {
                blocks if blocks > 0 => self.begin_chunk(job, blocks),
                _ if self.drive.control.hold_for_read && self.may_hold(job) => self.hold(job),
                _ => self.begin_disconnect(job),
            }
        }
    }

    /// The block before which all will be in the buffer when the bus gets to them: a bus that is slower than the medium
    /// never catches up with a run.
    fn readable(&self, job: JobId, segment: usize) -> u64 {
        let (there, current) = (self.segments[segment].end, &self.jobs[job]);
        match self.arm.motion {
            Motion::Pass(run) if run.in_order && there > current.out && self.arm.job == Some(job) => {
                let per_track = self.arm.place.blocks_per_track;
                let slower = current.block_time >= self.drive.mechanics.spindle().blocks(1, per_track);
                if slower && self.arm.segment == segment { there.max(run.first + run.count) } else { there }
            }
            _ => there,
        }
    }

    fn begin_chunk(&mut self, job: JobId, blocks: u64) {
        let time = self.jobs[job].block_time * blocks;
        self.link.set(Phase::Chunk { since: self.clock, blocks }, self.clock + time);
    }

    /// Whether a job that holds the bus gets what it waits for without another job's having the bus first.
    fn may_hold(&self, job: JobId) -> bool {
        let segment = self.jobs[job].segment;
        let has_arm = self.arm.is_busy() && self.arm.job == Some(job);
        self.link.waiting.iter().all(|&other| has_arm && self.jobs[other].segment != segment)
    }

    fn hold(&mut self, job: JobId) {
        debug_assert_eq!(self.link.owner, Some(job));
        self.link.set(Phase::Hold { skip: 0 }, Ticks::MAX);
        self.watch_medium();
    }

    fn begin_disconnect(&mut self, job: JobId) {
        let control = &self.drive.control;
        let time = match self.jobs[job].write {
            false => control.read_disconnect.after(self.last_was_write),
            true if self.jobs[job].extra_disconnect => control.extra.map_or(0, |extra| extra.second_disconnect),
            true => control.write_disconnect,
        };
        self.link.set(Phase::Disconnect, self.clock + time);
    }

    /// A job has given up the bus.
    fn disconnected(&mut self, job: JobId) {
        self.update();
        self.statistics.disconnects += 1;
        self.link.owner = None;
        self.link.set(Phase::Idle, Ticks::MAX);
        if self.link.current == Some(job) && self.link.extra == Some(job) {
            let delay = self.drive.control.extra.map_or(0, |extra| extra.delay);
            self.link.extra_at = self.clock + delay;
        } else {
            if self.link.current == Some(job) {
                self.link.current = None;
            }
            self.link.waiting.push(job);
            self.check_bus(None);
        }
        self.accept();
    }

    /// The pause between the two disconnections of a write is over.
    pub(super) fn extra_disconnect_over(&mut self) {
        self.link.extra_at = Ticks::MAX;
        let job = self.link.extra;
        self.update();
        self.check_bus(job);
    }

    /// The medium has come to what the arm's disconnected job waits for.
    pub(super) fn watch_event(&mut self) {
        self.link.watch = Ticks::MAX;
        self.update();
        self.check_bus(self.arm.job);
        self.watch_medium();
    }

    /// Gives the bus to a job that can use it: this one, or the best.
    pub(super) fn check_bus(&mut self, job: Option<JobId>) {
        let idle = self.link.phase == Phase::Idle;
        if !idle {
            // A job that holds the bus looks again itself.
            return self.watch_medium();
        }
        let reserved = self.link.current;
        let chosen = match (job, reserved) {
            (Some(job), Some(reserved)) if job != reserved => None,
            (Some(job), _) | (None, Some(job)) => Some(job).filter(|&job| self.needs_bus(job)),
            (None, None) => self.best_for_bus(),
        };
        let Some(job) = chosen else { return self.watch_medium() };
        self.link.waiting.retain(|&other| other != job);
        self.link.current = Some(job);
        self.link.owner = Some(job);
        // Taking the bus must not start over what the arm does for the job.
        self.activate(job, false);
        let control = &self.drive.control;
        let first = self.link.extra == Some(job) || !self.jobs[job].extra_disconnect;
        if self.link.extra == Some(job) {
            self.link.extra = None;
        }
        let reselect = if first { control.first_reselect } else { control.other_reselect };
        let data = self.jobs[job].out < self.jobs[job].end;
        let prepare = if data { control.data_preparation } else { 0 };
        self.link.set(Phase::Reselect, self.clock + reselect + prepare);
    }

    /// Whether a disconnected job has a use for the bus.
    fn needs_bus(&self, job: JobId) -> bool {
        let current = &self.jobs[job];
        let Some(segment) = current.segment else { return false };
        if current.sent || self.drive.mechanics.is_constant() {
            return !current.sent;
        }
        let kept = &self.segments[segment];
        if !current.write {
            let there = kept.end > current.out && kept.start <= current.out;
            return there && (kept.end >= current.end || kept.end - current.out >= current.watermark);
        }
        let owner = self.segment_owner(segment).unwrap_or(job);
        let size = u64::from(self.drive.cache.segment_blocks);
        current.written >= current.end
            || (current.out == current.first && current.hit != Hit::Append)
            || (kept.end == current.out
                && kept.end < current.end
                && kept.end.saturating_sub(self.jobs[owner].written) < size
                && kept.end.saturating_sub(current.written) <= current.watermark)
    }

    /// The disconnected job that gets the bus: those done with the arm, the arm's, then what options allow.
    fn best_for_bus(&mut self) -> Option<JobId> {
        let mut best: Option<(i32, JobId)> = None;
        for index in (0..self.link.waiting.len()).rev() {
            let job = self.link.waiting[index];
            let value = match self.jobs[job].had_arm {
                true if !self.needs_bus(job) => continue,
                true if self.arm.job == Some(job) => 9,
                true => 10,
                false => match self.early_use(job, best.map_or(-99, |(value, _)| value)) {
                    Some(value) => value,
                    None => continue,
                },
            };
            if best.is_none_or(|(other, _)| value >= other) {
                best = Some((value, job));
            }
        }
        let (_, job) = best?;
        // Segments that were only looked at are not kept.
        for index in 0..self.link.waiting.len() {
            let other = self.link.waiting[index];
            let kept = self.jobs[other].segment.filter(|&segment| self.segments[segment].jobs.contains(&other));
            if other != job && kept.is_none() {
                self.jobs[other].segment = None;
                self.jobs[other].hit = Hit::Miss;
            }
        }
        if self.jobs[job].segment.is_some_and(|segment| !self.segments[segment].jobs.contains(&job)) {
            self.attach(job);
        }
        Some(job)
    }

    /// How well a job that has not had the arm may use the bus already.
    fn early_use(&mut self, job: JobId, best: i32) -> Option<i32> {
        let current = self.jobs[job];
        let control = &self.drive.control;
        if current.hit == Hit::Append && self.drive.cache.fast_write == FastWrite::Sequential && best <= 7 {
            return self.needs_bus(job).then_some(7);
        }
        let allowed = if current.write { control.write_prebuffering && best <= 2 } else { control.sneaky_intermediate };
        if !allowed {
            return None;
        }
        if current.segment.is_none() {
            self.select_segment(job, false);
            let useless = !current.write && self.jobs[job].hit == Hit::Miss;
            if useless || !self.needs_bus(job) {
                self.jobs[job].segment = None;
                self.jobs[job].hit = Hit::Miss;
                return None;
            }
        }
        if !self.needs_bus(job) {
            return None;
        }
        Some(match (current.write, self.jobs[job].hit) {
            (false, Hit::Whole) => 6,
            (false, _) => 5,
            (true, _) => 0,
        })
    }

    /// Nothing happens any more although jobs wait, each for what another one has: all of them start over with an
    /// empty buffer. Whether there was such a knot to cut.
    ///
    /// Only drives whose options let several jobs share bus, arm and segments tie one.
    pub(super) fn start_over(&mut self) -> bool {
        match (self.link.phase, self.link.owner) {
            (Phase::Hold { .. }, Some(owner)) => self.link.waiting.push(owner),
            (Phase::Idle, _) => {}
            _ => return false,
        }
        self.statistics.started_over += 1;
        self.update();
        self.link = Link { waiting: std::mem::take(&mut self.link.waiting), ..Link::default() };
        self.abandon_arm();
        for segment in &mut self.segments {
            segment.state = State::Empty;
            segment.jobs.clear();
        }
        for job in 0..self.jobs.len() {
            let current = &mut self.jobs[job];
            if !current.live {
                continue;
            }
            current.segment = None;
            if current.acknowledged {
                self.pending.retain(|&other| other != job);
                self.free_job(job);
                continue;
            }
            current.owns_segment = false;
            current.had_arm = false;
            current.hit = Hit::Miss;
            current.first = if current.write { current.written } else { current.out }.min(current.end - 1);
            current.spot = None;
            current.out = current.first;
            current.written = current.first;
            if !self.pending.contains(&job) {
                self.pending.push(job);
            }
            if !self.link.waiting.contains(&job) {
                self.link.waiting.push(job);
            }
        }
        self.start_arm(None, true);
        self.check_bus(None);
        true
    }

    /// All data have crossed: the completion goes to the host.
    fn send_completion(&mut self, job: JobId) {
        let write = self.jobs[job].write;
        self.last_was_write = write;
        self.jobs[job].sent = true;
        let control = &self.drive.control;
        let overhead = if write { control.write_completion } else { control.read_completion };
        // What completes at the instant of an arrival has been told already.
        let earliest = ticks(self.jobs[job].arrival + SHORTEST).max(self.after_now());
        self.link.set(Phase::Complete, (self.clock + overhead).max(earliest));
        if !write {
            self.pending.retain(|&other| other != job);
            if self.drive.cache.read_ahead_over == ReadAheadOver::DropDelivered
                && let Some(segment) = self.jobs[job].segment
                && self.segments[segment].jobs.len() == 1
            {
                let kept = &mut self.segments[segment];
                kept.start = self.jobs[job].out.min(kept.end);
            }
        }
        if self.arm.is_busy() && self.arm.job == Some(job) {
            if self.arm.motion == Motion::Still {
                self.release_arm();
            } else if !write && self.drive.control.preseek != Preseek::AfterAcknowledgement {
                self.offer_arm();
            }
        }
    }

    /// The host has the completion.
    fn completed(&mut self, job: JobId) {
        self.update();
        self.jobs[job].acknowledged = true;
        self.complete_to_host(job);
        self.link.owner = None;
        if self.link.current == Some(job) {
            self.link.current = None;
        }
        self.link.set(Phase::Idle, Ticks::MAX);
        let has_arm = self.arm.is_busy() && self.arm.job == Some(job);
        let current = self.jobs[job];
        if self.drive.mechanics.is_constant() {
            self.free_job(job);
            self.start_without_mechanics();
        } else if !current.write {
            let segment = current.segment;
            self.detach(job);
            self.free_job(job);
            if has_arm {
                self.arm.job = None;
                if self.arm.motion == Motion::Still {
                    self.release_arm();
                } else {
                    self.offer_arm();
                }
            } else if let Some(segment) = segment {
                self.leave_segment(segment);
            }
        } else if current.written >= current.end {
            if has_arm {
                self.release_arm();
            } else {
                let segment = current.segment;
                self.detach(job);
                self.free_job(job);
                if let Some(segment) = segment {
                    self.find_owner(segment);
                }
            }
        } else if has_arm && current.owns_segment {
            self.arm.background = true;
        }
        self.start_arm(None, true);
        self.check_bus(None);
        self.accept();
    }

    fn leave_segment(&mut self, segment: usize) {
        if self.segments[segment].jobs.is_empty() {
            if self.drive.cache.caching == Caching::None {
                self.segments[segment].state = State::Empty;
            }
        } else {
            self.find_owner(segment);
        }
    }

    pub(super) fn finish_without_mechanics(&mut self, job: JobId) {
        self.send_completion(job);
    }

    /// A drive with a fixed access time takes one job at a time and keeps nothing.
    fn arrive_without_mechanics(&mut self) {
        self.link.owner = None;
        self.link.set(Phase::Idle, Ticks::MAX);
        self.start_without_mechanics();
        self.accept();
    }
}
