//! The way of the host's data out of the write buffer: dies are chosen, and superpages filled or padded.
//!
//! [`Destager::next`] returns what leaves the buffer next, and is called until nothing does. The drive programs the
//! superpages and releases the entries.

use std::sync::Arc;

use super::buffer::Buffer;
use super::ftl::{Ftl, FtlParameters, Stream, Superpage};
use super::geometry::DieIndex;
use super::parameters::BufferParameters;
use super::pool::NONE;

/// The host's superpages on all dies. Zoned drives use its counts of programs alone.
#[derive(Clone, Debug)]
pub(super) struct Destager {
    programs_per_die: u32,
    /// Units of a superpage, and of one with one bit in a cell, if there are any.
    units_per_superpage: u32,
    cached_units_per_superpage: Option<u32>,
    /// By die: first entry in the buffer of the units in the partly filled superpage, or [`NONE`].
    open: Vec<u32>,
    /// By die: number of the host's unfinished programs.
    programs_of: Vec<u32>,
    /// Programs of the host that have not ended, in all dies.
    under_way: u32,
    /// The die that is considered first for the next superpage.
    next_die: DieIndex,
    stage: Stage,
}

/// Data that leave the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// The superpage is to be programmed. `first` is the first of its entries in the buffer, which are linked.
    Program { die: DieIndex, superpage: Superpage, first: u32 },
    /// The entry was trimmed while it waited, and needs no program.
    Settled(u32),
}

/// Work to continue with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A die is to be chosen. Nothing is in progress between events.
    Choose,
    /// The die's superpage is to be filled, `appended` if any unit has left the buffer for it.
    Begin { die: DieIndex, appended: bool },
    /// As above, with the stream of the superpage.
    Fill { die: DieIndex, stream: Stream, appended: bool },
    /// No further superpage is filled.
    End,
    /// Partly filled superpages are to be padded from this die on.
    Pad(DieIndex),
}

impl Destager {
    pub(super) fn new(parameters: &BufferParameters, ftl: &FtlParameters) -> Self {
        let (geometry, dies) = (&ftl.geometry, ftl.geometry.dies() as usize);
        Destager {
            programs_per_die: parameters.programs_per_die,
            units_per_superpage: geometry.units_per_superpage(),
            cached_units_per_superpage: ftl.slc_cache.map(|_| geometry.slc_units_per_superpage()),
            open: vec![NONE; dies],
            programs_of: vec![0; dies],
            under_way: 0,
            next_die: 0,
            stage: Stage::Choose,
        }
    }

    /// Most memory for a die.
    pub(super) const DIE_BYTES: u64 = 2 * size_of::<u32>() as u64;

    /// The next data that leave the buffer, if there is a superpage and a die for them. Entries with orders below
    /// `awaited_below` do not wait for others to fill their superpage.
    #[inline]
    pub(super) fn next(&mut self, buffer: &mut Arc<Buffer>, ftl: &mut Ftl, awaited_below: u64) -> Option<Leaving> {
        loop {
            let leaving = match self.stage {
                Stage::Choose => {
                    let Some(die) = self.choose(buffer, ftl, awaited_below) else {
                        self.stage = Stage::End;
                        continue;
                    };
                    let joins = buffer.first_unit().is_none_or(|unit| ftl.joins_begun(die, unit));
                    self.stage = Stage::Begin { die, appended: !joins };
                    if joins { None } else { self.pad(die, ftl) }
                }
                Stage::Begin { die, appended } => {
                    self.stage = match buffer.first_unit().and_then(|unit| ftl.host_stream_for(die, unit)) {
                        Some(stream) => Stage::Fill { die, stream, appended },
                        None => Stage::after_fill(appended),
                    };
                    None
                }
                Stage::Fill { die, stream, appended } => self.fill(die, stream, appended, Arc::make_mut(buffer), ftl),
                Stage::End if self.must_pad(buffer, awaited_below > 0) => {
                    self.stage = Stage::Pad(0);
                    None
                }
                Stage::End => {
                    self.stage = Stage::Choose;
                    return None;
                }
                Stage::Pad(from) => {
                    let Some(die) = self.open_from(from) else {
                        self.stage = Stage::Choose;
                        return None;
                    };
                    self.stage = Stage::Pad(die + 1);
                    self.pad(die, ftl)
                }
            };
            if leaving.is_some() {
                return leaving;
            }
        }
    }

