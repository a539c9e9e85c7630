//! The collector's work in time: the translation layer chooses the units to move, and the flash takes its time.
//!
//! Units move a superpage at a time: they are read row by row, appended, and programmed when a superpage is complete.
//! While two programs of the collector are in progress in a die, it reads no more there. Moving units stay in the
//! controller's memory, readable, until their program has ended. The victim is erased when its last unit has been
//! appended elsewhere. A loss of power in between is not modelled.

//! The collector knows its own state and the translation layer. The drive reads, programs and erases for it:
//!
//! ```text
//!  advance ──► Read ──► rows, reads_begun ──► (reads) ──► read_done ──► relocate ──► (programs) ──► program_done
//!     │                                                                                                  │
//!     ├──────► Erase ──► (erase) ──► erase_done                               advance after each ◄───────┘
//!     └──────► Merged ──► (program) ──► advance
//! ```

use std::sync::Arc;

use super::ftl::{CollectionReason, Ftl, Move, Superpage, Urgency};
use super::geometry::{DieIndex, Geometry, Slot};
use super::pool::NONE;
use super::records::{RowRead, Rows};
use crate::footprint;

/// The collector of a drive.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    geometry: Geometry,
    dies: Vec<Collecting>,
    /// By die: the units being moved, at most a superpage.
    moves: Arc<Vec<Move>>,
    /// Reused, so that it is allocated once.
    found: Vec<Move>,
    /// Valid units of the superblocks that were collected for space.
    collected_valid: u64,
}

/// Next work of a die's collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// No work until an event.
    Wait,
    /// The rows of the die's batch are to be read.
    Read,
    /// The victim is to be erased.
    Erase,
    /// A logical block is written completely. Its last superpage is to be programmed, then the collection continues:
    /// the superblocks that the block replaces are collected next.
    Merged(Option<Superpage>),
}

/// State of a die's collection.
#[derive(Clone, Copy, Debug)]
struct Collecting {
    stage: Stage,
    /// Read commands that have not ended.
    reads: u32,
    /// Units of the batch that were read, or are being read, and those that have been moved or dropped.
    batch: u32,
    moved: u32,
    /// Programs that have not ended.
    programs: u32,
    /// First slots of superpages whose data are in the controller's memory.
    in_memory: [Slot; MOST_IN_MEMORY],
    in_memory_len: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No collection is in progress.
    None,
    /// Further units may have to be moved.
    Moving,
    /// All units have been read.
    LastMoves,
    /// The victim is being erased.
    Erasing,
}

/// Two that are being programmed and the begun ones of the three streams; moves of one batch may complete one more.
const MOST_IN_MEMORY: usize = 8;

const MOST_PROGRAMS: u32 = 2;

impl Collector {
    pub(super) fn new(geometry: &Geometry) -> Self {
        let dies = geometry.dies() as usize;
        let moves = vec![Move { unit: 0, from: 0 }; dies * geometry.units_per_superpage() as usize];
        Collector {
            geometry: *geometry,
            dies: vec![Collecting::IDLE; dies],
            moves: Arc::new(moves),
            found: Vec::new(),
            collected_valid: 0,
        }
    }

    /// Most memory of a collector.
    pub(super) fn bytes_max(geometry: &Geometry) -> u64 {
        let dies = u64::from(geometry.dies());
        let moves = dies.saturating_mul(geometry.units_per_superpage().into());
        footprint::sum([footprint::array_bytes::<Move>(moves), dies.saturating_mul(size_of::<Collecting>() as u64)])
    }

    /// Valid units of the superblocks that were collected for space.
    pub(super) fn collected_valid(&self) -> u64 {
        self.collected_valid
    }

    /// Whether a slot's data are in the controller's memory because they were moved.
    #[inline]
    pub(super) fn is_moving(&self, slot: Slot) -> bool {
        let geometry = &self.geometry;
        let die = geometry.die_of_superblock(geometry.superblock_of(slot));
        let state = &self.dies[die as usize];
        state.in_memory[..state.in_memory_len as usize].contains(&(slot - slot % geometry.units_per_superpage()))
    }

