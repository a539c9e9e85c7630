//! Background reads in the rotational latency of foreground requests.
//!
//! Lumb, Schindler, Ganger, Nagle and Riedel, "Towards Higher Disk Head Utilization: Extracting Free Bandwidth From
//! Busy Disk Drives" (OSDI 2000).
//!
//! An access leaves a track, comes to another one, and waits there for its first block. When the arm starts, the model
//! knows this latency. It spends it on wanted blocks: on the track that the arm leaves, on the track to which it comes,
//! or on a track between two seeks. The heads are over the first block of the access at the same instant as without.
//! Only accesses that nothing ends early have such a gap: writes, and reads that a request waits for. Reading on gives
//! way to requests, so it has none.
//!
//! Of all tracks that the search looks at, the arm reads the one with the most wanted blocks in its part of the gap.
//! The search covers the cylinders of both ends, their neighbours, and some cylinders between. Time before the first
//! wanted block is spent on the track that the arm leaves, and time behind the last one on the track to which it comes.
//!
//! With [`BackgroundTime::GapsAndRest`], an arm without work reads the wanted blocks of its track. It does not move.
//!
//! With `read-free-blocks`, the drive itself keeps the blocks that pass before the wanted ones. There, the gap begins
//! when the heads are on the track.
//!
//! Not modelled: room in the buffer and time on the interface for the data; they cross in gaps of the interface.
//! Slipped and replaced blocks pass as if they were in their own places, as in other passes of the arm.

use std::collections::VecDeque;
use std::ops::Range;

use chronodisk_sim::{Lba, Nanos, SECTOR_BYTES};

use super::super::geometry::{Track, TrackBlocks};
use super::super::mechanics::{Access, Ticks, nanos};
use super::wanted::Wanted;
use super::{Disk, Drive};
use crate::{Background, BackgroundDone, BackgroundRead, BackgroundTime};

/// Background requests of a drive.
#[derive(Clone, Debug)]
pub(super) struct Freeblock {
    wanted: Wanted,
    when: BackgroundTime,
    /// No block that passed before this instant counts.
    since: Ticks,
    /// In order of time; those of the gap under way are in the future.
    done: VecDeque<BackgroundDone>,
    /// Rotates the search among the cylinders between two tracks.
    turn: u32,
    blocks_in_gaps: u64,
    blocks_at_rest: u64,
    gaps: u64,
}

/// The way of the arm to the first block of an access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) from: Track,
    pub(super) to: Track,
    pub(super) start: Ticks,
    /// When the heads are on the track without a detour.
    pub(super) on_track: Ticks,
    /// When the first block begins to pass.
    pub(super) end: Ticks,
    pub(super) write: bool,
    /// The least time of the last seek.
    pub(super) least: Ticks,
}

/// Blocks of a track that pass under its head in an interval.
#[derive(Clone, Copy, Debug)]
struct Pass {
    on: TrackBlocks,
    /// The first sector of the track that passes wholly, counted from its first block, and when it begins to.
    index: u64,
    since: Ticks,
    /// Sectors that pass wholly, at most a turn.
    sectors: u64,
}

/// Cylinders on each side of an end of the way among which the nearest with wanted blocks are looked for.
const NEIGHBOURS: u32 = 48;

/// Cylinders looked at between both ends.
const BETWEEN: u32 = 512;

/// Cylinders near both ends, and as many between them, whose tracks are looked at.
const LOOKED_AT: usize = 8;

/// The cylinders with the most wanted blocks, of equal ones the first.
#[derive(Clone, Copy, Debug, Default)]
struct Fullest {
    cylinders: [Option<u32>; LOOKED_AT],
    counts: [u32; LOOKED_AT],
}

impl Fullest {
    fn consider(&mut self, wanted: &Wanted, cylinder: u32) {
        let count = wanted.on_cylinder(cylinder);
        if count > self.counts[LOOKED_AT - 1] && !self.cylinders.contains(&Some(cylinder)) {
            let place = self.counts.iter().position(|&other| count > other).unwrap_or(LOOKED_AT - 1);
            self.counts[place..].rotate_right(1);
            self.cylinders[place..].rotate_right(1);
            (self.counts[place], self.cylinders[place]) = (count, Some(cylinder));
        }
    }

