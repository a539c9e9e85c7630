//! Winning space back, and levelling wear.

use super::super::geometry::{DieIndex, Slot};
use super::blocks::{BlockUse, Field, SuperblockIndex};
use super::collection::{Collection, CollectionReason, Move, Urgency};
use super::log_blocks::Merge;
use super::{Appended, COLLECTOR_RESERVE, Ftl, Stream};

/// The superblock of a die that is being collected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Victim {
    superblock: SuperblockIndex,
    /// Units examined so far.
    passed: u32,
    reason: CollectionReason,
    /// The logical block to merge, if this is a merge; the superblock is then the log that requires it.
    pub(super) merge: Option<Merge>,
}

impl Victim {
    /// A superblock without valid units.
    pub(super) fn to_erase(superblock: SuperblockIndex) -> Self {
        Victim { superblock, passed: 0, reason: CollectionReason::Space, merge: None }
    }
}

/// A die's search for superblocks whose data don't change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LevellingSearch {
    /// The next superblock of the die to be examined, among those with all bits per cell.
    cursor: u32,
    found: Option<SuperblockIndex>,
}

/// Superblocks examined per erase: a pass over a die takes an eighth of its superblocks in erases.
const LOOKED_AT_PER_ERASE: u32 = 8;

impl Ftl {
    /// Urgency of a collection on a die, including one in progress.
    pub(crate) fn urgency(&self, die: DieIndex) -> Urgency {
        if self.has_zones() {
            return self.urgency_of_erases(die);
        }
        let collector = &self.parameters.collector;
        let free = self.spare_superblocks(die);
        if free < collector.start_below {
            let urgent = !collector.preemptible || free < collector.urgent_below || free <= COLLECTOR_RESERVE;
            return if urgent { Urgency::Urgent } else { Urgency::Background };
        }
        let state = &self.dies[die as usize];
        let cold = state.levelling.found.is_some_and(|found| self.blocks.is_candidate(found));
        let wanted = state.victim.is_some() || cold || self.can_empty_cache(die);
        if wanted { Urgency::Background } else { Urgency::None }
    }

    /// Returns whether an SLC superblock should and can be emptied. Its data may need a free superblock of the other
    /// pool, which must leave the collector's reserve.
    fn can_empty_cache(&self, die: DieIndex) -> bool {
        let (Some(cache), Some(victims)) = (self.parameters.slc_cache, &self.slc_victims) else { return false };
        self.free_slc_superblocks(die) < cache.empty_below
            && victims.candidates(die) > 0
            && self.blocks.free(die) > COLLECTOR_RESERVE
    }

    /// Chooses a superblock of a die and begins to collect it. `None` if a collection is in progress there, or would
    /// gain no space.
    pub(crate) fn start_collection(&mut self, die: DieIndex) -> Option<Collection> {
        if self.dies[die as usize].victim.is_some() {
            return None;
        }
        if self.has_zones() {
            return self.start_erase(die);
        }
        if self.logs.is_some() {
            return self.start_for_logs(die);
        }
        let (superblock, reason) = match self.take_levelling(die) {
            Some(superblock) => (superblock, CollectionReason::Wear),
            None => self.choose_victim(die)?,
        };
        match (&mut self.slc_victims, reason) {
            (Some(victims), CollectionReason::Cache) => victims.remove(&mut self.blocks, die, superblock),
            _ => self.victims.remove(&mut self.blocks, die, superblock),
        }
        self.blocks.set_use(superblock, BlockUse::Victim);
        self.dies[die as usize].victim = Some(Victim { superblock, passed: 0, reason, merge: None });
        match reason {
            CollectionReason::Space => self.counters.collections += 1,
            CollectionReason::Wear => self.counters.levellings += 1,
            CollectionReason::Cache => self.counters.emptyings += 1,
            CollectionReason::Merge => unreachable!("logs are merged elsewhere"),
        }
        Some(Collection { superblock, valid: self.blocks.get(superblock, Field::Valid), reason })
    }

    /// With a block map: erases a superblock without valid data, or merges the logical block of the oldest log.
    fn start_for_logs(&mut self, die: DieIndex) -> Option<Collection> {
        let emptiest = self.victims.choose(&mut self.blocks, die);
        let victim = match emptiest.filter(|&superblock| self.blocks.get(superblock, Field::Valid) == 0) {
            Some(superblock) => {
                self.victims.remove(&mut self.blocks, die, superblock);
                self.blocks.set_use(superblock, BlockUse::Victim);
                self.counters.collections += 1;
                Victim::to_erase(superblock)
            }
            None => {
                let (superblock, logical) = self.choose_merge(die)?;
                let merge = self.begin_merge(die, superblock, logical);
                Victim { superblock, passed: 0, reason: CollectionReason::Merge, merge: Some(merge) }
            }
        };
        self.dies[die as usize].victim = Some(victim);
        let Victim { superblock, reason, .. } = victim;
        Some(Collection { superblock, valid: self.blocks.get(superblock, Field::Valid), reason })
    }

    /// Chooses a victim to gain room. If superblocks with all their bits are short, one of these comes first.
    fn choose_victim(&mut self, die: DieIndex) -> Option<(SuperblockIndex, CollectionReason)> {
        let short = self.blocks.free(die) < self.parameters.collector.start_below;
        let empty = self.can_empty_cache(die);
        if (short || !empty)
            && let Some(superblock) = self.victims.choose(&mut self.blocks, die)
        {
            return Some((superblock, CollectionReason::Space));
        }
        let victims = self.slc_victims.as_mut().filter(|_| empty)?;
        victims.choose(&mut self.blocks, die).map(|superblock| (superblock, CollectionReason::Cache))
    }

