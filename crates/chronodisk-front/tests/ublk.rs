//! Commands of the ublk driver and their effects, without a kernel.

#[path = "common/allocations.rs"]
mod allocations;

use std::collections::BTreeMap;

use allocations::ALLOCATIONS;
use chronodisk_front::ublk::wire::{Descriptor, FLAG_FUA, RESULT_ABORT, attribute, op};
use chronodisk_front::ublk::{
    QUEUE_DEPTH, REQUEST_BYTES_MAX, UblkCommand, UblkDisk, UblkEvent, UblkRequest, UblkSession, UblkViolation,
};
use chronodisk_sim::{Op, RequestId, Status};
use chronodisk_store::{RamStore, Store, StoreError};
use proptest::prelude::*;

const CAPACITY_BYTES: u64 = 1 << 20;
const EIO: i32 = -5;
const EINVAL: i32 = -22;
const ENOSPC: i32 = -28;
const EROFS: i32 = -30;
const EOPNOTSUPP: i32 = -95;

fn disk() -> UblkDisk {
    UblkDisk {
        size_bytes: CAPACITY_BYTES,
        block_bytes: 512,
        physical_block_bytes: 4096,
        read_only: false,
        discard_unit_bytes: Some(4096),
        volatile_cache: true,
        rotational: false,
    }
}

fn store() -> RamStore {
    RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES)
}

fn descriptor(op_flags: u32, start_sector: u64, sectors: u32) -> Descriptor {
    Descriptor { op_flags, sectors, start_sector }
}

/// The request of a command that the session accepts.
fn request(session: &mut UblkSession, tag: u16, descriptor: Descriptor) -> UblkRequest {
    match session.fetched(tag, 0, descriptor) {
        Ok(Some(UblkEvent::Request(request))) => request,
        other => panic!("{descriptor:?}: {other:?}"),
    }
}

/// Takes the next result, which must be this tag's.
fn result(session: &mut UblkSession, tag: u16) -> (i32, Vec<u8>) {
    let reply = session.next_reply().expect("a result waits");
    assert_eq!(reply.tag, tag);
    let taken = (reply.result, reply.data.to_vec());
    session.sent();
    taken
}

#[test]
fn requests_reach_the_device_as_the_kernel_meant_them() {
    let mut session = UblkSession::new(disk());
    let kinds = [
        (op::READ, UblkCommand::Read, Op::Read, false),
        (op::WRITE, UblkCommand::Write, Op::Write, false),
        (op::WRITE | FLAG_FUA | 1 << 8, UblkCommand::Write, Op::Write, true),
        (op::DISCARD, UblkCommand::Discard, Op::Discard, false),
        (op::WRITE_ZEROES | 1 << 15, UblkCommand::WriteZeroes, Op::WriteZeroes, false),
    ];
    for (tag, (op_flags, command, op, fua)) in kinds.into_iter().enumerate() {
        let request = request(&mut session, tag as u16, descriptor(op_flags, 16, 8));
        assert_eq!((request.command, request.offset_bytes, request.len_bytes), (command, 8192, 4096));
        let device = request.device_request(RequestId(9), 0, 3);
        assert_eq!((device.op, device.fua, device.issuer), (op, fua, 3));
        assert_eq!((device.lba.offset_bytes(), device.len_bytes()), (8192, 4096));
    }
    let flush = request(&mut session, 9, descriptor(op::FLUSH, 0, 0));
    assert_eq!((flush.command, flush.len_bytes), (UblkCommand::Flush, 0));
    assert_eq!(session.outstanding(), 6);
    for tag in [0, 1, 2, 3, 4, 9] {
        assert_eq!(session.room(tag).len(), if matches!(tag, 1 | 2) { 4096 } else { 0 });
        session.execute(tag, &mut store()).unwrap();
        assert!(session.complete(tag, Status::Ok));
        assert!(!session.complete(tag, Status::Ok));
    }
    let results = [0, 1, 2, 3, 4, 9].map(|tag| result(&mut session, tag).0);
    assert_eq!(results, [4096, 4096, 4096, 0, 0, 0], "bytes that moved");
    assert!(!session.has_output());
}

