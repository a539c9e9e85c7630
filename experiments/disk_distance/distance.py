"""Where the distance between a disk's model and the measured drive comes from.

The traces of the drives that DiskSim was validated with are replayed, and what each request took on the drive and in
the model is set side by side, with what the model counted for it: accesses to the medium, cylinders, time of the seek,
rotational latency. Then one cause at a time is taken away, by letting the model know of the drive what it can't know,
and the demerit is taken again:

*cache*: whether a read comes out of the drive's buffer is decided as on the drive. A drive that answers before a seek
could have ended had the data; one that takes a millisecond longer than a hit did not.
*turns*: whole turns that the model waits more or less than the drive.
*seek and overheads*: the median error of what remains, apart for reads and writes and for each seventh of the seek
distances, which is what a better table of seeks or better overheads could correct.

*Coherence* says whether the model knows the phase of the platter: after a read from the medium the heads of both stand
at the end of its data, so if the trace tells the pause well enough, the next read from the medium begins at the same
angle in both. The errors of such reads as angles have a mean vector of length 1 if it does, and of about the inverse
square root of their number if the angle is pure chance. Where it is, no model can do better than another run of
itself: *chance* is the demerit between replays of the model whose pauses are lengthened by up to a turn
at random, and *by chance* the range of their demerits against the drive.

*Variants* change one key of the imported profile, to say what the drive may do otherwise.

The traces are in the folder of reference data, which lies beside the repository in ../shared/reference, or where
CHRONODISK_REFERENCE says.
"""

import argparse
import cmath
import csv
import json
import math
import os
import random
import re
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from common.command import ROOT, CommandFailed, executable, keep, note
from common.simulation import keep_plot

DISKS = Path(os.environ.get("CHRONODISK_REFERENCE", ROOT.parent / "shared" / "reference")) / "disks" / "valid"
DRIVES = ("cheetah9LP", "atlas10k", "hp_c2247a", "hp_c2490a", "dec_rz26", "barracuda", "ibm18es")
REPLAYS = 8
#: Keys of imported profiles, their other values, and what that means.
VARIANTS = {
    "reads free blocks": ("read-free-blocks", "true"),
    "reads no free blocks": ("read-free-blocks", "false"),
    "reads ahead to the end of the track": ("read-ahead-to", '"track-end"'),
    "reads ahead to the end of the track or of the next one": ("read-ahead-to", '"track-end-or-next"'),
    "reads ahead until the segment is full": ("read-ahead-to", '"read-ahead"'),
}


@dataclass
class Served:
    """A request on the drive and in the model, in milliseconds."""

    write: bool
    measured: float
    simulated: float
    accesses: int
    cylinders: int
    seek: float
    rotation: float

    @property
    def error(self) -> float:
        """By how much the model is slower."""
        return self.simulated - self.measured


def run(*arguments: str) -> str:
    """Call the command and return what it prints."""
    call = [str(executable()), *arguments]
    done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(call)} ended with status {done.returncode}:\n{done.stderr}")
    return done.stdout


def replay(profile: Path, trace: Path) -> tuple[dict[str, Any], list[Served]]:
    """Return the comparison of `chronodisk validate`, and the requests."""
    times = profile.with_suffix(".csv")
    options = ["--trace", str(trace), "--per-request", str(times), "--json"]
    result: dict[str, Any] = json.loads(run("validate", "--device", str(profile), *options))
    with times.open() as rows:
        served = [
            Served(
                write=row["operation"] == "write",
                measured=int(row["measured_ns"]) / 1e6,
                simulated=int(row["simulated_ns"]) / 1e6,
                accesses=int(row["accesses"]),
                cylinders=int(row["seek-cylinders"]),
                seek=int(row["seek-nanoseconds"]) / 1e6,
                rotation=int(row["rotation-nanoseconds"]) / 1e6,
            )
            for row in csv.DictReader(rows)
        ]
    return result, served


def demerit(one: list[float], other: list[float]) -> float:
    """Root mean square of the horizontal distance between the distributions of two equally long lists."""
    pairs = zip(sorted(one), sorted(other), strict=True)
    return math.sqrt(statistics.fmean((a - b) ** 2 for a, b in pairs))


