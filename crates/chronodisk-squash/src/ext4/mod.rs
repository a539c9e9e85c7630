//! ext2, ext3 and ext4 as seen from the block device: which blocks are the file system's own.
//!
//! Static metadata (superblocks, group descriptors, bitmaps, inode tables) follow from the superblock and the group
//! descriptors. All other metadata are found through inodes, when their blocks are written or when the journal commits
//! them.
//!
//! There are two states. *Followed*: a kernel has the file system mounted with a journal, whose commits are read as
//! they come. Then no metadata are written to their places before a commit that names them, and blocks that committed
//! inodes use as data can be dropped when they are written. *Unfollowed*: no journal, or a tool writes, or a commit
//! could not be read. Then a block is dropped only after an inode written later uses it as data, and not if it looks
//! like metadata; the rest waits for the next clean state.
//!
//! Not supported, and so kept completely: clusters (bigalloc), encryption, verity, compression, a journal on another
//! device, and unknown features.

mod classify;
mod inode;
mod journal;
mod layout;
mod map;
mod names;
mod superblock;
mod walk;

use std::collections::{BTreeSet, HashSet};

use chronodisk_store::StoreError;

pub(crate) use self::classify::KIND;
use self::inode::{Inode, Trust, Use, looks_like_link, looks_like_metadata};
use self::journal::{Journal, TYPE_COMMIT, Transaction};
use self::layout::Layout;
use self::map::{Mapped, map_of};
use self::names::Names;
use self::superblock::{LEN_BYTES, OFFSET_BYTES, Superblock, feature};
use self::walk::Walk;
use super::UNIT_BYTES;
use super::blocks::Blocks;
use super::bytes::u32_at;
use super::class::Class;
use super::classifier::{Old, Refusal, Verdict};
use super::meter::Worker;
use super::runs::RunMap;
use super::units::{VolumeBytes, VolumeUnit};

/// Committed metadata: a block's latest copy in the journal, otherwise the block at its place.
pub(crate) struct View<'a> {
    blocks: &'a mut Blocks,
    journal: Option<&'a Journal>,
    start_bytes: u64,
    block_bytes: u64,
}

impl View<'_> {
    /// Returns false if the bytes were generated.
    fn read_block(&mut self, block: u64, bytes: &mut [u8]) -> Result<bool, StoreError> {
        if let Some(journal) = self.journal
            && let Some(copy) = journal.copy_of(block)
        {
            return journal.read_copy(self.blocks, copy, bytes);
        }
        self.blocks.read(self.start_bytes + block * self.block_bytes, bytes)
    }
}

/// Changes caused by a write or a commit, for the store to act upon.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Blocks with new information.
    pub(crate) claimed: RunMap<()>,
    /// Blocks that were metadata and are free.
    pub(crate) freed: RunMap<()>,
    /// Blocks that look like metadata are not dropped in any case.
    pub(crate) guarded: bool,
    /// Whether all metadata must be read again.
    pub(crate) scanned: bool,
}

/// The classifier of one file system.
#[derive(Debug)]
pub(crate) struct Ext4 {
    start_bytes: u64,
    end_bytes: u64,
    superblock: Superblock,
    layout: Layout,
    uses: RunMap<Use>,
    journal: Option<Journal>,
    ignore_journal: bool,
    /// Blocks that a scan might classify were written since the last one.
    unscanned: bool,
    /// Present if rules apply to names.
    names: Option<Box<Names>>,
    /// The layout changed, or was never read.
    needs_scan: bool,
    pub(crate) commits: u64,
    pub(crate) scans: u64,
}

impl Ext4 {
    /// Finds a supported file system in a range of the device.
    pub(crate) fn find(
        blocks: &mut Blocks,
        start_bytes: u64,
        end_bytes: u64,
    ) -> Result<Result<Self, Refusal>, StoreError> {
        let available_bytes = end_bytes - start_bytes;
        let mut bytes = [0; LEN_BYTES];
        if available_bytes < OFFSET_BYTES + LEN_BYTES as u64 || !blocks.read(start_bytes + OFFSET_BYTES, &mut bytes)? {
            return Ok(Err(Refusal::Absent));
        }
        Ok(Superblock::parse(&bytes, available_bytes).map(|superblock| Ext4 {
            start_bytes,
            end_bytes,
            superblock,
            layout: Layout::default(),
            uses: RunMap::default(),
            journal: None,
            ignore_journal: false,
            unscanned: true,
            names: None,
            needs_scan: true,
            commits: 0,
            scans: 0,
        }))
    }

