"""Work inside a guest's kernel: CPU time in a guest against this host's, in alternating pairs.

Each load runs natively and in a guest in turn: random numbers, copies from the page cache, and writes to btrfs with
compression. `--generic` runs writes to btrfs with checksums instead, for which a guest has generic code only and a host
instructions of its processor: a result of its own with the built-in costs, which is not judged.

The experiment is `chronodisk calibrate --check` with these loads: with the costs of each kind of work as `calibrate`
measures them on this host just before, with the built-in ones, and with the one factor of 0.1 on all CPU time of the
kernel that was the rule before. It needs root for btrfs.
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from common.command import CommandFailed, executable, keep, note

SCHEMA = "chronodisk.experiment.kernel-work/3"
NAME = "kernel-work"
LOADS = ["urandom", "copy-1m", "btrfs-zstd", "btrfs-zstd-3", "btrfs-lzo"]
GENERIC = ["btrfs-crc32c", "btrfs-sha256"]
#: The factor on all of the kernel's CPU time before it counted by kinds.
FLAT = "0.1"
#: The check's own status for a ratio that is out of bounds, which is a result all the same.
CHECK_FAILED = 1


def call(arguments: list[str], costs: Path, statuses: tuple[int, ...]) -> str:
    """Run `chronodisk calibrate` with the costs of a file and return its output.

    Its progress and its messages appear on standard error.
    """
    words = [str(executable()), "calibrate", *arguments]
    environment = {**os.environ, "CHRONODISK_CALIBRATION": str(costs)}
    pipe = subprocess.PIPE
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=pipe, text=True, check=False, env=environment)
    # An error has the status of a failed check, and prints no table.
    if done.returncode not in statuses or (done.returncode != 0 and not done.stdout):
        raise CommandFailed(f"{' '.join(words)} ended with status {done.returncode}")
    return done.stdout


def check(loads: list[str], repetitions: int, options: list[str], costs: Path) -> dict[str, Any]:
    """Run the check and return its table."""
    programs = [word for load in loads for word in ("--program", load)]
    arguments = ["--check", "--json", "--reps", str(repetitions), *programs, *options]
    table: dict[str, Any] = json.loads(call(arguments, costs, (0, CHECK_FAILED)))
    for row in table["loads"]:
        native, guest = row["native_cpu_s"][0], row["guest_cpu_s"][0]
        note(f"{row['load']:<12} native {native:.3f} s, guest {guest:.3f} s, {row['ratio']:.2f}")
    return table


def main() -> None:
    """Run the three checks and keep their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=10, help="pairs of each load (default: 10)")
    parser.add_argument("--generic", action="store_true", help="loads of which a guest has generic code only")
    arguments = parser.parse_args()
    repetitions, loads = arguments.reps, GENERIC if arguments.generic else LOADS
    result: dict[str, Any] = {"schema": SCHEMA, "repetitions": repetitions}
    with tempfile.TemporaryDirectory() as folder:
        measured, none = Path(folder) / "calibration.json", Path(folder) / "none.json"
        if not arguments.generic:
            note("calibrating")
            call([], measured, (0,))
            note("by kind of work, as calibrated:")
            result["check"] = check(loads, repetitions, [], measured)
        note("by kind of work, built-in costs:")
        result["built_in"] = check(loads, repetitions, [], none)
        if not arguments.generic:
            note(f"all of it times {FLAT}:")
            result["before"] = check(loads, repetitions, ["--kernel-scale", FLAT], none)
    note(f"result: {keep(f'{NAME}-generic' if arguments.generic else NAME, result)}")


if __name__ == "__main__":
    main()
