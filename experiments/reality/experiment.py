"""Programs on this machine's own disk, and on a model that a sweep of it was fitted to (Memulator, section 5.4).

The disk is a loop device over a file of it, past the page cache. Before each program, fio sweeps that device, and a
table profile is fitted to the sweep (see `common/disk_sweep.py`): within a quarter of an hour the disk's times change
by up to a third. Then the program runs in turn

- on the disk, with idle processors that are kept from sleeping (`/dev/cpu_dma_latency`), as they are while the disk is
  swept: `chronodisk mount` keeps them awake, so both sides have the same host;
- on the disk, with processors that may sleep: what waking them costs;
- on the model, by `chronodisk mount`: the same mkfs, the same mount options, the same settings of the loop device;
- on the model in another network namespace: `chronodisk serve` there, nbdfuse and a loop device here. What a request
  takes on that way is measured with a device of 1 ms, and given to the server as `--completion-lead`;
- in a guest on the model, by `chronodisk run`, in the guest's time.

A remote device can't be faster than the way to it and back, which takes longer here than most requests of this
machine's disk. So shorter versions of the programs also run on a disk of 15,000 rpm that is emulated locally and
remotely.

The disk's volatile cache is not emptied on either side: the model has none, and so the disk's loop device is set to
write through. What the model can't know is this machine's noise: a virtual disk shares its host, and no two sweeps are
the same.
"""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from common.command import RESULTS, chronodisk, chronodisk_with_output, executable, keep, note
from common.disk_sweep import Point, profile, sweep

