"""Simulations: a generated workload, a block trace or a job file of fio on a device, without a guest or a clock."""

import html
import json
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from chronodisk import _core
from chronodisk.errors import UsageError
from chronodisk.model import Model
from chronodisk.plots import distribution_svg
from chronodisk.profile import Profile
from chronodisk.progress import bar
from chronodisk.quantities import Size, Time, size_bytes, time_ns
from chronodisk.tables import ArrowTable, Requests

#: Makes a model from a seed and, if one was asked for, a capacity in sectors. A class of models is one.
ModelMaker: TypeAlias = Callable[[int, int | None], Model]
#: A profile, the name or path of one, or what makes a model.
AnyDevice: TypeAlias = Profile | str | os.PathLike[str] | ModelMaker
#: A file in any format that ``chronodisk trace convert`` reads, the folder of a simulation, or a table with the columns
#: ``op``, ``lba_sectors``, ``len_sectors`` and ``arrival_ns``.
AnyTrace: TypeAlias = str | os.PathLike[str] | ArrowTable


class Simulation:
    """What a device did with a load."""

    def __init__(self, figures: dict[str, Any], requests: Requests | None, notes: list[str]) -> None:
        #: Everything that ``chronodisk simulate --json`` prints, by the same names.
        self.figures = figures
        #: What was changed on the way, such as requests that were wrapped.
        self.notes = notes
        self._requests = requests

    @property
    def device(self) -> str:
        """Name of the device."""
        return str(self.figures["device"])

    @property
    def requests(self) -> Requests:
        """The log of all requests."""
        if self._requests is None:
            raise UsageError("the requests were not kept; simulate(..., keep_requests=True) keeps them")
        return self._requests

    @property
    def simulated_s(self) -> float:
        """Time from the first arrival to the last completion, in seconds of the simulated clock."""
        return float(self.figures["simulated_s"])

    @property
    def iops(self) -> float:
        """Requests per second of that time."""
        return float(self.figures["iops"])

    @property
    def mb_per_s(self) -> float:
        """Data in 10**6 bytes per second of that time."""
        return float(self.figures["mb_per_s"])

    @property
    def latency_us(self) -> dict[str, float]:
        """Service times in microseconds, queueing in the device included: ``mean``, ``p50``, ``p99`` and others."""
        return dict(self.figures["latency_us"])

    def __repr__(self) -> str:
        mean = self.latency_us["mean"]
        count = self.figures["requests"]
        return f"<Simulation of {self.device}: {count} requests, {self.iops:.6g}/s, mean {mean:.6g} µs>"

    def _repr_html_(self) -> str:
        rows = {
            "device": html.escape(self.device),
            "load": html.escape(str(self.figures["workload"])),
            "requests": str(self.figures["requests"]),
            "simulated": f"{self.simulated_s:.6g} s",
            "rate": f"{self.iops:.6g} requests/s, {self.mb_per_s:.4g} MB/s",
            "service time": ", ".join(f"{name} {value:.6g} µs" for name, value in self.latency_us.items()),
        }
        cells = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows.items())
        return f"<table>{cells}</table>{distribution_svg(self.latency_us)}"


def workloads() -> dict[str, str]:
    """Names of the generated workloads, and what each is."""
    return dict(_core.workloads())


