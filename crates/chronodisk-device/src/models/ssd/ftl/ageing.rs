//! Drives after long use.
//!
//! - [`AgeingMethod::Written`]: performs every write: once sequentially over the whole drive, then the workload until
//!   it is steady.
//! - [`AgeingMethod::Drawn`]: draws the valid units of each superblock from the collector's [`FixedPoint`], then writes
//!   the workload until it is steady.
//!
//! The steady state is defined as in the SNIA's Solid State Storage Performance Test Specification 2.0.2, with write
//! amplification instead of a rate: over five rounds the range is at most 20 % of the mean, and the slope of the best
//! line changes it by at most 10 %.
//!
//! Dies of a drive in use are out of step: each has filled a different share of its open superblock. Writes that go to
//! the dies in turn would keep them in step for ever, and all dies would eventually collect at once. So before the
//! rounds, or before the drive is written again, each die with free allocation is written a random further share of a
//! superblock.
//!
//! The fixed point is that of uniform random writes, and is also the start for other workloads. These take more rounds
//! to become steady, which the real collector decides. The order of units within superblocks is random, as after
//! uniform random writes; after hot and cold writes only the rounds shape it.
//!
//! A zoned drive is aged in whole zones, which the host resets and writes again. There is nothing to draw, and its
//! write amplification is 1 from the beginning. Ageing changes the places of its zones and the wear of its superblocks.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use chronodisk_sim::RandomStream;

use super::blocks::RestingBlock;
use super::fixed_point::FixedPoint;
use super::permutation::Permutation;
use super::reverse::Reverse;
use super::state::{Counts, Resting};
use super::{Allocation, BlockUse, Ftl, FtlParameters, Unit, Untimed, ZoneIndex, ZoneParameters};
use crate::flat_table::FlatTable;

/// Workload of ageing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AgeingWorkload {
    /// Each unit once, from beginning to end.
    Sequential,
    /// Two sequential passes, as in the SNIA's workload-independent preconditioning. They use up the spare, and
    /// collected superblocks hold no valid data until many random writes have followed.
    SequentialTwice,
    /// Units drawn uniformly, until steady.
    Random,
    /// A share of the units, the first ones, gets a share of the writes; uniform within each of the two.
    HotCold {
        /// Share of the units that is hot.
        hot_units: f64,
        /// Share of the writes that go to the hot part.
        hot_writes: f64,
    },
}

/// Method of ageing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeingMethod {
    /// The state is drawn.
    Drawn,
    /// Real writes make the state.
    Written,
}

/// Options of ageing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AgeingOptions {
    /// The workload.
    pub workload: AgeingWorkload,
    /// Method of ageing.
    pub method: AgeingMethod,
    /// Share of the capacity that is written to, from its beginning; the rest stays as if trimmed.
    pub occupied: f64,
    /// Seed of the workload and of all draws.
    pub seed: u64,
}

impl Default for AgeingOptions {
    fn default() -> Self {
        AgeingOptions { workload: AgeingWorkload::Random, method: AgeingMethod::Drawn, occupied: 1.0, seed: 1 }
    }
}

/// Progress of ageing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AgeingProgress {
    /// The current stage.
    pub stage: AgeingStage,
    /// Units done in this stage, or in this round.
    pub done: u64,
    /// Total number of units.
    pub total: u64,
    /// Write amplification of the last round.
    pub write_amplification: Option<f64>,
}

/// Stages of ageing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeingStage {
    /// Writing everything once.
    Fill,
    /// Writing everything again.
    FillAgain,
    /// Drawing the state.
    Draw,
    /// A round of the workload, counted from 1.
    Round(u32),
}

impl fmt::Display for AgeingStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgeingStage::Fill => f.write_str("fill"),
            AgeingStage::FillAgain => f.write_str("fill again"),
            AgeingStage::Draw => f.write_str("draw"),
            AgeingStage::Round(round) => write!(f, "round {round}"),
        }
    }
}

/// Result of ageing.
#[derive(Clone, Debug, PartialEq)]
pub struct AgeingReport {
    /// Write amplification of each round.
    pub rounds: Vec<f64>,
    /// Whether the last five are steady; sequential writes always are.
    pub steady: bool,
    /// Write amplification over the last five rounds.
    pub write_amplification: f64,
    /// Write amplification of the fixed point, if the state was drawn from it.
    pub predicted_write_amplification: Option<f64>,
    /// Share of the units in superblocks with data that is valid.
    pub valid_share: f64,
}

