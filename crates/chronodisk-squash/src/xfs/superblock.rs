//! The superblock of XFS, version 5.
//!
//! Offsets are from `struct xfs_dsb` (Linux, `fs/xfs/libxfs/xfs_format.h`); numbers are big-endian.

use crate::UNIT_BYTES;
use crate::classifier::Refusal;
use crate::crc32c;

/// Largest size of a sector, and so of the superblock with its checksum.
pub(crate) const LEN_BYTES: usize = 4096;
const MAGIC: &[u8; 4] = b"XFSB";
const VERSION: u16 = 5;
const CHECKSUM_AT: usize = 224;
/// FTYPE, SPINODES, META_UUID, BIGTIME, NEEDSREPAIR, NREXT64, EXCHRANGE, PARENT.
const INCOMPAT_KNOWN: u32 = 0xFF;
const INCOMPAT_FTYPE: u32 = 0x1;
const INCOMPAT_META_UUID: u32 = 0x4;

/// Fields of a superblock for the classifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) block_bytes: u64,
    pub(crate) sector_bytes: u64,
    pub(crate) inode_bytes: usize,
    pub(crate) blocks_count: u64,
    /// Blocks of an allocation group.
    pub(crate) group_blocks: u64,
    /// First block of the log and its length; no blocks if it is on another device.
    pub(crate) log_start: u64,
    pub(crate) log_blocks: u64,
    /// Bits of a block's number that are its place in its group.
    group_log: u32,
    /// The number of the root directory.
    pub(crate) root_inode: u64,
    /// Bits of an inode's number that are its place in its block, in sectors of an inode's size.
    inodes_log: u32,
    /// Directory entries have the type of their inodes.
    pub(crate) has_kinds: bool,
    /// The file system's UUID, which metadata blocks repeat.
    pub(crate) uuid: [u8; 16],
}

impl Superblock {
    /// 2,048 blocks of 4 KiB in four groups, with inodes of 512 bytes.
    #[cfg(test)]
    pub(crate) fn of_test(has_kinds: bool) -> Self {
        Superblock {
            block_bytes: 4096,
            sector_bytes: 512,
            inode_bytes: 512,
            blocks_count: 2048,
            group_blocks: 512,
            log_start: 1032,
            log_blocks: 256,
            group_log: 9,
            root_inode: 128,
            inodes_log: 3,
            has_kinds,
            uuid: [0x5A; 16],
        }
    }

    /// Reads the superblock of a file system that may take `available_bytes`.
    pub(crate) fn parse(bytes: &[u8; LEN_BYTES], available_bytes: u64) -> Result<Self, Refusal> {
        let refuse = |reason: &str| Err(Refusal::NotUnderstood(reason.to_owned()));
        if bytes[..4] != *MAGIC {
            return Err(Refusal::Absent);
        }
        let u16_at = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        if u16_at(100) & 0xF != VERSION {
            return refuse("XFS without checksums (version 4)");
        }
        let sector_bytes = usize::from(u16_at(102));
        if !sector_bytes.is_power_of_two() || !(512..=LEN_BYTES).contains(&sector_bytes) {
            return refuse("the size of a sector can't be");
        }
        let mut sector = bytes[..sector_bytes].to_vec();
        sector[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
        if crc32c::crc32c(&sector).to_le_bytes() != bytes[CHECKSUM_AT..CHECKSUM_AT + 4] {
            return refuse("the superblock's checksum is wrong");
        }
        let incompat = u32_at(bytes, 216);
        if incompat & !INCOMPAT_KNOWN != 0 {
            let unknown = incompat & !INCOMPAT_KNOWN;
            return Err(Refusal::NotUnderstood(format!(
                "incompatible feature {:#x}",
                unknown & unknown.wrapping_neg()
            )));
        }
        let uuid_at = if incompat & INCOMPAT_META_UUID == 0 { 32 } else { 248 };
        let (group_log, log_start) = (u32::from(bytes[124]), u64_at(bytes, 48));
        let group_blocks = u64::from(u32_at(bytes, 84));
        let superblock = Superblock {
            block_bytes: u64::from(u32_at(bytes, 4)),
            sector_bytes: sector_bytes as u64,
            inode_bytes: usize::from(u16_at(104)),
            blocks_count: u64_at(bytes, 8),
            group_blocks,
            log_start: block_of(log_start, group_log.min(31), group_blocks),
            log_blocks: if log_start == 0 { 0 } else { u64::from(u32_at(bytes, 96)) },
            group_log: group_log.min(31),
            root_inode: u64_at(bytes, 56),
            inodes_log: u32::from(bytes[123]).min(6),
            has_kinds: incompat & INCOMPAT_FTYPE != 0,
            uuid: bytes[uuid_at..uuid_at + 16].try_into().expect("sixteen bytes"),
        };
        let groups = u64::from(u32_at(bytes, 88));
        match superblock.fault(groups, group_log, available_bytes) {
            Some(fault) => refuse(fault),
            None if u64_at(bytes, 16) != 0 => refuse("a realtime section"),
            None if superblock.block_bytes > UNIT_BYTES => refuse("blocks of more than 4 KiB"),
            None if bytes[192] != 0 => refuse("directories in blocks of several blocks"),
            None => Ok(superblock),
        }
    }

    /// The place of the block that has this number, counted in blocks from the beginning; perhaps beyond the end.
    pub(crate) fn block_of(&self, number: u64) -> u64 {
        block_of(number, self.group_log, self.group_blocks)
    }

    /// The place of the inode with this number: block, and offset in bytes.
    pub(crate) fn place_of_inode(&self, number: u64) -> (u64, usize) {
        let index = number & ((1 << self.inodes_log) - 1);
        (self.block_of(number >> self.inodes_log), index as usize * self.inode_bytes)
    }

    /// An impossible value, if there is one.
    fn fault(&self, groups: u64, group_log: u32, available_bytes: u64) -> Option<&'static str> {
        let power = |number: u64, least: u64, most: u64| number.is_power_of_two() && (least..=most).contains(&number);
        let log_end = self.log_start.checked_add(self.log_blocks);
        let sane = [
            (power(self.block_bytes, 512, 65_536), "the size of a block can't be"),
            (self.sector_bytes <= self.block_bytes, "the size of a sector can't be"),
            (power(self.inode_bytes as u64, 256, self.block_bytes.min(2048)), "the size of an inode can't be"),
            // The kernel's least group (`XFS_MIN_AG_BLOCKS`).
            (self.group_blocks >= 64 && group_log < 32, "the size of a group can't be"),
            (
                groups > 0 && self.blocks_count.div_ceil(self.group_blocks.max(1)) == groups,
                "the count of groups can't be",
            ),
            (log_end.is_some_and(|end| end <= self.blocks_count), "the place of the log can't be"),
        ];
        if let Some((_, fault)) = sane.iter().find(|(sane, _)| !sane) {
            return Some(fault);
        }
        (self.blocks_count > available_bytes / self.block_bytes).then_some("the file system is larger than the device")
    }
}

/// A number of a block is its group's number above its place in the group.
fn block_of(number: u64, group_log: u32, group_blocks: u64) -> u64 {
    (number >> group_log).saturating_mul(group_blocks).saturating_add(number & ((1 << group_log) - 1))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