#[test]
fn wrong_requests_are_refused_with_an_error_number() {
    let last = CAPACITY_BYTES / 512;
    let cases = [
        (descriptor(op::READ, last, 1), EINVAL),
        (descriptor(op::READ, last - 1, 2), EINVAL),
        (descriptor(op::WRITE, 0, 0), EINVAL),
        (descriptor(op::WRITE, u64::MAX, 1), EINVAL),
        (descriptor(op::WRITE_ZEROES, u64::MAX / 512, u32::MAX), EINVAL),
        (descriptor(op::READ, 0, REQUEST_BYTES_MAX / 512 + 1), EINVAL),
        // WRITE_SAME, operations of zones, and unknown ones.
        (descriptor(4, 0, 1), EOPNOTSUPP),
        (descriptor(13, 0, 1), EOPNOTSUPP),
        (descriptor(18, 0, 1), EOPNOTSUPP),
        (descriptor(255, 0, 1), EOPNOTSUPP),
    ];
    let mut session = UblkSession::new(disk());
    for (case, errno) in cases {
        assert_eq!(session.fetched(7, 0, case), Ok(None), "{case:?}");
        assert_eq!(result(&mut session, 7), (errno, Vec::new()), "{case:?}");
    }
    assert_eq!((session.refused_requests(), session.outstanding()), (10, 0));
    let mut session = UblkSession::new(UblkDisk { discard_unit_bytes: None, block_bytes: 4096, ..disk() });
    for (case, errno) in [(descriptor(op::DISCARD, 0, 8), EOPNOTSUPP), (descriptor(op::READ, 1, 8), EINVAL)] {
        assert_eq!(session.fetched(7, 0, case), Ok(None));
        assert_eq!(result(&mut session, 7).0, errno);
    }
    let mut session = UblkSession::new(UblkDisk { read_only: true, ..disk() });
    for op_flags in [op::WRITE, op::DISCARD, op::WRITE_ZEROES] {
        assert_eq!(session.fetched(7, 0, descriptor(op_flags, 0, 8)), Ok(None));
        assert_eq!(result(&mut session, 7).0, EROFS);
    }
}

#[test]
fn failures_of_device_and_store_become_error_numbers() {
    let mut session = UblkSession::new(disk());
    let read = descriptor(op::READ, 0, 8);
    for (status, errno) in [(Status::MediaError, EIO), (Status::Aborted, EIO), (Status::Unsupported, EOPNOTSUPP)] {
        request(&mut session, 0, read);
        session.execute(0, &mut store()).unwrap();
        session.complete(0, status);
        assert_eq!(result(&mut session, 0), (errno, Vec::new()), "{status:?}");
    }
    request(&mut session, 0, read);
    session.complete(0, Status::Ok);
    assert_eq!(result(&mut session, 0).0, EIO, "the data were never read");
    request(&mut session, 0, descriptor(op::WRITE, 0, 64));
    session.room(0).fill(1);
    let mut full = RamStore::new(CAPACITY_BYTES, 4096);
    assert!(matches!(session.execute(0, &mut full), Err(StoreError::BudgetExceeded { .. })));
    session.complete(0, Status::Ok);
    assert_eq!(result(&mut session, 0).0, ENOSPC);
    request(&mut session, 0, descriptor(op::WRITE, 0, 8));
    session.refuse(0);
    assert_eq!(result(&mut session, 0).0, EIO, "its data could not be copied");
    assert_eq!(session.outstanding(), 0);
}

#[test]
fn a_kernel_that_breaks_the_protocol_ends_the_session() {
    let mut session = UblkSession::new(disk());
    let read = descriptor(op::READ, 0, 8);
    assert_eq!(session.fetched(QUEUE_DEPTH, 0, read), Err(UblkViolation::Tag(QUEUE_DEPTH)));
    request(&mut session, 3, read);
    assert_eq!(session.fetched(3, 0, read), Err(UblkViolation::NotFetched(3)));
    for result in [1, -22, i32::MIN] {
        assert_eq!(session.fetched(4, result, read), Err(UblkViolation::Result(4, result)));
    }
    assert!(!session.has_ended());
    assert_eq!(session.fetched(5, RESULT_ABORT, read), Ok(Some(UblkEvent::Ended)));
    assert!(session.has_ended());
    assert_eq!(session.fetched(5, 0, read), Err(UblkViolation::NotFetched(5)));
}

#[test]
fn the_kernel_is_told_what_the_device_has() {
    let bits = |disk: UblkDisk| disk.parameters().attributes;
    assert_eq!(bits(disk()), attribute::VOLATILE_CACHE | attribute::FUA);
    let other = UblkDisk { volatile_cache: false, rotational: true, read_only: true, ..disk() };
    assert_eq!(bits(other), attribute::ROTATIONAL | attribute::READ_ONLY);
    let parameters = disk().parameters();
    assert_eq!((parameters.logical_block_shift, parameters.physical_block_shift), (9, 12));
    assert_eq!((parameters.capacity_sectors, parameters.sectors_max), (2048, 1024));
    let without = UblkDisk { discard_unit_bytes: None, ..disk() }.parameters();
    assert_eq!((without.discard_sectors_max, without.discard_granularity), (0, 512));
    for (wrong, field) in [
        (UblkDisk { block_bytes: 8192, physical_block_bytes: 8192, ..disk() }, "block_bytes"),
        (UblkDisk { block_bytes: 1000, ..disk() }, "block_bytes"),
        (UblkDisk { physical_block_bytes: 256, ..disk() }, "physical_block_bytes"),
        (UblkDisk { size_bytes: 1000, ..disk() }, "size_bytes"),
        (UblkDisk { discard_unit_bytes: Some(256), ..disk() }, "discard_unit_bytes"),
    ] {
        assert!(wrong.check().unwrap_err().starts_with(field), "{wrong:?}");
    }
    disk().check().unwrap();
}

/// Tags that hold a request at once.
const DEPTH: u16 = 64;

