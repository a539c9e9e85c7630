"""What checksums cost: one server that sums in every other 0.2 s, so that nothing else differs between the phases.

Two processes of the same build differ by factors, by the memory that they happen to get. So the build of this
experiment (`switched-checksums.patch`) turns checksums on and off with the clock, and fio, which logs each request with
the time of its completion, tells what each phase did. A ratio is a phase with checksums over the mean of the phases
before and after it. The result has the median of these ratios with its 95 % interval by ranks.

A cost of 1 % is less than what phases differ by. So the same is measured with each block summed 20 times, and the
twentieth part of that cost is the ratio that the result judges; the ratio with one sum is beside it.

Only images have checksums. Files and overflow stores are the control: their ratios are 1 but for what the measurement
itself is off by. The device has no delay, so that what a store takes shows in full. `null` has no volatile cache, so
that each write must be recorded before it completes; `integrity_cost/cached.toml` has one.
"""

import argparse
import math
import os
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.command import keep, note

CAPACITY = "256MiB"
SERVER_CPU, CLIENT_CPU = "0", "1"
#: As the patch has it.
PHASE_MS = 200
#: How often each block is summed for the figure that is judged.
MANY = 20
#: At the beginning of a phase, requests are in flight that began in the other one, and clocks are a little off.
EDGE_MS = 10


@dataclass(frozen=True)
class Load:
    """A load of fio."""

    name: str
    block: str
    depth: int
    #: fio's name of the pattern, for each direction.
    pattern: str

    def options(self, direction: str) -> list[str]:
        """Return fio's options for writing, reading or both."""
        return [f"--rw={self.pattern}{direction}", f"--bs={self.block}", f"--iodepth={self.depth}"]


LOADS = [
    (Load("4 KiB random, depth 1", "4k", 1, "rand"), ("write", "read")),
    (Load("4 KiB random, depth 32", "4k", 32, "rand"), ("write", "read")),
    (Load("16 KiB random, depth 8", "16k", 8, "rand"), ("rw",)),
    (Load("1 MiB sequential, depth 4", "1m", 4, ""), ("write", "read")),
]
STORES = {
    "file": ["--store", "{folder}/disk"],
    "overflow": ["--store", "overflow:{folder}/disk", "--ram-budget", "64MiB"],
    "image": ["--store", "{folder}/disk", "--squash=exact"],
}
#: Which of fio's directions a figure's name tells.
SHOWN = {"write": "writes", "read": "reads", "rw": "reads and writes"}


def fio(uri: str, load: Load, direction: str, seconds: float, log: Path | None) -> None:
    """Run fio against a served device; the log has a line for each request."""
    call = ["taskset", "--cpu-list", CLIENT_CPU, "fio", "--name=load", "--ioengine=nbd", f"--uri={uri}"]
    call += ["--time_based", "--size=256m", f"--runtime={round(seconds * 1000)}ms", "--randseed=7", "--norandommap"]
    # Half of each block compresses, as an image's blocks do or do not.
    call += ["--buffer_compress_percentage=50", "--refill_buffers=1", *load.options(direction)]
    if log:
        call += [f"--write_lat_log={log}", "--log_unix_epoch=1", "--per_job_logs=0", "--disable_slat=1"]
        call += ["--disable_clat=1"]
    subprocess.run(call, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)


def requests_of(log: Path) -> Iterator[tuple[int, int]]:
    """Give the time of each completion in milliseconds of Unix time, and the latency in nanoseconds."""
    with log.with_name(log.name + "_lat.log").open(encoding="utf-8") as lines:
        for line in lines:
            at_ms, latency_ns, _ = line.split(",", 2)
            yield int(at_ms), int(latency_ns)


