//! The arm: which request it serves next, and the runs of blocks that pass under its head.

use chronodisk_sim::RequestId;

use super::super::geometry::{BlockPosition, Track};
use super::super::mechanics::{Access, Ticks};
use super::super::parameters::{ReadAheadTo, Scheduler};
use super::freeblock::Gap;
use super::order::Target;
use super::{Command, Crossing, Disk, NEVER, Reading, Writing};

/// State of the arm.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arm {
    /// Where the heads are.
    pub(super) track: Track,
    /// When they are there; later than the present if a seek was given up.
    pub(super) free_from: Ticks,
    run: Option<Run>,
    /// Blocks of the run under way whose newer data came into the buffer after the run had begun.
    rewritten: Option<Rewritten>,
    /// Whether the last run wrote.
    pub(super) wrote: bool,
    /// The block behind the last run, and when that ended.
    pub(super) finished: (u64, Ticks),
    /// Whether that block was under the head then, as it is after a run in order.
    in_place: bool,
    /// The last place that was asked for.
    place: BlockPosition,
    /// When the pass under way began.
    pub(super) pass_since: Ticks,
    /// Since when it has read and not written, or the other way round.
    pub(super) turn_since: Ticks,
    /// Whether the elevator's last step went down.
    pub(super) downwards: bool,
}

/// Blocks of one track that pass one after the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    end: u64,
    track: Track,
    track_end: u64,
    blocks_per_track: u32,
    /// When the heads are on the track.
    on_track: Ticks,
    /// When the first block begins to pass.
    since: Ticks,
    until: Ticks,
    write: bool,
    /// Whether blocks count as they pass, or only at the end since the last ones passed first.
    ordered: bool,
    /// Blocks that pass last in a run that is not in order; they begin with the run's first block.
    last: u64,
}

/// Blocks of a write that crossed the interface while a run wrote their older data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rewritten {
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) epoch: u64,
    /// The write.
    pub(super) id: RequestId,
}

impl Arm {
    /// The end of the run under way; [`NEVER`] without one.
    pub(super) fn next_event(&self) -> Ticks {
        self.run.as_ref().map_or(NEVER, |run| run.until)
    }

    /// Where the heads are.
    pub(super) fn track(&self) -> Track {
        self.track
    }

    /// Where the run under way leaves the heads, and when. A run that reads on is left at once.
    pub(super) fn run_end(&self, is_read_for: bool) -> Option<(Track, Ticks)> {
        let leaves = |run: &Run| if run.write || is_read_for || !run.ordered { run.until } else { run.on_track };
        self.run.as_ref().map(|run| (run.track, leaves(run)))
    }

    /// Whether blocks of a range are on their way to the medium.
    pub(super) fn is_writing(&self, first: u64, end: u64) -> bool {
        self.run.is_some_and(|run| run.write && run.first < end && first < run.end)
    }

    /// Blocks came into the buffer. A run that is writing older data of some of them leaves these in the buffer. Only
    /// blocks that began to cross before the run can be among them.
    pub(super) fn rewrite(&mut self, blocks: Rewritten) {
        if let Some(run) = self.run.filter(|_| self.is_writing(blocks.first, blocks.end)) {
            let (first, end) = (blocks.first.max(run.first), blocks.end.min(run.end));
            self.rewritten = Some(Rewritten { first, end, ..blocks });
        }
    }
}

impl Disk {
    /// Blocks of a run that have passed.
    fn passed(&self, run: &Run) -> u64 {
        match run.ordered && self.clock >= run.since {
            true => {
                let spindle = self.drive.mechanics.spindle();
                spindle.passed(self.clock - run.since, run.blocks_per_track).min(run.end - run.first)
            }
            false => 0,
        }
    }

    /// Brings the segment that is being filled up to the present.
    pub(super) fn update_segment(&mut self) {
        if let Some(run) = self.arm.run.filter(|run| !run.write) {
            let reached = run.first + self.passed(&run);
            self.read_buffer.fill(reached);
        }
    }

