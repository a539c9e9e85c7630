//! The segmented buffer: which segment a job uses, what it finds there, and what it displaces.

use super::controller::{Disk, Hit, JobId};
use super::parameters::{Caching, ReadAhead, ReadAheadOver};

/// A part of the buffer: consecutive blocks of the medium.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    pub(super) state: State,
    pub(super) start: u64,
    pub(super) end: u64,
    /// What it was used for last, if it was used.
    pub(super) last_use: Option<Use>,
    /// Reading on does not stop before.
    pub(super) least_ahead: u64,
    /// Reading on stops there.
    pub(super) most_ahead: u64,
    /// Jobs that use it, by their first block.
    pub(super) jobs: Vec<JobId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Empty,
    Clean,
    /// Holds data that the arm is not writing yet.
    Dirty,
    Reading,
    Writing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Write,
}

impl Segment {
    fn overlaps(&self, first: u64, end: u64) -> bool {
        first < self.end && end > self.start
    }

    /// Makes room at the front for blocks up to `end`.
    pub(super) fn wrap(&mut self, size: u64) {
        self.start = self.start.max(self.end.saturating_sub(size));
    }
}

/// The segment that only writes use, where there is one.
const WRITE_SEGMENT: usize = 0;

impl Disk {
    fn caching(&self) -> bool {
        self.drive.cache.caching != Caching::None
    }

    /// Segments with data that are not on the medium.
    fn dirty_segments(&self) -> usize {
        self.segments.iter().filter(|kept| matches!(kept.state, State::Dirty | State::Writing)).count()
    }

    fn is_write_segment(&self, segment: usize) -> bool {
        self.drive.cache.separate_write_segment && segment == WRITE_SEGMENT
    }

    /// State of a segment whose work is over.
    pub(super) fn state_after_read(&self, segment: usize) -> State {
        let kept = self.caching() || !self.segments[segment].jobs.is_empty();
        if kept { State::Clean } else { State::Empty }
    }

    pub(super) fn state_after_write(&self, segment: usize) -> State {
        let kept = self.caching() && self.drive.cache.read_hits_on_write_data;
        if kept || !self.segments[segment].jobs.is_empty() { State::Clean } else { State::Empty }
    }

    /// Finds the best segment for a job and says what it finds there; `first_look` as the job arrives.
    pub(super) fn select_segment(&mut self, job: JobId, first_look: bool) {
        let (hit, segment) = match self.jobs[job].write {
            false => self.select_for_read(job),
            true => self.select_for_write(job),
        };
        self.jobs[job].hit = hit;
        self.jobs[job].segment = segment;
        if first_look && self.jobs[job].write && self.follows_other_write(job) {
            self.jobs[job].extra_disconnect = true;
        }
    }

    /// Whether a write goes where the last use was a write that it does not continue.
    fn follows_other_write(&self, job: JobId) -> bool {
        let control = &self.drive.control;
        if control.extra.is_none() || control.never_disconnect || self.link.extra.is_some() {
            return false;
        }
        self.jobs[job].segment.is_some_and(|segment| {
            self.recency.last() == Some(&segment)
                && self.segments[segment].last_use == Some(Use::Write)
                && self.jobs[job].first != self.segments[segment].end
        })
    }

    /// Whole hits before partial ones before free segments; data of writes are the freshest.
    fn select_for_read(&mut self, job: JobId) -> (Hit, Option<usize>) {
        let (first, end) = (self.jobs[job].first, self.jobs[job].end);
        let (mut best, mut found) = (0, (Hit::Miss, None));
        for index in 0..self.recency.len() {
            let segment = self.recency[index];
            let kept = &self.segments[segment];
            if best >= 2 && kept.state == State::Clean && !(kept.start..kept.end).contains(&first) {
                // At most another free segment.
                continue;
            }
            let dirty = matches!(kept.state, State::Dirty | State::Writing);
            let value = if self.is_write_segment(segment) {
                if dirty && self.segments[segment].overlaps(first, end) && !self.is_reusable(segment) {
                    return (Hit::Collision, None);
                }
                (-1, Hit::Miss)
            } else if self.segments[segment].state == State::Empty {
                (3, Hit::Miss)
            } else if (self.segments[segment].start..self.segments[segment].end).contains(&first) {
                let value = match self.segments[segment].state {
                    _ if !self.caching() && self.segments[segment].state != State::Clean => -1,
                    State::Dirty | State::Writing => {
                        if !self.drive.cache.read_hits_on_write_data || best >= 10 {
                            if !self.is_reusable(segment) {
                                return (Hit::Collision, None);
                            }
                            -1
                        } else if self.segments[segment].state == State::Dirty {
                            11
                        } else {
                            10
                        }
                    }
                    State::Reading => 9,
                    _ => {
                        let read = self.segments[segment].last_use == Some(Use::Read);
                        if read || self.drive.cache.read_hits_on_write_data { 8 } else { -1 }
                    }
                };
                if self.segments[segment].end >= end { (value, Hit::Whole) } else { (value - 4, Hit::Partial) }
            } else {
                match self.segments[segment].state {
                    State::Clean if self.segments[segment].jobs.is_empty() => (2, Hit::Miss),
                    State::Reading if self.drive.cache.almost_read_hits && self.segments[segment].end == first => {
                        (5, Hit::Partial)
                    }
                    State::Reading if self.is_pure_read_ahead(segment) => (1, Hit::Miss),
                    _ if dirty && first < self.segments[segment].start => {
                        if self.segments[segment].overlaps(first, end) && !self.is_reusable(segment) {
                            return (Hit::Collision, None);
                        }
                        (-1, Hit::Miss)
                    }
                    _ => (-1, Hit::Miss),
                }
            };
            if value.0 > best {
                best = value.0;
                found = (value.1, Some(segment));
            }
        }
        if best == 1 {
            self.jobs[job].segment = found.1;
            if !self.would_make_way(job) {
                return (Hit::Miss, None);
            }
        }
        found
    }

