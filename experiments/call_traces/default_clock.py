"""The default clock: what recording costs there, and how true a replay is.

On this clock computing takes the time that this host's processor measures, so runs differ by themselves. Three parts:

* recording: pairs of runs without and with `--record-calls`, in alternating order. The median of the pairs' differences
  of run time is what recording costs; the spread of the runs without it says how much of that is chance.
* replay: a recording and its replay on the same device. Requests equal in operation, address and length, as multisets,
  and 4 KiB blocks equal in operation and address.
* chance: the same of two runs of the program itself. Where the run time consists of computing, no replay is closer.

`--only` measures some of the programs, and keeps the figures of the others. Each has the commit, date and load of its
own measurement.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from call_traces.experiment import CAPACITY, START, Run, equal_percent, percent_off, started, where
from call_traces.programs import Program, chosen
from common.command import RESULTS, keep, note, provenance

SCHEMA = "chronodisk.experiment.recording-default-clock/1"
NAME = "call-traces-default-clock"
OPTIONS = ["--capacity", CAPACITY, "--start-time", START]
DEVICE = "hp-c2247a"
#: Programs and how the file system is mounted.
RECORDED: dict[str, list[tuple[str, list[str]]]] = {
    "postmark": [("ext4", []), ("ext4", ["--mount-options", "sync"])],
    "build": [("ext4", [])],
}
REPLAYED: dict[str, list[tuple[str, list[str]]]] = {
    "postmark": [("ext4", []), ("ext4", ["--mount-options", "sync"])],
    "sqlite": [("ext4", [])],
}
PAIRS = 7


def label(file_system: str, options: list[str]) -> str:
    """Name a file system and its options."""
    return ", ".join([file_system, *options[1:]])


def run(program: Program, folder: Path, name: str, options: list[str]) -> Run:
    """Run a program."""
    return started(folder, name, ["run"], [*OPTIONS, *options], ["--", *program.command(folder)])


def interval_of_median(values: list[float]) -> list[float]:
    """Give the interval between two of the values that has the median in at least 95 % of cases.

    Each value is below the median with a probability of a half. With fewer than six values it is the whole range, which
    has the median in fewer cases.
    """
    ordered = sorted(values)
    count, outside, below = len(ordered), 0, 0.0
    while (below := below + math.comb(count, outside) / 2**count) <= 0.025:
        outside += 1
    first = max(outside - 1, 0)
    return [round(ordered[first], 2), round(ordered[count - 1 - first], 2)]


def recording(program: Program, file_system: str, options: list[str], pairs: int) -> dict[str, Any]:
    """Pairs of runs without and with the recorder; every other pair begins with the recorder."""
    plain_s: list[float] = []
    recorded_s: list[float] = []
    for pair in range(pairs):
        for records in (False, True) if pair % 2 == 0 else (True, False):
            with tempfile.TemporaryDirectory() as name:
                more = ["--record-calls", str(Path(name) / "trace")] if records else []
                took = run(program, Path(name), "run", [*where(DEVICE, file_system), *options, *more]).seconds
            (recorded_s if records else plain_s).append(took)
    differences = [percent_off(with_it, without) for without, with_it in zip(plain_s, recorded_s, strict=True)]
    figures = {
        "program": program.name,
        "title": program.title,
        "file_system": label(file_system, options),
        "plain_s": plain_s,
        "recorded_s": recorded_s,
        "differences_percent": [round(value, 2) for value in differences],
        "median_difference_percent": round(statistics.median(differences), 2),
        "median_difference_interval_percent": interval_of_median(differences),
        "difference_of_medians_percent": round(
            percent_off(statistics.median(recorded_s), statistics.median(plain_s)), 2
        ),
        "spread_of_plain_percent": round(100 * (max(plain_s) - min(plain_s)) / statistics.median(plain_s), 2),
        "load": round(os.getloadavg()[0], 1),
    }
    note(f"{program.title}, {figures['file_system']}: {json.dumps(figures)}")
    return figures


def compared(before: Run, after: Run) -> dict[str, float]:
    """How equal two runs are."""
    return {
        "requests_equal_percent": round(equal_percent(before.requests(), after.requests()), 2),
        "blocks_equal_percent": round(equal_percent(before.blocks(), after.blocks()), 2),
        "run_time_off_percent": round(percent_off(after.seconds, before.seconds), 2),
    }


def replay(program: Program, file_system: str, options: list[str], rounds: int) -> dict[str, Any]:
    """Recordings, their replays, and second runs of the program."""
    mount = [*where(DEVICE, file_system), *options]
    rows = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            trace = str(folder / "trace")
            recorded = run(program, folder, "recorded", [*mount, "--record-calls", trace])
            replayed = started(folder, "replayed", ["trace", "replay"], [*OPTIONS, *mount], [trace])
            again = run(program, folder, "again", mount)
        outcome = {key: replayed.result["replay"][key] for key in ("skipped", "differed")}
        rows.append(
            {
                "requests": len(recorded.log),
                "run_time_s": recorded.seconds,
                "replay": compared(recorded, replayed),
                **outcome,
                "chance": compared(recorded, again),
            }
        )
    middle = {
        f"{part}_{key}": statistics.median(row[part][key] for row in rows)
        for part in ("replay", "chance")
        for key in rows[0][part]
    }
    figures = {
        "program": program.name,
        "title": program.title,
        "file_system": label(file_system, options),
        "medians": middle,
        "rounds": rows,
        "load": round(os.getloadavg()[0], 1),
    }
    note(f"{program.title}, {figures['file_system']}: {json.dumps(middle)}")
    return figures


def others(kept: dict[str, Any], part: str, measured: set[str]) -> list[dict[str, Any]]:
    """Give the figures of the programs that are not measured now, with the conditions of their measurement."""
    conditions = {key: kept["provenance"][key] for key in ("commit", "date")}
    return [{**conditions, **row} for row in kept[part] if row["program"] not in measured]


def main() -> None:
    """Measure all programs, or some of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="programs, by name")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"pairs of runs, and rounds (default: {PAIRS})")
    arguments = parser.parse_args()
    left_out: dict[str, str] = {}
    costs, replays = [], []
    programs = list(chosen(arguments.only, left_out))
    kept_in = RESULTS / f"{NAME}.json"
    if arguments.only and kept_in.exists():
        kept, measured = json.loads(kept_in.read_text()), {program.name for program in programs}
        costs, replays = others(kept, "recording", measured), others(kept, "replay", measured)
    for program in programs:
        made = provenance()
        conditions = {key: made[key] for key in ("commit", "date")}
        for file_system, options in RECORDED.get(program.name, []):
            costs.append({**conditions, **recording(program, file_system, options, arguments.pairs)})
        for file_system, options in REPLAYED.get(program.name, []):
            replays.append({**conditions, **replay(program, file_system, options, arguments.pairs)})
    result = {
        "schema": SCHEMA,
        "clock": "guest, --cpu measured",
        "device": DEVICE,
        "repetitions": "as many as each row has pairs or rounds",
        "left_out": left_out,
        "recording": costs,
        "replay": replays,
    }
    keep(NAME, result)


if __name__ == "__main__":
    main()
