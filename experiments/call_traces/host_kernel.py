"""The guest's ext4 beside this host's: which blocks each writes for the same program.

A program runs natively through `chronodisk mount`, where the host's kernel writes to a loop device and each of its
requests reaches the log, and in a guest. Both file systems are made with the same options, identifier and hash seed.
Blocks of 4 KiB are compared as multisets: what was written, by data or by zeroes. The host's loop device has no request
that writes zeroes, so its kernel sends data instead.

Inode tables are not initialised in the background: how far that gets depends on how long a program runs.

The kernels are of different versions, and on this host several processors allocate at once. So two native runs differ,
too; their difference is shown beside. A guest has one processor: a third native run has one, too.
"""

import argparse
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from pyarrow import parquet

from call_traces.experiment import blocks_of, equal_percent
from call_traces.programs import Program, chosen
from common.command import CommandFailed, executable, keep, note

SCHEMA = "chronodisk.experiment.host-kernel/1"
#: The disk of the recordings, faster so that native runs end soon.
DEVICE = [
    "--device",
    "hp-c2247a",
    "--device-speed",
    "20x",
    "--capacity",
    "1GB",
    "--fs",
    "ext4",
    "--mount-options",
    "noinit_itable",
]
IDENTIFIER = "6b2c5b3e-5d5a-4a51-9f4f-0f1a2b3c4d5e"
MKFS = f"-U {IDENTIFIER} -E hash_seed={IDENTIFIER}"
ONE_PROCESSOR = ("taskset", "--cpu-list", "0")
WRITES = ("write", "write-zeroes")


def written(folder: Path, name: str, subcommand: str, program: Program, wrapper: tuple[str, ...] = ()) -> Counter[int]:
    """Run a program, and count how often each block is written."""
    output = folder / name
    words = [str(executable()), subcommand, *DEVICE, "--mkfs-options", MKFS, "--output", str(output), "--"]
    words += [*wrapper, *program.command(folder)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(words)} ended with status {done.returncode}:\n{done.stderr}{done.stdout}")
    (log,) = sorted(output.glob("requests-*.parquet"))
    columns = ["op", "lba_sectors", "len_sectors"]
    blocks: Counter[int] = Counter()
    for row in parquet.read_table(log, columns=columns).to_pylist():
        if row["op"] in WRITES:
            blocks.update(block for _, block in blocks_of(row["op"], row["lba_sectors"], row["len_sectors"]))
    return blocks


def compare(program: Program) -> dict[str, Any]:
    """A program on both kernels."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        host, again = (written(folder, name, "mount", program) for name in ("host", "again"))
        alone = written(folder, "alone", "mount", program, ONE_PROCESSOR)
        guest = written(folder, "guest", "run", program)
    figures = {
        "program": program.name,
        "title": program.title,
        "blocks_of_host": host.total(),
        "blocks_of_guest": guest.total(),
        "equal_percent": round(equal_percent(host, guest), 2),
        "one_processor_equal_percent": round(equal_percent(alone, guest), 2),
        "two_host_runs_equal_percent": round(equal_percent(host, again), 2),
    }
    equal, native = figures["equal_percent"], figures["two_host_runs_equal_percent"]
    one = figures["one_processor_equal_percent"]
    note(f"{program.title}: {equal} % of blocks equal, {one} % with one processor, {native} % in two native runs")
    return figures


def main() -> None:
    """Compare all programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="programs, by name")
    arguments = parser.parse_args()
    rows = []
    left_out: dict[str, str] = {}
    for program in chosen(arguments.only, left_out):
        rows.append(compare(program))
    path = keep("host-kernel", {"schema": SCHEMA, "device": " ".join(DEVICE), "left_out": left_out, "rows": rows})
    note(f"result: {path}")


if __name__ == "__main__":
    main()
