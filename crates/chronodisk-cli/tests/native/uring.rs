//! FUSE over io_uring, on a host whose kernel offers it. The tests never change the kernel's parameter.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::helpers::kill;
use super::{Native, our_loop_devices, text};

/// `None`, with a printed reason, where requests come as messages on `/dev/fuse`.
fn native() -> Option<Native> {
    let parameter = fs::read_to_string("/sys/module/fuse/parameters/enable_uring").unwrap_or_default();
    if parameter.trim() != "Y" {
        println!("SKIPPED: this host has no FUSE over io_uring (the parameter enable_uring of the module fuse)");
        return None;
    }
    if Command::new("fio").arg("--version").output().is_err() {
        println!("SKIPPED: no fio here");
        return None;
    }
    Native::new()
}

/// Writes and reads at random, 4 KiB to 256 KiB, with flushes between, verifies the contents, and then discards.
const VERIFIED: &str = "set -e
    fio --name=mixed --filename=$CHRONODISK_DEVICE --rw=randrw --bsrange=4k-256k --ioengine=libaio --iodepth=64 \\
        --direct=1 --size=64m --verify=crc32c --verify_fatal=1 --verify_state_save=0 --fsync=32 >&2
    dd if=/dev/urandom of=$CHRONODISK_DEVICE bs=1M count=4 oflag=direct,sync
    blkdiscard --offset 1M --length 2M $CHRONODISK_DEVICE
    cmp --bytes 2097152 --ignore-initial 1048576:0 $CHRONODISK_DEVICE /dev/zero
    ! cmp --bytes 1048576 $CHRONODISK_DEVICE /dev/zero";

fn start(native: &Native, device: &str, script: &str) -> Child {
    let flags = ["mount", "-d", device, "--capacity", "512MiB", "--fs", "none", "--json", "--", "sh", "-c", script];
    native.command(&flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn what_is_written_through_two_rings_at_once_is_found_again() {
    let Some(native) = native() else { return };
    let runs = ["samsung-970-pro", "null"].map(|device| (device, start(&native, device, VERIFIED)));
    for (device, run) in runs {
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success(), "{device}: {}", text(&output.stderr));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rep = &result["reps"][0];
        assert_eq!(rep["native"]["attached_by"], "fuse-uring", "{device}");
        assert!(text(&output.stderr).contains("(by fuse-uring)"), "{}", text(&output.stderr));
        let by_op = &rep["summary"]["by_op"];
        assert!(by_op["discard"]["requests"].as_u64().unwrap() >= 1, "{by_op}");
        let flushes = rep["native"]["write_cache"] == json!("write back");
        assert_eq!(by_op["flush"]["requests"].as_u64().unwrap_or(0) > 0, flushes, "{device}: {by_op}");
        assert_eq!(rep["server"]["violations"].as_u64().unwrap_or(0), 0, "{rep}");
    }
    native.verify();
}

/// A file system with its journal, and several threads.
#[test]
fn a_file_system_is_whole_after_its_use_through_a_ring() {
    let Some(native) = native() else { return };
    let script = "set -e; cp -r /usr/include/linux /mnt/a; sync; cp -r /mnt/a /mnt/b
        umount /mnt; mount $CHRONODISK_DEVICE /mnt; diff -r /usr/include/linux /mnt/b; rm -r /mnt/a; fstrim /mnt";
    for file_system in ["ext4", "xfs"] {
        let flags = ["-d", "samsung-970-pro", "--capacity", "1GiB", "--fs", file_system];
        let result = native.mount(&flags, script);
        assert_eq!(result["reps"][0]["native"]["attached_by"], "fuse-uring");
    }
    native.verify();
}

#[test]
fn a_kill_with_many_requests_outstanding_leaves_nothing() {
    let Some(native) = native() else { return };
    let before = our_loop_devices().len();
    for round in 0..4 {
        let mark = native.path(&format!("mark-{round}"));
        let script = format!(
            ": >{}; exec fio --name=x --filename=$CHRONODISK_DEVICE \
             --rw=randrw --bs=64k --ioengine=libaio --iodepth=128 --direct=1 --time_based --runtime=60 --size=64m",
            mark.display()
        );
        let mut run = start(&native, if round % 2 == 0 { "constant-10ms" } else { "null" }, &script);
        let give_up = Instant::now() + Duration::from_secs(60);
        while !mark.exists() {
            assert!(Instant::now() < give_up, "it does not begin");
            sleep(Duration::from_millis(10));
        }
        sleep(Duration::from_millis(700));
        kill(run.id());
        run.wait().unwrap();
        while our_loop_devices().len() > before {
            assert!(Instant::now() < give_up, "round {round}: {:?} is left", our_loop_devices());
            sleep(Duration::from_millis(20));
        }
    }
}
