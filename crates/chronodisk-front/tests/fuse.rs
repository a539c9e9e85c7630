//! FUSE messages and their effects, with a mock of the kernel's side.

use chronodisk_front::Errno;
use chronodisk_front::fuse::mock::{MockKernel, MockReply};
use chronodisk_front::fuse::wire::{fallocate_mode, init_flag, opcode, open_flag};
use chronodisk_front::fuse::{FuseCommand, FuseFile, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_COUNT_MAX, REQUEST_BYTES_MAX};
use chronodisk_sim::{Op, RequestId, Status};
use chronodisk_store::{RamStore, Store};
use proptest::prelude::*;

const CAPACITY_BYTES: u64 = 1 << 20;
const ROOT: u64 = 1;

fn file() -> FuseFile {
    FuseFile {
        size_bytes: CAPACITY_BYTES,
        block_bytes_min: 512,
        block_bytes_preferred: 4096,
        read_only: false,
        discard: true,
    }
}

fn store() -> Box<dyn Store> {
    Box::new(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES))
}

fn kernel() -> MockKernel {
    MockKernel::initialised(file(), store())
}

fn error(error: Errno) -> MockReply {
    MockReply { error: -(error as i32), body: Vec::new() }
}

fn u32_at(body: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(body[at..at + 4].try_into().unwrap())
}

fn u64_at(body: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(body[at..at + 8].try_into().unwrap())
}

#[test]
fn the_first_message_agrees_on_depth_and_size() {
    let mut kernel = MockKernel::new(file(), store());
    let unique = kernel.init(7, 45, u32::MAX);
    let MockReply { error: 0, body } = kernel.reply(unique) else { panic!("refused") };
    assert_eq!((u32_at(&body, 0), u32_at(&body, 4)), (7, 38), "the version that was looked through");
    let flags = init_flag::ASYNC_READ | init_flag::BIG_WRITES | init_flag::ASYNC_DIO | init_flag::MAX_PAGES;
    assert_eq!(u32_at(&body, 12), flags);
    let max_background = u32_at(&body, 16) & 0xFFFF;
    assert!(max_background >= 256, "12 by default, which caps the depth");
    assert_eq!(u32_at(&body, 20), REQUEST_BYTES_MAX);
    assert_eq!(u32_at(&body, 28) & 0xFFFF, 256, "pages of a request");
    // Only features offered by the kernel are used.
    let mut kernel = MockKernel::new(file(), store());
    let unique = kernel.init(7, 31, 0);
    let body = kernel.reply(unique).body;
    assert_eq!((u32_at(&body, 4), u32_at(&body, 12)), (31, init_flag::ASYNC_READ));
    let again = kernel.init(7, 31, 0);
    assert_eq!(kernel.reply(again), error(Errno::Protocol));
}

#[test]
fn versions_are_negotiated_or_refused() {
    for (major, minor) in [(6, 99), (7, 22), (0, 0)] {
        let mut kernel = MockKernel::new(file(), store());
        let unique = kernel.init(major, minor, 0);
        assert_eq!(kernel.reply(unique), error(Errno::Protocol), "{major}.{minor}");
    }
    let mut kernel = MockKernel::new(file(), store());
    let unique = kernel.init(8, 0, 0);
    assert_eq!(u32_at(&kernel.reply(unique).body, 0), 7, "a later kernel begins again with this");
    let early = kernel.read(0, 512);
    assert_eq!(kernel.reply(early), error(Errno::Protocol));
    let unique = kernel.init(7, 40, 0);
    assert_eq!(kernel.reply(unique).error, 0);
}

