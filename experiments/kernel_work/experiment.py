"""Work inside a guest's kernel: CPU time in a guest against this host's, in alternating pairs.

Each load runs natively and in a guest in turn: random numbers, copies from the page cache, and writes to btrfs with
compression. The experiment is `chronodisk calibrate --check` with these loads; it needs root for btrfs.
"""

import argparse
import json
import subprocess

from common.command import CommandFailed, executable, keep, note

SCHEMA = "chronodisk.experiment.kernel-work/1"
NAME = "kernel-work"
LOADS = ["urandom", "copy-1m", "btrfs-zstd", "btrfs-lzo"]
#: The check's own status for a ratio that is out of bounds, which is a result all the same.
CHECK_FAILED = 1


def main() -> None:
    """Run the check and keep its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=10, help="pairs of each load (default: 10)")
    repetitions = parser.parse_args().reps
    programs = [word for load in LOADS for word in ("--program", load)]
    call = [str(executable()), "calibrate", "--check", "--json", "--reps", str(repetitions), *programs]
    done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode not in (0, CHECK_FAILED):
        raise CommandFailed(f"calibrate --check ended with status {done.returncode}:\n{done.stderr}")
    check = json.loads(done.stdout)
    for row in check["loads"]:
        native, guest = row["native_cpu_s"][0], row["guest_cpu_s"][0]
        note(f"{row['load']:<12} native {native:.3f} s, guest {guest:.3f} s, {row['ratio']:.2f}")
    note(f"result: {keep(NAME, {'schema': SCHEMA, 'repetitions': repetitions, 'check': check})}")


if __name__ == "__main__":
    main()
