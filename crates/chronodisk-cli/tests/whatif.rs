//! `chronodisk whatif` from outside. What observes and freezes needs root, FUSE, loop devices, BTF, BPF and cgroup v2.

#[path = "common/command.rs"]
mod command;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use command::{chronodisk, text};

/// Each request takes 1 ms.
const DEVICE: &str = "constant-1ms";

/// Says whether a command can be observed here; says why not.
fn observes(name: &str) -> bool {
    let output = chronodisk(&["whatif", "--device", "first-disk", "--capacity", "64MiB", "--fs", "none"])
        .args(["--speedup", "2", "--reps", "1", "--", "true"])
        .output()
        .unwrap();
    if output.status.code() == Some(3) {
        println!("SKIPPED {name}: {}", text(&output.stderr).trim());
        return false;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    true
}

fn whatif(arguments: &[&str], command: &[&str]) -> Output {
    chronodisk(&[&["whatif", "--json", "--fs", "none"], arguments, &["--"], command].concat()).output().unwrap()
}

fn result(arguments: &[&str], command: &[&str]) -> Value {
    let output = whatif(arguments, command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn wrong_usage_is_refused_before_anything_is_made() {
    let cases: [(&[&str], &str); 8] = [
        (&["--speedup", "0.5"], "at least 1"),
        (&["--speedup", "fast"], "at least 1"),
        (&[], "--speedup"),
        (&["--speedup", "2", "--read-speedup", "3"], "cannot be used with"),
        (&["--read-speedup", "2", "--validate"], "different factors"),
        (&["--speedup", "inf", "--plot", "plot.svg"], "finite R"),
        (&["--speedup", "2", "--plot", "plot.png"], "ends in .svg"),
        (&["--speedup", "2", "--plot", "/no/such/folder/plot.svg"], "can't be written"),
    ];
    for (arguments, expected) in cases {
        let output = whatif(&[&["--device", "first-disk"], arguments].concat(), &["true"]);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {}", text(&output.stderr));
    }
    // The twin would be faster than any that can be emulated.
    let too_fast = ["--device", "first-disk", "--device-speed", "900x", "--speedup", "2", "--validate"];
    let output = whatif(&too_fast, &["true"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("1800x"), "{}", text(&output.stderr));
}

#[test]
fn a_synchronous_reader_is_predicted_and_its_requests_are_counted() {
    if !observes("a_synchronous_reader_is_predicted_and_its_requests_are_counted") {
        return;
    }
    let script = "exec dd if=$CHRONODISK_DEVICE of=/dev/null bs=4k count=200 iflag=direct status=none";
    let arguments = ["--device", DEVICE, "--speedup", "2,inf", "--suspend", "never", "--reps", "1", "--validate"];
    let json = result(&arguments, &["sh", "-c", script]);
    let [half, none] = [&json["results"][0], &json["results"][1]];
    assert_eq!(half["requests"], 200.0, "{json:#}");
    assert_eq!(half["suspends"], json!(false), "{json:#}");
    // Beside other work a completion in some thousands is not reported, and counted.
    assert!(half["lost_events"].as_u64().unwrap() <= 3, "{json:#}");
    // On a busy host a request may complete early as well as late: completions are sent ahead of time by the median
    // of what sending takes. Only what holds there, too, is asserted; accuracy has benchmarks.
    let busy = half["device_busy_s"].as_f64().unwrap();
    let seconds = |value: &Value| value["median"].as_f64().unwrap();
    let observed = half["observed_s"].as_f64().unwrap();
    assert!(busy >= 0.05 && observed >= busy, "{json:#}");
    // Without the cost of observation, waiting time counts half, or not at all; the rest in full.
    let own = observed - half["preempted_s"].as_f64().unwrap();
    let elapsed = seconds(&json["elapsed_s"]);
    let device = elapsed - seconds(&json["without_request_s"]);
    let observed_device = own - half["observed_without_request_s"].as_f64().unwrap();
    let longer = half["observed_request_time_s"].as_f64().unwrap() - seconds(&json["request_time_s"]);
    let hidden = longer.clamp(0.0, (busy - observed_device).max(0.0));
    let undisturbed_busy = (busy - hidden + device - observed_device).max(0.0);
    let computing = elapsed - undisturbed_busy;
    let saved = busy - (seconds(&half["predicted_s"]) - computing) * busy / undisturbed_busy;
    assert!(saved > 0.4 * busy && saved <= 0.5001 * busy, "{saved} of {busy}: {json:#}");
    assert!(seconds(&none["predicted_s"]) < seconds(&half["predicted_s"]), "{json:#}");
    assert_eq!(json["limit_s"], none["predicted_s"]["median"]);
    assert!(half["measured_s"]["median"].as_f64().unwrap() >= 0.1 && none["measured_s"].is_null(), "{json:#}");
}

/// Write-back checks, maps and submits while its first requests are in flight; a program that reads by itself needs no
/// help.
#[test]
fn what_kernel_threads_compute_for_a_program_is_seen() {
    if !observes("what_kernel_threads_compute_for_a_program_is_seen") {
        return;
    }
    let mounted = tempfile::tempdir().unwrap();
    let helped = |script: &str| {
        let output = chronodisk(&["whatif", "--json", "--device", DEVICE, "--capacity", "512MiB", "--mount"])
            .arg(mounted.path())
            .args(["--speedup", "4", "--reps", "1", "--", "sh", "-c", script])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let first = &json["results"][0];
        (first["helped_s"].as_f64().unwrap() / first["device_busy_s"].as_f64().unwrap(), json)
    };
    let folder = mounted.path().display();
    let write = format!(
        "for f in $(seq 500); do head -c 20000 /dev/zero > {folder}/$f; done; sync -f {folder}; test -f {folder}/500"
    );
    let (share, json) = helped(&write);
    assert!(share > 0.0 && share <= 1.0, "{json:#}");
    assert!(json["late_s"]["median"].as_f64().is_some(), "{json:#}");
    let warns = |json: &Value| json["warnings"].to_string().contains("throttles write-back");
    assert_eq!(Value::from(warns(&json)), json["throttled_writes"], "{json:#}");
    let read = "exec dd if=$CHRONODISK_DEVICE of=/dev/null bs=4k count=100 iflag=direct status=none";
    let (share_of_reads, json) = helped(read);
    assert!(share_of_reads < share, "{share_of_reads} and {share}: {json:#}");
    assert!(!warns(&json), "{json:#}");
}

#[test]
fn calibration_has_a_row_for_each_kind_of_request() {
    let output =
        chronodisk(&["whatif", "calibrate", "--device", DEVICE, "--requests", "5", "--json"]).output().unwrap();
    if output.status.code() == Some(3) {
        println!("SKIPPED calibration_has_a_row_for_each_kind_of_request: {}", text(&output.stderr).trim());
        return;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = json["rows"].as_array().unwrap();
    // Six sizes, both directions, both patterns. On a busy host a request of 1 ms may complete early.
    assert_eq!(rows.len(), 24, "{json:#}");
    let kinds: std::collections::BTreeSet<String> =
        rows.iter().map(|row| format!("{} {} {}", row["direction"], row["pattern"], row["request_bytes"])).collect();
    assert_eq!(kinds.len(), 24, "{json:#}");
    for row in rows {
        assert!(row["mean_us"].as_f64().unwrap() >= 300.0, "{row:#}");
    }
    let refused = chronodisk(&["whatif", "calibrate", "--on", "/proc/version"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
}

#[test]
fn a_computation_beside_a_reader_is_frozen() {
    if !observes("a_computation_beside_a_reader_is_frozen") {
        return;
    }
    let script = "dd if=$CHRONODISK_DEVICE of=/dev/null bs=4k count=300 iflag=direct status=none & \
        i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; wait";
    let json = result(&["--device", DEVICE, "--speedup", "4", "--reps", "1"], &["sh", "-c", script]);
    let first = &json["results"][0];
    let number = |name: &str| first[name].as_f64().unwrap();
    assert!(number("freezes") > 0.0 && number("frozen_s") > 0.0, "{json:#}");
    assert_eq!(first["suspends"], json!(true), "{json:#}");
    assert!(first["lost_events"].as_u64().unwrap() <= 3, "{json:#}");
    let predicted = first["predicted_s"]["median"].as_f64().unwrap();
    assert!(predicted <= number("observed_s"), "{json:#}");
    assert!(number("low_s") <= predicted && predicted <= number("high_s"), "{json:#}");
}

#[test]
fn the_commands_status_is_passed_on_and_nothing_is_left() {
    if !observes("the_commands_status_is_passed_on_and_nothing_is_left") {
        return;
    }
    let output = whatif(&["--device", "first-disk", "--speedup", "2"], &["sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no prediction"), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        [&json["ended_by"], &json["exit_status"], &json["failure"]],
        [&json!("command"), &json!(7), &json!(null)]
    );
    assert_eq!(json["results"], json!([]));
    let output = whatif(&["--device", "first-disk", "--speedup", "2"], &["sh", "-c", "kill -9 $$"]);
    assert_eq!(output.status.code(), Some(137), "{}", text(&output.stderr));
}

/// A command that ends well after the signal that was passed on to it has not run to its end.
#[test]
fn a_signal_leaves_no_prediction_and_says_so() {
    if !observes("a_signal_leaves_no_prediction_and_says_so") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("began");
    let script = format!("trap 'exit 0' TERM; touch {}; while :; do sleep 0.05; done", mark.display());
    let arguments = ["whatif", "--json", "--fs", "none", "--device", DEVICE, "--speedup", "2", "--reps", "1"];
    let child = chronodisk(&arguments)
        .args(["--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !mark.exists() {
        assert!(Instant::now() < deadline, "the command does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["ended_by"], &json["exit_status"]), (&json!("signal"), &json!(143)), "{json:#}");
    assert_eq!(json["results"], json!([]));
}

/// The program of a killed supervisor goes within the time that the watchdog has for it, frozen or not.
#[test]
fn a_killed_supervisor_leaves_no_frozen_command() {
    if !observes("a_killed_supervisor_leaves_no_frozen_command") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("pid");
    // It reads and computes for ever, and so is frozen for most of the time.
    let script = format!(
        "echo $$ > {}; (while :; do dd if=$CHRONODISK_DEVICE of=/dev/null bs=4k count=999 iflag=direct status=none; \
         done) & while :; do :; done",
        mark.display()
    );
    for attempt in 0..4 {
        let _ = fs::remove_file(&mark);
        let arguments = ["whatif", "--fs", "none", "--device", DEVICE, "--speedup", "inf", "--suspend", "auto"];
        let mut child = chronodisk(&arguments)
            .args(["--reps", "1", "--", "sh", "-c", &script])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let pid = loop {
            match fs::read_to_string(&mark).ok().and_then(|text| text.trim().parse::<u32>().ok()) {
                Some(pid) => break pid,
                None => assert!(Instant::now() < deadline, "the command does not begin"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        std::thread::sleep(Duration::from_millis(30 + 67 * attempt));
        child.kill().unwrap();
        child.wait().unwrap();
        let process = format!("/proc/{pid}");
        // Two seconds are promised; a busy host gets more.
        let deadline = Instant::now() + Duration::from_secs(20);
        while Path::new(&process).exists() {
            assert!(Instant::now() < deadline, "process {pid} of the command is left");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
