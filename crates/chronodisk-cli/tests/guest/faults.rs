//! Faults of a device as a guest's program meets them. No fault begins at an instant: guests take different times to
//! boot.

use std::fs;

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

#[test]
fn an_array_with_a_spare_survives_two_deaths() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let member = |name: &str, further: &str| {
        let text = format!(
            "name = '{name}'\nkind = 'constant'\ndescription = 'a member'\nsource = 'a test'\n\
             validation = 'unvalidated'\ncapacity = '64 MiB'\ntime = '100 us'\n\
             {further}"
        );
        fs::write(chronodisk.path(&format!("{name}.toml")), text).unwrap();
    };
    member("good", "");
    member("first", "[[faults]]\nkind = 'death'\nafter-written = '8 MiB'\n");
    member("second", "[[faults]]\nkind = 'death'\nafter-written = '24 MiB'\n");
    let array = chronodisk.path("array.toml");
    fs::write(
        &array,
        "name = 'array'\nkind = 'array'\ndescription = 'three members'\nsource = 'a test'\nvalidation = 'unvalidated'\n\
         level = 'raid5'\nchunk = '64 KiB'\nmembers = ['first.toml', 'second.toml', 'good.toml']\nspares = ['good.toml']\n",
    )
    .unwrap();
    // The rebuild ends while the array is idle.
    let script = "cd /mnt; head -c 30000000 /dev/urandom >a; sync; sleep 100; cp a b; sync; cmp a b && dd if=a iflag=direct \
        bs=1M 2>/dev/null | cmp - b && touch c && sync c";
    let folder = chronodisk.path("array");
    let folder = folder.to_str().unwrap();
    let flags = ["--memory", "128MiB", "--json", "-o", folder];
    let output = chronodisk.run(array.to_str().unwrap(), &flags, &["sh", "-c", script]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rep = &result["reps"][0];
    let statistics = &rep["model_statistics"];
    assert_eq!((&statistics["rebuilds"], &statistics["dropped-members"]), (&1.0.into(), &2.0.into()), "{statistics}");
    assert_eq!(rep["summary"]["failed"], 0, "{said}");
    let verified = chronodisk.command(&["verify", folder]).output().unwrap();
    assert!(verified.status.success(), "{}", text(&verified.stderr));
}
