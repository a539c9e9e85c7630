//! Walks from inodes to their blocks.
//!
//! Offsets are those of the Linux kernel's `Documentation/filesystems/ext4/inodes.rst` and `ifork.rst`. Trees are
//! hostile: the format bounds their depth, and a walk visits a node once.

use std::collections::{BTreeSet, HashSet};

use chronodisk_store::StoreError;

use super::View;
use super::names::Names;
use super::superblock::{Superblock, checksum};
use crate::class::Class;
use crate::map_log::u32_at;
use crate::runs::{RunMap, RunValue};

/// Use of a non-static block, according to inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Contents of a regular file.
    Data,
    /// Metadata of the file system.
    Kept(Class),
    /// A node of an extent tree whose leaves are of this kind.
    Extents(Leaf),
    /// An indirect block, with its number of levels above leaves of this kind.
    Indirect(u8, Leaf),
}

/// Leaves of a file's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    Data,
    Kept(Class),
}

impl RunValue for Use {
    fn advanced(self, _by: u64) -> Self {
        self
    }
}

impl Use {
    /// The class of blocks that are kept.
    pub(crate) fn class(self) -> Option<Class> {
        match self {
            Use::Data => None,
            Use::Kept(class) => Some(class),
            Use::Extents(_) | Use::Indirect(..) => Some(Class::Mapping),
        }
    }
}

/// Degree of trust in claims of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// All visible metadata are of one moment, and all of them are read: data never override metadata.
    Scan,
    /// All visible metadata are of one moment, and only changed blocks are read: the latest claim holds.
    Commit,
    /// An inode is current; nodes below it may be older, unless their checksum belongs to it.
    Inode,
}

/// Bytes of an inode, at least 128.
#[derive(Clone, Copy)]
pub(crate) struct Inode<'a>(pub(crate) &'a [u8]);

const MODE_TYPE: u16 = 0xF000;
const MODE_DIRECTORY: u16 = 0x4000;
const MODE_REGULAR: u16 = 0x8000;
const MODE_LINK: u16 = 0xA000;
const FLAG_ENCRYPTED: u32 = 0x800;
const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_VERITY: u32 = 0x10_0000;
const FLAG_EA_INODE: u32 = 0x20_0000;
const FLAG_INLINE_DATA: u32 = 0x1000_0000;
const MAP_BYTES: std::ops::Range<usize> = 0x28..0x64;
/// A link's target shorter than this is in the inode.
const FAST_LINK_MAX_BYTES: u32 = 60;

impl<'a> Inode<'a> {
    fn u16_at(self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    fn flags(self) -> u32 {
        u32_at(self.0, 0x20)
    }

    fn attribute_block(self) -> u64 {
        u64::from(u32_at(self.0, 0x68)) | u64::from(self.u16_at(0x76)) << 32
    }

    /// Generation, which differs between inodes with the same number.
    pub(crate) fn generation(self) -> u32 {
        u32_at(self.0, 0x64)
    }

    /// Length of a regular file.
    pub(crate) fn len_bytes(self) -> u64 {
        u64::from(u32_at(self.0, 0x4)) | u64::from(u32_at(self.0, 0x6C)) << 32
    }

    pub(crate) fn is_directory(self) -> bool {
        self.u16_at(0x0) & MODE_TYPE == MODE_DIRECTORY && self.u16_at(0x1A) > 0
    }

    fn map(self) -> &'a [u8] {
        &self.0[MAP_BYTES]
    }

    /// Use of its blocks; `None` if it is free.
    pub(crate) fn leaf(self, superblock: &Superblock, number: u64) -> Option<Leaf> {
        const ROOT: u64 = 2;
        if number == superblock.journal_inode {
            return Some(Leaf::Kept(Class::Journal));
        }
        let special = superblock.quota_inodes.contains(&number) || number == superblock.orphan_inode;
        if special || number < superblock.first_inode && number != ROOT {
            return Some(Leaf::Kept(Class::OtherMetadata));
        }
        let links = self.u16_at(0x1A);
        let own_format = self.flags() & (FLAG_EA_INODE | FLAG_VERITY | FLAG_ENCRYPTED) != 0;
        match self.u16_at(0x0) & MODE_TYPE {
            _ if links == 0 => None,
            MODE_DIRECTORY => Some(Leaf::Kept(Class::Directory)),
            MODE_LINK => Some(Leaf::Kept(Class::SymbolicLink)),
            MODE_REGULAR if own_format => Some(Leaf::Kept(Class::Attributes)),
            MODE_REGULAR => Some(Leaf::Data),
            0 => None,
            // Devices, pipes and sockets have only the block of their attributes.
            _ => Some(Leaf::Kept(Class::OtherMetadata)),
        }
    }

