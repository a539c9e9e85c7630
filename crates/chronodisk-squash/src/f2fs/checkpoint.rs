//! Checkpoints, and the addresses of nodes in one.
//!
//! Each of the two packs begins and ends with a checkpoint of the same version; the later complete one counts. A block
//! of the node address table has two places, and a bitmap in the checkpoint selects one. Entries in the journal of the
//! summary of hot data are newer (Linux, `fs/f2fs/checkpoint.c`, `node.c` and `segment.c`).

use std::collections::BTreeMap;

use chronodisk_store::StoreError;

use super::Reader;
use super::superblock::{NAT_ENTRIES, SEGMENT_BLOCKS, Superblock, checksum};
use crate::UNIT_BYTES;
use crate::bytes::{u32_at, u64_at};

const FLAG_UNMOUNTED: u32 = 0x1;
const FLAG_COMPACT_SUMMARY: u32 = 0x4;
const FLAG_FASTBOOT: u32 = 0x20;
const FLAG_LARGE_NAT_BITMAP: u32 = 0x400;

const CHECKSUM_AT_DEFAULT: usize = 4092;
/// With a large bitmap, the checksum comes before it.
const CHECKSUM_AT_MIN: usize = 192;
const BITMAPS_AT: usize = 192;
/// Entries of a summary block come before its journal, which the footer follows.
const JOURNAL_AT: usize = 512 * 7;
const JOURNAL_BYTES: usize = 4096 - JOURNAL_AT - 5;
const JOURNAL_ENTRY_BYTES: usize = 13;
const NAT_ENTRY_BYTES: usize = 9;
/// Logs of data, and of nodes besides them.
const DATA_LOGS: u64 = 3;
const LOGS: u64 = 6;

/// The last state of the file system that is whole on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) version: u64,
    flags: u32,
    /// Blocks and nodes that are in use.
    pub(super) blocks_in_use: u64,
    pub(super) nodes_in_use: u64,
    nat_bitmap: Vec<u8>,
    journal: BTreeMap<u32, u32>,
}

type Block = [u8; UNIT_BYTES as usize];

impl Checkpoint {
    /// The later one of two packs, if one is whole.
    pub(super) fn read(superblock: &Superblock, reader: &mut Reader<'_>) -> Result<Option<Self>, StoreError> {
        let first = Checkpoint::of_pack(superblock.checkpoints, superblock, reader)?;
        let second = Checkpoint::of_pack(superblock.checkpoints + SEGMENT_BLOCKS, superblock, reader)?;
        Ok(match (first, second) {
            // Tools write one version to both, and change the first.
            (Some(first), Some(second)) if second.version.wrapping_sub(first.version) as i64 > 0 => Some(second),
            (first, second) => first.or(second),
        })
    }

    fn of_pack(at: u64, superblock: &Superblock, reader: &mut Reader<'_>) -> Result<Option<Self>, StoreError> {
        let (mut head, mut tail): (Block, Block) = ([0; UNIT_BYTES as usize], [0; UNIT_BYTES as usize]);
        if !reader.read(at, &mut head)? || !is_whole(&head) {
            return Ok(None);
        }
        let count = u64::from(u32_at(&head, 136));
        if !(2..=SEGMENT_BLOCKS).contains(&count) || !reader.read(at + count - 1, &mut tail)? || !is_whole(&tail) {
            return Ok(None);
        }
        let version = u64_at(&head, 0);
        let (flags, start) = (u32_at(&head, 132), u64::from(u32_at(&head, 140)));
        let (sit_bytes, nat_bytes) = (u32_at(&head, 156) as usize, u32_at(&head, 160) as usize);
        // A bitmap of segments that is too large is in blocks of its own; or a checksum precedes both bitmaps.
        let nat_at = match flags & FLAG_LARGE_NAT_BITMAP != 0 {
            true => Some(BITMAPS_AT + 4),
            false if superblock.checkpoint_payload > 0 => Some(BITMAPS_AT),
            false => BITMAPS_AT.checked_add(sit_bytes),
        };
        let nat_bitmap = nat_at.and_then(|at| head.get(at..at.checked_add(nat_bytes)?));
        let Some(nat_bitmap) = nat_bitmap.filter(|_| u64_at(&tail, 0) == version && start < count) else {
            return Ok(None);
        };
        let mut summary: Block = [0; UNIT_BYTES as usize];
        let (summary_at, journal_at) = if flags & FLAG_COMPACT_SUMMARY != 0 {
            (at + start, 0)
        } else {
            let logs = if flags & (FLAG_UNMOUNTED | FLAG_FASTBOOT) != 0 { LOGS } else { DATA_LOGS };
            let Some(from_start) = count.checked_sub(logs + 1) else { return Ok(None) };
            (at + from_start, JOURNAL_AT)
        };
        if !reader.read(summary_at, &mut summary)? {
            return Ok(None);
        }
        Ok(Some(Checkpoint {
            version,
            flags,
            blocks_in_use: u64_at(&head, 16),
            nodes_in_use: u64::from(u32_at(&head, 144)),
            nat_bitmap: nat_bitmap.to_vec(),
            journal: journal(&summary[journal_at..journal_at + JOURNAL_BYTES]),
        }))
    }

