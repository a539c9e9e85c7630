//! The executable of the cells: results of different ones are not compared.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::SweepError;
use crate::cell::digest_of_file;

/// The executable with which a sweep began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Executable {
    /// Digest of its bytes, which results name.
    pub(crate) digest: String,
    /// Path of the executable.
    path: PathBuf,
    state: State,
}

/// Distinguishes files, and versions of one file, without reading them. Files on two hosts have equal states only if
/// one host's disk is a copy of the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct State {
    device: u64,
    inode: u64,
    len_bytes: u64,
    modified_ns: (i64, i64),
    changed_ns: (i64, i64),
}

impl State {
    fn of(path: &Path) -> Result<Self, SweepError> {
        let metadata = fs::metadata(path).map_err(|error| SweepError::io("read", path, &error))?;
        Ok(State {
            device: metadata.dev(),
            inode: metadata.ino(),
            len_bytes: metadata.len(),
            modified_ns: (metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl Executable {
    /// Reads it, once in a process: the digest takes longer than many a cell.
    pub(crate) fn of(path: &Path) -> Result<Self, SweepError> {
        static SEEN: Mutex<BTreeMap<(PathBuf, State), String>> = Mutex::new(BTreeMap::new());
        let state = State::of(path)?;
        let key = (path.to_owned(), state);
        let seen = SEEN.lock().ok().and_then(|seen| seen.get(&key).cloned());
        let digest = match seen {
            Some(digest) => digest,
            None => {
                let digest = digest_of_file(path)?;
                if let Ok(mut seen) = SEEN.lock() {
                    seen.insert(key, digest.clone());
                }
                digest
            }
        };
        Ok(Executable { digest, path: path.to_owned(), state })
    }

    /// Checks that the executable at `path` on this host is the same. If it is the same file, a worker need not read
    /// it.
    ///
    /// # Errors
    /// If it differs, or can't be read.
    pub(crate) fn expect(&self, path: &Path) -> Result<(), SweepError> {
        let is_same_file = path == self.path && State::of(path)? == self.state;
        if is_same_file || Executable::of(path)?.digest == self.digest {
            return Ok(());
        }
        let shown = path.display();
        Err(SweepError::Usage(format!("{shown} is not the chronodisk that the sweep was begun with"))
            .help("install the same build of chronodisk on all workers"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_the_same_and_a_changed_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let [one, copy] = ["one", "copy"].map(|name| folder.path().join(name));
        fs::write(&one, "first").unwrap();
        fs::write(&copy, "first").unwrap();
        let begun = Executable::of(&one).unwrap();
        begun.expect(&one).unwrap();
        begun.expect(&copy).unwrap();
        // Another length: the clock of a file system may not tell two writes apart.
        fs::write(&one, "another").unwrap();
        let error = begun.expect(&one).unwrap_err().to_string();
        assert!(error.contains("is not the chronodisk that the sweep was begun with"), "{error}");
        begun.expect(&copy).unwrap();
        assert!(begun.expect(&folder.path().join("none")).is_err());
    }
}
