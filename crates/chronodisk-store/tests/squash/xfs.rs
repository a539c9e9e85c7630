//! File systems made by xfsprogs, replayed into a squashing store in varied orders: all metadata are there, as
//! xfsprogs read them, and the data are not.

use super::export::export;
use super::replay::{Order, is_kept_whole, pieces_of, replay};
use super::xfs_image::{self, CAPACITY_BYTES};
use super::xfsprogs::{compare_files, xfsprogs_are_here};

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
        for order in if index == 0 { &Order::ALL[..] } else { &Order::ALL[index..=index] } {
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
