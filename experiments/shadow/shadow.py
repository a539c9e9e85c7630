"""The model-only mode of David (Agrawal et al., ACM TOS 7(4), 2012, section 6.1, figures 6 and 7) on this machine.

A file on this machine's own disk stands for the real device, past the page cache. A short sweep measures it (see
`common/disk_sweep.py`), and a table profile is fitted to that. Then the file serves fio jobs that the sweep has not
seen, with the fitted model beside it, and the distributions of both are drawn: the paper's four micro-workloads with
sizes between those of the sweep, a mixture, and two depths.

What the model can't know is this machine's noise: a virtual disk shares its host, and no two sweeps are the same.
"""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from common.command import RESULTS, chronodisk, keep, note
from common.disk_sweep import KINDS, SWEEP_SECONDS, Point, profile, sweep
from common.plots import save

JOB_SECONDS = 10

JOBS: dict[str, list[str]] = {
    "random reads of 8 KiB": ["--rw=randread", "--bs=8k"],
    "random writes of 8 KiB": ["--rw=randwrite", "--bs=8k"],
    "sequential reads of 32 KiB": ["--rw=read", "--bs=32k"],
    "sequential writes of 32 KiB": ["--rw=write", "--bs=32k"],
    "mixed sizes, one at a time": ["--rw=randrw", "--bsrange=4k-256k", "--rwmixread=70"],
    "reads of 4 KiB at depth 8": ["--rw=randread", "--bs=4k", "--iodepth=8"],
    "reads and writes of 16 KiB at depth 5": ["--rw=randrw", "--bs=16k", "--iodepth=5"],
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


def measure(target: Path, word: str, size_kib: int, depth: int) -> Point:
    """Return what requests of the real device took."""
    shadow = fio(target, "null", SWEEP_SECONDS, f"--rw={word}", f"--bs={size_kib}k", f"--iodepth={depth}")
    fidelity = shadow["fidelity"]
    seconds = shadow["measured_total_ns"] / 1e9
    return Point(fidelity["mean_measured_ms"] * 1e3, fidelity["requests"] / seconds, outstanding=depth)


def plot_sweep(measured: dict[str, Any]) -> Figure:
    """Draw the times that the profile is made of, and the rates by depth."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for kind in KINDS:
        left.loglog(measured["sizes_kib"], measured["times"][kind]["mean_us"], marker="o", label=kind)
    left.set_xlabel("size (KiB)")
    left.set_ylabel("mean service time (µs)")
    left.legend(frameon=False)
    for direction, by_size in measured["by_depth"].items():
        rates = {int(depth): point["requests_per_second"] for depth, point in by_size["4"].items()}
        right.semilogx(list(rates), list(rates.values()), marker="o", base=2, label=direction)
    right.legend(frameon=False)
    right.set_xlabel("random requests of 4 KiB at once")
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
        measured = sweep(partial(measure, target))
        fitted = RESULTS / "shadow-profile.toml"
        RESULTS.mkdir(parents=True, exist_ok=True)
        fitted.write_text(profile(measured, arguments.mebibytes))
        result: dict[str, Any] = {"sweep": measured, "jobs": {}}
        for number, (name, options) in enumerate(JOBS.items(), 1):
            note(f"compare: {name}")
            plot = RESULTS / f"shadow-{number}.svg"
            result["jobs"][name] = fio(target, str(fitted), JOB_SECONDS, *options, plot=plot)
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
