"""Every built-in profile under plain and mixed loads, beside published figures: `chronodisk devices check`.

The figures are of simulated time and do not depend on the host. The experiment fails if a profile fails.
"""

import json
import subprocess
import sys
from typing import Any

from common.command import CommandFailed, executable, keep, note

SCHEMA = "chronodisk.experiment.devices-check/1"
NAME = "devices-check"
#: The check's own status if a profile fails, which is a result all the same.
CHECK_FAILED = 1
COLUMNS = [
    "load",
    "block_bytes",
    "depth",
    "at_end",
    "megabytes_per_second",
    "requests_per_second",
    "longest_wait_ms",
    "wait_bound_ms",
]
WAIT_COLUMNS = ["load", "wait_ms", "bound_ms"]


def compact(check: dict[str, Any]) -> dict[str, Any]:
    """Give loads and waits as rows without the names of their columns, which would be three quarters of the file."""
    loads = [[load[column] for column in COLUMNS] for load in check["loads"]]
    return {**check, "loads": loads, "waits": [[wait[column] for column in WAIT_COLUMNS] for wait in check["waits"]]}


def main() -> None:
    """Check all profiles and keep the tables."""
    words = [str(executable()), "devices", "check", "--json"]
    note("checking all built-in profiles")
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode not in (0, CHECK_FAILED):
        raise CommandFailed(f"{' '.join(words)} ended with status {done.returncode}:\n{done.stderr}")
    checked = json.loads(done.stdout)
    verdicts: dict[str, int] = {}
    for check in checked["checks"]:
        verdicts[check["verdict"]] = verdicts.get(check["verdict"], 0) + 1
        for failure in check["failures"]:
            note(f"{check['profile']}: {failure}")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    note(f"{len(checked['checks'])} profiles: {counts}")
    result = {
        "schema": SCHEMA,
        "repetitions": 1,
        "exit_status": done.returncode,
        "effort": checked["effort"],
        "load_columns": COLUMNS,
        "wait_columns": WAIT_COLUMNS,
        "checks": [compact(check) for check in checked["checks"]],
    }
    note(f"result: {keep(NAME, result)}")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
