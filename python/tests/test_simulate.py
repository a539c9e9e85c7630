"""Simulations in process: figures, tables, traces, models, errors."""

import pickle
import threading
import time
from pathlib import Path

import pyarrow
import pytest

import chronodisk
from chronodisk import Profile, UsageError, simulate
from chronodisk.model import Completion, Device, Model, QueueModel, Request

DISK = "cheetah-9lp"


class Fixed(QueueModel):
    device = Device(name="fixed", capacity_sectors=1 << 20)

    def end(self, request: Request, start: int) -> int:
        return start + 250_000


def columns(found: chronodisk.Simulation, *names: str) -> list[list[int]]:
    table = found.requests.to_pyarrow()
    return [table[name].to_pylist() for name in names]


def test_equal_arguments_give_equal_results_and_seeds_differ() -> None:
    one, again = (simulate(DISK, "random-mixed", requests=2_000, depth=4) for _ in range(2))
    assert one.figures == again.figures
    assert one.requests.to_pyarrow().equals(again.requests.to_pyarrow())
    assert simulate(DISK, "random-mixed", requests=2_000, depth=4, seed=2).figures != one.figures


def test_figures_are_those_of_the_requests() -> None:
    found = simulate(DISK, "random-read", requests=3_000, block_size="16KiB")
    arrival, due, sectors = columns(found, "arrival_ns", "due_ns", "len_sectors")
    assert set(sectors) == {32}
    mean = sum(end - begin for begin, end in zip(arrival, due, strict=True)) / len(due) / 1e3
    assert found.latency_us["mean"] == pytest.approx(mean, rel=1e-9)
    assert found.simulated_s == pytest.approx((max(due) - min(arrival)) / 1e9)
    assert found.iops == pytest.approx(3_000 / found.simulated_s)
    assert found.figures["options"]["block_size_bytes"] == 16_384


def test_other_libraries_share_the_table() -> None:
    polars = pytest.importorskip("polars")
    found = simulate(DISK, "random-read", requests=20_000)
    table = found.requests.to_pyarrow()
    assert table.num_rows == len(found.requests) == 20_000
    assert polars.DataFrame(found.requests)["lba_sectors"].to_list() == table["lba_sectors"].to_pylist()
    assert (found.requests.service_times_ns() > 0).all()
    # The memory is Chronodisk's: a second look is at the same buffers.
    addresses = [found.requests.to_pyarrow()["due_ns"].chunk(0).buffers()[1].address for _ in range(2)]
    assert addresses[0] == addresses[1]
    # It outlives what it came from.
    kept = simulate(DISK, "random-read", requests=100).requests.to_pyarrow()
    assert kept["order"].to_pylist() == list(range(100))


def test_a_table_is_a_trace() -> None:
    first = simulate(DISK, "random-mixed", requests=3_000, arrivals="poisson", rate_per_s=50)
    whole = first.requests.to_pyarrow()
    begin = whole["arrival_ns"][0].as_py()
    for table in [first.requests, whole, whole.select(["op", "lba_sectors", "len_sectors", "arrival_ns"])]:
        replayed = simulate(DISK, trace=table)
        assert columns(replayed, "arrival_ns")[0] == [at - begin for at in columns(first, "arrival_ns")[0]]
        assert replayed.figures["requests"] == 3_000
    at_depth = simulate(DISK, trace=whole, arrivals="depth=8")
    assert at_depth.figures["summary"]["mean_queue_depth"] > 7.9


def test_tables_of_polars_and_narrow_types_are_traces() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"op": ["read", "write"], "lba_sectors": [0, 800], "len_sectors": [8, 8]})
    frame = frame.with_columns(arrival_ns=polars.Series([5, 10_000_000]), op=polars.col("op").cast(polars.Categorical))
    found = simulate(DISK, trace=frame)
    assert columns(found, "op", "arrival_ns") == [["read", "write"], [0, 9_999_995]]


