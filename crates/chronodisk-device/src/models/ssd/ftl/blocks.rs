//! Properties of each superblock, and the free superblocks.

use super::super::geometry::{DieIndex, Geometry};
use crate::flat_table::FlatTable;
use crate::footprint;

/// Number of a superblock in the drive: by die, then block.
pub(crate) type SuperblockIndex = u32;

/// Use of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum BlockUse {
    /// Erased.
    Free,
    /// Being written.
    Open,
    /// Written; may be collected once all its programs have ended.
    Closed,
    /// Being collected.
    Victim,
}

impl BlockUse {
    /// The use with this number.
    pub(super) fn from_code(code: u32) -> Option<Self> {
        [BlockUse::Free, BlockUse::Open, BlockUse::Closed, BlockUse::Victim].into_iter().nth(code as usize)
    }
}

/// A superblock of a drive at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RestingBlock {
    pub(super) state: BlockUse,
    /// Index in the order in which the superblocks of its die were closed.
    pub(super) closing: u32,
    pub(super) erases: u32,
    /// With a block map: the logical block whose data superblock this is, plus one.
    pub(super) home: u32,
    /// The units that it held in order when it was closed as a log before it was full; otherwise zero.
    pub(super) in_order: u32,
}

impl RestingBlock {
    pub(super) const FREE: RestingBlock =
        RestingBlock { state: BlockUse::Free, closing: 0, erases: 0, home: 0, in_order: 0 };
}

/// A group of a die's superblocks with the same use, see [`Pools`].
pub(super) type Pool = u32;

/// The pools of a drive: for each die one of ordinary superblocks, with the die's number. With an SLC region, each die
/// has a second pool of its first superblocks, which hold one bit per cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pools {
    dies: u32,
    blocks_per_die: u32,
    slc_superblocks: u32,
}

impl Pools {
    fn count(self) -> u32 {
        if self.slc_superblocks > 0 { 2 * self.dies } else { self.dies }
    }

    /// Whether a superblock has one bit in a cell.
    #[inline]
    pub(super) fn is_slc(self, superblock: SuperblockIndex) -> bool {
        self.slc_superblocks > 0 && superblock % self.blocks_per_die < self.slc_superblocks
    }

    /// The pool of a die's superblock.
    pub(super) fn of(self, die: DieIndex, superblock: SuperblockIndex) -> Pool {
        if self.is_slc(superblock) { self.slc(die) } else { die }
    }

    /// The superblocks of a die with one bit in a cell.
    pub(super) fn slc(self, die: DieIndex) -> Pool {
        self.dies + die
    }

    /// The superblocks of a pool.
    fn superblocks(self, pool: Pool) -> std::ops::Range<SuperblockIndex> {
        let first = pool % self.dies * self.blocks_per_die;
        let end_of_slc = first + self.slc_superblocks;
        if pool < self.dies { end_of_slc..first + self.blocks_per_die } else { first..end_of_slc }
    }
}

/// The superblocks of a drive: a record of words for each, and for each pool its free ones by erase count.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    pools: Pools,
    records: FlatTable,
    /// First free superblock of each wear class of each pool, plus one.
    free_heads: FlatTable,
    /// Wear by pool.
    wear: Vec<PoolWear>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PoolWear {
    free: u32,
    /// Erase count of the next wear class; the class of a superblock is its erase count modulo [`WEAR_CLASSES`].
    least: u32,
    most: u32,
    /// Superblocks closed so far, modulo 2^32.
    closings: u32,
}

/// Erase counts that are distinguished among the free superblocks of a pool; static levelling keeps them closer
/// together.
const WEAR_CLASSES: u32 = 256;

/// Words of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Field {
    /// Valid units.
    Valid,
    /// Programs that have not ended, and the use.
    State,
    /// Erases.
    Erases,
    /// Next superblock in the same list, plus one.
    Next,
    /// Preceding one, plus one.
    Previous,
    /// Number of its closing among those of its pool.
    Closing,
    /// Index among its die's candidates.
    Place,
}

/// Words of a record, a power of two for the sake of addressing.
const RECORD_WORDS: u32 = 8;

const USE_BITS: u32 = 2;

impl Blocks {
    /// Superblocks that are all erased.
    pub(super) fn new(geometry: &Geometry, slc_superblocks: u32) -> Self {
        let mut blocks = Blocks::in_use(geometry, slc_superblocks);
        for pool in 0..blocks.pools.count() {
            // Inserted in reverse, because the last one inserted is taken first.
            blocks.pools.superblocks(pool).rev().for_each(|superblock| blocks.put_free(pool, superblock, true));
        }
        blocks
    }

    /// Most memory for the superblocks of a drive.
    pub(super) fn bytes_max(geometry: &Geometry, slc_superblocks: u32) -> u64 {
        let pools = Pools { dies: geometry.dies(), blocks_per_die: geometry.blocks_per_plane, slc_superblocks };
        let pools = u64::from(pools.count());
        footprint::sum([
            FlatTable::bytes(u64::from(geometry.superblocks()) * u64::from(RECORD_WORDS)),
            FlatTable::bytes(pools * u64::from(WEAR_CLASSES)),
            footprint::array_bytes::<PoolWear>(pools),
        ])
    }

    /// Superblocks without a free one yet.
    pub(super) fn in_use(geometry: &Geometry, slc_superblocks: u32) -> Self {
        let pools = Pools { dies: geometry.dies(), blocks_per_die: geometry.blocks_per_plane, slc_superblocks };
        Blocks {
            records: FlatTable::new(u64::from(geometry.superblocks()) * u64::from(RECORD_WORDS)),
            free_heads: FlatTable::new(u64::from(pools.count()) * u64::from(WEAR_CLASSES)),
            wear: vec![PoolWear::default(); pools.count() as usize],
            pools,
        }
    }

