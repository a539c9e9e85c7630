"""Write `docs/measurements.md`: figures of the committed results, each beside its aim and its conditions. Write the
tables of other pages that `common.tables` makes of results.

The page holds nothing that is not in a file of `experiments/results`. `--check` compares instead of writing, and
refuses results that do not say how they were made.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import provenance, tables

RESULTS = Path(__file__).parent.parent / "results"
PAGE = Path(__file__).parent.parent.parent / "docs/measurements.md"

HEAD = """# Measurements

This page is written from the files in `experiments/results` by `make -C experiments measurements`; a check compares it
with them. Each figure stands beside its aim: what a paper published, what a data sheet says, or what the project set
itself. *missed* means that the figure is worse than its aim. Where a result was measured on a busy host, its load says
so: the averages are of 1, 5 and 15 minutes on a host of two processors.

"""

Result = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A row: what was measured, its aim, and whether it holds (`None` where there is no aim)."""

    what: str
    measured: str
    aim: str = ""
    holds: bool | None = None


def percent(share: float) -> str:
    """A share with its sign."""
    return f"{share * 100:+.1f} %"


def within(what: str, share: float, most: float) -> Figure:
    """An error that may be so large in both directions."""
    return Figure(what, percent(share), f"at most ±{most * 100:g} %", abs(share) <= most)


def call_traces(result: Result) -> Iterator[Figure]:
    """Replays of system calls."""
    blocks = min(row["blocks_equal_percent"] for row in result["same"])
    off = max(abs(row["run_time_off_percent"]) for row in result["same"])
    yield Figure(
        f"4 KiB blocks equal, least of {len(result['same'])} programs", f"{blocks:.1f} %", "98 %", blocks >= 98
    )
    yield Figure("run time of the replay on the same device, largest error", f"{off:.2f} %", "2 %, git 3 %", off <= 3)
    mean = result["mean_error_percent"]
    yield Figure(
        f"run time on other devices and file systems, mean error of {result['pairs']} pairs",
        f"{mean:.2f} %",
        f"5 % (ARTC: {result['artc_mean_error_percent']} %)",
        mean <= 5,
    )


def call_traces_default_clock(result: Result) -> Iterator[Figure]:
    """Recording and replay on the default clock."""
    for row in result["recording"]:
        off, spread = row["median_difference_percent"], row["spread_of_plain_percent"]
        low, high = row["median_difference_interval_percent"]
        what = f"{row['title']}, {row['file_system']}: run time with recording (runs without it spread by {spread} %)"
        yield Figure(what, f"{off:+.2f} % ({low:+.1f} to {high:+.1f} %)", "at most ±5 %", abs(off) <= 5)
    for row in result["replay"]:
        title, medians = f"{row['title']}, {row['file_system']}: replay", row["medians"]
        for key, what in [("requests_equal_percent", "equal requests"), ("blocks_equal_percent", "equal 4 KiB blocks")]:
            equal, again = medians[f"replay_{key}"], medians[f"chance_{key}"]
            yield Figure(
                f"{title}, {what} (a second run of the program: {again} %)", f"{equal:.1f} %", "98 %", equal >= 98
            )
        off, again = medians["replay_run_time_off_percent"], medians["chance_run_time_off_percent"]
        what = f"{title}, run time (a second run: {again:+.1f} %)"
        yield Figure(what, f"{off:+.1f} %", "at most ±2 %", abs(off) <= 2)


def host_kernel(result: Result) -> Iterator[Figure]:
    """The guest's file system beside the host's."""

    def judged(percent: float) -> tuple[str, str, bool]:
        return f"{percent:.1f} %", "95 %", percent >= 95

    for row in result["rows"]:
        native, alone = row["two_host_runs_equal_percent"], row["one_processor_equal_percent"]
        what = f"{row['title']}: written blocks equal in a guest and on this host"
        yield Figure(f"{what} (two runs on this host: {native} %)", *judged(row["equal_percent"]))
        yield Figure(f"{what}, where the program has one processor as in the guest", *judged(alone))


def large_replay(result: Result) -> Iterator[Figure]:
    """A replay of many calls."""
    took, made = result["replay_host_s"], result["replay"]
    what = f"{result['records']:,} records of {made['tasks']:,} tasks, time of the replay on the host"
    share = took * 800_000 / result["records"]
    yield Figure(what, f"{took:.1f} s, {share:.1f} s for each 800,000", "30 s for 800,000", share <= 30)
    yield Figure("calls skipped, and with another outcome", f"{made['skipped']} and {made['differed']}", "0 and 0")


def simulation(result: Result) -> Iterator[Figure]:
    """The study of 1994."""
    yield Figure(
        "CPU speed at which throughput saturates, plain and with NVRAM",
        f"{result['saturation_speed']['plain']:g} and {result['saturation_speed']['nonvolatile']:g}",
    )
    for claim, holds in result["holds"].items():
        yield Figure(claim, "yes" if holds else "no", "yes", holds)


def simulation_on_ext4(result: Result) -> Iterator[Figure]:
    """The same on a file system on which no user waits for the disk: the paper has no figures of one."""
    for name, curve in [("disk alone", "plain"), ("with NVRAM", "nonvolatile")]:
        points = [point for point in result["figure_3"][curve] if point["speed"] in (1, 3, 6, 12)]
        speeds, rates = (", ".join(f"{point[key]:.3g}" for point in points) for key in ("speed", "mb_per_s"))
        yield Figure(f"{name}, MB/s at speeds {speeds}", rates)
    yield Figure(
        "largest deviation of a draw, one replay each",
        f"{max((value for row in result['table_1'] for value in row['percent']), key=abs):+.1f} %",
    )


