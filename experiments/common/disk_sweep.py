"""A sweep of this machine's own disk, and the table profile that is fitted to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from common.command import note

SIZES_KIB = (4, 16, 64, 128, 512)
#: The columns of a table profile, and fio's names for them.
KINDS = {"random-read": "randread", "random-write": "randwrite", "sequential-read": "read", "sequential-write": "write"}
DEPTHS = (1, 2, 4, 8, 16, 32)
SWEEP_SECONDS = 2


@dataclass(frozen=True)
class Point:
    """What one kind of requests took."""

    mean_us: float
    median_us: float
    requests_per_second: float


def sweep(measure: Callable[[str, int, int], Point]) -> dict[str, Any]:
    """Measure all kinds and sizes one request at a time, and random requests of 4 KiB at several depths.

    `measure` takes fio's word for the kind, the size in KiB and the depth.
    """
    times: dict[str, dict[str, list[float]]] = {}
    for kind, word in KINDS.items():
        for size in SIZES_KIB:
            note(f"sweep: {kind}, {size} KiB")
            point = measure(word, size, 1)
            column = times.setdefault(kind, {"mean_us": [], "median_us": []})
            column["mean_us"].append(point.mean_us)
            column["median_us"].append(point.median_us)
    rates: dict[str, dict[str, float]] = {"read": {}, "write": {}}
    for direction, by_depth in rates.items():
        for depth in DEPTHS:
            note(f"sweep: random {direction}s of 4 KiB, depth {depth}")
            by_depth[str(depth)] = measure(f"rand{direction}", 4, depth).requests_per_second
    return {"sizes_kib": SIZES_KIB, "times": times, "requests_per_second_by_depth": rates}


def profile(measured: dict[str, Any], mebibytes: int) -> str:
    """Return the table profile that has the sweep's means, and the gain in throughput of each depth.

    Means, since it is the sum of all times that a program waits for.
    """
    rows = ""
    for index, size in enumerate(measured["sizes_kib"]):
        rows += f'\n[[row]]\nsize = "{size} KiB"\n'
        for kind in KINDS:
            rows += f'{kind} = "{measured["times"][kind]["mean_us"][index]:.3f} us"\n'
    rates = measured["requests_per_second_by_depth"]
    for depth in DEPTHS:
        gains = {direction: by_depth[str(depth)] / by_depth["1"] for direction, by_depth in rates.items()}
        rows += f"\n[[depth]]\nrequests = {depth}\n"
        rows += "".join(f"{direction} = {gain:.3f}\n" for direction, gain in gains.items())
    return f"""# Fitted by experiments/common/disk_sweep.py: means of single requests, gain in throughput by depth.
name = "this-machine"
kind = "table"
description = "This machine's own disk"
source = "a sweep of this machine's disk"
validation = "unvalidated"
capacity = "{mebibytes} MiB"
speed-up = 1
{rows}"""
