"""Storage devices with the timing of a model: simulations, traces, sweeps, and runs of real programs.

>>> import chronodisk
>>> disk = chronodisk.Profile.load("cheetah-9lp")
>>> found = chronodisk.simulate(disk, "random-read", requests=1000, depth=4)
>>> found.latency_us["mean"] > 5_000
True
>>> table = found.requests.to_pyarrow()  # doctest: +SKIP

Times are whole nanoseconds (``_ns``), sizes bytes (``_bytes``) or sectors of 512 bytes (``_sectors``). Where an
argument takes a size or a time, it also takes a text with a unit, such as ``"4KiB"`` or ``"1.5 ms"``.

Whatever fails raises a :class:`ChronodiskError`.
"""

import importlib
from typing import TYPE_CHECKING

from chronodisk.errors import ChronodiskError, CommandError, HostError, ModelError, UsageError

if TYPE_CHECKING:
    from chronodisk._core import VERSION as __version__
    from chronodisk.intervals import Estimate, bootstrap
    from chronodisk.profile import Profile
    from chronodisk.runs import Run, compare, run, verify
    from chronodisk.simulation import Simulation, simulate, workloads
    from chronodisk.sweeps import Sweep, sweep
    from chronodisk.tables import Requests

__all__ = [
    "ChronodiskError",
    "CommandError",
    "Estimate",
    "HostError",
    "ModelError",
    "Profile",
    "Requests",
    "Run",
    "Simulation",
    "Sweep",
    "UsageError",
    "__version__",
    "bootstrap",
    "compare",
    "run",
    "simulate",
    "sweep",
    "verify",
    "workloads",
]

# A model that `exec:` starts needs `chronodisk.model` only: the rest is loaded when it is asked for.
_PLACES = {
    "Estimate": "intervals",
    "Profile": "profile",
    "Requests": "tables",
    "Run": "runs",
    "Simulation": "simulation",
    "Sweep": "sweeps",
    "bootstrap": "intervals",
    "compare": "runs",
    "run": "runs",
    "simulate": "simulation",
    "sweep": "sweeps",
    "verify": "runs",
    "workloads": "simulation",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return importlib.import_module("chronodisk._core").VERSION
    if name not in _PLACES:
        raise AttributeError(f"module 'chronodisk' has no attribute {name!r}")
    return getattr(importlib.import_module(f"chronodisk.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
