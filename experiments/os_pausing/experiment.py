"""OS state pausing: what a guest sees of a model that thinks, of bytes on a slow disk, and of a device far away.

Section 4 of Wu and Tsai, "A Storage Device Emulator for System Performance Evaluation" (ACM TECS 14(4), 2015), whose
results lie within 2 % of their reference. There the reference was an emulator without costs on the same board. Here it
is the same table model without costs on the exact clock, where computing takes no time: any difference is the
emulation's. Then the same on the guest's clock with measured CPU time, where noise of the host's is in every run:
beside its own run without costs, and beside the exact clock's with measured CPU time. Then figure 13: what a clock that
can't stop does with the same costs.

With `--slower 100` the devices take so many times as long for everything. By the paper's table they read 4.7 GB/s and
more, which no kernel does without a processor's being most of the time; a hundred times as slow they give 47 to 190
MB/s, which is what the card that the authors measured and the devices "over 100 MB/s" of their text can be.

CFQ is gone from Linux; BFQ, which was made from it, takes its place, and `none` that of noop.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from common.command import RESULTS, ROOT, CommandFailed, chronodisk_with_output, executable, keep, note
from common.simulation import keep_plot
from os_pausing.link import Link
from os_pausing.workloads import MAKERS, MEMORY, Workload, workloads

SCHEMA = "chronodisk.experiment.os-pausing/1"
DEVICES = [f"wu-tsai-ch{channels}-x{speed}" for channels in range(1, 5) for speed in range(1, 5)]
CORNERS = [f"wu-tsai-ch{channels}-x{speed}" for channels in (1, 4) for speed in (1, 4)]
BASELINE = ROOT / "profiles" / "table" / "wu-tsai-baseline.toml"
SCHEDULERS = ["bfq", "none"]
#: The guest's clock at boot, so that nothing in a file system depends on the day.
START = "1400000000"
#: Of Student's distribution at 97.5 %, by degrees of freedom from 1 on.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131]
STUDENT_BEYOND = 2.131
#: Before an interval is believed to be narrow.
REPS_MIN = 5
FIGURE_13 = "figure-13"
#: Figure 13, in milliseconds.
THINKING_MS = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]


@dataclass(frozen=True)
class Arm:
    """A way to run a workload on a device, and what it is compared with."""

    name: str
    clock: tuple[str, str]
    options: tuple[str, ...] = ()
    far: bool = False
    against: str = ""


EXACT, EXACT_MEASURED, GUEST = ("exact", "zero"), ("exact", "measured"), ("guest", "measured")
THINKING = ("--debug", "model-delay=250us..5ms")
SLOW_STORE = ("--debug", "store-rate=10MB")
REFERENCE = Arm("exact", EXACT)
GUEST_REFERENCE = Arm("guest", GUEST, against="exact, CPU measured")
ARMS = [
    REFERENCE,
    Arm("exact, model thinks", EXACT, THINKING, against="exact"),
    Arm("exact, store of 10 MB/s", EXACT, SLOW_STORE, against="exact"),
    Arm("exact, link of 11 Mbit/s", EXACT, far=True, against="exact"),
    Arm("exact, CPU measured", EXACT_MEASURED),
    GUEST_REFERENCE,
    Arm("guest, model thinks", GUEST, THINKING, against="guest"),
    Arm("guest, store of 10 MB/s", GUEST, SLOW_STORE, against="guest"),
]


@dataclass(frozen=True)
class Cell:
    """A workload on a device under a scheduler."""

    workload: Workload
    device: str
    scheduler: str
    #: The profile of the device, if it is not a built-in one.
    profile: Path | None = None


def slower_devices(folder: Path, factor: float) -> dict[str, Path]:
    """Write profiles of the devices that take `factor` times as long for everything."""
    found = {}
    for channels in range(1, 5):
        for speed in range(1, 5):
            device = f"wu-tsai-ch{channels}-x{speed}"
            text = BASELINE.read_text().replace('name = "wu-tsai-baseline"', f'name = "{device}"')
            text = text.replace("channels = 1", f"channels = {channels}")
            found[device] = folder / f"{device}.toml"
            found[device].write_text(text.replace("speed-up = 1", f"speed-up = {speed / factor}"))
    return found


def plan_slower(all_workloads: list[Workload], profiles: dict[str, Path]) -> Iterator[tuple[Cell, list[Arm]]]:
    """The same with slower devices: the shortest workload on all of them, the others on four, on the guest's clock."""
    ways = [arm for arm in ARMS if arm.clock == GUEST]
    of_all = [arm for arm in ways if arm.options != SLOW_STORE]
    for workload in all_workloads:
        if workload.missing:
            continue
        of_reading = workload.name == "sequential-read"
        for device in DEVICES if of_reading else CORNERS:
            yield (
                Cell(workload, device, "none" if of_reading else SCHEDULERS[0], profiles[device]),
                ways if device in CORNERS else of_all,
            )


