//! Linux's arrays over devices of a guest with one failing member: its bad sectors are repaired, and a dead one is
//! replaced.

use std::path::Path;

use serde_json::Value;

use super::support::{Chronodisk, is_root, long, text};

/// Levels with their members. The third takes the way of the first two.
const ARRAYS: &[(&str, usize)] = &[("1", 2), ("5", 3), ("10", 3)];

fn arrays() -> &'static [(&'static str, usize)] {
    &ARRAYS[..if long() { 3 } else { 2 }]
}

/// Makes an array of level `$1` from the other devices, with a file of random bytes in ext4.
const ARRAY: &str = "
    level=$1; shift
    mdadm --quiet --create /dev/md0 --run --level=$level --raid-devices=$# --assume-clean $*
    mkfs.ext4 -q /dev/md0; mkdir -p /tmp/m; mount /dev/md0 /tmp/m
    dd if=/dev/urandom of=/tmp/m/file bs=1M count=20 conv=fsync 2>/dev/null
    dd if=/dev/zero of=/tmp/m/more bs=1M count=16 conv=fsync 2>/dev/null
    before=$(sha256sum </tmp/m/file)";

/// Compares the file with its state before, read from the devices.
const FILE_IS_WHOLE: &str = "
    echo 3 >/proc/sys/vm/drop_caches
    test \"$before\" = \"$(sha256sum </tmp/m/file)\"
    umount /tmp/m; mdadm --quiet --stop /dev/md0";

/// The command, if this host and user can have an array in a guest.
fn chronodisk() -> Option<Chronodisk> {
    if !Path::new("/sbin/mdadm").exists() {
        println!("SKIPPED: no mdadm (Debian: apt-get install mdadm)");
        return None;
    }
    if !is_root() {
        return None;
    }
    Chronodisk::new()
}

/// Runs the steps on four disks; the second one has this fault. Returns the result and the standard error.
fn run(chronodisk: &Chronodisk, level: &str, members: usize, fault: &str, steps: &str) -> (Value, String) {
    let folder = chronodisk.path(&format!("raid{level}"));
    let further = ["first-disk"; 3].map(|name| ["--device", name]).concat();
    let fault = format!("device=1,{fault}");
    let folder = folder.to_str().unwrap();
    let common = ["--capacity", "64MiB", "--fs", "none", "--fault", &fault, "--json", "-o", folder];
    let script = format!("set -e; {ARRAY}{steps}{FILE_IS_WHOLE}");
    let members = &["/dev/vda", "/dev/vdb", "/dev/vdc"][..members];
    let program = [&["sh", "-c", &script, "sh", level], members].concat();
    let output = chronodisk.run("first-disk", &[&further[..], &common].concat(), &program);
    let said = text(&output.stderr);
    assert!(output.status.success(), "RAID {level}: {said}");
    let verified = chronodisk.command(&["verify", folder]).output().unwrap();
    assert!(verified.status.success(), "RAID {level}: {}", text(&verified.stderr));
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

fn failed(result: &Value, status: &str) -> u64 {
    result["reps"][0]["summary"]["failed_by_status"][status].as_u64().unwrap_or(0)
}

#[test]
fn a_member_that_dies_is_replaced_and_rebuilt() {
    let Some(chronodisk) = chronodisk() else { return };
    let steps = "
        grep -q 'vdb.*(F)' /proc/mdstat
        mdadm --quiet /dev/md0 --remove failed; mdadm --quiet /dev/md0 --add /dev/vdd
        mdadm --wait /dev/md0 || :
        test \"$(cat /sys/block/md0/md/degraded)\" = 0
        # The array survives the loss of another of the first members.
        mdadm --quiet /dev/md0 --fail /dev/vda; mdadm --quiet /dev/md0 --remove /dev/vda";
    for &(level, members) in arrays() {
        let (result, said) = run(&chronodisk, level, members, "kind=death,after-written=12MiB", steps);
        assert!(failed(&result, "aborted") > 0, "RAID {level}: {said}");
        assert!(said.contains("Disk failure on vdb"), "RAID {level}: {said}");
    }
}

#[test]
fn bad_sectors_of_a_member_are_repaired_by_a_check_of_the_array() {
    let Some(chronodisk) = chronodisk() else { return };
    let steps = "
        read_all() { dd if=/dev/vdb of=/dev/null bs=64k skip=128 count=256 iflag=direct 2>/dev/null; }
        if read_all; then exit 11; fi
        echo check >/sys/block/md0/md/sync_action
        while [ \"$(cat /sys/block/md0/md/sync_action)\" != idle ]; do sleep 0.1; done
        test \"$(cat /sys/block/md0/md/degraded)\" = 0
        read_all";
    for &(level, members) in arrays() {
        let fault = "kind=latent,offset=8MiB,length=16MiB,rate=0.0005,after-written=10MiB";
        let (result, said) = run(&chronodisk, level, members, fault, steps);
        assert!(failed(&result, "media-error") > 0, "RAID {level}: {said}");
        assert_eq!(failed(&result, "aborted"), 0, "RAID {level}: {said}");
    }
}