def synchronous(result: Result) -> Iterator[Figure]:
    """Reads of 4 KiB, twice as fast."""
    bounds = {80: 0.05, 1_000: 0.03, 10_000: 0.02}
    for row in result["rows"]:
        latency = row["latency_us"]
        yield within(f"reads of 4 KiB at {latency:,} µs, prediction for R = 2", row["error"], bounds[latency])


def figure_3_5(result: Result) -> Iterator[Figure]:
    """Reads of a file."""
    for row in result["rows"]:
        bound = 0.005 if max(row["load"]) < 3 else 0.05
        yield within(f"read of {row['file_mb']} MB, prediction", row["error"], bound)
        yield Figure("the same, variation", percent(row["variation"]), "1 %", row["variation"] <= 0.01)


def without_requests(row: dict[str, Any]) -> Iterator[Figure]:
    """Say how much of an error is the time without requests, in results that tell."""
    part = row.get("error_without_request")
    if part is not None:
        yield Figure("the same, the part in the time without requests", percent(part))


def lost_observations(result: Result) -> Iterator[Figure]:
    """Count the predictions of `whatif` with lost observations, which it warns of."""
    told = [row["lost_events"] for row in result.get("rows", []) if isinstance(row, dict) and "lost_events" in row]
    if lost := sum(events > 0 for events in told):
        yield Figure("predictions with lost observations", f"{lost} of {len(told)}", "none", False)


def sqlite(result: Result) -> Iterator[Figure]:
    """SQLite with fsync."""
    for row in result["rows"]:
        where = f" on {row['device']}" if "device" in row else ""
        yield within(f"SQLite with fsync{where}, prediction", row["error"], 0.04)
        yield from without_requests(row)


def beside(result: Result) -> Iterator[Figure]:
    """A computation beside a reader."""
    for row in result["rows"]:
        what = (
            f"a computing thread beside a reader at {row['latency_ms']} ms, program in {row.get('program', 'Python')}"
        )
        if row["suspend"] == "auto":
            yield within(what, row["error"], 0.05)
        else:
            yield Figure(f"{what}, never frozen", percent(row["error"]))


def table_2(result: Result) -> Iterator[Figure]:
    """Table 2 of SPE as a profile."""
    for row in result["rows"]:
        size = row["size_kib"]
        yield within(
            f"reads of {size} KiB through `mount`, from issue to completion, against the table", row["error"], 0.05
        )
        yield within("the same with the program's system call and wake-up", row["error_by_program"], 0.05)


def rate(result: Result) -> Iterator[Figure]:
    """Requests per second beside nbdfuse."""
    least = {1: 1.3, 32: 2.0}
    for row in result["rows"]:
        aim = least[row["depth"]]
        yield Figure(
            f"requests per second through `mount` over nbdfuse, depth {row['depth']}",
            f"{row['ratio']:.2f}",
            f"{aim:g}",
            row["ratio"] >= aim,
        )


def figure_4_7(result: Result) -> Iterator[Figure]:
    """A boot of a virtual machine."""
    most = 0.037
    elapsed = result["rows"][0]["elapsed_s"]
    deviation = elapsed["coefficient_of_variation"]
    what = f"boot of {elapsed['median']:.1f} s, coefficient of variation of {result['repetitions']} undisturbed runs"
    # One run has none, so that nothing says how far it can be believed.
    said = "not known" if deviation is None else percent(deviation)
    yield Figure(what, said, f"at most {most * 100:g} %", deviation is not None and deviation <= most)
    # Results before this field had no such boots.
    alone = result.get("from_memory_s", {})
    if (variation := alone.get("coefficient_of_variation")) is not None:
        what = f"the same, {alone['median']:.1f} s from the host's memory, without Chronodisk, in the same minutes"
        yield Figure(what, percent(variation))
    yield Figure("the device's share of its run time", f"{result['rows'][0]['device_share'] * 100:.0f} %")
    for row in result["rows"]:
        measured = row["measured_s"]["median"]
        what = f"boot, R = {row['speedup']:g}, prediction ({measured:.1f} s measured)"
        yield within(what, row["error"], most)
        band = [percent(row[end] / measured - 1) for end in ("low_s", "high_s")]
        yield Figure("the same, the band", f"{band[0]} to {band[1]}")


def figure_6(result: Result) -> Iterator[Figure]:
    """Files of four sizes at three speeds."""
    for row in result["rows"]:
        yield within(f"read of {row['file_mb']} MB, R = {row['speedup']:g}, prediction", row["error"], 0.03)


def memulator(result: Result) -> Iterator[Figure]:
    """A program on several devices, beside the paper's, whose host was another."""
    first = result["rows"][0]["device"]
    for row in result["rows"]:
        paper = row["paper_run_time_s"]
        what = f"{row['device']}: run time (standard deviation {row['standard_deviation_s']:.3f} s)"
        yield Figure(what, f"{row['run_time_s']:.3f} s", f"{paper:.3f} s on the paper's host" if paper else "")
        if "decrease_percent" in row:
            paper_less = row.get("paper_decrease_percent")
            aim = "" if paper_less is None else f"the paper: {paper_less:.1f} %"
            yield Figure(f"the same, less than on {first}", f"{row['decrease_percent']:.1f} %", aim)


def figure_8(result: Result) -> Iterator[Figure]:
    """A web job."""
    for row in result["rows"]:
        if row["validated"]:
            yield within(f"a web job, R = {row['speedup']}, prediction", row["error"], 0.1)
            yield from without_requests(row)
    row = result["rows"][0]
    yield Figure("the device's share of its run time", f"{row['device_share'] * 100:.0f} %")
    limit = row["limit_s"] / row["elapsed_s"]["median"]
    yield Figure("the limit, with a device that takes no time, over the run time", f"{limit:.2f}")


