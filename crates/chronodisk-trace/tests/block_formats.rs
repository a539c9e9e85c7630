//! Block traces in other tools' formats: round trips, malformed and unusual input, hostile bytes, and fio itself.

mod common;

use std::process::Command;

use chronodisk_sim::{Nanos, Op, RequestRecord};
use chronodisk_trace::block::{Format, Spread, TraceInfo, TraceReader};
use common::{plain, read, read_in, request, sample, written};
use proptest::prelude::*;

#[test]
fn each_format_is_told_from_its_first_bytes() {
    let files = [
        (Format::Msr, "msr.csv"),
        (Format::Spc, "spc.csv"),
        (Format::Alibaba, "alibaba.csv"),
        (Format::Tencent, "tencent.csv"),
        (Format::Systor17, "systor17.csv"),
        (Format::Fiu, "fiu.txt"),
        (Format::FioV2, "fio-v2.log"),
        (Format::FioV3, "fio-v3.log"),
        (Format::DiskSim, "disksim.trace"),
        (Format::Blktrace, "kernel.blktrace"),
        (Format::Blkparse, "kernel-blkparse.txt"),
    ];
    for (format, file) in files {
        assert_eq!(Format::detect(&sample(file)), Some(format), "{file}");
    }
    let records = [request(Op::Read, 5, 8, 1_000), request(Op::Write, 9, 1, 2_000)];
    for format in Format::ALL.into_iter().filter(|format| format.can_be_written()) {
        assert_eq!(Format::detect(&written(format, &TraceInfo::default(), &records)), Some(format));
    }
    for nothing in ["", "\n\n", "hello world", "1,2,3"] {
        assert_eq!(Format::detect(nothing.as_bytes()), None, "{nothing}");
    }
}

