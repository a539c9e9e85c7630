"""Guests under hard loads for long, on each clock, as an ordinary user: does anything hang, get lost or warn?

Each load is a program of a bounded size that is run again and again, each time in a guest with the next seed, until its
time on this host has passed:

* fio: random reads and writes of several sizes through libaio, verified, beside a writer that waits for each write.
* build: a build of many small C files by make -j4, and a shell that begins hundreds of programs.
* sqlite: transactions of one row each, and a check of the database.
* fsync: four writers, each of which makes every block durable.
* stress: stress-ng's stressors of clocks, timers and signals.
* disturbed: the first, with random pauses around every entry of the guest's clock and in every call of the model.

A run fails if it does not end in time (a hang, which is also how a lost wakeup ends), ends with another status than 0,
leaves a file system with faults, or its guest's kernel logged a warning. A wakeup that was lost and found again by the
guest's next tick shows as lateness, which is reported.
"""

import argparse
import json
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.command import executable, keep, note

SCHEMA = "chronodisk.experiment.guest-soak/1"
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
#: A signal of an interval timer that counts CPU time comes with a tick of the guest's: 10 ms of calls that take less
#: than a microsecond each, but many times that of the host.
STRESS = """
stress-ng --quiet --temp-path /mnt --clock 1 --clock-ops 200 --timer 1 --timer-ops 2000 --timerfd 1 \\
    --timerfd-ops 2000 --itimer 1 --itimer-ops 50 --sigq 1 --sigq-ops 5000 --sigfd 1 --sigfd-ops 2000 \\
    --signal 1 --signal-ops 5000 --sigsuspend 1 --sigsuspend-ops 2000 --nanosleep 1 --nanosleep-ops 20 \\
    --timeout 20
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
DISTURBANCE = ["--clock-disturbance", "100us", "--model-delay", "0us..300us"]


@dataclass
class Soak:
    """What one load did on one clock."""

    clock: str
    load: str
    runs: int = 0
    requests: int = 0
    host_seconds: float = 0.0
    hangs: int = 0
    failures: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    lateness_us: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LATENCIES, 0.0))

    def add(self, result: dict[str, Any]) -> None:
        """Take note of a run that ended well."""
        [rep] = result["reps"]
        self.requests += rep["summary"]["requests"]
        self.warnings += result["warnings"]
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
    texts = {"fio": FIO, "disturbed": FIO, "build": BUILD, "sqlite": SQLITE, "fsync": FSYNC, "stress": STRESS}
    return "set -e" + texts[load].format(folder=folder, half=requests // 2)


def command(folder: Path, clock: str, kernel: str, load: str, requests: int, seed: int) -> list[str]:
    """Give the call of one run."""
    call = [*user()[0], "env", f"XDG_STATE_HOME={folder}/state", f"SEED={seed}", str(executable()), "run", "--json"]
    call += ["--device", "constant-1ms", "--capacity", "1GiB", "--check", "--seed", str(seed), *CLOCKS[clock]]
    call += ["--kernel", kernel] if clock.startswith("exact") else []
    call += ["--output", f"{folder}/state/result", *(DISTURBANCE if load == "disturbed" else [])]
    return [*call, "--", "sh", "-c", script(folder, load, requests)]


def soak(folder: Path, clock: str, kernel: str, load: str, chosen: argparse.Namespace) -> Soak:
    """Run a load until its time has passed; the disturbed one until it has made its requests, too."""
    found = Soak(clock, load)
    begun = time.monotonic()
    wanted = chosen.requests if load == "disturbed" else 0
    while found.runs == 0 or time.monotonic() - begun < chosen.seconds or found.requests < wanted:
        shutil.rmtree(folder / "state" / "result", ignore_errors=True)
        call = command(folder, clock, kernel, load, chosen.requests_each, found.runs + 1)
        found.runs += 1
        with subprocess.Popen(
            call, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
        ) as process:
            try:
                said, words = process.communicate(timeout=chosen.hang_seconds)
            except subprocess.TimeoutExpired:
                # What it has started ends with it.
                process.kill()
                process.communicate()
                found.hangs += 1
                break
        if process.returncode == 0:
            found.add(json.loads(said))
        else:
            found.failures.append(f"run {found.runs}: status {process.returncode}: {words[-2000:]}")
        if len(found.failures) >= 3:
            break
    found.host_seconds = round(time.monotonic() - begun, 1)
    return found


def kernel_of_exact_clock(folder: Path) -> str:
    """Give a copy of the kernel that an ordinary user can read; nothing if nobody has built it."""
    done = subprocess.run([str(executable()), "kernel", "path"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return ""
    return str(shutil.copy2(done.stdout.strip(), folder / "linux"))


def left_behind(folder: Path) -> list[str]:
    """Look for processes of a run that outlive it; one that was killed has a while to end what it began."""
    for _ in range(100):
        left = processes_of(folder)
        if not left:
            break
        time.sleep(0.1)
    return left


def processes_of(folder: Path) -> list[str]:
    """List the processes with the folder's name in their environments."""
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "environ").read_bytes() and int(process.name) != os.getpid():
                left.append((process / "comm").read_text().strip())
        except OSError:
            # It ended meanwhile, or is another user's.
            continue
    return left


