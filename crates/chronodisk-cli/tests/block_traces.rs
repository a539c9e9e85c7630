//! Block traces as a user has them: converted, and replayed on a model.

#[path = "common/command.rs"]
mod command;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pretty_assertions::assert_eq;

use chronodisk_report::{LogReader, read_log};
use chronodisk_sim::{Nanos, Op, RequestRecord};

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

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../chronodisk-trace/tests/traces").join(name)
}

fn log(folder: &Path, name: &str) -> Vec<RequestRecord> {
    read_log(&folder.join(name).join("requests.parquet")).unwrap()
}

/// A replay at the instants of a log, and one with its pauses, reproduce every due time, for any load.
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

    // At twice the speed, each time stamp is halved.
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
    assert_eq!(reader.info().volumes, ["hm_0", "mds_1"]);
    assert_eq!(reader.info().resolution_ns, Some(100));

    let told = done(folder, &["trace", "convert", "trace.parquet", "--volume", "hm_0", "--to", "disksim", "-o", "one"]);
    assert!(told.starts_with("1 requests"), "{told}");
    done(
        folder,
        &["simulate", "--device", "null", "--capacity", "20GB", "--trace", "trace.csv.gz", "--volume", "mds_1"],
    );
}

#[test]
fn what_can_t_be_replayed_is_refused_with_what_to_type() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let msr = sample("msr.csv").display().to_string();
    let alibaba = sample("alibaba.csv").display().to_string();
    std::fs::write(folder.join("bad.csv"), "0,R,0,512,5\n0,R,x,512,6\n").unwrap();
    std::fs::write(folder.join("empty"), "").unwrap();
    let disk = ["simulate", "--device", "first-disk", "--trace"];
    for (arguments, expected) in [
        (vec![msr.as_str()], ["several volumes, hm_0 and mds_1 among them", "--volume hm_0"]),
        (vec![&msr, "--volume", "hm_9"], ["no request of volume hm_9", "its volumes are hm_0, mds_1"]),
        (
            vec![&alibaba, "--volume", "0"],
            ["alibaba.csv: request 1: 8 sectors at sector 247468088; expected", "--beyond wrap"],
        ),
        (
            vec![&alibaba, "--volume", "0", "--beyond", "wrap", "--arrivals", "closed"],
            ["the trace has no completions", "--arrivals open"],
        ),
        (vec!["bad.csv"], ["bad.csv:2: field 3, offset: \"x\"", "expected a whole number"]),
        (vec!["absent"], ["no run 'absent'", ""]),
        (vec![&msr, "--arrivals", "depth=0"], ["expected open, closed or depth=N", "poisson"]),
        (vec![&msr, "--arrivals", "poisson"], ["need --workload", "a trace has its own arrivals: open, closed"]),
        (vec![&msr, "--rate", "5/s"], ["--rate needs --workload", "--speed changes them"]),
        (vec!["empty"], ["empty: the file is empty; expected a trace", ""]),
        (vec![""], ["no run ''", ""]),
    ] {
        let told = refused(folder, &[&disk[..], &arguments, &["-o", "out"]].concat());
        assert!(expected.iter().all(|part| told.contains(part)), "{arguments:?}: {told}");
        assert!(!folder.join("out").exists(), "{arguments:?}");
    }
    let told = refused(folder, &["simulate", "--device", "null", "--workload", "random-small", "--speed", "2x"]);
    assert!(told.contains("--speed needs --trace"), "{told}");
    let told = refused(folder, &["trace", "convert", "bad.csv", "-o", "bad.parquet"]);
    assert!(told.contains("bad.csv:2: ") && !folder.join("bad.parquet").exists(), "{told}");
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

