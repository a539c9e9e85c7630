//! Steps before and after the command take the device's time, and next to none of the host's.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::pages::block_of;
use super::{Native, text};

/// Device time and host time of a phase, in nanoseconds.
fn times(rep: &Value, name: &str) -> (u64, u64) {
    let phases = rep["phases"].as_array().unwrap();
    let phase = phases.iter().find(|phase| phase["name"] == name).unwrap_or_else(|| panic!("no {name} in {rep}"));
    let of = |field: &str| phase[field].as_u64().unwrap();
    (of("end_ns") - of("start_ns"), of("host_time_ns"))
}

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn mkfs_setup_and_unmount_take_the_devices_time_and_not_the_hosts() {
    let Some(native) = Native::new() else { return };
    // Of 100 ms a request; the command leaves dirty pages to the unmount.
    let setup =
        "for number in 1 2 3 4 5 6; do dd if=/dev/zero of=/mnt/$number bs=4k count=1 conv=fsync status=none; done";
    let flags = ["-d", "constant-10ms", "--device-speed", "0.1x", "--capacity", "64MiB", "--setup", setup];
    let script = "for number in 1 2 3 4 5 6 7 8; do head -c 8192 /dev/urandom >/mnt/new$number; done
        dd if=/mnt/1 of=/dev/null bs=4k count=1 iflag=direct status=none";
    let result = native.mount(&flags, script);
    let rep = &result["reps"][0];
    for name in ["mkfs", "setup", "unmount"] {
        let (device_ns, host_ns) = times(rep, name);
        assert!(device_ns > host_ns + SECOND_NS / 2, "{name}: {device_ns} {host_ns}");
    }
    // The command's own requests do wait.
    assert!(rep["run_time_ns"].as_u64().unwrap() >= SECOND_NS / 10, "{rep}");
    native.verify();
}

#[test]
fn every_kind_of_device_and_file_system_is_set_up_so() {
    let Some(native) = Native::new() else { return };
    let setup = "cp -r /usr/bin/env /mnt/one; sync; rm /mnt/one; head -c 3000000 /dev/urandom >/mnt/two";
    for (device, capacity, file_system) in
        [("cheetah-9lp", "700MiB", "xfs"), ("samsung-970-pro", "512MiB", "ext4"), ("first-disk", "512MiB", "btrfs")]
    {
        let flags = ["-d", device, "--capacity", capacity, "--fs", file_system, "--setup", setup];
        let result = native.mount(&flags, "cat /mnt/two | wc -c | grep -q 3000000");
        let rep = &result["reps"][0];
        let (device_ns, host_ns) = times(rep, "setup");
        assert!(device_ns >= host_ns / 2, "{device}: {device_ns} {host_ns}");
        assert!(rep["summary"]["by_op"]["read"]["bytes"].as_u64().unwrap() >= 3_000_000, "{device}: {rep}");
        native.verify();
    }
}

/// The host's kernel knows XFS and btrfs by their UUID.
#[test]
fn two_mounts_of_one_seed_run_beside_each_other() {
    let Some(native) = Native::new() else { return };
    for (file_system, capacity) in [("btrfs", "512MiB"), ("xfs", "512MiB"), ("ext4", "64MiB")] {
        let flags = ["-d", "null", "--capacity", capacity, "--fs", file_system];
        let [mounted, over] = ["mounted", "over"].map(|name| native.path(&format!("{file_system}-{name}")));
        let waits = format!("touch {}; until [ -e {} ]; do sleep 0.05; done", mounted.display(), over.display());
        let arguments = [&["mount"], &flags[..], &["--", "sh", "-c", &waits]].concat();
        let mut first = native.command(&arguments).stderr(Stdio::null()).spawn().unwrap();
        let give_up = Instant::now() + Duration::from_secs(60);
        while !mounted.exists() && Instant::now() < give_up {
            sleep(Duration::from_millis(20));
        }
        let second = native.run(&[&["mount"], &flags[..], &["--", "touch", "/mnt/x"]].concat());
        std::fs::write(&over, "").unwrap();
        assert!(first.wait().unwrap().success(), "{file_system}");
        assert!(second.status.success(), "{file_system}: {}", text(&second.stderr));
    }
}

#[test]
fn postgresql_runs_on_a_slow_disk_as_its_guide_says() {
    let Some(native) = Native::new() else { return };
    let script = native.path("pgbench.sh");
    std::fs::write(&script, block_of("slow-disk.md", "# pgbench.sh")).unwrap();
    let flags = ["-d", "null", "--limit", "iops=200,delay=2ms"];
    let result = native.mount(&flags, &format!("sh {} >&2", script.display()));
    assert_eq!(result["device"]["limits"], "iops=200,delay=2ms");
    let writes = &result["reps"][0]["summary"]["by_op"]["write"];
    // Each of the transactions syncs its write-ahead log.
    assert!(writes["requests"].as_u64().unwrap() >= 100, "{writes}");
    assert!(writes["service_time_us"]["p50"].as_f64().unwrap() >= 2_000.0, "{writes}");
    native.verify();
}

