//! The kernel's binary events and blkparse's text of them are one trace: both decoders agree for any events.

mod common;

use std::process::Command;

use chronodisk_sim::{Nanos, Op, RequestRecord};
use chronodisk_trace::block::{Format, ReadCounts, TraceReader};
use common::sample;
use proptest::prelude::*;

/// The kernel's bits of an operation, and whether it has a range.
const KINDS: [(u32, bool); 12] = [
    (READ, true),
    (READ | SYNC, true),
    (READ | SYNC | AHEAD, true),
    (WRITE, true),
    (WRITE | SYNC, true),
    (WRITE | SYNC | FUA, true),
    (WRITE | SYNC | FLUSH, true),
    (WRITE | SYNC | FLUSH | FUA, true),
    (WRITE | SYNC | FLUSH, false),
    (READ | FLUSH, false),
    (WRITE | DISCARD | SYNC, true),
    (WRITE | SYNC, false),
];

const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const SYNC: u32 = 1 << 19;
const QUEUE: u32 = 1 << 20;
const ISSUE: u32 = 1 << 22;
const COMPLETE: u32 = 1 << 23;
const FS: u32 = 1 << 24;
const AHEAD: u32 = 1 << 27;
const DISCARD: u32 = 1 << 29;
const FUA: u32 = 1 << 31;

/// An event: operation, kind, address, and time since the previous event.
type Event = (usize, usize, u32, u64);

