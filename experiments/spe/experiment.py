"""Figures 3, 5, 6 and 8 and table 2 of the SPE paper (Kim et al., 2010): what a faster device does for a program.

The device is that of the paper's table 2, slowed to 46.7 MB/s for the requests of 128 KiB that read-ahead makes, as the
paper's slower drive. `chronodisk whatif` runs the program on it, natively, and predicts for R. `--validate` measures
the same program on the same model at R times the speed. Undisturbed, predicted and measured runs alternate.

- Figure 3: how much the undisturbed run times of a file's read vary. Figure 5: predicted beside measured, R = 1.98.
- Figure 6: files of four sizes at R = 1, 2 and 5, beside a plain division by R.
- Figure 8: a web job (files read at random and sent through a socket), with the device's share and the limit.
- Table 2: the times of single requests as a program sees them through the block device, beside the profile's.

The load average of the host is beside each row.
"""

import argparse
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

from common.command import chronodisk, keep, note

SCHEMA = "chronodisk.experiment.spe/1"
HERE = Path(__file__).parent
PROFILE = HERE / "spe-table-2.toml"
#: Slows the profile's 128 KiB (981 + 335 us) to 46.7 MB/s.
SPEED = "0.4689x"
#: The paper's two drives: 92.6 / 46.7 MB/s.
RATIO = "1.98"
PARTS = ("figure-3-5", "figure-6", "figure-8", "table-2")
MEGABYTE = 1_000_000
READ = "exec cat /mnt/file > /dev/null"
#: 400 requests of a web server with one worker and its client, over a socket.
WEB = HERE / "web.py"
SIZES_KIB = (16, 28, 80, 100)


def whatif(speedup: str, reps: int, setup: str, command: list[str], *flags: str) -> dict[str, Any]:
    """Predict and measure."""
    device = ["--device", str(PROFILE), "--device-speed", SPEED, "--speedup", speedup]
    return chronodisk("whatif", *device, "--validate", "--reps", str(reps), "--setup", setup, *flags, "--", *command)


def row(result: dict[str, Any], index: int = 0) -> dict[str, Any]:
    """Give what a table has of one R."""
    one = result["results"][index]
    elapsed, predicted, measured = result["elapsed_s"], one["predicted_s"], one["measured_s"]
    kept = ("speedup", "low_s", "high_s", "freezes", "unpaid_s", "interrupted_calls", "lost_events", "device_busy_s")
    return {
        **{name: one[name] for name in kept},
        "elapsed_s": elapsed,
        "predicted_s": predicted,
        "measured_s": measured,
        "error": one["error"],
        "divided_by_r_s": None if one["speedup"] == "inf" else elapsed["median"] / one["speedup"],
        "load": result["load"],
    }


def variation(values: list[float]) -> float:
    """Give the largest distance from the mean, as a share of it."""
    mean = statistics.fmean(values)
    return max(abs(value - mean) for value in values) / mean


def figure_3_and_5(reps: int, sizes_mb: tuple[int, ...]) -> list[dict[str, Any]]:
    """Read a file from its beginning to its end."""
    rows = []
    for size in sizes_mb:
        note(f"figures 3 and 5: {size} MB")
        result = whatif(RATIO, reps, setup(size), ["sh", "-c", READ])
        one = row(result)
        rows.append({"file_mb": size, "variation": variation(one["elapsed_s"]["values"]), **one})
    return rows


def setup(size_mb: int) -> str:
    """Give the shell command that makes a file of this size."""
    return f"head -c {size_mb * MEGABYTE} /dev/urandom > /mnt/file"


def figure_6(reps: int) -> list[dict[str, Any]]:
    """Read files of four sizes at three speeds."""
    rows = []
    for size in (10, 50, 100, 500):
        note(f"figure 6: {size} MB")
        result = whatif("1,2,5", reps, setup(size), ["sh", "-c", READ])
        rows += [{"file_mb": size, **row(result, index)} for index in range(3)]
    return rows


def figure_8(reps: int) -> list[dict[str, Any]]:
    """Serve files from the device to a client."""
    note("figure 8")
    make = "mkdir /mnt/www; for i in $(seq 400); do head -c 200000 /dev/urandom > /mnt/www/$i; done"
    result = whatif(f"{RATIO},inf", reps, make, ["python3", str(WEB), "/mnt/www"])
    rows = []
    for index in range(2):
        one = result["results"][index]
        validated = one["measured_s"] is not None
        base = row(result, index)
        share = one["device_busy_s"] / one["observed_s"]
        rows.append({**base, "device_share": share, "limit_s": result["limit_s"], "validated": validated})
    return rows


def table_2(reps: int) -> list[dict[str, Any]]:
    """Read single requests of the table's sizes from the device as it is in the table."""
    del reps
    rows = []
    for size, expected in zip(SIZES_KIB, (235, 335, 801, 981), strict=True):
        note(f"table 2: {size} KiB")
        count = 400
        command = f"exec dd if=$CHRONODISK_DEVICE of=/dev/null bs={size}k count={count} iflag=direct status=none"
        device = ["--device", str(PROFILE), "--fs", "none"]
        result = chronodisk("mount", *device, "--reps", "3", "--", "sh", "-c", command)
        summary = [rep["run_time_ns"] / count / 1000 for rep in result["reps"]]
        micros = statistics.median(summary)
        rows.append(
            {
                "size_kib": size,
                "paper_us": expected,
                "seen_by_program_us": micros,
                "error": micros / expected - 1,
                "load": os.getloadavg()[0],
            }
        )
    return rows


def main() -> None:
    """Run the parts and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=10, help="alternating repetitions of each row (10)")
    parser.add_argument("--only", choices=PARTS, action="append", help="only these parts")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000], help="megabytes of figures 3 and 5")
    arguments = parser.parse_args()
    parts = arguments.only or PARTS
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "host": {"kernel": platform.release(), "processors": os.cpu_count(), "load_at_begin": os.getloadavg()},
        "reps": arguments.reps,
        "device": f"spe-table-2 at {SPEED}",
    }
    runs = {
        "figure-3-5": lambda: figure_3_and_5(arguments.reps, tuple(arguments.sizes)),
        "figure-6": lambda: figure_6(arguments.reps),
        "figure-8": lambda: figure_8(arguments.reps),
        "table-2": lambda: table_2(arguments.reps),
    }
    for part in parts:
        result[part] = runs[part]()
        # A part that fails later leaves the earlier ones.
        keep("spe", result)
    note("kept in results/spe.json")


if __name__ == "__main__":
    main()