/// fio issues every request of logs of both versions, with and without named volumes; fio's own logs are readable.
#[test]
fn fio_issues_every_request_and_is_read() {
    if Command::new("fio").arg("--version").output().is_err() {
        println!("SKIPPED: no fio here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let made = ["--workload", "random-mixed", "--requests", "300", "--depth", "4", "-o", "made"];
    done(folder, &[&["simulate", "--device", "constant-100us", "--capacity", "16MiB"][..], &made].concat());
    std::fs::File::create(folder.join("file")).unwrap().set_len(16 << 20).unwrap();
    let fio = |options: &[&str]| -> serde_json::Value {
        let common = ["--name=r", "--ioengine=psync", "--output-format=json"];
        let output = Command::new("fio").args(common).args(options).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap()
    };
    let count = |op: Op| log(folder, "made").iter().filter(|record| record.op == op).count() as u64;
    // A file of MSR names its volumes.
    done(folder, &["trace", "convert", "made", "--to", "msr", "-o", "named.csv"]);
    for trace in ["made", "named.csv"] {
        for version in ["fio-v2", "fio-v3"] {
            done(folder, &["trace", "convert", trace, "--to", version, "-o", "log"]);
            let issued = fio(&["--read_iolog=log", "--replay_redirect=file"]);
            let ios = |direction: &str| issued["jobs"][0][direction]["total_ios"].as_u64().unwrap();
            assert_eq!((ios("read"), ios("write")), (count(Op::Read), count(Op::Write)), "{trace} {version}");
            done(folder, &["trace", "compare", "made", "log", "--min-match", "1"]);
        }
    }
    let own = ["--write_iolog=own", "--rw=randrw", "--size=1M", "--bs=4k", "--filename=file"];
    let issued = fio(&own);
    done(folder, &["trace", "convert", "own", "-o", "own.parquet"]);
    let records = read_log(&folder.join("own.parquet")).unwrap();
    for (direction, op) in [("read", Op::Read), ("write", Op::Write)] {
        let seen = records.iter().filter(|record| record.op == op && record.sectors == 8).count() as u64;
        assert_eq!(seen, issued["jobs"][0][direction]["total_ios"].as_u64().unwrap(), "{direction}");
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

#[test]
fn traces_are_cut_scaled_and_merged() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let load = ["--workload", "random-mixed", "--requests", "300", "--think-max", "2ms", "-o", "made"];
    done(folder, &[&["simulate", "--device", "constant-1ms"][..], &load].concat());
    let made = log(folder, "made");
    let parquet = |name: &str| read_log(&folder.join(name)).unwrap();

    let cut = ["--from-time", "100ms", "--to-time", "200ms", "-o", "cut.parquet"];
    done(folder, &[&["trace", "cut", "made"][..], &cut].concat());
    let since = |record: &RequestRecord| (record.arrival - made[0].arrival).as_nanos() / 1_000_000;
    let expected: Vec<_> = made.iter().filter(|record| (100..200).contains(&since(record))).copied().collect();
    assert!(expected.len() > 20 && parquet("cut.parquet") == expected);

    done(folder, &["trace", "scale", "made", "--time", "3", "-o", "slow.parquet"]);
    for (slow, made_one) in parquet("slow.parquet").iter().zip(&made) {
        let since = made_one.arrival - made[0].arrival;
        assert_eq!(slow.arrival, made[0].arrival + since + since + since);
        assert_eq!(slow.completed - slow.arrival, made_one.completed - made_one.arrival);
    }

    done(folder, &["trace", "merge", "made", "slow.parquet", "-o", "both.parquet"]);
    let both = parquet("both.parquet");
    assert_eq!(both.len(), 600);
    assert!(both.windows(2).all(|pair| pair[0].arrival <= pair[1].arrival));
    let info = LogReader::open(&folder.join("both.parquet")).unwrap().info().clone();
    assert_eq!(info.volumes, ["1/0", "2/0"]);
    done(folder, &["trace", "convert", "both.parquet", "--volume", "2/0", "-o", "again.parquet"]);
    let again = parquet("again.parquet");
    assert!(again.iter().map(|record| record.arrival).eq(parquet("slow.parquet").iter().map(|record| record.arrival)));

    let msr = sample("msr.csv").display().to_string();
    let told = refused(folder, &["trace", "merge", "made", &msr, "-o", "wrong.parquet"]);
    assert!(told.contains("made has no calendar") && told.contains("--align first"), "{told}");
    assert!(!folder.join("wrong.parquet").exists());
    done(folder, &["trace", "merge", "made", &msr, "--align", "first", "-o", "aligned.parquet"]);
    assert_eq!(parquet("aligned.parquet")[0].arrival, Nanos::ZERO);
    let told = refused(folder, &["trace", "cut", "made", "--from-time", "2s", "--to-time", "1s", "-o", "x.parquet"]);
    assert!(told.contains("is not before --to-time"), "{told}");
    for to in ["parquet", "msr"] {
        let later = ["trace", "cut", "made", "--from-time", "900s", "-o", "x.parquet", "--to", to];
        let told = refused(folder, &later);
        assert!(told.contains("no request arrives in this time; the last one arrives after "), "{told}");
        assert!(!folder.join("x.parquet").exists(), "{to}");
    }
}

#[test]
fn traces_are_described_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let load = ["--workload", "random-small", "--requests", "2000", "-o", "made"];
    done(folder, &[&["simulate", "--device", "cheetah-9lp"][..], &load].concat());
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = chronodisk(folder, arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let stats = json(&["trace", "stats", "made", "--json", "--block", "500ms", "--plot", "made.svg"]);
    assert_eq!(stats["schema"], "chronodisk.trace-statistics/1");
    assert_eq!(stats["requests"], 2000);
    // A closed loop at depth 1 is never idle.
    assert_eq!(stats["idle_share"], 0.0);
    let simulated: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("made/simulation.json")).unwrap()).unwrap();
    assert_eq!(stats["response_time_us"], simulated["latency_us"]);
    let interval = &stats["intervals"];
    assert!(interval["elements"].as_u64().unwrap() >= 20, "{interval}");
    let mean = stats["response_time_us"]["mean"].as_f64().unwrap();
    let ends = &interval["figures"][0]["bca_95"];
    assert!(ends[0].as_f64().unwrap() < mean && mean < ends[1].as_f64().unwrap(), "{interval}");
    assert!(std::fs::read_to_string(folder.join("made.svg")).unwrap().contains("LRU cache of 4 KiB blocks"));
    let told = refused(folder, &["trace", "stats", &sample("spc.csv").display().to_string(), "--block", "requests"]);
    assert!(told.contains("the trace has no completions"), "{told}");

    let again = ["simulate", "--device", "constant-1ms", "--capacity", "10GB", "--trace", "made", "-o", "again"];
    done(folder, &again);
    let compared = json(&["trace", "compare", "made", "again", "--json", "--times", "--min-match", "1"]);
    assert_eq!(compared["requests"]["both"], 2000);
    assert_eq!(compared["times"]["arrival_difference_us"]["max"], 0.0);
    assert_eq!(compared["times"]["response_b_us"]["max"], 1000.0);
    done(folder, &["trace", "cut", "made", "--to-time", "1s", "-o", "part.parquet"]);
    let output = chronodisk(folder, &["trace", "compare", "made", "part.parquet", "--min-match", "0.9"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("expected at least 0.9"));
}

/// An open loop's arrivals follow its process, regardless of the device.
#[test]
fn generated_open_loops_have_their_rate() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let common = ["--workload", "random-read", "--requests", "3000", "--addresses", "zipf=1.1"];
    let open = ["--arrivals", "poisson", "--rate", "2000/s"];
    for device in ["constant-1ms", "constant-10ms"] {
        done(folder, &[&["simulate", "--device", device][..], &common, &open, &["-o", device]].concat());
    }
    let [fast, slow] = ["constant-1ms", "constant-10ms"].map(|name| log(folder, name));
    assert!(fast.iter().map(|record| record.arrival).eq(slow.iter().map(|record| record.arrival)));
    let seconds = fast[2999].arrival.as_secs_f64();
    assert!((1.3..1.7).contains(&seconds), "{seconds}");
    let mut places: Vec<u64> = fast.iter().map(|record| record.lba.0).collect();
    places.sort_unstable();
    let most = places.chunk_by(|one, other| one == other).map(<[u64]>::len).max().unwrap();
    assert!(most > 200, "the most frequent of all addresses came {most} times");
    let bursts = ["--arrivals", "on-off", "--rate", "5000/s", "--on", "10ms", "--off", "90ms", "-o", "bursts"];
    done(folder, &[&["simulate", "--device", "null"][..], &common, &bursts].concat());
    let seconds = log(folder, "bursts")[2999].arrival.as_secs_f64();
    assert!(seconds > 3.0, "{seconds}");

    let simulate = ["simulate", "--device", "null", "--workload", "random-read"];
    for (options, expected) in [
        (&["--arrivals", "poisson"][..], "--rate 5000/s"),
        (&["--rate", "5/s"], "--rate needs --arrivals poisson"),
        (&["--arrivals", "on-off", "--rate", "5/s"], "--on 100ms --off 900ms"),
        (&["--arrivals", "regular", "--rate", "5/s", "--on", "1s"], "--on and --off need --arrivals on-off"),
        (&["--arrivals", "regular", "--rate", "5/s", "--depth", "2"], "--depth is of closed loops"),
        (&["--arrivals", "poisson", "--rate", "5"], "such as 5000/s"),
        (&["--arrivals", "open"], "needs --trace"),
        (&["--addresses", "zipf"], "zipf=EXPONENT"),
    ] {
        let told = refused(folder, &[&simulate[..], options].concat());
        assert!(told.contains(expected), "{options:?}: {told}");
    }
    let told = refused(folder, &["simulate", "--device", "null", "--workload", "seq-read", "--addresses", "zipf=1"]);
    assert!(told.contains("is sequential"), "{told}");
    let told = refused(
        folder,
        &["simulate", "--device", "null", "--trace", "bursts", "--arrivals", "poisson", "--rate", "5/s"],
    );
    assert!(told.contains("need --workload"), "{told}");
}

const JOBS: &str = "; as many requests as fio makes of it
[global]
direct=1
filename=file
size=1m
[random]
rw=randread
io_size=1536k
[fill]
stonewall
rw=write
bs=128k
numjobs=2
offset_increment=1m
[mixed]
stonewall
rw=rw
bs=8k
rwmixread=25
io_size=2m
[counted]
stonewall
rw=randrw
number_ios=100
thinktime=10
thinktime_blocks=5
[paced]
stonewall
rw=randread
rate_iops=2000
norandommap
number_ios=200
[zipf]
stonewall
rw=randwrite
random_distribution=zipf:1.2
";

/// A simulation of a job file issues as many requests of each job as fio itself, at the pace that the file sets.
#[test]
fn a_job_file_of_fio_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("jobs.fio"), JOBS).unwrap();
    done(folder, &["simulate", "--device", "constant-100us", "--fio-job", "jobs.fio", "-o", "simulated"]);
    let records = log(folder, "simulated");
    let of_job = |issuers: &[u32]| -> Vec<&RequestRecord> {
        records.iter().filter(|record| issuers.contains(&record.issuer)).collect()
    };
    // The threads of `fill` work at the same time, the other jobs one after the other.
    let jobs =
        [("random", &[1][..]), ("fill", &[2, 3]), ("mixed", &[4]), ("counted", &[5]), ("paced", &[6]), ("zipf", &[7])];
    for pair in jobs.windows(2) {
        let end = of_job(pair[0].1).iter().map(|record| record.completed).max().unwrap();
        assert!(of_job(pair[1].1).iter().all(|record| record.arrival >= end), "{pair:?}");
    }
    let fill = of_job(&[2, 3]);
    assert_eq!(fill[0].arrival, fill[1].arrival);
    assert_eq!((fill[0].lba.0, fill[1].lba.0, fill[0].sectors), (0, 2_048, 256));
    let counted = of_job(&[5]);
    let pauses: Vec<u64> = counted.windows(2).map(|pair| (pair[1].arrival - pair[0].completed).as_nanos()).collect();
    assert!((1..100).all(|place| pauses[place - 1] == if place % 5 == 0 { 10_000 } else { 0 }), "{pauses:?}");
    let paced = of_job(&[6]);
    assert_eq!(paced[199].arrival - paced[0].arrival, Nanos::from_nanos(199 * 500_000));

    done(folder, &["simulate", "--device", "constant-100us", "--fio-job", "jobs.fio", "-o", "again"]);
    assert_eq!(log(folder, "again"), records, "equal options give equal requests");

    std::fs::File::create(folder.join("file")).unwrap().set_len(16 << 20).unwrap();
    let fio = ["--output-format=json", "--max-jobs=8", "jobs.fio"];
    let Ok(output) = Command::new("fio").args(fio).current_dir(folder).output() else {
        println!("SKIPPED: no fio here");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && told.contains("O_DIRECT") {
        println!("SKIPPED: the file system of temporary files has no direct I/O");
        return;
    }
    let issued: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap_or(0)..]).expect(&told);
    for (name, issuers) in jobs {
        let own = of_job(issuers);
        let by_fio: Vec<&serde_json::Value> =
            issued["jobs"].as_array().unwrap().iter().filter(|job| job["jobname"] == name).collect();
        assert_eq!(by_fio.len(), issuers.len());
        let ios =
            |direction: &str| -> u64 { by_fio.iter().map(|job| job[direction]["total_ios"].as_u64().unwrap()).sum() };
        assert_eq!(ios("read") + ios("write"), own.len() as u64, "{name}");
        let reads = own.iter().filter(|record| record.op == Op::Read).count() as f64;
        let share = |reads: f64, all: u64| reads / all as f64;
        let apart = share(reads, own.len() as u64) - share(ios("read") as f64, ios("read") + ios("write"));
        // They draw the operations of 100 and of 256 requests.
        assert!(apart.abs() < 0.2, "{name}: {apart}");
    }
}

