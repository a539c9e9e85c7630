//! Requests and replies, from the client's bytes to the store's and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronodisk_front::nbd::mock::{Content, MockClient, Reply, RequestBytes, client_flags, option_request};
use chronodisk_front::nbd::wire::{command, command_flag as flag, option};
use chronodisk_front::nbd::{
    Event, Export, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_COUNT_MAX, NbdError, Reason, ServerOffer, Tls, Violation,
};
use chronodisk_sim::{Lba, Op, RequestId, Status};
use chronodisk_store::RamStore;
use proptest::prelude::*;

const CAPACITY_BYTES: u64 = 128 << 20;

fn offer(change: impl FnOnce(&mut Export)) -> Arc<ServerOffer> {
    let mut export = Export::new("disk", CAPACITY_BYTES);
    change(&mut export);
    Arc::new(ServerOffer::new(vec![export], Tls::Off).unwrap())
}

fn store() -> Box<RamStore> {
    Box::new(RamStore::new(CAPACITY_BYTES, CAPACITY_BYTES))
}

fn structured() -> MockClient {
    MockClient::negotiated(offer(|_| {}), store())
}

fn simple() -> MockClient {
    let mut client = MockClient::new(offer(|_| {}), store());
    client.send(&client_flags());
    client.send(&option_request(option::EXPORT_NAME, b""));
    client.receive();
    client.said.clear();
    client
}

fn request(command: u16, offset_bytes: u64, len_bytes: u32) -> RequestBytes<'static> {
    RequestBytes { command, offset_bytes, len_bytes, cookie: 0x0123_4567_89ab_cdef, ..RequestBytes::default() }
}

fn write(offset_bytes: u64, data: &[u8]) -> RequestBytes<'_> {
    RequestBytes { data, ..request(command::WRITE, offset_bytes, data.len() as u32) }
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ seed).collect()
}

fn only(mut replies: Vec<Reply>) -> Reply {
    assert_eq!(replies.len(), 1, "{replies:?}");
    replies.remove(0)
}

fn closing(client: &MockClient) -> Option<Reason> {
    client.events.iter().find_map(|event| match event {
        Event::Closing(reason) => Some(*reason),
        _ => None,
    })
}

#[test]
fn a_simple_reply_on_the_wire() {
    let mut client = simple();
    client.send(&write(512, &pattern(1, 512)).encode());
    client.complete_all();
    let mut expected = b"\x67\x44\x66\x98\0\0\0\0\x01\x23\x45\x67\x89\xab\xcd\xef".to_vec();
    assert_eq!(client.said, expected);
    client.said.clear();
    client.send(&request(command::READ, 512, 512).encode());
    client.complete_all();
    expected.extend(pattern(1, 512));
    assert_eq!(client.said, expected);
}

#[test]
fn a_structured_reply_on_the_wire() {
    let mut client = structured();
    client.ask(write(512, &pattern(1, 512)));
    client.send(&request(command::READ, 512, 512).encode());
    client.complete_all();
    let mut expected = b"\x66\x8e\x33\xef\0\x01\0\x01\x01\x23\x45\x67\x89\xab\xcd\xef\0\0\x02\x08".to_vec();
    expected.extend(512u64.to_be_bytes());
    expected.extend(pattern(1, 512));
    assert_eq!(client.said, expected);
}

#[test]
fn what_was_written_is_read_trimmed_and_zeroed() {
    for mut client in [simple(), structured()] {
        let data = |client: &mut MockClient, offset_bytes, len| match only(client.ask(request(
            command::READ,
            offset_bytes,
            len,
        ))) {
            Reply::Simple { error: 0, data, .. } | Reply::Chunk { content: Content::Data { data, .. }, .. } => data,
            other => panic!("{other:?}"),
        };
        assert_eq!(only(client.ask(write(8192, &pattern(7, 8192)))).error(), 0);
        assert_eq!(data(&mut client, 4096, 12_288), [vec![0; 4096], pattern(7, 8192)].concat());
        assert_eq!(only(client.ask(request(command::TRIM, 8192, 4096))).error(), 0);
        assert_eq!(only(client.ask(request(command::WRITE_ZEROES, 12_288, 512))).error(), 0);
        assert_eq!(data(&mut client, 8192, 8192), [vec![0; 4608], pattern(7, 8192)[4608..].to_vec()].concat());
        assert_eq!(only(client.ask(request(command::CACHE, 0, 1 << 20))).error(), 0);
        assert_eq!(only(client.ask(request(command::FLUSH, 0, 0))).error(), 0);
        let largest = pattern(3, 32 << 20);
        assert_eq!(only(client.ask(write(1 << 20, &largest))).error(), 0);
        assert!(data(&mut client, 1 << 20, 32 << 20) == largest);
    }
}

