"""A virtual machine of a Debian kernel and an initial root made for the occasion: busybox, programs and modules."""

import lzma
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from common.command import ROOT, CommandFailed

MODULE = "ublk_drv"
#: Longest time of a machine in seconds.
TIME_MAX_S = 3600


@dataclass(frozen=True)
class Kernel:
    """An image and its modules."""

    image: Path
    modules: Path

    @property
    def release(self) -> str:
        """Its version."""
        return self.modules.name


def find_kernel() -> Kernel:
    """Find a kernel with the ublk driver: CHRONODISK_TEST_KERNEL, or as `scripts/need test` unpacks it."""
    named = os.environ.get("CHRONODISK_TEST_KERNEL")
    roots = [Path(named)] if named else []
    roots += [ROOT / "target" / "test-kernel-ublk", ROOT / "target" / "test-kernel", Path("/")]
    for root in roots:
        for image in sorted(root.glob("boot/vmlinuz-*"), reverse=True):
            release = image.name.removeprefix("vmlinuz-")
            for modules in (root / "usr/lib/modules" / release, root / "lib/modules" / release):
                if next(modules.glob(f"kernel/**/{MODULE}.ko*"), None):
                    return Kernel(image, modules)
    raise CommandFailed("no kernel with the module ublk_drv here; `scripts/need test` unpacks one")


def output(*words: str) -> str:
    """Run a program and return its output; empty if it fails."""
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout


def module_files(kernel: Kernel, name: str) -> list[Path]:
    """Return a module's file after those of the modules that it needs; none if it is built in."""
    found = [
        path
        for path in kernel.modules.glob("kernel/**/*.ko*")
        if path.name.split(".")[0].replace("-", "_") == name.replace("-", "_")
    ]
    if not found:
        return []
    needed = [word for word in output("modinfo", "-F", "depends", str(found[0])).strip().split(",") if word]
    return [file for word in needed for file in module_files(kernel, word)] + [found[0]]


def entry(number: int, name: str, mode: int, contents: bytes) -> bytes:
    """Make an entry of an archive ("newc", Documentation/driver-api/early-userspace/buffer-format.rst)."""
    fields = [number, mode, 0, 0, 1, 0, len(contents), 0, 0, 0, 0, len(name) + 1, 0]
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
    return head + b"\0" * (-len(head) % 4) + contents + b"\0" * (-len(contents) % 4)


def root(kernel: Kernel, programs: list[Path], modules: list[str], script: str) -> bytes:
    """Make an initial root whose first process loads the modules, runs the script and ends the machine."""
    files: dict[str, tuple[int, bytes]] = {}
    for program in [Path(shutil.which("busybox") or "/bin/busybox"), *programs]:
        files[f"bin/{program.name}"] = (0o755, program.read_bytes())
        for word in output("ldd", str(program)).split():
            if word.startswith("/"):
                files[word.removeprefix("/")] = (0o755, Path(word).read_bytes())
    loaded = dict.fromkeys(file for name in modules for file in module_files(kernel, name))
    for file in loaded:
        packed = file.read_bytes()
        files[f"modules/{file.name.removesuffix('.xz')}"] = (
            0o644,
            lzma.decompress(packed) if file.suffix == ".xz" else packed,
        )
    names = " ".join(f"/modules/{file.name.removesuffix('.xz')}" for file in loaded)
    init = f"""#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp XDG_STATE_HOME=/tmp
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs none /tmp
mkdir -p /dev/shm; mount -t tmpfs none /dev/shm; mount -t cgroup2 none /sys/fs/cgroup; ip link set lo up
for file in {names}; do insmod $file; done
{script}
poweroff -f
"""
    files["init"] = (0o755, init.encode())
    folders = {"dev", "proc", "sys", "tmp", "mnt"}
    folders |= {str(parent) for name in files for parent in Path(name).parents if str(parent) != "."}
    entries = [(name, 0o040755, b"") for name in sorted(folders)]
    entries += [(name, 0o100000 | mode, contents) for name, (mode, contents) in sorted(files.items())]
    entries.append(("TRAILER!!!", 0, b""))
    return b"".join(entry(number, *parts) for number, parts in enumerate(entries, 1))


def boot(kernel: Kernel, initial: bytes, accelerator: str, processors: int) -> str:
    """Run the machine until it ends, and return what it printed."""
    with tempfile.NamedTemporaryFile(suffix=".cpio") as file:
        file.write(initial)
        file.flush()
        words = "qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -serial stdio -m 2G -cpu max"
        done = subprocess.run(
            [*words.split(), "-accel", accelerator, "-smp", str(processors), "-kernel", str(kernel.image), "-initrd"]
            + [file.name, "-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=TIME_MAX_S,
        )
    return done.stdout.replace("\r", "") + done.stderr
