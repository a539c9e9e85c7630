//! The superblocks that may be collected, arranged as the policy needs them.

use chronodisk_sim::RandomStream;

use super::super::geometry::DieIndex;
use super::blocks::{Blocks, Field, SuperblockIndex};
use super::parameters::{FtlParameters, VictimPolicy};
use crate::flat_table::FlatTable;
use crate::footprint;

/// The candidates of each die: closed superblocks whose programs have all ended.
///
/// | policy | arrangement | cost of an overwrite | cost of a choice |
/// |---|---|---|---|
/// | greedy | a list for each number of valid units | moves one superblock between lists | the first list in use |
/// | FIFO | one list in order of closing | none | the first with anything to win |
/// | cost-benefit | an array | none | all candidates |
/// | choices | an array | none | the number of choices |
#[derive(Clone, Debug)]
pub(super) struct Victims {
    policy: VictimPolicy,
    units_per_superblock: u32,
    blocks_per_die: u32,
    /// Lists: first and last superblock of each, plus one. Array: the candidates.
    places: FlatTable,
    dies: Vec<DieVictims>,
    random: RandomStream,
}

#[derive(Clone, Copy, Debug, Default)]
struct DieVictims {
    candidates: u32,
    /// No list before this one is in use.
    first_list: u32,
}

/// Random draws without a gain after which all candidates are examined.
const DRAWS_MOST: u32 = 4;

impl Victims {
    /// The candidates among ordinary superblocks; none yet.
    pub(super) fn of(parameters: &FtlParameters, seed: u64) -> Self {
        Victims::new(parameters.collector.policy, parameters, RandomStream::new(seed, "ssd", "victims"))
    }

    /// The candidates in the SLC pool, none yet; `None` without that pool. Each of them has something to gain.
    pub(super) fn of_slc(parameters: &FtlParameters) -> Option<Self> {
        let none = RandomStream::new(0, "ssd", "no victims by chance");
        parameters.slc_cache.map(|_| Victims::new(VictimPolicy::Fifo, parameters, none))
    }

    fn new(policy: VictimPolicy, parameters: &FtlParameters, random: RandomStream) -> Self {
        let geometry = &parameters.geometry;
        let (dies, blocks_per_die, units) =
            (geometry.dies(), geometry.blocks_per_plane, geometry.units_per_superblock());
        let per_die = match policy {
            VictimPolicy::Greedy => 2 * (units + 1),
            VictimPolicy::Fifo => 2,
            VictimPolicy::CostBenefit | VictimPolicy::Choices(_) => blocks_per_die,
        };
        Victims {
            policy,
            units_per_superblock: units,
            blocks_per_die,
            places: FlatTable::new(u64::from(dies) * u64::from(per_die)),
            dies: vec![DieVictims::default(); dies as usize],
            random,
        }
    }

    /// Most memory for the candidates of a drive, including those in an SLC pool, for any policy.
    pub(super) fn bytes_max(parameters: &FtlParameters) -> u64 {
        let geometry = &parameters.geometry;
        let per_die = u64::from(geometry.blocks_per_plane).max(2 * (u64::from(geometry.units_per_superblock()) + 1));
        let dies = u64::from(geometry.dies());
        let each = FlatTable::bytes(dies * per_die).saturating_add(footprint::array_bytes::<DieVictims>(dies));
        each.saturating_mul(1 + u64::from(parameters.slc_cache.is_some()))
    }

    /// Candidates of a die.
    pub(super) fn candidates(&self, die: DieIndex) -> u32 {
        self.dies[die as usize].candidates
    }

    /// Adds a candidate.
    pub(super) fn add(&mut self, blocks: &mut Blocks, die: DieIndex, superblock: SuperblockIndex) {
        match self.policy {
            VictimPolicy::Greedy | VictimPolicy::Fifo => {
                let list = self.list_of(blocks.get(superblock, Field::Valid));
                self.append(blocks, die, list, superblock);
            }
            VictimPolicy::CostBenefit | VictimPolicy::Choices(_) => {
                let place = self.dies[die as usize].candidates;
                self.places.set(die * self.blocks_per_die + place, superblock);
                blocks.set(superblock, Field::Place, place);
            }
        }
        self.dies[die as usize].candidates += 1;
    }

    /// Removes a candidate.
    pub(super) fn remove(&mut self, blocks: &mut Blocks, die: DieIndex, superblock: SuperblockIndex) {
        self.dies[die as usize].candidates -= 1;
        match self.policy {
            VictimPolicy::Greedy | VictimPolicy::Fifo => {
                let list = self.list_of(blocks.get(superblock, Field::Valid));
                self.unlink(blocks, die, list, superblock);
            }
            VictimPolicy::CostBenefit | VictimPolicy::Choices(_) => {
                let place = blocks.get(superblock, Field::Place);
                let last = self.places.get(die * self.blocks_per_die + self.dies[die as usize].candidates);
                self.places.set(die * self.blocks_per_die + place, last);
                blocks.set(last, Field::Place, place);
            }
        }
    }

    /// Notes that a candidate has one valid unit less.
    #[inline]
    pub(super) fn invalidated(&mut self, blocks: &mut Blocks, die: DieIndex, superblock: SuperblockIndex) {
        let valid = blocks.get(superblock, Field::Valid);
        blocks.set(superblock, Field::Valid, valid - 1);
        if self.policy == VictimPolicy::Greedy {
            self.unlink(blocks, die, valid, superblock);
            self.append(blocks, die, valid - 1, superblock);
        }
    }

