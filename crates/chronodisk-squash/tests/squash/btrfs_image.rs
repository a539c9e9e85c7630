//! File systems that btrfs-progs make.

use std::fs;
use std::path::Path;

use super::btrfsprogs::tool;
use super::image::{Image, succeeded};

/// Room for two copies of the metadata chunks of mkfs.btrfs, and for a second superblock.
pub const CAPACITY_BYTES: u64 = 192 << 20;

/// A file system with files in it, some within their inodes.
pub fn make(options: &[&str]) -> Image {
    Image::make(CAPACITY_BYTES, |folder, path| fill(options, folder, path))
}

fn fill(options: &[&str], folder: &Path, path: &Path) -> u64 {
    let tree = folder.join("tree");
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
    let (tree, text) = (tree.to_str().unwrap(), path.to_str().unwrap());
    let made = tool("mkfs.btrfs", &[&["-q", "-f", "--rootdir", tree], options, &[text]].concat());
    succeeded(&made);
    data_bytes
}
