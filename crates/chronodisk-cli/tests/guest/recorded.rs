//! Traces of programs on this host: recorded, replayed in a guest, drawn anew, and replayed on a snapshot.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use chronodisk_report::{read_calls, write_calls};
use chronodisk_sim::Op;
use chronodisk_trace::calls::{compose, groups};
use serde_json::Value;

use super::call_traces::log_of;
use super::exact::exact;
use super::support::{Chronodisk, text};

/// A device whose guest makes its file system quickly.
const DEVICE: [&str; 4] = ["--device", "wd-zn540", "--capacity", "256MiB"];

fn with_tools(command: &mut Command) -> &mut Command {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    command.env("PATH", path)
}

fn expect(output: Output) -> Output {
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

/// Records a script that runs in the test's folder `mount`.
fn recorded(chronodisk: &Chronodisk, script: &str) -> String {
    let (mount, trace) = (chronodisk.path("mount"), chronodisk.path("calls"));
    fs::create_dir_all(&mount).unwrap();
    let (mount, trace) = (mount.to_str().unwrap(), trace.to_str().unwrap());
    let script = format!("cd {mount}; {script}");
    let arguments = ["trace", "record", "-o", trace, "--mount", mount, "--", "sh", "-c", &script];
    expect(chronodisk.command(&arguments).output().unwrap());
    trace.to_owned()
}

fn replayed(chronodisk: &Chronodisk, trace: &str, flags: &[&str]) -> Value {
    let arguments = [&["trace", "replay", trace, "--json"], &DEVICE[..], flags].concat();
    let output = expect(chronodisk.command(&arguments).output().unwrap());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn what_is_recorded_here_is_replayed_in_a_guest() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let script = "mkdir d; for i in 1 2 3 4; do head -c 20000 /dev/zero >d/$i; done; cat d/* | wc -c >sum; \
        (cp d/1 copy; mv copy moved) & wait; rm -r d; [ -e d ]; sync";
    let trace = recorded(&chronodisk, script);
    let result = replayed(&chronodisk, &trace, &[]);
    let replay = &result["replay"];
    assert_eq!((&replay["skipped"], &replay["differed"]), (&0.into(), &0.into()), "{replay}");
    assert!(replay["calls_made"].as_u64() > Some(20) && replay["tasks"].as_u64() > Some(5), "{replay}");
    assert!(result["reps"][0]["summary"]["requests"].as_u64() > Some(0), "sync reaches the device");
}

/// They take turns on the guest's one processor, and all have threads of one process there.
#[test]
fn tasks_that_compute_at_once_take_the_sum_of_their_cpu_times() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let computes = "(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done) &";
    let trace = recorded(&chronodisk, &format!("echo >file; {} wait", computes.repeat(4)));
    let records = read_calls(Path::new(&trace)).unwrap().records;
    let times = records.iter().flat_map(|record| [record.user_cpu, record.kernel_cpu]).flatten();
    let cpu_ns: u64 = times.map(chronodisk_sim::Nanos::as_nanos).sum();
    assert!(cpu_ns > 100_000_000, "{cpu_ns} ns are some of the host's ticks only");
    // On the default clock the guest's kernel takes time of its own.
    for (flags, most) in [(&["--clock", "exact"][..], 1.02), (&[][..], 1.2)] {
        if !flags.is_empty() && exact().is_none() {
            continue;
        }
        let result = replayed(&chronodisk, &trace, flags);
        let ratio = result["reps"][0]["run_time_ns"].as_u64().unwrap() as f64 / cpu_ns as f64;
        assert!((0.99..most).contains(&ratio), "{flags:?}: {ratio} times {cpu_ns} ns of CPU time");
    }
}