    /// Segments that go on with the same data before free ones.
    fn select_for_write(&mut self, job: JobId) -> (Hit, Option<usize>) {
        let (first, end) = (self.jobs[job].first, self.jobs[job].end);
        let size = u64::from(self.drive.cache.segment_blocks);
        let room = self.dirty_segments() < self.drive.cache.write_segments as usize;
        let (mut best, mut found) = (0, (Hit::Miss, None));
        for index in 0..self.recency.len() {
            let segment = self.recency[index];
            let overlaps = self.segments[segment].overlaps(first, end);
            if best >= 2 && !overlaps && self.segments[segment].state == State::Clean {
                // At most another free segment.
                continue;
            }
            let idle = self.segments[segment].jobs.is_empty();
            let mut hit = Hit::Miss;
            let (value, conflicts) = match self.segments[segment].state {
                state if self.drive.cache.separate_write_segment && segment != WRITE_SEGMENT => {
                    let busy = (state == State::Clean && !idle)
                        || (state == State::Reading
                            && (!self.is_pure_read_ahead(segment) || !self.would_make_way(job)));
                    (-1, busy)
                }
                State::Empty => (if room { 3 } else { -1 }, false),
                State::Reading if self.is_pure_read_ahead(segment) => (if room { 1 } else { -1 }, false),
                State::Reading => (-1, true),
                State::Clean if idle => (
                    if !room {
                        -1
                    } else if overlaps {
                        4
                    } else {
                        2
                    },
                    false,
                ),
                State::Clean => (-1, true),
                state => {
                    let append = self.drive.cache.combine_writes
                        && !self.link.moves_data_of(self, segment)
                        && self.continues(job, segment, size);
                    if append {
                        hit = Hit::Append;
                        (if state == State::Writing { 7 } else { 6 }, false)
                    } else {
                        (-1, true)
                    }
                }
            };
            if conflicts && overlaps && !self.is_reusable(segment) {
                return (Hit::Collision, None);
            }
            if value > best {
                best = value;
                found = (hit, Some(segment));
            }
        }
        if best == 1 && !self.would_make_way(job) {
            let overlaps = found.1.is_some_and(|segment| self.segments[segment].overlaps(first, end));
            return (if overlaps { Hit::Collision } else { Hit::Miss }, None);
        }
        found
    }

    /// Whether a write begins where the last write of a segment ends, and there is room.
    fn continues(&self, job: JobId, segment: usize, size: u64) -> bool {
        let first = self.jobs[job].first;
        let jobs = &self.segments[segment].jobs;
        let Some(last) = jobs.iter().rev().find(|&&other| self.jobs[other].write) else { return false };
        let Some(owner) = self.segment_owner(segment) else { return false };
        first == self.jobs[*last].end
            && first == self.segments[segment].end
            && size > first.saturating_sub(self.jobs[owner].written)
    }

    /// Whether a segment's only job merely needs to send its completion or data that are there.
    fn is_reusable(&self, segment: usize) -> bool {
        let kept = &self.segments[segment];
        let &[job] = kept.jobs.as_slice() else { return false };
        let job = &self.jobs[job];
        match job.write {
            _ if job.acknowledged => false,
            true => job.written >= job.end,
            false => (kept.start..kept.end).contains(&job.out) && job.end > kept.start && job.end <= kept.end,
        }
    }

    /// The job to which a segment belongs.
    pub(super) fn segment_owner(&self, segment: usize) -> Option<JobId> {
        self.segments[segment].jobs.iter().copied().find(|&job| self.jobs[job].owns_segment)
    }

    /// Makes the selected segment the job's: most recently used, other copies of written blocks forgotten.
    pub(super) fn attach(&mut self, job: JobId) {
        let Some(segment) = self.jobs[job].segment else { return };
        let (first, end, write) = (self.jobs[job].first, self.jobs[job].end, self.jobs[job].write);
        if self.recency.last() != Some(&segment) {
            // Most often it is the one that has been idle longest, at the front.
            if let Some(at) = self.recency.iter().position(|&other| other == segment) {
                self.recency.remove(at);
            }
            self.recency.push(segment);
        }
        if write {
            for (index, other) in self.segments.iter_mut().enumerate() {
                let forget = other.overlaps(first, end)
                    && index != segment
                    && other.state == State::Clean
                    && other.jobs.is_empty();
                if forget {
                    other.state = State::Empty;
                }
            }
        }
        let jobs = &self.jobs;
        let list = &mut self.segments[segment].jobs;
        let at = list.iter().position(|&other| first < jobs[other].first).unwrap_or(list.len());
        list.insert(at, job);
        self.segments[segment].last_use.get_or_insert(if write { Use::Write } else { Use::Read });
        self.jobs[job].watermark = self.watermark(job);
        self.statistics.count_hit(self.jobs[job].hit, write);
    }

