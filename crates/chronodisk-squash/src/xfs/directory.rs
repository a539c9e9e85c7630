//! Blocks of XFS directories with names: `XDB3`, a whole small directory, and `XDD3`, a data block of a larger one.
//! Leaves, nodes and free lists contain only hashes.
//!
//! Offsets are from `struct xfs_dir3_data_hdr` and `xfs_dir2_data_entry` (Linux, `fs/xfs/libxfs/xfs_da_format.h`);
//! numbers are big-endian.

use super::superblock::{Superblock, u32_at, u64_at};

const HEADER_BYTES: usize = 64;
const UUID_AT: usize = 24;
const OWNER_AT: usize = 40;
/// Replaces an inode number at the beginning of a free range.
const FREE_TAG: u16 = 0xFFFF;
const ALIGNMENT_BYTES: usize = 8;
/// The tail of a block that is all of a directory, and each entry of the index before it.
const TAIL_BYTES: usize = 8;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) inode: u64,
    pub(super) kind: Kind,
    pub(super) name: Box<[u8]>,
}

/// Type of the inode in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The file system does not say so in its entries.
    Unknown,
    Regular,
    Directory,
    Other,
}

impl Kind {
    /// The kind in the byte after a name (`XFS_DIR3_FT_REG_FILE`, `XFS_DIR3_FT_DIR`).
    pub(super) fn of(byte: Option<u8>) -> Self {
        match byte {
            None => Kind::Unknown,
            Some(1) => Kind::Regular,
            Some(2) => Kind::Directory,
            Some(_) => Kind::Other,
        }
    }
}

/// The directory whose names are in a block; `None` for other blocks.
pub(super) fn owner_of(block: &[u8], superblock: &Superblock) -> Option<u64> {
    let names = block.len() > HEADER_BYTES && (block.starts_with(b"XDB3") || block.starts_with(b"XDD3"));
    (names && block[UUID_AT..UUID_AT + 16] == superblock.uuid).then(|| u64_at(block, OWNER_AT))
}

/// Reads the entries of such a block, without `.` and `..`, up to the first error.
pub(super) fn entries(block: &[u8], superblock: &Superblock) -> Vec<Entry> {
    let kind_bytes = usize::from(superblock.has_kinds);
    let end = if block.starts_with(b"XDB3") {
        let tail_at = block.len() - TAIL_BYTES;
        tail_at.saturating_sub(u32_at(block, tail_at) as usize * ALIGNMENT_BYTES)
    } else {
        block.len()
    };
    let mut rest = block.get(HEADER_BYTES..end).unwrap_or_default();
    let mut entries = Vec::new();
    while let Some((head, behind)) = rest.split_first_chunk::<9>() {
        let len = if u16::from_be_bytes([head[0], head[1]]) == FREE_TAG {
            usize::from(u16::from_be_bytes([head[2], head[3]]))
        } else {
            let name_len = usize::from(head[8]);
            let Some((name, behind)) = behind.split_at_checked(name_len) else { break };
            let kind = if superblock.has_kinds { behind.first().copied() } else { None };
            if !matches!(name, b"" | b"." | b"..") {
                entries.push(Entry { inode: u64_at(head, 0), kind: Kind::of(kind), name: name.into() });
            }
            // The offset of the entry in its block follows the kind.
            (head.len() + name_len + kind_bytes + 2).next_multiple_of(ALIGNMENT_BYTES)
        };
        if len == 0 || !len.is_multiple_of(ALIGNMENT_BYTES) {
            break;
        }
        rest = rest.get(len..).unwrap_or_default();
    }
    entries
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::xfs::inode::{Inode, tree_block};

    fn superblock(has_kinds: bool) -> Superblock {
        Superblock::of_test(has_kinds)
    }

    fn entry(inode: u64, kind: u8, name: &[u8]) -> Vec<u8> {
        let mut bytes = [&inode.to_be_bytes()[..], &[name.len() as u8], name, &[kind, 0, 0]].concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn block(magic: &[u8], entries: &[Vec<u8>]) -> Vec<u8> {
        let superblock = superblock(true);
        let mut block = vec![0; HEADER_BYTES];
        block[..4].copy_from_slice(magic);
        block[UUID_AT..UUID_AT + 16].copy_from_slice(&superblock.uuid);
        block[OWNER_AT..OWNER_AT + 8].copy_from_slice(&131u64.to_be_bytes());
        block.extend(entries.concat());
        let free = (4096 - block.len()) as u16;
        block.extend([&FREE_TAG.to_be_bytes()[..], &free.to_be_bytes()].concat());
        block.resize(4096, 0);
        block
    }

    #[test]
    fn entries_are_read_up_to_what_is_wrong() {
        let superblock = superblock(true);
        let all = [entry(131, 2, b"."), entry(128, 2, b".."), entry(140, 1, b"file"), entry(141, 2, b"a folder")];
        let mut block = block(b"XDD3", &all);
        assert_eq!(owner_of(&block, &superblock), Some(131));
        let file = Entry { inode: 140, kind: Kind::Regular, name: (*b"file").into() };
        let folder = Entry { inode: 141, kind: Kind::Directory, name: (*b"a folder").into() };
        assert_eq!(entries(&block, &superblock), [file.clone(), folder.clone()]);
        // The whole directory, with an index of two entries at its end.
        block[..4].copy_from_slice(b"XDB3");
        block[4095 - 4] = 2;
        assert_eq!(entries(&block, &superblock), [file.clone(), folder]);
        // An offset that leaves no room for an entry.
        block[4095 - 6] = 1;
        assert_eq!(entries(&block, &superblock), []);
        block[..4].copy_from_slice(b"XDD3");
        let at = HEADER_BYTES + all[..3].concat().len();
        block[at..at + 4].copy_from_slice(&[0xFF, 0xFF, 0, 0]);
        assert_eq!(entries(&block, &superblock), [file]);
        block[UUID_AT] ^= 1;
        assert_eq!(owner_of(&block, &superblock), None);
    }

    proptest! {
        #[test]
        fn nothing_is_too_strange_to_read(
            bytes in prop::collection::vec(any::<u8>(), 512),
            small in prop::collection::vec(0u8..4, 512),
            has_kinds: bool,
            tree: bool,
        ) {
            let superblock = superblock(has_kinds);
            for mut bytes in [bytes, small] {
                for magic in [b"XDB3", b"XDD3"] {
                    bytes[..4].copy_from_slice(magic);
                    prop_assert!(entries(&bytes, &superblock).len() <= 512 / 8);
                }
                bytes[..4].copy_from_slice(b"BMA3");
                bytes[40..56].copy_from_slice(&superblock.uuid);
                if let Some((node, _)) = tree_block(&bytes, None, &superblock) {
                    let end = superblock.blocks_count;
                    prop_assert!(node.extents.iter().all(|extent| extent.first < extent.end && extent.end <= end));
                    prop_assert!(node.children.iter().all(|(block, _)| *block < superblock.blocks_count));
                }
                bytes[..5].copy_from_slice(&[b'I', b'N', 0x41, 0, 3]);
                bytes[5] = if tree { 3 } else { 1 + bytes[5] % 2 };
                bytes[160..176].copy_from_slice(&superblock.uuid);
                let inode = Inode::parse(&bytes, &superblock).expect("an inode");
                inode.root(&superblock);
                prop_assert!(inode.entries(&superblock).len() <= 255);
            }
        }
    }
}