    /// Forgets the segments that hold blocks of a write.
    pub(super) fn forget_segments(&mut self, first: u64, end: u64) {
        self.update_segment();
        let is_reading = self.arm.run.is_some_and(|run| !run.write);
        if self.read_buffer.forget(first, end, is_reading) {
            self.detach();
        }
    }

    /// A read uses a segment.
    pub(super) fn use_segment(&mut self, index: usize, first: u64, end: u64) {
        let read_ahead_end = self.drive.capacity_blocks().min(self.read_ahead_end(index, end));
        self.read_buffer.use_for(index, first, end, read_ahead_end);
    }

    /// Where reading on behind a read ends if the read-ahead does not end before.
    fn read_ahead_end(&mut self, index: usize, end: u64) -> u64 {
        let last = self.drive.capacity_blocks() - 1;
        match self.control.read_ahead_to {
            ReadAheadTo::ReadAhead => u64::MAX,
            ReadAheadTo::TrackEnd => self.located(end - 1).track_end,
            ReadAheadTo::TrackEndOrNext => {
                let place = *self.located(end.min(last));
                match self.read_buffer.start(index) < place.track_first {
                    true => place.track_end + u64::from(place.blocks_per_track),
                    false => place.track_end,
                }
            }
        }
    }

    /// The place of a block on its track, or of another block of this track: the last answer is kept.
    fn located(&mut self, block: u64) -> &BlockPosition {
        if !(self.arm.place.track_first..self.arm.place.track_end).contains(&block) {
            self.arm.place = self.drive.geometry.locate(block);
        }
        &self.arm.place
    }

    /// Marks the reads that the pass under way serves; whether there are any.
    fn attach(&mut self) -> bool {
        let Some((start, end)) = self.read_buffer.bounds() else { return false };
        let mut any = false;
        for read in &mut self.reads {
            // From `start` up to `end`, without a branch.
            read.attached |= read.next.wrapping_sub(start) <= end - start;
            any |= read.attached;
        }
        any
    }

    /// Detaches all reads from the pass.
    fn detach(&mut self) {
        self.reads.iter_mut().for_each(|read| read.attached = false);
        self.read_buffer.stop_filling();
    }

    /// Sends the arm to the most urgent target, unless a request waits for its present work.
    pub(super) fn decide(&mut self) {
        self.update_segment();
        let attached = self.attach();
        if let Some(run) = self.arm.run {
            if run.write || !run.ordered {
                return;
            }
            let elsewhere = !self.reads.is_empty() || self.writes_are_urgent();
            let reached = run.first + self.passed(&run);
            if attached || !elsewhere || self.streams_on(reached) {
                return self.plan_again(run);
            }
            self.leave(run);
        }
        if let Some(target) = self.next_target(attached) {
            self.begin(target);
        }
    }

    pub(super) fn writes_are_urgent(&self) -> bool {
        if self.control.scheduler == Scheduler::Fcfs {
            return !self.dirty.is_empty();
        }
        // Before a write is refused, or the arm would come back for a single range at a time.
        let many = self.dirty.ranges().len() * 4 > self.control.write_ranges as usize * 3;
        let full = many || self.dirty.blocks() * 2 > self.control.write_buffer_blocks;
        !self.dirty.is_empty() && (full || self.a_request_waits_for_writes())
    }

    /// Ends reading on for a command that wants other blocks: the arm waits for it.
    pub(super) fn stop_reading_on(&mut self) {
        self.update_segment();
        if let Some(run) = self.arm.run.filter(|run| !run.write && run.ordered && self.reads.is_empty()) {
            self.leave(run);
        }
    }

    /// Gives up reading on.
    fn leave(&mut self, run: Run) {
        self.arm.track = run.track;
        self.arm.free_from = self.arm.free_from.max(run.on_track.max(self.clock));
        self.arm.run = None;
    }

    /// Whether reading on from a block is worth more than waiting work elsewhere: the stream will request half of the
    /// read-ahead, and returning for it costs a seek.
    pub(super) fn streams_on(&self, reached: u64) -> bool {
        let is_fcfs = self.control.scheduler == Scheduler::Fcfs;
        !is_fcfs && self.read_buffer.streams_on(reached) && !self.a_request_is_aged()
    }

