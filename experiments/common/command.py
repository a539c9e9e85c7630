"""Calls the `chronodisk` command and reads its results."""

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments" / "results"


class CommandFailed(Exception):
    """The command ended with another status than 0."""


@dataclass(frozen=True)
class Sample:
    """Repeated measurements of one figure."""

    values: list[float]

    @property
    def mean(self) -> float:
        """Arithmetic mean."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float:
        """Standard deviation of the sample; 0 for a single value."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


def executable() -> Path:
    """Return the release build of the command."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "chronodisk"


def chronodisk(*arguments: str) -> dict[str, Any]:
    """Run the command with `--json` behind its subcommand and return what it says."""
    return chronodisk_with_output(*arguments)[0]


def chronodisk_with_output(*arguments: str) -> tuple[dict[str, Any], str]:
    """Do the same, and return what the guest's program printed as well, and everything else that was printed."""
    subcommand, *rest = arguments
    call = [str(executable()), subcommand, "--json", *rest]
    done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(call)} ended with status {done.returncode}:\n{done.stderr}{done.stdout}")
    # What the guest's program printed comes before the result.
    begin = done.stdout.index('{\n  "schema"')
    result: dict[str, Any] = json.loads(done.stdout[begin:])
    return result, done.stdout[:begin] + done.stderr


def run_times_seconds(result: dict[str, Any]) -> Sample:
    """Run time of the program in each repetition, in seconds of the guest's time."""
    return Sample([rep["run_time_ns"] / 1e9 for rep in result["reps"]])


def note(text: str) -> None:
    """Tell the user what goes on."""
    print(text, file=sys.stderr, flush=True)


def keep(name: str, result: dict[str, Any]) -> Path:
    """Write a result as JSON, whole or not at all."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(result, indent=2) + "\n")
    unfinished.replace(path)
    return path
