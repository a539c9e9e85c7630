//! The message layer: refused messages, errors that end the session, and passed descriptors.

mod common;

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use chronodisk_engine::MonotonicClock;
use chronodisk_front::BlkConfig;
use chronodisk_front::mock::{Layout, MEMORY_BYTES, MockDriver, TestBench};
use chronodisk_front::vhost_user::message::{
    FDS_MAX, HEADER_BYTES, Message, MessageDecoder, PAYLOAD_BYTES_MAX, ProtocolError, REGIONS_MAX, Request, code,
    encode, flag, vring_state,
};
use chronodisk_front::vhost_user::{Flow, VhostUserError, VhostUserSession};
use chronodisk_sim::Status;
use chronodisk_store::RamStore;
use common::{bench, config, store};
use proptest::prelude::*;
use virtio_bindings::bindings::virtio_blk::VIRTIO_BLK_T_IN;

/// Feeds a decoder as a socket would: at most `piece` bytes at a time, never beyond the end of a message. The
/// descriptors come with the first byte.
fn decode(bytes: &[u8], fds: Vec<OwnedFd>, piece: usize) -> Result<Vec<Message>, ProtocolError> {
    let mut decoder = MessageDecoder::new();
    let mut messages = Vec::new();
    let (mut rest, mut fds) = (bytes, fds);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(decoder.wanted_bytes()).min(piece));
        messages.extend(decoder.receive(now, std::mem::take(&mut fds))?);
        rest = later;
    }
    assert!(decoder.is_between_messages(), "a part of a message is left");
    Ok(messages)
}

/// A descriptor, and a socket that shows when its last copy is closed.
fn watched_fd() -> (OwnedFd, UnixStream) {
    let (fd, watcher) = UnixStream::pair().unwrap();
    watcher.set_nonblocking(true).unwrap();
    (fd.into(), watcher)
}

fn is_closed(mut watcher: &UnixStream) -> bool {
    matches!(watcher.read(&mut [0]), Ok(0))
}

#[test]
fn messages_survive_any_fragmentation() {
    let mut bytes = encode(code::SET_FEATURES, flag::NEED_REPLY, &0x1234_5678_9abc_def0u64.to_ne_bytes());
    bytes.extend(encode(code::SET_OWNER, 0, &[]));
    bytes.extend(encode(code::SET_VRING_NUM, 0, &vring_state(3, 128)));
    for piece in 1..30 {
        let messages = decode(&bytes, Vec::new(), piece).unwrap();
        assert_eq!(messages.len(), 3);
        assert!(messages[0].needs_reply && !messages[1].needs_reply);
        assert!(matches!(messages[0].request, Request::SetFeatures(0x1234_5678_9abc_def0)));
        assert!(matches!(messages[1].request, Request::SetOwner));
        assert!(matches!(messages[2].request, Request::SetVringNum { index: 3, size: 128 }));
    }
}

