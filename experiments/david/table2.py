"""Table II and figure 4 of Agrawal et al., "Emulating Goliath Storage Systems with David", ACM TOS 7(4), 2012.

Table II: each workload runs twice on a disk of 1 TB, on a store that keeps all bytes and on one that keeps metadata.
The table gives what either takes on the host, the run times, and whether the logs of all requests are the same. On the
exact clock, where computing takes no time, they should be to the nanosecond; on the guest clock run times differ by
what this host's CPU took. JFS has no classifier: the guest's kernel flags contents, as in the paper's explicit
notification, and run times include the last synchronisation.

What a workload stores is what it adds to a file system that was just made; for mkfs the paper compares with the whole
disk, and so does this. `tar` does not compress, because made-up contents compress otherwise than those that were
written, so that the archive would have another length.

Figure 4: bytes of which it is not decided yet whether they must be kept, over time, while a file is written; with the
journal read as it is written, and without.
"""

import argparse
import json
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from common.command import RESULTS, keep, note
from common.simulation import keep_plot
from david.guest import DEVICE, MADE_BY_GUEST, Run, clock, load, pair, phases, raw_load, run

#: Each file system, and what makes it on /dev/vda.
FILE_SYSTEMS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "/dev/vda"],
    "ext3": ["mkfs.ext3", "-q", "-F", "/dev/vda"],
    "xfs": ["mkfs.xfs", "-q", "-f", "/dev/vda"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "/dev/vda"],
    "jfs": ["mkfs.jfs", "-q", "/dev/vda"],
}
#: For all but `mkfs`: ext3 has no unwritten inode tables, and mke2fs writing those of 1 TB would take most of the time.
OPTIONS = {"ext3": ["--capacity", "64GiB"]}
POSTMARK = Path(__file__).with_name("postmark.conf")
#: One signature, which nothing here has: as for grep, what counts is that all is read.
SIGNATURE = "Chronodisk.Nothing:0:*:6368726f6e6f6469736b2066696e6473206e6f7468696e67\n"


@dataclass(frozen=True)
class Paper:
    """A line of the paper's table; where it has two file systems, ext3's."""

    full_kb: int | None = None
    david_kb: int | None = None
    full_seconds: float | None = None
    david_seconds: float | None = None
    #: Of its btrfs, with explicit notification.
    notified_error_percent: float | None = None

    @property
    def savings_percent(self) -> float | None:
        """As our own."""
        return None if self.full_kb is None or self.david_kb is None else 100 * (1 - self.david_kb / self.full_kb)

    def error_percent(self, file_system: str) -> float | None:
        """Difference of David's run time, with explicit notification or of ext3."""
        if file_system in ("btrfs", *MADE_BY_GUEST):
            return self.notified_error_percent
        if self.full_seconds is None or self.david_seconds is None:
            return None
        return 100 * (self.david_seconds / self.full_seconds - 1)


PAPER = {
    "mkfs": Paper(976762584, 7900712, 278.66, 281.81),
    "imp": Paper(11224140, 18368, 344.18, 339.42, 0.99),
    "tar": Paper(21144, 628, 257.66, 255.33, 7.8),
    "grep": Paper(None, None, 250.52, 254.40, 2.47),
    "virus-scan": Paper(None, None, 55.60, 47.95, 15.08),
    "find": Paper(None, None, 26.21, 26.60),
    "du": Paper(None, None, 102.69, 101.36),
    "postmark": Paper(204572, 404, 33.23, 29.34, 2.05),
    "webserver": Paper(3854828, 3920, 127.04, 126.94, 0.71),
    "varmail": Paper(7852, 3920, 126.66, 126.27, 0.36),
    "sr": Paper(None, None, 40.32, 44.90),
    "rr": Paper(None, None, 913.10, 935.46),
    "sw": Paper(None, None, 57.28, 58.96),
    # Its line can't be read in our copy.
    "rw": Paper(),
}


