//! Names of files, for treatments by name.
//!
//! Directories are read when the journal commits them, or in a scan. A file's first blocks are committed no earlier
//! than its name, so they are still unclassified then, and none is lost. In ordered mode the kernel writes contents to
//! their places before it commits their inode, and reuses a freed block only after it committed that the block is free.
//! A file that matches only after a rename may have been squashed.
//!
//! A match holds until the inode is freed: a later name without a match does not make contents worthless.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use chronodisk_store::StoreError;

use super::inode::{Inode, Leaf, Trust, Use};
use super::map::{Mapped, map_of};
use super::{Ext4, News, UNIT_BYTES, feature};
use crate::blocks::Blocks;
use crate::bytes::u32_at;
use crate::class::Class;
use crate::content::seed_of;
use crate::file_content::{FileKind, MadeUpFile};
use crate::name_index::{NameIndex, Rules};
use crate::names::{NameRule, Treatment};
use crate::runs::{RunMap, RunValue};
use crate::units::VolumeUnit;

/// Knowledge of names.
#[derive(Debug)]
pub(crate) struct Names {
    index: NameIndex,
    /// The inodes of directories by their blocks.
    directories: RunMap<DirectoryInode>,
    /// Files that match, by inode.
    matched: BTreeMap<u64, Matched>,
    /// Changed files with generated contents of a known kind.
    touched: BTreeSet<u64>,
    /// Their blocks.
    made_up: RunMap<FileBlock>,
    /// Units of files to be kept that were squashed before their names were known.
    pub(crate) late_units: u64,
}

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileBlock {
    inode: u64,
    /// The file's index among files with generated contents.
    number: u64,
}

impl RunValue for FileBlock {
    fn advanced(self, by: u64) -> Self {
        FileBlock { number: self.number.wrapping_add(by), ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DirectoryInode(u64);

impl RunValue for DirectoryInode {
    fn advanced(self, _by: u64) -> Self {
        self
    }
}

/// A file that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Matched {
    /// Generation of the inode, which differs in a later file with the same inode.
    generation: u32,
    treatment: Treatment,
    len_bytes: u64,
}

/// An entry of a directory.
#[derive(Debug)]
struct Entry {
    inode: u64,
    kind: Kind,
    name: Box<[u8]>,
}

/// Type of the inode in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The file system does not say so in its entries.
    Unknown,
    Regular,
    Directory,
    Other,
}

const ROOT: u64 = 2;

impl Names {
    pub(crate) fn new(rules: Rules) -> Self {
        Names {
            index: NameIndex::new(rules, ROOT),
            directories: RunMap::default(),
            matched: BTreeMap::new(),
            touched: BTreeSet::new(),
            made_up: RunMap::default(),
            late_units: 0,
        }
    }

    /// Memory that it takes, in bytes, without names that are longer than a pointer.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let matched = self.matched.len() * size_of::<(u64, Matched)>() * 3 / 2;
        self.directories.memory_bytes() + self.made_up.memory_bytes() + self.index.memory_bytes() + matched as u64
    }

    /// Entries that are held in memory.
    pub(crate) fn entries(&self) -> usize {
        self.directories.len() + self.made_up.len() + self.index.entries() + self.matched.len()
    }

    /// Use of an inode's blocks, which is `leaf` without names. Drops knowledge of an earlier inode with the number.
    pub(crate) fn leaf(&mut self, number: u64, inode: Inode<'_>, leaf: Option<Leaf>) -> Option<Leaf> {
        let Some(known) = self.matched.get(&number) else { return leaf };
        if leaf != Some(Leaf::Data) || known.generation != inode.generation() {
            self.matched.remove(&number);
            return leaf;
        }
        match known.treatment {
            Treatment::Keep => Some(Leaf::Kept(Class::Raw)),
            Treatment::MakeUp(_) => {
                self.touched.insert(number);
                leaf
            }
        }
    }