#[test]
fn long_sparse_reads_come_with_holes_unless_in_one_piece() {
    let mut client = structured();
    client.ask(write(64 << 10, &pattern(1, 4096)));
    client.ask(write(100 << 10, &pattern(2, 4096)));
    let contents: Vec<Content> = client
        .ask(request(command::READ, 0, 128 << 10))
        .into_iter()
        .map(|reply| match reply {
            Reply::Chunk { content, .. } => content,
            Reply::Simple { .. } => panic!("a simple reply to a read"),
        })
        .collect();
    let hole = |offset_bytes, len_bytes| Content::Hole { offset_bytes, len_bytes };
    let data = |offset_bytes, seed| Content::Data { offset_bytes, data: pattern(seed, 4096) };
    let expected =
        [hole(0, 64 << 10), data(64 << 10, 1), hole(68 << 10, 32 << 10), data(100 << 10, 2), hole(104 << 10, 24 << 10)];
    assert_eq!(contents, expected);

    let whole = client.ask(RequestBytes { flags: flag::DF, ..request(command::READ, 0, 128 << 10) });
    let Reply::Chunk { done: true, content: Content::Data { offset_bytes: 0, data }, .. } = only(whole) else {
        panic!()
    };
    assert_eq!(data.len(), 128 << 10);
    assert_eq!(data[64 << 10..68 << 10], pattern(1, 4096));

    // The whole range is a hole: no data wait in the request's slot, which must be free again.
    for _ in 0..2 * IN_FLIGHT_COUNT_MAX {
        let empty = client.ask(request(command::READ, 8 << 20, 1 << 20));
        assert!(matches!(
            only(empty),
            Reply::Chunk { done: true, content: Content::Hole { len_bytes: 1_048_576, .. }, .. }
        ));
    }
}

#[test]
fn a_read_of_many_pieces_is_complete() {
    let mut client = structured();
    for index in 0..40u64 {
        client.ask(write(index * 16_384, &pattern(index as u8, 4096)));
    }
    let replies = client.ask(request(command::READ, 0, 40 * 16_384));
    let mut bytes = vec![0xEE; 40 * 16_384];
    let last = replies.len() - 1;
    for (index, reply) in replies.into_iter().enumerate() {
        let Reply::Chunk { done, content, .. } = reply else { panic!() };
        assert_eq!(done, index == last);
        match content {
            Content::Data { offset_bytes, data } => bytes[offset_bytes as usize..][..data.len()].copy_from_slice(&data),
            Content::Hole { offset_bytes, len_bytes } => bytes[offset_bytes as usize..][..len_bytes as usize].fill(0),
            other => panic!("{other:?}"),
        }
    }
    let mut expected = vec![0; 40 * 16_384];
    client.store.read(0, &mut expected).unwrap();
    assert!(bytes == expected);
}