def figure_8_server(result: Result) -> Iterator[Figure]:
    """A web server over a network with and without a limit."""
    for row in result["rows"]:
        network = f"network of {row['network'].removesuffix('mbit')} Mbit/s" if row["network"] else "no limit"
        throughput = row["throughput_mb_per_s"]
        what = f"nginx, {network}, R = {row['speedup']}, prediction"
        # The paper expects its prediction on a network without a limit only.
        yield Figure(what, percent(row["error"])) if row["network"] else within(what, row["error"], 0.1)
        speeds = f"{throughput['elapsed']:.2f}, {throughput['predicted']:.2f}, {throughput['measured']:.2f} MB/s"
        paper = "the paper's 11.73 and 12.69" if row["network"] else ""
        yield Figure("throughput, predicted, and measured on the faster device", speeds, paper)
        share = f"{row['device_share'] * 100:.1f} %"
        yield Figure("the device's share of the run time", share, "the paper's 16.0 %" if row["network"] else "")
        yield from without_requests(row)


def depths(result: Result) -> Iterator[Figure]:
    """Several requests in flight."""
    for row in result["rows"]:
        measured = row["measured_s"]["median"]
        band = [percent(row[end] / measured - 1) for end in ("low_s", "high_s")]
        what = f"{row['device']}, depth {row['depth']}: prediction for R = {row['speedup']:g}, and the band"
        yield Figure(what, f"{percent(row['error'])} ({band[0]} to {band[1]})")


def write_back(result: Result) -> Iterator[Figure]:
    """Programs whose writes the kernel's threads write back."""
    for row in result["rows"]:
        measured = row["measured_s"]["median"]
        band = [percent(row[end] / measured - 1) for end in ("low_s", "high_s")]
        how = "throttled, by time and not by speed" if row["throttled"] else "not throttled"
        where = f"{row['program']} on {row['file_system']}, write-back {how}"
        what = f"{where}: prediction for R = {row['speedup']:g}, and the band"
        took = f"{row['elapsed_s']['median']:.3f} s, {measured:.3f} s on the faster device"
        yield Figure(what, f"{percent(row['error'])} ({band[0]} to {band[1]}); {took}")


def cold(result: Result) -> Iterator[Figure]:
    """Memory that is read again after a wait."""
    ways = {"spin": "spinning", "sleep": "sleeping"}
    for row in result["rows"]:
        if row["wait_us"] in (1000, 4000, 16000):
            what = f"{row['kib']:,} KiB read again after {row['wait_us'] / 1000:g} ms of {ways[row['way']]}"
            yield Figure(f"{what}, over the time at once", f"{row['over_at_once']:.2f}")


def requests_of(row: Result, way: str) -> str:
    """Return the mean of a program's requests."""
    return f"; requests of {row['request_us'][way]:.0f} us"


def reality(result: Result) -> Iterator[Figure]:
    """Programs on a disk and on its model."""
    names = {
        "asleep": "on the disk, processors may sleep",
        "model": "natively on the model",
        "remote": "on a remote model",
        "guest": "in a guest on the model",
    }
    sweeps = [row["sweep"]["times"] for row in result["rows"]]
    fastest_us = min(column["mean_us"][0] for times in sweeps for column in times.values())
    way_us = float(result["remote_lead"].removesuffix("us"))
    is_too_far = way_us > fastest_us
    yield Figure(
        "the way to the remote server and back, beside the disk's fastest requests of 4 KiB",
        f"{way_us:.0f} and {fastest_us:.0f} us",
    )
    for row in result["rows"]:
        disk = row["median_s"]["disk"]
        low, high = (percent(share) for share in row["disk_interval"])
        yield Figure(
            f"{row['program']} on the disk, processors awake, and the 95 % interval of its median",
            f"{disk:.2f} s ({low} to {high}){requests_of(row, 'disk')}",
        )
        for way, name in names.items():
            low, high = (percent(share) for share in row["error_of_pairs_interval"][way])
            shown = f"{percent(row['error'][way])} ({low} to {high})"
            if way in ("asleep", "model"):
                shown += requests_of(row, way)
            # A figure that should not be believed says so.
            if way == "remote" and is_too_far:
                shown += "; the way to the server and back takes longer than the disk"
            yield Figure(f"{row['program']} {name}, against the disk, processors awake", shown)
    if not (slow := result.get("slow_device")):
        return
    for row in slow["rows"]:
        own, (low, high) = row["median_s"]["model"], row["error_of_pairs_interval"]["remote"]
        what = f"{row['program']} (1/{slow['part']}) on a remote {slow['device']}, against the local one of {own:.2f} s"
        yield Figure(what, f"{percent(row['error']['remote'])} ({percent(low)} to {percent(high)})")


def shadow(result: Result) -> Iterator[Figure]:
    """Service times of a disk and of its model."""
    for name, job in result["jobs"].items():
        fidelity = job["fidelity"]
        mean, model = fidelity["mean_measured_ms"], fidelity["mean_simulated_ms"]
        total = job["simulated_total_ns"] / job["measured_total_ns"] - 1
        what = f"{name}: mean of the disk and of the model, demerit, total time"
        shown = f"{mean:.3f} and {model:.3f} ms, {fidelity['demerit_percent']:.0f} %, {percent(total)}"
        yield Figure(what, shown)


