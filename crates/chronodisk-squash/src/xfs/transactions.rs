//! Metadata in the log, before they are written to their places.
//!
//! **Why a flush need not keep unclassified contents while the log is followed.** A flush promises the state that a
//! recovery would show. The kernel writes contents before it commits their extents: new extents are committed as
//! unwritten, and a transaction converts them once the contents are on the device. Blocks of a deleted file are reused
//! only after the log has the deletion. So a recovery would show unclassified contents only if a committed inode has
//! them. Contents of a file to be kept are kept at its commit, and later when they are written. A flush keeps the
//! contents of a file that has no name yet. The rest belongs to files that are not kept.
//!
//! **Nothing is squashed earlier than necessary.** Contents of a committed file without a matching name stay
//! unclassified: the file may be renamed, as programs do to replace a file. They are squashed when half of the room for
//! unclassified blocks is used, and after an unmount.
//!
//! **Doubts.** If metadata at their places contradict the log, or the log has an unknown item, it is not followed until
//! the file system is unmounted. Names are then read from places, and a flush keeps unclassified blocks. The same holds
//! while nothing is written to the log after an unmount, because tools write to places only, and while the log has an
//! unfinished intent to change a file's map, because a recovery would execute it.

use chronodisk_store::StoreError;

use super::ADDRESS_BYTES;
use super::Xfs;
use super::directory;
use super::inode::{CORE_BYTES, Extent, Inode, tree_block};
use super::log::{Checkpoint, Fork, Item, Log};
use super::names::Names;
use super::superblock::{Superblock, u64_at};
use crate::blocks::Blocks;
use crate::units::VolumeUnit;

/// Offset of the sequence number of the last log record of an inode, a directory block and a block of an extent tree.
const INODE_LSN_AT: usize = 112;
const DIRECTORY_LSN_AT: usize = 16;
const TREE_LSN_AT: usize = 32;
/// In front of the records of a block of a tree in memory, and of the keys of its root in an inode.
const TREE_HEADER_BYTES: usize = 72;
const ROOT_HEADER_BYTES: usize = 4;
/// More than a log of usual size can hold; with more than that the log is not followed.
const MEMORY_MAX_BYTES: u64 = 256 << 20;

/// An inode that a transaction changes, and the blocks that it had.
struct ChangedInode {
    number: u64,
    before: Vec<u8>,
    extents: Vec<Extent>,
    after: Vec<u8>,
}

/// A block that a transaction changes: its place, and its bytes before.
type OldBlock = (u64, Vec<u8>);

impl Xfs {
    /// Reads the log's present content that is newer than the metadata at their places.
    pub(super) fn open_log(&self, names: &mut Names, blocks: &mut Blocks) -> Result<(), StoreError> {
        names.committed.clear();
        names.log = Log::new(self.start_bytes, &self.superblock);
        for checkpoint in names.log.open(blocks)? {
            self.enter(names, checkpoint, true, blocks)?;
        }
        if !names.log.is_read() {
            names.committed.clear();
        }
        Ok(())
    }

    /// Bytes of the device were written: perhaps of the log.
    pub(super) fn log_written(
        &self,
        names: &mut Names,
        offset_bytes: u64,
        len_bytes: u64,
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        for checkpoint in names.log.written(offset_bytes, len_bytes, blocks)? {
            let (inodes, changed) = self.enter(names, checkpoint, false, blocks)?;
            names.commits += 1;
            names.by_log = true;
            let decided = self.committed(names, inodes, changed, blocks);
            names.by_log = false;
            decided?;
        }
        if names.committed.memory_bytes() > MEMORY_MAX_BYTES {
            names.log.lose();
        }
        if names.log.is_at_rest() {
            // Names have reached their places, where they count for good.
            names.squash_unwanted(blocks);
        }
        if !names.log.is_read() {
            names.lose_log();
        }
        Ok(())
    }

