"""Figures 1, 8 and 9 of Agrawal et al., "Emulating Goliath Storage Systems with David", ACM TOS 7(4), 2012.

Figure 1: the share of metadata in what is written, against the distribution of files' sizes. Figure 8: space on the
host and difference of the run time against the amount of data. Figure 9: processor time and memory of the emulation by
component, over the time in which a tree of files is written.

A full store larger than this host's memory can't be had, so figure 8's run times are compared as far as
`--compared-gib` says; beyond there are the squashed store's alone.
"""

import argparse
from dataclasses import asdict, dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.command import keep, note
from common.simulation import keep_plot
from david.guest import DEVICE, Run, clock, load, run

FILE_SYSTEM = "ext4"
#: The paper's two extremes of the distribution of the logarithm of a file's size in bytes: mean and deviation.
SMALL_FILES, LARGE_FILES = (7.53, 2.48), (8.33, 3.18)
SQUASH = ("--squash", "--content", "text")
GIB = 1 << 30


@dataclass(frozen=True)
class Share:
    """A point of figure 1."""

    mu: float
    sigma: float
    data_bytes: float
    metadata_bytes: float
    metadata_percent: float


@dataclass(frozen=True)
class Point:
    """A point of figure 8."""

    written_bytes: int
    squashed_bytes: int
    squashed_seconds: float
    squashed_host_seconds: float
    full_bytes: int | None
    full_seconds: float | None
    error_percent: float | None


def metadata_bytes(done: Run) -> float:
    """What is kept of a file system besides its journal."""
    kept = {name: value for name, value in done.statistics.items() if name.startswith("squash-kept-")}
    return sum(value for name, value in kept.items() if "journal" not in name)


def shares(clock_name: str, files: int, steps: int) -> list[Share]:
    """Figure 1: trees of so many files, from one extreme to the other."""
    empty = metadata_bytes(run(clock_name, FILE_SYSTEM, ["true"], "empty", *SQUASH))
    points = []
    for step in range(steps):
        way = step / (steps - 1)
        mu, sigma = (low + (high - low) * way for low, high in zip(SMALL_FILES, LARGE_FILES, strict=True))
        options = ["--files", str(files), "--mu", f"{mu:.4f}", "--sigma", f"{sigma:.4f}"]
        done = run(clock_name, FILE_SYSTEM, load("tree", 1 << 50, *options), "tree", *SQUASH)
        metadata = metadata_bytes(done) - empty
        data = done.statistics["squash-generated [bytes]"]
        points.append(Share(round(mu, 4), round(sigma, 4), data, metadata, 100 * metadata / (metadata + data)))
        note(f"  figure 1: {mu:.2f}, {sigma:.2f}: {done.host_seconds:.0f} s of this host")
    return points


def large(clock_name: str, size: int, *options: str) -> Run:
    """Write files of 1 GiB until there are so many bytes."""
    # Whatever is drawn is beyond the largest size, so that all files have that.
    shape = ["--mu", "60", "--sigma", "0", "--size-max", str(GIB)]
    return run(clock_name, FILE_SYSTEM, load("tree", size, *shape), "tree", *options)


def scale(clock_name: str, sizes_gib: list[int], compared_gib: int) -> list[Point]:
    """Figure 8: space and run time against what is written."""
    points = []
    for gib in sizes_gib:
        squashed = large(clock_name, gib * GIB, *SQUASH)
        full = large(clock_name, gib * GIB) if gib <= compared_gib else None
        seconds, full_seconds = squashed.seconds["tree"], full.seconds["tree"] if full else None
        points.append(
            Point(
                gib * GIB,
                squashed.store_bytes,
                seconds,
                squashed.host_seconds,
                full.store_bytes if full else None,
                full_seconds,
                100 * (seconds / full_seconds - 1) if full_seconds else None,
            )
        )
        note(f"  figure 8: {gib} GiB: {squashed.host_seconds:.0f} s of this host")
    return points


