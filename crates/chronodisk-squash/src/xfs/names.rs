//! Names of files on XFS, for those that are kept or made up by them.
//!
//! The kernel changes metadata in its log first, and writes them to their places later, in any order. So contents wait,
//! until an inode that is [committed](super::committed) says that it has them, and a directory what it is called. Where
//! the log is not followed, inodes and directories count once they are written to their places. Extents that are only
//! set aside say nothing, because an extent of new contents is that until they are on the device. When the store is
//! closed and the log says that all is at its place, everything is read again and the rest is decided. Where names only
//! say what contents read as, nothing waits: contents take their file's form once it is known.
//!
//! A file that is renamed after its old name was written to its place, or when much waits, may have been squashed; a
//! folder's new name counts for what it gets from then on.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chronodisk_store::StoreError;

use super::Xfs;
use super::committed::Committed;
use super::directory::{self, Entry, Kind};
use super::inode::{Extent, Inode, tree_block};
use super::log::Log;
use super::superblock::{Superblock, u32_at, u64_at};
use crate::UNIT_BYTES;
use crate::blocks::Blocks;
use crate::class::Class;
use crate::classifier::{Old, Verdict, Write};
use crate::content::seed_of;
use crate::file_content::{FILE_MAX_BYTES, FilePart, MadeUpFile};
use crate::len_of;
use crate::name_index::{Link, NameIndex, Rules};
use crate::names::{NameRule, Treatment};
use crate::runs::{RunMap, RunValue};
use crate::units::{VolumeBytes, VolumeUnit};

/// What is known of names. Sets of blocks are by the numbers of [`VolumeUnit`]s.
#[derive(Debug)]
pub(super) struct Names {
    index: NameIndex,
    /// Contents of which it is not known whose they are.
    undecided: RunMap<()>,
    /// Those of them that a file has whose name is not known yet, and by such a file.
    claimed: RunMap<Claim>,
    claims: HashMap<u64, Vec<(u64, u64)>>,
    /// Contents of files that are kept.
    kept: RunMap<()>,
    /// Contents that are made up by their file's kind, once they are squashed.
    made_up: RunMap<FilePart>,
    /// Files with names, by inode.
    files: HashMap<u64, Known>,
    /// Files whose directory hangs in the air, by directory.
    unplaced: HashMap<u64, Vec<Link>>,
    /// Blocks of files to be kept that were squashed before their names were known: those that still are, and how many
    /// there were.
    late: RunMap<()>,
    late_units: u64,
    pub(super) log: Log,
    /// What the log has that is not at its place yet.
    pub(super) committed: Committed,
    pub(super) commits: u64,
    /// What is decided follows from the log.
    pub(super) by_log: bool,
    /// Contents of committed files without a name.
    pub(super) unnamed: RunMap<()>,
    /// Undecided contents that by the log are of files that are not kept.
    unwanted: RunMap<()>,
}

/// The inode that says that it has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim(u64);

impl RunValue for Claim {
    fn advanced(self, _by: u64) -> Self {
        self
    }
}

/// What is known of a file with a name.
#[derive(Clone, Copy, Debug)]
struct Known {
    treatment: Option<Treatment>,
    /// The name came after the inode was last written, so the next one may be another file's.
    newer: bool,
}

impl Names {
    fn new(rules: Rules, start_bytes: u64, superblock: &Superblock) -> Self {
        Names {
            index: NameIndex::new(rules, superblock.root_inode),
            undecided: RunMap::default(),
            claimed: RunMap::default(),
            claims: HashMap::new(),
            kept: RunMap::default(),
            made_up: RunMap::default(),
            files: HashMap::new(),
            unplaced: HashMap::new(),
            late: RunMap::default(),
            late_units: 0,
            log: Log::new(start_bytes, superblock),
            committed: Committed::default(),
            commits: 0,
            by_log: false,
            unnamed: RunMap::default(),
            unwanted: RunMap::default(),
        }
    }

    /// From now on inodes and directories count once they are at their places.
    pub(super) fn lose_log(&mut self) {
        self.committed.clear();
        self.unwanted.clear();
        self.unnamed.clear();
    }

    /// What waits of files that are not kept need not wait longer.
    pub(super) fn squash_unwanted(&mut self, blocks: &mut Blocks) {
        for (from, to, ()) in std::mem::take(&mut self.unwanted).all() {
            blocks.squash(VolumeUnit(from), VolumeUnit(to));
            self.decided(from, to);
        }
    }

