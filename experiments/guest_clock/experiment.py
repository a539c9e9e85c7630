"""What programs in a guest see of its clock: latencies, speed, drift, and whether runs repeat.

* latency: fio's completion latencies on devices of constant time, less those on a device that takes no time, on each
  clock, with the host's processors idle and busy, and with a model that thinks for a second about each request.
* speed: host time for each request of a 10 ms disk.
* drift: the kernel's clock against the time stamp counter, which shows the guest's time itself, over many stops.
* repeat: request logs of PostMark, SQLite and an untar on the exact clock with free computing, from different folders.
* python: the run time of PostMark on a model in Python that thinks for 100 ms a request, against its twin in Rust.
"""

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from common.command import RESULTS, ROOT, CommandFailed, executable, keep, note

SCHEMA = "chronodisk.experiment.guest-clock/1"
NAME = "guest-clock"
PARTS = ["latency-idle", "latency-busy", "paused", "speed", "drift", "repeat", "python"]
EXACT, EXACT_MEASURED, GUEST = ("exact", "zero"), ("exact", "measured"), ("guest", "measured")
CLOCKS = [EXACT, EXACT_MEASURED, GUEST]
#: Service times of the devices, in nanoseconds; 0 is the device that takes no time.
SERVICE_NS = [10_000, 100_000, 1_000_000, 10_000_000]
ENGINES = [("psync", 1), ("libaio", 1), ("libaio", 16)]
#: Requests of a latency, and of one whose model thinks for a second.
REQUESTS, REQUESTS_PAUSED = 4000, 60
#: Columns of a log that tell of this host and not of the guest.
HOSTS_COLUMNS = ["model_time_ns", "store_time_ns", "stolen"]
START = "1700000000"


def profile(folder: Path, service_ns: int) -> str:
    """Return a device of constant time."""
    if service_ns == 0:
        return "null"
    path = folder / f"constant-{service_ns}.toml"
    path.write_text(
        f'name = "constant"\nkind = "constant"\ndescription = "Every request takes {service_ns} ns; all overlap"\n'
        f'source = "a definition"\nvalidation = "by-definition"\ncapacity = "8 GiB"\ntime = "{service_ns} ns"\n'
    )
    return str(path)


