//! Option haggling, byte by byte.

use std::sync::Arc;

use chronodisk_front::nbd::mock::{MockClient, OptionReply, client_flags, info_data, meta_context, option_request};
use chronodisk_front::nbd::wire::{GREETING_BYTES, info, option, option_reply, transmission_flag};
use chronodisk_front::nbd::{EXPORT_COUNT_MAX, Event, Export, ExportErrorKind, Reason, ServerOffer, Tls, Violation};
use chronodisk_store::RamStore;

fn disk() -> Export {
    Export { description: "a disk".into(), rotational: true, block_bytes_min: 4096, ..Export::new("disk", 1 << 20) }
}

fn client() -> MockClient {
    let offer = ServerOffer::new(vec![disk(), Export::new("tape", 8192)], Tls::Off).unwrap();
    MockClient::new(Arc::new(offer), Box::new(RamStore::new(1 << 20, 1 << 20)))
}

/// Past the greeting and the flags.
fn haggling() -> MockClient {
    let mut client = client();
    client.send(&client_flags());
    client.receive();
    client.said.clear();
    client
}

fn ask(client: &mut MockClient, code: u32, data: &[u8]) -> Vec<OptionReply> {
    client.send(&option_request(code, data));
    client.receive();
    let said = std::mem::take(&mut client.said);
    let (replies, rest) = OptionReply::decode_all(&said);
    assert!(rest.is_empty(), "{rest:?}");
    assert!(replies.iter().all(|reply| reply.option == code));
    replies
}

/// The last reply, which must be the only one.
fn answer(client: &mut MockClient, code: u32, data: &[u8]) -> u32 {
    let replies = ask(client, code, data);
    assert_eq!(replies.len(), 1, "{replies:?}");
    replies[0].kind
}

fn closing(client: &MockClient) -> Option<Reason> {
    client.events.iter().find_map(|event| match event {
        Event::Closing(reason) => Some(*reason),
        _ => None,
    })
}

#[test]
fn the_greeting_is_that_of_a_fixed_newstyle_server() {
    let mut client = client();
    client.receive();
    assert_eq!(client.said, b"NBDMAGICIHAVEOPT\x00\x03");
    assert_eq!(client.said.len(), GREETING_BYTES);
    client.send(&8u32.to_be_bytes());
    assert_eq!(closing(&client), Some(Reason::Violation(Violation::ClientFlags)));
    assert!(client.session.is_finished());
}

#[test]
fn the_oldest_client_gets_its_export_and_its_zeros() {
    let mut client = client();
    client.receive();
    client.said.clear();
    client.send(&[0; 4]);
    client.send(&option_request(option::EXPORT_NAME, b"disk"));
    client.receive();
    let flags = transmission_flag::HAS_FLAGS
        | transmission_flag::SEND_FLUSH
        | transmission_flag::SEND_FUA
        | transmission_flag::ROTATIONAL
        | transmission_flag::SEND_TRIM
        | transmission_flag::SEND_WRITE_ZEROES
        | transmission_flag::CAN_MULTI_CONN
        | transmission_flag::SEND_CACHE
        | transmission_flag::SEND_FAST_ZERO;
    let mut expected = (1u64 << 20).to_be_bytes().to_vec();
    expected.extend(flags.to_be_bytes());
    expected.extend([0; 124]);
    assert_eq!(client.said, expected);
    assert_eq!(client.events, [Event::Negotiated { export: 0, tls: false }]);
}

#[test]
fn without_fixed_newstyle_nothing_but_a_name_is_an_option() {
    let mut client = client();
    client.send(&[0; 4]);
    client.send(&option_request(option::LIST, &[]));
    assert_eq!(closing(&client), Some(Reason::Violation(Violation::NotFixedNewstyle)));
}

#[test]
fn a_name_that_nobody_has_ends_the_old_way_and_not_the_new_one() {
    let mut client = haggling();
    assert_eq!(answer(&mut client, option::GO, &info_data("nothing", &[])), option_reply::ERR_UNKNOWN);
    assert_eq!(answer(&mut client, option::INFO, &info_data("nothing", &[])), option_reply::ERR_UNKNOWN);
    client.send(&option_request(option::EXPORT_NAME, b"nothing"));
    assert_eq!(closing(&client), Some(Reason::Violation(Violation::UnknownExport)));
}

#[test]
fn exports_are_listed_with_their_descriptions() {
    let mut client = haggling();
    let replies = ask(&mut client, option::LIST, &[]);
    let data: Vec<&[u8]> = replies.iter().map(|reply| reply.data.as_slice()).collect();
    assert_eq!(data, [b"\0\0\0\x04diska disk".as_slice(), b"\0\0\0\x04tape", b""]);
    let kinds: Vec<u32> = replies.iter().map(|reply| reply.kind).collect();
    assert_eq!(kinds, [option_reply::SERVER, option_reply::SERVER, option_reply::ACK]);
    assert_eq!(answer(&mut client, option::LIST, b"x"), option_reply::ERR_INVALID);
}