#[test]
fn drawn_workloads_have_statistics_with_intervals() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    // Two users, of whom one writes ten times as much.
    let user = |name: &str, kib: u32| {
        format!("(mkdir {name}; head -c {kib}K /dev/zero >{name}/data; sync {name}/data; cat {name}/data >/dev/null) &")
    };
    let trace = recorded(&chronodisk, &format!("{} {} wait", user("a", 40), user("b", 400)));
    let result = replayed(&chronodisk, &trace, &["--bootstrap", "3", "--reps", "2", "--jackknife"]);
    let bootstrap = &result["replay"]["bootstrap"];
    assert_eq!((&bootstrap["elements"], &bootstrap["draws"]), (&2.into(), &2.into()), "{bootstrap}");
    let reps = result["reps"].as_array().unwrap();
    assert_eq!(reps.len(), 1 + 2 + 2);
    let written = |rep: &Value| rep["summary"]["by_op"]["write"]["bytes"].as_u64().unwrap();
    // The trace without a group has only the other one's data.
    assert!(written(&reps[4]) < written(&reps[3]) && written(&reps[3]) < written(&reps[0]), "{reps:?}");
    let of = |name: &str| {
        let all = bootstrap["statistics"].as_array().unwrap();
        all.iter().find(|statistic| statistic["name"] == name).unwrap().clone()
    };
    let requests = of("requests");
    assert_eq!(requests["value"].as_f64(), reps[0]["summary"]["requests"].as_f64());
    let drawn: Vec<f64> = reps[1..3].iter().map(|rep| rep["summary"]["requests"].as_f64().unwrap()).collect();
    assert_eq!(requests["mean"].as_f64(), Some((drawn[0] + drawn[1]) / 2.0));
    let (low, high) = (drawn[0].min(drawn[1]), drawn[0].max(drawn[1]));
    assert_eq!(requests["percentile_95"], serde_json::json!([low, high]));
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("fewer than 30 elements") && warnings.contains("fewer than 39 draws"), "{warnings}");

    let one = replayed(&chronodisk, &trace, &["--bootstrap", "3"]);
    assert_eq!(one["reps"].as_array().unwrap().len(), 1);
    assert!(one["replay"]["bootstrap"].is_null());
    // This run has the draw of an earlier one. Its metadata goes out when computing lets the journal's timer run.
    let ratio = written(&one["reps"][0]) as f64 / written(&reps[1]) as f64;
    assert!((0.9..1.1).contains(&ratio), "the first draw, {ratio}: {one:#}");
}

#[test]
fn drawn_users_begin_at_times_of_their_own() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let user = |name: &str| format!("(echo >{name}; sync {name}) &");
    let trace = recorded(&chronodisk, &format!("{} wait", ["a", "b", "c"].map(user).join(" ")));
    let run = |jitter: &str| {
        let result = replayed(&chronodisk, &trace, &["--bootstrap", "3", "--jitter", jitter]);
        assert_eq!(result["options"]["jitter_ns"], if jitter == "0s" { 0 } else { 30_000_000_000_u64 });
        let replay = &result["replay"];
        assert_eq!((&replay["skipped"], &replay["differed"]), (&0.into(), &0.into()), "{replay}");
        result["reps"][0]["run_time_ns"].as_u64().unwrap()
    };
    let (plain, delayed) = (run("0s"), run("30s"));
    assert!(plain < 3_000_000_000, "{plain} ns");
    // The latest of three uniform delays is below 3 s once in a thousand seeds.
    assert!((3_000_000_000..40_000_000_000).contains(&delayed), "{delayed} ns");
}

#[test]
fn a_replay_needs_little_memory_for_each_task() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    // A user is two tasks. All are there at once, since sleeps keep their length.
    let memory_of = |users: u32| {
        let script = format!("for i in $(seq {users}); do (sleep 4; echo >$i) & done; wait; sync");
        let trace = recorded(&chronodisk, &script);
        let result = replayed(&chronodisk, &trace, &[]);
        let replay = &result["replay"];
        assert_eq!((&replay["skipped"], &replay["waits_abandoned"]), (&0.into(), &0.into()), "{replay}");
        (replay["tasks_at_once"].as_u64().unwrap(), replay["memory_bytes"].as_u64().unwrap())
    };
    let (few, many) = (memory_of(1), memory_of(150));
    assert!(few.0 >= 3 && many.0 >= 301, "{few:?} and {many:?} tasks at once");
    for (tasks, bytes) in [few, many] {
        println!("{bytes} bytes for {tasks} tasks at once");
        assert!(bytes <= (16 << 20) + tasks * (64 << 10), "{bytes} bytes for {tasks} tasks at once");
    }
}