    /// The block to which the heads have just come at the end of a run.
    pub(super) fn has_come_to(&self) -> Option<u64> {
        let (block, at) = self.arm.finished;
        (at == self.clock).then_some(block)
    }

    pub(super) fn may_read_on(&self) -> bool {
        self.read_buffer.may_read_on(self.has_come_to())
    }

    fn begin(&mut self, target: Target) {
        let (next, continues) = match target {
            Target::Write(first) => (first, self.arm.wrote && first == self.arm.finished.0),
            Target::ReadOn => (self.read_buffer.filled().unwrap_or(0), true),
            Target::Read(index) => {
                let read = self.reads[index];
                match self.read_buffer.filled() {
                    Some(filled) if read.attached && read.command.end() > filled => (filled, !self.arm.wrote),
                    _ => {
                        self.detach();
                        let (first, end) = (read.next, read.command.end());
                        let segment = self.read_buffer.fill_for(first, end);
                        self.use_segment(segment, first, end);
                        self.attach();
                        (first, false)
                    }
                }
            }
        };
        let write = matches!(target, Target::Write(_));
        if write {
            // A segment that waits keeps its blocks; reads of it begin anew if they are not all there.
            self.detach();
        }
        if !continues {
            self.arm.pass_since = self.clock;
        }
        if write != self.arm.wrote {
            self.arm.turn_since = self.clock;
        }
        let wanted = if write { self.write_end(next) } else { self.read_end(next) };
        if wanted > next {
            let waited_for = matches!(target, Target::Read(_));
            self.begin_run(next, wanted, write, waited_for, !continues);
        }
    }

    /// Where a run for reading that begins with a block ends, if the track does not end before.
    fn read_end(&self, next: u64) -> u64 {
        let wanted = self.reads.iter().filter(|read| read.attached).map(|read| read.command.end());
        if let Some(end) = wanted.filter(|&end| end > next).min() {
            return end;
        }
        let elsewhere = self.reads.iter().any(|read| !read.attached) || self.writes_are_urgent();
        let elsewhere = elsewhere && self.control.scheduler != Scheduler::Fcfs;
        self.read_buffer.limit(elsewhere).map_or(next, |limit| limit.max(next))
    }

    /// End of a run for writing: the end of a waiting write, or enough room for the buffer.
    fn write_end(&self, next: u64) -> u64 {
        let wanted = self.writes.uncommitted().iter().map(Command::end).filter(|&end| end > next).min();
        let room = (self.control.write_buffer_blocks / 8).max(super::PIECE_BLOCKS);
        self.writable_end(next).min(wanted.unwrap_or(u64::MAX)).min(next + room)
    }

    /// Where the blocks end that may be written without a gap from `first` on.
    pub(super) fn writable_end(&self, first: u64) -> u64 {
        self.dirty.end_of_epochs(first, self.writes.last_epoch())
    }

