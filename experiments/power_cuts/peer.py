"""`chronodisk crash` beside a replay of dm-log-writes: states checked a minute, with mounts and the checker.

Both run the same program on ext4 in a guest and take the same steps for each state. dm-log-writes records in a guest
with a log of its own, and one guest replays it. The time includes the recording. Root is needed: the module is loaded.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from common.command import CommandFailed, executable, keep, note
from power_cuts.programs import STRESS
from power_cuts.search import DEVICE, crash

SCHEMA = "chronodisk.experiment.power-cuts-peer/1"
NAME = "power-cuts-peer"
MODULES = Path("/usr/lib/uml/modules")
#: In the order of their dependencies.
NEEDED = ["dm-mod", "dm-bufio", "dm-snapshot", "dm-log-writes"]
SCRIPT = """
export PATH=$PATH:/sbin:/usr/sbin DM_DISABLE_UDEV=1
dmsetup create log --table "0 $(blockdev --getsz /dev/vda) log-writes /dev/vda /dev/vdb" || exit
mkfs.ext4 -q /dev/mapper/log && dmsetup message log 0 mark made && mount /dev/mapper/log /mnt || exit
CHRONODISK_ACK=/dev/null sh -c "$1" || exit
cd /; umount /mnt && dmsetup remove --retry log || exit
exec /usr/bin/python3 $2 /dev/vdb /dev/vdc /dev/vdd $3
"""


def modules() -> list[str]:
    """Give the options that load the modules of the guest's kernel."""
    words = []
    for name in NEEDED:
        found = sorted(MODULES.glob(f"*/kernel/drivers/md/{name}.ko"))
        if not found:
            raise CommandFailed(f"no {name}.ko in {MODULES}: install user-mode-linux of Debian 12")
        words += ["--module", str(found[-1])]
    return words


def by_log_writes(states: int) -> dict[str, Any]:
    """Record and replay with dm-log-writes."""
    begun = time.monotonic()
    call = [str(executable()), "run", "--fs", "none", "--capacity", "64MiB", *modules(), "--device", DEVICE]
    # The log, the replayed device, and the snapshot's changes take no time.
    call += ["--device", "null", "--device", "null", "--device", "null", "--", "sh", "-c", SCRIPT, "sh"]
    call += [STRESS, str(Path(__file__).with_name("replay.py")), str(states)]
    done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"dm-log-writes ended with status {done.returncode}:\n{done.stderr}{done.stdout}")
    found: dict[str, Any] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return found | {"elapsed_s": round(time.monotonic() - begun, 1)}


def by_crash(cuts: int, jobs: int, folder: Path) -> dict[str, Any]:
    """Do the same with `chronodisk crash`."""
    words = ["--device", DEVICE, "--capacity", "64MiB", "--fs", "ext4", "--cuts", str(cuts), "--jobs", str(jobs)]
    result, elapsed_s = crash([*words, "--check", "true", "-o", str(folder), "--", "sh", "-c", STRESS])
    checked = result["states_checked"]
    return {"checked": checked, "failed": result["states_failed"], "elapsed_s": round(elapsed_s, 1)}


def rate(run: dict[str, Any]) -> float:
    """Give the states checked a minute."""
    return float(run["checked"] / run["elapsed_s"] * 60)


def main() -> None:
    """Measure both in turn, and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=3, help="repetitions (default: 3)")
    parser.add_argument("--states", type=int, default=60, help="states of dm-log-writes (default: 60)")
    arguments = parser.parse_args()
    runs: dict[str, list[dict[str, Any]]] = {"dm-log-writes": [], "crash, 1 job": [], "crash, 2 jobs": []}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        for repetition in range(arguments.reps):
            note(f"repetition {repetition + 1} of {arguments.reps}")
            runs["dm-log-writes"].append(by_log_writes(arguments.states))
            for jobs, name in ((1, "crash, 1 job"), (2, "crash, 2 jobs")):
                runs[name].append(by_crash(20, jobs, Path(folder) / f"{repetition}-{jobs}"))
            note(f"  {[(name, round(rate(found[-1]))) for name, found in runs.items()]} states a minute")
    rows = [
        {"way": name, "runs": found, "states_a_minute": round(statistics.median(rate(run) for run in found), 1)}
        for name, found in runs.items()
    ]
    result = {"schema": SCHEMA, "repetitions": arguments.reps, "device": DEVICE, "rows": rows}
    note(f"result: {keep(NAME, result)}")


if __name__ == "__main__":
    main()
