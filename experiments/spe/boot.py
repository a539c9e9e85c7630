"""Makes a Debian image that boots in a virtual machine, and the command that boots it from an emulated device.

The image is made once, of the packages of the Debian release below, and kept below `target/`. It boots by itself
until all of its services run, and then powers off. The first boot, which makes what later ones find, belongs to the
making. `--setup` copies the image to the device before each run, so that all runs begin with the same bytes and what a
boot writes goes to the device.

QEMU takes the kernel and its initial RAM disk from the host's files; everything else is on the device. The virtual
machine has one processor, which QEMU translates itself (`-accel tcg`): hosts without virtualisation can repeat it.
"""

import hashlib
import os
import shlex
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from common.command import ROOT, chronodisk, note

SUITE = "bookworm"
#: A small server: what reads and starts is that of a usual one.
PACKAGES = (
    *("systemd-sysv", "udev", "dbus", "linux-image-cloud-amd64", "python3", "python3-numpy", "rsyslog", "cron"),
    *("openssh-server", "ifupdown", "iproute2", "kmod", "nginx-light"),
)
CAPACITY = "1GiB"
FOLDER = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "spe-boot"
COMPLETE = "all services run"

#: Starts as a service, beside the others, and reads the files of a library.
APPLICATION = """[Unit]
Description=A program with many files
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c "find /usr/lib/python3 -type f -exec cat {} + > /dev/null"
[Install]
WantedBy=multi-user.target
"""
#: What timers start would come at times of its own. The other units have nothing to do in this machine. With them,
#: and with all generators of units, a boot takes 45 s, most of which QEMU translates code.
MASKED = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "fstrim.timer", "dpkg-db-backup.timer"),
    *("systemd-timesyncd", "systemd-tmpfiles-clean.timer", "serial-getty@ttyS0", "getty@tty1", "e2scrub_reap"),
    *("proc-sys-fs-binfmt_misc.automount", "systemd-binfmt", "systemd-udev-trigger", "ifupdown-pre", "networking"),
    *("systemd-modules-load", "systemd-sysusers", "systemd-update-utmp", "systemd-update-utmp-runlevel"),
    *(f"modprobe@{module}.service" for module in ("configfs", "dm_mod", "drm", "efi_pstore", "fuse", "loop")),
)
#: Without this line an image that fails to boot would look like a fast one.
END = f"""[Unit]
Description=Ends the virtual machine when all services run
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c "echo {COMPLETE} > /dev/ttyS0; systemctl --no-block poweroff"
[Install]
WantedBy=multi-user.target
"""
#: Makes the image of the packages. The initial RAM disk has only the modules that this machine needs: QEMU takes long
#: to unpack a large one.
MAKE = f"""set -e
rm -rf root new && mkdir root && tar -x -f root.tar -C root
echo boot > root/etc/hostname
echo '/dev/vda / ext4 defaults 0 1' > root/etc/fstab
cp application.service end.service root/etc/systemd/system/
mkdir -p root/etc/systemd/system-generators
for generator in root/usr/lib/systemd/system-generators/*; do
    name=$(basename $generator)
    test $name = systemd-fstab-generator || ln -s /dev/null root/etc/systemd/system-generators/$name
done
chroot root systemctl enable application.service end.service
chroot root systemctl mask --quiet {" ".join(MASKED)}
mkdir -p root/etc/initramfs-tools/conf.d
echo MODULES=list > root/etc/initramfs-tools/conf.d/modules
printf '%s\\n' virtio_pci virtio_blk ext4 crc32c_generic > root/etc/initramfs-tools/modules
chroot root update-initramfs -u
cp -L root/vmlinuz vmlinuz
cp -L root/initrd.img initrd.img
rm -rf root/boot root/usr/share/doc root/usr/share/man root/usr/share/locale root/var/cache/apt
truncate --size={CAPACITY.removesuffix("iB")} new
mkfs.ext4 -q -d root new
rm -rf root
"""


#: Past the host's page cache, as a virtual machine's disk usually is, and asynchronously.
DIRECT = "cache=none,aio=native"
#: From the host's page cache, and what the boot writes is dropped at its end.
FROM_MEMORY = "cache=unsafe,snapshot=on"


def qemu(drive: str, console: Path, opened: str) -> str:
    """Give the shell's words that boot from `drive`, opened like this, and end when the virtual machine is off."""
    append = "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=false panic=-1 nokaslr mitigations=off"
    words = [
        *("qemu-system-x86_64", "-M", "pc", "-accel", "tcg", "-cpu", "qemu64,svm=off,rdrand=on", "-smp", "1"),
        *("-m", "512", "-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{console}"),
        *("-kernel", str(FOLDER / "vmlinuz"), "-initrd", str(FOLDER / "initrd.img"), "-append", append),
    ]
    return shlex.join(words) + f' -drive "file={drive},if=virtio,format=raw,{opened}"'


def boot(drive: str, console: Path, opened: str = DIRECT) -> list[str]:
    """Give the command that boots from `drive`, writes to `console`, and fails if not all services ran."""
    complete = f"grep -q {shlex.quote(COMPLETE)} {shlex.quote(str(console))}"
    return ["sh", "-c", f"{qemu(drive, console, opened)} && {complete}"]


