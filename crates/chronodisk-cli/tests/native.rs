//! `chronodisk mount` and `serve --attach` from outside. They need root, FUSE and loop devices.

#[macro_use(assert_eq)]
extern crate pretty_assertions;

#[path = "common/command.rs"]
mod command;
#[path = "common/default_signals.rs"]
mod default_signals;
#[path = "native/endings.rs"]
mod endings;
#[path = "common/helpers.rs"]
mod helpers;
#[allow(dead_code, reason = "tests/guest.rs uses the rest")]
#[path = "common/pages.rs"]
mod pages;
#[path = "native/setup.rs"]
mod setup;
#[path = "native/uring.rs"]
mod uring;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use command::{chronodisk, succeeds, text};

/// The command, with a folder for its results that goes away with the test.
struct Native(tempfile::TempDir);

impl Native {
    /// Where no native device can be made, prints that and returns `None`.
    fn new() -> Option<Self> {
        let missing = ["/dev/fuse", "/dev/loop-control"].into_iter().find(|path| !Path::new(path).exists());
        if let Some(missing) = missing {
            println!("SKIPPED: this host has no {missing}");
            return None;
        }
        let permitted = Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
        if !permitted.is_ok_and(|status| status.success()) {
            println!("SKIPPED: native devices need root");
            return None;
        }
        Some(Native(tempfile::tempdir().unwrap()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A loop device also where the host has ublk, whose tests are in `tests/ublk.rs`.
    fn command(&self, arguments: &[&str]) -> Command {
        let (first, rest) = arguments.split_first().expect("a subcommand");
        let fuse = (*first == "mount").then_some("--attach=fuse");
        let arguments: Vec<&str> = std::iter::once(*first).chain(fuse).chain(rest.iter().copied()).collect();
        let mut command = chronodisk(&arguments);
        command.env("XDG_STATE_HOME", self.0.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// `chronodisk mount FLAGS --json -- sh -c SCRIPT`, which must succeed; returns the result.
    fn mount(&self, flags: &[&str], script: &str) -> Value {
        let output = succeeds(&mut self.command(&[&["mount"], flags, &["--json", "--", "sh", "-c", script]].concat()));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Replays the last run, which must be identical.
    fn verify(&self) {
        let output = self.run(&["verify", "last"]);
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    }
}

/// Loop devices of emulated devices: their file is a whole file system.
fn our_loop_devices() -> BTreeSet<String> {
    let entries = fs::read_dir("/sys/block").unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let ours = |name: &String| {
        let backing = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
        backing.is_ok_and(|path| path.trim() == "/")
    };
    names.filter(ours).collect()
}

#[test]
fn a_program_finds_a_file_system_and_its_device_alone_and_leaves_nothing() {
    let Some(native) = Native::new() else { return };
    let script = "set -e; test -b $CHRONODISK_DEVICE; grep -q \"$CHRONODISK_DEVICE /mnt ext4\" /proc/mounts
        dd if=/dev/zero of=/mnt/file bs=4k count=50 oflag=direct
        grep \"$CHRONODISK_DEVICE\" /proc/1/mounts >&2 && exit 9; exit 0";
    let result = native.mount(&["-d", "constant-100us", "--capacity", "64MiB"], script);
    let rep = &result["reps"][0];
    assert!(rep["summary"]["by_op"]["write"]["requests"].as_u64().unwrap() >= 50, "{rep}");
    let block_device = rep["native"]["block_device"].as_str().unwrap();
    assert!(block_device.starts_with("/dev/loop"), "{block_device}");
    assert_eq!((&rep["native"]["read_ahead_kib"], &rep["native"]["scheduler"]), (&json!(128), &json!("none")));
    // It has no volatile cache, so the kernel sends no flushes.
    assert_eq!((&rep["native"]["write_cache"], &rep["native"]["discard"]), (&json!("write through"), &json!(true)));
    assert_eq!((&result["clock"]["driver"], &result["guest"]["file_system"]), (&json!("real"), &json!("ext4")));
    assert!(rep["native"]["late_ns"].as_u64().unwrap() <= rep["run_time_ns"].as_u64().unwrap(), "{rep}");
    let phases: Vec<&str> = rep["phases"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(phases, ["mkfs", "mount", "command", "unmount"]);
    assert_eq!(rep["native"]["processors_awake"].as_bool(), Some(Path::new("/dev/cpu_dma_latency").exists()));
    native.verify();
}

#[test]
fn the_device_has_the_capacity_the_queue_and_the_speed_that_were_asked_for() {
    let Some(native) = Native::new() else { return };
    let script = "set -e; name=$(basename $CHRONODISK_DEVICE); cat /sys/block/$name/size >$SIZE
        dd if=$CHRONODISK_DEVICE of=/dev/null bs=4k count=20 iflag=direct";
    let size = native.path("size");
    let flags = ["-d", "constant-10ms", "--device-speed", "4x", "--capacity", "5MiB", "--fs", "none"];
    let mut command = native.command(&[&["mount"], &flags[..], &["--json", "--", "sh", "-c", script]].concat());
    let output = command.env("SIZE", &size).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&size).unwrap().trim(), (5 << 11).to_string());
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&result["device"]["speed"], &result["options"]["device_speed"]), (&json!(4.0), &json!(4.0)));
    let reads = &result["reps"][0]["summary"]["by_op"]["read"];
    assert_eq!((&reads["requests"], &reads["service_time_us"]["p50"]), (&json!(20), &json!(2_500.0)));
    native.verify();
}

#[test]
fn a_program_that_needs_all_processors_gets_them_while_its_requests_take_their_time() {
    let Some(native) = Native::new() else { return };
    let script = "for number in $(seq $(($(nproc) * 2))); do while :; do :; done & done
        dd if=$CHRONODISK_DEVICE of=/dev/null bs=4k count=400 iflag=direct; status=$?; kill $(jobs -p); exit $status";
    let result = native.mount(&["-d", "constant-1ms", "--capacity", "16MiB", "--fs", "none"], script);
    let server = &result["reps"][0]["server"];
    let of = |figure: &str| server[figure].as_u64().unwrap();
    // A millisecond each; the last part of it is spun through on any host, and twice the time between two looks.
    let spun_ns = of("spinning_ns").saturating_sub(of("stolen_ns"));
    assert!(spun_ns < 400 * 600_000, "{server}");
}

#[test]
fn a_device_that_is_served_read_only_can_be_read_and_not_written() {
    let Some(native) = Native::new() else { return };
    let script = "dd if=$device of=/dev/null bs=64k count=16 && ! dd if=/dev/zero of=$device bs=4k count=1";
    let flags = ["serve", "-d", "null", "--capacity", "16MiB", "--attach", "fuse", "--read-only", "--run", script];
    let output = native.run(&flags);
    assert!(output.status.success(), "{}", text(&output.stderr));
    native.verify();
}

#[test]
fn what_a_program_mounts_below_its_file_system_goes_with_it() {
    let Some(native) = Native::new() else { return };
    let script = "set -e; mkdir /mnt/a /mnt/b; mount --bind /mnt/a /mnt/b; mount -t tmpfs none /mnt/a; : >/mnt/b/file";
    native.mount(&["-d", "null", "--capacity", "16MiB"], script);
    native.verify();
}

/// Like a disk with one user: when it closes the disk, the kernel writes the page cache and empties it.
#[test]
fn what_a_program_leaves_in_the_page_cache_is_written_when_it_closes_the_device() {
    let Some(native) = Native::new() else { return };
    let script = "set -e; cd /sys/block/$(basename $CHRONODISK_DEVICE)
        dd if=/dev/urandom of=$CHRONODISK_DEVICE bs=64k count=16; cat stat >$STAT
        dd if=$CHRONODISK_DEVICE of=/dev/null bs=64k count=16; dd if=$CHRONODISK_DEVICE of=/dev/null bs=64k count=16";
    let stat = native.path("stat");
    let flags = ["mount", "-d", "constant-1ms", "--capacity", "16MiB", "--fs", "none", "--json"];
    let output = native.command(&[&flags[..], &["--", "sh", "-c", script]].concat()).env("STAT", &stat).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Sectors written; Documentation/block/stat.rst.
    let written = fs::read_to_string(&stat).unwrap().split_whitespace().nth(6).map(str::to_owned);
    assert_eq!(written.as_deref(), Some("2048"));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let by_op = &result["reps"][0]["summary"]["by_op"];
    assert_eq!(by_op["write"]["bytes"], json!(1 << 20), "{by_op}");
    assert!(by_op["read"]["bytes"].as_u64().unwrap() >= 2 << 20, "{by_op}");
    native.verify();
}

#[test]
fn what_setup_wrote_is_there_and_comes_from_the_device() {
    let Some(native) = Native::new() else { return };
    let setup = "dd if=/dev/urandom of=/mnt/file bs=1M count=4 status=none; cp /mnt/file $COPY";
    let copy = native.path("copy");
    let flags = ["-d", "null", "--capacity", "64MiB", "--setup", setup, "--reps", "2"];
    let words = [&["mount"], &flags[..], &["--json", "--", "sh", "-c", "cmp /mnt/file $COPY"]].concat();
    let output = native.command(&words).env("COPY", &copy).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let reps = result["reps"].as_array().unwrap();
    assert_eq!(reps.len(), 2);
    for rep in reps {
        assert!(rep["summary"]["by_op"]["read"]["bytes"].as_u64().unwrap() >= 4 << 20, "{rep}");
    }
    native.verify();
}

#[test]
fn statuses_are_those_of_the_command_or_say_what_is_wrong() {
    let Some(native) = Native::new() else { return };
    let status = |arguments: &[&str]| {
        let output = native.run(&[&["mount", "-d", "null", "--capacity", "16MiB"], arguments].concat());
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(status(&["--", "sh", "-c", "exit 7"]).0, Some(7));
    assert_eq!(status(&["--", "sh", "-c", "kill -9 $$"]).0, Some(137));
    assert_eq!(status(&["--", "no-such-program"]).0, Some(127));
    let refused = [
        (["--mount", "/no/such/directory"], 2, "expected the absolute path of a directory"),
        (["--fs", "existing"], 2, "invalid value"),
        (["--device-speed", "0x"], 2, "expected 0.001x to 1000x"),
        (["--mkfs-options", "-no-such-option"], 3, "mkfs.ext4 failed"),
        (["--setup", "exit 4"], 3, "--setup failed with exit status 4"),
        (["--scheduler", "no-such"], 3, "no-such"),
    ];
    for (flags, code, words) in refused {
        let (status, said) = status(&[&flags[..], &["--", "touch", "/mnt/begun"]].concat());
        assert_eq!(status, Some(code), "{flags:?}: {said}");
        assert!(said.contains(words), "{flags:?}: {said}");
    }
    // A run that never began leaves no result.
    let runs = native.path("chronodisk/runs");
    let left: Vec<_> = fs::read_dir(&runs).unwrap().flatten().map(|entry| entry.path()).collect();
    let whole = left.iter().filter(|path| path.is_dir()).all(|path| path.join("result.json").exists());
    assert!(whole, "{left:?}");
}

#[test]
fn without_privilege_the_remedy_is_named() {
    let Some(native) = Native::new() else { return };
    let folder = native.0.path();
    fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    // Where the executable is, not everybody may look.
    let executable = native.path("chronodisk-copy");
    command::copy_to(&executable);
    let mut command = Command::new(&executable);
    command.args(["mount", "-d", "null", "--", "true"]).env("XDG_STATE_HOME", folder).current_dir(folder);
    let output = command.uid(65_534).gid(65_534).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("CAP_SYS_ADMIN") && said.contains("chronodisk run"), "{said}");
}

#[test]
fn a_served_device_is_a_block_device_for_the_program_of_run() {
    let Some(native) = Native::new() else { return };
    let script = "set -e; test -b $device; printf chronodisk | dd of=$device conv=notrunc,fsync status=none
        dd if=$device bs=10 count=1 status=none; mkfs.ext4 -q $device";
    let flags = ["serve", "-d", "constant-50us", "--capacity", "32MiB", "--attach", "fuse", "--json", "--run", script];
    let output = native.run(&flags);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("chronodisk"), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let address = result["reps"][0]["server"]["addresses"][0].as_str().unwrap();
    assert!(address.starts_with("/dev/loop"), "{address}");
    assert!(result["reps"][0]["summary"]["by_op"]["write"]["requests"].as_u64().unwrap() > 0);
    assert_eq!(result["options"]["attach"], "fuse");
    native.verify();
}

#[test]
fn failed_requests_are_reported_by_status() {
    let Some(native) = Native::new() else { return };
    let script = "dd if=$CHRONODISK_DEVICE of=/dev/null bs=4k count=1 skip=256 iflag=direct && exit 9; exit 0";
    let flags = ["mount", "-d", "null", "--capacity", "16MiB", "--fs", "none", "--fault"];
    let words = [&flags[..], &["kind=latent,offset=1MiB,length=8KiB", "--json", "--", "sh", "-c", script]].concat();
    let output = native.run(&words);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let failed = &result["reps"][0]["summary"]["failed"];
    assert!(failed.as_u64().unwrap() >= 1, "{result}");
    assert!(said.contains(&format!("{failed} of the device's requests failed: {failed} media-error\n")), "{said}");
    let flawless = native.run(&[&flags[..7], &["--", "true"]].concat());
    assert!(!text(&flawless.stderr).contains("requests failed"), "{}", text(&flawless.stderr));
}
