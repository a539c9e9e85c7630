//! The sectors that background requests want: one bit each, and a count by cylinder.

use std::ops::Range;

use super::super::geometry::Geometry;
use crate::cow_table::CowTable;

/// A set of blocks. Clones share their pages.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    words: CowTable<u64>,
    by_cylinder: CowTable<u32>,
    cylinders: u32,
    blocks: u64,
    count: u64,
}

const BITS: u64 = u64::BITS as u64;

/// The bits from `from` to before `to`, which is at most 64.
fn mask(from: u64, to: u64) -> u64 {
    let below = |bit: u64| if bit >= BITS { u64::MAX } else { (1 << bit) - 1 };
    below(to) & !below(from)
}

impl Wanted {
    /// An empty set for the first `blocks` of a drive.
    pub(super) fn new(blocks: u64, cylinders: u32) -> Wanted {
        Wanted {
            words: CowTable::new(blocks.div_ceil(BITS), 0),
            by_cylinder: CowTable::new(cylinders.into(), 0),
            cylinders,
            blocks,
            count: 0,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Wanted blocks on a cylinder.
    pub(super) fn on_cylinder(&self, cylinder: u32) -> u32 {
        if cylinder < self.cylinders { self.by_cylinder.get(cylinder.into()) } else { 0 }
    }

    pub(super) fn cylinders(&self) -> u32 {
        self.cylinders
    }

    /// Inserts the blocks of a range that are on the drive.
    pub(super) fn insert(&mut self, range: &Range<u64>, geometry: &Geometry) {
        let (mut first, end) = (range.start, range.end.min(self.blocks));
        if self.count == 0 && first == 0 && end == self.blocks {
            // Full pages are shared.
            self.words = CowTable::new(self.blocks.div_ceil(BITS), u64::MAX);
            let last = self.blocks / BITS;
            if !self.blocks.is_multiple_of(BITS) {
                self.words.set(last, mask(0, self.blocks % BITS));
            }
            return self.count_all(geometry);
        }
        while first < end {
            let (cylinder, track_end) = bounds(geometry, first);
            let until = track_end.min(end);
            self.change(first, until, cylinder, true);
            first = until;
        }
    }

    fn count_all(&mut self, geometry: &Geometry) {
        let mut first = 0;
        while first < self.blocks {
            let (cylinder, end) = bounds(geometry, first);
            let end = end.min(self.blocks);
            let before = self.by_cylinder.get(cylinder.into());
            self.by_cylinder.set(cylinder.into(), before + (end - first) as u32);
            first = end;
        }
        self.count = self.blocks;
    }

    /// Removes the blocks of a range.
    pub(super) fn remove(&mut self, range: &Range<u64>, geometry: &Geometry) {
        let (mut first, end) = (range.start, range.end.min(self.blocks));
        while first < end {
            let (cylinder, track_end) = bounds(geometry, first);
            let until = track_end.min(end);
            self.change(first, until, cylinder, false);
            first = until;
        }
    }

    /// Removes blocks of one track.
    pub(super) fn remove_on(&mut self, first: u64, end: u64, cylinder: u32) {
        self.change(first, end, cylinder, false);
    }

    fn change(&mut self, first: u64, end: u64, cylinder: u32, wanted: bool) {
        let mut changed = 0;
        self.words.change(first / BITS, end.div_ceil(BITS), |index, word| {
            let base = index * BITS;
            let bits = mask(first.saturating_sub(base).min(BITS), (end - base).min(BITS));
            let new = if wanted { word | bits } else { word & !bits };
            changed += (new ^ word).count_ones();
            new
        });
        let before = self.by_cylinder.get(cylinder.into());
        let (on_cylinder, count) = match wanted {
            true => (before + changed, self.count + u64::from(changed)),
            false => (before - changed, self.count - u64::from(changed)),
        };
        self.by_cylinder.set(cylinder.into(), on_cylinder);
        self.count = count;
    }

    /// Wanted blocks of a range.
    pub(super) fn among(&self, first: u64, end: u64) -> u64 {
        let end = end.min(self.blocks);
        let words = first / BITS..end.div_ceil(BITS).max(first / BITS);
        let bits = |index: u64| {
            let base = index * BITS;
            self.words.get(index) & mask(first.saturating_sub(base).min(BITS), (end - base).min(BITS))
        };
        words.map(|index| u64::from(bits(index).count_ones())).sum()
    }

    /// The first wanted block from `first` to before `end`, and the end of the wanted blocks that follow it there.
    pub(super) fn next_run(&self, first: u64, end: u64) -> Option<(u64, u64)> {
        let end = end.min(self.blocks);
        let start = self.next_with(first, end, true)?;
        Some((start, self.next_with(start, end, false).unwrap_or(end)))
    }

    fn next_with(&self, first: u64, end: u64, wanted: bool) -> Option<u64> {
        let mut at = first;
        while at < end {
            let word = self.words.get(at / BITS);
            let bits = if wanted { word } else { !word } & mask(at % BITS, BITS);
            if bits != 0 {
                let found = at / BITS * BITS + u64::from(bits.trailing_zeros());
                return (found < end).then_some(found);
            }
            at = (at / BITS + 1) * BITS;
        }
        None
    }
}

/// The cylinder of a block's track, and the block behind the last one of this track.
fn bounds(geometry: &Geometry, block: u64) -> (u32, u64) {
    let track = geometry.own_track(block);
    // More slips than spares would put a block behind its track.
    let end = geometry.blocks_on(track).map_or(block + 1, |on| if on.end > block { on.end } else { block + 1 });
    (track.cylinder, end)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::models::disk::Drive;
    use crate::models::disk::tests::small;

    proptest! {
        #[test]
        fn a_set_of_blocks_behaves_as_one_of_the_library(
            whole: bool,
            changes in prop::collection::vec((any::<bool>(), 0_u64..5_600, 0_u64..900), 0..12),
            (from, length) in (0_u64..5_500, 0_u64..600),
        ) {
            let drive = Drive::new(&small()).unwrap();
            let blocks = drive.geometry.blocks() - 37;
            let (mut wanted, mut model) = (Wanted::new(blocks, 20), BTreeSet::new());
            if whole {
                wanted.insert(&(0..u64::MAX), &drive.geometry);
                model.extend(0..blocks);
            }
            for (inserts, first, length) in changes {
                let range = first..first + length;
                let inside = range.clone().filter(|&block| block < blocks);
                if inserts {
                    wanted.insert(&range, &drive.geometry);
                    model.extend(inside);
                } else {
                    wanted.remove(&range, &drive.geometry);
                    inside.for_each(|block| { model.remove(&block); });
                }
            }
            prop_assert_eq!(wanted.count(), model.len() as u64);
            let on_cylinders: u32 = (0..20).map(|cylinder| wanted.on_cylinder(cylinder)).sum();
            prop_assert_eq!(u64::from(on_cylinders), wanted.count());
            let end = (from + length).min(blocks);
            prop_assert_eq!(wanted.among(from, end.max(from)), model.range(from..end.max(from)).count() as u64);
            let first = model.range(from..end.max(from)).next().copied();
            let run = first.map(|first| (first, (first..end).find(|block| !model.contains(block)).unwrap_or(end)));
            prop_assert_eq!(wanted.next_run(from, end), run);
        }
    }
}
