//! Explicit notification: the guest's kernel flags contents of files on file systems without a classifier.

use serde_json::Value;

use super::support::{Chronodisk, has, is_root, text};

/// Each file system, with the commands that make and check it, and the package of these.
const FILE_SYSTEMS: [(&str, &str, &str, &str); 4] = [
    ("jfs", "mkfs.jfs -q", "jfs_fsck -n -f", "jfsutils"),
    ("vfat", "mkfs.vfat", "fsck.vfat -n", "dosfstools"),
    ("exfat", "mkfs.exfat", "fsck.exfat -n", "exfatprogs"),
    ("minix", "mkfs.minix -3", "fsck.minix -f", "util-linux"),
];

/// Small and large files, some of them to be kept, with blocks that are used again. All names, sizes and kept files
/// must be equal after another mount, and the checker must find no error.
const FILES: &str = "set -e
    $MKFS /dev/vda > /dev/null
    mount -t $FS /dev/vda /mnt
    cd /mnt
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
        mkdir d$i
        head -c 300000 /dev/urandom > d$i/large
        head -c 700 /dev/urandom > d$i/small
        cp d$i/large d$i/x.db
    done
    sync
    rm -r d3 d7
    head -c 8000000 /dev/urandom > big
    head -c 2000000 /dev/urandom > temporary
    mv temporary named.db
    state() { find . -type f -printf '%p %s\\n' -o -printf '%p %y\\n' | sort; sha256sum d*/x.db named.db; }
    state > /tmp/before
    cd /
    umount /mnt
    $FSCK /dev/vda > /tmp/fsck 2>&1 || { cat /tmp/fsck; exit 4; }
    mount -t $FS /dev/vda /mnt
    cd /mnt
    state > /tmp/after
    cmp /tmp/before /tmp/after
    # Generated contents are zeros. Blocks of 4 KiB that have other bytes too are stored; minix has blocks of 1 KiB.
    [ $(tr -d '\\0' < big | wc -c) -le 400000 ]";

fn statistic(result: &Value, name: &str) -> f64 {
    result["reps"][0]["model_statistics"][format!("squash-{name} [bytes]")].as_f64().unwrap_or(0.0)
}

fn notifying() -> Option<Chronodisk> {
    Chronodisk::with_kernel("exact").filter(|_| is_root())
}

#[test]
fn contents_are_dropped_on_file_systems_without_a_classifier() {
    let Some(chronodisk) = notifying() else { return };
    for (name, mkfs, fsck, package) in FILE_SYSTEMS {
        if !has(&format!("mkfs.{name}"), package) {
            continue;
        }
        let script = FILES.replace("$MKFS", mkfs).replace("$FSCK", fsck).replace("$FS", name);
        // The exact clock, and the guest's, whose writes meet at other places.
        for clock in ["exact", "guest"] {
            let flags = ["--clock", clock, "--fs", "none", "--capacity", "256MiB", "--squash", "--notify-file-data"];
            let flags = [&flags[..], &["--keep", "*.db"]].concat();
            let result = chronodisk.run_json("constant-100us", &flags, &["sh", "-c", &script]);
            assert_eq!(result["warnings"].as_array().map(Vec::len), Some(0), "{name} {}", result["warnings"]);
            // 12 files of 300,000 bytes, and 8,000,000 bytes; two of the files were overwritten.
            let generated = statistic(&result, "generated");
            assert!(generated > 10.4e6, "{name} {clock}: {generated}");
            // 10 files of 300,000 bytes, one of 2,000,000, and those of the two deleted files that nothing overwrote.
            let raw = statistic(&result, "kept-raw");
            assert!((4.8e6..5.7e6).contains(&raw), "{name} {clock}: {raw}");
            let metadata = statistic(&result, "kept-other-metadata");
            assert!((8192.0..3e6).contains(&metadata), "{name} {clock}: {metadata}");
            assert!(statistic(&result, "notified-data") >= generated, "{name} {clock}");
        }
    }
}

/// 4 MiB each by a mapping, by direct I/O, from another file inside the kernel, and by asynchronous I/O, and files that
/// have no name or only holes.
const WAYS_TO_WRITE: &str = "
import mmap, os
SIZE = 4 << 20
data = os.urandom(SIZE)
def create(name):
    return os.open('/mnt/' + name, os.O_RDWR | os.O_CREAT)
mapped = create('mapped')
os.ftruncate(mapped, SIZE)
with mmap.mmap(mapped, SIZE) as memory:
    memory[:] = data
    memory.flush()
direct = os.open('/mnt/direct', os.O_RDWR | os.O_CREAT | os.O_DIRECT)
with mmap.mmap(-1, SIZE) as memory:
    memory[:] = data
    os.write(direct, memory)
with open('/tmp/input', 'wb') as source:
    source.write(data)
source = os.open('/tmp/input', os.O_RDONLY)
copied = create('copied')
sent = 0
while sent < SIZE:
    sent += os.sendfile(copied, source, sent, SIZE - sent)
os.fsync(copied)
nameless = create('nameless')
os.unlink('/mnt/nameless')
os.write(nameless, data)
os.fsync(nameless)
holes = create('holes')
for at in range(0, SIZE, 64 << 10):
    os.pwrite(holes, data[:4096], at)
os.fsync(holes)
os.truncate('/mnt/copied', SIZE - 1000)
os.sync()
";

