"""Bad sectors under file systems: files that can be read, and files that a rewrite heals.

Each file system gets 2,048 files of 16 KiB in a first run. In a second run a share of the device's sectors is bad: each
read of one fails until it is written. Every file is read, and those with an error are written in place and read again.
No file may have wrong bytes.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bad_sectors.files import FILES_OF_A_FOLDER, FOLDERS, WHOLE, WRONG
from common.command import RESULTS, CommandFailed, executable, keep, note
from common.plots import save

SCHEMA = "chronodisk.experiment.bad-sectors/1"
NAME = "bad-sectors"
DEVICE = "first-disk"
CAPACITY = "512MiB"
FILES = FOLDERS * FILES_OF_A_FOLDER
#: Variants of file systems: name, file system, options of its mkfs.
VARIANTS = [
    ("ext4", "ext4", ""),
    ("XFS", "xfs", ""),
    ("btrfs", "btrfs", ""),
    ("btrfs, data twice", "btrfs", "-d dup"),
]
#: Shares of bad sectors.
RATES = ["0.00001", "0.0001", "0.001"]
NOT_MOUNTED = 3


def run(store: Path, folder: Path, step: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a step of `files.py` in a guest."""
    program = Path(__file__).with_name("files.py")
    call = [str(executable()), "run", "--device", DEVICE, "--capacity", CAPACITY, "--store", str(store), *words]
    call += ["-o", str(folder), "--", "/usr/bin/python3", str(program), step]
    done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode not in (0, NOT_MOUNTED):
        raise CommandFailed(f"{' '.join(call)} ended with status {done.returncode}:\n{done.stderr}{done.stdout}")
    return done


def look(made: Path, folder: Path, rate: str, seed: int) -> dict[str, Any]:
    """Read the files of a copy of the device that has bad sectors."""
    store = folder / "with-bad-sectors.img"
    shutil.copyfile(made, store)
    words = ["--fs", "existing", "--fault", f"kind=latent,rate={rate}", "--seed", str(seed)]
    done = run(store, folder / f"run-{made.stem}-{rate}-{seed}", "look", words)
    if done.returncode == NOT_MOUNTED:
        return {"seed": seed, "mounted": False}
    found: dict[str, Any] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return {"seed": seed, "mounted": True, **found}


def row(variant: str, rate: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum the runs of a cell up."""
    read: Counter[str] = Counter()
    rewritten: Counter[str] = Counter()
    mounted = [one for one in runs if one["mounted"]]
    for one in mounted:
        read.update(one["read"])
        rewritten.update(one["rewritten"])
    return {
        "variant": variant,
        "rate": float(rate),
        "runs": len(runs),
        "mounted": len(mounted),
        "read": dict(sorted(read.items())),
        "rewritten": dict(sorted(rewritten.items())),
        "unreadable_share": 1 - read[WHOLE] / (FILES * len(mounted)) if mounted else None,
        "wrong": read[WRONG] + rewritten[WRONG],
        "not_writable": sum(one["create"] != WHOLE for one in mounted),
    }


def plot(rows: list[dict[str, Any]]) -> None:
    """Draw the share of unreadable files against the share of bad sectors."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for variant, _, _ in VARIANTS:
        cells = [one for one in rows if one["variant"] == variant and one["mounted"]]
        axes.plot(
            [one["rate"] * 1e6 for one in cells],
            [one["unreadable_share"] * 100 for one in cells],
            marker="o",
            label=variant,
        )
    axes.set_xscale("log")
    axes.set_xlabel("bad sectors of a million")
    axes.set_ylabel("files with an error, %")
    axes.legend()
    save(figure, RESULTS / f"{NAME}.svg")


def main() -> None:
    """Measure all cells and keep them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=10, help="seeds of a cell (default: 10)")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        for number, (variant, file_system, options) in enumerate(VARIANTS):
            made = folder / f"{number}.img"
            words = ["--fs", file_system, *(["--mkfs-options", options] if options else [])]
            run(made, folder / f"made-{number}", "make", words)
            for rate in RATES:
                note(f"{variant}, {rate} of the sectors")
                runs = [look(made, folder, rate, seed) for seed in range(1, arguments.reps + 1)]
                rows.append(row(variant, rate, runs))
                note(f"  {rows[-1]}")
    plot(rows)
    result = {"schema": SCHEMA, "repetitions": arguments.reps, "device": DEVICE, "files": FILES, "rows": rows}
    note(f"result: {keep(NAME, result)}")


if __name__ == "__main__":
    main()
