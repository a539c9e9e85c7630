//! File systems made by e2fsprogs, replayed into a squashing store in varied orders: all metadata are there,
//! as e2fsprogs read them, and the data are not.

mod common;

use chronodisk_sim::RandomStream;
use chronodisk_store::Store;
use chronodisk_store::squash::{ContentKind, SquashOptions, SquashStore};
use common::e2fsprogs::{compare_files, e2fsprogs_are_here, export};
use common::ext4::Image;

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

#[derive(Clone, Copy, Debug)]
enum Order {
    Ascending,
    Descending,
    Shuffled,
    SuperblockLast,
}

fn replay(image: &Image, order: Order, seed: u64) -> SquashStore {
    let mut pieces = image.pieces();
    let mut random = RandomStream::new(seed, "squash", "order");
    match order {
        Order::Ascending => {}
        Order::Descending => pieces.reverse(),
        Order::Shuffled => {
            for index in (1..pieces.len()).rev() {
                pieces.swap(index, random.below(index as u64 + 1) as usize);
            }
        }
        Order::SuperblockLast => pieces.rotate_left(1),
    }
    let options = SquashOptions { content: ContentKind::Random, ..SquashOptions::default() };
    let mut store = SquashStore::in_memory(image.capacity_bytes, image.capacity_bytes, &options);
    for (index, (offset_bytes, bytes)) in pieces.iter().enumerate() {
        store.write(*offset_bytes, bytes).unwrap();
        // A flush now and then may settle what is known so far.
        if index % 400 == 399 {
            store.flush().unwrap();
        }
    }
    store.flush().unwrap();
    store
}

#[test]
fn metadata_survive_whatever_the_order() {
    if !e2fsprogs_are_here() {
        return;
    }
    for (index, (name, options)) in LAYOUTS.iter().enumerate() {
        let image = Image::make(options, 24 << 20);
        let orders = [Order::Ascending, Order::Descending, Order::Shuffled, Order::SuperblockLast];
        let order = orders[index % orders.len()];
        for order in if index == 0 { &orders[..] } else { std::slice::from_ref(&order) } {
            let mut store = replay(&image, *order, index as u64);
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
        let mut store = replay(&image, Order::Ascending, 1);
        assert!(store.notices().iter().any(|notice| notice.contains(reason)), "{:?}", store.notices());
        assert_eq!(store.squash_statistics().generated_bytes, 0);
        for (offset_bytes, bytes) in image.pieces() {
            let mut read = vec![0; bytes.len()];
            store.read(offset_bytes, &mut read).unwrap();
            assert!(read == bytes, "{reason} at {offset_bytes}");
        }
    }
}
