"""Every table and figure of the five papers: all experiments, one after another, and the page of their results.

Steps that have ended well are not repeated until the emulator's sources change, so an interrupted command continues
where it ended. `--again` repeats them. The output of each step goes to the terminal and to a log in target/reproduce.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.command import ROOT, note
from reproduce.steps import PAPERS, Paper, Step

FOLDER = ROOT / "target" / "reproduce"
STATE = FOLDER / "steps.json"
INTERRUPTED = 130

#: Runs a step, writes its output to a file, and returns its exit status.
Run = Callable[[Step, Path], int]


@dataclass
class Progress:
    """The steps that have ended, kept in a file."""

    path: Path
    #: Commit of the emulator's sources.
    sources: str

    def read(self) -> dict[str, Any]:
        """Return all ended steps by name."""
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def minutes(self, step: Step) -> float | None:
        """How long the step took, if it has ended well with these sources."""
        entry = self.read().get(step.name)
        return entry["minutes"] if entry and entry["sources"] == self.sources and entry["status"] == 0 else None

    def ended(self, step: Step, status: int, minutes: float) -> None:
        """Keep that a step has ended, whole or not at all."""
        entry = {"sources": self.sources, "status": status, "minutes": round(minutes, 1)}
        self._write({**self.read(), step.name: entry})

    def forget(self, steps: list[Step]) -> None:
        """Let these steps run again."""
        names = {step.name for step in steps}
        self._write({name: entry for name, entry in self.read().items() if name not in names})

    def _write(self, entries: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(entries, indent=2) + "\n")
        unfinished.replace(self.path)


def sources() -> str:
    """Return the last commit that changed the emulator or the experiments' scripts, with a mark if that is not all."""
    git = ["git", "-C", str(ROOT)]
    paths = ["--", "crates", "Cargo.lock", "experiments", ":!experiments/results", ":!experiments/*.md"]
    commit = subprocess.run([*git, "log", "-1", "--format=%H", *paths], capture_output=True, text=True, check=True)
    changes = subprocess.run([*git, "status", "--porcelain", *paths], capture_output=True, text=True, check=True)
    return commit.stdout.strip() + ("-changed" if changes.stdout.strip() else "")


def make(step: Step, log: Path) -> int:
    """Run a step's target; its output goes to the log, too."""
    command = ["make", "--silent", "-C", str(ROOT / "experiments"), step.target, *step.variables]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert child.stdout is not None
        try:
            for line in child.stdout:
                text = line.decode(errors="replace")
                file.write(text)
                sys.stderr.write(text)
            return child.wait()
        finally:
            # A signal to this process alone does not reach the step.
            child.terminate()
            child.wait()


def chosen(papers: list[Paper], only: str | None, tier: str) -> list[tuple[Paper, Step]]:
    """The steps of these papers and tiers."""
    steps = [(paper, step) for paper in papers for step in paper.steps if only in (None, paper.name)]
    return [(paper, step) for paper, step in steps if tier in ("all", step.tier)]


def reproduce(steps: list[tuple[Paper, Step]], progress: Progress, run: Run, is_root: bool) -> dict[str, str]:
    """Run the steps that have not ended; the outcome of each by name."""
    outcomes: dict[str, str] = {}
    for number, (paper, step) in enumerate(steps, 1):
        head = f"[{number}/{len(steps)}] {paper.name}: {step.name}"
        if (before := progress.minutes(step)) is not None:
            note(f"{head}: made before, {before:.0f} min")
            outcomes[step.name] = "made before"
            continue
        if step.needs_root and not is_root:
            note(f"{head}: needs root, not run")
            outcomes[step.name] = "needs root"
            continue
        left = sum(later.minutes for _, later in steps[number - 1 :] if progress.minutes(later) is None)
        note(f"{head}: {step.shows}; about {step.minutes} min, {left / 60:.1f} h to the end")
        begin = time.monotonic()
        status = run(step, FOLDER / f"{step.name.replace(' ', '-').replace('=', '-')}.log")
        minutes = (time.monotonic() - begin) / 60
        progress.ended(step, status, minutes)
        outcomes[step.name] = f"{minutes:.0f} min" if status == 0 else f"FAILED with status {status}"
        note(f"{head}: {outcomes[step.name]}")
    return outcomes


def table(steps: list[tuple[Paper, Step]], outcome: Callable[[Step], str]) -> str:
    """All steps by paper."""
    lines: list[str] = []
    for paper in PAPERS:
        of_paper = [step for other, step in steps if other is paper]
        if of_paper:
            hours = sum(step.minutes for step in of_paper) / 60
            lines += [f"{paper.name}: {paper.title} (about {hours:.1f} h)"]
            lines += [f"  {step.name:<26} {outcome(step):<22} {step.shows}" for step in of_paper]
    return "\n".join(lines)


def is_well(outcome: str) -> bool:
    """Whether a step has its results."""
    return not outcome.startswith("FAILED") and outcome != "needs root"


def main() -> int:
    """Run the chosen steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paper", choices=[paper.name for paper in PAPERS], help="one paper (default: all)")
    parser.add_argument("--tier", choices=["fast", "slow", "all"], default="fast", help="steps of hours, or of days")
    parser.add_argument("--again", action="store_true", help="also repeat the steps that have ended well")
    parser.add_argument("--list", action="store_true", help="print the steps, and run nothing")
    arguments = parser.parse_args()
    steps = chosen(PAPERS, arguments.paper, arguments.tier)
    progress = Progress(STATE, sources())
    if arguments.list:
        print(table(steps, lambda step: "to run" if progress.minutes(step) is None else "made before"))
        return 0
    if arguments.again:
        progress.forget([step for _, step in steps])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        outcomes = reproduce(steps, progress, make, os.geteuid() == 0)
    except KeyboardInterrupt:
        note("interrupted; the same command continues")
        return INTERRUPTED
    page = subprocess.run([sys.executable, "-m", "common.measurements"], cwd=ROOT / "experiments", check=False)
    print(table(steps, lambda step: outcomes[step.name]))
    note(f"figures: docs/measurements.md; logs: {FOLDER.relative_to(ROOT)}")
    return 0 if page.returncode == 0 and all(is_well(outcome) for outcome in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
