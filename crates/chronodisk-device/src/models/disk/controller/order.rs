//! Which request the arm serves next.

use super::super::drive::Drive;
use super::super::geometry::{Spot, Track};
use super::super::mechanics::{Access, LeastTicks, Mechanics, Ticks};
use super::super::parameters::Scheduler;
use super::dirty::{Dirty, Range};
use super::{Disk, NEVER, Reading};

/// Next target of the arm.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// The pending read of this index.
    Read(usize),
    /// Dirty blocks from here on.
    Write(u64),
    /// Reads on into the segment.
    ReadOn,
}

/// The oldest request that waits for the medium. Of requests of one age, the first of these counts.
#[derive(Clone, Copy, Debug)]
enum Oldest {
    Write,
    Read,
    Flush,
}

impl Disk {
    /// The oldest request that waits for the medium, and when it arrived.
    fn oldest(&self) -> Option<(Ticks, Oldest)> {
        let (write, flush) = self.writes.oldest();
        let read = self.reads.first().map_or(NEVER, |read| read.command.arrived);
        let since = write.min(read).min(flush);
        let oldest = match since {
            _ if write == since => Oldest::Write,
            _ if read == since => Oldest::Read,
            _ => Oldest::Flush,
        };
        (since != NEVER).then_some((since, oldest))
    }

    /// Whether the oldest request has waited for longer than the bound.
    pub(super) fn a_request_is_aged(&self) -> bool {
        self.oldest().is_some_and(|(since, _)| self.clock.saturating_sub(since) > self.control.age_bound)
    }

    /// The target that has waited the longest.
    fn first_come(&self) -> Option<Target> {
        let before =
            self.reads.first().map_or(u64::MAX, |read| read.epoch).min(self.writes.last_epoch().saturating_add(1));
        let behind = self.arm.finished.0;
        if self.arm.wrote && self.dirty.end_of_epochs(behind, before.saturating_sub(1)) > behind {
            return Some(Target::Write(behind));
        }
        let oldest = self.dirty.ranges().iter().min_by_key(|range| range.epoch);
        match oldest.filter(|range| range.epoch < before) {
            Some(range) => Some(Target::Write(range.first)),
            // The data of an older write are still crossing: the arm waits for them.
            None if !self.reads.is_empty()
                && self.writes.first_arriving().is_some_and(|write| write.epoch < before) =>
            {
                None
            }
            None if !self.reads.is_empty() => Some(Target::Read(0)),
            None => self.may_read_on().then_some(Target::ReadOn),
        }
    }

    pub(super) fn next_target(&mut self, attached: bool) -> Option<Target> {
        if self.control.scheduler == Scheduler::Fcfs {
            return self.first_come();
        }
        let urgent = self.writes_are_urgent();
        if let Some((since, oldest)) = self.oldest() {
            let aged = self.clock.saturating_sub(since) > self.control.age_bound;
            let long = self.clock.saturating_sub(self.arm.pass_since) > self.control.longest_pass;
            if aged || long {
                self.statistics.aged += u64::from(aged);
                self.arm.pass_since = self.clock;
                let target = match oldest {
                    Oldest::Read => Some(Target::Read(0)),
                    Oldest::Write => self.oldest_write(),
                    Oldest::Flush => self.nearest(false, true),
                };
                if target.is_some() {
                    return target;
                }
            }
        }
        if !self.arm.wrote && attached {
            let next = self.read_buffer.filled().unwrap_or(0);
            let continues = |read: &Reading| read.attached && read.command.end() > next;
            if let Some(index) = self.reads.iter().position(continues) {
                return Some(Target::Read(index));
            }
        }
        let goes_on = self.arm.wrote && self.writable_end(self.arm.finished.0) > self.arm.finished.0;
        if goes_on && (urgent || self.reads.is_empty()) {
            return Some(Target::Write(self.arm.finished.0));
        }
        if !self.arm.wrote
            && let Some(filled) = self.read_buffer.filled().filter(|&filled| self.has_come_to() == Some(filled))
            && self.streams_on(filled)
        {
            return Some(Target::ReadOn);
        }
        let (reads, writes) = self.turn();
        let best = self.nearest(reads, writes && urgent);
        if best.is_some() {
            return best;
        }
        if self.may_read_on() {
            return Some(Target::ReadOn);
        }
        self.nearest(false, true)
    }