def setup() -> str:
    """Give the shell command that copies the image to the device. Zeros are there already."""
    return f"dd if={shlex.quote(str(image()))} of=$CHRONODISK_DEVICE bs=1M conv=sparse oflag=direct status=none"


def recipe() -> str:
    """Give what the image depends on, so that another one is made when it changes."""
    text = "\0".join((SUITE, *PACKAGES, APPLICATION, END, MAKE))
    return hashlib.sha256(text.encode()).hexdigest()


def image() -> Path:
    """Give the image, and make it if need be."""
    path, made_by = FOLDER / "image", FOLDER / "recipe"
    if path.exists() and made_by.exists() and made_by.read_text() == recipe():
        return path
    note("making a Debian image (two minutes)")
    FOLDER.mkdir(parents=True, exist_ok=True)
    packages = ",".join(PACKAGES)
    fetched, fetched_by = FOLDER / "root.tar", FOLDER / "packages"
    if not (fetched.exists() and fetched_by.exists() and fetched_by.read_text() == f"{SUITE} {packages}"):
        run(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", SUITE, str(fetched)])
        fetched_by.write_text(f"{SUITE} {packages}")
    (FOLDER / "application.service").write_text(APPLICATION)
    (FOLDER / "end.service").write_text(END)
    run(["sh", "-c", MAKE])
    note("booting it for the first time")
    run(boot(str(FOLDER / "new"), FOLDER / "console"))
    (FOLDER / "new").rename(path)
    made_by.write_text(recipe())
    return path


def run(words: list[str]) -> None:
    """Run a command in the image's folder."""
    subprocess.run(words, cwd=FOLDER, check=True, stdin=subprocess.DEVNULL, timeout=900)


def versions() -> dict[str, Any]:
    """Give what a reader needs to know of the image and of QEMU."""
    first = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=True).stdout
    used = image().stat().st_blocks * 512
    made = {"suite": SUITE, "packages": list(PACKAGES), "recipe": recipe(), "bytes": used}
    return {**made, "qemu": first.splitlines()[0]}


#: What the result has of each prediction, as medians over the repetitions.
FIGURES = (
    *("low_s", "high_s", "freezes", "frozen_s", "unpaid_s", "device_busy_s", "observed_s", "requests"),
    *("interrupted_calls", "other_waits", "other_wait_s", "lost_events", "cut_freezes", "supervisor_cpu_s"),
)
SPREADS = ("predicted_s", "by_request_s", "measured_s")


def from_memory_s() -> float:
    """Boot without an emulated device, and give the seconds: they vary as the host does."""
    # The measurements drop the page cache.
    with image().open("rb") as opened:
        while opened.read(1 << 20):
            pass
    with tempfile.TemporaryDirectory() as folder:
        command = boot(str(image()), Path(folder) / "console", FROM_MEMORY)
        begin = time.monotonic()
        run(command)
        return time.monotonic() - begin


def repetition(device: list[str], speedup: str, seed: int) -> dict[str, Any]:
    """Boot as it is, observed, and for each R on the faster device; then from memory."""
    on = [*device, "--capacity", CAPACITY, "--fs", "none", "--seed", str(seed), "--setup", setup()]
    # Never frozen: a boot that stands still computes longer afterwards, and one observed boot serves all R.
    flags = ["--speedup", speedup, "--suspend", "never", "--validate", "--reps", "1"]
    # Another measurement beside this one must not empty its console.
    with tempfile.TemporaryDirectory() as folder:
        command = boot("$CHRONODISK_DEVICE", Path(folder) / "console")
        result = chronodisk("whatif", *on, *flags, "--", *command)
    results = []
    for one in result["results"]:
        spreads = {name: one[name]["median"] for name in SPREADS}
        results.append({"speedup": one["speedup"], **spreads, **{name: one[name] for name in FIGURES}})
    elapsed = {"elapsed_s": result["elapsed_s"]["median"], "from_memory_s": from_memory_s()}
    return {**elapsed, "load": result["load"], "results": results}


def rows(reps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give a row for each R from all repetitions."""
    elapsed = spread([rep["elapsed_s"] for rep in reps])
    given = []
    for index, first in enumerate(reps[0]["results"]):
        ones = [rep["results"][index] for rep in reps]
        spreads = {name: spread([one[name] for one in ones]) for name in SPREADS}
        medians = {name: statistics.median(one[name] for one in ones) for name in FIGURES}
        given.append(
            {
                "speedup": first["speedup"],
                "elapsed_s": elapsed,
                **spreads,
                "error": spreads["predicted_s"]["median"] / spreads["measured_s"]["median"] - 1,
                **medians,
                "device_share": medians["device_busy_s"] / medians["observed_s"],
                "divided_by_r_s": elapsed["median"] / first["speedup"],
            }
        )
    return given


def spread(values: list[float]) -> dict[str, Any]:
    """Give the median, the range, the coefficient of variation and all values."""
    deviation = statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else None
    ends = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {**ends, "coefficient_of_variation": deviation, "values": values}