    /// Contents came of which nothing is known.
    fn wait(&mut self, from: u64, to: u64) {
        self.claimed.remove(from, to);
        self.late.remove(from, to);
        self.unwanted.remove(from, to);
        self.undecided.set(from, to, ());
    }

    /// Blocks are nobody's contents any more.
    fn forget(&mut self, from: u64, to: u64) {
        self.decided(from, to);
        self.kept.remove(from, to);
        self.made_up.remove(from, to);
    }

    fn decided(&mut self, from: u64, to: u64) {
        self.undecided.remove(from, to);
        self.claimed.remove(from, to);
        self.late.remove(from, to);
        self.unwanted.remove(from, to);
    }

    /// A directory has an entry. Returns the file whose name is known now.
    pub(super) fn named(&mut self, folder: u64, entry: Entry) -> Option<u64> {
        if self.index.rules.are_by_path() && matches!(entry.kind, Kind::Directory | Kind::Unknown) {
            self.index.folder_named(entry.inode, folder, &entry.name);
        }
        if !matches!(entry.kind, Kind::Regular | Kind::Unknown) {
            return None;
        }
        let Some(mut placed) = self.index.folder(folder) else {
            self.unplaced.entry(folder).or_default().push((entry.inode, entry.name));
            return None;
        };
        // What matched once does so until it is deleted.
        let before = self.treatment(entry.inode).flatten();
        let treatment = before.or_else(|| placed.treatment_of(&entry.name));
        self.files.insert(entry.inode, Known { treatment, newer: true });
        Some(entry.inode)
    }

    /// Names the files whose directories have a path by now, and returns them.
    fn place_rest(&mut self) -> Vec<u64> {
        let mut folders: Vec<u64> = self.unplaced.keys().copied().collect();
        folders.retain(|&folder| self.index.path_of(folder).is_some());
        folders.sort_unstable();
        let mut placed = Vec::new();
        for folder in folders {
            for (inode, name) in self.unplaced.remove(&folder).unwrap_or_default() {
                placed.extend(self.named(folder, Entry { inode, kind: Kind::Regular, name }));
            }
        }
        placed
    }

    /// What becomes of a file by its name, if that is known.
    fn treatment(&self, inode: u64) -> Option<Option<Treatment>> {
        self.files.get(&inode).map(|known| known.treatment)
    }

    /// An inode was written anew: true if it is another file's now.
    pub(super) fn renewed(&mut self, number: u64, another: bool) {
        match self.files.get_mut(&number) {
            Some(known) if !another || known.newer => known.newer = false,
            Some(_) => {
                self.files.remove(&number);
            }
            None => {}
        }
        if another {
            self.claims.remove(&number);
        }
    }

    /// Everything about names is about to be read.
    fn clear(&mut self) {
        self.files.clear();
        self.index.clear();
        self.unplaced.clear();
        self.claims.clear();
        self.claimed.clear();
        self.kept.clear();
        self.made_up.clear();
    }

    fn memory_bytes(&self) -> u64 {
        let files = self.files.capacity() * (size_of::<(u64, Known)>() + 1);
        let sets = self.undecided.memory_bytes() + self.claimed.memory_bytes() + self.kept.memory_bytes();
        let sets = sets + self.made_up.memory_bytes() + self.late.memory_bytes();
        let sets = sets + self.unnamed.memory_bytes() + self.unwanted.memory_bytes();
        sets + self.index.memory_bytes() + files as u64
    }

    fn entries(&self) -> u64 {
        let sets = self.undecided.len() + self.claimed.len() + self.kept.len() + self.made_up.len() + self.late.len();
        let sets = sets + self.unnamed.len() + self.unwanted.len() + self.committed.entries();
        (sets + self.files.len() + self.index.entries() + self.unplaced.len() + self.claims.len()) as u64
    }
}

impl Xfs {
    /// The same, where files are kept by their names.
    pub(crate) fn with_names(self, rules: &Arc<[NameRule]>) -> Self {
        let new = |rules| Box::new(Names::new(rules, self.start_bytes, &self.superblock));
        let names = Rules::new(rules).map(new);
        Xfs { names, ..self }
    }