    /// Dirty blocks of the oldest write. If its blocks have no place yet: the range that makes the most room for it.
    fn oldest_write(&self) -> Option<Target> {
        let oldest = self.writes.uncommitted().first();
        let waits = self.writes.first_arriving();
        let range = match oldest {
            Some(oldest) if waits.is_none_or(|front| front.command.arrived >= oldest.arrived) => {
                self.first_range(oldest.first(), |_| true)
            }
            _ if self.lacks_ranges() => {
                let elsewhere = |range: &Range| !(range.first..=range.end).contains(&self.arm.finished.0);
                self.first_range(self.arm.finished.0, elsewhere)
            }
            _ => {
                let writable = self.dirty.ranges().iter().filter(|range| range.epoch <= self.writes.last_epoch());
                writable.max_by_key(|range| range.end - range.first)
            }
        }?;
        let inside = (range.first..range.end).contains(&self.arm.finished.0);
        Some(Target::Write(if inside { self.arm.finished.0 } else { range.first }))
    }

    /// The first writable range from a block upwards; a wanted one if there is any.
    fn first_range(&self, from: u64, wanted: impl Fn(&Range) -> bool) -> Option<&Range> {
        let (before, behind) = self.dirty.ranges().split_at(self.dirty.index_behind(from));
        let mut upwards = behind.iter().chain(before).filter(|range| range.epoch <= self.writes.last_epoch());
        let first = upwards.clone().next();
        upwards.find(|range| wanted(range)).or(first)
    }

    /// The target with the shortest positioning time among the reads, the dirty ranges, or both.
    fn nearest(&mut self, reads: bool, writes: bool) -> Option<Target> {
        if reads && !writes && self.reads.len() == 1 {
            return Some(Target::Read(0));
        }
        if self.control.scheduler != Scheduler::Sptf {
            return self.least(reads, writes);
        }
        let last_epoch = self.writes.last_epoch();
        let Disk { drive, arm, dirty, .. } = self;
        let angle = drive.angle(self.phase, self.clock.max(arm.free_from));
        let heads = Heads { mechanics: &drive.mechanics, track: arm.track, angle };
        let (mut least, mut best) = (Ticks::MAX, None);
        for index in 0..if reads { self.reads.len() } else { 0 } {
            let read = &mut self.reads[index];
            let spot = read.spot.get_or_insert_with(|| drive.geometry.spot(read.next));
            if let Some(time) = heads.positioning(spot, false, least)
                && !follows_another(&self.reads, index)
            {
                (least, best) = (time, Some(Target::Read(index)));
            }
        }
        let range =
            if writes { nearest_range(&heads, drive, dirty, (arm.finished.0, last_epoch), least) } else { None };
        range.map(Target::Write).or(best)
    }