#[test]
fn information_says_size_blocks_and_what_was_asked() {
    let mut client = haggling();
    let mut infos = |wanted: &[u16]| {
        let mut replies = ask(&mut client, option::INFO, &info_data("", wanted));
        assert_eq!(replies.pop().map(|reply| reply.kind), Some(option_reply::ACK));
        replies.into_iter().map(|reply| reply.data).collect::<Vec<_>>()
    };
    let plain = infos(&[]);
    assert_eq!(plain.len(), 2);
    assert_eq!(plain[0][..10], *b"\0\0\0\0\0\0\0\x10\0\0");
    assert_eq!(plain[1], b"\0\x03\0\0\x10\0\0\0\x10\0\x02\0\0\0");
    let named = infos(&[info::NAME, 77, info::DESCRIPTION]);
    assert_eq!(named[..2], plain[..]);
    assert_eq!(named[2..], [b"\0\x01disk".to_vec(), b"\0\x02a disk".to_vec()]);
    assert!(client.events.is_empty());

    // Structured replies bring NBD_FLAG_SEND_DF.
    assert_eq!(answer(&mut client, option::STRUCTURED_REPLY, &[]), option_reply::ACK);
    let replies = ask(&mut client, option::GO, &info_data("tape", &[]));
    let flags = u16::from_be_bytes([replies[0].data[10], replies[0].data[11]]);
    assert_ne!(flags & transmission_flag::SEND_DF, 0);
    assert_eq!(flags & transmission_flag::ROTATIONAL, 0);
    assert_eq!(client.events, [Event::Negotiated { export: 1, tls: false }]);
    assert_eq!(client.session.export(), 1);
}

#[test]
fn malformed_and_unknown_options_are_answered_and_haggling_goes_on() {
    let mut client = haggling();
    let table: [(u32, &[u8], u32); 14] = [
        (option::GO, b"", option_reply::ERR_INVALID),
        (option::GO, b"\0\0\0\x05disk\0\0", option_reply::ERR_INVALID),
        (option::GO, b"\0\0\0\x04disk\0\x02\0\x01", option_reply::ERR_INVALID),
        (option::GO, b"\0\0\0\x04disk\0\0x", option_reply::ERR_INVALID),
        (option::INFO, b"\xff\xff\xff\xff", option_reply::ERR_INVALID),
        (option::STRUCTURED_REPLY, b"x", option_reply::ERR_INVALID),
        (option::STARTTLS, b"", option_reply::ERR_POLICY),
        (option::SET_META_CONTEXT, b"\0\0\0\0\0\0\0\0", option_reply::ERR_INVALID),
        (option::LIST_META_CONTEXT, b"\0\0\0\0\0\0\0\0", option_reply::ERR_INVALID),
        (option::EXTENDED_HEADERS, b"", option_reply::ERR_UNSUP),
        (4, b"disk", option_reply::ERR_UNSUP),
        (0, b"", option_reply::ERR_UNSUP),
        (0xffff_ffff, b"any", option_reply::ERR_UNSUP),
        (option::LIST, &[0; 20_000], option_reply::ERR_TOO_BIG),
    ];
    for (code, data, expected) in table {
        assert_eq!(answer(&mut client, code, data), expected, "option {code} with {data:?}");
    }
    assert_eq!(answer(&mut client, option::ABORT, &[]), option_reply::ACK);
    assert_eq!(closing(&client), Some(Reason::Abort));
    assert!(client.session.is_finished());
}

#[test]
fn metadata_contexts_are_chosen_by_exact_name_and_for_one_export() {
    let mut client = haggling();
    answer(&mut client, option::STRUCTURED_REPLY, &[]);
    let mut contexts = |code, queries: &[&str]| {
        let replies = ask(&mut client, code, &meta_context("disk", queries));
        assert_eq!(replies.last().map(|reply| reply.kind), Some(option_reply::ACK));
        replies[..replies.len() - 1].iter().map(|reply| reply.data.clone()).collect::<Vec<_>>()
    };
    for queries in [&[][..], &["base:"], &["qemu:x", "base:allocation"], &["base:", "base:allocation"]] {
        assert_eq!(contexts(option::LIST_META_CONTEXT, queries), [b"\0\0\0\0base:allocation"], "{queries:?}");
    }
    assert_eq!(contexts(option::LIST_META_CONTEXT, &["qemu:dirty-bitmap"]), Vec::<Vec<u8>>::new());
    for queries in [&[][..], &["base:"], &["base:allocatio"]] {
        assert_eq!(contexts(option::SET_META_CONTEXT, queries), Vec::<Vec<u8>>::new(), "{queries:?}");
    }
    assert_eq!(contexts(option::SET_META_CONTEXT, &["x:y", "base:allocation"]), [b"\0\0\0\x01base:allocation"]);
    let wrong = [meta_context("nothing", &[]), b"\0\0\0\0\0\0\0\x02\0\0\0\0".to_vec(), b"\0\0\0\0\0\0\0\0x".to_vec()];
    let kinds = wrong.map(|data| answer(&mut client, option::LIST_META_CONTEXT, &data));
    assert_eq!(kinds, [option_reply::ERR_UNKNOWN, option_reply::ERR_INVALID, option_reply::ERR_INVALID]);
}

