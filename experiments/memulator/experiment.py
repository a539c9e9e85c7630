"""Tables 5, 6 and 7 of the Memulator paper, then what its authors expected to show more, and what they could not do.

The paper's host was a 700 MHz Pentium III with Linux 2.4.2, 256 MB of memory besides the emulator's, and an unnamed
file system; the guest here has one processor of this host, Linux 6.1, the same memory and ext2. So run times differ by
the host's part, which the null device shows; what can be compared is what a change of the device does to them.
"""

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.command import RESULTS, ROOT, Sample, chronodisk, keep, note, run_times_seconds
from common.plots import bars

REPETITIONS = 10

POSTMARK = ["postmark", str(Path(__file__).with_name("postmark.conf"))]


def fio(**options: object) -> list[str]:
    """One job of fio on the bare device, or on a file where `directory` names its file system."""
    place = {} if "directory" in options else {"filename": "/dev/vda", "direct": 1}
    job = {"name": "job", "ioengine": "psync", "randseed": 42, **place, **options}
    return ["fio", *(f"--{key}={value}" for key, value in job.items())]


@dataclass(frozen=True)
class Experiment:
    """A program on several devices; the first of them is the one that the others are compared with."""

    name: str
    title: str
    devices: list[str]
    command: list[str]
    #: Run times in seconds that the paper gives, by device.
    paper: dict[str, float] = field(default_factory=dict)
    file_system: str = "ext2"


EXPERIMENTS = [
    Experiment(
        "table5",
        "Table 5: zero-latency access, PostMark",
        ["cheetah-x15", "cheetah-x15-zero-latency"],
        POSTMARK,
        {"cheetah-x15": 74.523, "cheetah-x15-zero-latency": 74.469},
    ),
    Experiment(
        "table6",
        "Table 6: 15,000 and 30,000 rpm, PostMark",
        ["cheetah-x15", "cheetah-x15-30k"],
        POSTMARK,
        {"cheetah-x15": 74.523, "cheetah-x15-30k": 66.215},
    ),
    Experiment(
        "table7",
        "Table 7: disk, MEMS and a device that takes no time, PostMark",
        ["cheetah-x15", "mems-g2", "null"],
        POSTMARK,
        {"cheetah-x15": 74.523, "mems-g2": 51.420, "null": 48.512},
    ),
    Experiment(
        "large-transfers",
        "Zero-latency access where the paper expects it to show: random reads of 512 KiB",
        ["cheetah-x15", "cheetah-x15-zero-latency"],
        fio(rw="randread", bs="512k", size="16g", number_ios=2000),
        file_system="none",
    ),
    Experiment(
        "synchronous-writes",
        "MEMS and battery-backed RAM where the paper expects it to show: random writes of 4 KiB, each synchronous",
        ["cheetah-x15", "mems-g2", "battery-backed-ram"],
        fio(directory="/mnt", rw="randwrite", bs="4k", size="256m", number_ios=2000, fsync=1),
    ),
    Experiment(
        "shingled",
        "A drive of 2016 that the authors could not know: random writes of 64 KiB on a shingled disk and its sibling",
        ["nearline-20tb", "nearline-20tb-smr"],
        fio(rw="randwrite", bs="64k", size="60g", number_ios=20000),
        file_system="none",
    ),
]


def measure(device: str, experiment: Experiment, reps: int, measured: dict[tuple[str, ...], dict[str, Any]]) -> Any:
    """Run the program on a device; what was measured once is not measured again."""
    key = (device, experiment.file_system, *experiment.command)
    if key not in measured:
        note(f"  {device}: {experiment.command[0]} x {reps}")
        options = ["--device", device, "--fs", experiment.file_system, "--memory", "256MiB", "--reps", str(reps)]
        if capacity := CAPACITIES.get(device):
            options += ["--capacity", capacity]
        measured[key] = chronodisk("run", *options, "--", *experiment.command)
    return measured[key]


#: Devices whose own capacity would make mkfs the longest part of the experiment.
CAPACITIES = {"nearline-20tb": "64GB", "nearline-20tb-smr": "64GB", "null": "8GB", "battery-backed-ram": "8GB"}


def perform(experiment: Experiment, reps: int, measured: dict[tuple[str, ...], dict[str, Any]]) -> dict[str, Any]:
    """Measure one experiment and return its figures."""
    note(experiment.title)
    rows = []
    for device in experiment.devices:
        result = measure(device, experiment, reps, measured)
        times = run_times_seconds(result)
        responses = Sample([rep["summary"]["service_time_us"]["mean"] / 1e3 for rep in result["reps"]])
        rows.append(
            {
                "device": device,
                "run_time_s": times.mean,
                "standard_deviation_s": times.deviation,
                "mean_response_ms": responses.mean,
                "host_time_s": Sample([rep["host_time_ns"] / 1e9 for rep in result["reps"]]).mean,
                "paper_run_time_s": experiment.paper.get(device),
            }
        )
    # Files of the repository by their place in it.
    command = [part.removeprefix(f"{ROOT}/") for part in experiment.command]
    described = {"name": experiment.name, "title": experiment.title, "command": command, "repetitions": reps}
    return {**described, "rows": with_decrease(rows)}


def with_decrease(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add by how much each device shortens the run, here and in the paper."""
    first = rows[0]
    for row in rows[1:]:
        row["decrease_percent"] = 100 * (1 - row["run_time_s"] / first["run_time_s"])
        if row["paper_run_time_s"] and first["paper_run_time_s"]:
            row["paper_decrease_percent"] = 100 * (1 - row["paper_run_time_s"] / first["paper_run_time_s"])
    return rows


def table(figures: dict[str, Any]) -> str:
    """Lay out the figures of one experiment for a reader."""
    lines = [
        figures["title"],
        f"  {'device':<26}{'run time':>12}{'std. dev.':>11}{'decrease':>10}{'response':>11}   the paper",
    ]
    for row in figures["rows"]:
        decrease = f"{row['decrease_percent']:.1f} %" if "decrease_percent" in row else ""
        paper = f"{row['paper_run_time_s']:.3f} s" if row["paper_run_time_s"] else ""
        if "paper_decrease_percent" in row:
            paper += f", {row['paper_decrease_percent']:.1f} %"
        lines.append(
            f"  {row['device']:<26}{row['run_time_s']:>10.3f} s{row['standard_deviation_s']:>9.3f} s{decrease:>10}"
            f"{row['mean_response_ms']:>8.2f} ms   {paper}"
        )
    return "\n".join(lines)


def main() -> None:
    """Perform them all, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=REPETITIONS, help=f"repetitions of each run ({REPETITIONS})")
    parser.add_argument("names", nargs="*", help="of experiments; all if none is given")
    arguments = parser.parse_args()
    known = [experiment.name for experiment in EXPERIMENTS]
    if unknown := set(arguments.names) - set(known):
        parser.error(f"no experiment {', '.join(sorted(unknown))}; there are {', '.join(known)}")

    measured: dict[tuple[str, ...], dict[str, Any]] = {}
    for experiment in EXPERIMENTS:
        if arguments.names and experiment.name not in arguments.names:
            continue
        figures = perform(experiment, arguments.reps, measured)
        keep(f"memulator-{experiment.name}", figures)
        bars(
            RESULTS / f"memulator-{experiment.name}.svg",
            experiment.title,
            "run time in s",
            {row["device"]: (row["run_time_s"], row["standard_deviation_s"]) for row in figures["rows"]},
        )
        print(table(figures), flush=True)


if __name__ == "__main__":
    main()