def test_files_are_traces(tmp_path: Path) -> None:
    first = simulate(DISK, "random-mixed", requests=500)
    first.requests.write(tmp_path / "log.parquet")
    assert chronodisk.Requests.read(tmp_path / "log.parquet").to_pyarrow().equals(first.requests.to_pyarrow())
    replayed = simulate(DISK, trace=tmp_path / "log.parquet")
    assert columns(replayed, "due_ns") == columns(first, "due_ns")
    text = "128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372013061629,usr,0,Write,0,4096,500\n"
    (tmp_path / "usr.csv").write_text(text)
    found = simulate(DISK, trace=tmp_path / "usr.csv")
    assert columns(found, "arrival_ns", "lba_sectors") == [[0, 1_000_000_000], [13_700_410, 0]]
    assert found.figures["options"]["trace_format"] == "msr"


def test_a_profile_with_other_values() -> None:
    disk = Profile.load(DISK)
    assert Profile(disk.text).capacity_bytes == disk.capacity_bytes
    constant = Profile.load("constant-1ms")
    changed = constant.with_(latency="2 ms") if "latency" in constant.text else constant
    assert pickle.loads(pickle.dumps(disk)) == disk and DISK in Profile.names()
    assert changed == constant or changed.text != constant.text
    fast = simulate(DISK, "random-read", requests=100, device_speed=2.0)
    slow = simulate(DISK, "random-read", requests=100)
    assert fast.simulated_s == pytest.approx(slow.simulated_s / 2, rel=1e-4)
    limited = simulate("null", "random-read", requests=3_000, depth=8, limit="iops=1000")
    assert limited.simulated_s == pytest.approx(3.0, rel=1e-2)
    assert limited.figures["options"]["limit"] == "iops=1000"
    with pytest.raises(UsageError, match="unknown limit"):
        simulate("null", "random-read", limit="iop=1000")
    faults = ["kind=transient,every=10", "kind=slow,factor=3"]
    with pytest.warns(UserWarning, match="10 of 100 requests failed"):
        failing = simulate("null", "random-read", requests=100, fault=faults)
    assert failing.figures["summary"]["failed_by_status"] == {"media-error": 10}
    assert failing.figures["options"]["fault"] == "kind=transient,every=10 kind=slow,factor=3"
    with pytest.raises(UsageError, match="unknown key"):
        simulate("null", "random-read", fault="king=slow")
    with pytest.raises(UsageError, match="no table nothing"):
        disk.with_(nothing__at_all="1 ms")
    with pytest.raises(UsageError, match="unknown"):
        disk.with_({"nonsense": 1})


def test_a_class_of_python_is_a_device() -> None:
    found = simulate(Fixed, "random-read", requests=1_000, depth=3)
    arrival, due = columns(found, "arrival_ns", "due_ns")
    # One channel, three outstanding: each waits for two others.
    assert [end - begin for begin, end in zip(arrival, due, strict=True)][3:] == [750_000] * 997
    assert found.device == "fixed"
    faster = simulate(Fixed, "random-read", requests=100, device_speed=4.0)
    assert faster.latency_us["mean"] == pytest.approx(62.5)
    with pytest.raises(UsageError, match="its own timing"):
        simulate(Fixed, "random-read", limit="iops=1000")
    with pytest.raises(UsageError, match="by itself"):
        simulate(Fixed, "random-read", fault="kind=slow,factor=2")


