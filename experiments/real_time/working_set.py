"""Late requests of a device whose working set is four times the memory for its bytes, without and with preload.

Section 3.1 of the Memulator paper proposes, and leaves to others, to bring data into memory ahead of their use by the
access list of an earlier run. Here fio reads at random over a file of a device of 1 ms, and of one of 100 µs, once with
everything in memory, once through an overflow store, and once through one that is preloaded with the run before.
Before each run the host's page cache gives the file up. *Late* is more than 1 % of the service time and 5 µs after due.
"""

import argparse
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from common.command import chronodisk, keep, note

SCHEMA = "chronodisk.experiment.working-set/1"
MIB = 1 << 20
#: Memory for the bytes; the device, all of which is read, is four times as large.
BUDGET_MIB, DEVICE_MIB = 16, 64
#: Reads of 4 KiB without repetition: once over the whole device.
REQUESTS = DEVICE_MIB * MIB // 4096
DEVICES = ("constant-1ms", "constant-100us")
#: What `docs/serving-a-device.md` promises: memory of an overflow store beyond its budget.
OVERHEAD_BYTES = 2 * MIB


def run(device: str, store: list[str], output: Path, requests: int) -> dict[str, Any]:
    """Serve the device to fio, and return what became of its requests."""
    fio = "fio --name=job --ioengine=nbd --rw=randread --bs=4k --randseed=7 --output=/dev/null"
    words = f'{fio} --size={DEVICE_MIB}m --number_ios={requests} --uri="$uri"'
    with tempfile.TemporaryDirectory() as directory:
        where = ["--capacity", f"{DEVICE_MIB}MiB", "--nbd", f"unix:{directory}/socket", "--output", str(output)]
        result = chronodisk("serve", "--device", device, *where, *store, "--run", words)
    rep = result["reps"][0]
    summary, counted = rep["summary"], rep["model_statistics"]
    return {
        "requests": summary["requests"],
        "late_percent": 100 * summary["late_share"],
        "lateness_us": summary["lateness_us"],
        "stolen_requests": rep["server"]["stolen_requests"],
        "misses": counted.get("store-misses"),
        "preloaded": counted.get("store-preloaded"),
        "memory_bytes": counted.get("store-memory-bytes"),
    }


def forget(file: Path) -> None:
    """Let the host's page cache give the file up."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def measure(device: str, folder: Path, requests: int) -> list[dict[str, Any]]:
    """Measure the three stores on a device."""
    file = folder / "bytes"
    with file.open("wb") as bytes_:
        for _ in range(DEVICE_MIB):
            bytes_.write(os.urandom(MIB))
    overflow = ["--store", f"overflow:{file}", "--ram-budget", f"{BUDGET_MIB}MiB"]
    first = folder / f"{device}-first"
    rows = []
    for name, store, output in (
        ("in memory", [], folder / f"{device}-memory"),
        ("overflow", overflow, first),
        ("overflow, preloaded", [*overflow, "--preload", str(first)], folder / f"{device}-second"),
    ):
        note(f"{device}, {name}")
        forget(file)
        row = {"device": device, "store": name} | run(device, store, output, requests)
        row["load"] = os.getloadavg()[0]
        if row["memory_bytes"] is not None and row["memory_bytes"] > BUDGET_MIB * MIB + OVERHEAD_BYTES:
            raise SystemExit(f"{device}, {name}: {row['memory_bytes']:.0f} bytes of memory are more than was promised")
        rows.append(row)
    return rows


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=REQUESTS, help=f"of each run ({REQUESTS})")
    parser.add_argument("--directory", default=".", help="where the file is made: on the disk that shall be slow")
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=chosen.directory) as folder:
        for device in DEVICES:
            rows += measure(device, Path(folder), chosen.requests)
    for row in rows:
        late, memory = row["lateness_us"], row["memory_bytes"]
        line = f"{row['device']:<15}{row['store']:<20}{row['late_percent']:>7.2f} % late, p50 {late['p50']:.1f} µs"
        line += f", p99 {late['p99']:.1f}, misses {row['misses']}, preloaded {row['preloaded']}"
        print(line + (f", memory {memory / MIB:.2f} MiB" if memory else "") + f", load {row['load']:.1f}")
    result = {"schema": SCHEMA, "requests": chosen.requests, "budget_mib": BUDGET_MIB, "device_mib": DEVICE_MIB}
    keep("working-set", result | {"kernel": platform.release(), "processors": os.cpu_count(), "rows": rows})


if __name__ == "__main__":
    main()
