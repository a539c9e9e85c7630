"""Freeblock scheduling and host-directed eager writing beside what their papers published.

*Freeblock*: a background scan of the whole device beside transactions (8 KiB, two reads for each write, random), by the
number of transactions at a time, and beside random reads without a pause. Lumb, Schindler, Ganger, Nagle and Riedel,
"Towards Higher Disk Head Utilization: Extracting Free Bandwidth From Busy Disk Drives", OSDI 2000
(https://www.usenix.org/legacy/events/osdi2000/lumb.html), simulate a Quantum Atlas 10K, among others: 20 to 50 % of a
never-idle disk's bandwidth, with no effect on foreground response times, and over 47 full scans a day beside
transactions. The profile `atlas-10k` keeps the sectors that pass before the wanted ones (`read-free-blocks`), which
leaves the arm less freedom; their simulator, DiskSim, does not model that. So the scans run without that key, and one
runs with it.

*Eager writing*: random writes of one block, each to any of 256 free places near the last one, by the share of the
device in use, and in place. Wang, Anderson and Patterson, "Virtual Log Based File Systems for a Programmable Disk",
OSDI 1999 (https://www.usenix.org/legacy/events/osdi99/full_papers/wang/wang_html/node3.html): the sectors to skip are
about the ratio of occupied to free ones, so four at 80 % in use, below 100 us on a disk of that day; in place, at least
half a rotation, 3 ms; synchronous updates are up to an order of magnitude faster. Their disks are an HP97560 and a
Seagate ST19101. Here are two measured drives of these makers and years, an HP C2490A and a Cheetah 9LP, without their
write caches.
"""

import argparse
import re
from typing import Any

from matplotlib.figure import Figure

from common.command import keep, note
from common.simulation import keep_plot, profile_text, simulate

MULTIPROGRAMMING = (1, 2, 5, 10, 20)
USED = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
SLOW, FAST = "hp-c2490a", "cheetah-9lp"
#: Pauses of a transaction are uniform, 30 ms on average.
THINK = "60ms"
#: Random places are made one by one, so the slower disk's size is enough.
CAPACITY = "1 GB"


def plain(name: str, **keys: str) -> str:
    """Return a profile's text with other values of keys that it has."""
    text = profile_text(name)
    for key, value in keys.items():
        text, count = re.subn(rf"(?m)^{key.replace('_', '-')} = .*$", f"{key.replace('_', '-')} = {value}", text)
        if count != 1:
            raise ValueError(f"profile {name} has {count} keys {key}; expected 1")
    return text


def scanned(device: str, workload: str, requests: int, depth: int, when: str, *options: str) -> dict[str, Any]:
    """Run a load with a scan beside it."""
    result = simulate(device, workload, requests, depth, "--background-scan", when, *options)
    scan = result["background"]
    row = {
        "depth": depth,
        "requests": requests,
        "when": when,
        "iops": round(result["iops"], 2),
        "mean_ms": round(result["latency_us"]["mean"] / 1e3, 4),
        "mean_alone_ms": round(scan["latency_alone_us"]["mean"] / 1e3, 4),
        "equal": scan["foreground_is_equal"],
        "mb_per_s": round(scan["mb_per_s"], 3),
        "media_mb_per_s": round(scan["media_mb_per_s"], 3),
        "share_of_media": round(scan["share_of_media"], 4),
        "share_of_device": round(scan["share_of_device"], 4),
        "seconds": round(scan["seconds"], 1),
    }
    note(f"scan beside {workload} at {depth}: {row['mb_per_s']} MB/s")
    return row


def freeblock(requests: int, long: int) -> dict[str, Any]:
    """Return the scans' figures."""
    oltp = ("--block-size", "8KiB", "--read-share", "0.6667")
    pausing = (*oltp, "--think-max", THINK)
    atlas = plain("atlas-10k", read_free_blocks="false")
    return {
        "drive": "atlas-10k",
        "transactions": {
            when: [scanned(atlas, "random-mixed", requests, depth, when, *pausing) for depth in MULTIPROGRAMMING]
            for when in ("gaps", "gaps-and-rest")
        },
        "never_idle": scanned(atlas, "random-read", requests, 1, "gaps", "--block-size", "4KiB"),
        "never_idle_as_profiled": scanned(
            profile_text("atlas-10k"), "random-read", requests, 1, "gaps", "--block-size", "4KiB"
        ),
        "whole_scan": scanned(atlas, "random-mixed", long, 10, "gaps", *pausing),
    }


def written(device: str, requests: int, block: str, used: float | None, places: int = 256) -> float:
    """Return the mean service time of a write in milliseconds."""
    anywhere = () if used is None else ("--write-anywhere", f"{used}:{places}")
    result = simulate(device, "random-write", requests, 1, "--block-size", block, "--capacity", CAPACITY, *anywhere)
    mean: float = result["latency_us"]["mean"] / 1e3
    note(f"writes of {block}, in use {used}: {mean:.3f} ms")
    return round(mean, 4)


def eager(requests: int) -> dict[str, Any]:
    """Return the writes' figures."""
    drives = {}
    for name in (SLOW, FAST):
        device = plain(name, write_cache="false")
        drives[name] = {
            "used": list(USED),
            "mean_ms": [written(device, requests, "4KiB", used) for used in USED],
            "in_place_ms": written(device, requests, "4KiB", None),
        }
    device = plain(FAST, write_cache="false")
    sector = {
        "used": 0.8,
        "mean_ms": written(device, requests, "512B", 0.8),
        # Nearly every sector is free and offered: overhead and transfer remain.
        "free_ms": written(device, requests, "512B", 0.01, 4_096),
    }
    return {"capacity": CAPACITY, "drives": drives, "sector": sector}


def plot(free: dict[str, Any], writes: dict[str, Any]) -> Figure:
    """Draw both."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for when, rows in free["transactions"].items():
        left.plot(MULTIPROGRAMMING, [row["share_of_media"] * 100 for row in rows], marker=".", label=when)
    left.set_xlabel("transactions at a time")
    left.set_ylabel("background bandwidth, % of the media's")
    left.set_title(f"scan of {free['drive']}")
    for name, row in writes["drives"].items():
        (line,) = right.plot([used * 100 for used in USED], row["mean_ms"], marker=".", label=f"{name}, any place")
        right.axhline(row["in_place_ms"], color=line.get_color(), linestyle="--", label=f"{name}, in place")
    right.set_xlabel("in use, %")
    right.set_ylabel("service time of a write, ms")
    right.set_yscale("log")
    right.set_title("writes of 4 KiB")
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize="small")
    return figure


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000, help="requests of each run")
    parser.add_argument("--long", type=int, default=700_000, help="requests beside the scan that shall end")
    arguments = parser.parse_args()
    free, writes = freeblock(arguments.requests, arguments.long), eager(arguments.requests)
    # Equal options give equal results: one repetition each.
    result = {
        "schema": "chronodisk.experiments.interface-extensions/1",
        "repetitions": 1,
        "freeblock": free,
        "eager_writing": writes,
    }
    keep("interface-extensions", result)
    keep_plot("interface-extensions", plot(free, writes))


if __name__ == "__main__":
    main()
