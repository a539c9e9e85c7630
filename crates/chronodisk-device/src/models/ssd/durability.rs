//! The sectors that a loss of power would lose: data on their way to the buffer, and a buffer without protection.
//!
//! The mapping table counts as durable: the capacitors of a drive keep it, or the drive finds it again from the pages.

use std::ops::Range;

use super::device::Ssd;
use crate::sector_set::{SectorSet, changed};

impl Ssd {
    pub(super) fn volatile_sectors(&self) -> SectorSet {
        let coming = self.commands.in_use().map(|command| {
            let Range { start, end } = changed(&command.request);
            start.max(self.units.first_sector(command.next_arrival))..end
        });
        let is_kept = self.parameters.buffer.protected;
        let unwritten = self.buffer.unwritten().filter(|_| !is_kept);
        let buffered = unwritten.flat_map(|(unit, bits)| self.units.ranges_of(unit, bits));
        let capacity = self.info.capacity_sectors;
        coming.chain(buffered).map(|range| range.start..range.end.min(capacity)).collect()
    }
}
