//! The collector's work in time: the translation layer chooses the units to move, and the flash takes its time.
//!
//! Units move a superpage at a time: they are read row by row, appended, and programmed when a superpage is complete.
//! While two programs of the collector are in progress in a die, it reads no more there. Moving units stay in the
//! controller's memory, readable, until their program has ended. The victim is erased when its last unit has been
//! appended elsewhere. A loss of power in between is not modelled.

use std::sync::Arc;

use super::device::Ssd;
use super::flash::Class;
use super::ftl::{CollectionReason, Stream, Superpage, Urgency};
use super::geometry::{DieIndex, Slot};
use super::pool::NONE;
use super::records::{Owner, RowRead, Rows};

/// State of a die's collection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collector {
    stage: Stage,
    /// Read commands that have not ended.
    reads: u32,
    /// Units that were read, or are being read.
    moves: u32,
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

impl Default for Collector {
    fn default() -> Self {
        let in_memory = [NONE; MOST_IN_MEMORY];
        Collector { stage: Stage::None, reads: 0, moves: 0, programs: 0, in_memory, in_memory_len: 0 }
    }
}

impl Collector {
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

impl Ssd {
    /// Whether a slot's data are in the controller's memory because the collector moved them.
    pub(super) fn is_being_moved(&self, slot: Slot) -> bool {
        let geometry = self.parameters.geometry();
        let die = geometry.die_of_superblock(geometry.superblock_of(slot));
        let collector = &self.collectors[die as usize];
        let first = slot - slot % geometry.units_per_superpage();
        collector.in_memory[..collector.in_memory_len as usize].contains(&first)
    }

    /// Continues a die's collection if there is work.
    pub(super) fn collect(&mut self, die: DieIndex) {
        let urgency = self.ftl.urgency(die);
        self.flash.set_urgent(die, urgency == Urgency::Urgent);
        let collector = &mut self.collectors[die as usize];
        if collector.stage == Stage::None {
            if urgency == Urgency::None {
                return;
            }
            if self.ftl.victim(die).is_none() {
                let Some(collection) = self.ftl.start_collection(die) else { return };
                if collection.reason == CollectionReason::Space {
                    self.statistics.collected_valid += u64::from(collection.valid);
                }
            }
            collector.stage = Stage::Moving;
        }
        if collector.reads > 0 || collector.programs >= MOST_PROGRAMS {
            return;
        }
        match collector.stage {
            Stage::None | Stage::Erasing => {}
            Stage::Moving => self.read_moves(die),
            Stage::LastMoves => self.end_collection(die),
        }
    }

    /// Reads the next units to move.
    fn read_moves(&mut self, die: DieIndex) {
        let batch = self.parameters.geometry().units_per_superpage() as usize;
        let mut moves = std::mem::take(&mut self.scratch);
        moves.clear();
        let found = self.ftl.next_moves(die, batch, &mut moves);
        let begin = die as usize * batch;
        Arc::make_mut(&mut self.moves)[begin..begin + found].copy_from_slice(&moves);
        if found < batch {
            self.collectors[die as usize].stage = Stage::LastMoves;
        }
        self.collectors[die as usize].moves = found as u32;
        let mut rows = Rows::default();
        for unit_move in &moves {
            let read = RowRead::of(unit_move.from, self.parameters.geometry(), self.parameters.geometry().unit_bytes);
            if let Some(row) = rows.add(read) {
                self.read_row_to_move(die, &row);
            }
        }
        match rows.last() {
            Some(row) => self.read_row_to_move(die, &row),
            None => self.end_collection(die),
        }
        self.scratch = moves;
    }

    fn read_row_to_move(&mut self, die: DieIndex, row: &RowRead) {
        self.collectors[die as usize].reads += 1;
        let transaction = self.transactions.read(row, Class::CollectorRead, Owner::Collect(die));
        self.flash.submit(self.now, transaction, &mut self.events);
    }

    /// Handles the end of a read of a batch; after the last one the batch is moved.
    pub(super) fn moves_read(&mut self, die: DieIndex) {
        let collector = &mut self.collectors[die as usize];
        collector.reads -= 1;
        if collector.reads > 0 {
            return;
        }
        let moves = std::mem::take(&mut collector.moves) as usize;
        let per_superpage = self.parameters.geometry().units_per_superpage();
        let begin = die as usize * per_superpage as usize;
        for place in begin..begin + moves {
            let Some(appended) = self.ftl.relocate(die, self.moves[place]) else { continue };
            self.collectors[die as usize].keep(appended.slot - appended.slot % per_superpage);
            if let Some(superpage) = appended.completed {
                self.collectors[die as usize].programs += 1;
                self.program(die, superpage, Stream::Collector, NONE);
            }
        }
        self.collect(die);
    }

    /// Handles the end of a program of the collector's superpage.
    pub(super) fn moved_superpage_done(&mut self, die: DieIndex, superpage: Superpage) {
        let geometry = self.parameters.geometry();
        let first = geometry.first_slot(superpage.superblock) + superpage.index * geometry.units_per_superpage();
        let collector = &mut self.collectors[die as usize];
        collector.programs -= 1;
        collector.forget(first);
    }

    /// Handles the end of a victim's moves: all its valid units are appended elsewhere.
    fn end_collection(&mut self, die: DieIndex) {
        if self.ftl.is_merging(die) {
            self.end_merge(die);
        } else {
            self.erase_victim(die);
        }
    }

    /// A logical block is written completely; the superblocks that it replaces are collected next.
    fn end_merge(&mut self, die: DieIndex) {
        let completed = self.ftl.end_merge(die);
        self.collectors[die as usize].stage = Stage::None;
        if let Some(superpage) = completed {
            self.collectors[die as usize].programs += 1;
            self.program(die, superpage, Stream::Collector, NONE);
        }
        self.collect(die);
    }

    fn erase_victim(&mut self, die: DieIndex) {
        self.collectors[die as usize].stage = Stage::Erasing;
        let transaction = self.transactions.erase(die);
        self.flash.submit(self.now, transaction, &mut self.events);
    }

    /// Handles the end of the victim's erase.
    pub(super) fn erase_done(&mut self, die: DieIndex) {
        self.ftl.erased(die);
        self.collectors[die as usize].stage = Stage::None;
        self.append_waiting_mapping();
        self.collect(die);
        self.destage();
        self.admit();
    }
}
