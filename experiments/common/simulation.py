"""Runs `chronodisk simulate` on devices that are written for the occasion, and keeps plots."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

from common.command import RESULTS, CommandFailed, chronodisk, executable, note

matplotlib.use("svg")
# Equal results give equal files.
matplotlib.rcParams["svg.hashsalt"] = "chronodisk"
matplotlib.rcParams["svg.fonttype"] = "none"

from matplotlib.figure import Figure  # noqa: E402


def simulate(device: str, workload: str, requests: int, depth: int, *options: str) -> dict[str, Any]:
    """Return the result of a simulation; the device is the text of a profile."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "device.toml"
        path.write_text(device)
        arguments = ["--device", str(path), "--workload", workload, "--depth", str(depth)]
        return chronodisk("simulate", *arguments, "--requests", str(requests), *options)


def profile_text(name: str) -> str:
    """Return the text of a profile, given by its name or its file."""
    if name.endswith(".toml") or os.sep in name:
        return Path(name).read_text()
    call = [str(executable()), "devices", "show", name]
    done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(call)} ended with status {done.returncode}:\n{done.stderr}")
    return done.stdout


def keep_plot(name: str, figure: Figure) -> None:
    """Write a plot beside the result of the same name."""
    path = RESULTS / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    # Trailing blanks are of no use in a repository.
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
    note(f"wrote {path.name} and {name}.json")