def cache_differs(request: Served) -> bool:
    """Whether the drive's buffer had what the model's had not, or the other way round."""
    if request.write:
        return False
    if request.accesses:
        return request.measured < request.simulated - request.rotation - 0.5
    return request.measured > request.simulated + 1


def causes(served: list[Served], turn: float) -> dict[str, Any]:
    """Return the demerits without one cause each, in milliseconds, and how far off the phase is."""
    measured = [request.measured for request in served]

    def without(mended: list[float]) -> float:
        return round(demerit(measured, mended), 4)

    cache = [request.measured if cache_differs(request) else request.simulated for request in served]
    whole = [round(request.error / turn) if request.accesses else 0 for request in served]
    turns = [request.simulated - count * turn for request, count in zip(served, whole, strict=True)]
    rest = [request.error - count * turn for request, count in zip(served, whole, strict=True)]
    at_medium = [index for index, request in enumerate(served) if request.accesses]
    seventh = -(-len(at_medium) // 7)
    seek = [request.simulated for request in served]
    for write in (False, True):
        ordered = sorted((i for i in at_medium if served[i].write == write), key=lambda index: served[index].cylinders)
        for start in range(0, len(ordered), seventh):
            group = ordered[start : start + seventh]
            median = statistics.median(rest[index] for index in group)
            for index in group:
                seek[index] -= median
    return {
        "cache_ms": without(cache),
        "cache_requests": sum(map(cache_differs, served)),
        "turns_ms": without(turns),
        "turns_of_reads": told_turns(request_turns(served, whole, write=False)),
        "turns_of_writes": told_turns(request_turns(served, whole, write=True)),
        "seek_ms": without(seek),
        "coherence": round(coherence(served, turn), 3),
    }


def request_turns(served: list[Served], whole: list[int], *, write: bool) -> list[int]:
    """Return by how many turns the model waits longer for the reads, or the writes, that go to the medium."""
    pairs = zip(served, whole, strict=True)
    return [count for request, count in pairs if request.accesses and request.write == write]


def told_turns(turns: list[int]) -> dict[str, float]:
    """Return the shares of requests that wait longer in the model, and on the drive."""
    return {
        "longer_in_model": round(sum(count > 0 for count in turns) / len(turns), 3),
        "longer_on_drive": round(sum(count < 0 for count in turns) / len(turns), 3),
    }


def coherence(served: list[Served], turn: float) -> float:
    """Return the length of the mean vector of the errors, as angles, of reads from the medium after such reads."""
    reads = [request.accesses > 0 and not request.write for request in served]
    errors = [served[index].error for index in range(1, len(served)) if reads[index] and reads[index - 1]]
    return abs(sum(cmath.exp(2j * math.pi * error / turn) for error in errors) / len(errors))


def imported(drive: str, folder: Path) -> Path:
    """Return the drive's profile, imported."""
    profile = folder / f"{drive}.toml"
    name = drive.lower().replace("_", "-")
    run("devices", "import", str(DISKS / f"{drive}.parv"), "-o", str(profile), "--name", name)
    return profile


def changed(profile: Path, key: str, value: str) -> Path | None:
    """Return a profile with another value of a key; nothing if that is its value."""
    text = profile.read_text()
    found = re.search(rf"(?m)^{key} = (\S+)", text)
    if found is None or found[1] == value:
        return None
    other = profile.with_name(f"{profile.stem}-changed.toml")
    other.write_text(text[: found.start(1)] + value + text[found.end(1) :])
    return other


def with_longer_pauses(drive: str, turn: float, seed: int, folder: Path) -> Path:
    """Return the drive's trace with up to a turn added to each pause."""
    draw = random.Random(f"{drive} {seed}")
    trace = folder / f"{drive}.trace"
    lines = (line.split() for line in (DISKS / trace.name).read_text().splitlines())
    longer = [[*line[:5], f"{float(line[5]) + draw.uniform(0, 1000 * turn):.1f}"] for line in lines if line]
    trace.write_text("".join(" ".join(line) + "\n" for line in longer))
    return trace


def turn_ms(profile: Path) -> float:
    """Return how long a turn takes."""
    found = re.search(r'(?m)^rotation = "([\d.]+)(?:/(\d+))? rpm"', profile.read_text())
    if found is None:
        raise CommandFailed(f"{profile} has no `rotation`")
    return 60_000 * int(found[2] or 1) / float(found[1])


def measure(drive: str, folder: Path) -> dict[str, Any]:
    """Return all figures of a drive."""
    note(drive)
    profile = imported(drive, folder)
    trace = DISKS / f"{drive}.trace"
    result, served = replay(profile, trace)
    turn = turn_ms(profile)
    figures: dict[str, Any] = {
        "measured_mean_ms": round(result["mean_measured_ms"], 3),
        "demerit_ms": round(result["demerit_ms"], 4),
        "correlation": round(result["correlation"], 4),
    }
    figures |= causes(served, turn)
    replays = [replay(profile, with_longer_pauses(drive, turn, seed, folder))[1] for seed in range(1, REPLAYS + 1)]
    runs = [[request.simulated for request in one] for one in replays]
    to_drive = [demerit([request.measured for request in served], run) for run in runs]
    between = [demerit(one, other) for i, one in enumerate(runs) for other in runs[:i]]
    figures["chance_ms"] = round(statistics.fmean(between), 4)
    figures["by_chance_ms"] = [round(min(to_drive), 4), round(max(to_drive), 4)]
    variants = {}
    for name, (key, value) in VARIANTS.items():
        other = changed(profile, key, value)
        if other is not None:
            told, _ = replay(other, trace)
            variants[name] = {
                "demerit_ms": round(told["demerit_ms"], 4),
                "correlation": round(told["correlation"], 4),
            }
    return figures | {"variants": variants}


def table(figures: dict[str, dict[str, Any]]) -> str:
    """Return the figures as text."""
    heads = ("demerit ms", "coherence", "chance", "by chance", "cache", "turns", "seek, overheads")
    lines = [f"{'drive':<12}" + "".join(f"{head:>17}" for head in heads)]
    for drive, row in figures.items():
        low, high = row["by_chance_ms"]
        cells = [
            f"{row['demerit_ms']:.4f}",
            f"{row['coherence']:.3f}",
            f"{row['chance_ms']:.4f}",
            f"{low:.3f} to {high:.3f}",
            f"{row['cache_ms']:.4f}",
            f"{row['turns_ms']:.4f}",
            f"{row['seek_ms']:.4f}",
        ]
        lines.append(f"{drive:<12}" + "".join(f"{cell:>17}" for cell in cells))
    for drive, row in figures.items():
        for name, variant in row["variants"].items():
            demerits = f"{row['demerit_ms']:.4f} -> {variant['demerit_ms']:.4f} ms"
            correlations = f"{row['correlation']:.3f} -> {variant['correlation']:.3f}"
            lines.append(f"{drive:<12}{name:<56}{demerits}, correlation {correlations}")
    return "\n".join(lines)


def plot(figures: dict[str, dict[str, Any]]) -> Figure:
    """Draw the demerits with and without the causes."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.add_subplot()
    keys = {
        "demerit_ms": "as it is",
        "chance_ms": "model against itself, pauses longer by chance",
        "cache_ms": "cache as on the drive",
        "turns_ms": "turns as on the drive",
        "seek_ms": "seeks and overheads corrected",
    }
    width = 0.8 / len(keys)
    for place, (key, name) in enumerate(keys.items()):
        bars = [100 * row[key] / row["measured_mean_ms"] for row in figures.values()]
        axes.bar([index + place * width for index in range(len(bars))], bars, width, label=name)
    axes.set_xticks([index + 0.4 - width / 2 for index in range(len(figures))], list(figures))
    axes.set_ylabel("demerit, % of the measured mean")
    axes.legend(frameon=False, fontsize=8)
    return figure


def main() -> None:
    """Measure every drive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drives", nargs="+", default=DRIVES, metavar="DRIVE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = {drive: measure(drive, Path(folder)) for drive in arguments.drives}
    print(table(figures))
    keep("disk-distance", {"schema": "chronodisk.experiments.disk-distance/1", "drives": figures})
    keep_plot("disk-distance", plot(figures))


if __name__ == "__main__":
    main()