#[test]
fn a_job_file_that_can_t_be_followed_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let simulate = ["simulate", "--device", "constant-100us", "--fio-job", "jobs.fio", "-o", "simulated"];
    let told = refused(folder, &simulate);
    assert!(told.contains("jobs.fio: can't read the job file"), "{told}");
    for (text, expected) in [
        ("[a]\nrw=read\n", "jobs.fio:1: direct: missing, so that I/O is buffered; expected direct=1"),
        ("[a]\ndirect=1\nrw=write\nverify=md5\n", "jobs.fio:4: verify: md5; expected no verification"),
        ("[a]\ndirect=1\nzonemode=zbd\n", "jobs.fio:3: zonemode: zbd; expected none or strided"),
        ("[a]\ndirect=1\n[b]\ndirect=1\n", "jobs.fio:1: [a]: size is missing or a share"),
        ("[a]\ndirect=1\nsize=1t\n", "jobs.fio:1: [a]: offset and size reach to byte 1099511627776"),
    ] {
        std::fs::write(folder.join("jobs.fio"), text).unwrap();
        let told = refused(folder, &simulate).replace("\n  ", " ");
        assert!(told.contains(expected), "{text}: {told}");
        assert!(!folder.join("simulated").exists());
    }
    for (option, expected) in [
        (&["--depth", "4"][..], "cannot be used with"),
        (&["--arrivals", "closed"], "--arrivals can't be used with --fio-job"),
        (&["--volume", "x"], "--volume can't be used with --fio-job"),
    ] {
        let told = refused(folder, &[&simulate[..], option].concat());
        assert!(told.contains(expected), "{option:?}: {told}");
    }
}

