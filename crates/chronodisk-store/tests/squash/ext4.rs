//! File systems made by e2fsprogs, replayed into a squashing store in varied orders: all metadata are there,
//! as e2fsprogs read them, and the data are not.

use super::e2fsprogs::{compare_files, e2fsprogs_are_here};
use super::export::export;
use super::ext4_image::Image;
use super::replay::{Order, is_kept_whole, pieces_of, replay};

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