def plan(all_workloads: list[Workload], full: bool) -> Iterator[tuple[Cell, list[Arm]]]:
    """Which cells are run, and how; the small form leaves out what would take most of its time."""
    for workload in all_workloads:
        if workload.missing:
            continue
        one_scheduler = ["none"] if workload.name == "sequential-read" else SCHEDULERS[:1]
        # The paper's section 4.1 has but one, too.
        several = full and workload.name != "sequential-read"
        for device in DEVICES:
            for scheduler in SCHEDULERS if several else one_scheduler:
                yield Cell(workload, device, scheduler), arms(workload, device, full)


def arms(workload: Workload, device: str, full: bool) -> list[Arm]:
    """In the small form only the shortest workload goes all ways, and on four devices."""
    if full or (workload.name == "sequential-read" and device in CORNERS):
        return ARMS
    kept = {"exact", "exact, model thinks"}
    if workload.name in ("sequential-read", "archive"):
        kept |= {"exact, store of 10 MB/s"}
    if workload.name == "archive" and device == CORNERS[0]:
        kept |= {"exact, CPU measured", "guest", "guest, model thinks"}
    return [arm for arm in ARMS if arm.name in kept]


@contextlib.contextmanager
def emulator_server(device: str, seed: int) -> Iterator[str]:
    """Have an emulator server behind a slow link; gives the address of this end of the link."""
    call = [str(executable()), "emulator-server", "--listen", "127.0.0.1:0", "--device", device]
    with tempfile.TemporaryFile("w+") as said:
        server = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)
        try:
            with Link(address_in(server, said), seed) as link:
                yield link.address
        finally:
            server.terminate()
            server.wait()


def address_in(server: subprocess.Popen[bytes], said: Any) -> str:
    """Wait until a server has said where it listens."""
    for _ in range(600):
        said.seek(0)
        for word in said.read().split():
            host, _, port = word.strip(",;").rpartition(":")
            if host == "127.0.0.1" and port.isdigit() and port != "0":
                return f"{host}:{port}"
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise CommandFailed("the emulator server did not say where it listens")


def run(cell: Cell, clock: tuple[str, str], options: tuple[str, ...], seed: int, server: str | None = None) -> float:
    """Run the workload once and return its figure."""
    workload = cell.workload
    call = ["--server", server] if server else ["--device", str(cell.profile or cell.device)]
    call += ["--clock", clock[0], "--cpu", clock[1], "--fs", workload.file_system, "--scheduler", cell.scheduler]
    call += ["--memory", MEMORY, "--start-time", START, "--seed", str(seed), *options]
    if workload.capacity:
        call += ["--capacity", workload.capacity]
    result, printed = chronodisk_with_output("run", *call, "--", *workload.command)
    if workload.figure:
        return workload.figure(printed)
    return float(result["reps"][0]["run_time_ns"]) / 1e9


def measure(cell: Cell, chosen: list[Arm], reps: int, narrow_percent: float | None) -> dict[str, Any]:
    """Run all arms of a cell, in turns, each turn with a seed of its own.

    The turns end, after five, once no difference is known less well than to `narrow_percent` (95 %) to either side.
    """
    figures: dict[str, list[float]] = {arm.name: [] for arm in chosen}
    for seed in range(1, reps + 1):
        for arm in chosen:
            # What can't differ is not measured again for an interval.
            if arm.clock == EXACT and seed > 1:
                continue
            if arm.far:
                with emulator_server(cell.device, seed) as address:
                    figures[arm.name].append(run(cell, arm.clock, arm.options, seed, address))
            else:
                figures[arm.name].append(run(cell, arm.clock, arm.options, seed))
        if narrow_percent and seed >= REPS_MIN and half_width(figures, chosen) <= narrow_percent:
            break
    row = {"workload": cell.workload.name, "device": cell.device, "scheduler": cell.scheduler, "figures": figures}
    return row | {"load": round(os.getloadavg()[0], 1)}


def half_width(figures: dict[str, list[float]], chosen: list[Arm]) -> float:
    """Half the width of the widest interval of the arms' differences, in percent."""
    widths = [0.0]
    for arm in chosen:
        if arm.against in figures:
            widths.append(interval(percents(figures, arm))[1] or 0.0)
    return max(widths)