def kernel_work(result: Result) -> Iterator[Figure]:
    """CPU time of the guest's kernel."""
    for costs, key in (("calibrated", "check"), ("built-in costs", "built_in")):
        for row in result.get(key, {"loads": []})["loads"]:
            ratio = row["ratio"]
            low, high = (row["guest_cpu_s"][at] / row["native_cpu_s"][0] for at in (1, 2))
            what = f"{row['load']}: CPU time in a guest over native, {costs}"
            shown = f"{ratio:.2f} ({low:.2f} to {high:.2f})"
            if generic := row.get("generic_code"):
                yield Figure(f"{what}; generic code of {generic} in the guest, instructions natively", shown)
            elif other := row.get("other_code"):
                yield Figure(f"{what}; {other}", shown)
            else:
                yield Figure(what, shown, "0.8 to 1.25", 0.8 <= ratio <= 1.25)


def guest_programs(result: Result) -> Iterator[Figure]:
    """Run times of programs in a guest against the host."""
    for costs, key in (("calibrated", "check"), ("built-in costs", "built_in")):
        table = result.get(key, {"programs": []})
        for row in table["programs"]:
            several = table["processors"] > 1
            native = f"run time on {table['processors']} processors" if several else "CPU time"
            low, high = row["error_interval_percent"]
            shown = f"{row['error_percent']:+.1f} % ({low:+.1f} to {high:+.1f} %)"
            if repeated := row["pairs_repeated"]:
                shown += f"; {repeated} pairs repeated"
            most = table["error_max_percent"]
            what = f"{row['program']}: run time in a guest against the native {native}, {costs}"
            yield Figure(what, shown, f"within {most:.0f} %", abs(row["error_percent"]) <= most)


def start_up(result: Result) -> Iterator[Figure]:
    """A command that does nothing."""
    clocks = {
        "guest": ("default clock", 0.3),
        "guest, before": ("default clock, the build before", None),
        "exact": ("exact clock", None),
    }
    for row in result["runs"]:
        clock, most = clocks[row["run"]]
        median = row["median_s"]
        aim, holds = (f"{most:g} s", median <= most) if most else ("", None)
        yield Figure(f"`run` of `true` on ext4, {clock}: median", f"{median:.3f} s", aim, holds)


def integrity(result: Result) -> Iterator[Figure]:
    """Cost of checksums; stores without them show what the measurement is off by."""
    control = [row["ratio"] for row in result["rows"] if row["store"] != "image"]
    direct = [row["ratio"] for row in result["rows"] if row["store"] == "image" and row["sums"] == 1]
    for row in result["rows"]:
        # One sum is too little to be told from the control.
        if row["store"] != "image" or row["sums"] == 1:
            continue
        is_rate = row["figure"] == "iops"
        name = "requests per second" if is_rate else "99th percentile of latency"
        what = f"images, {row['load']}, {row['direction']}: {name} with checksums over without"
        shown = f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
        aim = "at least 0.95" if is_rate else "at most 1.05"
        yield Figure(what, shown, aim, row["ratio"] >= 0.95 if is_rate else row["ratio"] <= 1.05)
    what = f"the same with one sum a block, smallest and largest of {len(direct)} figures"
    yield Figure(what, f"{min(direct):.2f} and {max(direct):.2f}", "", None)
    what = f"the same of stores without checksums, smallest and largest of {len(control)} figures"
    yield Figure(what, f"{min(control):.2f} and {max(control):.2f}", "", None)


def injector(result: Result) -> Iterator[Figure]:
    """What the fault injector found and finds."""
    for name, build in (("now", result["now"]), (result["commit_before"], result["before"])):
        histories = sum(row["histories"] for row in build["stores"])
        broken = sum(row["histories"] for row in build["found"])
        what = f"histories that broke a promise, {name}"
        is_now = name == "now"
        shown = f"{broken:,} of {histories:,}"
        yield Figure(what, shown, "0" if is_now else "", broken == 0 if is_now else None)
    effects: dict[str, int] = {}
    for row in result["now"]["stores"]:
        for kind, count in row["effects"].items():
            effects[kind] = effects.get(kind, 0) + count
    for kind, count in effects.items():
        yield Figure(f"faults that took effect now: {kind}", f"{count:,}")


def attack(result: Result) -> Iterator[Figure]:
    """An emulator server under attack."""
    slowest = max(result["slowest_refusal_s"].values())
    yield Figure("slowest refusal of a hostile call", f"{slowest:.2f} s", "2 s", slowest <= 2)
    ratio = result["p99_ratio_median"]
    rounds = f"p99 of another client during the attack, median ratio of {result['rounds']} rounds"
    yield Figure(rounds, f"{ratio:.2f}", "1.5", ratio <= 1.5)
    if (alone := result.get("p99_ratio_computing_median")) is not None:
        yield Figure("the same while two processes of the lowest priority compute instead", f"{alone:.2f}")


def flash(result: Result) -> Iterator[Figure]:
    """Errors of flash profiles on rows that were left out."""
    best = min(result["structures"], key=lambda structure: float(structure["score"]))
    for row in best["errors"]:
        mean, p99 = row["mean_percent"], row["p99_percent"]
        yield Figure(
            f"left out: {row['name']} ({row['points']} points), mean and p99",
            f"{mean:.1f} % and {p99:.1f} %",
            "4 % and 10 %",
            mean <= 4 and p99 <= 10,
        )


def fast_devices(result: Result) -> Iterator[Figure]:
    """Requests a second in a guest beside the model and native CPU times."""
    for row in result["rows"]:
        low, high = row["bounds_percent"]
        rates = sorted(row["guest_rate"])
        median, aim = statistics.median(rates), row["aim_rate"]
        yield Figure(
            f"{row['device']}, {row['engine']}, depth {row['depth']}: 4 KiB reads a second",
            f"{median:,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f})",
            f"{aim:,.0f}, within {low:+g} and {high:+g} %: {row['off_percent']:+.1f} %",
            row["holds"],
        )


