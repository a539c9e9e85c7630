//! Parts of the mapping table in flash: reads that commands wait for, and parts that are to be written back.

use super::ftl::{Ftl, Stream, Superpage, Unit};
use super::geometry::DieIndex;
use super::pool::Pool;
use super::waiters::{Waiters, WaitingList};

/// Reads of parts of the mapping table, with their waiting commands.
#[derive(Clone, Debug)]
pub(super) struct MappingReads {
    reads: Pool<Reading>,
    waiters: Waiters,
    /// Indices of the current reads.
    active: Vec<u32>,
    /// Parts that are to be written when a die has room for them.
    unwritten: Vec<Unit>,
    next_die: DieIndex,
    counts: MappingCounts,
}

/// Work so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MappingCounts {
    pub(super) reads: u64,
    pub(super) written_back: u64,
}

/// A command's wait for a part of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartWait {
    /// Number of the part's read.
    pub(super) place: u32,
    /// Whether the read has to be begun.
    pub(super) begins: bool,
    /// Whether the command did not wait for the part before.
    pub(super) joins: bool,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    unit: Unit,
    waiting: WaitingList,
}

impl MappingReads {
    pub(super) fn new() -> Self {
        MappingReads {
            reads: Pool::new(),
            waiters: Waiters::new(),
            active: Vec::new(),
            unwritten: Vec::new(),
            next_die: 0,
            counts: MappingCounts::default(),
        }
    }

    pub(super) fn counts(&self) -> MappingCounts {
        self.counts
    }

    /// A command waits for a part of the table. One read serves all commands that wait for the part.
    pub(super) fn wait(&mut self, command: u32, unit: Unit) -> PartWait {
        let found = self.active.iter().copied().find(|&place| self.reads[place].unit == unit);
        let place = found.unwrap_or_else(|| {
            let place = self.reads.insert(Reading { unit, waiting: WaitingList::EMPTY });
            self.active.push(place);
            self.counts.reads += 1;
            place
        });
        let joins = self.waiters.add(&mut self.reads[place].waiting, command, 0);
        PartWait { place, begins: found.is_none(), joins }
    }

    /// A part is in the controller. Returns the commands that waited for it.
    pub(super) fn done(&mut self, place: u32) -> WaitingList {
        self.active.retain(|&other| other != place);
        self.reads.remove(place).waiting
    }

    /// Takes the next command off a list.
    pub(super) fn next_waiter(&mut self, list: &mut WaitingList) -> Option<u32> {
        self.waiters.take(list).map(|(command, _)| command)
    }

    /// A changed part is to be written back.
    pub(super) fn write_back(&mut self, unit: Unit) {
        self.counts.written_back += 1;
        self.unwritten.push(unit);
    }

    /// Appends the parts that are to be written back, as far as there is room, until they fill a superpage. Returns the
    /// superpage, which is to be programmed, and its die.
    pub(super) fn append(&mut self, ftl: &mut Ftl) -> Option<(DieIndex, Superpage)> {
        while let Some(&unit) = self.unwritten.last() {
            let die = ftl.die_with_room(Stream::Mapping, self.next_die)?;
            self.unwritten.pop();
            let appended = ftl.append(Stream::Mapping, die, unit).expect("the die has room");
            self.next_die = die;
            if let Some(superpage) = appended.completed {
                self.next_die = (die + 1) % ftl.dies();
                return Some((die, superpage));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::models::ssd::ftl::{FtlParameters, Mapping};
    use crate::models::ssd::testing::small_parameters;

    #[test]
    fn a_part_is_read_once_for_all_commands_that_wait_for_it() {
        let mut reads = MappingReads::new();
        let waits = [(1, 50), (1, 50), (2, 50), (2, 51)].map(|(command, unit)| reads.wait(command, unit));
        assert_eq!(waits.map(|wait| wait.begins), [true, false, false, true]);
        assert_eq!(waits.map(|wait| wait.joins), [true, false, true, true]);
        assert_eq!(waits[..3].iter().map(|wait| wait.place).collect::<Vec<_>>(), [waits[0].place; 3]);
        let mut list = reads.done(waits[0].place);
        assert_eq!([(); 3].map(|()| reads.next_waiter(&mut list)), [Some(2), Some(1), None]);
        assert!(reads.wait(3, 50).begins, "the read has ended");
        assert_eq!(reads.counts(), MappingCounts { reads: 3, written_back: 0 });
    }

    #[test]
    fn parts_that_are_written_back_fill_the_superpages_of_the_dies_in_turn() {
        let mapping = Mapping::DemandCached { entries: 64 };
        let parameters = FtlParameters { mapping, ..small_parameters() };
        let (mut reads, first) = (MappingReads::new(), parameters.logical_units);
        let mut ftl = Ftl::new(Arc::new(parameters), 1);
        let per_superpage = ftl.units_per_superpage(Stream::Mapping);
        (1..per_superpage).for_each(|_| reads.write_back(first));
        assert_eq!(reads.append(&mut ftl), None);
        (0..=per_superpage).for_each(|_| reads.write_back(first));
        let dies = std::iter::from_fn(|| reads.append(&mut ftl)).map(|(die, _)| die);
        assert_eq!(dies.collect::<Vec<_>>(), [0, 1]);
        assert_eq!(reads.counts().written_back, 2 * u64::from(per_superpage));
    }
}