    /// Keeps the journal without reading it, if `ignore_journal`.
    pub(crate) fn with_journal_ignored(self, ignore_journal: bool) -> Self {
        Ext4 { ignore_journal, ..self }
    }

    /// No metadata reach their places unannounced.
    pub(crate) fn is_followed(&self) -> bool {
        self.superblock.needs_recovery
            && !self.needs_scan
            && self.layout.complete
            && self.superblock.compat & feature::COMPAT_FAST_COMMIT == 0
            && self.journal.as_ref().is_some_and(Journal::is_followed)
    }

    /// The file system is whole on the device.
    pub(crate) fn is_clean(&self) -> bool {
        self.superblock.clean && !self.superblock.needs_recovery
    }

    /// Verdict on the block `unit`, and the end of the run to which it applies, at most `limit`. Data are dropped if
    /// `drop_data`.
    pub(crate) fn verdict(&self, unit: VolumeUnit, limit: VolumeUnit, drop_data: bool) -> (Verdict, VolumeUnit) {
        let (from, block_bytes) = (unit.offset_bytes(), self.superblock.block_bytes);
        let Some(inside) = from.checked_sub(self.start_bytes) else {
            return (Verdict::Keep(Class::Superblock), unit + 1);
        };
        let limit_block = (limit.offset_bytes() - self.start_bytes).div_ceil(block_bytes);
        let first = inside / block_bytes;
        let (verdict, run_end) = self.block_verdict(first, limit_block, drop_data);
        let whole_end = VolumeUnit::of_byte(self.start_bytes + run_end * block_bytes);
        if whole_end > unit {
            return (verdict, whole_end.min(limit));
        }
        // Blocks smaller than a unit, or not aligned with them: the most careful verdict.
        let last = (inside + UNIT_BYTES).div_ceil(block_bytes);
        let verdicts = (first..last).map(|block| self.block_verdict(block, block + 1, drop_data).0);
        let careful = verdicts.reduce(|a, b| match (a, b) {
            (Verdict::Keep(class), _) | (_, Verdict::Keep(class)) => Verdict::Keep(class),
            (Verdict::Wait, _) | (_, Verdict::Wait) => Verdict::Wait,
            _ => Verdict::Drop,
        });
        (careful.expect("a unit overlaps a block"), unit + 1)
    }

    fn block_verdict(&self, block: u64, limit: u64, drop_data: bool) -> (Verdict, u64) {
        let (fixed, end) = self.layout.fixed.at(block, limit);
        if let Some(fixed) = fixed {
            return (Verdict::Keep(fixed.0), end);
        }
        if block >= self.superblock.blocks_count {
            return (Verdict::Keep(Class::Superblock), end);
        }
        let (used, end) = self.uses.at(block, end.min(self.superblock.blocks_count));
        let verdict = match used.map(Use::class) {
            None => Verdict::Wait,
            Some(Some(class)) => Verdict::Keep(class),
            Some(None) if drop_data => Verdict::Drop,
            Some(None) => Verdict::Wait,
        };
        (verdict, end)
    }

    /// Whether a block in this unit looks like metadata, or, if `links`, like the target of a symbolic link.
    pub(crate) fn looks_like_metadata(&self, bytes: &[u8], links: bool) -> bool {
        let len = self.superblock.block_bytes as usize;
        let looks = |block| looks_like_metadata(block, &self.superblock) || links && looks_like_link(block);
        // A part of a larger block can't be recognised by its form.
        len > bytes.len() || bytes.chunks_exact(len).any(looks)
    }

    /// The range of blocks of the file system that a range of blocks of the device touches, in units.
    fn blocks_of_bytes(&self, offset_bytes: u64, len_bytes: u64) -> (u64, u64) {
        let block_bytes = self.superblock.block_bytes;
        let start = offset_bytes.saturating_sub(self.start_bytes) / block_bytes;
        let end = (offset_bytes + len_bytes).saturating_sub(self.start_bytes).div_ceil(block_bytes);
        (start, end.min(self.superblock.blocks_count).max(start))
    }

