//! The superblock of ext2, ext3 and ext4.
//!
//! Offsets and values are those of the Linux kernel's `Documentation/filesystems/ext4/super.rst`. A superblock is
//! hostile: its values are checked against the size of the device, and unknown features are refused with a reason.

use crate::bytes::{u32_at, u64_at};
use crate::classifier::Refusal;
use crate::crc32c;

/// Place of the superblock in the file system, and its length.
pub(crate) const OFFSET_BYTES: u64 = 1024;
pub(crate) const LEN_BYTES: usize = 1024;
const MAGIC: u16 = 0xEF53;

/// Features, by the names of the kernel.
pub(crate) mod feature {
    pub(crate) const COMPAT_HAS_JOURNAL: u32 = 0x4;
    pub(crate) const COMPAT_SPARSE_SUPER2: u32 = 0x200;
    pub(crate) const COMPAT_FAST_COMMIT: u32 = 0x400;
    pub(crate) const COMPAT_ORPHAN_FILE: u32 = 0x1000;
    pub(crate) const INCOMPAT_FILETYPE: u32 = 0x2;
    pub(crate) const INCOMPAT_RECOVER: u32 = 0x4;
    pub(crate) const INCOMPAT_META_BG: u32 = 0x10;
    pub(crate) const INCOMPAT_64BIT: u32 = 0x80;
    pub(crate) const INCOMPAT_MMP: u32 = 0x100;
    pub(crate) const INCOMPAT_EA_INODE: u32 = 0x400;
    pub(crate) const INCOMPAT_CSUM_SEED: u32 = 0x2000;
    pub(crate) const INCOMPAT_INLINE_DATA: u32 = 0x8000;
    /// FILETYPE, RECOVER, META_BG, EXTENTS, 64BIT, MMP, FLEX_BG, EA_INODE, CSUM_SEED, LARGEDIR,
    /// INLINE_DATA, CASEFOLD.
    pub(crate) const INCOMPAT_KNOWN: u32 =
        0x2 | 0x4 | 0x10 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x2000 | 0x4000 | 0x8000 | 0x2_0000;
    pub(crate) const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
    pub(crate) const RO_COMPAT_QUOTA: u32 = 0x100;
    pub(crate) const RO_COMPAT_METADATA_CSUM: u32 = 0x400;
    pub(crate) const RO_COMPAT_ORPHAN_PRESENT: u32 = 0x1_0000;
    /// SPARSE_SUPER, LARGE_FILE, BTREE_DIR, HUGE_FILE, GDT_CSUM, DIR_NLINK, EXTRA_ISIZE, QUOTA,
    /// METADATA_CSUM, REPLICA, READONLY, PROJECT, ORPHAN_PRESENT.
    pub(crate) const RO_COMPAT_KNOWN: u32 =
        0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x100 | 0x400 | 0x800 | 0x1000 | 0x2000 | 0x1_0000;
}
use feature::*;

const INCOMPAT_NAMES: [(u32, &str); 4] = [
    (0x1, "compression"),
    (0x8, "a journal on another device"),
    (0x1000, "data in directories"),
    (0x1_0000, "encryption"),
];
const RO_COMPAT_NAMES: [(u32, &str); 4] =
    [(0x80, "snapshots"), (0x200, "bigalloc"), (0x4000, "shared blocks"), (0x8000, "verity")];

/// Fields of a superblock for the classifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) block_bytes: u64,
    pub(crate) blocks_count: u64,
    pub(crate) first_data_block: u64,
    pub(crate) blocks_per_group: u64,
    pub(crate) inodes_per_group: u64,
    pub(crate) inodes_count: u64,
    pub(crate) inode_bytes: u64,
    pub(crate) first_inode: u64,
    pub(crate) descriptor_bytes: u64,
    pub(crate) reserved_descriptor_blocks: u64,
    pub(crate) first_meta_group: u64,
    pub(crate) backup_groups: [u64; 2],
    pub(crate) compat: u32,
    pub(crate) incompat: u32,
    pub(crate) ro_compat: u32,
    pub(crate) journal_inode: u64,
    pub(crate) quota_inodes: [u64; 3],
    pub(crate) orphan_inode: u64,
    pub(crate) mmp_block: u64,
    pub(crate) checksum_seed: u32,
    pub(crate) uuid: [u8; 16],
    /// The file system was unmounted, or closed by a tool, without errors.
    pub(crate) clean: bool,
    /// A kernel has it mounted with its journal, or had it when it was cut off.
    pub(crate) needs_recovery: bool,
}

