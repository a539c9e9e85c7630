"""Runs of real programs on emulated devices, and what was kept of them."""

import html
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from chronodisk.command import call, call_json
from chronodisk.errors import UsageError
from chronodisk.plots import distribution_svg
from chronodisk.tables import Requests

#: Repetitions whose service times a notebook shows; the text has all of them.
_PLOTS_MAX = 5


class Run:
    """A run that was kept: of a program in a guest, of one on this host, or of a simulation."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        found = [self.directory / name for name in ("result.json", "simulation.json")]
        there = [path for path in found if path.exists()]
        if not there:
            raise UsageError(f"{self.directory} holds no run: result.json is missing")
        #: Everything that ``chronodisk show --json`` prints.
        self.result: dict[str, Any] = json.loads(there[0].read_text())

    @classmethod
    def open(cls, name: str | os.PathLike[str]) -> Self:
        """A run by its directory, its id, its name (the newest of that name), or ``last``."""
        if os.path.isdir(name):
            return cls(name)
        kept = call_json(["runs", "--json"])
        folder, wanted = Path(kept["folder"]), os.fspath(name)
        if wanted == "last" and (folder / "last").exists():
            return cls((folder / "last").resolve())
        for run in reversed(kept["runs"]):
            if wanted in (run["id"], (run.get("labels") or {}).get("name"), run.get("name")):
                return cls(run["directory"])
        # The command's own message has the nearest names.
        call(["show", "--json", wanted])
        raise UsageError(f"no run {wanted!r} in {folder}")

    @property
    def reps(self) -> list[dict[str, Any]]:
        """The repetitions, with figures, exit statuses and run times in nanoseconds; none for a simulation."""
        return list(self.result.get("reps", []))

    @property
    def run_times_s(self) -> list[float]:
        """Run time of the program in each repetition, in seconds of the guest's clock."""
        return [rep["run_time_ns"] / 1e9 for rep in self.reps]

    def log_path(self, rep: int = 0) -> Path:
        """The file with the requests of a repetition, counted from 0."""
        if not self.reps:
            return self.directory / "requests.parquet"
        if not 0 <= rep < len(self.reps):
            raise UsageError(f"rep={rep}, but {self.directory} has {len(self.reps)} repetitions")
        name = str(self.reps[rep]["log_file"])
        if "/" in name or name == "..":
            raise UsageError(f"{self.directory}: {name!r} is no file name")
        return self.directory / name

    def requests(self, rep: int = 0) -> Requests:
        """The requests of a repetition, counted from 0."""
        return Requests.read(self.log_path(rep))

    def __fspath__(self) -> str:
        return str(self.directory)

    def __repr__(self) -> str:
        return f"<Run {self.directory}>"

    def _repr_html_(self) -> str:
        text = call(["show", str(self.directory)])[1]
        # A simulation has its figures at the top.
        times = [rep["summary"]["service_time_us"] for rep in self.reps] or [self.result.get("latency_us", {})]
        plots = "".join(f"<div>{distribution_svg(one)}</div>" for one in times[:_PLOTS_MAX])
        return f"<pre>{html.escape(text)}</pre>{plots}"


def run(arguments: Sequence[str], *, output: str | os.PathLike[str] | None = None) -> Run:
    """Calls ``chronodisk run`` with these arguments, and gives what it kept.

    ``run(["--device", "first-disk", "--", "cp", "-r", "/usr/include", "/mnt"])``. A program that ends with another
    status than 0 raises :class:`chronodisk.CommandError` with that status.

    Args:
        arguments: options of the command, and the program behind ``--``.
        output: keeps the run in this directory; else where ``chronodisk run`` keeps runs.
    """
    words = [str(word) for word in arguments]
    end = words.index("--") if "--" in words else len(words)
    if output is None:
        folder = Path(call_json(["runs", "--json"])["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        # Another run may become `last` meanwhile.
        output = Path(tempfile.mkdtemp(prefix="python-", dir=folder))
        Path(output).rmdir()
    call(["run", f"--output={os.fspath(output)}", *words[:end], *words[end:]])
    return Run(output)


def verify(run: Run | str | os.PathLike[str], *, device: str | None = None) -> dict[str, Any]:
    """Replays a run's requests in simulation, and compares all completion times: ``["identical"]`` says the outcome.

    Args:
        run: a run, its directory, id or name, or ``last``.
        device: replays on this profile instead of the run's own.
    """
    options = [] if device is None else [f"--device={device}"]
    return call_json(["verify", "--json", *options, os.fspath(run)], expected=(0, 1))


def compare(
    *runs: Run | str | os.PathLike[str], fail_if: Sequence[str] = (), plot: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Compares runs, with paired differences to the first.

    Args:
        runs: runs, their directories, ids or names; the first is the baseline.
        fail_if: limits such as ``"run_time > +5%"``; the result says which do not hold.
        plot: writes run times and distributions of service times to this file, in SVG.
    """
    options = [f"--fail-if={condition}" for condition in fail_if]
    if plot is not None:
        options.append(f"--plot={os.fspath(plot)}")
    return call_json(["compare", "--json", *options, *(os.fspath(run) for run in runs)], expected=(0, 1))