#[test]
fn errors_name_line_field_and_what_was_expected() {
    for (format, text, expected) in [
        (Format::Msr, "1,hm,0,Read,0,512,0", "line 1: field 1, time stamp: before 1970"),
        (Format::Msr, "128166372003061629,hm,0,Reads,0,512,0", "field 4, type: \"Reads\"; expected Read or Write"),
        (Format::Msr, "128166372003061629,hm,0,Read,0", "line 1: the line ends before field 6, size"),
        (Format::Msr, "128166372003061629,hm,0,Read,0,512,0,0", "line 1: more than 7 fields"),
        (Format::Msr, "128166372003061629,hm,0,Read,0,0,0", "a request of 0 bytes; expected 1 byte to 1024 MiB"),
        (Format::Alibaba, "0,R,0,512,5\n0,R,x,512,6", "line 2: field 3, offset: \"x\"; expected a whole number"),
        (Format::Alibaba, "0,R,18446744073709551615,512,5", "are beyond any device"),
        (Format::Spc, "0,1,512,R,1e3", "field 5, time stamp: \"1e3\"; expected seconds"),
        (Format::DiskSim, "1.0 0 5 8", "expected five fields"),
        (Format::FioV2, "fio version 3 iolog", "expected \"fio version 2 iolog\""),
        (Format::FioV3, "fio version 3 iolog\n7 disk wait 5 0", "field 3, action: \"wait\"; expected read, write"),
        (
            Format::FioV3,
            "fio version 3 iolog\n7 d read 0 512\nfio version 3 iolog\n",
            "line 3: a second log begins here",
        ),
        (Format::Fiu, "1 2 3", "expected time stamp, process, name"),
        (Format::Tencent, "", "no requests; expected a trace of the format tencent"),
        (Format::Blktrace, "\u{7}\u{0}taer", "the file ends after 6 of its bytes"),
    ] {
        let error = read(format, text.as_bytes()).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let long = "x".repeat(100_000);
    assert!(read(Format::Msr, long.as_bytes()).unwrap_err().contains("a line of more than 65536 bytes"));
    let mut tolerant = TraceReader::new(Format::Alibaba).accepting_bad(1);
    let mut records = Vec::new();
    assert!(tolerant.read(b"x\n0,R,0,512,5\n", &mut records).is_ok());
    assert_eq!((tolerant.counts().bad, records.len()), (1, 1));
    assert!(tolerant.read(b"x\n", &mut records).unwrap_err().to_string().starts_with("line 3: "));
}

/// The golden files in text form, with an example of a line in each.
const TEXTS: [(Format, &str); 10] = [
    (Format::FioV2, "fio-v2.log"),
    (Format::FioV3, "fio-v3.log"),
    (Format::DiskSim, "disksim.trace"),
    (Format::Msr, "msr.csv"),
    (Format::Spc, "spc.csv"),
    (Format::Alibaba, "alibaba.csv"),
    (Format::Tencent, "tencent.csv"),
    (Format::Systor17, "systor17.csv"),
    (Format::Fiu, "fiu.txt"),
    (Format::Blkparse, "kernel-blkparse.txt"),
];

/// Line endings of other systems, blank lines, and a missing newline at the end have no effect.
#[test]
fn ends_of_lines_and_blank_lines_change_nothing() {
    for (format, file) in TEXTS {
        let text = String::from_utf8(sample(file)).unwrap();
        let expected = read(format, text.as_bytes()).unwrap();
        let crlf = text.replace('\n', "\r\n");
        let spaced = text.replace('\n', "\n\n");
        for changed in [crlf.as_str(), &spaced, text.trim_end(), &format!("{text}\n\n  \n\r\n\t")] {
            assert_eq!(Format::detect(changed.as_bytes()), Some(format), "{file}");
            for piece in [1, 7, 4_096] {
                assert_eq!(read_in(format, changed.as_bytes(), piece).unwrap(), expected, "{file}");
            }
        }
        // No format has comments; only blkparse's summary may contain any line.
        let commented = format!("{text}# a comment\n");
        let lines = text.lines().count() + 1;
        match read(format, commented.as_bytes()) {
            Err(error) => assert!(error.starts_with(&format!("line {lines}: ")), "{file}: {error}"),
            Ok(_) => assert_eq!(format, Format::Blkparse),
        }
    }
}

/// Numbers of any size are refused, or fit a device.
#[test]
fn places_beyond_any_device_are_refused() {
    // A device of 16 EiB has 2^55 sectors.
    let places = [1_u64 << 46, 1 << 55, 1 << 63, u64::MAX - 511, u64::MAX];
    for (format, line) in [
        (Format::FioV2, "fio version 2 iolog\nd read PLACE 512"),
        (Format::FioV3, "fio version 3 iolog\n1 d read PLACE 512"),
        (Format::DiskSim, "1.0 0 PLACE 8 1"),
        (Format::Msr, "128166385295514663,hm,0,Write,PLACE,2048,2833"),
        (Format::Spc, "0,PLACE,8192,W,0.551706"),
        (Format::Alibaba, "0,R,PLACE,4096,1577808000000046"),
        (Format::Tencent, "1538323199,PLACE,584,1,1576"),
        (Format::Systor17, "1456095145.133076000,0.000806000,R,0,PLACE,131072"),
        (Format::Fiu, "0 4892 syslogd PLACE 8 W 6 0 md"),
        (Format::Blkparse, "8,0 1 1 0.000000000 697 D W PLACE + 8 [x]"),
    ] {
        for place in places {
            match read(format, line.replace("PLACE", &place.to_string()).as_bytes()) {
                Ok((records, ..)) => assert!(records[0].lba.0 < 1 << 55, "{format} {place}"),
                Err(error) => {
                    let known = ["beyond any device", "; expected a"];
                    assert!(known.iter().any(|part| error.contains(part)), "{format}: {error}");
                    assert!(error.contains("line "), "{format}: {error}");
                }
            }
        }
    }
}

/// Only one specification allows requests of length zero; they are skipped or refused.
#[test]
fn requests_without_a_length_are_refused_or_passed_over() {
    for (format, line) in [
        (Format::FioV2, "fio version 2 iolog\nd read 512 0"),
        (Format::DiskSim, "1.0 0 7 0 1"),
        (Format::Msr, "128166385295514663,hm,0,Write,512,0,2833"),
        (Format::Alibaba, "0,R,512,0,1577808000000046"),
        (Format::Tencent, "1538323199,7,0,1,1576"),
        (Format::Systor17, "1456095145.133076000,0.000806000,R,0,512,0"),
        (Format::Fiu, "0 4892 syslogd 7 0 W 6 0 md"),
    ] {
        let error = read(format, line.as_bytes()).unwrap_err();
        assert!(error.contains("a request of 0 bytes; expected 1 byte to"), "{format}: {error}");
    }
    let (records, _, counts) = read(Format::Spc, b"0,7,0,W,0.1\n0,8,512,R,0.2\n").unwrap();
    assert_eq!((records.len(), counts.skipped, records[0].lba.0), (1, 1, 8));
}

/// Time stamps that go back are counted; the order of the file is kept.
#[test]
fn time_stamps_that_go_back_are_counted() {
    let lines = "0,R,0,512,1577808000000500\n0,R,512,512,1577808000000400\n0,W,0,512,1577808000000600\n";
    let (records, _, counts) = read(Format::Alibaba, lines.as_bytes()).unwrap();
    assert_eq!(records.iter().map(|record| record.order).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(records[1].arrival < records[0].arrival);
    assert_eq!(counts.unordered, 1);
    // The second request is a day before the first, which is the origin of time.
    let lines = "0,R,0,512,1577808000000500\n0,R,512,512,1577708000000400\n";
    let error = read(Format::Alibaba, lines.as_bytes()).unwrap_err();
    assert!(error.contains("line 2: a request on a day before that of the first request"), "{error}");
}

/// On request, the kernel sets a bit in the event and appends the number of the control group.
#[test]
fn events_that_tell_their_control_group_are_events() {
    let info = TraceInfo { origin_unix_ns: None, volumes: vec!["8,0".to_owned()] };
    let mut record = request(Op::Write, 64, 8, 1_000);
    record.completed = Nanos::from_nanos(5_000);
    let plain = written(Format::Blktrace, &info, &[record]);
    let mut grouped = Vec::new();
    for event in plain.chunks(48) {
        let mut event = event.to_vec();
        event[29] |= 1;
        event[46..48].copy_from_slice(&8_u16.to_le_bytes());
        event.extend(7_u64.to_le_bytes());
        grouped.extend(event);
    }
    // Events between issue and dispatch are skipped, with or without a control group.
    let (_, _, expected) = read_in(Format::Blktrace, &plain, 48).unwrap();
    for piece in [1, 47, 57, 1_000] {
        let (records, found, counts) = read_in(Format::Blktrace, &grouped, piece).unwrap();
        assert_eq!((records.as_slice(), &found, counts), (&[record][..], &info, expected));
    }
}

#[test]
fn ranges_widen_to_sectors_and_are_counted() {
    let (records, _, counts) = read(Format::Alibaba, b"0,R,1000,100,5\n0,W,512,512,6\n0,R,511,2,4\n").unwrap();
    assert_eq!((records[0].lba.0, records[0].sectors), (1, 2), "bytes 1000 to 1100");
    assert_eq!((records[2].lba.0, records[2].sectors), (0, 2), "bytes 511 and 512");
    assert_eq!((counts.widened, counts.unordered), (2, 1));
}

#[test]
fn events_become_requests_with_their_completions() {
    let text = "  8,0    1        1     0.000000000  697  Q   W 100 + 8 [x]
  8,0    1        2     0.000001000  697  Q   W 108 + 8 [x]
  8,0    1        3     0.000002000  697  M   W 108 + 8 [x]
  8,0    1        4     0.000005000  697  D   W 100 + 16 [x]
  8,0    1        5     0.000006000  697  D  FN [x]
  8,0    1        6     0.000006500  697  D   R 500 + 8 [x]
  8,0    1        7     0.000006600  697  R   R 500 + 8 [x]
  8,0    1        8     0.000006700  697  D  RF 500 + 8 [x]
  8,0    1        9     0.000007000    0  C  FN 0 [0]
  8,0    1       10     0.000009000    0  C   W 100 + 16 [0]
  8,0    1       11     0.000010000    0  C  WS 900 + 16 [0]
CPU0 (lt):
 Reads Queued:           0,        0KiB\t Writes Queued:           2,        8KiB
";
    let (records, info, counts) = read(Format::Blkparse, text.as_bytes()).unwrap();
    let expected = [(Op::Write, 100, 16, 5_000), (Op::Flush, 0, 0, 6_000), (Op::Read, 500, 8, 6_700)];
    assert_eq!(plain(&records), expected);
    let completed: Vec<_> = records.iter().map(|record| record.completed.as_nanos()).collect();
    assert_eq!(completed, [9_000, 7_000, u64::MAX]);
    assert_eq!((records[2].fua, info.volumes[0].as_str()), (true, "8,0"));
    assert!(counts.skipped >= 3, "a merge, a stray completion, the summary");

    let (mut reader, mut queued) = (TraceReader::new(Format::Blkparse).from_queueing(), Vec::new());
    reader.read(text.as_bytes(), &mut queued).unwrap();
    reader.finish(&mut queued).unwrap();
    assert_eq!(plain(&queued), [(Op::Write, 100, 8, 0), (Op::Write, 108, 8, 1_000)]);
    assert!(queued.iter().all(|record| record.completed.as_nanos() == 9_000), "one completion of two");
}

#[test]
fn equal_time_stamps_are_spread_over_their_second() {
    let spread = |seed| {
        let lines: String = (0..50).map(|n| format!("{},{},8,0,7\n", 1_538_323_199 + n / 25, n * 8)).collect();
        let (mut records, _, _) = read(Format::Tencent, lines.as_bytes()).unwrap();
        let mut spread = Spread::new(Format::Tencent.resolution_ns(), seed);
        let mut rest = records.split_off(10);
        spread.spread(&mut records);
        spread.spread(&mut rest);
        records.extend(rest);
        spread.finish(&mut records);
        records
    };
    let records = spread(1);
    assert_eq!(records.len(), 50);
    assert!(records.iter().zip(&records[1..]).all(|(one, next)| one.arrival <= next.arrival));
    assert!(records.iter().map(|record| record.lba.0).eq((0..50).map(|n| n * 8)), "in their order");
    let seconds = |record: &RequestRecord| record.arrival.as_nanos() / 1_000_000_000;
    assert_eq!(seconds(&records[25]) - seconds(&records[24]), 1);
    assert_eq!(plain(&records), plain(&spread(1)));
    assert_ne!(plain(&records), plain(&spread(2)));
}

/// fio replays our logs exactly, as its own latency log shows.
#[test]
fn fio_issues_every_request_of_our_logs() {
    if Command::new("fio").arg("--version").output().is_err() {
        println!("SKIPPED: no fio here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::write(&disk, vec![7; 1 << 20]).unwrap();
    let kinds = [Op::Read, Op::Write, Op::Read, Op::Flush];
    let records: Vec<_> = (0..40_u64)
        .map(|n| match kinds[n as usize % 4] {
            Op::Flush => request(Op::Flush, 0, 0, n * 150_000),
            op => request(op, n * 37 % 1_900 / 8 * 8, 8 + 8 * (n as u32 % 3), n * 150_000),
        })
        .collect();
    let moved = records.iter().filter(|record| record.op != Op::Flush);
    let expected: Vec<_> = moved.map(|record| (record.op, record.lba.0, record.sectors)).collect();
    let info = TraceInfo { origin_unix_ns: None, volumes: vec![disk.display().to_string()] };
    for format in [Format::FioV2, Format::FioV3] {
        std::fs::write(folder.path().join("ours"), written(format, &info, &records)).unwrap();
        let output = Command::new("fio")
            .args(["--name=replay", "--ioengine=sync", "--read_iolog=ours", "--write_lat_log=seen", "--log_offset=1"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{format}: {}", String::from_utf8_lossy(&output.stderr));
        // Milliseconds, latency, direction, bytes, offset, priority.
        let seen = std::fs::read_to_string(folder.path().join("seen_clat.1.log")).unwrap();
        let issued = seen.lines().map(|line| {
            let fields: Vec<u64> = line.split(", ").take(5).map(|field| field.parse().unwrap()).collect();
            let op = if fields[2] == 0 { Op::Read } else { Op::Write };
            (op, fields[4] / 512, (fields[3] / 512) as u32)
        });
        assert_eq!(issued.collect::<Vec<_>>(), expected, "{format}");
    }
}

fn any_requests() -> impl Strategy<Value = Vec<RequestRecord>> {
    let op = prop_oneof![Just(Op::Read), Just(Op::Write)];
    let one = (op, 0..1_u64 << 40, 1..5_000_u32, 0..50_000_000_u64, prop::option::of(0..9_000_000_u64), 0..3_u16);
    prop::collection::vec(one, 1..40).prop_map(|requests| {
        let mut at = 0;
        let made = requests.into_iter().map(|(op, lba, sectors, gap, response, device)| {
            at += gap;
            let mut record = request(op, lba, sectors, at);
            record.device = device;
            if let Some(response) = response {
                record.completed = Nanos::from_nanos(at + response);
            }
            record
        });
        made.collect()
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(records in any_requests(), piece in 1..300_usize) {
        let info = TraceInfo {
            origin_unix_ns: Some(1_577_750_400_000_000_000),
            volumes: ["0", "1", "2"].map(str::to_owned).to_vec(),
        };
        for format in Format::ALL.into_iter().filter(|format| format.can_be_written()) {
            let bytes = written(format, &info, &records);
            let (found, found_info, counts) = read_in(format, &bytes, piece).unwrap();
            prop_assert_eq!(counts.requests, records.len() as u64);
            prop_assert_eq!(counts.widened, 0);
            let resolution = format.resolution_ns();
            for (found, expected) in found.iter().zip(&records) {
                prop_assert_eq!((found.op, found.lba, found.sectors), (expected.op, expected.lba, expected.sectors));
                prop_assert_eq!(found.arrival.as_nanos(), expected.arrival.as_nanos() / resolution * resolution);
                let volume = &found_info.volumes[usize::from(found.device)];
                prop_assert!(volume.ends_with(&expected.device.to_string()), "{} {}", format, volume);
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        format in prop::sample::select(Format::ALL.to_vec()),
        records in any_requests(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        queueing: bool,
        accepted in 0..3_u64,
    ) {
        let from = if format.can_be_written() { format } else { Format::DiskSim };
        let mut bytes = written(from, &TraceInfo::default(), &records);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let _ = Format::detect(&bytes);
        let mut reader = TraceReader::new(format).accepting_bad(accepted);
        if queueing {
            reader = reader.from_queueing();
        }
        let mut found = Vec::new();
        let done = reader.read(&bytes, &mut found).and_then(|()| reader.finish(&mut found));
        prop_assert_eq!(found.len() as u64, reader.counts().requests);
        for record in &found {
            prop_assert!(record.completed >= record.arrival);
            prop_assert!(record.lba.0 + u64::from(record.sectors) <= 1 << 56);
        }
        if let Err(error) = done {
            prop_assert!(!error.problem.is_empty());
        }
    }
}
