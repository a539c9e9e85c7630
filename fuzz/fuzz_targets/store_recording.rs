//! Recordings of stores: each entry is bounded, and damage is an error.
#![no_main]

use chronodisk_store::Recording;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(recording) = Recording::read(bytes, "fuzzed") else { return };
    let device = recording.device();
    assert!(device.logical_block_bytes.is_power_of_two());
    let entries = recording.count();
    assert!(entries <= bytes.len());
});