#[test]
fn allocation_is_told_once_it_was_negotiated() {
    let mut client = structured();
    client.ask(write(4096, &pattern(1, 8192)));
    let extents = |client: &mut MockClient, flags, offset_bytes, len_bytes| {
        let replies = client.ask(RequestBytes { flags, ..request(command::BLOCK_STATUS, offset_bytes, len_bytes) });
        let Reply::Chunk { done: true, content: Content::Extents(extents), .. } = only(replies) else { panic!() };
        extents
    };
    assert_eq!(extents(&mut client, 0, 0, 65_536), [(4096, 3), (8192, 0), (53_248, 3)]);
    assert_eq!(extents(&mut client, flag::REQ_ONE, 0, 65_536), [(4096, 3)]);
    assert_eq!(extents(&mut client, flag::REQ_ONE, 4096, 65_536), [(8192, 0)]);
    assert_eq!(extents(&mut client, 0, 4608, 512), [(512, 0)]);
    assert_eq!(extents(&mut client, flag::REQ_ONE, 1 << 20, 64 << 20), [(64 << 20, 3)]);
    // Zeros without a hole take space; zeros with a hole do not.
    let zeroes = |flags| RequestBytes { flags, ..request(command::WRITE_ZEROES, 2 << 20, 8192) };
    assert_eq!(only(client.ask(zeroes(flag::NO_HOLE))).error(), 0);
    assert_eq!(extents(&mut client, 0, 2 << 20, 16_384), [(8192, 0), (8192, 3)]);
    assert_eq!(only(client.ask(zeroes(flag::FAST_ZERO))).error(), 0);
    assert_eq!(extents(&mut client, 0, 2 << 20, 16_384), [(16_384, 3)]);
    // More extents than an answer holds: a client asks again from the end of the answer.
    for index in 0..1100u64 {
        client.ask(write(index * 8192, &pattern(9, 512)));
    }
    let many = extents(&mut client, 0, 0, 64 << 20);
    assert_eq!(many.len(), 1024);
    assert!(
        many[2..]
            .iter()
            .enumerate()
            .all(|(index, &extent)| extent == (4096, if index % 2 == 0 { 0 } else { 3 }) || index < 2)
    );

    let mut client = simple();
    assert_eq!(only(client.ask(request(command::BLOCK_STATUS, 0, 512))).error(), NbdError::Inval.code());
}

#[test]
fn wrong_requests_get_the_error_that_the_protocol_asks_for() {
    let beyond = CAPACITY_BYTES;
    let with = |flags, command, len| RequestBytes { flags, ..request(command, 0, len) };
    let table = [
        (request(command::READ, beyond, 512), NbdError::Inval),
        (request(command::READ, u64::MAX - 511, 512), NbdError::Inval),
        (request(command::TRIM, beyond - 512, 1024), NbdError::Inval),
        (request(command::BLOCK_STATUS, beyond, 512), NbdError::Inval),
        (request(command::WRITE_ZEROES, beyond, 512), NbdError::NoSpace),
        (write(beyond, &[1; 512]), NbdError::NoSpace),
        (write(beyond - 512, &[1; 1024]), NbdError::NoSpace),
        (write(1, &[1; 512]), NbdError::Inval),
        (write(0, &[1; 100]), NbdError::Inval),
        (request(command::READ, 100, 512), NbdError::Inval),
        (request(command::READ, 0, 0), NbdError::Inval),
        (request(command::WRITE, 0, 0), NbdError::Inval),
        (request(command::READ, 0, (32 << 20) + 512), NbdError::Inval),
        (with(flag::DF, command::READ, (32 << 20) + 512), NbdError::Overflow),
        (request(command::FLUSH, 0, 512), NbdError::Inval),
        (request(command::FLUSH, 512, 0), NbdError::Inval),
        (request(8, 0, 512), NbdError::Inval),
        (request(0xffff, 0, 512), NbdError::Inval),
        (with(flag::REQ_ONE, command::READ, 512), NbdError::Inval),
        (with(flag::NO_HOLE, command::TRIM, 512), NbdError::Inval),
        (with(1 << 5, command::READ, 512), NbdError::Inval),
        (with(flag::NO_HOLE | flag::FAST_ZERO, command::WRITE_ZEROES, 512), NbdError::NotSupported),
    ];
    for (request, error) in table {
        let mut client = structured();
        let Reply::Chunk { done: true, content: Content::Error { error: code, .. }, .. } = only(client.ask(request))
        else {
            panic!("{request:?}");
        };
        assert_eq!(code, error.code(), "{request:?}");
        assert_eq!(only(client.ask(write(0, &[1; 512]))).error(), 0, "goes on after {request:?}");
        let mut untouched = [0; 512];
        client.store.read(beyond - 512, &mut untouched).unwrap();
        assert_eq!(untouched, [0; 512], "{request:?}");

        let mut client = simple();
        let Reply::Simple { error: code, data, .. } = only(client.ask(request)) else { panic!("{request:?}") };
        let expected = match request {
            RequestBytes { flags, .. } if flags & flag::DF != 0 => NbdError::Inval,
            _ => error,
        };
        assert_eq!((code, data.len()), (expected.code(), 0), "{request:?}");
        assert_eq!(only(client.ask(write(0, &[1; 512]))).error(), 0, "goes on after {request:?}");
    }
}

