//! Block traces as a user has them: converted, and replayed on a model.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use chronodisk_report::{LogReader, read_log};
use chronodisk_sim::{Nanos, RequestRecord};

fn chronodisk(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
    command.env("NO_COLOR", "1").env("XDG_STATE_HOME", folder).current_dir(folder);
    command.args(arguments).output().unwrap()
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

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../chronodisk-trace/tests/traces").join(name)
}

fn log(folder: &Path, name: &str) -> Vec<RequestRecord> {
    read_log(&folder.join(name).join("requests.parquet")).unwrap()
}

/// A replay at the instants of a log, and one with its pauses, give every due time again, whatever the load was.
#[test]
fn a_replayed_log_gives_every_due_time_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let loads: [&[&str]; 4] = [
        &["--workload", "random-small", "--think-max", "30ms"],
        &["--workload", "seq-write", "--block-size", "128KiB"],
        &["--workload", "random-mixed", "--depth", "8"],
        &["--workload", "mixed-uniform", "--think-max", "1ms"],
    ];
    for (index, load) in loads.into_iter().enumerate() {
        for device in ["cheetah-9lp", "wd-zn540"] {
            let name = |what: &str| format!("{what}-{device}-{index}");
            let common = ["simulate", "--device", device, "--capacity", "4GiB"];
            done(folder, &[&common[..], load, &["--requests", "500", "-o", &name("made")]].concat());
            done(folder, &[&common[..], &["--trace", &name("made"), "-o", &name("open")]].concat());
            assert_eq!(log(folder, &name("made")), log(folder, &name("open")), "{device} {load:?}");
            if !load.contains(&"--depth") {
                let closed = ["--trace", &name("made"), "--arrivals", "closed", "-o", &name("closed")];
                done(folder, &[&common[..], &closed].concat());
                assert_eq!(log(folder, &name("made")), log(folder, &name("closed")), "{device} {load:?}");
            }
        }
    }
}

#[test]
fn a_closed_replay_on_a_slower_device_keeps_the_pauses() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let made = ["--workload", "random-small", "--think-max", "5ms", "--requests", "200", "-o", "made"];
    done(folder, &[&["simulate", "--device", "constant-100us"][..], &made].concat());
    let closed = ["--trace", "made", "--arrivals", "closed", "-o", "slow"];
    done(folder, &[&["simulate", "--device", "constant-10ms"][..], &closed].concat());
    let (made, slow) = (log(folder, "made"), log(folder, "slow"));
    let pauses = |records: &[RequestRecord]| -> Vec<Nanos> {
        records.windows(2).map(|pair| pair[1].arrival - pair[0].completed).collect()
    };
    assert_eq!(pauses(&made), pauses(&slow));
    assert!(slow.iter().all(|record| record.service_time() == Nanos::from_millis(10)));

    // At twice the speed by time stamps, each arrival comes at half its time.
    done(folder, &["simulate", "--device", "constant-100us", "--trace", "made", "--speed", "2x", "-o", "fast"]);
    for (made, fast) in made.iter().zip(&log(folder, "fast")) {
        assert_eq!(fast.arrival.as_nanos(), made.arrival.as_nanos() / 2);
    }
    done(folder, &["simulate", "--device", "constant-100us", "--trace", "made", "--arrivals", "depth=4", "-o", "deep"]);
    let deep = log(folder, "deep");
    assert_eq!(deep.iter().filter(|record| record.arrival == Nanos::ZERO).count(), 4);
}

#[test]
fn a_trace_goes_through_parquet_and_back_byte_by_byte() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let original = std::fs::read(sample("msr.csv")).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&original).unwrap();
    std::fs::write(folder.join("trace.csv.gz"), gzip.finish().unwrap()).unwrap();
    std::fs::write(folder.join("trace.csv.zst"), zstd::encode_all(&original[..], 3).unwrap()).unwrap();
    std::fs::write(folder.join("trace.csv"), &original).unwrap();
    for file in ["trace.csv", "trace.csv.gz", "trace.csv.zst"] {
        done(folder, &["trace", "convert", file, "-o", "trace.parquet"]);
        done(folder, &["trace", "convert", "trace.parquet", "--to", "msr", "-o", "again.csv"]);
        assert_eq!(std::fs::read(folder.join("again.csv")).unwrap(), original, "{file}");
    }
    let reader = LogReader::open(&folder.join("trace.parquet")).unwrap();
    assert_eq!(reader.info().volumes, ["hm_0", "hm_1"]);
    assert_eq!(reader.info().resolution_ns, Some(100));

    let told = done(folder, &["trace", "convert", "trace.parquet", "--volume", "hm_1", "--to", "disksim", "-o", "one"]);
    assert!(told.starts_with("1 requests"), "{told}");
    done(
        folder,
        &["simulate", "--device", "null", "--capacity", "20GB", "--trace", "trace.csv.gz", "--volume", "hm_1"],
    );
}

