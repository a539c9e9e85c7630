//! A device served over vhost-user, with kicks and calls on event descriptors as QEMU uses them.

#[path = "common/vhost_guest.rs"]
mod vhost_guest;

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use chronodisk_device::{BuildOptions, DeviceModel, Profile};
use chronodisk_engine::{Engine, MonotonicClock, verify};
use chronodisk_front::mock::{self, Layout, MockDriver};
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::server::{Address, Server, ServerOptions};
use chronodisk_front::vhost_user::message::{code, encode};
use chronodisk_front::{BlkConfig, SEG_MAX_DEFAULT};
use chronodisk_store::RamStore;
use vhost_guest::{Guest, until};

const CAPACITY_BYTES: u64 = 4 << 20;
/// `VIRTIO_BLK_T_IN` and `VIRTIO_BLK_T_OUT`.
const IN: u32 = 0;
const OUT: u32 = 1;
const EVENT_IDX: u64 = 1 << 29;

fn model() -> Box<dyn DeviceModel> {
    let build = BuildOptions { capacity_bytes: Some(CAPACITY_BYTES), seed: 1, ..BuildOptions::default() };
    Profile::find("constant-1ms").unwrap().build(&build).unwrap()
}

fn serve(folder: &tempfile::TempDir) -> (Server, PathBuf) {
    let mut engine = Engine::new();
    let device = engine.attach(model());
    let offer = ServerOffer::new(vec![Export::new("", CAPACITY_BYTES)], Tls::Off).unwrap();
    let store = Box::new(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES));
    let options = ServerOptions { realtime: false, ..ServerOptions::default() };
    let mut server = Server::new(engine, device, store, offer, MonotonicClock::new(), options).unwrap();
    let path = folder.path().join("vhost");
    let config = BlkConfig {
        capacity_sectors: CAPACITY_BYTES / 512,
        logical_block_bytes: 512,
        physical_block_bytes: 4096,
        serial: "constant-1ms".into(),
        discard_unit_sectors: Some(8),
        write_zeroes: true,
        volatile_cache: false,
        seg_max: SEG_MAX_DEFAULT,
        zones: None,
        torn_write_sectors: None,
        file_data: false,
    };
    server.listen_vhost_user(&Address::Unix(path.clone()), config).unwrap();
    (server, path)
}

#[test]
fn requests_are_kicked_and_called_by_event_descriptors() {
    // Memory that is mapped, and memory that is accessed through its descriptor.
    let kinds = [mock::sealable_memory_file, mock::memory_file];
    for (without, memory) in [0, EVENT_IDX].into_iter().zip(kinds).chain([EVENT_IDX, 0].into_iter().zip(kinds)) {
        let folder = tempfile::tempdir().unwrap();
        let (server, path) = serve(&folder);
        let mut guest = Guest::with_memory(&path, without, memory());
        let bytes: Vec<u8> = (0..8192).map(|index| (index % 251) as u8).collect();
        let write = guest.driver.submit(OUT, 8, &[4096, 4096], Some(&bytes), Layout::Indirect);
        guest.kick();
        guest.completed(&[&write]);

        let reads = [8, 16].map(|sector| guest.driver.submit(IN, sector, &[4096], None, Layout::Direct));
        if without == 0 {
            // virtio 1.2, section 2.7.10: a call only when the entry after the next one was used.
            guest.driver.write(mock::USED_EVENT, &2u16.to_le_bytes());
        }
        guest.kick();
        guest.completed(&[&reads[0], &reads[1]]);
        assert_eq!(reads.iter().flat_map(|read| guest.driver.data(read)).collect::<Vec<u8>>(), bytes);

        let outcome = server.stop();
        assert!(outcome.records.len() == 3 && outcome.records.iter().all(|record| record.is_completed()));
        assert!(verify(&mut [model()], &outcome.records, Some(outcome.end)).unwrap().identical());
        assert_eq!(outcome.statistics.violations, 0, "{:?}", outcome.statistics.first_violation);
    }
}

