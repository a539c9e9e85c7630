"""Fast devices in a guest: requests a second, beside the model alone and this host's CPU time per request.

Random reads of 4 KiB by fio, one job: libaio and io_uring at depths 1, 8 and 32, and psync. In each repetition every
load runs natively on a file of this host's disk, for the CPU time per request, and then in a guest on each device. The
guest has the costs that `chronodisk calibrate` measures just before, unless `--built-in` keeps the built-in ones.

A processor that takes c seconds per request serves at most 1/c of them a second. So the aim is 1/(latency + c) at depth
1, within 15 %, and the smaller of 1/c and the rate of the model alone at more, within -15 and +5 %.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from common.command import CommandFailed, chronodisk, chronodisk_with_output, executable, keep, note

SCHEMA = "chronodisk.experiment.fast-devices/1"
NAME = "fast-devices"
DEVICES = ["null", "intel-p4800x", "samsung-pm9a3"]
LOADS = [("psync", 1), *((engine, depth) for engine in ("libaio", "io_uring") for depth in (1, 8, 32))]
FILE_BYTES = 256 << 20


def job(engine: str, depth: int, file: str, requests: int) -> list[str]:
    """Give fio's command line."""
    words = ["fio", "--name=reads", f"--filename={file}", "--rw=randread", "--bs=4k", "--direct=1", "--thread"]
    words += [f"--ioengine={engine}", f"--iodepth={depth}", f"--size={FILE_BYTES}", f"--number_ios={requests}"]
    return [*words, "--randseed=42", "--output-format=json"]


def told_by_fio(printed: str) -> dict[str, Any]:
    """Find fio's job among all that was printed."""
    begin = printed.find('{\n  "fio version"')
    if begin < 0:
        raise CommandFailed(f"fio printed no JSON:\n{printed}")
    told: dict[str, Any] = json.JSONDecoder().raw_decode(printed[begin:])[0]["jobs"][0]
    return told


def native_cpu_us(engine: str, depth: int, file: Path, requests: int) -> float:
    """Measure the CPU time per request on this host, in microseconds."""
    words = job(engine, depth, str(file), requests)
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(words)} ended with status {done.returncode}:\n{done.stderr}")
    told = told_by_fio(done.stdout)
    share = (told["usr_cpu"] + told["sys_cpu"]) / 100
    return float(share * told["job_runtime"] * 1e3 / told["read"]["total_ios"])


def guest_rate(device: str, engine: str, depth: int, requests: int) -> float:
    """Measure the rate in a guest, in requests a second of its time."""
    options = ["--device", device, "--capacity", "1GiB", "--fs", "none", "--scheduler", "none", "--memory", "256MiB"]
    _, printed = chronodisk_with_output("run", *options, "--", *job(engine, depth, "/dev/vda", requests))
    return float(told_by_fio(printed)["read"]["iops"])


def model(device: str, depth: int, requests: int) -> dict[str, float]:
    """Simulate the model alone: its mean latency in microseconds, and its rate."""
    words = ["--device", device, "--capacity", "1GiB", "--workload", "random-read", "--block-size", "4KiB"]
    result = chronodisk("simulate", *words, "--depth", str(depth), "--requests", str(requests))
    return {"latency_us": result["latency_us"]["mean"], "rate": result["iops"]}


def judged(row: dict[str, Any]) -> dict[str, Any]:
    """Add the aim of a row, and how far the guest's median is from it."""
    cpu_us = statistics.median(row["native_cpu_us"])
    if row["depth"] == 1:
        aim, low, high = 1e6 / (row["model"]["latency_us"] + cpu_us), -15.0, 15.0
    else:
        aim, low, high = min(row["model"]["rate"], 1e6 / cpu_us), -15.0, 5.0
    off = (statistics.median(row["guest_rate"]) / aim - 1) * 100
    return row | {"aim_rate": aim, "off_percent": off, "bounds_percent": [low, high], "holds": low <= off <= high}


def measure(arguments: argparse.Namespace, file: Path) -> list[dict[str, Any]]:
    """Run all repetitions, each load after the other."""
    rows: list[dict[str, Any]] = [
        {
            "device": device,
            "engine": engine,
            "depth": depth,
            "model": model(device, depth, arguments.requests),
            "native_cpu_us": [],
            "guest_rate": [],
        }
        for engine, depth in LOADS
        for device in DEVICES
    ]
    for repetition in range(arguments.reps):
        for engine, depth in LOADS:
            note(f"repetition {repetition + 1} of {arguments.reps}: {engine} at depth {depth}")
            cpu_us = native_cpu_us(engine, depth, file, arguments.requests)
            for row in rows:
                if (row["engine"], row["depth"]) == (engine, depth):
                    row["native_cpu_us"].append(cpu_us)
                    row["guest_rate"].append(guest_rate(row["device"], engine, depth, arguments.requests))
    return [judged(row) for row in rows]


def calibrate(file: Path) -> None:
    """Measure this host's costs into a file, and use them from here on."""
    os.environ["CHRONODISK_CALIBRATION"] = str(file)
    note("calibrating")
    words = [str(executable()), "calibrate"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(words)} ended with status {done.returncode}:\n{done.stderr}")


def main() -> None:
    """Measure all rows and keep them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=10, help="repetitions (default: 10)")
    parser.add_argument("--requests", type=int, default=20_000, help="requests of a load (default: 20000)")
    parser.add_argument("--built-in", action="store_true", help="the built-in costs, not those of this host")
    arguments = parser.parse_args()
    # Not /tmp, which has no direct reads where it is in memory.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        costs = Path(folder) / "calibration.json"
        if arguments.built_in:
            os.environ["CHRONODISK_CALIBRATION"] = str(costs)
        else:
            calibrate(costs)
        file = Path(folder) / "data"
        with file.open("wb") as data:
            for _ in range(FILE_BYTES >> 20):
                data.write(os.urandom(1 << 20))
            data.flush()
            os.fsync(data.fileno())
        rows = measure(arguments, file)
    for row in rows:
        name = f"{row['device']}, {row['engine']}, depth {row['depth']}"
        rate = statistics.median(row["guest_rate"])
        print(f"{name:<36} {rate:>9,.0f}/s, aim {row['aim_rate']:>9,.0f}/s, {row['off_percent']:+.1f} %")
    result = {"schema": SCHEMA, "repetitions": arguments.reps, "requests": arguments.requests}
    costs_of = "built-in" if arguments.built_in else "this host"
    note(f"result: {keep(NAME, result | {'costs': costs_of, 'rows': rows})}")


if __name__ == "__main__":
    main()
