//! Committed inodes, directories and extent trees: the newer version in the log, otherwise the one at its place.

use std::collections::HashSet;

use chronodisk_store::StoreError;

use super::Xfs;
use super::committed::Committed;
use super::directory;
use super::inode::{Extent, Inode, Node, tree_block};
use super::names::Names;
use crate::UNIT_BYTES;
use crate::blocks::Blocks;
use crate::runs::RunMap;
use crate::units::VolumeUnit;

impl Xfs {
    /// A block as it was committed.
    pub(super) fn read_committed(
        &self,
        committed: &Committed,
        block: u64,
        bytes: &mut [u8],
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        if let Some(copy) = committed.block(block) {
            bytes.copy_from_slice(copy);
            return Ok(());
        }
        blocks.read(self.start_bytes + block * self.superblock.block_bytes, bytes)?;
        Ok(())
    }

    /// Reads the names in a directory; of each block once.
    pub(super) fn read_directory(
        &self,
        names: &mut Names,
        inode: Inode<'_>,
        visited: &mut RunMap<()>,
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        let folder = inode.number();
        for entry in inode.entries(&self.superblock) {
            names.named(folder, entry);
        }
        let mut bytes = vec![0; self.superblock.block_bytes as usize];
        for Extent { first, end, .. } in self.extents_of(inode, &names.committed, blocks)? {
            let (from, to) = self.units_around(first, end);
            let mut there: RunMap<()> = RunMap::default();
            for (from, to) in blocks.stored_pieces(VolumeUnit(from), VolumeUnit(to)) {
                let from_block = (from.offset_bytes() - self.start_bytes) / self.superblock.block_bytes;
                let to_block = (to.offset_bytes() - self.start_bytes) / self.superblock.block_bytes;
                there.set(first.max(from_block), end.min(to_block), ());
            }
            names.committed.blocks_between(first, end).for_each(|block| there.set(block, block + 1, ()));
            for (from, to, ()) in there.all() {
                for block in from..to {
                    if visited.at(block, block + 1).0.is_some() {
                        continue;
                    }
                    visited.set(block, block + 1, ());
                    self.read_committed(&names.committed, block, &mut bytes, blocks)?;
                    if directory::owner_of(&bytes, &self.superblock) == Some(folder) {
                        for entry in directory::entries(&bytes, &self.superblock) {
                            names.named(folder, entry);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The inode in these bytes, if its number belongs to this place: block, and offset in bytes.
    pub(super) fn inode_in<'a>(&self, bytes: &'a [u8], place: (u64, usize)) -> Option<Inode<'a>> {
        let inode = Inode::parse(bytes, &self.superblock)?;
        (self.superblock.place_of_inode(inode.number()) == place).then_some(inode)
    }

    /// The blocks of a regular file, according to the inode at its place.
    pub(super) fn extents_of_file(
        &self,
        number: u64,
        committed: &Committed,
        blocks: &mut Blocks,
    ) -> Result<Vec<Extent>, StoreError> {
        let bytes = self.bytes_of_inode(number, committed, blocks)?;
        self.file_in(&bytes, number).map_or(Ok(Vec::new()), |inode| self.extents_of(inode, committed, blocks))
    }

    /// An inode's committed bytes, or those at its place; `None` without an inode.
    pub(super) fn bytes_of_inode(
        &self,
        number: u64,
        committed: &Committed,
        blocks: &mut Blocks,
    ) -> Result<Vec<u8>, StoreError> {
        if let Some(bytes) = committed.inode(number) {
            return Ok(bytes.clone());
        }
        let (block, offset) = self.superblock.place_of_inode(number);
        if block >= self.superblock.blocks_count {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; self.superblock.inode_bytes];
        blocks.read(self.start_bytes + block * self.superblock.block_bytes + offset as u64, &mut bytes)?;
        Ok(bytes)
    }

    /// The regular file's inode of this number in the bytes at its place.
    pub(super) fn file_in<'a>(&self, bytes: &'a [u8], number: u64) -> Option<Inode<'a>> {
        let inode = self.inode_in(bytes, self.superblock.place_of_inode(number))?;
        (inode.is_regular() && inode.number() == number).then_some(inode)
    }

    /// The blocks claimed by an inode and the extent tree below it; each block of the tree is read once.
    pub(super) fn extents_of(
        &self,
        inode: Inode<'_>,
        committed: &Committed,
        blocks: &mut Blocks,
    ) -> Result<Vec<Extent>, StoreError> {
        let Node { mut extents, children: mut below } = inode.root(&self.superblock);
        let mut visited = HashSet::new();
        let mut bytes = vec![0; self.superblock.block_bytes as usize];
        while let Some((block, level)) = below.pop() {
            if !visited.insert(block) {
                continue;
            }
            self.read_committed(committed, block, &mut bytes, blocks)?;
            let Some((node, owner)) = tree_block(&bytes, Some(level), &self.superblock) else { continue };
            if owner == inode.number() {
                extents.extend(node.extents);
                below.extend(node.children);
            }
        }
        Ok(extents)
    }

    /// The units that blocks lie in.
    pub(super) fn units_around(&self, first: u64, last: u64) -> (u64, u64) {
        let (from_bytes, to_bytes) = self.bytes_of(first, last);
        (from_bytes / UNIT_BYTES, to_bytes.div_ceil(UNIT_BYTES))
    }

    /// The units that lie in blocks.
    pub(super) fn units_within(&self, first: u64, last: u64) -> (u64, u64) {
        let (from_bytes, to_bytes) = self.bytes_of(first, last);
        (from_bytes.div_ceil(UNIT_BYTES), to_bytes / UNIT_BYTES)
    }

    pub(super) fn bytes_of(&self, first: u64, last: u64) -> (u64, u64) {
        let block_bytes = self.superblock.block_bytes;
        (self.start_bytes + first * block_bytes, self.start_bytes + last * block_bytes)
    }
}