#[test]
fn what_is_not_offered_is_refused() {
    let mut client = MockClient::negotiated(
        offer(|export| {
            export.trim = false;
            export.write_zeroes = false;
        }),
        store(),
    );
    for command in [command::TRIM, command::WRITE_ZEROES] {
        assert_eq!(only(client.ask(request(command, 0, 512))).error(), NbdError::Inval.code());
    }
    let mut client = MockClient::negotiated(offer(|export| export.read_only = true), store());
    for request in [write(0, &[1; 512]), request(command::TRIM, 0, 512), request(command::WRITE_ZEROES, 0, 512)] {
        assert_eq!(only(client.ask(request)).error(), NbdError::Perm.code());
    }
    assert_eq!(only(client.ask(request(command::READ, 0, 512))).error(), 0);
    assert_eq!(client.session.state().refused_requests, 3);
    let mut client = MockClient::negotiated(offer(|export| export.block_bytes_min = 4096), store());
    assert_eq!(only(client.ask(request(command::READ, 512, 4096))).error(), NbdError::Inval.code());
    assert_eq!(only(client.ask(request(command::READ, 4096, 4096))).error(), 0);
}

#[test]
fn a_long_refused_write_is_skipped_and_a_longer_one_ends() {
    let mut client = structured();
    let long = vec![1; (32 << 20) + 512];
    assert_eq!(only(client.ask(write(0, &long))).error(), NbdError::Inval.code());
    assert_eq!(only(client.ask(request(command::READ, 0, 512))).error(), 0);
    client.send(&request(command::WRITE, 0, u32::MAX).encode());
    assert_eq!(closing(&client), Some(Reason::Violation(Violation::PayloadTooLong)));
    assert!(client.session.is_finished());
    assert!(!client.session.wants_input());
}

#[test]
fn a_request_without_magic_ends_and_nothing_more_is_answered() {
    let mut client = structured();
    client.send(&request(command::READ, 0, 512).encode());
    client.send(&[0; 28]);
    assert_eq!(closing(&client), Some(Reason::Violation(Violation::RequestMagic)));
    assert!(client.session.is_finished());
    client.complete_all();
    assert_eq!(client.said, b"");
    assert_eq!(client.session.state().outstanding, 0);
}

#[test]
fn after_a_disconnect_what_is_outstanding_is_answered() {
    for half_closed in [false, true] {
        let mut client = structured();
        client.send(&request(command::READ, 0, 512).encode());
        if half_closed {
            client.session.input_ended();
            client.take_events();
            assert_eq!(closing(&client), Some(Reason::InputEnded { mid_message: false }));
        } else {
            client.send(&request(command::DISC, 0, 0).encode());
            assert_eq!(closing(&client), Some(Reason::Disconnect));
        }
        assert!(!client.session.is_finished());
        client.complete_all();
        assert_eq!(Reply::decode_all(&client.said, &BTreeMap::new()).unwrap().len(), 1);
        assert!(client.session.is_finished());
    }
    let mut client = structured();
    client.send(&write(0, &[1; 4096]).encode()[..2000]);
    client.session.input_ended();
    client.take_events();
    assert_eq!(closing(&client), Some(Reason::InputEnded { mid_message: true }));
    assert!(client.session.is_finished());
}

#[test]
fn a_server_that_goes_away_answers_what_it_has_and_refuses_the_rest() {
    let mut client = structured();
    client.send(&request(command::READ, 0, 512).encode());
    client.session.shut_down();
    assert!(!client.session.is_finished());
    client.send(&write(0, &[1; 512]).encode());
    client.complete_all();
    let errors: Vec<u32> =
        Reply::decode_all(&client.said, &BTreeMap::new()).unwrap().iter().map(Reply::error).collect();
    assert_eq!(errors, [NbdError::Shutdown.code(), 0]);
    assert!(client.session.is_finished());
}