/// Makes an image with two files in it; `None` without the tools.
fn image(path: &Path) -> Option<()> {
    let content = path.with_extension("content");
    fs::create_dir_all(content.join("folder")).unwrap();
    fs::write(content.join("folder/file"), vec![b'x'; 300_000]).unwrap();
    fs::write(content.join("other"), vec![b'y'; 50_000]).unwrap();
    fs::File::create(path).unwrap().set_len(100 << 20).unwrap();
    let mut command = Command::new("mkfs.ext4");
    let made = with_tools(command.args(["-q", "-F", "-d"]).arg(content).arg(path)).output();
    made.is_ok_and(|output| output.status.success()).then_some(())
}

#[test]
fn a_snapshot_is_read_like_the_full_image_and_stays_as_it_is() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let (full, snapshot) = (chronodisk.path("full.img"), chronodisk.path("snapshot"));
    if image(&full).is_none() {
        println!("SKIPPED: no mkfs.ext4 here");
        return;
    }
    let (full, snapshot) = (full.to_str().unwrap(), snapshot.to_str().unwrap());
    let made = expect(chronodisk.command(&["trace", "snapshot", full, "-o", snapshot]).output().unwrap());
    assert!(text(&made.stderr).contains("ext2 to ext4, 104857600 bytes, UUID "), "{}", text(&made.stderr));
    let bytes = fs::read(snapshot).unwrap();
    assert!(!bytes.windows(1000).any(|window| window == [b'x'; 1000]), "contents are left out");

    let script = "cat /mnt/folder/file /mnt/other | wc -c; ls /mnt; echo new >/mnt/new; sync";
    let program = ["sh", "-c", script];
    let run = |flags: &[&str]| chronodisk.run_json("wd-zn540", &[&["--capacity", "100MiB"], flags].concat(), &program);
    let on_snapshot = run(&["--snapshot", snapshot]);
    assert!(fs::read(snapshot).unwrap() == bytes, "the snapshot is not written");
    let on_image = run(&["--fs", "existing", "--store", full]);
    for op in ["read", "write"] {
        let of = |result: &Value| result["reps"][0]["summary"]["by_op"][op]["bytes"].clone();
        assert_eq!(of(&on_snapshot), of(&on_image), "{op}");
    }
    assert_eq!(on_snapshot["guest"]["file_system"], "ext4");
    let twice = run(&["--snapshot", snapshot, "--reps", "2"]);
    let requests = |index: usize| twice["reps"][index]["summary"]["by_op"]["write"]["bytes"].clone();
    assert_eq!(requests(0), requests(1), "each repetition begins with the snapshot");

    // A trace that was recorded on the file system of a snapshot is replayed on no other.
    let (trace, other) = (chronodisk.path("trace"), chronodisk.path("other"));
    run(&["--snapshot", snapshot, "--record-calls", trace.to_str().unwrap()]);
    image(&chronodisk.path("other.img")).unwrap();
    let image_of_other = chronodisk.path("other.img");
    let words = ["trace", "snapshot", image_of_other.to_str().unwrap(), "-o", other.to_str().unwrap()];
    expect(chronodisk.command(&words).output().unwrap());
    let replay = |snapshot: &str| {
        let words = ["trace", "replay", trace.to_str().unwrap(), "--device", "wd-zn540", "--capacity", "100MiB"];
        chronodisk.command(&[&words[..], &["--snapshot", snapshot]].concat()).output().unwrap()
    };
    expect(replay(snapshot));
    let refused = replay(other.to_str().unwrap());
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains(", on which "), "{}", text(&refused.stderr));

    let small = chronodisk.run("wd-zn540", &["--capacity", "50MiB", "--snapshot", snapshot], &["true"]);
    assert_eq!(small.status.code(), Some(2));
    assert!(text(&small.stderr).contains("104857600 bytes, and the device only 52428800"), "{}", text(&small.stderr));
    let stored = chronodisk.run("wd-zn540", &["--store", full, "--snapshot", snapshot], &["true"]);
    assert_eq!(stored.status.code(), Some(2));
    fs::write(snapshot, "nothing").unwrap();
    let wrong = chronodisk.run("wd-zn540", &["--snapshot", snapshot], &["true"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("no file system that is known"), "{}", text(&wrong.stderr));
}

