//! Names of files on btrfs, for rules that keep files or generate their contents.
//!
//! An inode records its own names (`INODE_REF`). At each commit, the new leaves in the trees of files are read. For
//! each inode in them whose name matches a rule, the places of its contents are read, too. If a rule keeps files,
//! contents wait until they are committed, so that no block of a kept file is lost. If a file, or a folder above it, is
//! renamed later, its contents may have been squashed already.

use std::collections::HashMap;

use chronodisk_store::StoreError;

use super::key::{KEY_LAST, Key};
use super::superblock::Root;
use super::tree::{EXTENT_DATA_BYTES, Trees};
use crate::UNIT_BYTES;
use crate::bytes::u64_at;
use crate::content::seed_of;
use crate::file_content::{FILE_MAX_BYTES, FilePart, MadeUpFile};
use crate::name_index::Rules;
use crate::names::{PATH_MAX_BYTES, Treatment};
use crate::runs::RunMap;

pub(super) const TYPE_INODE_ITEM: u8 = 1;
pub(super) const TYPE_INODE_REF: u8 = 12;
pub(super) const TYPE_INODE_EXTREF: u8 = 13;
pub(super) const TYPE_EXTENT_DATA: u8 = 108;
const TYPE_ROOT_ITEM: u8 = 132;
const TYPE_ROOT_BACKREF: u8 = 144;
const TREE_OF_FILES: u64 = 5;
/// Numbers of subvolumes and snapshots, and of inodes in each tree of files. The first is the root directory.
pub(super) const OWN: std::ops::RangeInclusive<u64> = 256..=1 << 48;
pub(super) const ROOT_FOLDER: u64 = *OWN.start();
/// Linux accepts no deeper path.
const DEPTH_MAX: usize = 2048;

/// Files with a treatment by name.
#[derive(Debug)]
pub(crate) struct Names {
    rules: Rules,
    /// Contents of kept files, by logical block.
    kept: RunMap<()>,
    /// Generated contents of files of a known kind, by logical block, and these files.
    made_up: RunMap<FilePart>,
    files: Vec<MadeUpFile>,
    numbers: HashMap<Folder, u64>,
    /// Seed from which the files' seeds are derived.
    seed: u64,
    /// The last transaction whose leaves were read.
    generation: u64,
    /// Blocks of files to be kept that were squashed before their names were known.
    pub(crate) late_units: u64,
}

/// A tree of files, and a folder or a file in it: numbers of both.
pub(super) type Folder = (u64, u64);

/// A folder's inode, and a name in it.
pub(super) type Name = (u64, Vec<u8>);

/// Result of a walk; `None` if a node was unreadable.
pub(super) type Found<T> = Result<Option<T>, StoreError>;

impl Names {
    pub(crate) fn new(rules: Rules, seed: u64) -> Self {
        Names {
            rules,
            kept: RunMap::default(),
            made_up: RunMap::default(),
            files: Vec::new(),
            numbers: HashMap::new(),
            seed,
            generation: 0,
            late_units: 0,
        }
    }

    /// Whether a rule keeps files.
    pub(crate) fn keeps_some(&self) -> bool {
        self.rules.keep_some()
    }