    /// The die of the next superpage.
    fn choose(&mut self, buffer: &Buffer, ftl: &Ftl, awaited_below: u64) -> Option<DieIndex> {
        let unit = buffer.first_unit()?;
        match ftl.bound_die(unit) {
            Some(die) => ftl.host_stream_for(die, unit).map(|_| die),
            None => self.choose_any(buffer, ftl, awaited_below),
        }
    }

    /// A die for the next superpage, if enough units wait for one: the next in turn without a program, otherwise the
    /// next that may queue another.
    #[inline(never)]
    fn choose_any(&mut self, buffer: &Buffer, ftl: &Ftl, awaited_below: u64) -> Option<DieIndex> {
        let must_empty = buffer.first_order().is_some_and(|order| order < awaited_below);
        let enough = must_empty || buffer.dirty() >= self.units_per_superpage;
        let enough_for_one_bit = self.cached_units_per_superpage.is_some_and(|needed| buffer.dirty() >= needed);
        if !(enough || enough_for_one_bit) {
            return None;
        }
        let dies = self.programs_of.len() as u32;
        let mut second = None;
        let mut die = self.next_die;
        for _ in 0..dies {
            let waiting = self.programs_of[die as usize];
            let stream = if waiting < self.programs_per_die { ftl.host_stream(die) } else { None };
            if stream.is_some_and(|stream| enough || stream == Stream::Cache) {
                if waiting == 0 {
                    second = Some(die);
                    break;
                }
                second = second.or(Some(die));
            }
            die = if die + 1 == dies { 0 } else { die + 1 };
        }
        let chosen = second?;
        self.next_die = if chosen + 1 == dies { 0 } else { chosen + 1 };
        Some(chosen)
    }

    /// Appends units to the die's superpage until it is full or no unit for that die waits.
    #[inline(never)]
    fn fill(
        &mut self,
        die: DieIndex,
        stream: Stream,
        mut appended: bool,
        buffer: &mut Buffer,
        ftl: &mut Ftl,
    ) -> Option<Leaving> {
        loop {
            let Some(unit) = buffer.first_unit() else {
                // Without further units, the superpage is padded if dies are chosen freely.
                let first = self.open[die as usize];
                self.stage = Stage::after_fill(appended || first != NONE);
                let is_free = first != NONE && ftl.bound_die(buffer.entry(first).unit).is_none();
                return if is_free { self.pad(die, ftl) } else { None };
            };
            if ftl.bound_die(unit).is_some_and(|bound| bound != die) || !ftl.joins_begun(die, unit) {
                self.stage = Stage::after_fill(appended);
                return None;
            }
            let (entry, wanted) = buffer.take().expect("a unit waits");
            appended = true;
            if !wanted {
                // The next unit may begin the superpage, and may belong to a logical block without room.
                let begins = self.open[die as usize] == NONE;
                self.stage =
                    if begins { Stage::Begin { die, appended } } else { Stage::Fill { die, stream, appended } };
                return Some(Leaving::Settled(entry));
            }
            let place = ftl.append(stream, die, unit).expect("the die has room");
            let first = std::mem::replace(&mut self.open[die as usize], entry);
            buffer.set_next(entry, first);
            if let Some(superpage) = place.completed {
                self.stage = Stage::Choose;
                return Some(self.program(die, superpage));
            }
        }
    }

    /// Whether partly filled superpages must be padded: a flush waits for them, or the buffer is full of them.
    fn must_pad(&self, buffer: &Buffer, is_awaited: bool) -> bool {
        let stuck = buffer.free() == 0 && self.under_way == 0;
        buffer.dirty() == 0 && (stuck || is_awaited)
    }

