//! Zoned devices: file systems for them, and programs that use them bare. Their kernel takes minutes to build, so these
//! tests print SKIPPED without it (`chronodisk kernel build zones`).

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

use chronodisk_device::Profile;
use chronodisk_sim::{Op, Status};
use serde_json::Value;

use super::support::{Chronodisk, text};

/// 904 zones are no more thorough than eight.
const CAPACITY: &str = "16GiB";
const ZONED: &str = "wd-zn540-zones";

/// The same drive with 64 zones of 24 MiB, which are soon full.
fn small_zones(chronodisk: &Chronodisk) -> String {
    let text = Profile::find(ZONED).unwrap().text().to_owned();
    let text = text
        .replace("name = \"wd-zn540-zones\"", "name = \"small-zones\"")
        .replace("\"1808 GiB\"", "\"2 GiB\"")
        .replace("\"2048 MiB\"", "\"32 MiB\"")
        .replace("\"1077 MiB\"", "\"24 MiB\"");
    let file = chronodisk.path("small-zones.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// A host-managed disk of 64 zones of 32 MiB, the first eight of them conventional.
fn small_disk(chronodisk: &Chronodisk) -> String {
    let text = "name = \"small-disk\"\nkind = \"shingled-disk\"\ndescription = \"d\"\nsource = \"s\"\n\
        validation = \"unvalidated\"\nmanagement = \"host\"\nmember = \"first-disk\"\ncapacity = \"2 GiB\"\n\
        zone-size = \"32 MiB\"\nconventional-zones = 8\nopen-zones = 32\nzone-command = \"1 ms\"\n";
    let file = chronodisk.path("small-disk.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Room for the metadata of F2FS on these zones, and for little else: files would go there first.
fn small_null(chronodisk: &Chronodisk) -> String {
    let text = Profile::find("null").unwrap().text().replace("\"8 GiB\"", "\"128 MiB\"");
    let file = chronodisk.path("small-null.toml");
    std::fs::write(&file, text.replace("name = \"null\"", "name = \"small-null\"")).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Each of the small zones is reset once by mkfs, and some again.
const RESETS: usize = 64 + 10;

fn zoned() -> Option<Chronodisk> {
    Chronodisk::with_kernel("zones")
}

/// Fills a file system with more than the drive holds, deletes, and mounts it again.
fn works(chronodisk: &Chronodisk, profile: &str, file_system: &str, mounted: &str, flags: &[&str], resets: usize) {
    let script = format!(
        "set -e
        PATH=$PATH:/usr/sbin:/sbin
        mkdir /mnt/tree
        tar -C /usr/include -cf - linux | tar -C /mnt/tree -xf -
        for round in 1 2 3 4 5 6 7 8 9 10; do
            dd if=/dev/zero of=/mnt/filler bs=1M count=200 status=none
            sync
            rm /mnt/filler
            sync
            # btrfs resets zones half a minute after their last block group was freed.
            sleep 60
        done
        fio --name=random --directory=/mnt --size=16m --rw=randwrite --bs=4k --number_ios=500 --fsync=50 --direct=1 \
            --verify=crc32c --verify_fatal=1 --do_verify=1 --output=/dev/null
        umount /mnt
        mount -t {file_system} {mounted} /mnt
        diff -r /usr/include/linux /mnt/tree/linux"
    );
    let output = chronodisk.path("run");
    let flags = [&["--fs", file_system, "--output", output.to_str().unwrap()], flags].concat();
    let result = chronodisk.run_json(profile, &flags, &["sh", "-c", &script]);
    let warnings = &result["warnings"].as_array().unwrap();
    assert!(warnings.iter().all(|warning| !warning.to_string().contains("error")), "{warnings:?}");
    let records = chronodisk_report::read_log(&output.join("requests-0.parquet")).unwrap();
    let count = |op| records.iter().filter(|record| record.op == op).count();
    assert!(count(Op::ZoneReset) > resets, "{} resets", count(Op::ZoneReset));
    assert!(records.iter().all(|record| record.status == Status::Ok));
}

#[test]
fn btrfs_is_filled_cleaned_and_mounted_again() {
    let Some(chronodisk) = zoned() else { return };
    works(&chronodisk, &small_zones(&chronodisk), "btrfs", "/dev/vda", &["--check"], RESETS);
}

// fsck.f2fs 1.15 counts the free segments of zones in another way than Linux 6.12.
#[test]
fn f2fs_is_filled_cleaned_and_mounted_again() {
    let Some(chronodisk) = zoned() else { return };
    let further = ["--device", &small_null(&chronodisk)];
    works(&chronodisk, &small_zones(&chronodisk), "f2fs", "/dev/vdb", &further, RESETS);
}

#[test]
fn f2fs_needs_no_other_device_beside_conventional_zones() {
    let Some(chronodisk) = zoned() else { return };
    // The conventional zones are not reset.
    works(&chronodisk, &small_disk(&chronodisk), "f2fs", "/dev/vda", &["--check"], 56 + 2);
}

/// Kills the emulator while the program waits, and mounts the file system that the store holds.
fn survives_a_kill(
    chronodisk: &Chronodisk,
    profile: &str,
    file_system: &str,
    further: &[&str],
    [write, check]: [&str; 2],
) {
    let store = chronodisk.path("disk");
    let flags = |file_system: &str| {
        let words = ["run", "--device", profile, "--store", store.to_str().unwrap(), "--quiet", "--fs", file_system];
        [&words[..], further, &["--"]].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let program = format!("{write}; echo ready; read line");
    let arguments = [flags(file_system), ["sh", "-c", &program].map(str::to_owned).into()].concat();
    let mut command = chronodisk.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child.kill().unwrap();
    child.wait().unwrap();
    let arguments = [flags("existing"), ["sh", "-c", check].map(str::to_owned).into()].concat();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // The dead emulator's processes hold the store for a moment.
    let mut output = chronodisk.command(&arguments).output().unwrap();
    for _ in 0..100 {
        if !text(&output.stderr).contains("in use by another device") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        output = chronodisk.command(&arguments).output().unwrap();
    }
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

const TREE: &str = "cp -r /usr/include/linux /mnt; sync";
const SAME_TREE: &str = "diff -r /usr/include/linux /mnt/linux && cp -r /usr/include/linux /mnt/more && sync";

#[test]
fn btrfs_survives_a_kill() {
    let Some(chronodisk) = zoned() else { return };
    survives_a_kill(&chronodisk, &small_zones(&chronodisk), "btrfs", &[], [TREE, SAME_TREE]);
}

#[test]
fn f2fs_survives_a_kill() {
    let Some(chronodisk) = zoned() else { return };
    let further = ["--device", &small_null(&chronodisk)];
    survives_a_kill(&chronodisk, &small_zones(&chronodisk), "f2fs", &further, [TREE, SAME_TREE]);
}

/// Its metadata are in conventional zones. Data in these have no pointer.
#[test]
fn f2fs_on_a_host_managed_disk_survives_a_kill() {
    let Some(chronodisk) = zoned() else { return };
    survives_a_kill(&chronodisk, &small_disk(&chronodisk), "f2fs", &[], [TREE, SAME_TREE]);
}

#[test]
fn files_of_conventional_zones_survive_a_kill() {
    let Some(chronodisk) = zoned() else { return };
    // The first zone has the superblock.
    let write = "set -e
        [ $(ls /mnt/cnv | wc -l) = 7 ]
        [ $(ls /mnt/seq | wc -l) = 56 ]
        [ $(stat -c %s /mnt/cnv/0) = 33554432 ]
        dd if=/dev/zero bs=4k count=4 status=none | tr '\\0' x > /tmp/data
        for place in 8000 7 4000 7; do
            dd if=/tmp/data of=/mnt/cnv/6 bs=4k seek=$place oflag=direct conv=notrunc status=none
        done
        dd if=/tmp/data of=/mnt/seq/0 bs=4k oflag=append,direct conv=notrunc status=none";
    let check = "set -e
        for place in 8000 7 4000; do
            dd if=/mnt/cnv/6 bs=4k skip=$place count=4 status=none > /tmp/data
            [ $(wc -c < /tmp/data) = 16384 ]
            [ $(tr -d x < /tmp/data | wc -c) = 0 ]
        done
        [ $(tr -d '\\0' < /mnt/cnv/6 | wc -c) = 49152 ]
        [ $(stat -c %s /mnt/seq/0) = 16384 ]
        ! truncate -s 0 /mnt/cnv/6 2> /tmp/message";
    survives_a_kill(&chronodisk, &small_disk(&chronodisk), "zonefs", &[], [write, check]);
}

#[test]
fn zonefs_survives_a_kill() {
    let Some(chronodisk) = zoned() else { return };
    let write = "dd if=/dev/zero bs=64k count=33 status=none | tr '\\0' x > /tmp/data
        dd if=/tmp/data of=/mnt/seq/3 bs=4k oflag=append,direct conv=notrunc status=none";
    let check = "set -e
        [ $(stat -c %s /mnt/seq/3) = 2162688 ]
        [ $(tr -d x < /mnt/seq/3 | wc -c) = 0 ]
        [ $(stat -c %s /mnt/seq/2) = 0 ]
        dd if=/dev/zero of=/mnt/seq/3 bs=4k count=5 oflag=append,direct conv=notrunc status=none
        [ $(stat -c %s /mnt/seq/3) = 2183168 ]";
    survives_a_kill(&chronodisk, &small_zones(&chronodisk), "zonefs", &[], [write, check]);
}

/// Runs of one store: the first on new zones, the second on the zones that the first has left.
fn two_runs(chronodisk: &Chronodisk) -> [std::path::PathBuf; 2] {
    let (profile, store) = (small_zones(chronodisk), chronodisk.path("disk"));
    let scripts = [
        "set -e
        PATH=$PATH:/usr/sbin:/sbin
        dd if=/dev/zero of=/dev/vda bs=64k count=40 oflag=direct conv=notrunc status=none
        dd if=/dev/zero of=/dev/vda bs=4k count=5 seek=$((8 << 10)) oflag=direct conv=notrunc status=none
        blkzone finish --offset $((2 << 16)) --count 1 /dev/vda",
        "set -e
        PATH=$PATH:/usr/sbin:/sbin
        dd if=/dev/vda of=/dev/null bs=64k count=40 iflag=direct status=none
        dd if=/dev/zero of=/dev/vda bs=64k count=40 seek=40 oflag=direct conv=notrunc status=none
        dd if=/dev/zero of=/dev/vda bs=4k count=9 seek=$(((8 << 10) + 5)) oflag=direct conv=notrunc status=none
        blkzone reset --offset $((2 << 16)) --count 1 /dev/vda
        dd if=/dev/zero of=/dev/vda bs=64k count=3 seek=$((2 << 9)) oflag=direct conv=notrunc status=none",
    ];
    [0, 1].map(|index| {
        let output = chronodisk.path(&format!("run-{index}"));
        let flags = ["--fs", "none", "--store", store.to_str().unwrap(), "--output", output.to_str().unwrap()];
        chronodisk.run_json(&profile, &flags, &["sh", "-c", scripts[index]]);
        output
    })
}

#[test]
fn runs_on_kept_zones_are_verified() {
    let Some(chronodisk) = zoned() else { return };
    let [first, second] = two_runs(&chronodisk);
    let verify = |run: &std::path::Path, further: &[&str]| {
        chronodisk.command(&[&["verify", run.to_str().unwrap()], further].concat()).output().unwrap()
    };
    let result = |run: &std::path::Path| -> Value {
        serde_json::from_slice(&std::fs::read(run.join("result.json")).unwrap()).unwrap()
    };
    // A new store has no zones to keep.
    assert_eq!(result(&first)["device"].get("zones_began"), None);
    assert!(!first.join("device-0.zones").exists());
    assert_eq!(result(&second)["device"]["zones_began"]["file"], "device-0.zones");
    for run in [&first, &second] {
        let verified = verify(run, &[]);
        assert!(verified.status.success(), "{}{}", text(&verified.stdout), text(&verified.stderr));
        assert!(text(&verified.stdout).contains("identical"), "{}", text(&verified.stdout));
    }
    let same = verify(&second, &["--device", &small_zones(&chronodisk)]);
    assert!(same.status.success(), "{}", text(&same.stderr));
    let other = verify(&second, &["--device", "null"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains("null has no zones, but the run's device had"), "{}", text(&other.stderr));

    // The second run wrote on where the first had ended: on empty zones, its writes would be refused.
    let refused = |expected: &str| {
        let verified = verify(&second, &[]);
        assert_eq!(verified.status.code(), Some(2), "{expected}: {}", text(&verified.stdout));
        assert!(text(&verified.stderr).contains(expected), "{}", text(&verified.stderr));
    };
    let file = second.join("device-0.zones");
    let sound = std::fs::read(&file).unwrap();
    for (change, expected) in [
        (4104, "device-0.zones: its hash is fnv1a64:"),
        (4103, "has 1152921504606852096 sectors written; expected at most"),
        (12, "device-0.zones: number of zones: 65; expected 64"),
    ] {
        let mut bytes = sound.clone();
        bytes[change] ^= if change == 4103 { 0x10 } else { 1 };
        std::fs::write(&file, bytes).unwrap();
        refused(expected);
    }
    std::fs::write(&file, &sound[..5]).unwrap();
    refused("device-0.zones: 5 bytes of write pointers; expected 4608");
    std::fs::remove_file(&file).unwrap();
    refused("device-0.zones: can't read: No such file");
    let text_of = std::fs::read_to_string(second.join("result.json")).unwrap();
    std::fs::write(second.join("result.json"), text_of.replace("device-0.zones", "../disk.zones")).unwrap();
    refused("'../disk.zones' is not a file name");
    std::fs::write(second.join("result.json"), text_of.replace("\"zones_began\"", "\"zones_begun\"")).unwrap();
    refused("disk.zones had them, and the result does not name a copy (zones_began)");
    std::fs::write(second.join("result.json"), text_of).unwrap();
    std::fs::write(&file, sound).unwrap();
    assert!(verify(&second, &[]).status.success());

    let removed = chronodisk.command(&["rm", second.to_str().unwrap()]).output().unwrap();
    assert!(removed.status.success() && !second.exists(), "{}", text(&removed.stderr));
}

#[test]
fn a_store_without_its_zones_is_refused() {
    let Some(chronodisk) = zoned() else { return };
    let store = chronodisk.path("disk");
    let flags = ["--fs", "none", "--store", store.to_str().unwrap()];
    chronodisk.run_json(ZONED, &flags, &["true"]);
    std::fs::remove_file(chronodisk.path("disk.zones")).unwrap();
    let refused = chronodisk.run(ZONED, &flags, &["true"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("disk.zones is missing"), "{}", text(&refused.stderr));
}

#[test]
fn zonefs_has_a_file_for_each_zone() {
    let Some(chronodisk) = zoned() else { return };
    let script = "set -e
        cd /mnt/seq
        [ $(ls | wc -l) = 7 ]
        dd if=/dev/urandom of=/tmp/data bs=64k count=48 status=none
        dd if=/tmp/data of=0 bs=64k oflag=append,direct conv=notrunc status=none
        dd if=/tmp/data of=0 bs=64k oflag=append,direct conv=notrunc status=none
        [ $(stat -c %s 0) = 6291456 ]
        cat /tmp/data /tmp/data | cmp - 0
        # A zone is written at its end alone.
        ! dd if=/tmp/data of=0 bs=64k count=1 seek=2 oflag=direct conv=notrunc status=none 2> /tmp/message
        grep -q 'Invalid argument' /tmp/message
        # A finish makes the zone full, a reset empties it.
        truncate -s $((1077 << 20)) 0
        truncate -s 0 0
        [ $(stat -c %s 0) = 0 ]
        dd if=/tmp/data of=0 bs=64k oflag=append,direct conv=notrunc status=none
        cmp /tmp/data 0";
    chronodisk.run_json(ZONED, &["--fs", "zonefs", "--capacity", CAPACITY], &["sh", "-c", script]);
}

fn bare(chronodisk: &Chronodisk, script: &str) -> Output {
    chronodisk.run(ZONED, &["--fs", "none", "--capacity", CAPACITY], &["sh", "-c", script])
}

#[test]
fn blkzone_shows_and_changes_the_zones() {
    let Some(chronodisk) = zoned() else { return };
    let script = "set -e
        PATH=$PATH:/usr/sbin:/sbin
        dd if=/dev/urandom of=/tmp/data bs=4k count=8 status=none
        dd if=/tmp/data of=/dev/vda bs=4k oflag=direct conv=notrunc status=none
        blkzone open --offset 4194304 --count 1 /dev/vda
        blkzone finish --offset 8388608 --count 1 /dev/vda
        blkzone close --offset 0 --count 1 /dev/vda
        blkzone report /dev/vda
        cmp -n 32768 /tmp/data /dev/vda
        blkzone reset /dev/vda
        blkzone report --count 3 /dev/vda
        cmp -n 32768 /dev/zero /dev/vda";
    let output = bare(&chronodisk, script);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let said = text(&output.stdout);
    let zones: Vec<&str> = said.lines().map(str::trim).collect();
    assert_eq!(zones.len(), 8 + 3, "{said}");
    let zone = |start: u64, pointer: u64, state: &str| {
        format!(
            "start: {start:#011x}, len 0x400000, cap 0x21a800, wptr {pointer:#08x} reset:0 non-seq:0, zcond:{state}"
        )
    };
    let starts_so = |line: &str, expected: String| assert!(line.starts_with(&expected), "{line:?}, not {expected:?}");
    starts_so(zones[0], zone(0, 0x40, " 4(cl)"));
    starts_so(zones[1], zone(0x40_0000, 0, " 3(oe)"));
    starts_so(zones[2], zone(0x80_0000, 0x40_0000, "14(fu)"));
    starts_so(zones[3], zone(0xc0_0000, 0, " 1(em)"));
    for (index, line) in zones[8..].iter().enumerate() {
        starts_so(line, zone(index as u64 * 0x40_0000, 0, " 1(em)"));
    }
}

#[test]
fn blkzone_shows_conventional_zones() {
    let Some(chronodisk) = zoned() else { return };
    let script = "PATH=$PATH:/usr/sbin:/sbin
        cat /sys/block/vda/queue/zoned /sys/block/vda/queue/max_open_zones /sys/block/vda/queue/max_active_zones
        blkzone report --offset $((7 << 16)) --count 2 /dev/vda
        for place in 9 3 9; do
            dd if=/dev/zero of=/dev/vda bs=4k count=1 seek=$place oflag=direct conv=notrunc status=none || exit 1
        done
        blkzone reset --offset 0 --count 1 /dev/vda 2> /dev/null
        blkzone reset /dev/vda && echo done";
    let flags = ["--fs", "none"];
    let output = chronodisk.run(&small_disk(&chronodisk), &flags, &["sh", "-c", script]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    assert_eq!((&lines[..3], lines.len(), lines[5]), (&["host-managed", "32", "0"][..], 6, "done"), "{said}");
    assert!(lines[3].contains("type: 1(CONVENTIONAL)") && lines[3].contains("zcond: 0(nw)"), "{said}");
    assert!(lines[4].contains("type: 2(SEQ_WRITE_REQUIRED)") && lines[4].contains("zcond: 1(em)"), "{said}");
}

#[test]
fn runs_on_a_host_managed_disk_are_verified() {
    let Some(chronodisk) = zoned() else { return };
    let (store, profile) = (chronodisk.path("disk"), small_disk(&chronodisk));
    for (index, file_system) in ["f2fs", "existing"].into_iter().enumerate() {
        let output = chronodisk.path(&format!("run-{index}"));
        let flags = ["--fs", file_system, "--store", store.to_str().unwrap(), "--output", output.to_str().unwrap()];
        let script = format!("cp -r /usr/include/linux /mnt/tree-{index}; sync");
        chronodisk.run_json(&profile, &flags, &["sh", "-c", &script]);
        let verified = chronodisk.command(&["verify", output.to_str().unwrap()]).output().unwrap();
        assert!(verified.status.success(), "{}{}", text(&verified.stdout), text(&verified.stderr));
    }
}

#[test]
fn a_write_off_the_pointer_is_an_io_error() {
    let Some(chronodisk) = zoned() else { return };
    // Linux takes no further write to the zone until it has looked at the pointer again.
    let script = "PATH=$PATH:/usr/sbin:/sbin
        dd if=/dev/zero of=/dev/vda bs=4k count=1 seek=9 oflag=direct conv=notrunc 2>&1 | grep 'Input/output'
        blkzone report /dev/vda > /tmp/report
        dd if=/dev/zero of=/dev/vda bs=4k count=2 oflag=direct conv=notrunc status=none && echo written
        dd if=/dev/zero of=/dev/vda bs=4k count=1 oflag=direct conv=notrunc 2>&1 | grep 'Input/output'
        blkzone report /dev/vda > /tmp/report
        dd if=/dev/zero of=/dev/vda bs=4k count=1 seek=2 oflag=direct conv=notrunc status=none && echo written";
    let output = bare(&chronodisk, script);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let errors = said.lines().filter(|line| line.contains("Input/output error")).count();
    assert_eq!((errors, said.lines().filter(|line| *line == "written").count()), (2, 2), "{said}");
}

#[test]
fn more_zones_than_can_be_open_are_refused() {
    let Some(chronodisk) = zoned() else { return };
    let script = "PATH=$PATH:/usr/sbin:/sbin
        for zone in $(seq 0 15); do
            blkzone open --offset $((zone * 4194304)) --count 1 /dev/vda && echo opened
        done
        true";
    let flags = ["--fs", "none", "--capacity", "64GiB"];
    let output = chronodisk.run(ZONED, &flags, &["sh", "-c", script]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().filter(|line| *line == "opened").count(), 14);
}

#[test]
fn what_a_program_does_with_zones_is_in_its_log() {
    let Some(chronodisk) = zoned() else { return };
    let script = "PATH=$PATH:/usr/sbin:/sbin
        dd if=/dev/zero of=/dev/vda bs=4k count=3 oflag=direct conv=notrunc status=none
        blkzone reset --offset 0 --count 1 /dev/vda";
    let output = chronodisk.path("run");
    let flags = ["--fs", "none", "--capacity", CAPACITY, "--output", output.to_str().unwrap()];
    let result: Value = chronodisk.run_json(ZONED, &flags, &["sh", "-c", script]);
    assert_eq!(result["reps"].as_array().unwrap().len(), 1);
    let records = chronodisk_report::read_log(&output.join("requests-0.parquet")).unwrap();
    let count = |op| records.iter().filter(|record| record.op == op).count();
    assert_eq!((count(Op::Write), count(Op::ZoneReset)), (3, 1));
    let verified = chronodisk.command(&["verify", output.to_str().unwrap()]).output().unwrap();
    assert!(verified.status.success(), "{}", text(&verified.stderr));
}