def summary(rows: list[dict[str, Any]]) -> str:
    """Format what was found."""
    text = f"{'clock':<16}{'load':<11}{'runs':>6}{'requests':>10}{'hangs':>7}{'failed':>8}{'warned':>8}"
    text += f"{'late p50 us':>13}{'p99':>11}{'max':>11}\n"
    for row in rows:
        late = row["lateness_us"]
        text += f"{row['clock']:<16}{row['load']:<11}{row['runs']:>6}{row['requests']:>10}{row['hangs']:>7}"
        text += f"{len(row['failures']):>8}{len(row['warnings']):>8}"
        text += f"{late['p50']:>13.1f}{late['p99']:>11.1f}{late['max']:>11.1f}\n"
    return text


def main() -> None:
    """Soak all loads on all clocks, or what is chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800, help="of this host, for each load on each clock (1800)")
    parser.add_argument("--requests", type=int, default=1_000_000, help="that disturbed makes at least (1000000)")
    parser.add_argument("--requests-each", type=int, default=20_000, help="of one run of fio (20000)")
    parser.add_argument("--hang-seconds", type=float, default=900, help="after which a run is taken to hang (900)")
    parser.add_argument("--clocks", nargs="+", choices=CLOCKS, default=list(CLOCKS), metavar="CLOCK")
    parser.add_argument("--loads", nargs="+", choices=NEEDS, default=list(NEEDS), metavar="LOAD")
    chosen = parser.parse_args()
    rows: list[dict[str, Any]] = []
    skipped: list[str] = []
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="chronodisk-soak-") as directory:
        folder = Path(directory)
        folder.chmod(0o755)
        write_inputs(folder)
        (folder / "state").mkdir()
        (folder / "state").chmod(0o777)
        kernel = kernel_of_exact_clock(folder)
        for clock in chosen.clocks:
            if clock.startswith("exact") and not kernel:
                skipped.append(f"{clock}: nobody has built its kernel here (chronodisk kernel build)")
                continue
            for load in chosen.loads:
                if missing := [program for program in NEEDS[load] if not shutil.which(program)]:
                    skipped.append(f"{clock}, {load}: no {', '.join(missing)} on this host")
                    continue
                note(f"{clock}: {load}")
                found = soak(folder, clock, kernel, load, chosen)
                found.failures += [f"left behind: {name}" for name in left_behind(folder)]
                rows.append({**vars(found), "fine": found.is_fine()})
                # After every load, so that what ends this leaves what was found.
                keep(NAME, {"schema": SCHEMA, "user": user()[1], "soaks": rows, "skipped": skipped})
    print(summary(rows), end="")
    for row in rows:
        for trouble in [*row["failures"], *row["warnings"]]:
            print(f"{row['clock']}, {row['load']}: {trouble}")
    for reason in skipped:
        print(f"SKIPPED {reason}")
    if not all(row["fine"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