    fn begin_run(&mut self, next: u64, wanted: u64, write: bool, waited_for: bool, is_access: bool) {
        let place = self.drive.geometry.locate(next);
        self.arm.place = place;
        let mechanics = &self.drive.mechanics;
        let start = self.clock.max(self.arm.free_from);
        // The longer settling of writes applies to seeks; the skew covers the change to the next track.
        let follows = write && self.arm.wrote && self.arm.finished.0 == next;
        let moved = mechanics.positioning(self.arm.track, place.track, write && !follows);
        let goes_on = moved == 0 && self.arm.finished == (next, start) && self.arm.in_place && self.arm.wrote == write;
        let least = if write && !goes_on { self.control.minimum_write_seek } else { 0 };
        let on_track = start + moved.max(least);
        let end = wanted.min(place.track_end);
        let latency = if goes_on { 0 } else { self.drive.latency(self.phase, on_track, place.angle) };
        // A run without a waiting request gives way to a request. An unordered run can't.
        // Nor can a run for blocks that are still crossing: they come in order.
        let immediate = match write {
            true => self.control.immediate_write && self.crossing_between(next, end).is_none(),
            false => self.control.immediate_read && waited_for,
        };
        let last = if immediate && !goes_on { self.passes_last(on_track, &place, end - next) } else { 0 };
        let ordered = last == 0;
        let spindle = *mechanics.spindle();
        let since = if ordered { on_track + latency } else { on_track };
        let since = if write { self.data_in_time(next, end, since, place.blocks_per_track) } else { since };
        if self.freeblock.is_some() {
            let way = Gap { from: self.arm.track, to: place.track, start, on_track, end: since, write, least };
            // Reading on gives way to requests, and an unordered run does not wait.
            let has_gap = ordered && (write || waited_for);
            self.leaves_for(&way, has_gap);
        }
        let passes_before = self.control.read_free_blocks && waited_for && ordered && !goes_on;
        let before = if passes_before { spindle.passed(latency, place.blocks_per_track) } else { 0 };
        let before = before.min(next - place.track_first);
        let (next, since) = (next - before, since - spindle.blocks(before, place.blocks_per_track));
        let time = if ordered { spindle.blocks(end - next, place.blocks_per_track) } else { spindle.period() };
        if before > 0 {
            self.read_buffer.fill_from(next);
        }
        if is_access {
            self.statistics.accesses += 1;
            self.statistics.seek_cylinders += u64::from(self.arm.track.cylinder.abs_diff(place.track.cylinder));
            self.statistics.seek_time += moved;
            self.statistics.rotation_time += latency;
        }
        self.statistics.positionings += u64::from(!goes_on);
        self.statistics.runs += 1;
        self.arm.wrote = write;
        self.arm.run = Some(Run {
            first: next,
            end,
            track: place.track,
            track_end: place.track_end,
            blocks_per_track: place.blocks_per_track,
            on_track,
            since,
            until: since + time.max(1),
            write,
            ordered,
            last,
        });
    }

    /// The blocks of the first write that are crossing the interface, if the arm may have left for some of these.
    fn crossing_between(&self, first: u64, end: u64) -> Option<(Crossing, &Writing)> {
        let (crossing, writing) = (self.interface.crossing()?, self.writes.first_arriving()?);
        let overlap = first < writing.next + crossing.blocks && end > writing.next;
        (self.control.preseek && overlap).then_some((crossing, writing))
    }

    /// When a run for writing begins whose blocks may still be crossing the interface: turns later, until each is in
    /// the buffer when it begins to pass.
    fn data_in_time(&self, first: u64, end: u64, since: Ticks, per_track: u32) -> Ticks {
        let Some((crossing, writing)) = self.crossing_between(first, end) else { return since };
        let blocks = writing.next..writing.next + crossing.blocks;
        let spindle = self.drive.mechanics.spindle();
        let block_time = (crossing.at - crossing.since) / crossing.blocks;
        let late = |block: u64| {
            let there = crossing.since + (block + 1 - blocks.start) * block_time;
            there.saturating_sub(since + spindle.blocks(block - first, per_track))
        };
        // Both move at constant rates.
        let late = late(blocks.start.max(first)).max(late(blocks.end.min(end) - 1));
        let collected = blocks.start + self.collected(writing.command.request.sectors).min(crossing.blocks);
        let collecting = (crossing.since + (collected - blocks.start) * block_time).saturating_sub(since);
        let late = if first < collected { late.max(collecting) } else { late };
        since + late.div_ceil(spindle.period()) * spindle.period()
    }

    /// Blocks of a write that are in the buffer before the first one passes.
    ///
    /// Drives with the extra disconnection collect a third of a short request's usual transfer, or 15 blocks of a
    /// request from 45 on (so does DiskSim 4.0 for all drives with it).
    pub(super) fn collected(&self, sectors: u32) -> u64 {
        match self.control.extra_disconnect {
            None => 1,
            Some(_) if sectors < 45 => u64::from(sectors.min(10)),
            Some(_) => 15,
        }
    }

    /// Blocks that have begun to pass when the head comes to a track while the wanted ones pass; else 0.
    pub(super) fn passes_last(&self, on_track: Ticks, place: &BlockPosition, blocks: u64) -> u64 {
        let begun = self.drive.begun(self.phase, on_track, place.angle, place.blocks_per_track);
        if begun < blocks && self.drive.mechanics.access == Access::Full { begun } else { 0 }
    }

