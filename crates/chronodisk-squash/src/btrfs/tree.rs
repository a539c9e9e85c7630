//! Nodes of btrfs's trees, and walks through them.
//!
//! Offsets are from `struct btrfs_header`, `btrfs_item`, `btrfs_key_ptr` and the items (Linux,
//! `include/uapi/linux/btrfs_tree.h`).

use std::collections::HashMap;
use std::sync::Arc;

use chronodisk_store::StoreError;

use super::chunks::{self, Chunks};
use super::key::{KEY_BYTES, KEY_LAST, Key};
use super::superblock::{LEVELS_MAX, Root, Superblock};
use crate::Class;
use crate::blocks::Blocks;
use crate::bytes::{u32_at, u64_at};
use crate::crc32c;

/// Length of the header at the beginning of every node.
const HEADER_BYTES: usize = 101;
const ITEM_BYTES: usize = KEY_BYTES + 8;
const POINTER_BYTES: usize = KEY_BYTES + 16;

/// Length of a node's checksum, which covers the bytes after it.
pub(crate) const CHECKSUM_BYTES: usize = 32;
const UUID_AT: usize = 32;
const LOGICAL_AT: usize = 48;
const GENERATION_AT: usize = 80;
const OWNER_AT: usize = 88;
const COUNT_AT: usize = 96;
const LEVEL_AT: usize = 100;

/// Trees, by the numbers of their roots.
mod owner {
    pub(super) const ROOT: u64 = 1;
    pub(super) const CHUNK: u64 = 3;
    pub(super) const DEVICE: u64 = 4;
    pub(super) const EXTENT: u64 = 2;
    pub(super) const FILES: u64 = 5;
    pub(super) const CHECKSUM: u64 = 7;
    pub(super) const FREE_SPACE: u64 = 10;
    pub(super) const BLOCK_GROUP: u64 = 11;
    pub(super) const LOG: u64 = 6u64.wrapping_neg();
    /// First number of subvolumes and snapshots. Numbers counted down from the end are other trees.
    pub(super) const SUBVOLUME: u64 = 256;
}

const OBJECT_CHECKSUMS: u64 = 10u64.wrapping_neg();
const TYPE_EXTENT_DATA: u8 = 108;
const TYPE_EXTENT_CSUM: u8 = 128;
const TYPE_ROOT_ITEM: u8 = 132;
const TYPE_FREE_EXTENT: u8 = 199;
const TYPE_FREE_BITMAP: u8 = 200;

/// Shortest item of an extent; a shorter one holds inline contents.
pub(crate) const EXTENT_DATA_BYTES: usize = 53;

/// Whether bytes begin with the header of a node of this file system. The checksum is not verified.
pub(crate) fn is_node(bytes: &[u8], superblock: &Superblock) -> bool {
    bytes.get(UUID_AT..LOGICAL_AT) == Some(&superblock.uuid)
}

/// The class of a node, by its tree.
pub(crate) fn class_of(node: &[u8]) -> Class {
    match u64_at(node, OWNER_AT) {
        owner::ROOT | owner::EXTENT | owner::CHUNK | owner::DEVICE | owner::FREE_SPACE | owner::BLOCK_GROUP => {
            Class::SpaceTree
        }
        owner::CHECKSUM => Class::Checksums,
        _ => Class::Tree,
    }
}

/// The address that a node claims.
pub(crate) fn logical_of(node: &[u8]) -> u64 {
    u64_at(node, LOGICAL_AT)
}

/// The transaction that wrote a node.
pub(crate) fn generation_of(node: &[u8]) -> u64 {
    u64_at(node, GENERATION_AT)
}

/// Whether a node is a leaf with an extent of compressed or encrypted contents.
pub(crate) fn has_encoded_extent(node: &[u8]) -> bool {
    let owner = u64_at(node, OWNER_AT);
    let of_files = owner == owner::FILES || owner == owner::LOG || (owner::SUBVOLUME..=1 << 48).contains(&owner);
    of_files && node[LEVEL_AT] == 0 && items(node).is_some_and(|mut items| items.any(is_encoded_extent))
}