/// Rounds that must be steady.
const WINDOW: usize = 5;

/// Most rounds for reaching the steady state; after them, ageing ends and reports it.
const ROUNDS_MOST: u32 = 100;

/// Units of a round, as a share of the occupied ones, after a draw and without one. From a drawn state only the mean
/// field's deviations must settle. Without a draw, a round must be long enough not to look steady on the way.
const DRAWN_ROUND: f64 = 0.005;
const WRITTEN_ROUND: f64 = 0.25;

/// Superblocks that the host fills in a round at least, so that chance doesn't make the rounds differ.
const ROUND_SUPERBLOCKS_LEAST: f64 = 64.0;

/// Units between two reports of progress.
const REPORT_UNITS: u64 = 1 << 20;

/// Called with the progress; may stop ageing.
pub(crate) type Report<'a> = dyn FnMut(AgeingProgress) -> ControlFlow<()> + 'a;

/// Ages an erased drive. `None` if `report` stopped it.
pub(crate) fn age(
    parameters: &Arc<FtlParameters>,
    options: &AgeingOptions,
    report: &mut Report<'_>,
) -> Option<(Ftl, AgeingReport)> {
    if let Some(zone) = parameters.zones() {
        return age_zones(parameters, zone, options, report);
    }
    let occupied = ((f64::from(parameters.logical_units) * options.occupied) as u32).clamp(1, parameters.logical_units);
    let mut random = RandomStream::new(options.seed, "ageing", "workload");
    let sequential = matches!(options.workload, AgeingWorkload::Sequential | AgeingWorkload::SequentialTwice);
    // The fixed point applies to a page map only.
    let drawn = options.method == AgeingMethod::Drawn && !sequential && parameters.logical_blocks().is_none();
    let (ftl, predicted) = if drawn {
        let (ftl, predicted) = draw(parameters, options.seed, occupied, report)?;
        (ftl, Some(predicted))
    } else {
        (fill(parameters, options.seed, occupied, report)?, None)
    };
    let mut drive = Untimed::new(ftl);
    let mut rounds = Vec::new();
    let mut steady = sequential;
    match options.workload {
        AgeingWorkload::Sequential => {}
        AgeingWorkload::SequentialTwice => {
            let mut units = 0..occupied;
            put_out_of_step(&mut drive, options.seed, &mut || units.next());
            fill_with(AgeingStage::FillAgain, &mut drive, units, report)?;
        }
        workload => put_out_of_step(&mut drive, options.seed, &mut || Some(next_unit(workload, occupied, &mut random))),
    }
    let least = f64::from(parameters.geometry.units_per_superblock()) * ROUND_SUPERBLOCKS_LEAST;
    let round_units = (f64::from(occupied) * if drawn { DRAWN_ROUND } else { WRITTEN_ROUND }).max(least) as u64;
    for number in 1..=ROUNDS_MOST {
        if steady {
            break;
        }
        let before = *drive.ftl().counters();
        let stage = AgeingStage::Round(number);
        in_pieces(stage, round_units, rounds.last().copied(), report, |count| {
            for _ in 0..count {
                drive.write(next_unit(options.workload, occupied, &mut random));
            }
        })?;
        rounds.push(drive.ftl().counters().since(&before).write_amplification());
        steady = is_steady(&rounds);
    }
    drive.settle();
    Some(finished(drive.into_ftl(), rounds, steady, predicted, options.seed))
}

/// Ages an erased zoned drive, in whole zones.
fn age_zones(
    parameters: &Arc<FtlParameters>,
    zone: ZoneParameters,
    options: &AgeingOptions,
    report: &mut Report<'_>,
) -> Option<(Ftl, AgeingReport)> {
    let all = parameters.logical_units / zone.size_units;
    let occupied = ((f64::from(all) * options.occupied) as u32).clamp(1, all);
    let mut random = RandomStream::new(options.seed, "ageing", "workload");
    let mut drive = Untimed::new(Ftl::new(Arc::clone(parameters), options.seed));
    rewrite_zones(AgeingStage::Fill, &mut drive, zone, 0..occupied, report)?;
    let (mut rounds, mut steady) = (Vec::new(), true);
    match options.workload {
        AgeingWorkload::Sequential => {}
        AgeingWorkload::SequentialTwice => {
            rewrite_zones(AgeingStage::FillAgain, &mut drive, zone, 0..occupied, report)?;
        }
        workload => {
            let count = (f64::from(occupied) * WRITTEN_ROUND).ceil() as usize;
            steady = false;
            for number in 1..=ROUNDS_MOST {
                if steady {
                    break;
                }
                let before = *drive.ftl().counters();
                let drawn: Vec<ZoneIndex> = (0..count).map(|_| next_unit(workload, occupied, &mut random)).collect();
                rewrite_zones(AgeingStage::Round(number), &mut drive, zone, drawn.into_iter(), report)?;
                rounds.push(drive.ftl().counters().since(&before).write_amplification());
                steady = is_steady(&rounds);
            }
        }
    }
    Some(finished(drive.into_ftl(), rounds, steady, None, options.seed))
}

