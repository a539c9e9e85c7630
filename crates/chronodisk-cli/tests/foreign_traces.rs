//! Block traces as people bring them: with names of columns, of several volumes, in archives, of devices without a
//! driver; and what other tools make of ours.

#[path = "common/command.rs"]
mod command;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use pretty_assertions::assert_eq;

use chronodisk_report::read_log;
use chronodisk_sim::Op;

fn chronodisk(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = command::chronodisk(arguments);
    command.env("NO_COLOR", "1").env("XDG_STATE_HOME", folder).current_dir(folder);
    command.output().unwrap()
}

fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = chronodisk(folder, arguments);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {told}");
    told
}

fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = chronodisk(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const TWO_FILES: &str = "fio version 2 iolog\n/a add\n/b add\n/a open\n/b open\n/a write 0 4096\n/b write 0 4096\n\
    /a write 3145728 4096\n/b read 8192 512\n/a close\n/b close\n";

#[test]
fn volumes_are_put_on_one_device_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("t.iolog"), TWO_FILES).unwrap();
    let told = refused(folder, &["simulate", "-d", "first-disk", "--trace", "t.iolog"]);
    assert!(told.contains("several volumes, /a and /b") && told.contains("--volumes concatenate"), "{told}");
    // The first volume ends after 3 MiB and 4 KiB: 4 MiB.
    let of_b = 4 << 11;
    for (places, expected) in [
        ("overlay", [0, 0, 6_144, 16]),
        ("concatenate", [0, of_b, 6_144, of_b + 16]),
        ("/a=1GiB,/b=0", [1 << 21, 0, (1 << 21) + 6_144, 16]),
    ] {
        let output = places.split(',').next().unwrap().replace('/', "");
        done(folder, &["simulate", "-d", "first-disk", "--trace", "t.iolog", "--volumes", places, "-o", &output]);
        let records = read_log(&folder.join(&output).join("requests.parquet")).unwrap();
        let found: Vec<u64> = records.iter().map(|record| record.lba.0).collect();
        assert_eq!(found, expected, "{places}");
        assert!(records.iter().all(|record| record.device == 0));
    }
    // One file for other tools.
    done(folder, &["trace", "convert", "t.iolog", "--volumes", "concatenate", "--to", "fio-v3", "-o", "one.iolog"]);
    let one = fs::read_to_string(folder.join("one.iolog")).unwrap();
    assert_eq!(one.matches(" open\n").count(), 1, "{one}");
    let told = refused(folder, &["trace", "stats", "t.iolog", "--volumes", "/a=1GiB"]);
    assert!(told.contains("--volumes has no offset for the volume /b"), "{told}");
    for wrong in ["stack", "/a", "/a=x", "/a=1,/b=2", "/a=1GiB,/a=0"] {
        refused(folder, &["trace", "stats", "t.iolog", "--volumes", wrong]);
    }
}

#[test]
fn each_volume_has_a_device_of_its_own_if_it_is_simulated_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("t.iolog"), TWO_FILES).unwrap();
    let told = chronodisk(folder, &["trace", "stats", "t.iolog", "--json"]).stdout;
    let statistics: serde_json::Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(statistics["requests_by_volume"], serde_json::json!({"/a": 2, "/b": 2}));
    let shown = chronodisk(folder, &["trace", "stats", "t.iolog"]).stdout;
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("\nvolume  requests\n"), "{shown}");
    for (volume, expected) in [("/a", [0, 6_144]), ("/b", [0, 16])] {
        let output = volume.replace('/', "");
        done(folder, &["simulate", "-d", "first-disk", "--trace", "t.iolog", "--volume", volume, "-o", &output]);
        let records = read_log(&folder.join(&output).join("requests.parquet")).unwrap();
        assert_eq!(records.iter().map(|record| record.lba.0).collect::<Vec<_>>(), expected, "{volume}");
    }
}

#[test]
fn archives_are_named_with_the_command_that_unpacks_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("t.csv"), "0,R,0,4096,1577808000000046\n").unwrap();
    let made = Command::new("tar").args(["czf", "t.tgz", "t.csv"]).current_dir(folder).status().unwrap();
    assert!(made.success());
    let archives: [(&str, &[u8], &str); 4] = [
        ("t.tgz", b"", "a tar archive"),
        ("t.zip", b"PK\x03\x04\x14\0\0\0\x08\0", "a zip archive"),
        ("t.xz", b"\xfd7zXZ\0\0\x04\xe6\xd6", "compressed with xz"),
        ("t.bz2", b"BZh91AY&SY", "compressed with bzip2"),
    ];
    for (name, bytes, expected) in archives {
        if !bytes.is_empty() {
            fs::write(folder.join(name), bytes).unwrap();
        }
        let told = refused(folder, &["trace", "stats", name]);
        assert!(told.contains(expected) && told.contains("unpack it first: "), "{name}: {told}");
        let told = refused(folder, &["trace", "stats", name, "--from", "alibaba"]);
        assert!(told.contains(expected), "{name}: {told}");
    }
}