def simulate(
    device: AnyDevice,
    workload: str | None = None,
    *,
    trace: AnyTrace | None = None,
    fio_job: str | os.PathLike[str] | None = None,
    requests: int = 10_000,
    seed: int = 1,
    depth: int = 1,
    block_size: Size | None = None,
    read_share: float | None = None,
    think_max: Time = 0,
    addresses: str = "uniform",
    arrivals: str | None = None,
    rate_per_s: float | None = None,
    on: Time | None = None,
    off: Time | None = None,
    speed: float = 1.0,
    beyond: str = "refuse",
    trace_format: str | None = None,
    volume: str | None = None,
    accept_bad: int = 0,
    event: str = "D",
    spread: int | None = None,
    capacity: Size | None = None,
    device_speed: float | None = None,
    limit: str | None = None,
    fault: str | Sequence[str] = (),
    state: str | os.PathLike[str] | None = None,
    host_queue: str | None = None,
    keep_requests: bool = True,
    progress: Callable[[int], object] | bool | None = None,
) -> Simulation:
    """Runs a generated workload, a block trace or a job file of fio on a device, and gives its figures and its log.

    The arguments are the options of ``chronodisk simulate``, and mean the same. Equal arguments give equal results, and
    those of the command. Other threads of Python run meanwhile; Ctrl-C raises :class:`KeyboardInterrupt`.

    Args:
        device: a profile, its name or path, or a class of :class:`chronodisk.model.Model`.
        workload: one of :func:`workloads`; else ``trace`` or ``fio_job`` is needed.
        trace: a file, or an Arrow table.
        fio_job: a job file of fio, whose keys docs/fio-options.md lists.
        requests: number of generated requests.
        seed: of the workload and the device.
        depth: requests that are outstanding at any time in a closed loop.
        block_size: bytes of a request, for workloads that do not define it (4 KiB).
        read_share: share of reads, 0 to 1, for workloads that read and write.
        think_max: pauses before requests are uniform from 0 to this time.
        addresses: ``uniform``, ``zipf=EXPONENT`` or ``hot-cold=REQUESTS:SPACE``.
        arrivals: of a workload ``closed``, ``poisson``, ``regular`` or ``on-off``; of a trace ``open``, ``closed`` or
            ``depth=N``.
        rate_per_s: mean arrivals per second of ``poisson``, ``regular``, and of ``on-off`` while it is on.
        on: mean time that ``on-off`` is on.
        off: mean time that ``on-off`` is off.
        speed: divides the times between the arrivals of a trace.
        beyond: ``refuse`` or ``wrap`` requests of a trace beyond the end of the device.
        trace_format: format of a trace's file; found from its first bytes if it is not given.
        volume: reads the requests of one volume of a trace.
        accept_bad: wrong lines of a trace that are passed over.
        event: event of blktrace with which a request begins, ``D`` or ``Q``.
        spread: seed that spreads requests with equal time stamps over the resolution of the trace's clock.
        capacity: capacity of the device in bytes.
        device_speed: speed of the device relative to its model.
        limit: limits and delays around the device, such as ``iops=3000,delay=2ms`` (docs/slow-disk.md).
        fault: a fault of the device, or several, such as ``kind=recovered,every=9,retry-time=1s``
            (docs/failing-drives.md).
        state: file with the state that the device begins in, made by ``chronodisk age``.
        host_queue: adds the request queue of a host's kernel with this elevator.
        keep_requests: keeps the log, which takes about 120 bytes for each request.
        progress: called with the number of requests so far, up to five times a second; ``True`` shows a bar of tqdm,
            ``False`` nothing. Default: a bar in notebooks.
    """
    if sum(load is not None for load in (workload, trace, fio_job)) != 1:
        raise UsageError("expected a workload, a trace or a fio_job, and one of them")
    for name, number, most in (
        ("requests", requests, 1 << 63),
        ("seed", seed, (1 << 64) - 1),
        ("depth", depth, 1_000_000),
        ("accept_bad", accept_bad, 1 << 63),
        ("spread", spread or 0, (1 << 64) - 1),
    ):
        if not hasattr(number, "__index__") or not 0 <= number <= most:
            raise UsageError(f"{name}={number!r}; expected a whole number from 0 to {most}")
    device_arguments = {
        "seed": seed,
        "capacity_bytes": None if capacity is None else size_bytes("capacity", capacity),
        "speed": device_speed,
        "limit": limit,
        "fault": [fault] if isinstance(fault, str) else list(fault),
        "state": None if state is None else os.fspath(state),
        "host_queue": host_queue,
    }
    table: object | None = None
    of_trace = {
        "speed": speed != 1.0,
        "beyond": beyond != "refuse",
        "trace_format": trace_format is not None,
        "volume": volume is not None,
        "accept_bad": accept_bad != 0,
        "event": event != "D",
        "spread": spread is not None,
    }
    of_workload = {
        "requests": requests != 10_000,
        "depth": depth != 1,
        "block_size": block_size is not None,
        "read_share": read_share is not None,
        "think_max": think_max != 0,
        "addresses": addresses != "uniform",
        "rate_per_s": rate_per_s is not None,
        "on": on is not None,
        "off": off is not None,
    }
    load: dict[str, Any]
    if workload is not None:
        _refuse(of_trace, "is for a trace")
        load = {
            "workload": workload,
            "requests": requests,
            "block_bytes": None if block_size is None else size_bytes("block_size", block_size),
            "depth": depth,
            "read_share": read_share,
            "think_max_ns": time_ns("think_max", think_max),
            "addresses": addresses,
            "arrivals": arrivals,
            "rate_per_s": rate_per_s,
            "on_ns": None if on is None else time_ns("on", on),
            "off_ns": None if off is None else time_ns("off", off),
        }
    elif fio_job is not None:
        _refuse({**of_trace, **of_workload, "arrivals": arrivals is not None}, "can't be used with fio_job")
        load = {"fio_job": os.fspath(fio_job)}
    else:
        path, table = (os.fspath(trace), None) if isinstance(trace, str | os.PathLike) else (None, trace)
        if table is not None and not hasattr(table, "__arrow_c_stream__"):
            raise UsageError(f"trace is a {type(table).__name__}; expected a path or an Arrow table")
        if beyond not in ("refuse", "wrap"):
            raise UsageError(f"beyond={beyond!r}; expected refuse or wrap")
        if event.upper() not in ("D", "Q"):
            raise UsageError(f"event={event!r}; expected D or Q")
        _refuse(of_workload, "is for a workload")
        load = {
            "path": path,
            "format": trace_format,
            "volume": volume,
            "accept_bad": accept_bad,
            "from_queueing": event.upper() == "Q",
            "spread_seed": spread,
            "arrivals": arrivals or "open",
            "speed": speed,
            "wraps": beyond == "wrap",
        }
    core = _device(device, seed, capacity)
    total = requests if workload is not None else None
    with bar(progress if isinstance(progress, bool | None) else False, "simulate", "requests") as shown:
        tell = (lambda done: shown(done, total)) if shown is not None else progress if callable(progress) else None
        text, log, notes = _core.simulate(core, device_arguments, load, table=table, keep=keep_requests, progress=tell)
        if shown is not None:
            # The last fifth of a second.
            shown(int(json.loads(text)["requests"]), total)
    figures: dict[str, Any] = json.loads(text)
    failed = figures["summary"]["failed"]
    if failed:
        warnings.warn(f"{failed} of {figures['requests']} requests failed", stacklevel=2)
    return Simulation(figures, None if log is None else Requests(log), notes)


def _refuse(given: dict[str, bool], why: str) -> None:
    for name, is_given in given.items():
        if is_given:
            raise UsageError(f"{name} {why}")


def _device(device: AnyDevice, seed: int, capacity: Size | None) -> object:
    if isinstance(device, Profile):
        return device._core
    if isinstance(device, str | os.PathLike):
        return Profile.load(device)._core
    if callable(device):
        sectors = None if capacity is None else size_bytes("capacity", capacity) // 512
        model = device(seed, sectors)
        if not isinstance(model, Model):
            raise UsageError(f"the device is a {type(model).__name__}; expected a chronodisk.model.Model")
        return model
    if isinstance(device, Model):
        raise UsageError("the device is a model that was made already; expected its class, for a new one each time")
    raise UsageError(f"the device is a {type(device).__name__}; expected a profile, its name, or a class of models")