/// Resets and writes these zones.
fn rewrite_zones(
    stage: AgeingStage,
    drive: &mut Untimed,
    zone: ZoneParameters,
    zones: impl ExactSizeIterator<Item = ZoneIndex>,
    report: &mut Report<'_>,
) -> Option<()> {
    let units = u64::from(zone.capacity_units);
    let total = zones.len() as u64 * units;
    for (done, number) in (0..).step_by(zone.capacity_units as usize).zip(zones) {
        if report(AgeingProgress { stage, done, total, write_amplification: None }).is_break() {
            return None;
        }
        drive.rewrite_zone(number);
    }
    Some(())
}

/// Result for an aged drive at rest.
fn finished(
    ftl: Ftl,
    rounds: Vec<f64>,
    steady: bool,
    predicted_write_amplification: Option<f64>,
    seed: u64,
) -> (Ftl, AgeingReport) {
    let last = &rounds[rounds.len().saturating_sub(WINDOW)..];
    let write_amplification = if last.is_empty() {
        ftl.counters().write_amplification()
    } else {
        last.iter().sum::<f64>() / last.len() as f64
    };
    let valid_share = valid_share(&ftl);
    let report = AgeingReport { rounds, steady, write_amplification, predicted_write_amplification, valid_share };
    // The drive is rebuilt, so that it equals one loaded from a saved state.
    let counts = Counts::by(&ftl);
    let ftl = Ftl::from_counted(Resting::of(ftl), counts, seed).expect("a drive at rest is consistent");
    (ftl, report)
}

/// Whether the last rounds are a steady state.
fn is_steady(rounds: &[f64]) -> bool {
    let Some(window) = rounds.len().checked_sub(WINDOW).map(|first| &rounds[first..]) else {
        return false;
    };
    let mean = window.iter().sum::<f64>() / WINDOW as f64;
    let range = window.iter().copied().fold(f64::MIN, f64::max) - window.iter().copied().fold(f64::MAX, f64::min);
    // The line of least squares through equally spaced points.
    let middle = (WINDOW - 1) as f64 / 2.0;
    let from_middle = || (0..WINDOW).map(|round| round as f64 - middle);
    let squares: f64 = from_middle().map(|distance| distance * distance).sum();
    let slope = from_middle().zip(window).map(|(distance, value)| distance * value).sum::<f64>() / squares;
    range <= 0.2 * mean && (slope * (WINDOW - 1) as f64).abs() <= 0.1 * mean
}

fn next_unit(workload: AgeingWorkload, occupied: u32, random: &mut RandomStream) -> Unit {
    let (first, count) = match workload {
        AgeingWorkload::Sequential | AgeingWorkload::SequentialTwice | AgeingWorkload::Random => (0, occupied),
        AgeingWorkload::HotCold { hot_units, hot_writes } => {
            let hot = ((f64::from(occupied) * hot_units) as u32).clamp(1, occupied);
            if hot == occupied || random.chance(hot_writes) { (0, hot) } else { (hot, occupied - hot) }
        }
    };
    first + random.below(u64::from(count)) as Unit
}

/// Processes `total` units in pieces, and reports each.
fn in_pieces(
    stage: AgeingStage,
    total: u64,
    write_amplification: Option<f64>,
    report: &mut Report<'_>,
    mut work: impl FnMut(u64),
) -> Option<()> {
    let mut done = 0;
    while done < total {
        if report(AgeingProgress { stage, done, total, write_amplification }).is_break() {
            return None;
        }
        let count = REPORT_UNITS.min(total - done);
        work(count);
        done += count;
    }
    Some(())
}

fn fill(parameters: &Arc<FtlParameters>, seed: u64, occupied: u32, report: &mut Report<'_>) -> Option<Ftl> {
    let mut drive = Untimed::new(Ftl::new(Arc::clone(parameters), seed));
    fill_with(AgeingStage::Fill, &mut drive, 0..occupied, report)?;
    Some(drive.into_ftl())
}