    fn cylinders(&self) -> impl Iterator<Item = u32> + use<> {
        self.cylinders.into_iter().flatten()
    }
}

impl Pass {
    /// The blocks that pass, in their order, as ranges of blocks: at most three.
    fn ranges(&self) -> impl Iterator<Item = (Range<u64>, u64)> + use<> {
        let per_track = u64::from(self.on.blocks_per_track);
        let (first, blocks) = (self.on.first, (self.on.end - self.on.first).min(per_track));
        let (index, sectors) = (self.index, self.sectors);
        // Sectors until the end of the track, and those from its beginning on.
        let before = sectors.min(per_track - index);
        [(index, index + before, 0), (0, sectors - before, before)].into_iter().filter_map(move |(from, to, passed)| {
            let to = to.min(blocks);
            (from < to).then_some((first + from..first + to, passed))
        })
    }

    fn value(&self, wanted: &Wanted) -> u64 {
        self.ranges().map(|(range, _)| wanted.among(range.start, range.end)).sum()
    }

    /// The runs of wanted blocks, with the numbers of sectors that pass before them.
    fn runs(&self, wanted: &Wanted, mut run: impl FnMut(Range<u64>, u64)) {
        for (range, passed) in self.ranges() {
            let mut next = range.start;
            while let Some((first, end)) = wanted.next_run(next, range.end) {
                run(first..end, passed + (first - range.start));
                next = end;
            }
        }
    }

    /// When the wanted blocks begin and end to pass; `None` without any.
    fn bounds(&self, wanted: &Wanted, drive: &Drive) -> Option<(Ticks, Ticks)> {
        let mut bounds: Option<(u64, u64)> = None;
        self.runs(wanted, |run, passed| {
            let begin = bounds.map_or(passed, |(begin, _)| begin);
            bounds = Some((begin, passed + (run.end - run.start)));
        });
        let after = |sectors| self.since + drive.mechanics.spindle().blocks(sectors, self.on.blocks_per_track);
        bounds.map(|(begin, end)| (after(begin), after(end)))
    }
}

/// The platters, as they turn.
#[derive(Clone, Copy)]
struct Platters<'a> {
    drive: &'a Drive,
    /// Their angle at instant zero.
    phase: u64,
}

impl Platters<'_> {
    /// The sectors that pass on a track between two instants.
    fn pass(&self, track: Track, from: Ticks, until: Ticks) -> Option<Pass> {
        if until <= from {
            return None;
        }
        let on = self.drive.geometry.blocks_on(track)?;
        let spindle = self.drive.mechanics.spindle();
        let per_track = u64::from(on.blocks_per_track);
        let begun = self.drive.begun(self.phase, from, on.angle, on.blocks_per_track);
        // The first sector that has not begun to pass.
        let angle = super::super::geometry::mul_div(begun, spindle.turn, per_track) + on.angle;
        let since = from + self.drive.latency(self.phase, from, angle % spindle.turn) + 1;
        let sectors = spindle.passed(until.checked_sub(since)?, on.blocks_per_track).min(per_track);
        (sectors > 0).then_some(Pass { on, index: begun % per_track, since, sectors })
    }

    /// Time of the last seek of a way with a detour, or of the only one.
    fn last_seek(&self, from: Track, gap: &Gap) -> Ticks {
        self.drive.mechanics.positioning(from, gap.to, gap.write).max(gap.least)
    }
}

impl Freeblock {
    fn new(wanted: Wanted, when: BackgroundTime) -> Self {
        let (done, since, turn) = (VecDeque::new(), 0, 0);
        Freeblock { wanted, when, since, done, turn, blocks_in_gaps: 0, blocks_at_rest: 0, gaps: 0 }
    }

    /// The sectors that pass on a track between two instants, and count.
    fn pass(&self, platters: Platters<'_>, track: Track, from: Ticks, until: Ticks) -> Option<Pass> {
        platters.pass(track, from.max(self.since), until)
    }

    /// A track's pass in a gap: the arm seeks there at once, and leaves as late as it can.
    fn detour(&self, platters: Platters<'_>, gap: &Gap, track: Track) -> Option<Pass> {
        let there = gap.start + platters.drive.mechanics.positioning(gap.from, track, false);
        self.pass(platters, track, there, gap.end.checked_sub(platters.last_seek(track, gap))?)
    }

