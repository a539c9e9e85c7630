//! Names of files on btrfs, for those that are kept by them.
//!
//! An inode says its names itself (`INODE_REF`). At each commit the leaves that are new in the trees of files are read,
//! and where the contents lie of the inodes that they tell of and whose names match. Contents wait until they were
//! committed, so none of them is lost. A file that is renamed later, itself or a folder above it, may have been
//! squashed.

use std::collections::HashMap;
use std::sync::Arc;

use super::superblock::Root;
use super::tree::{EXTENT_DATA_BYTES, KEY_LAST, Key, Trees};
use crate::StoreError;
use crate::squash::UNIT_BYTES;
use crate::squash::map_log::u64_at;
use crate::squash::names::{NameRule, PATH_MAX_BYTES, treatment_of};
use crate::squash::runs::RunMap;

const TYPE_INODE_REF: u8 = 12;
const TYPE_INODE_EXTREF: u8 = 13;
const TYPE_EXTENT_DATA: u8 = 108;
const TYPE_ROOT_ITEM: u8 = 132;
const TYPE_ROOT_BACKREF: u8 = 144;
const TREE_OF_FILES: u64 = 5;
/// Subvolumes and snapshots have numbers in here, and the files of each tree begin there, its root with the first.
const OWN: std::ops::RangeInclusive<u64> = 256..=1 << 48;
const ROOT_FOLDER: u64 = *OWN.start();
/// What is deeper has no path that Linux would take.
const DEPTH_MAX: usize = 2048;

/// What is known of names.
#[derive(Debug)]
pub(crate) struct Names {
    rules: Arc<[NameRule]>,
    /// Some rule is of paths.
    by_path: bool,
    /// Contents of files that match, by logical block.
    kept: RunMap<()>,
    /// The last transaction whose leaves were read.
    generation: u64,
    /// Blocks of files to be kept that were squashed before their names were known.
    pub(crate) late_units: u64,
}

/// A tree of files, or a file in it: numbers of both.
type Folder = (u64, u64);

/// What a walk found: numbers of inodes, or ranges of logical bytes.
type Found<T> = Result<Option<T>, StoreError>;

impl Names {
    pub(crate) fn new(rules: Arc<[NameRule]>) -> Self {
        let by_path = rules.iter().any(|rule| rule.names.is_by_path());
        Names { rules, by_path, kept: RunMap::default(), generation: 0, late_units: 0 }
    }