def test_a_model_in_python_can_fail() -> None:
    class Raises(Fixed):
        def end(self, request: Request, start: int) -> int:
            if request.id == 700:
                raise RuntimeError("out of ideas")
            return super().end(request, start)

    with pytest.raises(RuntimeError, match="out of ideas"):
        simulate(Raises, "random-read", requests=100_000)

    class Lies(Model):
        device = Device(name="lies", capacity_sectors=1 << 20)

        def submit(self, now: int, request: Request) -> None:
            self.at = now

        def bound(self) -> int:
            return self.at + 1

        def advance(self, limit: int) -> list[Completion]:
            return [Completion(0, self.at)]

    with pytest.raises(chronodisk.ModelError, match="after the arrival"):
        simulate(Lies, "random-read", requests=10)

    class Sleeps(Lies):
        def advance(self, limit: int) -> list[Completion]:
            return []

    with pytest.raises(chronodisk.ModelError, match="never complete"):
        simulate(Sleeps, "random-read", requests=10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workload": "random-walk"}, "random-walk"),
        ({}, "a workload, a trace or a fio_job"),
        ({"workload": "random-read", "trace": "x"}, "a workload, a trace or a fio_job"),
        ({"workload": "random-read", "read_share": 0.5}, "read_share can't be used"),
        ({"workload": "random-read", "volume": "a"}, "volume is for a trace"),
        ({"workload": "random-read", "block_size": "4 lightyears"}, "lightyears"),
        ({"workload": "random-read", "block_size": 1.5}, "whole number"),
        ({"workload": "random-read", "arrivals": "poisson"}, "rate_per_s"),
        ({"workload": "random-read", "capacity": 100}, "multiple of 512"),
        ({"trace": "/nowhere"}, "can't read"),
        ({"trace": 5}, "int"),
        ({"trace": pyarrow.table({"op": ["read"]})}, "missing"),
        ({"workload": "random-read", "depth": -1}, "depth"),
    ],
)
def test_errors_are_of_one_family_and_name_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises((UsageError, OverflowError), match=message) as caught:
        simulate(DISK, **arguments)  # type: ignore[arg-type]
    assert "--" not in str(caught.value)


def test_an_unknown_device_is_a_usage_error() -> None:
    with pytest.raises(chronodisk.ChronodiskError, match="cheetah-9lp"):
        simulate("cheetah-9pl", "random-read")


def test_other_threads_run_meanwhile() -> None:
    ticks, done = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.wait(0.001):
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    seen: list[int] = []
    simulate(DISK, "random-small", requests=200_000, keep_requests=False, progress=seen.append)
    done.set()
    thread.join()
    assert ticks > 10
    assert seen == sorted(seen)


def test_ctrl_c_ends_a_simulation() -> None:
    import _thread

    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        simulate(DISK, "random-small", requests=50_000_000, keep_requests=False)
    assert time.monotonic() - begun < 30


def test_requests_that_were_not_kept_are_an_error() -> None:
    found = simulate(DISK, "random-read", requests=10, keep_requests=False)
    with pytest.raises(UsageError, match="keep_requests"):
        _ = found.requests
    assert "<table>" in found._repr_html_() and "svg" in found._repr_html_()


def test_a_job_file_of_fio_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "jobs.fio"
    text = "[reads]\ndirect=1\nrw=randread\nbs=16k\nsize=1m\nioengine=libaio\niodepth=4\n"
    file.write_text(text)
    found = simulate("constant-1ms", fio_job=file)
    lba, sectors = columns(found, "lba_sectors", "len_sectors")
    assert sorted(lba) == list(range(0, 2_048, 32)) and lba != sorted(lba), "each block once"
    assert set(sectors) == {32} and found.simulated_s == pytest.approx(0.064 / 4)
    assert simulate("constant-1ms", fio_job=file, seed=2).requests.to_pyarrow()["lba_sectors"].to_pylist() != lba
    file.write_text(text.replace("libaio", "psync"))
    assert simulate("constant-1ms", fio_job=file).notes == [
        "[reads]: its ioengine is synchronous, so one request is outstanding, as with fio"
    ]
    file.write_text(text.replace("randread", "randwrite") + "verify=md5\n")
    with pytest.raises(UsageError, match="jobs.fio:8: verify: md5; expected no verification"):
        simulate("constant-1ms", fio_job=file)
    for wrong in ({"depth": 4}, {"arrivals": "closed"}, {"speed": 2.0}):
        with pytest.raises(UsageError, match="can't be used with fio_job"):
            simulate("constant-1ms", fio_job=file, **wrong)
    with pytest.raises(UsageError, match="one of them"):
        simulate("constant-1ms", "random-read", fio_job=file)
