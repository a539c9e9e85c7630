"""Guests under hard loads for long, on each clock, as an ordinary user: does anything hang, get lost or warn?

Each load is a program of a bounded size that is run again and again, each time in a guest with the next seed, until its
time on this host has passed:

* fio: random reads and writes of several sizes through libaio, verified, beside a writer that waits for each write.
* build: a build of many small C files by make -j4, and a shell that begins hundreds of programs.
* sqlite: transactions of one row each, and a check of the database.
* fsync: four writers, each of which makes every block durable.
* stress: stress-ng's stressors of clocks, timers and signals.
* disturbed: random reads and writes, verified, with random pauses around every entry of the guest's clock and in every
  call of the model.

A run fails if it hangs, ends with another status than 0, leaves a file system with faults, or its guest's kernel logged
a warning; on the clocks that are not the host's, any other warning of the result's counts, too. What a hang is does not
depend on how fast this host is or on what else it does: the guest's clock stands still for minutes of the run's own CPU
time, or while nothing of the run wants to run; or it goes on far beyond what the load takes in the guest's time (which
is how a lost wakeup ends: an idle guest's clock runs ahead). A wakeup that was lost and found again by the guest's next
tick shows as lateness, which is reported.
"""

import argparse
import json
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from common.command import RESULTS, ROOT, executable, keep, note

SCHEMA = "chronodisk.experiment.guest-soak/2"
NAME = "guest-soak"
CLOCKS: dict[str, list[str]] = {
    "guest": ["--clock", "guest"],
    "exact": ["--clock", "exact"],
    "exact-measured": ["--clock", "exact", "--cpu", "measured"],
    "real": ["--clock", "real"],
}
#: Runs of a soak under root are this user's.
NOBODY = "nobody"
LATENCIES = ["p50", "p99", "max"]
#: What the result's warnings of the guest's kernel have in them.
KERNEL_WARNING = "the guest's kernel logged"
#: The page that a run shares with its guest. In it are the clock when it last stopped, and what moves it between its
#: stops: a program's CPU time where that counts; else reads of the time stamp counter, of so many nanoseconds each, and
#: ticks.
PAGE_SOURCE = ROOT / "crates/chronodisk-guest/shim/page.h"
COMPUTING_MEASURED = 1
COUNTER_READ_NS = 20
SPIN_NS = 10_000_000
#: How often a run's clock is looked at, and how much of the time between two looks counts: no more than that can have
#: passed unless this process was stopped, too.
LOOK_SECONDS = 2.0
LOOK_SECONDS_MAX = 10.0

