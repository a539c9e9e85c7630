"""How long `chronodisk run` takes for a command that does nothing: the guest's start and end, on each clock.

The whole process is timed, as a user waits for it, by this host's clock. Clocks, and an earlier build if one is named,
take turns, so that a change of the host's load or speed meets all of them.
"""

import argparse
import statistics
import subprocess
import time
from pathlib import Path

from common.command import CommandFailed, executable, keep, note

SCHEMA = "chronodisk.experiment.start-up/1"
NAME = "start-up"
RUN = ["run", "--quiet", "--device", "null", "--fs", "ext4"]
CLOCKS: dict[str, list[str]] = {"guest": [], "exact": ["--clock", "exact"]}


def seconds(build: Path, options: list[str]) -> float:
    """Time one run."""
    call = [str(build), *RUN, *options, "--", "true"]
    began = time.monotonic()
    done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    took = time.monotonic() - began
    if done.returncode != 0:
        raise CommandFailed(f"{build.name} ended with status {done.returncode}:\n{done.stderr}")
    return took


def main() -> None:
    """Time the runs and keep their times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=20, help="runs of each (default: 20)")
    parser.add_argument("--before", type=Path, help="an earlier build, to time beside this one on the default clock")
    arguments = parser.parse_args()
    repetitions = arguments.reps
    runs = {clock: (executable(), options) for clock, options in CLOCKS.items()}
    if subprocess.run([executable(), "kernel", "path"], capture_output=True, check=False).returncode != 0:
        note("the exact clock is left out: `chronodisk kernel build` makes its kernel")
        del runs["exact"]
    if arguments.before:
        runs["guest, before"] = (arguments.before, CLOCKS["guest"])
    for run in runs.values():
        seconds(*run)  # fills the host's caches
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repetitions):
        for name, run in runs.items():
            times[name].append(round(seconds(*run), 4))
    rows = [
        {"run": name, "median_s": round(statistics.median(took), 4), "least_s": min(took), "times_s": took}
        for name, took in times.items()
    ]
    for row in rows:
        note(f"{row['run']:<14} {row['median_s']:.3f} s")
    note(f"result: {keep(NAME, {'schema': SCHEMA, 'repetitions': repetitions, 'runs': rows})}")


if __name__ == "__main__":
    main()