    /// The superblock being collected on a die.
    pub(crate) fn victim(&self, die: DieIndex) -> Option<SuperblockIndex> {
        self.dies[die as usize].victim.map(|victim| victim.superblock)
    }

    /// Appends to `moves` the next valid units of the die's victim, at most `most`, in the order of their slots. If
    /// there are fewer, these were the last: once all are relocated, the victim can be erased.
    ///
    /// # Panics
    /// If no collection is in progress on the die.
    pub(crate) fn next_moves(&mut self, die: DieIndex, most: usize, moves: &mut Vec<Move>) -> usize {
        let mut victim = self.dies[die as usize].victim.expect("a superblock is being collected");
        if let Some(merge) = &mut victim.merge {
            let found = self.next_of_merge(merge, most, moves);
            self.dies[die as usize].victim = Some(victim);
            return found;
        }
        if self.has_zones() {
            return 0;
        }
        let first = victim.superblock * self.sizes.units_per_superblock;
        let in_use = match victim.reason {
            CollectionReason::Cache => self.sizes.slc_units_per_superblock,
            CollectionReason::Space | CollectionReason::Wear | CollectionReason::Merge => {
                self.sizes.units_per_superblock
            }
        };
        let (mut passed, mut found) = (victim.passed, 0);
        while passed < in_use && found < most {
            // The number of slots bounds the number of valid units.
            let slots = (in_use - passed).min((most - found).min(u32::MAX as usize) as u32);
            found += self.valid_among(first + passed..first + passed + slots, moves);
            passed += slots;
        }
        self.dies[die as usize].victim = Some(Victim { passed, ..victim });
        found
    }

    /// Appends the valid units of some slots to `moves`, and returns their number.
    fn valid_among(&self, slots: std::ops::Range<Slot>, moves: &mut Vec<Move>) -> usize {
        let begin = moves.len();
        moves.resize(begin + slots.len(), Move { unit: 0, from: 0 });
        let mut end = begin;
        // Without a branch per slot, many look-ups are sent to memory at once.
        for from in slots {
            let (unit, valid) = self.reverse.look(&self.map, from);
            moves[end] = Move { unit, from };
            end += usize::from(valid);
        }
        moves.truncate(end);
        end - begin
    }

    /// Appends a unit that was read from the die's victim; `None` if it was overwritten or trimmed meanwhile.
    /// # Panics
    /// If no collection is in progress on the die.
    pub(crate) fn relocate(&mut self, die: DieIndex, unit_move: Move) -> Option<Appended> {
        let victim = self.dies[die as usize].victim.expect("a superblock is being collected");
        if self.lookup(unit_move.unit) != Some(unit_move.from) {
            return None;
        }
        let stream = match victim.reason {
            CollectionReason::Space | CollectionReason::Merge => Stream::Collector,
            CollectionReason::Wear => Stream::Levelling,
            CollectionReason::Cache => Stream::Emptying,
        };
        let appended = self.append(stream, die, unit_move.unit);
        self.mapping_changed(unit_move.unit);
        let appended = appended.expect("a victim holds no more than the frontier and the reserve take");
        if let Some(Victim { merge: Some(merge), .. }) = &mut self.dies[die as usize].victim {
            merge.wrote(appended.slot / self.sizes.units_per_superblock);
        }
        Some(appended)
    }

    /// Called after the die's victim was erased.
    ///
    /// # Panics
    /// If no collection is in progress on the die, or a unit in the victim is still valid.
    pub(crate) fn erased(&mut self, die: DieIndex) {
        let victim = self.dies[die as usize].victim.take().expect("a superblock is being collected");
        let superblock = victim.superblock;
        assert_eq!(self.blocks.get(superblock, Field::Valid), 0, "superblock {superblock} holds valid units");
        let erases = self.blocks.get(superblock, Field::Erases);
        self.blocks.set(superblock, Field::Erases, erases + 1);
        let pool = self.blocks.pools().of(die, superblock);
        self.blocks.put_free(pool, superblock, self.parameters.wear.dynamic);
        self.counters.erases += 1;
        if let Some(logs) = &mut self.logs {
            logs.erased(die, superblock);
        }
        self.look_for_cold(die);
    }

    /// The superblock for wear levelling, if it is still suitable and there is spare space.
    fn take_levelling(&mut self, die: DieIndex) -> Option<SuperblockIndex> {
        if self.blocks.free(die) <= COLLECTOR_RESERVE + 1 {
            return None;
        }
        let found = self.dies[die as usize].levelling.found.take()?;
        self.blocks.is_candidate(found).then_some(found)
    }

    /// Looks at some more superblocks of a die for one that was erased much less than another.
    fn look_for_cold(&mut self, die: DieIndex) {
        let Some(difference) = self.parameters.wear.move_at_difference else {
            return;
        };
        let most = self.blocks.most_erases(die);
        let mut search = self.dies[die as usize].levelling;
        let first = die * self.sizes.blocks_per_die + self.sizes.slc_superblocks;
        for _ in 0..LOOKED_AT_PER_ERASE {
            let superblock = first + search.cursor;
            search.cursor = (search.cursor + 1) % (self.sizes.blocks_per_die - self.sizes.slc_superblocks);
            let erases = self.blocks.get(superblock, Field::Erases);
            if self.blocks.is_candidate(superblock) && most - erases >= difference {
                search.found = Some(superblock);
            }
        }
        self.dies[die as usize].levelling = search;
    }
}
