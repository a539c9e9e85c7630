"""A ZN540 under fio at depths 1 to 64: the measured drive, its model in simulated time, and its model under a guest.

The measured rows are the random reads of 4 KiB of the reference's measured-drives.csv, made with SPDK, which polls the
drive from a program. The simulation is the closed loop with which `chronodisk fit` compares a profile with such rows:
at the row's depth, with the time that the benchmark took between requests. The live run is fio in a guest under the
guest's clock, through Linux's block layer and libaio; so three times are told of it: what the device took, which is to
be that of the simulation wherever the same load reaches it, what fio saw, and how many requests a second the two of
them made. Of this host's CPU time a request through fio and the guest's kernel takes many times what it takes through
SPDK; so the guest has a processor 100 times as fast, unless --cpu-speed says otherwise. With a slower one fewer
requests reach the device at once than fio's depth says; their mean number is told as well.
"""

import argparse
import json
from typing import Any

from matplotlib.figure import Figure

from common.command import CommandFailed, chronodisk, chronodisk_with_output, keep, note
from common.simulation import keep_plot
from ssd_validation.validation import REFERENCE, absolute_mean, percent

SCHEMA = "chronodisk.experiment.ssd-live/1"
PROFILE = "wd-zn540"
SWEEP = "set=zns-a SPDK 4K randread"
#: A zone of the drive, to which the measured reads went.
ZONE = "1077m"
DEEPEST = 64
COLORS = {"measured": "#222222", "simulated": "#4477aa", "live": "#cc3311", "fio": "#ee9944"}


def simulated(requests: int) -> list[dict[str, Any]]:
    """Return the measured points with what the model does in simulated time."""
    data = str(REFERENCE / "ssd" / "measured-drives.csv")
    words = ["--profile", PROFILE, "--data", data, "--only", SWEEP, "--only", f"depth<={DEEPEST}", "--check"]
    result = chronodisk("fit", *words, "--requests", str(requests))
    kept = ("mean_us", "p50_us", "p99_us", "iops")
    return [
        {
            "depth": point["depth"],
            "measured": {figure: point["measured"][figure] for figure in kept},
            "simulated": {figure: point["before"][figure] for figure in kept},
        }
        for point in result["points"]
    ]


def live(depth: int, requests: int, cpu_speed: str) -> dict[str, Any]:
    """Return what device and fio say of a run in a guest."""
    job = ["--name=reads", "--filename=/dev/vda", "--direct=1", "--rw=randread", "--bs=4k", "--ioengine=libaio"]
    job += [f"--iodepth={depth}", f"--size={ZONE}", f"--number_ios={requests}", "--randseed=42"]
    job += ["--percentile_list=50:99", "--output-format=json"]
    guest = ["--device", PROFILE, "--fs", "none", "--clock", "guest", "--memory", "256MiB", "--scheduler", "none"]
    guest += ["--cpu-speed", cpu_speed]
    result, printed = chronodisk_with_output("run", *guest, "--", "fio", *job)
    device = result["reps"][0]["summary"]["service_time_us"]
    told = said_by_fio(printed)
    latency, percentiles = told["clat_ns"], told["clat_ns"]["percentile"]
    return {
        "device": {"mean_us": device["mean"], "p50_us": device["p50"], "p99_us": device["p99"]},
        "fio": {
            "mean_us": latency["mean"] / 1e3,
            "p50_us": percentiles["50.000000"] / 1e3,
            "p99_us": percentiles["99.000000"] / 1e3,
            "iops": told["iops"],
        },
        # By Little's law.
        "mean_in_device": told["iops"] * device["mean"] / 1e6,
    }


def said_by_fio(printed: str) -> Any:
    """Find what fio says of the reads among all that was printed."""
    begin = printed.find("{")
    if begin < 0:
        raise CommandFailed(f"fio printed no JSON:\n{printed}")
    return json.JSONDecoder().raw_decode(printed[begin:])[0]["jobs"][0]["read"]


def errors_of(points: list[dict[str, Any]], modelled: list[dict[str, float]]) -> dict[str, float | None]:
    """Return the mean absolute errors of modelled figures, in per cent."""
    return {
        key: absolute_mean(
            [percent(point["measured"][key], figures[key]) for point, figures in zip(points, modelled, strict=True)]
        )
        for key in ("mean_us", "p99_us")
    }


def table(points: list[dict[str, Any]]) -> str:
    """Lay out the points for a reader."""
    lines = [
        f"{'':>5} {'mean us':^35} {'p99 us':^35} {'requests/s':^17} {'in':>6}",
        f"{'depth':>5}" + f" {'measured':>8} {'model':>8} {'live':>8} {'fio':>8}" * 2 + "  measured      fio device",
    ]
    for point in points:
        cells = f"{point['depth']:>5}"
        for figure in ("mean_us", "p99_us"):
            arms = (point["measured"], point["simulated"], point["live"]["device"], point["live"]["fio"])
            cells += "".join(f" {arm[figure]:>8.1f}" for arm in arms)
        cells += f" {point['measured']['iops']:>8.0f} {point['live']['fio']['iops']:>8.0f}"
        lines.append(cells + f" {point['live']['mean_in_device']:>6.1f}")
    return "\n".join(lines)


def plot(points: list[dict[str, Any]]) -> Figure:
    """Mean and 99th percentile against the depth."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    depths = [point["depth"] for point in points]
    for place, (key, title) in enumerate((("mean_us", "mean"), ("p99_us", "99th percentile")), start=1):
        axes = figure.add_subplot(1, 2, place)
        arms = {
            "measured": ("drive, measured", [point["measured"][key] for point in points], "o"),
            "simulated": ("model, simulated", [point["simulated"][key] for point in points], "-"),
            "live": ("model, live: device", [point["live"]["device"][key] for point in points], "--"),
            "fio": ("model, live: as fio saw it", [point["live"]["fio"][key] for point in points], ":"),
        }
        for arm, (name, values, style) in arms.items():
            axes.plot(depths, values, style, color=COLORS[arm], label=name, markersize=5)
        axes.set(xscale="log", yscale="log", xlabel="depth", ylabel="us", title=f"ZN540, 4 KiB random reads: {title}")
        axes.set_xticks(depths, [str(depth) for depth in depths])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    return figure


def main() -> None:
    """Measure all depths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000, help="requests at each depth")
    parser.add_argument("--cpu-speed", default="100x", help="of the guest, as a multiple of this host's")
    arguments = parser.parse_args()
    points = simulated(arguments.requests)
    for point in points:
        note(f"fio at depth {point['depth']}")
        point["live"] = live(point["depth"], arguments.requests, arguments.cpu_speed)
    print(table(points))
    arms = {
        "simulated": [point["simulated"] for point in points],
        "live": [point["live"]["device"] for point in points],
    }
    errors = {arm: errors_of(points, figures) for arm, figures in arms.items()}
    print(f"absolute errors to the measured drive, per cent: {errors}")
    result = {"schema": SCHEMA, "profile": PROFILE, "requests": arguments.requests}
    result |= {"cpu_speed": arguments.cpu_speed, "points": points}
    keep("ssd-live", result | {"absolute_error_percent": errors})
    keep_plot("ssd-live", plot(points))


if __name__ == "__main__":
    main()
