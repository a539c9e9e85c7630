"""Runs commands in a guest on a disk of 1 TB, on a store that keeps all bytes or on one that squashes them."""

import json
import re
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from common.command import CommandFailed, executable, note

#: The disk of the paper's table I that it calls H2.
DEVICE = "hitachi-hds721010kla330"
LOADS = Path(__file__).with_name("loads.py")
#: File systems without a classifier: the guest makes and mounts them, and its kernel flags their contents.
MADE_BY_GUEST = {"jfs": "mkfs.jfs -q /dev/vda && mount -t jfs /dev/vda /mnt"}
#: The phase that does it, which is left out.
MAKING = "making"
#: Columns of a log that tell of this host and not of the guest.
HOSTS_COLUMNS = ["model_time_ns", "store_time_ns", "stolen"]


@dataclass(frozen=True)
class Run:
    """What one run took."""

    #: Time in the guest by phase; of the whole command, if it told of none.
    seconds: dict[str, float]
    #: As far as a tree of files says so.
    written_bytes: int | None
    host_seconds: float
    capacity_bytes: int
    store_bytes: int
    statistics: dict[str, float]
    #: Since the command began.
    samples: list[dict[str, Any]]
    #: The request log, as far as it does not tell of this host.
    log: Any


def run(clock: str, file_system: str, command: list[str], name: str, *options: str) -> Run:
    """Run a command in a guest; its time goes by `name` unless it prints phases of its own."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "run"
        if file_system in MADE_BY_GUEST:
            command = after_making(file_system, command, name)
            file_system = "none"
        call = [str(executable()), "run", "--json", "--device", DEVICE, "--clock", clock, "--fs", file_system]
        # Dates in inodes must not differ.
        call += ["--start-time", "1700000000", "--output", str(output), *options, "--", *command]
        done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CommandFailed(f"{' '.join(call)} ended with status {done.returncode}:\n{done.stderr}{done.stdout}")
        result = json.loads((output / "result.json").read_text())
        rep = result["reps"][0]
        log = parquet.read_table(output / rep["log_file"]).drop_columns(HOSTS_COLUMNS)
    begun = next(phase["start_ns"] for phase in rep["phases"] if phase["name"] == "command")
    phases = {match[1]: float(match[2]) for match in re.finditer(r"^PHASE (\S+) (\S+)$", done.stderr, re.M)}
    phases.pop(MAKING, None)
    written = re.search(r"^WRITTEN (\d+)$", done.stderr, re.M)
    return Run(
        phases or {name: rep["run_time_ns"] / 1e9},
        int(written[1]) if written else None,
        rep["host_time_ns"] / 1e9,
        result["device"]["capacity_bytes"],
        rep["store_bytes"],
        rep["model_statistics"],
        [sample | {"at_ns": sample["at_ns"] - begun} for sample in rep.get("samples", []) if sample["at_ns"] >= begun],
        log,
    )


def after_making(file_system: str, command: list[str], name: str) -> list[str]:
    """Return the command with a phase before it that makes the file system."""
    making = {MAKING: MADE_BY_GUEST[file_system]}
    if command[2:3] == ["phases"]:
        return phases(making | json.loads(command[3]))
    return phases(making | {name: shlex.join(command)})


def notified(file_system: str) -> tuple[list[str], list[str]]:
    """Return the options for a full store and for a squashed one, where the guest's kernel flags contents."""
    if file_system not in MADE_BY_GUEST:
        return [], []
    call = [str(executable()), "kernel", "path", "exact"]
    kernel = Path(subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip())
    # The same kernel and modules, which --notify-file-data has by itself.
    modules = [word for file in sorted(kernel.parent.glob("*.ko")) for word in ("--module", str(file))]
    return ["--kernel", str(kernel), *modules], ["--notify-file-data"]


def pair(
    clock: str, file_system: str, command: list[str], name: str, *options: str, bare: bool = False
) -> tuple[Run, Run]:
    """Run a command on a full store and on a squashed one, of a bare device or with the file system made."""
    of_full, of_squashed = notified(file_system)
    made = "none" if bare else file_system
    full = run(clock, made, command, name, *options, *of_full)
    squashed = run(clock, made, command, name, *options, "--squash", "--content", "text", *of_squashed)
    note(f"  {file_system}: {name}: {full.host_seconds:.0f} and {squashed.host_seconds:.0f} s of this host")
    return full, squashed


def load(name: str, amount: int, *options: str) -> list[str]:
    """Return the command for one of our loads, in a directory of its name."""
    return ["python3", str(LOADS), name, f"/mnt/{name}", str(amount), *options]


def raw_load(name: str, requests: int) -> list[str]:
    """Return the command for one of our loads on the bare device."""
    return ["python3", str(LOADS), name, "/dev/vda", str(requests)]


def phases(commands: dict[str, str]) -> list[str]:
    """Return the command that runs shell commands one after the other, each with empty caches and with its own time."""
    return ["python3", str(LOADS), "phases", json.dumps(commands)]


def clock() -> str:
    """Return the exact clock, where computing takes no time, or, where its kernel was not built, the guest's."""
    call = [str(executable()), "run", "--device", "null", "--clock", "exact", "--fs", "none", "--", "true"]
    built = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    if not built:
        note("the exact clock's kernel is not built (`chronodisk kernel build`): run times are the guest clock's")
    return "exact" if built else "guest"
