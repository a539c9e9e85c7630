use chronodisk_device::{BackgroundDone, BackgroundTime, DeviceInfo};
use chronodisk_sim::{Completion, Lba, Nanos, Op, Priority, Request, RequestId, Status};
use proptest::prelude::*;

use super::*;

fn commands() -> Vec<Command> {
    let mut request = Request::new(7, Op::WriteZeroes, 1 << 40, 8);
    request.priority = Priority::High;
    request.fua = true;
    request.queue = 3;
    request.issuer = 9;
    vec![
        Command::Hello { version: VERSION, session: SessionId([3; 16]), nonce: None },
        Command::Hello { version: VERSION, session: SessionId([3; 16]), nonce: Some(Nonce([5; 32])) },
        Command::Prove { proof: Proof([6; 32]) },
        Command::Reset(Reset {
            seed: 1,
            capacity_bytes: 2,
            store_budget_bytes: 3,
            speculate: true,
            label: "plate".into(),
            profile: "name = \"µ\"".into(),
        }),
        Command::Read { offset_bytes: 512, len_bytes: 4 },
        Command::Write { offset_bytes: 512, data: vec![1, 2, 3] },
        Command::Clear { how: Clear::Reserve, offset_bytes: 4, len_bytes: 5 },
        Command::Flush,
        Command::Submit { at: Nanos::from_nanos(77), request },
        Command::SubmitAnywhere { at: Nanos::from_nanos(77), request, places: vec![Lba(8), Lba(1 << 40)] },
        Command::Background {
            at: Nanos::from_nanos(77),
            change: BackgroundChange::Want(BackgroundTime::GapsAndRest),
            ranges: vec![0..8, 64..1 << 40],
        },
        Command::TakeBackground { until: Nanos::from_nanos(78) },
        Command::Next { taken: Nanos::from_nanos(1), safe_until: Nanos::MAX },
        Command::Statistics,
        Command::End,
    ]
}

fn answers() -> Vec<Answer> {
    let at = Nanos::from_nanos(90);
    let completion = |id, status| Completion { id: RequestId(id), at, status };
    let device = DeviceInfo {
        name: "plate".into(),
        capacity_sectors: 4096,
        logical_block_bytes: 512,
        physical_block_bytes: 4096,
        volatile_cache: true,
        discard_unit_sectors: Some(8),
        rotational: true,
        zones: None,
        torn_write_sectors: None,
    };
    let statistics = ModelStatistics {
        submitted: 1,
        predictions: 2,
        rollbacks: 3,
        repeated_commands: 4,
        model: vec![("seek time [ms]".into(), 0.5)],
    };
    vec![
        Answer::Welcome(Welcome { version: VERSION, session: SessionId([3; 16]), executed: 5 }),
        Answer::Challenge(Nonce([7; 32])),
        Answer::Proven(Proof([8; 32])),
        Answer::Info(Info { device, speculates: true, keeps_bytes: false, profile: "text".into() }),
        Answer::Data(vec![9; 4]),
        Answer::Done,
        Answer::Done,
        Answer::Done,
        Answer::Done,
        Answer::Place(Lba(8)),
        Answer::Done,
        Answer::Background(BackgroundReads {
            wanted_sectors: 9,
            media_bytes_per_s: 2.5e7,
            done: vec![BackgroundDone { lba: Lba(64), sectors: 3, at }],
        }),
        Answer::Next(NextAnswer::Completions(vec![completion(1, Status::Ok), completion(2, Status::MediaError)])),
        Answer::Statistics(statistics),
        Answer::Done,
    ]
}

fn decode_all(bytes: &[u8], piece_bytes: usize) -> Vec<Frame> {
    let mut decoder = Decoder::default();
    let mut frames = Vec::new();
    for piece in bytes.chunks(piece_bytes) {
        decoder.feed(piece);
        while let Some(frame) = decoder.next_frame().unwrap() {
            frames.push(frame);
        }
    }
    frames
}

#[test]
fn every_message_survives_any_cut_of_the_stream() {
    let mut bytes = Vec::new();
    for (index, command) in commands().iter().enumerate() {
        command.encode(index as u16, 10 + index as u64, &mut bytes);
    }
    for (index, answer) in answers().iter().enumerate() {
        answer.encode(10 + index as u64, &mut bytes);
    }
    for piece_bytes in [1, 2, 15, 16, 17, 1000] {
        let frames = decode_all(&bytes, piece_bytes);
        let (sent, answered) = frames.split_at(commands().len());
        let decoded: Vec<Command> = sent.iter().map(|frame| Command::decode(frame).unwrap()).collect();
        assert_eq!(decoded, commands());
        assert!(sent.iter().enumerate().all(|(index, frame)| frame.sequence == 10 + index as u64));
        let decoded: Vec<Answer> =
            answered.iter().zip(commands()).map(|(frame, command)| Answer::decode(frame, &command).unwrap()).collect();
        assert_eq!(decoded, answers());
    }
}

