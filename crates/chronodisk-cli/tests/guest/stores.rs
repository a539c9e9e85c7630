//! The content of a store outlives runs, and no loss is silent.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::support::{Chronodisk, text};

/// `run` with a store of 64 MiB.
fn run(chronodisk: &Chronodisk, store: &Path, flags: &[&str], script: &str) -> Output {
    let store = ["--capacity", "64MiB", "--store", store.to_str().unwrap()];
    chronodisk.run("null", &[&store[..], flags].concat(), &["sh", "-c", script])
}

fn refused(output: &Output, sentence: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(sentence), "{stderr}");
    assert!(output.stdout.is_empty(), "the command ran: {}", text(&output.stdout));
}

#[test]
fn an_existing_file_system_is_mounted_and_never_replaced_by_chance() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    for (made, other, squash) in [("ext2", "ext4", None), ("ext4", "ext3", Some("--squash=exact"))] {
        let store = chronodisk.path(made);
        let squash: Vec<&str> = squash.into_iter().collect();
        let with =
            |flags: &[&'static str], script: &str| run(&chronodisk, &store, &[&squash[..], flags].concat(), script);

        let missing = with(&["--fs", "existing"], "true");
        refused(&missing, "--fs existing: there is no");

        let output = with(&["--fs", made], "echo kept > /mnt/file; chown 1234 /mnt; chmod 750 /mnt");
        assert!(output.status.success(), "{}", text(&output.stderr));

        let output = with(&["--fs", "existing", "--json"], "cat /mnt/file /proc/mounts >&2; stat -c %u:%a /mnt >&2");
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        assert!(stderr.starts_with("kept\n") && stderr.contains(&format!(" /mnt {made} ")), "{stderr}");
        assert!(stderr.contains("1234:750"), "the root folder has another owner now: {stderr}");
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&result["guest"]["file_system"], &result["ended_by"]), (&made.into(), &"command".into()));

        let again = with(&["--fs", other], "echo ran");
        refused(&again, &format!("holds a file system ({made}); mount it with --fs existing, or replace it"));
        let output = with(&["--fs", "existing"], "cat /mnt/file");
        assert_eq!(text(&output.stdout), "kept\n", "{}", text(&output.stderr));

        let output = with(&["--fs", other, "--overwrite", "--reps", "2"], "ls /mnt");
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(!text(&output.stdout).contains("file"), "{}", text(&output.stdout));
    }
}

#[test]
fn a_partition_table_and_unknown_bytes_are_something_too() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let store = chronodisk.path("disk");
    let mut bytes = vec![0; 64 << 20];
    for (at, mark, name) in
        [(512, &b"EFI PART"[..], "a partition table (GPT)"), (99_999, b"x", "bytes of no known kind")]
    {
        bytes[..128 << 10].fill(0);
        bytes[at..at + mark.len()].copy_from_slice(mark);
        std::fs::write(&store, &bytes).unwrap();
        refused(&run(&chronodisk, &store, &["--fs", "ext2"], "echo ran"), &format!("holds {name}"));
        refused(&run(&chronodisk, &store, &["--fs", "existing"], "echo ran"), &format!("holds {name}"));
        assert!(std::fs::read(&store).unwrap() == bytes, "it was written to");
    }
    std::fs::write(&store, vec![0; 64 << 20]).unwrap();
    refused(&run(&chronodisk, &store, &["--fs", "existing"], "echo ran"), "holds no file system");
    let output = run(&chronodisk, &store, &["--fs", "ext2"], "true");
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn flags_that_contradict_an_image_are_refused() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let image = chronodisk.path("image");
    let made = ["--squash", "--content", "text", "--seed", "7"];
    let output = run(&chronodisk, &image, &made, "yes | head -c 100000 > /mnt/file");
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (flags, what, instead) in [
        (&["--squash=exact"][..], "was made with --squash=classified", "type --squash=classified"),
        (&["--squash", "--content", "random"], "was made with --content text", "type --content text"),
        (&["--squash", "--seed", "8"], "was made with --seed 7", "type --seed 7"),
    ] {
        let output = run(&chronodisk, &image, &[flags, &["--fs", "existing"]].concat(), "echo ran");
        refused(&output, what);
        assert!(text(&output.stderr).contains(instead), "{}", text(&output.stderr));
    }
    let output = run(&chronodisk, &image, &["--squash", "--fs", "existing"], "wc -c < /mnt/file");
    assert_eq!(text(&output.stdout), "100000\n", "{}", text(&output.stderr));
}