    /// Blocks are used by a directory.
    pub(crate) fn claim_directory(&mut self, start: u64, end: u64, inode: u64) {
        self.directories.set(start, end, DirectoryInode(inode));
        self.made_up.remove(start, end);
    }

    /// Blocks are something else.
    pub(crate) fn claim_other(&mut self, start: u64, end: u64) {
        self.directories.remove(start, end);
        self.made_up.remove(start, end);
    }

    /// Begins a new scan of all names; matches stay.
    pub(crate) fn begin_scan(&mut self) {
        self.directories.clear();
        self.index.clear();
        self.made_up.clear();
    }

    fn kind_of(&self, inode: u64) -> Option<(FileKind, Matched)> {
        match self.matched.get(&inode)? {
            Matched { treatment: Treatment::MakeUp(kind), .. } => Some((*kind, self.matched[&inode])),
            Matched { treatment: Treatment::Keep, .. } => None,
        }
    }

    /// Matching files of a directory, with their treatment.
    fn candidates(&self, directory: u64, entries: &[Entry], candidates: &mut BTreeMap<u64, Treatment>) {
        let Some(mut folder) = self.index.folder(directory) else { return };
        for entry in entries.iter().filter(|entry| matches!(entry.kind, Kind::Regular | Kind::Unknown)) {
            if let Some(treatment) = folder.treatment_of(&entry.name) {
                candidates.entry(entry.inode).or_insert(treatment);
            }
        }
    }
}

/// Reads a block of a directory, up to the first error. Blocks of its index look like ones without entries.
fn entries(block: &[u8], has_kinds: bool) -> Vec<Entry> {
    const HEADER_BYTES: usize = 8;
    let mut entries = Vec::new();
    let mut at = 0;
    while at + HEADER_BYTES <= block.len() {
        let len = match usize::from(u16::from_le_bytes([block[at + 4], block[at + 5]])) {
            // 64 KiB do not fit the field.
            0 | 0xFFFC if block.len() == 1 << 16 => (1 << 16) - at,
            len => len,
        };
        let name_len = usize::from(block[at + 6]);
        if len < HEADER_BYTES + name_len || !len.is_multiple_of(4) || at + len > block.len() {
            break;
        }
        let name = &block[at + HEADER_BYTES..at + HEADER_BYTES + name_len];
        let kind = match block[at + 7] {
            _ if !has_kinds => Kind::Unknown,
            1 => Kind::Regular,
            2 => Kind::Directory,
            _ => Kind::Other,
        };
        let inode = u64::from(u32_at(block, at));
        if inode != 0 && !matches!(name, b"" | b"." | b"..") {
            entries.push(Entry { inode, kind, name: name.into() });
        }
        at += len;
    }
    entries
}

impl Ext4 {
    /// Applies rules by name, too.
    pub(crate) fn with_names(self, rules: &Arc<[NameRule]>) -> Self {
        let names = Rules::new(rules).map(|rules| Box::new(Names::new(rules)));
        Ext4 { names, ..self }
    }