def guest(device: str, clock: tuple[str, str], *options: str) -> tuple[dict[str, Any], float]:
    """Run a guest; gives the result and the host's time in seconds."""
    call = [str(executable()), "run", "--json", "--device", device, "--clock", clock[0], "--cpu", clock[1]]
    begun = time.monotonic()
    done = subprocess.run([*call, *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    took = time.monotonic() - begun
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join([*call, *options])} ended with status {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout[done.stdout.index('{\n  "schema"') :]), took


def fio(folder: Path, engine: str, depth: int, requests: int, kind: str = "randread") -> tuple[list[str], Path]:
    """Return a call of fio, and where it writes what it saw."""
    report = folder / "fio.json"
    call = ["fio", "--name=job", "--filename=/dev/vda", "--direct=1", f"--ioengine={engine}", f"--iodepth={depth}"]
    call += [f"--rw={kind}", "--bs=4k", "--size=1g", f"--number_ios={requests}", "--randseed=42", "--thread"]
    # Its own clock is the time stamp counter, whose every read is emulated.
    call += ["--clocksource=clock_gettime", "--output-format=json", f"--output={report}"]
    return call, report


def latencies(
    folder: Path, clock: tuple[str, str], service_ns: int, engine: str, depth: int, requests: int, *options: str
) -> dict[str, float]:
    """Completion latencies in nanoseconds as fio in the guest saw them, by percentile."""
    call, report = fio(folder, engine, depth, requests)
    report.unlink(missing_ok=True)
    options = ("--fs", "none", "--host-writes", *options)
    guest(profile(folder, service_ns), clock, *options, "--", *call)
    seen = json.loads(report.read_text())["jobs"][0]["read"]["clat_ns"]["percentile"]
    return {"p50": seen["50.000000"], "p99": seen["99.000000"]}


def spin() -> None:
    """Compute until somebody ends this process."""
    while True:
        pass


@contextlib.contextmanager
def busy_processors(busy: bool) -> Iterator[None]:
    """Keep all processors of the host busy meanwhile."""
    workers = [multiprocessing.Process(target=spin, daemon=True) for _ in range(os.cpu_count() or 1)] if busy else []
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def bounds_us(clock: tuple[str, str], service_us: float) -> tuple[float, float]:
    """Give what the error may be at p50 and at p99."""
    if clock == EXACT:
        return max(0.02 * service_us, 1.0), max(0.02 * service_us, 1.0)
    return max(0.05 * service_us, 3.0), 50.0


def latency(folder: Path, busy: bool) -> list[dict[str, Any]]:
    """Measure all engines and devices, on the exact clock with free computing and on the guest's."""
    rows = []
    with busy_processors(busy):
        for clock in (EXACT, GUEST):
            for engine, depth in ENGINES:
                note(f"latency: {' '.join(clock)}, {engine} at depth {depth}{', busy host' if busy else ''}")
                null = latencies(folder, clock, 0, engine, depth, REQUESTS)
                for service_ns in SERVICE_NS:
                    seen = latencies(folder, clock, service_ns, engine, depth, REQUESTS)
                    rows.append(latency_row(clock, engine, depth, busy, service_ns, seen, null))
    return rows


def latency_row(
    clock: tuple[str, str],
    engine: str,
    depth: int,
    busy: bool,
    service_ns: int,
    seen: dict[str, float],
    null: dict[str, float],
) -> dict[str, Any]:
    """Compare what was seen, less what the device without time took, with the device's time."""
    error_us = {name: (seen[name] - null[name] - service_ns) / 1e3 for name in ("p50", "p99")}
    p50, p99 = bounds_us(clock, service_ns / 1e3)
    return {
        "clock": clock[0],
        "cpu": clock[1],
        "engine": engine,
        "depth": depth,
        "host": "busy" if busy else "idle",
        "service_us": service_ns / 1e3,
        "null_us": {name: value / 1e3 for name, value in null.items()},
        "seen_us": {name: value / 1e3 for name, value in seen.items()},
        "error_us": error_us,
        "within": abs(error_us["p50"]) <= p50 and abs(error_us["p99"]) <= p99,
        "load": round(os.getloadavg()[0], 1),
    }


def paused(folder: Path) -> list[dict[str, Any]]:
    """Compare the median latency without pauses with that of a model that thinks for a second about each request."""
    rows = []
    for clock in (EXACT, GUEST):
        note(f"latency: {' '.join(clock)}, a second of thinking in each request")
        plain = latencies(folder, clock, 1_000_000, "psync", 1, REQUESTS_PAUSED)
        stopped = latencies(folder, clock, 1_000_000, "psync", 1, REQUESTS_PAUSED, "--debug", "model-delay=1s")
        moved_us = (stopped["p50"] - plain["p50"]) / 1e3
        rows.append({"clock": clock[0], "cpu": clock[1], "p50_moved_us": moved_us, "within": abs(moved_us) < 10})
    return rows


def speed(folder: Path) -> list[dict[str, Any]]:
    """Measure the host's time for 100,000 random reads of a 10 ms disk."""
    rows = []
    for clock in CLOCKS:
        note(f"speed: {' '.join(clock)}")
        call, _ = fio(folder, "psync", 1, 100_000)
        result, took = guest(profile(folder, 10_000_000), clock, "--fs", "none", "--host-writes", "--", *call)
        requests = result["reps"][0]["summary"]["requests"]
        rows.append(
            {
                "clock": clock[0],
                "cpu": clock[1],
                "requests": requests,
                "guest_s": result["reps"][0]["run_time_ns"] / 1e9,
                "host_s": took,
                "host_us_per_request": 1e6 * took / requests,
            }
        )
    return rows


DRIFT = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

static unsigned long long kernel_nanos(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void print_clocks(void)
{
	unsigned long long kernel = kernel_nanos(), counter = __rdtsc();
	printf("CLOCKS %llu %llu\\n", kernel, counter);
}

int main(int count, char **words)
{
	long requests = count == 3 ? atol(words[2]) : 0;
	int device = count == 3 ? open(words[1], O_RDONLY | O_DIRECT) : -1;
	void *bytes = aligned_alloc(4096, 4096);
	print_clocks();
	for (long i = 0; i < requests; i++) {
		if (i == requests / 2)
			print_clocks();
		if (pread(device, bytes, 4096, (i * 7919 % 100000) * 4096) != 4096)
			return 1;
	}
	print_clocks();
	return 0;
}
"""


def drift(folder: Path, requests: int) -> list[dict[str, Any]]:
    """Compare the guest kernel's clock with the time stamp counter over many requests, in each of which time stops.

    The counter's rate is not known to the last digit. So the second half of the run is compared with the first.
    """
    source = folder / "drift.c"
    source.write_text("#define _GNU_SOURCE" + DRIFT)
    program = folder / "drift"
    subprocess.run(["cc", "-O2", "-o", str(program), str(source)], check=True)
    rows = []
    for clock in (EXACT_MEASURED, GUEST):
        note(f"drift: {' '.join(clock)}, {requests} requests")
        call = [str(executable()), "run", "--device", profile(folder, 100_000), "--fs", "none"]
        call += ["--clock", clock[0], "--cpu", clock[1], "--output", str(folder / f"drift-{clock[0]}")]
        call += ["--", str(program), "/dev/vda", str(requests)]
        done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
        lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("CLOCKS ")]
        begin, middle, end = ([int(word) for word in line] for line in lines)
        rates = [(later[1] - sooner[1]) / (later[0] - sooner[0]) for sooner, later in ((begin, middle), (middle, end))]
        rows.append(
            {
                "clock": clock[0],
                "cpu": clock[1],
                "stops": requests,
                "guest_s": (end[0] - begin[0]) / 1e9,
                "drift_ppm": 1e6 * (rates[1] / rates[0] - 1),
            }
        )
    return rows


def repeated(folder: Path, reps: int) -> list[dict[str, Any]]:
    """Run each program several times, from folders with different names and at different times, and compare logs."""
    tree = folder / "tree.tar"
    subprocess.run(["tar", "-C", "/usr/include", "-cf", str(tree), "."], check=True)
    numbers = "".join(f"insert into t(b) values (hex(zeroblob({n % 600})));\n" for n in range(3000))
    statements = folder / "statements.sql"
    statements.write_text(f"create table t(a integer primary key, b text);\n{numbers}select count(*) from t;\n")
    postmark = folder / "postmark.conf"
    postmark.write_text("set location /mnt\nset number 2000\nset transactions 10000\nrun\nquit\n")
    programs = {
        "postmark": f"postmark {postmark}",
        "sqlite": f"sqlite3 /mnt/base.db < {statements}",
        "untar": f"tar -C /mnt -xf {tree}; sync",
    }
    rows = []
    for name, script in programs.items():
        if shutil.which(script.split()[0]) is None:
            note(f"repeat: {name} is left out: it is not on this host")
            continue
        logs, requests = [], 0
        for rep in range(reps):
            note(f"repeat: {name}, {rep + 1} of {reps}")
            with tempfile.TemporaryDirectory(prefix="folder-" * (rep % 3 + 1)) as directory:
                output = Path(directory) / "run"
                call = [str(executable()), "run", "--device", "cheetah-9lp", "--clock", "exact", "--cpu", "zero"]
                call += ["--start-time", START, "--output", str(output), "--", "sh", "-c", script]
                subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, check=True, cwd=directory)
                result = json.loads((output / "result.json").read_text())
                log = parquet.read_table(output / result["reps"][0]["log_file"]).drop_columns(HOSTS_COLUMNS)
                requests = log.num_rows
                columns = [column.to_numpy().tobytes() for column in log.columns if not dictionary(column)]
                logs.append(hashlib.sha256(b"".join(columns)).hexdigest())
        rows.append({"program": name, "runs": reps, "requests": requests, "different_logs": len(set(logs))})
    return rows


def dictionary(column: Any) -> bool:
    """Whether a column is of words, which are equal if the numbers beside them are."""
    return str(column.type).startswith(("dictionary", "string"))


THINKING = """
import time

from chronodisk.model import Request, serve
from one_platter import OnePlatter


class Thinking(OnePlatter):
    def end(self, request: Request, start: int) -> int:
        time.sleep(0.1)
        return super().end(request, start)


serve(Thinking)
"""


def python_model(folder: Path) -> list[dict[str, Any]]:
    """Run PostMark on a disk in Python that thinks for 100 ms about each request, and on its twin."""
    examples = ROOT / "python" / "examples"
    os.environ["PYTHONPATH"] = f"{ROOT / 'python'}:{examples}"
    thinking = folder / "thinking.py"
    thinking.write_text(THINKING)
    configuration = folder / "python-postmark.conf"
    configuration.write_text("set location /mnt\nset number 30\nset transactions 60\nrun\nquit\n")
    rows = []
    models = {
        "python, 100 ms a request": f"exec:python3 {thinking}",
        "python": f"exec:python3 {examples / 'one_platter.py'}",
        "rust": str(examples / "one-platter.toml"),
    }
    for name, device in models.items():
        note(f"python: {name}")
        script = f"postmark {configuration} > /dev/null; sync"
        # Or most files would be gone before they reach the device.
        options = ("--start-time", START, "--mount-options", "sync")
        result, took = guest(device, EXACT, *options, "--", "sh", "-c", script)
        rep = result["reps"][0]
        row = {"model": name, "requests": rep["summary"]["requests"], "guest_ns": rep["run_time_ns"], "host_s": took}
        rows.append(row)
    for row in rows:
        row["difference_percent"] = 100 * (row["guest_ns"] / rows[-1]["guest_ns"] - 1)
    return rows


def summary(result: dict[str, Any]) -> str:
    """Return the tables as text."""
    lines = []
    if rows := result.get("latency-idle", []) + result.get("latency-busy", []):
        lines.append("latency: error in µs at p50 and p99 (the worst of the devices), rows within their bounds")
        for key in dict.fromkeys((r["clock"], r["cpu"], r["engine"], r["depth"], r["host"]) for r in rows):
            of_key = [r for r in rows if (r["clock"], r["cpu"], r["engine"], r["depth"], r["host"]) == key]
            p50, p99 = (max((r["error_us"][name] for r in of_key), key=abs) for name in ("p50", "p99"))
            within = sum(r["within"] for r in of_key)
            lines.append(f"  {' '.join(map(str, key)):<36}{p50:>10.1f}{p99:>10.1f}{within:>6} of {len(of_key)}")
    for part in ("paused", "speed", "drift", "repeat", "python"):
        for row in result.get(part, []):
            lines.append(f"  {part}: " + ", ".join(f"{name} {value}" for name, value in row.items()))
    return "\n".join(lines)


def main() -> None:
    """Measure everything, or what is chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--reps", type=int, default=10, help="of each program that must repeat (10)")
    parser.add_argument("--stops", type=int, default=1_000_000, help="over which drift is measured (1000000)")
    chosen = parser.parse_args()
    before = RESULTS / f"{NAME}.json"
    # What is not measured now stays as it was.
    kept = json.loads(before.read_text()) if before.exists() else {}
    result: dict[str, Any] = {**kept, "schema": SCHEMA}
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        measure = {
            "latency-idle": lambda: latency(folder, busy=False),
            "latency-busy": lambda: latency(folder, busy=True),
            "paused": lambda: paused(folder),
            "speed": lambda: speed(folder),
            "drift": lambda: drift(folder, chosen.stops),
            "repeat": lambda: repeated(folder, chosen.reps),
            "python": lambda: python_model(folder),
        }
        for part in chosen.parts:
            result[part] = measure[part]()
    keep(NAME, result)
    print(summary(result))


if __name__ == "__main__":
    main()
