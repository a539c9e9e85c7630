//! A device attached by FUSE, with Linux's own file system code as the client. Needs `/dev/fuse` and root.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use chronodisk_device::{BuildOptions, DeviceModel, Profile};
use chronodisk_engine::{Engine, MonotonicClock, verify};
use chronodisk_front::fuse::{FILE_ROOT_MODE, FuseFile, REQUEST_BYTES_MAX};
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::server::{Server, ServerOptions, ServerOutcome};
use chronodisk_sim::{Op, SECTOR_BYTES};
use chronodisk_store::{Durability, FileStore, RamStore, Store, StoreError, forward_to_store};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::thread::{CapabilitySet, capabilities};

const CAPACITY_BYTES: u64 = 16 << 20;
const BLOCK_BYTES: u64 = 4096;
const THREADS: u64 = 8;

fn model() -> Box<dyn DeviceModel> {
    let build = BuildOptions { capacity_bytes: Some(CAPACITY_BYTES), seed: 1 };
    Profile::find("constant-1ms").unwrap().build(&build).unwrap()
}

/// A server whose device is mounted.
struct Attached {
    server: Option<Server>,
    place: PathBuf,
    _folder: tempfile::TempDir,
}

impl Attached {
    /// `None`, with a printed reason, if this host can't.
    fn new(store: Box<dyn Store>, file: FuseFile) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("device");
        File::create(&place).unwrap();
        let descriptor = match mounted(&place) {
            Ok(descriptor) => descriptor,
            Err(reason) => {
                println!("SKIPPED: no device is attached by FUSE: {reason}");
                return None;
            }
        };
        let mut attached = Attached { server: None, place, _folder: folder };
        let mut server = server(store);
        let attachment = server.attach_fuse(descriptor, file).unwrap();
        let permitted = capabilities(None).unwrap().effective;
        assert_eq!(attachment.io_flusher, permitted.contains(CapabilitySet::SYS_RESOURCE));
        assert!(attachment.memory_locked || !permitted.contains(CapabilitySet::IPC_LOCK));
        attached.server = Some(server);
        Some(attached)
    }

    fn open(&self) -> File {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&self.place);
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().len(), CAPACITY_BYTES);
        file
    }

    fn stop(mut self) -> ServerOutcome {
        unmount(&self.place, UnmountFlags::DETACH).unwrap();
        let outcome = self.server.take().unwrap().stop();
        assert!(!outcome.statistics.realtime, "the kernel's workers would starve");
        outcome
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // It is mounted no more unless an assertion failed.
        let _ = unmount(&self.place, UnmountFlags::DETACH);
    }
}

fn server(store: Box<dyn Store>) -> Server {
    let mut engine = Engine::new();
    let device = engine.attach(model());
    let offer = ServerOffer::new(vec![Export::new("", CAPACITY_BYTES)], Tls::Off).unwrap();
    let options = ServerOptions::default();
    Server::new(engine, device, store, offer, MonotonicClock::new(), options).unwrap()
}

fn mounted(place: &Path) -> Result<OwnedFd, String> {
    let descriptor = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let descriptor = descriptor.map_err(|error| format!("/dev/fuse: {error}"))?;
    let options = format!("fd={},rootmode={FILE_ROOT_MODE},user_id=0,group_id=0,allow_other", descriptor.as_raw_fd());
    let options = CString::new(options).unwrap();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("chronodisk", place, "fuse", flags, &*options).map_err(|error| format!("mount: {error}"))?;
    Ok(descriptor.into())
}

fn ram() -> Box<dyn Store> {
    Box::new(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES))
}

/// What was sent, as the device should see it.
type Sent = (Op, u64, u32);

fn sent(op: Op, offset_bytes: u64, len_bytes: u64) -> Sent {
    (op, offset_bytes / SECTOR_BYTES, (len_bytes / SECTOR_BYTES) as u32)
}

/// Every request reached the device as it was sent, and the log replays.
fn agree(outcome: &ServerOutcome, mut expected: Vec<Sent>) {
    let mut seen: Vec<Sent> = outcome.records.iter().map(|record| (record.op, record.lba.0, record.sectors)).collect();
    let position = |request: &Sent| (Op::ALL.iter().position(|op| *op == request.0), request.1, request.2);
    seen.sort_by_key(position);
    expected.sort_by_key(position);
    assert_eq!(seen, expected);
    assert!(outcome.records.iter().all(|record| record.is_completed()));
    assert!(verify(&mut [model()], &outcome.records, Some(outcome.end)).unwrap().identical());
    let statistics = &outcome.statistics;
    assert_eq!(statistics.violations, 0, "{:?}", statistics.first_violation);
    assert_eq!(statistics.panics, 0, "{:?}", statistics.first_panic);
    assert_eq!((statistics.store_errors, statistics.dropped_completions), (0, 0));
}

