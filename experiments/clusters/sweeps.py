"""What the Python package costs: simulations in process beside the command, and sweeps on pools and clusters.

*Process*: a million requests of `random-small` on cheetah-9lp, by the command and by `chronodisk.simulate`, without the
log and with it (the command writes it to a file, Python has it as a table), in turn.

*Sweeps*: one sweep of short cells on this host by the command, by the package, on a pool of processes of which one is
killed, on Dask with four workers of which one is killed, and on Ray with four. All must give the bytes of the first.
The overhead of a cell is the time of a sweep of short cells on one worker less that of the same calls of the command in
a loop. On Dask, the share of the cells is their processes' CPU time, over that of all processes: workers (also the one
that is killed, and the one in its place), scheduler and client. Dask watches its own processes all the time, which is
measured on an idle cluster, too: as Dask is shipped, and as `SELDOM` sets it.
"""

import argparse
import hashlib
import os
import resource
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import chronodisk

from common.command import executable, keep, note

SCHEMA = "chronodisk.experiment.clusters/1"
FILE: dict[str, Any] = {
    "command": "simulate",
    "seeds": 20,
    "options": {"workload": "random-read", "requests": 1_200_000},
    "axes": {"device": ["cheetah-9lp", "constant-1ms"], "depth": [1, 4, 16, 64]},
}
#: How often Dask looks at its own processes: as shipped it samples stacks every 10 ms, its event loops every 20 ms, and
#: memory every 100 ms.
SELDOM = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.worker.memory.monitor-interval": "1s",
}
#: How long an idle cluster is looked at.
IDLE_S = 5.0
#: Cells of almost no work, for the overhead.
SHORT: dict[str, Any] = {
    **FILE,
    "seeds": 100,
    "options": {"workload": "random-read", "requests": 1},
    "axes": {"device": ["constant-1ms"], "depth": [1, 4]},
}


def digest(directory: Path) -> str:
    """Of the files that hold nothing of the host."""
    found = hashlib.sha256()
    for name in ("sweep.json", "sweep.parquet"):
        found.update((directory / name).read_bytes())
    return found.hexdigest()


def spread(values: list[float]) -> dict[str, float]:
    """Median, least and greatest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def cpu_s() -> float:
    """CPU time of this process and of those that it waited for."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def timed(work: Callable[[], object]) -> dict[str, float]:
    """CPU and wall time of some work."""
    cpu, wall = cpu_s(), time.perf_counter()
    work()
    return {"cpu_s": cpu_s() - cpu, "wall_s": time.perf_counter() - wall}


def in_process(rounds: int, requests: int, folder: Path) -> dict[str, Any]:
    """A million requests by the command and by the package."""
    words = ["simulate", "--device", "cheetah-9lp", "--workload", "random-small", "--requests", str(requests), "--json"]

    def command(*more: str) -> None:
        subprocess.run([executable(), *words, *more], check=True, capture_output=True)

    def package(keep_requests: bool) -> None:
        chronodisk.simulate("cheetah-9lp", "random-small", requests=requests, keep_requests=keep_requests)

    ways: dict[str, Callable[[], object]] = {
        "command": command,
        "package": lambda: package(False),
        "command with a log": lambda: command("--output", tempfile.mkdtemp(dir=folder) + "/log"),
        "package with a table": lambda: package(True),
    }
    calls: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            calls[name].append(timed(way))
    ratios = {
        name: spread([one["cpu_s"] / other["cpu_s"] for one, other in zip(calls[name], calls[base], strict=True)])
        for name, base in (("package", "command"), ("package with a table", "command with a log"))
    }
    ratios["package with a table over command without a log"] = spread(
        [
            one["cpu_s"] / other["cpu_s"]
            for one, other in zip(calls["package with a table"], calls["command"], strict=True)
        ]
    )
    return {
        "requests": requests,
        "calls": {
            name: {unit: spread([call[unit] for call in found]) for unit in found[0]} for name, found in calls.items()
        },
        "cpu_ratios": ratios,
    }