#[test]
fn the_other_forms_of_a_next_response() {
    let next = Command::Next { taken: Nanos::ZERO, safe_until: Nanos::ZERO };
    for answer in [
        Answer::Next(NextAnswer::Nothing),
        Answer::Next(NextAnswer::NotBefore(Nanos::from_nanos(5))),
        Answer::error(ErrorCode::Model, "broken"),
    ] {
        let mut bytes = Vec::new();
        answer.encode(1, &mut bytes);
        assert_eq!(Answer::decode(&decode_all(&bytes, 7)[0], &next), Ok(answer));
    }
}

#[test]
fn a_frame_that_is_too_long_is_refused_before_its_body_comes() {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&(BODY_BYTES_MAX as u32 + 1).to_le_bytes());
    let mut decoder = Decoder::default();
    decoder.feed(&header);
    assert_eq!(
        decoder.next_frame(),
        Err(ProtocolError::TooLong { len_bytes: BODY_BYTES_MAX as u32 + 1, most_bytes: BODY_BYTES_MAX })
    );
}

#[test]
fn each_command_that_is_cut_or_has_more_at_its_end_is_refused() {
    for command in commands() {
        let mut bytes = Vec::new();
        command.encode(0, 1, &mut bytes);
        let frame = decode_all(&bytes, bytes.len()).remove(0);
        // A greeting may grow, and data have any length.
        let grows = matches!(command, Command::Hello { .. } | Command::Write { .. });
        let longer = Frame { body: [frame.body.as_slice(), &[0]].concat(), ..frame.clone() };
        assert_eq!(Command::decode(&longer).is_ok(), grows, "{}", command.name());
        for len in 0..frame.body.len().min(30) {
            let shorter = Frame { body: frame.body[..len].to_vec(), ..frame.clone() };
            // A greeting can be cut before its optional nonce, and ranges can be missing.
            let data_only = match command {
                Command::Write { .. } => len >= 8,
                Command::Hello { .. } => len >= 26,
                Command::Background { .. } => [9, 25].contains(&len),
                _ => false,
            };
            assert_eq!(Command::decode(&shorter).is_ok(), data_only, "{} of {len} bytes", command.name());
        }
    }
}

#[test]
fn impossible_devices_are_refused() {
    let Answer::Info(info) = answers().remove(3) else { panic!("the list has changed") };
    let reset = commands().remove(3);
    let refused = |change: fn(&mut DeviceInfo)| {
        let mut info = info.clone();
        change(&mut info.device);
        let mut bytes = Vec::new();
        Answer::Info(info).encode(1, &mut bytes);
        Answer::decode(&decode_all(&bytes, bytes.len())[0], &reset).unwrap_err().to_string()
    };
    assert!(refused(|device| device.name = "../etc".into()).contains("name"));
    assert!(refused(|device| device.name.clear()).contains("name"));
    assert!(refused(|device| device.capacity_sectors = 0).contains("capacity"));
    assert!(refused(|device| device.capacity_sectors = u64::MAX).contains("capacity"));
    assert!(refused(|device| device.logical_block_bytes = 1000).contains("logical block"));
    assert!(refused(|device| device.physical_block_bytes = 256).contains("physical block"));
    assert!(refused(|device| (device.logical_block_bytes, device.capacity_sectors) = (4096, 9)).contains("multiple"));
}

#[test]
fn interface_extensions_out_of_range_are_refused() {
    let refused = |command: Command| {
        let mut bytes = Vec::new();
        command.encode(0, 1, &mut bytes);
        Command::decode(&decode_all(&bytes, bytes.len())[0]).unwrap_err().to_string()
    };
    let (at, request) = (Nanos::ZERO, Request::new(1, Op::Write, 0, 8));
    let anywhere = |places| Command::SubmitAnywhere { at, request, places };
    assert!(refused(anywhere(Vec::new())).contains("too few"));
    assert!(refused(anywhere(vec![Lba(0); chronodisk_device::PLACES_MAX + 1])).contains("too many"));
    let ranges = vec![0..1; BACKGROUND_RANGES_MAX + 1];
    let many = Command::Background { at, change: BackgroundChange::Forget, ranges };
    assert!(refused(many).contains("too many"));

    let read = |sectors, media_bytes_per_s| {
        let done = vec![BackgroundDone { lba: Lba(0), sectors, at }];
        let answer = Answer::Background(BackgroundReads { wanted_sectors: 0, media_bytes_per_s, done });
        let mut bytes = Vec::new();
        answer.encode(1, &mut bytes);
        Answer::decode(&decode_all(&bytes, bytes.len())[0], &Command::TakeBackground { until: at })
    };
    assert!(read(1, 1.0).is_ok());
    assert!(read(0, 1.0).unwrap_err().to_string().contains("number of sectors is 0"));
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(read(1, rate).unwrap_err().to_string().contains("media rate"), "{rate}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u16..15) {
        let frame = Frame { kind, unanswered: 0, sequence: 1, body: bytes.clone() };
        let _ = Command::decode(&frame);
        for command in commands() {
            for kind in [kind | 0x8000, 0xffff, 0xfffe] {
                let _ = Answer::decode(&Frame { kind, ..frame.clone() }, &command);
            }
        }
        let mut decoder = Decoder::default();
        decoder.feed(&bytes);
        while let Ok(Some(_)) = decoder.next_frame() {}
    }
}