    /// The target that the scheduler puts first among the reads, the dirty ranges, or both.
    fn least(&mut self, reads: bool, writes: bool) -> Option<Target> {
        let last_epoch = self.writes.last_epoch();
        let Disk { drive, arm, dirty, control, clock, .. } = self;
        let angle = drive.angle(self.phase, (*clock).max(arm.free_from));
        let heads = Heads { mechanics: &drive.mechanics, track: arm.track, angle };
        let (head, downwards) = (arm.finished.0, arm.downwards);
        let weight = match control.scheduler {
            Scheduler::AgedSptf { weight } => weight.0.unsigned_abs(),
            _ => 0,
        };
        let rank = |block: u64, spot: &Spot, write: bool, waited: Ticks| match control.scheduler {
            Scheduler::Sstf => (0, spot.track.cylinder.abs_diff(heads.track.cylinder).into()),
            Scheduler::Look if downwards => (u64::from(block > head), block.abs_diff(head)),
            Scheduler::Look => (u64::from(block < head), block.abs_diff(head)),
            Scheduler::CLook => (u64::from(block < head), block),
            Scheduler::Fcfs | Scheduler::Sptf | Scheduler::AgedSptf { .. } => {
                let time = heads.positioning(spot, write, Ticks::MAX).unwrap_or(Ticks::MAX);
                let credit = u128::from(waited) * u128::from(weight) / 1_000_000;
                let credit = Ticks::try_from(credit).unwrap_or(Ticks::MAX);
                // Above all credits, so that none is cut off.
                (0, (Ticks::MAX / 2).saturating_add(time.min(Ticks::MAX / 2)).saturating_sub(credit))
            }
        };
        let mut best: Option<((u64, u64), u64, Target)> = None;
        let mut consider = |rank: (u64, u64), block: u64, target: Target| {
            if best.is_none_or(|best| rank < best.0) {
                best = Some((rank, block, target));
            }
        };
        for index in 0..if reads { self.reads.len() } else { 0 } {
            if !follows_another(&self.reads, index) {
                let read = &mut self.reads[index];
                let spot = *read.spot.get_or_insert_with(|| drive.geometry.spot(read.next));
                let waited = clock.saturating_sub(read.command.arrived);
                consider(rank(read.next, &spot, false, waited), read.next, Target::Read(index));
            }
        }
        let writable = dirty.ranges_mut().iter_mut().filter(|range| writes && range.epoch <= last_epoch);
        for range in writable {
            let first = range.first;
            let spot = *range.spot(&drive.geometry);
            consider(rank(first, &spot, true, 0), first, Target::Write(first));
        }
        let (_, block, target) = best?;
        arm.downwards = block < head;
        Some(target)
    }

    /// Whether reads and writes may go next. Writes that only make room take turns with reads that wait. A turn lasts
    /// for an eighth of the longest pass: shorter ones spend their time on seeks between places of reads and of writes.
    fn turn(&self) -> (bool, bool) {
        if self.writes.wait_for_medium() || self.reads.is_empty() || !self.writes_are_urgent() {
            return (true, true);
        }
        let over = self.clock.saturating_sub(self.arm.turn_since) >= self.control.longest_pass / 8;
        let writes = self.arm.wrote != over;
        (!writes, writes)
    }
}

/// Heads that look for the block with the shortest positioning time.
struct Heads<'a> {
    mechanics: &'a Mechanics,
    track: Track,
    /// The platter's angle when they can leave.
    angle: u64,
}

impl Heads<'_> {
    /// The positioning time of a block if it is below `limit`.
    #[inline]
    fn positioning(&self, spot: &Spot, write: bool, limit: Ticks) -> Option<Ticks> {
        let least = self.least_positioning(spot, write).there;
        if least < limit { self.positioning_after(least, spot, write, limit) } else { None }
    }

    /// Lower bounds of the time to come to a block's track, soon computed.
    #[inline]
    fn least_positioning(&self, spot: &Spot, write: bool) -> LeastTicks {
        self.mechanics.least_positioning(self.track.cylinder.abs_diff(spot.track.cylinder), write)
    }

    /// The same, if the heads need at least `least` to come to the track.
    #[inline]
    fn positioning_after(&self, least: Ticks, spot: &Spot, write: bool, limit: Ticks) -> Option<Ticks> {
        let passes = match self.mechanics.access {
            // Heads that come later do not meet the block sooner.
            Access::Full => self.mechanics.spindle().passes_before(self.angle, spot.angle, least, limit),
            Access::HalfTurn(_) | Access::Constant(_) => true,
        };
        if passes { self.positioning_below(spot, write, limit) } else { None }
    }

    /// The same without a bound. Few blocks come here: out of line, it saves 100 instructions a search.
    #[inline(never)]
    fn positioning_below(&self, spot: &Spot, write: bool, limit: Ticks) -> Option<Ticks> {
        let moved = self.mechanics.positioning(self.track, spot.track, write);
        Some(self.reached(moved, spot)).filter(|&time| time < limit)
    }

    /// When a block begins to pass, if the heads are on its track at `moved`.
    #[inline]
    fn reached(&self, moved: Ticks, spot: &Spot) -> Ticks {
        let spindle = self.mechanics.spindle();
        match self.mechanics.access {
            Access::Full => moved + spindle.time_between(spindle.angle_after(self.angle, moved), spot.angle),
            Access::HalfTurn(time) | Access::Constant(time) => moved + time,
        }
    }
}