    pub(crate) fn has_map(self, number: u64, superblock: &Superblock) -> bool {
        let reserved = number < superblock.first_inode;
        match self.u16_at(0x0) & MODE_TYPE {
            _ if self.flags() & FLAG_INLINE_DATA != 0 => false,
            MODE_LINK => self.flags() & FLAG_EXTENTS != 0 || u32_at(self.0, 0x4) >= FAST_LINK_MAX_BYTES,
            MODE_DIRECTORY | MODE_REGULAR => true,
            _ => reserved,
        }
    }
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
            self.claim(attributes, 1, Leaf::Kept(Class::Attributes), true);
        }
        if !inode.has_map(number, self.superblock) {
            return Ok(());
        }
        if inode.flags() & FLAG_EXTENTS != 0 {
            let seed = checksum(self.superblock.checksum_seed, &(number as u32).to_le_bytes());
            let seed = checksum(seed, &inode.0[0x64..0x68]);
            return self.extents(inode.map(), None, leaf, seed, true);
        }
        for (index, pointer) in inode.map().chunks_exact(4).enumerate() {
            let block = u64::from(u32_at(pointer, 0));
            match index {
                _ if block == 0 => {}
                0..12 => self.claim(block, 1, leaf, true),
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
            Use::Extents(leaf) => self.extents(&bytes, None, leaf, 0, true),
            Use::Indirect(level, leaf) => self.pointers(&bytes, level, leaf, true),
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
        believed: bool,
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
                self.claim(start, len, leaf, believed);
            } else {
                let child = u64::from(u32_at(entry, 4)) | u64::from(u16_at(entry, 8)) << 32;
                self.extents_child(child, depth - 1, leaf, seed, believed)?;
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
        believed: bool,
    ) -> Result<(), StoreError> {
        let Some(bytes) = self.enter(block, Use::Extents(leaf))? else { return Ok(()) };
        // The tail's checksum covers the inode's number and generation: another file's node does not pass.
        let own = || {
            let tail = 12 + 12 * usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
            self.superblock.has_metadata_checksums()
                && tail + 4 <= bytes.len()
                && checksum(seed, &bytes[..tail]) == u32_at(&bytes, tail)
        };
        let believed = believed && (self.trust != Trust::Inode || own());
        self.extents(&bytes, Some(depth), leaf, seed, believed)
    }

    fn indirect(&mut self, block: u64, level: u8, leaf: Leaf) -> Result<(), StoreError> {
        match self.enter(block, Use::Indirect(level, leaf))? {
            Some(bytes) => self.pointers(&bytes, level, leaf, self.trust != Trust::Inode),
            None => Ok(()),
        }
    }

    fn pointers(&mut self, node: &[u8], level: u8, leaf: Leaf, believed: bool) -> Result<(), StoreError> {
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
                self.claim(run.0, run.1, leaf, believed);
                run = (block, 1);
            }
        }
        self.claim(run.0, run.1, leaf, believed);
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

    fn claim(&mut self, start: u64, len: u64, leaf: Leaf, believed: bool) {
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
            Leaf::Data if !believed => return,
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
                let scan = self.trust == Trust::Scan;
                let metadata = |used: Use| scan && used != Use::Data;
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

/// Blocks of a file to be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapped {
    /// Blocks with contents.
    Written,
    /// Written and unwritten blocks.
    All,
}

/// The blocks of a file by their number in the file: (number, block, count). Holes are omitted, and so is the part
/// beyond [`MAP_NODES_MAX`] nodes.
pub(crate) fn map_of(
    inode: Inode<'_>,
    mapped: Mapped,
    superblock: &Superblock,
    view: &mut View<'_>,
) -> Result<Vec<(u64, u64, u64)>, StoreError> {
    let mut map = Vec::new();
    let mut nodes_left = MAP_NODES_MAX;
    if inode.flags() & FLAG_EXTENTS != 0 {
        map_extents(inode.map(), DEPTH_MAX + 1, mapped, superblock, view, &mut nodes_left, &mut map)?;
        return Ok(map);
    }
    let mut number = 0;
    for (index, pointer) in inode.map().chunks_exact(4).enumerate() {
        let level = (index as u32).saturating_sub(11);
        map_pointer(u64::from(u32_at(pointer, 0)), level, &mut number, superblock, view, &mut nodes_left, &mut map)?;
    }
    Ok(map)
}

/// A journal of 2³² blocks of 1 KiB has more, and is not followed.
const MAP_NODES_MAX: u32 = 1 << 16;