/// Writes some units in their order.
fn fill_with(stage: AgeingStage, drive: &mut Untimed, mut units: Range<Unit>, report: &mut Report<'_>) -> Option<()> {
    in_pieces(stage, units.len() as u64, None, report, |count| {
        units.by_ref().take(count as usize).for_each(|unit| drive.write(unit));
    })
}

/// Writes to each die a share of a superblock, drawn, where allocation leaves it free which units go there.
fn put_out_of_step(drive: &mut Untimed, seed: u64, next_unit: &mut dyn FnMut() -> Option<Unit>) {
    let parameters = drive.ftl().parameters();
    if parameters.allocation != Allocation::Dynamic {
        return;
    }
    let (superpages, units) =
        (parameters.geometry.superpages_per_superblock(), parameters.geometry.units_per_superpage());
    let mut random = RandomStream::new(seed, "ageing", "step");
    for die in 0..drive.ftl().dies() {
        for _ in 0..random.below(u64::from(superpages)) * u64::from(units) {
            let Some(unit) = next_unit() else { return };
            if !drive.write_on(die, unit) {
                break;
            }
        }
    }
}

/// A die whose slots are being assigned to units.
struct DrawnDie {
    /// Valid units of the superblocks that are still to be given, the next one last.
    counts: Vec<u32>,
    /// Next slot, and the remaining slots and valid units of its superblock.
    slot: u32,
    slots_left: u32,
    valid_left: u32,
}

/// Draws the state after long uniform random writes. Also returns the fixed point's write amplification.
fn draw(parameters: &Arc<FtlParameters>, seed: u64, occupied: u32, report: &mut Report<'_>) -> Option<(Ftl, f64)> {
    let geometry = &parameters.geometry;
    let units_per_superblock = geometry.units_per_superblock();
    let mut random = RandomStream::new(seed, "ageing", "draw");
    let mut blocks = vec![RestingBlock::FREE; geometry.superblocks() as usize];
    let mut valid_by_superblock = vec![0; blocks.len()];
    let mut predicted = 0.0;
    let mut points = FixedPoints { parameters, known: Vec::new() };
    let translation_units = parameters.translation_units();
    let mut dies = Vec::with_capacity(geometry.dies() as usize);
    for (die, valid) in (0..).zip(units_by_die(parameters, occupied)) {
        let superblocks = superblocks_with_data(parameters, valid);
        let point = points.of(superblocks, valid);
        predicted += point.write_amplification() / f64::from(geometry.dies());
        let counts = point.draw(superblocks, u64::from(valid));
        // The fewer are valid, the longer ago it was written; where in the die that is doesn't matter.
        let mut places: Vec<u32> = (0..superblocks).collect();
        for place in (1..places.len()).rev() {
            places.swap(place, random.below(place as u64 + 1) as usize);
        }
        let first = die * geometry.blocks_per_plane + parameters.slc_superblocks();
        let mut by_place = vec![0; superblocks as usize];
        for ((&count, &place), closing) in counts.iter().zip(&places).zip(1..) {
            blocks[(first + place) as usize] = RestingBlock { state: BlockUse::Closed, closing, ..RestingBlock::FREE };
            by_place[place as usize] = count;
            valid_by_superblock[(first + place) as usize] = count;
        }
        by_place.reverse();
        let slot = geometry.first_slot(first);
        dies.push(DrawnDie { counts: by_place, slot, slots_left: 0, valid_left: 0 });
    }
    let mut map = FlatTable::new_in_large_pages(u64::from(parameters.addressed_units()));
    let mut reverse = Reverse::new_in_large_pages(parameters);
    let total = occupied + translation_units;
    let permutation = Permutation::new(total, &mut random);
    let mut places = 0..total;
    let mut next_die = dies.len() - 1;
    in_pieces(AgeingStage::Draw, u64::from(total), None, report, |count| {
        let map = map.own().expect("nobody else knows it yet");
        let (entry, reverse) = reverse.own().expect("nobody else knows it yet");
        for place in places.by_ref().take(count as usize) {
            let number = permutation.at(place);
            // The translation units come after all of the host's.
            let unit = if number < occupied { number } else { number - occupied + parameters.logical_units };
            let slot = match parameters.bound_die(unit) {
                Some(die) => dies[die as usize].next_slot(units_per_superblock, &mut random),
                None => loop {
                    next_die = (next_die + 1) % dies.len();
                    if let Some(slot) = dies[next_die].next_slot(units_per_superblock, &mut random) {
                        break Some(slot);
                    }
                },
            };
            let slot = slot.expect("each die has a slot for each of its units");
            map[unit as usize] = (slot + 1).to_le_bytes();
            entry.put(reverse, slot, unit);
        }
    })?;
    let resting = Resting {
        parameters: Arc::clone(parameters),
        map,
        reverse,
        blocks,
        frontiers: vec![Default::default(); geometry.dies() as usize],
        counters: Default::default(),
        zones: None,
    };
    let translation = parameters.logical_units..parameters.addressed_units();
    let counts = Counts::of_mapped([0..occupied, translation], parameters.addressed_units(), valid_by_superblock);
    Some((Ftl::from_counted(resting, counts, seed).expect("the draw is consistent"), predicted))
}

