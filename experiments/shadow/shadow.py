"""The model-only mode of David (Agrawal et al., ACM TOS 7(4), 2012, section 6.1, figures 6 and 7) on this machine.

A file on this machine's own disk stands for the real device, past the page cache. A short sweep measures it: random and
sequential reads and writes of several sizes, one at a time, and random reads of 4 KiB at several depths. A table
profile is fitted to that: the median of each kind and size, and as many channels as the deepest queue was faster than
a single request. Then the file serves fio jobs that the sweep has not seen, with the fitted model beside it, and the
distributions of both are drawn.

What the model can't know is this machine's noise: a virtual disk shares its host, and no two sweeps are the same. So it
is the median that is fitted, what a request takes when nothing interferes, and the machine should be quiet.
"""

import argparse
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from common.command import RESULTS, chronodisk, executable, keep, note
from common.plots import save

SIZES_KIB = (4, 16, 64, 256, 1024)
KINDS = {"random-read": "randread", "random-write": "randwrite", "sequential-read": "read", "sequential-write": "write"}
DEPTH = 32
SWEEP_SECONDS = 2
JOB_SECONDS = 10

JOBS: dict[str, list[str]] = {
    "mixed sizes, one at a time": ["--rw=randrw", "--bsrange=4k-256k", "--rwmixread=70"],
    "4 KiB at depth 8": ["--rw=randread", "--bs=4k", "--iodepth=8"],
}


def fio(target: Path, device: str, seconds: int, *options: str, plot: Path | None = None) -> dict[str, Any]:
    """Serve the file to a job of fio with a model beside it, and return what both took."""
    job = ["--name=job", "--ioengine=nbd", f"--size={target.stat().st_size}", "--randseed=42", "--time_based"]
    words = " ".join([*job, f"--runtime={seconds}", *options])
    with tempfile.TemporaryDirectory() as directory:
        where = ["--shadow", str(target), "--nbd", f"unix:{directory}/socket", "--output", f"{directory}/result"]
        drawn = ["--plot", str(plot)] if plot else []
        result = chronodisk("serve", "--device", device, *where, *drawn, "--run", f'fio {words} --uri="$uri"')
    shadow: dict[str, Any] = result["reps"][0]["shadow"]
    return shadow


def median_us(shadow: dict[str, Any]) -> float:
    """Return the median of the real device's service times in microseconds."""
    pairs = shadow["fidelity"]["quantiles"]
    return float(next(pair["measured_ms"] for pair in pairs if pair["percent"] == 50) * 1e3)


def sweep(target: Path) -> dict[str, Any]:
    """Return the median times in microseconds by kind and size, and requests per second by depth."""
    times: dict[str, list[float]] = {}
    for kind, rw in KINDS.items():
        for size in SIZES_KIB:
            note(f"sweep: {kind}, {size} KiB")
            shadow = fio(target, "null", SWEEP_SECONDS, f"--rw={rw}", f"--bs={size}k")
            times.setdefault(kind, []).append(median_us(shadow))
    rates: dict[str, float] = {}
    for depth in (1, 2, 4, 8, 16, DEPTH):
        note(f"sweep: depth {depth}")
        shadow = fio(target, "null", SWEEP_SECONDS, "--rw=randread", "--bs=4k", f"--iodepth={depth}")
        rates[str(depth)] = shadow["fidelity"]["requests"] / (shadow["measured_total_ns"] / 1e9)
    return {"sizes_kib": SIZES_KIB, "median_us": times, "requests_per_second_by_depth": rates}


def fit(measured: dict[str, Any], target: Path) -> str:
    """Return the profile of a table device that has what the sweep measured."""
    rates = measured["requests_per_second_by_depth"]
    channels = min(DEPTH, max(1, round(max(rates.values()) / rates["1"])))
    rows = ""
    for index, size in enumerate(measured["sizes_kib"]):
        times = {kind: measured["median_us"][kind][index] for kind in KINDS}
        rows += f'\n[[row]]\nsize = "{size} KiB"\n'
        rows += "".join(f'{kind} = "{time:.3f} us"\n' for kind, time in times.items())
    return f"""# Fitted to a sweep by experiments/shadow: medians of single requests, gain of a queue of {DEPTH}.
name = "this-machine"
kind = "table"
description = "This machine's own disk"
source = "a sweep of this machine's disk"
validation = "unvalidated"
capacity = "{target.stat().st_size >> 20} MiB"
channels = {channels}
speed-up = 1
{rows}"""


def check(target: Path, profile: Path) -> None:
    """Fail early where the profile can't be read."""
    subprocess.run([str(executable()), "devices", "show", str(profile)], check=True, stdout=subprocess.DEVNULL)
    note(f"fitted: {profile.read_text().splitlines()[7]}, rows for {target}")


def plot_sweep(measured: dict[str, Any]) -> Figure:
    """Draw the times that the profile is made of, and the rates by depth."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for kind, times in measured["median_us"].items():
        left.loglog(measured["sizes_kib"], times, marker="o", label=kind)
    left.set_xlabel("size (KiB)")
    left.set_ylabel("median service time (µs)")
    left.legend(frameon=False)
    rates = measured["requests_per_second_by_depth"]
    right.semilogx([int(depth) for depth in rates], list(rates.values()), marker="o", base=2)
    right.set_xlabel("random reads of 4 KiB at once")
    right.set_ylabel("requests/s")
    figure.suptitle("Sweep of this machine's disk")
    return figure


def main() -> None:
    """Sweep, fit, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default=".", help="where the file is made: on the disk to be measured")
    parser.add_argument("--mebibytes", type=int, default=1024, help="size of the file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        target = Path(directory) / "disk"
        # Bytes and not holes, which a file system would answer by itself.
        with target.open("wb") as file:
            for _ in range(arguments.mebibytes):
                file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())
        measured = sweep(target)
        profile = RESULTS / "shadow-profile.toml"
        RESULTS.mkdir(parents=True, exist_ok=True)
        profile.write_text(fit(measured, target))
        check(target, profile)
        result: dict[str, Any] = {"sweep": measured, "jobs": {}}
        for number, (name, options) in enumerate(JOBS.items(), 1):
            note(f"compare: {name}")
            plot = RESULTS / f"shadow-{number}.svg"
            result["jobs"][name] = fio(target, str(profile), JOB_SECONDS, *options, plot=plot)
    for name, shadow in result["jobs"].items():
        shadow["target"] = "a file on this machine's disk"
        fidelity = shadow["fidelity"]
        total = shadow["simulated_total_ns"] / shadow["measured_total_ns"] - 1
        print(
            f"{name}: measured {fidelity['mean_measured_ms']:.3f} ms, simulated {fidelity['mean_simulated_ms']:.3f} ms,"
            f" demerit {fidelity['demerit_percent']:.1f} %, total time {total:+.1%}"
        )
    keep("shadow", result)
    save(plot_sweep(measured), RESULTS / "shadow-sweep.svg")


if __name__ == "__main__":
    main()
