"""Mean and 99th percentile of the response time against load, by a drive's scheduler.

Random reads of 4 KiB with 1 to 128 requests outstanding, first come first served, shortest seek, C-LOOK, shortest
positioning and aged shortest positioning. The order that must come out is that of Worthington, Ganger and Patt,
"Scheduling Algorithms for Modern Disk Drives", SIGMETRICS 1994: on random requests, schedulers that know the rotational
position beat those that know the seek only, which beat the order of arrival; the greedy ones let some requests starve,
which ageing and C-LOOK mend.
"""

import argparse
import re
from typing import Any

from matplotlib.figure import Figure

from common.command import keep
from common.simulation import keep_plot, profile_text, simulate

DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)
# Aged shortest positioning counts 6 ms of positioning as worth a second of waiting, the paper's ASPTF(6).
SCHEDULERS = {
    "fcfs": 'scheduler = "fcfs"',
    "sstf": 'scheduler = "sstf"',
    "c-look": 'scheduler = "c-look"',
    "sptf": 'scheduler = "sptf"',
    "aged-sptf": 'scheduler = "aged-sptf"\nweight = 0.006',
}


def scheduled(text: str, scheduler: str) -> str:
    """Return the disk's profile with this scheduler, a queue as deep as the load and no bound on age."""
    keys = ("queue-depth", "scheduler", "weight", "age-bound", "longest-pass")
    without = re.sub(rf"(?m)^(?:{'|'.join(keys)}) = .*\n", "", text)
    queue = f'queue-depth = {max(DEPTHS)}\n{SCHEDULERS[scheduler]}\nage-bound = "10 s"\nlongest-pass = "10 s"\n'
    return without.replace("\n[controller]\n", f"\n[controller]\n{queue}")


def measure(member: str, requests: int) -> dict[str, dict[str, list[float]]]:
    """Return means, 99th percentiles in milliseconds and rates by scheduler, one for each depth."""
    text = profile_text(member)
    figures: dict[str, dict[str, list[float]]] = {}
    for scheduler in SCHEDULERS:
        device = scheduled(text, scheduler)
        results = [simulate(device, "random-read", requests, d, "--block-size", "4KiB") for d in DEPTHS]
        figures[scheduler] = {
            "mean_ms": [round(result["latency_us"]["mean"] / 1e3, 3) for result in results],
            "p99_ms": [round(result["latency_us"]["p99"] / 1e3, 3) for result in results],
            "iops": [round(result["iops"], 2) for result in results],
        }
    return figures


def plot(figures: dict[str, dict[str, list[float]]], member: str) -> Figure:
    """Draw mean and 99th percentile beside each other."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axis, (key, title) in zip(
        figure.subplots(1, 2), [("mean_ms", "mean"), ("p99_ms", "99th percentile")], strict=True
    ):
        for scheduler, values in figures.items():
            axis.plot(DEPTHS, values[key], marker=".", label=scheduler)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(DEPTHS, [str(depth) for depth in DEPTHS])
        axis.set_xlabel("requests outstanding")
        axis.set_ylabel("response time, ms")
        axis.set_title(title)
        axis.grid(alpha=0.3)
    figure.axes[0].legend(frameon=False)
    figure.suptitle(f"Random reads of 4 KiB on {member}")
    return figure


def table(figures: dict[str, dict[str, list[float]]]) -> str:
    """Return means and percentiles as text."""
    lines = [f"{'depth':<12}{'':<6}" + "".join(f"{depth:>9}" for depth in DEPTHS)]
    for scheduler, values in figures.items():
        for key, name in [("mean_ms", "mean"), ("p99_ms", "p99")]:
            lines.append(f"{scheduler:<12}{name:<6}" + "".join(f"{value:>9.1f}" for value in values[key]))
    return "\n".join(lines)


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--member", default="cheetah-9lp", help="profile of the disk, one of kind disk")
    parser.add_argument("--requests", type=int, default=20_000, help="requests of each run")
    arguments = parser.parse_args()
    figures = measure(arguments.member, arguments.requests)
    print(table(figures))
    result: dict[str, Any] = {
        "schema": "chronodisk.experiments.schedulers/1",
        "member": arguments.member,
        "requests": arguments.requests,
        "depths": list(DEPTHS),
        "schedulers": figures,
    }
    keep("schedulers", result)
    keep_plot("schedulers", plot(figures, arguments.member))


if __name__ == "__main__":
    main()
