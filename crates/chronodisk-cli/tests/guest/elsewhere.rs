//! Guests whose devices are elsewhere, or several.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::support::{Chronodisk, is_root, processes_with, text};

fn python_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python")
}

/// Whether Python can run a model; says so if it can't.
fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        println!("SKIPPED: no python3 in PATH (Debian: apt-get install python3)");
    }
    found
}

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(chronodisk: &Chronodisk, listen: &str) -> Self {
        let mut child = chronodisk
            .command(&["emulator-server", "--listen", listen, "--device", "first-disk"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("emulator server at ").unwrap_or_else(|| panic!("{line}")).to_owned();
        Server { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn model_and_bytes_at_a_server() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let server = Server::start(&chronodisk, "0");
    let script = "tar -C /usr/include -cf /mnt/t.tar linux && echo 3 > /proc/sys/vm/drop_caches; \
                  tar -C /usr/include -cf - linux | cmp - /mnt/t.tar";
    let flags = ["--server", &server.address, "--capacity", "256MiB", "--check", "--json"];
    let arguments = [&["run"], &flags[..], &["--", "sh", "-c", script]].concat();
    let output = chronodisk.command(&arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(run["device"]["profile"], "first-disk");
    let statistics = &run["reps"][0]["model_statistics"];
    let number = |name: &str| statistics[name].as_f64().unwrap_or_else(|| panic!("{name} in {statistics}"));
    assert!(number("remote-requests") > 0.0);
    assert!(number("remote-rollbacks") <= number("remote-requests"));
    // The server's device and the profile here are one.
    let verified = chronodisk.command(&["verify", "last"]).output().unwrap();
    assert!(verified.status.success(), "{}", text(&verified.stdout));
}

#[test]
fn a_server_that_is_restarted_ends_the_guest_with_a_sentence() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let mut server = Server::start(&chronodisk, "0");
    let mark = format!("chronodisk-test-restart-{}", std::process::id());
    let script = "echo begun; while :; do dd if=/dev/zero of=/mnt/f bs=4k count=8 conv=fsync 2>/dev/null; done";
    let mut child = chronodisk
        .command(&["run", "--server", &server.address, "--capacity", "64MiB", "--", "sh", "-c", script])
        .env("CHRONODISK_TEST_MARK", &mark)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut begun = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut begun).unwrap();
    assert_eq!(begun, "begun\n");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "the guest waits for the server");
    let _again = Server::start(&chronodisk, &server.address.clone());
    let output = child.wait_with_output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("the guest stands still"), "{stderr}");
    assert!(stderr.contains("it was restarted and has lost this run's device and bytes"), "{stderr}");
    assert!(processes_with(&mark).is_empty(), "something is left of the run");
}

#[test]
fn postmark_on_a_python_disk_is_the_same_as_on_its_twin() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    if !has_python() {
        return;
    }
    let examples = python_folder().join("examples");
    let job = "set location /mnt\\nset number 40\\nset transactions 80\\nset size 500 20000\\nrun\\nquit\\n";
    let script = format!("printf '{job}' | postmark > /dev/null && sync");
    let device = format!("exec:{}", examples.join("one_platter.py").display());
    let output = chronodisk
        .command(&["run", "--device", &device, "--capacity", "256MiB", "--", "sh", "-c", &script])
        .env("PYTHONPATH", python_folder())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let twin = examples.join("one-platter.toml");
    let verified = chronodisk.command(&["verify", "last", "--device", twin.to_str().unwrap()]).output().unwrap();
    assert!(verified.status.success(), "{}{}", text(&verified.stdout), text(&verified.stderr));
}

#[test]
fn the_guest_does_not_notice_a_model_that_thinks_for_long() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    if !has_python() {
        return;
    }
    let device = format!("exec:{}", python_folder().join("examples/slow_fixed.py").display());
    let read = ["dd", "if=/dev/vda", "of=/dev/null", "bs=4k", "count=20", "iflag=direct"];
    let arguments = [&["run", "--device", &device, "--fs", "none", "--json", "--"], &read[..]].concat();
    let output = chronodisk
        .command(&arguments)
        .env("PYTHONPATH", python_folder())
        .env("SLOW_FIXED_THINK_MS", "30")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let summary = &run["reps"][0]["summary"];
    assert_eq!(summary["service_time_us"]["max"], 1000.0, "{summary}");
    // Twenty reads of 1 ms each; on the host they took 600 ms and more.
    let run_time_ms = run["reps"][0]["run_time_ns"].as_f64().unwrap() / 1e6;
    assert!((20.0..200.0).contains(&run_time_ms), "{run_time_ms} ms");
}

