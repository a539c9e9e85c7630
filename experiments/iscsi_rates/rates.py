"""Rates of Chronodisk's iSCSI target beside tgtd's: the same client, the same host, in turns.

The client is libiscsi's `iscsi-perf`. Chronodisk serves the device `null`, whose service time is zero, with its bytes
in memory; tgtd serves a file in /dev/shm. Both are filled first. In each repetition every load runs on both targets,
and the order changes from one repetition to the next. Needs Debian's packages libiscsi-bin, qemu-utils,
qemu-block-extra and tgt, and root.
"""

import argparse
import re
import statistics
import subprocess
from contextlib import ExitStack
from typing import Any

from common.command import CommandFailed, keep, note
from iscsi_rates.targets import CAPACITY_MIB, TARGETS

SCHEMA = "chronodisk.experiment.iscsi-rates/1"
NAME = "iscsi-rates"
BLOCK_BYTES = 512
#: Name, bytes of a read, depth, whether in random order.
LOADS = [
    ("random reads of 4 KiB, depth 1", 4096, 1, True),
    ("random reads of 4 KiB, depth 32", 4096, 32, True),
    ("sequential reads of 64 KiB, depth 8", 65536, 8, False),
]
AVERAGE = re.compile(r"iops average (\d+)")


def fill(url: str) -> None:
    """Write the whole disk."""
    step_mib = 16
    writes = [f"write -P 165 {place}M {step_mib}M" for place in range(0, CAPACITY_MIB, step_mib)]
    words = ["qemu-io", "-f", "raw", *(word for write in writes for word in ("-c", write)), "-c", "flush", url]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0 or "failed" in done.stdout + done.stderr:
        raise CommandFailed(f"qemu-io could not fill {url}:\n{done.stdout}{done.stderr}")


def rate(url: str, request_bytes: int, depth: int, is_random: bool, seconds: int) -> float:
    """Measure a load's rate in requests a second."""
    words = ["iscsi-perf", "-m", str(depth), "-b", str(request_bytes // BLOCK_BYTES), "-t", str(seconds)]
    words += ["-r"] if is_random else []
    done = subprocess.run(
        [*words, url], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    found = AVERAGE.findall(done.stdout)
    if done.returncode != 0 or not found:
        raise CommandFailed(f"{' '.join(words)} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return float(found[-1])


def main() -> None:
    """Measure all loads on both targets and keep the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=10, help="repetitions (default: 10)")
    parser.add_argument("--seconds", type=int, default=5, help="seconds of a load (default: 5)")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = [{"load": load[0], "rate": {target: [] for target in TARGETS}} for load in LOADS]
    with ExitStack() as stack:
        urls = {target: stack.enter_context(serve()) for target, serve in TARGETS.items()}
        for target, url in urls.items():
            note(f"filling {target}")
            fill(url)
        for repetition in range(arguments.reps):
            note(f"repetition {repetition + 1} of {arguments.reps}")
            turns = list(urls.items())[:: 1 if repetition % 2 == 0 else -1]
            for row, (_, request_bytes, depth, is_random) in zip(rows, LOADS, strict=True):
                for target, url in turns:
                    row["rate"][target].append(rate(url, request_bytes, depth, is_random, arguments.seconds))
    for row in rows:
        pairs = zip(row["rate"]["chronodisk"], row["rate"]["tgtd"], strict=True)
        row["ratio"] = [ours / theirs for ours, theirs in pairs]
        medians = {target: statistics.median(rates) for target, rates in row["rate"].items()}
        print(f"{row['load']:<40} {medians}, ratio {statistics.median(row['ratio']):.2f}")
    result = {"schema": SCHEMA, "repetitions": arguments.reps, "seconds": arguments.seconds, "rows": rows}
    note(f"result: {keep(NAME, result)}")


if __name__ == "__main__":
    main()