/// Jobs with the options of fio's own examples, and how many reads, writes, discards and flushes they make of a device
/// with a volatile cache.
const LIKE_EXAMPLES: [(&str, [usize; 4]); 13] = [
    (
        "[file-server]\nbssplit=512/10:1k/5:2k/5:4k/60:8k/2:16k/4:32k/4:64k/10\nrw=randrw\nrwmixread=100\nsize=4g\n\
      ioengine=libaio\niodepth=64\nnumber_ios=500\n",
        [500, 0, 0, 0],
    ),
    (
        "[global]\nioengine=libaio\nrw=randread\nbs=128k\nsize=8m\ndirectory=/data1\n[a]\niodepth=4\n[b]\niodepth=32\n",
        [128, 0, 0, 0],
    ),
    ("[backwards]\nrw=read:-8k\nfilename=file\nsize=1m\n", [256, 0, 0, 0]),
    (
        "[zones]\nbs=64k\nioengine=libaio\niodepth=2\nzonemode=strided\nzonesize=1m\nzoneskip=8m\nsize=32m\n\
      filename=/dev/sdb\nwrite_bw_log\nlog_offset=1\n",
        [512, 0, 0, 0],
    ),
    ("[fixed]\nsize=1m\nioengine=libaio\niodepth=32\nio_submit_mode=offload\nrate_iops=1000\n", [256, 0, 0, 0]),
    (
        "[enterprise]\nioengine=libaio\nrw=randwrite\nnorandommap\nrandrepeat=0\niodepth=256\nnumjobs=4\n\
      bssplit=512/4:1024/1:4k/67:8k/10:64k/18\nblockalign=4k\nrandom_distribution=zoned:50/5:30/15:20/80\n\
      filename=/dev/nvme0n1\ngroup_reporting\nnumber_ios=100\n",
        [0, 400, 0, 0],
    ),
    (
        "[global]\nsize=1m\nbsrange=4k-4k\ntimeout=60\nnumjobs=4\nfilename=f\n[w]\nrw=write\n[r]\nstonewall\n\
      rw=randread\n",
        [1024, 1024, 0, 0],
    ),
    (
        "[global]\nfilename=/tmp/data\nfilesize=1m\nthreads=1\n[writers]\nrw=write\nbs=128k\nnumjobs=4\nruntime=10\n\
      [readers]\nnew_group\nwait_for=writers\nrw=randread\n",
        [256, 32, 0, 0],
    ),
    ("[trims]\nrw=randtrim\nsize=1m\nioengine=io_uring\niodepth=8\n", [0, 0, 256, 0]),
    ("[trimmed-first]\nrw=trimwrite\nbs=64k\nsize=1m\n", [0, 8, 8, 0]),
    ("[database]\nrw=write\nbs=8k\nsize=256k\nfdatasync=1\nthinktime=1ms\nthinktime_blocks=4\n", [0, 32, 0, 31]),
    (
        "[passing]\nioengine=io_uring_cmd\ncmd_type=nvme\ndirect=0\nsize=1m\niodepth=32\nsqthread_poll=1\n\
      registerfiles=1\nrw=randread\n",
        [256, 0, 0, 0],
    ),
    ("[ramped]\nrw=randread\nramp_time=5ms\nruntime=10ms\ntime_based\nsize=1g\n", [150, 0, 0, 0]),
];

