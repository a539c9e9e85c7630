"""Programs on this machine's own disk, and on a model that a sweep of it was fitted to (Memulator, section 5.4).

The disk is a loop device over a file of it, past the page cache. fio sweeps that device: random and sequential reads
and writes of several sizes, one at a time, and random reads of 4 KiB several at a time. The fitted table profile has
the median of each kind and size, and as many channels as a queue was faster than a single request. Then programs run
on the disk and, by `chronodisk mount`, on the model, in turn: the same mkfs, the same mount options, the same settings
of the loop device's queue. Its volatile cache is not emptied on either side: the model has none, and so the disk's loop
device is set to write through.

What the model can't know is this machine's noise: a virtual disk shares its host, and no two sweeps are the same.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from common.command import RESULTS, chronodisk, keep, note
from common.disk_sweep import SWEEP_SECONDS, Point, profile, sweep

SCHEMA = "chronodisk.experiment.reality/1"
MEBIBYTES = 1536
PROGRAMS = Path(__file__).parent.parent / "spe" / "programs.py"
MKFS = ["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
READ_AHEAD_KIB = 128
REQUEST_KIB = 512
#: Percentage points of the interval's ends.
INTERVAL = 95


def run(*words: str | Path) -> str:
    """Run a command, and return what it printed."""
    done = subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def fio(device: str, *options: str) -> dict[str, Any]:
    """Return what fio says of reads or writes."""
    job = ["--name=sweep", f"--filename={device}", "--direct=1", "--ioengine=libaio", "--time_based", "--norandommap"]
    text = run("fio", *job, f"--runtime={SWEEP_SECONDS}", "--output-format=json", *options)
    found = json.loads(text)["jobs"][0]
    used: dict[str, Any] = max(found["read"], found["write"], key=lambda side: side["total_ios"])
    return used


def measure(device: str, word: str, size_kib: int, depth: int) -> Point:
    """Return what requests of the device took."""
    found = fio(device, f"--rw={word}", f"--bs={size_kib}k", f"--iodepth={depth}")
    return Point(
        mean_us=found["lat_ns"]["mean"] / 1e3,
        median_us=found["clat_ns"]["percentile"]["50.000000"] / 1e3,
        requests_per_second=found["iops"],
    )


def programs(directory: Path) -> dict[str, tuple[str, str]]:
    """Return for each program the shell commands before it, and itself. All work in the directory."""
    postmark = "".join(
        f"{line}\\n"
        for line in (
            f"set location {directory}/mail",
            "set number 2000",
            "set transactions 4000",
            "set size 10000 20000",
            "set seed 42",
            "set buffering false",
            "run",
            "quit",
        )
    )
    files = f"fio --output=/dev/null --directory={directory} --name=job --nrfiles=200 --randseed=42 --thread"
    web = f"{files} --filesize=128k --bs=16k --rw=randread --ioengine=psync --file_service_type=random"
    mail = f"{files} --filesize=64k --bs=16k --rw=randrw --ioengine=psync --fsync=4"
    return {
        "postmark": (f"mkdir {directory}/mail", f"printf '{postmark}' | postmark >/dev/null && sync -f {directory}"),
        "webserver": (f"{web} --create_only=1", f"{web} --io_size=100m"),
        "varmail": (f"{mail} --create_only=1", f"{mail} --io_size=24m"),
        "tar": (f"cp -r /usr/include/linux {directory}/files", f"tar cf - {directory}/files | cat >/dev/null"),
        "sqlite": ("true", f"{sys.executable} {PROGRAMS} sqlite {directory}/database 500"),
    }


def on_disk(device: str, directory: Path, setup: str, command: str) -> float:
    """Return the program's seconds on the disk, cold."""
    run("mkfs.ext4", *MKFS, "-F", device)
    try:
        run("mount", device, directory)
        run("sh", "-c", setup)
        run("umount", directory)
        Path("/proc/sys/vm/drop_caches").write_text("3")
        run("mount", device, directory)
        began = time.monotonic()
        run("sh", "-c", command)
        return time.monotonic() - began
    finally:
        subprocess.run(["umount", "-q", str(directory)], check=False)


def on_model(fitted: Path, directory: Path, setup: str, command: str) -> float:
    """Return the program's seconds on the model."""
    options = ["--mkfs-options", " ".join(MKFS), "--mount", str(directory), "--setup", setup]
    result = chronodisk("mount", "--device", str(fitted), *options, "--", "sh", "-c", command)
    return float(result["reps"][0]["run_time_ns"]) / 1e9


def interval(values: list[float]) -> list[float]:
    """Return the range of the middle 95 % of resampled medians."""
    stream = random.Random(1)
    medians = sorted(statistics.median(stream.choices(values, k=len(values))) for _ in range(2000))
    cut = len(medians) * (100 - INTERVAL) // 200
    return [medians[cut], medians[-1 - cut]]


def compare(device: str, fitted: Path, directory: Path, pairs: int, only: list[str] | None) -> list[dict[str, Any]]:
    """Run each program on both in turn."""
    rows = []
    for name, (setup, command) in programs(directory).items():
        if only and name not in only:
            continue
        seconds: dict[str, list[float]] = {"disk": [], "model": []}
        for pair in range(pairs):
            note(f"{name}: pair {pair + 1} of {pairs}")
            seconds["disk"].append(on_disk(device, directory, setup, command))
            seconds["model"].append(on_model(fitted, directory, setup, command))
        ratios = [model / disk - 1 for disk, model in zip(seconds["disk"], seconds["model"], strict=True)]
        row = {
            "program": name,
            "median_s": {way: statistics.median(values) for way, values in seconds.items()},
            "values_s": seconds,
            "error": statistics.median(seconds["model"]) / statistics.median(seconds["disk"]) - 1,
            "error_of_pairs_interval": interval(ratios),
            "load": os.getloadavg()[0],
        }
        rows.append(row)
        note(f"{name}: {row['median_s']}, error {row['error']:+.1%}")
    return rows


def main() -> None:
    """Sweep, fit, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default=".", help="where the file is made: on the disk to be measured")
    parser.add_argument("--reps", type=int, default=10, help="pairs of each program (10)")
    parser.add_argument("--only", action="append", help="only this program")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        target = Path(folder) / "disk"
        # Bytes and not holes, which a file system would answer by itself.
        with target.open("wb") as file:
            for _ in range(MEBIBYTES):
                file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())
        device = run("losetup", "--find", "--show", "--direct-io=on", target).strip()
        try:
            queue = Path("/sys/block") / Path(device).name / "queue"
            for file_name, value in (
                ("read_ahead_kb", READ_AHEAD_KIB),
                ("scheduler", "none"),
                ("max_sectors_kb", REQUEST_KIB),
                ("write_cache", "write through"),
            ):
                (queue / file_name).write_text(str(value))
            measured = sweep(partial(measure, device))
            fitted = RESULTS / "reality-profile.toml"
            fitted.write_text(profile(measured, MEBIBYTES))
            directory = Path(folder) / "mount"
            directory.mkdir()
            rows = compare(device, fitted, directory, arguments.reps, arguments.only)
        finally:
            run("losetup", "--detach", device)
    keep("reality", {"schema": SCHEMA, "pairs": arguments.reps, "sweep": measured, "rows": rows})


if __name__ == "__main__":
    main()
