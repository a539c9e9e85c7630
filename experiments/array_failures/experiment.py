"""Performance under failure: RAID 5 of eight disks, healthy, degraded, rebuilding at three rates, with a slow member.

PostMark runs in a guest on the array model. Random reads of 4 KiB by fio show the array's latencies: in the guest at
depth 4 with a member that is 1 to 16 times as slow, and in a simulation at depth 32 without one of the members.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from common.command import RESULTS, ROOT, CommandFailed, chronodisk, chronodisk_with_output, keep, note
from common.plots import save

SCHEMA = "chronodisk.experiment.array-failures/1"
NAME = "array-failures"
MEMBER = "cheetah-9lp"
MEMBERS = 8
#: The member that is lost or slow.
FAILING = 2
PROFILE = """\
name = "array"
kind = "array"
description = "RAID 5 of eight disks"
source = "experiments/array_failures"
validation = "unvalidated"
level = "raid5"
members = [{members}]
chunk = "64 KiB"
{further}"""
LOST = f"failed = [{FAILING}]\n"
#: Speeds of a rebuild beside other requests, in MB/s.
SPEEDS = [1, 5, 20]
#: The states of the array, and the keys of its profile.
STATES = {
    "healthy": "",
    "degraded": LOST,
    **{
        f"rebuilding at {speed} MB/s": f'{LOST}spares = ["{MEMBER}"]\nsync-speed-min = "{speed} MB/s"\n'
        for speed in SPEEDS
    },
}
FACTORS = [1, 2, 4, 8, 16]
POSTMARK = "set location /mnt\nset number 10000\nset transactions 5000\nset seed 42\nset buffering false\nrun\nquit\n"
CAPACITY = "8GiB"


def array(folder: Path, further: str, factor: int = 1) -> Path:
    """Write the profile of an array, one of whose members is some times as slow as the others."""
    members = [f'"{MEMBER}"'] * MEMBERS
    if factor > 1:
        text = (ROOT / "profiles" / "disk" / f"{MEMBER}.toml").read_text().replace(f'"{MEMBER}"', '"slow"', 1)
        (folder / "slow.toml").write_text(f'{text}\n[[faults]]\nkind = "slow"\nfactor = {factor}\n')
        members[FAILING] = '"slow.toml"'
    profile = folder / "array.toml"
    profile.write_text(PROFILE.format(members=", ".join(members), further=further))
    return profile


def postmark(state: str, seed: int) -> dict[str, Any]:
    """Run PostMark on the array in a state."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "postmark.conf").write_text(POSTMARK)
        options = ["--device", str(array(folder, STATES[state])), "--capacity", CAPACITY, "--memory", "96MiB"]
        command = ["sh", "-c", f"postmark {folder / 'postmark.conf'} >/dev/null && sync"]
        result = chronodisk("run", *options, "--seed", str(seed), "--", *command)
    rep = result["reps"][0]
    rebuilt = rep["model_statistics"].get("rebuilt-bytes", 0)
    return {"run_s": rep["run_time_ns"] / 1e9, "rebuilt_mb_s": rebuilt / 1e6 / (rep["end_ns"] / 1e9)}


def random_reads(further: str, factor: int, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read an array by fio in a guest; give the model's statistics and fio's job."""
    with tempfile.TemporaryDirectory() as name:
        profile = array(Path(name), further, factor)
        options = ["--device", str(profile), "--capacity", CAPACITY, "--fs", "none", "--seed", str(seed)]
        words = ["fio", "--name=reads", "--filename=/dev/vda", "--rw=randread", "--bs=4k", "--direct=1", "--thread"]
        words += ["--ioengine=libaio", "--iodepth=4", "--size=4g", "--number_ios=2000", f"--randseed={seed}"]
        result, printed = chronodisk_with_output("run", *options, "--", *words, "--output-format=json")
    begin = printed.find('{\n  "fio version"')
    if begin < 0:
        raise CommandFailed(f"fio printed no JSON:\n{printed}")
    return result["reps"][0]["model_statistics"], json.JSONDecoder().raw_decode(printed[begin:])[0]["jobs"][0]


def p99_ms(factor: int, seed: int) -> float:
    """Measure the 99th percentile of fio's latencies, with a member that is some times as slow as the others."""
    _, job = random_reads("", factor, seed)
    return float(job["read"]["clat_ns"]["percentile"]["99.000000"] / 1e6)


def disk_reads(state: str) -> float:
    """Count the disks' reads for one of the array."""
    statistics_of_model, job = random_reads(STATES[state], 1, 1)
    reads = sum(statistics_of_model[f"member-{member}-reads"] for member in range(MEMBERS))
    return float(reads / job["read"]["total_ios"])


def read_rate(state: str) -> float:
    """Simulate random reads of the array at depth 32, in requests a second."""
    with tempfile.TemporaryDirectory() as name:
        profile = array(Path(name), STATES[state])
        words = ["--device", str(profile), "--capacity", CAPACITY, "--workload", "random-read", "--block-size", "4KiB"]
        rate: float = chronodisk("simulate", *words, "--depth", "32", "--requests", "20000")["iops"]
    return rate


def plot(states: list[dict[str, Any]], factors: list[dict[str, Any]]) -> None:
    """Draw the run times of PostMark by state, and the percentile against the slow member's factor."""
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = [row["state"] for row in states]
    left.barh(names, [statistics.median(row["run_s"]) for row in states], color="#4477aa")
    left.invert_yaxis()
    left.set_xlabel("run time of PostMark, s")
    right.plot([row["factor"] for row in factors], [statistics.median(row["p99_ms"]) for row in factors], marker="o")
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    right.set_xlabel("slowness of one member of eight")
    right.set_ylabel("p99 of random reads, ms")
    save(figure, RESULTS / f"{NAME}.svg")


def main() -> None:
    """Measure all rows and keep them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5, help="seeds of each figure (default: 5)")
    arguments = parser.parse_args()
    seeds = range(1, arguments.reps + 1)
    states, factors = [], []
    for state in STATES:
        note(f"PostMark, {state}")
        runs = [postmark(state, seed) for seed in seeds]
        row = {"state": state, "run_s": [run["run_s"] for run in runs], "rebuilt_mb_s": runs[0]["rebuilt_mb_s"]}
        states.append(row | {"read_rate": read_rate(state)})
    for row in states[:2]:
        row["disk_reads"] = disk_reads(row["state"])
    for factor in FACTORS:
        note(f"fio, a member {factor} times as slow")
        factors.append({"factor": factor, "p99_ms": [p99_ms(factor, seed) for seed in seeds]})
    plot(states, factors)
    result = {"schema": SCHEMA, "repetitions": arguments.reps, "member": MEMBER, "states": states, "factors": factors}
    note(f"result: {keep(NAME, result)}")


if __name__ == "__main__":
    main()