#[test]
fn a_model_that_dies_ends_the_guest_with_a_sentence() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    if !has_python() {
        return;
    }
    let script = chronodisk.path("dies.py");
    let body = "from chronodisk.model import *\nimport os\nclass Dies(QueueModel):\n    \
                device = Device(name='dies', capacity_sectors=1 << 18)\n    def end(self, request, start):\n        \
                if request.op is Op.WRITE: os._exit(9)\n        return start + 1000\nserve(Dies)\n";
    std::fs::write(&script, body).unwrap();
    let device = format!("exec:python3 {}", script.display());
    let output = chronodisk
        .command(&["run", "--device", &device, "--", "true"])
        .env("PYTHONPATH", python_folder())
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("the program ended (exit status 9); the guest was ended"), "{stderr}");
    assert!(processes_with("dies.py").is_empty(), "the model is left");
}

/// Runs on two devices, and returns the result, whose log must replay identically.
fn run_on_two(chronodisk: &Chronodisk, flags: &[&str], script: &str) -> serde_json::Value {
    let devices = ["run", "--device", "constant-1ms", "--device", "constant-50us", "--capacity", "256MiB", "--json"];
    let arguments = [&devices[..], flags, &["--", "sh", "-c", script]].concat();
    let output = chronodisk.command(&arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let verified = chronodisk.command(&["verify", "last"]).output().unwrap();
    assert!(verified.status.success(), "{}", text(&verified.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn two_devices_each_with_its_own_timing_and_bytes() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let script = "set -e
        printf one | dd of=/dev/vda bs=4k conv=sync,fsync 2>/dev/null
        printf two | dd of=/dev/vdb bs=4k conv=sync,fsync 2>/dev/null
        test \"$(dd if=/dev/vda bs=3 count=1 2>/dev/null)\" = one
        test \"$(dd if=/dev/vdb bs=3 count=1 2>/dev/null)\" = two
        for i in 1 2 3 4; do
            dd if=/dev/vda of=/dev/null bs=4k count=50 skip=50 iflag=direct 2>/dev/null &
            dd if=/dev/vdb of=/dev/null bs=4k count=50 skip=50 iflag=direct 2>/dev/null &
        done
        wait";
    let run = run_on_two(&chronodisk, &["--fs", "none"], script);
    assert_eq!(run["further_devices"][0]["profile"], "constant-50us");
    let summary = &run["reps"][0]["summary"];
    assert_eq!(summary["service_time_us"]["max"], 1000.0, "{summary}");
    assert_eq!(summary["service_time_us"]["min"].as_f64().unwrap_or(50.0), 50.0, "{summary}");
}

#[test]
fn btrfs_mirrors_over_two_devices() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let flags = [
        "--fs",
        "btrfs",
        "--mkfs-options",
        "-m raid1 -d raid1 /dev/vdb",
        "--mount-options",
        "device=/dev/vdb",
        "--check",
    ];
    let script =
        "cp /usr/bin/env /mnt && sync && cmp /usr/bin/env /mnt/env && btrfs filesystem df /mnt | grep -q RAID1";
    run_on_two(&chronodisk, &flags, script);
}

#[test]
fn the_guests_own_md_raid_over_two_devices() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    if !Path::new("/sbin/mdadm").exists() {
        println!("SKIPPED: no mdadm (Debian: apt-get install mdadm)");
        return;
    }
    if !is_root() {
        return;
    }
    let script = "set -e
        mdadm --create /dev/md0 --run --level=1 --raid-devices=2 --metadata=1.2 --assume-clean /dev/vda /dev/vdb
        mkfs.ext4 -q /dev/md0
        mount /dev/md0 /mnt
        cp /usr/bin/env /mnt
        umount /mnt
        mdadm --stop /dev/md0
        mdadm --assemble /dev/md0 /dev/vda /dev/vdb
        mount -o ro /dev/md0 /mnt
        cmp /usr/bin/env /mnt/env
        umount /mnt
        mdadm --stop /dev/md0";
    run_on_two(&chronodisk, &["--fs", "none"], script);
}
