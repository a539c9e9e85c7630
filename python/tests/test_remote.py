"""Results of sweeps on file systems of fsspec: in memory, and on a local server that speaks S3."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import chronodisk
from chronodisk import Sweep, command, sweep

try:
    command.executable()
except chronodisk.HostError as error:
    pytest.skip(f"no command: {error}", allow_module_level=True)
fsspec = pytest.importorskip("fsspec")

FILE: dict[str, Any] = {
    "command": "simulate",
    "seeds": 2,
    "options": {"workload": "random-read", "requests": 200},
    "axes": {"profile.time": ["1 ms", "2 ms"], "device": ["constant-1ms"], "depth": [1, 4]},
}
CELLS = 8


@pytest.fixture
def memory() -> str:
    return f"memory://{uuid4().hex}/depths"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.get_host_and_port()[1]}",
    }.items():
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3", skip_instance_cache=True).mkdir("results")
    yield f"s3://results/{uuid4().hex}"
    server.stop()
    fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.fixture(params=["memory", "s3"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


class Counting:
    """Runs so many calls on threads, and refuses the next."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.calls = 0
        self.pool = ThreadPoolExecutor(2)

    def submit(self, fn: Callable[..., Any], /, *arguments: Any) -> "Future[Any]":
        self.calls += 1
        if self.calls > self.most:
            return self.pool.submit(self.fail)
        return self.pool.submit(fn, *arguments)

    @staticmethod
    def fail() -> None:
        raise RuntimeError("the cluster was switched off")


def test_a_sweep_elsewhere_has_the_bytes_of_one_here_and_goes_on(url: str, tmp_path: Path) -> None:
    whole = sweep(FILE, tmp_path / "whole")
    with pytest.raises(RuntimeError, match="switched off"):
        sweep(FILE, url, executor=Counting(5))
    files, root = fsspec.core.url_to_fs(url)
    assert len(files.ls(f"{root}/cells")) == 5 and not files.exists(f"{root}/sweep.json")

    rest = Counting(3)
    found = sweep(FILE, url, executor=rest)
    assert rest.calls == 3, "five cells were there"
    assert found.failed == 0 and found.location == url and found.rows("iops") == whole.rows("iops")
    for name in ("sweep.json", "sweep.parquet"):
        assert files.cat_file(f"{root}/{name}") == (whole.directory / name).read_bytes(), name
    assert len(json.loads(files.cat_file(f"{root}/sweep.provenance.json"))["cells"]) == CELLS
    for report in (files.cat_file(f"{root}/sweep.html"), (whole.directory / "sweep.html").read_bytes()):
        assert b"Main effects" in report and b"iops against depth" in report
    assert Sweep.open(url).results == whole.results
    with pytest.raises(chronodisk.UsageError, match="is no directory"):
        _ = found.directory
    # All is there; a worker would be asked for nothing.
    sweep(FILE, url, executor=Counting(0))


def test_without_an_executor_this_host_does_the_cells(memory: str) -> None:
    seen: list[tuple[int, int]] = []
    assert sweep(FILE, memory, progress=lambda *counts: seen.append(counts)).failed == 0
    assert seen[-1] == (CELLS, CELLS) and len(seen) >= CELLS


def test_a_damaged_cell_is_done_again(memory: str) -> None:
    sweep(FILE, memory)
    files, root = fsspec.core.url_to_fs(memory)
    first = sorted(files.ls(f"{root}/cells", detail=False))[0]
    content = files.cat_file(first)
    files.pipe_file(first, content[:20])
    again = Counting(1)
    sweep(FILE, memory, executor=again)
    assert again.calls == 1
    assert json.loads(files.cat_file(first))["figures"] == json.loads(content)["figures"]


def test_wrong_places_are_errors_of_the_package(memory: str) -> None:
    with pytest.raises(chronodisk.UsageError, match="need a directory"):
        sweep({"command": "run", "options": {"device": "null", "cmd": "true"}, "axes": {}}, memory)
    with pytest.raises(chronodisk.HostError, match="nothing-like-it://x"):
        sweep(FILE, "nothing-like-it://x")
    with pytest.raises(chronodisk.UsageError, match="no results of a sweep"):
        Sweep.open(memory)
