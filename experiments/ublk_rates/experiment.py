"""Latency of Chronodisk's block devices beside the kernel's own null_blk, in one virtual machine, in turns.

The device `null`, whose service time is zero, is attached by ublk and by FUSE with a loop device. fio reads 4 KiB at
random, past the page cache, at depth 1 and 32. In each repetition every device is measured once, and the order changes
from one repetition to the next. Under TCG only ratios mean something; with KVM (`--accelerator kvm`) the times do.
Needs Debian's packages qemu-system-x86, busybox-static, fio, kmod, and a kernel with the ublk driver.
"""

import argparse
import json
import re
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from common.command import CommandFailed, executable, keep, note
from ublk_rates.machine import boot, find_kernel, root

SCHEMA = "chronodisk.experiment.ublk-rates/1"
NAME = "ublk-rates"
DEPTHS = [1, 32]
#: The devices' names, and how the machine finds their nodes.
DEVICES = {"null_blk": "/dev/nullb0", "ublk": "/dev/ublkb0", "fuse": "/dev/loop0"}
MODULES = ["null_blk", "ublk_drv", "loop", "fuse"]
PROCESSORS = 2

BEGIN = """
for way in ublk fuse; do
    chronodisk serve -q --device null --capacity 64MiB --attach $way 2>/tmp/$way.log &
done
appears() { i=0; while [ ! -b $1 ] && [ $i -lt 300 ]; do i=$((i+1)); usleep 100000; done; }
appears /dev/ublkb0; sleep 5; cat /tmp/*.log
for node in /dev/ublkb0 /dev/loop0; do dd if=/dev/zero of=$node bs=1M count=64 oflag=direct; done
measure() {
    echo "measured: $1 $3"
    fio --name=x --filename=$2 --size=64m --rw=randread --bs=4k --iodepth=$3 --ioengine=$4 --direct=1 \\
        --time_based --runtime=$5 --ramp_time=1 --output-format=json --percentile_list=50
    echo "end of measurement"
}
"""


def script(repetitions: int, seconds: int) -> str:
    """Write the machine's script."""
    lines = [BEGIN]
    for repetition in range(repetitions):
        for depth in DEPTHS:
            engine = "psync" if depth == 1 else "libaio"
            turns = list(DEVICES.items())[:: 1 if repetition % 2 == 0 else -1]
            lines += [f"measure {name} {node} {depth} {engine} {seconds}" for name, node in turns]
    return "\n".join([*lines, "echo all measured"])


def measured(said: str) -> dict[str, dict[int, list[dict[str, float]]]]:
    """Read fio's results from the machine's output."""
    found: dict[str, dict[int, list[dict[str, float]]]] = {name: {depth: [] for depth in DEPTHS} for name in DEVICES}
    for name, depth, text in re.findall(r"measured: (\S+) (\d+)\n(.*?)end of measurement", said, re.DOTALL):
        # Lines of the kernel's log may stand before the result.
        result = json.loads(text[text.index("{\n") :])
        read = result["jobs"][0]["read"]
        latency = read["clat_ns"]
        found[name][int(depth)].append(
            {"rate": read["iops"], "p50_us": latency["percentile"]["50.000000"] / 1e3, "mean_us": latency["mean"] / 1e3}
        )
    return found


def stripped(program: Path, folder: Path) -> Path:
    """Copy a program without its debug information."""
    copy = folder / "chronodisk"
    if subprocess.run(["strip", "-o", str(copy), str(program)], check=False).returncode != 0:
        shutil.copy(program, copy)
    return copy


def row(name: str, depth: int, figures: dict[str, dict[int, list[dict[str, float]]]]) -> dict[str, Any]:
    """Compare a device with null_blk, repetition by repetition."""
    ours, theirs = figures[name][depth], figures["null_blk"][depth]
    return {
        "device": name,
        "depth": depth,
        "p50_us": [one["p50_us"] for one in ours],
        "rate": [one["rate"] for one in ours],
        "over_null_blk_us": [one["p50_us"] - other["p50_us"] for one, other in zip(ours, theirs, strict=True)],
        "times_null_blk": [one["p50_us"] / other["p50_us"] for one, other in zip(ours, theirs, strict=True)],
    }


def main() -> None:
    """Measure all devices in one machine and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=7, help="repetitions (default: 7)")
    parser.add_argument("--seconds", type=int, default=4, help="seconds of a load (default: 4)")
    parser.add_argument("--accelerator", default="tcg,thread=multi", help="QEMU's accelerator (default: TCG)")
    parser.add_argument("--command", type=Path, help="the measured command (default: the release build)")
    arguments = parser.parse_args()
    fio = shutil.which("fio")
    if fio is None:
        raise CommandFailed("no fio here (Debian: apt-get install fio)")
    release, kernel = executable(), find_kernel()
    with tempfile.TemporaryDirectory() as folder:
        programs = [stripped(arguments.command or release, Path(folder)), Path(fio)]
        initial = root(kernel, programs, MODULES, script(arguments.reps, arguments.seconds))
    note(f"booting Linux {kernel.release}")
    said = boot(kernel, initial, arguments.accelerator, PROCESSORS)
    if "all measured" not in said:
        raise CommandFailed(f"the machine did not end its measurements:\n{said[-4000:]}")
    figures = measured(said)
    rows = [row(name, depth, figures) for depth in DEPTHS for name in DEVICES]
    for one in rows:
        p50, ratio, more = (statistics.median(one[key]) for key in ("p50_us", "times_null_blk", "over_null_blk_us"))
        print(
            f"{one['device']:<9} depth {one['depth']:>2}: p50 {p50:8.1f} us, null_blk + {more:7.1f} us, {ratio:5.2f} x"
        )
    keep(
        NAME,
        {
            "schema": SCHEMA,
            "repetitions": arguments.reps,
            "seconds": arguments.seconds,
            "accelerator": arguments.accelerator,
            "kernel": kernel.release,
            "processors": PROCESSORS,
            "rows": rows,
        },
    )


if __name__ == "__main__":
    main()