def ratios_of(requests: Iterator[tuple[int, int]]) -> dict[str, list[float]]:
    """Compare each phase with checksums to its neighbours: requests in it, and the 99th percentile of latency."""
    latencies: dict[int, list[int]] = defaultdict(list)
    for at_ms, latency_ns in requests:
        if EDGE_MS <= at_ms % PHASE_MS < PHASE_MS - EDGE_MS:
            latencies[at_ms // PHASE_MS].append(latency_ns)
    # The first and the last one are cut.
    whole = sorted(latencies)[1:-1]
    ratios: dict[str, list[float]] = {"iops": [], "p99_us": []}
    for phase in whole:
        if phase % 2 or phase - 1 not in whole or phase + 1 not in whole:
            continue
        before, here, after = (sorted(latencies[number]) for number in (phase - 1, phase, phase + 1))
        ratios["iops"].append(2 * len(here) / (len(before) + len(after)))
        ratios["p99_us"].append(2 * percentile_99(here) / (percentile_99(before) + percentile_99(after)))
    return ratios


def percentile_99(ordered: list[int]) -> int:
    """Return the 99th percentile, by rank."""
    return ordered[math.ceil(len(ordered) * 0.99) - 1]


class Server:
    """A new device, served by the build whose checksums are switched."""

    def __init__(self, command: Path, device: str, store: list[str], folder: Path, sums: int) -> None:
        """Start, and wait until clients can connect; each block is summed so often."""
        where = [part.format(folder=folder) for part in store]
        socket = folder / "nbd.sock"
        call = ["taskset", "--cpu-list", SERVER_CPU, str(command), "serve", "--device", device, "--capacity", CAPACITY]
        call += [*where, "--nbd", f"unix:{socket}", "-o", str(folder / "run")]
        self.process = subprocess.Popen(
            call,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "CHECKSUMS_OF_A_BLOCK": str(sums)},
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
    """Return the median, and its 95 % interval by ranks."""
    ordered = sorted(values)
    count = len(ordered)
    below = 0.0
    rank = 0
    while (below := below + math.comb(count, rank) / 2**count) <= 0.025:
        rank += 1
    low = max(rank - 1, 0)
    return {"ratio": statistics.median(ordered), "low": ordered[low], "high": ordered[count - 1 - low]}


def of_one(figure: str, ratio: float) -> float:
    """Return the ratio that one sum of `MANY` has: the time of a request grows by the same for each of them."""
    if figure == "iops":
        return 1 / (1 + (1 / ratio - 1) / MANY)
    return 1 + (ratio - 1) / MANY


def measure(command: Path, starts: int, seconds: float, device: str, stores: list[str]) -> list[dict[str, Any]]:
    """Measure each store under each load."""
    rows: list[dict[str, Any]] = []
    for store in stores:
        # Stores without checksums are the control of the one sum.
        for sums in (1, MANY) if store == "image" else (1,):
            for load, directions in LOADS:
                ratios = ratios_under(command, starts, seconds, device, store, load, directions, sums)
                for (direction, figure), values in ratios.items():
                    kept = interval([of_one(figure, value) for value in values] if sums > 1 else values)
                    row = {"store": store, "load": load.name, "direction": SHOWN[direction], "figure": figure}
                    rows.append({**row, "sums": sums, **kept, "phases": len(values)})
                    note(
                        f"{store:9} {load.name:26} {SHOWN[direction]:16} {figure:7} {sums:2} sums "
                        f"{kept['ratio']:.3f} ({kept['low']:.3f}-{kept['high']:.3f})"
                    )
    return rows


def ratios_under(
    command: Path,
    starts: int,
    seconds: float,
    device: str,
    store: str,
    load: Load,
    directions: tuple[str, ...],
    sums: int,
) -> dict[tuple[str, str], list[float]]:
    """Measure one store under one load: the ratios of all phases by direction and figure."""
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(starts):
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            server = Server(command, device, STORES[store], Path(folder), sums)
            try:
                # What is read was written before.
                fio(server.uri, load, "write", 1, None)
                for direction in directions:
                    log = Path(folder) / "fio"
                    fio(server.uri, load, direction, seconds, log)
                    for figure, values in ratios_of(requests_of(log)).items():
                        ratios[direction, figure] += values
            finally:
                server.end()
    return ratios


def main() -> None:
    """Measure, and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", type=Path, required=True, help="the command with switched checksums")
    parser.add_argument("--starts", type=int, default=3, help="how often the server is started for each load")
    parser.add_argument("--seconds", type=float, default=10, help="how long each load runs in each direction")
    parser.add_argument("--device", default="null")
    parser.add_argument("--stores", nargs="+", choices=list(STORES), default=["file", "image"])
    parser.add_argument("--dry-run", action="store_true", help="print the figures and keep nothing")
    arguments = parser.parse_args()
    rows = measure(arguments.command, arguments.starts, arguments.seconds, arguments.device, arguments.stores)
    if arguments.dry_run:
        return
    result = {"schema": "chronodisk.experiment/1", "repetitions": arguments.starts, "device": arguments.device}
    keep(f"integrity-cost-{Path(arguments.device).stem}", {**result, "rows": rows})


if __name__ == "__main__":
    main()