/// Eight threads write and read regions of their own at the same time, in requests of many lengths.
fn work(attached: &Attached) -> Vec<Sent> {
    let lengths = [512, 4096, 8192, 65_536, 1024, 131_072, 262_144];
    let region_bytes = CAPACITY_BYTES / 2 / THREADS;
    let meet = Barrier::new(THREADS as usize);
    let threads = |thread: u64| {
        let file = attached.open();
        let mut expected = Vec::new();
        meet.wait();
        let mut offset_bytes = thread * region_bytes;
        for (round, len_bytes) in lengths.into_iter().enumerate() {
            let data = vec![(thread * 16 + round as u64 + 1) as u8; len_bytes as usize];
            file.write_all_at(&data, offset_bytes).unwrap();
            let mut back = vec![0; data.len()];
            file.read_exact_at(&mut back, offset_bytes).unwrap();
            assert!(back == data, "thread {thread}, round {round}");
            expected.extend([Op::Write, Op::Read].map(|op| sent(op, offset_bytes, len_bytes)));
            offset_bytes += len_bytes;
        }
        expected
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || threads(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn what_is_sent_reaches_the_device() {
    let Some(attached) = Attached::new(ram(), FuseFile { discard: true, ..FuseFile::of(model().info()) }) else {
        return;
    };
    let file = attached.open();
    let mut expected = work(&attached);
    let middle = CAPACITY_BYTES / 2;
    let large = vec![9; REQUEST_BYTES_MAX as usize + 4096];
    // Memory that does not begin at a page takes one page more than a request has.
    let large = &large[large.as_ptr().align_offset(4096)..][..REQUEST_BYTES_MAX as usize];
    file.write_all_at(large, middle).unwrap();
    expected.push(sent(Op::Write, middle, REQUEST_BYTES_MAX.into()));
    file.sync_data().unwrap();
    expected.push(sent(Op::Flush, 0, 0));
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, hole, middle, BLOCK_BYTES).unwrap();
    expected.push(sent(Op::Discard, middle, BLOCK_BYTES));
    fallocate(&file, FallocateFlags::ZERO_RANGE, middle + 2 * BLOCK_BYTES, BLOCK_BYTES).unwrap();
    expected.push(sent(Op::WriteZeroes, middle + 2 * BLOCK_BYTES, BLOCK_BYTES));
    let mut back = vec![1; 4 * BLOCK_BYTES as usize];
    file.read_exact_at(&mut back, middle).unwrap();
    expected.push(sent(Op::Read, middle, 4 * BLOCK_BYTES));
    let byte_at = |block: usize| back[block * BLOCK_BYTES as usize];
    assert_eq!([0, 1, 2, 3].map(byte_at), [0, 9, 0, 9]);
    assert!(file.write_at(&[1; 512], CAPACITY_BYTES).is_err(), "it does not grow");
    assert!(file.set_len(0).is_err(), "nor shrink");
    drop(file);
    let outcome = attached.stop();
    let overlaps = |pair: &[chronodisk_sim::RequestRecord]| pair[1].arrival < pair[0].due;
    assert!(outcome.records.windows(2).any(overlaps), "several are in flight");
    agree(&outcome, expected);
}

/// Memory that claims to be on a disk: all requests go to helpers.
struct Waiting(RamStore);

impl Store for Waiting {
    forward_to_store!(self => self.0; capacity_bytes, read, write, write_zeroes, flush, allocated_bytes, budget_bytes);

    fn try_read(&mut self, _offset_bytes: u64, _bytes: &mut [u8]) -> Result<(), StoreError> {
        Err(StoreError::WouldWait)
    }

    fn write_waits(&self) -> bool {
        true
    }
}

#[test]
fn helpers_move_what_waits_for_a_disk() {
    let store = Box::new(Waiting(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES)));
    let Some(attached) = Attached::new(store, FuseFile::of(model().info())) else { return };
    let expected = work(&attached);
    agree(&attached.stop(), expected);
}

#[test]
fn what_was_written_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bytes");
    let durability = Durability { write_through: true, power_cut: false };
    let store = Box::new(FileStore::create(&path, CAPACITY_BYTES, durability).unwrap());
    let Some(attached) = Attached::new(store, FuseFile::of(model().info())) else { return };
    let expected = work(&attached);
    agree(&attached.stop(), expected);
    assert_eq!(fs::read(&path).unwrap()[..512], [1; 512]);
}

#[test]
fn a_server_that_stops_answers_and_then_fails_later_requests() {
    let Some(mut attached) = Attached::new(ram(), FuseFile::of(model().info())) else { return };
    let file = attached.open();
    file.write_all_at(&[5; 4096], 0).unwrap();
    let outcome = attached.server.take().unwrap().stop();
    agree(&outcome, vec![sent(Op::Write, 0, 4096)]);
    assert!(file.read_at(&mut [0; 4096], 0).is_err(), "nobody serves it any more");
}

#[test]
fn a_file_that_is_not_the_store_is_refused() {
    let mut server = server(ram());
    let good = FuseFile::of(model().info());
    let wrong = [
        FuseFile { size_bytes: CAPACITY_BYTES + 512, ..good },
        FuseFile { block_bytes_min: 1000, ..good },
        FuseFile { block_bytes_min: 256, ..good },
    ];
    for file in wrong {
        let refused = server.attach_fuse(File::open("/dev/null").unwrap().into(), file).unwrap_err();
        assert!(refused.to_string().contains("expected"), "{refused}");
    }
    let _ = server.stop();
}
