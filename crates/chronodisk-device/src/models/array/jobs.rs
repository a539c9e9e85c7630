//! Requests on their way into the stripe cache, split into blocks in the order of Linux's md.
//!
//! md takes the stripes in ascending order on the members, each with all blocks of the request
//! (`raid5_bio_lowest_chunk_sector` and `raid5_make_request` of Linux 6.4), so that requests of the members are long.

use std::collections::VecDeque;

use super::layout::{Layout, MemberSet};

/// Sectors of a page, the height of md's stripes.
pub(crate) const PAGE_SECTORS: u64 = 8;

/// Size of the blocks of a stripe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockSize {
    pub(crate) sectors: u64,
    /// One bit per sector of a block. A block of more than a page is a logical block, written as a whole: one bit.
    pub(crate) whole: u8,
}

impl BlockSize {
    /// A page, or the largest part of it that divides a chunk, or the members' larger logical block.
    pub(crate) fn new(chunk_sectors: u64, logical_block_sectors: u64) -> BlockSize {
        let part = 1 << chunk_sectors.trailing_zeros().min(PAGE_SECTORS.trailing_zeros());
        let sectors = logical_block_sectors.max(part);
        let whole = if sectors > PAGE_SECTORS { 1 } else { (u16::MAX >> (16 - sectors)) as u8 };
        BlockSize { sectors, whole }
    }

    /// The bits of the sectors from `low` to before `high`.
    fn bits(self, low: u64, high: u64) -> u8 {
        if self.sectors > PAGE_SECTORS {
            self.whole
        } else {
            (self.whole >> (self.sectors - high)) & (self.whole << low)
        }
    }
}

/// The part of a request in one stripe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// The stripe: the number of the block on each member.
    pub(crate) row: u64,
    pub(crate) chunk_row: u64,
    /// Data chunks: from the first to before the second.
    units: (usize, usize),
    /// Sectors of the first block, and of the last one.
    edges: (u8, u8),
}

impl Piece {
    /// The blocks: each member with the bits of the sectors.
    pub(crate) fn blocks<'a>(
        &'a self,
        layout: &'a Layout,
        size: BlockSize,
    ) -> impl Iterator<Item = (usize, u8)> + Clone + 'a {
        (self.units.0..self.units.1).map(move |unit| {
            let first = if unit == self.units.0 { self.edges.0 } else { size.whole };
            let last = if unit + 1 == self.units.1 { self.edges.1 } else { size.whole };
            (layout.data(self.chunk_row, unit), first & last)
        })
    }

    pub(crate) fn members(&self, layout: &Layout) -> MemberSet {
        let mut members = MemberSet::default();
        (self.units.0..self.units.1).for_each(|unit| members.insert(layout.data(self.chunk_row, unit)));
        members
    }
}

/// A range of the array's sectors on its way into the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    /// First sector in the row of chunks that comes next.
    at: u64,
    end: u64,
    /// Blocks of that row of chunks up to which the request is done.
    done: u64,
}

impl Blocks {
    pub(crate) fn new(at: u64, end: u64) -> Self {
        Blocks { at, end, done: 0 }
    }

    /// The next piece; it stays the next until [`advance`](Self::advance).
    pub(crate) fn next(&mut self, layout: &Layout, size: BlockSize) -> Option<Piece> {
        while self.at < self.end {
            let chunk_row = self.at / layout.row_sectors();
            let base = chunk_row * layout.row_sectors();
            let row_end = self.end.min(base + layout.row_sectors());
            let per_chunk = layout.chunk_sectors / size.sectors;
            let span = (self.at - base, row_end - base);
            while self.done < per_chunk {
                match piece(layout, size, chunk_row, span, self.done) {
                    Ok(piece) => return Some(piece),
                    Err(next) => self.done = next.unwrap_or(per_chunk),
                }
            }
            self.at = row_end;
            self.done = 0;
        }
        None
    }

    pub(crate) fn advance(&mut self) {
        self.done += 1;
    }
}

/// The part of a row of chunks in its block number `block`. Without such a part, the next block that has one.
fn piece(layout: &Layout, size: BlockSize, chunk_row: u64, span: (u64, u64), block: u64) -> Result<Piece, Option<u64>> {
    let (chunk, last) = (layout.chunk_sectors, span.1 - 1);
    let per_chunk = chunk / size.sectors;
    let first_block = span.0 % chunk / size.sectors;
    let last_block = last % chunk / size.sectors;
    let from = (span.0 / chunk) as usize + usize::from(block < first_block);
    let to = (last / chunk) as usize + usize::from(block <= last_block);
    if from >= to {
        return Err((block < first_block).then_some(first_block));
    }
    let begins = block == first_block && from == (span.0 / chunk) as usize;
    let ends = block == last_block && to == (last / chunk) as usize + 1;
    let first = if begins { size.bits(span.0 % size.sectors, size.sectors) } else { size.whole };
    let end = if ends { size.bits(0, last % size.sectors + 1) } else { size.whole };
    Ok(Piece { row: chunk_row * per_chunk + block, chunk_row, units: (from, to), edges: (first, end) })
}

/// Work that a request still has to hand over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    /// Blocks to read or to write.
    Blocks { blocks: Blocks, write: bool, fua: bool },
    /// Rows of chunks, from the first to before the second, discarded or zeroed past the cache.
    Rows(u64, u64),
}

/// Part of a request that waits for its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) parent: u32,
    pub(crate) task: Task,
    /// Whether it has found the cache full or its blocks occupied.
    pub(crate) waited: bool,
}

/// Jobs, first come, first served, as one process submits its requests to md.
pub(crate) type Jobs = VecDeque<Job>;
