//! Mapping units of a drive, and the sectors that they hold.

use std::ops::Range;

use chronodisk_sim::{Request, SECTOR_BYTES};

use super::ftl::Unit;

/// Sectors of a unit, a bit each; a bit of a unit of more than 64 sectors is for several.
pub(super) type UnitSectors = u64;

/// All sectors of a unit.
pub(super) const WHOLE_UNIT: UnitSectors = UnitSectors::MAX;

/// The units of a drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    /// Sectors of a unit.
    sectors: u64,
    capacity_sectors: u64,
}

impl Units {
    pub(super) fn new(unit_bytes: u32, capacity_sectors: u64) -> Self {
        Units { sectors: u64::from(unit_bytes) / SECTOR_BYTES, capacity_sectors }
    }

    /// The units that a request touches.
    #[inline]
    pub(super) fn of(&self, request: &Request) -> (Unit, Unit) {
        ((request.lba.0 / self.sectors) as Unit, request.end().0.div_ceil(self.sectors) as Unit)
    }

    /// The units that a request covers from beginning to end.
    #[inline]
    pub(super) fn whole(&self, request: &Request) -> (Unit, Unit) {
        let begin = request.lba.0.div_ceil(self.sectors);
        // The last unit may be cut off by the drive's capacity.
        let end = match request.end().0 == self.capacity_sectors {
            true => request.end().0.div_ceil(self.sectors),
            false => request.end().0 / self.sectors,
        };
        (begin as Unit, end.max(begin) as Unit)
    }

    /// Whether a request begins and ends at borders of units.
    pub(super) fn is_aligned(&self, request: &Request) -> bool {
        request.lba.0.is_multiple_of(self.sectors) && u64::from(request.sectors).is_multiple_of(self.sectors)
    }

    /// The unit of a sector.
    #[inline]
    pub(super) fn unit_of(&self, sector: u64) -> Unit {
        (sector / self.sectors) as Unit
    }

    /// The first sector of a unit.
    #[inline]
    pub(super) fn first_sector(&self, unit: Unit) -> u64 {
        u64::from(unit) * self.sectors
    }

    /// Units that hold a number of sectors.
    pub(super) fn holding(&self, sectors: u64) -> u32 {
        sectors.div_ceil(self.sectors) as u32
    }

    /// Bytes of a request in these units.
    #[inline]
    pub(super) fn bytes_in(&self, request: &Request, first: Unit, end: Unit) -> u64 {
        let begin = self.first_sector(first).max(request.lba.0);
        let end = self.first_sector(end).min(request.end().0);
        (end - begin) * SECTOR_BYTES
    }

    /// The sectors of a unit that a request changes.
    #[inline]
    pub(super) fn changed_in(&self, request: &Request, unit: Unit) -> UnitSectors {
        let (begin, per_bit) = (self.first_sector(unit), self.sectors_per_bit());
        let from = request.lba.0.saturating_sub(begin) / per_bit;
        let to = (request.end().0 - begin).min(self.sectors).div_ceil(per_bit);
        WHOLE_UNIT >> (u64::from(UnitSectors::BITS) - (to - from)) << from
    }

    /// The sectors of the drive that a unit's bits stand for.
    pub(super) fn ranges_of(&self, unit: Unit, bits: UnitSectors) -> impl Iterator<Item = Range<u64>> + use<> {
        let (begin, sectors, per_bit) = (self.first_sector(unit), self.sectors, self.sectors_per_bit());
        runs(bits).map(move |run| begin + run.start * per_bit..begin + (run.end * per_bit).min(sectors))
    }

    fn sectors_per_bit(&self) -> u64 {
        self.sectors.div_ceil(UnitSectors::BITS.into())
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
    use chronodisk_sim::Op;

    use super::*;

    #[test]
    fn runs_are_the_bits_that_are_set() {
        for bits in [0, 1, 0b1100_1011, WHOLE_UNIT, 1 << 63, 0xff00_0000_0000_0001, 0x8000_0000_0000_0000 >> 1] {
            let set: Vec<u64> = (0..64).filter(|bit| bits >> bit & 1 == 1).collect();
            assert!(runs(bits).flatten().eq(set), "{bits:x}");
        }
    }

    #[test]
    fn a_request_touches_more_units_than_it_covers() {
        let units = Units::new(4_096, 1_001);
        let touched_and_whole = |lba, sectors| {
            let request = Request::new(0, Op::Write, lba, sectors);
            (units.of(&request), units.whole(&request))
        };
        assert_eq!(touched_and_whole(8, 16), ((1, 3), (1, 3)));
        assert_eq!(touched_and_whole(7, 10), ((0, 3), (1, 2)));
        assert_eq!(touched_and_whole(9, 2), ((1, 2), (2, 2)));
        assert_eq!(touched_and_whole(992, 9), ((124, 126), (124, 126)), "the last unit is cut off");
        let request = Request::new(0, Op::Write, 7, 10);
        assert_eq!((units.bytes_in(&request, 0, 1), units.bytes_in(&request, 1, 3)), (512, 9 * 512));
        assert_eq!([0, 1, 2].map(|unit| units.changed_in(&request, unit)), [0x80, 0xff, 1]);
        assert!(units.ranges_of(2, 0b110).eq(std::iter::once(17..19)));
    }
}
