//! The sectors that a loss of power would lose: data on their way to the buffer, and a buffer without protection.
//!
//! The mapping table counts as durable: the capacitors of a drive keep it, or the drive finds it again from the pages.

use std::ops::Range;

use chronodisk_sim::{Request, SECTOR_BYTES};

use super::device::Ssd;
use super::ftl::Unit;
use crate::sector_set::{SectorSet, changed};

/// Sectors of a unit, a bit each; a bit of a unit of more than 64 sectors is for several.
pub(super) type UnitSectors = u64;

/// All sectors of a unit.
pub(super) const WHOLE_UNIT: UnitSectors = UnitSectors::MAX;

impl Ssd {
    /// The sectors of a unit that a request changes.
    pub(super) fn sectors_of_unit(&self, request: &Request, unit: Unit) -> UnitSectors {
        let (sectors, per_bit) = self.sectors_per_unit();
        let begin = u64::from(unit) * sectors;
        let from = request.lba.0.saturating_sub(begin) / per_bit;
        let to = (request.end().0 - begin).min(sectors).div_ceil(per_bit);
        WHOLE_UNIT >> (u64::from(UnitSectors::BITS) - (to - from)) << from
    }

    pub(super) fn volatile_sectors(&self) -> SectorSet {
        let (sectors, per_bit) = self.sectors_per_unit();
        let coming = self.commands.in_use().map(|command| {
            let Range { start, end } = changed(&command.request);
            start.max(u64::from(command.next_arrival) * sectors)..end
        });
        let is_kept = self.parameters.buffer.protected;
        let buffered = self.buffer.unwritten().filter(|_| !is_kept).flat_map(|(unit, bits)| {
            let begin = u64::from(unit) * sectors;
            runs(bits).map(move |run| begin + run.start * per_bit..begin + (run.end * per_bit).min(sectors))
        });
        let capacity = self.info.capacity_sectors;
        coming.chain(buffered).map(|range| range.start..range.end.min(capacity)).collect()
    }

    /// Sectors of a unit, and of a bit of [`UnitSectors`].
    fn sectors_per_unit(&self) -> (u64, u64) {
        let sectors = u64::from(self.parameters.geometry().unit_bytes) / SECTOR_BYTES;
        (sectors, sectors.div_ceil(UnitSectors::BITS.into()))
    }
}

/// Runs of bits that are set.
fn runs(bits: UnitSectors) -> impl Iterator<Item = Range<u64>> {
    let mut end = 0;
    std::iter::from_fn(move || {
        let left = bits.checked_shr(end)?;
        let start = end + left.trailing_zeros();
        let ones = (!bits.checked_shr(start)?).trailing_zeros().min(UnitSectors::BITS - start);
        end = start + ones;
        Some(start.into()..end.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_bits_that_are_set() {
        for bits in [0, 1, 0b1100_1011, WHOLE_UNIT, 1 << 63, 0xff00_0000_0000_0001, 0x8000_0000_0000_0000 >> 1] {
            let set: Vec<u64> = (0..64).filter(|bit| bits >> bit & 1 == 1).collect();
            assert!(runs(bits).flatten().eq(set), "{bits:x}");
        }
    }
}
