"""PostMark, SQLite and the extraction of a part of the kernel's source on three solid-state drives and a disk.

Each runs in a guest under its own clock, on a fresh ext4 of 64 GB, whatever the device has: capacity that is left out
of a flash drive is spare, of the disk its inner tracks. The archive and the programs themselves come from the host's
file tree, which takes no device time. The null device shows what of a run time is the guest's processor.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from common.command import Sample, chronodisk, keep, note, run_times_seconds
from common.simulation import keep_plot
from os_pausing.workloads import KERNEL_SOURCE, missing, pack, script

SCHEMA = "chronodisk.experiment.ssd-programs/1"
#: By what a reader calls them; the last one takes no time.
DEVICES = {
    "intel-p4800x": "Optane P4800X",
    "wd-zn540": "Ultrastar ZN540 (TLC)",
    "samsung-970-pro": "970 PRO (MLC)",
    "nearline-20tb": "20 TB disk",
    "null": "no device time",
}
CAPACITY = "64GB"
PARTS = ["kernel", "mm", "lib", "fs"]
TRANSACTIONS = 500
COLORS = ["#4477aa", "#66ccee", "#228833", "#cc3311", "#bbbbbb"]


def programs(folder: Path) -> dict[str, tuple[str, list[str], str]]:
    """What runs: for each its title, its command, and why it can't run here."""
    postmark = """
mkdir /mnt/mail
printf '%s\\n' "set location /mnt/mail" "set number 2000" "set transactions 4000" "set size 10000 20000" \\
    "set seed 42" "set buffering false" run quit | postmark > /dev/null
sync
"""
    rows = "\n".join(
        f"INSERT INTO t VALUES ({number}, {number * 7919 % 10007}, hex(zeroblob(200)));"
        for number in range(TRANSACTIONS)
    )
    (folder / "rows.sql").write_text(f"CREATE TABLE t(a INTEGER PRIMARY KEY, b INTEGER, c TEXT);\n{rows}\n")
    sqlite = f"sqlite3 /mnt/base.db < {folder}/rows.sql\nsync\n"
    lacking = missing("tar") or ("" if KERNEL_SOURCE.exists() else f"no {KERNEL_SOURCE} on this host")
    packed = folder / "source.tar"
    if not lacking:
        note("packing a part of the kernel's source")
        pack(PARTS, packed)
    untar = f"tar -xf {packed} -C /mnt\nsync\n"
    return {
        "postmark": ("PostMark, 4,000 transactions", script(folder, "postmark.sh", postmark), missing("postmark")),
        "sqlite": (f"SQLite, {TRANSACTIONS} transactions", script(folder, "sqlite.sh", sqlite), missing("sqlite3")),
        "untar": (f"untar of the kernel's {', '.join(PARTS)}", script(folder, "untar.sh", untar), lacking),
    }


def measure(device: str, command: list[str], reps: int) -> dict[str, Any]:
    """Run a program on a device, each time with the next seed."""
    guest = ["--device", device, "--capacity", CAPACITY, "--fs", "ext4", "--memory", "256MiB", "--reps", str(reps)]
    result = chronodisk("run", *guest, "--", *command)
    times = run_times_seconds(result)
    summaries = [rep["summary"] for rep in result["reps"]]
    return {
        "device": device,
        "run_times_s": times.values,
        "mean_s": times.mean,
        "deviation_s": times.deviation,
        "requests": Sample([summary["requests"] for summary in summaries]).mean,
        "mean_service_us": Sample([summary["service_time_us"]["mean"] for summary in summaries]).mean,
        "p99_service_us": Sample([summary["service_time_us"]["p99"] for summary in summaries]).mean,
        "load": round(os.getloadavg()[0], 1),
    }


def table(figures: dict[str, Any]) -> str:
    """Lay out the figures of one program for a reader."""
    lines = [
        figures["title"],
        f"  {'device':<24}{'run time s':>11}{'std. dev.':>11}{'requests':>10}{'mean us':>10}{'p99 us':>11}{'load':>6}",
    ]
    for row in figures["rows"]:
        cells = f"{row['mean_s']:>11.3f}{row['deviation_s']:>11.3f}{row['requests']:>10.0f}"
        cells += f"{row['mean_service_us']:>10.1f}{row['p99_service_us']:>11.1f}{row['load']:>6.1f}"
        lines.append(f"  {DEVICES[row['device']]:<24}{cells}")
    return "\n".join(lines)


def plot(results: list[dict[str, Any]]) -> Figure:
    """A group of bars for each program."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(DEVICES)
    for place, (device, name) in enumerate(DEVICES.items()):
        rows = [next(row for row in result["rows"] if row["device"] == device) for result in results]
        axes.bar(
            [group + (place - (len(DEVICES) - 1) / 2) * width for group in range(len(rows))],
            [row["mean_s"] for row in rows],
            width,
            yerr=[row["deviation_s"] for row in rows],
            color=COLORS[place],
            label=name,
        )
    axes.set_xticks(range(len(results)), [result["title"] for result in results])
    axes.set(yscale="log", ylabel="run time, s of the guest")
    axes.set_title("Three solid-state drives and a disk under programs in a guest, ext4")
    axes.legend(frameon=False)
    return figure


def main() -> None:
    """Measure all programs on all devices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=3, help="repetitions of each")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (title, command, lacking) in programs(Path(folder)).items():
            if lacking:
                note(f"SKIPPED {name}: {lacking}")
                continue
            rows = []
            for device in DEVICES:
                note(f"{title}: {device} x {arguments.reps}")
                rows.append(measure(device, command, arguments.reps))
            results.append({"name": name, "title": title, "rows": rows})
            print(table(results[-1]))
    keep("ssd-programs", {"schema": SCHEMA, "reps": arguments.reps, "capacity": CAPACITY, "programs": results})
    keep_plot("ssd-programs", plot(results))


if __name__ == "__main__":
    main()