    /// Memory in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let files = self.files.capacity() * size_of::<MadeUpFile>();
        let numbers = self.numbers.capacity() * (size_of::<(Folder, u64)>() + 1);
        self.kept.memory_bytes() + self.made_up.memory_bytes() + (files + numbers) as u64
    }

    /// Entries that are held in memory.
    pub(crate) fn entries(&self) -> u64 {
        (self.kept.len() + self.made_up.len() + self.files.len()) as u64
    }

    /// Whether a logical block belongs to a kept file.
    pub(crate) fn keeps(&self, logical: u64) -> bool {
        self.kept.at(logical, logical + 1).0.is_some()
    }

    /// Forgets discarded logical blocks.
    pub(crate) fn forget(&mut self, first: u64, last: u64) {
        self.kept.remove(first, last);
        self.made_up.remove(first, last);
    }

    /// The file with generated contents to which a logical block belongs, and the number of the block's sector in it.
    pub(crate) fn made_up(&self, logical: u64) -> Option<(&MadeUpFile, u64)> {
        let part = self.made_up.at(logical, logical + 1).0?;
        Some((&self.files[part.file as usize], part.offset_bytes / UNIT_BYTES))
    }

    /// Generated contents of files of a known kind, in a range of logical blocks.
    pub(crate) fn made_up_pieces(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.made_up.pieces(first, last).map(|(first, last, _)| (first, last))
    }

    /// Contents of kept files, in a range of logical blocks.
    pub(crate) fn kept(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.kept.pieces(first, last).map(|(first, last, ())| (first, last))
    }

    /// Reads the changes of the last commit. Returns the logical blocks that are kept from now on; `None` if a node was
    /// unreadable.
    pub(crate) fn read(&mut self, trees: &mut Trees<'_>) -> Found<Vec<(u64, u64)>> {
        let generation = trees.superblock.generation;
        if generation <= self.generation {
            return Ok(Some(Vec::new()));
        }
        let Some(roots) = self.new_roots(trees)? else { return Ok(None) };
        let mut paths = Paths::default();
        let mut kept = RunMap::<()>::default();
        for (tree, root) in roots {
            let Some(inodes) = self.new_inodes(root, trees)? else { return Ok(None) };
            for inode in inodes {
                let file = (tree, inode);
                let Some(names) = names_of(inode, root, trees)? else { return Ok(None) };
                let treatment = treatment(&self.rules, (tree, root), &names, &mut paths, trees)?;
                let Some(treatment) = treatment else { return Ok(None) };
                // A file that matched once keeps its treatment until its blocks are free.
                let Some(treatment) = treatment else { continue };
                let Some(extents) = extents(inode, root, trees)? else { return Ok(None) };
                match treatment {
                    Treatment::Keep => extents.iter().for_each(|extent| kept.set(extent.first, extent.end, ())),
                    Treatment::MakeUp(kind) => {
                        let Some((generation, len_bytes)) = generation_and_len(inode, root, trees)? else {
                            return Ok(None);
                        };
                        let seed = seed_of(seed_of(self.seed, inode), generation);
                        self.make_up(file, MadeUpFile { kind, seed, len_bytes }, &extents);
                    }
                }
            }
        }
        self.generation = generation;
        Ok(Some(self.keep(kept)))
    }

    /// Keeps logical blocks from now on. Returns those that were not kept before.
    pub(super) fn keep(&mut self, mut kept: RunMap<()>) -> Vec<(u64, u64)> {
        self.kept.all().for_each(|(first, last, ())| kept.remove(first, last));
        let new: Vec<_> = kept.all().map(|(first, last, ())| (first, last)).collect();
        new.iter().for_each(|&(first, last)| self.kept.set(first, last, ()));
        new
    }

    /// The rules by name.
    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The trees of files that changed since the last read.
    fn new_roots(&self, trees: &mut Trees<'_>) -> Found<Vec<(u64, Root)>> {
        let mut roots = Vec::new();
        let (from, to) = (Key::new(TREE_OF_FILES, TYPE_ROOT_ITEM, 0), Key::new(*OWN.end(), u8::MAX, u64::MAX));
        let whole = trees.walk_new(trees.superblock.tree_root, self.generation, from, to, &mut |key, item| {
            let found = (key.kind, is_tree_of_files(key.object), Root::of_item(item));
            if let (TYPE_ROOT_ITEM, true, Some(root)) = found {
                roots.push((key.object, root));
            }
        })?;
        roots.retain(|(_, root)| root.generation > self.generation);
        Ok(whole.then_some(roots))
    }

    /// The inodes whose names or contents are in a tree's new leaves.
    fn new_inodes(&self, root: Root, trees: &mut Trees<'_>) -> Found<Vec<u64>> {
        let mut inodes: Vec<u64> = Vec::new();
        let whole = trees.walk_new(root, self.generation, Key::new(ROOT_FOLDER, 0, 0), KEY_LAST, &mut |key, _| {
            let of_names = matches!(key.kind, TYPE_INODE_REF | TYPE_INODE_EXTREF);
            let tells = of_names || matches!(key.kind, TYPE_INODE_ITEM | TYPE_EXTENT_DATA);
            if tells && OWN.contains(&key.object) && inodes.last() != Some(&key.object) {
                inodes.push(key.object);
            }
        })?;
        Ok(whole.then_some(inodes))
    }

    /// Generates the contents of a file's blocks from now on.
    fn make_up(&mut self, file: Folder, made_up: MadeUpFile, extents: &[Extent]) {
        let number = *self.numbers.entry(file).or_insert(self.files.len() as u64);
        if number == self.files.len() as u64 {
            self.files.push(made_up);
        }
        self.files[number as usize] = made_up;
        for extent in extents {
            match extent.offset_bytes.filter(|offset_bytes| offset_bytes.is_multiple_of(UNIT_BYTES)) {
                Some(offset_bytes) => {
                    self.made_up.set(extent.first, extent.end, FilePart { file: number, offset_bytes });
                }
                None => self.made_up.remove(extent.first, extent.end),
            }
        }
    }
}

