"""Stores of a server whose system calls fail, judged by a client that knows what was promised.

The command serves a device of 8 MiB over NBD under strace, which makes the calls for the store's files fail:
`fdatasync` and `fsync`, `pwrite64`, `fallocate`, `ftruncate`, `rename` and `pread64` with an error, or with SIGKILL in
place of the call. The number of the call is drawn. A client of libnbd writes, zeroes, discards, reads and flushes, up
to eight requests at a time, and notes what completed. Then the server ends, by SIGTERM, by SIGKILL or by the fault; the
same store is served without a fault, and every sector is compared with what docs/durability.md promises. In half of the
trials the device lived before. The full disk is a file system in memory of at most 3 MiB.

Nothing of Chronodisk is used but the command, so that an earlier build can be judged as well (`--before`). A row of the
result is a store on a device with or without a volatile cache, and a fault. It counts trials: those in which the fault
took effect, and of all trials those in which

- *lost*: promised bytes are not there, or a read after the end fails;
- *not opened*: the store that the server left behind can't be opened again;
- *wrong read*: a read before the end returned other bytes without an error;
- *hidden*: a flush, or an end with status 0, followed a failed synchronisation;
- *failed read*, *failed flush*: a read failed whose system calls did not; a full disk failed a flush of a store that
  sets space aside;
- *hang*: a request, the start or the end took over 20 s;
- *status*: 0 although bytes are lost, another one than 3 if the start fails, or any other one that is wrong.
"""

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common.command import ROOT, executable, keep, note
from store_faults.faults import FAULTS, STORES
from store_faults.loads import LOADS

SCHEMA = "chronodisk.experiment.store-faults/1"
NAME = "store-faults"
#: Devices without and with a volatile cache, neither with delays.
DEVICES = {False: "null", True: str(ROOT / "experiments" / "integrity_cost" / "cached.toml")}
#: What can go wrong, as the rows count it.
WRONG = ("lost", "not opened", "wrong read", "hidden", "failed read", "failed flush", "hang", "status")
#: A trial that takes longer hangs in a way that it does not see itself.
TRIAL_S = 240


def python_with_libnbd() -> str:
    """Return a Python that has libnbd's module: the distribution's, as a rule."""
    for candidate in (shutil.which("python3"), "/usr/bin/python3"):
        if candidate and subprocess.run([candidate, "-c", "import nbd"], capture_output=True).returncode == 0:
            return candidate
    sys.exit("no Python has the module nbd (Debian: apt-get install python3-libnbd)")


def expect_tracing() -> None:
    """Refuse to go on where nothing can be traced."""
    call = ["strace", "-f", "--seccomp-bpf", "-o", os.devnull, "true"]
    if shutil.which("strace") is None or subprocess.run(call, capture_output=True).returncode != 0:
        sys.exit("strace can't trace here: it is missing (Debian: apt-get install strace), or ptrace is forbidden")


def try_once(python: str, specification: dict[str, Any]) -> dict[str, Any]:
    """Do one trial in a process of its own."""
    call = [python, "-m", "store_faults.trial", json.dumps(specification)]
    where = Path(__file__).resolve().parents[1]
    try:
        done = subprocess.run(
            call, cwd=where, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TRIAL_S
        )
    except subprocess.TimeoutExpired:
        return {"injected": True, "refused": False, "promises": 0, "wrong": {"hang": f"over {TRIAL_S} s"}}
    if done.returncode != 0:
        raise RuntimeError(f"{specification}: {done.stderr}")
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def row_of(specifications: list[dict[str, Any]], outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Count the trials of a cell."""
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for specification, outcome in zip(specifications, outcomes, strict=True):
        counts.update(outcome["wrong"].keys())
        for kind, text in outcome["wrong"].items():
            examples.setdefault(kind, f"{specification['load']}, seed {specification['seed']}: {text[:200]}")
    unknown = set(counts) - set(WRONG)
    assert not unknown, unknown
    return {
        "trials": len(outcomes),
        "injected": sum(outcome["injected"] for outcome in outcomes),
        "refused": sum(outcome["refused"] for outcome in outcomes),
        "promises": sum(outcome["promises"] for outcome in outcomes),
        **{kind.replace(" ", "_"): counts[kind] for kind in WRONG},
        "examples": examples,
    }


def measure(build: str, command: Path, arguments: argparse.Namespace, python: str) -> list[dict[str, Any]]:
    """Do the trials of each cell with one build."""
    rows = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for store, cache, fault in itertools.product(arguments.stores, (False, True), arguments.faults):
            specifications = [
                {
                    "command": str(command.resolve()),
                    "device": DEVICES[cache],
                    "store": store,
                    "cache": cache,
                    "fault": fault,
                    "load": load,
                    "seed": seed,
                }
                for seed in range(arguments.first, arguments.first + arguments.seeds)
                for load in LOADS
            ]
            outcomes = list(pool.map(lambda one: try_once(python, one), specifications))
            row = {"build": build, "store": store, "cache": cache, "fault": fault}
            rows.append({**row, **row_of(specifications, outcomes)})
            shown = {kind: count for kind in WRONG if (count := rows[-1][kind.replace(" ", "_")])}
            where = f"{build}, {store} {'with' if cache else 'without'} a cache, {fault}"
            note(f"{where}: {rows[-1]['injected']} of {rows[-1]['trials']} took effect; {shown or 'nothing wrong'}")
            for kind, text in rows[-1]["examples"].items():
                note(f"    {kind}: {text}")
    return rows


def main() -> None:
    """Judge the builds, and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", type=Path, default=executable(), help="the command that is judged")
    parser.add_argument("--before", type=Path, help="the command of an earlier build, judged as well")
    parser.add_argument("--before-commit", default="3a8ed91", help="the commit of that build")
    parser.add_argument("--seeds", type=int, default=3, help="trials of each cell and load")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="trials at a time")
    parser.add_argument("--stores", nargs="+", choices=list(STORES), default=list(STORES))
    parser.add_argument("--faults", nargs="+", choices=list(FAULTS), default=list(FAULTS))
    parser.add_argument("--dry-run", action="store_true", help="print the rows and keep nothing")
    arguments = parser.parse_args()
    expect_tracing()
    python = python_with_libnbd()
    rows = measure("now", arguments.command, arguments, python)
    if arguments.before is not None:
        rows += measure("before", arguments.before, arguments, python)
    if arguments.dry_run:
        return
    before = arguments.before_commit if arguments.before is not None else None
    keep(NAME, {"schema": SCHEMA, "seeds": arguments.seeds, "first": arguments.first, "before": before, "rows": rows})


if __name__ == "__main__":
    main()