@dataclass(frozen=True)
class Sizes:
    """How large the workloads are."""

    tree_bytes: int
    scanned_bytes: int
    mails: int
    pages: int
    requests: int
    file_bytes: int
    unread_file_bytes: int


SMALL = Sizes(
    tree_bytes=256 << 20,
    scanned_bytes=64 << 20,
    mails=300,
    pages=1_000,
    requests=2_000,
    file_bytes=4 << 30,
    unread_file_bytes=1 << 30,
)
#: The files are the paper's; what it does not say (all but `imp` and figure 4) takes it about as long.
FULL = Sizes(
    tree_bytes=10 << 30,
    scanned_bytes=10 << 30,
    mails=5_000,
    pages=20_000,
    requests=100_000,
    file_bytes=24 << 30,
    unread_file_bytes=2 << 30,
)


@dataclass
class Row:
    """A line of the table."""

    file_system: str
    workload: str
    full_bytes: int | None
    squashed_bytes: int | None
    full_seconds: float
    squashed_seconds: float
    requests: int
    logs: str
    paper_savings_percent: float | None
    paper_error_percent: float | None

    @property
    def savings_percent(self) -> float | None:
        """Share of the full store's bytes that the squashed one does not take."""
        if not self.full_bytes or self.squashed_bytes is None:
            return None
        return 100 * (1 - self.squashed_bytes / self.full_bytes)

    @property
    def error_percent(self) -> float:
        """Difference of the run time from the full store's."""
        return 100 * (self.squashed_seconds / self.full_seconds - 1)


def rows_of(file_system: str, runs: tuple[Run, Run], before: tuple[int, int] | None) -> Iterator[Row]:
    """Lines of the table; storage is what was added to `before`, or is left out."""
    full, squashed = runs
    for name, seconds in full.seconds.items():
        paper = PAPER[name]
        yield Row(
            file_system,
            name,
            full.store_bytes - before[0] if before else None,
            squashed.store_bytes - before[1] if before else None,
            seconds,
            squashed.seconds[name],
            full.log.num_rows,
            compare(full.log, squashed.log),
            paper.savings_percent,
            paper.error_percent(file_system),
        )


def compare(full: Any, squashed: Any) -> str:
    """Say whether the requests of two logs are the same, and their instants."""
    if full.equals(squashed):
        return "equal"
    instants = [name for name in full.column_names if name.endswith("_ns")]
    return "times differ" if full.drop_columns(instants).equals(squashed.drop_columns(instants)) else "differ"


def stored(runs: tuple[Run, Run]) -> tuple[int, int]:
    """Bytes that both stores took."""
    return runs[0].store_bytes, runs[1].store_bytes


def with_file_system(clock: str, file_system: str, sizes: Sizes, scan: str | None) -> Iterator[Row]:
    """Measure all workloads that need a file system."""
    for row in rows_of(file_system, pair(clock, file_system, FILE_SYSTEMS[file_system], "mkfs", bare=True), (0, 0)):
        row.full_bytes = DEVICE_BYTES
        yield row
    options = OPTIONS.get(file_system, [])

    def both(command: list[str], name: str) -> tuple[Run, Run]:
        return pair(clock, file_system, command, name, *options)

    empty = stored(both(["true"], "empty"))
    tree = load("tree", sizes.tree_bytes)
    made = both(tree, "imp")
    yield from rows_of(file_system, made, empty)
    commands = {
        "imp": shlex.join(tree),
        "tar": "tar -C /mnt -cf /mnt/tree.tar tree",
        "grep": "grep -r nothing /mnt",
        "find": "find /mnt -name nothing",
        "du": "du -s /mnt",
    }
    for row in rows_of(file_system, both(phases(commands), "tar"), stored(made)):
        if row.workload == "imp":
            continue
        if row.workload != "tar":
            row.full_bytes = row.squashed_bytes = None
        yield row
    if scan:
        scanned = both(phases({"imp": shlex.join(load("tree", sizes.scanned_bytes)), "virus-scan": scan}), "virus scan")
        yield from (row for row in rows_of(file_system, scanned, None) if row.workload == "virus-scan")
    yield from rows_of(file_system, both(["postmark", str(POSTMARK)], "postmark"), empty)
    yield from rows_of(file_system, both(load("webserver", sizes.pages), "webserver"), empty)
    yield from rows_of(file_system, both(load("varmail", sizes.mails), "varmail"), empty)


