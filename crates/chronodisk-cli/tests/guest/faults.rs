//! Faults of a device as a guest's program meets them. No fault begins at an instant: guests take different times to
//! boot.

use serde_json::Value;

use super::support::{Chronodisk, text};

/// The result of a run whose program ended with this status.
fn run(chronodisk: &Chronodisk, name: &str, fault: &str, flags: &[&str], script: &str, status: i32) -> (Value, String) {
    let directory = chronodisk.path(name);
    let directory = directory.to_str().unwrap();
    let common = ["--capacity", "64MiB", "--memory", "128MiB", "--fault", fault, "--json", "-o", directory];
    let output = chronodisk.run("constant-100us", &[&common, flags].concat(), &["sh", "-c", script]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    let verified = chronodisk.command(&["verify", directory]).output().unwrap();
    assert!(verified.status.success(), "{}", text(&verified.stderr));
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

#[test]
fn a_bad_sector_is_an_error_for_a_program_until_it_is_rewritten() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let script = "part='bs=4k count=1'; read='if=/dev/vda of=/tmp/got skip=256 iflag=direct'
        dd $part $read && exit 11
        test -s /tmp/got && exit 12
        yes | dd of=/dev/vda $part seek=256 oflag=direct iflag=fullblock || exit 13
        dd $part $read && yes | head -c 4096 | cmp - /tmp/got";
    let fault = "kind=latent,offset=1MiB,length=8KiB";
    let (result, said) = run(&chronodisk, "latent", fault, &["--fs", "none"], script, 0);
    assert!(said.contains("Input/output error"), "{said}");
    let summary = &result["reps"][0]["summary"];
    let failed = summary["failed"].as_u64().unwrap();
    assert!(failed >= 1 && summary["failed_by_status"]["media-error"] == failed, "{summary}");
    assert_eq!(result["device"]["faults"][0], fault);
}

#[test]
fn a_run_on_a_device_that_dies_ends_with_the_programs_status() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    // After the file system was made, and in the middle of the file.
    let script = "dd if=/dev/zero of=/mnt/file bs=1M count=40 conv=fsync; echo \"dd: $?\" >&2; touch /mnt/b; sync /mnt/b || exit 21";
    let (result, said) = run(&chronodisk, "death", "kind=death,after-written=24MiB", &[], script, 21);
    assert!(said.contains("Input/output error") && said.contains("dd: 1"), "{said}");
    assert!(said.contains("of the device's requests failed"), "{said}");
    let summary = &result["reps"][0]["summary"];
    assert!(summary["failed_by_status"]["aborted"].as_u64().unwrap() >= 1, "{summary}");
}
