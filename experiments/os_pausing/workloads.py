"""What runs in the guest: the four workloads of the paper's section 4, in its sizes or small."""

import shutil
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from common.command import CommandFailed, note

MIB = 1 << 20
#: "[...] the size of the emulated storage device is set to be 400MB, which leaves 112MB of memory for use by the Linux
#: OS."
MEMORY = "112MiB"
#: Where Debian's package linux-source-6.1 puts the kernel's source, from which the exact kernel is built too.
KERNEL_SOURCE = Path("/usr/src/linux-source-6.1.tar.xz")
#: 352 x 288 luminance samples and a quarter as many of each colour.
CIF_FRAME_BYTES = 352 * 288 * 3 // 2


@dataclass(frozen=True)
class Workload:
    """A program for the guest."""

    name: str
    title: str
    file_system: str
    command: list[str]
    #: Why it can't run here; empty if it can.
    missing: str = ""
    #: Takes what the program printed, and gives a figure to be compared instead of its run time.
    figure: Callable[[str], float] | None = None
    unit: str = "s"
    capacity: str | None = None

    def described(self) -> dict[str, Any]:
        """What a reader of the results should know of it."""
        return {"title": self.title, "file_system": self.file_system, "unit": self.unit, "missing": self.missing}


def workloads(folder: Path, full: bool, only: str | None = None) -> list[Workload]:
    """Prepare them all, or one; their input is in `folder`, which the guest sees as well."""
    return [make(folder, full) for name, make in MAKERS.items() if only in (None, name)]


def missing(*programs: str) -> str:
    """Which of the programs this host lacks, in words."""
    lacking = [program for program in programs if shutil.which(program) is None]
    return f"no {', '.join(lacking)} on this host" if lacking else ""


def script(folder: Path, name: str, text: str) -> list[str]:
    """Write a shell script and return how it is called."""
    path = folder / name
    path.write_text("set -e\n" + text)
    return ["sh", str(path)]


def sequential_read(_: Path, full: bool) -> Workload:
    """Section 4.1: hdparm, which sleeps for three seconds, reads the device and prints a rate."""
    return Workload(
        "sequential-read",
        "Sequential read bandwidth (hdparm)",
        "none",
        ["hdparm", "-t", "/dev/vda"],
        missing("hdparm"),
        rate_of_hdparm,
        "MB/s",
        None if full else "16MiB",
    )


def rate_of_hdparm(output: str) -> float:
    """Find the rate in a line such as `Timing buffered disk reads:  64 MB in  0.01 seconds = 4495.33 MB/sec`."""
    for line in output.splitlines():
        if "buffered disk reads" in line:
            amount, unit = line.rsplit("=", 1)[1].split()
            return float(amount) * {"kB/sec": 1e-3, "MB/sec": 1.0}[unit]
    raise CommandFailed(f"hdparm printed no rate:\n{output}")


def postmark(folder: Path, full: bool) -> Workload:
    """Section 4.2: eight at once, 100,000 transactions over 10,000 files in all; PostMark itself has no threads.

    The small form has fewer files, ten times as large, so that they do not all wait in memory.
    """
    files, transactions, size = (1_250, 12_500, "500 10000") if full else (40, 30, "20000 200000")
    text = f"""
for job in 1 2 3 4 5 6 7 8; do
    mkdir /mnt/$job
    printf '%s\\n' "set location /mnt/$job" "set number {files}" "set transactions {transactions}" \\
        "set size {size}" "set seed $job" "set buffering false" run quit | postmark > /dev/null &
done
wait
sync
"""
    title = f"PostMark, eight at once, {8 * transactions} transactions over {8 * files} files"
    return Workload("postmark", title, "ext3", script(folder, "postmark.sh", text), missing("postmark"))


def archive(folder: Path, full: bool) -> Workload:
    """Section 4.3: a source archive is copied to the device, extracted in place, and its words are counted."""
    parts = ["fs", "include", "kernel", "lib", "mm", "net"] if full else ["mm"]
    lacking = missing("tar", "bzip2", "wc") or ("" if KERNEL_SOURCE.exists() else f"no {KERNEL_SOURCE} on this host")
    packed = folder / "source.tar.bz2"
    if not lacking:
        note("packing a source archive")
        pack(parts, packed)
    text = f"""
cp {packed} /mnt/source.tar.bz2
tar -xjf /mnt/source.tar.bz2 -C /mnt
find /mnt/source -type f -print0 | xargs -0 cat | wc -w > /dev/null
sync
"""
    title = f"Extraction of the kernel's {', '.join(parts)}, and word count"
    return Workload("archive", title, "ext4", script(folder, "archive.sh", text), lacking)


def pack(parts: list[str], packed: Path) -> None:
    """Take parts of the kernel's source into an archive of their own, compressed if its name says so."""
    mode: Literal["w", "w:bz2"] = "w:bz2" if packed.suffix == ".bz2" else "w"
    with tarfile.open(KERNEL_SOURCE) as whole, tarfile.open(packed, mode) as out:
        for member in whole:
            _, _, inside = member.name.partition("/")
            if not member.isfile() or inside.partition("/")[0] not in parts:
                continue
            bytes_ = whole.extractfile(member)
            member.name = f"source/{inside}"
            out.addfile(member, bytes_)


def video(folder: Path, full: bool) -> Workload:
    """Section 4.4: raw video is copied to the device, encoded as MPEG-2 and decoded again.

    The paper's sequence, foreman, is not free; ffmpeg's own test picture has its size and its number of frames.
    """
    frames = 300 if full else 12
    lacking = missing("ffmpeg")
    raw = folder / "raw.yuv"
    if not lacking:
        source = f"testsrc2=size=352x288:rate=30:duration={frames / 30:.6f}"
        call = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", source, "-pix_fmt", "yuv420p", "-f", "rawvideo", str(raw)]
        subprocess.run(call, stdin=subprocess.DEVNULL, check=True)
        assert raw.stat().st_size == frames * CIF_FRAME_BYTES
    options = "-v error -nostdin -threads 1"
    shape = "-f rawvideo -pix_fmt yuv420p -s 352x288 -r 30"
    text = f"""
cp {raw} /mnt/raw.yuv
ffmpeg {options} {shape} -i /mnt/raw.yuv -threads 1 -c:v mpeg2video -b:v 2M /mnt/video.mpg
ffmpeg {options} -i /mnt/video.mpg -threads 1 -f rawvideo -pix_fmt yuv420p /mnt/again.yuv
sync
"""
    title = f"MPEG-2, {frames} frames of 352 x 288 encoded and decoded (ffmpeg)"
    return Workload("video", title, "ext3", script(folder, "video.sh", text), lacking)


#: Each workload by its name, in the order in which they are run.
MAKERS: dict[str, Callable[[Path, bool], Workload]] = {
    "sequential-read": sequential_read,
    "archive": archive,
    "video": video,
    "postmark": postmark,
}
