//! Walks from inodes to their blocks.
//!
//! Trees are hostile: the format bounds their depth, and a walk visits a node once. Offsets are from the Linux
//! kernel's `Documentation/filesystems/ext4/ifork.rst`.

use std::collections::{BTreeSet, HashSet};

use chronodisk_store::StoreError;

use super::View;
use super::inode::{DEPTH_MAX, EXTENT_MAX_BLOCKS, EXTENTS_MAGIC, FLAG_EXTENTS, Inode, Leaf, Trust, Use};
use super::names::Names;
use super::superblock::{Superblock, checksum};
use crate::bytes::u32_at;
use crate::class::Class;
use crate::runs::RunMap;

/// Effect of a pointer that claims a block as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Belief {
    /// Nothing: the node may be older than its inode, and of another file.
    None,
    /// The block is data unless it is known as metadata. Dropping it needs a look at its form.
    UnlessMetadata,
    /// The latest claim holds.
    Latest,
}

/// Follows inodes, and records the use of their blocks.
pub(crate) struct Walk<'a, 'b> {
    pub(crate) superblock: &'a Superblock,
    pub(crate) uses: &'a mut RunMap<Use>,
    pub(crate) view: View<'b>,
    pub(crate) trust: Trust,
    /// Blocks that are new in the view; a node that is not, and known, needs no reading.
    pub(crate) changed: &'a HashSet<u64>,
    /// Blocks that stay metadata even if a regular file claims them.
    pub(crate) protected: &'a BTreeSet<u64>,
    pub(crate) visited: HashSet<u64>,
    /// Blocks with new information.
    pub(crate) claimed: RunMap<()>,
    /// Names, if rules apply to them.
    pub(crate) names: Option<&'a mut Names>,
    /// The inode that is followed, if one is.
    pub(crate) number: Option<u64>,
}

impl Walk<'_, '_> {
    /// Follows an inode.
    pub(crate) fn inode(&mut self, number: u64, inode: Inode<'_>) -> Result<(), StoreError> {
        let mut leaf = inode.leaf(self.superblock, number);
        if let Some(names) = &mut self.names {
            leaf = names.leaf(number, inode, leaf);
        }
        let Some(leaf) = leaf else { return Ok(()) };
        self.number = Some(number);
        let walked = self.blocks_of(number, inode, leaf);
        self.number = None;
        walked
    }

    fn blocks_of(&mut self, number: u64, inode: Inode<'_>, leaf: Leaf) -> Result<(), StoreError> {
        let attributes = inode.attribute_block();
        if attributes != 0 {
            self.claim(attributes, 1, Leaf::Kept(Class::Attributes), Belief::Latest);
        }
        if !inode.has_map(number, self.superblock) {
            return Ok(());
        }
        if inode.flags() & FLAG_EXTENTS != 0 {
            let seed = checksum(self.superblock.checksum_seed, &(number as u32).to_le_bytes());
            let seed = checksum(seed, &inode.0[0x64..0x68]);
            return self.extents(inode.map(), None, leaf, seed, Belief::Latest);
        }
        for (index, pointer) in inode.map().chunks_exact(4).enumerate() {
            let block = u64::from(u32_at(pointer, 0));
            match index {
                _ if block == 0 => {}
                0..12 => self.claim(block, 1, leaf, Belief::Latest),
                _ => self.indirect(block, index as u8 - 11, leaf)?,
            }
        }
        Ok(())
    }

    /// Reads a node that was just written, and whose part in a tree is known.
    pub(crate) fn node(&mut self, block: u64, part: Use) -> Result<(), StoreError> {
        if !self.visited.insert(block) {
            return Ok(());
        }
        let mut bytes = vec![0; self.superblock.block_bytes as usize];
        if !self.view.read_block(block, &mut bytes)? {
            return Ok(());
        }
        match part {
            Use::Extents(leaf) => self.extents(&bytes, None, leaf, 0, Belief::Latest),
            Use::Indirect(level, leaf) => self.pointers(&bytes, level, leaf, Belief::Latest),
            Use::Data | Use::Kept(_) => Ok(()),
        }
    }

    /// Reads a node of an extent tree: 12 bytes of header, and 12 of each entry.
    fn extents(
        &mut self,
        node: &[u8],
        expected_depth: Option<u16>,
        leaf: Leaf,
        seed: u32,
        belief: Belief,
    ) -> Result<(), StoreError> {
        let u16_at = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (magic, count, depth) = (u16_at(node, 0), usize::from(u16_at(node, 2)), u16_at(node, 6));
        let fits = count < node.len() / 12;
        if magic != EXTENTS_MAGIC
            || !fits
            || depth > DEPTH_MAX
            || expected_depth.is_some_and(|expected| depth != expected)
        {
            return Ok(());
        }
        for entry in node[12..].chunks_exact(12).take(count) {
            if depth == 0 {
                let start = u64::from(u32_at(entry, 8)) | u64::from(u16_at(entry, 6)) << 32;
                let len = u64::from(u16_at(entry, 4));
                // Longer ones are of blocks that were set aside and not written.
                let len = if len > EXTENT_MAX_BLOCKS { len - EXTENT_MAX_BLOCKS } else { len };
                self.claim(start, len, leaf, belief);
            } else {
                let child = u64::from(u32_at(entry, 4)) | u64::from(u16_at(entry, 8)) << 32;
                self.extents_child(child, depth - 1, leaf, seed, belief)?;
            }
        }
        Ok(())
    }