#[test]
fn jobs_with_the_options_of_fios_examples_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (index, (jobs, expected)) in LIKE_EXAMPLES.iter().enumerate() {
        std::fs::write(folder.join("jobs.fio"), format!("[global]\ndirect=1\n{jobs}")).unwrap();
        let name = format!("run{index}");
        // The kernel flushes devices with a volatile cache alone.
        let device = if jobs.contains("fdatasync") { "cheetah-9lp" } else { "constant-100us" };
        done(folder, &["simulate", "--device", device, "--fio-job", "jobs.fio", "-o", &name]);
        let records = log(folder, &name);
        let ops = [Op::Read, Op::Write, Op::Discard, Op::Flush];
        let found = ops.map(|op| records.iter().filter(|record| record.op == op).count());
        assert_eq!(found, *expected, "{jobs}");
        if jobs.contains("ramp_time") {
            let result: serde_json::Value =
                serde_json::from_str(&std::fs::read_to_string(folder.join(&name).join("simulation.json")).unwrap())
                    .unwrap();
            assert_eq!(result["requests"], 100, "the ramp's requests are in the log alone");
        }
    }
    // Includes are found beside the job file, and variables in the environment.
    std::fs::create_dir(folder.join("files")).unwrap();
    std::fs::write(folder.join("files/common.fio"), "direct=1\nbs=${FIO_BS}\n").unwrap();
    std::fs::write(folder.join("files/jobs.fio"), "[global]\ninclude common.fio\n[a]\nsize=64k\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
    command
        .args(["simulate", "--device", "constant-100us", "--fio-job", "files/jobs.fio", "--json"])
        .current_dir(folder);
    let output = command.env("FIO_BS", "16k").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["requests"], 4);
}