    /// Continues a die's collection, or begins one if the translation layer asks for it.
    pub(super) fn advance(&mut self, die: DieIndex, urgency: Urgency, ftl: &mut Ftl) -> Step {
        let state = &mut self.dies[die as usize];
        if state.stage == Stage::None {
            if urgency == Urgency::None {
                return Step::Wait;
            }
            if ftl.victim(die).is_none() {
                let Some(collection) = ftl.start_collection(die) else { return Step::Wait };
                if collection.reason == CollectionReason::Space {
                    self.collected_valid += u64::from(collection.valid);
                }
            }
            state.stage = Stage::Moving;
        }
        if state.reads > 0 || state.programs >= MOST_PROGRAMS {
            return Step::Wait;
        }
        let stage = state.stage;
        match stage {
            Stage::None | Stage::Erasing => Step::Wait,
            Stage::Moving if self.choose_batch(die, ftl) => Step::Read,
            Stage::Moving | Stage::LastMoves => self.end_moves(die, ftl),
        }
    }

    /// Chooses the next units to move. Returns whether there are any.
    fn choose_batch(&mut self, die: DieIndex, ftl: &mut Ftl) -> bool {
        let most = self.geometry.units_per_superpage() as usize;
        self.found.clear();
        let found = ftl.next_moves(die, most, &mut self.found);
        let begin = die as usize * most;
        Arc::make_mut(&mut self.moves)[begin..begin + found].copy_from_slice(&self.found);
        let state = &mut self.dies[die as usize];
        if found < most {
            state.stage = Stage::LastMoves;
        }
        (state.batch, state.moved) = (found as u32, 0);
        found > 0
    }

    /// Handles the end of a victim's moves: all its valid units are appended elsewhere.
    fn end_moves(&mut self, die: DieIndex, ftl: &mut Ftl) -> Step {
        let state = &mut self.dies[die as usize];
        if !ftl.is_merging(die) {
            state.stage = Stage::Erasing;
            return Step::Erase;
        }
        let completed = ftl.end_merge(die);
        state.stage = Stage::None;
        state.programs += u32::from(completed.is_some());
        Step::Merged(completed)
    }

    /// The rows that hold the units of the die's batch.
    pub(super) fn rows(&self, die: DieIndex) -> impl Iterator<Item = RowRead> {
        let begin = die as usize * self.geometry.units_per_superpage() as usize;
        let batch = &self.moves[begin..begin + self.dies[die as usize].batch as usize];
        let mut reads = batch.iter().map(|unit| RowRead::of(unit.from, &self.geometry, self.geometry.unit_bytes));
        let mut rows = Rows::default();
        std::iter::from_fn(move || reads.find_map(|read| rows.add(read)).or_else(|| rows.take()))
    }

    /// Read commands of the die's batch have begun.
    pub(super) fn reads_begun(&mut self, die: DieIndex, reads: u32) {
        self.dies[die as usize].reads += reads;
    }

    /// A read command of the die's batch has ended. Returns whether it was the last one.
    pub(super) fn read_done(&mut self, die: DieIndex) -> bool {
        let reads = &mut self.dies[die as usize].reads;
        *reads -= 1;
        *reads == 0
    }

    /// Moves units of a batch that has been read, until they fill a superpage, which is to be programmed. `None` once
    /// the batch is empty.
    pub(super) fn relocate(&mut self, die: DieIndex, ftl: &mut Ftl) -> Option<Superpage> {
        let per_superpage = self.geometry.units_per_superpage();
        let state = &mut self.dies[die as usize];
        while state.moved < state.batch {
            let unit = self.moves[(die * per_superpage + state.moved) as usize];
            state.moved += 1;
            let Some(appended) = ftl.relocate(die, unit) else { continue };
            state.keep(appended.slot - appended.slot % per_superpage);
            if appended.completed.is_some() {
                state.programs += 1;
                return appended.completed;
            }
        }
        None
    }

    /// A superpage of moved units has been programmed.
    pub(super) fn program_done(&mut self, die: DieIndex, superpage: Superpage) {
        let geometry = &self.geometry;
        let first = geometry.first_slot(superpage.superblock) + superpage.index * geometry.units_per_superpage();
        let state = &mut self.dies[die as usize];
        state.programs -= 1;
        state.forget(first);
    }

    /// The victim has been erased.
    pub(super) fn erase_done(&mut self, die: DieIndex, ftl: &mut Ftl) {
        ftl.erased(die);
        self.dies[die as usize].stage = Stage::None;
    }
}

