//! A Debian kernel under QEMU as a client of a served device: its nbd module over TCP, then its
//! virtio-blk driver through vhost-user, on the same bytes; and its iSCSI initiator. QEMU translates
//! instructions (TCG), so this needs no virtualisation and says nothing of speed.

#[allow(dead_code, reason = "tests/ublk.rs uses the rest")]
#[path = "common/machine.rs"]
mod machine;

use std::process::{Command, Stdio};

use machine::Kernel;

/// The guest's script, under `set -e`. e2fsck checks each file system on the device, after an unmount.
const SCRIPT: &str = "
ip link set lo up; ip addr add 10.0.2.15/24 dev eth0; ip link set eth0 up
load nbd
nbd-client 10.0.2.2 \"$PORT\" /dev/nbd0 -N '' -C 2
mkfs.ext4 -q -F /dev/nbd0
mount -t ext4 -o discard /dev/nbd0 /mnt
dd if=/dev/urandom of=/mnt/first bs=64k count=48 2>/dev/null
for name in a b c d e f g h; do echo $name >/mnt/$name; done
rm /mnt/c /mnt/d
umount /mnt
e2fsck -fn /dev/nbd0
mount -t ext4 /dev/nbd0 /mnt
first=$(sha256sum </mnt/first)
umount /mnt
nbd-client -d /dev/nbd0
echo nbd done

load virtio_blk
mount -t ext4 /dev/vda /mnt
[ \"$(sha256sum </mnt/first)\" = \"$first\" ]
[ \"$(cat /mnt/a /mnt/h)\" = \"$(printf 'a\\nh')\" ]
dd if=/mnt/first of=/mnt/second bs=64k 2>/dev/null
sync
fstrim /mnt
umount /mnt
e2fsck -fn /dev/vda
mount -t ext4 /dev/vda /mnt
[ \"$(sha256sum </mnt/second)\" = \"$first\" ]
umount /mnt
echo vhost-user-blk done
";

/// The machine's kernel, if the host has one and these programs with their packages.
fn kernel_for(programs: &[(&str, &str)]) -> Option<Kernel> {
    if !machine::have(programs) {
        return None;
    }
    let kernel = Kernel::find();
    if kernel.is_none() {
        println!("SKIPPED: no kernel image with its modules here (scripts/need test unpacks one)");
    }
    kernel
}

#[test]
fn a_debian_kernel_makes_mounts_and_checks_file_systems() {
    let programs = [("nbd-client", "nbd-client"), ("mkfs.ext4", "e2fsprogs"), ("e2fsck", "e2fsprogs")];
    let Some(kernel) = kernel_for(&programs) else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root.cpio");
    let names = programs.map(|(name, _)| name);
    machine::write_root(
        &root,
        &kernel,
        &["virtio_pci", "virtio_net", "crc32c_generic", "ext4"],
        &["nbd", "virtio_blk"],
        &names,
        SCRIPT,
    );
    let mut words = machine::command(&kernel, &root, "tcg", "256M", "PORT=$port");
    let devices = "-netdev user,id=net -device virtio-net-pci,netdev=net,romfile= \
        -chardev socket,id=disk,path=vhost.sock -device vhost-user-blk-pci,chardev=disk,num-queues=1";
    words.extend(devices.split_whitespace().map(str::to_owned));
    // The port is the shell's to fill in.
    let line: String = words.iter().map(|word| format!("\"{word}\" ")).collect();

    let mut command = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
    command.args(["serve", "--device", "constant-100us", "--capacity", "64MiB", "--store", "disk.image"]);
    command.args(["--nbd", "0", "--vhost-user", "vhost.sock", "--output", "result", "--no-realtime"]);
    command.arg("--run").arg(format!("exec timeout 170 {line}"));
    command.current_dir(folder.path()).env("XDG_STATE_HOME", folder.path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("machine: status 0"), "{said}\n{complained}");
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);

    // The guest's file system is valid on this host, too, and every request was due at the model's instant.
    let check = Command::new("/sbin/e2fsck").arg("-fn").arg(folder.path().join("disk.image")).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    let mut verify = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
    let verified = verify.arg("verify").arg(folder.path().join("result")).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    let result = std::fs::read_to_string(folder.path().join("result/result.json")).unwrap();
    let result: serde_json::Value = serde_json::from_str(&result).unwrap();
    let server = &result["reps"][0]["server"];
    assert_eq!((&server["violations"], &server["refused_requests"]), (&0.into(), &0.into()), "{server:#}");
    assert_eq!(server["connections"], 3, "two of nbd-client's, one of QEMU's: {server:#}");
}

/// The file system has half of the disk; a sector of the other half is bad.
const ISCSI_SCRIPT: &str = "
ip link set lo up; ip addr add 10.0.2.15/24 dev eth0; ip link set eth0 up
iscsistart -i iqn.2026-11.org.example:machine -t iqn.2026-11.org.chronodisk:constant-100us -g 1 -a 10.0.2.2 -p \"$PORT\"
for attempt in 1 2 3 4 5 6 7 8 9 10; do [ -b /dev/sda ] || sleep 1; done
[ \"$(cat /sys/block/sda/device/vendor)\" = CHRONODK ]
mkfs.ext4 -q -F /dev/sda 32M
mount -t ext4 /dev/sda /mnt
dd if=/dev/urandom of=/mnt/first bs=64k count=48 2>/dev/null
first=$(sha256sum </mnt/first)
sync
umount /mnt
echo 3 >/proc/sys/vm/drop_caches
mount -t ext4 -o ro /dev/sda /mnt
[ \"$(sha256sum </mnt/first)\" = \"$first\" ]
umount /mnt
e2fsck -fn /dev/sda
dd if=/dev/sda of=/dev/null bs=4k skip=10239 count=1
if dd if=/dev/sda of=/dev/null bs=4k skip=10240 count=1 2>/tmp/said; then exit 9; fi
grep 'Input/output error' /tmp/said
dmesg | grep 'critical medium error, dev sda, sector 81920'
echo iscsi done
";

#[test]
fn a_debian_kernel_uses_the_iscsi_target_and_sees_its_medium_errors() {
    let programs = [("iscsistart", "open-iscsi"), ("mkfs.ext4", "e2fsprogs"), ("e2fsck", "e2fsprogs")];
    let Some(kernel) = kernel_for(&programs) else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root.cpio");
    let names = programs.map(|(name, _)| name);
    let modules = ["virtio_pci", "virtio_net", "crc32c_generic", "ext4", "sd_mod", "iscsi_tcp"];
    machine::write_root(&root, &kernel, &modules, &[], &names, ISCSI_SCRIPT);
    let mut words = machine::command(&kernel, &root, "tcg", "256M", "PORT=$port");
    words
        .extend("-netdev user,id=net -device virtio-net-pci,netdev=net,romfile=".split_whitespace().map(str::to_owned));
    let line: String = words.iter().map(|word| format!("\"{word}\" ")).collect();

    let mut command = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
    command.args(["serve", "--device", "constant-100us", "--capacity", "64MiB", "--iscsi", "0", "--no-realtime"]);
    command.args(["--fault", "kind=latent,offset=40MiB,length=4KiB", "--output", "result"]);
    command.arg("--run").arg(format!("exec timeout 170 {line}"));
    command.current_dir(folder.path()).env("XDG_STATE_HOME", folder.path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("iscsi done") && said.contains("machine: status 0"), "{said}\n{complained}");
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);
    let mut verify = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
    let verified = verify.arg("verify").arg(folder.path().join("result")).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}