def power_cuts(result: Result) -> Iterator[Figure]:
    """States of a device after power cuts, and how many of them lost what a program had acknowledged."""
    for row in result["rows"]:
        name = f"{row['program']} {row['version']}".strip()
        # A search of some programs keeps the rows of the others.
        older = row["commit"] != result["provenance"]["commit"]
        name += f" (commit {row['commit'][:12]})" if older else ""
        yield Figure(
            f"{name} on {row['file_system']}: failing states of {row['checked']:,}",
            f"{row['failed']:,}",
            f"{'some' if row['loses'] else 'none'}; promised: {row['promise']}",
            row["holds"],
        )
    without_mount = result["without_mount"]
    made = without_mount["checked"] / without_mount["elapsed_s"] * 60
    yield Figure("states checked a minute without a mount", f"{made:,.0f}", "100", made >= 100)
    rates = sorted(row["checked"] / row["elapsed_s"] * 60 for row in result["rows"] if not row["loses"])
    yield Figure(
        "states checked a minute, with two mounts and the file system's checker: median and range of the programs",
        f"{statistics.median(rates):,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f})",
        "20",
        rates[0] >= 20,
    )


def power_cuts_peer(result: Result) -> Iterator[Figure]:
    """States checked a minute, beside a replay of dm-log-writes."""
    for row in result["rows"]:
        checked = [run["checked"] for run in row["runs"]]
        failed = sum(run["failed"] for run in row["runs"])
        yield Figure(
            f"{row['way']}: states checked a minute (states of a repetition, and failing ones)",
            f"{row['states_a_minute']:,.0f} ({min(checked)} to {max(checked)}; {failed})",
        )


def array_failures(result: Result) -> Iterator[Figure]:
    """An array of disks that lacks, rebuilds or waits for one of them."""
    healthy = result["states"][0]
    for row in result["states"]:
        times = sorted(row["run_s"])
        relative = statistics.median(times) / statistics.median(healthy["run_s"])
        yield Figure(
            f"PostMark, {row['state']}: run time, over the healthy array's",
            f"{statistics.median(times):.1f} s ({times[0]:.1f} to {times[-1]:.1f}), {relative:.2f} times",
        )
    reads = result["states"][1]["disk_reads"] / healthy["disk_reads"]
    what = "random reads, degraded: disk reads for one of the array, over the healthy array's"
    yield Figure(what, f"{reads:.3f}", "1.75 within 5 %: 2-2/N of N disks", abs(reads / 1.75 - 1) <= 0.05)
    for row in result["states"][1:]:
        relative = row["read_rate"] / healthy["read_rate"]
        is_degraded = row["state"] == "degraded"
        yield Figure(
            f"random reads at depth 32, {row['state']}: rate over the healthy array's",
            f"{relative:.3f}",
            "0.5 within 10 %, from the number of disk reads" if is_degraded else "",
            abs(relative / 0.5 - 1) <= 0.1 if is_degraded else None,
        )
    for row in result["factors"]:
        times = sorted(row["p99_ms"])
        yield Figure(
            f"random reads at depth 4 in a guest, one member {row['factor']} times as slow: p99",
            f"{statistics.median(times):.1f} ms ({times[0]:.1f} to {times[-1]:.1f})",
        )


def bad_sectors(result: Result) -> Iterator[Figure]:
    """Files of a file system on a disk with bad sectors."""
    for row in result["rows"]:
        name = f"{row['variant']}, {row['rate'] * 1e6:,.0f} bad sectors of a million"
        yield Figure(f"{name}: mounted", f"{row['mounted']} of {row['runs']}")
        if not row["mounted"]:
            continue
        yield Figure(f"{name}: files with an error", f"{row['unreadable_share'] * 100:.2f} %")
        lost = sum(row["rewritten"].values())
        if lost:
            yield Figure(f"{name}: of these, whole after a rewrite", f"{row['rewritten'].get('whole', 0)} of {lost}")
        yield Figure(f"{name}: files with wrong bytes", str(row["wrong"]), "0", row["wrong"] == 0)


def iscsi_rates(result: Result) -> Iterator[Figure]:
    """Rates of the iSCSI target beside tgtd's."""
    for row in result["rows"]:
        ours, theirs = (statistics.median(row["rate"][target]) for target in ("chronodisk", "tgtd"))
        ratios = sorted(row["ratio"])
        yield Figure(
            f"{row['load']}: requests a second, over tgtd's",
            f"{ours:,.0f}, {statistics.median(ratios):.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f})",
            f"tgtd in turns: {theirs:,.0f}",
        )


