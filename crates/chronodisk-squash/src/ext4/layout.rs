//! Places of ext4's static metadata: superblocks, group descriptors, bitmaps, inode tables.

use chronodisk_store::StoreError;

use super::View;
use super::superblock::{Superblock, feature};
use crate::bytes::u32_at;
use crate::class::Class;
use crate::runs::RunMap;

/// The static parts, and where each group's are.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Static metadata by block.
    pub(crate) fixed: RunMap<Fixed>,
    /// First blocks of block bitmaps and inode tables, by group.
    groups: Vec<Group>,
    /// (first block of the inode table, group), in ascending order.
    tables: Vec<(u64, u32)>,
    /// Whether all descriptors named valid places.
    pub(crate) complete: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Group {
    block_bitmap: u64,
    inode_table: u64,
    free_count: u64,
}

/// A class independent of the written bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fixed(pub(crate) Class);

impl crate::runs::RunValue for Fixed {
    fn advanced(self, _by: u64) -> Self {
        self
    }
}

impl Layout {
    /// Reads the available group descriptors.
    pub(crate) fn read(superblock: &Superblock, view: &mut View<'_>) -> Result<Self, StoreError> {
        let mut layout = Layout { complete: true, ..Layout::default() };
        // Blocks before the first group.
        layout.fix(0, superblock.first_data_block, Class::Superblock, superblock);
        let per_block = superblock.descriptors_per_block();
        let descriptor_blocks = superblock.groups().div_ceil(per_block);
        for group in 0..superblock.groups() {
            layout.fix_descriptors(superblock, group, descriptor_blocks);
        }
        if superblock.mmp_block != 0 {
            layout.fix(superblock.mmp_block, superblock.mmp_block + 1, Class::OtherMetadata, superblock);
        }
        let mut bytes = vec![0; superblock.block_bytes as usize];
        for index in 0..descriptor_blocks {
            let exact = view.read_block(descriptor_block(superblock, index), &mut bytes)?;
            let groups = index * per_block..((index + 1) * per_block).min(superblock.groups());
            for (group, descriptor) in groups.zip(bytes.chunks_exact(superblock.descriptor_bytes as usize)) {
                layout.read_descriptor(superblock, group, descriptor, exact);
            }
        }
        layout.tables.sort_unstable();
        Ok(layout)
    }

