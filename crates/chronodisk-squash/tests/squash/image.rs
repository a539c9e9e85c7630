//! Images of file systems that their own tools make.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use super::export::image_folder;

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
        let folder = image_folder();
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

/// A program that reads files of some kind, if it is here, has nothing to say against a file with these contents.
pub fn is_fine(program: &str, arguments: &[&str], contents: &[u8], file: &Path, what: &str) {
    fs::write(file, contents).unwrap();
    let Ok(ran) = Command::new(program).args(arguments).arg(file).output() else {
        println!("SKIPPED: no {program} in PATH");
        return;
    };
    let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
    assert!(ran.status.success() && !said.contains("WARNING"), "{what}: {said}");
}
