"""A sweep of this machine's own disk, and the table profile that is fitted to it."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from common.command import note

SIZES_KIB = (4, 16, 64, 128, 512)
#: The columns of a table profile, and fio's names for them.
KINDS = {"random-read": "randread", "random-write": "randwrite", "sequential-read": "read", "sequential-write": "write"}
DEPTHS = (1, 2, 4, 8, 16, 32)
#: A large request comes near to the device's rate by itself, so that several are hardly faster.
DEPTH_SIZES_KIB = (4, 16, 64, 512)
SWEEP_SECONDS = 2


@dataclass(frozen=True)
class Point:
    """What one kind of requests took."""

    mean_us: float
    requests_per_second: float
    #: How many the device had at once, in the mean. The depth, if the host's own work between them is not known.
    outstanding: float


def sweep(measure: Callable[[str, int, int], Point]) -> dict[str, Any]:
    """Measure all kinds and sizes one request at a time, and random requests of some sizes at several depths.

    `measure` takes fio's word for the kind, the size in KiB and the depth.
    """
    times: dict[str, dict[str, list[float]]] = {kind: {"mean_us": []} for kind in KINDS}
    for kind, word in KINDS.items():
        for size in SIZES_KIB:
            note(f"sweep: {kind}, {size} KiB")
            times[kind]["mean_us"].append(measure(word, size, 1).mean_us)
    by_depth: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for direction in ("read", "write"):
        for size in DEPTH_SIZES_KIB:
            points = by_depth.setdefault(direction, {}).setdefault(str(size), {})
            for depth in DEPTHS:
                note(f"sweep: random {direction}s of {size} KiB, depth {depth}")
                point = measure(f"rand{direction}", size, depth)
                both = {"requests_per_second": point.requests_per_second, "outstanding": point.outstanding}
                points[str(depth)] = both
    return {"sizes_kib": SIZES_KIB, "times": times, "by_depth": by_depth}


def gain(measured: dict[str, Any], direction: str, size_kib: int, outstanding: int) -> float:
    """Return how many times as many requests a second the device does with so many at once as with one at a time.

    One at a time, it does requests_per_second / outstanding: the host's own work between requests leaves it idle. More
    at once than were seen gain nothing.
    """
    seen: list[dict[str, float]] = list(measured["by_depth"][direction][str(size_kib)].values())
    alone = seen[0]["requests_per_second"] / min(seen[0]["outstanding"], 1.0)
    deeper = sorted((point["outstanding"], point["requests_per_second"] / alone) for point in seen[1:])
    points = [(1.0, 1.0), *deeper]
    for (fewer, lower), (more, higher) in pairwise(points):
        if fewer <= outstanding <= more:
            return max(lower + (higher - lower) * (outstanding - fewer) / max(more - fewer, 1e-9), 1.0)
    return max(points[-1][1], 1.0)


def profile(measured: dict[str, Any], mebibytes: int) -> str:
    """Return the table profile that has the sweep's means, and the gain in throughput of each size and depth.

    Means, since it is the sum of all times that a program waits for.
    """
    rows = ""
    for index, size in enumerate(measured["sizes_kib"]):
        rows += f'\n[[row]]\nsize = "{size} KiB"\n'
        for kind in KINDS:
            rows += f'{kind} = "{measured["times"][kind]["mean_us"][index]:.3f} us"\n'
    for size in DEPTH_SIZES_KIB:
        for depth in DEPTHS:
            gains = {direction: gain(measured, direction, size, depth) for direction in ("read", "write")}
            rows += f'\n[[depth]]\nrequests = {depth}\nsize = "{size} KiB"\n'
            rows += "".join(f"{direction} = {gained:.3f}\n" for direction, gained in gains.items())
    return f"""# Fitted by experiments/common/disk_sweep.py: means of single requests, gain in throughput by depth.
name = "this-machine"
kind = "table"
description = "This machine's own disk"
source = "a sweep of this machine's disk"
validation = "unvalidated"
capacity = "{mebibytes} MiB"
speed-up = 1
{rows}"""