    /// The passes of a gap in which wanted blocks are read, in order of time.
    fn passes_of(&self, platters: Platters<'_>, gap: &Gap) -> [Option<Pass>; 3] {
        let (none, wanted) = ([None; 3], &self.wanted);
        if wanted.is_empty() {
            return none;
        }
        let pass = |track, from, until| self.pass(platters, track, from, until);
        let destination = pass(gap.to, gap.on_track, gap.end);
        if platters.drive.control.read_free_blocks && !gap.write {
            return [destination, None, None];
        }
        let source = pass(gap.from, gap.start, gap.end - (gap.on_track - gap.start));
        let mut best = (0, None, None);
        let mut consider = |pass: Option<Pass>, track: Track| {
            let value = pass.map_or(0, |pass| pass.value(wanted));
            if value > best.0 {
                best = (value, pass, Some(track));
            }
        };
        consider(source, gap.from);
        consider(destination, gap.to);
        for cylinder in self.candidates(gap).iter().flat_map(Fullest::cylinders) {
            for head in 0..platters.drive.geometry.surfaces() {
                let track = Track { cylinder, head };
                if track != gap.from && track != gap.to {
                    consider(self.detour(platters, gap, track), track);
                }
            }
        }
        let (_, Some(best), Some(track)) = best else { return none };
        let Some((begin, end)) = best.bounds(wanted, platters.drive) else { return none };
        let mechanics = &platters.drive.mechanics;
        let before = match track {
            _ if track == gap.from => None,
            // Without a detour, the last seek leads to the track.
            _ if track == gap.to => pass(gap.from, gap.start, begin.saturating_sub(gap.on_track - gap.start)),
            _ => pass(gap.from, gap.start, begin.saturating_sub(mechanics.positioning(gap.from, track, false))),
        };
        let after = match track == gap.to {
            true => None,
            false => pass(gap.to, end + platters.last_seek(track, gap), gap.end),
        };
        [before, Some(best), after]
    }

    /// The cylinders with the most wanted blocks: some near both ends, and some between.
    fn candidates(&self, gap: &Gap) -> [Fullest; 2] {
        let (mut near, mut between) = (Fullest::default(), Fullest::default());
        let wanted = &self.wanted;
        let last = wanted.cylinders().saturating_sub(1);
        for distance in 0..=NEIGHBOURS {
            for end in [gap.from.cylinder, gap.to.cylinder] {
                near.consider(wanted, end.saturating_sub(distance));
                near.consider(wanted, (end + distance).min(last));
            }
        }
        let (low, high) = (gap.from.cylinder.min(gap.to.cylinder), gap.from.cylinder.max(gap.to.cylinder));
        let step = ((high - low) / BETWEEN).max(1);
        for cylinder in (low + self.turn % step..high).step_by(step as usize) {
            between.consider(wanted, cylinder);
        }
        [near, between]
    }

    /// Reads the wanted blocks of a gap.
    fn read_gap(&mut self, platters: Platters<'_>, gap: &Gap) {
        let mut blocks = 0;
        for pass in self.passes_of(platters, gap).into_iter().flatten() {
            blocks += self.read_pass(platters.drive, &pass, Ticks::MAX, true);
        }
        self.turn = self.turn.wrapping_add(1);
        self.blocks_in_gaps += blocks;
        self.gaps += u64::from(blocks > 0);
    }

    /// Reads the wanted blocks of a pass whose runs end until an instant. `cut`: also the blocks of a run under way
    /// then.
    fn read_pass(&mut self, drive: &Drive, pass: &Pass, until: Ticks, cut: bool) -> u64 {
        let (spindle, per_track) = (drive.mechanics.spindle(), pass.on.blocks_per_track);
        let after = |sectors: u64| pass.since + spindle.blocks(sectors, per_track);
        let mut runs = Vec::new();
        pass.runs(&self.wanted, |run, passed| runs.push((run, passed)));
        let mut blocks = 0;
        for (run, passed) in runs {
            let all = run.end - run.start;
            let length = match after(passed + all) <= until {
                true => all,
                false if cut => spindle.passed(until.saturating_sub(after(passed)), per_track).min(all),
                false => 0,
            };
            if length == 0 {
                continue;
            }
            self.wanted.remove_on(run.start, run.start + length, pass.on.track.cylinder);
            let at = nanos(after(passed + length));
            self.done.push_back(BackgroundDone { lba: Lba(run.start), sectors: length as u32, at });
            blocks += length;
        }
        blocks
    }

