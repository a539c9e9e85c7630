//! File systems that xfsprogs make.

use std::fs;
use std::path::Path;

use super::image::{Image, succeeded};
use super::xfsprogs::tool;

/// The least that mkfs.xfs makes.
pub const CAPACITY_BYTES: u64 = 300 << 20;

/// A file system with files in it.
pub fn make(options: &[&str]) -> Image {
    Image::make(CAPACITY_BYTES, |folder, path| fill(options, folder, path))
}

fn fill(options: &[&str], folder: &Path, path: &Path) -> u64 {
    let (prototype, source) = (folder.join("prototype"), folder.join("source"));
    // Unlike any metadata.
    let data: Vec<u8> = (0..40_000u32).map(|i| 0x80 | (i / 4096 * 31 + i * 7 % 127) as u8).collect();
    fs::write(&source, &data).unwrap();
    let source = source.display();
    let mut tree = String::from("/no/boot/block\n0 0\nd--755 0 0\n");
    let mut files = 0;
    for folder in 0..3 {
        tree += &format!("folder{folder} d--755 0 0\n");
        // A directory of one block, and larger ones with leaves and free lists.
        for index in 0..if folder == 0 { 20 } else { 400 } {
            tree += &format!("a-rather-long-name-of-a-file-number-{index} ---644 0 0 {source}\n");
            files += 1;
        }
        tree += "$\n";
    }
    // Short enough to lie in their inodes: mkfs.xfs 6.1 writes others without the header that the kernel wants.
    for index in 0..20 {
        tree += &format!("link{index} l--777 0 0 {}\n", "x/".repeat(index + 1));
    }
    tree += "$\n";
    fs::write(&prototype, tree).unwrap();
    let (prototype, text) = (prototype.to_str().unwrap(), path.to_str().unwrap());
    let made = tool("mkfs.xfs", &[&["-q", "-f", "-p", prototype], options, &[text]].concat());
    succeeded(&made);
    files * data.len() as u64
}
