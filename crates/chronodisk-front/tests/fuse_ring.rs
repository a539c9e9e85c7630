//! Requests of FUSE over io_uring and their effects, without a kernel.

#[path = "common/allocations.rs"]
mod allocations;

use allocations::ALLOCATIONS;
use chronodisk_front::Errno;
use chronodisk_front::fuse::mock::{range, ring_header};
use chronodisk_front::fuse::ring_wire::RING_HEADER_BYTES;
use chronodisk_front::fuse::wire::{OutHeader, fallocate_mode, opcode};
use chronodisk_front::fuse::{
    FuseCommand, FuseEvent, FuseFile, FuseRequest, FuseRingSession, FuseRingViolation, REQUEST_BYTES_MAX,
};
use chronodisk_sim::Status;
use chronodisk_store::RamStore;
use proptest::prelude::*;

const CAPACITY_BYTES: u64 = 4 << 20;
const ENTRIES: u32 = 8;
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

fn session() -> FuseRingSession {
    FuseRingSession::new(file(), ENTRIES)
}

fn store() -> RamStore {
    RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES)
}

/// A request that the session accepts.
fn request(session: &mut FuseRingSession, entry: u32, header: &[u8; RING_HEADER_BYTES]) -> FuseRequest {
    match session.fetched(entry, 0, header) {
        Ok(Some(FuseEvent::Request(request))) => request,
        other => panic!("{other:?}"),
    }
}

/// Takes the next reply, which must be this entry's to the request of this number: its error, its body, and the length
/// of its payload.
fn reply(session: &mut FuseRingSession, entry: u32, unique: u64) -> (i32, Vec<u8>, u32) {
    let reply = session.next_reply().expect("a reply waits");
    let header = OutHeader::decode(&reply.header).unwrap();
    assert_eq!((reply.entry, reply.commit_id, header.unique), (entry, unique, unique));
    assert_eq!(header.len, 16 + reply.payload_bytes);
    let taken = (header.error, reply.body.to_vec(), reply.payload_bytes);
    session.sent();
    taken
}

fn error(error: Errno) -> (i32, Vec<u8>, u32) {
    (-(error as i32), Vec::new(), 0)
}

fn fallocate(mode: u32, offset_bytes: u64, len_bytes: u64) -> Vec<u8> {
    let mut body = vec![0; 32];
    body[8..16].copy_from_slice(&offset_bytes.to_ne_bytes());
    body[16..24].copy_from_slice(&len_bytes.to_ne_bytes());
    body[24..28].copy_from_slice(&mode.to_ne_bytes());
    body
}

#[test]
fn bytes_go_through_the_payload() {
    let (mut session, mut store) = (session(), store());
    let mut payload = vec![7; 4096];
    let write = request(&mut session, 3, &ring_header(opcode::WRITE, 10, ROOT, &range(8192, 4096), 4096));
    assert_eq!((write.slot, write.command, write.offset_bytes, write.len_bytes), (3, FuseCommand::Write, 8192, 4096));
    assert_eq!(session.payload_bytes(3), 4096);
    session.execute(3, &mut store, &mut payload).unwrap();
    assert!(session.complete(3, Status::Ok) && !session.complete(3, Status::Ok));
    let (error, body, payload_bytes) = reply(&mut session, 3, 10);
    assert_eq!((error, u32::from_ne_bytes(*body.first_chunk().unwrap()), payload_bytes), (0, 4096, 8));
    payload.fill(0);
    let read = request(&mut session, 3, &ring_header(opcode::READ, 12, ROOT, &range(8192, 4096)[..40], 0));
    assert_eq!(read.command, FuseCommand::Read);
    session.execute(3, &mut store, &mut payload).unwrap();
    assert_eq!(payload, [7; 4096]);
    session.complete(3, Status::Ok);
    assert_eq!(reply(&mut session, 3, 12), (0, Vec::new(), 4096), "the data are in the payload");
    // A read of the last block is shortened.
    let end = range(CAPACITY_BYTES - 512, 4096);
    assert_eq!(request(&mut session, 0, &ring_header(opcode::READ, 14, ROOT, &end, 0)).len_bytes, 512);
    assert_eq!(session.outstanding(), 1);
}

