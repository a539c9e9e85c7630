//! A device served over vhost-user, with kicks and calls on event descriptors as QEMU uses them.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use chronodisk_device::{BuildOptions, DeviceModel, Profile};
use chronodisk_engine::{Engine, MonotonicClock, verify};
use chronodisk_front::mock::{self, Layout, MockDriver, MockRequest, RING_SIZE};
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::server::{Address, Server, ServerOptions};
use chronodisk_front::vhost_user::message::{code, encode, flag, protocol_feature, vring_state};
use chronodisk_front::{BlkConfig, SEG_MAX_DEFAULT};
use chronodisk_store::RamStore;
use rustix::event::{EventfdFlags, eventfd};

const CAPACITY_BYTES: u64 = 4 << 20;
/// `VIRTIO_BLK_T_IN` and `VIRTIO_BLK_T_OUT`.
const IN: u32 = 0;
const OUT: u32 = 1;
const EVENT_IDX: u64 = 1 << 29;

fn model() -> Box<dyn DeviceModel> {
    let build = BuildOptions { capacity_bytes: Some(CAPACITY_BYTES), seed: 1 };
    Profile::find("constant-1ms").unwrap().build(&build).unwrap()
}

fn serve(folder: &tempfile::TempDir) -> (Server, Address) {
    let mut engine = Engine::new();
    let device = engine.attach(model());
    let offer = ServerOffer::new(vec![Export::new("", CAPACITY_BYTES)], Tls::Off).unwrap();
    let store = Box::new(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES));
    let options = ServerOptions { realtime: false, ..ServerOptions::default() };
    let mut server = Server::new(engine, device, store, offer, MonotonicClock::new(), options).unwrap();
    let address = Address::Unix(folder.path().join("vhost"));
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
    server.listen_vhost_user(&address, config).unwrap();
    (server, address)
}

/// A guest whose ring is set up, with `features` of those offered.
struct Guest {
    driver: MockDriver,
    kick: OwnedFd,
    call: OwnedFd,
}

impl Guest {
    fn start(address: &Address, without: u64) -> Self {
        Guest::with_memory(address, without, mock::memory_file())
    }

    fn with_memory(address: &Address, without: u64, memory: File) -> Self {
        let Address::Unix(path) = address else { unreachable!() };
        let new_event = || eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let driver = MockDriver::with_memory(UnixStream::connect(path).unwrap(), memory);
        let mut guest = Guest { driver, kick: new_event(), call: new_event() };
        guest.say(code::SET_OWNER, &[]);
        let features = guest.ask(code::GET_FEATURES) & !without;
        let protocol_features = 1u64 << protocol_feature::REPLY_ACK | 1 << protocol_feature::CONFIG;
        assert_eq!(guest.ask(code::GET_PROTOCOL_FEATURES) & protocol_features, protocol_features);
        guest.say(code::SET_PROTOCOL_FEATURES, &protocol_features.to_ne_bytes());
        guest.say(code::SET_FEATURES, &features.to_ne_bytes());
        let file = guest.driver.memory_file().try_clone().unwrap();
        let (table, _) = guest.driver.memory_table();
        let bytes = encode(code::SET_MEM_TABLE, 0, &table);
        guest.driver.send_bytes(&bytes, &[file.as_fd(), file.as_fd()]).unwrap();
        guest.say(code::SET_VRING_NUM, &vring_state(0, RING_SIZE.into()));
        guest.say(code::SET_VRING_BASE, &vring_state(0, 0));
        guest.say(code::SET_VRING_ADDR, &MockDriver::ring_addresses());
        for (code, fd) in [(code::SET_VRING_CALL, &guest.call), (code::SET_VRING_KICK, &guest.kick)] {
            guest.driver.send_bytes(&encode(code, 0, &0u64.to_ne_bytes()), &[fd.as_fd()]).unwrap();
        }
        let enable = encode(code::SET_VRING_ENABLE, flag::NEED_REPLY, &vring_state(0, 1));
        guest.driver.send_bytes(&enable, &[]).unwrap();
        assert_eq!(guest.reply(), 0u64.to_ne_bytes(), "a good acknowledgement");
        guest
    }

