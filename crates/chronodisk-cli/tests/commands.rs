//! Every command as a user types it: its help, its answers, its refusals, with their exit statuses.
//!
//! After a wanted change, `TRYCMD=overwrite cargo test -p chronodisk-cli --test commands` rewrites
//! the expected output; read the difference before you commit it.

#[path = "common/command.rs"]
mod command;

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use command::copied_to;

#[test]
fn commands() {
    let state = tempfile::tempdir().unwrap();
    trycmd::TestCases::new()
        .env("NO_COLOR", "1")
        .env("XDG_STATE_HOME", state.path().to_str().unwrap())
        .insert_var("[RUNS]", state.path().join("chronodisk/runs").display().to_string())
        .unwrap()
        .case("tests/cmd/*.trycmd")
        .run();
}

/// Runs the command and returns its standard output as JSON.
fn json(arguments: &[&str]) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_chronodisk")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_drive_with_zones_in_use_is_reset_before_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("zones.state");
    let state = state.to_str().unwrap();
    let device = ["--device", "wd-zn540-zones", "--capacity", "4GiB", "--json"];
    let age = ["age", "--workload", "sequential", "--output", state];
    let report = json(&[&age[..], &device].concat());
    assert_eq!((&report["steady"], &report["write_amplification"]), (&true.into(), &1.0.into()));
    assert_eq!(report["state_bytes"], std::fs::metadata(state).unwrap().len());
    let simulate = |options: &[&str]| json(&[&["simulate", "--requests", "100"], options, &device].concat());
    let write = ["--workload", "seq-write", "--block-size", "64KiB", "--depth", "8"];
    let written = simulate(&[&write[..], &["--state", state]].concat());
    assert_eq!(written["summary"]["failed"], 0, "{written}");
    assert_eq!(written["summary"]["by_op"]["zone-reset"]["requests"], 1, "{written}");
    assert_eq!(simulate(&write)["summary"]["by_op"]["zone-reset"], serde_json::Value::Null);

    let random = ["simulate", "--device", "wd-zn540-zones", "--workload", "random-write", "--requests", "100"];
    let output = Command::new(env!("CARGO_BIN_EXE_chronodisk")).args(random).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("warning: 100 of 100 requests failed: zone-invalid-write 100"), "{told}");
}

#[test]
fn json_is_one_document_with_a_schema() {
    let device = json(&["devices", "show", "first-disk", "--json"]);
    assert_eq!(device["schema"], "chronodisk.device/1");
    assert_eq!(device["name"], "first-disk");
    assert!(device["profile_toml"].as_str().unwrap().contains("kind = \"simple-disk\""));

    let list = json(&["devices", "--json"]);
    assert_eq!(list["schema"], "chronodisk.devices/1");
    assert!(list["devices"].as_array().unwrap().iter().any(|device| device["name"] == "first-disk"));
}

#[test]
fn equal_options_give_equal_bytes_and_another_seed_does_not() {
    let simulate = |seed: &str| {
        let words =
            ["simulate", "-d", "first-disk", "-w", "mixed-uniform", "-n", "300", "--depth", "4", "--json", "--seed"];
        json(&[&words[..], &[seed]].concat())
    };
    assert_eq!(simulate("5"), simulate("5"));
    assert_ne!(simulate("5")["latency_us"], simulate("6")["latency_us"]);
}

#[test]
fn a_device_of_another_speed_is_replayed_at_that_speed() {
    let parent = tempfile::tempdir().unwrap();
    let kept = parent.path().join("kept").display().to_string();
    let simulate = |options: &[&str]| {
        let words = ["simulate", "-d", "constant-10ms", "-w", "random-read", "-n", "50", "--json"];
        json(&[&words[..], options].concat())
    };
    let (fast, slow) = (simulate(&["--device-speed", "2x", "-o", &kept]), simulate(&["--device-speed", "0.5x"]));
    assert_eq!((&fast["latency_us"]["p50"], &slow["latency_us"]["p50"]), (&5_000.0.into(), &20_000.0.into()));
    assert_eq!((&fast["options"]["device_speed"], &slow["options"]["device_speed"]), (&2.0.into(), &0.5.into()));
    assert_eq!(simulate(&[])["options"]["device_speed"], serde_json::Value::Null);
    let verified = json(&["verify", &kept, "--json"]);
    assert_eq!((&verified["identical"], &verified["reps"][0]["compared"]), (&true.into(), &50.into()));
}

#[test]
fn a_changed_log_is_found() {
    let parent = tempfile::tempdir().unwrap();
    let [kept, other] = ["kept", "other"].map(|name| parent.path().join(name).display().to_string());
    for (directory, capacity) in [(&kept, "1GiB"), (&other, "2GiB")] {
        json(&[
            "simulate",
            "-d",
            "first-disk",
            "-w",
            "random-read",
            "-n",
            "50",
            "--capacity",
            capacity,
            "-o",
            directory,
            "--json",
        ]);
    }
    let verify =
        |directory: &str| Command::new(env!("CARGO_BIN_EXE_chronodisk")).args(["verify", directory]).output().unwrap();
    assert_eq!(verify(&kept).status.code(), Some(0));

    // The other simulation's requests are elsewhere, and took their own time there.
    let records = chronodisk_report::read_log(&Path::new(&other).join("requests.parquet")).unwrap();
    let mut wrong = chronodisk_report::read_log(&Path::new(&kept).join("requests.parquet")).unwrap();
    wrong[7].due += chronodisk_sim::Nanos::from_nanos(1);
    wrong[7].completed = wrong[7].due;
    chronodisk_report::write_log(&Path::new(&kept).join("requests.parquet"), &wrong).unwrap();
    let changed = verify(&kept);
    assert_eq!(changed.status.code(), Some(1));
    let text = String::from_utf8(changed.stdout).unwrap();
    assert!(text.contains("1 DIFFERENT") && text.contains("request 7 of device 0"), "{text}");

    // A log that can't be of this device is wrong input, not a difference.
    chronodisk_report::write_log(&Path::new(&kept).join("requests.parquet"), &records).unwrap();
    let foreign = verify(&kept);
    assert_eq!(foreign.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&foreign.stderr).contains("can't be replayed"), "{foreign:?}");
}

#[test]
fn without_a_guest_kernel_the_user_is_told_how_to_get_it() {
    // Nor is the kernel of the exact clock there, which stands in for it.
    let cache = tempfile::tempdir().unwrap();
    let output = copied_to(cache.path())
        .args(["run", "--device", "null", "--", "true"])
        .env("PATH", "")
        .env("XDG_CACHE_HOME", cache.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("linux.uml, the kernel that guests run, is not in PATH"), "{message}");
    assert!(message.contains("apt-get install user-mode-linux"), "{message}");
    assert!(message.contains("chronodisk help kernel"), "{message}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_chronodisk"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_interrupted_simulation_tells_what_it_has() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_chronodisk"))
        .args(["simulate", "-d", "first-disk", "-w", "random-small", "-n", "1000000000000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Until its handler is in place a signal ends the process; /proc says when it is.
    let catches_interrupts = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        u64::from_str_radix(mask, 16).unwrap() & (1 << (libc::SIGINT - 1)) != 0
    };
    while !catches_interrupts() {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(100));
    // SAFETY: the child has not been waited for, so its number is still its own.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let mut notes = String::new();
    child.stderr.take().unwrap().read_to_string(&mut notes).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{notes}");
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(result["requests"].as_u64().unwrap() > 0);
    assert!(notes.contains("interrupted after"), "{notes}");
}