    /// The pools of the drive.
    #[inline]
    pub(super) fn pools(&self) -> Pools {
        self.pools
    }

    /// Puts the free superblocks into classes from the least on, once the erase counts of all are known.
    pub(super) fn begin_wear_at_least(&mut self) {
        for pool in 0..self.pools.count() {
            let erases = |superblock| self.get(superblock, Field::Erases);
            let superblocks = self.pools.superblocks(pool);
            let least = superblocks.clone().map(erases).min().unwrap_or(0);
            let most = superblocks.map(erases).max().unwrap_or(0);
            let wear = &mut self.wear[pool as usize];
            (wear.least, wear.most) = (least, most);
        }
    }

    #[inline]
    pub(super) fn get(&self, superblock: SuperblockIndex, field: Field) -> u32 {
        self.records.get(superblock * RECORD_WORDS + field as u32)
    }

    #[inline]
    pub(super) fn set(&mut self, superblock: SuperblockIndex, field: Field, word: u32) {
        self.records.set(superblock * RECORD_WORDS + field as u32, word);
    }

    pub(super) fn use_of(&self, superblock: SuperblockIndex) -> BlockUse {
        let code = self.get(superblock, Field::State) & ((1 << USE_BITS) - 1);
        BlockUse::from_code(code).expect("two bits have four values")
    }

    pub(super) fn set_use(&mut self, superblock: SuperblockIndex, new: BlockUse) {
        let programs = self.get(superblock, Field::State) >> USE_BITS;
        self.set(superblock, Field::State, (programs << USE_BITS) | new as u32);
    }

    /// Programs that were begun and have not ended.
    pub(super) fn programs(&self, superblock: SuperblockIndex) -> u32 {
        self.get(superblock, Field::State) >> USE_BITS
    }

    pub(super) fn begin_program(&mut self, superblock: SuperblockIndex) {
        let state = self.get(superblock, Field::State);
        self.set(superblock, Field::State, state + (1 << USE_BITS));
    }

    pub(super) fn end_program(&mut self, superblock: SuperblockIndex) {
        assert!(self.programs(superblock) > 0, "no program of superblock {superblock} was begun");
        let state = self.get(superblock, Field::State);
        self.set(superblock, Field::State, state - (1 << USE_BITS));
    }

    /// Free superblocks of a pool.
    pub(super) fn free(&self, pool: Pool) -> u32 {
        self.wear[pool as usize].free
    }

    /// Largest erase count in a pool.
    pub(super) fn most_erases(&self, pool: Pool) -> u32 {
        self.wear[pool as usize].most
    }

    /// Takes a free superblock: the least erased, or the most erased for data that don't change.
    pub(super) fn take_free(&mut self, pool: Pool, most_erased: bool) -> Option<SuperblockIndex> {
        let wear = self.wear[pool as usize];
        if wear.free == 0 {
            return None;
        }
        for step in 0..WEAR_CLASSES {
            let erases = if most_erased { wear.least + WEAR_CLASSES - 1 - step } else { wear.least + step };
            let head = pool * WEAR_CLASSES + erases % WEAR_CLASSES;
            if let Some(superblock) = self.free_heads.get(head).checked_sub(1) {
                let next = self.get(superblock, Field::Next);
                self.free_heads.set(head, next);
                let wear = &mut self.wear[pool as usize];
                wear.free -= 1;
                if !most_erased {
                    wear.least = erases;
                }
                return Some(superblock);
            }
        }
        unreachable!("a pool with free superblocks has one in some class")
    }

    /// Adds a superblock to the free ones.
    pub(super) fn put_free(&mut self, pool: Pool, superblock: SuperblockIndex, by_wear: bool) {
        let erases = self.get(superblock, Field::Erases);
        let wear = &mut self.wear[pool as usize];
        wear.free += 1;
        wear.most = wear.most.max(erases);
        let class = if by_wear { erases.clamp(wear.least, wear.least + WEAR_CLASSES - 1) } else { wear.least };
        let head = pool * WEAR_CLASSES + class % WEAR_CLASSES;
        let next = self.free_heads.get(head);
        self.set(superblock, Field::Next, next);
        self.free_heads.set(head, superblock + 1);
        self.set_use(superblock, BlockUse::Free);
    }

    /// Closes a superblock that is written.
    pub(super) fn close(&mut self, pool: Pool, superblock: SuperblockIndex) {
        let wear = &mut self.wear[pool as usize];
        wear.closings = wear.closings.wrapping_add(1);
        let closing = wear.closings;
        self.set(superblock, Field::Closing, closing);
        self.set_use(superblock, BlockUse::Closed);
    }

    /// Superblocks of a pool closed since this one was, it included.
    pub(super) fn age(&self, pool: Pool, superblock: SuperblockIndex) -> u32 {
        self.wear[pool as usize].closings.wrapping_sub(self.get(superblock, Field::Closing)) + 1
    }

    /// Whether a superblock may be collected: written, and all its programs have ended.
    #[inline]
    pub(super) fn is_candidate(&self, superblock: SuperblockIndex) -> bool {
        self.get(superblock, Field::State) == BlockUse::Closed as u32
    }

    /// The superblocks of a die, of both pools.
    #[cfg(test)]
    pub(super) fn of_die(&self, die: DieIndex) -> std::ops::Range<SuperblockIndex> {
        die * self.pools.blocks_per_die..(die + 1) * self.pools.blocks_per_die
    }
}
