//! Images of file systems that their own tools make.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Output;

use tempfile::TempDir;

/// An image of a file system with files in it, in a folder that goes away with it.
pub struct Image {
    _folder: TempDir,
    pub path: PathBuf,
    pub capacity_bytes: u64,
    /// Bytes of contents of files that lie in blocks of their own, about.
    pub data_bytes: u64,
}

impl Image {
    /// An image on which `fill` makes a file system, given a folder for what it needs and the image, which is there and
    /// empty; it returns the bytes of contents.
    pub fn make(capacity_bytes: u64, fill: impl FnOnce(&Path, &Path) -> u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        File::create(&path).unwrap().set_len(capacity_bytes).unwrap();
        let data_bytes = fill(folder.path(), &path);
        Image { _folder: folder, path, capacity_bytes, data_bytes }
    }
}

/// The tool did what it was asked to.
pub fn succeeded(ran: &Output) {
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
