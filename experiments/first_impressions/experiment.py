"""The first things that a newcomer tries: random numbers, compression, a large disk's sequential writes, and a sleep.

Each command once gave a figure that nobody should have believed, without a word of warning: dd read /dev/urandom at
6.0 GB/s in a guest; btrfs with zstd took a tenth of the CPU time of its kernel; a disk of 285 MB/s wrote at 14.6 MB/s;
`sleep 30` made 9,315 reads. The experiment runs them and keeps the figures beside these, with what the summary says of
them.
"""

import argparse
import os
import statistics
import subprocess
from dataclasses import dataclass
from typing import Any

from common.command import chronodisk_with_output, keep, note

SCHEMA = "chronodisk.experiment.first-impressions/1"
NAME = "first-impressions"
MEBIBYTE = 1 << 20
URANDOM_MEBIBYTES = 256
WRITTEN_MEBIBYTES = 2048
#: Text of which zstd at level 15 takes the guest's kernel as long as the run of 2.06 s did.
TEXT = "seq 1 {lines} > /dev/shm/text; cp /dev/shm/text /mnt/text; sync"
TEXT_LINES = 9_000_000


@dataclass(frozen=True)
class Trial:
    """A command, the figure that it gives, and what it gave before."""

    name: str
    what: str
    unit: str
    options: list[str]
    script: str
    before: float
    #: What a reader can compare it with, and where that is from.
    reference: float | None = None
    source: str = ""


TRIALS = [
    Trial(
        "urandom",
        "dd from /dev/urandom",
        "GB/s",
        ["--device", "null", "--fs", "none"],
        f"dd if=/dev/urandom of=/dev/null bs=1M count={URANDOM_MEBIBYTES} status=none",
        6.0,
        source="this host by CPU time, median in turn",
    ),
    Trial(
        "btrfs-zstd",
        "btrfs with compress-force=zstd:15, run time over the kernel's CPU time",
        "",
        ["--device", "null", "--capacity", "4GiB", "--fs", "btrfs", "--mount-options", "compress-force=zstd:15"],
        TEXT.format(lines=TEXT_LINES),
        2.06 / 20.6,
        1.0,
        "work inside the kernel takes as long natively (make kernel-work)",
    ),
    Trial(
        "nearline-write",
        "sequential writes to nearline-20tb",
        "MB/s",
        ["--device", "nearline-20tb", "--fs", "none"],
        f"dd if=/dev/zero of=/dev/vda bs=128k count={WRITTEN_MEBIBYTES * 8} conv=fsync status=none",
        14.6,
        285,
        "data sheet of the drive",
    ),
    Trial(
        "sleep",
        "reads during `sleep 30` on nearline-20tb",
        "",
        ["--device", "nearline-20tb", "--fs", "ext4"],
        "sleep 30",
        9_315,
        0,
        "a sleep reads nothing",
    ),
]


def figure(trial: Trial, rep: dict[str, Any]) -> float:
    """Return what a repetition gives."""
    seconds: float = rep["run_time_ns"] / 1e9
    match trial.name:
        case "urandom":
            return URANDOM_MEBIBYTES * MEBIBYTE / seconds / 1e9
        case "btrfs-zstd":
            kernel_s: float = rep["verdict"]["kernel_cpu"]["measured_ns"] / 1e9
            return seconds / kernel_s
        case "nearline-write":
            return WRITTEN_MEBIBYTES * MEBIBYTE / seconds / 1e6
        case _:
            return float(rep["summary"]["by_op"].get("read", {}).get("requests", 0))


def native_urandom() -> float:
    """Read /dev/urandom on this host, in GB for each second of CPU time: the host has other work, too."""
    before = os.times()
    subprocess.run(["sh", "-c", TRIALS[0].script], check=True)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return URANDOM_MEBIBYTES * MEBIBYTE / cpu_s / 1e9


def run(trial: Trial, repetitions: int) -> dict[str, Any]:
    """Run a trial, natively in turn where this host is the reference."""
    note(trial.what)
    values, natives, said = [], [], ""
    for seed in range(1, repetitions + 1):
        if trial.name == "urandom":
            natives.append(native_urandom())
        call = ["run", "--seed", str(seed), *trial.options, "--", "sh", "-ec", trial.script]
        result, said = chronodisk_with_output(*call)
        values.append(figure(trial, result["reps"][0]))
    verdict = result["reps"][0]["verdict"]
    wanted = ("run time", "verdict", "doubtful", "kernel CPU", "generic code", "not the command's", "rate")
    lines = [" ".join(line.split()) for line in said.splitlines() if line.startswith(wanted)]
    median = statistics.median(values)
    note(f"{trial.what}: {median:.4g} {trial.unit}, before {trial.before:.4g}")
    return {
        "name": trial.name,
        "what": trial.what,
        "unit": trial.unit,
        "command": ["chronodisk", "run", *trial.options, "--", "sh", "-ec", trial.script],
        "before": round(trial.before, 4),
        "values": [round(value, 4) for value in values],
        "median": round(median, 4),
        "reference": round(statistics.median(natives), 4) if natives else trial.reference,
        "reference_source": trial.source,
        "doubts": verdict["doubts"],
        "verdict": lines,
    }


def main() -> None:
    """Run the trials and keep their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5, help="runs of each (default: 5)")
    repetitions = parser.parse_args().reps
    trials = [run(trial, repetitions) for trial in TRIALS]
    note(f"result: {keep(NAME, {'schema': SCHEMA, 'repetitions': repetitions, 'trials': trials})}")


if __name__ == "__main__":
    main()