def ublk_rates(result: Result) -> Iterator[Figure]:
    """Latency of block devices by ublk and by FUSE beside the kernel's null_blk."""
    for row in result["rows"]:
        p50, ratios = statistics.median(row["p50_us"]), sorted(row["times_null_blk"])
        if row["device"] == "null_blk":
            yield Figure(f"depth {row['depth']}: median latency of null_blk", f"{p50:,.0f} µs")
            continue
        yield Figure(
            f"depth {row['depth']}: median latency by {row['device']}, and times null_blk's",
            f"{p50:,.0f} µs, {statistics.median(ratios):.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        )


def iscsi_conformance(result: Result) -> Iterator[Figure]:
    """Outcomes of libiscsi's conformance tests, and the failed ones."""
    for target, row in result["targets"].items():
        failed = [test for test in row["tests"] if test["outcome"] == "failed"]
        total = len(row["tests"])
        yield Figure(
            f"{target}: of {total} tests",
            f"{row['passed']} passed, {len(failed)} failed, {row['skipped']} skipped",
            "none fails" if target == "chronodisk" else "",
            not failed if target == "chronodisk" else None,
        )
        for test in failed:
            yield Figure(f"{target}: {test['test']}", f"failed: `{test['reason']}`")


def ssd_live(result: Result) -> Iterator[Figure]:
    """The measured SSD, simulated and live in a guest."""
    for kind, errors in result["absolute_error_percent"].items():
        yield Figure(
            f"{result['profile']}, {kind}: mean absolute error of mean and p99 at {len(result['points'])} depths",
            f"{errors['mean_us']:.1f} % and {errors['p99_us']:.1f} %",
        )


def drives(result: Result) -> Iterator[Figure]:
    """Demerit figures of drives that were measured in the 1990s, with their parameters as imported."""
    for name, row in result["drives"].items():
        what = f"{name}, parameters as imported: demerit, and its share of the mean"
        yield Figure(what, demerit(row["demerit_ms"], row["measured_mean_ms"]))


def interface_extensions(result: Result) -> Iterator[Figure]:
    """Freeblock scheduling beside Lumb et al. (OSDI 2000), eager writing beside Wang et al. (OSDI 1999)."""
    free, writes = result["freeblock"], result["eager_writing"]
    transactions = [row for rows in free["transactions"].values() for row in rows]
    scans = [*transactions, free["never_idle"], free["never_idle_as_profiled"], free["whole_scan"]]
    equal = sum(row["equal"] for row in scans)
    what = "loads whose requests complete at the same instants with a background scan"
    yield Figure(what, f"{equal} of {len(scans)}", "all", equal == len(scans))
    yield share_of_media("random reads of 4 KiB, never idle", free["never_idle"])
    yield share_of_media("the same, with `read-free-blocks` as profiled", free["never_idle_as_profiled"])
    for row in free["transactions"]["gaps"]:
        what = f"scan of {free['drive']} beside {row['depth']} transactions at a time, {row['iops']:.0f} requests/s"
        yield Figure(what, f"{row['mb_per_s']:.2f} MB/s, {row['share_of_media'] * 100:.1f} % of the media")
    whole = free["whole_scan"]
    if whole["share_of_device"] < 1:
        done = f"{whole['share_of_device'] * 100:.2f} % after {whole['seconds']:.0f} s"
        yield Figure("full scans a day beside 10 transactions at a time", done, "47", False)
    else:
        a_day = 86_400 / whole["seconds"]
        yield Figure("full scans a day beside 10 transactions at a time", f"{a_day:.1f}", "47", a_day >= 47)
    for name, row in writes["drives"].items():
        times = dict(zip(row["used"], row["mean_ms"], strict=True))
        what = f"{name}, 80 % in use: a write of 4 KiB to any place, and in place"
        anywhere, in_place = times[0.8], row["in_place_ms"]
        yield Figure(what, f"{anywhere:.2f} ms, {in_place:.2f} ms", "faster", anywhere < in_place)
        rises = row["mean_ms"] == sorted(row["mean_ms"])
        yield Figure(f"{name}: writes take longer the more is in use", "yes" if rises else "no", "yes", rises)
        best = in_place / row["mean_ms"][0]
        yield Figure(f"{name}, 10 % in use: in place as a multiple", f"{best:.1f}", "up to 10")
    sector = writes["sector"]
    located = (sector["mean_ms"] - sector["free_ms"]) * 1e3
    what = "cheetah-9lp, 80 % in use: time to a free sector beyond a nearly empty disk's"
    yield Figure(what, f"{located:.0f} us", "below 100 us", located < 100)


def share_of_media(what: str, row: Result) -> Figure:
    """A scan's bandwidth beside Lumb et al.'s range."""
    share = row["share_of_media"]
    measured = f"{row['mb_per_s']:.2f} MB/s, {share * 100:.1f} % of the media"
    return Figure(f"scan beside {what}", measured, "20 to 50 %", share >= 0.2)


def demerit(value_ms: float, mean_ms: float) -> str:
    """A demerit figure in both forms."""
    return f"{value_ms:.3f} ms, {value_ms / mean_ms * 100:.1f} %"


def coverage(result: Result) -> Iterator[Figure]:
    """How often intervals contain the true value."""
    for row in result["rows"]:
        share = row["bca"] if row["bca"] is not None else row["percentile"]
        asked = row["N"] == 200 and row["figure"] != "p99" and row["population"] != "lognormal, sigma 2"
        yield Figure(
            f"{row['population']}, N = {row['N']}, {row['figure']}",
            f"{share * 100:.1f} %",
            "90.5 to 97 %" if asked else "",
            0.905 <= share <= 0.97 if asked else None,
        )


def trace_rates(result: Result) -> Iterator[Figure]:
    """Block traces beside generated workloads."""
    ratio = result["rate_of_trace_over_generated"]["median"]
    what = f"{result['requests']:,} requests of a trace over generated ones, per CPU second"
    yield Figure(what, f"{ratio:.2f}", "0.7", ratio >= 0.7)
    growth = result["peak_memory_growth_mib"]["median"]
    yield Figure("peak memory beyond that of a tenth of the requests", f"{growth:.1f} MiB", "32 MiB", growth <= 32)
    for what, spread in result["blkparse_lines_per_cpu_s"].items():
        yield Figure(
            f"{what}: lines per CPU second", f"{spread['median']:,.0f}", "1,000,000", spread["median"] >= 1_000_000
        )


def clusters(result: Result) -> Iterator[Figure]:
    """The Python package and sweeps on clusters."""
    ratio = result["in_process"]["cpu_ratios"]["package"]["median"]
    yield Figure("a million requests from Python over the command, CPU time", f"{ratio:.2f}", "1.1", ratio <= 1.1)
    for way, cost in result["overhead"]["overhead_of_a_cell_ms"].items():
        cell_ms = cost["cpu_s"]["median"]
        yield Figure(f"overhead of a cell, {way}", f"{cell_ms:.1f} ms of CPU time", "5 ms", cell_ms < 5)
    ways = ", ".join(result["sweeps"])
    same = result["same_bytes"]
    yield Figure(f"the same bytes from every way ({ways})", "yes" if same else "no", "yes", same)
    share = result["sweeps"]["dask"]["share_of_cells"]
    what = "four workers of Dask, one of them killed: CPU time of the cells in that of all processes"
    yield Figure(what, f"{share * 100:.1f} %", "90 %", share >= 0.9)
    if "dask as shipped" in result["sweeps"]:
        shipped = result["sweeps"]["dask as shipped"]
        what = "the same with the defaults of Dask, which watches its processes all the time"
        yield Figure(what, f"{shipped['share_of_cells'] * 100:.1f} %", "", None)
        what = "start of a worker of Dask, a constant, which the shares have once: in the place of the killed one"
        yield Figure(what, f"{shipped['start_of_a_worker_cpu_s']:.2f} s of CPU time", "", None)


def first_impressions(result: Result) -> Iterator[Figure]:
    """What a newcomer tries first, and what it gave before."""
    for trial in result["trials"]:
        unit = f" {trial['unit']}" if trial["unit"] else ""
        values = trial["values"]
        shown = (
            f"{trial['median']:.4g}{unit} ({min(values):.4g} to {max(values):.4g}; before: {trial['before']:.4g}{unit})"
        )
        doubts = ", ".join(sorted({doubt["figure"].replace("-", " ") for doubt in trial["doubts"]}))
        doubted = f"; the summary doubts: {doubts}" if doubts else "; the summary doubts nothing"
        aim = f"{trial['reference']:.4g}{unit}, {trial['reference_source']}"
        yield Figure(trial["what"] + doubted, shown, aim)


def devices_check(result: Result) -> Iterator[Figure]:
    """Built-in profiles under plain and mixed loads."""
    checks = result["checks"]
    verdicts = [check["verdict"] for check in checks]
    failed = verdicts.count("failed")
    shown = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(sorted(verdicts)))
    yield Figure(f"`chronodisk devices check` of {len(checks)} profiles", shown, "none fails", failed == 0)
    for check in checks:
        if not check["figures"]:
            continue
        furthest = max(check["figures"], key=lambda figure: abs(float(figure["deviation_percent"])))
        count = len(check["figures"])
        what = f"{check['profile']}: furthest of {count} published figures ({furthest['name']}, {furthest['unit']})"
        measured = f"{furthest['measured']:,g} ({furthest['deviation_percent']:+.1f} %)"
        within = f"{furthest['published']:,g} within {furthest['tolerance_percent']:g} %"
        yield Figure(what, measured, within, all(figure["passes"] for figure in check["figures"]))
    longest, bound = (result["load_columns"].index(column) for column in ("longest_wait_ms", "wait_bound_ms"))
    loads = [load for check in checks for load in check["loads"] if load[longest] is not None]
    waits = [load[longest] / load[bound] for load in loads]
    yield Figure(
        f"longest wait over its bound, largest of {len(waits)} loads", f"{max(waits):.2f}", "1", max(waits) <= 1
    )
    if "wait_columns" in result:
        wait, bound = (result["wait_columns"].index(column) for column in ("wait_ms", "bound_ms"))
        mixed = [row[wait] / row[bound] for check in checks for row in check["waits"]]
        what = f"the same of {len(mixed)} waits beside other requests, flushes and FUA writes among them"
        yield Figure(what, f"{max(mixed):.2f}", "1", max(mixed) <= 1)


