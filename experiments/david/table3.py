"""Table III of Agrawal et al., "Emulating Goliath Storage Systems with David", ACM TOS 7(4), 2012.

Software RAID 1 of one, two and three Hitachi disks; 20,000 random and sequential reads and writes by as many processes
as there are disks. The paper's array is Linux md over one request queue per disk, and so is this one: an array of
`host-queue`s, each in front of a disk. A process that waits for its request is one of `--depth` in a closed loop.

What the paper does not say follows from its figures. All sequential rates lie between 118.6 and 120 requests a second,
with 7,200 rpm being 120 turns a second: every request loses a turn. So the drives neither read ahead nor write back,
a request is short against a track, and the kernel did not merge what several processes had waiting; the request size
here is 4 KiB. A single process that writes at random is not held up by the queue's plug of 3 ms: it waits for its
request, which starts the queue, as direct I/O does. `chronodisk_merging` in the result repeats the sequential rows with
merging.
"""

import argparse
import re
from typing import Any

from matplotlib.figure import Figure

from common.command import keep
from common.simulation import keep_plot, profile_text, simulate

# Requests per second, rows by the number of disks: random reads, random writes, sequential reads, sequential writes.
MEASURED = {1: (78.66, 71.88, 118.65, 118.71), 2: (156.76, 72.02, 119.11, 119.33), 3: (232.77, 72.37, 119.29, 119.98)}
MODELLED = {1: (79.56, 72.15, 118.95, 118.83), 2: (159.36, 72.21, 119.16, 119.21), 3: (238.79, 73.77, 119.44, 119.40)}
WORKLOADS = ("random-read", "random-write", "seq-read", "seq-write")
REQUESTS = 20_000


# Table I: first in, first out, write-through. Table III: no read-ahead. The overheads are estimates.
REQUEST_PATH = """[controller]
interface-rate = "133 MB/s"
read-overhead = "0.2 ms"
write-overhead = "0.2 ms"
queue-depth = 1
scheduler = "fcfs"
segments = 200
segment-size = "600 KiB"
read-ahead = "0 sectors"
write-buffer = "600 KiB"
"""


def as_measured(text: str) -> str:
    """Return the disk's profile with the request path that the paper measured."""
    return re.sub(r"(?ms)^\[controller\]\n.*?(?=^\[|\Z)", REQUEST_PATH, text)


def carried(name: str, profile: str) -> str:
    """Return a member's profile as the one around it carries it."""
    text = profile.replace("\\", "\\\\").replace('"', '\\"')
    return f'[[member-profile]]\nname = "{name}"\nprofile = """\n{text}"""\n'


def queued(disk: str, merge: str) -> str:
    """Return a disk behind the queue of table I."""
    return f"""name = "queued"
kind = "host-queue"
description = "A disk behind the queue of David's table I"
source = "David, table I"
validation = "unvalidated"
member = "disk"
merge = "{merge}"
unplug-at = "all"
{carried("disk", disk)}"""


def mirrored(disks: int, disk: str, merge: str) -> str:
    """Return a RAID 1 of so many of them; a single disk is no array, as in the paper."""
    if disks == 1:
        return queued(disk, merge)
    return f"""name = "david-raid1"
kind = "array"
description = "RAID 1 of disks, each behind a queue of its own"
source = "David, section 7.5"
validation = "unvalidated"
level = "raid1"
member = "queued"
count = {disks}
read-policy = "nearest"
{carried("queued", queued(disk, merge))}"""


def measure(disk: str, merge: str, workloads: tuple[str, ...]) -> dict[str, list[float]]:
    """Return requests per second by workload, for one to three disks."""
    rates: dict[str, list[float]] = {}
    for workload in workloads:
        for disks in MEASURED:
            device = mirrored(disks, disk, merge)
            result = simulate(device, workload, REQUESTS, disks, "--block-size", "4KiB")
            rates.setdefault(workload, []).append(round(result["iops"], 2))
    return rates


def table(rates: dict[str, list[float]]) -> str:
    """Return ours beside the paper's, as text."""
    lines = [f"{'disks':<7}{'':<12}" + "".join(f"{name:>14}" for name in WORKLOADS)]
    for index, disks in enumerate(MEASURED):
        rows = {
            "measured": MEASURED[disks],
            "David": MODELLED[disks],
            "Chronodisk": tuple(rates[workload][index] for workload in WORKLOADS),
        }
        lines += [f"{disks:<7}{name:<12}" + "".join(f"{rate:>14.2f}" for rate in row) for name, row in rows.items()]
        errors = [ours / paper - 1 for ours, paper in zip(rows["Chronodisk"], MEASURED[disks], strict=True)]
        lines.append(f"{'':<7}{'error':<12}" + "".join(f"{error:>+13.1%} " for error in errors))
    return "\n".join(lines)


def plot(rates: dict[str, list[float]], member: str) -> Figure:
    """Draw a group of bars for each workload and number of disks."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, len(WORKLOADS), sharey=True)
    for column, (workload, axis) in enumerate(zip(WORKLOADS, axes, strict=True)):
        series: dict[str, list[float]] = {
            "measured": [MEASURED[disks][column] for disks in MEASURED],
            "David": [MODELLED[disks][column] for disks in MODELLED],
            "Chronodisk": rates[workload],
        }
        for number, (name, values) in enumerate(series.items()):
            axis.bar([disks + (number - 1) * 0.27 for disks in MEASURED], values, 0.25, label=name)
        axis.set_title(workload)
        axis.set_xticks(list(MEASURED))
        axis.set_xlabel("disks")
    axes[0].set_ylabel("requests/s")
    axes[0].legend(frameon=False)
    figure.suptitle(f"David, table III: RAID 1 of {member}")
    return figure


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--member", default="hitachi-hds721010kla330", help="profile of the disks")
    arguments = parser.parse_args()
    disk = as_measured(profile_text(arguments.member))
    rates = measure(disk, "none", WORKLOADS)
    merging = measure(disk, "both", WORKLOADS[2:])
    print(table(rates))
    result: dict[str, Any] = {
        "schema": "chronodisk.experiments.david-table3/1",
        "member": arguments.member,
        "requests": REQUESTS,
        "disks": list(MEASURED),
        "iops": {
            "measured": {name: [MEASURED[disks][i] for disks in MEASURED] for i, name in enumerate(WORKLOADS)},
            "david": {name: [MODELLED[disks][i] for disks in MODELLED] for i, name in enumerate(WORKLOADS)},
            "chronodisk": rates,
            "chronodisk_merging": merging,
        },
    }
    keep("david-table3", result)
    keep_plot("david-table3", plot(rates, arguments.member))


if __name__ == "__main__":
    main()