    /// The first die from this one on with a partly filled superpage.
    fn open_from(&self, first: DieIndex) -> Option<DieIndex> {
        (first..self.open.len() as DieIndex).find(|&die| self.open[die as usize] != NONE)
    }

    fn pad(&mut self, die: DieIndex, ftl: &mut Ftl) -> Option<Leaving> {
        let begun = ftl.pad(Stream::Host, die).or_else(|| ftl.pad(Stream::Cache, die));
        begun.map(|superpage| self.program(die, superpage))
    }

    fn program(&mut self, die: DieIndex, superpage: Superpage) -> Leaving {
        let first = std::mem::replace(&mut self.open[die as usize], NONE);
        self.program_begun(die);
        Leaving::Program { die, superpage, first }
    }

    /// A program of the host's data has begun on a die.
    pub(super) fn program_begun(&mut self, die: DieIndex) {
        self.programs_of[die as usize] += 1;
        self.under_way += 1;
    }

    /// A program of the host's data has ended on a die.
    pub(super) fn program_done(&mut self, die: DieIndex) {
        self.programs_of[die as usize] -= 1;
        self.under_way -= 1;
    }
}

impl Stage {
    /// The stage after a superpage that takes no further unit.
    fn after_fill(appended: bool) -> Stage {
        if appended { Stage::Choose } else { Stage::End }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::ssd::testing::{small_ftl, small_parameters};

    /// A buffer with these units, a drive with superpages of 24 units on two dies, and its destager.
    fn with_units(units: std::ops::Range<u32>) -> (Destager, Arc<Buffer>, Ftl) {
        let parameters = BufferParameters {
            units: 96,
            in_order: false,
            write_unit: chronodisk_sim::Nanos::ZERO,
            read_hit: chronodisk_sim::Nanos::ZERO,
            protected: true,
            programs_per_die: 1,
            mapping_read_bytes: 4_096,
        };
        let mut buffer = Buffer::new(parameters.units, false);
        buffer.admit(units.len() as u32);
        units.for_each(|unit| buffer.put(unit));
        (Destager::new(&parameters, &small_parameters()), Arc::new(buffer), small_ftl())
    }

    /// The dies of the superpages that leave, and the number of entries that are settled.
    fn all((destager, buffer, ftl): &mut (Destager, Arc<Buffer>, Ftl), awaited_below: u64) -> (Vec<DieIndex>, u32) {
        let (mut dies, mut settled) = (Vec::new(), 0);
        while let Some(leaving) = destager.next(buffer, ftl, awaited_below) {
            match leaving {
                Leaving::Program { die, .. } => dies.push(die),
                Leaving::Settled(entry) => {
                    Arc::make_mut(buffer).release(entry);
                    settled += 1;
                }
            }
        }
        (dies, settled)
    }

    #[test]
    fn whole_superpages_leave_for_the_dies_in_turn_and_wait_for_their_programs() {
        let mut parts = with_units(0..96);
        assert_eq!(all(&mut parts, 0), (vec![0, 1], 0));
        assert_eq!(parts.1.dirty(), 48);
        parts.0.program_done(1);
        assert_eq!(all(&mut parts, 0), (vec![1], 0));
    }

    #[test]
    fn a_part_of_a_superpage_is_padded_if_a_flush_waits_for_it() {
        let mut parts = with_units(0..30);
        assert_eq!(all(&mut parts, 0), (vec![0], 0));
        let below = parts.1.order();
        assert_eq!(all(&mut parts, below), (vec![1], 0));
        assert_eq!((parts.1.dirty(), parts.2.counters().padded_units), (0, 18));
    }

    #[test]
    fn trimmed_units_are_settled() {
        let mut parts = with_units(0..40);
        Arc::make_mut(&mut parts.1).trim(0..10);
        assert_eq!(all(&mut parts, 0), (vec![0], 10));
        assert_eq!(parts.1.dirty(), 6);
    }
}
