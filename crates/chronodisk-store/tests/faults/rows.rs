//! Defects that were found, one by one.

use std::path::Path;
use std::sync::Arc;

use chronodisk_store::host::Host;
use chronodisk_store::overflow::PAGE_BYTES;
use chronodisk_store::simulated::{Call, Fault, SimulatedHost, SimulatedOptions};
use chronodisk_store::{Durability, FileStore, OverflowStore, Store, StoreError};

const PATH: &str = "/folder/device";
const PAGES: u64 = 512;
const CAPACITY_BYTES: u64 = PAGES * PAGE_BYTES;
const PAGE: usize = PAGE_BYTES as usize;

fn host() -> (SimulatedHost, Arc<dyn Host>) {
    let host = SimulatedHost::new(&SimulatedOptions::new(1));
    (host.clone(), Arc::new(host))
}

fn create(host: &Arc<dyn Host>, write_through: bool, power_cut: bool) -> FileStore {
    FileStore::create_on(host, PATH, CAPACITY_BYTES, Durability { write_through, power_cut }).unwrap()
}

fn reopened(host: &SimulatedHost, as_host: &Arc<dyn Host>) -> FileStore {
    host.repair();
    host.restart();
    FileStore::open_on(as_host, PATH, CAPACITY_BYTES, Durability::default()).unwrap()
}

fn page(store: &mut dyn Store, page: u64) -> Vec<u8> {
    let mut bytes = vec![0xAA; PAGE];
    store.read(page * PAGE_BYTES, &mut bytes).unwrap();
    bytes
}

/// A byte that differs between neighbouring pages, and is not zero.
fn mark(page: u64) -> u8 {
    (page % 250) as u8 + 1
}

/// Without a volatile cache there is no flush, but an overflow store relied on one.
#[test]
fn a_completed_write_to_a_device_without_a_cache_survives_a_kill() {
    let (host, as_host) = host();
    let mut store = OverflowStore::new(create(&as_host, true, false), 0);
    store.write(5 * PAGE_BYTES, &[1; PAGE]).unwrap();
    store.write(9 * PAGE_BYTES + 512, &[2; 512]).unwrap();
    host.kill();
    drop(store);
    let mut file = reopened(&host, &as_host);
    assert_eq!(page(&mut file, 5), [1; PAGE]);
    assert_eq!(page(&mut file, 9)[512..1024], [2; 512]);
}

/// A full disk lost acknowledged blocks at the end, and a read had to evict a dirty page first.
#[test]
fn a_full_disk_is_an_error_of_the_writer_and_of_nobody_else() {
    let (host, as_host) = host();
    host.set_capacity(Some(200 * PAGE_BYTES));
    let mut store = OverflowStore::new(create(&as_host, false, false), 0);
    let acknowledged: Vec<u64> =
        (0..PAGES).filter(|index| store.write(index * PAGE_BYTES, &[mark(*index); PAGE]).is_ok()).collect();
    assert_eq!(acknowledged.len(), 200, "as many as fit");
    for index in (0..PAGES).rev() {
        let expected = if acknowledged.contains(&index) { mark(index) } else { 0 };
        assert_eq!(page(&mut store, index), [expected; PAGE], "page {index}");
    }
    store.close().unwrap();
    drop(store);
    let mut file = reopened(&host, &as_host);
    assert!(acknowledged.iter().all(|index| page(&mut file, *index) == [mark(*index); PAGE]));
}

/// A failed write-back is an error of flushes and of the end; the page stays in memory, and reads succeed.
#[test]
fn a_broken_disk_fails_flushes_and_the_end_but_no_read() {
    let (host, as_host) = host();
    let mut store = OverflowStore::new(create(&as_host, false, false), 0);
    for index in 0..PAGES {
        store.write(index * PAGE_BYTES, &[index as u8; PAGE]).unwrap();
    }
    store.flush().unwrap();
    // As many pages as the memory holds, so that none is evicted.
    for index in 0..64 {
        store.write(index * PAGE_BYTES, &[0xEE; PAGE]).unwrap();
    }
    host.inject(Call::Write, 1, Fault::ErrorsFromNowOn);
    for index in (0..PAGES).rev() {
        let expected = if index < 64 { 0xEE } else { index as u8 };
        assert_eq!(page(&mut store, index), [expected; PAGE], "page {index}");
    }
    assert!(matches!(store.write(100 * PAGE_BYTES, &[1; PAGE]), Err(StoreError::Io { .. })));
    assert!(store.flush().is_err() && store.close().is_err());
    assert!(store.statistics().write_back_failures >= 64, "{:?}", store.statistics());
    host.repair();
    store.close().unwrap();
    drop(store);
    let mut file = reopened(&host, &as_host);
    assert!((0..64).all(|index| page(&mut file, index) == [0xEE; PAGE]));
}

/// The kernel reports a failed write-back once.
#[test]
fn a_failed_synchronisation_stays_failed_until_the_device_is_opened_anew() {
    for write_through in [false, true] {
        let (host, as_host) = host();
        let file = create(&as_host, write_through, true);
        let mut second = file.second_way().unwrap().expect("a file has one");
        let mut store = OverflowStore::new(file, 0);
        host.inject(Call::Sync, 1, Fault::Error);
        let written = store.write(0, &[1; PAGE]);
        assert_eq!(written.is_err(), write_through);
        for _ in 0..3 {
            assert!(store.flush().is_err() && second.flush().is_err() && store.close().is_err());
            assert_eq!(store.write(0, &[2; PAGE]).is_err(), write_through);
        }
        drop((store, second));
        let mut file = reopened(&host, &as_host);
        file.write(0, &[3; PAGE]).unwrap();
        file.flush().unwrap();
    }
}

/// The rest of a creation blocked the next one.
#[test]
fn a_creation_that_fails_or_is_killed_is_no_obstacle() {
    for call in [Call::Lock, Call::SetLen, Call::Sync, Call::SyncFolder] {
        for fault in [Fault::Error, Fault::Kill] {
            let (host, as_host) = host();
            let durability = Durability { write_through: false, power_cut: true };
            host.inject(call, 1, fault);
            assert!(FileStore::create_on(&as_host, PATH, CAPACITY_BYTES, durability).is_err());
            host.restart();
            assert!(fault == Fault::Kill || host.names().is_empty(), "{call:?} left a file");
            let store = match host.names().contains(&Path::new(PATH).to_owned()) {
                true => FileStore::open_on(&as_host, PATH, CAPACITY_BYTES, durability),
                false => FileStore::create_on(&as_host, PATH, CAPACITY_BYTES, durability),
            };
            let mut store = store.unwrap();
            store.write(0, &[1; PAGE]).unwrap();
            store.flush().unwrap();
            drop(store);
            host.power_cut();
            assert_eq!(page(&mut reopened(&host, &as_host), 0), [1; PAGE], "{call:?}, {fault:?}");
        }
    }
}
