//! File systems that e2fsprogs make.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use super::e2fsprogs::tool;
use super::image::{Image, succeeded};

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