/// Each tag gets a request of its own place, executed at once and completed in another order.
fn round(session: &mut UblkSession, store: &mut dyn Store, op_flags: u32, sectors: u32) {
    for tag in 0..DEPTH {
        let start = u64::from(tag) * u64::from(sectors);
        let sectors = if op_flags == op::FLUSH { 0 } else { sectors };
        let fetched = session.fetched(tag, 0, descriptor(op_flags, start, sectors));
        assert!(matches!(fetched, Ok(Some(UblkEvent::Request(_)))));
        // Zeros would free the store's memory.
        session.room(tag).fill(tag as u8 | 1);
        session.execute(tag, store).unwrap();
    }
    for index in 0..DEPTH {
        assert!(session.complete(index * 7 % DEPTH, Status::Ok));
    }
    while session.has_output() {
        session.sent();
    }
}

#[test]
fn depth_64_allocates_nothing() {
    let size_bytes = u64::from(DEPTH) * u64::from(REQUEST_BYTES_MAX);
    let mut session = UblkSession::new(UblkDisk { size_bytes, ..disk() });
    let mut store = RamStore::new(size_bytes, 2 * size_bytes);
    for sectors in [8, REQUEST_BYTES_MAX / 512] {
        for op_flags in [op::WRITE, op::READ, op::FLUSH] {
            for _ in 0..3 {
                round(&mut session, &mut store, op_flags, sectors);
            }
            let before = ALLOCATIONS.get();
            for _ in 0..3 {
                round(&mut session, &mut store, op_flags, sectors);
            }
            assert_eq!(ALLOCATIONS.get() - before, 0, "operation {op_flags} of {sectors} sectors");
        }
    }
}

/// A command of the kernel, or a completion of the device.
#[derive(Clone, Debug)]
enum Step {
    Command { tag: u16, op_flags: u32, start: u64, sectors: u32, byte: u8 },
    Complete { index: usize, fails: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let ops = prop_oneof![Just(0_u32), Just(1), Just(2), Just(3), Just(5), Just(1 | FLAG_FUA), any::<u32>()];
    let command = (0..QUEUE_DEPTH + 1, ops, 0..2100_u64, 0..1100_u32, any::<u8>())
        .prop_map(|(tag, op_flags, start, sectors, byte)| Step::Command { tag, op_flags, start, sectors, byte });
    let complete = (any::<usize>(), any::<bool>()).prop_map(|(index, fails)| Step::Complete { index, fails });
    prop_oneof![2 => command, 1 => complete]
}

proptest! {
    /// Each accepted request has one result, in the order of completions, and a read returns the latest write.
    #[test]
    fn each_command_gets_one_result(steps in prop::collection::vec(step(), 1..80)) {
        let (mut session, mut store) = (UblkSession::new(disk()), store());
        let mut bytes = vec![0_u8; CAPACITY_BYTES as usize];
        let mut outstanding: BTreeMap<u16, (UblkRequest, Vec<u8>)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Command { tag, op_flags, start, sectors, byte } => {
                    match session.fetched(tag, 0, descriptor(op_flags, start, sectors)) {
                        Ok(Some(UblkEvent::Request(request))) => {
                            session.room(tag).fill(byte);
                            session.execute(tag, &mut store).unwrap();
                            let begin = request.offset_bytes as usize;
                            let range = begin..begin + request.len_bytes as usize;
                            match request.command {
                                UblkCommand::Write => bytes[range.clone()].fill(byte),
                                UblkCommand::Discard | UblkCommand::WriteZeroes => bytes[range.clone()].fill(0),
                                UblkCommand::Read | UblkCommand::Flush => {}
                            }
                            let is_read = request.command == UblkCommand::Read;
                            let expected = if is_read { bytes[range].to_vec() } else { Vec::new() };
                            prop_assert!(outstanding.insert(tag, (request, expected)).is_none());
                        }
                        Ok(None) => {
                            prop_assert!(!outstanding.contains_key(&tag));
                            let (code, data) = result(&mut session, tag);
                            prop_assert!(code < 0 && data.is_empty());
                        }
                        Ok(Some(UblkEvent::Ended)) => prop_assert!(false, "nothing ended it"),
                        Err(_) => prop_assert!(tag >= QUEUE_DEPTH || outstanding.contains_key(&tag)),
                    }
                }
                Step::Complete { index, fails } => {
                    let Some(&tag) = outstanding.keys().nth(index % outstanding.len().max(1)) else { continue };
                    let (request, expected) = outstanding.remove(&tag).unwrap();
                    session.complete(tag, if fails { Status::MediaError } else { Status::Ok });
                    let (code, data) = result(&mut session, tag);
                    let moved = matches!(request.command, UblkCommand::Read | UblkCommand::Write);
                    let success = if moved { request.len_bytes as i32 } else { 0 };
                    prop_assert_eq!(code, if fails { EIO } else { success });
                    prop_assert!(fails || data == expected);
                }
            }
            prop_assert_eq!(session.outstanding(), outstanding.len());
        }
    }
}