fn map_extents(
    node: &[u8],
    above: u16,
    mapped: Mapped,
    superblock: &Superblock,
    view: &mut View<'_>,
    nodes_left: &mut u32,
    map: &mut Vec<(u64, u64, u64)>,
) -> Result<(), StoreError> {
    let u16_at = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let (count, depth) = (usize::from(u16_at(node, 2)), u16_at(node, 6));
    if u16_at(node, 0) != EXTENTS_MAGIC || depth >= above {
        return Ok(());
    }
    for entry in node[12..].chunks_exact(12).take(count) {
        let number = u64::from(u32_at(entry, 0));
        if depth == 0 {
            let len = match u64::from(u16_at(entry, 4)) {
                len if len > EXTENT_MAX_BLOCKS && mapped == Mapped::All => len - EXTENT_MAX_BLOCKS,
                len => len,
            };
            let block = u64::from(u32_at(entry, 8)) | u64::from(u16_at(entry, 6)) << 32;
            if (1..=EXTENT_MAX_BLOCKS).contains(&len) && block + len <= superblock.blocks_count {
                map.push((number, block, len));
            }
            continue;
        }
        let child = u64::from(u32_at(entry, 4)) | u64::from(u16_at(entry, 8)) << 32;
        if let Some(bytes) = map_node(child, superblock, view, nodes_left)? {
            map_extents(&bytes, depth, mapped, superblock, view, nodes_left, map)?;
        }
    }
    Ok(())
}

fn map_pointer(
    block: u64,
    level: u32,
    number: &mut u64,
    superblock: &Superblock,
    view: &mut View<'_>,
    nodes_left: &mut u32,
    map: &mut Vec<(u64, u64, u64)>,
) -> Result<(), StoreError> {
    let span = (superblock.block_bytes / 4).pow(level);
    if block == 0 || block >= superblock.blocks_count {
        *number += span;
    } else if level == 0 {
        map.push((*number, block, 1));
        *number += 1;
    } else if let Some(bytes) = map_node(block, superblock, view, nodes_left)? {
        for pointer in bytes.chunks_exact(4) {
            map_pointer(u64::from(u32_at(pointer, 0)), level - 1, number, superblock, view, nodes_left, map)?;
        }
    } else {
        *number += span;
    }
    Ok(())
}

fn map_node(
    block: u64,
    superblock: &Superblock,
    view: &mut View<'_>,
    nodes_left: &mut u32,
) -> Result<Option<Vec<u8>>, StoreError> {
    if *nodes_left == 0 || block >= superblock.blocks_count {
        return Ok(None);
    }
    *nodes_left -= 1;
    let mut bytes = vec![0; superblock.block_bytes as usize];
    Ok(view.read_block(block, &mut bytes)?.then_some(bytes))
}

pub(crate) const EXTENTS_MAGIC: u16 = 0xF30A;
/// The kernel's `EXT4_MAX_EXTENT_DEPTH`.
const DEPTH_MAX: u16 = 5;
/// The kernel's `EXT_INIT_MAX_LEN`.
const EXTENT_MAX_BLOCKS: u64 = 1 << 15;

/// Whether a block could be metadata that is recognised by its form: a directory, a node of an extent
/// tree, attributes, or an indirect block. Data may look so, too.
pub(crate) fn looks_like_metadata(block: &[u8], superblock: &Superblock) -> bool {
    const ATTRIBUTES_MAGIC: u32 = 0xEA02_0000;
    let first = u32_at(block, 0);
    first as u16 == EXTENTS_MAGIC
        || first == ATTRIBUTES_MAGIC
        || looks_like_directory(block, superblock)
        || looks_like_pointers(block, superblock)
}

/// Whether a block could be the target of a symbolic link that does not fit its inode: text and zeros after it. The
/// last blocks of many text files look alike.
pub(crate) fn looks_like_link(block: &[u8]) -> bool {
    let len = block.iter().position(|&byte| byte == 0).unwrap_or(block.len());
    len >= FAST_LINK_MAX_BYTES as usize && len < block.len() && chronodisk_store::is_zero(&block[len..])
}

fn looks_like_directory(block: &[u8], superblock: &Superblock) -> bool {
    let mut at = 0;
    while at + 8 <= block.len() {
        let len = match usize::from(u16::from_le_bytes([block[at + 4], block[at + 5]])) {
            // 64 KiB do not fit the field.
            0 | 0xFFFC if block.len() == 1 << 16 => 1 << 16,
            len => len,
        };
        if len < 8 || !len.is_multiple_of(4) || u64::from(u32_at(block, at)) > superblock.inodes_count {
            return false;
        }
        at += len;
    }
    at == block.len()
}

fn looks_like_pointers(block: &[u8], superblock: &Superblock) -> bool {
    block.chunks_exact(4).all(|pointer| u64::from(u32_at(pointer, 0)) < superblock.blocks_count)
}