/// Fixed points by superblocks with data and valid units; few dies differ in them.
struct FixedPoints<'a> {
    parameters: &'a FtlParameters,
    known: Vec<(u32, u32, FixedPoint)>,
}

impl FixedPoints<'_> {
    fn of(&mut self, superblocks: u32, valid: u32) -> &FixedPoint {
        let known = self.known.iter().position(|point| (point.0, point.1) == (superblocks, valid));
        let known = known.unwrap_or_else(|| {
            let units_per_superblock = self.parameters.geometry.units_per_superblock();
            let share = f64::from(valid) / (f64::from(superblocks) * f64::from(units_per_superblock));
            let share = share.clamp(1e-6, 1.0 - 1e-6);
            let point = FixedPoint::new(self.parameters.collector.policy, units_per_superblock, share);
            self.known.push((superblocks, valid, point));
            self.known.len() - 1
        });
        &self.known[known].2
    }
}

impl DrawnDie {
    /// The next slot that is to be valid: of the slots left in a superblock each is as likely as any other.
    #[inline]
    fn next_slot(&mut self, units_per_superblock: u32, random: &mut RandomStream) -> Option<u32> {
        while self.valid_left == 0 {
            self.slot += self.slots_left;
            self.slots_left = units_per_superblock;
            self.valid_left = self.counts.pop()?;
        }
        loop {
            let slot = self.slot;
            // Uniform with an error below 10^-12, and cheaper than the exact method.
            let drawn = (((random.next_u64() >> 32) * u64::from(self.slots_left)) >> 32) as u32;
            self.slot += 1;
            self.slots_left -= 1;
            if drawn < self.valid_left {
                self.valid_left -= 1;
                return Some(slot);
            }
        }
    }
}

/// Units on each die: where allocation binds them, or evenly.
fn units_by_die(parameters: &FtlParameters, occupied: u32) -> Vec<u32> {
    let dies = parameters.geometry.dies();
    let evenly = |units: u32| (0..dies).map(move |die| units / dies + u32::from(die < units % dies));
    if parameters.bound_die(0).is_none() {
        return evenly(occupied + parameters.translation_units()).collect();
    }
    let mut units: Vec<u32> = evenly(parameters.translation_units()).collect();
    let per_page = parameters.geometry.units_per_page();
    for first in (0..occupied).step_by(per_page as usize) {
        let die = parameters.bound_die(first).expect("allocation is static");
        units[die as usize] += per_page.min(occupied - first);
    }
    units
}

/// Superblocks of a die that share its valid units: all except the collector's reserve and half of the open ones; more
/// if these are too few.
fn superblocks_with_data(parameters: &FtlParameters, valid: u32) -> u32 {
    let blocks = parameters.geometry.blocks_per_plane - parameters.slc_superblocks();
    let kept_free = parameters.collector.start_below + 1;
    let least = valid / parameters.geometry.units_per_superblock() + 1;
    blocks.saturating_sub(kept_free).max(least).min(blocks - 2)
}

/// Valid share of the superblocks that are not free.
fn valid_share(ftl: &Ftl) -> f64 {
    let (mut valid, mut superblocks) = (0u64, 0u64);
    for die in 0..ftl.dies() {
        valid += u64::from(ftl.valid_units(die));
        let free = ftl.free_superblocks(die) + ftl.free_slc_superblocks(die);
        superblocks += u64::from(ftl.parameters().geometry.blocks_per_plane - free);
    }
    valid as f64 / (superblocks * u64::from(ftl.parameters().geometry.units_per_superblock())).max(1) as f64
}