    /// Whether this checkpoint was written by an unmount or by a tool. The file system may have been mounted again
    /// since.
    pub(super) fn is_clean(&self) -> bool {
        self.flags & FLAG_UNMOUNTED != 0
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.nat_bitmap.capacity() + self.journal.len() * size_of::<(u32, u32)>() * 3 / 2) as u64
    }

    /// The block of the node address table with this index.
    fn nat_block(&self, superblock: &Superblock, index: u64) -> u64 {
        let second = self.nat_bitmap.get((index / 8) as usize).is_some_and(|byte| byte & 0x80 >> (index % 8) != 0);
        superblock.nodes
            + index / SEGMENT_BLOCKS * 2 * SEGMENT_BLOCKS
            + index % SEGMENT_BLOCKS
            + if second { SEGMENT_BLOCKS } else { 0 }
    }

    /// The block of a node; `None` if it has none.
    pub(super) fn address_of(
        &self,
        node: u32,
        superblock: &Superblock,
        reader: &mut Reader<'_>,
    ) -> Result<Option<u64>, StoreError> {
        if u64::from(node) >= superblock.nodes_max() {
            return Ok(None);
        }
        if let Some(&address) = self.journal.get(&node) {
            return Ok(in_main(u64::from(address), superblock));
        }
        let mut bytes: Block = [0; UNIT_BYTES as usize];
        let block = self.nat_block(superblock, u64::from(node) / NAT_ENTRIES);
        if !reader.read(block, &mut bytes)? {
            return Ok(None);
        }
        let at = (u64::from(node) % NAT_ENTRIES) as usize * NAT_ENTRY_BYTES;
        Ok(in_main(u64::from(u32_at(&bytes, at + 5)), superblock))
    }

    /// All nodes that have a block, by their numbers. Returns false if a block was unreadable.
    pub(super) fn addresses(
        &self,
        superblock: &Superblock,
        reader: &mut Reader<'_>,
    ) -> Result<(BTreeMap<u32, u64>, bool), StoreError> {
        let (mut addresses, mut whole) = (BTreeMap::new(), true);
        let mut bytes: Block = [0; UNIT_BYTES as usize];
        for block in reader.stored(superblock.nodes, superblock.nodes + superblock.nodes_max() / NAT_ENTRIES * 2) {
            let inside = block - superblock.nodes;
            let index = inside / (2 * SEGMENT_BLOCKS) * SEGMENT_BLOCKS + inside % SEGMENT_BLOCKS;
            if self.nat_block(superblock, index) != block {
                continue;
            }
            whole &= reader.read(block, &mut bytes)?;
            for (entry, node) in bytes.chunks_exact(NAT_ENTRY_BYTES).zip(index * NAT_ENTRIES..) {
                if let Some(address) = in_main(u64::from(u32_at(entry, 5)), superblock) {
                    addresses.insert(node as u32, address);
                }
            }
        }
        for (&node, &address) in &self.journal {
            match in_main(u64::from(address), superblock).filter(|_| u64::from(node) < superblock.nodes_max()) {
                Some(address) => addresses.insert(node, address),
                None => addresses.remove(&node),
            };
        }
        Ok((addresses, whole))
    }
}

fn in_main(address: u64, superblock: &Superblock) -> Option<u64> {
    (superblock.main..superblock.main_end).contains(&address).then_some(address)
}

/// Whether a block is a checkpoint.
fn is_whole(block: &Block) -> bool {
    let at = u32_at(block, 164) as usize;
    (CHECKSUM_AT_MIN..=CHECKSUM_AT_DEFAULT).contains(&at) && {
        let (before, after) = (&block[..at], &block[(at + 4).min(block.len())..]);
        // A checksum in the middle also covers the bytes after it.
        let sum = if at == CHECKSUM_AT_DEFAULT { checksum(before) } else { checksum_around(before, after) };
        sum == u32_at(block, at)
    }
}

fn checksum_around(before: &[u8], after: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(checksum(before) ^ !0);
    hasher.update(after);
    !hasher.finalize()
}

/// Newer entries of the node address table.
fn journal(bytes: &[u8]) -> BTreeMap<u32, u32> {
    let count = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    let entries = bytes[2..].chunks_exact(JOURNAL_ENTRY_BYTES).take(count);
    entries.map(|entry| (u32_at(entry, 0), u32_at(entry, 9))).collect()
}