def percents(figures: dict[str, list[float]], arm: Arm) -> list[float]:
    """Differences of an arm's figures to those that it is compared with, pair by pair, in percent."""
    pairs = zip(figures[arm.name], figures[arm.against], strict=True)
    return [100 * (ours / theirs - 1) for ours, theirs in pairs]


def differences(rows: list[dict[str, Any]], arm: Arm) -> dict[tuple[str, str], list[float]]:
    """Differences of an arm to what it is compared with, pair by pair in percent, by workload and device."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        figures = row["figures"]
        if arm.name in figures and arm.against in figures:
            found.setdefault((row["workload"], row["device"]), []).extend(percents(figures, arm))
    return found


def interval(values: list[float]) -> tuple[float, float | None]:
    """Mean, and half the width of its 95 % confidence interval where two values or more give one."""
    count = len(values)
    if count < 2:
        return values[0], None
    student = STUDENT[count - 2] if count - 2 < len(STUDENT) else STUDENT_BEYOND
    return statistics.fmean(values), student * statistics.stdev(values) / count**0.5


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The paired differences of each arm, by workload and device."""
    table = []
    for arm in ARMS:
        by_cell = differences(rows, arm) if arm.against else {}
        for (workload, device), values in by_cell.items():
            mean, half = interval(values)
            table.append(
                {
                    "arm": arm.name,
                    "against": arm.against,
                    "workload": workload,
                    "device": device,
                    "pairs": len(values),
                    "mean_percent": mean,
                    "half_width_95_percent": half,
                    "largest_percent": max(values, key=abs),
                }
            )
    return table


def in_real_time(reps: int, workload: Workload, full: bool) -> list[dict[str, Any]]:
    """Figure 13: devices of one channel whose model thinks, on a clock that can't stop and on one that can."""
    rows: list[dict[str, Any]] = []
    for device in DEVICES[:4]:
        note(f"figure 13: {device}")
        cell = Cell(workload, device, "none")
        for thinking in THINKING_MS:
            options = ("--debug", f"model-delay={thinking * 1000:.0f}us")
            for clock in (("real", "wall"), GUEST):
                if clock == GUEST and not full and thinking not in (0.0, 1.0, 2.0):
                    continue
                rates = [run(cell, clock, options, seed) for seed in range(1, reps + 1)]
                row = {"device": device, "clock": clock[0], "thinking_ms": thinking, "rates": rates}
                rows.append(row | {"load": round(os.getloadavg()[0], 1)})
    return rows