def killed_when(directory: Path, cells: int, victim: Callable[[], int | None], count: list[int]) -> threading.Thread:
    """Kills a process once so many cells are done."""

    def work() -> None:
        for _ in range(3_000):
            if len(list((directory / "cells").glob("*.json"))) >= cells and (pid := victim()) is not None:
                os.kill(pid, signal.SIGKILL)
                count.append(pid)
                return
            # Looking costs CPU time of the process that is measured.
            time.sleep(0.02)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def pool(folder: Path) -> dict[str, Any]:
    """A pool of processes that loses one."""
    pools: list[ProcessPoolExecutor] = []

    def make() -> ProcessPoolExecutor:
        pools.append(ProcessPoolExecutor(4))
        return pools[-1]

    def victim() -> int | None:
        processes = pools[0]._processes if pools else None
        return next(iter(processes), None) if processes else None

    killed: list[int] = []
    thread = killed_when(folder, 10, victim, killed)
    times = timed(lambda: chronodisk.sweep(FILE, folder, executor=make))
    thread.join()
    return {**times, "killed": len(killed), "pools": len(pools), "sha256": digest(folder)}


def dask(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Four workers of Dask, of which one is killed."""
    import dask  # noqa: PLC0415

    # Its defaults must be there: else they go with the settings.
    import distributed  # noqa: F401, PLC0415

    with dask.config.set(settings):
        return {"settings": settings, **on_dask(folder)}


def on_dask(folder: Path) -> dict[str, Any]:
    """The same, with the settings that hold."""
    import logging  # noqa: PLC0415

    from distributed import Client, LocalCluster  # noqa: PLC0415

    logging.getLogger("distributed").setLevel(logging.ERROR)
    with LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        pids = list(client.run(os.getpid).values())
        # Their start.
        started_s = statistics.fmean(sum(stat_times(pid)) for pid in pids)
        # What the first seconds do is no idling.
        time.sleep(1)
        idle = [sum(sum(stat_times(pid)) for pid in pids), sum(resource.getrusage(resource.RUSAGE_SELF)[:2])]
        time.sleep(IDLE_S)
        idle = [
            sum(sum(stat_times(pid)) for pid in pids) - idle[0],
            sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) - idle[1],
        ]
        before = {pid: stat_times(pid) for pid in pids}
        after: dict[int, list[float]] = {}

        def victim() -> int:
            # Once it is dead, nobody tells what it has used. The cell that it was doing is lost.
            pid: int = pids[0]
            after[pid] = stat_times(pid)
            return pid

        killed: list[int] = []
        own = resource.getrusage(resource.RUSAGE_SELF)
        thread = killed_when(folder, 10, victim, killed)
        times = timed(lambda: chronodisk.sweep(FILE, folder, executor=client))
        thread.join()
        # The nanny has started another worker in the place of the one that was killed.
        after |= {pid: stat_times(pid) for pid in client.run(os.getpid).values()}
        used = [
            [late - early for late, early in zip(found, before.get(pid, [0.0] * 4), strict=True)]
            for pid, found in after.items()
        ]
        now = resource.getrusage(resource.RUSAGE_SELF)
    cells_s = sum(sum(found[2:]) for found in used)
    workers_s = sum(sum(found[:2]) for found in used)
    # The scheduler is in this process.
    client_s = now.ru_utime + now.ru_stime - own.ru_utime - own.ru_stime
    return {
        **times,
        "killed": len(killed),
        "sha256": digest(folder),
        "start_of_a_worker_cpu_s": started_s,
        "idle_cpu_per_s": {"workers": idle[0] / IDLE_S, "client_and_scheduler": idle[1] / IDLE_S},
        "cells_cpu_s": cells_s,
        "workers_cpu_s": workers_s,
        "client_and_scheduler_cpu_s": client_s,
        "share_of_cells": cells_s / (cells_s + workers_s + client_s),
    }


def stat_times(pid: int) -> list[float]:
    """User and system time of a process, and of the children that it waited for, in seconds."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return [0.0] * 4
    return [int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15]]