#: Of the disk, as the paper's table gives it.
DEVICE_BYTES = 976762584 << 10


def raw(clock: str, requests: int) -> Iterator[Row]:
    """Sequential and random reads and writes on the bare device."""
    for name, kind in {"sr": "read", "rr": "randread", "sw": "write", "rw": "randwrite"}.items():
        yield from rows_of("none", pair(clock, "none", raw_load(kind, requests), name), None)


def undecided(
    clock: str, file_system: str, memory: str, size: int, *options: str, dirty_bytes: int | None = None
) -> list[dict[str, float]]:
    """Figure 4: what was undecided over time while a file of so many bytes was written.

    The guest may hold at most `dirty_bytes` in memory that it has not written yet.
    """
    command = load("tree", size, "--mu", "60", "--sigma", "0", "--size-max", str(size))
    if dirty_bytes is not None:
        # The kernel begins to write at half of it, as it does by default.
        limits = [("dirty_bytes", dirty_bytes), ("dirty_background_bytes", dirty_bytes // 2)]
        settings = " && ".join(f"echo {limit} > /proc/sys/vm/{name}" for name, limit in limits)
        command = ["sh", "-c", f"{settings} && exec {shlex.join(command)}"]
    flags = ["--squash", "--unclassified-budget", "64GiB", "--sample-every", "500ms", "--memory", memory, *options]
    flags += OPTIONS.get(file_system, [])
    done = run(clock, file_system, command, "file", *flags)
    note(f"  {file_system}: a file of {size >> 20} MiB: {done.host_seconds:.0f} s of this host")
    return [
        {"seconds": round(sample["at_ns"] / 1e9, 3), "undecided_bytes": sample["undecided_bytes"]}
        for sample in done.samples
    ]


def table(rows: list[Row]) -> str:
    """Return ours beside the paper's, as text."""

    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    head = ("fs", "workload", "full KB", "squash KB", "savings %", "paper")
    lines = [(*head, "full s", "squash s", "error %", "paper", "requests", "logs")]
    for row in rows:
        kilobytes = [None if size is None else size / 1024 for size in (row.full_bytes, row.squashed_bytes)]
        lines.append(
            (
                row.file_system,
                row.workload,
                number(kilobytes[0], ".0f"),
                number(kilobytes[1], ".0f"),
                number(row.savings_percent, ".2f"),
                number(row.paper_savings_percent, ".2f"),
                f"{row.full_seconds:.6f}",
                f"{row.squashed_seconds:.6f}",
                f"{row.error_percent:+.3f}",
                number(row.paper_error_percent, "+.2f"),
                str(row.requests),
                row.logs,
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines)


def plot(rows: list[Row], waits: dict[str, list[dict[str, float]]]) -> Figure:
    """Draw savings by workload, and what was undecided over time."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    saved = [row for row in rows if row.savings_percent is not None]
    names = list(dict.fromkeys(row.workload for row in saved))
    systems = list(dict.fromkeys(row.file_system for row in saved))
    width = 0.8 / max(len(systems), 1)
    for index, system in enumerate(systems):
        mine = {row.workload: row.savings_percent or 0.0 for row in saved if row.file_system == system}
        shift = (index - (len(systems) - 1) / 2) * width
        left.bar([place + shift for place in range(len(names))], [mine[name] for name in names], width, label=system)
    left.set_xticks(range(len(names)), names, rotation=30)
    left.set_ylabel("savings, %")
    left.legend(fontsize=7, loc="lower left")
    for name, points in waits.items():
        seconds = [point["seconds"] for point in points]
        right.plot(seconds, [point["undecided_bytes"] / 1e6 for point in points], label=name)
    right.axhline(240, linestyle=":", color="grey", label="the paper's most, journal read")
    right.set_xlabel("time in the guest, s")
    right.set_ylabel("undecided, MB")
    right.legend(fontsize=7, loc="upper right")
    figure.suptitle("David, table II and figure 4: a disk of 1 TB, squashed")
    return figure


def with_what_is_kept(
    found: dict[str, Any], only: str, rows: list[Row], waits: dict[str, list[dict[str, float]]]
) -> tuple[list[Row], dict[str, list[dict[str, float]]]]:
    """Put a part in its place among the others, of an earlier run in the same circumstances."""
    path = RESULTS / "david-table2.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    if any(kept.get(key) != value for key, value in found.items()):
        note("what is kept was found in other circumstances, and goes")
        return rows, waits
    names = {field.name for field in fields(Row)}
    others = [Row(**{key: value for key, value in row.items() if key in names}) for row in kept["rows"]]
    rows += [row for row in others if row.file_system != only]
    order = [*FILE_SYSTEMS, "none"]
    return sorted(rows, key=lambda row: order.index(row.file_system)), waits or kept["undecided"]


def scanner(folder: Path) -> str | None:
    """Return the command of the virus scan, if there is a scanner here."""
    if shutil.which("clamscan") is None:
        note("no virus scan: clamscan is not installed here (Debian: clamav)")
        return None
    signatures = folder / "nothing.ndb"
    signatures.write_text(SIGNATURE)
    limits = "--max-filesize=2000M --max-scansize=4000M"
    return f"clamscan --quiet --recursive {limits} --database={signatures} /mnt/tree"


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the paper's sizes: 25 GB of this host's memory, and hours")
    parser.add_argument("--only", choices=[*FILE_SYSTEMS, "none", "figure4"], help="one file system, or one part")
    arguments = parser.parse_args()
    sizes, clock_name = FULL if arguments.full else SMALL, clock()
    chosen = [name for name in [*FILE_SYSTEMS, "none", "figure4"] if arguments.only in (None, name)]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        scan = scanner(Path(folder))
        for file_system in chosen:
            if file_system in FILE_SYSTEMS:
                rows += with_file_system(clock_name, file_system, sizes, scan)
    if "none" in chosen:
        rows += raw(clock_name, sizes.requests)
    waits: dict[str, list[dict[str, float]]] = {}
    if "figure4" in chosen:
        waits["ext4, 512 MiB of memory"] = undecided(clock_name, "ext4", "512MiB", sizes.file_bytes)
        # The paper's machine.
        waits["ext3, 2 GiB of memory"] = undecided(clock_name, "ext3", "2GiB", sizes.file_bytes)
        bounded = undecided(clock_name, "ext3", "2GiB", sizes.file_bytes, dirty_bytes=64 << 20)
        waits["the same, at most 64 MiB dirty"] = bounded
        unread = undecided(clock_name, "ext3", "2GiB", sizes.unread_file_bytes, "--debug", "journal=ignored")
        waits["ext3, journal not read"] = unread
    found = {
        "schema": "chronodisk.experiments.david-table2/1",
        "device": DEVICE,
        "clock": clock_name,
        "sizes": asdict(sizes),
    }
    if arguments.only is not None:
        rows, waits = with_what_is_kept(found, arguments.only, rows, waits)
    print(table(rows))
    for name, points in waits.items():
        print(f"undecided at most, {name}: {max(point['undecided_bytes'] for point in points) / 1e6:.1f} MB")
    described = [
        asdict(row) | {"savings_percent": row.savings_percent, "error_percent": row.error_percent} for row in rows
    ]
    keep("david-table2", found | {"rows": described, "undecided": waits})
    keep_plot("david-table2", plot(rows, waits))


if __name__ == "__main__":
    main()
