//! File systems made by f2fs-tools, replayed into a squashing store in varied orders. All blocks but contents of files
//! are kept, and f2fs-tools confirm it.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use chronodisk_squash::{ContentKind, SquashOptions, SquashStore};
use chronodisk_store::Store;

use super::export::export;
use super::f2fs_tools::{f2fs_tools_are_here, tool, verdict};
use super::image::{Image, succeeded};
use super::replay::{Order, PIECE_BYTES, is_kept_whole, pieces_of, replay};

const CAPACITY_BYTES: u64 = 96 << 20;

/// An unused block.
const FREE_BYTES: u64 = 88 << 20;

const LAYOUTS: [(&str, &[&str]); 3] = [
    ("default", &[]),
    ("checksums-and-quota", &["-O", "extra_attr,inode_checksum,inode_crtime,sb_checksum,quota"]),
    ("large-bitmap", &["-i"]),
];

/// Bytes without any resemblance to metadata in any block.
fn contents(len: u32) -> Vec<u8> {
    (0..len).map(|i| 0x80 | (i / 4096 * 31 + i * 7 % 127) as u8).collect()
}

fn are_contents(unit: &[u8]) -> bool {
    let len = unit.iter().position(|&byte| byte < 0x80).unwrap_or(unit.len());
    len > 0 && unit[len..].iter().all(|&byte| byte == 0)
}

/// A file system that holds files.
fn make(options: &[&str]) -> Image {
    Image::make(CAPACITY_BYTES, |folder, path| {
        succeeded(&tool("mkfs.f2fs", &[&["-q", "-f"], options, &[path.to_str().unwrap()]].concat()));
        let source = folder.join("source");
        let mut data_bytes = 0;
        for (folder, files) in [("few", 20), ("many", 400)] {
            let folder = source.join(folder);
            fs::create_dir_all(&folder).unwrap();
            for index in 0..files {
                fs::write(folder.join(format!("a-rather-long-name-of-a-file-number-{index}")), contents(20_000))
                    .unwrap();
                data_bytes += 20_480;
            }
        }
        // Too long for the addresses in its inode and in its two direct nodes.
        fs::write(source.join("long"), contents(14 << 20)).unwrap();
        symlink("x/".repeat(1900), source.join("link")).unwrap();
        succeeded(&tool("sload.f2fs", &["-f", source.to_str().unwrap(), path.to_str().unwrap()]));
        data_bytes + (14 << 20)
    })
}

/// Two images differ in contents of files only, and fsck.f2fs gives the same output for both. Returns the number of
/// differing bytes.
fn compare(full: &Path, squashed: &Path, what: &str) -> u64 {
    let (full_file, squashed_file) = (File::open(full).unwrap(), File::open(squashed).unwrap());
    let (mut unit, mut other) = ([0; PIECE_BYTES], [0; PIECE_BYTES]);
    let mut squashed_bytes = 0;
    for at in (0..CAPACITY_BYTES).step_by(PIECE_BYTES) {
        full_file.read_exact_at(&mut unit, at).unwrap();
        squashed_file.read_exact_at(&mut other, at).unwrap();
        if unit != other {
            assert!(are_contents(&unit), "{what}: the block at {at} is not as it was");
            squashed_bytes += PIECE_BYTES as u64;
        }
    }
    let verdicts = (verdict(full), verdict(squashed));
    assert_eq!(verdicts.0, verdicts.1, "{what}");
    assert!(verdicts.0.1.contains("a-rather-long-name-of-a-file-number-399"), "{what}: {}", verdicts.0.1);
    squashed_bytes
}

#[test]
fn metadata_survive_whatever_the_order() {
    if !f2fs_tools_are_here() {
        return;
    }
    for (index, (name, options)) in LAYOUTS.iter().enumerate() {
        let image = make(options);
        let pieces = pieces_of(&image.path);
        for order in Order::of_layout(index) {
            let what = format!("{name} {order:?}");
            let mut store = replay(pieces.clone(), CAPACITY_BYTES, *order, index as u64);
            assert!(store.notices().is_empty(), "{what}: {:?}", store.notices());
            let squashed = image.path.with_extension("squashed");
            export(&mut store, &squashed);
            let squashed_bytes = compare(&image.path, &squashed, &what);
            assert!(squashed_bytes >= image.data_bytes, "{what}: {:?}", store.squash_statistics());
            // A node that no checkpoint names, in a free block.
            let mut node = vec![0; PIECE_BYTES];
            node[4072..4080].copy_from_slice(&[9, 0, 0, 0, 9, 0, 0, 0]);
            store.write(FREE_BYTES, &node).unwrap();
            store.flush().unwrap();
            let read = |store: &mut SquashStore| {
                let mut read = vec![0; PIECE_BYTES];
                store.read(FREE_BYTES, &mut read).unwrap();
                read
            };
            assert!(read(&mut store) == node, "{what}");
            store.close().unwrap();
            assert!(read(&mut store) != node, "{what}: free nodes take no space");
            store.discard(FREE_BYTES, PIECE_BYTES as u64).unwrap();
            export(&mut store, &squashed);
            assert_eq!(compare(&image.path, &squashed, &what), squashed_bytes, "{what}: nothing more was contents");
        }
    }
}

#[test]
fn an_image_that_is_opened_again_is_followed_on() {
    if !f2fs_tools_are_here() {
        return;
    }
    let image = make(&[]);
    let path = image.path.with_extension("store");
    let options = SquashOptions { content: ContentKind::Random, ..SquashOptions::default() };
    let mut pieces = pieces_of(&image.path);
    let later = pieces.split_off(pieces.len() / 2);
    for pieces in [pieces, later] {
        let mut store = match path.exists() {
            true => SquashStore::open(&path, CAPACITY_BYTES, &options).unwrap(),
            false => SquashStore::create(&path, CAPACITY_BYTES, &options).unwrap(),
        };
        pieces.iter().for_each(|(offset_bytes, bytes)| store.write(*offset_bytes, bytes).unwrap());
        store.close().unwrap();
    }
    let mut store = SquashStore::open(&path, CAPACITY_BYTES, &options).unwrap();
    let squashed = image.path.with_extension("squashed");
    export(&mut store, &squashed);
    assert!(compare(&image.path, &squashed, "opened again") >= image.data_bytes);
}

#[test]
fn what_is_not_understood_is_kept_whole() {
    if !f2fs_tools_are_here() {
        return;
    }
    for (reason, options) in [
        ("features that are not known", &["-O", "encrypt"][..]),
        ("features that are not known", &["-O", "extra_attr,verity"]),
        ("features that are not known", &["-O", "extra_attr,compression"]),
    ] {
        let image = make(options);
        is_kept_whole(pieces_of(&image.path), CAPACITY_BYTES, reason);
    }
}
