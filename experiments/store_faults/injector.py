"""What the fault injector found in the stores when it was made, and what it finds now.

The injector (`chronodisk_store::simulated`) and its harness came before the stores were repaired: commit 68807ad has
both with the stores as they were. This experiment exports that commit, lets its harness tell which faults had taken
effect where a promise was broken (`causes.patch`), and runs it with so many seeds for each store and contract; then
`make faults` does the same here. A history ends with the first promise that is broken. Each finding of the result is a
store, its contract, the promise, and the faults of the same life, with the number of histories and one of them.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from common.command import ROOT, keep, note

SCHEMA = "chronodisk.experiment.fault-injector/1"
NAME = "fault-injector"
#: The commit that has the injector and the stores before it.
BEFORE = "68807ad"
FOLDER = ROOT / "target" / "fault-injector"
HISTORIES = re.compile(r"(\w+): (\d+) histories from seed \d+ on, \d+ faults took effect: (\{.*\})")
FOUND = re.compile(r"  (\w+) (with|without) a cache(, durable)?: (.*?): (\d+) of (\d+); (?:(.*?); )?(seed .*)")


def export(commit: str) -> Path:
    """Put a commit into a folder of its own, with what its harness lacks."""
    source = FOLDER / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
    patch = Path(__file__).with_name("causes.patch").read_text()
    subprocess.run(["patch", "--quiet", "--strip=1", "-d", str(source)], input=patch, text=True, check=True)
    return source


def run(call: list[str], where: Path, seeds: int) -> str:
    """Run a harness; return what it printed. That it fails is a finding."""
    note(" ".join(call))
    environment = {**os.environ, "CHRONODISK_FAULT_SEEDS": str(seeds)}
    done = subprocess.run(call, cwd=where, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if "test result:" not in done.stdout:
        raise RuntimeError(f"{' '.join(call)} ended with status {done.returncode}:\n{done.stderr}{done.stdout}")
    return done.stdout


def parse(output: str) -> dict[str, Any]:
    """Return the histories, the faults that took effect, and what was found."""
    stores = [
        {"store": store, "histories": int(histories), "effects": ast.literal_eval(effects)}
        for store, histories, effects in HISTORIES.findall(output)
    ]
    found = [
        {
            "store": store,
            "cache": cache == "with",
            "durable": bool(durable),
            "rule": rule,
            "faults": faults,
            "histories": int(histories),
            "of": int(of),
            "example": example,
        }
        for store, cache, durable, rule, histories, of, faults, example in FOUND.findall(output)
    ]
    return {"stores": sorted(stores, key=lambda row: str(row["store"])), "found": found}


def main() -> None:
    """Run both harnesses, and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10_000, help="histories of each store and contract")
    parser.add_argument("--dry-run", action="store_true", help="print the findings and keep nothing")
    arguments = parser.parse_args()
    harness = ["--test", "faults", "--no-fail-fast", "--", "--nocapture"]
    test = ["cargo", "test", "--release", "--locked"]
    before = [*test, "-p", "chronodisk-store", "--target-dir", str(FOLDER), *harness]
    builds = {
        "before": parse(run(before, export(BEFORE), arguments.seeds)),
        "now": parse(run([*test, "--workspace", *harness], ROOT, arguments.seeds)),
    }
    for name, build in builds.items():
        for store in build["stores"]:
            note(f"{name}: {store}")
        for row in build["found"]:
            cell = f"{row['store']}, {'with' if row['cache'] else 'without'} a cache{', durable' * row['durable']}"
            note(f"{name}: {cell}: {row['rule']}: {row['histories']} of {row['of']} ({row['faults']})")
    if not arguments.dry_run:
        keep(NAME, {"schema": SCHEMA, "seeds": arguments.seeds, "commit_before": BEFORE, **builds})


if __name__ == "__main__":
    main()
