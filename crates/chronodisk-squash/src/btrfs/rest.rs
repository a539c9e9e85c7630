//! What becomes of the rest: of contents that no commit has decided on when the store is closed or opened, and of nodes
//! that are free.
//!
//! btrfs has no mark of an unmount. It was unmounted, or a tool is done, if there is no log and nothing was written
//! after the last commit: then what no file has is nobody's. Else a kernel died, or has it mounted still. What a
//! recovery shows is the last commit with the log: contents of the files that these have are kept or dropped by the
//! files' names. All other contents may be of a file that is on its way, so they stay kept until two commits have said
//! nothing of them.

use chronodisk_store::StoreError;

use super::Btrfs;
use super::log::Logged;
use super::names::Names;
use super::tree::{CHECKSUM_BYTES, generation_of, is_node};
use crate::UNIT_BYTES;
use crate::blocks::Blocks;
use crate::crc32c;
use crate::runs::RunMap;

impl Btrfs {
    /// Decides what can be decided when nothing more will be written. If files are to be kept and the file system was
    /// not unmounted, returns how many blocks hold contents that may be theirs.
    pub(super) fn settle_rest(&mut self, blocks: &mut Blocks) -> Result<Option<u64>, StoreError> {
        let keeps = self.keeps_by_names();
        if self.chunks.is_none() || self.unsettled || self.doubted {
            return Ok(keeps.then(|| self.undecided_units()));
        }
        let unmounted = self.superblock.log_root.is_none() && !self.in_use;
        let others = if keeps && !unmounted { Some(self.others(blocks)?) } else { None };
        for set in [std::mem::take(&mut self.older), std::mem::take(&mut self.fresh)] {
            let rest = self.settle_blocks(&set, others.as_ref(), blocks)?;
            rest.all().for_each(|(first, last, ())| self.older.set(first, last, ()));
        }
        self.drop_free_nodes(blocks)?;
        Ok(others.map(|_| self.undecided_units()))
    }

    /// Blocks of unsettled chunks. Contents outside of chunks are never decided.
    pub(super) fn undecided_units(&self) -> u64 {
        let Some(chunks) = &self.chunks else { return 0 };
        let sets = self.older.all().chain(self.fresh.all());
        sets.flat_map(|(first, last, ())| chunks.pieces(first, last)).map(|(from, to, _)| to - from).sum()
    }

    /// Settles stored contents of blocks; contents without a known file wait for two commits.
    pub(super) fn fresh_again(
        &mut self,
        stored: &RunMap<()>,
        others: &RunMap<()>,
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        let rest = self.settle_blocks(stored, Some(others), blocks)?;
        rest.all().for_each(|(first, last, ())| self.fresh.set(first, last, ()));
        Ok(())
    }

    /// Logical blocks of files that are not kept, as a recovery would show them. None of them if not all could be read.
    /// The contents of kept files are kept from now on.
    pub(super) fn others(&mut self, blocks: &mut Blocks) -> Result<RunMap<()>, StoreError> {
        let Some(mut names) = self.names.take() else { return Ok(RunMap::default()) };
        let others = self.others_than(&mut names, blocks);
        self.names = Some(names);
        others
    }

    fn others_than(&mut self, names: &mut Names, blocks: &mut Blocks) -> Result<RunMap<()>, StoreError> {
        let nothing = RunMap::default();
        let Some(chunks) = self.chunks.clone() else { return Ok(nothing) };
        let Some(logged) = Logged::read(names.rules(), &mut self.trees(&chunks, blocks))? else { return Ok(nothing) };
        let new = names.keep(logged.kept);
        names.late_units += self.squashed_units(&new, &chunks, blocks);
        let mut others = logged.others;
        let mut trees = self.trees(&chunks, blocks);
        let free_space = if trees.superblock.free_space_valid { trees.free_space_root()? } else { None };
        let Some(root) = free_space else { return Ok(others) };
        for (start, end) in chunks.ranges() {
            // Blocks that the last commit does not call free belong to a file.
            let mut used = RunMap::<()>::default();
            used.set(start / UNIT_BYTES, end / UNIT_BYTES, ());
            let mut visit = |logical: u64, len_bytes: u64| {
                let last = logical.saturating_add(len_bytes).min(end);
                used.remove(logical.max(start) / UNIT_BYTES, last.div_ceil(UNIT_BYTES));
            };
            if trees.free_ranges(root, start, end, UNIT_BYTES, &mut visit)? {
                used.all().for_each(|(first, last, ())| others.set(first, last, ()));
            }
        }
        Ok(others)
    }

    /// Drops nodes that the last commit calls free. A later transaction's nodes may be in use already.
    pub(super) fn drop_free_nodes(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        self.nodes_since_sweep = 0;
        let Some(chunks) = self.chunks.clone().filter(|_| self.superblock.free_space_valid) else { return Ok(()) };
        let mut trees = self.trees(&chunks, blocks);
        let mut free = RunMap::<()>::default();
        if let Some(root) = trees.free_space_root()? {
            for (start, end) in chunks.node_ranges() {
                let mut found = Vec::new();
                let mut visit = |logical: u64, len_bytes: u64| {
                    let last = logical.saturating_add(len_bytes).min(end);
                    found.push((logical.max(start), last));
                };
                if trees.free_ranges(root, start, end, UNIT_BYTES, &mut visit)? {
                    for (from, to) in found.into_iter().filter(|(from, to)| from < to) {
                        let places = chunks.copies(from, to - from);
                        places.for_each(|at| free.set(at.div_ceil(UNIT_BYTES), (at + (to - from)) / UNIT_BYTES, ()));
                    }
                }
            }
        }
        for (first, last, ()) in free.all() {
            self.drop_old_nodes(first, last, blocks)?;
        }
        Ok(())
    }

    /// Drops whole nodes between two blocks that no later transaction wrote.
    fn drop_old_nodes(&mut self, first: u64, last: u64, blocks: &mut Blocks) -> Result<(), StoreError> {
        let node_units = self.node_units();
        let mut node = vec![0; self.superblock.node_bytes as usize];
        let mut next = 0;
        for (from, to) in blocks.stored_pieces(self.start + first, self.start + last) {
            let windows = (from - self.start) / node_units..(to - self.start).div_ceil(node_units);
            for window in windows.map(|window| window * node_units) {
                if window < first.max(next) || window + node_units > last {
                    continue;
                }
                next = window + node_units;
                blocks.read(self.start_bytes + window * UNIT_BYTES, &mut node)?;
                let whole = crc32c::crc32c(&node[CHECKSUM_BYTES..]).to_le_bytes() == node[..4];
                if whole && is_node(&node, &self.superblock) && generation_of(&node) <= self.superblock.generation {
                    blocks.squash(self.start + window, self.start + next);
                }
            }
        }
        Ok(())
    }
}