    fn extents_child(
        &mut self,
        block: u64,
        depth: u16,
        leaf: Leaf,
        seed: u32,
        belief: Belief,
    ) -> Result<(), StoreError> {
        let Some(bytes) = self.enter(block, Use::Extents(leaf))? else { return Ok(()) };
        // The tail's checksum covers the inode's number and generation: another file's node does not pass.
        let own = || {
            let tail = 12 + 12 * usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
            self.superblock.has_metadata_checksums()
                && tail + 4 <= bytes.len()
                && checksum(seed, &bytes[..tail]) == u32_at(&bytes, tail)
        };
        let belief = if self.trust == Trust::Inode && !own() { self.belief_in_old_nodes() } else { belief };
        self.extents(&bytes, Some(depth), leaf, seed, belief)
    }

    fn indirect(&mut self, block: u64, level: u8, leaf: Leaf) -> Result<(), StoreError> {
        match self.enter(block, Use::Indirect(level, leaf))? {
            Some(bytes) if self.trust == Trust::Inode => {
                let belief = self.belief_in_old_nodes();
                self.pointers(&bytes, level, leaf, belief)
            }
            Some(bytes) => self.pointers(&bytes, level, leaf, Belief::Latest),
            None => Ok(()),
        }
    }

    /// A node may be older than the inode that leads to it, and name blocks that are metadata now. Where all metadata
    /// outside of fixed places have a form, none of these is dropped.
    fn belief_in_old_nodes(&self) -> Belief {
        match self.superblock.metadata_have_forms() && self.names.is_none() {
            true => Belief::UnlessMetadata,
            false => Belief::None,
        }
    }

    fn pointers(&mut self, node: &[u8], level: u8, leaf: Leaf, belief: Belief) -> Result<(), StoreError> {
        let mut run = (0, 0);
        for pointer in node.chunks_exact(4) {
            let block = u64::from(u32_at(pointer, 0));
            if block == 0 {
                continue;
            }
            if level > 1 {
                self.indirect(block, level - 1, leaf)?;
            } else if run.0 + run.1 == block {
                run.1 += 1;
            } else {
                self.claim(run.0, run.1, leaf, belief);
                run = (block, 1);
            }
        }
        self.claim(run.0, run.1, leaf, belief);
        Ok(())
    }

    /// Notes a node; returns its bytes if they should be read, and are there.
    fn enter(&mut self, block: u64, part: Use) -> Result<Option<Vec<u8>>, StoreError> {
        if !self.exists(block, 1) {
            return Ok(None);
        }
        let known = self.uses.at(block, block + 1).0 == Some(part);
        self.uses.set(block, block + 1, part);
        self.claimed.set(block, block + 1, ());
        // The blocks below an unchanged node were recorded before, and stay until the node changes.
        let old = self.trust == Trust::Commit && known && !self.changed.contains(&block);
        if old || !self.visited.insert(block) {
            return Ok(None);
        }
        let mut bytes = vec![0; self.superblock.block_bytes as usize];
        Ok(self.view.read_block(block, &mut bytes)?.then_some(bytes))
    }

    fn claim(&mut self, start: u64, len: u64, leaf: Leaf, belief: Belief) {
        if len == 0 || !self.exists(start, len) {
            return;
        }
        let end = start + len;
        match (&mut self.names, leaf, self.number) {
            (Some(names), Leaf::Kept(Class::Directory), Some(number)) => names.claim_directory(start, end, number),
            (None, ..) | (_, Leaf::Kept(Class::Directory), None) => {}
            (Some(names), ..) => names.claim_other(start, end),
        }
        match leaf {
            Leaf::Kept(class) => self.uses.set(start, end, Use::Kept(class)),
            Leaf::Data if belief == Belief::None => return,
            Leaf::Data if self.trust == Trust::Commit => {
                let mut at = start;
                for &block in self.protected.range(start..end) {
                    self.uses.set(at, block, Use::Data);
                    at = block + 1;
                }
                self.uses.set(at, end, Use::Data);
            }
            Leaf::Data => {
                // In a scan metadata win, in any order of reading.
                let metadata_win = self.trust == Trust::Scan || belief == Belief::UnlessMetadata;
                let metadata = |used: Use| metadata_win && used != Use::Data;
                let taken: Vec<_> = self.uses.pieces(start, end).filter(|piece| metadata(piece.2)).collect();
                let mut at = start;
                for (from, to, _) in taken {
                    self.uses.set(at, from, Use::Data);
                    at = to;
                }
                self.uses.set(at, end, Use::Data);
            }
        }
        self.claimed.set(start, end, ());
    }

    fn exists(&self, start: u64, len: u64) -> bool {
        let end = start.checked_add(len);
        start >= self.superblock.first_data_block.max(1) && end.is_some_and(|end| end <= self.superblock.blocks_count)
    }
}