/// Whether a tree of this number holds files.
pub(super) fn is_tree_of_files(tree: u64) -> bool {
    tree == TREE_OF_FILES || OWN.contains(&tree)
}

/// The treatment of a file with these names in a tree: the first name with a treatment decides.
pub(super) fn treatment(
    rules: &Rules,
    (tree, root): (u64, Root),
    names: &[Name],
    paths: &mut Paths,
    trees: &mut Trees<'_>,
) -> Found<Option<Treatment>> {
    for (parent, name) in names {
        let mut path = match rules.are_by_path() {
            false => Vec::new(),
            true => match paths.path((tree, *parent), root, trees)? {
                Some(path) => path,
                None => return Ok(None),
            },
        };
        path.extend_from_slice(name);
        let treatment = rules.treatment_of(&path);
        if treatment.is_some() {
            return Ok(Some(treatment));
        }
    }
    Ok(Some(None))
}

/// The names of an inode, each with its folder.
pub(super) fn names_of(inode: u64, root: Root, trees: &mut Trees<'_>) -> Found<Vec<Name>> {
    let mut names = Vec::new();
    let (from, to) = (Key::new(inode, TYPE_INODE_REF, 0), Key::new(inode, TYPE_INODE_EXTREF, u64::MAX));
    let whole = trees.walk(root, from, to, &mut |key, item| names.extend(names_in(key, item)))?;
    Ok(whole.then_some(names))
}

/// The names in an `INODE_REF` or `INODE_EXTREF`, each with its folder.
pub(super) fn names_in(key: Key, item: &[u8]) -> Vec<Name> {
    // An item lists several names in one folder. Each has an index and a length in front; in an `INODE_EXTREF` also the
    // folder.
    let head = if key.kind == TYPE_INODE_REF { 10 } else { 18 };
    let (mut names, mut rest) = (Vec::new(), item);
    while let Some((start, later)) = rest.split_at_checked(head) {
        let len = usize::from(u16::from_le_bytes([start[head - 2], start[head - 1]]));
        let Some((name, later)) = later.split_at_checked(len) else { break };
        let folder = if key.kind == TYPE_INODE_REF { key.offset } else { u64_at(start, 0) };
        names.push((folder, name.to_vec()));
        rest = later;
    }
    names
}

/// Consecutive logical blocks with contents of a file.
pub(super) struct Extent {
    pub(super) first: u64,
    pub(super) end: u64,
    /// Offset of the first block in the file; `None` for encoded contents.
    offset_bytes: Option<u64>,
}

impl Extent {
    /// The blocks of an `EXTENT_DATA`; `None` for a hole and for inline contents.
    pub(super) fn of(key: Key, item: &[u8]) -> Option<Self> {
        if item.len() < EXTENT_DATA_BYTES || item[20] == 0 || u64_at(item, 21) == 0 {
            return None;
        }
        let is_encoded = item[16..20] != [0; 4];
        // Reading any part of an encoded extent needs all of it.
        let (skip, len) = if is_encoded { (0, u64_at(item, 29)) } else { (u64_at(item, 37), u64_at(item, 45)) };
        let start = u64_at(item, 21).checked_add(skip)?;
        let end = start.checked_add(len)?.div_ceil(UNIT_BYTES);
        let offset_bytes = (!is_encoded && key.offset <= FILE_MAX_BYTES).then_some(key.offset);
        Some(Extent { first: start / UNIT_BYTES, end, offset_bytes })
    }
}

