//! Nodes: inodes, blocks of addresses, and others.
//!
//! Every node ends with a footer: its number, its inode's number, and its place in the inode's tree (Linux,
//! `include/linux/f2fs_fs.h`, `struct f2fs_node`, and `fs/f2fs/node.h`).

use super::superblock::Superblock;
use crate::bytes::u32_at;
use crate::class::Class;

const FOOTER_AT: usize = 4072;
const PLACE_SHIFT: u32 = 3;
/// The place of a node that holds extended attributes.
const PLACE_ATTRIBUTES: u32 = u32::MAX >> PLACE_SHIFT;
/// Numbers of nodes in a node of them.
const NODE_NUMBERS: u32 = 1018;
/// Addresses in an inode, and in a node of addresses.
const INODE_ADDRESSES: usize = 923;
const INODE_ADDRESSES_AT: usize = 360;
const NODE_ADDRESSES: usize = 1018;
/// Default room for extended attributes in an inode, in addresses.
const ATTRIBUTES_DEFAULT: usize = 50;

const INLINE_ATTRIBUTES: u8 = 0x01;
const INLINE_DATA: u8 = 0x02;
const INLINE_DIRECTORY: u8 = 0x04;
const EXTRA_ATTRIBUTES: u8 = 0x20;

const MODE_TYPE: u16 = 0xF000;
const MODE_DIRECTORY: u16 = 0x4000;
const MODE_REGULAR: u16 = 0x8000;
const MODE_LINK: u16 = 0xA000;

/// A block that was set aside and has no place yet.
const ADDRESS_NEW: u32 = u32::MAX;

/// Bytes of a node.
#[derive(Clone, Copy)]
pub(super) struct Node<'a>(pub(super) &'a [u8]);

/// Use of a file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Contents,
    Kept(Class),
}

impl crate::runs::RunValue for Use {
    fn advanced(self, _by: u64) -> Self {
        self
    }
}

impl<'a> Node<'a> {
    /// Identification of a block of the main area, if it may be a node. Contents of files may look like nodes, too.
    pub(super) fn of(block: &'a [u8], superblock: &Superblock) -> Option<Self> {
        let node = Node(block);
        let exists = |number: u32| number != 0 && u64::from(number) < superblock.nodes_max();
        (exists(node.number()) && exists(node.inode())).then_some(node)
    }

    pub(super) fn number(self) -> u32 {
        u32_at(self.0, FOOTER_AT)
    }

    /// The number of the inode that it belongs to.
    pub(super) fn inode(self) -> u32 {
        u32_at(self.0, FOOTER_AT + 4)
    }

    /// Version of the checkpoint after which it was written, without its upper half, a checksum.
    pub(super) fn version(self) -> u32 {
        u32_at(self.0, FOOTER_AT + 12)
    }

    fn place(self) -> u32 {
        u32_at(self.0, FOOTER_AT + 8) >> PLACE_SHIFT
    }

    pub(super) fn is_inode(self) -> bool {
        self.number() == self.inode()
    }

    pub(super) fn class(self) -> Class {
        match self.place() {
            _ if self.is_inode() => Class::InodeTable,
            PLACE_ATTRIBUTES => Class::Attributes,
            _ => Class::Mapping,
        }
    }

    /// Use of an inode's blocks.
    pub(super) fn uses(self, superblock: &Superblock) -> Use {
        if superblock.quota_inodes.contains(&self.number()) {
            return Use::Kept(Class::OtherMetadata);
        }
        match u16::from_le_bytes([self.0[0], self.0[1]]) & MODE_TYPE {
            MODE_REGULAR => Use::Contents,
            MODE_DIRECTORY => Use::Kept(Class::Directory),
            MODE_LINK => Use::Kept(Class::SymbolicLink),
            _ => Use::Kept(Class::OtherMetadata),
        }
    }

    /// Its addresses of blocks; empty for a node of other nodes, or of extended attributes.
    pub(super) fn addresses(self, superblock: &Superblock) -> Addresses {
        let (first, count) = match self.is_inode() {
            true => self.range_in_inode(superblock),
            false if self.has_addresses() => (0, NODE_ADDRESSES),
            false => (0, 0),
        };
        let at = if self.is_inode() { INODE_ADDRESSES_AT } else { 0 };
        let all = (first..first + count).map(|index| u32_at(self.0, at + 4 * index));
        let mut addresses = Addresses::default();
        for address in all {
            match u64::from(address) {
                _ if address == ADDRESS_NEW => addresses.set_aside += 1,
                block if (superblock.main..superblock.main_end).contains(&block) => addresses.blocks.push(block),
                0 => {}
                _ => addresses.understood = false,
            }
        }
        addresses
    }

    /// Index of the first block address in an inode, and the number of addresses.
    fn range_in_inode(self, superblock: &Superblock) -> (usize, usize) {
        let flags = self.0[3];
        if flags & (INLINE_DATA | INLINE_DIRECTORY) != 0 {
            return (0, 0);
        }
        let short = |at: usize| usize::from(u16::from_le_bytes([self.0[at], self.0[at + 1]]));
        let has_extra = superblock.has_extra_attributes() && flags & EXTRA_ATTRIBUTES != 0;
        let first = if has_extra { short(INODE_ADDRESSES_AT) / 4 } else { 0 };
        let attributes = match flags & INLINE_ATTRIBUTES != 0 {
            _ if superblock.has_flexible_attributes() && has_extra => short(INODE_ADDRESSES_AT + 2),
            true => ATTRIBUTES_DEFAULT,
            false => 0,
        };
        let count = INODE_ADDRESSES.saturating_sub(first + attributes);
        (first.min(INODE_ADDRESSES), count)
    }

    /// Whether a node other than an inode has addresses of blocks: it has neither numbers of other nodes nor
    /// attributes.
    fn has_addresses(self) -> bool {
        const FIRST_TRIPLE: u32 = 6 + 2 * NODE_NUMBERS;
        match self.place() {
            0 | PLACE_ATTRIBUTES => false,
            // Two nodes of node numbers, and the one for the third level.
            3 => false,
            place if place == 4 + NODE_NUMBERS || place == 5 + 2 * NODE_NUMBERS => false,
            place if place >= FIRST_TRIPLE => !(place - FIRST_TRIPLE).is_multiple_of(NODE_NUMBERS + 1),
            _ => true,
        }
    }
}

/// The addresses in a node.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    /// Blocks of the main area.
    pub(super) blocks: Vec<u64>,
    /// Blocks that have no place yet.
    pub(super) set_aside: u64,
    /// Whether it has no addresses of another kind.
    pub(super) understood: bool,
}

impl Default for Addresses {
    fn default() -> Self {
        Addresses { blocks: Vec::new(), set_aside: 0, understood: true }
    }
}
