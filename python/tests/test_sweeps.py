"""Sweeps on executors: the same bytes, whoever does the cells and whoever is lost."""

import os
import signal
import subprocess
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import chronodisk
from chronodisk import command, sweep

try:
    command.executable()
except chronodisk.HostError as error:
    pytest.skip(f"no command: {error}", allow_module_level=True)

FILE: dict[str, Any] = {
    "command": "simulate",
    "seeds": 3,
    "options": {"workload": "random-read", "requests": 500},
    "axes": {"device": ["cheetah-9lp", "constant-1ms"], "depth": [1, 4, 16]},
}


def files(directory: Path) -> list[bytes]:
    return [(directory / name).read_bytes() for name in ("sweep.json", "sweep.parquet")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole")
    found = sweep(FILE, directory)
    assert found.failed == 0
    return directory


def test_a_sweep_is_the_commands(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        "command = 'simulate'\nseeds = 3\n[options]\nworkload = 'random-read'\nrequests = 500\n"
        "[axes]\ndevice = ['cheetah-9lp', 'constant-1ms']\ndepth = [1, 4, 16]\n"
    )
    call = [command.executable(), "sweep", "s.toml", "-o", "by-command"]
    subprocess.run(call, cwd=tmp_path, check=True, capture_output=True)
    assert files(whole) == files(tmp_path / "by-command")
    rows = sweep(tmp_path / "s.toml", whole).rows("latency_us.mean")
    assert len(rows) == 6 and rows[0]["low"] <= rows[0]["value"] <= rows[0]["high"]
    alone = [chronodisk.simulate("constant-1ms", "random-read", requests=500, depth=4, seed=seed) for seed in (1, 2, 3)]
    row = next(row for row in rows if row["device"] == "constant-1ms" and row["depth"] == 4)
    assert row["value"] == pytest.approx(sum(one.latency_us["mean"] for one in alone) / 3)


def test_a_pool_of_threads_gives_the_same_bytes_and_done_cells_are_not_repeated(whole: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with ThreadPoolExecutor(2) as pool:
        sweep(FILE, tmp_path, executor=pool, progress=lambda *counts: seen.append(counts))
    assert files(tmp_path) == files(whole)
    assert seen[-1] == (18, 18) and len(seen) >= 18

    class Refuses(ThreadPoolExecutor):
        def submit(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("nothing is missing")

    sweep(FILE, tmp_path, executor=Refuses())


@pytest.mark.parametrize("makes_new", [False, True])
def test_a_worker_that_is_killed_costs_nothing_but_time(whole: Path, tmp_path: Path, makes_new: bool) -> None:
    pools: list[ProcessPoolExecutor] = []

    def make() -> ProcessPoolExecutor:
        pools.append(ProcessPoolExecutor(2))
        return pools[-1]

    stop = threading.Event()

    def kill() -> None:
        while not stop.wait(0.001):
            workers = list(pools[0]._processes) if pools and pools[0]._processes else []
            if workers and len(list((tmp_path / "cells").glob("*.json"))) >= 3:
                os.kill(workers[0], signal.SIGKILL)
                return

    killer = threading.Thread(target=kill)
    killer.start()
    executor: Executor | Callable[[], Executor] = make if makes_new else make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = sweep(FILE, tmp_path, executor=executor)
    stop.set()
    killer.join()
    assert any("the executor broke" in str(warning.message) for warning in caught), "nobody was killed in time"
    assert len(pools) == (2 if makes_new else 1)
    assert found.failed == 0 and files(tmp_path) == files(whole)
    for pool in pools:
        pool.shutdown()


def test_wrong_sweeps_are_usage_errors(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"command": "simulate", "axes": {"depht": [1]}}, "^sweep: unknown axis depht"),
        ({"axes": {}}, "command is missing"),
        ({"command": "fly"}, "expected simulate, run, mount or replay"),
        ({"command": "simulate", "options": {"device": "nothing-like-it"}, "axes": {}}, "nothing-like-it"),
    ]
    for file, message in wrong:
        with pytest.raises(chronodisk.UsageError, match=message):
            sweep(file, tmp_path / "wrong")
    (tmp_path / "lines.toml").write_text("command = 'simulate'\nseeds = 2\n[axes]\ndepht = [1]\n")
    with pytest.raises(chronodisk.UsageError, match="lines.toml:4: unknown axis depht"):
        sweep(tmp_path / "lines.toml", tmp_path / "wrong")
    with pytest.raises(chronodisk.UsageError, match="can't read"):
        sweep(tmp_path / "nowhere.toml", tmp_path / "wrong")
    with pytest.raises(chronodisk.UsageError, match="no results"):
        chronodisk.Sweep.open(tmp_path / "wrong")


def test_another_build_of_the_command_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "chronodisk"

    class OtherHost:
        """Runs what it is given with another command."""

        def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
            other.write_bytes(b"#!/bin/sh\nexit 0\n")
            other.chmod(0o755)
            with monkeypatch.context() as patch:
                patch.setenv("CHRONODISK", str(other))
                with ThreadPoolExecutor(1) as pool:
                    future = pool.submit(fn, *args)
            return future

    with pytest.raises(chronodisk.UsageError, match="is not the chronodisk that the sweep was begun with"):
        sweep(FILE, tmp_path / "out", executor=OtherHost())


def test_ctrl_c_ends_a_sweep_and_the_next_goes_on(tmp_path: Path) -> None:
    import _thread

    long = {**FILE, "options": {"workload": "random-read", "requests": 200_000}, "axes": {"depth": list(range(1, 60))}}
    long["options"]["device"] = "cheetah-9lp"
    timer = threading.Timer(0.5, _thread.interrupt_main)
    timer.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sweep(long, tmp_path)
    assert time.monotonic() - begun < 30
    assert not (tmp_path / "sweep.json").exists()