#[test]
fn with_event_idx_the_guest_is_told_to_kick_for_the_next_request() {
    let folder = tempfile::tempdir().unwrap();
    let (server, path) = serve(&folder);
    let mut guest = Guest::start(&path, 0);
    for count in 1..=5u16 {
        guest.driver.write(mock::USED_EVENT, &(count - 1).to_le_bytes());
        let read = guest.driver.submit(IN, 0, &[512], None, Layout::Direct);
        guest.kick();
        guest.completed(&[&read]);
        // The entry at which the device requests a kick: the next one.
        assert_eq!(guest.driver.read(mock::AVAILABLE_EVENT, 2), count.to_le_bytes());
    }
    assert!(server.stop().records.len() == 5);
}

#[test]
fn a_guest_that_breaks_the_protocol_or_leaves_ends_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (server, path) = serve(&folder);
    let mut good = Guest::start(&path, 0);
    let mut leaving = Guest::start(&path, 0);
    leaving.driver.submit(IN, 0, &[512], None, Layout::Direct);
    leaving.kick();
    drop(leaving);
    let bad = MockDriver::over(UnixStream::connect(&path).unwrap());
    bad.send_bytes(&[0xFF; 64], &[]).unwrap();
    until(|| (server.statistics().violations == 1).then_some(()));
    let read = good.driver.submit(IN, 0, &[512], None, Layout::Direct);
    good.kick();
    good.completed(&[&read]);
    assert!(server.stop().statistics.first_violation.is_some());
}

/// A file in memory, as used by QEMU's `memory-backend-file` in `/dev/shm` and by User Mode Linux.
fn file_in_memory() -> File {
    tempfile::tempfile_in("/dev/shm").unwrap()
}

#[test]
fn a_guest_that_truncates_its_memory_ends_alone() {
    for memory in [mock::memory_file, file_in_memory] {
        let folder = tempfile::tempdir().unwrap();
        let (server, path) = serve(&folder);
        let mut good = Guest::start(&path, 0);
        let mut bad = Guest::with_memory(&path, 0, memory());
        let write = bad.driver.submit(OUT, 0, &[4096], Some(&[7; 4096]), Layout::Indirect);
        bad.kick();
        bad.completed(&[&write]);
        // One request is outstanding, and the memory is gone when it completes.
        bad.driver.submit(IN, 0, &[4096], None, Layout::Direct);
        bad.kick();
        bad.driver.memory_file().set_len(0).unwrap();
        bad.kick();
        until(|| (server.statistics().violations == 1).then_some(()));
        let read = good.driver.submit(IN, 0, &[4096], None, Layout::Direct);
        good.kick();
        good.completed(&[&read]);
        assert_eq!(good.driver.data(&read), [7; 4096]);
        let reason = server.stop().statistics.first_violation.unwrap();
        assert!(reason.contains("the client has truncated it"), "{reason}");
    }
}

#[test]
fn a_guest_that_lets_its_memory_be_sealed_cannot_truncate_it() {
    let folder = tempfile::tempdir().unwrap();
    let (server, path) = serve(&folder);
    let mut guest = Guest::with_memory(&path, 0, mock::sealable_memory_file());
    let refused = guest.driver.memory_file().set_len(0).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{refused}");
    let read = guest.driver.submit(IN, 0, &[4096], None, Layout::Direct);
    guest.kick();
    guest.completed(&[&read]);
    assert_eq!(server.stop().statistics.violations, 0);
}

#[test]
fn memory_that_a_server_cannot_use_safely_is_refused_with_its_kind() {
    let folder = tempfile::tempdir().unwrap();
    let (server, path) = serve(&folder);
    let driver = MockDriver::over(UnixStream::connect(&path).unwrap());
    let (table, _) = driver.memory_table();
    let device = File::open("/dev/zero").unwrap();
    driver.send_bytes(&encode(code::SET_MEM_TABLE, 0, &table), &[device.as_fd(), device.as_fd()]).unwrap();
    until(|| (server.statistics().violations == 1).then_some(()));
    let reason = server.stop().statistics.first_violation.unwrap();
    assert!(reason.contains("no regular file, expected a memfd"), "{reason}");
}
