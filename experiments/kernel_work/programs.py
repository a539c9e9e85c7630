"""Whole programs in a guest against this host, in alternating pairs: the guest's run time over the native CPU time.

The experiment is `chronodisk calibrate --check` with its programs: with the costs that `calibrate` measures just
before, and with the built-in ones. `--cpus N` compares guests with N processors with native run times on as many, for
programs that use them. It needs the kernel of `chronodisk kernel build processors`, and has a result of its own.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from common.command import RESULTS, keep, note
from kernel_work.experiment import CHECK_FAILED, call

SCHEMA = "chronodisk.experiment.guest-programs/1"
NAME = "guest-programs"
PROGRAMS = ["tar", "make", "postmark", "postmark-8", "sqlite", "ffmpeg", "rocksdb", "pgbench", "git-clone", "rsync"]
PROGRAMS += ["zstd", "redis", "python"]
#: Programs that use as many processors as there are.
PARALLEL = ["make", "pgbench", "zstd"]


def check(programs: list[str], repetitions: int, processors: int, costs: Path) -> dict[str, Any]:
    """Run the check and return its table."""
    named = [word for program in programs for word in ("--program", program)]
    arguments = ["--check", "--json", "--reps", str(repetitions), "--cpus", str(processors), *named]
    table: dict[str, Any] = json.loads(call(arguments, costs, (0, CHECK_FAILED)))
    for row in table["programs"]:
        low, high = row["error_interval_percent"]
        note(f"{row['program']:<12} {row['error_percent']:+.1f} % ({low:+.1f} to {high:+.1f} %)")
    return table


def main() -> None:
    """Run the checks and keep their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=10, help="pairs of each program (default: 10)")
    parser.add_argument("--cpus", type=int, default=1, help="processors of the guests (default: 1)")
    parser.add_argument("--only", action="append", help="limit it to this program; may be repeated")
    arguments = parser.parse_args()
    programs = arguments.only or (PROGRAMS if arguments.cpus == 1 else PARALLEL)
    name = NAME if arguments.cpus == 1 else f"{NAME}-{arguments.cpus}"
    result: dict[str, Any] = {"schema": SCHEMA, "repetitions": arguments.reps}
    with tempfile.TemporaryDirectory() as folder:
        measured, none = Path(folder) / "calibration.json", Path(folder) / "none.json"
        if arguments.cpus == 1:
            note("calibrating")
            call([], measured, (0,))
            note("as calibrated:")
            result["check"] = check(programs, arguments.reps, arguments.cpus, measured)
        note("built-in costs:")
        result["built_in"] = check(programs, arguments.reps, arguments.cpus, none)
    note(f"result: {keep(name, result)} in {RESULTS}")


if __name__ == "__main__":
    main()
