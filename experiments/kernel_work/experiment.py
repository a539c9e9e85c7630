"""Work inside a guest's kernel: CPU time in a guest against this host's, in alternating pairs.

Each load runs natively and in a guest in turn: random numbers, copies from the page cache, and writes to btrfs with
compression. The experiment is `chronodisk calibrate --check` with these loads: with the costs of each kind of work, and
with the one factor of 0.1 on all CPU time of the kernel that was the rule before. It needs root for btrfs.
"""

import argparse
import json
import subprocess
from typing import Any

from common.command import CommandFailed, executable, keep, note

SCHEMA = "chronodisk.experiment.kernel-work/2"
NAME = "kernel-work"
LOADS = ["urandom", "copy-1m", "btrfs-zstd", "btrfs-lzo"]
#: The factor on all of the kernel's CPU time before it counted by kinds.
FLAT = "0.1"
#: The check's own status for a ratio that is out of bounds, which is a result all the same.
CHECK_FAILED = 1


def check(repetitions: int, options: list[str]) -> dict[str, Any]:
    """Run the check and return its table."""
    programs = [word for load in LOADS for word in ("--program", load)]
    call = [str(executable()), "calibrate", "--check", "--json", "--reps", str(repetitions), *programs, *options]
    done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode not in (0, CHECK_FAILED):
        raise CommandFailed(f"calibrate --check ended with status {done.returncode}:\n{done.stderr}")
    table: dict[str, Any] = json.loads(done.stdout)
    for row in table["loads"]:
        native, guest = row["native_cpu_s"][0], row["guest_cpu_s"][0]
        note(f"{row['load']:<12} native {native:.3f} s, guest {guest:.3f} s, {row['ratio']:.2f}")
    return table


def main() -> None:
    """Run both checks and keep their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=10, help="pairs of each load (default: 10)")
    repetitions = parser.parse_args().reps
    note("by kind of work:")
    by_kind = check(repetitions, [])
    note(f"all of it times {FLAT}:")
    flat = check(repetitions, ["--kernel-scale", FLAT])
    note(f"result: {keep(NAME, {'schema': SCHEMA, 'repetitions': repetitions, 'check': by_kind, 'before': flat})}")


if __name__ == "__main__":
    main()
