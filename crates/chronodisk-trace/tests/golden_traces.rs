//! Golden files of each format, read and written. `traces/README.md` lists their origins: none was made by the code
//! under test.

mod common;

use std::process::Command;

use chronodisk_sim::{Lba, Nanos, Op, RequestRecord};
use chronodisk_trace::block::{Format, TraceInfo};
use common::{plain, read, sample, written};

fn text(name: &str) -> String {
    String::from_utf8(sample(name)).unwrap()
}

fn written_text(format: Format, info: &TraceInfo, records: &[RequestRecord]) -> String {
    String::from_utf8(written(format, info, records)).unwrap()
}

/// Formats that hold all fields of a record: each file read and written again is equal, byte by byte.
#[test]
fn files_are_written_again_byte_by_byte() {
    for (format, input, output) in [
        (Format::Msr, "msr.csv", "msr.csv"),
        (Format::Alibaba, "alibaba.csv", "alibaba.csv"),
        (Format::Tencent, "tencent.csv", "tencent.csv"),
        (Format::Systor17, "systor17.csv", "systor17.csv"),
        (Format::DiskSim, "disksim.trace", "disksim.trace"),
        // The optional fields of the specification's example are only for people, and are not written.
        (Format::Spc, "spc.csv", "spc-written.csv"),
        (Format::Spc, "spc-written.csv", "spc-written.csv"),
    ] {
        let (records, info, counts) = read(format, &sample(input)).unwrap();
        assert_eq!((counts.widened, counts.bad), (0, 0), "{input}");
        assert_eq!(written_text(format, &info, &records), text(output), "{input}");
    }
}

#[test]
fn msr_is_read_as_its_makers_say() {
    // 2007-02-22 17:22:09.5514663 UTC, counted from its midnight.
    let (records, info, _) = read(Format::Msr, &sample("msr.csv")).unwrap();
    assert_eq!(info.origin_unix_ns, Some(1_172_102_400_000_000_000));
    assert_eq!(info.volumes, ["hm_0", "mds_1"]);
    let at = (17 * 3_600 + 22 * 60 + 9) * 1_000_000_000 + 551_466_300;
    assert_eq!(plain(&records)[0], (Op::Write, 9_056_014_336 / 512, 4, at));
    assert_eq!(records[0].completed.as_nanos(), at + 283_300);
    let of_mds: Vec<_> = records[1..].iter().map(|one| (one.device, one.op, one.lba.0, one.sectors)).collect();
    assert_eq!(of_mds, [(1, Op::Read, 2_367, 9), (1, Op::Write, 6_283_199, 32)]);
    assert_eq!(records[2].arrival - records[1].arrival, Nanos::from_nanos(2_843_650_400));
}

#[test]
fn spc_is_read_as_its_specification_says() {
    let (records, info, _) = read(Format::Spc, &sample("spc.csv")).unwrap();
    let all = plain(&records);
    assert_eq!(all[0], (Op::Write, 20_941_264, 16, 551_706_000));
    assert_eq!(all[6], (Op::Read, 7_695_360, 8, 2_346_628_000));
    // "the last two records in this example have an identical time stamp of 2.449733"
    assert_eq!((all[8].3, all[9].3), (2_449_733_000, 2_449_733_000));
    assert_eq!((info.volumes.len(), info.origin_unix_ns), (3, None));
    assert!(records.iter().all(|record| !record.is_completed()));
}

#[test]
fn clouds_are_read_as_their_makers_say() {
    let (records, info, _) = read(Format::Alibaba, &sample("alibaba.csv")).unwrap();
    // 2020-01-01 00:00 in Beijing is 16:00 UTC of the day before.
    assert_eq!(info.origin_unix_ns, Some(1_577_750_400_000_000_000));
    assert_eq!(plain(&records)[1], (Op::Write, 19_496_058_880 / 512, 152, 16 * 3_600_000_000_000 + 426_000));
    assert_eq!(info.volumes.len(), 6);

    // The last second of September 2018 in Beijing, two hours and some before UTC's midnight of the day.
    let (records, info, _) = read(Format::Tencent, &sample("tencent.csv")).unwrap();
    assert_eq!(info.origin_unix_ns, Some(1_538_265_600_000_000_000));
    let second = (1_538_323_199 - 1_538_265_600) * 1_000_000_000;
    assert_eq!(plain(&records), [(Op::Write, 105_352_008, 584, second), (Op::Read, 1_003_027_216, 16, second)]);
    assert_eq!(info.volumes, ["1576", "2313"]);
}