    /// The wanted blocks of a run may have changed.
    fn plan_again(&mut self, run: Run) {
        let passed = self.passed(&run);
        let least = (run.first + passed).max(run.first + 1);
        let end = self.read_end(run.first + passed).max(least).min(run.track_end);
        let time = self.drive.mechanics.spindle().blocks(end - run.first, run.blocks_per_track);
        self.arm.run = Some(Run { end, until: (run.since + time.max(1)).max(self.clock), ..run });
    }

    /// A run has passed.
    pub(super) fn arm_event(&mut self) {
        let Some(run) = self.arm.run.take() else { return };
        self.arm.track = run.track;
        self.arm.finished = (run.end, self.clock);
        self.arm.in_place = run.ordered;
        let blocks = run.end - run.first;
        if run.write {
            self.statistics.blocks_written += blocks;
            self.dirty.remove(run.first, run.end);
            let rewritten = self.arm.rewritten.take();
            self.committed(rewritten);
        } else if let Some(index) = self.read_buffer.filling() {
            self.statistics.blocks_read += blocks;
            self.read_buffer.fill(run.end);
            self.serve(index, &run);
        }
        self.decide();
    }

    /// When the interface would have moved a read's blocks up to the end of a run, if it moved nothing else. It begins
    /// when `mark` blocks of the read are in the buffer.
    fn crossed_after(&self, read: &Reading, run: &Run, mark: u64) -> Ticks {
        let spindle = self.drive.mechanics.spindle();
        let block = self.control.read_block;
        let time = |blocks: u64| spindle.blocks(blocks, run.blocks_per_track);
        let (first, end) = (read.command.first(), read.command.end().min(run.end));
        let (before, after) = (read.next - first, end.saturating_sub(first));
        if after <= before || after < mark {
            return read.crossed;
        }
        let begun = before >= mark;
        let reselect = if begun { 0 } else { self.control.reselect };
        if !run.ordered {
            // The last blocks pass first, and cross behind the others.
            let behind = run.end - run.first - run.last;
            let in_time = (after - before).saturating_sub(behind);
            let unmarked = time(in_time) - time(mark.saturating_sub(before).min(in_time));
            let begins = (run.until + reselect).saturating_sub(unmarked.min(in_time * block));
            return read.crossed.max(begins) + (if begun { after - before } else { after }) * block;
        }
        // Blocks that passed in an earlier run were in the buffer when the command was decoded.
        let from = read.next.max(run.first);
        let passed = |until: u64| run.since + time(until - run.first);
        let crossed = match () {
            () if begun => (read.crossed + (from - read.next) * block).max(passed(from)) + (end - from) * block,
            () if first + mark <= from => {
                (read.crossed + reselect + (from - first) * block).max(passed(from)) + (end - from) * block
            }
            () => read.crossed.max(passed(first + mark) + reselect) + after * block,
        };
        crossed.max(passed(end) + block)
    }

    /// Completes the reads whose blocks have all passed.
    fn serve(&mut self, segment: usize, run: &Run) {
        self.attach();
        let mut index = 0;
        while let Some(&read) = self.reads.get(index) {
            if !read.attached {
                index += 1;
                continue;
            }
            let mark = u64::from(read.command.request.sectors) * self.control.read_water_mark / 1_000_000;
            // Data of a partial hit cross at once.
            let mark = if read.hit { 1 } else { mark.max(1) };
            let crossed = self.crossed_after(&read, run, mark);
            let read = &mut self.reads[index];
            read.crossed = crossed;
            read.next = read.next.max(run.end).min(read.command.end());
            read.spot = None;
            if read.next == read.command.end() {
                let read = *read;
                self.reads.remove(index);
                self.use_segment(segment, read.command.first(), read.command.end());
                let sectors = u64::from(read.command.request.sectors);
                let begin = read.crossed.saturating_sub(sectors * self.control.read_block);
                self.deliver(read.command, begin);
            } else {
                index += 1;
            }
        }
    }
}