SCHEMA = "chronodisk.experiment.reality/3"
MEBIBYTES = 1536
#: Where the sweep reads and writes. What a program reads again comes from the page cache, so the disk reads what it has
#: not read of late: such reads are a third slower here than reads of few blocks again and again. But programs write the
#: same few blocks again, such as those of a journal, and writes all over the disk are a quarter slower.
READ_REGION_MIB, WRITE_REGION_MIB = MEBIBYTES, 128
SWEEP_SECONDS = 1
PROGRAMS = Path(__file__).parent.parent / "spe" / "programs.py"
# Not discarded: what is discarded of the disk's file is a hole, which reads without the disk.
MKFS = ["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]
READ_AHEAD_KIB = 128
REQUEST_KIB = 512
#: Where the remote server is: a network namespace of its own behind a pair of virtual interfaces.
NAMESPACE = "chronodisk-reality"
AWAKE = Path("/dev/cpu_dma_latency")
#: Has no volatile cache, as the settings of the queue have it; Memulator's own disk.
SLOW_DEVICE = "cheetah-x15"
#: What part of their work the programs do there.
SLOW_PART = 20
SLOW_REPS_MAX = 3
SERVER_ADDRESS, CLIENT_ADDRESS, PORT = "10.231.77.2", "10.231.77.1", 10809
GUEST_DIRECTORY = "/mnt"
#: Percentage points of the interval's ends.
INTERVAL = 95


def run(*words: str | Path) -> str:
    """Run a command, and return what it printed."""
    done = subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def run_program(command: str) -> None:
    """Run shell commands; if this script is to end, so are all of their processes, which keep a file system busy."""
    process = subprocess.Popen(["sh", "-c", command], stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        status = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if status != 0:
        raise subprocess.CalledProcessError(status, command)


def fio(device: str, *options: str) -> dict[str, Any]:
    """Return what fio says of reads or writes."""
    job = ["--name=sweep", f"--filename={device}", "--direct=1", "--ioengine=libaio", "--time_based", "--norandommap"]
    text = run("fio", *job, f"--runtime={SWEEP_SECONDS}", "--output-format=json", *options)
    found = json.loads(text)["jobs"][0]
    used: dict[str, Any] = max(found["read"], found["write"], key=lambda side: side["total_ios"])
    return used


def account(device: str) -> tuple[int, int]:
    """Return how many requests the kernel has seen the device complete, and their milliseconds, all added up.

    They count from issue to completion: a program's own system calls and wake-ups are not the device's.
    """
    words = [int(word) for word in (Path("/sys/block") / Path(device).name / "stat").read_text().split()]
    # Documentation/block/stat.rst: reads and their milliseconds, writes and theirs.
    return words[0] + words[4], words[3] + words[7]


def measure(device: str, word: str, size_kib: int, depth: int) -> Point:
    """Return what requests of the device took."""
    before = account(device)
    region_mib = WRITE_REGION_MIB if "write" in word else READ_REGION_MIB
    found = fio(device, f"--rw={word}", f"--bs={size_kib}k", f"--iodepth={depth}", f"--size={region_mib}m")
    requests, milliseconds = (after - then for then, after in zip(before, account(device), strict=True))
    mean_us = 1e3 * milliseconds / requests
    rate = float(found["iops"])
    return Point(mean_us=mean_us, requests_per_second=rate, outstanding=rate * mean_us / 1e6)


def programs(directory: Path, part: int = 1) -> dict[str, tuple[str, str]]:
    """Return for each program the shell commands before it, and itself, doing this part of its work (1/`part`).

    All work in the directory.
    """
    postmark = "".join(
        f"{line}\\n"
        for line in (
            f"set location {directory}/mail",
            f"set number {2000 // part}",
            f"set transactions {20000 // part}",
            "set size 10000 20000",
            "set seed 42",
            "set buffering false",
            "run",
            "quit",
        )
    )
    files = f"fio --output=/dev/null --directory={directory} --name=job --nrfiles=200 --randseed=42 --thread"
    web = f"{files} --filesize=128k --bs=16k --rw=randread --ioengine=psync --file_service_type=random"
    mail = f"{files} --filesize=64k --bs=16k --rw=randrw --ioengine=psync --fsync=4"
    return {
        "postmark": (f"mkdir {directory}/mail", f"printf '{postmark}' | postmark >/dev/null && sync -f {directory}"),
        "webserver": (f"{web} --create_only=1", f"{web} --io_size={204800 // part}k"),
        "varmail": (f"{mail} --create_only=1", f"{mail} --io_size={98304 // part}k"),
        "tar": (f"cp -r /usr/include/c++ {directory}/files", f"tar cf - {directory}/files | cat >/dev/null"),
        "sqlite": ("true", f"{sys.executable} {PROGRAMS} sqlite {directory}/database {2000 // part}"),
    }


@dataclass(frozen=True)
class Took:
    """What a program took, and the mean of its requests, if that is known."""

    seconds: float
    request_us: float | None


def on_disk(device: str, directory: Path, setup: str, command: str) -> Took:
    """Run the program on the disk, cold."""
    run("mkfs.ext4", *MKFS, "-F", device)
    try:
        run("mount", device, directory)
        run_program(setup)
        run("umount", directory)
        Path("/proc/sys/vm/drop_caches").write_text("3")
        run("mount", device, directory)
        before = account(device)
        began = time.monotonic()
        run_program(command)
        seconds = time.monotonic() - began
        requests, milliseconds = (after - then for then, after in zip(before, account(device), strict=True))
        return Took(seconds, 1e3 * milliseconds / max(requests, 1))
    finally:
        subprocess.run(["umount", "-q", str(directory)], check=False)


def on_model(device: str | Path, directory: Path, setup: str, command: str) -> Took:
    """Run the program on the model."""
    options = ["--mkfs-options", " ".join(MKFS), "--mount", str(directory), "--setup", setup]
    options += ["--capacity", f"{MEBIBYTES}MiB"]
    result = chronodisk("mount", "--device", str(device), *options, "--", "sh", "-c", command)
    rep = result["reps"][0]
    by_op = [op for op in rep["summary"]["by_op"].values() if op["requests"]]
    total_us = sum(op["requests"] * op["service_time_us"]["mean"] for op in by_op)
    return Took(rep["run_time_ns"] / 1e9, total_us / max(sum(op["requests"] for op in by_op), 1))


def in_guest(fitted: Path, directory: Path, setup: str, command: str) -> Took:
    """Run the program in a guest, in the guest's time."""
    there = [part.replace(str(directory), GUEST_DIRECTORY) for part in (setup, command)]
    cold = "sync; echo 3 > /proc/sys/vm/drop_caches"
    script = f"set -e; {there[0]}; {cold}; begin=$(date +%s.%N); {there[1]}; end=$(date +%s.%N); echo TOOK $begin $end"
    options = ["--mkfs-options", " ".join(MKFS), "--memory", "1GiB"]
    output = chronodisk_with_output("run", "--device", str(fitted), *options, "--", "sh", "-c", script)[1]
    begin, end = next(line for line in output.splitlines() if line.startswith("TOOK ")).split()[1:]
    return Took(float(end) - float(begin), None)


@contextmanager
def processors_awake() -> Iterator[None]:
    """Keep idle processors from sleeping, as `chronodisk mount` does. The kernel forgets it with the file's end."""
    if not AWAKE.exists():
        note(f"no {AWAKE} here: idle processors may sleep on all sides")
        yield
        return
    with AWAKE.open("wb", buffering=0) as wish:
        wish.write((0).to_bytes(4, sys.byteorder))
        yield


def awake(measure_in: Callable[[str, str], Took], setup: str, command: str) -> Took:
    """Run a program in some way while processors are kept awake."""
    with processors_awake():
        return measure_in(setup, command)


class Remote:
    """A server in a network namespace, and a loop device here over nbdfuse."""

    def __init__(self, device: str, lead: str, folder: Path) -> None:
        """Serve the device."""
        in_namespace = ["ip", "netns", "exec", NAMESPACE, str(executable()), "serve", "--device", device]
        where = ["--capacity", f"{MEBIBYTES}MiB", "--nbd", f"{SERVER_ADDRESS}:{PORT}", "--insecure"]
        result = ["--output", str(folder / "remote"), "--completion-lead", lead]
        self.server = subprocess.Popen([*in_namespace, *where, *result], stderr=subprocess.DEVNULL)
        self.directory = folder / "nbdfuse"
        self.directory.mkdir(exist_ok=True)
        uri = f"nbd://{SERVER_ADDRESS}:{PORT}"
        wait = ["nbdinfo", "--size", uri]
        deadline = time.monotonic() + 20
        while subprocess.run(wait, capture_output=True, check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError("the remote server does not answer")
            time.sleep(0.1)
        self.client = subprocess.Popen(["nbdfuse", str(self.directory), uri])
        file = self.directory / "nbd"
        while not file.exists():
            time.sleep(0.05)
        self.device = run("losetup", "--find", "--show", "--direct-io=on", file).strip()
        set_queue(self.device)

    def end(self) -> None:
        """Take all of it down."""
        run("losetup", "--detach", self.device)
        run("umount", self.directory)
        self.client.wait()
        self.server.terminate()
        self.server.wait()
        shutil.rmtree(self.directory.parent / "remote", ignore_errors=True)


@contextmanager
def network() -> Iterator[None]:
    """Make the namespace and the interfaces, and remove them."""
    run("ip", "netns", "add", NAMESPACE)
    try:
        run("ip", "link", "add", "chronodisk0", "type", "veth", "peer", "name", "chronodisk1", "netns", NAMESPACE)
        run("ip", "addr", "add", f"{CLIENT_ADDRESS}/24", "dev", "chronodisk0")
        run("ip", "link", "set", "chronodisk0", "up")
        run("ip", "-n", NAMESPACE, "addr", "add", f"{SERVER_ADDRESS}/24", "dev", "chronodisk1")
        run("ip", "-n", NAMESPACE, "link", "set", "chronodisk1", "up")
        yield
    finally:
        run("ip", "netns", "del", NAMESPACE)


def remote_lead(folder: Path) -> str:
    """Measure what reads of 4 KiB from a device of 1 ms take beyond that, with the server's own estimates off."""
    remote = Remote("constant-1ms", "0us", folder)
    try:
        beyond_us = measure(remote.device, "randread", 4, 1).mean_us - 1000
        note(f"the way to the remote server and back: {beyond_us:.0f} us")
        return f"{max(beyond_us, 0):.1f}us"
    finally:
        remote.end()


def set_queue(device: str) -> None:
    """Set the loop device's queue as `chronodisk mount` does."""
    queue = Path("/sys/block") / Path(device).name / "queue"
    for file_name, value in (
        ("read_ahead_kb", READ_AHEAD_KIB),
        ("scheduler", "none"),
        ("max_sectors_kb", REQUEST_KIB),
        ("write_cache", "write through"),
    ):
        (queue / file_name).write_text(str(value))


def interval(values: list[float]) -> list[float]:
    """Return the range of the middle 95 % of resampled medians."""
    stream = random.Random(1)
    medians = sorted(statistics.median(stream.choices(values, k=len(values))) for _ in range(2000))
    cut = len(medians) * (100 - INTERVAL) // 200
    return [medians[cut], medians[-1 - cut]]


Ways = dict[str, Callable[[str, str], Took]]


def compare(name: str, setup: str, command: str, ways: Ways, reps: int) -> dict[str, Any]:
    """Run a program in all ways in turn. The first way is what the others are compared with."""
    reference = next(iter(ways))
    took: dict[str, list[Took]] = {way: [] for way in ways}
    for rep in range(reps):
        note(f"{name}: {rep + 1} of {reps}")
        for way, measure_in in ways.items():
            took[way].append(measure_in(setup, command))
    seconds = {way: [one.seconds for one in values] for way, values in took.items()}
    medians = {way: statistics.median(values) for way, values in seconds.items()}
    row: dict[str, Any] = {"program": name, "median_s": medians, "values_s": seconds, "load": os.getloadavg()[0]}
    known = {way: [one.request_us for one in values if one.request_us is not None] for way, values in took.items()}
    row["request_us"] = {way: statistics.median(values) for way, values in known.items() if values}
    for way in ways:
        if way != reference:
            ratios = [value / base - 1 for base, value in zip(seconds[reference], seconds[way], strict=True)]
            row.setdefault("error", {})[way] = medians[way] / medians[reference] - 1
            row.setdefault("error_of_pairs_interval", {})[way] = interval(ratios)
    # What it varies by itself: no model can be nearer than that.
    spread = interval([value / medians[reference] - 1 for value in seconds[reference]])
    row[f"{reference}_interval"] = spread
    errors = ", ".join(f"{way} {error:+.1%}" for way, error in row["error"].items())
    own = f"{medians[reference]:.3f} s ({spread[0]:+.1%} to {spread[1]:+.1%})"
    note(f"{name}: {reference} {own}; {errors}; requests {row['request_us']}")
    return row


def rows_of(
    make_ways: Callable[[], Iterator[tuple[Ways, dict[str, Any]]]],
    to_run: dict[str, tuple[str, str]],
    reps: int,
    only: list[str] | None,
) -> list[dict[str, Any]]:
    """Compare each program in ways that are made for it."""
    rows = []
    for name, (setup, command) in to_run.items():
        if not only or name in only:
            with contextmanager(make_ways)() as (ways, beside):
                rows.append({**compare(name, setup, command, ways, reps), **beside})
    return rows


def main() -> None:
    """Sweep, fit, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default=".", help="where the file is made: on the disk to be measured")
    parser.add_argument("--reps", type=int, default=10, help="pairs of each program (10)")
    parser.add_argument("--only", action="append", help="only this program")
    arguments = parser.parse_args()
    # By default SIGTERM ends Python at once, and devices and processes would be left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(dir=Path(arguments.directory).resolve()) as folder:
        target = Path(folder) / "disk"
        # Bytes and not holes, which a file system would answer by itself.
        with target.open("wb") as file:
            for _ in range(MEBIBYTES):
                file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())
        device = run("losetup", "--find", "--show", "--direct-io=on", target).strip()
        try:
            set_queue(device)
            directory = Path(folder) / "mount"
            directory.mkdir()
            fitted = RESULTS / "reality-profile.toml"
            with network():
                with processors_awake():
                    lead = remote_lead(Path(folder))

                def on_all() -> Iterator[tuple[Ways, dict[str, Any]]]:
                    with processors_awake():
                        measured = sweep(partial(measure, device))
                    fitted.write_text(profile(measured, MEBIBYTES))
                    remote = Remote(str(fitted), lead, Path(folder))
                    try:
                        yield (
                            {
                                "disk": partial(awake, partial(on_disk, device, directory)),
                                "asleep": partial(on_disk, device, directory),
                                "model": partial(on_model, fitted, directory),
                                "remote": partial(awake, partial(on_disk, remote.device, directory)),
                                "guest": partial(in_guest, fitted, directory),
                            },
                            {"sweep": measured},
                        )
                    finally:
                        remote.end()

                def on_slow() -> Iterator[tuple[Ways, dict[str, Any]]]:
                    remote = Remote(SLOW_DEVICE, lead, Path(folder))
                    try:
                        yield (
                            {
                                "model": partial(on_model, SLOW_DEVICE, directory),
                                "remote": partial(awake, partial(on_disk, remote.device, directory)),
                            },
                            {},
                        )
                    finally:
                        remote.end()

                rows = rows_of(on_all, programs(directory), arguments.reps, arguments.only)
                slow_reps = min(arguments.reps, SLOW_REPS_MAX)
                slow_rows = rows_of(on_slow, programs(directory, SLOW_PART), slow_reps, arguments.only)
        finally:
            run("losetup", "--detach", device)
    result = {"schema": SCHEMA, "repetitions": arguments.reps}
    slow = {"device": SLOW_DEVICE, "part": SLOW_PART, "rows": slow_rows}
    keep("reality", {**result, "remote_lead": lead, "rows": rows, "slow_device": slow})


if __name__ == "__main__":
    main()