    /// The reason why names can't be read, if they can't.
    pub(crate) fn names_are_hidden(&self) -> Option<&'static str> {
        let hidden = self.names.is_some() && self.superblock.incompat & feature::INCOMPAT_INLINE_DATA != 0;
        hidden
            .then_some("directories within inodes (inline_data), whose names are not read, and something goes by names")
    }

    /// Whether any rule applies to names.
    pub(crate) fn goes_by_names(&self) -> bool {
        self.names.is_some()
    }

    /// Whether a rule keeps files.
    pub(crate) fn keeps_by_names(&self) -> bool {
        self.names.as_ref().is_some_and(|names| names.index.rules.keep_some())
    }

    /// Units of files to be kept that were squashed before their names were known.
    pub(crate) fn late_units(&self) -> u64 {
        self.names.as_ref().map_or(0, |names| names.late_units)
    }

    /// Looks at the names in directories that a transaction changed.
    pub(super) fn names_committed(
        &mut self,
        changed: &HashSet<u64>,
        protected: &BTreeSet<u64>,
        blocks: &mut Blocks,
        news: &mut News,
    ) -> Result<(), StoreError> {
        let Some(names) = &self.names else { return Ok(()) };
        let owner = |&block: &u64| Some((block, names.directories.at(block, block + 1).0?.0));
        let mut directory_blocks: Vec<(u64, u64)> = changed.iter().filter_map(owner).collect();
        directory_blocks.sort_unstable();
        let mut read = Vec::new();
        for (block, directory) in directory_blocks {
            read.push((directory, self.entries_of(block, blocks)?));
        }
        let Some(names) = &mut self.names else { return Ok(()) };
        let mut moved = Vec::new();
        if names.index.rules.are_by_path() {
            for (directory, entries) in &read {
                let folders = entries.iter().filter(|entry| entry.kind == Kind::Directory);
                let new = folders.filter(|entry| names.index.folder_named(entry.inode, *directory, &entry.name));
                moved.extend(new.map(|entry| entry.inode));
            }
        }
        let mut candidates = BTreeMap::new();
        read.iter().for_each(|(directory, entries)| names.candidates(*directory, entries, &mut candidates));
        self.names_below(moved, &mut candidates, blocks)?;
        self.adopt(&candidates, Trust::Commit, changed, protected, blocks, news)
    }

    /// Reads all directories from the root on.
    pub(super) fn names_scanned(&mut self, blocks: &mut Blocks, news: &mut News) -> Result<(), StoreError> {
        if self.names.is_none() {
            return Ok(());
        }
        let mut candidates = BTreeMap::new();
        self.names_below(vec![ROOT], &mut candidates, blocks)?;
        self.adopt(&candidates, Trust::Scan, &HashSet::new(), &BTreeSet::new(), blocks, news)
    }

    /// Reads directories and all below them, each once.
    fn names_below(
        &mut self,
        mut directories: Vec<u64>,
        candidates: &mut BTreeMap<u64, Treatment>,
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        let mut visited = HashSet::new();
        while let Some(directory) = directories.pop() {
            if !visited.insert(directory) {
                continue;
            }
            let Some(bytes) = self.inode_bytes(directory, blocks)? else { continue };
            let inode = Inode(&bytes);
            if !inode.is_directory() {
                continue;
            }
            let map = map_of(inode, Mapped::Written, &self.superblock, &mut self.view(blocks))?;
            for (_, start, len) in map {
                for block in start..start + len {
                    let entries = self.entries_of(block, blocks)?;
                    let Some(names) = &mut self.names else { return Ok(()) };
                    for entry in entries.iter().filter(|entry| matches!(entry.kind, Kind::Directory | Kind::Unknown)) {
                        names.index.folder_named(entry.inode, directory, &entry.name);
                        directories.push(entry.inode);
                    }
                    names.candidates(directory, &entries, candidates);
                }
            }
        }
        Ok(())
    }

    /// Applies the files' treatments by name from now on.
    fn adopt(
        &mut self,
        candidates: &BTreeMap<u64, Treatment>,
        trust: Trust,
        changed: &HashSet<u64>,
        protected: &BTreeSet<u64>,
        blocks: &mut Blocks,
        news: &mut News,
    ) -> Result<(), StoreError> {
        for (&number, &treatment) in candidates {
            let Some(bytes) = self.inode_bytes(number, blocks)? else { continue };
            let inode = Inode(&bytes);
            let Some(names) = &mut self.names else { return Ok(()) };
            let matched = Matched { generation: inode.generation(), treatment, len_bytes: 0 };
            let known = names.matched.get(&number).is_some_and(|known| known.generation == matched.generation);
            if known || inode.leaf(&self.superblock, number) != Some(Leaf::Data) {
                continue;
            }
            names.matched.insert(number, matched);
            if treatment == Treatment::Keep && inode.has_map(number, &self.superblock) {
                let late = self.squashed_units(inode, blocks)?;
                self.names.as_mut().expect("it was there").late_units += late;
            }
            self.walk(changed, protected, trust, blocks, news, |walk, _| walk.inode(number, inode))?;
        }
        Ok(())
    }

    /// Number of squashed units of a file.
    fn squashed_units(&self, inode: Inode<'_>, blocks: &mut Blocks) -> Result<u64, StoreError> {
        let mut units = RunMap::<()>::default();
        for (_, start, len) in map_of(inode, Mapped::Written, &self.superblock, &mut self.view(blocks))? {
            let (from, to) = self.units_of(start, start + len);
            blocks.generated_pieces(from, to).into_iter().for_each(|(from, to)| units.set(from.0, to.0, ()));
        }
        Ok(units.all().map(|(from, to, ())| to - from).sum())
    }

    /// Records the current blocks of files with generated contents of a known kind.
    pub(super) fn note_made_up_files(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        let Some(names) = &mut self.names else { return Ok(()) };
        for number in std::mem::take(&mut names.touched) {
            let Some(bytes) = self.inode_bytes(number, blocks)? else { continue };
            let inode = Inode(&bytes);
            if !inode.has_map(number, &self.superblock) {
                continue;
            }
            let map = map_of(inode, Mapped::All, &self.superblock, &mut self.view(blocks))?;
            let Some(names) = &mut self.names else { return Ok(()) };
            let Some(matched) = names.matched.get_mut(&number) else { continue };
            matched.len_bytes = inode.len_bytes();
            for (first, start, len) in map {
                names.made_up.set(start, start + len, FileBlock { inode: number, number: first });
            }
        }
        Ok(())
    }

    /// Units in a range whose bytes are all generated by their file's kind.
    pub(crate) fn made_up_units(&self, start: VolumeUnit, end: VolumeUnit) -> Vec<(VolumeUnit, VolumeUnit)> {
        let Some(names) = &self.names else { return Vec::new() };
        let (first, last) = self.blocks_of_bytes(start.offset_bytes(), (end - start) * UNIT_BYTES);
        let mut there = RunMap::<()>::default();
        names.made_up.pieces(first, last).for_each(|(from, to, _)| there.set(from, to, ()));
        let block_bytes = self.superblock.block_bytes;
        let units = there.all().map(|(from, to, ())| {
            let from_unit = VolumeUnit((self.start_bytes + from * block_bytes).div_ceil(UNIT_BYTES));
            (from_unit.max(start), VolumeUnit::of_byte(self.start_bytes + to * block_bytes).min(end))
        });
        units.filter(|(from, to)| from < to).collect()
    }

    /// Gives generated contents in a range of units the form of their files' kinds; `bytes` are the device's from
    /// `offset_bytes` on.
    pub(crate) fn correct_files(
        &self,
        (start, end): (VolumeUnit, VolumeUnit),
        offset_bytes: u64,
        bytes: &mut [u8],
        blocks: &mut Blocks,
    ) {
        let Some(names) = &self.names else { return };
        let end_bytes = offset_bytes + bytes.len() as u64;
        let block_bytes = self.superblock.block_bytes;
        for (from, to) in blocks.generated_pieces(start, end) {
            let generated = (from.offset_bytes(), to.offset_bytes());
            let (first, last) = self.blocks_of_bytes(generated.0, generated.1 - generated.0);
            for (from, to, file_block) in names.made_up.pieces(first, last) {
                let Some((kind, matched)) = names.kind_of(file_block.inode) else { continue };
                let run_at = self.start_bytes + from * block_bytes;
                let from = run_at.max(generated.0).max(offset_bytes);
                let to = (self.start_bytes + to * block_bytes).min(generated.1).min(end_bytes);
                if from < to {
                    let seed = seed_of(blocks.seed(), file_block.inode << 32 | u64::from(matched.generation));
                    let file = MadeUpFile { kind, seed, len_bytes: matched.len_bytes };
                    let target = &mut bytes[(from - offset_bytes) as usize..(to - offset_bytes) as usize];
                    file.fill(file_block.number * block_bytes + (from - run_at), target);
                }
            }
        }
    }

    fn entries_of(&self, block: u64, blocks: &mut Blocks) -> Result<Vec<Entry>, StoreError> {
        let mut bytes = vec![0; self.superblock.block_bytes as usize];
        let exact = self.view(blocks).read_block(block, &mut bytes)?;
        let has_kinds = self.superblock.incompat & feature::INCOMPAT_FILETYPE != 0;
        let mut entries = if exact { entries(&bytes, has_kinds) } else { Vec::new() };
        if !has_kinds {
            for entry in &mut entries {
                let inode = self.inode_bytes(entry.inode, blocks)?;
                if inode.is_some_and(|bytes| Inode(&bytes).is_directory()) {
                    entry.kind = Kind::Directory;
                }
            }
        }
        Ok(entries)
    }

    /// An inode as committed.
    fn inode_bytes(&self, number: u64, blocks: &mut Blocks) -> Result<Option<Vec<u8>>, StoreError> {
        let Some((block, offset)) = self.layout.place_of_inode(&self.superblock, number) else { return Ok(None) };
        let mut bytes = vec![0; self.superblock.block_bytes as usize];
        let exact = self.view(blocks).read_block(block, &mut bytes)?;
        let inode = bytes[offset as usize..][..self.superblock.inode_bytes as usize].to_vec();
        Ok(exact.then_some(inode))
    }

    /// Blocks of contents that a bitmap marks as free have no owner: their next file may be one to keep.
    pub(super) fn free_contents(&mut self, (start, end): (u64, u64), is_free: impl Fn(u64) -> bool) {
        let contents: Vec<_> = self.uses.pieces(start, end).filter(|piece| piece.2 == Use::Data).collect();
        for (from, to, _) in contents {
            let mut at = from;
            while at < to {
                let free = is_free(at);
                let run_end = (at + 1..to).find(|&block| is_free(block) != free).unwrap_or(to);
                if free {
                    self.uses.remove(at, run_end);
                }
                at = run_end;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(inode: u32, len: u16, kind: u8, name: &[u8]) -> Vec<u8> {
        let mut bytes = [&inode.to_le_bytes()[..], &len.to_le_bytes(), &[name.len() as u8, kind], name].concat();
        bytes.resize(usize::from(len).max(bytes.len()), 0);
        bytes
    }

    #[test]
    fn entries_are_read_up_to_what_is_wrong() {
        let mut block = [entry(2, 12, 2, b"."), entry(2, 12, 2, b".."), entry(12, 16, 1, b"file")].concat();
        block.extend([entry(0, 12, 1, b"gone"), entry(13, 972, 2, b"folder")].concat());
        let read = |block: &[u8]| -> Vec<(u64, Kind, String)> {
            let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
            entries(block, true).iter().map(|entry| (entry.inode, entry.kind, text(&entry.name))).collect()
        };
        let file = (12, Kind::Regular, "file".to_owned());
        assert_eq!(block.len(), 1024);
        assert_eq!(read(&block), [file.clone(), (13, Kind::Directory, "folder".to_owned())]);
        // The second of them reaches beyond the block.
        block[52 + 5] = 0xFF;
        assert_eq!(read(&block), [file]);
        assert_eq!(entries(&block, false)[0].kind, Kind::Unknown);
    }

    proptest! {
        #[test]
        fn no_block_is_too_strange_to_read(block in prop::collection::vec(any::<u8>(), 1024)) {
            prop_assert!(entries(&block, true).len() <= 1024 / 8);
        }
    }
}