    /// Takes a transaction's inodes and blocks; `recovered` if some may be at their places already. Returns those with
    /// an unchanged effect.
    fn enter(
        &self,
        names: &mut Names,
        checkpoint: Checkpoint,
        recovered: bool,
        blocks: &mut Blocks,
    ) -> Result<(Vec<ChangedInode>, Vec<OldBlock>), StoreError> {
        let superblock = &self.superblock;
        let mut inodes: Vec<(u64, Vec<u8>, Vec<Extent>)> = Vec::new();
        for item in &checkpoint.items {
            let &Item::Inode { number, .. } = item else { continue };
            let before = self.bytes_of_inode(number, &names.committed, blocks)?;
            let extents = match self.file_in(&before, number) {
                Some(inode) => self.extents_of(inode, &names.committed, blocks)?,
                None => Vec::new(),
            };
            inodes.push((number, before, extents));
        }
        let mut changed: Vec<OldBlock> = Vec::new();
        let mut understood = true;
        for item in &checkpoint.items {
            changed.extend(self.enter_block(names, item, checkpoint.lsn, recovered, blocks)?);
        }
        let mut changed_inodes = Vec::new();
        for item in checkpoint.items {
            match item {
                Item::Inode { number, core, fork } => {
                    let Some(at) = inodes.iter().position(|old| old.0 == number) else { continue };
                    let (_, before, extents) = inodes.swap_remove(at);
                    let placed = before.len() == superblock.inode_bytes && u64_at(&core, 152) == number;
                    // For a new inode, its place may hold any bytes.
                    let at_place = recovered && names.committed.inode(number).is_none();
                    let there = self.inode_in(&before, superblock.place_of_inode(number));
                    if at_place && there.is_some() && inode_lsn(&before) >= checkpoint.lsn {
                        continue;
                    }
                    match with_core(&before, &core, fork, checkpoint.lsn).filter(|_| placed) {
                        Some(after) => {
                            names.committed.inodes.insert(number, after.clone());
                            changed_inodes.push(ChangedInode { number, before, extents, after });
                        }
                        None => understood = false,
                    }
                }
                // The inode at this place was freed, which the log also records.
                Item::Cancelled { sector, sectors } => {
                    let from_bytes = sector.saturating_mul(ADDRESS_BYTES);
                    let to_bytes = from_bytes.saturating_add(sectors * ADDRESS_BYTES);
                    names
                        .committed
                        .forget(from_bytes / superblock.block_bytes, to_bytes.div_ceil(superblock.block_bytes));
                }
                Item::Block { .. } => {}
            }
        }
        if !understood {
            names.log.lose();
            return Ok((Vec::new(), Vec::new()));
        }
        Ok((changed_inodes, changed))
    }

    /// Takes a block of a transaction. Returns it as it was before, if its change has an effect.
    fn enter_block(
        &self,
        names: &mut Names,
        item: &Item,
        checkpoint_lsn: u64,
        recovered: bool,
        blocks: &mut Blocks,
    ) -> Result<Option<OldBlock>, StoreError> {
        let superblock = &self.superblock;
        let Item::Block { sector, len_bytes, parts } = item else { return Ok(None) };
        let at_bytes = sector.saturating_mul(ADDRESS_BYTES);
        let (block, skip_bytes) = (at_bytes / superblock.block_bytes, at_bytes % superblock.block_bytes);
        if *len_bytes != superblock.block_bytes || skip_bytes != 0 || block >= superblock.blocks_count {
            return Ok(None);
        }
        let mut bytes = vec![0; superblock.block_bytes as usize];
        self.read_committed(&names.committed, block, &mut bytes, blocks)?;
        let before = bytes.clone();
        parts.iter().for_each(|(at, part)| bytes[*at..at + part.len()].copy_from_slice(part));
        let at_place = recovered && names.committed.block(block).is_none();
        if at_place && block_lsn(&before, superblock).is_some_and(|lsn| lsn >= checkpoint_lsn) {
            return Ok(None);
        }
        let Some(at) = block_lsn_at(&bytes, superblock) else {
            names.committed.blocks.remove(&block);
            return Ok(None);
        };
        bytes[at..at + 8].copy_from_slice(&checkpoint_lsn.to_be_bytes());
        names.committed.blocks.insert(block, bytes);
        Ok(Some((block, before)))
    }

    /// Handles the changes of a committed transaction.
    fn committed(
        &self,
        names: &mut Names,
        inodes: Vec<ChangedInode>,
        changed: Vec<OldBlock>,
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        let superblock = &self.superblock;
        // Names first, then freed blocks, then files' contents.
        for (block, old) in &changed {
            let Some(new) = names.committed.block(*block).cloned() else { continue };
            if let Some(folder) = directory::owner_of(&new, superblock) {
                let same = directory::owner_of(old, superblock) == Some(folder);
                let before = if same { directory::entries(old, superblock) } else { Vec::new() };
                self.entries_changed(names, folder, before, directory::entries(&new, superblock), blocks)?;
            }
        }
        for inode in &inodes {
            let entries = |bytes| Inode::parse(bytes, superblock).map_or(Vec::new(), |inode| inode.entries(superblock));
            self.entries_changed(names, inode.number, entries(&inode.before), entries(&inode.after), blocks)?;
        }
        for inode in &inodes {
            let before = Inode::parse(&inode.before, superblock);
            let after = Inode::parse(&inode.after, superblock);
            let generation = after.map(Inode::generation);
            let another = before.is_some_and(|before| Some(before.generation()) != generation);
            let kept = before.is_some_and(|before| !before.shares_blocks());
            for extent in &inode.extents {
                self.given_back(names, inode.number, extent, kept);
            }
            names.renewed(inode.number, another || !after.is_some_and(Inode::is_regular));
        }
        for (block, _) in &changed {
            let node = names.committed.block(*block).and_then(|block| tree_block(block, None, superblock));
            if let Some((node, owner)) = node {
                self.decide(names, owner, &node.extents, true, blocks)?;
            }
        }
        for inode in &inodes {
            let after = Inode::parse(&inode.after, superblock).filter(|after| after.is_regular());
            if let Some(after) = after {
                let extents = self.extents_of(after, &names.committed, blocks)?;
                self.decide(names, inode.number, &extents, true, blocks)?;
            }
        }
        Ok(())
    }

