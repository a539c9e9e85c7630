//! Charge for the guest's CPU time: as calibrated, by one factor, on a faster processor.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use chronodisk_guest::calibration::Machine;
use serde_json::{Value, json};

use super::support::{Chronodisk, counter_reader, long, processes_with, text};

const SHELL_LOOP: [&str; 3] = ["sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"];

fn run_time_ms(result: &Value) -> f64 {
    result["reps"][0]["run_time_ns"].as_f64().unwrap() / 1e6
}

#[test]
fn a_faster_processor_takes_less_time() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let [slow, fast] = ["1x", "10x"].map(|speed| chronodisk.run_json("null", &["--cpu-speed", speed], &SHELL_LOOP));
    assert!(run_time_ms(&fast) < run_time_ms(&slow) / 3.0, "{} and {}", run_time_ms(&slow), run_time_ms(&fast));
    assert_eq!((&slow["clock"]["cpu_speed"], &fast["clock"]["cpu_speed"]), (&Value::Null, &json!(10.0)));
}

/// Kinds of work, in the order of the file: plain calls, copies, faults, maps, processes, switches, look-ups,
/// calls of asynchronous I/O, spurious faults.
const KINDS: usize = 9;

/// A calibration of this machine in which every plain system call counts a millisecond.
fn slow_calls(host_kernel: &str) -> Value {
    calibration(host_kernel, [1_000_000, 0, 0, 0, 0, 0, 0, 0, 0].map(adding))
}

fn adding(nanos: u64) -> Value {
    json!({ "taken_off_nanos": 0, "added_nanos": nanos, "scale": 0.1 })
}

fn calibration(host_kernel: &str, works: [Value; KINDS]) -> Value {
    json!({
        "schema": "chronodisk.calibration/7",
        "machine": Machine { host_kernel: host_kernel.to_owned(), ..Machine::this() },
        "costs": { "fault_extra_nanos": 0, "tsc_extra_nanos": 550, "other_scale": 0.1, "works": works },
        "probes": [],
    })
}

#[test]
fn runs_count_what_was_calibrated_on_this_machine() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let run = |calibration: Value, flags: &[&str]| {
        fs::write(chronodisk.calibration(), calibration.to_string()).unwrap();
        let arguments = [&["run", "--device", "null", "--fs", "none", "--json"], flags, &["--", "ls", "/"]].concat();
        let output = chronodisk.command(&arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let begin = text(&output.stdout).find("{\n  \"schema\"").unwrap();
        (serde_json::from_slice::<Value>(&output.stdout[begin..]).unwrap(), text(&output.stderr))
    };
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let (calibrated, said) = run(slow_calls(release.trim()), &[]);
    assert_eq!(calibrated["clock"]["kernel_costs"]["call"]["added_ns"], 1_000_000);
    assert!(said.contains("kernel time as calibrated"), "{said}");
    // ls makes more than twenty plain system calls.
    assert!(run_time_ms(&calibrated) > 20.0, "{}", run_time_ms(&calibrated));

    let (of_another_machine, _) = run(slow_calls("0.0.0"), &[]);
    let (one_factor, said) = run(slow_calls(release.trim()), &["--kernel-scale", "0.1"]);
    // The built-in costs take its place.
    assert_eq!(of_another_machine["clock"]["calibrated"], false);
    assert_eq!(of_another_machine["clock"]["kernel_costs"]["call"]["taken_off_ns"], 2_200);
    assert_eq!(one_factor["clock"]["kernel_costs"], Value::Null);
    for result in [of_another_machine, one_factor] {
        assert!(run_time_ms(&result) < run_time_ms(&calibrated), "{result}");
    }
    assert!(said.contains("kernel time × 0.1"), "{said}");
}

#[test]
fn calls_that_look_up_are_told_from_those_that_make_something() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let slow_look_ups = calibration(release.trim(), [0, 0, 0, 0, 0, 0, 1_000_000, 0, 0].map(adding));
    fs::write(chronodisk.calibration(), slow_look_ups.to_string()).unwrap();
    let program = r#"