#[test]
fn failures_of_device_and_store_reach_the_client_with_their_place() {
    let cases = [
        (Status::MediaError, NbdError::Io),
        (Status::Aborted, NbdError::Io),
        (Status::Unsupported, NbdError::NotSupported),
    ];
    for (status, error) in cases {
        for (command, has_offset) in [(command::READ, true), (command::TRIM, true), (command::CACHE, false)] {
            let mut client = structured();
            client.send(&request(command, 1024, 512).encode());
            let key = client.outstanding.remove(0).key;
            assert!(client.session.complete(key, status));
            assert!(!client.session.complete(key, status), "once only");
            client.receive();
            let reply = only(Reply::decode_all(&client.said, &BTreeMap::new()).unwrap());
            let Reply::Chunk { content: Content::Error { error: code, offset_bytes }, .. } = reply else { panic!() };
            assert_eq!((code, offset_bytes), (error.code(), has_offset.then_some(1024)));
        }
    }
    let mut client = MockClient::negotiated(offer(|_| {}), Box::new(RamStore::new(CAPACITY_BYTES, 8192)));
    assert_eq!(only(client.ask(write(0, &pattern(1, 65_536)))).error(), NbdError::NoSpace.code());
    assert_eq!(only(client.ask(write(0, &pattern(1, 4096)))).error(), 0);
    // The store is smaller than the export.
    let mut client = MockClient::negotiated(offer(|_| {}), Box::new(RamStore::new(4096, 8192)));
    assert_eq!(only(client.ask(request(command::READ, 8192, 512))).error(), NbdError::Inval.code());
    assert_eq!(only(client.ask(write(8192, &[1; 512]))).error(), NbdError::NoSpace.code());
}

#[test]
fn a_read_that_nobody_executed_sends_nobodys_data() {
    let mut client = structured();
    client.ask(write(0, &pattern(1, 4096)));
    client.ask(request(command::READ, 0, 4096));
    let room = client.session.receive_room();
    let bytes = request(command::READ, 0, 4096).encode();
    room[..28].copy_from_slice(&bytes);
    client.session.received(28);
    let Some(Event::Request(unexecuted)) = client.session.next_event() else { panic!() };
    client.session.complete(unexecuted.key, Status::Ok);
    client.receive();
    assert_eq!(only(Reply::decode_all(&client.said, &BTreeMap::new()).unwrap()).error(), NbdError::Io.code());
}

#[test]
fn a_request_is_the_devices_in_sectors() {
    let mut client = structured();
    let mut device = |flags, request: RequestBytes<'_>| {
        client.send(&RequestBytes { flags, ..request }.encode());
        let request = *client.outstanding.last().unwrap();
        let device = request.device_request(RequestId(1), 3, 9);
        client.complete_all();
        device.inspect(|device| assert_eq!((device.queue, device.issuer), (3, 9)))
    };
    let fields = |device: Option<chronodisk_sim::Request>| device.map(|d| (d.op, d.lba, d.sectors, d.fua));
    assert_eq!(fields(device(0, request(command::READ, 4096, 8192))), Some((Op::Read, Lba(8), 16, false)));
    assert_eq!(fields(device(flag::FUA, request(command::READ, 0, 512))), Some((Op::Read, Lba(0), 1, false)));
    assert_eq!(fields(device(flag::FUA, write(512, &[1; 512]))), Some((Op::Write, Lba(1), 1, true)));
    assert_eq!(fields(device(flag::FUA, request(command::FLUSH, 0, 0))), Some((Op::Flush, Lba(0), 0, false)));
    assert_eq!(fields(device(0, request(command::TRIM, 0, 64 << 20))), Some((Op::Discard, Lba(0), 131_072, false)));
    assert_eq!(fields(device(0, request(command::WRITE_ZEROES, 0, 512))), Some((Op::WriteZeroes, Lba(0), 1, false)));
    assert_eq!(fields(device(0, request(command::CACHE, 512, 512))), Some((Op::Read, Lba(1), 1, false)));
    assert_eq!(fields(device(0, request(command::BLOCK_STATUS, 0, 512))), None);
}

