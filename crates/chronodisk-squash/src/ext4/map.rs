//! The blocks of a file by their number in the file.

use chronodisk_store::StoreError;

use super::View;
use super::inode::{DEPTH_MAX, EXTENT_MAX_BLOCKS, EXTENTS_MAGIC, FLAG_EXTENTS, Inode};
use super::superblock::Superblock;
use crate::bytes::u32_at;

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