/// On the exact clock, computing free: the same requests at the same instants.
#[test]
fn a_snapshot_is_read_in_the_time_of_the_full_image() {
    let Some(chronodisk) = exact() else { return };
    let (full, snapshot) = (chronodisk.path("full.img"), chronodisk.path("snapshot"));
    if image(&full).is_none() {
        println!("SKIPPED: no mkfs.ext4 here");
        return;
    }
    let (full, snapshot) = (full.to_str().unwrap(), snapshot.to_str().unwrap());
    expect(chronodisk.command(&["trace", "snapshot", full, "-o", snapshot]).output().unwrap());
    // Large and sequential, small and scattered, and metadata alone.
    let script = "cat /mnt/folder/file >/dev/null; dd if=/mnt/other of=/dev/null bs=4k skip=7 count=1 status=none; \
                  ls -lR /mnt >/dev/null";
    let run = |name: &str, flags: &[&str]| {
        let output = chronodisk.path(name);
        let common = ["--capacity", "100MiB", "--clock", "exact", "--mount-options", "ro,noload"];
        let flags = [&common[..], &["--output", output.to_str().unwrap()], flags].concat();
        let result = chronodisk.run_json("cheetah-9lp", &flags, &["sh", "-c", script]);
        let window = &result["reps"][0]["run_time_ns"];
        let log = log_of(&output);
        assert!(log.iter().any(|record| record.op == Op::Read), "nothing was read");
        let instants: Vec<_> =
            log.iter().map(|record| (record.op, record.lba, record.sectors, record.arrival, record.due)).collect();
        (window.clone(), instants)
    };
    assert_eq!(run("on-snapshot", &["--snapshot", snapshot]), run("on-image", &["--fs", "existing", "--store", full]));
}

#[test]
fn snapshots_are_of_xfs_too_and_not_of_btrfs() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let (image, snapshot) = (chronodisk.path("image"), chronodisk.path("snapshot"));
    let made = |words: &[&str]| {
        fs::File::create(&image).unwrap().set_len(320 << 20).unwrap();
        let mut command = Command::new(words[0]);
        with_tools(command.args(&words[1..]).arg(&image)).output().is_ok_and(|output| output.status.success())
    };
    let (path, output) = (image.to_str().unwrap(), snapshot.to_str().unwrap());
    if made(&["mkfs.xfs", "-q", "-f"]) {
        expect(chronodisk.command(&["trace", "snapshot", path, "-o", output]).output().unwrap());
        let flags = ["--capacity", "320MiB", "--snapshot", output, "--check"];
        let result = chronodisk.run_json("wd-zn540", &flags, &["sh", "-c", "echo x >/mnt/file; sync"]);
        assert_eq!(result["guest"]["file_system"], "xfs");
    } else {
        println!("SKIPPED: no mkfs.xfs here");
    }
    if made(&["mkfs.btrfs", "-q", "-f"]) {
        let refused = chronodisk.command(&["trace", "snapshot", path, "-o", output]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains("its checksums need the data"), "{}", text(&refused.stderr));
    } else {
        println!("SKIPPED: no mkfs.btrfs here");
    }
}

/// More tasks at once than the guest's memory permits: the replayer can't go on, which is no status of a program's.
#[test]
fn a_replayer_that_fails_is_a_failure_that_the_result_tells() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let trace = recorded(&chronodisk, "(sleep 1; echo >file) & wait");
    let path = Path::new(&trace);
    let one = read_calls(path).unwrap();
    let groups = groups(&one).unwrap();
    let copies: Vec<u32> = groups.groups.iter().map(|_| 1500).collect();
    write_calls(path, &compose(&one, &groups, &copies).unwrap()).unwrap();
    let output = chronodisk.path("output");
    let words = ["trace", "replay", &trace, "--memory", "64MiB", "--output", output.to_str().unwrap()];
    let ended = chronodisk.command(&[&words[..], &DEVICE].concat()).output().unwrap();
    assert_eq!(ended.status.code(), Some(125), "{}", text(&ended.stderr));
    let result: Value = serde_json::from_slice(&fs::read(output.join("result.json")).unwrap()).unwrap();
    assert_eq!(result["ended_by"], "chronodisk");
    let failure = result["failure"].as_str().expect("the result says what failed");
    assert!(failure.contains("the replayer ended with status 1"), "{failure}");
    assert!(text(&ended.stderr).contains(failure), "{}", text(&ended.stderr));
}