    /// The units that blocks of the file system lie in.
    pub(crate) fn units_of(&self, start: u64, end: u64) -> (VolumeUnit, VolumeUnit) {
        let block_bytes = self.superblock.block_bytes;
        let start_bytes = self.start_bytes + start * block_bytes;
        (VolumeUnit::of_byte(start_bytes), VolumeUnit((self.start_bytes + end * block_bytes).div_ceil(UNIT_BYTES)))
    }

    /// Inode tables, by block, as they are before a write changes them.
    fn tables_before(&self, range: VolumeBytes, blocks: &mut Blocks) -> Result<Old, StoreError> {
        let mut old = Old::new();
        if self.needs_scan {
            return Ok(old);
        }
        let (start, end) = self.blocks_of_bytes(range.offset_bytes, range.len_bytes);
        let tables = self.layout.fixed.pieces(start, end).filter(|piece| piece.2.0 == Class::InodeTable);
        for (from, to, _) in tables {
            for block in from..to {
                let mut bytes = vec![0; self.superblock.block_bytes as usize];
                self.view(blocks).read_block(block, &mut bytes)?;
                old.push((block, bytes));
            }
        }
        Ok(old)
    }

    fn view<'a>(&'a self, blocks: &'a mut Blocks) -> View<'a> {
        View {
            blocks,
            journal: self.journal.as_ref(),
            start_bytes: self.start_bytes,
            block_bytes: self.superblock.block_bytes,
        }
    }

    /// Examines written blocks.
    pub(crate) fn after_write(
        &mut self,
        range: VolumeBytes,
        old: Old,
        blocks: &mut Blocks,
    ) -> Result<News, StoreError> {
        let (start, end) = self.blocks_of_bytes(range.offset_bytes, range.len_bytes);
        if start == end || self.needs_scan {
            return Ok(News::default());
        }
        let mut news = News { guarded: !self.is_followed(), ..News::default() };
        self.check_descriptors(start, end, blocks)?;
        if let Some(journal) = &mut self.journal {
            journal.written_in_place(start, end);
        }
        self.changed_inodes(old, blocks, &mut news)?;
        if !self.is_followed() {
            self.changed_nodes(start, end, blocks, &mut news)?;
        }
        blocks.metered(Worker::Journal, |blocks| self.journal_written(start, end, blocks, &mut news))?;
        self.note_made_up_files(blocks)?;
        Ok(news)
    }