    /// Memory that it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.kept.memory_bytes()
    }

    /// Entries that are held in memory.
    pub(crate) fn entries(&self) -> u64 {
        self.kept.len() as u64
    }

    /// Whether a logical block is of a file that is kept.
    pub(crate) fn keeps(&self, logical: u64) -> bool {
        self.kept.at(logical, logical + 1).0.is_some()
    }

    /// Logical blocks were given back.
    pub(crate) fn forget(&mut self, first: u64, last: u64) {
        self.kept.remove(first, last);
    }

    /// Contents of files that are kept, between two logical blocks.
    pub(crate) fn kept(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.kept.pieces(first, last).map(|(first, last, ())| (first, last))
    }

    /// Reads what the last commit has that is new. Returns the logical blocks that are kept from now on; `None` if not
    /// all could be read.
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
                let Some(matches) = self.matches((tree, inode), root, &mut paths, trees)? else { return Ok(None) };
                if matches && !extents(inode, root, &mut kept, trees)? {
                    return Ok(None);
                }
            }
        }
        self.generation = generation;
        self.kept.all().for_each(|(first, last, ())| kept.remove(first, last));
        let new: Vec<_> = kept.all().map(|(first, last, ())| (first, last)).collect();
        new.iter().for_each(|&(first, last)| self.kept.set(first, last, ()));
        Ok(Some(new))
    }

    /// The trees of files that changed.
    fn new_roots(&self, trees: &mut Trees<'_>) -> Found<Vec<(u64, Root)>> {
        let mut roots = Vec::new();
        let (from, to) = (Key::new(TREE_OF_FILES, TYPE_ROOT_ITEM, 0), Key::new(*OWN.end(), u8::MAX, u64::MAX));
        let whole = trees.walk_new(trees.superblock.tree_root, self.generation, from, to, &mut |key, item| {
            let of_files = key.object == TREE_OF_FILES || OWN.contains(&key.object);
            if let (TYPE_ROOT_ITEM, true, Some(root)) = (key.kind, of_files, Root::of_item(item)) {
                roots.push((key.object, root));
            }
        })?;
        roots.retain(|(_, root)| root.generation > self.generation);
        Ok(whole.then_some(roots))
    }

    /// The inodes of which a tree's new leaves have names or contents.
    fn new_inodes(&self, root: Root, trees: &mut Trees<'_>) -> Found<Vec<u64>> {
        let mut inodes: Vec<u64> = Vec::new();
        let whole = trees.walk_new(root, self.generation, Key::new(ROOT_FOLDER, 0, 0), KEY_LAST, &mut |key, _| {
            let tells = matches!(key.kind, TYPE_INODE_REF | TYPE_INODE_EXTREF | TYPE_EXTENT_DATA);
            if tells && OWN.contains(&key.object) && inodes.last() != Some(&key.object) {
                inodes.push(key.object);
            }
        })?;
        Ok(whole.then_some(inodes))
    }

    /// Whether one of a file's names matches.
    fn matches(&self, file: Folder, root: Root, paths: &mut Paths, trees: &mut Trees<'_>) -> Found<bool> {
        let Some(names) = names_of(file.1, root, trees)? else { return Ok(None) };
        for (parent, name) in names {
            let mut path = match self.by_path {
                false => Vec::new(),
                true => match paths.path((file.0, parent), root, trees)? {
                    Some(path) => path,
                    None => return Ok(None),
                },
            };
            path.extend_from_slice(&name);
            if treatment_of(&self.rules, &path).is_some() {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }
}

/// The names of an inode, with the folders that have them.
fn names_of(inode: u64, root: Root, trees: &mut Trees<'_>) -> Found<Vec<(u64, Vec<u8>)>> {
    let mut names = Vec::new();
    let (from, to) = (Key::new(inode, TYPE_INODE_REF, 0), Key::new(inode, TYPE_INODE_EXTREF, u64::MAX));
    let whole = trees.walk(root, from, to, &mut |key, item| {
        // Several names in one folder are one behind the other: an index and a length; before these the folder, if
        // the key does not have it.
        let head = if key.kind == TYPE_INODE_REF { 10 } else { 18 };
        let mut rest = item;
        while let Some((start, later)) = rest.split_at_checked(head) {
            let len = usize::from(u16::from_le_bytes([start[head - 2], start[head - 1]]));
            let Some((name, later)) = later.split_at_checked(len) else { break };
            let folder = if key.kind == TYPE_INODE_REF { key.offset } else { u64_at(start, 0) };
            names.push((folder, name.to_vec()));
            rest = later;
        }
    })?;
    Ok(whole.then_some(names))
}

/// Adds where the contents of a file lie, in logical blocks. False if not all could be read.
fn extents(inode: u64, root: Root, kept: &mut RunMap<()>, trees: &mut Trees<'_>) -> Result<bool, StoreError> {
    let (from, to) = (Key::new(inode, TYPE_EXTENT_DATA, 0), Key::new(inode, TYPE_EXTENT_DATA, u64::MAX));
    trees.walk(root, from, to, &mut |_, item| {
        if item.len() < EXTENT_DATA_BYTES || item[20] == 0 || u64_at(item, 21) == 0 {
            // Within the inode, or a hole.
            return;
        }
        let (disk, skip, len) = (u64_at(item, 21), u64_at(item, 37), u64_at(item, 45));
        let end = disk.checked_add(skip).and_then(|start| start.checked_add(len)).map(|end| end.div_ceil(UNIT_BYTES));
        if let Some(end) = end {
            kept.set((disk + skip) / UNIT_BYTES, end, ());
        }
    })
}

/// Paths of folders from the root of the file system on, each with a slash behind it but for the root's, which is
/// empty.
#[derive(Default)]
struct Paths {
    known: HashMap<Folder, Vec<u8>>,
}

impl Paths {
    /// The path of a folder in a tree with this root. `None` if not all could be read.
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
                let Some(names) = names_of(at.1, root, trees)? else { return Ok(None) };
                names.into_iter().next().map(|(parent, name)| ((at.0, parent), root, name))
            };
            // A folder that has just lost its name has no path.
            let Some((folder, parent_root, name)) = parent else { break Vec::new() };
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

/// Where a subvolume lies: the folder, the root of the tree that it is in, and the subvolume's name; nothing if it is
/// nowhere. `None` if not all could be read.
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