#[test]
fn every_way_to_write_a_file_is_noticed() {
    let Some(chronodisk) = notifying().filter(|_| has("mkfs.jfs", "jfsutils")) else { return };
    let program =
        format!("mkfs.jfs -q /dev/vda > /dev/null && mount -t jfs /dev/vda /mnt && python3 -c \"{WAYS_TO_WRITE}\"");
    let flags = ["--clock", "exact", "--fs", "none", "--capacity", "256MiB", "--squash", "--notify-file-data"];
    let result = chronodisk.run_json("constant-100us", &flags, &["sh", "-c", &program]);
    // Four files of 4 MiB, and 64 blocks of one with holes.
    let expected = 4.0 * 4_194_304.0 + 64.0 * 4096.0;
    assert_eq!(statistic(&result, "generated"), expected);
    assert!(statistic(&result, "kept-other-metadata") < 3e6, "{result}");
    // With any rule that keeps files, those without a name are kept.
    let flags = [&flags[..], &["--keep", "mapped"]].concat();
    let result = chronodisk.run_json("constant-100us", &flags, &["sh", "-c", &program]);
    assert_eq!(statistic(&result, "kept-raw"), 2.0 * 4_194_304.0);
}

#[test]
fn a_file_system_in_a_partition_and_on_a_linear_array_is_noticed() {
    let Some(chronodisk) = notifying().filter(|_| has("mkfs.jfs", "jfsutils") && has("mdadm", "mdadm")) else {
        return;
    };
    let fill = "mount -t jfs $DEVICE /mnt
        head -c 20000000 /dev/urandom > /mnt/f
        cp /mnt/f /mnt/f.db
        before=$(sha256sum < /mnt/f.db)
        umount /mnt
        jfs_fsck -n -f $DEVICE > /dev/null
        mount -t jfs $DEVICE /mnt
        [ \"$before\" = \"$(sha256sum < /mnt/f.db)\" ]";
    let partition = "set -e
        # Type 0x83, 260,096 sectors from sector 2,048 on.
        printf '\\000\\000\\000\\000\\203\\000\\000\\000\\000\\010\\000\\000\\000\\370\\003\\000' |
            dd of=/dev/vda bs=1 seek=446 status=none
        printf '\\125\\252' | dd of=/dev/vda bs=1 seek=510 status=none
        blockdev --rereadpt /dev/vda
        mkfs.jfs -q /dev/vda1 > /dev/null
        "
    .to_owned()
        + &fill.replace("$DEVICE", "/dev/vda1");
    let array = "set -e
        mdadm --create /dev/md0 --quiet --run --level=linear --raid-devices=2 /dev/vda /dev/vdb
        mkfs.jfs -q /dev/md0 > /dev/null
        "
    .to_owned()
        + &fill.replace("$DEVICE", "/dev/md0");
    for (script, devices) in [(partition, &[][..]), (array, &["--device", "constant-100us"])] {
        let flags = ["--clock", "exact", "--fs", "none", "--capacity", "128MiB", "--squash", "--notify-file-data"];
        let flags = [&flags[..], &["--keep", "*.db"], devices].concat();
        let result = chronodisk.run_json("constant-100us", &flags, &["sh", "-c", &script]);
        // Each device has statistics of its own; these are the stored bytes of all.
        let stored = result["reps"][0]["store_bytes"].as_f64().unwrap();
        assert!((20.0e6..23.0e6).contains(&stored), "{script}: {stored}");
    }
}

#[test]
fn known_file_systems_go_by_their_classifiers() {
    let Some(chronodisk) = notifying().filter(|_| has("mkfs.ext4", "e2fsprogs") && has("mkfs.btrfs", "btrfs-progs"))
    else {
        return;
    };
    let flags = ["--clock", "exact", "--capacity", "256MiB", "--squash", "--check"];
    let program = ["sh", "-c", "cp -r /usr/include/linux /mnt/tree; sync"];
    let stored = |more: &[&str]| {
        let result = chronodisk.run_json("constant-100us", &[&flags[..], more].concat(), &program);
        assert_eq!(statistic(&result, "notified-data"), 0.0);
        (statistic(&result, "stored"), result["reps"][0]["run_time_ns"].clone())
    };
    let ((bytes, run_time), notified) = (stored(&[]), stored(&["--notify-file-data"]));
    assert_eq!(notified.1, run_time);
    // The kernel synchronises once more at the unmount, while files have names.
    assert!((0.8..1.2).contains(&(notified.0 / bytes)), "{} and {bytes}", notified.0);
    // This form is not supported, and its checksums would contradict generated contents.
    let script = "set -e
        head -c 20000000 /dev/urandom > /mnt/f
        before=$(sha256sum < /mnt/f)
        umount /mnt
        mount /dev/vda /mnt
        [ \"$before\" = \"$(sha256sum < /mnt/f)\" ]";
    let flags = [&flags[..], &["--fs", "btrfs", "--mkfs-options", "--csum xxhash", "--notify-file-data"]].concat();
    let result = chronodisk.run_json("constant-100us", &flags, &["sh", "-c", script]);
    assert!(result["warnings"].to_string().contains("everything is kept"), "{}", result["warnings"]);
    assert_eq!(statistic(&result, "notified-data"), 0.0);
}

#[test]
fn options_and_kernels_that_do_not_fit_are_refused() {
    let Some(chronodisk) = Chronodisk::with_kernel("exact") else { return };
    for (flags, reason) in [
        (&["--squash=exact"][..], "--squash=exact, which stores all bytes"),
        (&["--squash", "--cpus", "2"], "--cpus: the kernel for several processors does not have it"),
        (&[], "--squash"),
        (&["--squash", "--kernel", "/bin/true"], "does not notify of file data"),
    ] {
        let flags = [&["--notify-file-data", "--fs", "none"], flags].concat();
        let output = chronodisk.run("constant-100us", &flags, &["true"]);
        assert!(!output.status.success(), "{flags:?}");
        assert!(text(&output.stderr).contains(reason), "{flags:?}: {}", text(&output.stderr));
    }
}
