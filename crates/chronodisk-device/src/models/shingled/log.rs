//! The persistent cache: a log of extents, with a map of its blocks.
//!
//! Positions count all blocks ever appended; position p is at block p modulo the log's size. At the log's tail begins
//! the oldest data in use.

use super::Layout;
use crate::cow_table::CowTable;

/// A run of addresses that were written together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Extent {
    position: u64,
    block: u64,
    blocks: u32,
}

/// The cache's contents.
#[derive(Clone, Debug)]
pub(super) struct Log {
    layout: Layout,
    /// By address: the block of the log plus one; zero if the address is in its band.
    map: CowTable<u32>,
    /// Extents by number, modulo the number of entries.
    extents: CowTable<Extent>,
    first_extent: u64,
    next_extent: u64,
    tail: u64,
    head: u64,
    /// Blocks that the map has in the log.
    live: u64,
}

impl Log {
    pub(super) fn new(layout: Layout) -> Self {
        Log {
            layout,
            map: CowTable::new(layout.bands * layout.band_blocks, 0),
            extents: CowTable::new(layout.entries, Extent::default()),
            first_extent: 0,
            next_extent: 0,
            tail: 0,
            head: 0,
            live: 0,
        }
    }

    /// Most memory of a log of that layout.
    pub(super) fn bytes_max(layout: &Layout) -> u64 {
        CowTable::<u32>::bytes_max(layout.bands.saturating_mul(layout.band_blocks))
            .saturating_add(CowTable::<Extent>::bytes_max(layout.entries))
    }

    /// Whether the log holds no data in use.
    pub(super) fn is_clean(&self) -> bool {
        self.live == 0
    }

    /// Blocks that are in use.
    pub(super) fn live(&self) -> u64 {
        self.live
    }

    /// The position at which the next extent begins.
    pub(super) fn head(&self) -> u64 {
        self.head
    }

    /// Whether an extent of this length has room, including padding at the log's end.
    pub(super) fn has_room(&self, blocks: u64) -> bool {
        self.head + blocks - self.tail <= self.layout.cache_blocks
            && self.next_extent + 2 - self.first_extent <= self.layout.entries
    }

    /// Blocks until the log's end, where an extent is cut.
    pub(super) fn until_end(&self) -> u64 {
        self.layout.cache_blocks - self.layout.cache_place(self.head)
    }

    /// Appends an extent that fits and does not reach over the end; returns its block of the log.
    pub(super) fn append(&mut self, block: u64, blocks: u64) -> u64 {
        let (position, place) = (self.head, self.layout.cache_place(self.head));
        self.map.change(block, block + blocks, |index, before| {
            self.live += u64::from(before == 0);
            (place + (index - block)) as u32 + 1
        });
        let extent = Extent { position, block, blocks: blocks as u32 };
        self.extents.set(self.next_extent % self.layout.entries, extent);
        self.next_extent += 1;
        self.head += blocks;
        place
    }

    /// The block of the log that holds `block`, if any.
    pub(super) fn place_of(&self, block: u64) -> Option<u64> {
        self.map.get(block).checked_sub(1).map(u64::from)
    }

    /// The block whose newest content is at a place of the log; `None` if there is none.
    pub(super) fn block_at(&self, place: u64) -> Option<u64> {
        if self.head <= place {
            return None;
        }
        let position = newest(&self.layout, self.head, place);
        let extent = |number: u64| self.extents.get(number % self.layout.entries);
        let (mut low, mut high) = (self.first_extent, self.next_extent);
        while low < high {
            let middle = low + (high - low) / 2;
            match extent(middle).position <= position {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let found = extent(low.checked_sub(1).filter(|&number| number >= self.first_extent)?);
        let offset = position - found.position;
        let block = found.block + offset;
        (offset < u64::from(found.blocks) && self.position_of(block) == Some(position)).then_some(block)
    }

    /// The position of `block`; `None` if the log does not hold it.
    pub(super) fn position_of(&self, block: u64) -> Option<u64> {
        self.place_of(block).map(|place| newest(&self.layout, self.head, place))
    }

    /// Blocks from `first` to before `end` that were appended before the position `before` are in their band.
    pub(super) fn forget(&mut self, first: u64, end: u64, before: u64) {
        self.map.change(first, end, |_, kept| {
            let position = kept.checked_sub(1).map(|place| newest(&self.layout, self.head, place.into()));
            let forgotten = position.is_some_and(|position| position < before);
            self.live -= u64::from(forgotten);
            if forgotten { 0 } else { kept }
        });
    }

    /// The run of blocks from `block` on, before `end`, that are consecutive in the log or all in their bands. Returns
    /// its first block in the log, if it is there, and its length.
    pub(super) fn run(&self, block: u64, end: u64) -> (Option<u64>, u64) {
        let first = self.place_of(block);
        let mut blocks = 1;
        while block + blocks < end && self.place_of(block + blocks) == first.map(|place| place + blocks) {
            blocks += 1;
        }
        (first, blocks)
    }

    /// Moves the tail over unused entries and returns the oldest address in use.
    pub(super) fn oldest(&mut self) -> Option<u64> {
        while self.first_extent < self.next_extent {
            let slot = self.first_extent % self.layout.entries;
            let extent = self.extents.get(slot);
            let in_use = |&offset: &u64| self.position_of(extent.block + offset) == Some(extent.position + offset);
            if let Some(offset) = (0..u64::from(extent.blocks)).find(in_use) {
                self.tail = extent.position + offset;
                return Some(extent.block + offset);
            }
            self.extents.set(slot, Extent::default());
            self.first_extent += 1;
        }
        self.tail = self.head;
        None
    }
}

/// The newest position before `head` that lies at a block of the log.
fn newest(layout: &Layout, head: u64, place: u64) -> u64 {
    let back = (layout.cache_place(head) + layout.cache_blocks - place - 1) % layout.cache_blocks;
    head - 1 - back
}