#[test]
fn names_of_columns_and_queued_flushes_reach_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("ali.csv"), "device_id,opcode,offset,length,timestamp\n7,R,8192,4096,1577808000000046\n")
        .unwrap();
    done(folder, &["trace", "stats", "ali.csv"]);
    let text = "  8,0    0        4     0.002000000   700  Q FWS [x]\n  8,0    0        5     0.002001000    70  D  FN [k]\n  \
        8,0    0        6     0.003000000     0  C  FN 0 [0]\n";
    fs::write(folder.join("b.txt"), text).unwrap();
    for event in ["D", "Q"] {
        done(folder, &["trace", "convert", "b.txt", "--event", event, "-o", "b.parquet"]);
        let records = read_log(&folder.join("b.parquet")).unwrap();
        assert_eq!(records.iter().map(|record| record.op).collect::<Vec<_>>(), [Op::Flush], "{event}");
    }
    fs::write(folder.join("dm.txt"), "253,0    3        1     0.000000000  4977  Q   W 0 + 8 [x]\n").unwrap();
    assert!(refused(folder, &["trace", "stats", "dm.txt"]).contains("--event Q"));
    done(folder, &["trace", "stats", "dm.txt", "--event", "Q"]);
}

/// Requests of every kind, as a trace in this format.
fn converted(folder: &Path, format: &str, output: &str) -> u64 {
    let mut log = "fio version 3 iolog\n0 /x add\n0 /x open\n".to_owned();
    for index in 0..200_u64 {
        let (at, offset) = (index * 50, index * 37 % 200 * 4_096);
        let line = match index % 10 {
            0 => format!("{at} /x sync 0 0\n"),
            1..=4 => format!("{at} /x write {offset} 4096\n"),
            _ => format!("{at} /x read {offset} 4096\n"),
        };
        log.push_str(&line);
    }
    fs::write(folder.join("all.iolog"), log + "20000 /x close\n").unwrap();
    done(folder, &["trace", "convert", "all.iolog", "--to", format, "-o", output]);
    200
}

fn is_here(tool: &str) -> bool {
    let is_here = Command::new(tool).arg("--version").output().is_ok();
    if !is_here {
        println!("SKIPPED: no {tool} here (Debian: apt-get install blktrace fio)");
    }
    is_here
}

#[test]
fn fio_replays_every_request_of_our_traces() {
    if !is_here("fio") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::File::create(folder.join("disk")).unwrap().set_len(16 << 20).unwrap();
    for (format, output) in [("blktrace", "t.blktrace.0"), ("fio-v2", "t2.iolog"), ("fio-v3", "t3.iolog")] {
        let requests = converted(folder, format, output);
        let mut fio = Command::new("fio");
        fio.args([
            "--name=r",
            "--ioengine=psync",
            "--replay_no_stall=1",
            "--output-format=json",
            "--replay_redirect=disk",
        ]);
        let ran = fio.arg(format!("--read_iolog={output}")).current_dir(folder).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        let json = &text[text.find('{').unwrap_or_else(|| panic!("{format}: {text}"))..];
        let result: serde_json::Value = serde_json::from_str(json).unwrap();
        let job = &result["jobs"][0];
        let of = |kind: &str| job[kind]["total_ios"].as_u64().unwrap_or(0);
        assert_eq!((of("read"), of("write")), (100, 80), "{format}: {requests} requests");
        assert_eq!(job["error"], 0, "{format}");
    }
}

#[test]
fn blkparse_and_btt_find_every_event_of_ours() {
    if !is_here("blkparse") || !is_here("btt") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(
        folder.join("x.iolog"),
        "fio version 3 iolog\n0 /x add\n0 /x open\n0 /x read 0 4096\n1000 /x write 8192 4096\n2000 /x close\n",
    )
    .unwrap();
    done(folder, &["simulate", "-d", "first-disk", "--trace", "x.iolog", "-o", "kept"]);
    done(folder, &["simulate", "-d", "first-disk", "--workload", "random-mixed", "--requests", "200", "-o", "run"]);
    done(folder, &["trace", "convert", "run", "--to", "blktrace", "-o", "run.blktrace.0"]);
    let output =
        Command::new("blkparse").args(["-q", "-i", "run", "-d", "run.bin"]).current_dir(folder).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for action in ["Q", "G", "I", "D", "C"] {
        let count = text.lines().filter(|line| line.split_whitespace().nth(5) == Some(action)).count();
        assert_eq!(count, 200, "{action}");
    }
    let btt = Command::new("btt").args(["-i", "run.bin"]).current_dir(folder).output().unwrap();
    let tables = String::from_utf8_lossy(&btt.stdout).into_owned();
    for row in ["Q2Q", "Q2G", "G2I", "I2D", "D2C", "Q2C"] {
        let line = tables.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("no {row}: {tables}"));
        let count: u64 = line.split_whitespace().last().unwrap().parse().unwrap();
        assert!(count >= 199, "{line}");
    }
    // The text of ours is blkparse's output for our events.
    done(folder, &["trace", "convert", "run", "--to", "blkparse", "-o", "run.txt"]);
    let ours = fs::read_to_string(folder.join("run.txt")).unwrap();
    assert_eq!(ours.lines().count(), 1_000);
}