import os, time
own = os.open('/dev/shm/own', os.O_CREAT | os.O_RDWR)
looks_up = [lambda: os.stat('/dev/shm/own'), lambda: os.access('/dev/shm', os.R_OK), lambda: os.path.exists('/none'),
            lambda: os.readlink('/proc/self/exe'), lambda: os.close(os.open('/dev/shm/own', os.O_RDONLY))]
others = [lambda: os.close(os.open('/dev/shm/own', os.O_RDWR | os.O_CREAT)), lambda: os.utime('/dev/shm/own'),
          lambda: os.fstat(own), lambda: os.close(os.open('/dev/shm/own', os.O_RDWR | os.O_TRUNC)),
          lambda: os.getppid()]
def took(call):
    begin = time.monotonic()
    for _ in range(100):
        call()
    return time.monotonic() - begin
looks_up, others = [[took(call) for call in calls] for calls in (looks_up, others)]
assert min(looks_up) > 0.1 > 0.05 > max(others), (looks_up, others)
"#;
    chronodisk.run_json("null", &["--fs", "none"], &["python3", "-c", program]);
}

#[test]
fn time_passes_for_a_program_that_waits_for_it_whatever_is_taken_off() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let nothing = [(); KINDS].map(|()| json!({ "taken_off_nanos": 1_000_000_000, "added_nanos": 0, "scale": 0.0 }));
    let mut all_taken_off = calibration(release.trim(), nothing);
    all_taken_off["costs"]["tsc_extra_nanos"] = 1_000_000_000.into();
    all_taken_off["costs"]["other_scale"] = 0.into();
    fs::write(chronodisk.calibration(), all_taken_off.to_string()).unwrap();
    let result = chronodisk.run_json("null", &["--fs", "none"], &["python3", "-c", &counter_reader(10_000_000)]);
    assert_eq!(result["clock"]["kernel_costs"]["call"]["taken_off_ns"], 1_000_000_000);
}