#[test]
fn a_run_that_never_began_leaves_no_store() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    for squash in [&[][..], &["--squash=exact"]] {
        let store = chronodisk.path("store");
        let output = run(&chronodisk, &store, &[squash, &["--mount-options", "no-such-option"]].concat(), "true");
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        let left: Vec<_> = std::fs::read_dir(chronodisk.results.path()).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
        let output = run(&chronodisk, &store, squash, "true");
        assert!(output.status.success(), "{}", text(&output.stderr));
        for entry in std::fs::read_dir(chronodisk.results.path()).unwrap().flatten() {
            let _ = std::fs::remove_file(entry.path());
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A file system in memory that holds little; gone with this.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts the file system. Where this process may not mount one, prints that and returns `None`.
    fn new(path: PathBuf, size: &str) -> Option<Self> {
        std::fs::create_dir(&path).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "small"])
            .arg(&path)
            .stderr(Stdio::null())
            .status();
        if !mount.is_ok_and(|status| status.success()) {
            println!("SKIPPED: this user may mount no file system in memory");
            return None;
        }
        Some(SmallDisk(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_store_that_loses_bytes_ends_the_run_with_125() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let Some(disk) = SmallDisk::new(chronodisk.path("small"), "8m") else { return };
    for squash in [&[][..], &["--squash=exact"]] {
        let store = disk.0.join(format!("store{}", squash.len()));
        let script = "dd if=/dev/urandom of=/mnt/file bs=1M count=32 2> /dev/null; exit 0";
        let output = run(&chronodisk, &store, &[squash, &["--fs", "ext2", "--json"]].concat(), script);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        assert!(stderr.contains("of the device"), "{stderr}");
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["ended_by"], "chronodisk");
        assert!(result["failure"].as_str().unwrap().contains("of the device"), "{result}");
        let _ = std::fs::remove_file(&store);
    }
}

#[test]
fn a_full_disk_at_the_end_costs_the_result_and_not_the_summary() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let Some(disk) = SmallDisk::new(chronodisk.path("small"), "64k") else { return };
    std::fs::write(disk.0.join("full"), vec![1; 56 << 10]).unwrap();
    let directory = disk.0.join("run");
    let output = chronodisk.run("null", &["--output", directory.to_str().unwrap()], &["sh", "-c", "exit 4"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    let (summary, sentence) = (stderr.find("run time"), stderr.find("error:"));
    assert!(summary.is_some() && summary < sentence, "{stderr}");
    assert!(!directory.exists(), "{stderr}");
}

#[test]
fn a_directory_that_cannot_hold_the_result_is_refused_before_the_run() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    for (directory, status) in [("/proc/no-run", 3), ("/dev/null/run", 3), ("/dev/null", 2)] {
        let output = chronodisk.run("null", &["--output", directory], &["echo", "ran"]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        assert!(stderr.contains(directory) && output.stdout.is_empty(), "{stderr}");
    }
}

#[test]
fn json_on_a_full_disk_costs_no_summary() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output =
        chronodisk.command(&["run", "--device", "null", "--json", "--", "true"]).stdout(full).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("run time") && stderr.contains("can't write to standard output"), "{stderr}");
}

/// The slowest kernel that can be asked for still gets through its boot and a program.
#[test]
fn the_largest_kernel_scale_ends() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let output = chronodisk.run("null", &["--fs", "none", "--kernel-scale", "10"], &["true"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}
