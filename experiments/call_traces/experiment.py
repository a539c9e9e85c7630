"""Recorded system calls: what recording changes, how true a replay is, and what it foretells of other devices.

Every run is on the exact clock, where computing takes no time: run times are those of the device, and repeat to the
nanosecond. Each program is recorded once, on ext4 on a disk of 1992. Three parts:

* recording: the same run without the recorder, request by request.
* same: the replay on the same device and file system. Requests equal in operation, address and length, as multisets,
  and 4 KiB blocks equal in operation and address; run time; calls with another outcome; a second replay.
* across: the program itself and the replay on other devices and file systems. ARTC (Weiss and others, SOSP 2013) is
  10.6 % off on average in its macrobenchmarks, across platforms. A replay that keeps the recorded times ends when the
  recording ended, whatever the device.
"""

import argparse
import json
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow import parquet

from call_traces.programs import Program, chosen
from common.command import CommandFailed, executable, keep, note

SCHEMA = "chronodisk.experiment.call-traces/1"
SOURCE = ("hp-c2247a", "ext4")
#: Devices and file systems that the recording is replayed on.
TARGETS = [
    ("wd-zn540", "ext4"),
    ("nearline-20tb", "ext4"),
    ("mems-g2", "ext4"),
    ("hp-c2247a", "xfs"),
    ("hp-c2247a", "btrfs"),
]
#: Further file systems and ways to mount them that are recorded and replayed on the same device, by program.
VARIANTS = {"postmark": [("ext4", ["--mount-options", "sync"]), ("ext2", ["--mount-options", "oldalloc"])]}
CAPACITY = "1GB"
START = "1704067200"
BLOCK_SECTORS = 8
ARTC_ERROR_PERCENT = 10.6
#: What the host needed.
HOSTS_COLUMNS = ["model_time_ns", "store_time_ns"]


@dataclass
class Run:
    """A result with the requests in order of arrival."""

    result: dict[str, Any]
    log: list[dict[str, Any]]

    @property
    def seconds(self) -> float:
        """Run time in the guest."""
        time: int = self.result["reps"][0]["run_time_ns"]
        return time / 1e9

    def requests(self) -> Counter[tuple[Any, ...]]:
        """Requests by what they are."""
        return Counter((row["op"], row["lba_sectors"], row["len_sectors"]) for row in self.log)

    def blocks(self) -> Counter[tuple[Any, ...]]:
        """Blocks of 4 KiB that requests touch."""
        blocks: Counter[tuple[Any, ...]] = Counter()
        for row in self.log:
            blocks.update(blocks_of(row["op"], row["lba_sectors"], row["len_sectors"]))
        return blocks

    def mebibytes(self) -> float:
        """What requests transfer."""
        sectors: int = sum(row["len_sectors"] for row in self.log if row["op"] in ("read", "write"))
        return round(sectors / 2048, 3)


