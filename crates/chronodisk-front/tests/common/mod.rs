//! Shared helpers of the front end's tests.

#![allow(dead_code, reason = "no test uses all of it")]

use chronodisk_front::mock::TestBench;
use chronodisk_front::{BlkConfig, SEG_MAX_DEFAULT};
use chronodisk_store::RamStore;

pub const CAPACITY_SECTORS: u64 = 8192;

pub const OK: u8 = 0;
pub const IO_ERROR: u8 = 1;
pub const UNSUPPORTED: u8 = 2;

pub fn config() -> BlkConfig {
    BlkConfig {
        capacity_sectors: CAPACITY_SECTORS,
        logical_block_bytes: 512,
        physical_block_bytes: 4096,
        serial: "chronodisk constant-100us".into(),
        discard_unit_sectors: Some(8),
        write_zeroes: true,
        volatile_cache: true,
        seg_max: SEG_MAX_DEFAULT,
        zones: None,
        torn_write_sectors: None,
        file_data: false,
    }
}

pub fn store() -> Box<RamStore> {
    Box::new(RamStore::new(CAPACITY_SECTORS * 512, CAPACITY_SECTORS * 1024))
}

/// A bench after negotiation, with the ring running.
pub fn bench() -> TestBench {
    let mut bench = TestBench::new(config(), store());
    bench.set_up();
    bench
}

/// Bytes that differ between offsets.
pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ seed).collect()
}