class RayExecutor:
    """Hands calls to Ray."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        """Begins a call."""
        import ray  # noqa: PLC0415

        return ray.remote(function).remote(*arguments).future()


def on_ray(folder: Path) -> dict[str, Any]:
    """Four workers of Ray."""
    try:
        import ray  # noqa: PLC0415
    except ImportError:
        return {"skipped": "no ray here"}
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        times = timed(lambda: chronodisk.sweep(FILE, folder, executor=RayExecutor()))
    finally:
        ray.shutdown()
    return {**times, "sha256": digest(folder)}


def overhead(folder: Path, rounds: int) -> dict[str, Any]:
    """Milliseconds of a cell that are not its own."""
    cells = SHORT["seeds"] * len(SHORT["axes"]["depth"])

    def loop() -> None:
        for depth in SHORT["axes"]["depth"]:
            for seed in range(1, SHORT["seeds"] + 1):
                words = ["--device=constant-1ms", "--workload=random-read", "--requests=1", f"--depth={depth}"]
                words = [str(executable()), "simulate", *words, f"--seed={seed}", "--json"]
                # Without a Python process' start of another: vfork and exec.
                pid = os.posix_spawn(words[0], words, os.environ, file_actions=NULL)
                os.waitpid(pid, 0)

    def by_package(executor: Any) -> None:
        chronodisk.sweep(SHORT, tempfile.mkdtemp(dir=folder), executor=executor, jobs=1)

    def by_threads() -> None:
        with ThreadPoolExecutor(1) as threads:
            by_package(threads)

    def by_processes() -> None:
        with ProcessPoolExecutor(1) as processes:
            by_package(processes)

    ways: dict[str, Callable[[], object]] = {
        "loop": loop,
        "package": lambda: by_package(None),
        "pool of one thread": by_threads,
        "pool of one process": by_processes,
    }
    calls: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            calls[name].append(timed(way))
    of_cell = {
        name: {
            unit: spread(
                [(one[unit] - bare[unit]) / cells * 1e3 for one, bare in zip(found, calls["loop"], strict=True)]
            )
            for unit in ("cpu_s", "wall_s")
        }
        for name, found in calls.items()
        if name != "loop"
    }
    return {"cells": cells, "calls": {name: found for name, found in calls.items()}, "overhead_of_a_cell_ms": of_cell}


NULL = [
    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
]


def main() -> None:
    """Measure and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1_000_000)
    arguments = parser.parse_args()
    os.environ["CHRONODISK"] = str(executable())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result: dict[str, Any] = {"schema": SCHEMA, "rounds": arguments.rounds}
        note("a million requests in process")
        result["in_process"] = in_process(arguments.rounds, arguments.requests, folder)
        note("the overhead of a cell")
        result["overhead"] = overhead(folder, arguments.rounds)
        note("sweeps")
        undisturbed = timed(lambda: chronodisk.sweep(FILE, folder / "whole"))
        result["sweeps"] = {"undisturbed": {**undisturbed, "sha256": digest(folder / "whole")}}
        ways: dict[str, Callable[[Path], dict[str, Any]]] = {
            "pool": pool,
            "dask": lambda place: dask(place, SELDOM),
            "dask as shipped": lambda place: dask(place, {}),
            "ray": on_ray,
        }
        for way, work in ways.items():
            note(way)
            (folder / way).mkdir()
            result["sweeps"][way] = work(folder / way)
    sums = {sweep["sha256"] for sweep in result["sweeps"].values() if "sha256" in sweep}
    result["same_bytes"] = len(sums) == 1
    note(f"same bytes: {result['same_bytes']}; CPU time: {result['in_process']['cpu_ratios']}")
    for way in ("dask", "dask as shipped"):
        note(f"share of the cells in the CPU time, {way}: {result['sweeps'][way]['share_of_cells']:.3f}")
    note(f"overhead of a cell in ms: {result['overhead']['overhead_of_a_cell_ms']}")
    note(f"wrote {keep('clusters', result).name}")


if __name__ == "__main__":
    main()
