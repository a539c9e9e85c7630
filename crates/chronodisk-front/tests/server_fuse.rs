//! A device attached by FUSE, with Linux's own file system code as the client. Most need `/dev/fuse` and root.

#[path = "common/fuse_mount.rs"]
mod fuse_mount;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use chronodisk_engine::verify;
use chronodisk_front::Errno;
use chronodisk_front::fuse::mock::{message, range};
use chronodisk_front::fuse::wire::{OutHeader, opcode};
use chronodisk_front::fuse::{FuseFile, REQUEST_BYTES_MAX};
use chronodisk_front::server::{FuseChannel, ServerOutcome};
use chronodisk_sim::{Op, SECTOR_BYTES};
use chronodisk_store::{Durability, FileStore, RamStore, Store, StoreError, forward_to_store};
use fuse_mount::{Attached, CAPACITY_BYTES, CHANNELS, model, server};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

const BLOCK_BYTES: u64 = 4096;
const THREADS: u64 = 8;

fn ram() -> Box<dyn Store> {
    Box::new(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES))
}

/// A request as sent, in the device's terms.
type Sent = (Op, u64, u32);

fn sent(op: Op, offset_bytes: u64, len_bytes: u64) -> Sent {
    (op, offset_bytes / SECTOR_BYTES, (len_bytes / SECTOR_BYTES) as u32)
}

/// Every request reached the device as sent, and a replay of the log is identical.
fn agree(outcome: &ServerOutcome, mut expected: Vec<Sent>) {
    let mut seen = seen(outcome);
    let position = |request: &Sent| (Op::ALL.iter().position(|op| *op == request.0), request.1, request.2);
    seen.sort_by_key(position);
    expected.sort_by_key(position);
    assert_eq!(seen, expected);
    is_in_order(outcome);
}

fn seen(outcome: &ServerOutcome) -> Vec<Sent> {
    outcome.records.iter().map(|record| (record.op, record.lba.0, record.sectors)).collect()
}

fn is_in_order(outcome: &ServerOutcome) {
    assert!(outcome.records.iter().all(|record| record.is_completed()));
    assert!(verify(&mut [model()], &outcome.records, Some(outcome.end)).unwrap().identical());
    let statistics = &outcome.statistics;
    assert_eq!(statistics.violations, 0, "{:?}", statistics.first_violation);
    assert_eq!(statistics.panics, 0, "{:?}", statistics.first_panic);
    assert_eq!((statistics.store_errors, statistics.dropped_completions), (0, 0));
}