fn is_encoded_extent((key, item): (Key, &[u8])) -> bool {
    // Inline contents are in the node itself.
    key.kind == TYPE_EXTENT_DATA && item.len() >= EXTENT_DATA_BYTES && item[16..20] != [0; 4] && item[20] != 0
}

/// The items of a leaf; `None` if one lies beyond its end.
fn items(leaf: &[u8]) -> Option<impl Iterator<Item = (Key, &[u8])>> {
    let (header, body) = leaf.split_at_checked(HEADER_BYTES)?;
    let count = u32_at(header, COUNT_AT) as usize;
    let heads = body.get(..count.checked_mul(ITEM_BYTES)?)?.chunks_exact(ITEM_BYTES);
    let data = |head: &[u8]| {
        let (from, len) = (u32_at(head, KEY_BYTES) as usize, u32_at(head, KEY_BYTES + 4) as usize);
        body.get(from..from.checked_add(len)?)
    };
    heads
        .clone()
        .all(|head| data(head).is_some())
        .then(|| heads.map(move |head| (Key::at(head, 0), data(head).expect("looked at above"))))
}

/// A pointer to a node: the first key below it, its address, and the transaction that wrote it.
fn pointers(node: &[u8]) -> Option<Vec<(Key, u64, u64)>> {
    let (header, body) = node.split_at_checked(HEADER_BYTES)?;
    let count = u32_at(header, COUNT_AT) as usize;
    let entries = body.get(..count.checked_mul(POINTER_BYTES)?)?.chunks_exact(POINTER_BYTES);
    Some(entries.map(|entry| (Key::at(entry, 0), u64_at(entry, KEY_BYTES), u64_at(entry, KEY_BYTES + 8))).collect())
}

/// Verified nodes. An entry is valid until a transaction frees the node, or the node is overwritten.
#[derive(Debug, Default)]
pub(crate) struct NodeCache {
    nodes: HashMap<u64, Arc<[u8]>>,
}

/// 4 MiB of nodes of the usual 16 KiB.
const CACHED_MAX: usize = 256;

impl NodeCache {
    /// Memory that the nodes take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.nodes.values().map(|node| node.len() as u64).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Forgets the node at an address, because another one is there.
    pub(crate) fn forget(&mut self, logical: u64) {
        self.nodes.remove(&logical);
    }
}

/// Access to trees for walks.
pub(crate) struct Trees<'a> {
    pub(crate) blocks: &'a mut Blocks,
    pub(crate) start_bytes: u64,
    pub(crate) superblock: &'a Superblock,
    pub(crate) chunks: &'a Chunks,
    pub(crate) cache: &'a mut NodeCache,
}

/// Nodes that one walk may read. With 16 KiB each, that is enough for the chunks of a thousand petabytes.
const WALK_NODES_MAX: usize = 1 << 16;

/// A walk from one key to another.
struct Walk<'a> {
    from: Key,
    to: Key,
    /// Only nodes of later transactions are visited.
    newer_than: u64,
    nodes: usize,
    /// Keys only ascend, so that no node is visited twice.
    last: Option<Key>,
    visit: &'a mut dyn FnMut(Key, &[u8]),
}