impl Superblock {
    /// Parses the 1,024 bytes of a superblock of a file system of at most `available_bytes`.
    pub(crate) fn parse(bytes: &[u8; LEN_BYTES], available_bytes: u64) -> Result<Self, Refusal> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let wide = |at: usize| u64::from(u32_at(bytes, at));
        if u16_at(0x38) != MAGIC {
            return Err(Refusal::Absent);
        }
        let refuse = |reason: String| Err(Refusal::NotUnderstood(reason));
        let revision = u32_at(bytes, 0x4C);
        let (compat, incompat, ro_compat, inode_bytes, first_inode) = match revision {
            0 => (0, 0, 0, 128, 11),
            1 => (u32_at(bytes, 0x5C), u32_at(bytes, 0x60), u32_at(bytes, 0x64), u64::from(u16_at(0x58)), wide(0x54)),
            other => return refuse(format!("revision {other}")),
        };
        if let Some(feature) = unknown(incompat, INCOMPAT_KNOWN, &INCOMPAT_NAMES, "incompatible feature") {
            return refuse(feature);
        }
        if let Some(feature) = unknown(ro_compat, RO_COMPAT_KNOWN, &RO_COMPAT_NAMES, "read-only-compatible feature") {
            return refuse(feature);
        }
        let checksummed = ro_compat & RO_COMPAT_METADATA_CSUM != 0;
        if checksummed && u32_at(bytes, 0x3FC) != checksum(!0, &bytes[..0x3FC]) {
            return refuse("the superblock's checksum is wrong".to_owned());
        }
        let is_64bit = incompat & INCOMPAT_64BIT != 0;
        let high = if is_64bit { wide(0x150) << 32 } else { 0 };
        let has = |feature: u32| compat & feature != 0;
        let seed = match incompat & INCOMPAT_CSUM_SEED != 0 {
            true => u32_at(bytes, 0x270),
            false => checksum(!0, &bytes[0x68..0x78]),
        };
        let superblock = Superblock {
            block_bytes: 1024u64.checked_shl(u32_at(bytes, 0x18)).unwrap_or(0),
            blocks_count: wide(0x4) | high,
            first_data_block: wide(0x14),
            blocks_per_group: wide(0x20),
            inodes_per_group: wide(0x28),
            inodes_count: wide(0x0),
            inode_bytes,
            first_inode,
            descriptor_bytes: if is_64bit { u64::from(u16_at(0xFE)) } else { 32 },
            reserved_descriptor_blocks: u64::from(u16_at(0xCE)),
            first_meta_group: wide(0x104),
            backup_groups: [wide(0x24C), wide(0x250)],
            compat,
            incompat,
            ro_compat,
            journal_inode: if has(COMPAT_HAS_JOURNAL) { wide(0xE0) } else { 0 },
            quota_inodes: [wide(0x240), wide(0x244), wide(0x26C)],
            orphan_inode: if has(COMPAT_ORPHAN_FILE) { wide(0x280) } else { 0 },
            mmp_block: if incompat & INCOMPAT_MMP != 0 { u64_at(bytes, 0x168) } else { 0 },
            checksum_seed: seed,
            uuid: bytes[0x68..0x78].try_into().expect("sixteen bytes"),
            clean: u16_at(0x3A) & 0x3 == 0x1,
            needs_recovery: incompat & INCOMPAT_RECOVER != 0,
        };
        match superblock.fault(available_bytes) {
            Some(fault) => refuse(fault),
            None => Ok(superblock),
        }
    }

    /// An impossible value, if there is one.
    fn fault(&self, available_bytes: u64) -> Option<String> {
        let block_bits = 8 * self.block_bytes;
        let sane = [
            ((1024..=65_536).contains(&self.block_bytes), "size of a block"),
            (self.first_data_block == u64::from(self.block_bytes == 1024), "first block"),
            ((256..=block_bits).contains(&self.blocks_per_group), "count of blocks in a group"),
            ((1..=block_bits).contains(&self.inodes_per_group), "count of inodes in a group"),
            (
                self.inode_bytes.is_power_of_two() && (128..=self.block_bytes).contains(&self.inode_bytes),
                "size of an inode",
            ),
            (
                self.descriptor_bytes.is_power_of_two() && (32..=1024).contains(&self.descriptor_bytes),
                "size of a group descriptor",
            ),
            (self.blocks_count > self.first_data_block, "count of blocks"),
        ];
        if let Some((_, what)) = sane.iter().find(|(sane, _)| !sane) {
            return Some(format!("the {what} can't be"));
        }
        if self.blocks_count > available_bytes / self.block_bytes {
            return Some("the file system is larger than the device".to_owned());
        }
        if self.groups() > GROUPS_MAX || self.groups() * self.inodes_per_group > u64::from(u32::MAX) {
            return Some("it has too many groups".to_owned());
        }
        if self.compat & COMPAT_HAS_JOURNAL != 0 && self.journal_inode == 0 {
            return Some("a journal on another device".to_owned());
        }
        None
    }

    /// Whether another superblock belongs to the same file system with the same layout.
    pub(crate) fn same_layout(&self, other: &Superblock) -> bool {
        let layout = |superblock: &Superblock| Superblock {
            incompat: superblock.incompat & !INCOMPAT_RECOVER,
            ro_compat: superblock.ro_compat & !RO_COMPAT_ORPHAN_PRESENT,
            clean: false,
            needs_recovery: false,
            ..superblock.clone()
        };
        layout(self) == layout(other)
    }

    /// Count of groups.
    pub(crate) fn groups(&self) -> u64 {
        (self.blocks_count - self.first_data_block).div_ceil(self.blocks_per_group)
    }

    /// The first block of a group, and its end.
    pub(crate) fn group_blocks(&self, group: u64) -> (u64, u64) {
        let start = self.first_data_block + group * self.blocks_per_group;
        (start, (start + self.blocks_per_group).min(self.blocks_count))
    }

    /// Blocks of a group's inode table.
    pub(crate) fn inode_table_blocks(&self) -> u64 {
        (self.inodes_per_group * self.inode_bytes).div_ceil(self.block_bytes)
    }

    /// Group descriptors in a block.
    pub(crate) fn descriptors_per_block(&self) -> u64 {
        self.block_bytes / self.descriptor_bytes
    }

    /// Whether all metadata outside of fixed places can be told from contents by their form, as directories, nodes,
    /// attributes and targets of links can. Quotas, lists of orphans, attributes in inodes of their own and a journal
    /// have none.
    pub(crate) fn metadata_have_forms(&self) -> bool {
        let formless = self.ro_compat & RO_COMPAT_QUOTA != 0
            || self.quota_inodes != [0; 3]
            || self.compat & (COMPAT_HAS_JOURNAL | COMPAT_ORPHAN_FILE) != 0
            || self.incompat & (INCOMPAT_EA_INODE | INCOMPAT_INLINE_DATA) != 0;
        !formless
    }

    pub(crate) fn has_metadata_checksums(&self) -> bool {
        self.ro_compat & RO_COMPAT_METADATA_CSUM != 0
    }

    /// Whether a group begins with a copy of the superblock.
    pub(crate) fn has_superblock(&self, group: u64) -> bool {
        if group == 0 {
            return true;
        }
        if self.compat & COMPAT_SPARSE_SUPER2 != 0 {
            return self.backup_groups.contains(&group);
        }
        let power_of = |base: u64| {
            let mut power = base;
            while power < group {
                power *= base;
            }
            power == group
        };
        self.ro_compat & RO_COMPAT_SPARSE_SUPER == 0 || group == 1 || [3, 5, 7].into_iter().any(power_of)
    }
}

/// 512 TiB in groups of 128 MiB: the memory of the groups' states stays within 200 MiB.
const GROUPS_MAX: u64 = 1 << 22;

/// CRC-32C as the kernel computes it for ext4 and its journal: without the inversions.
pub(crate) fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

fn unknown(features: u32, known: u32, names: &[(u32, &str)], kind: &str) -> Option<String> {
    let unknown = features & !known;
    let bit = unknown & unknown.wrapping_neg();
    let name = names.iter().find(|(named, _)| *named == bit).map(|(_, name)| (*name).to_owned());
    (unknown != 0).then(|| name.unwrap_or_else(|| format!("{kind} {bit:#x}")))
}