#[test]
fn calibrating_finds_costs_and_keeps_them() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let call = |arguments: &[&str]| {
        let output = chronodisk.command(arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    let found: Value = serde_json::from_slice(&call(&["calibrate", "--reps", "1", "--json"])).unwrap();
    let probes = found["probes"].as_array().unwrap();
    assert_eq!(probes.len(), 13);
    let mut fitted = Vec::new();
    for probe in probes {
        // Kinds of work that others are solved before hold only as far as these leave room.
        let by_itself =
            ["empty-call", "create-unlink", "copy-256k", "fault", "map"].contains(&probe["name"].as_str().unwrap());
        let [native, calibrated, uncalibrated] =
            ["native_us", "calibrated_us", "uncalibrated_us"].map(|name| probe[name].as_f64().unwrap());
        // A probe that is shorter than beginning a program varies takes nothing natively.
        assert!(native >= 0.0 && calibrated >= 0.0, "{probe}");
        // On a busy machine stops vary by more than the subtracted cost, which no kernel cost can compensate.
        fitted.push(!by_itself || calibrated < (2.0 * native + 0.5).max(uncalibrated));
        // The guest's kernel has done the work that the probe is about.
        let worked = probe["guest_worked"].as_array().unwrap().iter().any(|work| work["count"] != 0);
        assert!(worked || probe["guest_tsc_reads"].as_u64().unwrap() > 10_000, "{probe}");
    }
    // With one repetition, an interruption that met a probe is taken for it.
    assert!(fitted.iter().filter(|fits| !**fits).count() <= 2, "{}", found["probes"]);
    let kept = chronodisk.calibration();
    let again: Value = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
    assert_eq!(again["costs"], found["costs"]);
    call(&["calibrate", "--forget"]);
    assert!(!kept.exists());
}

#[test]
fn every_installed_program_is_compared_with_its_native_run() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    // The others take twice as long together. rsync is the one with idle time.
    let short = "tar postmark-8 sqlite rsync python";
    let all = "tar make postmark postmark-8 sqlite ffmpeg rocksdb pgbench git-clone rsync zstd redis python";
    let programs: Vec<&str> = if long() { all } else { short }.split(' ').collect();
    let named = programs.iter().flat_map(|name| ["--program", name]);
    let arguments: Vec<&str> = ["calibrate", "--check", "--json", "--reps", "1"].into_iter().chain(named).collect();
    let output = chronodisk.command(&arguments).output().unwrap();
    // Errors beyond the bound end with status 1; this host may be busy.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (rows, skipped) = (report["programs"].as_array().unwrap(), report["skipped"].as_array().unwrap());
    assert_eq!(rows.len() + skipped.len(), programs.len(), "{report}");
    for row in rows {
        let [native, guest] = ["native_cpu_s", "guest_run_s"].map(|key| row[key][0].as_f64().unwrap());
        let error = row["error_percent"].as_f64().unwrap();
        // A program's sleep is no CPU time natively.
        let computed = guest - row["guest"]["idle_s"].as_f64().unwrap();
        assert!((100.0 * (computed / native - 1.0) - error).abs() < 1e-6, "a single pair is its own median: {row}");
        assert!((0.1..10.0).contains(&(guest / native)), "{row}");
        assert_eq!(
            (&row["error_interval_percent"], &row["interval_confidence"]),
            (&json!([error, error]), &json!(0.0))
        );
        // A script that mostly waits would not tell much. rsync sleeps for 0.2 s by itself, however fast the host is.
        let least = if row["program"] == "rsync" { 0.2 } else { 0.5 };
        assert!(computed > least * guest, "{row}");
    }
    // A guest has as many faults as there are natively, beside those on pages that its page tables have already. tar's
    // programs are small, so that the host has no huge pages for them.
    let tar = rows.iter().find(|row| row["program"] == "tar").expect("tar is always installed");
    let faults = |kind: &str| {
        let work = tar["guest"]["work"].as_array().unwrap();
        work.iter().find(|work| work["kind"] == kind).unwrap()["count"].as_f64().unwrap()
    };
    let native = tar["native_page_faults"].as_f64().unwrap();
    assert!((0.75..1.25).contains(&(faults("fault") / native)), "{tar}");
    assert!(faults("spurious-fault") > 0.5 * native, "{tar}");
    let beyond = rows.iter().any(|row| row["error_percent"].as_f64().unwrap().abs() > 10.0);
    assert_eq!(output.status.code(), Some(i32::from(beyond)));
}

#[test]
fn a_check_inside_make_prints_its_result_alone() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let mut command = chronodisk.command(&["calibrate", "--check", "--json", "--reps", "1", "--program", "make"]);
    // make(1) says with this option which directory it enters, and hands both variables to its programs.
    let output = command.env("MAKEFLAGS", "w").env("MAKELEVEL", "1").output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("the result alone");
    assert_eq!(report["programs"].as_array().map(Vec::len), Some(1), "{report}");
    assert!(!text(&output.stderr).contains("Entering directory"), "{}", text(&output.stderr));
}

#[test]
fn a_signal_ends_calibrating_and_checking_and_nothing_is_left() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let mark = chronodisk.results.path().to_str().unwrap();
    // Here the program runs natively, and with two processes more in a guest, which are what works for it there.
    for (arguments, processes) in [(&[][..], 2), (&[], 3), (&["--check", "--program", "tar"], 3)] {
        let arguments = [&["calibrate", "--reps", "100"], arguments].concat();
        let child = chronodisk.command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        while processes_with(mark).len() < processes {
            std::thread::sleep(Duration::from_millis(1));
        }
        let pid = child.id();
        // SAFETY: a system call without pointers, on a child that is not reaped yet.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGTERM) };
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(128 + libc::SIGTERM), "{arguments:?}: {}", text(&ended.stderr));
        assert!(
            !chronodisk.calibration().exists() && !Path::new(&format!("/dev/shm/chronodisk-native-{pid}-0")).exists()
        );
        while !processes_with(mark).is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