    /// A metadata block was written to its place, which contained `old`: returns false if it contradicts the log. A
    /// recovery writes an earlier state, with its sequence number.
    pub(super) fn is_as_committed(&self, names: &mut Names, block: u64, old: &[u8], new: &[u8]) -> bool {
        let superblock = &self.superblock;
        let lsn = block_lsn(new, superblock);
        let copy = names.committed.block(block).cloned();
        if copy.as_ref().is_some_and(|copy| lsn.is_some() && block_lsn(copy, superblock) > lsn) {
            return true;
        }
        names.committed.blocks.remove(&block);
        let expected = copy.as_deref().unwrap_or(old);
        if let Some(folder) = directory::owner_of(new, superblock) {
            return directory::owner_of(expected, superblock) == Some(folder)
                && directory::entries(expected, superblock) == directory::entries(new, superblock);
        }
        if let Some(node) = tree_block(new, None, superblock) {
            return tree_block(expected, None, superblock) == Some(node);
        }
        let pairs = old.chunks_exact(superblock.inode_bytes).zip(new.chunks_exact(superblock.inode_bytes));
        pairs.zip(0..).filter(|((old, new), _)| old != new).all(|((old, new), index)| {
            let Some(inode) = self.inode_in(new, (block, index * superblock.inode_bytes)) else { return true };
            let copy = names.committed.inode(inode.number());
            if copy.is_some_and(|copy| inode_lsn(copy) > inode_lsn(new)) {
                return true;
            }
            let expected = Inode::parse(copy.map_or(old, |copy| copy.as_slice()), superblock);
            let agrees = match expected {
                Some(expected) => expected.says_the_same_as(inode, superblock),
                None => !inode.is_regular() && !inode.is_directory(),
            };
            names.committed.inodes.remove(&inode.number());
            agrees
        })
    }

    /// Keeps the unclassified blocks that a recovery would show and that must not be lost. Returns false if these are
    /// unknown.
    pub(super) fn keep_unnamed(&self, blocks: &mut Blocks) -> Result<bool, StoreError> {
        let Some(names) = self.names.as_deref().filter(|names| names.log.is_followed()) else { return Ok(false) };
        for (from, to, ()) in names.unnamed.all().collect::<Vec<_>>() {
            blocks.spill(VolumeUnit(from), VolumeUnit(to))?;
        }
        Ok(true)
    }
}

/// An inode's bytes with its logged parts; `None` if they can't be combined.
fn with_core(before: &[u8], core: &[u8; CORE_BYTES], fork: Option<Fork>, lsn: u64) -> Option<Vec<u8>> {
    let mut bytes = before.to_vec();
    bytes.get_mut(..CORE_BYTES)?.copy_from_slice(core);
    bytes[INODE_LSN_AT..INODE_LSN_AT + 8].copy_from_slice(&lsn.to_be_bytes());
    let room_bytes = bytes.len() - CORE_BYTES;
    let fork_bytes = match usize::from(core[82]) * 8 {
        0 => room_bytes,
        len => len.min(room_bytes),
    };
    let target = &mut bytes[CORE_BYTES..CORE_BYTES + fork_bytes];
    match fork {
        None => {}
        Some(Fork::AsIs(data)) => {
            target.fill(0);
            target.get_mut(..data.len())?.copy_from_slice(&data);
        }
        Some(Fork::Tree(root)) => {
            let records = root.get(TREE_HEADER_BYTES..)?;
            let keys_at = ROOT_HEADER_BYTES;
            let (found_max, room_max) = (records.len() / 16, target.len().checked_sub(keys_at)? / 16);
            let count = usize::from(u16::from_be_bytes([root[6], root[7]]));
            if count > found_max || count > room_max {
                return None;
            }
            target.fill(0);
            target[..4].copy_from_slice(&root[4..8]);
            target[keys_at..keys_at + count * 8].copy_from_slice(&records[..count * 8]);
            let pointers = &records[found_max * 8..(found_max + count) * 8];
            target[keys_at + room_max * 8..keys_at + (room_max + count) * 8].copy_from_slice(pointers);
        }
    }
    Some(bytes)
}

/// Sequence number of the record in which an inode at its place was last logged; 0 or all ones for a new one.
fn inode_lsn(inode: &[u8]) -> u64 {
    inode.get(INODE_LSN_AT..INODE_LSN_AT + 8).map_or(0, |_| lsn_at(inode, INODE_LSN_AT))
}

fn lsn_at(bytes: &[u8], at: usize) -> u64 {
    match u64_at(bytes, at) {
        u64::MAX => 0,
        lsn => lsn,
    }
}

/// The sequence number of a directory block or a block of an extent tree; `None` for other blocks.
fn block_lsn(block: &[u8], superblock: &Superblock) -> Option<u64> {
    block_lsn_at(block, superblock).map(|at| lsn_at(block, at))
}

fn block_lsn_at(block: &[u8], superblock: &Superblock) -> Option<usize> {
    let directory = directory::owner_of(block, superblock).map(|_| DIRECTORY_LSN_AT);
    directory.or_else(|| tree_block(block, None, superblock).map(|_| TREE_LSN_AT))
}
