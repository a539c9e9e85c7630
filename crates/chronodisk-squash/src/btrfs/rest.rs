//! Decides about the rest when the store is closed or opened: contents without a decision by a commit, and free nodes.
//!
//! btrfs has no mark of an unmount. If there is no log and nothing was written after the last commit, the file system
//! was unmounted, or a tool is done: blocks without a file are then free. Otherwise a kernel died, or still has it
//! mounted. A recovery shows the last commit and the log, so contents of files in these are kept or dropped by the
//! files' names. All other contents may belong to a file that is being written, so they stay kept until two commits
//! have not claimed them.

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
    /// Decides as much as possible, given that no further write comes. If files are to be kept and the file system was
    /// not unmounted, returns the number of blocks whose contents may be theirs.
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

    /// Classifies stored contents of blocks; contents without a known file wait for two commits.
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

    /// Logical blocks of files that are not kept, in the state that a recovery would show; none if a node was
    /// unreadable. The contents of kept files are kept from now on.
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
            // Each block that the last commit does not list as free belongs to a file.
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

    /// Drops nodes that the last commit lists as free. A later transaction's nodes may be in use already.
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

    /// Drops whole nodes in a range of blocks unless a later transaction wrote them.
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