#[test]
fn systor17_and_fiu_are_read_as_their_makers_say() {
    let (records, _, _) = read(Format::Systor17, &sample("systor17.csv")).unwrap();
    assert_eq!((records[0].op, records[0].lba.0, records[0].sectors), (Op::Read, 899_056_122_368 / 512, 256));
    assert_eq!(records[0].completed - records[0].arrival, Nanos::from_micros(806));

    let (records, info, _) = read(Format::Fiu, &sample("fiu.txt")).unwrap();
    let expected = [(Op::Write, 904_265_560, 8, 0), (Op::Read, 283_193_184, 8, 89_968_195_792_462)];
    assert_eq!(plain(&records), expected);
    let issuers: Vec<u32> = records.iter().map(|record| record.issuer).collect();
    assert_eq!((issuers, info.volumes[0].as_str()), (vec![4_892, 20_782], "6,0"));
}

#[test]
fn disksim_is_read_as_its_manual_says() {
    let (records, info, _) = read(Format::DiskSim, &sample("disksim.trace")).unwrap();
    assert_eq!(plain(&records)[0], (Op::Read, 0, 5, 13_191_135));
    assert_eq!(plain(&records)[3], (Op::Write, 28_601, 12, 25_911_729));
    assert_eq!((records.len(), info.volumes[0].as_str()), (12, "30"));
}

/// Lines of a log, except those that add, open or close a file.
fn requests_of(log: &str) -> Vec<&str> {
    let is_request = |line: &&str| !["add", "open", "close"].iter().any(|action| line.ends_with(action));
    log.lines().filter(is_request).collect()
}

#[test]
fn logs_of_fio_are_read_and_written_as_fio_has_them() {
    let (records, info, counts) = read(Format::FioV2, &sample("fio-v2.log")).unwrap();
    assert_eq!((info.volumes.as_slice(), counts.skipped), (&["disk".to_owned()][..], 5));
    let of = |op: Op| records.iter().filter(|record| record.op == op).count();
    assert_eq!((of(Op::Read), of(Op::Write), of(Op::Flush)), (7, 6, 3));
    assert_eq!(plain(&records)[1], (Op::Read, 94_208 / 512, 24, 0));
    // Neither fio's own log nor ours of it has pauses; a flush has no address.
    let ours = written_text(Format::FioV2, &info, &records);
    let expected = text("fio-v2.log").replace("datasync", "sync");
    let without_place = |line: &str| {
        let flush = line.contains(" sync ");
        if flush { "disk sync 0 0".to_owned() } else { line.to_owned() }
    };
    let expected: Vec<String> = requests_of(&expected)
        .into_iter()
        .filter(|line| !line.contains("sync_file_range"))
        .map(without_place)
        .collect();
    assert_eq!(requests_of(&ours), expected);
    assert!(ours.starts_with("fio version 2 iolog\ndisk add\ndisk open\n") && ours.ends_with("disk close\n"));

    let (records, info, counts) = read(Format::FioV3, &sample("fio-v3.log")).unwrap();
    assert_eq!(info.volumes, ["disk"]);
    assert_eq!(plain(&records)[0], (Op::Write, 0, 8, 170_000));
    assert_eq!((counts.skipped, records[6].op, records[6].arrival), (3, Op::Flush, Nanos::from_micros(491)));
    let ours = written_text(Format::FioV3, &info, &records);
    let expected = text("fio-v3.log").replace("disk sync 57344 0", "disk sync 0 0");
    assert_eq!(requests_of(&ours), requests_of(&expected));
}

/// fio's documentation has an action `wait`, which fio itself does not write.
#[test]
fn pauses_of_fio_are_read_and_written_as_its_documentation_says() {
    let log = "fio version 2 iolog\nd add\nd open\nd wait 300 0\nd read 0 4096\nd write 4096 4096\nd wait 1200 0\n\
               d trim 8192 4096\nd close\n";
    let (records, info, _) = read(Format::FioV2, log.as_bytes()).unwrap();
    let expected = [(Op::Read, 0, 8, 300_000), (Op::Write, 8, 8, 300_000), (Op::Discard, 16, 8, 1_500_000)];
    assert_eq!(plain(&records), expected);
    assert_eq!(written_text(Format::FioV2, &info, &records), log);
}

/// The kernel's binary events and blkparse's text of them give equal requests.
#[test]
fn the_kernels_trace_is_what_blkparse_prints_of_it() {
    let (binary, info, _) = read(Format::Blktrace, &sample("kernel.blktrace")).unwrap();
    let (printed, printed_info, _) = read(Format::Blkparse, &sample("kernel-blkparse.txt")).unwrap();
    assert_eq!((info.volumes.as_slice(), &info), (&["8,0".to_owned()][..], &printed_info));
    // blkparse counts from the first event, and prints the issuing process. The kernel's clock began at boot.
    let begin = binary[0].arrival - printed[0].arrival;
    let since = |record: &RequestRecord| RequestRecord {
        arrival: record.arrival - begin,
        completed: record.completed - begin,
        ..*record
    };
    assert_eq!(binary.iter().map(since).collect::<Vec<_>>(), printed);
    assert!(printed.iter().all(RequestRecord::is_completed));
    let of = |op: Op| printed.iter().filter(|record| record.op == op).count();
    assert_eq!((of(Op::Read), of(Op::Write), of(Op::Flush), of(Op::Discard)), (7, 8, 4, 1));
    // dd's writes with O_DSYNC, and one request that the block layer merged from three.
    let forced: Vec<u64> = printed.iter().filter(|record| record.fua).map(|record| record.lba.0).collect();
    assert_eq!(forced, [224, 256]);
    let merged = printed.iter().find(|record| record.lba == Lba(72_000)).unwrap();
    assert_eq!((merged.sectors, merged.arrival, merged.completed), (24, at(444_657_690), at(454_654_870)));
    assert_eq!(merged.issuer, 109);
}