    fn say(&self, code: u32, payload: &[u8]) {
        self.driver.send_bytes(&encode(code, 0, payload), &[]).unwrap();
    }

    fn ask(&mut self, code: u32) -> u64 {
        self.say(code, &[]);
        u64::from_ne_bytes(self.reply().try_into().unwrap())
    }

    fn reply(&mut self) -> Vec<u8> {
        until(|| self.driver.receive()).1
    }

    fn kick(&self) {
        rustix::io::write(&self.kick, &1u64.to_ne_bytes()).unwrap();
    }

    /// Waits for a call, and takes the heads of what it tells of.
    fn called(&mut self) -> Vec<u32> {
        until(|| rustix::io::read(&self.call, &mut [0; 8]).ok());
        self.driver.take_used().iter().map(|entry| entry.head).collect()
    }

    fn completed(&mut self, requests: &[&MockRequest]) {
        let mut heads = Vec::new();
        while heads.len() < requests.len() {
            heads.extend(self.called());
        }
        assert_eq!(heads, requests.iter().map(|request| u32::from(request.head)).collect::<Vec<_>>());
        assert!(requests.iter().all(|request| self.driver.status(request) == 0));
    }
}

/// Repeats until there is something, for seconds at most.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..4_000 {
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("it does not come");
}

#[test]
fn requests_are_kicked_and_called_by_event_descriptors() {
    // Memory that is mapped, and memory that is accessed through its descriptor.
    let kinds = [mock::sealable_memory_file, mock::memory_file];
    for (without, memory) in [0, EVENT_IDX].into_iter().zip(kinds).chain([EVENT_IDX, 0].into_iter().zip(kinds)) {
        let folder = tempfile::tempdir().unwrap();
        let (server, address) = serve(&folder);
        let mut guest = Guest::with_memory(&address, without, memory());
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
    let (server, address) = serve(&folder);
    let mut guest = Guest::start(&address, 0);
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
    let (server, address) = serve(&folder);
    let mut good = Guest::start(&address, 0);
    let mut leaving = Guest::start(&address, 0);
    leaving.driver.submit(IN, 0, &[512], None, Layout::Direct);
    leaving.kick();
    drop(leaving);
    let Address::Unix(path) = &address else { unreachable!() };
    let bad = MockDriver::over(UnixStream::connect(path).unwrap());
    bad.send_bytes(&[0xFF; 64], &[]).unwrap();
    until(|| (server.statistics().violations == 1).then_some(()));
    let read = good.driver.submit(IN, 0, &[512], None, Layout::Direct);
    good.kick();
    good.completed(&[&read]);
    assert!(server.stop().statistics.first_violation.is_some());
}

/// A file in memory, as it is behind QEMU's `memory-backend-file` in `/dev/shm`, and User Mode Linux's.
fn file_in_memory() -> File {
    tempfile::tempfile_in("/dev/shm").unwrap()
}

#[test]
fn a_guest_that_truncates_its_memory_ends_alone() {
    for memory in [mock::memory_file, file_in_memory] {
        let folder = tempfile::tempdir().unwrap();
        let (server, address) = serve(&folder);
        let mut good = Guest::start(&address, 0);
        let mut bad = Guest::with_memory(&address, 0, memory());
        let write = bad.driver.submit(OUT, 0, &[4096], Some(&[7; 4096]), Layout::Indirect);
        bad.kick();
        bad.completed(&[&write]);
        // One request is on its way to the device, and the memory is gone when it completes.
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
    let (server, address) = serve(&folder);
    let mut guest = Guest::with_memory(&address, 0, mock::sealable_memory_file());
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
    let (server, address) = serve(&folder);
    let Address::Unix(path) = &address else { unreachable!() };
    let driver = MockDriver::over(UnixStream::connect(path).unwrap());
    let (table, _) = driver.memory_table();
    let device = File::open("/dev/zero").unwrap();
    driver.send_bytes(&encode(code::SET_MEM_TABLE, 0, &table), &[device.as_fd(), device.as_fd()]).unwrap();
    until(|| (server.statistics().violations == 1).then_some(()));
    let reason = server.stop().statistics.first_violation.unwrap();
    assert!(reason.contains("no regular file, expected a memfd"), "{reason}");
}
