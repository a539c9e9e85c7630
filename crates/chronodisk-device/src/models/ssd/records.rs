//! Records that the parts of a drive exchange.

use super::ftl::{Stream, Superpage};
use super::geometry::{DieIndex, Geometry, Slot};

/// Owner of a transaction of the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A read of the host.
    Read(u32),
    /// A write of the host that has to know the rest of a unit first.
    Modify(u32),
    /// A part of the mapping table, by its index among the current reads.
    Mapping(u32),
    /// Data that are read ahead, by stream and place in it.
    Ahead { stream: u32, place: u32 },
    /// A program, by its number.
    Program(u32),
    /// Units of the die's victim.
    Collect(u32),
    /// The die's victim.
    Erase(u32),
}

/// A superpage being programmed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) superpage: Superpage,
    pub(super) die: DieIndex,
    pub(super) stream: Stream,
    /// Entries of the buffer that are in it, linked.
    pub(super) first: u32,
}

/// Source of a unit's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitLocation {
    /// The controller's memory, or no read is needed.
    Memory,
    Flash(Slot),
}

/// Source of a part of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The controller's memory: the write buffer, or read-ahead data.
    Memory,
    /// The flash, for this command.
    Flash,
}

/// Units of one read command of a die: the pages of one number in its planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowRead {
    /// The row, a superblock's page of all planes.
    pub(super) row: u32,
    /// A bit for each plane.
    pub(super) planes: u32,
    pub(super) bytes: u32,
}

impl RowRead {
    /// A read of bytes of the unit in a slot.
    #[inline]
    pub(super) fn of(slot: Slot, geometry: &Geometry, bytes: u32) -> RowRead {
        let page = slot / geometry.units_per_page();
        RowRead { row: page / geometry.planes_per_die, planes: 1 << (page % geometry.planes_per_die), bytes }
    }
}

/// Joins reads of units in order into reads of rows.
#[derive(Debug, Default)]
pub(super) struct Rows(Option<RowRead>);

impl Rows {
    /// Adds a read. Returns the row before it once the read is of another one.
    #[inline]
    pub(super) fn add(&mut self, read: RowRead) -> Option<RowRead> {
        match &mut self.0 {
            Some(row) if row.row == read.row => {
                row.planes |= read.planes;
                row.bytes += read.bytes;
                None
            }
            row => row.replace(read),
        }
    }

    /// The last row, if any read was added.
    #[inline]
    pub(super) fn take(&mut self) -> Option<RowRead> {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_reads_of_a_row_are_one() {
        let read = |row, planes| RowRead { row, planes, bytes: 4_096 };
        let mut rows = Rows::default();
        assert_eq!([read(3, 1), read(3, 2), read(3, 2)].map(|read| rows.add(read)), [None; 3]);
        assert_eq!(rows.add(read(4, 1)), Some(RowRead { row: 3, planes: 3, bytes: 3 * 4_096 }));
        assert_eq!(rows.add(read(3, 1)), Some(read(4, 1)));
        assert_eq!([rows.take(), rows.take()], [Some(read(3, 1)), None]);
    }
}
