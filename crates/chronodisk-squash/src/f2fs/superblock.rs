//! The superblock of F2FS, and the places of its areas.
//!
//! Offsets are from `struct f2fs_super_block` (Linux, `include/linux/f2fs_fs.h`); numbers are little-endian.

use crate::UNIT_BYTES;
use crate::bytes::{u32_at, u64_at};
use crate::class::Class;
use crate::classifier::Refusal;

/// Offset of the superblock in its block, and its length.
pub(super) const OFFSET_BYTES: u64 = 1024;
pub(super) const LEN_BYTES: usize = 3072;

pub(super) const MAGIC: u32 = 0xF2F5_2010;
/// The size supported by `f2fs-tools` and the kernel.
const LOG_BLOCKS_PER_SEGMENT: u32 = 9;
pub(super) const SEGMENT_BLOCKS: u64 = 1 << LOG_BLOCKS_PER_SEGMENT;
/// Entries of the node address table in a block.
pub(super) const NAT_ENTRIES: u64 = 455;
const CHECKSUM_AT: usize = 3068;

const FEATURE_EXTRA_ATTRIBUTES: u32 = 0x8;
const FEATURE_FLEXIBLE_INLINE_ATTRIBUTES: u32 = 0x40;
const FEATURE_SUPERBLOCK_CHECKSUM: u32 = 0x800;
/// ATOMIC_WRITE, EXTRA_ATTR, PRJQUOTA, INODE_CHKSUM, FLEXIBLE_INLINE_XATTR, QUOTA_INO, INODE_CRTIME, LOST_FOUND,
/// SB_CHKSUM and CASEFOLD. Not among them: encryption, zones, verity, compression, and read-only ones.
const FEATURES_KNOWN: u32 = 0x1BFC;

/// Fields of a superblock. Addresses are blocks of 4 KiB from the file system's beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    uuid: [u8; 16],
    features: u32,
    /// Blocks of a checkpoint after its first one.
    pub(super) checkpoint_payload: u32,
    /// Two segments of checkpoints.
    pub(super) checkpoints: u64,
    /// The segment information table, the node address table and the segment summary area.
    segment_information: u64,
    pub(super) nodes: u64,
    summaries: u64,
    /// The main area and its end, in blocks.
    pub(super) main: u64,
    pub(super) main_end: u64,
    pub(super) quota_inodes: [u32; 3],
}

impl Superblock {
    pub(super) fn parse(bytes: &[u8; LEN_BYTES], available_bytes: u64) -> Result<Self, Refusal> {
        let refuse = |reason: String| Err(Refusal::NotUnderstood(format!("F2FS: {reason}")));
        if u32_at(bytes, 0) != MAGIC {
            return Err(Refusal::Absent);
        }
        let features = u32_at(bytes, 2180);
        if features & !FEATURES_KNOWN != 0 {
            return refuse(format!("features that are not known here ({:#x})", features & !FEATURES_KNOWN));
        }
        if features & FEATURE_SUPERBLOCK_CHECKSUM != 0 && checksum(&bytes[..CHECKSUM_AT]) != u32_at(bytes, CHECKSUM_AT)
        {
            return refuse("its superblock has a wrong checksum".to_owned());
        }
        if u32_at(bytes, 16) != 12 || u32_at(bytes, 20) != LOG_BLOCKS_PER_SEGMENT {
            return refuse("blocks of another size than 4 KiB, or segments of another size than 2 MiB".to_owned());
        }
        if bytes[2201] != 0 {
            return refuse("it has several devices".to_owned());
        }
        let area = |at: usize| u64::from(u32_at(bytes, at));
        let (checkpoints, segment_information, nodes) = (area(76), area(80), area(84));
        let (summaries, main) = (area(88), area(92));
        let blocks = |at: usize| u64::from(u32_at(bytes, at)) * SEGMENT_BLOCKS;
        let main_end = main + blocks(68);
        let in_order = checkpoints >= 2
            && blocks(52) == 2 * SEGMENT_BLOCKS
            && checkpoints + blocks(52) == segment_information
            && segment_information + blocks(56) == nodes
            && nodes + blocks(60) == summaries
            && summaries + blocks(64) == main
            && blocks(60) > 0
            && blocks(60).is_multiple_of(2 * SEGMENT_BLOCKS)
            && main < main_end
            && main_end <= u64_at(bytes, 36);
        // The tools count whole segments, so that the device may end within the last one.
        if !in_order || main_end * UNIT_BYTES > available_bytes {
            return refuse("its areas can't be".to_owned());
        }
        Ok(Superblock {
            uuid: bytes[108..124].try_into().expect("sixteen bytes"),
            features,
            checkpoint_payload: u32_at(bytes, 1664),
            checkpoints,
            segment_information,
            nodes,
            summaries,
            main,
            main_end,
            quota_inodes: [2745, 2749, 2753].map(|at| u32_at(bytes, at)),
        })
    }

    /// The blocks of checkpoints: first and end.
    pub(super) fn checkpoint_blocks(&self) -> (u64, u64) {
        (self.checkpoints, self.segment_information)
    }

    /// The class of a block outside the main area.
    pub(super) fn fixed(&self, block: u64) -> Option<Class> {
        match block {
            _ if block < self.checkpoints || block >= self.main_end => Some(Class::Superblock),
            _ if block < self.segment_information => Some(Class::Journal),
            _ if block < self.nodes => Some(Class::Bitmap),
            _ if block < self.summaries => Some(Class::Mapping),
            _ if block < self.main => Some(Class::OtherMetadata),
            _ => None,
        }
    }

    /// Numbers of nodes are below.
    pub(super) fn nodes_max(&self) -> u64 {
        (self.summaries - self.nodes) / 2 * NAT_ENTRIES
    }

    /// Inodes may have more attributes in front of their addresses.
    pub(super) fn has_extra_attributes(&self) -> bool {
        self.features & FEATURE_EXTRA_ATTRIBUTES != 0
    }

    /// Whether inodes state the room for extended attributes after their addresses.
    pub(super) fn has_flexible_attributes(&self) -> bool {
        self.features & FEATURE_FLEXIBLE_INLINE_ATTRIBUTES != 0
    }
}

/// The checksum of superblocks and checkpoints: CRC-32 that begins with the magic number and is not inverted.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!MAGIC);
    hasher.update(bytes);
    !hasher.finalize()
}