    /// Some files are kept by their names.
    pub(crate) fn keeps_by_names(&self) -> bool {
        self.names.as_ref().is_some_and(|names| names.index.rules.keep_some())
    }

    /// Blocks of files to be kept that were squashed before their names were known.
    pub(crate) fn late_units(&self) -> u64 {
        self.names.as_ref().map_or(0, |names| names.late_units)
    }

    /// Commits of the log that were followed.
    pub(crate) fn commits(&self) -> u64 {
        self.names.as_ref().map_or(0, |names| names.commits)
    }

    /// Memory in bytes: that of what is known of names, without names that are longer than a pointer, and that of the
    /// log's reader.
    pub(crate) fn memory_bytes(&self) -> (u64, u64) {
        let log = |names: &Names| names.log.memory_bytes() + names.committed.memory_bytes();
        self.names.as_ref().map_or((0, 0), |names| (names.memory_bytes(), log(names)))
    }

    /// Entries that are held in memory.
    pub(crate) fn entries(&self) -> u64 {
        self.names.as_ref().map_or(0, |names| names.entries())
    }

    /// What becomes of a block of contents.
    pub(super) fn contents(&self, unit: VolumeUnit) -> Verdict {
        match &self.names {
            None => Verdict::Drop,
            Some(names) if names.kept.at(unit.0, unit.0 + 1).0.is_some() => Verdict::Keep(Class::Raw),
            Some(names) if names.index.rules.keep_some() => Verdict::Wait,
            Some(_) => Verdict::Drop,
        }
    }

    /// Blocks as they are before a write, from its first unit on, if what they say counts.
    pub(super) fn blocks_before(&self, write: &Write<'_>, blocks: &mut Blocks) -> Result<Old, StoreError> {
        if self.names.is_none() || !write.judged.iter().any(|judged| tells_names(judged.2)) {
            return Ok(Old::new());
        }
        let mut old = vec![0; write.bytes.len()];
        blocks.read(write.unit.offset_bytes(), &mut old)?;
        Ok(vec![(write.unit.0, old)])
    }

    /// Blocks were written, `old` before if what they say counts.
    pub(super) fn names_written(
        &mut self,
        write: &Write<'_>,
        old: &[(u64, Vec<u8>)],
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        let &Write { unit, bytes, judged, .. } = write;
        let old = old.first().map_or(&[][..], |(_, bytes)| bytes);
        self.with(|xfs, names| {
            for &(from, to, verdict) in judged {
                match verdict {
                    Verdict::Wait => names.wait(from.0, to.0),
                    Verdict::Drop | Verdict::Keep(Class::Raw | Class::Noted) => names.decided(from.0, to.0),
                    Verdict::Keep(_) => names.forget(from.0, to.0),
                }
            }
            let len = xfs.superblock.block_bytes as usize;
            for &(from, to, _) in judged.iter().filter(|judged| tells_names(judged.2)) {
                let range = ((from - unit) * UNIT_BYTES) as usize..((to - unit) * UNIT_BYTES) as usize;
                let first = (from.offset_bytes() - xfs.start_bytes) / xfs.superblock.block_bytes;
                let pairs = old[range.clone()].chunks_exact(len).zip(bytes[range].chunks_exact(len));
                for ((old, new), block) in pairs.zip(first..).filter(|((old, new), _)| old != new) {
                    if names.log.is_read() && !xfs.is_as_committed(names, block, old, new) {
                        names.log.lose();
                        names.lose_log();
                    }
                    if !names.log.is_read() {
                        xfs.block_changed(names, block, old, new, blocks)?;
                    }
                }
            }
            xfs.log_written(names, unit.offset_bytes(), len_of(bytes), blocks)
        })
    }

    /// What waits of files that are not kept need not wait longer.
    pub(super) fn squash_unwanted(&mut self, blocks: &mut Blocks) {
        if let Some(names) = &mut self.names {
            names.squash_unwanted(blocks);
        }
    }

    /// A range was given back, or zeroed.
    pub(super) fn names_cleared(&mut self, range: VolumeBytes, discard: bool) {
        let VolumeBytes { offset_bytes, len_bytes } = range;
        let Some(names) = &mut self.names else { return };
        let (from, to) = (offset_bytes.div_ceil(UNIT_BYTES), (offset_bytes + len_bytes) / UNIT_BYTES);
        if from < to {
            if discard { names.forget(from, to) } else { names.decided(from, to) }
        }
        let block = |bytes: u64| bytes.saturating_sub(self.start_bytes).div_ceil(self.superblock.block_bytes);
        names.committed.forget(block(offset_bytes), block(offset_bytes + len_bytes));
        if names.log.is_touched(offset_bytes, len_bytes) {
            names.log.forget();
            names.lose_log();
        }
    }

