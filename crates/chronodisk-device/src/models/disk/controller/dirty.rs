//! The write buffer: ranges of blocks that are not on the medium.

use super::super::geometry::{Geometry, Spot};

/// Ranges in order of their blocks; none overlap. Neighbours of the same epoch are one range.
#[derive(Clone, Debug)]
pub(super) struct Dirty {
    ranges: Vec<Range>,
    most: usize,
    blocks: u64,
}

/// Consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u64,
    pub(super) end: u64,
    /// Epoch of its oldest block.
    pub(super) epoch: u64,
    /// Where `first` is, once the arm has asked for it: it asks again at each choice of a target.
    spot: Spot,
}

impl Range {
    /// Where its first block is.
    #[inline]
    pub(super) fn spot(&mut self, geometry: &Geometry) -> &Spot {
        if self.spot.angle == Spot::UNKNOWN.angle {
            self.spot = geometry.spot(self.first);
        }
        &self.spot
    }
}

impl Dirty {
    /// An empty buffer for so many ranges; an insertion may need two more for a moment.
    pub(super) fn new(most: usize) -> Dirty {
        Dirty { ranges: Vec::with_capacity(most + 2), most, blocks: 0 }
    }

    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(super) fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// As [`ranges`](Self::ranges), to ask for their places.
    pub(super) fn ranges_mut(&mut self) -> &mut [Range] {
        &mut self.ranges
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The index of the first range that ends behind a block.
    pub(super) fn index_behind(&self, block: u64) -> usize {
        self.ranges.partition_point(|range| range.end <= block)
    }

    pub(super) fn overlaps(&self, first: u64, end: u64) -> bool {
        self.ranges.get(self.index_behind(first)).is_some_and(|range| range.first < end)
    }

    /// Whether all blocks are here.
    pub(super) fn covers(&self, first: u64, end: u64) -> bool {
        self.end_of_run(first) >= end
    }

    /// Where the blocks end that are here without a gap from `first` on; `first` if it is not here.
    pub(super) fn end_of_run(&self, first: u64) -> u64 {
        self.end_of_epochs(first, u64::MAX)
    }

    /// As [`end_of_run`](Self::end_of_run), of the blocks of this epoch and of earlier ones.
    pub(super) fn end_of_epochs(&self, first: u64, last_epoch: u64) -> u64 {
        let mut end = first;
        for range in &self.ranges[self.index_behind(first)..] {
            if range.first > end || range.epoch > last_epoch {
                break;
            }
            end = range.end;
        }
        end
    }

    /// Whether a range for these blocks is here or can be added.
    pub(super) fn has_place(&self, first: u64, end: u64, epoch: u64) -> bool {
        // One that overlaps may be cut in three by its epochs.
        let touches = |range: &Range| range.first <= end && first <= range.end;
        // A buffer of one range takes the blocks that continue it.
        let grows = |range: &Range| self.most == 1 && range.end == first && range.epoch == epoch;
        self.ranges.len() + 2 <= self.most || self.ranges.is_empty() || {
            let near = self.ranges.get(self.index_behind(first.saturating_sub(1)));
            near.is_some_and(|near| touches(near) && (self.ranges.len() < self.most || grows(near)))
        }
    }

    /// The epoch of the oldest block.
    pub(super) fn oldest_epoch(&self) -> u64 {
        self.ranges.iter().map(|range| range.epoch).min().unwrap_or(u64::MAX)
    }

    /// Adds blocks. Those that are here keep their epoch, as the older data are not on the medium.
    pub(super) fn insert(&mut self, first: u64, end: u64, epoch: u64) {
        let (mut at, mut next) = (self.index_behind(first), first);
        while next < end {
            match self.ranges.get(at).copied() {
                Some(range) if range.first <= next => next = next.max(range.end),
                range => {
                    let gap = range.map_or(end, |range| range.first.min(end));
                    self.blocks += gap - next;
                    self.ranges.insert(at, Range { first: next, end: gap, epoch, spot: Spot::UNKNOWN });
                    at = self.combine(at);
                    // It may have become one with the range behind it.
                    next = self.ranges[at - 1].end;
                    continue;
                }
            }
            at += 1;
        }
    }

    /// Combines a range with its neighbours of the same epoch; the index behind it.
    fn combine(&mut self, at: usize) -> usize {
        let joins = |a: &Range, b: &Range| a.end == b.first && a.epoch == b.epoch;
        if at + 1 < self.ranges.len() && joins(&self.ranges[at], &self.ranges[at + 1]) {
            self.ranges[at].end = self.ranges[at + 1].end;
            self.ranges.remove(at + 1);
        }
        if at > 0 && joins(&self.ranges[at - 1], &self.ranges[at]) {
            self.ranges[at - 1].end = self.ranges[at].end;
            self.ranges.remove(at);
            return at;
        }
        at + 1
    }

    /// Takes out blocks that are on the medium now.
    pub(super) fn remove(&mut self, first: u64, end: u64) {
        let mut at = self.index_behind(first);
        while let Some(&range) = self.ranges.get(at).filter(|range| range.first < end) {
            self.blocks -= range.end.min(end) - range.first.max(first);
            match (range.first < first, range.end > end) {
                (true, true) => {
                    self.ranges[at].end = first;
                    self.ranges.insert(at + 1, Range { first: end, spot: Spot::UNKNOWN, ..range });
                    return;
                }
                (true, false) => {
                    self.ranges[at].end = first;
                    at += 1;
                }
                (false, true) => {
                    self.ranges[at] = Range { first: end, spot: Spot::UNKNOWN, ..range };
                    return;
                }
                (false, false) => {
                    self.ranges.remove(at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The ranges hold the blocks that a map of blocks to epochs holds.
        #[test]
        fn ranges_are_the_blocks_that_were_put_in(
            steps in prop::collection::vec((any::<bool>(), 0_u64..60, 1_u64..20, 0_u64..3), 1..60),
        ) {
            let (mut dirty, mut blocks) = (Dirty::new(64), std::collections::BTreeMap::new());
            for (insert, first, count, epoch) in steps {
                let end = first + count;
                if insert {
                    dirty.insert(first, end, epoch);
                    (first..end).for_each(|block| { blocks.entry(block).or_insert(epoch); });
                } else {
                    dirty.remove(first, end);
                    (first..end).for_each(|block| { blocks.remove(&block); });
                }
                let held = dirty.ranges().iter();
                let held = held.flat_map(|range| (range.first..range.end).map(|block| (block, range.epoch)));
                prop_assert!(held.eq(blocks.iter().map(|(&block, &epoch)| (block, epoch))));
                prop_assert_eq!(dirty.blocks(), blocks.len() as u64);
                prop_assert_eq!(dirty.oldest_epoch(), blocks.values().copied().min().unwrap_or(u64::MAX));
                for pair in dirty.ranges().windows(2) {
                    prop_assert!(pair[0].end < pair[1].first || pair[0].epoch != pair[1].epoch, "{pair:?}");
                }
                prop_assert_eq!(dirty.covers(first, end), (first..end).all(|block| blocks.contains_key(&block)));
                prop_assert_eq!(dirty.overlaps(first, end), (first..end).any(|block| blocks.contains_key(&block)));
            }
        }
    }
}