fn at(ns: u64) -> Nanos {
    Nanos::from_nanos(ns)
}

/// Our events equal the kernel's, except for fields that a record lacks: the processor, the number of the event, the
/// process that a completion interrupted, and whether a caller waits for the request.
#[test]
fn events_are_written_as_the_kernel_writes_them() {
    const SYNC: u32 = 1 << 19;
    let kernel = sample("kernel.blktrace");
    let (records, info, _) = read(Format::Blktrace, &kernel).unwrap();
    let issued_or_completed = |what: u32| [7, 8].contains(&(what & 0xffff)) && what & 1 << 26 == 0;
    let events = |bytes: &[u8]| {
        let (mut rest, mut found) = (bytes, Vec::new());
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let what = word(28);
            if issued_or_completed(what) {
                let is_completion = what & 0xffff == 8;
                let [time, sector] = [8, 16].map(|at| u64::from_le_bytes(rest[at..at + 8].try_into().unwrap()));
                let pid = if is_completion { 0 } else { word(32) };
                found.push((word(0), time, sector, word(24), what & !SYNC, pid, word(36), word(44) & 0xffff));
            }
            rest = &rest[48 + usize::from(u16::from_le_bytes(rest[46..48].try_into().unwrap()))..];
        }
        found.sort_unstable();
        found
    };
    let mut expected = events(&kernel);
    // The completion of a request that began as a flush; it has no data.
    expected.retain(|&(_, _, _, bytes, what, ..)| bytes > 0 || what & 1 << 18 != 0);
    assert_eq!(events(&written(Format::Blktrace, &info, &records)), expected);
    assert_eq!(expected.len(), 2 * records.len());
}

/// Our lines equal blkparse's text of our events, except for the name of the process.
#[test]
fn lines_are_written_as_blkparse_prints_our_events() {
    let (records, info, _) = read(Format::Blkparse, &sample("kernel-blkparse.txt")).unwrap();
    let ours = written_text(Format::Blkparse, &info, &records);
    let columns = |line: &str| {
        // Device, processor, number, seconds, process, action, letters, range.
        let words: Vec<String> = line.split_whitespace().map(|word| word.replace('S', "")).collect();
        let range: Vec<String> = words.iter().skip(7).take_while(|word| !word.starts_with('[')).cloned().collect();
        let process = if words[5] == "C" { String::new() } else { words[4].clone() };
        (words[0].clone(), words[3].clone(), process, words[5].clone(), words[6].clone(), range.join(" "))
    };
    let mut lines: Vec<_> = ours.lines().map(columns).filter(|line| ["D", "C"].contains(&line.3.as_str())).collect();
    lines.sort();
    let golden = text("kernel-blkparse.txt");
    let events = golden.lines().filter(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // A completion of a write without a range ends a request that began as a flush.
        words.len() > 6 && words[0].contains(',') && ["D", "C"].contains(&words[5]) && !line.contains("WS 0 [0]")
    });
    let mut expected: Vec<_> = events.map(columns).collect();
    // The sector of a flush is printed at its completion, but not at its issue.
    for event in &mut expected {
        if event.4 == "FN" {
            event.5.clear();
        }
    }
    expected.sort();
    assert_eq!(lines, expected);
    // The widths of the columns are equal, too.
    let first = golden.lines().find(|line| line.contains(" D ")).unwrap();
    let place = |line: &str, mark: &str| line.find(mark).unwrap();
    let own = ours.lines().find(|line| line.contains(" D ")).unwrap();
    for mark in [" D ", ".", "8,0", "800 + 8"] {
        assert_eq!(place(own, mark), place(first, mark), "{mark}: {own}");
    }

    if Command::new("blkparse").arg("-V").output().is_err() {
        println!("SKIPPED: no blkparse here");
        return;
    }
    // blkparse itself reads our binary file.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ours.blktrace.0"), written(Format::Blktrace, &info, &records)).unwrap();
    let output = Command::new("blkparse").args(["-q", "-i", "ours"]).current_dir(folder.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let (of_ours, _, _) = read(Format::Blkparse, printed.as_bytes()).unwrap();
    let begin = records[0].arrival;
    assert_eq!(of_ours.len(), records.len());
    for (one, record) in of_ours.iter().zip(&records) {
        let expected = RequestRecord {
            arrival: record.arrival - begin,
            completed: record.completed - begin,
            order: one.order,
            ..*record
        };
        assert_eq!(*one, expected);
    }
}
