//! Inodes of XFS, version 3, and their data forks: extents, and the entries of small directories.
//!
//! Offsets are from `struct xfs_dinode`, `xfs_bmbt_rec`, `xfs_bmbt_block` and `xfs_dir2_sf_hdr` (Linux,
//! `fs/xfs/libxfs/xfs_format.h` and `xfs_da_format.h`); numbers are big-endian. The available bytes bound everything.

use super::directory::{Entry, Kind};
use super::superblock::{Superblock, u32_at, u64_at};

/// Bytes of an inode before its forks.
pub(super) const CORE_BYTES: usize = 176;
const UUID_AT: usize = 160;
const FORMAT_LOCAL: u8 = 1;
const FORMAT_EXTENTS: u8 = 2;
const FORMAT_TREE: u8 = 3;
const RECORD_BYTES: usize = 16;
/// In front of the records of a block of an extent tree.
const TREE_HEADER_BYTES: usize = 72;
/// In front of the keys of a tree's root, which lies in the inode.
const ROOT_HEADER_BYTES: usize = 4;
/// Levels that a tree of extents can have (`XFS_BTREE_MAXLEVELS`).
const LEVEL_MAX: u16 = 9;

/// The bytes of an inode.
#[derive(Clone, Copy)]
pub(super) struct Inode<'a>(&'a [u8]);

/// Blocks of the file system in a row that a file has in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) first: u64,
    /// End of the range.
    pub(super) end: u64,
    /// Place of the first one in the file, in blocks.
    pub(super) place: u64,
}

/// Content of a node of an extent tree.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// Blocks with contents, without unwritten extents.
    pub(super) extents: Vec<Extent>,
    /// Blocks of the tree below, and their level.
    pub(super) children: Vec<(u64, u16)>,
}

impl<'a> Inode<'a> {
    /// The inode in these bytes; `None` if it is not one of this file system.
    pub(super) fn parse(bytes: &'a [u8], superblock: &Superblock) -> Option<Self> {
        let own = bytes.len() >= CORE_BYTES
            && bytes.starts_with(b"IN")
            && bytes[4] == 3
            && bytes[UUID_AT..UUID_AT + 16] == superblock.uuid;
        own.then_some(Inode(bytes))
    }

    pub(super) fn number(self) -> u64 {
        u64_at(self.0, 152)
    }

    /// Generation, which differs in a later file with the same number.
    pub(super) fn generation(self) -> u32 {
        u32_at(self.0, 92)
    }

    pub(super) fn len_bytes(self) -> u64 {
        u64_at(self.0, 56)
    }

    fn file_type(self) -> u16 {
        u16::from_be_bytes([self.0[2], self.0[3]]) & 0o170_000
    }

    pub(super) fn is_directory(self) -> bool {
        self.file_type() == 0o040_000
    }

    pub(super) fn is_regular(self) -> bool {
        self.file_type() == 0o100_000
    }

    /// Whether its blocks may be shared with another file (`XFS_DIFLAG2_REFLINK`).
    pub(super) fn shares_blocks(self) -> bool {
        u64_at(self.0, 120) & 1 << 1 != 0
    }

    /// Whether another one is of the same file, with the same blocks or names.
    pub(super) fn says_the_same_as(self, other: Inode<'_>, superblock: &Superblock) -> bool {
        let kinds = (self.file_type(), self.generation()) == (other.file_type(), other.generation());
        let directories = self.is_directory() && self.entries(superblock) == other.entries(superblock);
        let files = self.is_regular() || directories;
        kinds
            && (!self.is_regular() && !self.is_directory() || files && self.root(superblock) == other.root(superblock))
    }