#[test]
fn the_root_is_the_file() {
    let mut kernel = kernel();
    let unique = kernel.send(opcode::GETATTR, ROOT, &[0; 16]);
    let body = kernel.reply(unique).body;
    assert!(u64_at(&body, 0) > 0, "attributes are kept");
    assert_eq!((u64_at(&body, 24), u64_at(&body, 32)), (CAPACITY_BYTES, CAPACITY_BYTES / 512));
    assert_eq!((u32_at(&body, 76), u32_at(&body, 80)), (0o100_600, 1), "a regular file with one link");
    assert_eq!(u32_at(&body, 96), 4096);
    let unique = kernel.send(opcode::OPEN, ROOT, &[2, 0, 0, 0, 0, 0, 0, 0]);
    let flags = u32_at(&kernel.reply(unique).body, 8);
    assert_eq!(flags, open_flag::DIRECT_IO | open_flag::NO_FLUSH | open_flag::PARALLEL_DIRECT_WRITES);
    let unique = kernel.send(opcode::STATFS, ROOT, &[]);
    assert_eq!(u64_at(&kernel.reply(unique).body, 0), CAPACITY_BYTES / 512);
    let mut without_discard = MockKernel::initialised(FuseFile { discard: false, ..file() }, store());
    let unique = without_discard.send(opcode::STATFS, ROOT, &[]);
    assert_eq!(without_discard.reply(unique), error(Errno::NotSupported), "it announces no writes of zeroes");
    let unique = kernel.send(opcode::LOOKUP, ROOT, b"name\0");
    assert_eq!(kernel.reply(unique), error(Errno::NotDirectory));
    let unique = kernel.send(opcode::GETATTR, 2, &[0; 16]);
    assert_eq!(kernel.reply(unique), error(Errno::NoEntry));
    for operation in [opcode::FLUSH, opcode::RELEASE] {
        let unique = kernel.send(operation, ROOT, &[0; 24]);
        assert_eq!(kernel.reply(unique), MockReply { error: 0, body: Vec::new() });
    }
    assert!(kernel.outstanding.is_empty(), "a close is no flush of the device");
}

#[test]
fn what_a_disk_has_no_use_for_is_not_served() {
    let mut kernel = kernel();
    let served = [1, 2, 3, 14, 15, 16, 17, 18, 20, 25, 26, 36, 38, 42, 43];
    for operation in (0..=64).chain([4096, u32::MAX]).filter(|operation| !served.contains(operation)) {
        let unique = kernel.send(operation, ROOT, &[0; 32]);
        assert_eq!(kernel.reply(unique), error(Errno::NotServed), "{operation}");
    }
    for operation in [opcode::FORGET, opcode::BATCH_FORGET, opcode::INTERRUPT] {
        let unique = kernel.send(operation, ROOT, &[0; 16]);
        assert!(!kernel.replies.contains_key(&unique));
    }
}

#[test]
fn requests_reach_the_device_as_they_were_sent() {
    let mut kernel = kernel();
    let data: Vec<u8> = (0..8192u32).map(|index| (index % 251) as u8).collect();
    let write = kernel.write(4096, &data);
    let sync = kernel.send(opcode::FSYNC, ROOT, &[0; 16]);
    let hole = kernel.fallocate(fallocate_mode::PUNCH_HOLE | fallocate_mode::KEEP_SIZE, 4096, 512);
    let zeros = kernel.fallocate(fallocate_mode::ZERO_RANGE, 5120, 1024);
    let read = kernel.read(4096, 8192);
    let requests: Vec<_> =
        kernel.outstanding.iter().map(|request| request.device_request(RequestId(0), 0, 7)).collect();
    let seen: Vec<_> = requests.iter().map(|request| (request.op, request.lba.0, request.sectors)).collect();
    let expected =
        [(Op::Write, 8, 16), (Op::Flush, 0, 0), (Op::Discard, 8, 1), (Op::WriteZeroes, 10, 2), (Op::Read, 8, 16)];
    assert_eq!(seen, expected);
    assert!(requests.iter().all(|request| request.issuer == 7 && !request.fua));
    assert!(kernel.replies.is_empty(), "nothing is answered before it is due");
    kernel.complete_all();
    assert_eq!(u32_at(&kernel.reply(write).body, 0), 8192);
    for unique in [sync, hole, zeros] {
        assert_eq!(kernel.reply(unique), MockReply { error: 0, body: Vec::new() });
    }
    let mut expected = data;
    expected[..512].fill(0);
    expected[1024..2048].fill(0);
    assert_eq!(kernel.reply(read).body, expected);
    assert_eq!(kernel.unanswered(), 0);
}

