//! The command's root on the device: its own files cost device time, and everything else is as without.

use serde_json::Value;

use super::support::{Chronodisk, text};

/// Requests and bytes of an operation while the command ran.
fn counted(result: &Value, operation: &str) -> (u64, u64) {
    let of = &result["reps"][0]["summary"]["by_op"][operation];
    (of["requests"].as_u64().unwrap_or(0), of["bytes"].as_u64().unwrap_or(0))
}

fn number(result: &Value, name: &str) -> u64 {
    result["reps"][0][name].as_u64().unwrap()
}

fn programs_are_read_from(file_system: &str, further: &[&str]) {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let input = chronodisk.path("input");
    std::fs::write(&input, vec![b'x'; 3 << 20]).unwrap();
    let count = ["wc", "-l", input.to_str().unwrap()];
    let run = |root: &str| {
        let flags = ["--fs", file_system, "--capacity", "1GiB", "--check", "--root", root];
        chronodisk.run_json("constant-1ms", &[&flags, further].concat(), &count)
    };
    let (host, device) = (run("host"), run("device"));
    // The input, and the loaded parts of the program, its loader and its C library.
    assert_eq!(counted(&host, "read").0, 0, "{host}");
    let (reads, bytes) = counted(&device, "read");
    assert!(bytes > (3 << 20) + 100_000, "{bytes} bytes in {reads} reads");
    // The copying came before: a log that is committed and times of access are all that may be written.
    let (_, written) = counted(&device, "write");
    assert!(written < 1 << 20, "{written} bytes");
    // A millisecond each, as far as the kernel does not read ahead.
    assert!(number(&device, "run_time_ns") > 5_000_000 + number(&host, "run_time_ns"), "{device}");
    let untimed = [&host, &device].map(|result| number(result, "untimed_read_bytes"));
    // A busy launcher counts from the command's begin on, and may miss the loading of the program.
    assert!(untimed[0] >= 3 << 20 && untimed[1] < 1 << 20, "{untimed:?} bytes");
}

#[test]
fn a_program_is_read_from_ext4() {
    programs_are_read_from("ext4", &[]);
}

#[test]
fn a_program_is_read_from_ext3() {
    programs_are_read_from("ext3", &[]);
}

#[test]
fn a_program_is_read_from_ext2() {
    programs_are_read_from("ext2", &[]);
}

#[test]
fn a_program_is_read_from_xfs() {
    programs_are_read_from("xfs", &[]);
}

#[test]
fn a_program_is_read_from_btrfs() {
    programs_are_read_from("btrfs", &[]);
}

#[test]
fn a_program_is_read_on_the_exact_clock() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    if !chronodisk.command(&["kernel", "path"]).output().unwrap().status.success() {
        println!("SKIPPED: nobody has built the kernel of the exact clock here");
        return;
    }
    programs_are_read_from("ext4", &["--clock", "exact"]);
}

#[test]
fn listed_files_are_on_the_device_and_writes_go_there() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let folder = chronodisk.path("listed");
    std::fs::create_dir_all(folder.join("deep")).unwrap();
    for name in ["one", "deep/two"] {
        std::fs::write(folder.join(name), vec![b'y'; 1 << 20]).unwrap();
    }
    std::os::unix::fs::symlink("deep/two", folder.join("link")).unwrap();
    let (folder, home) = (folder.to_str().unwrap(), chronodisk.results.path().to_str().unwrap());
    let script = format!(
        "set -e
        pwd
        cat {folder}/* {folder}/deep/* 2>/dev/null | wc -c
        readlink {folder}/link
        touch /mnt/mine; ls /mnt
        head -c 5000000 /dev/zero >{home}/written
        sync {home}/written
        test -c /dev/null -a -d /proc/self -a -d /sys/block/vda
        exit 9"
    );
    let arguments = ["run", "--device", "null", "--capacity", "1GiB", "--root", "device", "--root-files", folder];
    let output = chronodisk.path("result");
    let output_given = ["--output", output.to_str().unwrap(), "--check", "--", "sh", "-c", &script];
    let ran = chronodisk.command(&[&arguments[..], &output_given].concat()).current_dir(home).output().unwrap();
    assert_eq!(ran.status.code(), Some(9), "{}", text(&ran.stderr));
    // `*` names two files and a folder, which cat does not read.
    assert_eq!(text(&ran.stdout), format!("{home}\n{}\ndeep/two\nmine\n", 3 << 20), "{}", text(&ran.stderr));
    assert!(!chronodisk.path("written").exists());
    let result: Value = serde_json::from_slice(&std::fs::read(output.join("result.json")).unwrap()).unwrap();
    assert!(counted(&result, "read").1 > 2 << 20, "{result}");
    assert!(counted(&result, "write").1 > 5_000_000, "{result}");
    assert_eq!((&result["options"]["root"], &result["options"]["root_files"][0]), (&"device".into(), &folder.into()));
}

#[test]
fn what_can_not_be_had_with_it_is_refused() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let cases: [(&[&str], i32, &str); 6] = [
        (&["--root", "device", "--fs", "none"], 2, "--root device needs a file system"),
        (&["--root", "device", "--host-writes"], 2, "--root device can't be used with --host-writes"),
        (&["--root", "device", "--squash"], 2, "--root device can't be used with --squash"),
        (&["--root", "device", "--root-files", "/no/such/file"], 2, "--root-files /no/such/file"),
        (&["--root-files", "/etc/passwd"], 2, "--root-files needs --root device"),
        (&["--root", "device", "--root-files", "/usr/bin", "--capacity", "32MiB"], 3, "putting /usr/bin on the device"),
    ];
    for (flags, status, message) in cases {
        let output = chronodisk.run("null", flags, &["true"]);
        assert_eq!(output.status.code(), Some(status), "{flags:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(message), "{flags:?}: {}", text(&output.stderr));
    }
    let missing = chronodisk.run("null", &["--root", "device", "--capacity", "1GiB"], &["no-such-program"]);
    assert_eq!(missing.status.code(), Some(127), "{}", text(&missing.stderr));
}
