"""Power cuts under programs: states of a device in which acknowledged data are lost.

Each program runs once in a guest on a disk with a volatile cache and physical blocks of 4 KiB. `chronodisk crash` makes
states that the rules of the block layer allow at cuts drawn from the run, mounts each, and checks it. A program that
promises durability must have no failing state, and one that gives up its promise must have some.
"""

import argparse
import json
import math
import os
import re
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from common.command import RESULTS, CommandFailed, executable, keep, note, provenance
from power_cuts.programs import PROGRAMS, Program

SCHEMA = "chronodisk.experiment.power-cuts/1"
NAME = "power-cuts"
DEVICE = "nearline-20tb"
#: XFS and btrfs need more than this for their logs.
CAPACITY = {"ext4": "64MiB", "xfs": "320MiB", "btrfs": "256MiB"}
#: The name of the states that no program makes.
WITHOUT = "states without a file system"
#: Cuts of the first try to find a number that gives enough states.
CUTS_TRIED = 200
#: Cuts per state at most.
CUTS_MAX = 20
#: Share of the states wanted that a try must have.
STATES_MARGIN = 1.04
#: Bytes of the output of a failing check that are kept.
OUTPUT_BYTES = 200


def crash(words: list[str]) -> tuple[dict[str, Any], float]:
    """Call `chronodisk crash`, and return its result and the time in seconds."""
    call = [str(executable()), "crash", "--json", *words]
    begun = time.monotonic()
    done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    begin = done.stdout.find('{\n  "schema"')
    if done.returncode not in (0, 1) or begin < 0:
        raise CommandFailed(f"{' '.join(call)} ended with status {done.returncode}:\n{done.stderr}{done.stdout}")
    result: dict[str, Any] = json.loads(done.stdout[begin:])
    return result, time.monotonic() - begun


def version_of(program: Program) -> str:
    """Give the version of the program that this host has, if it is a program with one."""
    first = program.name.split(",")[0]
    calls = {
        "SQLite": ["sqlite3", "--version"],
        "git": ["git", "--version"],
        "Redis": ["redis-server", "--version"],
        "LMDB": ["/usr/bin/python3", "-c", "import lmdb; print(*lmdb.version(), sep='.')"],
    }
    if first not in calls:
        return ""
    printed = subprocess.run(calls[first], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+(\.\d+)+", printed)
    return found.group() if found else printed.strip()


def words_for(program: Program, file_system: str, cuts: int, run: Path) -> list[str]:
    """Give the words of `chronodisk crash` that run a program and check its states."""
    words = ["--device", DEVICE, "--capacity", CAPACITY[file_system], "--fs", file_system, "--cuts", str(cuts)]
    words += [*program.options, "--check", program.check, "-o", str(run)]
    return [*words, "--", "sh", "-c", program.script, "sh", *program.words]


def cuts_for(program: Program, file_system: str, states: int, folder: Path) -> int:
    """Find a number of cuts that gives more than this number of states. Each try makes all states and checks one."""
    cuts = CUTS_TRIED
    while True:
        run = folder / f"{PROGRAMS.index(program)}-{file_system}-{cuts}"
        distinct = crash(["--only", "1", *words_for(program, file_system, cuts, run)])[0]["states_distinct"]
        # Another run of the program has other requests, and so a few states more or less.
        if distinct >= STATES_MARGIN * states:
            return cuts
        if cuts > states * CUTS_MAX:
            raise CommandFailed(f"{program.name} on {file_system}: {cuts} cuts give {distinct} states only")
        cuts = math.ceil(cuts * max(STATES_MARGIN**2 * states / max(distinct, 1), STATES_MARGIN))


def search(program: Program, file_system: str, cuts: int, folder: Path) -> dict[str, Any]:
    """Run a program, and check the states of its device."""
    run = folder / f"{PROGRAMS.index(program)}-{file_system}"
    load = os.getloadavg()[0]
    result, elapsed_s = crash(words_for(program, file_system, cuts, run))
    # Makes all states again, and checks one.
    _, one_s = crash(["--from", str(run), "--only", "1"])
    checked = result["states_checked"]
    first = next(iter(result["failures"]), None)
    return {
        "program": program.name,
        "version": version_of(program),
        "file_system": file_system,
        "promise": program.promise,
        "loses": program.loses,
        "requests": result["requests"],
        "acknowledged_lines": result["acknowledged_lines"],
        "cuts": result["cuts"],
        "states": result["states_distinct"],
        "checked": checked,
        "failed": result["states_failed"],
        "failed_steps": dict(Counter(failure["failed"] for failure in result["failures"])),
        "first": first
        and {
            "draw": first["draw"],
            "failed": first["failed"],
            "output": first["output"][-OUTPUT_BYTES:].strip(),
            "fewest_requests": (first.get("fewest") or {}).get("requests"),
        },
        "elapsed_s": round(elapsed_s, 1),
        "made_and_one_checked_s": round(one_s, 2),
        "load_before": round(load, 2),
        "holds": (result["states_failed"] > 0) == program.loses,
    }


def without_mount(folder: Path) -> dict[str, Any]:
    """Check states of a device without a file system, with a check that reads its first block."""
    words = ["--device", DEVICE, "--capacity", "64MiB", "--fs", "none", "--cuts", "300", "-o", str(folder / "none")]
    words += ["--check", "dd if=$CHRONODISK_DEVICE of=/dev/null bs=4096 count=1 2>/dev/null"]
    write = "dd if=/dev/urandom of=/dev/vda bs=4096 count=1 seek=$i oflag=direct 2>/dev/null"
    script = f"for i in $(seq 100); do {write}; done"
    result, elapsed_s = crash([*words, "--", "sh", "-c", script])
    return {"checked": result["states_checked"], "elapsed_s": round(elapsed_s, 1)}


def main() -> None:
    """Search all programs, and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=20, help="cuts of a program (default: 20)")
    parser.add_argument("--states", type=int, default=1000, help="states of a program that needs many (default: 1000)")
    parser.add_argument("--only", default="", help="rows whose 'PROGRAM on FS' contains this; others keep their result")
    arguments = parser.parse_args()
    kept = json.loads((RESULTS / f"{NAME}.json").read_text()) if arguments.only else {}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in kept.get("rows", []):
        found[row["program"], row["file_system"]] = {"commit": kept["provenance"]["commit"], **row}
    none = kept.get("without_mount", {})
    names = [(program.name, file_system) for program in PROGRAMS for file_system in program.file_systems]

    def keep_found() -> Path:
        rows = [found[name] for name in names if name in found]
        return keep(NAME, {"schema": SCHEMA, "repetitions": 1, "device": DEVICE, "rows": rows, "without_mount": none})

    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        for program in PROGRAMS:
            for file_system in program.file_systems:
                row_name = f"{program.name} on {file_system}"
                if arguments.only not in row_name:
                    continue
                note(row_name)
                cuts = arguments.cuts
                if program.many:
                    cuts = cuts_for(program, file_system, arguments.states, Path(folder))
                row = search(program, file_system, cuts, Path(folder))
                note(f"  {row['checked']} states, {row['failed']} failed, {row['elapsed_s']} s")
                found[program.name, file_system] = {"commit": provenance()["commit"], **row}
                # A row takes minutes, and must not be lost if the search is interrupted.
                keep_found()
        if arguments.only in WITHOUT:
            note(WITHOUT)
            none = without_mount(Path(folder))
    note(f"result: {keep_found()}")


if __name__ == "__main__":
    main()
