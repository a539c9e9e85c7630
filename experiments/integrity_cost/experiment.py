"""What checksums cost: the command with and without them, alternating, on the same loads.

Both builds serve a new device through NBD at the same time, each bound to the first processor; fio, on the second one,
loads one and then the other for a short while, with either build first in turn. A ratio is the geometric mean over the
pairs of two servers, of the build with checksums over the one without. Two processes of the same build differ by
factors, by the memory that they happen to get; so the servers are started anew several times, and the result has the
median over these with its 95 % interval by ranks.

Only images have checksums. Files and overflow stores are the control: their ratios are 1 but for what the measurement
itself is off by. The device has no delay, so that what a store takes shows in full. `null` has no volatile cache, so
that each write must be recorded before it completes; `integrity_cost/cached.toml` has one.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.command import executable, keep, note

CAPACITY = "256MiB"
SERVER_CPU, CLIENT_CPU = "0", "1"


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
    call = [
        "taskset",
        "--cpu-list",
        CLIENT_CPU,
        "fio",
        "--name=load",
        "--ioengine=nbd",
        f"--uri={uri}",
        "--output-format=json",
        "--time_based",
    ]
    call += [
        "--size=256m",
        f"--runtime={round(seconds * 1000)}ms",
        "--randseed=7",
        "--norandommap",
        *load.options(direction),
    ]
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


class Server:
    """A new device, served by one build."""

    def __init__(self, command: Path, device: str, store: list[str], folder: Path) -> None:
        """Start, and wait until clients can connect."""
        folder.mkdir()
        where = [part.format(folder=folder) for part in store]
        socket = folder / "nbd.sock"
        call = ["taskset", "--cpu-list", SERVER_CPU, str(command), "serve", "--device", device, "--capacity", CAPACITY]
        call += [*where, "--nbd", f"unix:{socket}", "-o", str(folder / "run")]
        self.process = subprocess.Popen(
            call, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self.uri = f"nbd+unix:///?socket={socket}"
        deadline = time.monotonic() + 30
        while not socket.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(call)}: {self.process.communicate()[1].decode()}")
            time.sleep(0.01)

    def end(self) -> None:
        """Stop, and wait for the end."""
        self.process.terminate()
        self.process.communicate()


def interval(values: list[float]) -> dict[str, float]:
    """Return the median, and the 95 % interval by ranks: the widest one that the binomial distribution permits."""
    ordered = sorted(values)
    count = len(ordered)
    below = 0.0
    rank = 0
    while (below := below + math.comb(count, rank) / 2**count) <= 0.025:
        rank += 1
    low = max(rank - 1, 0)
    return {"ratio": statistics.median(ordered), "low": ordered[low], "high": ordered[count - 1 - low]}


def ratios_of(servers: list[Server], load: Load, direction: str, pairs: int, seconds: float) -> dict[str, float]:
    """Load two servers in alternating pairs; return the second one's figures over the first's, as geometric means."""
    logarithms: dict[str, list[float]] = {}
    # The first pair fills the store and the caches.
    for pair in range(pairs + 1):
        order = servers if pair % 2 == 0 else servers[::-1]
        seen = {id(server): load_with_cpu(server.process.pid, server.uri, load, direction, seconds) for server in order}
        old, new = (seen[id(server)] for server in servers)
        if pair > 0:
            for figure in ("iops", "p99_us", "cpu_us"):
                logarithms.setdefault(figure, []).append(math.log(new[figure] / old[figure]))
    return {figure: math.exp(statistics.mean(values)) for figure, values in logarithms.items()}


def measure(
    before: Path, after: Path, starts: int, pairs: int, seconds: float, device: str, stores: list[str]
) -> list[dict[str, Any]]:
    """Measure each store under each load."""
    rows: list[dict[str, Any]] = []
    for store in stores:
        for load in LOADS:
            ratios: dict[str, list[float]] = {}
            for start in range(starts):
                with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
                    commands = [("before", before), ("after", after)]
                    # Who starts first may find other memory.
                    by_name = {
                        name: Server(command, device, STORES[store], Path(folder) / name)
                        for name, command in (commands if start % 2 == 0 else commands[::-1])
                    }
                    servers = [by_name["before"], by_name["after"]]
                    try:
                        for direction in ("write", "read"):
                            for figure, ratio in ratios_of(servers, load, direction, pairs, seconds).items():
                                ratios.setdefault(f"{direction} {figure}", []).append(ratio)
                    finally:
                        for server in servers:
                            server.end()
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
    parser.add_argument("--starts", type=int, default=8, help="how often both servers are started")
    parser.add_argument("--pairs", type=int, default=3, help="alternating loads of two servers")
    parser.add_argument("--seconds", type=float, default=0.4, help="how long each load runs in each direction")
    parser.add_argument("--device", default="null")
    parser.add_argument("--stores", nargs="+", choices=list(STORES), default=list(STORES))
    parser.add_argument("--dry-run", action="store_true", help="print the figures and keep nothing")
    arguments = parser.parse_args()
    pairs, seconds, device = arguments.pairs, arguments.seconds, arguments.device
    rows = measure(arguments.before, executable(), arguments.starts, pairs, seconds, device, arguments.stores)
    if arguments.dry_run:
        return
    result = {"schema": "chronodisk.experiment/1", "repetitions": arguments.starts, "device": arguments.device}
    keep(f"integrity-cost-{Path(arguments.device).stem}", {**result, "rows": rows})


if __name__ == "__main__":
    main()
