//! A device attached by FUSE allocates no memory on the path of a request, in any of its threads: the kernel may need
//! this process to write pages before it has free memory again.

#[path = "common/allocations.rs"]
mod allocations;
#[path = "common/fuse_mount.rs"]
mod fuse_mount;

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use allocations::ALL_ALLOCATIONS;
use chronodisk_front::fuse::FuseFile;
use chronodisk_front::server::{FuseChannel, Recorder};
use chronodisk_sim::RequestRecord;
use chronodisk_store::RamStore;
use fuse_mount::{Attached, CAPACITY_BYTES, CHANNELS, model};

struct Forgetful;

impl Recorder for Forgetful {
    fn record(&mut self, _records: &[RequestRecord]) {}
}

#[test]
fn requests_allocate_nothing() {
    CHANNELS.into_iter().for_each(requests_allocate_nothing_on);
}

fn requests_allocate_nothing_on(channel: FuseChannel) {
    let store = Box::new(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES));
    let Some(mut attached) = Attached::new(channel, store, FuseFile::of(model().info())) else { return };
    // The log does not grow.
    attached.server.as_mut().unwrap().record_to(Box::new(Forgetful)).unwrap();
    let file = attached.open();
    let mut data = vec![3; 64 << 10];
    let mut round = |count: u64| {
        for index in 0..count {
            let offset_bytes = index % 16 * data.len() as u64;
            file.write_all_at(&data, offset_bytes).unwrap();
            file.read_exact_at(&mut data, offset_bytes).unwrap();
            file.sync_data().unwrap();
        }
    };
    round(100);
    let before = ALL_ALLOCATIONS.load(Ordering::Relaxed);
    round(100);
    let allocations = ALL_ALLOCATIONS.load(Ordering::Relaxed) - before;
    // None, unless the log grows once more because its thread was kept from its CPU.
    assert!(allocations < 5, "{allocations} in 300 requests, {channel:?}");
    drop(file);
    let _ = attached.stop();
}