    /// What is stored and no metadata waits; all names at their places are read, and what they keep is.
    pub(crate) fn begin_names(
        &mut self,
        waiting: &[(VolumeUnit, VolumeUnit)],
        end: VolumeUnit,
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        self.with(|xfs, names| {
            waiting.iter().for_each(|&(from, to)| names.wait(from.0, to.0));
            xfs.open_log(names, blocks)?;
            xfs.read_all(names, end, false, blocks)
        })
    }

    /// Nothing more is written: if the log says that all is at its place, everything is decided. Else only contents of
    /// committed files that are not kept are dropped, and the others are counted, in units.
    pub(super) fn decide_all(&mut self, end: VolumeUnit, blocks: &mut Blocks) -> Result<Option<u64>, StoreError> {
        let mut undecided_units = None;
        self.with(|xfs, names| {
            if xfs.log_is_clean(blocks)? {
                return xfs.read_all(names, end, true, blocks);
            }
            names.squash_unwanted(blocks);
            undecided_units = Some(names.undecided.all().map(|(from, to, ())| to - from).sum());
            Ok(())
        })?;
        Ok(undecided_units)
    }

    /// Gives what was made up in units between two the form that their files' kinds have; `bytes` are those of the
    /// device from `offset_bytes` on.
    pub(super) fn correct_files(
        &self,
        (start, end): (VolumeUnit, VolumeUnit),
        offset_bytes: u64,
        bytes: &mut [u8],
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        let Some(names) = &self.names else { return Ok(()) };
        for (from, to) in blocks.generated_pieces(start, end) {
            for (from, to, part) in names.made_up.pieces(from.0, to.0) {
                let Some(Some(Treatment::MakeUp(kind))) = names.treatment(part.file) else { continue };
                let inode_bytes = self.bytes_of_inode(part.file, &names.committed, blocks)?;
                let Some(inode) = self.file_in(&inode_bytes, part.file) else { continue };
                // Numbers of inodes have 64 bits here.
                let seed = seed_of(seed_of(blocks.seed(), part.file), u64::from(inode.generation()));
                let file = MadeUpFile { kind, seed, len_bytes: inode.len_bytes() };
                let from_bytes = (from * UNIT_BYTES).max(offset_bytes);
                let to_bytes = (to * UNIT_BYTES).min(offset_bytes + len_of(bytes));
                if from_bytes < to_bytes {
                    let target = &mut bytes[(from_bytes - offset_bytes) as usize..(to_bytes - offset_bytes) as usize];
                    file.fill(part.offset_bytes + (from_bytes - from * UNIT_BYTES), target);
                }
            }
        }
        Ok(())
    }

    fn with(&mut self, work: impl FnOnce(&Self, &mut Names) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let Some(mut names) = self.names.take() else { return Ok(()) };
        let done = work(self, &mut names);
        self.names = Some(names);
        done
    }

    /// A block of metadata is another one now.
    fn block_changed(
        &self,
        names: &mut Names,
        block: u64,
        old: &[u8],
        new: &[u8],
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        let superblock = &self.superblock;
        if let Some(folder) = directory::owner_of(new, superblock) {
            let same = directory::owner_of(old, superblock) == Some(folder);
            let before = if same { directory::entries(old, superblock) } else { Vec::new() };
            return self.entries_changed(names, folder, before, directory::entries(new, superblock), blocks);
        }
        if let Some((node, owner)) = tree_block(new, None, superblock) {
            return self.decide(names, owner, &node.extents, true, blocks);
        }
        let pairs = old.chunks_exact(superblock.inode_bytes).zip(new.chunks_exact(superblock.inode_bytes));
        for ((old, new), index) in pairs.zip(0..).filter(|((old, new), _)| old != new) {
            let Some(inode) = self.inode_in(new, (block, index * superblock.inode_bytes)) else { continue };
            let number = inode.number();
            let before = Inode::parse(old, superblock);
            let another = before.is_some_and(|before| before.generation() != inode.generation());
            names.renewed(number, another || !inode.is_regular());
            if let Some(before) = before.filter(|before| before.is_regular()) {
                for extent in self.extents_of(before, &names.committed, blocks)? {
                    self.given_back(names, number, &extent, true);
                }
            }
            if inode.is_directory() {
                let before = before.map_or(Vec::new(), |before| before.entries(superblock));
                self.entries_changed(names, number, before, inode.entries(superblock), blocks)?;
            } else if inode.is_regular() {
                let extents = self.extents_of(inode, &names.committed, blocks)?;
                self.decide(names, number, &extents, true, blocks)?;
            }
        }
        Ok(())
    }