    /// Memory in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let groups = self.groups.capacity() * size_of::<Group>() + self.tables.capacity() * size_of::<(u64, u32)>();
        self.fixed.memory_bytes() + groups as u64
    }

    fn read_descriptor(&mut self, superblock: &Superblock, group: u64, descriptor: &[u8], exact: bool) {
        let is_64bit = superblock.incompat & feature::INCOMPAT_64BIT != 0 && descriptor.len() >= 64;
        let place = |low: usize, high: usize| {
            u64::from(u32_at(descriptor, low)) | if is_64bit { u64::from(u32_at(descriptor, high)) << 32 } else { 0 }
        };
        let (block_bitmap, inode_bitmap, inode_table) = (place(0x0, 0x20), place(0x4, 0x24), place(0x8, 0x28));
        let short = |at: usize| u64::from(u16::from_le_bytes([descriptor[at], descriptor[at + 1]]));
        let free_count = short(0xC) | if is_64bit { short(0x2C) << 16 } else { 0 };
        let parts = [
            (block_bitmap, 1, Class::Bitmap),
            (inode_bitmap, 1, Class::Bitmap),
            (inode_table, superblock.inode_table_blocks(), Class::InodeTable),
        ];
        let exists = |&(start, len, _): &(u64, u64, Class)| {
            start > superblock.first_data_block
                && start.checked_add(len).is_some_and(|end| end <= superblock.blocks_count)
        };
        self.complete &= exact && parts.iter().all(exists);
        if !exact {
            self.groups.push(Group::default());
            return;
        }
        for (start, len, class) in parts.into_iter().filter(exists) {
            self.fix(start, start + len, class, superblock);
        }
        let known = |part: (u64, u64, Class)| if exists(&part) { part.0 } else { 0 };
        let (block_bitmap, inode_table) = (known(parts[0]), known(parts[2]));
        self.groups.push(Group { block_bitmap, inode_table, free_count });
        if inode_table != 0 {
            self.tables.push((inode_table, group as u32));
        }
    }

    /// The superblock's copy in a group, and the descriptors beside it.
    fn fix_descriptors(&mut self, superblock: &Superblock, group: u64, descriptor_blocks: u64) {
        let (start, _) = superblock.group_blocks(group);
        let has_superblock = superblock.has_superblock(group);
        let after = start + u64::from(has_superblock);
        if has_superblock {
            self.fix(start, start + 1, Class::Superblock, superblock);
        }
        let meta = superblock.incompat & feature::INCOMPAT_META_BG != 0;
        let per_block = superblock.descriptors_per_block();
        let meta_group = group / per_block;
        if meta && meta_group >= superblock.first_meta_group {
            // A meta group's descriptors are one block, in its first, second and last group.
            if [0, 1, per_block - 1].contains(&(group % per_block)) {
                self.fix(after, after + 1, Class::GroupDescriptors, superblock);
            }
        } else if has_superblock {
            let old = if meta { descriptor_blocks.min(superblock.first_meta_group) } else { descriptor_blocks };
            let end = after + old + superblock.reserved_descriptor_blocks;
            self.fix(after, end, Class::GroupDescriptors, superblock);
        }
    }

    fn fix(&mut self, start: u64, end: u64, class: Class, superblock: &Superblock) {
        self.fixed.set(start, end.min(superblock.blocks_count), Fixed(class));
    }

    /// The number of the first inode in a block of an inode table.
    pub(crate) fn first_inode(&self, superblock: &Superblock, block: u64) -> Option<u64> {
        let index = self.tables.partition_point(|&(start, _)| start <= block).checked_sub(1)?;
        let (start, group) = self.tables[index];
        let in_table = block - start;
        (in_table < superblock.inode_table_blocks()).then(|| {
            u64::from(group) * superblock.inodes_per_group
                + in_table * (superblock.block_bytes / superblock.inode_bytes)
                + 1
        })
    }

    /// Block and offset of an inode, in bytes.
    pub(crate) fn place_of_inode(&self, superblock: &Superblock, inode: u64) -> Option<(u64, u64)> {
        let index = inode.checked_sub(1)?;
        let group = self.groups.get((index / superblock.inodes_per_group) as usize)?;
        let offset = index % superblock.inodes_per_group * superblock.inode_bytes;
        (group.inode_table != 0)
            .then(|| (group.inode_table + offset / superblock.block_bytes, offset % superblock.block_bytes))
    }

    /// The group that a block bitmap at this block describes.
    pub(crate) fn group_of_bitmap(&self, superblock: &Superblock, block: u64) -> Option<u64> {
        // With flexible groups, a bitmap lies in the first group of sixteen, or in any place that mkfs chose.
        let near = (block - superblock.first_data_block) / superblock.blocks_per_group;
        let range = near..(near + FLEX_GROUPS_SEARCHED).min(self.groups.len() as u64);
        range.into_iter().find(|&group| self.groups[group as usize].block_bitmap == block)
    }

    /// The block bitmap of a group, and the number of free blocks according to the descriptor.
    pub(crate) fn block_bitmap(&self, group: u64) -> Option<(u64, u64)> {
        let group = self.groups.get(group as usize)?;
        (group.block_bitmap != 0).then_some((group.block_bitmap, group.free_count))
    }

    /// Whether a written block of descriptors agrees with the known places.
    pub(crate) fn agrees(&self, superblock: &Superblock, index: u64, bytes: &[u8]) -> bool {
        let first = index * superblock.descriptors_per_block();
        let mut read = Layout { complete: true, ..Layout::default() };
        for (group, descriptor) in
            (first..superblock.groups()).zip(bytes.chunks_exact(superblock.descriptor_bytes as usize))
        {
            read.read_descriptor(superblock, group, descriptor, true);
        }
        let place = |group: &Group| (group.block_bitmap, group.inode_table);
        let known = self.groups.iter().skip(first as usize).map(place);
        read.complete && read.groups.iter().map(place).eq(known.take(read.groups.len()))
    }

    /// Index of this block of descriptors among the first copies.
    pub(crate) fn descriptor_index(&self, superblock: &Superblock, block: u64) -> Option<u64> {
        let count = superblock.groups().div_ceil(superblock.descriptors_per_block());
        let near = block.checked_sub(superblock.first_data_block + 1)?;
        if near < count && descriptor_block(superblock, near) == block {
            return Some(near);
        }
        let group = (block - superblock.first_data_block) / superblock.blocks_per_group;
        let index = group / superblock.descriptors_per_block();
        (index < count && descriptor_block(superblock, index) == block).then_some(index)
    }
}

/// Most groups between a bitmap and its group. Bitmaps further away are not recognised, which only costs space.
const FLEX_GROUPS_SEARCHED: u64 = 256;

/// The place of a block of group descriptors.
fn descriptor_block(superblock: &Superblock, index: u64) -> u64 {
    if superblock.incompat & feature::INCOMPAT_META_BG != 0 && index >= superblock.first_meta_group {
        let group = index * superblock.descriptors_per_block();
        return superblock.group_blocks(group).0 + u64::from(superblock.has_superblock(group));
    }
    superblock.first_data_block + 1 + index
}
