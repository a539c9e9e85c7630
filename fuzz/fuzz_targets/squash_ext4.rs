//! Any bytes where a file system is: the classifier stays within its bounds, and what it did not call
//! contents of files reads as it was written.
//!
//! The input is a list of records: a kind (1 byte), a block of 1 KiB (2 bytes, little-endian), a length
//! (2 bytes), and as many bytes, which are written there. The first 4 KiB of the device come first, so that
//! a mutated superblock is one step away.
#![no_main]

use chronodisk_store::Store;
use chronodisk_store::squash::{SquashOptions, SquashStore};
use libfuzzer_sys::fuzz_target;

const CAPACITY_BYTES: u64 = 8 << 20;

fuzz_target!(|input: &[u8]| {
    let options = SquashOptions { unclassified_bytes: 1 << 20, ..SquashOptions::default() };
    let mut store = SquashStore::in_memory(CAPACITY_BYTES, CAPACITY_BYTES, &options);
    let mut rest = input;
    while let Some((&[kind, block_low, block_high, len_low, len_high], later)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([len_low, len_high])).min(later.len());
        let (bytes, later) = later.split_at(len);
        rest = later;
        let offset_bytes = u64::from(u16::from_le_bytes([block_low, block_high])) * 1024 % CAPACITY_BYTES;
        let len_bytes = (len as u64).min(CAPACITY_BYTES - offset_bytes);
        match kind % 8 {
            0 => store.discard(offset_bytes, len_bytes).expect("in range"),
            1 => store.write_zeroes(offset_bytes, len_bytes).expect("in range"),
            2 => store.flush().expect("memory"),
            _ => {
                // A write that finds no room changes nothing.
                let _ = store.write(offset_bytes, &bytes[..len_bytes as usize]);
            }
        }
    }
    let statistics = store.squash_statistics();
    assert!(statistics.table_entries < 1 << 22);
    let mut bytes = vec![0; 1 << 20];
    for chunk in 0..8 {
        store.read(chunk << 20, &mut bytes).expect("in range");
    }
    store.close().expect("memory");
});
