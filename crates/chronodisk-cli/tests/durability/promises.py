"""Makes promises about files of a file system that is mounted, prints what each file must hold, and dies or goes on writing.

Arguments: the folder, the promises in order, and what comes last."""

import fcntl
import hashlib
import os
import signal
import struct
import sys
import time

folder, promises, last = sys.argv[1], sys.argv[2].split(","), sys.argv[3]
os.chdir(folder)
# One that ends the run does not end the program, which would be an orderly end.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
expected = {}


def contents(name, length, version=0):
    block = lambda index: hashlib.sha256(f"{name} {version} {index}".encode()).digest() * 128
    return b"".join(block(index) for index in range(-(-length // 4096)))[:length]


def opened(name, flags=0):
    return os.open(name, os.O_CREAT | os.O_RDWR | flags)


def make(name, length, version=0, flags=0):
    """A file that is written in pieces; its bytes."""
    data, fd = contents(name, length, version), opened(name, flags)
    for at in range(0, length, 7000):
        os.pwrite(fd, data[at : at + 7000], at)
    os.close(fd)
    return data


def change(name, parts, flags=0):
    """Overwrites parts of a file; its bytes."""
    fd = opened(name, flags)
    data = bytearray(os.pread(fd, 1 << 24, 0))
    for at, length in parts:
        part = contents(name, length, 1 + at)
        os.pwrite(fd, part, at)
        data.extend(bytes(max(0, at + length - len(data))))
        data[at : at + length] = part
    os.close(fd)
    return bytes(data)


def fsync(name, call=os.fsync):
    fd = os.open(name, os.O_RDONLY)
    call(fd)
    os.close(fd)


def promise(name, data):
    expected[name] = data


def new(kind):
    """Contents within the inode among them."""
    for index, length in enumerate([300, 5000, 20000, 300000]):
        name = f"new-{index}.{kind}"
        data = make(name, length)
        fsync(name)
        promise(name, data)


def new_folder(kind):
    os.makedirs(f"folder-{kind}/below")
    name = f"folder-{kind}/below/file.{kind}"
    data = make(name, 30000)
    for path in [name, f"folder-{kind}/below", f"folder-{kind}", "."]:
        fsync(path)
    promise(name, data)


def rename(kind):
    """Over a file that is committed."""
    data = make(f"temporary.{kind}", 50000)
    fsync(f"temporary.{kind}")
    os.rename(f"temporary.{kind}", f"rename.{kind}")
    fsync(".")
    promise(f"rename.{kind}", data)


def link(kind):
    data = change(f"linked.{kind}", [(4096, 4096)])
    os.link(f"linked.{kind}", f"link.{kind}")
    fsync(f"link.{kind}")
    fsync(".")
    promise(f"link.{kind}", data)


def o_dsync(kind):
    promise(f"o_dsync-new.{kind}", make(f"o_dsync-new.{kind}", 40000, flags=os.O_DSYNC))
    promise(f"o_dsync.{kind}", change(f"o_dsync.{kind}", [(8192, 4096), (50001, 3000)], os.O_DSYNC))


def overwrite(kind):
    data = change(f"overwrite.{kind}", [(20000, 30000), (90000, 50000)])
    fsync(f"overwrite.{kind}", os.fdatasync)
    promise(f"overwrite.{kind}", data)


def set_aside(kind):
    fd = opened(f"set_aside.{kind}")
    os.posix_fallocate(fd, 0, 100000)
    os.close(fd)
    data = change(f"set_aside.{kind}", [(0, 40000), (60000, 4096)])
    fsync(f"set_aside.{kind}")
    promise(f"set_aside.{kind}", data)


def names(kind):
    """Of all files: on ext2 those of a new file are not promised before."""
    fsync(".")


def whole(kind):
    """All that is promised by a synchronisation of the file system."""
    data = make(f"whole.{kind}", 60000)
    os.sync()
    promise(f"whole.{kind}", data)


def in_place(kind):
    """On btrfs, of a file whose blocks are not copied on a write."""
    folder = f"in-place-{kind}"
    os.mkdir(folder)
    fd = os.open(folder, os.O_RDONLY)
    fcntl.ioctl(fd, 0x40086602, struct.pack("l", 0x00800000))
    os.close(fd)
    data = make(f"{folder}/file.{kind}", 80000)
    fsync(f"{folder}/file.{kind}")
    data = change(f"{folder}/file.{kind}", [(8192, 8192)])
    fsync(f"{folder}/file.{kind}")
    promise(f"{folder}/file.{kind}", data)


def reflink(kind):
    source, target = opened(f"whole-before.{kind}"), opened(f"reflink.{kind}")
    fcntl.ioctl(target, 0x40049409, source)
    os.close(source)
    os.close(target)
    data = change(f"reflink.{kind}", [(4096, 8192)])
    fsync(f"reflink.{kind}")
    promise(f"reflink.{kind}", data)


def subvolume(kind):
    os.system(f"btrfs -q subvolume create volume-{kind} && btrfs -q subvolume create volume-{kind}/inner")
    for name in [f"volume-{kind}/file.{kind}", f"volume-{kind}/inner/file.{kind}"]:
        data = make(name, 25000)
        fsync(name)
        promise(name, data)


def many(kind):
    """A log of several levels."""
    for index in range(100):
        name = f"many-{index}-with-a-name-that-fills-leaves-{'x' * 100}.{kind}"
        data = make(name, 4096)
        fsync(name)
        promise(name, data)


KINDS = ["db", "dat"]
for kind in KINDS:
    make(f"rename.{kind}", 40000, 7)
    make(f"linked.{kind}", 40000, 7)
    make(f"o_dsync.{kind}", 80000, 7)
    make(f"overwrite.{kind}", 200000, 7)
    promise(f"whole-before.{kind}", make(f"whole-before.{kind}", 120000))
os.sync()
if last.startswith("again-"):
    # The mark of an unmount is on the device.
    os.chdir("/")
    if os.system(f"umount {folder} && mount -t $(blkid -o value -s TYPE /dev/vda) /dev/vda {folder}"):
        sys.exit(9)
    os.chdir(folder)
for name in promises:
    for kind in KINDS:
        globals()[name](kind)
for name, data in expected.items():
    print(name, len(data), hashlib.sha256(data).hexdigest(), flush=True)
print("done", flush=True)
if last.endswith("panic"):
    # The printed lines have to leave the guest first.
    time.sleep(1)
    open("/proc/sysrq-trigger", "w").write("c")
if last.endswith("quiet"):
    time.sleep(1000000)
index = 0
while last.endswith("busy"):
    # Unpromised writes: some are synchronised, some are in flight.
    make(f"busy-{index % 50}", 60000, index)
    if index % 3 == 0:
        fsync(f"busy-{index % 50}")
    index += 1
