//! The superblock of btrfs.
//!
//! Offsets are from `struct btrfs_super_block` (Linux, `include/uapi/linux/btrfs_tree.h`); numbers are
//! little-endian.

use crate::UNIT_BYTES;
use crate::bytes::{u32_at, u64_at};
use crate::classifier::Refusal;
use crate::crc32c;

/// Length of the superblock and of its copies.
pub(crate) const LEN_BYTES: usize = 4096;
/// Places of the superblock and its copies, counted from the beginning of the device.
pub(crate) const PLACES_BYTES: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
/// Most levels of a tree.
pub(crate) const LEVELS_MAX: u8 = 8;

const MAGIC: &[u8; 8] = b"_BHRfS_M";
const CHECKSUM_BYTES: usize = 32;
const SYSTEM_CHUNKS_AT: usize = 811;
const SYSTEM_CHUNKS_MAX: usize = 2048;

const INCOMPAT_COMPRESS_LZO: u64 = 1 << 3;
const INCOMPAT_COMPRESS_ZSTD: u64 = 1 << 4;
const INCOMPAT_METADATA_UUID: u64 = 1 << 10;
const INCOMPAT_ZONED: u64 = 1 << 12;
/// From MIXED_BACKREF to RAID1C34, and SIMPLE_QUOTA. RAID56 may be set although no chunk is striped any more.
const INCOMPAT_KNOWN: u64 = 0xFFF | 1 << 16;
const COMPAT_RO_FREE_SPACE_TREE: u64 = 1;
const COMPAT_RO_FREE_SPACE_TREE_VALID: u64 = 1 << 1;
const COMPAT_RO_VERITY: u64 = 1 << 2;
/// FREE_SPACE_TREE, FREE_SPACE_TREE_VALID and BLOCK_GROUP_TREE.
const COMPAT_RO_KNOWN: u64 = 0b1011;

/// A root of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    /// The logical address of its node.
    pub(crate) logical: u64,
    /// The transaction that wrote it.
    pub(crate) generation: u64,
    pub(crate) level: u8,
}

impl Root {
    /// The root in an item of the root tree (`struct btrfs_root_item`).
    pub(crate) fn of_item(item: &[u8]) -> Option<Self> {
        // After an inode of 160 bytes: generation, directory and address. The level is the last byte of the old format.
        let whole = item.len() >= 239;
        whole.then(|| Root { generation: u64_at(item, 160), logical: u64_at(item, 176), level: item[238] })
    }
}

/// The fields of a superblock that the classifier needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// The file system's UUID, which each node repeats.
    pub(crate) uuid: [u8; 16],
    pub(crate) node_bytes: u64,
    /// This device's number, and the bytes of it that the file system uses.
    pub(crate) device: u64,
    pub(crate) total_bytes: u64,
    /// Number of devices of the file system.
    pub(crate) devices: u64,
    /// The last transaction.
    pub(crate) generation: u64,
    pub(crate) tree_root: Root,
    pub(crate) chunk_root: Root,
    /// The root of the tree of logs, which hold the files synchronised since the last transaction.
    pub(crate) log_root: Option<Root>,
    /// Keys and chunks that map the chunk tree.
    pub(crate) system_chunks: Vec<u8>,
    /// Free space is noted in a tree, not in files of the root tree (the space cache, version 1).
    pub(crate) free_space_tree: bool,
    /// Whether the free space tree is up to date.
    pub(crate) free_space_valid: bool,
    /// Some file was, or will be, compressed by LZO or zstd. The superblock has no flag for zlib.
    pub(crate) compressed: bool,
}

impl Superblock {
    /// Parses the superblock of a file system of at most `available_bytes`.
    pub(crate) fn parse(bytes: &[u8; LEN_BYTES], available_bytes: u64) -> Result<Self, Refusal> {
        let refuse = |reason: &str| Err(Refusal::NotUnderstood(format!("btrfs: {reason}")));
        if bytes[64..72] != *MAGIC {
            return Err(Refusal::Absent);
        }
        if bytes[196..198] != [0, 0] {
            return refuse("checksums that are not CRC-32C");
        }
        if crc32c::crc32c(&bytes[CHECKSUM_BYTES..]).to_le_bytes() != bytes[..4] {
            return refuse("the superblock's checksum is wrong");
        }
        let (compat_ro, incompat) = (u64_at(bytes, 180), u64_at(bytes, 188));
        let unknown = [
            (INCOMPAT_ZONED & incompat, "zones".to_owned()),
            (COMPAT_RO_VERITY & compat_ro, "verity".to_owned()),
            (!INCOMPAT_KNOWN & incompat, format!("incompatible features {:#x}", !INCOMPAT_KNOWN & incompat)),
            (!COMPAT_RO_KNOWN & compat_ro, format!("read-only features {:#x}", !COMPAT_RO_KNOWN & compat_ro)),
        ];
        if let Some((_, name)) = unknown.iter().find(|(bits, _)| *bits != 0) {
            return refuse(name);
        }
        if u64::from(u32_at(bytes, 144)) != UNIT_BYTES {
            return refuse("sectors that are not of 4 KiB");
        }
        let system_bytes = u32_at(bytes, 160) as usize;
        let uuid_at = if incompat & INCOMPAT_METADATA_UUID == 0 { 32 } else { 571 };
        let generation = u64_at(bytes, 72);
        let superblock = Superblock {
            uuid: bytes[uuid_at..uuid_at + 16].try_into().expect("sixteen bytes"),
            node_bytes: u64::from(u32_at(bytes, 148)),
            device: u64_at(bytes, 201),
            total_bytes: u64_at(bytes, 209),
            devices: u64_at(bytes, 136),
            generation,
            tree_root: Root { logical: u64_at(bytes, 80), generation, level: bytes[198] },
            chunk_root: Root { logical: u64_at(bytes, 88), generation: u64_at(bytes, 164), level: bytes[199] },
            log_root: match u64_at(bytes, 96) {
                0 => None,
                // Logs belong to the transaction after the committed one.
                logical => Some(Root { logical, generation: generation.saturating_add(1), level: bytes[200] }),
            },
            system_chunks: bytes[SYSTEM_CHUNKS_AT..][..system_bytes.min(SYSTEM_CHUNKS_MAX)].to_vec(),
            free_space_tree: compat_ro & COMPAT_RO_FREE_SPACE_TREE != 0,
            free_space_valid: compat_ro & COMPAT_RO_FREE_SPACE_TREE_VALID != 0,
            compressed: incompat & (INCOMPAT_COMPRESS_LZO | INCOMPAT_COMPRESS_ZSTD) != 0,
        };
        let node_bytes = superblock.node_bytes;
        let sane = [
            (u64_at(bytes, 48) == PLACES_BYTES[0], "the superblock lies elsewhere"),
            (
                node_bytes.is_power_of_two() && (UNIT_BYTES..=65_536).contains(&node_bytes),
                "the size of a node can't be",
            ),
            (bytes[198] < LEVELS_MAX && bytes[199] < LEVELS_MAX, "the height of a tree can't be"),
            (system_bytes <= SYSTEM_CHUNKS_MAX, "the length of the system chunks can't be"),
            (superblock.total_bytes <= available_bytes, "the file system is larger than the device"),
        ];
        match sane.iter().find(|(sane, _)| !sane) {
            Some((_, fault)) => refuse(fault),
            None => Ok(superblock),
        }
    }

    /// Whether `other` is the same file system on the same device.
    pub(crate) fn is_same(&self, other: &Superblock) -> bool {
        (self.uuid, self.node_bytes, self.device) == (other.uuid, other.node_bytes, other.device)
    }
}
