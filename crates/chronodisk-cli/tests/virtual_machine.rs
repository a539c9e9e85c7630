//! A Debian kernel under QEMU as a client of a served device: its nbd module over TCP, then its
//! virtio-blk driver through vhost-user, on the same bytes. QEMU translates instructions (TCG), so
//! this needs no virtualisation and says nothing of speed.

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

#[test]
fn a_debian_kernel_makes_mounts_and_checks_file_systems() {
    let programs = [("nbd-client", "nbd-client"), ("mkfs.ext4", "e2fsprogs"), ("e2fsck", "e2fsprogs")];
    if !machine::have(&programs) {
        return;
    }
    let Some(kernel) = Kernel::find() else {
        println!("SKIPPED: no kernel image with its modules here (scripts/need test unpacks one)");
        return;
    };
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