impl Trees<'_> {
    /// The node at an address, if one of its copies is valid.
    fn node(&mut self, root: Root) -> Result<Option<Arc<[u8]>>, StoreError> {
        if let Some(node) = self.cache.nodes.get(&root.logical) {
            return Ok(Some(node.clone()).filter(|node| is_right(node, root, self.superblock)));
        }
        let mut bytes = vec![0; self.superblock.node_bytes as usize];
        for at in self.chunks.copies(root.logical, self.superblock.node_bytes) {
            if self.blocks.read(self.start_bytes + at, &mut bytes)? && is_right(&bytes, root, self.superblock) {
                let sum = crc32c::crc32c(&bytes[CHECKSUM_BYTES..]);
                if sum.to_le_bytes() != bytes[..4] {
                    continue;
                }
                if self.cache.nodes.len() >= CACHED_MAX {
                    self.cache.clear();
                }
                let node: Arc<[u8]> = bytes.into();
                self.cache.nodes.insert(root.logical, node.clone());
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// Visits the items from one key to another, both included. Returns false if a node is missing, or the tree is
    /// invalid.
    pub(crate) fn walk(
        &mut self,
        root: Root,
        from: Key,
        to: Key,
        visit: &mut dyn FnMut(Key, &[u8]),
    ) -> Result<bool, StoreError> {
        self.walk_new(root, 0, from, to, visit)
    }

    /// Visits only leaves written by transactions after `newer_than`, otherwise as [`Trees::walk`].
    pub(crate) fn walk_new(
        &mut self,
        root: Root,
        newer_than: u64,
        from: Key,
        to: Key,
        visit: &mut dyn FnMut(Key, &[u8]),
    ) -> Result<bool, StoreError> {
        self.descend(root, &mut Walk { from, to, newer_than, nodes: 0, last: None, visit })
    }

    /// Visits the items below a node. Children are one level lower, so the root's level bounds the depth.
    fn descend(&mut self, root: Root, walk: &mut Walk) -> Result<bool, StoreError> {
        walk.nodes += 1;
        if walk.nodes > WALK_NODES_MAX || root.level >= LEVELS_MAX {
            return Ok(false);
        }
        let Some(node) = self.node(root)? else { return Ok(false) };
        if root.level == 0 {
            let Some(items) = items(&node) else { return Ok(false) };
            // Only a tree with a single leaf can be empty.
            let mut any = walk.nodes == 1;
            for (key, item) in items {
                if walk.last.is_some_and(|last| last >= key) {
                    return Ok(false);
                }
                (walk.last, any) = (Some(key), true);
                if (walk.from..=walk.to).contains(&key) {
                    (walk.visit)(key, item);
                }
            }
            return Ok(any);
        }
        let Some(pointers) = pointers(&node).filter(|pointers| pointers.is_sorted_by(|a, b| a.0 < b.0)) else {
            return Ok(false);
        };
        for (index, &(key, logical, generation)) in pointers.iter().enumerate() {
            let ends_before = pointers.get(index + 1).is_some_and(|next| next.0 <= walk.from);
            if ends_before || key > walk.to || walk.newer_than > 0 && generation <= walk.newer_than {
                continue;
            }
            if !self.descend(Root { logical, generation, level: root.level - 1 }, walk)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// All chunks, if the known ones already hold the whole chunk tree; or the fault in a chunk.
    pub(crate) fn read_chunks(&mut self) -> Result<Option<Result<Chunks, String>>, StoreError> {
        let (superblock, mut chunks, mut fault) = (self.superblock, Chunks::default(), None);
        let mut add = |key: Key, item: &[u8]| {
            if key.kind == chunks::KEY_TYPE && fault.is_none() {
                fault = chunks.add(key.offset, item, superblock).err();
            }
        };
        let whole = self.walk(superblock.chunk_root, Key::new(0, 0, 0), KEY_LAST, &mut add)?;
        match fault {
            Some(fault) => Ok(Some(Err(fault))),
            None => Ok(whole.then_some(Ok(chunks))),
        }
    }

    /// The root of a tree, from the root tree.
    pub(crate) fn root_of(&mut self, tree: u64) -> Result<Option<Root>, StoreError> {
        let mut found = None;
        let (from, to) = (Key::new(tree, TYPE_ROOT_ITEM, 0), Key::new(tree, TYPE_ROOT_ITEM, u64::MAX));
        self.walk(self.superblock.tree_root, from, to, &mut |_, item| {
            found = Root::of_item(item).or(found);
        })?;
        Ok(found)
    }

    pub(crate) fn checksum_root(&mut self) -> Result<Option<Root>, StoreError> {
        self.root_of(owner::CHECKSUM)
    }

    pub(crate) fn free_space_root(&mut self) -> Result<Option<Root>, StoreError> {
        self.root_of(owner::FREE_SPACE)
    }

    /// Visits the checksums of sectors from one logical address up to another: address and checksum. Returns false if a
    /// node was unreadable.
    pub(crate) fn checksums(
        &mut self,
        root: Root,
        start: u64,
        end: u64,
        sector_bytes: u64,
        visit: &mut dyn FnMut(u64, u32),
    ) -> Result<bool, StoreError> {
        // An item may begin before `start` by as much as a leaf has room for checksums.
        let item_reach = self.superblock.node_bytes / 4 * sector_bytes;
        let from = Key::new(OBJECT_CHECKSUMS, TYPE_EXTENT_CSUM, start.saturating_sub(item_reach));
        let to = Key::new(OBJECT_CHECKSUMS, TYPE_EXTENT_CSUM, end.saturating_sub(1));
        self.walk(root, from, to, &mut |key, item| {
            let skipped = start.saturating_sub(key.offset) / sector_bytes;
            let sums = item.chunks_exact(4).zip(0..).skip(skipped.min(item.len() as u64) as usize);
            let addressed = sums.map(|(sum, index)| (key.offset.saturating_add(index * sector_bytes), u32_at(sum, 0)));
            let asked = addressed.take_while(|&(logical, _)| logical < end).filter(|&(logical, _)| logical >= start);
            asked.for_each(|(logical, sum)| visit(logical, sum));
        })
    }

    /// Logical ranges of the files in the root tree, which are the space cache: address and length. `None` if a node
    /// was unreadable.
    pub(crate) fn space_cache(&mut self) -> Result<Option<Vec<(u64, u64)>>, StoreError> {
        let mut ranges = Vec::new();
        let whole = self.walk(self.superblock.tree_root, Key::new(0, 0, 0), KEY_LAST, &mut |key, item| {
            if key.kind == TYPE_EXTENT_DATA && item.len() >= EXTENT_DATA_BYTES && item[20] != 0 {
                ranges.push((u64_at(item, 21), u64_at(item, 29)));
            }
        })?;
        Ok(whole.then_some(ranges))
    }

    /// Visits the free ranges from one logical address up to another: address and length. Returns false if a node was
    /// unreadable.
    pub(crate) fn free_ranges(
        &mut self,
        root: Root,
        start: u64,
        end: u64,
        sector_bytes: u64,
        visit: &mut dyn FnMut(u64, u64),
    ) -> Result<bool, StoreError> {
        let (from, to) = (Key::new(start, 0, 0), Key::new(end.saturating_sub(1), u8::MAX, u64::MAX));
        self.walk(root, from, to, &mut |key, item| match key.kind {
            TYPE_FREE_EXTENT => visit(key.object, key.offset),
            TYPE_FREE_BITMAP => {
                let free = |bit: u64| item.get((bit / 8) as usize).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
                let (mut bit, bits) = (0, item.len() as u64 * 8);
                while bit < bits {
                    let run_start = bit;
                    while free(bit) {
                        bit += 1;
                    }
                    if bit > run_start {
                        visit(key.object.saturating_add(run_start * sector_bytes), (bit - run_start) * sector_bytes);
                    }
                    bit += 1;
                }
            }
            _ => {}
        })
    }
}

/// Whether a node is the one to which a pointer refers.
fn is_right(node: &[u8], root: Root, superblock: &Superblock) -> bool {
    is_node(node, superblock)
        && (logical_of(node), generation_of(node), node[LEVEL_AT]) == (root.logical, root.generation, root.level)
}