    fn data_fork(self) -> &'a [u8] {
        let room = &self.0[CORE_BYTES..];
        match usize::from(self.0[82]) * 8 {
            0 => room,
            len => &room[..len.min(room.len())],
        }
    }

    fn extent_count(self) -> u64 {
        // With the feature NREXT64 an inode has a wider count (`XFS_DIFLAG2_NREXT64`).
        if u64_at(self.0, 120) & 1 << 4 == 0 { u64::from(u32_at(self.0, 76)) } else { u64_at(self.0, 24) }
    }

    /// The inode's own part of its extent tree.
    pub(super) fn root(self, superblock: &Superblock) -> Node {
        let fork = self.data_fork();
        match self.0[5] {
            FORMAT_EXTENTS => {
                let count = self.extent_count().min((fork.len() / RECORD_BYTES) as u64) as usize;
                Node { extents: extents(&fork[..count * RECORD_BYTES], superblock), children: Vec::new() }
            }
            FORMAT_TREE if fork.len() > ROOT_HEADER_BYTES => {
                let level = u16::from_be_bytes([fork[0], fork[1]]);
                let count = usize::from(u16::from_be_bytes([fork[2], fork[3]]));
                Node { extents: Vec::new(), children: children(&fork[ROOT_HEADER_BYTES..], level, count, superblock) }
            }
            _ => Node::default(),
        }
    }

    /// The names in a directory that lies in its inode.
    pub(super) fn entries(self, superblock: &Superblock) -> Vec<Entry> {
        let fork = self.data_fork();
        let [count, wide, ..] = *fork else { return Vec::new() };
        if self.0[5] != FORMAT_LOCAL || !self.is_directory() {
            return Vec::new();
        }
        let number_bytes = if wide == 0 { 4 } else { 8 };
        let kind_bytes = usize::from(superblock.has_kinds);
        let mut rest = fork.get(2 + number_bytes..).unwrap_or_default();
        let mut entries = Vec::new();
        for _ in 0..count.max(wide) {
            let Some((&[name_len, _, _], later)) = rest.split_first_chunk() else { break };
            let Some((name, later)) = later.split_at_checked(usize::from(name_len)) else { break };
            let Some((kind, later)) = later.split_at_checked(kind_bytes) else { break };
            let Some((number, later)) = later.split_at_checked(number_bytes) else { break };
            let inode = number.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
            entries.push(Entry { inode, kind: Kind::of(kind.first().copied()), name: name.into() });
            rest = later;
        }
        entries
    }
}

/// Parses a block of an extent B+tree at `level`: its records, and the inode that owns it.
pub(super) fn tree_block(bytes: &[u8], level: Option<u16>, superblock: &Superblock) -> Option<(Node, u64)> {
    let own = bytes.len() > TREE_HEADER_BYTES && bytes.starts_with(b"BMA3") && bytes[40..56] == superblock.uuid;
    let found = u16::from_be_bytes([bytes[4], bytes[5]]);
    if !own || level.is_some_and(|level| level != found) {
        return None;
    }
    let (count, records) = (usize::from(u16::from_be_bytes([bytes[6], bytes[7]])), &bytes[TREE_HEADER_BYTES..]);
    let node = if found == 0 {
        let count = count.min(records.len() / RECORD_BYTES);
        Node { extents: extents(&records[..count * RECORD_BYTES], superblock), children: Vec::new() }
    } else {
        Node { extents: Vec::new(), children: children(records, found, count, superblock) }
    };
    Some((node, u64_at(bytes, 56)))
}

/// Blocks of extent records, without unwritten extents.
fn extents(records: &[u8], superblock: &Superblock) -> Vec<Extent> {
    let blocks = records.chunks_exact(RECORD_BYTES).filter_map(|record| {
        // From the highest bit on: a flag for unwritten extents, 54 bits of the place in the file, 52 of the block's
        // number, 21 of the length.
        let (high, low) = (u64_at(record, 0), u64_at(record, 8));
        let (start, len) = ((high & 0x1FF) << 43 | low >> 21, low & 0x1F_FFFF);
        let first = superblock.block_of(start);
        let end = first.checked_add(len)?;
        let extent = Extent { first, end, place: high << 1 >> 10 };
        (high >> 63 == 0 && len > 0 && end <= superblock.blocks_count).then_some(extent)
    });
    blocks.collect()
}

/// The blocks below a node with these keys and pointers.
fn children(keys_and_pointers: &[u8], level: u16, count: usize, superblock: &Superblock) -> Vec<(u64, u16)> {
    let most = keys_and_pointers.len() / 16;
    if level == 0 || level > LEVEL_MAX || count > most {
        return Vec::new();
    }
    let pointers = keys_and_pointers[most * 8..].chunks_exact(8).take(count);
    let blocks = pointers.map(|pointer| superblock.block_of(u64_at(pointer, 0)));
    blocks.filter(|&block| block < superblock.blocks_count).map(|block| (block, level - 1)).collect()
}