/// The extents of a file. `None` if a node was unreadable.
pub(super) fn extents(inode: u64, root: Root, trees: &mut Trees<'_>) -> Found<Vec<Extent>> {
    let mut extents = Vec::new();
    let (from, to) = (Key::new(inode, TYPE_EXTENT_DATA, 0), Key::new(inode, TYPE_EXTENT_DATA, u64::MAX));
    let whole = trees.walk(root, from, to, &mut |key, item| extents.extend(Extent::of(key, item)))?;
    Ok(whole.then_some(extents))
}

/// The transaction that made an inode, and the file's length in bytes. `None` if a node was unreadable.
fn generation_and_len(inode: u64, root: Root, trees: &mut Trees<'_>) -> Found<(u64, u64)> {
    let mut found = (0, 0);
    let key = Key::new(inode, TYPE_INODE_ITEM, 0);
    let whole = trees.walk(root, key, key, &mut |_, item| {
        if item.len() >= 24 {
            found = (u64_at(item, 0), u64_at(item, 16));
        }
    })?;
    Ok(whole.then_some(found))
}

/// Paths of folders from the root of the file system. Each ends in a slash, except the root's empty path.
#[derive(Default)]
pub(super) struct Paths {
    known: HashMap<Folder, Vec<u8>>,
    /// Names that are newer than those in the trees.
    newer: HashMap<Folder, Vec<Name>>,
    /// A folder on a requested path has no name.
    pub(super) hangs: bool,
}

impl Paths {
    /// Paths in which `newer` names take precedence.
    pub(super) fn with_newer(newer: HashMap<Folder, Vec<Name>>) -> Self {
        Paths { newer, ..Paths::default() }
    }

    /// The path of a folder in the tree with this root. `None` if a node was unreadable.
    fn path(&mut self, folder: Folder, root: Root, trees: &mut Trees<'_>) -> Found<Vec<u8>> {
        let (mut at, mut root) = (folder, root);
        let mut above: Vec<(Folder, Vec<u8>)> = Vec::new();
        let mut path = loop {
            if let Some(path) = self.known.get(&at) {
                break path.clone();
            }
            if at == (TREE_OF_FILES, ROOT_FOLDER) || above.len() >= DEPTH_MAX {
                break Vec::new();
            }
            let parent = if at.1 == ROOT_FOLDER {
                let Some(parent) = subvolume_parent(at.0, trees)? else { return Ok(None) };
                parent
            } else {
                let names = match self.newer.get(&at) {
                    Some(names) => Some(names.clone()),
                    None => names_of(at.1, root, trees)?,
                };
                let Some(names) = names else { return Ok(None) };
                names.into_iter().next().map(|(parent, name)| ((at.0, parent), root, name))
            };
            // A folder that has just lost its name has no path.
            let Some((folder, parent_root, name)) = parent else {
                self.hangs = true;
                break Vec::new();
            };
            above.push((at, name));
            (at, root) = (folder, parent_root);
        };
        for (folder, name) in above.into_iter().rev() {
            if path.len() + name.len() < PATH_MAX_BYTES {
                path.extend_from_slice(&name);
                path.push(b'/');
            }
            self.known.insert(folder, path.clone());
        }
        Ok(Some(path))
    }
}

/// The parent of a subvolume: its folder, the root of the folder's tree, and the subvolume's name. `Some(None)` if it
/// has none; `None` if a node was unreadable.
fn subvolume_parent(tree: u64, trees: &mut Trees<'_>) -> Found<Option<(Folder, Root, Vec<u8>)>> {
    let mut found = None;
    let (from, to) = (Key::new(tree, TYPE_ROOT_BACKREF, 0), Key::new(tree, TYPE_ROOT_BACKREF, u64::MAX));
    let whole = trees.walk(trees.superblock.tree_root, from, to, &mut |key, item| {
        let len = item.get(16..18).map(|len| usize::from(u16::from_le_bytes([len[0], len[1]])));
        if let Some(name) = len.and_then(|len| item.get(18..18 + len)) {
            found = Some(((key.offset, u64_at(item, 0)), name.to_vec()));
        }
    })?;
    match found {
        _ if !whole => Ok(None),
        None => Ok(Some(None)),
        Some((folder, name)) => Ok(trees.root_of(folder.0)?.map(|root| Some((folder, root, name)))),
    }
}