def by_component(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Figure 9: what each component took, one value for each sample."""
    names = samples[0]["components"]
    return {
        "seconds": [round(sample["at_ns"] / 1e9, 3) for sample in samples],
        "cpu_seconds": {
            name: [round(sample["components"][name]["cpu_ns"] / 1e9, 4) for sample in samples] for name in names
        }
        | {"process": [round(sample["process_cpu_ns"] / 1e9, 4) for sample in samples]},
        "memory_mb": {
            name: [round(sample["components"][name]["memory_bytes"] / 1e6, 3) for sample in samples] for name in names
        }
        | {"process": [round(sample["process_memory_bytes"] / 1e6, 3) for sample in samples]},
    }


def plot(shares: list[Share], points: list[Point], used: dict[str, Any]) -> Figure:
    """Draw all of them."""
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    (first, eighth), (cpu, memory) = figure.subplots(2, 2)
    first.plot([share.mu for share in shares], [share.metadata_percent for share in shares], marker="o")
    first.set_xlabel(f"mean of the sizes' logarithm (deviation {SMALL_FILES[1]} to {LARGE_FILES[1]})")
    first.set_ylabel("metadata, %")
    first.set_ylim(bottom=0)
    first.set_title("figure 1", fontsize=10)
    written = [point.written_bytes / 1e9 for point in points]
    eighth.plot(written, written, label="full store")
    eighth.plot(written, [point.squashed_bytes / 1e9 for point in points], marker="o", label="squashed")
    eighth.axhline(10, linestyle=":", color="grey", label="10 GB")
    eighth.set(xscale="log", yscale="log", xlabel="written, GB", ylabel="space, GB")
    eighth.legend(frameon=False)
    eighth.set_title("figure 8", fontsize=10)
    over_time(cpu, memory, used)
    figure.suptitle("David, figures 1, 8 and 9: a disk of 1 TB, squashed")
    return figure


def over_time(cpu: Axes, memory: Axes, used: dict[str, Any]) -> None:
    """Draw figure 9."""
    for name, seconds in used["cpu_seconds"].items():
        cpu.plot(used["seconds"], seconds, label=name)
    for name, megabytes in used["memory_mb"].items():
        # On a scale that has no zero.
        memory.plot(used["seconds"], [max(size, 1e-3) for size in megabytes], label=name)
    cpu.set_ylabel("processor time, s")
    cpu.legend(frameon=False, fontsize=7)
    memory.set_ylabel("memory, MB")
    memory.set_yscale("log")
    for axis in (cpu, memory):
        axis.set_xlabel("time in the guest, s")
        axis.set_title("figure 9", fontsize=10)


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the paper's sizes: 800 GB of data and trees of 10 GB")
    parser.add_argument("--compared-gib", type=int, metavar="GIB", help="up to which run times are compared (2)")
    arguments = parser.parse_args()
    files, steps, tree_gib = (10_000, 8, 10) if arguments.full else (500, 5, 1)
    sizes_gib = [1, 2, 4, 16, 64, 200, 400, 745] if arguments.full else [1, 2, 4, 8]
    clock_name = clock()
    metadata = shares(clock_name, files, steps)
    points = scale(clock_name, sizes_gib, arguments.compared_gib or 2)
    sampled = run(clock_name, FILE_SYSTEM, load("tree", tree_gib * GIB), "tree", *SQUASH, "--sample-every", "1s")
    for share in metadata:
        print(f"mu {share.mu:.2f}, sigma {share.sigma:.2f}: {share.metadata_percent:.3f} % metadata")
    for point in points:
        error = "-" if point.error_percent is None else f"{point.error_percent:+.4f} %"
        space = f"{point.squashed_bytes / 1e6:.1f} MB of {point.written_bytes / 1e6:.1f} MB"
        print(f"{space}, {point.squashed_seconds:.3f} s, difference {error}")
    used = by_component(sampled.samples)
    for name, seconds in used["cpu_seconds"].items():
        print(f"{name}: {seconds[-1]:.3f} s, {used['memory_mb'][name][-1]:.2f} MB at the end")
    result: dict[str, Any] = {
        "schema": "chronodisk.experiments.david-figures/1",
        "device": DEVICE,
        "file_system": FILE_SYSTEM,
        "clock": clock_name,
        "files": files,
        "figure1": [asdict(share) for share in metadata],
        "figure8": [asdict(point) for point in points],
        "figure9": {"tree_bytes": tree_gib * GIB} | used,
    }
    keep("david-figures", result)
    keep_plot("david-figures", plot(metadata, points, used))


if __name__ == "__main__":
    main()