def matrix(result: Result) -> Iterator[Figure]:
    """A sweep of devices, file systems and programs."""
    failed, cells = result["failed"], result["combinations"] * result["repetitions"]
    yield Figure(
        f"cells of {result['combinations']} combinations that failed", f"{failed} of {cells}", "0", failed == 0
    )
    for row in result["rows"]:
        program = {"i": "log", "f": "small files", "d": "large file"}[row["cmd"][0]]
        run_time = row["time_s"]
        low, high = run_time.get("bca_95") or (run_time["value"], run_time["value"])
        yield Figure(
            f"{row['device']}, {row['fs']}, {program}: run time", f"{run_time['value']:.4g} s ({low:.4g} to {high:.4g})"
        )


#: Files of results, with the title of their section and what makes rows of them.
SECTIONS: list[tuple[str, str, Callable[[Result], Iterator[Figure]]]] = [
    ("first-impressions", "What a newcomer tries first", first_impressions),
    ("devices-check", "Built-in devices beside what was published of them", devices_check),
    ("matrix", "Five devices, two file systems, three programs", matrix),
    ("call-traces", "System-call traces", call_traces),
    ("call-traces-default-clock", "System-call traces on the default clock", call_traces_default_clock),
    ("host-kernel", "The guest's ext4 beside this host's", host_kernel),
    ("large-replay", "A large trace of system calls", large_replay),
    ("simulation-1994", "The study of 1994: NVRAM and faster processors", simulation),
    ("simulation-1994-ext4", "The study of 1994 on ext4", simulation_on_ext4),
    ("spe-synchronous", "Prediction: synchronous reads", synchronous),
    ("spe-figure-3-5", "Prediction: a file is read (SPE, figures 3 and 5)", figure_3_5),
    (
        "spe-figure-4-7-paper",
        "Prediction: a virtual machine boots from the paper's device (SPE, figures 4 and 7)",
        figure_4_7,
    ),
    ("spe-figure-4-7", "Prediction: a virtual machine boots from a disk of 7,200 rpm", figure_4_7),
    ("spe-figure-6", "Prediction: files of several sizes (SPE, figure 6)", figure_6),
    ("spe-figure-8", "Prediction: a web job (SPE, figure 8)", figure_8),
    ("spe-figure-8-server", "Prediction: a web server (SPE, figure 8)", figure_8_server),
    ("spe-sqlite", "Prediction: SQLite", sqlite),
    ("spe-beside", "Prediction: a computation beside a reader", beside),
    ("spe-cold", "Prediction: the host's own effect of waits on computing, without a device", cold),
    ("spe-depths", "Prediction: several requests in flight", depths),
    ("spe-write-back", "Prediction: writes that the kernel's threads write back", write_back),
    ("reality", "Programs on this machine's disk and on a model of it", reality),
    ("shadow", "Service times of this machine's disk and of a model of it (David, figures 6 and 7)", shadow),
    ("memulator-table5", "Memulator, table 5: zero-latency access", memulator),
    ("memulator-table6", "Memulator, table 6: 15,000 and 30,000 rpm", memulator),
    ("memulator-table7", "Memulator, table 7: disk, MEMS, and a device that takes no time", memulator),
    ("spe-table-2", "SPE, table 2, as a profile", table_2),
    ("spe-rate", "A native device beside nbdfuse", rate),
    ("kernel-work", "Work of the guest's kernel", kernel_work),
    ("kernel-work-generic", "Work of which the guest's kernel has generic code only", kernel_work),
    ("guest-programs", "Programs in a guest", guest_programs),
    ("guest-programs-2", "Programs in a guest with two processors", guest_programs),
    ("start-up", "Start and end of a guest", start_up),
    ("integrity-cost-cached", "Cost of checksums", integrity),
    ("integrity-cost-null", "Cost of checksums, without a volatile cache", integrity),
    ("fault-injector", "Stores on a simulated host that fails", injector),
    ("emulator-attack", "An emulator server under attack", attack),
    ("flash-cross-validation", "A flash drive, on loads that its fit has not seen", flash),
    ("fast-devices", "Fast devices in a guest", fast_devices),
    ("power-cuts", "Programs against power cuts", power_cuts),
    ("power-cuts-peer", "Power cuts beside dm-log-writes", power_cuts_peer),
    ("array-failures", "Arrays under failure", array_failures),
    ("bad-sectors", "File systems on bad sectors", bad_sectors),
    ("iscsi-conformance", "The iSCSI target under libiscsi's conformance tests", iscsi_conformance),
    ("iscsi-rates", "The iSCSI target beside tgtd", iscsi_rates),
    ("ublk-rates", "ublk beside null_blk", ublk_rates),
    ("ssd-live", "A flash drive against its measurements", ssd_live),
    ("interface-extensions", "Background reads in gaps, and writes to any place", interface_extensions),
    ("disk-distance", "Drives against their traces", drives),
    ("trace-rates", "Block traces", trace_rates),
    ("interval-coverage", "How often 95 % intervals contain the true value", coverage),
    ("clusters", "The Python package", clusters),
]