#[test]
fn haggling_is_bounded() {
    let mut client = haggling();
    for _ in 0..63 {
        ask(&mut client, option::LIST, &[]);
    }
    client.send(&option_request(option::LIST, &[]));
    assert_eq!(closing(&client), None);
    client.send(&option_request(option::LIST, &[]));
    assert_eq!(closing(&client), Some(Reason::Violation(Violation::TooManyOptions)));

    for (option, len, violation) in [
        (option::EXPORT_NAME, 4097u32, Violation::NameTooLong),
        (option::GO, (1 << 20) + 1, Violation::OptionTooLong),
        (option::LIST, u32::MAX, Violation::OptionTooLong),
    ] {
        let mut client = haggling();
        client.send(&option_request(option, &[])[..12]);
        client.send(&len.to_be_bytes());
        assert_eq!(closing(&client), Some(Reason::Violation(violation)));
    }
    let mut client = haggling();
    client.send(b"IHAVEOPTIHAVEOPT");
    assert_ne!(closing(&client), None);
    let mut client = haggling();
    client.send(b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(closing(&client), Some(Reason::Violation(Violation::OptionMagic)));
}

#[test]
fn a_server_that_goes_away_says_so() {
    let mut client = haggling();
    client.session.shut_down();
    assert_eq!(answer(&mut client, option::LIST, &[]), option_reply::ERR_SHUTDOWN);
    assert_eq!(answer(&mut client, option::GO, &info_data("", &[])), option_reply::ERR_SHUTDOWN);
    client.send(&option_request(option::EXPORT_NAME, b""));
    assert_eq!(closing(&client), Some(Reason::ShutDown));
}

#[test]
fn a_client_that_leaves_in_the_middle_is_noticed() {
    let mut client = haggling();
    client.send(b"IHAVE");
    client.session.input_ended();
    client.take_events();
    assert_eq!(closing(&client), Some(Reason::InputEnded { mid_message: true }));
    let mut client = haggling();
    client.session.input_ended();
    client.take_events();
    assert_eq!(closing(&client), Some(Reason::InputEnded { mid_message: false }));
}

#[test]
fn what_the_protocol_cannot_express_is_not_offered() {
    let kind = |exports| ServerOffer::new(exports, Tls::Off).unwrap_err().kind;
    let with = |change: fn(&mut Export)| {
        let mut export = Export::new("disk", 1 << 20);
        change(&mut export);
        kind(vec![export])
    };
    assert_eq!(kind(Vec::new()), ExportErrorKind::None);
    assert_eq!(kind(vec![disk(), disk()]), ExportErrorKind::NameTaken);
    let many = (0..=EXPORT_COUNT_MAX).map(|index| Export::new(index.to_string(), 512)).collect();
    assert_eq!(kind(many), ExportErrorKind::TooMany);
    assert_eq!(with(|export| export.size_bytes = 0), ExportErrorKind::Size);
    assert_eq!(with(|export| export.size_bytes = 1000), ExportErrorKind::Size);
    assert_eq!(with(|export| export.block_bytes_min = 256), ExportErrorKind::BlockMin);
    assert_eq!(with(|export| export.block_bytes_min = 1536), ExportErrorKind::BlockMin);
    assert_eq!(with(|export| export.block_bytes_preferred = 256), ExportErrorKind::BlockPreferred);
    assert_eq!(with(|export| export.payload_bytes_max = 4096), ExportErrorKind::PayloadMax);
    assert_eq!(with(|export| export.payload_bytes_max = 64 << 20), ExportErrorKind::PayloadMax);
    assert_eq!(with(|export| export.name = "x".repeat(4097)), ExportErrorKind::StringTooLong);
    let error = ServerOffer::new(vec![Export::new("x", 3)], Tls::Off).unwrap_err();
    assert_eq!(error.to_string(), "export \"x\": size_bytes: expected a multiple of block_bytes_min, and not zero");
}