#[test]
fn flushes_holes_and_zeros_reach_the_device() {
    let (mut session, mut store) = (session(), store());
    let cases = [
        (opcode::FSYNC, vec![0; 16], FuseCommand::Flush),
        (opcode::FALLOCATE, fallocate(fallocate_mode::PUNCH_HOLE, 0, 512), FuseCommand::Discard),
        (opcode::FALLOCATE, fallocate(fallocate_mode::ZERO_RANGE, 0, 512), FuseCommand::WriteZeroes),
    ];
    for (entry, (operation, structure, command)) in (0..).zip(cases) {
        let unique = 2 + u64::from(entry);
        let request = request(&mut session, entry, &ring_header(operation, unique, ROOT, &structure, 0));
        assert_eq!((request.command, session.payload_bytes(entry)), (command, 0));
        session.execute(entry, &mut store, &mut []).unwrap();
        session.complete(entry, Status::Ok);
        assert_eq!(reply(&mut session, entry, unique), (0, Vec::new(), 0));
    }
    for (operation, bytes) in [(opcode::GETATTR, 104), (opcode::OPEN, 16), (opcode::STATFS, 80), (opcode::RELEASE, 0)] {
        assert_eq!(session.fetched(5, 0, &ring_header(operation, 20, ROOT, &[0; 16], 0)), Ok(None));
        let (error, body, payload_bytes) = reply(&mut session, 5, 20);
        assert_eq!((error, body.len(), payload_bytes), (0, bytes, bytes as u32));
    }
}

#[test]
fn wrong_requests_are_refused_and_their_entry_is_returned() {
    let mut session = session();
    let write =
        |len_bytes: u32, payload_bytes: u32| ring_header(opcode::WRITE, 2, ROOT, &range(0, len_bytes), payload_bytes);
    let read =
        |offset_bytes: u64, len_bytes: u32| ring_header(opcode::READ, 2, ROOT, &range(offset_bytes, len_bytes), 0);
    let mut contradicting = write(512, 512);
    contradicting[..4].copy_from_slice(&u32::MAX.to_ne_bytes());
    let cases = [
        (write(512, 1024), Errno::Invalid),
        (write(512, 0), Errno::Invalid),
        (write(1 << 21, 1 << 21), Errno::TooBig),
        (write(u32::MAX, u32::MAX), Errno::TooBig),
        (contradicting, Errno::Invalid),
        (read(1, 512), Errno::Invalid),
        (read(0, REQUEST_BYTES_MAX + 512), Errno::TooBig),
        (ring_header(opcode::READ, 2, ROOT, &[0; 8], 0), Errno::Invalid),
        (ring_header(opcode::READ, 2, 9, &range(0, 512), 0), Errno::NoEntry),
        (ring_header(opcode::INIT, 2, 0, &[7; 64], 0), Errno::Protocol),
        (ring_header(opcode::LOOKUP, 2, ROOT, &[], 4), Errno::NotDirectory),
        (ring_header(0xFFFF, 2, ROOT, &[], 0), Errno::NotServed),
    ];
    for (index, (header, expected)) in cases.into_iter().enumerate() {
        assert_eq!(session.fetched(1, 0, &header), Ok(None), "case {index}");
        assert_eq!(reply(&mut session, 1, 2), error(expected), "case {index}");
    }
    assert_eq!(session.refused_requests(), 9);
}

#[test]
fn failures_are_replied() {
    let (mut session, mut store) = (session(), store());
    let header = ring_header(opcode::READ, 2, ROOT, &range(0, 512), 0);
    request(&mut session, 0, &header);
    session.execute(0, &mut store, &mut [0; 512]).unwrap();
    session.complete(0, Status::MediaError);
    assert_eq!(reply(&mut session, 0, 2), error(Errno::Io));
    // A read without data never delivers the former contents of the payload.
    request(&mut session, 0, &header);
    session.complete(0, Status::Ok);
    assert_eq!(reply(&mut session, 0, 2), error(Errno::Io));
    request(&mut session, 0, &header);
    assert!(session.execute(0, &mut store, &mut []).is_err(), "there is no room");
    assert!(session.execute(1, &mut store, &mut [0; 512]).is_err(), "there is no request");
}

