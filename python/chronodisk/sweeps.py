"""Sweeps: every combination of some options, each with several seeds, on this host or on a cluster."""

import functools
import html
import json
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from chronodisk import _core, command
from chronodisk.errors import ChronodiskError, HostError, UsageError
from chronodisk.progress import bar
from chronodisk.remote import RemoteDirectory, is_url

#: The contents of a sweep's file, or the file.
SweepFile: TypeAlias = Mapping[str, Any] | str | os.PathLike[str]


class Future(Protocol):
    """What an executor gives: of concurrent.futures, dask.distributed and others."""

    def result(self) -> Any:
        """Waits for the result, or raises what the call raised."""
        ...


class Executor(Protocol):
    """Whoever runs functions elsewhere: :class:`concurrent.futures.Executor`, a client of dask.distributed, or an
    object of one's own with this method."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future:
        """Begins a call."""
        ...


class Sweep:
    """The results of a sweep."""

    def __init__(self, location: str | os.PathLike[str], results: dict[str, Any], text: str) -> None:
        #: Path or URL of the files of the sweep; ``sweep.parquet`` has a row for each cell.
        self.location = os.fspath(location)
        #: Everything that ``chronodisk sweep --json`` prints.
        self.results = results
        self._text = text

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> "Sweep":
        """The results that a sweep wrote to a directory, or to a URL of fsspec."""
        path = f"{os.fspath(directory).rstrip('/')}/sweep.json"
        try:
            text = RemoteDirectory(str(directory)).read("sweep.json") if is_url(directory) else Path(path).read_bytes()
            return cls(directory, json.loads(text), "")
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: no results of a sweep: {error}") from error

    @property
    def directory(self) -> Path:
        """Where the files of the sweep are, if that is a directory."""
        if is_url(self.location):
            raise UsageError(f"{self.location} is no directory; location has the URL")
        return Path(self.location)

    @property
    def failed(self) -> int:
        """Cells that failed."""
        return int(self.results["failed"])

    def rows(self, figure: str) -> list[dict[str, Any]]:
        """One row for each combination of the axes: their values, and ``value``, ``low`` and ``high`` of a figure.

        The interval (95 %, BCa or else percentile) is over the seeds; ``None`` with one seed.
        """
        rows = []
        for group in self.results["groups"]:
            for found in group["figures"]:
                if found["name"] == figure:
                    low, high = found.get("bca_95") or found.get("percentile_95") or (None, None)
                    rows.append({**group["axes"], "value": found["value"], "low": low, "high": high})
        if not rows:
            names = sorted({found["name"] for group in self.results["groups"] for found in group["figures"]})
            raise UsageError(f"no figure {figure!r}; expected one of {', '.join(names)}")
        return rows

    def plot(self, x: str, y: str) -> str:
        """Draws a figure against an axis with numbers, or another figure, with intervals; as SVG."""
        return _core.sweep_plot(json.dumps(self.results), x, y)

    def __str__(self) -> str:
        return self._text or f"<Sweep {self.location}>"

    def _repr_html_(self) -> str:
        numbers = [
            name
            for name, values in self.results["axes"].items()
            if len(values) > 1 and all(isinstance(value, int | float) and value is not True for value in values)
        ]
        figures = {found["name"] for group in self.results["groups"] for found in group["figures"]}
        drawn = [name for name in ("time_s", "iops", "latency_us.mean") if name in figures][:2]
        plots = "".join(f"<div>{self.plot(x, y)}</div>" for x in numbers[:1] for y in drawn)
        return f"<pre>{html.escape(str(self))}</pre>{plots}"


def sweep(
    file: SweepFile,
    directory: str | os.PathLike[str],
    *,
    executor: Executor | Callable[[], Executor] | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int], object] | bool | None = None,
) -> Sweep:
    """Runs every combination of some options, as ``chronodisk sweep`` does, with the same files and the same bytes.

    Cells whose results are in the directory are not run again. Each cell is a process of the command; workers need
    this package in the same build. A cell whose worker is lost runs again elsewhere: on the executor as far as that
    does so itself (dask.distributed), on a new one if a function was given that makes one, and else on this host.

    Args:
        file: a sweep's file (docs/sweeps.md), or its contents as a dictionary.
        directory: keeps the results; also a URL of any file system of fsspec, such as ``s3://bucket/depths``, for
            ``simulate``. For other commands it must be a directory that the workers share.
        executor: runs the cells; also a function without arguments that makes one. Default: processes of this host.
        jobs: cells at the same time without an executor; default: one for each processor.
        progress: called with the numbers of cells that are done and of all; ``True`` shows a bar of tqdm, ``False``
            nothing. Default: a bar in notebooks.
    """
    label: str | None = None
    if isinstance(file, Mapping):
        text = _toml(file)
    else:
        label = os.fspath(file)
        try:
            text = Path(file).read_text()
        except OSError as error:
            raise UsageError(f"{label}: can't read the sweep: {error.strerror}") from error
    words = tuple(_core.sweep_command(text, label))
    if is_url(directory) and words != ("simulate",):
        raise UsageError(f"{directory}: the runs of `{' '.join(words)}` need a directory")
    asked = progress if isinstance(progress, bool | None) else False
    with bar(asked, label or "sweep", "cells") as shown:
        tell = shown or (progress if callable(progress) else lambda done, total: None)
        if not is_url(directory):
            place = Path(directory).absolute()
            return Sweep(place, *_sweep(text, label, words, place, None, executor, jobs, tell))
        remote = RemoteDirectory(str(directory))
        with tempfile.TemporaryDirectory(prefix="chronodisk-sweep-") as name:
            return Sweep(remote.url, *_sweep(text, label, words, Path(name), remote, executor, jobs, tell))


def _sweep(
    text: str,
    label: str | None,
    words: Sequence[str],
    place: Path,
    remote: RemoteDirectory | None,
    executor: Executor | Callable[[], Executor] | None,
    jobs: int | None,
    tell: Callable[[int, int], object],
) -> tuple[dict[str, Any], str]:
    """Runs what is missing; gives the results and their text. Cells are kept elsewhere as soon as they are done."""
    found = command.executable()
    cores = len(os.sched_getaffinity(0))
    plan = _core.SweepPlan(text, label, _options(found, tuple(words)), found, str(place), jobs or cores)
    total = len(plan)
    cells = [f"cells/{name}.json" for name in plan.names()]

    def keep(names: Iterable[str]) -> None:
        if remote is not None:
            remote.keep(place, names)

    if remote is not None:
        remote.fetch(cells, place)
        # A sweep that is interrupted loses at most the cells that are being done.
        executor = executor or (lambda: ThreadPoolExecutor(jobs or cores))
    if executor is not None:
        _run_elsewhere(plan, executor, tell, lambda index: keep([cells[index]]))
    if plan.missing():
        plan.run(lambda done: tell(done, total))
        keep(cells)
    tell(total, total)
    results, shown = plan.finish()
    keep(["sweep.parquet", "sweep.provenance.json", "sweep.html", "sweep.json"])
    return json.loads(results), shown


#: Executors that are made anew at most, if all break.
_EXECUTORS_MAX = 4


def _run_elsewhere(
    plan: _core.SweepPlan,
    executor: Executor | Callable[[], Executor],
    tell: Callable[[int, int], object],
    keep: Callable[[int], object],
) -> None:
    total = len(plan)
    for _ in range(_EXECUTORS_MAX):
        missing = plan.missing()
        if not missing:
            return
        made = None
        if not hasattr(executor, "submit"):
            made = executor()
        try:
            _submit_all(plan, missing, made or executor, lambda done: tell(done, total), keep)  # type: ignore[arg-type]
            return
        except BrokenExecutor as error:
            left = len(plan.missing())
            where = "a new executor" if made is not None else "this host"
            warnings.warn(f"the executor broke ({error}); {left} cells run on {where}", stacklevel=3)
            if made is None:
                return
        finally:
            if made is not None and hasattr(made, "shutdown"):
                made.shutdown(wait=True)


def _submit_all(
    plan: _core.SweepPlan,
    missing: Iterable[int],
    executor: Executor,
    tell: Callable[[int], object],
    keep: Callable[[int], object],
) -> None:
    futures: list[tuple[int, Future]] = []
    try:
        for index in missing:
            futures.append((index, executor.submit(execute_task, plan.task(index))))
        done = len(plan) - len(futures)
        broken: BrokenExecutor | None = None
        for index, future in futures:
            try:
                answer = future.result()
            except BrokenExecutor as error:
                # Others may have been done before.
                broken = error
                continue
            plan.keep(index, answer)
            keep(index)
            done += 1
            tell(done)
        if broken is not None:
            raise broken
    except BaseException:
        for _, future in futures:
            if hasattr(future, "cancel"):
                future.cancel()
        raise


def execute_task(task: str) -> str:
    """Does one cell with this process' command; what :func:`sweep` gives to executors."""
    return _core.execute_task(task, command.executable())