    /// Descriptors that name other places invalidate the known layout.
    fn check_descriptors(&mut self, start: u64, end: u64, blocks: &mut Blocks) -> Result<(), StoreError> {
        let mut bytes = vec![0; self.superblock.block_bytes as usize];
        let descriptors: Vec<_> =
            self.layout.fixed.pieces(start, end).filter(|piece| piece.2.0 == Class::GroupDescriptors).collect();
        for (from, to, _) in descriptors {
            for block in from..to {
                let Some(index) = self.layout.descriptor_index(&self.superblock, block) else { continue };
                blocks.read(self.start_bytes + block * self.superblock.block_bytes, &mut bytes)?;
                if !self.layout.agrees(&self.superblock, index, &bytes) {
                    self.needs_scan = true;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Follows the inodes that changed.
    fn changed_inodes(&mut self, old: Old, blocks: &mut Blocks, news: &mut News) -> Result<(), StoreError> {
        let mut tables = Vec::new();
        for (block, before) in old {
            let mut after = vec![0; before.len()];
            self.view(blocks).read_block(block, &mut after)?;
            if before != after {
                tables.push((block, before, after));
            }
        }
        self.follow(&tables, &HashSet::new(), &BTreeSet::new(), &[], Trust::Inode, blocks, news)
    }

    /// Reads nodes of trees that were written to their places.
    fn changed_nodes(&mut self, start: u64, end: u64, blocks: &mut Blocks, news: &mut News) -> Result<(), StoreError> {
        let is_node = |used: Use| matches!(used, Use::Extents(_) | Use::Indirect(..));
        let nodes: Vec<_> = self.uses.pieces(start, end).filter(|piece| is_node(piece.2)).collect();
        let nodes: Vec<(u64, Use)> =
            nodes.into_iter().flat_map(|(from, to, part)| (from..to).map(move |block| (block, part))).collect();
        self.follow(&[], &HashSet::new(), &BTreeSet::new(), &nodes, Trust::Inode, blocks, news)
    }

    /// Follows the inodes that differ in blocks of inode tables (block, before, after), and nodes.
    #[expect(clippy::too_many_arguments, reason = "a walk is what it knows of its circumstances")]
    fn follow(
        &mut self,
        tables: &[(u64, Vec<u8>, Vec<u8>)],
        changed: &HashSet<u64>,
        protected: &BTreeSet<u64>,
        nodes: &[(u64, Use)],
        trust: Trust,
        blocks: &mut Blocks,
        news: &mut News,
    ) -> Result<(), StoreError> {
        if tables.is_empty() && nodes.is_empty() {
            return Ok(());
        }
        let inode_bytes = self.superblock.inode_bytes as usize;
        self.walk(changed, protected, trust, blocks, news, |walk, layout| {
            for (block, before, after) in tables {
                let Some(first) = layout.first_inode(walk.superblock, *block) else { continue };
                let pairs = before.chunks_exact(inode_bytes).zip(after.chunks_exact(inode_bytes));
                for ((before, after), number) in pairs.zip(first..) {
                    if before != after {
                        walk.inode(number, Inode(after))?;
                    }
                }
            }
            nodes.iter().try_for_each(|&(block, part)| walk.node(block, part))
        })
    }

    /// Walks the blocks given by `work`.
    fn walk(
        &mut self,
        changed: &HashSet<u64>,
        protected: &BTreeSet<u64>,
        trust: Trust,
        blocks: &mut Blocks,
        news: &mut News,
        work: impl FnOnce(&mut Walk<'_, '_>, &Layout) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut walk = Walk {
            superblock: &self.superblock,
            uses: &mut self.uses,
            view: View {
                blocks,
                journal: self.journal.as_ref(),
                start_bytes: self.start_bytes,
                block_bytes: self.superblock.block_bytes,
            },
            trust,
            changed,
            protected,
            visited: HashSet::new(),
            claimed: std::mem::take(&mut news.claimed),
            names: self.names.as_deref_mut(),
            number: None,
        };
        let worked = work(&mut walk, &self.layout);
        news.claimed = walk.claimed;
        worked
    }

    /// Looks for commits among the blocks of the journal that were written.
    fn journal_written(
        &mut self,
        start: u64,
        end: u64,
        blocks: &mut Blocks,
        news: &mut News,
    ) -> Result<(), StoreError> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let mut seen = None;
        let mut bytes = [0; 12];
        for block in start..end {
            let Some(logical) = journal.logical_of(block) else { continue };
            if logical == 0 {
                journal.read_superblock(blocks)?;
                continue;
            }
            journal.overwritten(logical);
            blocks.read(self.start_bytes + block * self.superblock.block_bytes, &mut bytes)?;
            if let Some((TYPE_COMMIT, sequence)) = journal::header(&bytes) {
                seen = Some(sequence);
            }
        }
        if seen.is_none() {
            return Ok(());
        }
        while let Some(journal) = &mut self.journal
            && let Some(transaction) = journal.advance(blocks, seen)?
        {
            blocks.metered(Worker::Classifier, |blocks| self.commit(&transaction, blocks, news))?;
            self.commits += 1;
        }
        Ok(())
    }

    /// Handles a committed transaction: its blocks are metadata, and determine the use of others.
    fn commit(&mut self, transaction: &Transaction, blocks: &mut Blocks, news: &mut News) -> Result<(), StoreError> {
        let len = self.superblock.block_bytes as usize;
        let blocks_count = self.superblock.blocks_count;
        let (mut tables, mut nodes, mut bitmaps, mut protected) = (Vec::new(), Vec::new(), Vec::new(), BTreeSet::new());
        let mut layout_changed = false;
        let mut bytes = vec![0; len];
        for tag in transaction.tags.iter().filter(|tag| tag.block < blocks_count) {
            let block = tag.block;
            let fixed = self.layout.fixed.at(block, block + 1).0.map(|fixed| fixed.0);
            let mut after = vec![0; len];
            let journal = self.journal.as_ref().expect("a transaction is a journal's");
            journal.read_copy(blocks, tag.copy, &mut after)?;
            match fixed {
                Some(Class::InodeTable) => {
                    self.view(blocks).read_block(block, &mut bytes)?;
                    tables.push((block, bytes.clone(), after));
                }
                Some(Class::Bitmap) => bitmaps.push((block, after)),
                Some(Class::GroupDescriptors) => {
                    let index = self.layout.descriptor_index(&self.superblock, block);
                    layout_changed |= index.is_some_and(|index| !self.layout.agrees(&self.superblock, index, &after));
                }
                Some(Class::Superblock) if block == self.superblock.first_data_block => {
                    layout_changed |= self.take_superblock(&after);
                }
                Some(_) => {}
                None => {
                    if looks_like_metadata(&after, &self.superblock) {
                        protected.insert(block);
                    }
                    match self.uses.at(block, block + 1).0 {
                        Some(part @ (Use::Extents(_) | Use::Indirect(..))) => nodes.push((block, part)),
                        None | Some(Use::Data) => self.uses.set(block, block + 1, Use::Kept(Class::OtherMetadata)),
                        Some(Use::Kept(_)) => {}
                    }
                    news.claimed.set(block, block + 1, ());
                }
            }
        }
        self.journal.as_mut().expect("a transaction is a journal's").enter(transaction);
        if layout_changed {
            if !self.needs_scan {
                self.scan(blocks, false)?;
            }
            news.scanned = true;
            return Ok(());
        }
        let changed: HashSet<u64> = transaction.tags.iter().map(|tag| tag.block).collect();
        self.follow(&tables, &changed, &protected, &[], Trust::Commit, blocks, news)?;
        // Skip unchanged nodes whose inodes are unchanged, too.
        nodes.retain(|&(block, part)| self.uses.at(block, block + 1).0 == Some(part));
        self.follow(&[], &changed, &protected, &nodes, Trust::Commit, blocks, news)?;
        self.names_committed(&changed, &protected, blocks, news)?;
        for (block, bits) in bitmaps {
            self.free_metadata(block, &bits, news);
        }
        Ok(())
    }

    /// Handles a committed superblock. Returns whether it enlarges the file system.
    fn take_superblock(&mut self, block: &[u8]) -> bool {
        let at = if self.superblock.block_bytes == 1024 { 0 } else { OFFSET_BYTES as usize };
        let bytes: &[u8; LEN_BYTES] = block[at..at + LEN_BYTES].try_into().expect("a block holds a superblock");
        let blocks_count = u64::from(u32_at(bytes, 0x4)) | u64::from(u32_at(bytes, 0x150)) << 32;
        if blocks_count == self.superblock.blocks_count {
            return false;
        }
        match Superblock::parse(bytes, self.end_bytes - self.start_bytes) {
            Ok(superblock) => self.superblock = superblock,
            // A scan is needed until the superblock itself is written.
            Err(_) => self.needs_scan = true,
        }
        true
    }

    /// Metadata that a committed bitmap calls free.
    fn free_metadata(&mut self, bitmap: u64, bits: &[u8], news: &mut News) {
        let Some(group) = self.layout.group_of_bitmap(&self.superblock, bitmap) else { return };
        let (start, end) = self.superblock.group_blocks(group);
        let is_free = |block: u64| bits[((block - start) / 8) as usize] & 1 << ((block - start) % 8) == 0;
        let metadata = self.uses.pieces(start, end).filter(|piece| piece.2 != Use::Data);
        let free: Vec<u64> = metadata.flat_map(|(from, to, _)| from..to).filter(|&block| is_free(block)).collect();
        for block in free {
            self.uses.remove(block, block + 1);
            news.freed.set(block, block + 1, ());
        }
        if let Some(names) = &mut self.names {
            news.freed.pieces(start, end).for_each(|(from, to, ())| names.claim_other(from, to));
            self.free_contents((start, end), is_free);
        }
    }

    /// Handles a written superblock. Returns false if it belongs to another file system, or is invalid.
    pub(crate) fn superblock_written(&mut self, blocks: &mut Blocks) -> Result<bool, StoreError> {
        match Ext4::find(blocks, self.start_bytes, self.end_bytes)? {
            Ok(found) if found.superblock.same_layout(&self.superblock) => {
                self.superblock = found.superblock;
                if self.superblock.needs_recovery
                    && let Some(journal) = &mut self.journal
                {
                    journal.read_superblock(blocks)?;
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Whether a superblock about to be written ends a clean state.
    pub(crate) fn leaves_rest(&self, blocks: &mut Blocks) -> Result<bool, StoreError> {
        let next = Ext4::find(blocks, self.start_bytes, self.end_bytes)?;
        Ok(self.is_clean() && next.is_ok_and(|next| !next.is_clean()))
    }

    /// Forgets the known use of a discarded range.
    pub(crate) fn discarded(&mut self, range: VolumeBytes) {
        let (start, end) = self.blocks_of_bytes(range.offset_bytes, range.len_bytes);
        if let Some(journal) = &mut self.journal {
            journal.written_in_place(start, end);
        }
        let inner_start = range.offset_bytes.saturating_sub(self.start_bytes).div_ceil(self.superblock.block_bytes);
        let inner_end = range.end_bytes().saturating_sub(self.start_bytes) / self.superblock.block_bytes;
        let kept: Vec<_> =
            self.uses.pieces(inner_start, inner_end).filter(|piece| piece.2 != Use::Kept(Class::Journal)).collect();
        for (from, to, _) in kept {
            self.uses.remove(from, to);
        }
    }

    /// Zeros were written.
    pub(crate) fn zeroed(&mut self, range: VolumeBytes) {
        let (start, end) = self.blocks_of_bytes(range.offset_bytes, range.len_bytes);
        if let Some(journal) = &mut self.journal {
            journal.written_in_place(start, end);
        }
    }

    /// Reads the whole layout and every inode; `at_rest` means that everything is at its place. Returns whether data
    /// may be dropped by the result.
    pub(crate) fn scan(&mut self, blocks: &mut Blocks, at_rest: bool) -> Result<bool, StoreError> {
        self.layout = Layout::read(&self.superblock, &mut self.view(blocks))?;
        self.find_journal(blocks)?;
        if self.journal.is_some() {
            // The journal may hold newer descriptors.
            self.layout = Layout::read(&self.superblock, &mut self.view(blocks))?;
        }
        self.uses.clear();
        if let Some(names) = &mut self.names {
            names.begin_scan();
        }
        let tables: Vec<_> =
            self.layout.fixed.all().filter(|run| run.2.0 == Class::InodeTable).map(|run| (run.0, run.1)).collect();
        let (none, nothing) = (HashSet::new(), BTreeSet::new());
        let mut news = News::default();
        let len = self.superblock.block_bytes as usize;
        for (start, end) in tables {
            for block in self.blocks_there(start, end, blocks) {
                let mut bytes = vec![0; len];
                if self.view(blocks).read_block(block, &mut bytes)? {
                    let table = [(block, vec![0; len], bytes)];
                    self.follow(&table, &none, &nothing, &[], Trust::Scan, blocks, &mut news)?;
                }
            }
        }
        self.names_scanned(blocks, &mut news)?;
        self.note_made_up_files(blocks)?;
        self.needs_scan = false;
        self.scans += 1;
        Ok(self.layout.complete && (at_rest || self.is_followed()))
    }

    /// Blocks in a range that may be stored, in order.
    fn blocks_there(&self, start: u64, end: u64, blocks: &Blocks) -> Vec<u64> {
        let (first, last) = self.units_of(start, end);
        let mut there = BTreeSet::new();
        for (from, to) in blocks.stored_pieces(first, last) {
            let (from, to) = self.blocks_of_bytes(from.offset_bytes(), (to - from) * UNIT_BYTES);
            there.extend(from.max(start)..to.min(end));
        }
        if let Some(journal) = &self.journal {
            there.extend(journal.copied_blocks().filter(|block| (start..end).contains(block)));
        }
        there.into_iter().collect()
    }

    /// Reads the journal, after finding it if its place is unknown.
    fn find_journal(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        let number = self.superblock.journal_inode;
        let place =
            self.layout.place_of_inode(&self.superblock, number).filter(|_| number != 0 && !self.ignore_journal);
        let Some((block, offset)) = place else {
            self.journal = None;
            return Ok(());
        };
        let mut bytes = vec![0; self.superblock.block_bytes as usize];
        self.view(blocks).read_block(block, &mut bytes)?;
        let inode = Inode(&bytes[offset as usize..][..self.superblock.inode_bytes as usize]);
        let extents = map_of(inode, Mapped::Written, &self.superblock, &mut self.view(blocks))?;
        if self.journal.as_ref().is_some_and(|journal| journal.lies_in(&extents)) {
            return Ok(());
        }
        let mut journal = Journal::new(&extents, self.superblock.block_bytes, self.start_bytes);
        if journal.read_superblock(blocks)? {
            while let Some(transaction) = journal.advance(blocks, None)? {
                journal.enter(&transaction);
            }
        }
        self.journal = Some(journal);
        Ok(())
    }

    /// Blocks that take space although no inode names them and their bitmaps call them free.
    pub(crate) fn free_blocks(&self, blocks: &mut Blocks) -> Result<Vec<(u64, u64)>, StoreError> {
        let mut free = RunMap::<()>::default();
        let (from_unit, to_unit) = self.units_of(0, self.superblock.blocks_count);
        let mut bits = vec![0; self.superblock.block_bytes as usize];
        let mut read = None;
        for (from, to) in blocks.stored_pieces(from_unit, to_unit) {
            let (from, to) = self.blocks_of_bytes(from.offset_bytes(), (to - from) * UNIT_BYTES);
            for block in from.max(self.superblock.first_data_block)..to {
                if self.layout.fixed.at(block, block + 1).0.is_some() || self.uses.at(block, block + 1).0.is_some() {
                    continue;
                }
                let group = (block - self.superblock.first_data_block) / self.superblock.blocks_per_group;
                let (start, end) = self.superblock.group_blocks(group);
                if read != Some(group) {
                    let Some((bitmap, free_count)) = self.layout.block_bitmap(group) else { continue };
                    self.view(blocks).read_block(bitmap, &mut bits)?;
                    read = Some(group);
                    let count = (0..end - start).filter(|at| bits[(at / 8) as usize] & 1 << (at % 8) == 0).count();
                    if count as u64 != free_count {
                        // The bitmap and the descriptor are not of one moment.
                        bits.fill(0xFF);
                    }
                }
                let at = block - start;
                if bits[(at / 8) as usize] & 1 << (at % 8) == 0 {
                    free.set(block, block + 1, ());
                }
            }
        }
        Ok(free.all().map(|(from, to, ())| (from, to)).collect())
    }

    /// Restrictions of the following, as sentences.
    fn sentences_of_doubt(&self) -> Vec<&'static str> {
        let mut doubts = Vec::new();
        if self.superblock.compat & feature::COMPAT_HAS_JOURNAL == 0 {
            doubts.push(
                "the file system is followed only in part: it has no journal, so contents are dropped only when their \
                 inodes are written",
            );
        } else if self.superblock.compat & feature::COMPAT_FAST_COMMIT != 0 {
            doubts.push("the file system is followed only in part: it has fast commits, so data are told apart late");
        }
        if self.journal.as_ref().is_some_and(|journal| journal.lost) {
            doubts.push("a commit of the journal could not be read; until it is begun anew, more is kept");
        }
        doubts
    }

    /// Memory in bytes: of the blocks' uses, and of the journal's reader.
    pub(crate) fn memory_bytes(&self) -> (u64, u64) {
        let journal = self.journal.as_ref().map_or(0, Journal::memory_bytes);
        let names = self.names.as_ref().map_or(0, |names| names.memory_bytes());
        (self.uses.memory_bytes() + self.layout.memory_bytes() + names, journal)
    }

    /// Entries that are held in memory.
    pub(crate) fn entries(&self) -> u64 {
        let names = self.names.as_ref().map_or(0, |names| names.entries());
        (self.uses.len() + self.layout.fixed.len() + names) as u64
    }
}
