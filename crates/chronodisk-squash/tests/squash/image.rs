//! Images of file systems, made by the file systems' own tools.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use super::export::image_folder;

/// An image of a file system that holds files, in a folder that is deleted when it is dropped.
pub struct Image {
    _folder: TempDir,
    pub path: PathBuf,
    pub capacity_bytes: u64,
    /// Approximate bytes of file contents in blocks of their own.
    pub data_bytes: u64,
}

impl Image {
    /// Makes an image. `fill` makes a file system in it, given a scratch folder and the path of the empty image, and
    /// returns the bytes of file contents.
    pub fn make(capacity_bytes: u64, fill: impl FnOnce(&Path, &Path) -> u64) -> Self {
        let folder = image_folder();
        let path = folder.path().join("image");
        File::create(&path).unwrap().set_len(capacity_bytes).unwrap();
        let data_bytes = fill(folder.path(), &path);
        Image { _folder: folder, path, capacity_bytes, data_bytes }
    }
}

/// Asserts that a tool succeeded.
pub fn succeeded(ran: &Output) {
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Asserts that a program accepts these contents of a file, if the program is installed.
pub fn is_fine(program: &str, arguments: &[&str], contents: &[u8], file: &Path, what: &str) {
    fs::write(file, contents).unwrap();
    let Ok(ran) = Command::new(program).args(arguments).arg(file).output() else {
        println!("SKIPPED: no {program} in PATH");
        return;
    };
    let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
    assert!(ran.status.success() && !said.contains("WARNING"), "{what}: {said}");
}