#[test]
fn what_can_t_be_replayed_is_refused_with_what_to_type() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let msr = sample("msr.csv").display().to_string();
    let alibaba = sample("alibaba.csv").display().to_string();
    std::fs::write(folder.join("bad.csv"), "0,R,0,512,5\n0,R,x,512,6\n").unwrap();
    let disk = ["simulate", "--device", "first-disk", "--trace"];
    for (arguments, expected) in [
        (vec![msr.as_str()], ["several volumes, hm_0 and hm_1 among them", "--volume hm_0"]),
        (vec![&msr, "--volume", "hm_9"], ["no request of volume hm_9", "its volumes are hm_0, hm_1"]),
        (vec![&alibaba, "--volume", "0"], ["but the device has", "--beyond wrap"]),
        (
            vec![&alibaba, "--volume", "0", "--beyond", "wrap", "--arrivals", "closed"],
            ["the trace has no completions", "--arrivals open"],
        ),
        (vec!["bad.csv"], ["bad.csv: line 2: field 3, offset: \"x\"", "expected a whole number"]),
        (vec!["absent"], ["no run 'absent'", ""]),
        (vec![&msr, "--arrivals", "depth=0"], ["expected open, closed or depth=N", ""]),
    ] {
        let told = refused(folder, &[&disk[..], &arguments, &["-o", "out"]].concat());
        assert!(expected.iter().all(|part| told.contains(part)), "{arguments:?}: {told}");
        assert!(!folder.join("out").exists(), "{arguments:?}");
    }
    let told = refused(folder, &["simulate", "--device", "null", "--workload", "random-small", "--speed", "2x"]);
    assert!(told.contains("--speed needs --trace"), "{told}");
    let told = refused(folder, &["trace", "convert", "bad.csv", "-o", "bad.parquet"]);
    assert!(told.contains("line 2") && !folder.join("bad.parquet").exists(), "{told}");
    done(folder, &["trace", "convert", "bad.csv", "-o", "good.parquet", "--accept-bad", "1"]);
    for (arguments, expected) in [
        (["bad.csv", "-o", "x.txt"], "name it with --to"),
        (["bad.csv", "--to=fiu", "-ox"], "are only read"),
        (["bad.csv", "--to=what", "-ox"], "unknown trace format 'what'"),
    ] {
        let told = refused(folder, &[&["trace", "convert"][..], &arguments].concat());
        assert!(told.contains(expected), "{told}");
    }
}

/// The kernel's own tool prints our events with equal values.
#[test]
fn blkparse_prints_our_events() {
    if Command::new("blkparse").arg("-V").output().is_err() {
        println!("SKIPPED: no blkparse here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let load = ["--workload", "random-mixed", "--requests", "50", "--think-max", "1ms", "-o", "made"];
    done(folder, &[&["simulate", "--device", "constant-100us"][..], &load].concat());
    done(folder, &["trace", "convert", "made", "--to", "blktrace", "-o", "made.blktrace.0"]);
    let output = Command::new("blkparse").args(["-q", "-i", "made"]).current_dir(folder).output().unwrap();
    std::fs::write(folder.join("printed"), &output.stdout).unwrap();
    done(folder, &["trace", "convert", "printed", "--from", "blkparse", "-o", "printed.parquet"]);
    done(folder, &["trace", "convert", "made.blktrace.0", "-o", "binary.parquet"]);
    let made = log(folder, "made");
    // blkparse counts from the first event.
    for (name, begin) in [("printed.parquet", made[0].arrival), ("binary.parquet", Nanos::ZERO)] {
        let read = read_log(&folder.join(name)).unwrap();
        assert_eq!(read.len(), made.len(), "{name}");
        for (read, made) in read.iter().zip(&made) {
            assert_eq!((read.op, read.lba, read.sectors), (made.op, made.lba, made.sectors), "{name}");
            assert_eq!((read.arrival + begin, read.completed + begin), (made.arrival, made.completed), "{name}");
        }
    }
}