def plot_differences(table: list[dict[str, Any]], name: str) -> None:
    """One row of points for each arm; the paper's 2 % as lines."""
    names = [arm.name for arm in ARMS if any(row["arm"] == arm.name for row in table)]
    figure = Figure(figsize=(8, 1.2 + 0.55 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    for at, arm in enumerate(names):
        rows = [row for row in table if row["arm"] == arm]
        places = [at + (index - len(rows) / 2) * 0.6 / len(rows) for index in range(len(rows))]
        means = [row["mean_percent"] for row in rows]
        halves = [row["half_width_95_percent"] or 0 for row in rows]
        axes.errorbar(means, places, xerr=halves, fmt="o", markersize=3, linewidth=1, color="#4477aa")
    axes.set_yticks(range(len(names)), [f"{arm}\n(against {against_of(arm)})" for arm in names], fontsize=8)
    for limit in (-2, 2):
        axes.axvline(limit, color="#cc6677", linewidth=0.8, linestyle="--")
    axes.invert_yaxis()
    axes.set_xlabel("paired difference in %, mean and 95 % interval by device and workload; dashed: the paper's 2 %")
    keep_plot(name, figure)


def against_of(name: str) -> str:
    """What an arm is compared with."""
    return next(arm.against for arm in ARMS if arm.name == name)


def plot_real_time(rows: list[dict[str, Any]], unit: str) -> None:
    """Figure 13 of the paper, with the guest's clock beside the real one."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for device, colour in zip(DEVICES, ["#4477aa", "#228833", "#ccbb44", "#ee6677"], strict=False):
        for clock, style in (("real", "-"), ("guest", ":")):
            chosen = [row for row in rows if row["device"] == device and row["clock"] == clock]
            means = [statistics.fmean(row["rates"]) for row in chosen]
            label = f"{device}, {clock} clock"
            thinking = [row["thinking_ms"] for row in chosen]
            axes.plot(thinking, means, style, marker=".", color=colour, label=label, linewidth=1.2)
    axes.set_xlabel("time that the model takes in each of its calls, ms")
    axes.set_ylabel(f"sequential read bandwidth, {unit}")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7)
    keep_plot("os-pausing-real-time", figure)


def print_table(table: list[dict[str, Any]]) -> None:
    """Lay out the differences for a reader."""
    for row in table:
        half = row["half_width_95_percent"]
        width = "" if half is None else f" ± {half:.3f}"
        line = f"{row['arm']:<26}{row['against']:<22}{row['workload']:<17}{row['device']:<17}{row['pairs']:>3} pairs"
        print(f"{line}{row['mean_percent']:>+9.3f} %{width}, largest {row['largest_percent']:+.3f} %", flush=True)


def merge(new: dict[str, Any], kept: Path) -> dict[str, Any]:
    """Add what was measured before to a result of the same form, where it was not measured again."""
    old: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else new
    if (old["full"], old.get("slower", 1)) != (new["full"], new["slower"]):
        return new

    def cell(row: dict[str, Any]) -> tuple[str, ...]:
        return row["workload"], row["device"], row["scheduler"]

    measured = {cell(row): row for row in new["rows"]}
    for row in old["rows"]:
        again = measured.setdefault(cell(row), row)
        again["figures"] = row["figures"] | again["figures"]
    workloads = old["workloads"] | new["workloads"]
    real_time = new["real_time"] or old["real_time"]
    return new | {"rows": list(measured.values()), "workloads": workloads, "real_time": real_time}


def main() -> None:
    """Measure, print and keep; what was measured is kept also when somebody presses Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the paper's sizes, all combinations, ten repetitions")
    parser.add_argument("--reps", type=int, help="repetitions where CPU time is measured (3; 10 with --full)")
    parser.add_argument("--narrow", type=float, help="fewer, if differences are known to so many percent")
    parser.add_argument("--only", choices=[*MAKERS, FIGURE_13], help="one workload instead of all, or figure 13 alone")
    parser.add_argument("--zero", action="store_true", help="only where a busy host does not show: CPU time is zero")
    parser.add_argument("--merge", action="store_true", help="keep what the last result has and this run does not")
    parser.add_argument("--slower", type=float, help="devices that take so many times as long, on the guest's clock")
    chosen = parser.parse_args()
    reps = chosen.reps or (10 if chosen.full else 3)
    begun = time.monotonic()
    rows: list[dict[str, Any]] = []
    real_time: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        only = "sequential-read" if chosen.only == FIGURE_13 else chosen.only
        prepared = workloads(Path(folder), chosen.full, only)
        for workload in prepared:
            if workload.missing:
                note(f"{workload.name} is left out: {workload.missing}")
        with contextlib.suppress(KeyboardInterrupt):
            kept = prepared if chosen.only != FIGURE_13 else []
            slower = chosen.slower and plan_slower(kept, slower_devices(Path(folder), chosen.slower))
            for cell, ways in slower or plan(kept, chosen.full):
                ways = [arm for arm in ways if arm.clock == EXACT or not chosen.zero]
                note(f"{cell.workload.name} on {cell.device}, {cell.scheduler}: {len(ways)} ways")
                rows.append(measure(cell, ways, reps, chosen.narrow))
            first = prepared[0]
            if first.name == "sequential-read" and not (chosen.zero or chosen.slower or first.missing):
                real_time = in_real_time(reps if chosen.full else 1, first, chosen.full)
    name = "os-pausing"
    if chosen.slower:
        name += "-slower-full" if chosen.full else "-slower"
    result: dict[str, Any] = {"schema": SCHEMA, "full": chosen.full, "reps": reps, "slower": chosen.slower or 1}
    result |= {"host_time_s": time.monotonic() - begun, "kernel": platform.release(), "processors": os.cpu_count()}
    result |= {"workloads": {workload.name: workload.described() for workload in prepared}}
    result |= {"rows": rows, "real_time": real_time}
    if chosen.merge:
        result = merge(result, RESULTS / f"{name}.json")
    table, real_time = compared(result["rows"]), result["real_time"]
    print_table(table)
    for row in real_time:
        print(f"{row['device']} {row['clock']:<6}{row['thinking_ms']:5.2f} ms {statistics.fmean(row['rates']):8.1f}")
    keep(name, result | {"differences": table})
    if table:
        plot_differences(table, name)
    if real_time:
        plot_real_time(real_time, "MB/s")


if __name__ == "__main__":
    main()
