"""A large trace of system calls: 3,000 processes of 400 calls each are recorded in a guest, and replayed.

The time of the replay is this host's, from the start of the command to its end; it includes reading the trace, starting
the guest and writing the result. Its CPU time, that of all its processes, says what the time would be on a quiet host.
"""

import resource
import subprocess
import tempfile
import time
from pathlib import Path

from common.command import chronodisk, executable, keep, note

SCHEMA = "chronodisk.experiment.large-replay/1"
DEVICE = ["--device", "wd-zn540", "--capacity", "4GiB", "--fs", "ext4"]
PROCESSES = 3_000
LOAD = (
    f"head -c 100k /dev/zero >/mnt/in; seq {PROCESSES} | xargs -n1 sh -c "
    "'exec dd if=/mnt/in of=/mnt/out bs=512 count=120 conv=notrunc status=none'"
)


def cpu_s() -> float:
    """CPU time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Record, replay, and keep the figures."""
    with tempfile.TemporaryDirectory() as folder:
        trace = str(Path(folder) / "trace")
        note("recording; two minutes")
        call = [str(executable()), "run", *DEVICE, "--output", str(Path(folder) / "recorded")]
        recorded = subprocess.run(
            [*call, "--record-calls", trace, "--", "sh", "-c", LOAD], capture_output=True, text=True, check=True
        )
        said = next(line for line in recorded.stderr.splitlines() if " calls of " in line)
        records = int(said.rpartition(" calls of ")[0].split()[-1])
        note("replaying")
        begun, cpu_begun = time.monotonic(), cpu_s()
        result = chronodisk("trace replay", trace, *DEVICE, "--output", str(Path(folder) / "replayed"))
        took, cpu = time.monotonic() - begun, cpu_s() - cpu_begun
    figures = {
        "records": records,
        "replay_host_s": round(took, 2),
        "replay_cpu_s": round(cpu, 2),
        "replay": result["replay"],
    }
    path = keep("large-replay", {"schema": SCHEMA, **figures})
    note(f"{records} records of {PROCESSES} processes in {took:.1f} s: {path.name}")


if __name__ == "__main__":
    main()
