"""The case study of Thekkath, Wilkes and Lazowska, "Techniques for File System Simulation" (1994).

Twenty users who edit, compile, and work with directories and files (`users.sh`) were recorded once on a host; the
trace is `users.calls`. It is replayed in a guest on the HP C2247A, without and with 256 KiB of non-volatile memory in
front of it, at several speeds of the processor. The exact clock makes every figure repeatable.

* Figure 3: data that moves between file system and disk per second, against the speed of the processor.
* Figure 4 and table I: the same of workloads that are drawn from the trace's 20 groups, without the memory. Each
  value is one replay, as in the paper.

The kernel writes back every 5 s, and where in such a period a user writes decides whether a block is written once or
twice. So the least change of a load changes its throughput, and the shorter the load, the more: with a trace of three
rounds, 16 draws had a standard deviation of 1.9 % at speed 6. The trace has as many rounds as fit into 3 MB: 24, chosen
before they were recorded. `draws.py` measures the deviation.

Speed 1 is 0.093 of the recording host's processor. With that a round takes as long as in an earlier trace, which was
recorded on a slower host, with 0.15. The paper says no more of its own processor than that the disk limits the
throughput from about twice that speed on. ext2 allocates as FFS does (oldalloc), and writes directories and inodes
synchronously, as FFS did (dirsync). ext4 is mounted with its defaults: it has a journal, and no write of a user waits
for the disk.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from common.command import chronodisk, keep, note
from common.simulation import keep_plot, profile_text

SCHEMA = "chronodisk.experiment.simulation-1994/1"
NAME = "simulation-1994"
TRACE = Path(__file__).with_name("users.calls")
DISK = "hp-c2247a"
NONVOLATILE = '\n[nonvolatile]\nblocks = "256 KiB"\n'
BASE_SPEED = 0.093
SPEEDS = [1, 2, 3, 4, 5, 6, 8, 10, 12]
TABLE_SPEEDS = [1, 2, 3, 4, 5, 6]
BOOTSTRAPS = [1, 2, 3]
FILE_SYSTEMS = {"ext2": ["--mount-options", "oldalloc,dirsync"], "ext4": []}
#: Variation of the throughput in percent, table I of the paper.
PAPER = [[0.0, 0.0, 0.9, 1.3, -0.9, -1.2], [0.0, 0.0, 2.2, 0.0, 2.2, 1.7], [0.0, 0.1, 2.2, 0.2, 0.0, 1.7]]


def replay(device: Path, file_system: str, speed: float, clock: str, seed: int | None = None) -> dict[str, Any]:
    """Replay the trace, or a draw of its groups, and return the figures of the run."""
    flags = ["--device", str(device), "--fs", file_system, *FILE_SYSTEMS[file_system], "--clock", clock]
    flags += ["--cpu-speed", f"{speed * BASE_SPEED}x", "--start-time", "1700000000"]
    flags += [] if seed is None else ["--bootstrap", str(seed)]
    with tempfile.TemporaryDirectory() as directory:
        result = chronodisk("trace replay", str(TRACE), *flags, "--output", f"{directory}/run")
    rep = result["reps"][0]
    summary = rep["summary"]
    found = {
        "speed": speed,
        "mb_per_s": summary["mb_per_s"],
        "run_time_s": rep["run_time_ns"] / 1e9,
        "requests": summary["requests"],
        "utilisation": summary["utilisation"],
        "skipped": result["replay"]["skipped"],
        "differed": result["replay"]["differed"],
    }
    note(f"{device.stem}, {file_system}, {speed} times{'' if seed is None else f', draw {seed}'}: {found}")
    return found


def deviations(trace: list[float], draws: list[list[float]]) -> list[list[float]]:
    """Return the throughput of draws beside that of the trace, in percent."""
    return [[100 * (of / whole - 1) for of, whole in zip(drawn, trace, strict=True)] for drawn in draws]


def table(rows: list[list[float]]) -> list[dict[str, Any]]:
    """Return table I beside the paper's."""
    return [
        {"percent": row, "mean": statistics.fmean(row), "paper_percent": paper}
        for row, paper in zip(rows, PAPER, strict=False)
    ]


def saturation(figures: list[dict[str, Any]]) -> float:
    """Return the lowest speed with at least 95 % of the highest throughput."""
    most = max(figure["mb_per_s"] for figure in figures)
    return min(float(figure["speed"]) for figure in figures if figure["mb_per_s"] >= 0.95 * most)


def at(figures: list[dict[str, Any]], speed: float) -> float:
    """Return the throughput at a speed."""
    return next(float(figure["mb_per_s"]) for figure in figures if figure["speed"] == speed)