def conditions(result: Result) -> str:
    """Where, when and how it was measured."""
    if provenance.lacking(result):
        return f"{provenance.MARK[:1].upper()}{provenance.MARK[1:]}."
    known = provenance.known(result)
    host = known.get("host", "")
    if isinstance(host, dict):
        host = f"{host['cpu_model']}, {host['cores']} processors, Linux {host['kernel']}"
    load = known.get("load", known.get("load_average", ""))
    if isinstance(load, list):
        load = ", ".join(f"{value:.1f}" for value in load)
    parts = {
        "commit": str(known.get("commit", ""))[:12],
        "date": str(known.get("date", ""))[:10],
        "host": host,
        "load": load,
        "repetitions": known.get("repetitions", known.get("rounds", "")),
        "command": f"`{known['command']}`" if isinstance(known.get("command"), str) else "",
    }
    told = "; ".join(f"{name} {value}" for name, value in parts.items() if value != "")
    return f"{told[:1].upper()}{told[1:]}."


def page() -> str:
    """The whole page."""
    text = HEAD
    for name, title, rows in SECTIONS:
        path = RESULTS / f"{name}.json"
        if not path.exists():
            continue
        result = json.loads(path.read_text())
        text += f"## {title}\n\n`experiments/results/{name}.json`. {conditions(result)}\n\n"
        text += "| figure | measured | aim | |\n|---|---|---|---|\n"
        verdicts = {None: "", True: "met", False: "**missed**"}
        for row in [*rows(result), *lost_observations(result)]:
            text += f"| {row.what} | {row.measured} | {row.aim} | {verdicts[row.holds]} |\n"
        text += "\n"
    return text.rstrip() + "\n"


def main() -> None:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the page with the results, and write nothing")
    arguments = parser.parse_args()
    text = page()
    with_tables = list(tables.pages())
    if not arguments.check:
        for path, whole in [(PAGE, text), *with_tables]:
            path.write_text(whole)
        return
    pages = {**provenance.pages(), str(PAGE.relative_to(tables.ROOT)): text}
    faults = [*provenance.faults(), *provenance.unmarked(pages)]
    if PAGE.read_text() != text:
        faults.append("docs/measurements.md differs from the results; make -C experiments measurements writes it")
    differing = [path.relative_to(tables.ROOT) for path, whole in with_tables if path.read_text() != whole]
    told = "a table differs from its result; make -C experiments measurements writes it"
    faults += [f"{page}: {told}" for page in differing]
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