/// In place of `docker run`: namespaces of mounts and processes, with the folder of `-v` below /mnt.
const CONTAINER: &str = "#!/bin/sh
while [ $# -gt 0 ]; do [ $1 = -v ] && from=${2%%:*}; shift; done
exec unshare --mount --pid --fork --mount-proc sh -c 'mount --bind $0 /mnt && sh $1 >&2' $from $PGBENCH
";

#[test]
fn a_container_uses_a_slow_disk_as_the_guide_says() {
    let Some(native) = Native::new() else { return };
    let block =
        block_of("slow-disk.md", "chronodisk serve").replace("/srv/slow", native.path("slow").to_str().unwrap());
    std::fs::write(native.path("pgbench.sh"), block_of("slow-disk.md", "# pgbench.sh")).unwrap();
    std::fs::create_dir(native.path("bin")).unwrap();
    let docker = native.path("bin/docker");
    std::fs::write(&docker, CONTAINER).unwrap();
    std::fs::set_permissions(&docker, Permissions::from_mode(0o755)).unwrap();
    symlink(env!("CARGO_BIN_EXE_chronodisk"), native.path("bin/chronodisk")).unwrap();
    let path = format!("{}:{}", native.path("bin").display(), std::env::var("PATH").unwrap());
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &block]).env("PATH", path).env("XDG_STATE_HOME", native.path(""));
    shell.env("PGBENCH", native.path("pgbench.sh"));
    let output = shell.stdin(Stdio::null()).output().unwrap();
    let said = text(&output.stderr) + &text(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("number of transactions actually processed: 100/100"), "{said}");
    let result = native.run(&["show", "last", "--json"]);
    let result: Value = serde_json::from_slice(&result.stdout).unwrap();
    let writes = &result["reps"][0]["summary"]["by_op"]["write"];
    assert!(writes["requests"].as_u64().unwrap() >= 100, "{writes}");
    assert!(writes["service_time_us"]["p50"].as_f64().unwrap() >= 2_000.0, "{writes}");
}

#[test]
fn a_bare_device_is_set_up_and_a_setup_that_fails_or_is_killed_ends_the_run() {
    let Some(native) = Native::new() else { return };
    let setup = "dd if=/dev/urandom of=$CHRONODISK_DEVICE bs=64k count=160 conv=fsync status=none";
    let flags = ["-d", "constant-10ms", "--capacity", "10MiB", "--fs", "none", "--setup", setup];
    let result = native.mount(&flags, "dd if=$CHRONODISK_DEVICE of=/dev/null bs=4k count=10 iflag=direct");
    let rep = &result["reps"][0];
    assert!(times(rep, "setup").0 >= 20 * 10_000_000, "{rep}");
    let reads = &rep["summary"]["by_op"]["read"];
    assert!(reads["service_time_us"]["p50"].as_f64().unwrap() >= 10_000.0 * 0.999, "{reads}");
    native.verify();

    let begun = native.path("begun");
    let setup =
        format!("touch {}; while :; do dd if=/dev/zero of=/mnt/x bs=4k count=50 conv=fsync; done", begun.display());
    let flags = ["mount", "-d", "constant-1ms", "--capacity", "64MiB", "--setup", &setup, "--", "true"];
    let mut child = native.command(&flags).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let give_up = Instant::now() + Duration::from_secs(60);
    while !begun.exists() && Instant::now() < give_up {
        sleep(Duration::from_millis(20));
    }
    // SAFETY: a number and a signal.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < give_up, "it did not end");
        sleep(Duration::from_millis(20));
    }
}

/// A loop device announces writes of zeroes with discards, or not at all: else the kernel's log has a line for each
/// that is refused.
#[test]
fn writes_of_zeroes_are_announced_where_the_device_discards() {
    let Some(native) = Native::new() else { return };
    for (device, capacity, announces) in [("first-disk", "64MiB", false), ("samsung-970-pro", "512MiB", true)] {
        let found = native.path(device);
        let script = "cat /sys/block/$(basename $CHRONODISK_DEVICE)/queue/write_zeroes_max_bytes >$FOUND
            fallocate --zero-range --offset 1048576 --length 1048576 $CHRONODISK_DEVICE
            cmp --bytes 1048576 --ignore-initial 1048576:0 $CHRONODISK_DEVICE /dev/zero";
        let words =
            ["mount", "-d", device, "--capacity", capacity, "--fs", "none", "--json", "--", "sh", "-ec", script];
        let output = native.command(&words).env("FOUND", &found).output().unwrap();
        assert!(output.status.success(), "{device}: {}", text(&output.stderr));
        let bytes: u64 = std::fs::read_to_string(&found).unwrap().trim().parse().unwrap();
        assert_eq!(bytes > 0, announces, "{device}: {bytes}");
        native.verify();
    }
}

#[test]
fn repetitions_say_how_long_is_left() {
    let Some(native) = Native::new() else { return };
    let output = native.run(&["mount", "-d", "null", "--capacity", "16MiB", "--reps", "3", "--", "true"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let of = |number: u32| said.lines().find(|line| line.contains(&format!("repetition {number} of 3"))).unwrap();
    assert!(!of(1).contains("left") && of(2).contains(", about ") && of(3).ends_with(" left"), "{said}");
}