def checks(curves: dict[str, list[dict[str, Any]]], rows: list[list[float]], speeds: list[float]) -> dict[str, bool]:
    """Return what the paper's figures make one expect, and whether it holds."""
    plain, memory = curves["plain"], curves["nonvolatile"]
    found = {"nonvolatile nowhere lower": all(at(memory, speed) >= at(plain, speed) for speed in speeds)}
    if {1, 2, 3, 6} <= set(speeds):
        found |= {
            "plain: twice the speed at least 1.4 times the throughput": at(plain, 2) >= 1.4 * at(plain, 1),
            "plain: at most 1.15 times from 3 to 6": at(plain, 6) <= 1.15 * at(plain, 3),
            "nonvolatile at 6: at least 1.5 times plain": at(memory, 6) >= 1.5 * at(plain, 6),
        }
    if rows:
        found |= {
            "table I: no deviation above 3 %": max(abs(value) for row in rows for value in row) <= 3,
            "table I: no mean above 1 %": max(abs(statistics.fmean(row)) for row in rows) <= 1,
        }
    return found


def plot(curves: dict[str, list[dict[str, Any]]], draws: list[list[dict[str, Any]]]) -> Figure:
    """Draw figures 3 and 4."""
    figure = Figure(figsize=(9, 4))
    left, right = figure.subplots(1, 2)
    for name, label in [("plain", "HP C2247A"), ("nonvolatile", "with 256 KiB of NVRAM")]:
        curve = curves[name]
        left.plot([of["speed"] for of in curve], [of["mb_per_s"] for of in curve], "o-", label=label)
    left.set_title("Figure 3")
    plain = curves["plain"]
    right.plot([of["speed"] for of in plain], [of["mb_per_s"] for of in plain], "ko-", label="trace")
    for number, drawn in zip(BOOTSTRAPS, draws, strict=False):
        right.plot([of["speed"] for of in drawn], [of["mb_per_s"] for of in drawn], "x--", label=f"draw {number}")
    right.set_title("Figure 4")
    for axes in (left, right):
        axes.set(xlabel="speed of the processor", ylabel="MB/s between file system and disk", ylim=(0, None))
        axes.legend()
    figure.tight_layout()
    return figure


def study(file_system: str, clock: str, speeds: list[float], bootstraps: list[int]) -> None:
    """Replay everything on one file system, and keep the figures."""
    with tempfile.TemporaryDirectory() as directory:
        text = profile_text(DISK)
        devices = {"plain": Path(directory) / "plain.toml", "nonvolatile": Path(directory) / "nonvolatile.toml"}
        devices["plain"].write_text(text)
        devices["nonvolatile"].write_text(text + NONVOLATILE)
        curves = {name: [replay(path, file_system, speed, clock) for speed in speeds] for name, path in devices.items()}
        of_table = [speed for speed in TABLE_SPEEDS if speed in speeds]
        draws = [
            [replay(devices["plain"], file_system, speed, clock, seed) for speed in of_table] for seed in bootstraps
        ]
    plain = curves["plain"]
    rows = deviations(
        [at(plain, speed) for speed in of_table], [[float(of["mb_per_s"]) for of in drawn] for drawn in draws]
    )
    result = {
        "schema": SCHEMA,
        "file_system": file_system,
        "clock": clock,
        "speed_of_1": BASE_SPEED,
        "figure_3": curves,
        "saturation_speed": {name: saturation(figures) for name, figures in curves.items()},
        "gain_at_most": max(of["mb_per_s"] for of in curves["nonvolatile"]) / max(of["mb_per_s"] for of in plain),
        "figure_4": draws,
        "table_1": table(rows),
        "holds": checks(curves, rows, speeds),
    }
    suffixes = [word for word, usual in [(file_system, "ext2"), (clock, "exact")] if word != usual]
    name = "-".join([NAME, *suffixes])
    keep(name, result)
    keep_plot(name, plot(curves, draws))
    for line, holds in result["holds"].items():
        note(f"{file_system}: {'holds' if holds else 'DOES NOT HOLD'}: {line}")


def main() -> None:
    """Do the study on each file system."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clock", default="exact", choices=["exact", "guest"])
    parser.add_argument("--speeds", type=float, nargs="+", default=SPEEDS)
    parser.add_argument("--fs", nargs="+", default=list(FILE_SYSTEMS), choices=list(FILE_SYSTEMS))
    parser.add_argument("--draws", type=int, default=len(BOOTSTRAPS), choices=range(len(BOOTSTRAPS) + 1))
    arguments = parser.parse_args()
    for file_system in arguments.fs:
        study(file_system, arguments.clock, arguments.speeds, BOOTSTRAPS[: arguments.draws])


if __name__ == "__main__":
    main()