    /// A file had these blocks; `kept` if nobody else has them.
    pub(super) fn given_back(&self, names: &mut Names, number: u64, extent: &Extent, kept: bool) {
        let (from, to) = self.units_around(extent.first, extent.end);
        if kept {
            names.kept.remove(from, to);
        }
        names.unnamed.remove(from, to);
        let own = names.made_up.pieces(from, to).filter(|piece| piece.2.file == number);
        let own: Vec<_> = own.map(|piece| (piece.0, piece.1)).collect();
        own.into_iter().for_each(|(from, to)| names.made_up.remove(from, to));
    }

    /// A directory has other entries than before.
    pub(super) fn entries_changed(
        &self,
        names: &mut Names,
        folder: u64,
        before: Vec<Entry>,
        after: Vec<Entry>,
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        let before: HashSet<Link> = before.into_iter().map(|entry| (entry.inode, entry.name)).collect();
        let mut moved = false;
        let mut named = Vec::new();
        for entry in after {
            if !before.contains(&(entry.inode, entry.name.clone())) {
                moved |= !matches!(entry.kind, Kind::Regular | Kind::Other);
                named.extend(names.named(folder, entry));
            }
        }
        if moved && names.index.rules.are_by_path() {
            named.extend(names.place_rest());
        }
        for number in named {
            if let Some(Some(treatment)) = names.treatment(number) {
                // Whatever is at its place: to keep too much does no harm, but only what was claimed may be squashed.
                let extents = self.extents_of_file(number, &names.committed, blocks)?;
                self.decide(names, number, &extents, treatment == Treatment::Keep, blocks)?;
            }
            for (from, to) in names.claims.remove(&number).unwrap_or_default() {
                let still = names.claimed.pieces(from, to).filter(|piece| piece.2 == Claim(number));
                for (from, to) in still.map(|piece| (piece.0, piece.1)).collect::<Vec<_>>() {
                    self.decide_units(names, number, (from, to), true, blocks)?;
                }
            }
        }
        Ok(())
    }

    /// A file has these blocks; they are squashed only if `may_squash`.
    pub(super) fn decide(
        &self,
        names: &mut Names,
        number: u64,
        extents: &[Extent],
        may_squash: bool,
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        let treatment = names.treatment(number).flatten();
        for extent in extents {
            // Of a unit of several blocks, all is kept if one of them is, and squashed if all are.
            let around = self.units_around(extent.first, extent.end);
            let within = self.units_within(extent.first, extent.end);
            match extent.place.checked_mul(self.superblock.block_bytes).filter(|&bytes| bytes <= FILE_MAX_BYTES) {
                Some(place_bytes) if matches!(treatment, Some(Treatment::MakeUp(_))) => {
                    let skipped_bytes = within.0 * UNIT_BYTES - self.bytes_of(extent.first, extent.end).0;
                    let part = FilePart { file: number, offset_bytes: place_bytes + skipped_bytes };
                    names.made_up.set(within.0, within.1, part);
                }
                _ => names.made_up.remove(around.0, around.1),
            }
            let (from, to) = if treatment == Some(Treatment::Keep) { around } else { within };
            if from < to {
                self.decide_units(names, number, (from, to), may_squash, blocks)?;
            }
        }
        Ok(())
    }

