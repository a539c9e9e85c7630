//! Files that the guest wrote to its view of the host's tree. They are in the upper layer of an overlay, in the guest's
//! memory, and end with it.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::shared::spec::DroppedFiles;

/// The upper layer, without a path in the guest.
pub(crate) struct UpperLayer(OwnedFd);

impl UpperLayer {
    /// Opens it while it still has a path.
    pub(crate) fn open(path: &str) -> io::Result<Self> {
        Ok(UpperLayer(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// The files in it.
    pub(crate) fn files(&self) -> DroppedFiles {
        files_below(Path::new(&format!("/proc/self/fd/{}", self.0.as_raw_fd())))
    }
}

/// Regular files and symbolic links below a folder, in the order of their names. A character device is how an overlay
/// records that a file was removed.
fn files_below(root: &Path) -> DroppedFiles {
    let mut dropped = DroppedFiles::default();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let mut inside: Vec<(PathBuf, fs::FileType)> = fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_type().ok().map(|kind| (entry.path(), kind)))
            .collect();
        inside.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, _) in inside.iter().filter(|(_, kind)| !kind.is_dir() && !kind.is_char_device()) {
            dropped.count += 1;
            let path = Path::new("/").join(path.strip_prefix(root).unwrap_or(path)).to_string_lossy().into_owned();
            if dropped.first.as_ref().is_none_or(|first| path < *first) {
                dropped.first = Some(path);
            }
        }
        folders.extend(inside.into_iter().filter(|(_, kind)| kind.is_dir()).map(|(path, _)| path));
    }
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_and_the_first_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let upper = UpperLayer::open(folder.path().to_str().unwrap()).unwrap();
        assert_eq!(upper.files(), DroppedFiles::default());
        fs::create_dir_all(folder.path().join("x/empty")).unwrap();
        fs::create_dir_all(folder.path().join("home/me")).unwrap();
        for name in ["x/out.json", "home/me/b", "home/me/a"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        std::os::unix::fs::symlink("nowhere", folder.path().join("x/link")).unwrap();
        let first = Some("/home/me/a".to_owned());
        assert_eq!(upper.files(), DroppedFiles { count: 4, first });
    }
}
