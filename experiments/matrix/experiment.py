"""Five devices, two file systems and three programs from one sweep file, with a report of all of them.

The figures of each combination are kept; `target/matrix` has the sweep, its report and the report of all runs.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from common.command import ROOT, CommandFailed, executable, keep, note

SCHEMA = "chronodisk.experiment.matrix/1"
NAME = "matrix"
SWEEP = Path(__file__).parent / "matrix.toml"
FIGURES = ("time_s", "requests", "iops", "latency_us.mean", "latency_us.p99")


def call(*words: str | Path) -> None:
    """Run the command."""
    done = subprocess.run([executable(), *words], stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(map(str, words))} ended with status {done.returncode}")


def row(group: dict[str, Any]) -> dict[str, Any]:
    """Keep the main figures of a combination, each with its interval."""
    figures = {figure["name"]: figure for figure in group["figures"] if figure["name"] in FIGURES}
    kept = {name: {key: figures[name][key] for key in ("value", "bca_95") if key in figures[name]} for name in figures}
    return {**group["axes"], "failures": group["failures"], **kept}


def main() -> None:
    """Sweep, report, and keep the figures."""
    directory = ROOT / "target" / "matrix"
    shutil.rmtree(directory, ignore_errors=True)
    note("the sweep")
    call("sweep", SWEEP, "-o", directory)
    note("the report of all runs")
    report = directory / "report.html"
    call("report", *sorted((directory / "runs").iterdir()), "-o", report)
    swept = json.loads((directory / "sweep.json").read_text())
    result = {
        "schema": SCHEMA,
        "repetitions": swept["seeds"],
        "failed": swept["failed"],
        "combinations": len(swept["groups"]),
        "report_bytes": report.stat().st_size,
        "sweep_report_bytes": (directory / "sweep.html").stat().st_size,
        "rows": [row(group) for group in swept["groups"]],
    }
    note(f"result: {keep(NAME, result)}")


if __name__ == "__main__":
    main()
