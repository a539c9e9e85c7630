//! Block devices by the kernel's ublk driver: `serve --attach ublk` and `mount` inside a virtual machine whose Debian
//! kernel has the driver. QEMU translates instructions (TCG), so this needs no virtualisation and says nothing of
//! speed.

#[allow(dead_code, reason = "tests/virtual_machine.rs uses the rest")]
#[path = "common/machine.rs"]
mod machine;

use std::process::{Command, Stdio};

use machine::Kernel;

/// Programs of this host that the scripts call, with their packages.
const PROGRAMS: [(&str, &str); 5] = [
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("fio", "fio"),
    ("umount", "mount"),
    ("nbd-client", "nbd-client"),
];

/// Common begin of the scripts, which run under `set -e`.
const BEGIN: &str = "
mkdir -p /dev/shm; mount -t tmpfs none /dev/shm; mount -t tmpfs none /tmp; mount -t cgroup2 none /sys/fs/cgroup
export XDG_STATE_HOME=/tmp HOME=/tmp; ip link set lo up; cd /tmp
# Variables, since a function in the background would be a process of its own.
emulate='chronodisk serve --capacity 64MiB -q'
mount_on='chronodisk mount --device constant-100us --capacity 64MiB'
appears() { i=0; while [ ! -b $1 ]; do i=$((i+1)); [ $i -lt 300 ]; usleep 100000; done; }
nodes() { ls /dev | sed -n '/^ublk[bc]/p'; }
ended() { status=0; wait $1 || status=$?; echo $1 ended with $status; [ $status = $2 ]; }
# Nothing is left: no node, and no process of Chronodisk.
expect_nothing() {
    i=0
    while [ -n \"$(nodes)\" ] || ps | grep -q '[c]hronodisk'; do
        i=$((i+1)); [ $i -lt 100 ] || { nodes; ps; exit 7; }
        usleep 100000
    done
}
attacher() { ps | awk '/[n]ative-attacher/ { print $1 }'; }
";

/// Boots a machine with this script, and expects it to end with `done`. Returns the machine's output.
fn boot(script: &str) -> Option<String> {
    if !machine::have(&PROGRAMS) {
        return None;
    }
    let Some(kernel) = Kernel::find_with("ublk_drv") else {
        println!("SKIPPED: no kernel image with the module ublk_drv here (scripts/need test unpacks one)");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    // Debug information would double the machine's memory.
    let program = folder.path().join("chronodisk");
    let whole = env!("CARGO_BIN_EXE_chronodisk");
    let stripped = Command::new("strip").arg("-o").arg(&program).arg(whole).status();
    if !stripped.is_ok_and(|status| status.success()) {
        std::fs::copy(whole, &program).unwrap();
    }
    let mut programs: Vec<&str> = PROGRAMS.iter().map(|(name, _)| *name).collect();
    programs.push(program.to_str().unwrap());
    let modules = ["crc32c_generic", "ext4", "loop", "fuse", "nbd", "ublk_drv"];
    let root = folder.path().join("root.cpio");
    machine::write_root(&root, &kernel, &modules, &[], &programs, &format!("{BEGIN}{script}\necho done"));
    let mut words = machine::command(&kernel, &root, "tcg,thread=multi", "1500M", "");
    words.extend(["-smp".to_owned(), "2".to_owned()]);
    let output = Command::new("timeout").arg("280").args(&words).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    assert!(said.contains("\ndone\n") && said.contains("machine: status 0"), "{said}");
    Some(said)
}

/// A file system, data in long and many requests, and the requests' kinds at the model.
const CONTENTS: &str = "
$emulate --device constant-100us --attach ublk --output /tmp/long --run '
set -e
mkfs.ext4 -q -F $device; mount -t ext4 -o discard $device /mnt
dd if=/dev/urandom of=/mnt/first bs=64k count=160 2>/dev/null; first=$(sha256sum </mnt/first)
cp /mnt/first /mnt/second; rm /mnt/second; sync; fstrim /mnt; umount /mnt; e2fsck -fn $device
mount -t ext4 $device /mnt; [ \"$(sha256sum </mnt/first)\" = \"$first\" ]; umount /mnt
fio --name=long --filename=$device --rw=randwrite --bsrange=4k-1m --blockalign=4k --iodepth=128 --ioengine=libaio \
    --direct=1 --verify=crc32c --verify_fatal=1 --size=64m --io_size=32m
fio --name=deep --filename=$device --rw=randrw --bs=4k --iodepth=200 --numjobs=2 --ioengine=libaio --direct=1 \
    --size=64m --io_size=4m
[ $(cat /sys/block/${device##*/}/queue/write_cache | tr -d \" \") = writethrough ]'
chronodisk verify /tmp/long
expect_nothing

# A volatile cache: fsync is a flush, O_DSYNC writes have FUA.
chronodisk serve --device hitachi-hds728080pla380 --attach ublk --output /tmp/flushed --run '
set -e
[ $(cat /sys/block/${device##*/}/queue/fua) = 1 ]
for i in 1 2 3 4 5; do dd if=/dev/zero of=$device bs=4k count=1 seek=$i oflag=direct conv=fsync 2>/dev/null; done'
grep -A3 '\"flush\"' /tmp/flushed/result.json | grep '\"requests\": 5,'
chronodisk serve --device hitachi-hds728080pla380 --attach ublk --output /tmp/forced --run '
fio --name=fua --filename=$device --rw=write --bs=4k --size=64k --direct=1 --sync=dsync'
echo \"log: $(base64 -w0 /tmp/forced/requests-0.parquet)\"

# A bad sector, and a store without room.
$emulate --device constant-100us --attach ublk --fault kind=latent,offset=40MiB,length=4KiB --run '
dd if=$device of=/dev/null bs=4k skip=10239 count=1 iflag=direct
if dd if=$device of=/dev/null bs=4k skip=10240 count=1 iflag=direct 2>/tmp/said; then exit 9; fi
grep \"Input/output error\" /tmp/said'
$emulate --device constant-100us --attach ublk --ram-budget 4MiB --run '
if dd if=/dev/urandom of=$device bs=64k count=200 oflag=direct 2>/tmp/said; then exit 9; fi
grep \"No space left\" /tmp/said' || [ $? = 125 ]
expect_nothing
";

#[test]
fn a_kernel_uses_the_device_by_ublk() {
    let Some(said) = boot(CONTENTS) else { return };
    assert_eq!(said.matches("err= 0").count(), 4, "one job with verification, two deep ones, one with FUA: {said}");
    assert!(said.contains("Input/output error") && said.contains("No space left"), "{said}");
    let log = said.lines().find_map(|line| line.strip_prefix("log: ")).expect("the script prints it");
    let folder = tempfile::tempdir().unwrap();
    let [encoded, decoded] = ["encoded", "log.parquet"].map(|name| folder.path().join(name));
    std::fs::write(&encoded, log).unwrap();
    let decoding = Command::new("base64").arg("-d").arg(&encoded).output().unwrap();
    std::fs::write(&decoded, decoding.stdout).unwrap();
    let records = chronodisk_report::read_log(&decoded).unwrap();
    let forced = records.iter().filter(|record| record.op == chronodisk_sim::Op::Write && record.fua);
    assert_eq!(forced.count(), 16, "each write of fio's has FUA at the model");
}

/// Two devices, and a device with a second client.
const TOGETHER: &str = "
$emulate --device constant-100us --attach auto & first=$!
appears /dev/ublkb0
$emulate --device null --attach ublk & second=$!
appears /dev/ublkb1
for n in 0 1; do
    dd if=/dev/urandom of=/tmp/data$n bs=1M count=24 2>/dev/null
    dd if=/tmp/data$n of=/dev/ublkb$n bs=256k oflag=direct 2>/dev/null &
    eval writer$n=$!
done
wait $writer0; wait $writer1
for n in 0 1; do dd if=/dev/ublkb$n bs=1M count=24 iflag=direct 2>/dev/null | cmp - /tmp/data$n; done
kill $first $second; wait $first; wait $second
expect_nothing

# Each client's thread delivers completions of the other one.
$emulate --device constant-100us --attach ublk --nbd 10809 --output /tmp/both --run '
set -e
nbd-client 127.0.0.1 10809 /dev/nbd0 -N \"\" -b 512 >/dev/null
job() { fio --name=$1 --filename=$2 --offset=$3 --rw=randrw --bs=4k --iodepth=32 --ioengine=libaio --direct=1 \
    --size=16m --io_size=4m --verify=crc32c --verify_fatal=1; }
job other /dev/nbd0 32m & other=$!
job own $device 0
wait $other; nbd-client -d /dev/nbd0'
chronodisk verify /tmp/both
grep '\"dropped_completions\": 0,' /tmp/both/result.json
expect_nothing
";

#[test]
fn devices_and_clients_do_not_disturb_each_other() {
    let Some(said) = boot(TOGETHER) else { return };
    assert_eq!(said.matches("err= 0").count(), 2, "{said}");
}

/// Kills, interrupts and endings of `serve` and of `mount`.
const ENDINGS: &str = "
# Acknowledged writes are in the store of a killed server, and nothing else is left.
$emulate --device constant-100us --attach ublk --store /tmp/disk.image & server=$!
appears /dev/ublkb0
dd if=/dev/urandom of=/tmp/data bs=1M count=8 2>/dev/null
dd if=/tmp/data of=/dev/ublkb0 bs=64k oflag=direct 2>/dev/null
dd if=/dev/ublkb0 of=/dev/null bs=4k iflag=direct 2>/tmp/said & reader=$!
usleep 300000
kill -9 $server; ended $server 137
wait $reader && exit 9
grep 'Input/output error' /tmp/said
expect_nothing
dd if=/tmp/disk.image bs=1M count=8 2>/dev/null | cmp - /tmp/data

# A killed helper ends the server.
$emulate --device constant-100us --attach ublk --run 'sleep 100' 2>/tmp/said & server=$!
appears /dev/ublkb0; usleep 1500000
kill -9 $(attacher)
wait $server && exit 9
grep 'native-attacher) died' /tmp/said
expect_nothing

# After a kill of both, the kernel keeps the server's node. The next start removes that.
$emulate --device constant-100us --attach ublk & server=$!
appears /dev/ublkb0; usleep 1500000
kill -9 $(attacher) $server; ended $server 137
$emulate --device constant-100us --attach ublk --run '[ $device = /dev/ublkb0 ]'
expect_nothing

# A signal ends a server whose file system is still mounted and written.
$emulate --device constant-100us --attach ublk & server=$!
appears /dev/ublkb0; usleep 1000000; mkfs.ext4 -q -F /dev/ublkb0; mount -t ext4 /dev/ublkb0 /mnt
while dd if=/dev/zero of=/mnt/file bs=64k count=400 2>/tmp/said; do :; done & writer=$!
usleep 300000
kill $server; wait $server
ended $writer 0
grep -E 'Input/output error|Read-only' /tmp/said
expect_nothing
umount /mnt

# A device that hangs for an hour ends with its server.
$emulate --device constant-100us --attach ublk --fault kind=hang,at=5s,for=3600s & server=$!
usleep 7000000
dd if=/dev/ublkb0 of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null & reader=$!
usleep 500000
kill $server; ended $server 0
wait $reader && exit 9
expect_nothing

$mount_on --json -- sh -c 'set -e; grep \"$CHRONODISK_DEVICE /mnt ext4\" /proc/mounts
dd if=/dev/zero of=/mnt/file bs=64k count=10 conv=fsync' >/tmp/result.json
grep '\"attached_by\": \"ublk\"' /tmp/result.json
grep '\"block_device\": \"/dev/ublkb0\"' /tmp/result.json
expect_nothing
$mount_on --attach fuse --json -- true >/tmp/result.json
grep '\"attached_by\": \"fuse\"' /tmp/result.json
$mount_on --fs none --attach ublk -- sh -c 'dd if=/dev/zero of=$CHRONODISK_DEVICE bs=64k count=10'
expect_nothing
$mount_on -- sleep 100 & program=$!
appears /dev/ublkb0; usleep 3000000; kill -9 $program; ended $program 137
expect_nothing
$mount_on -- sleep 100 & program=$!
appears /dev/ublkb0; usleep 3000000; kill $program; wait $program && exit 9
expect_nothing
if grep /mnt /proc/mounts; then exit 9; fi
if dmesg | grep -E 'BUG|WARNING|blocked for more'; then exit 9; fi
";

#[test]
fn nothing_is_left_and_nothing_acknowledged_is_lost() {
    boot(ENDINGS);
}