FIO = """
fio --name=mix --directory=/mnt --size=32m --rw=randrw --bsrange=4k-64k --ioengine=libaio --iodepth=16 --direct=1 \\
    --number_ios={half} --verify=crc32c --verify_fatal=1 --randseed=$SEED \\
    --name=sync --directory=/mnt --size=8m --rw=randwrite --bs=4k --ioengine=psync --fsync=4 --number_ios={half} \\
    --randseed=$SEED --output=/dev/null
"""
BUILD = """
cp -r {folder}/tree /mnt/tree
make -s -j4 -C /mnt/tree
i=0
while [ $i -lt 300 ]; do i=$((i+1)); echo $i | cat >> /mnt/list & [ $((i % 8)) -ne 0 ] || wait; done
wait
[ $(wc -l < /mnt/list) -eq 300 ]
"""
SQLITE = """
sqlite3 /mnt/base.db < {folder}/rows.sql
[ "$(sqlite3 /mnt/base.db 'PRAGMA integrity_check; SELECT count(*) FROM t;')" = "$(printf 'ok\\n300')" ]
"""
FSYNC = """
fio --name=storm --directory=/mnt --size=4m --numjobs=4 --rw=write --bs=4k --ioengine=sync --fsync=1 --end_fsync=1 \\
    --number_ios=400 --output=/dev/null
"""
#: Requests of 16 at a time, which is many for what they cost this host.
DISTURBED = """
fio --name=mix --directory=/mnt --size=64m --rw=randrw --bs=4k --ioengine=libaio --iodepth=16 \\
    --iodepth_batch_submit=8 --iodepth_batch_complete_min=1 --direct=1 --number_ios={whole} --verify=crc32c \\
    --verify_fatal=1 --randseed=$SEED --output=/dev/null
"""
#: A signal of an interval timer that counts CPU time comes with a tick of the guest's: 10 ms of calls that take less
#: than a microsecond each, but many times that of the host.
#: Where computing is free a tick comes after 65,536 calls, which the host needs two seconds of CPU time for.
#: Signals wait in a queue that a guest of this size bounds to 1,970: while sigq fills it another stressor can't make a
#: timer, and fails, so those of queued signals come afterwards.
STRESS = """
stress-ng --quiet --temp-path /mnt --clock 1 --clock-ops 200 --timer 1 --timer-ops 2000 --timerfd 1 \\
    --timerfd-ops 2000 --itimer 1 --itimer-ops 10 --signal 1 --signal-ops 5000 --sigsuspend 1 \\
    --sigsuspend-ops 2000 --nanosleep 1 --nanosleep-ops 20 --timeout 20
stress-ng --quiet --temp-path /mnt --sigq 1 --sigq-ops 5000 --sigfd 1 --sigfd-ops 2000 --timeout 20
"""
#: What each needs on this host.
NEEDS = {
    "fio": ["fio"],
    "build": ["make", "cc"],
    "sqlite": ["sqlite3"],
    "fsync": ["fio"],
    "stress": ["stress-ng"],
    "disturbed": ["fio"],
}
DISTURBANCE = ["--debug", "clock-disturbance=100us", "--debug", "model-delay=0us..300us"]