#[test]
fn a_device_without_discards_gets_zeros() {
    let mut kernel = MockKernel::initialised(FuseFile { discard: false, ..file() }, store());
    kernel.fallocate(fallocate_mode::PUNCH_HOLE | fallocate_mode::KEEP_SIZE, 0, 4096);
    assert_eq!(kernel.outstanding[0].command, FuseCommand::WriteZeroes);
}

#[test]
fn ranges_are_checked() {
    let mut kernel = MockKernel::initialised(FuseFile { block_bytes_min: 4096, ..file() }, store());
    let cases = [
        (kernel.read(0, 512), Errno::Invalid),
        (kernel.read(512, 4096), Errno::Invalid),
        (kernel.read(0, REQUEST_BYTES_MAX + 4096), Errno::TooBig),
        (kernel.write(CAPACITY_BYTES - 4096, &[0; 8192]), Errno::NoSpace),
        (kernel.write(u64::MAX - 4095, &[0; 4096]), Errno::NoSpace),
        (kernel.write(0, &[]), Errno::Invalid),
        (kernel.write(0, &[0; 512]), Errno::Invalid),
        (kernel.fallocate(fallocate_mode::ZERO_RANGE, 0, CAPACITY_BYTES + 4096), Errno::NoSpace),
        (kernel.fallocate(fallocate_mode::ZERO_RANGE, 0, 1 << 42), Errno::TooBig),
        (kernel.fallocate(fallocate_mode::ZERO_RANGE, 4096, u64::MAX), Errno::TooBig),
        (kernel.fallocate(fallocate_mode::PUNCH_HOLE, 0, 0), Errno::Invalid),
        (kernel.fallocate(0, 0, 4096), Errno::NotSupported),
        (kernel.fallocate(0x12, 0, 4096), Errno::NotSupported),
        (kernel.send(opcode::READ, ROOT, &[0; 19]), Errno::Invalid),
        (kernel.send(opcode::WRITE, ROOT, &[0; 39]), Errno::Invalid),
        (kernel.send(opcode::FALLOCATE, ROOT, &[0; 27]), Errno::Invalid),
        (kernel.send(opcode::OPEN, ROOT, &[0; 3]), Errno::Invalid),
    ];
    for (index, (unique, expected)) in cases.into_iter().enumerate() {
        assert_eq!(kernel.reply(unique), error(expected), "case {index}");
    }
    assert!(kernel.outstanding.is_empty());
    assert_eq!(kernel.session.refused_requests(), 16);
    // A read behind the end returns no bytes, and no error.
    let beyond = kernel.read(CAPACITY_BYTES, 4096);
    assert_eq!(kernel.reply(beyond), MockReply { error: 0, body: Vec::new() });
    let across = kernel.read(CAPACITY_BYTES - 4096, 8192);
    kernel.complete_all();
    assert_eq!(kernel.reply(across).body.len(), 4096);
}

