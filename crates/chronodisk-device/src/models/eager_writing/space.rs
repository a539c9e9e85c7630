//! Used and free blocks of the disk.

use crate::cow_table::CowTable;

/// A bitmap with a count per region, both copied by sharing.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    blocks: u64,
    used: u64,
    /// A bit per block, set if the block is used.
    words: CowTable<u64>,
    /// Blocks in use per region.
    regions: CowTable<u16>,
}

const WORD: u64 = 64;
/// Blocks in a region.
const REGION: u64 = 4_096;

impl Space {
    /// Space of this number of blocks, all free.
    pub(crate) fn new(blocks: u64) -> Self {
        Space {
            blocks,
            used: 0,
            words: CowTable::new(blocks.div_ceil(WORD), 0),
            regions: CowTable::new(blocks.div_ceil(REGION), 0),
        }
    }

    /// Most memory for this number of blocks.
    pub(super) fn bytes_max(blocks: u64) -> u64 {
        CowTable::<u64>::bytes_max(blocks.div_ceil(WORD))
            .saturating_add(CowTable::<u16>::bytes_max(blocks.div_ceil(REGION)))
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Takes free blocks.
    pub(crate) fn take(&mut self, first: u64, blocks: u64) {
        let end = first + blocks;
        // The part of a word or a region that is in the range.
        let part = |number: u64, size: u64| {
            let (from, to) = (first.max(number * size), end.min((number + 1) * size));
            (from % size, to - from)
        };
        self.words.change(first / WORD, end.div_ceil(WORD), |number, word| {
            let (from, count) = part(number, WORD);
            let bits = u64::MAX >> (WORD - count) << from;
            debug_assert_eq!(word & bits, 0, "blocks of {first} to {end} are in use already");
            word | bits
        });
        self.regions.change(first / REGION, end.div_ceil(REGION), |number, used| used + part(number, REGION).1 as u16);
        self.used += blocks;
    }

    /// Frees a used block.
    pub(crate) fn free(&mut self, block: u64) {
        let word = self.words.get(block / WORD);
        debug_assert_eq!(word >> (block % WORD) & 1, 1, "block {block} is free already");
        self.words.set(block / WORD, word & !(1 << (block % WORD)));
        self.regions.set(block / REGION, self.regions.get(block / REGION) - 1);
        self.used -= 1;
    }

    /// The first free block from `from` on, before `end`.
    pub(crate) fn next_free(&self, from: u64, end: u64) -> Option<u64> {
        let mut block = from;
        while block < end {
            let taken = self.words.get(block / WORD) | ((1 << (block % WORD)) - 1);
            if taken != u64::MAX {
                let found = block / WORD * WORD + u64::from(taken.trailing_ones());
                return (found < end).then_some(found);
            }
            block = (block / WORD + 1) * WORD;
        }
        None
    }

    /// Free blocks from the free block `first` on, at most `most`.
    pub(super) fn run(&self, first: u64, most: u64) -> u64 {
        let end = self.blocks.min(first + most);
        let mut block = first;
        while block < end {
            let taken = self.words.get(block / WORD) >> (block % WORD);
            if taken != 0 {
                block += u64::from(taken.trailing_zeros());
                break;
            }
            block = (block / WORD + 1) * WORD;
        }
        block.min(end) - first
    }

    /// The free block nearest to `block` by address, to a region.
    pub(super) fn nearest(&self, block: u64) -> Option<u64> {
        let (here, regions) = (block / REGION, self.blocks.div_ceil(REGION));
        let free_in = |region: u64| {
            let (first, end) = (region * REGION, self.blocks.min((region + 1) * REGION));
            if u64::from(self.regions.get(region)) < end - first { self.next_free(first, end) } else { None }
        };
        for distance in 0..regions {
            let above = Some(here + distance).filter(|&region| region < regions).and_then(free_in);
            let found = above.or_else(|| here.checked_sub(distance).and_then(free_in));
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((0u64..20_000, 1u64..300), 1..100)) {
            let mut space = Space::new(20_000);
            let mut used = BTreeSet::new();
            for (from, most) in steps {
                match space.next_free(from, 20_000) {
                    Some(first) => {
                        prop_assert_eq!(Some(first), (from..20_000).find(|block| !used.contains(block)));
                        let blocks = space.run(first, most);
                        let end = (first..20_000.min(first + most)).find(|block| used.contains(block));
                        prop_assert_eq!(first + blocks, end.unwrap_or(20_000.min(first + most)));
                        space.take(first, blocks);
                        used.extend(first..first + blocks);
                    }
                    None => prop_assert!((from..20_000).all(|block| used.contains(&block))),
                }
                if let Some(&block) = used.range(from..).next().filter(|&&block| block % 3 == 0) {
                    space.free(block);
                    used.remove(&block);
                }
                prop_assert_eq!(space.used(), used.len() as u64);
                let nearest = space.nearest(from).unwrap();
                prop_assert!(!used.contains(&nearest));
                // No region between them has room.
                let regions = nearest / REGION..from / REGION;
                let full = |r: u64| (r * REGION..(r + 1) * REGION).all(|block| used.contains(&block));
                prop_assert!(regions.skip(1).all(full));
            }
        }
    }

    #[test]
    fn a_full_space_has_no_free_block() {
        let mut space = Space::new(5_000);
        space.take(0, 5_000);
        assert_eq!((space.next_free(0, 5_000), space.nearest(4_999)), (None, None));
        space.free(3);
        assert_eq!((space.nearest(4_999), space.run(3, 100)), (Some(3), 1));
    }
}
