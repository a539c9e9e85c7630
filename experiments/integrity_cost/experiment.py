"""What checksums, commits and other checks cost: two builds of the command, alternating, on the same loads.

Each pair serves the same new device through NBD and lets fio write and then read it, with either build first in turn.
The ratio of a pair is the later build's figure over the earlier one's; the result has the mean over the pairs with
Student's 95 % interval. The device has no delay, so that what a store takes shows in full: `null` has no volatile
cache, so that each write must be recorded before it completes; `integrity_cost/cached.toml` has one, so that what is
left are checksums and checks. On a machine that others use, too, requests per second vary by factors; the server's CPU
time for each request, which bounds them, varies much less.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.command import ROOT, executable, keep, note

#: Two-sided 95 % points of Student's t by degrees of freedom; beyond them the normal distribution's.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131]
CAPACITY = "256MiB"


@dataclass(frozen=True)
class Load:
    """A load of fio."""

    name: str
    block: str
    depth: int
    random: bool

    def options(self, direction: str) -> list[str]:
        """Return fio's options for writing or reading."""
        pattern = f"rand{direction}" if self.random else direction
        return [f"--rw={pattern}", f"--bs={self.block}", f"--iodepth={self.depth}"]


LOADS = [
    Load("4 KiB random, depth 1", "4k", 1, random=True),
    Load("4 KiB random, depth 32", "4k", 32, random=True),
    Load("1 MiB sequential, depth 4", "1m", 4, random=False),
]
STORES = {
    "file": ["--store", "{folder}/disk"],
    "overflow": ["--store", "overflow:{folder}/disk", "--ram-budget", "64MiB"],
    "image": ["--store", "{folder}/disk", "--squash=exact"],
}


def fio(uri: str, load: Load, direction: str, seconds: float) -> dict[str, float]:
    """Run fio against a served device; return requests, requests per second and the 99th percentile of latency."""
    call = ["fio", "--name=load", "--ioengine=nbd", f"--uri={uri}", "--output-format=json", "--time_based"]
    call += ["--size=256m", f"--runtime={seconds}", "--randseed=7", "--norandommap", *load.options(direction)]
    # Half of each block compresses, as an image's blocks do or do not.
    call += ["--buffer_compress_percentage=50", "--refill_buffers=1"]
    done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0][direction]
    return {
        "requests": job["total_ios"],
        "iops": job["iops"],
        "p99_us": job["clat_ns"]["percentile"]["99.000000"] / 1000,
    }


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, of its programs and in the kernel; the kernel counts it in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load_with_cpu(pid: int, uri: str, load: Load, direction: str, seconds: float) -> dict[str, float]:
    """Do the same, and return the server's CPU time for a request as well."""
    begun = cpu_seconds(pid)
    seen = fio(uri, load, direction, seconds)
    # At least a step, so that there is a ratio.
    used = max(cpu_seconds(pid) - begun, 1 / os.sysconf("SC_CLK_TCK"))
    return {**seen, "cpu_us": used / seen["requests"] * 1e6}


def serve(command: Path, device: str, store: list[str], load: Load, seconds: float) -> dict[str, dict[str, float]]:
    """Serve a new device with one build and load it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        where = [part.format(folder=folder) for part in store]
        socket = f"{folder}/nbd.sock"
        call = [str(command), "serve", "--device", device, "--capacity", CAPACITY, *where, "--nbd", f"unix:{socket}"]
        call += ["-o", f"{folder}/run"]
        server = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            deadline = time.monotonic() + 30
            while not os.path.exists(socket):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{' '.join(call)}: {server.communicate()[1].decode()}")
                time.sleep(0.01)
            uri = f"nbd+unix:///?socket={socket}"
            return {
                direction: load_with_cpu(server.pid, uri, load, direction, seconds) for direction in ("write", "read")
            }
        finally:
            server.terminate()
            server.communicate()


def interval(values: list[float]) -> dict[str, float]:
    """Return the mean of logarithms as a ratio, with its 95 % interval."""
    logs = [math.log(value) for value in values]
    mean = statistics.fmean(logs)
    student = STUDENT[len(logs) - 2] if len(logs) - 2 < len(STUDENT) else 1.96
    half = student * statistics.stdev(logs) / math.sqrt(len(logs))
    return {"ratio": math.exp(mean), "low": math.exp(mean - half), "high": math.exp(mean + half)}


def measure(before: Path, after: Path, pairs: int, seconds: float, device: str) -> list[dict[str, Any]]:
    """Measure each store under each load in alternating pairs."""
    rows: list[dict[str, Any]] = []
    for store, where in STORES.items():
        for load in LOADS:
            ratios: dict[str, list[float]] = {}
            for pair in range(pairs):
                order = [before, after] if pair % 2 == 0 else [after, before]
                seen = {command: serve(command, device, where, load, seconds) for command in order}
                for direction in ("write", "read"):
                    for figure in ("iops", "p99_us", "cpu_us"):
                        ratio = seen[after][direction][figure] / seen[before][direction][figure]
                        ratios.setdefault(f"{direction} {figure}", []).append(ratio)
            for name, values in ratios.items():
                direction, figure = name.split()
                row = {"store": store, "load": load.name, "direction": direction, "figure": figure}
                rows.append({**row, **interval(values), "ratios": [round(value, 4) for value in values]})
                last = rows[-1]
                note(f"{store:9} {load.name:26} {name:14} {last['ratio']:.3f} ({last['low']:.3f}-{last['high']:.3f})")
    return rows


def main() -> None:
    """Measure, and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="the command of the build to compare with")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each load runs in each direction")
    parser.add_argument("--device", default="null")
    arguments = parser.parse_args()
    begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    rows = measure(arguments.before, executable(), arguments.pairs, arguments.seconds, arguments.device)
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    keep(
        f"integrity-cost-{Path(arguments.device).stem}",
        {
            "schema": "chronodisk.experiment/1",
            "commit": commit.stdout.strip(),
            "date": begun,
            "host": f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}",
            "load_average": os.getloadavg(),
            "command": " ".join(["python", "-m", "integrity_cost.experiment", *sys.argv[1:]]),
            "repetitions": arguments.pairs,
            "device": arguments.device,
            "rows": rows,
        },
    )


if __name__ == "__main__":
    main()