    /// Blocks at which a job that waits for the medium takes the bus again.
    pub(super) fn watermark(&self, job: JobId) -> u64 {
        let (cache, job) = (&self.drive.cache, &self.jobs[job]);
        let size = u64::from(cache.segment_blocks);
        let mark = if job.write { cache.low_water } else { cache.high_water }.0 as u64;
        match cache.water_by_request {
            true => (size.min(job.end - job.first) * mark / 1_000_000).max(1),
            false => (size * mark).div_ceil(1_000_000),
        }
    }

    pub(super) fn detach(&mut self, job: JobId) {
        if let Some(segment) = self.jobs[job].segment.take() {
            self.segments[segment].jobs.retain(|&other| other != job);
        }
    }

    /// Makes a job the owner of its segment, unless another one is.
    pub(super) fn own(&mut self, job: JobId) {
        let Some(segment) = self.jobs[job].segment else { return };
        if self.jobs[job].owns_segment || self.segment_owner(segment).is_some() {
            return;
        }
        let current = self.jobs[job];
        self.jobs[job].owns_segment = true;
        let arm_elsewhere = !self.arm.is_busy() || self.arm.job == Some(job) || self.arm.segment != segment;
        let kept = &mut self.segments[segment];
        if arm_elsewhere {
            kept.last_use = Some(if current.write { Use::Write } else { Use::Read });
        }
        if current.hit == Hit::Miss {
            kept.least_ahead = 0;
            kept.most_ahead = 0;
            kept.start = if current.write { current.written } else { current.out };
            // A write's data may have come before the segment was its own.
            kept.end = kept.start.max(current.out);
        }
        match current.write {
            true if current.hit == Hit::Miss => {
                kept.state = State::Dirty;
            }
            true => {}
            false => {
                if current.hit == Hit::Miss {
                    kept.state = State::Clean;
                }
                self.extend_read_ahead(job, segment);
            }
        }
    }

    /// A read may extend how far its segment is filled.
    pub(super) fn extend_read_ahead(&mut self, job: JobId, segment: usize) {
        let blocks = self.drive.capacity_blocks();
        let end = self.jobs[job].end;
        let most = self.most_ahead(job, segment).min(blocks);
        let least = (end + u64::from(self.drive.cache.minimum_read_ahead)).min(blocks);
        let kept = &mut self.segments[segment];
        kept.least_ahead = kept.least_ahead.max(least);
        kept.most_ahead = kept.most_ahead.max(most);
    }

    /// Where reading on after a job ends.
    fn most_ahead(&mut self, job: JobId, segment: usize) -> u64 {
        let (first, end) = (self.jobs[job].first, self.jobs[job].end);
        let cache = &self.drive.cache;
        match cache.read_ahead {
            ReadAhead::None => return end,
            ReadAhead::ToTrackEndOrNext if end < self.drive.capacity_blocks() => {
                // Most requests end on the track on which they begin, to which the arm will go.
                let mut place = self.locate(first);
                if end >= place.track_end {
                    place = self.drive.geometry.locate(end);
                }
                return match self.segments[segment].start < place.track_first {
                    true => place.track_end + u64::from(self.drive.geometry.blocks_per_track(first)),
                    false => place.track_end,
                };
            }
            ReadAhead::ToTrackEndOrNext => return end,
            _ => {}
        }
        let job = &self.jobs[job];
        let size = u64::from(cache.segment_blocks);
        if cache.maximum_read_ahead > 0 {
            return job.end + u64::from(cache.maximum_read_ahead);
        }
        let (blocks, least) = (job.end - job.first, u64::from(cache.minimum_read_ahead));
        match cache.read_ahead_over {
            ReadAheadOver::Delivered if blocks >= size || size - blocks < least => job.end + least,
            ReadAheadOver::Delivered => job.first + size,
            ReadAheadOver::Nothing | ReadAheadOver::DropDelivered => job.end + size,
        }
    }

    /// Who owns a segment that has lost its owner.
    pub(super) fn find_owner(&mut self, segment: usize) {
        if self.segment_owner(segment).is_some() {
            return;
        }
        let jobs = &self.segments[segment].jobs;
        let reading = |job: &JobId| Some(*job) != self.arm.job && self.jobs[*job].had_arm && !self.jobs[*job].write;
        let best = jobs.iter().copied().find(reading);
        let best = best.or_else(|| jobs.iter().copied().find(|&job| self.jobs[job].hit == Hit::Append));
        let best = best.or(self.arm.job.filter(|_| self.arm.is_busy() && self.arm.segment == segment));
        if let Some(job) = best {
            self.own(job);
        }
    }
}
