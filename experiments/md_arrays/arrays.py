"""An array model beside Linux's md over the same disks: RAID 5 of eight Cheetah 9LP, whole and degraded.

Each load is one job file of fio. `chronodisk simulate` follows it on the array model. fio itself runs it in a guest, on
an md array of eight emulated disks. Rates are of the guest's clock, which counts the guest's processor; the model has
no processor. Both arms have the same profile of the disks, but other angles of their spindles.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from common.command import CommandFailed, chronodisk, chronodisk_with_output, keep, note

SCHEMA = "chronodisk.experiment.md-arrays/1"
MEMBER = "cheetah-9lp"
MEMBERS = 8
#: The member that a degraded array lacks.
MISSING = 2
#: Relative differences up to this one count as agreement.
CLOSE = 0.1
PROFILE = """\
name = "array"
kind = "array"
description = "RAID 5 of eight disks"
source = "experiments/md_arrays"
validation = "unvalidated"
level = "raid5"
member = "{member}"
count = {members}
chunk = "64 KiB"
"""
JOB = """\
[load]
filename=/dev/md0
direct=1
ioengine=libaio
randseed=7
rw={rw}
bs={size}
iodepth={depth}
number_ios={requests}
size=8g
"""
#: `modprobe` is in /sbin. The metadata lie at the end of the members, so that data begin at sector 0 as in the model.
GUEST = """\
export PATH=$PATH:/sbin:/usr/sbin
modprobe raid456
mdadm --create /dev/md0 --run --assume-clean --level=5 --raid-devices={members} --chunk=64 --metadata=1.0 \\
    --bitmap=none {disks} >&2 2>/dev/null || exit
exec fio --output-format=json {job}
"""


class Load(NamedTuple):
    """A load on the array."""

    rw: str
    size: str
    depth: int
    requests: int


LOADS = (
    Load("write", "4k", 1, 2000),
    Load("write", "4k", 32, 6000),
    Load("randwrite", "4k", 1, 500),
    Load("randwrite", "4k", 32, 2000),
    Load("randread", "4k", 8, 1500),
    Load("write", "64k", 8, 1000),
    Load("randwrite", "64k", 4, 500),
    Load("randrw", "64k", 8, 600),
    Load("write", "1m", 1, 200),
    Load("write", "1m", 32, 300),
    Load("read", "1m", 4, 300),
)


def of_model(load: Load, degraded: bool, folder: Path) -> float:
    """Return the array model's requests per second."""
    profile, job = folder / "array.toml", folder / "load.fio"
    text = PROFILE.format(member=MEMBER, members=MEMBERS)
    profile.write_text(text + (f"failed = [{MISSING}]\n" if degraded else ""))
    job.write_text(JOB.format(**load._asdict()))
    rate: float = chronodisk("simulate", "--device", str(profile), "--fio-job", str(job))["iops"]
    return rate


def of_md(load: Load, degraded: bool, folder: Path) -> float:
    """Return md's requests per second in a guest."""
    job, script = folder / "load.fio", folder / "guest.sh"
    job.write_text(JOB.format(**load._asdict()))
    disks = [f"/dev/vd{letter}" for letter in "abcdefgh"[:MEMBERS]]
    if degraded:
        disks[MISSING] = "missing"
    script.write_text(GUEST.format(members=MEMBERS, disks=" ".join(disks), job=job))
    devices = ["--device", MEMBER] * MEMBERS
    guest = [*devices, "--fs", "none", "--clock", "guest", "--scheduler", "none", "--", "sh", str(script)]
    _, printed = chronodisk_with_output("run", *guest)
    begin = printed.find('{\n  "fio version"')
    if begin < 0:
        raise CommandFailed(f"fio printed no JSON:\n{printed}")
    job_result = json.JSONDecoder().raw_decode(printed[begin:])[0]["jobs"][0]
    sides = [job_result[side] for side in ("read", "write")]
    return float(sum(side["total_ios"] for side in sides) / max(side["runtime"] for side in sides) * 1e3)


def row(load: Load, degraded: bool) -> dict[str, Any]:
    """Measure both arms."""
    with tempfile.TemporaryDirectory() as folder:
        model, md = of_model(load, degraded, Path(folder)), of_md(load, degraded, Path(folder))
    result = {"array": "degraded" if degraded else "whole", **load._asdict()}
    return result | {"model_per_s": round(model, 1), "md_per_s": round(md, 1), "ratio": round(model / md, 3)}


def table(rows: list[dict[str, Any]]) -> str:
    """Lay out the rows for the README."""
    lines = [
        "| array | load | size | depth | md, requests/s | model, requests/s | model / md |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in rows:
        cells = [entry["array"], entry["rw"], entry["size"], entry["depth"], entry["md_per_s"], entry["model_per_s"]]
        lines.append(f"| {' | '.join(map(str, cells))} | {entry['ratio']:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure all loads on both arrays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    rows = []
    for degraded in (False, True):
        for load in LOADS:
            note(f"{load.rw} {load.size} at depth {load.depth}, {'degraded' if degraded else 'whole'}")
            rows.append(row(load, degraded))
    print(table(rows))
    close = sum(abs(entry["ratio"] - 1) <= CLOSE for entry in rows)
    print(f"{close} of {len(rows)} loads within {CLOSE:.0%} of md")
    keep("md-arrays", {"schema": SCHEMA, "member": MEMBER, "rows": rows, "close": close})


if __name__ == "__main__":
    main()