class Stopwatch:
    """Time on this host, without what passes while everything here is stopped."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._looked = time.monotonic()

    def look(self) -> None:
        """Count the time since the last look."""
        now = time.monotonic()
        self.seconds += min(now - self._looked, LOOK_SECONDS_MAX)
        self._looked = now


@dataclass
class Soak:
    """What one load did on one clock."""

    clock: str
    load: str
    runs: int = 0
    requests: int = 0
    jobs: int = 1
    host_seconds: float = 0.0
    guest_seconds: float = 0.0
    ended: bool = False
    hangs: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    lateness_us: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LATENCIES, 0.0))

    def add(self, result: dict[str, Any]) -> None:
        """Take note of a run that ended well."""
        [rep] = result["reps"]
        self.requests += rep["summary"]["requests"]
        self.guest_seconds = round(self.guest_seconds + rep["run_time_ns"] / 1e9, 3)
        told = result["warnings"]
        # That this host is too slow for a clock of its own is no fault of the guest's.
        self.warnings += [text for text in told if KERNEL_WARNING in text] if self.clock == "real" else told
        late = rep["summary"]["lateness_us"]
        self.lateness_us = {name: max(self.lateness_us[name], late[name]) for name in LATENCIES}

    def is_fine(self) -> bool:
        """Whether nothing was found."""
        return not (self.hangs or self.failures or self.warnings)


def user() -> tuple[list[str], str]:
    """Give the words that make a command an ordinary user's, and that user's name."""
    if os.geteuid() != 0:
        return [], pwd.getpwuid(os.geteuid()).pw_name
    return ["setpriv", f"--reuid={NOBODY}", "--regid=nogroup", "--clear-groups"], NOBODY


def write_inputs(folder: Path) -> None:
    """Make the sources that are built and the rows that are inserted."""
    tree = folder / "tree"
    tree.mkdir()
    units = range(40)
    for unit in units:
        lines = [f"int f{unit}_{index}(int x) {{ return x * {index} + {unit}; }}" for index in range(30)]
        (tree / f"f{unit}.c").write_text("\n".join(lines) + "\n")
    main = "".join(f"int f{unit}_1(int);" for unit in units)
    calls = " + ".join(f"f{unit}_1(1)" for unit in units)
    (tree / "main.c").write_text(f"{main}\nint main(void) {{ return ({calls}) == 0; }}\n")
    objects = " ".join(f"f{unit}.o" for unit in units)
    rules = "%.o: %.c\n\tcc -O1 -c -o $@ $<\n"
    (tree / "Makefile").write_text(f"all: main.o {objects}\n\tcc -o main main.o {objects}\n\t./main\n{rules}")
    rows = "\n".join(f"INSERT INTO t VALUES ({row}, hex(zeroblob(200)));" for row in range(300))
    (folder / "rows.sql").write_text(f"CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);\n{rows}\n")


def script(folder: Path, load: str, requests: int) -> str:
    """Give the shell's text of a load."""
    texts = {"fio": FIO, "disturbed": DISTURBED, "build": BUILD, "sqlite": SQLITE, "fsync": FSYNC, "stress": STRESS}
    return "set -e" + texts[load].format(folder=folder, half=requests // 2, whole=requests)


def command(folder: Path, home: Path, clock: str, kernel: str, load: str, requests: int, seed: int) -> list[str]:
    """Give the call of one run, whose state is in `home`."""
    call = [*user()[0], "env", f"XDG_STATE_HOME={home}", f"SEED={seed}", str(executable()), "run", "--json"]
    call += ["--device", "constant-1ms", "--capacity", "1GiB", "--check", "--seed", str(seed), *CLOCKS[clock]]
    call += ["--kernel", kernel] if clock.startswith("exact") else []
    call += ["--output", f"{home}/result", *(DISTURBANCE if load == "disturbed" else [])]
    return [*call, "--", "sh", "-c", script(folder, load, requests)]


class Page:
    """Where the numbers of the page are, and how it begins: it has its size in it."""

    def __init__(self) -> None:
        source = PAGE_SOURCE.read_text()
        offsets = re.findall(r"offsetof\(struct chronodisk_page, (\w+)\) == (\d+)", source)
        self._offsets = {name: int(offset) for name, offset in offsets}
        magic = re.search(r"#define PAGE_MAGIC (0x[0-9a-f]+)", source)
        if not magic:
            raise SystemExit(f"{PAGE_SOURCE}: no PAGE_MAGIC")
        self.magic = int(magic[1], 16)

    def word(self, page: bytes, name: str) -> int:
        """Read a number."""
        return int.from_bytes(page[self._offsets[name] :][:8], "little")


PAGE = Page()


def guest_clock_ns(command: int) -> int | None:
    """Read what moves on with the clock of the guest that this process runs, and no slower; nothing before it has one,
    and once it has ended."""
    try:
        for entry in Path(f"/proc/{command}/fd").iterdir():
            if "chronodisk-clock" not in str(entry.readlink()) or "chronodisk-clock.so" in str(entry.readlink()):
                continue
            page = entry.read_bytes()
            if PAGE.word(page, "magic") not in (0, PAGE.magic):
                raise SystemExit(f"the page that is shared with a guest has another layout than {PAGE_SOURCE}")
            clock_ns = PAGE.word(page, "virtual_now")
            if PAGE.word(page, "computing") == COMPUTING_MEASURED:
                return clock_ns + PAGE.word(page, "user_cpu_nanos")
            reads, spins = PAGE.word(page, "tsc_reads"), PAGE.word(page, "spins")
            return clock_ns + reads * COUNTER_READ_NS + spins * SPIN_NS
    except OSError:
        pass
    return None


@dataclass
class State:
    """What a process does."""

    text: str
    cpu_seconds: float = 0.0
    wants_to_run: bool = False


def state_of(process: int) -> State | None:
    """Tell what a process does: its state, seconds of CPU time with those of its ended children, what it waits for."""
    try:
        name, rest = Path(f"/proc/{process}/stat").read_text().split("(", 1)[1].rsplit(") ", 1)
        waits = Path(f"/proc/{process}/wchan").read_text()
    except OSError:
        return None
    fields = rest.split()
    cpu_seconds = sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    # One that is stopped may be let go on.
    return State(f"{process} {name} {fields[0]} {cpu_seconds:.0f} s {waits}", cpu_seconds, fields[0] in "RDT")


def hang_of(process: subprocess.Popen[str], home: Path, watch: Stopwatch, chosen: argparse.Namespace) -> str | None:
    """Wait for the end of a run. If it hangs, say how it was found and end it."""
    clock_ns, quiet_since = 0, watch.seconds
    cpu_seconds_before: float | None = None
    while True:
        try:
            process.wait(LOOK_SECONDS)
            return None
        except subprocess.TimeoutExpired:
            now_ns = guest_clock_ns(process.pid) or clock_ns
        finally:
            watch.look()
        goes_on = clock_ns < now_ns < chosen.guest_seconds * 1e9
        clock_ns = now_ns
        if goes_on:
            cpu_seconds_before, quiet_since = None, watch.seconds
            continue
        states = [state for process in processes_of(home) if (state := state_of(process))]
        cpu_seconds = sum(state.cpu_seconds for state in states)
        if cpu_seconds_before is None:
            cpu_seconds_before = cpu_seconds
        if any(state.wants_to_run for state in states):
            quiet_since = watch.seconds
        computed, quiet = cpu_seconds - cpu_seconds_before, watch.seconds - quiet_since
        if computed < chosen.hang_cpu_seconds and quiet < chosen.hang_seconds and clock_ns < chosen.guest_seconds * 1e9:
            continue
        found = (
            f"the guest's clock at {clock_ns / 1e9:.6f} s, for {computed:.0f} s of CPU time, quiet for {quiet:.0f} s; "
        )
        # What it has started ends with it.
        process.kill()
        process.wait()
        return found + "; ".join(state.text for state in states)


def soak(found: Soak, folder: Path, kernel: str, chosen: argparse.Namespace, after_run: Callable[[], None]) -> None:
    """Run a load until its time has passed; the disturbed one until it has made its requests, too."""
    clock, load = found.clock, found.load
    home = folder / f"{clock}-{load}"
    home.mkdir()
    home.chmod(0o777)
    watch = Stopwatch()
    wanted = chosen.requests if load == "disturbed" else 0
    while found.runs == 0 or watch.seconds < chosen.seconds or found.requests < wanted:
        shutil.rmtree(home / "result", ignore_errors=True)
        found.runs += 1
        call = command(folder, home, clock, kernel, load, chosen.requests_each, found.runs)
        with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as words:
            with subprocess.Popen(
                call, stdin=subprocess.DEVNULL, stdout=said, stderr=words, text=True, cwd="/"
            ) as process:
                hang = hang_of(process, home, watch, chosen)
            for stream in (said, words):
                stream.seek(0)
            if hang is not None:
                found.hangs.append(f"run {found.runs}: {hang}")
                break
            if process.returncode == 0:
                found.add(json.load(said))
            else:
                found.failures.append(f"run {found.runs}: status {process.returncode}: {words.read()[-2000:]}")
        found.host_seconds = round(watch.seconds, 1)
        after_run()
        if len(found.failures) >= 3:
            break
    found.failures += [f"left behind: {state}" for state in left_behind(home)]
    found.host_seconds = round(watch.seconds, 1)
    found.ended = True
    shutil.rmtree(home, ignore_errors=True)
    after_run()


def kernel_of_exact_clock(folder: Path) -> str:
    """Give a copy of the kernel that an ordinary user can read; nothing if nobody has built it."""
    done = subprocess.run([str(executable()), "kernel", "path"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return ""
    return str(shutil.copy2(done.stdout.strip(), folder / "linux"))


def left_behind(home: Path) -> list[str]:
    """Look for processes of a run that outlive it; one that was killed has a while to end what it began."""
    for _ in range(100):
        left = processes_of(home)
        if not left:
            break
        time.sleep(0.1)
    return [state.text for process in left if (state := state_of(process))]


def processes_of(home: Path) -> list[int]:
    """List the processes with the folder's name in their environments, and those that they began."""
    parents: dict[int, int] = {}
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(process.name)] = int((process / "stat").read_text().rsplit(") ", 1)[1].split()[1])
            if f"XDG_STATE_HOME={home}\0".encode() in (process / "environ").read_bytes():
                found.add(int(process.name))
        except OSError:
            # It ended meanwhile, or is another user's.
            continue
    while begun := {process for process, parent in parents.items() if parent in found} - found:
        found |= begun
    return sorted(found)


def summary(rows: list[dict[str, Any]]) -> str:
    """Format what was found."""
    text = f"{'clock':<16}{'load':<11}{'runs':>6}{'requests':>10}{'hangs':>7}{'failed':>8}{'warned':>8}"
    text += f"{'late p50 us':>13}{'p99':>11}{'max':>11}\n"
    for row in rows:
        late = row["lateness_us"]
        text += f"{row['clock']:<16}{row['load']:<11}{row['runs']:>6}{row['requests']:>10}{len(row['hangs']):>7}"
        text += f"{len(row['failures']):>8}{len(row['warnings']):>8}"
        text += f"{late['p50']:>13.1f}{late['p99']:>11.1f}{late['max']:>11.1f}\n"
    return text


def main() -> None:
    """Soak all loads on all clocks, or what is chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800, help="of this host, for each load on each clock (1800)")
    parser.add_argument("--requests", type=int, default=1_000_000, help="that disturbed makes at least (1000000)")
    parser.add_argument("--requests-each", type=int, default=20_000, help="of one run of fio (20000)")
    parser.add_argument(
        "--hang-cpu-seconds", type=float, default=300, help="of a run while its guest's clock stands still (300)"
    )
    parser.add_argument(
        "--hang-seconds", type=float, default=300, help="of this host in which nothing of a run wants to run (300)"
    )
    parser.add_argument(
        "--guest-seconds", type=float, default=36_000, help="a run that takes longer in its guest hangs (36000)"
    )
    parser.add_argument("--name", default=NAME, help=f"of the result ({NAME})")
    parser.add_argument("--merge", action="store_true", help="keep what the last result has of other loads and clocks")
    parser.add_argument("--jobs", type=int, default=1, help="loads at a time (1)")
    parser.add_argument("--clocks", nargs="+", choices=CLOCKS, default=list(CLOCKS), metavar="CLOCK")
    parser.add_argument("--loads", nargs="+", choices=NEEDS, default=list(NEEDS), metavar="LOAD")
    chosen = parser.parse_args()
    rows: list[dict[str, Any]] = []
    skipped: list[str] = []
    lock = Lock()
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="chronodisk-soak-") as directory:
        folder = Path(directory)
        folder.chmod(0o755)
        write_inputs(folder)
        kernel = kernel_of_exact_clock(folder)
        soaks = []
        for clock in chosen.clocks:
            if clock.startswith("exact") and not kernel:
                skipped.append(f"{clock}: nobody has built its kernel here (chronodisk kernel build)")
                continue
            for load in chosen.loads:
                if missing := [program for program in NEEDS[load] if not shutil.which(program)]:
                    skipped.append(f"{clock}, {load}: no {', '.join(missing)} on this host")
                    continue
                soaks.append(Soak(clock, load, jobs=chosen.jobs))

        chosen_pairs = {(found.clock, found.load) for found in soaks}
        last = RESULTS / f"{chosen.name}.json"
        kept = json.loads(last.read_text())["soaks"] if chosen.merge and last.exists() else []
        kept = [row for row in kept if (row["clock"], row["load"]) not in chosen_pairs]

        def place(row: dict[str, Any]) -> tuple[int, int]:
            return list(CLOCKS).index(row["clock"]), list(NEEDS).index(row["load"])

        def save() -> None:
            with lock:
                found_rows = [{**vars(found), "fine": found.is_fine()} for found in soaks if found.runs]
                rows[:] = sorted(kept + found_rows, key=place)
                # After every run, so that what ends this leaves what was found.
                keep(
                    chosen.name,
                    {"schema": SCHEMA, "user": user()[1], "soaks": rows, "skipped": skipped},
                )

        def soaked(found: Soak) -> None:
            note(f"{found.clock}: {found.load}")
            soak(found, folder, kernel, chosen, save)

        with ThreadPoolExecutor(chosen.jobs) as pool:
            list(pool.map(soaked, soaks))
    print(summary(rows), end="")
    for row in rows:
        for trouble in [*row["hangs"], *row["failures"], *row["warnings"]]:
            print(f"{row['clock']}, {row['load']}: {trouble}")
    for reason in skipped:
        print(f"SKIPPED {reason}")
    if not all(row["fine"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
