//! File systems made by e2fsprogs, replayed into a squashing store in varied orders: all metadata are there,
//! as e2fsprogs read them, and the data are not.

use super::e2fsprogs::tool;
use super::e2fsprogs::{compare_files, e2fsprogs_are_here};
use super::export::export;
use super::ext4_image::Image;
use super::replay::{Order, is_kept_whole, pieces_of, replay, replay_with};
use chronodisk_store::Store;
use chronodisk_store::squash::{Class, ContentKind, NameRule, SquashOptions, Treatment};
use std::path::Path;

/// Layouts that differ in where metadata are and how they are found: options of mke2fs.
const LAYOUTS: [(&str, &[&str]); 9] = [
    ("ext4", &["-t", "ext4"]),
    ("ext3", &["-t", "ext3"]),
    ("ext2", &["-t", "ext2"]),
    ("1k", &["-t", "ext4", "-b", "1024"]),
    ("1k-ext2", &["-t", "ext2", "-b", "1024"]),
    ("meta-bg", &["-t", "ext4", "-O", "meta_bg,^resize_inode"]),
    ("quota", &["-t", "ext4", "-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"]),
    ("ea-inode", &["-t", "ext4", "-O", "ea_inode,large_dir,inline_data,mmp"]),
    ("no-journal", &["-t", "ext4", "-O", "^has_journal,sparse_super2,^resize_inode"]),
];

#[test]
fn metadata_survive_whatever_the_order() {
    if !e2fsprogs_are_here() {
        return;
    }
    for (index, (name, options)) in LAYOUTS.iter().enumerate() {
        let image = Image::make(options, 24 << 20);
        let order = Order::ALL[index % Order::ALL.len()];
        for order in if index == 0 { &Order::ALL[..] } else { std::slice::from_ref(&order) } {
            let mut store = replay(pieces_of(&image.path), image.capacity_bytes, *order, index as u64);
            let statistics = store.squash_statistics();
            let squashed = image.path.with_extension("squashed");
            export(&mut store, &squashed);
            compare_files(&image.path, &squashed, &format!("{name} {order:?}"));
            assert!(statistics.generated_bytes > image.data_bytes / 2, "{name} {order:?}: {statistics:?}");
            println!("{name} {order:?}: {statistics:?}");
        }
    }
}

/// A file's contents, as debugfs reads them.
fn contents(image: &Path, file: &str) -> Vec<u8> {
    let ran = tool("debugfs", &["-R", &format!("cat {file}"), image.to_str().unwrap()]);
    assert!(!ran.stdout.is_empty(), "{file}: {}", String::from_utf8_lossy(&ran.stderr));
    ran.stdout
}

#[test]
fn files_are_kept_by_their_names() {
    if !e2fsprogs_are_here() {
        return;
    }
    let names = ["bigger", "/many/*-number-2?"].map(|names| names.parse().unwrap());
    let names = names.map(|names| NameRule { names, treatment: Treatment::Keep }).into();
    let options = SquashOptions { content: ContentKind::Random, names, ..SquashOptions::default() };
    for (index, (name, layout)) in LAYOUTS.iter().enumerate() {
        let image = Image::make(layout, 24 << 20);
        let order = Order::ALL[index % Order::ALL.len()];
        let mut store = replay_with(&options, pieces_of(&image.path), image.capacity_bytes, order, index as u64);
        store.close().unwrap();
        let statistics = store.squash_statistics();
        if *name == "ea-inode" {
            let notices = store.notices();
            assert!(notices.iter().any(|notice| notice.contains("inline_data")), "{notices:?}");
            assert_eq!(statistics.generated_bytes, 0);
            continue;
        }
        let squashed = image.path.with_extension("squashed");
        export(&mut store, &squashed);
        compare_files(&image.path, &squashed, &format!("{name} {order:?}"));
        let is_kept = |file: &str| contents(&image.path, file) == contents(&squashed, file);
        assert!(is_kept("/bigger"), "{name} {order:?}");
        assert!(is_kept("/many/a-rather-long-name-of-a-file-number-27"), "{name} {order:?}");
        assert!(!is_kept("/many/a-rather-long-name-of-a-file-number-127"), "{name} {order:?}");
        assert!(!is_kept("/holes"), "{name} {order:?}");
        assert_eq!(statistics.late_bytes, 0, "{name} {order:?}");
        let raw = statistics.kept_bytes.iter().find(|(class, _)| *class == Class::Raw).map_or(0, |kept| kept.1);
        assert!((6_000_000..7_000_000).contains(&raw), "{name} {order:?}: {statistics:?}");
        assert!(statistics.generated_bytes > image.data_bytes / 4, "{name} {order:?}: {statistics:?}");
    }
}

#[test]
fn what_is_not_understood_is_kept_whole() {
    if !e2fsprogs_are_here() {
        return;
    }
    for (reason, options) in
        [("bigalloc", ["-t", "ext4", "-O", "bigalloc"]), ("encryption", ["-t", "ext4", "-O", "encrypt"])]
    {
        let image = Image::make(&options, 24 << 20);
        is_kept_whole(pieces_of(&image.path), image.capacity_bytes, reason);
    }
}