def blocks_of(op: str, lba_sectors: int, len_sectors: int) -> list[tuple[str, int]]:
    """Blocks of 4 KiB that a request touches."""
    end = (lba_sectors + len_sectors + BLOCK_SECTORS - 1) // BLOCK_SECTORS
    return [(op, block) for block in range(lba_sectors // BLOCK_SECTORS, end)]


def started(folder: Path, name: str, subcommand: list[str], options: list[str], command: list[str]) -> Run:
    """Run a guest, and read what it leaves."""
    output = folder / name
    words = [str(executable()), *subcommand, "--output", str(output), *options, *command]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(words)} ended with status {done.returncode}:\n{done.stderr}{done.stdout}")
    result = json.loads((output / "result.json").read_text())
    table = parquet.read_table(output / result["reps"][0]["log_file"])
    present = [column for column in HOSTS_COLUMNS if column in table.column_names]
    return Run(result, table.drop_columns(present).to_pylist())


def call(folder: Path, name: str, subcommand: list[str], options: list[str], command: list[str]) -> Run:
    """Run a guest on the exact clock."""
    fixed = ["--clock", "exact", "--cpu", "zero", "--capacity", CAPACITY, "--start-time", START]
    return started(folder, name, subcommand, [*fixed, *options], command)


def where(device: str, file_system: str) -> list[str]:
    """Options that select a device and a file system."""
    return ["--device", device, "--fs", file_system]


def equal_percent(one: Counter[Any], other: Counter[Any]) -> float:
    """Share of both that is in both."""
    whole = max(one.total(), other.total())
    return 100.0 * (one & other).total() / whole if whole else 100.0


def remainder(run: Run, replay: Run) -> dict[str, int]:
    """Requests of the run that the replay does not have, by whether it moves the same blocks with other ones."""
    missing = run.blocks() - replay.blocks()
    found = {"same_blocks_in_other_requests": 0, "other_blocks": 0}
    for request, count in (run.requests() - replay.requests()).items():
        lacks = any(block in missing for block in blocks_of(*request))
        found["other_blocks" if lacks else "same_blocks_in_other_requests"] += count
    return found


def percent_off(measured: float, true: float) -> float:
    """Difference in percent, with its sign."""
    return 100.0 * (measured - true) / true if true else 0.0


def recorded(program: Program, folder: Path, options: list[str], trace: Path) -> tuple[Run, Run]:
    """Run a program without and with the recorder."""
    command = ["--", *program.command(folder)]
    plain = call(folder, "plain", ["run"], options, command)
    return plain, call(folder, "recorded", ["run"], [*options, "--record-calls", str(trace)], command)


def same(program: Program, label: str, options: list[str], folder: Path, trace: Path) -> tuple[dict[str, Any], Run]:
    """What recording changes, and how true the replay on the same device is."""
    note(f"{program.title}, {label}: recording and replay")
    plain, run = recorded(program, folder, options, trace)
    replays = [call(folder, name, ["trace", "replay"], options, [str(trace)]) for name in ("first", "second")]
    replay = replays[0].result["replay"]
    figures = {
        "program": program.name,
        "title": program.title,
        "file_system": label,
        "calls": parquet.read_metadata(trace).num_rows,
        "recording_changes_requests": plain.log != run.log,
        "recording_changes_run_time_ns": round((run.seconds - plain.seconds) * 1e9),
        "requests": len(run.log),
        "requests_replayed": len(replays[0].log),
        "mebibytes": run.mebibytes(),
        "mebibytes_replayed": replays[0].mebibytes(),
        "remainder": remainder(run, replays[0]),
        "requests_equal_percent": round(equal_percent(run.requests(), replays[0].requests()), 2),
        "blocks_equal_percent": round(equal_percent(run.blocks(), replays[0].blocks()), 2),
        "run_time_s": run.seconds,
        "replay_time_s": replays[0].seconds,
        "run_time_off_percent": round(percent_off(replays[0].seconds, run.seconds), 3),
        "replays_differ": replays[0].log != replays[1].log,
        **{name: replay[name] for name in ("calls_made", "skipped", "differed", "tasks")},
    }
    print(json.dumps(figures))
    return figures, run


def across(program: Program, source: Run, folder: Path, trace: Path) -> list[dict[str, Any]]:
    """The program and the replay on other devices and file systems."""
    rows = []
    for device, file_system in TARGETS:
        note(f"{program.title}: {device}, {file_system}")
        options = where(device, file_system)
        name = f"{device}-{file_system}"
        true = call(folder, f"run-{name}", ["run"], options, ["--", *program.command(folder)])
        replay = call(folder, f"replay-{name}", ["trace", "replay"], options, [str(trace)])
        rows.append(
            {
                "program": program.name,
                "device": device,
                "file_system": file_system,
                "run_time_s": true.seconds,
                "replay_time_s": replay.seconds,
                "replay_off_percent": round(percent_off(replay.seconds, true.seconds), 2),
                "recorded_times_off_percent": round(percent_off(source.seconds, true.seconds), 2),
                "requests": len(true.log),
                "requests_replayed": len(replay.log),
                "blocks_equal_percent": round(equal_percent(true.blocks(), replay.blocks()), 2),
                "differed": replay.result["replay"]["differed"],
            }
        )
        print(json.dumps(rows[-1]))
    return rows


def mean_error(rows: list[dict[str, Any]], field: str) -> float:
    """Mean of the absolute differences in percent."""
    return round(sum(abs(row[field]) for row in rows) / len(rows), 2) if rows else 0.0


def main() -> None:
    """Measure all programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="programs, by name")
    parser.add_argument("--no-across", action="store_true", help="leave other devices and file systems out")
    arguments = parser.parse_args()
    on_same: list[dict[str, Any]] = []
    on_others: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for program in chosen(arguments.only, left_out):
        device, file_system = SOURCE
        for other, options in VARIANTS.get(program.name, []):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                variant = [*where(device, other), *options]
                label = f"{other}, {options[-1]}"
                on_same.append(same(program, label, variant, folder, folder / "trace.calls")[0])
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            trace = folder / "trace.calls"
            figures, source = same(program, file_system, where(device, file_system), folder, trace)
            on_same.append(figures)
            if not arguments.no_across:
                on_others += across(program, source, folder, trace)
    result = {
        "schema": SCHEMA,
        "repetitions": "1; runs on this clock repeat to the nanosecond",
        "clock": "exact, --cpu zero",
        "source": {"device": SOURCE[0], "file_system": SOURCE[1], "capacity": CAPACITY},
        "left_out": left_out,
        "same": on_same,
        "across": on_others,
        "pairs": len(on_others),
        "mean_error_percent": mean_error(on_others, "replay_off_percent"),
        "mean_error_with_recorded_times_percent": mean_error(on_others, "recorded_times_off_percent"),
        "artc_mean_error_percent": ARTC_ERROR_PERCENT,
    }
    keep("call-traces", result)


if __name__ == "__main__":
    main()
