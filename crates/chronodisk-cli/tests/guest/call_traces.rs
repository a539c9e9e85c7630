//! System calls that the guest's clock records, and their replay.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use chronodisk_report::{read_calls, read_log};
use chronodisk_sim::RequestRecord;
use chronodisk_trace::calls::{CallRecord, CallTrace};
use serde_json::Value;

use super::exact::{exact, run_time_ns};
use super::support::{Chronodisk, text};

/// Writes, renames and removes files from several processes, with a pipe between two, and one with a name.
const SCRIPT: &str = "cd /mnt && mkdir a a/b && for i in 1 2 3 4 5 6 7 8; do
    head -c ${i}00000 /bin/sh > a/b/file-$i && cp a/b/file-$i a/copy-$i; done
sync; mv a/copy-1 a/b/moved; rm a/copy-2; cat a/b/* | tail -c 100000 > joined; ln -s joined link
mkfifo pipe; cat pipe > got & echo through > pipe; wait; sync";

struct Recorded {
    result: Value,
    log: Vec<RequestRecord>,
    calls: CallTrace,
}

pub fn log_of(directory: &Path) -> Vec<RequestRecord> {
    read_log(&directory.join("requests-0.parquet")).unwrap()
}

/// Operations, addresses and lengths in order of arrival.
fn requests(log: &[RequestRecord]) -> Vec<(String, u64, u32)> {
    log.iter().map(|record| (format!("{:?}", record.op), record.lba.0, record.sectors)).collect()
}

fn record(chronodisk: &Chronodisk, device: &str, flags: &[&str], command: &[&str]) -> (PathBuf, Recorded) {
    let (file, output) = (chronodisk.path("calls.parquet"), chronodisk.path("recorded"));
    let record = ["--record-calls", file.to_str().unwrap(), "--output", output.to_str().unwrap()];
    let result = chronodisk.run_json(device, &[flags, &record].concat(), command);
    let calls = read_calls(&file).unwrap();
    (file, Recorded { result, log: log_of(&output), calls })
}

fn replay(chronodisk: &Chronodisk, file: &Path, name: &str, flags: &[&str]) -> (Value, Vec<RequestRecord>) {
    let output = chronodisk.path(name);
    let file = file.to_str().unwrap();
    let words = ["trace", "replay", file, "--json", "--output", output.to_str().unwrap()];
    let answer = chronodisk.command(&[&words, flags].concat()).output().unwrap();
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    (serde_json::from_slice(&answer.stdout).unwrap(), log_of(&output))
}

fn is_at(record: &CallRecord, name: &str, path: &str) -> bool {
    record.call.name() == name && record.path.as_deref() == Some(path.as_bytes())
}

#[test]
fn calls_are_recorded_with_paths_results_and_tasks_and_are_replayed() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let flags = ["--fs", "ext4", "--check"];
    let (file, recorded) = record(&chronodisk, "first-disk", &flags, &["sh", "-c", SCRIPT]);
    let calls = &recorded.calls;
    assert!(calls.header.is_complete(), "{:?}", calls.header);
    assert_eq!(calls.header.mount.as_deref(), Some("/mnt"));
    let find = |name: &str, path: &str| calls.records.iter().find(|record| is_at(record, name, path));
    assert_eq!(find("chdir", "/mnt").and_then(|record| record.result), Some(0));
    let renamed = calls.records.iter().find(|record| record.call.name().starts_with("rename")).expect("mv renames");
    assert_eq!(renamed.path_2.as_deref(), Some(&b"a/b/moved"[..]));
    // Each program is a task of its own, which its shell has waited for.
    let waited = calls.records.iter().filter(|record| record.call.name() == "wait4" && record.result > Some(0));
    let first = calls.records[0].task;
    assert!(waited.clone().count() >= 10 && waited.clone().any(|record| record.task == first));
    let ended: Vec<u32> =
        calls.records.iter().filter(|record| record.call.name() == "exit_group").map(|record| record.task).collect();
    assert!(waited.clone().all(|record| ended.contains(&(record.result.unwrap() as u32))), "{ended:?}");
    let pipe = calls.records.iter().find_map(|record| record.pipe).expect("the shell makes a pipe");
    assert!(pipe[0] >= 0 && pipe[1] > pipe[0], "{pipe:?}");
    assert!(calls.records.iter().any(|record| record.user_cpu.unwrap().as_nanos() > 0));
    assert!(calls.records.iter().any(|record| record.kernel_cpu.unwrap().as_nanos() > 0));

    let (result, log) = replay(&chronodisk, &file, "replayed", &["--device", "first-disk", "--fs", "ext4", "--check"]);
    assert_eq!(result["replay"]["differed"], 0, "{}", result["replay"]);
    let bytes = |log: &[RequestRecord]| log.iter().map(|record| u64::from(record.sectors)).sum::<u64>();
    let (before, after) = (bytes(&recorded.log), bytes(&log));
    assert!(after.abs_diff(before) * 50 < before, "{before} sectors were {after} in the replay");
}

#[test]
fn on_the_exact_clock_recording_changes_nothing_and_the_replay_makes_the_same_requests() {
    let Some(chronodisk) = exact() else { return };
    let device = "first-disk";
    let flags = ["--clock", "exact", "--fs", "ext4"];
    let plain = chronodisk.path("plain");
    let with_output = [&flags[..], &["--output", plain.to_str().unwrap()]].concat();
    let result = chronodisk.run_json(device, &with_output, &["sh", "-c", SCRIPT]);
    let (file, recorded) = record(&chronodisk, device, &flags, &["sh", "-c", SCRIPT]);
    let instants = |log: &[RequestRecord]| log.iter().map(|record| (record.arrival, record.due)).collect::<Vec<_>>();
    let plain = log_of(&plain);
    assert_eq!(run_time_ns(&result), run_time_ns(&recorded.result));
    assert_eq!(requests(&plain), requests(&recorded.log));
    assert_eq!(instants(&plain), instants(&recorded.log));

    let replays =
        ["one", "two"].map(|name| replay(&chronodisk, &file, name, &[&["--device", device], &flags[..]].concat()));
    assert_eq!(replays[0].0["replay"]["differed"], 0, "{}", replays[0].0["replay"]);
    assert_eq!(instants(&replays[0].1), instants(&replays[1].1));
    assert_eq!(requests(&replays[0].1), requests(&recorded.log));
    let (before, after) = (run_time_ns(&recorded.result), run_time_ns(&replays[0].0));
    assert!(after.abs_diff(before) * 50 < before, "{before} ns were {after} in the replay");
}

#[test]
fn what_a_recording_can_not_be_of_is_refused() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let file = chronodisk.path("calls.parquet");
    for (flags, why) in
        [(&["--fs", "none"][..], "--fs none"), (&["--root", "device"], "--root device"), (&["--reps", "3"], "--reps")]
    {
        let answer =
            chronodisk.run("first-disk", &[&["--record-calls", file.to_str().unwrap()], flags].concat(), &["true"]);
        assert_eq!(answer.status.code(), Some(2));
        assert!(text(&answer.stderr).contains(why), "{}", text(&answer.stderr));
        assert!(!file.exists());
    }
}

#[test]
fn a_trace_that_cannot_be_kept_is_a_failure_that_the_result_tells() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let (folder, output) = (chronodisk.path("folder"), chronodisk.path("recorded"));
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("calls.parquet");
    let flags = ["run", "--device", "first-disk", "--record-calls", file.to_str().unwrap()];
    let program = ["--output", output.to_str().unwrap(), "--", "sh", "-c", "echo began; cat; exit 7"];
    let mut command = chronodisk.command(&[&flags[..], &program].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), "began");
    // The place for the trace was there when the run began.
    std::fs::remove_dir_all(&folder).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(125), "{}", text(&ended.stderr));
    let result: Value = serde_json::from_slice(&std::fs::read(output.join("result.json")).unwrap()).unwrap();
    assert_eq!(result["ended_by"], "chronodisk");
    let failure = result["failure"].as_str().expect("the result says what failed");
    assert!(failure.contains("calls.parquet"), "{failure}");
    assert!(text(&ended.stderr).contains(failure), "{}", text(&ended.stderr));
}
