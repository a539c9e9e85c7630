"""How fast block traces are read and simulated, beside a generated workload in the same rounds.

A trace of `random-small` on cheetah-9lp is what `simulate --output` leaves: 1 and 10 million requests in Parquet. Each
round simulates the generated workload and the replayed trace, one after the other, and takes CPU time, wall time and
peak memory of each process from the kernel. The text of blkparse is made from the trace of 1 million requests by
`trace convert`, and read by `trace stats`, which reads a line at a time, and by `trace convert` to Parquet.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from common.command import executable, keep, note

SCHEMA = "chronodisk.experiment.trace-rates/1"
DEVICE, WORKLOAD, DEPTH = "cheetah-9lp", "random-small", "8"


def measured(*arguments: str) -> dict[str, float]:
    """CPU time, wall time and peak memory of a call of the command."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [str(executable()), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    told = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)} ended with status {process.returncode}:\n{told.decode()}")
    wall = time.perf_counter() - begun
    return {"cpu_s": usage.ru_utime + usage.ru_stime, "wall_s": wall, "peak_kib": usage.ru_maxrss}


def spread(values: list[float]) -> dict[str, float]:
    """Median, least and greatest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def figures(calls: list[dict[str, float]]) -> dict[str, Any]:
    """Of repeated calls."""
    return {name: spread([call[name] for call in calls]) for name in calls[0]}


def main() -> None:
    """Measure and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=10_000_000)
    arguments = parser.parse_args()
    large, small = arguments.requests, arguments.requests // 10
    calls: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generated = ["simulate", "--device", DEVICE, "--workload", WORKLOAD, "--depth", DEPTH, "--requests"]
        for count in (small, large):
            note(f"making a trace of {count} requests")
            made = ["--device", DEVICE, "--workload", WORKLOAD, "--requests", str(count)]
            measured("simulate", *made, "--output", str(folder / str(count)))
        blkparse = folder / "trace.blkparse"
        measured("trace", "convert", str(folder / str(small)), "--to", "blkparse", "-o", str(blkparse))
        with blkparse.open("rb") as file:
            lines = sum(1 for _ in file)
        replay = ["simulate", "--device", DEVICE, "--trace"]
        for index in range(arguments.rounds):
            note(f"round {index + 1} of {arguments.rounds}")
            for what, words in {
                "generated": [*generated, str(large)],
                "generated at depth 1": [*generated[:-3], "--requests", str(large)],
                "trace": [*replay, str(folder / str(large))],
                "trace at depth 8": [*replay, str(folder / str(large)), "--arrivals", "depth=8"],
                "trace of a tenth": [*replay, str(folder / str(small))],
                "blkparse to Parquet": ["trace", "convert", str(blkparse), "-o", str(folder / "out.parquet")],
                "blkparse statistics": ["trace", "stats", str(blkparse), "--json"],
            }.items():
                calls.setdefault(what, []).append(measured(*words))
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "requests": large,
        "rounds": arguments.rounds,
        "calls": {what: figures(found) for what, found in calls.items()},
        "blkparse_lines": lines,
        "blkparse_lines_per_cpu_s": {
            what: spread([lines / call["cpu_s"] for call in calls[what]])
            for what in ("blkparse to Parquet", "blkparse statistics")
        },
        # By CPU time, which other processes disturb least; rounds are paired.
        "rate_of_trace_over_generated": spread(
            [
                one["cpu_s"] / other["cpu_s"]
                for one, other in zip(calls["generated at depth 1"], calls["trace"], strict=True)
            ]
        ),
        "rate_of_trace_over_generated_at_depth_8": spread(
            [
                one["cpu_s"] / other["cpu_s"]
                for one, other in zip(calls["generated"], calls["trace at depth 8"], strict=True)
            ]
        ),
        "peak_memory_growth_mib": spread(
            [
                (one["peak_kib"] - other["peak_kib"]) / 1024
                for one, other in zip(calls["trace"], calls["trace of a tenth"], strict=True)
            ]
        ),
    }
    for name in ("rate_of_trace_over_generated", "peak_memory_growth_mib", "blkparse_lines_per_cpu_s"):
        note(f"{name}: {result[name]}")
    note(f"wrote {keep('trace-rates', result).name}")


if __name__ == "__main__":
    main()