#[test]
fn a_kernel_that_breaks_the_protocol_is_told_apart_from_the_end() {
    let header = ring_header(opcode::READ, 2, ROOT, &range(0, 512), 0);
    assert_eq!(session().fetched(ENTRIES, 0, &header), Err(FuseRingViolation::Entry(ENTRIES)));
    assert_eq!(session().fetched(1, -22, &header), Err(FuseRingViolation::Result(1, -22)));
    assert_eq!(session().fetched(1, 5, &header), Err(FuseRingViolation::Result(1, 5)));
    let unnamed = ring_header(opcode::READ, 0, ROOT, &range(0, 512), 0);
    assert_eq!(session().fetched(1, 0, &unnamed), Err(FuseRingViolation::Unnamed(1)));
    let mut twice = session();
    request(&mut twice, 1, &header);
    assert_eq!(twice.fetched(1, 0, &header), Err(FuseRingViolation::NotFetched(1)));
    for result in [-107, -103, -19, -125, -2] {
        let mut session = session();
        request(&mut session, 0, &header);
        assert_eq!(session.fetched(1, result, &header), Ok(Some(FuseEvent::Destroyed)));
        assert!(session.has_ended());
        // The outstanding request is still completed.
        assert!(session.complete(0, Status::Ok));
        assert_eq!(session.outstanding(), 0);
    }
    let mut destroyed = session();
    let destroy = ring_header(opcode::DESTROY, 4, ROOT, &[], 0);
    assert_eq!(destroyed.fetched(0, 0, &destroy), Ok(Some(FuseEvent::Destroyed)));
    assert_eq!(reply(&mut destroyed, 0, 4), (0, Vec::new(), 0));
}

#[test]
fn a_steady_load_allocates_nothing() {
    let (mut session, mut store) = (session(), store());
    let mut payload = vec![1; 64 << 10];
    let headers = [
        ring_header(opcode::WRITE, 2, ROOT, &range(0, 64 << 10), 64 << 10),
        ring_header(opcode::READ, 2, ROOT, &range(0, 64 << 10), 0),
        ring_header(opcode::FSYNC, 2, ROOT, &[0; 16], 0),
    ];
    let mut round = || {
        for header in &headers {
            for entry in 0..ENTRIES {
                request(&mut session, entry, header);
                session.execute(entry, &mut store, &mut payload).unwrap();
            }
            for entry in (0..ENTRIES).rev() {
                assert!(session.complete(entry, Status::Ok));
            }
            while session.next_reply().is_some() {
                session.sent();
            }
        }
    };
    round();
    let before = ALLOCATIONS.get();
    (0..20).for_each(|_| round());
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

proptest! {
    /// Any header of any entry: a request inside the file, a reply, or a violation.
    #[test]
    fn any_header_is_answered(
        commands in prop::collection::vec(
            (0..ENTRIES + 1, -3..4_i32, prop::collection::vec(any::<u8>(), RING_HEADER_BYTES), 0..60_u8),
            1..40,
        ),
    ) {
        let (mut session, mut store) = (session(), store());
        let mut payload = vec![0; REQUEST_BYTES_MAX as usize];
        for (entry, result, bytes, operation) in commands {
            let mut header: [u8; RING_HEADER_BYTES] = bytes.try_into().unwrap();
            if operation < 50 {
                // An operation that exists, a known node and plausible lengths.
                header[4..8].copy_from_slice(&u32::from(operation).to_ne_bytes());
                header[16..24].copy_from_slice(&ROOT.to_ne_bytes());
                header[..4].copy_from_slice(&(40 + 40_u32).to_ne_bytes());
                header[272..276].fill(0);
            }
            if let Ok(Some(FuseEvent::Request(request))) = session.fetched(entry, result.min(0), &header) {
                    prop_assert!(request.offset_bytes + request.len_bytes <= CAPACITY_BYTES);
                    prop_assert!(session.payload_bytes(entry) <= payload.len());
                    session.execute(entry, &mut store, &mut payload).unwrap();
                    session.complete(entry, Status::Ok);
            }
            while let Some(reply) = session.next_reply() {
                prop_assert!(reply.body.len() <= reply.payload_bytes as usize);
                prop_assert!(reply.payload_bytes <= REQUEST_BYTES_MAX);
                session.sent();
            }
        }
    }
}
