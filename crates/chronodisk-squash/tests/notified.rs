//! Explicit notification: contents are dropped where no file system is known, and no other byte is ever lost.

use std::ops::Range;

use chronodisk_squash::{Class, SquashOptions, SquashStore};
use chronodisk_store::{FileData, Store};
use proptest::prelude::*;

const CAPACITY_BYTES: u64 = 1 << 20;
const SECTOR_BYTES: u64 = 512;

fn store(keep: &[&str]) -> SquashStore {
    let names = keep.iter().map(|rule| format!("{rule}=keep").parse().unwrap()).collect();
    let options = SquashOptions { notified: true, names, ..SquashOptions::default() };
    SquashStore::in_memory(CAPACITY_BYTES, CAPACITY_BYTES, &options)
}

fn file(bytes: Range<u64>, path: &str) -> FileData {
    FileData { bytes, inode: 1, path: Some(path.as_bytes().into()) }
}

fn kept_bytes(store: &SquashStore, class: Class) -> u64 {
    store.squash_statistics().kept_bytes.iter().filter(|kept| kept.0 == class).map(|kept| kept.1).sum()
}

#[test]
fn contents_are_dropped_and_metadata_and_chosen_files_are_kept() {
    let mut store = store(&["*.db"]);
    let bytes: Vec<u8> = (0..16_384_u32).map(|at| (at % 251) as u8 + 1).collect();
    let files = [file(4096..8192, "a/b"), file(8192..12_288, "a/c.db")];
    store.write_with_file_data(65_536, &bytes, &files).unwrap();
    let mut read = vec![0; bytes.len()];
    store.read(65_536, &mut read).unwrap();
    assert!(read[..4096] == bytes[..4096] && read[8192..] == bytes[8192..]);
    assert!(read[4096..8192].iter().all(|&byte| byte == 0), "generated");
    assert_eq!(store.squash_statistics().claimed_bytes, 4096);
    assert_eq!((kept_bytes(&store, Class::Raw), kept_bytes(&store, Class::OtherMetadata)), (4096, 8192));
    assert!(store.notices().is_empty(), "{:?}", store.notices());
}

#[test]
fn a_full_store_still_takes_contents() {
    let options = SquashOptions { notified: true, unclassified_bytes: 0, ..SquashOptions::default() };
    let mut store = SquashStore::in_memory(64 << 20, 16 << 10, &options);
    let random: Vec<u8> = (0..32 << 10_u32)
        .scan(1_u32, |state, _| {
            *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some((*state >> 24) as u8)
        })
        .collect();
    assert!(store.write(0, &random).is_err());
    store.write_with_file_data(0, &random, &[file(0..32 << 10, "a")]).unwrap();
}

proptest! {
    /// Any writes: each byte that was last written as metadata, or to a file that is kept, reads as written.
    #[test]
    fn no_byte_but_contents_is_lost(
        writes in prop::collection::vec(
            (0..CAPACITY_BYTES / SECTOR_BYTES, prop::collection::vec((1..24_u64, 0..3_u8), 1..5)),
            1..40,
        ),
    ) {
        let mut store = store(&["*.db"]);
        let mut expected: Vec<Option<u8>> = vec![Some(0); CAPACITY_BYTES as usize];
        for (index, (sector, runs)) in writes.into_iter().enumerate() {
            let offset_bytes = sector * SECTOR_BYTES;
            let (mut files, mut bytes) = (Vec::new(), Vec::<u8>::new());
            for (sectors, kind) in runs {
                let start = bytes.len() as u64;
                let end = (start + sectors * SECTOR_BYTES).min(CAPACITY_BYTES - offset_bytes);
                bytes.resize(end as usize, index as u8 + 1);
                if kind > 0 {
                    files.push(file(start..end, if kind == 1 { "a/data" } else { "a/data.db" }));
                }
                let contents = kind == 1;
                for byte in &mut expected[(offset_bytes + start) as usize..(offset_bytes + end) as usize] {
                    *byte = (!contents).then_some(index as u8 + 1);
                }
            }
            store.write_with_file_data(offset_bytes, &bytes, &files).unwrap();
        }
        let mut read = vec![0; CAPACITY_BYTES as usize];
        store.read(0, &mut read).unwrap();
        for (at, (found, expected)) in read.iter().zip(expected).enumerate() {
            if let Some(expected) = expected {
                prop_assert_eq!(*found, expected, "byte {}", at);
            }
        }
    }
}
