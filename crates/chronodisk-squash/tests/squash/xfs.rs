//! File systems made by xfsprogs, replayed into a squashing store in varied orders. xfsprogs read all metadata back,
//! and the data are dropped.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use chronodisk_squash::{Class, ContentKind, NameRule, SquashOptions, Treatment};
use chronodisk_store::Store;

use super::export::export;
use super::image::is_fine;
use super::replay::{Order, is_kept_whole, pieces_of, replay, replay_with};
use super::xfs_image::{self, CAPACITY_BYTES};
use super::xfsprogs::{compare_files, tool, xfsprogs_are_here};

const LAYOUTS: [(&str, &[&str]); 3] = [
    ("default", &[]),
    ("rmap", &["-m", "rmapbt=1,reflink=1,bigtime=1,inobtcount=1"]),
    ("sectors-of-4k", &["-s", "size=4096", "-m", "finobt=0", "-i", "size=2048"]),
];

#[test]
fn metadata_survive_whatever_the_order() {
    if !xfsprogs_are_here() {
        return;
    }
    for (index, (name, options)) in LAYOUTS.iter().enumerate() {
        let image = xfs_image::make(options);
        let pieces = pieces_of(&image.path);
        for order in Order::of_layout(index) {
            let mut store = replay(pieces.clone(), CAPACITY_BYTES, *order, index as u64);
            let statistics = store.squash_statistics();
            let squashed = image.path.with_extension("squashed");
            export(&mut store, &squashed);
            compare_files(&image.path, &squashed, &format!("{name} {order:?}"));
            assert!(statistics.generated_bytes > image.data_bytes * 9 / 10, "{name} {order:?}: {statistics:?}");
            println!("{name} {order:?}: {statistics:?}");
        }
    }
}

/// The bytes of an image at the extents of a file, according to xfs_db.
fn contents(image: &Path, file: &str) -> Vec<u8> {
    // xfs_db numbers blocks as `fsblock`; the second command turns each number into the device's sectors.
    let ask = |commands: &[&str]| {
        let flags: Vec<&str> = commands.iter().flat_map(|command| ["-c", command]).collect();
        let asked = tool("xfs_db", &[&["-r"], &flags[..], &[image.to_str().unwrap()]].concat());
        assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
        String::from_utf8(asked.stdout).unwrap()
    };
    let map = ask(&[&format!("path {file}"), "bmap"]);
    let mut bytes = Vec::new();
    for extent in map.lines().filter(|line| line.starts_with("data offset")) {
        let words: Vec<&str> = extent.split_whitespace().collect();
        let word_after = |name: &str| words[words.iter().position(|word| *word == name).unwrap() + 1];
        let sector = ask(&[&format!("convert fsblock {} daddr", word_after("startblock"))]);
        let sector = sector.trim().trim_end_matches(')').rsplit('(').next().unwrap().parse::<u64>().unwrap();
        let mut part = vec![0; word_after("count").parse::<usize>().unwrap() * 4096];
        File::open(image).unwrap().read_exact_at(&mut part, sector * 512).unwrap();
        bytes.extend(part);
    }
    assert!(!bytes.is_empty(), "{file}: {map}");
    bytes
}

#[test]
fn files_are_kept_by_their_names() {
    if !xfsprogs_are_here() {
        return;
    }
    let names = ["*-number-7", "/folder1/*-number-1?"].map(|names| names.parse().unwrap());
    let names = names.map(|names| NameRule { names, treatment: Treatment::Keep }).into();
    let options = SquashOptions { content: ContentKind::Random, names, ..SquashOptions::default() };
    for (index, (name, layout)) in LAYOUTS.iter().enumerate() {
        let image = xfs_image::make(layout);
        let pieces = pieces_of(&image.path);
        for order in Order::of_layout(index) {
            let what = format!("{name} {order:?}");
            let mut store = replay_with(&options, pieces.clone(), CAPACITY_BYTES, *order, index as u64);
            store.close().unwrap();
            let statistics = store.squash_statistics();
            let squashed = image.path.with_extension("squashed");
            export(&mut store, &squashed);
            compare_files(&image.path, &squashed, &what);
            let is_kept = |file: &str| {
                let file = file.replace('#', "a-rather-long-name-of-a-file-number-");
                contents(&image.path, &file) == contents(&squashed, &file)
            };
            for file in ["/folder0/#7", "/folder1/#7", "/folder2/#7", "/folder1/#10", "/folder1/#19"] {
                assert!(is_kept(file), "{what}: {file}");
            }
            for file in ["/folder0/#17", "/folder1/#2", "/folder1/#100", "/folder2/#10"] {
                assert!(!is_kept(file), "{what}: {file}");
            }
            let raw = statistics.kept_bytes.iter().find(|(class, _)| *class == Class::Raw).map_or(0, |kept| kept.1);
            assert_eq!(raw, 13 * 40_960, "{what}: {statistics:?}");
            assert!(statistics.generated_bytes > image.data_bytes * 9 / 10, "{what}: {statistics:?}");
            assert_eq!(statistics.late_bytes, 0, "{what}");
        }
    }
}

#[test]
fn squashed_files_have_the_kind_that_their_names_say() {
    if !xfsprogs_are_here() {
        return;
    }
    let names = ["*-number-7=gzip", "/folder1/*-number-1?=pdf", "*-number-2=text"].map(|rule| rule.parse().unwrap());
    let kept = NameRule { names: "*-number-17".parse().unwrap(), treatment: Treatment::Keep };
    for (index, (name, layout)) in LAYOUTS.iter().enumerate() {
        let image = xfs_image::make(layout);
        let pieces = pieces_of(&image.path);
        for order in Order::of_layout(index) {
            // Contents are dropped when they are written, or, with a rule that keeps files, wait for names.
            for also_kept in [false, true] {
                let what = format!("{name} {order:?} {also_kept}");
                let names = also_kept.then(|| kept.clone()).into_iter().chain(names.clone()).collect();
                let options = SquashOptions { content: ContentKind::Random, names, ..SquashOptions::default() };
                let mut store = replay_with(&options, pieces.clone(), CAPACITY_BYTES, *order, index as u64);
                store.close().unwrap();
                let squashed = image.path.with_extension("squashed");
                export(&mut store, &squashed);
                compare_files(&image.path, &squashed, &what);
                let contents = |file: &str| {
                    let file = file.replace('#', "a-rather-long-name-of-a-file-number-");
                    contents(&squashed, &file)[..40_000].to_vec()
                };
                let said = squashed.with_extension("file");
                for folder in 0..3 {
                    is_fine("gzip", &["-t", "-S", ".file"], &contents(&format!("/folder{folder}/#7")), &said, &what);
                    let text = contents(&format!("/folder{folder}/#2"));
                    assert!(text.is_ascii(), "{what}");
                }
                is_fine("qpdf", &["--check"], &contents("/folder1/#13"), &said, &what);
                assert!(!contents("/folder2/#13").is_ascii(), "{what}");
                assert_eq!(store.squash_statistics().late_bytes, 0, "{what}");
            }
        }
    }
}

#[test]
fn what_is_not_understood_is_kept_whole() {
    if !xfsprogs_are_here() {
        return;
    }
    for (reason, options) in [
        ("without checksums", ["-m", "crc=0"]),
        ("blocks of several blocks", ["-n", "size=16384"]),
        ("blocks of several blocks", ["-b", "size=1024"]),
        ("more than 4 KiB", ["-b", "size=16384"]),
    ] {
        let image = xfs_image::make(&options);
        is_kept_whole(pieces_of(&image.path), CAPACITY_BYTES, reason);
    }
}
