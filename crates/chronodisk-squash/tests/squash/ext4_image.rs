//! File systems that e2fsprogs make.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use super::e2fsprogs::tool;
use super::image::{Image, succeeded};
use super::replay::{PIECE_BYTES, Pieces};

/// A file system with files of all kinds in it.
pub fn make(options: &[&str], capacity_bytes: u64) -> Image {
    Image::make(capacity_bytes, |folder, path| {
        let tree = folder.join("tree");
        let data_bytes = fill(&tree);
        let text = path.to_str().unwrap();
        let made = tool("mke2fs", &[&["-q", "-F", "-d", tree.to_str().unwrap()], options, &[text]].concat());
        succeeded(&made);
        // Trees that are deep, blocks that were freed, and attributes that mke2fs does not make.
        let script = folder.join("script");
        let attributes: String = (0..40).map(|i| format!("ea_set /many user.name{i} {}\n", "v".repeat(60))).collect();
        fs::write(&script, format!("{attributes}rm /big\nmkdir /later\nwrite {text}.tree /later/file\nquit\n"))
            .unwrap();
        fs::write(format!("{text}.tree"), vec![0xA7; 300_000]).unwrap();
        succeeded(&tool("debugfs", &["-w", "-f", script.to_str().unwrap(), text]));
        data_bytes
    })
}

/// A kernel's writes to an image from its mount to its unmount.
pub struct Mounted {
    /// The block device afterwards.
    pub path: PathBuf,
    /// The piece with the superblock while it is mounted.
    pub superblock: Vec<u8>,
    /// The other pieces that changed.
    pub pieces: Pieces,
}

/// A file is removed, and others are made in its blocks. A file's indirect block stays at its place with other
/// contents, and blocks that the older ones name become directories, nodes, and targets of links.
pub fn mounted(image: &Image) -> Mounted {
    let debug = |path: &Path, words: &[&str]| {
        succeeded(&tool("debugfs", &[&["-w"], words, &[path.to_str().unwrap()]].concat()));
    };
    let file = |name: &str, len_bytes: usize, byte: u8| {
        let path = image.path.with_extension(name);
        fs::write(&path, (0..len_bytes).map(|at| byte ^ (at / 4096 % 64) as u8).collect::<Vec<u8>>()).unwrap();
        format!("write {} /{name}\n", path.display())
    };
    let script = image.path.with_extension("script");
    fs::write(&script, file("old", 2_500_000, 0xA9)).unwrap();
    debug(&image.path, &["-f", script.to_str().unwrap()]);
    let before = fs::read(&image.path).unwrap();
    let block_bytes = 1024 << before[1024 + 0x18];
    // The first twelve blocks have their pointers in the inode.
    let (first, second) = (file("first", 13 * block_bytes, 0xAB), file("second", 2_500_000, 0xAD));
    let links: String = (0..60).map(|i| format!("symlink /new-link-{i} {}\n", "y/".repeat(40 + i * 7))).collect();
    let folders: String = (0..60).map(|i| format!("mkdir /folder-{i}\n")).collect();
    fs::write(&script, format!("rm /old\n{first}{folders}{links}rm /holes\n{second}")).unwrap();
    let path = image.path.with_extension("after");
    fs::copy(&image.path, &path).unwrap();
    debug(&path, &["-f", script.to_str().unwrap()]);
    let after = fs::read(&path).unwrap();
    debug(&path, &["-R", "set_super_value state 0"]);
    let superblock = fs::read(&path).unwrap()[..PIECE_BYTES].to_vec();
    fs::write(&path, &after).unwrap();
    let pairs = (0..).step_by(PIECE_BYTES).zip(before.chunks(PIECE_BYTES).zip(after.chunks(PIECE_BYTES)));
    let changed = pairs.skip(1).filter(|(_, (before, after))| before != after);
    Mounted { path, superblock, pieces: changed.map(|(at, (_, after))| (at, after.to_vec())).collect() }
}

/// A tree of files; returns how many bytes they have.
fn fill(tree: &Path) -> u64 {
    fs::create_dir(tree).unwrap();
    let mut data_bytes = 0;
    let mut file = |name: &str, len: usize| {
        // No metadata look like this, and no two blocks are the same.
        let bytes: Vec<u8> = (0..len).map(|i| 0x80 | (i / 4096 * 31 + i * 7 % 127) as u8).collect();
        fs::write(tree.join(name), bytes).unwrap();
        data_bytes += len as u64;
    };
    file("big", 3_000_000);
    file("bigger", 6_000_000);
    file("small", 100);
    fs::create_dir(tree.join("many")).unwrap();
    for index in 0..300 {
        let name = format!("many/a-rather-long-name-of-a-file-number-{index}");
        let mut bytes = vec![0x80 | index as u8; index % 40 * 150];
        bytes.extend_from_slice(&[0xFF; 7]);
        fs::write(tree.join(&name), &bytes).unwrap();
        data_bytes += bytes.len() as u64;
    }
    for index in 0..30 {
        symlink("x/".repeat(40 + index * 12), tree.join(format!("link-{index}"))).unwrap();
    }
    // Many extents, so that they need a tree.
    let holes = File::create(tree.join("holes")).unwrap();
    for index in 0..600 {
        holes.write_all_at(&[0x91; 4096], index * 3 * 4096).unwrap();
        data_bytes += 4096;
    }
    data_bytes
}
