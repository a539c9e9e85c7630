//! Inodes and blocks of committed transactions that the log holds and their places do not yet.

use std::collections::BTreeMap;

/// Inodes and blocks that are newer in the log than at their places.
#[derive(Debug, Default)]
pub(super) struct Committed {
    /// Logged inodes by number.
    pub(super) inodes: BTreeMap<u64, Vec<u8>>,
    /// Logged blocks of directories and of extent trees, by place.
    pub(super) blocks: BTreeMap<u64, Vec<u8>>,
}

impl Committed {
    pub(super) fn clear(&mut self) {
        self.inodes.clear();
        self.blocks.clear();
    }

    pub(super) fn inode(&self, number: u64) -> Option<&Vec<u8>> {
        self.inodes.get(&number)
    }

    pub(super) fn inodes(&self) -> impl Iterator<Item = (u64, &Vec<u8>)> {
        self.inodes.iter().map(|(&number, bytes)| (number, bytes))
    }

    pub(super) fn block(&self, block: u64) -> Option<&Vec<u8>> {
        self.blocks.get(&block)
    }

    pub(super) fn blocks_between(&self, first: u64, end: u64) -> impl Iterator<Item = u64> {
        self.blocks.range(first..end.max(first)).map(|entry| *entry.0)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let bytes = |entries: &BTreeMap<u64, Vec<u8>>| {
            entries.values().map(|bytes| (bytes.capacity() + 2 * size_of::<(u64, Vec<u8>)>()) as u64).sum::<u64>()
        };
        bytes(&self.inodes) + bytes(&self.blocks)
    }

    pub(super) fn entries(&self) -> usize {
        self.inodes.len() + self.blocks.len()
    }

    /// Blocks lose their owner.
    pub(super) fn forget(&mut self, from: u64, to: u64) {
        let blocks: Vec<u64> = self.blocks.range(from..to.max(from)).map(|entry| *entry.0).collect();
        blocks.iter().for_each(|block| drop(self.blocks.remove(block)));
    }
}
