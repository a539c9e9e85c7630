//! A device served over vhost-user, with kicks and calls on event descriptors as QEMU uses them.

#[path = "common/vhost_guest.rs"]
mod vhost_guest;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use chronodisk_device::{BuildOptions, DeviceModel, Profile};
use chronodisk_engine::{Engine, MonotonicClock, verify};
use chronodisk_front::mock::{self, Layout, MockDriver};
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::server::{Address, Server, ServerOptions};
use chronodisk_front::{BlkConfig, SEG_MAX_DEFAULT};
use chronodisk_store::RamStore;
use vhost_guest::{Guest, until};

const CAPACITY_BYTES: u64 = 4 << 20;
/// `VIRTIO_BLK_T_IN` and `VIRTIO_BLK_T_OUT`.
const IN: u32 = 0;
const OUT: u32 = 1;
const EVENT_IDX: u64 = 1 << 29;

fn model() -> Box<dyn DeviceModel> {
    let build = BuildOptions { capacity_bytes: Some(CAPACITY_BYTES), seed: 1 };
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
    };
    server.listen_vhost_user(&Address::Unix(path.clone()), config).unwrap();
    (server, path)
}

#[test]
fn requests_are_kicked_and_called_by_event_descriptors() {
    for without in [0, EVENT_IDX] {
        let folder = tempfile::tempdir().unwrap();
        let (server, path) = serve(&folder);
        let mut guest = Guest::start(&path, without);
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
        // The entry from which on the device wants a kick: the next one.
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