    fn decide_units(
        &self,
        names: &mut Names,
        number: u64,
        (from, to): (u64, u64),
        may_squash: bool,
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        let waiting: Vec<_> = names.undecided.pieces(from, to).map(|piece| (piece.0, piece.1)).collect();
        match names.treatment(number) {
            Some(Some(Treatment::Keep)) => {
                let mut squashed: RunMap<()> = RunMap::default();
                let made_up = blocks.generated_pieces(VolumeUnit(from), VolumeUnit(to));
                made_up.into_iter().for_each(|(from, to)| squashed.set(from.0, to.0, ()));
                names.late.pieces(from, to).for_each(|(from, to, ())| squashed.remove(from, to));
                names.kept.set(from, to, ());
                for (from, to) in waiting {
                    blocks.settle(VolumeUnit(from), VolumeUnit(to), Class::Raw)?;
                    names.decided(from, to);
                }
                for (from, to, ()) in squashed.all() {
                    names.late.set(from, to, ());
                    names.late_units += to - from;
                }
            }
            Some(None | Some(Treatment::MakeUp(_))) if may_squash && names.by_log => {
                for (from, to) in waiting {
                    names.claimed.remove(from, to);
                    names.unwanted.set(from, to, ());
                }
            }
            Some(None | Some(Treatment::MakeUp(_))) if may_squash => {
                for (from, to) in waiting {
                    blocks.squash(VolumeUnit(from), VolumeUnit(to));
                    names.decided(from, to);
                }
            }
            Some(_) => {}
            None => {
                if names.by_log {
                    names.unnamed.set(from, to, ());
                }
                for (from, to) in waiting {
                    names.unwanted.remove(from, to);
                    names.claimed.set(from, to, Claim(number));
                    names.claims.entry(number).or_default().push((from, to));
                }
            }
        }
        Ok(())
    }

    /// Reads all inodes and directories at their places, and decides what files with names have. If all is `at_rest`,
    /// what no file without a name has is nobody's.
    fn read_all(
        &self,
        names: &mut Names,
        end: VolumeUnit,
        at_rest: bool,
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        names.clear();
        let mut files = Vec::new();
        let (mut bytes, mut visited) = ([0; UNIT_BYTES as usize], RunMap::<()>::default());
        let len = self.superblock.block_bytes as usize;
        for (from, to) in blocks.pieces_of(VolumeUnit::of_byte(self.start_bytes), end, Class::InodeTable) {
            for unit in from.up_to(to) {
                blocks.read(unit.offset_bytes(), &mut bytes)?;
                let first = (unit.offset_bytes() - self.start_bytes) / self.superblock.block_bytes;
                for (block, number) in bytes.chunks_exact(len).zip(first..) {
                    let inodes = block.chunks_exact(self.superblock.inode_bytes).zip(0..);
                    for (inode, index) in inodes {
                        let place = (number, index * self.superblock.inode_bytes);
                        let inode = self.inode_in(inode, place);
                        let Some(inode) = inode.filter(|inode| names.committed.inode(inode.number()).is_none()) else {
                            continue;
                        };
                        if inode.is_directory() {
                            self.read_directory(names, inode, &mut visited, blocks)?;
                        } else if inode.is_regular() {
                            files.push(inode.number());
                        }
                    }
                }
            }
        }
        for (number, bytes) in
            names.committed.inodes().map(|(number, bytes)| (number, bytes.clone())).collect::<Vec<_>>()
        {
            match Inode::parse(&bytes, &self.superblock) {
                Some(inode) if inode.is_directory() => self.read_directory(names, inode, &mut visited, blocks)?,
                Some(inode) if inode.is_regular() => files.push(number),
                _ => {}
            }
        }
        while !names.place_rest().is_empty() {}
        for number in files {
            let extents = self.extents_of_file(number, &names.committed, blocks)?;
            self.decide(names, number, &extents, at_rest, blocks)?;
        }
        names.files.values_mut().for_each(|known| known.newer = false);
        if !at_rest {
            return Ok(());
        }
        let mut rest: RunMap<()> = names.undecided.clone();
        for (from, to) in blocks.pieces_of(VolumeUnit::of_byte(self.start_bytes), end, Class::Raw) {
            rest.set(from.0, to.0, ());
        }
        names.kept.all().for_each(|(from, to, ())| rest.remove(from, to));
        names.claimed.all().for_each(|(from, to, _)| rest.remove(from, to));
        for (from, to, ()) in rest.all() {
            blocks.squash(VolumeUnit(from), VolumeUnit(to));
            names.decided(from, to);
        }
        Ok(())
    }