#[test]
fn a_greedy_client_waits_in_the_socket() {
    let mut client = structured();
    let one = request(command::READ, 0, 512).encode();
    let many = one.repeat(IN_FLIGHT_COUNT_MAX + 500);
    client.send(&many);
    assert_eq!(client.outstanding.len(), IN_FLIGHT_COUNT_MAX);
    assert!(!client.session.wants_input());
    // Completed requests still occupy their slots until their replies are sent.
    for request in client.outstanding.drain(..10) {
        client.session.complete(request.key, Status::Ok);
    }
    client.take_events();
    assert_eq!(client.outstanding.len(), IN_FLIGHT_COUNT_MAX - 10);
    client.receive();
    client.take_events();
    assert_eq!(client.outstanding.len(), IN_FLIGHT_COUNT_MAX);
    client.complete_all();
    assert!(client.session.wants_input());

    let mut client = structured();
    let one = request(command::READ, 0, 32 << 20).encode();
    client.send(&one.repeat(10));
    assert_eq!(client.outstanding.len() as u64, IN_FLIGHT_BYTES_MAX / (32 << 20));
    client.complete_all();
    assert_eq!(Reply::decode_all(&client.said, &BTreeMap::new()).unwrap().len(), 10);
}

#[test]
fn a_client_that_sends_errors_and_reads_none_is_not_read_from() {
    let mut client = structured();
    let wrong = request(command::READ, 1, 512).encode();
    let mut taken = 0;
    for _ in 0..10_000 {
        let now = client.send(&wrong);
        taken += now;
        if now < wrong.len() {
            break;
        }
    }
    assert!(taken < 4000 * wrong.len(), "{taken} bytes of wrong requests");
    assert!(!client.session.wants_input());
    client.receive();
    client.take_events();
    assert!(client.session.wants_input());
}

#[derive(Clone, Debug)]
struct AnyRequest {
    flags: u16,
    command: u16,
    offset_bytes: u64,
    len_bytes: u32,
}

fn any_request() -> impl Strategy<Value = AnyRequest> {
    let offset =
        prop_oneof![6 => (0..64u64).prop_map(|block| block * 512), 1 => Just(CAPACITY_BYTES), 1 => any::<u64>()];
    let len = prop_oneof![8 => (0..40u32).prop_map(|block| block * 512), 1 => 0..70_000u32];
    (prop_oneof![4 => Just(0u16), 1 => 0..32u16], 0..9u16, offset, len).prop_map(
        |(flags, command, offset_bytes, len_bytes)| {
            let command = if command == command::DISC { command::WRITE } else { command };
            AnyRequest { flags, command, offset_bytes, len_bytes }
        },
    )
}

/// Events and output of a session for a byte stream that arrives in pieces. Requests are completed only at the end, so
/// that the pieces are the only difference.
fn outcome(
    bytes: &[u8],
    pieces: &[usize],
    structured: bool,
) -> (Vec<chronodisk_front::nbd::NbdRequest>, Vec<Event>, Vec<u8>) {
    let mut client = MockClient::new(offer(|_| {}), store());
    if structured {
        client = MockClient::negotiated(offer(|_| {}), store());
    }
    let mut rest = bytes;
    let mut pieces = pieces.iter().cycle();
    while !rest.is_empty() {
        let len = rest.len().min(*pieces.next().unwrap());
        client.send(&rest[..len]);
        rest = &rest[len..];
    }
    let requests = client.outstanding.clone();
    client.complete_all();
    (requests, client.events, client.said)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn pieces_of_the_stream_change_nothing(
        requests in prop::collection::vec(any_request(), 1..20),
        pieces in prop::collection::vec(1..3000usize, 1..10),
        structured in any::<bool>(),
        end in prop_oneof![
            Just(Vec::new()),
            Just(request(command::DISC, 0, 0).encode()),
            prop::collection::vec(any::<u8>(), 1..40)
        ],
    ) {
        let mut bytes = Vec::new();
        if !structured {
            bytes.extend(client_flags());
            bytes.extend(option_request(option::LIST, &[]));
            bytes.extend(option_request(77, &[1; 17_000]));
            bytes.extend(option_request(option::EXPORT_NAME, b"disk"));
        }
        for (index, AnyRequest { flags, command, offset_bytes, len_bytes }) in requests.into_iter().enumerate() {
            let data = if command == command::WRITE { pattern(index as u8, len_bytes as usize) } else { Vec::new() };
            let cookie = index as u64;
            bytes.extend(RequestBytes { flags, command, cookie, offset_bytes, len_bytes, data: &data }.encode());
        }
        bytes.extend(end);
        let whole = outcome(&bytes, &[usize::MAX], structured);
        prop_assert!(outcome(&bytes, &pieces, structured) == whole);
        prop_assert!(outcome(&bytes, &[1], structured) == whole);
    }
}
