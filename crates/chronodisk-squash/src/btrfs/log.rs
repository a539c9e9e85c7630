//! The log: files synchronised since the last commit.
//!
//! A synchronisation (`fsync`, `O_DSYNC`) need not end a transaction. The kernel writes the difference from the last
//! commit to a log for each tree of files: inodes, names, and extents of contents. A tree of logs holds the roots of
//! these logs, and the superblock holds the root of the tree of logs (Linux, `fs/btrfs/tree-log.c`). The next commit
//! includes all of it and ends the logs.
//!
//! A flush keeps unclassified blocks, and no contents are dropped before a commit names their file. So the log counts
//! only when a store is opened or closed while a log exists: after a death of the kernel that had the file system
//! mounted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chronodisk_store::StoreError;

use super::key::{KEY_BYTES, KEY_LAST, Key};
use super::names::{
    Extent, Folder, Found, Name, OWN, Paths, ROOT_FOLDER, TYPE_EXTENT_DATA, TYPE_INODE_EXTREF, TYPE_INODE_ITEM,
    TYPE_INODE_REF, extents, is_tree_of_files, names_in, names_of, treatment,
};
use super::superblock::Root;
use super::tree::Trees;
use crate::name_index::Rules;
use crate::names::Treatment;
use crate::runs::RunMap;

const OBJECT_LOG: u64 = 6u64.wrapping_neg();
const TYPE_DIR_ITEM: u8 = 84;
const TYPE_DIR_INDEX: u8 = 96;
const TYPE_ROOT_ITEM: u8 = 132;
/// In front of a name in a folder: the key of the named inode, a transaction, two lengths, and a kind.
const ENTRY_HEAD_BYTES: usize = KEY_BYTES + 13;
/// Names and extents of a log; one with more counts as not readable.
const ENTRIES_MAX: usize = 1 << 20;

/// The extents of files according to the logs, by logical block.
#[derive(Debug, Default)]
pub(super) struct Logged {
    /// Contents of files that are kept.
    pub(super) kept: RunMap<()>,
    /// Contents of other files, whose names are known.
    pub(super) others: RunMap<()>,
}

impl Logged {
    /// Reads the logs of all trees. `None` if a node was unreadable.
    pub(super) fn read(rules: &Rules, trees: &mut Trees<'_>) -> Found<Self> {
        let mut logged = Logged::default();
        let Some(root) = trees.superblock.log_root else { return Ok(Some(logged)) };
        let (mut logs, mut understood) = (Vec::new(), true);
        let (from, to) = (Key::new(OBJECT_LOG, TYPE_ROOT_ITEM, 0), Key::new(OBJECT_LOG, TYPE_ROOT_ITEM, u64::MAX));
        let whole = trees.walk(root, from, to, &mut |key, item| match Root::of_item(item) {
            Some(root) if is_tree_of_files(key.offset) => logs.push((key.offset, root)),
            _ => understood = false,
        })?;
        if !whole || !understood {
            return Ok(None);
        }
        for (tree, root) in logs {
            let Some(log) = Log::read(root, trees)? else { return Ok(None) };
            let Some(committed) = trees.root_of(tree)? else { return Ok(None) };
            if !log.decide(rules, (tree, committed), &mut logged, trees)? {
                return Ok(None);
            }
        }
        Ok(Some(logged))
    }
}

/// The log of one tree, by inode.
#[derive(Default)]
struct Log {
    inodes: BTreeSet<u64>,
    names: HashMap<u64, Vec<Name>>,
    extents: BTreeMap<u64, Vec<Extent>>,
    entries: usize,
}

impl Log {
    fn read(root: Root, trees: &mut Trees<'_>) -> Found<Self> {
        let mut log = Log::default();
        let from = Key::new(ROOT_FOLDER, 0, 0);
        let whole = trees.walk(root, from, KEY_LAST, &mut |key, item| log.add(key, item))?;
        Ok(Some(log).filter(|log| whole && log.entries <= ENTRIES_MAX))
    }

    fn add(&mut self, key: Key, item: &[u8]) {
        if !OWN.contains(&key.object) || self.entries > ENTRIES_MAX {
            return;
        }
        let names = match key.kind {
            TYPE_INODE_ITEM => Vec::new(),
            TYPE_INODE_REF | TYPE_INODE_EXTREF => {
                names_in(key, item).into_iter().map(|name| (key.object, name)).collect()
            }
            TYPE_DIR_ITEM | TYPE_DIR_INDEX => entries_in(key.object, item),
            TYPE_EXTENT_DATA => {
                let extents = self.extents.entry(key.object).or_default();
                extents.extend(Extent::of(key, item));
                Vec::new()
            }
            _ => return,
        };
        self.entries += 1 + names.len();
        self.inodes.insert(key.object);
        for (inode, name) in names {
            self.inodes.insert(inode);
            self.names.entry(inode).or_default().push(name);
        }
    }

    /// Decides about the logged files, whose other names and contents are in the last commit. Returns false if a node
    /// was unreadable.
    fn decide(
        &self,
        rules: &Rules,
        (tree, root): (u64, Root),
        logged: &mut Logged,
        trees: &mut Trees<'_>,
    ) -> Result<bool, StoreError> {
        let newer: HashMap<Folder, Vec<Name>> =
            self.names.iter().map(|(&inode, names)| ((tree, inode), names.clone())).collect();
        // The log may rename a folder or not, so both paths count.
        let mut both_paths = [Paths::with_newer(newer), Paths::default()];
        for &inode in &self.inodes {
            let Some(committed) = names_of(inode, root, trees)? else { return Ok(false) };
            let Some(before) = extents(inode, root, trees)? else { return Ok(false) };
            let names: Vec<Name> = self.names.get(&inode).into_iter().flatten().cloned().chain(committed).collect();
            let (mut is_kept, mut is_known) = (false, !names.is_empty());
            for paths in &mut both_paths {
                for name in names.chunks(1) {
                    let Some(found) = treatment(rules, (tree, root), name, paths, trees)? else { return Ok(false) };
                    is_kept |= found == Some(Treatment::Keep);
                }
            }
            is_known &= !std::mem::take(&mut both_paths[0].hangs);
            let contents = match (is_kept, is_known) {
                (true, _) => &mut logged.kept,
                (false, true) => &mut logged.others,
                (false, false) => continue,
            };
            let after = self.extents.get(&inode).into_iter().flatten();
            before.iter().chain(after).for_each(|extent| contents.set(extent.first, extent.end, ()));
        }
        Ok(true)
    }
}

/// The names in an item of a folder, with the inodes that they name. Subvolumes have logs of their own.
fn entries_in(folder: u64, item: &[u8]) -> Vec<(u64, Name)> {
    let (mut entries, mut rest) = (Vec::new(), item);
    while let Some((head, later)) = rest.split_at_checked(ENTRY_HEAD_BYTES) {
        let len = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let (data_len, name_len) = (len(KEY_BYTES + 8), len(KEY_BYTES + 10));
        let Some((name, later)) = later.split_at_checked(name_len) else { break };
        let Some((_, later)) = later.split_at_checked(data_len) else { break };
        let place = Key::at(head, 0);
        if place.kind == TYPE_INODE_ITEM && OWN.contains(&place.object) {
            entries.push((place.object, (folder, name.to_vec())));
        }
        rest = later;
    }
    entries
}