/// Eight threads write and read regions of their own at the same time, in requests of many lengths.
fn work(open: impl Fn() -> File + Sync) -> Vec<Sent> {
    let lengths = [512, 4096, 8192, 65_536, 1024, 131_072, 262_144];
    let region_bytes = CAPACITY_BYTES / 2 / THREADS;
    let meet = Barrier::new(THREADS as usize);
    let serve = |thread: u64| {
        let file = open();
        let mut expected = Vec::new();
        meet.wait();
        let mut offset_bytes = thread * region_bytes;
        for (round, len_bytes) in lengths.into_iter().enumerate() {
            let byte = (thread * 16 + round as u64 + 1) as u8;
            // Aligned, since a block device accepts no other memory.
            let mut room = vec![byte; len_bytes as usize + 4096];
            let begin = room.as_ptr().align_offset(4096);
            let data = &mut room[begin..][..len_bytes as usize];
            file.write_all_at(data, offset_bytes).unwrap();
            data.fill(0);
            file.read_exact_at(data, offset_bytes).unwrap();
            assert!(data.iter().all(|found| *found == byte), "thread {thread}, round {round}");
            expected.extend([Op::Write, Op::Read].map(|op| sent(op, offset_bytes, len_bytes)));
            offset_bytes += len_bytes;
        }
        expected
    };
    std::thread::scope(|scope| {
        let serve = &serve;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || serve(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn what_is_sent_reaches_the_device() {
    CHANNELS.into_iter().for_each(what_is_sent_by);
}

fn what_is_sent_by(channel: FuseChannel) {
    let file = FuseFile { discard: true, ..FuseFile::of(model().info()) };
    let Some(attached) = Attached::new(channel, ram(), file) else { return };
    let file = attached.open();
    let mut expected = work(|| attached.open());
    let middle = CAPACITY_BYTES / 2;
    let large = vec![9; REQUEST_BYTES_MAX as usize + 4096];
    // An unaligned buffer spans one page more than a request may have.
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

/// A store that claims to be on a disk, so that all requests go to helpers.
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
    for channel in CHANNELS {
        let store = Box::new(Waiting(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES)));
        let Some(attached) = Attached::new(channel, store, FuseFile::of(model().info())) else { return };
        let expected = work(|| attached.open());
        agree(&attached.stop(), expected);
    }
}

#[test]
fn what_was_written_is_in_the_file() {
    for channel in CHANNELS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes");
        let durability = Durability { write_through: true, power_cut: false };
        let store = Box::new(FileStore::create(&path, CAPACITY_BYTES, durability).unwrap());
        let Some(attached) = Attached::new(channel, store, FuseFile::of(model().info())) else { return };
        let expected = work(|| attached.open());
        agree(&attached.stop(), expected);
        assert_eq!(fs::read(&path).unwrap()[..512], [1; 512]);
    }
}

/// A loop device with direct I/O on the file, until it is dropped.
struct Loop(PathBuf);

impl Loop {
    /// Attaches a loop device; `None`, with a printed reason, if the host has none.
    fn on(attached: &Attached) -> Option<Self> {
        let losetup =
            Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&attached.place).output();
        match losetup {
            Ok(output) if output.status.success() => {
                Some(Loop(String::from_utf8(output.stdout).unwrap().trim_end().into()))
            }
            Ok(output) => {
                println!("SKIPPED: no loop device: {}", String::from_utf8_lossy(&output.stderr));
                None
            }
            Err(error) => {
                println!("SKIPPED: losetup: {error}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        assert!(Command::new("losetup").arg("--detach").arg(&self.0).status().unwrap().success());
    }
}

#[test]
fn a_loop_device_sends_what_it_gets() {
    CHANNELS.into_iter().for_each(a_loop_device_sends_by);
}

fn a_loop_device_sends_by(channel: FuseChannel) {
    let file = FuseFile { discard: true, ..FuseFile::of(model().info()) };
    let Some(attached) = Attached::new(channel, ram(), file) else { return };
    let Some(device) = Loop::on(&attached) else { return };
    let open = || {
        let direct = OFlags::DIRECT.bits() as i32;
        OpenOptions::new().read(true).write(true).custom_flags(direct).open(&device.0).unwrap()
    };
    let mut expected = work(open);
    open().sync_data().unwrap();
    expected.push(sent(Op::Flush, 0, 0));
    // libblkid and others read a new device, too; these reads are ignored.
    drop(device);
    let outcome = attached.stop();
    let mut others = seen(&outcome);
    for request in expected {
        let place = others.iter().position(|other| *other == request);
        others.swap_remove(place.unwrap_or_else(|| panic!("{request:?} did not arrive; others: {others:?}")));
    }
    assert!(others.iter().all(|(op, _, _)| matches!(op, Op::Read | Op::Flush)), "{others:?}");
    is_in_order(&outcome);
}

#[test]
fn a_server_that_stops_answers_and_then_fails_later_requests() {
    for channel in CHANNELS {
        let Some(mut attached) = Attached::new(channel, ram(), FuseFile::of(model().info())) else { return };
        let file = attached.open();
        file.write_all_at(&[5; 4096], 0).unwrap();
        let outcome = attached.server.take().unwrap().stop();
        agree(&outcome, vec![sent(Op::Write, 0, 4096)]);
        assert!(file.read_at(&mut [0; 4096], 0).is_err(), "nobody serves it any more");
    }
}

/// The administrator's way to end a connection that hangs.
#[test]
fn an_abort_fails_the_requests_and_ends_the_connection() {
    for channel in CHANNELS {
        let Some(mut attached) = Attached::new(channel, ram(), FuseFile::of(model().info())) else { return };
        let number = rustix::fs::minor(fs::metadata(&attached.place).unwrap().dev());
        let control = tempfile::tempdir().unwrap();
        mount("fusectl", control.path(), "fusectl", MountFlags::empty(), None).unwrap();
        let abort = control.path().join(format!("{number}/abort"));
        let file = attached.open();
        std::thread::scope(|scope| {
            let read = || while file.read_at(&mut vec![0; 65_536], 0).is_ok() {};
            let readers: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
            std::thread::sleep(Duration::from_millis(50));
            fs::write(&abort, "1").unwrap();
            unmount(control.path(), UnmountFlags::DETACH).unwrap();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
        drop(file);
        let outcome = attached.server.take().unwrap().stop();
        assert_eq!((outcome.statistics.violations, outcome.statistics.panics), (0, 0), "{channel:?}");
        assert!(outcome.records.len() > 10, "{channel:?}");
    }
}

/// A socket that preserves message boundaries, as `/dev/fuse` does. Needs no privilege.
#[test]
fn a_kernel_can_be_played() {
    let flags = SocketFlags::CLOEXEC;
    let (kernel, descriptor) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let mut server = server(ram());
    server.attach_fuse(descriptor, FuseFile::of(model().info()), FuseChannel::Messages).unwrap();
    let tell = |message: &[u8]| assert_eq!(send(&kernel, message, SendFlags::empty()).unwrap(), message.len());
    let answer = || {
        let mut room = vec![0; 1 << 16];
        let (_, len) = recv(&kernel, &mut room, RecvFlags::empty()).unwrap();
        let header = OutHeader::decode(&room[..len]).unwrap();
        assert_eq!(header.len as usize, len);
        (header.unique, header.error, room[16..len].to_vec())
    };
    let mut init = [0; 64];
    init[..8].copy_from_slice(&[7, 0, 0, 0, 38, 0, 0, 0]);
    // These messages have no valid header to answer.
    for len in [1, 39] {
        tell(&vec![0xFF; len]);
    }
    tell(&message(opcode::READ, 2, 1, &range(0, 4096)));
    assert_eq!(answer(), (2, -(Errno::Protocol as i32), Vec::new()));
    tell(&message(opcode::INIT, 4, 1, &init));
    assert_eq!(answer().1, 0);
    let mut write = range(4096, 4096);
    write.resize(write.len() + 4096, 7);
    tell(&message(opcode::WRITE, 6, 1, &write));
    for index in 0..8 {
        tell(&message(opcode::READ, 8 + 2 * index, 1, &range(4096 * index, 4096)));
    }
    let mut answers: Vec<_> = (0..9).map(|_| answer()).collect();
    answers.sort();
    assert!(answers.iter().map(|(unique, error, _)| (*unique, *error)).eq((0..9).map(|index| (6 + 2 * index, 0))));
    assert_eq!((&*answers[1].2, &*answers[2].2), (&[0; 4096][..], &[7; 4096][..]));
    tell(&message(0xFFFF, 100, 1, &[]));
    assert_eq!(answer(), (100, -(Errno::NotServed as i32), Vec::new()));
    // One request is outstanding when the kernel's side is closed.
    tell(&message(opcode::READ, 102, 1, &range(0, 4096)));
    drop(kernel);
    let outcome = server.stop();
    assert!((9..=10).contains(&outcome.records.len()));
    assert_eq!((outcome.statistics.violations, outcome.statistics.panics), (0, 0));
    assert_eq!(outcome.statistics.refused_requests, 1);
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
        let null = File::open("/dev/null").unwrap();
        let refused = server.attach_fuse(null.into(), file, FuseChannel::IoUring).unwrap_err();
        assert!(refused.to_string().contains("expected"), "{refused}");
    }
    let _ = server.stop();
}

/// Skipped waits advance only the device's clock. Afterwards it continues at the host's pace, and a replay of the log
/// is identical.
#[test]
fn waits_that_are_skipped_pass_on_the_devices_clock() {
    CHANNELS.into_iter().for_each(waits_are_skipped_on);
}

fn waits_are_skipped_on(channel: FuseChannel) {
    let Some(attached) = Attached::new(channel, ram(), FuseFile::of(model().info())) else { return };
    let server = attached.server.as_ref().unwrap();
    let block = vec![7; 2 * BLOCK_BYTES as usize];
    let block = &block[block.as_ptr().align_offset(4096)..][..BLOCK_BYTES as usize];
    let file = attached.open();
    let took = |run: &dyn Fn()| {
        let (began, device_began) = (Instant::now(), server.now());
        run();
        let device = Duration::from_nanos((server.now() - device_began).as_nanos());
        (device, began.elapsed())
    };
    let write = |count: u64| (0..count).for_each(|index| file.write_all_at(block, index * BLOCK_BYTES).unwrap());
    server.skip_waits();
    let (device, host) = took(&|| write(500));
    // A millisecond each, without a wait on the host.
    assert!(device >= Duration::from_millis(500) && device > host, "{device:?} {host:?}");
    let mut expected: Vec<Sent> = (0..500).map(|index| sent(Op::Write, index * BLOCK_BYTES, BLOCK_BYTES)).collect();
    // Several at a time. Requests that wait when skipping ends are answered, too.
    expected.extend(work(|| attached.open()));
    server.stop_skipping();
    let (device, host) = took(&|| write(20));
    assert!(host >= Duration::from_millis(20) && device <= host + Duration::from_millis(1), "{device:?} {host:?}");
    expected.extend((0..20).map(|index| sent(Op::Write, index * BLOCK_BYTES, BLOCK_BYTES)));
    server.skip_waits();
    let (device, _) = took(&|| write(300));
    assert!(device >= Duration::from_millis(300), "{device:?}");
    expected.extend((0..300).map(|index| sent(Op::Write, index * BLOCK_BYTES, BLOCK_BYTES)));
    drop(file);
    agree(&attached.stop(), expected);
}
