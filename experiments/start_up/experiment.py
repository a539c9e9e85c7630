"""How long `chronodisk run` takes for a command that does nothing: the guest's start and end, on each clock.

The whole process is timed, as a user waits for it, by this host's clock. Clocks, and an earlier build if one is named,
take turns, so that a change of the host's load or speed meets all of them.

With `--pairs` this build and an earlier one take turns on the default clock, and what counts is the ratio in a pair:
of the time, and of the CPU time of all processes of a run, which a busy host changes less.
"""

import argparse
import resource
import statistics
import subprocess
import time
from pathlib import Path

from common.command import CommandFailed, executable, keep, note

SCHEMA = "chronodisk.experiment.start-up/1"
NAME = "start-up"
PAIRS_SCHEMA = "chronodisk.experiment.start-up-pairs/1"
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


def cpu_seconds(build: Path) -> tuple[float, float]:
    """Time one run, and the CPU time of all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = seconds(build, CLOCKS["guest"])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def pairs(build: Path, earlier: Path, count: int) -> None:
    """Time two builds in turn and keep the ratios."""
    for one in (build, earlier):
        seconds(one, CLOCKS["guest"])  # fills the host's caches
    found: list[dict[str, float]] = []
    for _ in range(count):
        (before_s, before_cpu_s), (now_s, now_cpu_s) = cpu_seconds(earlier), cpu_seconds(build)
        pair = {"before_s": before_s, "now_s": now_s, "before_cpu_s": before_cpu_s, "now_cpu_s": now_cpu_s}
        found.append({name: round(value, 4) for name, value in pair.items()})
    medians = {f"{name}_median": round(statistics.median(pair[name] for pair in found), 4) for name in found[0]}
    ratios = {
        name: round(statistics.median(pair[f"now_{unit}"] / pair[f"before_{unit}"] for pair in found), 3)
        for name, unit in (("time_ratio_median", "s"), ("cpu_time_ratio_median", "cpu_s"))
    }
    note(f"{medians} {ratios}")
    result = {"schema": PAIRS_SCHEMA, "repetitions": count, **ratios, **medians, "pairs": found}
    note(f"result: {keep(f'{NAME}-pairs', result)}")


def main() -> None:
    """Time the runs and keep their times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=20, help="runs of each (default: 20)")
    parser.add_argument("--before", type=Path, help="an earlier build, to time beside this one on the default clock")
    parser.add_argument("--pairs", action="store_true", help="only compare with the earlier build, by ratios")
    arguments = parser.parse_args()
    repetitions = arguments.reps
    if arguments.pairs:
        if not arguments.before:
            parser.error("--pairs needs --before")
        pairs(executable(), arguments.before, repetitions)
        return
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