#[test]
fn broken_formats_end_the_stream() {
    let state = vring_state(0, 0);
    let mut two_versions = encode(code::GET_FEATURES, 0, &[]);
    two_versions[4] = 2;
    let mut large = encode(code::GET_FEATURES, 0, &[]);
    large[8..].copy_from_slice(&(PAYLOAD_BYTES_MAX as u32 + 1).to_ne_bytes());
    let mut regions = vec![0; 8];
    regions[0] = REGIONS_MAX as u8 + 1;
    let size_error = |code, size_bytes, expected_bytes| ProtocolError::PayloadSize { code, size_bytes, expected_bytes };
    let mut huge_config = vec![0; 12];
    huge_config[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    let cases = [
        (two_versions, ProtocolError::Version { code: code::GET_FEATURES, flags: 2 }),
        (
            encode(code::GET_FEATURES, flag::REPLY, &[]),
            ProtocolError::UnexpectedReply { code: code::GET_FEATURES, flags: 5 },
        ),
        (large, ProtocolError::PayloadTooLarge { code: code::GET_FEATURES, size_bytes: PAYLOAD_BYTES_MAX as u32 + 1 }),
        (encode(code::GET_FEATURES, 0, &[0]), size_error(code::GET_FEATURES, 1, 0)),
        (encode(code::SET_FEATURES, 0, &state[..4]), size_error(code::SET_FEATURES, 4, 8)),
        (encode(code::SET_VRING_NUM, 0, &[0; 9]), size_error(code::SET_VRING_NUM, 9, 8)),
        (encode(code::SET_VRING_ADDR, 0, &[0; 39]), size_error(code::SET_VRING_ADDR, 39, 40)),
        (encode(code::SET_MEM_TABLE, 0, &[0; 7]), size_error(code::SET_MEM_TABLE, 7, 8)),
        (encode(code::SET_MEM_TABLE, 0, &[1, 0, 0, 0, 0, 0, 0, 0]), size_error(code::SET_MEM_TABLE, 8, 40)),
        (
            encode(code::SET_MEM_TABLE, 0, &regions),
            ProtocolError::TooManyRegions { code: code::SET_MEM_TABLE, count: REGIONS_MAX as u32 + 1 },
        ),
        (encode(code::GET_CONFIG, 0, &[0; 11]), size_error(code::GET_CONFIG, 11, 12)),
        (encode(code::GET_CONFIG, 0, &huge_config), size_error(code::GET_CONFIG, 12, 12 + u32::MAX as usize)),
        (
            encode(code::SET_VRING_KICK, 0, &0x200u64.to_ne_bytes()),
            ProtocolError::VringIndexBits { code: code::SET_VRING_KICK, value: 0x200 },
        ),
        (
            encode(code::SET_VRING_CALL, 0, &0u64.to_ne_bytes()),
            ProtocolError::FdCount { code: code::SET_VRING_CALL, count: 0, expected: 1 },
        ),
        (
            encode(code::SET_BACKEND_REQ_FD, 0, &[]),
            ProtocolError::FdCount { code: code::SET_BACKEND_REQ_FD, count: 0, expected: 1 },
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(decode(&bytes, Vec::new(), 7).unwrap_err(), expected);
        let mut bench = TestBench::new(config(), store());
        bench.driver.send_bytes(&bytes, &[]).unwrap();
        let error = bench.pump().unwrap_err();
        assert!(matches!(error, VhostUserError::Protocol(error) if error == expected), "{error}");
    }
}

#[test]
fn descriptors_where_none_belong_are_closed() {
    for (message, count) in [
        (encode(code::GET_FEATURES, 0, &[]), 1),
        (encode(code::VRING_KICK, 0, &vring_state(0, 0)), 2),
        (encode(code::SET_VRING_KICK, 0, &0x100u64.to_ne_bytes()), 1),
        (encode(code::SET_VRING_CALL, 0, &0u64.to_ne_bytes()), 2),
        (encode(code::SET_BACKEND_REQ_FD, 0, &[]), 3),
        (encode(9999, 0, &[]), 1),
    ] {
        let (fd, watcher) = watched_fd();
        let fds: Vec<_> = (0..count).map(|_| fd.try_clone().unwrap()).collect();
        drop(fd);
        let error = decode(&message, fds, usize::MAX).unwrap_err();
        assert!(matches!(error, ProtocolError::FdCount { .. }), "{error}");
        assert!(is_closed(&watcher));
    }
}

#[test]
fn too_many_descriptors_are_closed() {
    // All descriptors at once, and a few with each byte.
    let (fd, watcher) = watched_fd();
    let mut bench = TestBench::new(config(), store());
    let kick = encode(code::VRING_KICK, 0, &vring_state(0, 0));
    bench.driver.send_bytes(&kick, &[fd.as_fd(); FDS_MAX + 1]).unwrap();
    assert!(matches!(bench.pump(), Err(VhostUserError::Protocol(ProtocolError::TooManyFds))));
    drop(bench);
    let mut bench = TestBench::new(config(), store());
    for byte in &kick[..3] {
        bench.driver.send_bytes(&[*byte], &[fd.as_fd(); 4]).unwrap();
    }
    assert!(matches!(bench.pump(), Err(VhostUserError::Protocol(ProtocolError::TooManyFds))));
    drop(bench);
    drop(fd);
    assert!(is_closed(&watcher));
}

#[test]
fn descriptors_belong_to_the_message_that_they_came_with() {
    let mut bench = bench();
    let (call, mut called) = UnixStream::pair().unwrap();
    let mut bytes = encode(code::SET_OWNER, 0, &[]);
    bench.driver.send_bytes(&bytes, &[]).unwrap();
    bytes = encode(code::SET_VRING_CALL, 0, &0u64.to_ne_bytes());
    bench.driver.send_bytes(&bytes, &[call.as_fd()]).unwrap();
    bytes = encode(code::SET_OWNER, 0, &[]);
    bench.driver.send_bytes(&bytes, &[]).unwrap();
    assert_eq!(bench.pump().unwrap(), Flow::Continue);
    drop(call);
    bench.driver.submit(VIRTIO_BLK_T_IN, 0, &[512], None, Layout::Direct);
    assert!(bench.kick());
    bench.complete_all(Status::Ok);
    let mut count = [0; 8];
    called.read_exact(&mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 1);
    assert_eq!(bench.driver.take_calls(), 0, "the call descriptor goes before the channel");
    // Removing the descriptor closes it, and calls are sent in band again.
    assert!(bench.acknowledged(code::SET_VRING_CALL, &0x100u64.to_ne_bytes(), &[]));
    assert_eq!(called.read(&mut count).unwrap(), 0);
    bench.driver.submit(VIRTIO_BLK_T_IN, 0, &[512], None, Layout::Direct);
    assert!(bench.kick());
    bench.complete_all(Status::Ok);
    assert_eq!(bench.driver.take_calls(), 1);
}

#[test]
fn what_can_not_be_is_refused_and_the_session_goes_on() {
    let mut bench = TestBench::new(config(), store());
    bench.negotiate();
    let state = |index, number| vring_state(index, number).to_vec();
    let mut logged = MockDriver::ring_addresses();
    logged[4] = 1;
    let cases = [
        (code::SET_FEATURES, u64::MAX.to_ne_bytes().to_vec(), "feature bits"),
        (code::SET_PROTOCOL_FEATURES, (1u64 << 4).to_ne_bytes().to_vec(), "feature bits"),
        (code::SET_VRING_NUM, state(1, 256), "ring 1"),
        (code::SET_VRING_NUM, state(0, 0), "a ring of 0"),
        (code::SET_VRING_NUM, state(0, 100), "a ring of 100"),
        (code::SET_VRING_NUM, state(0, 512), "a ring of 512"),
        (code::SET_VRING_NUM, state(0, 65536 + 256), "a ring of 65792"),
        (code::SET_VRING_BASE, state(0, 65536), "ring base"),
        (code::SET_VRING_ADDR, logged, "ring flags"),
        (code::SET_VRING_ENABLE, state(9, 1), "ring 9"),
        (code::SET_VRING_ENABLE, state(0, 1), "started before SET_MEM_TABLE"),
        (code::GET_VRING_BASE, state(1, 0), "ring 1"),
        (code::VRING_KICK, state(1, 0), "ring 1"),
        (code::VRING_KICK, state(0, 0), "does not run"),
        (code::SET_CONFIG, vec![0; 13], "read-only"),
        (code::SET_MEM_TABLE, vec![0; 8], "memory table"),
        (6, vec![0; 16], "unknown request"),
        (34, vec![], "unknown request"),
        (u32::MAX, vec![1; PAYLOAD_BYTES_MAX], "unknown request"),
    ];
    let count = cases.len() as u64;
    for (code, payload, reason) in cases {
        let mut fresh = TestBench::new(config(), store());
        fresh.negotiate();
        assert!(!fresh.acknowledged(code, &payload, &[]), "{reason}");
        let refusal = fresh.session.stats().first_refusal.clone().unwrap();
        assert!(refusal.contains(reason), "{refusal}: expected {reason}");
        assert!(!bench.acknowledged(code, &payload, &[]), "{reason}");
    }
    assert_eq!(bench.session.stats().refused_messages, count);
    bench.enable(false);
    bench.set_up_ring();
    assert!(bench.kick());
}

#[test]
fn what_can_not_be_refused_ends_the_session() {
    let mut bench = TestBench::new(config(), store());
    let error = bench.exchange(code::SET_VRING_NUM, flag::NEED_REPLY, &vring_state(0, 3), &[]).unwrap_err();
    assert!(matches!(error, VhostUserError::Refused { code: code::SET_VRING_NUM, .. }), "{error}");
    assert!(error.to_string().contains("SET_VRING_NUM"), "{error}");
}

#[test]
fn a_running_ring_can_not_be_changed() {
    let mut bench = bench();
    assert!(!bench.acknowledged(code::SET_VRING_NUM, &vring_state(0, 128), &[]));
    assert!(!bench.acknowledged(code::SET_VRING_BASE, &vring_state(0, 1), &[]));
    assert!(!bench.acknowledged(code::SET_VRING_ADDR, &MockDriver::ring_addresses(), &[]));
    assert!(bench.kick());
}

#[test]
fn rings_must_lie_in_memory_and_be_aligned() {
    for (at, delta) in [(8, 8), (16, 2), (24, 1), (8, MEMORY_BYTES), (16, MEMORY_BYTES), (24, u64::MAX / 2)] {
        let mut bench = bench();
        assert!(bench.enable(false));
        let mut addresses = MockDriver::ring_addresses();
        let address = u64::from_ne_bytes(addresses[at..at + 8].try_into().unwrap()).wrapping_add(delta);
        addresses[at..at + 8].copy_from_slice(&address.to_ne_bytes());
        assert!(bench.acknowledged(code::SET_VRING_ADDR, &addresses, &[]));
        assert!(!bench.enable(true), "{at} {delta:#x}");
        assert!(!bench.kick());
        assert!(bench.enable(false));
        bench.set_up_ring();
        assert!(bench.kick());
    }
}

#[test]
fn memory_tables_that_can_not_be() {
    let mut bench = bench();
    let file = bench.driver.memory_file().try_clone().unwrap();
    let (table, _) = bench.driver.memory_table();
    let page = 4096u64;
    // Offsets in a region: guest address 0, size 8, user address 16, offset 24; the second region
    // begins 32 bytes after the first.
    let cases: [(usize, u64, &str); 9] = [
        (8, 0, "empty"),
        (8, u64::MAX, "wraps"),
        (0, u64::MAX - page, "wraps"),
        (16, u64::MAX - page, "wraps"),
        (24, u64::MAX - page, "wraps"),
        (24, MEMORY_BYTES, "beyond its file"),
        (8, 1 << 40, "beyond its file"),
        (24, 123, "Invalid argument"),
        (32, chronodisk_front::mock::MEMORY_BASE + page, "overlap"),
    ];
    for (at, value, reason) in cases {
        let mut fresh = TestBench::new(config(), store());
        fresh.negotiate();
        let mut wrong = table.clone();
        wrong[8 + at..16 + at].copy_from_slice(&value.to_ne_bytes());
        assert!(!fresh.acknowledged(code::SET_MEM_TABLE, &wrong, &[file.as_fd(), file.as_fd()]), "{reason}");
        let refusal = fresh.session.stats().first_refusal.clone().unwrap();
        assert!(refusal.contains(reason), "{refusal}: expected {reason}");
        // The old table stays in force.
        assert!(!bench.acknowledged(code::SET_MEM_TABLE, &wrong, &[file.as_fd(), file.as_fd()]));
        assert!(bench.kick());
    }
    // A truncated file, and a descriptor of no file.
    let short = rustix::fs::memfd_create("short", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&short, page).unwrap();
    assert!(!bench.acknowledged(code::SET_MEM_TABLE, &table, &[short.as_fd(), file.as_fd()]));
    let (socket, _other) = UnixStream::pair().unwrap();
    assert!(!bench.acknowledged(code::SET_MEM_TABLE, &table, &[socket.as_fd(), file.as_fd()]));
    assert!(bench.kick());
}

#[test]
fn the_backend_channel_must_be_a_stream_socket() {
    let mut bench = TestBench::new(config(), store());
    bench.negotiate();
    let file = bench.driver.memory_file().try_clone().unwrap();
    assert!(!bench.acknowledged(code::SET_BACKEND_REQ_FD, &[], &[file.as_fd()]));
}

#[test]
fn event_descriptors_may_not_be_pipes() {
    // Writing to a pipe without a reader raises SIGPIPE.
    let mut bench = bench();
    let (reader, writer) = std::io::pipe().unwrap();
    for code in [code::SET_VRING_CALL, code::SET_VRING_ERR, code::SET_VRING_KICK] {
        assert!(!bench.acknowledged(code, &0u64.to_ne_bytes(), &[writer.as_fd()]));
    }
    drop(reader);
    assert!(bench.session.stats().first_refusal.as_ref().unwrap().contains("pipe"));
    assert!(bench.kick());
}

#[test]
fn a_socket_that_ends_anywhere_ends_the_session_cleanly() {
    let message = encode(code::SET_VRING_NUM, flag::NEED_REPLY, &vring_state(0, 256));
    for len in 0..=message.len() {
        for set_up in [false, true] {
            let mut bench = TestBench::new(config(), store());
            if set_up {
                bench.set_up();
                bench.driver.submit(VIRTIO_BLK_T_IN, 0, &[512], None, Layout::Direct);
                assert!(bench.kick());
                assert!(bench.enable(false));
            }
            if len > 0 {
                bench.driver.send_bytes(&message[..len], &[]).unwrap();
            }
            let TestBench { driver, mut session, mut recorder } = bench;
            drop(driver);
            let ending = loop {
                match session.readable(&mut recorder) {
                    Ok(Flow::Continue) => {}
                    ending => break ending,
                }
            };
            match ending {
                Ok(_) => assert!(len == 0 || len == message.len(), "{len}"),
                Err(VhostUserError::Truncated) => assert!(len > 0 && len < message.len(), "{len}"),
                // Before the acknowledgement is negotiated, a refusal ends the session. This message is valid, so it is
                // not refused.
                Err(error) => panic!("{len}: {error}"),
            }
            for arrival in recorder.arrivals {
                session.complete(arrival.request.id, Status::Ok);
            }
            // The channel is gone, as the socket shows.
            session.notify().unwrap();
        }
    }
}

#[test]
fn a_guest_that_dies_with_the_ring_running_ends_the_session() {
    let mut bench = bench();
    bench.driver.submit(VIRTIO_BLK_T_IN, 0, &[512], None, Layout::Direct);
    assert!(bench.kick());
    let TestBench { driver, mut session, mut recorder } = bench;
    drop(driver);
    session.complete(recorder.arrivals[0].request.id, Status::Ok);
    session.notify().unwrap();
    assert_eq!(session.readable(&mut recorder).unwrap(), Flow::Ended);
}

#[test]
fn a_guest_that_does_not_read_its_replies_is_given_up() {
    let mut bench = TestBench::new(config(), store());
    let message = encode(code::GET_FEATURES, 0, &[]);
    for _ in 0..100_000 {
        bench.driver.send_bytes(&message, &[]).unwrap();
        match bench.pump() {
            Ok(flow) => assert_eq!(flow, Flow::Continue),
            Err(error) => {
                assert!(matches!(error, VhostUserError::NotReading), "{error}");
                return;
            }
        }
    }
    panic!("the replies of 100,000 requests fit the socket");
}

#[test]
fn a_wrong_device_or_store_is_named() {
    let (_driver, socket) = MockDriver::new();
    let error =
        VhostUserSession::new(socket, BlkConfig { seg_max: 0, ..config() }, store(), Box::new(MonotonicClock::new()))
            .unwrap_err();
    assert!(error.to_string().contains("seg_max"), "{error}");
    let (_driver, socket) = MockDriver::new();
    let error =
        VhostUserSession::new(socket, config(), Box::new(RamStore::new(512, 0)), Box::new(MonotonicClock::new()))
            .unwrap_err();
    assert!(matches!(error, VhostUserError::StoreSize { store_bytes: 512, .. }), "{error}");
}

#[test]
fn the_queue_count_is_told() {
    let mut bench = bench();
    assert_eq!(bench.number(code::GET_QUEUE_NUM), 1);
    assert!(bench.acknowledged(code::RESET_OWNER, &[], &[]));
    assert!(!bench.kick(), "the ring runs on");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Any bytes, in any pieces: the result is a message or an error, independent of the pieces.
    #[test]
    fn pieces_change_nothing(
        messages in prop::collection::vec((0..40u32, 0..16u32, prop::collection::vec(any::<u8>(), 0..60)), 1..6),
        piece in 1..40usize,
    ) {
        let mut bytes = Vec::new();
        for (code, flags, payload) in &messages {
            let mut message = encode(*code, 0, payload);
            message[4..8].copy_from_slice(&flags.to_ne_bytes());
            bytes.extend(message);
        }
        let describe = |result: Result<Vec<Message>, ProtocolError>| format!("{result:?}");
        let whole = describe(decode(&bytes, Vec::new(), usize::MAX));
        prop_assert_eq!(whole, describe(decode(&bytes, Vec::new(), piece)));
        prop_assert!(bytes.len() >= HEADER_BYTES);
    }
}
