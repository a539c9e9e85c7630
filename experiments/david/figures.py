"""Figures 1, 8 and 9 of Agrawal et al., "Emulating Goliath Storage Systems with David", ACM TOS 7(4), 2012.

Figure 1: the share of metadata in what is written, against the distribution of files' sizes. Figure 8: space on the
host and difference of the run time against the amount of data. Figure 9: processor time and memory of the emulation by
component, over the time in which a tree of files is written.

A full store larger than this host's memory can't be had, so figure 8's run times are compared with one in memory as
far as `--compared-gib` says, and beyond that, as far as `--compressed-gib` says, with one that keeps every byte, too,
but compressed; where that ends there are the squashed store's alone. A point that is interrupted (kill -INT of its
`chronodisk run`) counts with what was written by then.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.command import RESULTS, CommandFailed, keep, note
from common.simulation import keep_plot
from david.guest import DEVICE, Run, clock, load, run

FILE_SYSTEM = "ext4"
#: The paper's two extremes of the distribution of the logarithm of a file's size in bytes: mean and deviation.
SMALL_FILES, LARGE_FILES = (7.53, 2.48), (8.33, 3.18)
SQUASH = ("--squash", "--content", "text")
EVERYTHING = ("--squash=exact",)
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
    #: What it was compared with: a store in memory, or one that keeps every byte compressed.
    full_store: str | None
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
    """Write files of 1 GiB, past the guest's caches, until there are so many bytes."""
    # Whatever is drawn is beyond the largest size, so that all files have that.
    shape = ["--mu", "60", "--sigma", "0", "--size-max", str(GIB), "--direct"]
    return run(clock_name, FILE_SYSTEM, load("tree", size, *shape), "tree", *options)


def point(clock_name: str, gib: int, full_store: str | None) -> Point:
    """Figure 8: space and run time where so much is written."""
    squashed = large(clock_name, gib * GIB, *SQUASH)
    if not squashed.written_bytes:
        raise CommandFailed("the guest did not say what it had written")
    options = EVERYTHING if full_store == "compressed" else ()
    full = large(clock_name, squashed.written_bytes, *options) if full_store else None
    seconds, full_seconds = squashed.seconds["tree"], full.seconds["tree"] if full else None
    note(f"  figure 8: {gib} GiB: {squashed.host_seconds:.0f} s of this host")
    return Point(
        squashed.written_bytes,
        squashed.store_bytes,
        seconds,
        squashed.host_seconds,
        full_store,
        full.store_bytes if full else None,
        full_seconds,
        100 * (seconds / full_seconds - 1) if full_seconds else None,
    )


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


def plot(result: dict[str, Any]) -> Figure:
    """Draw all of them."""
    shares, points = result["figure1"], result["figure8"]
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    (first, eighth), (cpu, memory) = figure.subplots(2, 2)
    first.plot([share["mu"] for share in shares], [share["metadata_percent"] for share in shares], marker="o")
    first.set_xlabel(f"mean of the sizes' logarithm (deviation {SMALL_FILES[1]} to {LARGE_FILES[1]})")
    first.set_ylabel("metadata, %")
    first.set_ylim(bottom=0)
    first.set_title("figure 1", fontsize=10)
    written = [at["written_bytes"] / 1e9 for at in points]
    eighth.plot(written, written, label="full store")
    eighth.plot(written, [at["squashed_bytes"] / 1e9 for at in points], marker="o", label="squashed")
    eighth.axhline(10, linestyle=":", color="grey", label="10 GB")
    eighth.set(xscale="log", yscale="log", xlabel="written, GB", ylabel="space, GB")
    eighth.legend(frameon=False)
    eighth.set_title("figure 8", fontsize=10)
    over_time(cpu, memory, result["figure9"])
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


def existing() -> Any:
    """Read the result of an earlier run."""
    return json.loads((RESULTS / "david-figures.json").read_text())


def tell(result: dict[str, Any]) -> None:
    """Print what the figures show."""
    for share in result["figure1"]:
        print(f"mu {share['mu']:.2f}, sigma {share['sigma']:.2f}: {share['metadata_percent']:.3f} % metadata")
    for at in result["figure8"]:
        error = "-" if at["error_percent"] is None else f"{at['error_percent']:+.4f} %"
        space = f"{at['squashed_bytes'] / 1e6:.1f} MB of {at['written_bytes'] / 1e6:.1f} MB"
        print(f"{space}, {at['squashed_seconds']:.3f} s, difference {error}")
    used = result["figure9"]
    for name, seconds in used["cpu_seconds"].items():
        print(f"{name}: {seconds[-1]:.3f} s, {used['memory_mb'][name][-1]:.2f} MB at the end")


def main() -> None:
    """Run all of it, or what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the paper's sizes: 800 GB of data and trees of 10 GB")
    parser.add_argument("--only", choices=["1", "8", "9"], help="this figure; the others stay as they were")
    parser.add_argument("--sizes-gib", type=int, nargs="+", metavar="GIB", help="only figure 8, of these, merged")
    parser.add_argument("--compared-gib", type=int, metavar="GIB", default=2, help="compared with memory (%(default)s)")
    parser.add_argument("--compressed-gib", type=int, metavar="GIB", default=8, help="and compressed (%(default)s)")
    arguments = parser.parse_args()
    files, steps, tree_gib = (10_000, 8, 10) if arguments.full else (500, 5, 1)
    sizes_gib = arguments.sizes_gib or ([1, 2, 4, 16, 64, 200, 400, 745] if arguments.full else [1, 2, 4, 8])
    clock_name = clock()

    def wanted(figure: str) -> bool:
        return figure == arguments.only if arguments.only else figure == "8" or not arguments.sizes_gib

    of_now: dict[str, Any] = {
        "schema": "chronodisk.experiments.david-figures/2",
        "device": DEVICE,
        "file_system": FILE_SYSTEM,
        "clock": clock_name,
    }
    merges = bool(arguments.only or arguments.sizes_gib)
    if merges and any(existing()[name] != value for name, value in of_now.items()):
        parser.error(f"the result that there is has another {' or '.join(of_now)}")
    if wanted("1"):
        of_now |= {"files": files, "figure1": [asdict(share) for share in shares(clock_name, files, steps)]}
    if wanted("8"):
        stores = {"memory": arguments.compared_gib, "compressed": arguments.compressed_gib}
        compared = {gib: next((name for name, most in stores.items() if gib <= most), None) for gib in sizes_gib}
        of_now["figure8"] = [asdict(point(clock_name, gib, full_store)) for gib, full_store in compared.items()]
    if wanted("9"):
        load_tree = load("tree", tree_gib * GIB)
        sampled = run(clock_name, FILE_SYSTEM, load_tree, "tree", *SQUASH, "--sample-every", "1s")
        of_now["figure9"] = {"tree_bytes": tree_gib * GIB} | by_component(sampled.samples)
    # Read now, because another run may have put something there in these hours.
    before = existing() if merges else {}
    result = before | of_now
    if arguments.sizes_gib and wanted("8"):
        of_size = {at["written_bytes"]: at for at in before["figure8"] + of_now["figure8"]}
        result["figure8"] = [at for _, at in sorted(of_size.items())]
    tell(result)
    keep("david-figures", result)
    keep_plot("david-figures", plot(result))


if __name__ == "__main__":
    main()