fn bytes_of(events: &[Event]) -> Vec<u8> {
    let (mut bytes, mut now) = (Vec::new(), 1_000_u64);
    for (number, &(what, kind, place, later)) in (1_u32..).zip(events) {
        now += later;
        let (bits, has_range) = KINDS[kind % KINDS.len()];
        let (sector, len) = if has_range { (u64::from(place % 50) * 8, (1 + place % 4) * 4_096) } else { (0, 0) };
        let action = [QUEUE | 1, ISSUE | 7, COMPLETE | 8, ISSUE | 7, COMPLETE | 8][what % 5];
        bytes.extend((0x6561_7400_u32 | 7).to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend(now.to_le_bytes());
        bytes.extend(sector.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend((FS | bits | action).to_le_bytes());
        bytes.extend((100 + place % 3).to_le_bytes());
        bytes.extend((8_u32 << 20).to_le_bytes());
        bytes.extend([0; 8]);
    }
    bytes
}

fn read(format: Format, bytes: &[u8], is_queued: bool) -> Result<(Vec<RequestRecord>, ReadCounts), String> {
    let reader = TraceReader::new(format);
    let mut reader = if is_queued { reader.from_queueing() } else { reader };
    let mut records = Vec::new();
    reader.read(bytes, &mut records).map_err(|error| error.to_string())?;
    match reader.finish(&mut records) {
        Err(error) if !records.is_empty() => Err(error.to_string()),
        _ => Ok((records, reader.counts())),
    }
}

/// The records with instants relative to the first event.
fn since(records: &[RequestRecord], begin: Nanos) -> Vec<RequestRecord> {
    let shifted = |at: Nanos| if at == Nanos::MAX { at } else { at - begin };
    let record = |record: &RequestRecord| RequestRecord {
        arrival: shifted(record.arrival),
        completed: shifted(record.completed),
        ..*record
    };
    records.iter().map(record).collect()
}

fn blkparse_is_here() -> bool {
    let is_here = Command::new("blkparse").arg("-V").output().is_ok();
    if !is_here {
        println!("SKIPPED: no blkparse here (Debian: apt-get install blktrace)");
    }
    is_here
}

fn printed(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.blktrace.0"), bytes).unwrap();
    let output = Command::new("blkparse").args(["-q", "-i", "t"]).current_dir(folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Version 1.3 also prints the name of its input.
    text.lines().filter(|line| !line.starts_with("Input file")).map(|line| format!("{line}\n")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn both_decoders_agree_on_any_events(
        events in proptest::collection::vec((0..5_usize, 0..KINDS.len(), any::<u32>(), 1..1_000_000_u64), 1..60),
    ) {
        if !blkparse_is_here() {
            return Ok(());
        }
        let bytes = bytes_of(&events);
        let text = printed(&bytes);
        prop_assert_eq!(text.lines().count(), events.len(), "{}", text);
        let begin = Nanos::from_nanos(1_000 + events[0].3);
        for is_queued in [false, true] {
            let (binary, counts) = read(Format::Blktrace, &bytes, is_queued).unwrap();
            let (text, text_counts) = read(Format::Blkparse, text.as_bytes(), is_queued).unwrap();
            prop_assert_eq!(since(&binary, begin), text);
            prop_assert_eq!(counts.unissued, text_counts.unissued);
        }
    }
}

#[test]
fn queued_flushes_of_the_kernels_trace_are_there_in_both() {
    let of = |format, file: &str| read(format, &sample(file), true).unwrap().0;
    let binary = of(Format::Blktrace, "kernel.blktrace");
    let text = of(Format::Blkparse, "kernel-blkparse.txt");
    assert_eq!(since(&binary, binary[0].arrival), since(&text, text[0].arrival));
    assert_eq!(text.iter().filter(|record| record.op == Op::Flush).count(), 4);
    assert!(text.iter().all(|record| record.is_completed()));
}

#[test]
fn a_write_that_is_queued_with_a_flush_before_it_is_two_requests_where_requests_begin_so() {
    let event = "  8,0    0        1     0.000001000   700  Q FWFS 8 + 8 [x]\n";
    let (records, _) = read(Format::Blkparse, event.as_bytes(), true).unwrap();
    let found: Vec<_> = records.iter().map(|record| (record.op, record.lba.0, record.sectors, record.fua)).collect();
    assert_eq!(found, [(Op::Flush, 0, 0, false), (Op::Write, 8, 8, true)]);
}

#[test]
fn a_device_without_issues_is_named_and_counted() {
    let queued = "253,0    3        1     0.000000000  4977  Q   W 0 + 8 [x]\n\
        253,0    3        2     0.000060000  4977  C   W 0 + 8 [0]\n";
    let mut reader = TraceReader::new(Format::Blkparse);
    let mut records = Vec::new();
    reader.read(queued.as_bytes(), &mut records).unwrap();
    let error = reader.finish(&mut records).unwrap_err().to_string();
    assert!(error.contains("1 were queued (Q)") && error.contains("--event Q"), "{error}");
    // Events of another disk, which has a driver, precede them.
    let disk = "  8,0    0        1     0.000000000   700  Q   W 8 + 8 [x]\n  \
        8,0    0        2     0.000001000   700  D   W 8 + 8 [x]\n";
    let (records, counts) = read(Format::Blkparse, format!("{queued}{disk}").as_bytes(), false).unwrap();
    assert_eq!((records.len(), counts.unissued), (1, 1));
}

#[test]
fn names_of_columns_are_passed_over() {
    let traces = [
        (Format::Msr, "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime", "msr.csv"),
        (Format::Alibaba, "device_id,opcode,offset,length,timestamp", "alibaba.csv"),
        (Format::Tencent, "Timestamp,Offset,Size,IOType,VolumeID", "tencent.csv"),
        (Format::Spc, "\"ASU\", \"LBA\", \"Size\", \"Opcode\", \"Timestamp\"", "spc.csv"),
        (Format::Systor17, "Timestamp,Response,IOType,LUN,Offset,Size", "systor17.csv"),
    ];
    for (format, heading, file) in traces {
        let text = String::from_utf8(sample(file)).unwrap();
        let expected = read(format, text.as_bytes(), false).unwrap().0;
        let rest = text.strip_prefix(heading).map_or(text.as_str(), str::trim_start);
        let with_heading = format!("{heading}\n{rest}");
        assert_eq!(Format::detect(with_heading.as_bytes()), Some(format), "{file}");
        assert_eq!(read(format, with_heading.as_bytes(), false).unwrap().0, expected, "{file}");
        // A heading is accepted only before the requests and only once, except in formats whose files have it by
        // definition.
        let twice = format!("{heading}\n{heading}\n{rest}");
        let is_own = matches!(format, Format::Systor17 | Format::Alibaba);
        assert_eq!(read(format, twice.as_bytes(), false).is_err(), !is_own, "{file}");
    }
}