impl Collecting {
    const IDLE: Collecting = Collecting {
        stage: Stage::None,
        reads: 0,
        batch: 0,
        moved: 0,
        programs: 0,
        in_memory: [NONE; MOST_IN_MEMORY],
        in_memory_len: 0,
    };

    fn keep(&mut self, first: Slot) {
        let len = self.in_memory_len as usize;
        if !self.in_memory[..len].contains(&first) {
            self.in_memory[len] = first;
            self.in_memory_len += 1;
        }
    }

    fn forget(&mut self, first: Slot) {
        let len = self.in_memory_len as usize;
        if let Some(place) = self.in_memory[..len].iter().position(|&kept| kept == first) {
            self.in_memory[place] = self.in_memory[len - 1];
            self.in_memory_len -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::ssd::ftl::{Stream, Untimed};
    use crate::models::ssd::testing::small_ftl;

    const DIE: DieIndex = 0;

    /// A collector, and a drive on which its first die is to be collected.
    fn begun() -> (Collector, Ftl) {
        let mut drive = Untimed::new(small_ftl());
        let units = drive.ftl().parameters().logical_units;
        (0..units).for_each(|unit| drive.write(unit));
        let mut ftl = drive.into_ftl();
        let mut unit = 0;
        while ftl.urgency(DIE) == Urgency::None {
            if let Some(superpage) = ftl.append(Stream::Host, DIE, unit).expect("the die has room").completed {
                ftl.programmed(superpage);
            }
            unit += 3;
        }
        (Collector::new(&ftl.parameters().geometry), ftl)
    }

    /// Reads a batch, and returns the superpages that its units fill.
    fn move_batch(collector: &mut Collector, ftl: &mut Ftl) -> Vec<Superpage> {
        let reads = collector.rows(DIE).count() as u32;
        assert!(reads > 0);
        collector.reads_begun(DIE, reads);
        assert_eq!(collector.advance(DIE, Urgency::Urgent, ftl), Step::Wait, "reads are in progress");
        assert_eq!((0..reads).filter(|_| collector.read_done(DIE)).count(), 1);
        std::iter::from_fn(|| collector.relocate(DIE, ftl)).collect()
    }

    #[test]
    fn units_move_by_superpages_and_the_victim_is_erased_last() {
        let (mut collector, mut ftl) = begun();
        let mut programs = Vec::new();
        let mut batches = 0;
        loop {
            let urgency = ftl.urgency(DIE);
            match collector.advance(DIE, urgency, &mut ftl) {
                Step::Read => {
                    programs.extend(move_batch(&mut collector, &mut ftl));
                    batches += 1;
                }
                Step::Wait => {
                    assert_eq!(programs.len(), MOST_PROGRAMS as usize, "it waits for programs alone");
                    let superpage = programs.remove(0);
                    let slot = ftl.parameters().geometry.first_slot(superpage.superblock)
                        + superpage.index * ftl.units_per_superpage(Stream::Collector);
                    assert!(collector.is_moving(slot), "its data are in memory until then");
                    ftl.programmed(superpage);
                    collector.program_done(DIE, superpage);
                    assert!(!collector.is_moving(slot));
                }
                Step::Erase => break,
                Step::Merged(_) => panic!("no logical block is mapped"),
            }
        }
        let victim = ftl.victim(DIE).expect("it is being erased");
        assert_eq!(ftl.valid_in(victim), 0);
        assert!(batches > 1, "the victim had more units than a superpage");
        assert_eq!(collector.advance(DIE, Urgency::Urgent, &mut ftl), Step::Wait, "the erase is in progress");
        collector.erase_done(DIE, &mut ftl);
        assert_eq!(ftl.victim(DIE), None);
    }

    #[test]
    fn units_that_are_overwritten_while_they_are_read_stay_where_they_are() {
        let (mut collector, mut ftl) = begun();
        let urgency = ftl.urgency(DIE);
        assert_eq!(collector.advance(DIE, urgency, &mut ftl), Step::Read);
        let units = ftl.parameters().logical_units;
        ftl.trim(0..units);
        assert_eq!(move_batch(&mut collector, &mut ftl), []);
        assert_eq!(ftl.counters().moved_units, 0);
    }
}