    /// Whether the last record of the log says that the file system was unmounted: all is at its place.
    fn log_is_clean(&self, blocks: &mut Blocks) -> Result<bool, StoreError> {
        let log = (self.superblock.log_start, self.superblock.log_start + self.superblock.log_blocks);
        let ((from, to), log_bytes) = (self.units_around(log.0, log.1), self.bytes_of(log.0, log.1));
        let mut unit_bytes = [0; UNIT_BYTES as usize];
        // The number of the last record, its place, and its header.
        let mut last: Option<(u64, u64, Vec<u8>)> = None;
        for (from, to) in blocks.stored_pieces(VolumeUnit(from), VolumeUnit(to)) {
            for unit in from.up_to(to) {
                blocks.read(unit.offset_bytes(), &mut unit_bytes)?;
                for (sector, index) in unit_bytes.chunks_exact(LOG_SECTOR_BYTES as usize).zip(0..) {
                    let at_bytes = unit.offset_bytes() + index * LOG_SECTOR_BYTES;
                    let inside = log_bytes.0 <= at_bytes && at_bytes < log_bytes.1;
                    let record = u64_at(sector, 16);
                    if inside && sector.starts_with(&LOG_MAGIC) && last.as_ref().is_none_or(|last| last.0 <= record) {
                        last = Some((record, at_bytes, sector.to_vec()));
                    }
                }
            }
        }
        let Some((_, at_bytes, header)) = last else { return Ok(false) };
        // A header takes a sector for each 32 KiB that its buffer has.
        let header_sectors = u64::from(u32_at(&header, 320)).div_ceil(32 << 10).clamp(1, 8);
        let operation_at = at_bytes + header_sectors * LOG_SECTOR_BYTES;
        let operations = u32_at(&header, 40);
        let mut operation = [0; 12];
        if operations != 1 || operation_at + operation.len() as u64 > log_bytes.1 {
            return Ok(false);
        }
        blocks.read(operation_at, &mut operation)?;
        Ok(operation[9] & LOG_UNMOUNT != 0)
    }
}

/// `XLOG_HEADER_MAGIC_NUM`, `XLOG_UNMOUNT_TRANS` and `BBSIZE` (Linux, `fs/xfs/libxfs/xfs_log_format.h`).
const LOG_MAGIC: [u8; 4] = [0xFE, 0xED, 0xBA, 0xBE];
const LOG_UNMOUNT: u8 = 0x20;
const LOG_SECTOR_BYTES: u64 = 512;

/// Whether blocks of this fate may say names, or whose contents lie where.
fn tells_names(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Keep(Class::InodeTable | Class::Directory | Class::Mapping))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: u64 = 128;

    fn names(pattern: &str) -> Names {
        let rule = NameRule { names: pattern.parse().unwrap(), treatment: Treatment::Keep };
        Names::new(Rules::new(&[rule].into()).unwrap(), 0, &Superblock::of_test(true))
    }

    fn entry(inode: u64, kind: Kind, name: &str) -> Entry {
        Entry { inode, kind, name: name.as_bytes().into() }
    }

    #[test]
    fn a_file_is_named_once_its_folders_are() {
        let mut names = names("/a/b/*");
        assert_eq!(names.named(130, entry(140, Kind::Regular, "file")), None);
        assert_eq!(names.named(129, entry(130, Kind::Directory, "b")), None);
        assert!(names.place_rest().is_empty());
        assert_eq!(names.named(ROOT, entry(129, Kind::Directory, "a")), None);
        assert_eq!(names.place_rest(), [140]);
        assert_eq!(names.treatment(140), Some(Some(Treatment::Keep)));
        assert_eq!(names.named(129, entry(141, Kind::Regular, "file")), Some(141));
        assert_eq!(names.treatment(141), Some(None));
        // Folders in a circle have no path.
        names.named(130, entry(129, Kind::Directory, "a"));
        assert_eq!(names.index.path_of(130), None);
    }

    #[test]
    fn what_matched_does_so_until_the_inode_is_another_files() {
        let mut names = names("*.db");
        names.named(ROOT, entry(140, Kind::Regular, "a.db"));
        names.named(ROOT, entry(140, Kind::Regular, "a.old"));
        assert_eq!(names.treatment(140), Some(Some(Treatment::Keep)));
        // The name was there before its inode was.
        names.renewed(140, true);
        assert_eq!(names.treatment(140), Some(Some(Treatment::Keep)));
        names.renewed(140, false);
        names.renewed(140, true);
        assert!(names.files.is_empty());
    }
}
