//! Every file system is made, mounted, used hard, unmounted and found clean.

use super::support::{Chronodisk, long, text};

fn works(file_system: &str, scheduler: &str) {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let (requests, tree) = if long() { (2000, "linux") } else { (500, "linux/netfilter") };
    // A verified random write at depth 32, then a tree of small files packed and unpacked.
    let script = format!(
        "set -e
        fio --name=verify --directory=/mnt --size=24m --direct=1 --rw=randwrite --bs=4k --ioengine=libaio --iodepth=32 \
            --number_ios={requests} --verify=crc32c --verify_fatal=1 --do_verify=1 --output=/dev/null
        mkdir /mnt/tree
        tar -C /usr/include -cf /mnt/tree.tar {tree}
        tar -C /mnt/tree -xf /mnt/tree.tar
        sync
        diff -r /usr/include/{tree} /mnt/tree/{tree}"
    );
    let output = chronodisk.run(
        "constant-100us",
        &["--fs", file_system, "--scheduler", scheduler, "--capacity", "1GiB", "--check"],
        &["sh", "-c", &script],
    );
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(!text(&output.stderr).contains("found faults"), "{}", text(&output.stderr));
}

#[test]
fn ext4() {
    works("ext4", "none");
}

#[test]
fn ext3() {
    works("ext3", "mq-deadline");
}

#[test]
fn ext2() {
    works("ext2", "kyber");
}

#[test]
fn xfs() {
    works("xfs", "bfq");
}

#[test]
fn btrfs() {
    works("btrfs", "none");
}

#[test]
fn f2fs() {
    works("f2fs", "mq-deadline");
}

#[test]
fn ext4_that_counts_quotas() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let flags = ["--fs", "ext4", "--capacity", "64MiB", "--mkfs-options", "-O quota", "--check"];
    let output = chronodisk.run("null", &flags, &["sh", "-c", "echo 1 > /mnt/file; chown 1 /mnt/file"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("found faults"), "{}", text(&output.stderr));
}

#[test]
fn the_command_finds_its_device_in_the_environment() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let script = "set -e; test -b $CHRONODISK_DEVICE; grep -q \"^$CHRONODISK_DEVICE /mnt ext4 \" /proc/mounts";
    for root in ["host", "device"] {
        let flags =
            ["run", "-d", "null", "-d", "null", "--capacity", "1GiB", "--root", root, "--", "bash", "-c", script];
        // A caller that has a device of its own, such as the program of `mount`.
        let output = chronodisk.command(&flags).env("CHRONODISK_DEVICE", "/dev/loop9").output().unwrap();
        assert!(output.status.success(), "{root}: {}", text(&output.stderr));
    }
    let (program, check) = ("echo x | dd of=$CHRONODISK_DEVICE conv=fsync", "head -c 1 $CHRONODISK_DEVICE >/dev/null");
    let flags = ["crash", "-d", "null", "--capacity", "1MiB", "--fs", "none", "--cuts", "1", "--check", check];
    let output = chronodisk.command(&[&flags[..], &["--", "sh", "-c", program]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}
