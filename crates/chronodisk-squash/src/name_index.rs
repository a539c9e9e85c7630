//! Treatment of files by their names, common to all file systems with names.
//!
//! **Common** are the [rules](Rules): a path has a treatment. **Common to ext2 to ext4 and XFS**, whose directories map
//! names to inodes, is the [index](NameIndex) of folders. It learns that a folder has a name, and returns the treatment
//! of a name in a folder.
//!
//! **Different** per file system: btrfs needs no index, because each inode has its names and folders, and trees of
//! older states stay readable. The lifetime of a treatment differs: ext4 remembers only matching files, with the
//! inode's generation. XFS, where contents wait for a name, remembers all files with one, and whether the name or the
//! inode came last. btrfs uses the tree of free space.

use std::collections::HashMap;
use std::sync::Arc;

use super::names::{NameRule, PATH_MAX_BYTES, Treatment};

/// Rules that assign treatments to names.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    rules: Arc<[NameRule]>,
    by_path: bool,
}

impl Rules {
    /// `None` if no rule applies to names.
    pub(crate) fn new(rules: &Arc<[NameRule]>) -> Option<Self> {
        let by_path = rules.iter().any(|rule| rule.names.is_by_path());
        (!rules.is_empty()).then(|| Rules { rules: Arc::clone(rules), by_path })
    }

    /// Whether a rule keeps files.
    pub(crate) fn keep_some(&self) -> bool {
        self.rules.iter().any(|rule| rule.treatment == Treatment::Keep)
    }

    /// Whether a rule contains paths, so that folders must be known.
    pub(crate) fn are_by_path(&self) -> bool {
        self.by_path
    }

    /// The treatment of the first rule that matches the path, or, if no rule contains paths, the name.
    pub(crate) fn treatment_of(&self, path: &[u8]) -> Option<Treatment> {
        self.rules.iter().find(|rule| rule.names.matches(path)).map(|rule| rule.treatment)
    }
}

/// An inode's number, and a name.
pub(crate) type Link = (u64, Box<[u8]>);

/// Paths of folders, by the numbers of their inodes.
#[derive(Debug)]
pub(crate) struct NameIndex {
    pub(crate) rules: Rules,
    root: u64,
    /// The parent of each folder, and its name there; only if some rule is of paths.
    parents: HashMap<u64, Link>,
}

/// A folder whose path is known.
#[derive(Debug)]
pub(crate) struct Folder<'a> {
    rules: &'a Rules,
    path: Vec<u8>,
    /// The path is the folder's up to here.
    len: usize,
}

impl NameIndex {
    pub(crate) fn new(rules: Rules, root: u64) -> Self {
        NameIndex { rules, root, parents: HashMap::new() }
    }

    /// A folder has this name in another one. True if it had not.
    pub(crate) fn folder_named(&mut self, folder: u64, parent: u64, name: &[u8]) -> bool {
        let link = (parent, name.into());
        self.parents.insert(folder, link).is_none_or(|old| old.0 != parent || *old.1 != *name)
    }

    /// A folder, if its path is known or no rule asks for it.
    pub(crate) fn folder(&self, folder: u64) -> Option<Folder<'_>> {
        let path = if self.rules.are_by_path() { self.path_of(folder)? } else { Vec::new() };
        Some(Folder { rules: &self.rules, len: path.len(), path })
    }

    /// A folder's path from the root, with a slash at its end unless it is the root; `None` if an ancestor is unknown.
    pub(crate) fn path_of(&self, folder: u64) -> Option<Vec<u8>> {
        let (mut parts, mut len, mut at) = (Vec::new(), 0, folder);
        while at != self.root {
            let (parent, name) = self.parents.get(&at)?;
            len += name.len() + 1;
            if len > PATH_MAX_BYTES {
                return None;
            }
            parts.push(name);
            at = *parent;
        }
        let mut path = Vec::with_capacity(len);
        for name in parts.into_iter().rev() {
            path.extend_from_slice(name);
            path.push(b'/');
        }
        Some(path)
    }

    /// Forgets all folders before they are read again.
    pub(crate) fn clear(&mut self) {
        self.parents.clear();
    }

    /// Memory that it takes, in bytes, without names that are longer than a pointer.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.parents.capacity() * (size_of::<(u64, Link)>() + 1)) as u64
    }

    /// Entries that are held in memory.
    pub(crate) fn entries(&self) -> usize {
        self.parents.len()
    }
}

impl Folder<'_> {
    /// Treatment of a file with this name in the folder.
    pub(crate) fn treatment_of(&mut self, name: &[u8]) -> Option<Treatment> {
        self.path.truncate(self.len);
        self.path.extend_from_slice(name);
        self.rules.treatment_of(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_a_path_if_it_hangs_on_the_root() {
        let rules = [NameRule { names: "/a/**".parse().unwrap(), treatment: Treatment::Keep }].into();
        let mut index = NameIndex::new(Rules::new(&rules).unwrap(), 2);
        for (folder, parent, name) in [(5, 2, "home"), (6, 5, "me"), (8, 9, "a"), (9, 8, "b")] {
            assert!(index.folder_named(folder, parent, name.as_bytes()));
        }
        assert!(!index.folder_named(6, 5, b"me"), "it is there");
        assert_eq!(index.path_of(2), Some(Vec::new()));
        assert_eq!(index.path_of(6), Some(b"home/me/".to_vec()));
        assert_eq!((index.path_of(7), index.path_of(8)), (None, None), "unknown, and in a circle");
        assert!(index.folder(8).is_none());
        assert!(index.folder_named(6, 2, b"a"), "it moved");
        let mut folder = index.folder(6).unwrap();
        assert_eq!([folder.treatment_of(b"file"), folder.treatment_of(b"other")], [Some(Treatment::Keep); 2]);
    }
}