@functools.cache
def _options(found: str, words: Sequence[str]) -> list[str]:
    """The long options of a command, as its help says."""
    _, out, _ = command.call([*words, "--help"])
    options = re.findall(r"^ +(?:-\w, )?--([a-z][a-z-]*)", out, re.MULTILINE)
    if not options:
        raise HostError(f"{found} {' '.join(words)} --help names no options")
    return options


def _toml(file: Mapping[str, Any]) -> str:
    lines, tables = [], []
    for key, value in file.items():
        if isinstance(value, Mapping):
            entries = [f"{json.dumps(str(name))} = {_toml_value(entry)}" for name, entry in value.items()]
            tables.append("\n".join([f"[{json.dumps(str(key))}]", *entries]))
        else:
            lines.append(f"{json.dumps(str(key))} = {_toml_value(value)}")
    return "\n".join([*lines, *tables]) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | os.PathLike):
        # A string of JSON is one of TOML, but for what JSON may leave as it is.
        return json.dumps(os.fspath(value)).replace("\x7f", "\\u007f")
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return f"[{', '.join(_toml_value(entry) for entry in value)}]"
    if hasattr(value, "text") and hasattr(value, "name"):
        raise UsageError("a profile in a sweep is a name or a file; write its text to one")
    raise ChronodiskError(f"{value!r} can't be in a sweep; expected texts, numbers, true, false, and lists of these")