    /// The superblock to collect, if collecting wins anything; it stays a candidate.
    pub(super) fn choose(&mut self, blocks: &mut Blocks, die: DieIndex) -> Option<SuperblockIndex> {
        if self.candidates(die) == 0 {
            return None;
        }
        let full = self.units_per_superblock;
        let chosen = match self.policy {
            VictimPolicy::Greedy => self.first_of_lists(die),
            VictimPolicy::Fifo => self.oldest(blocks, die),
            VictimPolicy::CostBenefit => self.best(die, |superblock| cost_benefit(blocks, die, superblock, full)),
            VictimPolicy::Choices(choices) => self.draw(blocks, die, choices),
        };
        chosen.filter(|&superblock| blocks.get(superblock, Field::Valid) < full)
    }

    /// The candidate with the fewest valid units of several drawn with replacement; of all, if that keeps failing.
    fn draw(&mut self, blocks: &Blocks, die: DieIndex, choices: u32) -> Option<SuperblockIndex> {
        let first = die * self.blocks_per_die;
        let candidates = u64::from(self.candidates(die));
        for _ in 0..DRAWS_MOST {
            let drawn = (0..choices).map(|_| self.places.get(first + self.random.below(candidates) as u32));
            let chosen = drawn.min_by_key(|&superblock| blocks.get(superblock, Field::Valid))?;
            if blocks.get(chosen, Field::Valid) < self.units_per_superblock {
                return Some(chosen);
            }
        }
        self.best(die, |superblock| std::cmp::Reverse(blocks.get(superblock, Field::Valid)))
    }

    /// The candidate with the largest score; of equals the one with the smallest number.
    fn best<S: Ord>(&self, die: DieIndex, score: impl Fn(SuperblockIndex) -> S) -> Option<SuperblockIndex> {
        let first = die * self.blocks_per_die;
        let all = (first..first + self.candidates(die)).map(|place| self.places.get(place));
        all.max_by_key(|&superblock| (score(superblock), std::cmp::Reverse(superblock)))
    }

    /// The first superblock of the first list in use.
    fn first_of_lists(&mut self, die: DieIndex) -> Option<SuperblockIndex> {
        loop {
            let list = self.dies[die as usize].first_list;
            if list > self.units_per_superblock {
                return None;
            }
            match self.places.get(self.head(die, list)) {
                0 => self.dies[die as usize].first_list += 1,
                superblock => return Some(superblock - 1),
            }
        }
    }

    /// The candidate closed first; candidates without a gain move to the end, as if closed now.
    fn oldest(&mut self, blocks: &mut Blocks, die: DieIndex) -> Option<SuperblockIndex> {
        for _ in 0..self.candidates(die) {
            let superblock = self.places.get(self.head(die, 0)).checked_sub(1)?;
            if blocks.get(superblock, Field::Valid) < self.units_per_superblock {
                return Some(superblock);
            }
            self.unlink(blocks, die, 0, superblock);
            self.append(blocks, die, 0, superblock);
        }
        None
    }

    fn list_of(&self, valid: u32) -> u32 {
        if self.policy == VictimPolicy::Greedy { valid } else { 0 }
    }

    /// Index of the first superblock of a list; the last one is stored after it.
    fn head(&self, die: DieIndex, list: u32) -> u32 {
        let lists = if self.policy == VictimPolicy::Greedy { self.units_per_superblock + 1 } else { 1 };
        2 * (die * lists + list)
    }

    fn append(&mut self, blocks: &mut Blocks, die: DieIndex, list: u32, superblock: SuperblockIndex) {
        let head = self.head(die, list);
        let last = self.places.get(head + 1);
        match last.checked_sub(1) {
            Some(last) => blocks.set(last, Field::Next, superblock + 1),
            None => self.places.set(head, superblock + 1),
        }
        self.places.set(head + 1, superblock + 1);
        blocks.set(superblock, Field::Previous, last);
        blocks.set(superblock, Field::Next, 0);
        let first = &mut self.dies[die as usize].first_list;
        *first = (*first).min(list);
    }

    fn unlink(&mut self, blocks: &mut Blocks, die: DieIndex, list: u32, superblock: SuperblockIndex) {
        let head = self.head(die, list);
        let (previous, next) = (blocks.get(superblock, Field::Previous), blocks.get(superblock, Field::Next));
        match previous.checked_sub(1) {
            Some(previous) => blocks.set(previous, Field::Next, next),
            None => self.places.set(head, next),
        }
        match next.checked_sub(1) {
            Some(next) => blocks.set(next, Field::Previous, previous),
            None => self.places.set(head + 1, previous),
        }
    }
}

/// (1 - u) / 2u · age in 1/65536, fine enough to rank by.
fn cost_benefit(blocks: &Blocks, die: DieIndex, superblock: SuperblockIndex, full: u32) -> u64 {
    let valid = u64::from(blocks.get(superblock, Field::Valid));
    let age = u64::from(blocks.age(die, superblock));
    if valid == 0 { u64::MAX } else { (((u64::from(full) - valid) * age) << 16) / (2 * valid) }
}
