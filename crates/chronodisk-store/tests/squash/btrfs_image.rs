//! File systems that btrfs-progs make.

use std::fs::{self, File};
use std::path::PathBuf;

use tempfile::TempDir;

use super::btrfsprogs::tool;

/// Room for two copies of what mkfs.btrfs sets aside for nodes, and for a second superblock.
pub const CAPACITY_BYTES: u64 = 192 << 20;

/// A file system with files in it.
pub struct Image {
    _folder: TempDir,
    pub path: PathBuf,
    /// Bytes of contents of files that are not in their inodes.
    pub data_bytes: u64,
}

impl Image {
    pub fn make(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (path, tree) = (folder.path().join("image"), folder.path().join("tree"));
        let mut data_bytes = 0;
        for index in 0..3 {
            fs::create_dir_all(tree.join(format!("folder{index}"))).unwrap();
        }
        for index in 0..400usize {
            let len = match index {
                0 => 9_000_000,
                // From contents within inodes to some that fill many blocks.
                _ => index * index % 60_000,
            };
            // No metadata look like this, and no two blocks are the same.
            let bytes: Vec<u8> = (0..len).map(|i| 0x80 | (i / 4096 * 31 + i * 7 % 127 + index) as u8).collect();
            let name = format!("folder{}/a-rather-long-name-of-a-file-number-{index}", index % 3);
            fs::write(tree.join(name), bytes).unwrap();
            data_bytes += if len > 2048 { len as u64 } else { 0 };
        }
        for index in 0..20 {
            std::os::unix::fs::symlink("x/".repeat(index * 20 + 1), tree.join(format!("link{index}"))).unwrap();
        }
        File::create(&path).unwrap().set_len(CAPACITY_BYTES).unwrap();
        let (tree, text) = (tree.to_str().unwrap(), path.to_str().unwrap());
        let made = tool("mkfs.btrfs", &[&["-q", "-f", "--rootdir", tree], options, &[text]].concat());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Image { _folder: folder, path, data_bytes }
    }
}