#[test]
fn a_read_only_file_is_not_changed() {
    let mut kernel = MockKernel::initialised(FuseFile { read_only: true, ..file() }, store());
    let cases = [
        kernel.write(0, &[1; 512]),
        kernel.fallocate(fallocate_mode::PUNCH_HOLE, 0, 512),
        kernel.send(opcode::OPEN, ROOT, &[1, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for unique in cases {
        assert_eq!(kernel.reply(unique), error(Errno::ReadOnly));
    }
    let unique = kernel.send(opcode::OPEN, ROOT, &[0; 8]);
    assert_eq!(kernel.reply(unique).error, 0);
}

#[test]
fn messages_that_are_none_are_not_answered() {
    let mut kernel = kernel();
    for len in 0..40 {
        assert!(kernel.send_bytes(&vec![0xFF; len]));
    }
    // Number 0 would make the reply a notification.
    let mut anonymous = vec![0; 40];
    anonymous[0] = 40;
    anonymous[4] = 3;
    assert!(kernel.send_bytes(&anonymous));
    assert!(kernel.replies.is_empty());
    // A length that is not the message's.
    anonymous[0] = 41;
    anonymous[8] = 100;
    assert!(kernel.expect_any(100));
    assert!(kernel.send_bytes(&anonymous));
    assert_eq!(kernel.reply(100), error(Errno::Invalid));
    // The header claims another length of data than the message has.
    let mut body = vec![0; 40 + 512];
    body[16..20].copy_from_slice(&1024u32.to_ne_bytes());
    let unique = kernel.send(opcode::WRITE, ROOT, &body);
    assert_eq!(kernel.reply(unique), error(Errno::Invalid));
    assert!(!kernel.send_bytes(&vec![0; 2 << 20]), "there is no room for it");
}

#[test]
fn what_fails_is_told() {
    let mut kernel = kernel();
    let read = kernel.read(0, 512);
    let slot = kernel.outstanding.pop().unwrap().slot;
    assert!(kernel.session.complete(slot, Status::MediaError));
    assert!(!kernel.session.complete(slot, Status::Ok), "it is no longer outstanding");
    kernel.receive();
    assert_eq!(kernel.reply(read), error(Errno::Io));
    let mut full = MockKernel::initialised(file(), Box::new(RamStore::new(CAPACITY_BYTES, 0)));
    let write = full.write(0, &[1; 4096]);
    full.complete_all();
    assert_eq!(full.reply(write), error(Errno::NoSpace));
}

#[test]
fn what_is_in_flight_is_bounded() {
    let mut by_count = kernel();
    while by_count.session.wants_input() {
        by_count.read(0, 512);
    }
    assert_eq!(by_count.session.outstanding(), IN_FLIGHT_COUNT_MAX);
    by_count.complete_all();
    assert!(by_count.session.wants_input());
    let large = FuseFile { size_bytes: 1 << 30, ..file() };
    let mut by_bytes = MockKernel::initialised(large, Box::new(RamStore::new(1 << 30, 1 << 20)));
    while by_bytes.session.wants_input() {
        by_bytes.read(0, REQUEST_BYTES_MAX);
    }
    assert_eq!(by_bytes.session.outstanding() as u64, IN_FLIGHT_BYTES_MAX / u64::from(REQUEST_BYTES_MAX));
    by_bytes.complete_all();
    assert!(by_bytes.session.wants_input());
}

#[test]
fn after_the_unmount_nothing_is_read() {
    let mut kernel = kernel();
    let read = kernel.read(0, 512);
    let unique = kernel.send(opcode::DESTROY, ROOT, &[]);
    assert_eq!(kernel.reply(unique).error, 0);
    assert!(kernel.destroyed && kernel.session.has_ended() && !kernel.session.wants_input());
    kernel.complete_all();
    assert_eq!(kernel.reply(read).body.len(), 512);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Requests completed in any order: each reply belongs to its message and has its data.
    #[test]
    fn replies_belong_to_their_messages(order in Just((0..64u64).collect::<Vec<_>>()).prop_shuffle()) {
        let mut kernel = kernel();
        for index in 0..64u64 {
            kernel.write(index * 512, &[index as u8 + 1; 512]);
        }
        kernel.complete_all();
        let reads: Vec<u64> = (0..64).map(|index| kernel.read(index * 512, 512)).collect();
        for index in &order {
            prop_assert!(kernel.session.complete(kernel.outstanding[*index as usize].slot, Status::Ok));
        }
        kernel.receive();
        for (index, unique) in reads.into_iter().enumerate() {
            prop_assert_eq!(kernel.reply(unique).body, vec![index as u8 + 1; 512]);
        }
    }
}
