//! Inodes, the use of their blocks, and blocks that look like metadata.
//!
//! Offsets are from the Linux kernel's `Documentation/filesystems/ext4/inodes.rst` and `ifork.rst`.

use super::superblock::Superblock;
use crate::bytes::u32_at;
use crate::class::Class;
use crate::runs::RunValue;

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
    /// An inode is current. Nodes below it may be older, unless their checksum belongs to it.
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
pub(super) const FLAG_EXTENTS: u32 = 0x8_0000;
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

    pub(super) fn flags(self) -> u32 {
        u32_at(self.0, 0x20)
    }

    pub(super) fn attribute_block(self) -> u64 {
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

    pub(super) fn map(self) -> &'a [u8] {
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

pub(crate) const EXTENTS_MAGIC: u16 = 0xF30A;
/// The kernel's `EXT4_MAX_EXTENT_DEPTH`.
pub(super) const DEPTH_MAX: u16 = 5;
/// The kernel's `EXT_INIT_MAX_LEN`.
pub(super) const EXTENT_MAX_BLOCKS: u64 = 1 << 15;

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