/// The dirty range with the shortest positioning time, if that is below `limit`. The search begins at block `from` and
/// goes upwards over at most [`RANGES_LOOKED_AT`] ranges.
fn nearest_range(
    heads: &Heads<'_>,
    drive: &Drive,
    dirty: &mut Dirty,
    (from, last_epoch): (u64, u64),
    mut limit: Ticks,
) -> Option<u64> {
    let index = dirty.index_behind(from);
    let (before, behind) = dirty.ranges_mut().split_at_mut(index);
    // Ranges further up are on cylinders further up.
    let ascends = last_epoch == u64::MAX && drive.geometry.ascends();
    let (mut left, others) = (RANGES_LOOKED_AT, RANGES_LOOKED_AT.saturating_sub(behind.len()));
    let mut best = None;
    for (ranges, ascends) in [(behind, ascends), (before, false)] {
        for range in ranges.iter_mut().filter(|range| range.epoch <= last_epoch) {
            if left == 0 {
                break;
            }
            left -= 1;
            let spot = range.spot(&drive.geometry);
            let least = heads.least_positioning(spot, true);
            if least.there < limit {
                if let Some(time) = heads.positioning_after(least.there, spot, true, limit) {
                    (limit, best) = (time, Some(range.first));
                }
            } else if ascends && least.there_or_beyond >= limit && spot.track.cylinder >= heads.track.cylinder {
                left = others;
                break;
            }
        }
    }
    best
}

/// Whether a read continues another one that waits: a pass from the middle of a stream on leaves the rest behind.
fn follows_another(reads: &[Reading], index: usize) -> bool {
    const LOOKED_AT: usize = 64;
    let first = reads[index].command.first();
    reads.iter().take(LOOKED_AT).any(|other| other.command.end() == first)
}

/// Most dirty ranges, from the heads upwards, among which the shortest positioning time is looked for.
const RANGES_LOOKED_AT: usize = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::models::disk::tests::small;

    proptest! {
        /// With a limit and without, a block's positioning time is the seek, and the wait from its end on.
        #[test]
        fn a_limit_hides_longer_times_and_changes_none(
            at in 0_u64..1 << 40,
            (from, block) in (0_u64..5_000, 0_u64..5_000),
            write: bool,
            limit in 0_u64..20_000_000 * 16,
        ) {
            let drive = Drive::new(&small()).unwrap();
            let (track, spot) = (drive.geometry.spot(from).track, drive.geometry.spot(block));
            let moved = drive.mechanics.positioning(track, spot.track, write);
            let time = moved + drive.latency(0, at + moved, spot.angle);
            let heads = Heads { mechanics: &drive.mechanics, track, angle: drive.angle(0, at) };
            prop_assert_eq!(heads.positioning(&spot, write, Ticks::MAX), Some(time));
            prop_assert_eq!(heads.positioning(&spot, write, limit), Some(time).filter(|&time| time < limit));
        }
    }
}