/// A guest's requests of all kinds, at any depth, on the model again: each due time is that of the run.
#[test]
fn a_guests_run_with_discards_and_flushes_is_replayed_to_the_nanosecond() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(
        folder.join("load.sh"),
        "set -e\n\
         fio --name=deep --directory=/mnt --size=8M --rw=randrw --bs=4k --iodepth=16 --ioengine=libaio --direct=1 \\\n\
         --fsync=40 --output=/dev/null\n\
         dd if=/dev/zero of=/mnt/buffered bs=64k count=64 conv=fsync status=none\n\
         rm /mnt/deep.* /mnt/buffered; sync; fstrim /mnt 2>/dev/null || true\n",
    )
    .unwrap();
    for (device, discards) in [("cheetah-9lp", false), ("samsung-970-pro", true)] {
        let common = ["--device", device, "--capacity", "1GB"];
        let output = chronodisk(folder, &[&["run", "-o", device][..], &common, &["--", "sh", "load.sh"]].concat());
        let told = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(3) {
            println!("SKIPPED: no guest here: {told}");
            return;
        }
        assert!(output.status.success(), "{told}");
        let run = read_log(&folder.join(device).join("requests-0.parquet")).unwrap();
        let of = |op: Op| run.iter().filter(|record| record.op == op).count();
        assert!(of(Op::Read) > 100 && of(Op::Write) > 100 && of(Op::Flush) > 10, "{device}");
        assert_eq!(of(Op::Discard) > 0, discards, "{device}");
        let deepest = run
            .iter()
            .map(|record| run.iter().filter(|other| (other.arrival..other.due).contains(&record.arrival)).count());
        assert!(deepest.max().unwrap() >= 8, "{device}");

        done(folder, &[&["simulate", "--trace", device, "-o", "open"][..], &common].concat());
        let open = log(folder, "open");
        assert_eq!(open.len(), run.len(), "{device}");
        for (open, run) in open.iter().zip(&run) {
            let plain = |one: &RequestRecord| (one.op, one.lba, one.sectors, one.fua, one.arrival, one.due, one.status);
            assert_eq!(plain(open), plain(run), "{device}, request {}", run.order);
        }
        std::fs::remove_dir_all(folder.join("open")).unwrap();
    }
}
