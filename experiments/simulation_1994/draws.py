"""How far single draws are from the trace: many draws of the case study's trace, at one speed and without the memory.

Table I has three draws. How large a deviation one may expect of such a draw is the standard deviation over many.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from common.command import chronodisk, keep, note
from common.simulation import profile_text
from simulation_1994.experiment import BASE_SPEED, DISK, FILE_SYSTEMS, TRACE

SCHEMA = "chronodisk.experiment.simulation-1994-draws/1"
DRAWS = 16
#: Where the disk limits the load.
SPEED = 6


def main() -> None:
    """Replay the trace and its draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--speed", type=float, default=SPEED)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        device = Path(directory) / "device.toml"
        device.write_text(profile_text(DISK))
        flags = ["--device", str(device), "--fs", "ext2", *FILE_SYSTEMS["ext2"], "--clock", "exact"]
        flags += ["--cpu-speed", f"{arguments.speed * BASE_SPEED}x", "--start-time", "1700000000"]
        flags += ["--bootstrap", "1", "--reps", str(arguments.draws), "--output", f"{directory}/run"]
        result: dict[str, Any] = chronodisk("trace replay", str(TRACE), *flags)
    trace, *draws = [float(rep["summary"]["mb_per_s"]) for rep in result["reps"]]
    percent = [100 * (drawn / trace - 1) for drawn in draws]
    figures = {
        "schema": SCHEMA,
        "file_system": "ext2",
        "speed": arguments.speed,
        "repetitions": arguments.draws,
        "trace_mb_per_s": trace,
        "percent": percent,
        "mean_percent": statistics.fmean(percent),
        "deviation_percent": statistics.stdev(percent),
        "largest_percent": max(percent, key=abs),
    }
    keep("simulation-1994-draws", figures)
    note(f"deviations of {arguments.draws} draws: mean {figures['mean_percent']}, s {figures['deviation_percent']}")


if __name__ == "__main__":
    main()
