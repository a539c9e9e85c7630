//! Block traces in other tools' formats: published samples, round trips, hostile bytes, and fio itself.

use std::path::Path;
use std::process::Command;

use chronodisk_sim::{Lba, Nanos, Op, Priority, RequestRecord, Status};
use chronodisk_trace::block::{Format, ReadCounts, Spread, TraceInfo, TraceReader, TraceWriter};
use proptest::prelude::*;

fn sample(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name)).unwrap()
}

/// Reads bytes in pieces of so many.
fn read_in(format: Format, bytes: &[u8], piece: usize) -> Result<(Vec<RequestRecord>, TraceInfo, ReadCounts), String> {
    let (mut reader, mut records) = (TraceReader::new(format), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        reader.read(piece, &mut records).map_err(|error| error.to_string())?;
    }
    reader.finish(&mut records).map_err(|error| error.to_string())?;
    Ok((records, reader.info().clone(), reader.counts()))
}

fn read(format: Format, bytes: &[u8]) -> Result<(Vec<RequestRecord>, TraceInfo, ReadCounts), String> {
    read_in(format, bytes, usize::MAX)
}

fn written(format: Format, info: &TraceInfo, records: &[RequestRecord]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(format, info.clone(), &mut bytes).unwrap();
    writer.write(records, &mut bytes);
    let counts = writer.finish(&mut bytes);
    assert_eq!(counts.requests + counts.left_out, records.len() as u64);
    bytes
}

fn request(op: Op, lba: u64, sectors: u32, arrival_ns: u64) -> RequestRecord {
    RequestRecord {
        device: 0,
        order: 0,
        op,
        fua: false,
        priority: Priority::default(),
        lba: Lba(lba),
        sectors,
        queue: 0,
        issuer: 0,
        arrival: Nanos::from_nanos(arrival_ns),
        due: Nanos::MAX,
        completed: Nanos::MAX,
        status: Status::Ok,
        store_failed: false,
        stolen: false,
        model_time: Nanos::ZERO,
        store_time: Nanos::ZERO,
    }
}

type Plain = (Op, u64, u32, u64);

fn plain(records: &[RequestRecord]) -> Vec<Plain> {
    records.iter().map(|record| (record.op, record.lba.0, record.sectors, record.arrival.as_nanos())).collect()
}

#[test]
fn published_samples_are_read_as_their_makers_say() {
    // 2007-02-22 17:00:00.3061629 UTC, counted from its midnight.
    let (records, info, _) = read(Format::Msr, &sample("msr.csv")).unwrap();
    assert_eq!(info.origin_unix_ns, Some(1_172_102_400_000_000_000));
    assert_eq!(info.volumes, ["hm_0", "hm_1"]);
    let at = 17 * 3_600_000_000_000 + 306_162_900;
    assert_eq!(plain(&records)[0], (Op::Write, 7_014_912 / 512, 8, at));
    assert_eq!(records[0].completed.as_nanos(), at + 2_600);
    assert_eq!(records[2].device, 1);

    let (records, info, counts) = read(Format::Spc, &sample("spc.csv")).unwrap();
    assert_eq!(plain(&records)[0], (Op::Write, 20_941_264, 16, 551_706_000));
    assert_eq!(plain(&records)[6], (Op::Read, 7_695_360, 8, 2_346_628_000));
    assert_eq!((info.volumes.len(), info.origin_unix_ns, counts.widened), (2, None, 0));
    assert!(records.iter().all(|record| !record.is_completed()));

    let (records, info, _) = read(Format::Alibaba, &sample("alibaba.csv")).unwrap();
    // 2020-01-01 00:00 in Beijing is 16:00 UTC of the day before.
    assert_eq!(info.origin_unix_ns, Some(1_577_750_400_000_000_000));
    assert_eq!(plain(&records)[1], (Op::Write, 19_496_058_880 / 512, 152, 16 * 3_600_000_000_000 + 426_000));
    assert_eq!(info.volumes.len(), 6);

    let (records, info, _) = read(Format::Tencent, &sample("tencent.csv")).unwrap();
    assert_eq!((records[0].op, records[0].lba.0, records[0].sectors), (Op::Write, 105_352_008, 584));
    assert_eq!((records[1].op, info.volumes[1].as_str()), (Op::Read, "2313"));

    let (records, _, _) = read(Format::Systor17, &sample("systor17.csv")).unwrap();
    assert_eq!((records[0].op, records[0].lba.0, records[0].sectors), (Op::Read, 899_056_122_368 / 512, 256));
    assert_eq!(records[0].completed - records[0].arrival, Nanos::from_micros(806));

    let (records, info, _) = read(Format::Fiu, &sample("fiu.txt")).unwrap();
    assert_eq!(plain(&records), [(Op::Read, 283_193_184, 8, 89_968_195_792_462)]);
    assert_eq!((records[0].issuer, info.volumes[0].as_str()), (20_782, "6,0"));

    let (records, info, counts) = read(Format::FioV3, &sample("fio-v3.log")).unwrap();
    assert_eq!(info.volumes, ["disk"]);
    assert_eq!(plain(&records)[0], (Op::Write, 0, 8, 170_000));
    assert!(records.iter().any(|record| record.op == Op::Flush), "its syncs");
    assert!(counts.skipped >= 2, "files that were added and opened");
}

#[test]
fn each_format_is_told_from_its_first_bytes() {
    let files = [
        (Format::Msr, "msr.csv"),
        (Format::Spc, "spc.csv"),
        (Format::Alibaba, "alibaba.csv"),
        (Format::Tencent, "tencent.csv"),
        (Format::Systor17, "systor17.csv"),
        (Format::Fiu, "fiu.txt"),
        (Format::FioV3, "fio-v3.log"),
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
fn samples_are_written_again_byte_by_byte() {
    for (format, file) in [
        (Format::Msr, "msr.csv"),
        (Format::Alibaba, "alibaba.csv"),
        (Format::Tencent, "tencent.csv"),
        (Format::Systor17, "systor17.csv"),
    ] {
        let bytes = sample(file);
        let (records, info, _) = read(format, &bytes).unwrap();
        assert_eq!(String::from_utf8(written(format, &info, &records)), String::from_utf8(bytes), "{file}");
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

/// fio issues what our logs say, as its own log of latencies shows.
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