    /// Reads the wanted blocks that have passed up to an instant on the track on which the arm has rested since `from`.
    /// `ends`: the rest ends there.
    fn read_at_rest(&mut self, platters: Platters<'_>, track: Track, from: Ticks, until: Ticks, ends: bool) {
        if self.when != BackgroundTime::GapsAndRest || self.wanted.is_empty() {
            return;
        }
        let turns = from.max(self.since).saturating_add(2 * platters.drive.mechanics.spindle().period());
        if let Some(pass) = self.pass(platters, track, from, turns) {
            self.blocks_at_rest += self.read_pass(platters.drive, &pass, until, ends);
        }
    }

    /// Takes the blocks that have been read by an instant.
    fn take(&mut self, now: Nanos, done: &mut Vec<BackgroundDone>) {
        let passed = self.done.partition_point(|done| done.at <= now);
        done.extend(self.done.drain(..passed));
    }

    /// Statistics of background requests.
    pub(super) fn probe(&self, sink: &mut dyn crate::Probe) {
        sink.counter("background-blocks-in-gaps", self.blocks_in_gaps);
        sink.counter("background-blocks-at-rest", self.blocks_at_rest);
        sink.counter("background-gaps", self.gaps);
    }
}

impl Disk {
    /// The arm starts for a run. With a gap, it reads wanted blocks on its way.
    pub(super) fn leaves_for(&mut self, gap: &Gap, has_gap: bool) {
        self.settle_rest(gap.start, true);
        let is_full = self.drive.mechanics.access == Access::Full;
        if let Some(freeblock) = self.freeblock.as_mut().filter(|_| has_gap && is_full && gap.end > gap.on_track) {
            freeblock.read_gap(Platters { drive: &self.drive, phase: self.phase }, gap);
        }
    }

    /// Reads the wanted blocks that have passed while the arm rested, up to an instant. `ends`: the rest ends there.
    fn settle_rest(&mut self, until: Ticks, ends: bool) {
        let is_full = self.drive.mechanics.access == Access::Full;
        let is_at_rest = is_full && self.arm.next_event() == super::NEVER;
        let Some(freeblock) = self.freeblock.as_mut().filter(|_| is_at_rest) else { return };
        // A run ended, or was given up, when the arm came to rest.
        let from = self.arm.finished.1.max(self.arm.free_from);
        let platters = Platters { drive: &self.drive, phase: self.phase };
        freeblock.read_at_rest(platters, self.arm.track(), from, until, ends);
    }
}

impl Background for Disk {
    fn want(&mut self, request: &BackgroundRead) {
        let now = self.clock.max(super::ticks(self.now));
        self.settle_rest(now, true);
        let (blocks, drive) = (self.info.capacity_sectors.min(self.drive.capacity_blocks()), &self.drive);
        let cylinders = drive.geometry.cylinders();
        let freeblock = self
            .freeblock
            .get_or_insert_with(|| Box::new(Freeblock::new(Wanted::new(blocks, cylinders), request.when)));
        (freeblock.when, freeblock.since) = (request.when, now);
        for range in &request.ranges {
            freeblock.wanted.insert(range, &drive.geometry);
        }
    }

    fn forget(&mut self, ranges: &[Range<u64>]) {
        self.settle_rest(self.clock.max(super::ticks(self.now)), true);
        let Some(freeblock) = self.freeblock.as_mut() else { return };
        for range in ranges {
            freeblock.wanted.remove(range, &self.drive.geometry);
        }
    }

    fn wanted(&self) -> u64 {
        self.freeblock.as_ref().map_or(0, |freeblock| freeblock.wanted.count())
    }

    fn take(&mut self, done: &mut Vec<BackgroundDone>) {
        self.settle_rest(super::ticks(self.now), false);
        if let Some(freeblock) = self.freeblock.as_mut() {
            freeblock.take(self.now, done);
        }
    }

    fn media_bytes_per_s(&self) -> f64 {
        let turn = nanos(self.drive.mechanics.spindle().period()).as_secs_f64();
        let bytes = (self.drive.geometry.blocks() * SECTOR_BYTES) as f64;
        bytes / (self.drive.geometry.tracks() as f64 * turn)
    }
}
