"""Figures 3 to 8 and table 2 of the SPE paper (Kim et al., 2010): what a faster device does for a program.

The device is that of the paper's table 2, slowed to 46.7 MB/s for the requests of 128 KiB that read-ahead makes, as the
paper's slower drive. `chronodisk whatif` runs the program on it, natively, and predicts for R. `--validate` measures
the same program on the same model at R times the speed. Undisturbed, predicted and measured runs alternate.

- Figure 3: how much the undisturbed run times of a file's read vary. Figure 5: predicted beside measured, R = 1.98.
- Figures 4 and 7: a Debian image that boots in a virtual machine, its bytes on the paper's device and on a disk of
  7,200 rpm: how much the undisturbed boots vary, and predicted beside measured. Each repetition ends with a boot from
  the host's memory, without Chronodisk, which shows how much of the variation is the host's. A repetition takes a
  minute or two, so each is kept when it has ended, and `--merge` measures only those that are missing.
- Figure 6: files of four sizes at R = 1, 2 and 5, beside a plain division by R.
- Figure 8: a web job (files read at random and sent through a socket), with the device's share and the limit. The same
  figure for nginx and siege, on a network with the paper's limit and on one without a limit.
- Table 2: the times of single requests from issue to completion, as the kernel accounts for them, and as a program sees
  them, beside the profile's.
- What the paper has not: a computing thread beside a reader, with freezing and without; synchronous reads of 4 KiB;
  SQLite, each transaction on the disk; several requests in flight on two solid-state drives; programs whose writes the
  kernel's threads write back, with the kernel's throttling of these and without; requests per second
  through `mount`, beside nbdfuse over `serve`; and, without any device, by how much memory that was just read is slower
  after a wait, which no prediction can know.

Each part has a result of its own, and the load average of the host beside each row.
"""

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.command import RESULTS, chronodisk, chronodisk_with_output, keep, note
from spe import boot, web_server
from spe.programs import pieces_per_second

SCHEMA = "chronodisk.experiment.spe/1"
HERE = Path(__file__).parent
PROFILE = HERE / "spe-table-2.toml"
#: Slows the profile's 128 KiB (981 + 335 us) to 46.7 MB/s.
SPEED = "0.4689x"
#: The paper's two drives: 92.6 / 46.7 MB/s.
RATIO = "1.98"
#: Of 7,200 rpm.
DISK = "hitachi-hds728080pla380"
#: Boots, by device: the paper's, at its R, and a disk, whose waits are several times as long.
BOOTS = {
    "figure-4-7": (["--device", DISK], "2,5"),
    "figure-4-7-paper": (["--device", str(PROFILE), "--device-speed", SPEED], RATIO),
}
FIGURES = ("figure-3-5", *BOOTS, "figure-6", "figure-8", "figure-8-server")
PARTS = (*FIGURES, "table-2", "beside", "synchronous", "sqlite", "depths", "write-back", "rate", "cold")
MEGABYTE = 1_000_000
READ = "exec cat /mnt/file > /dev/null"
#: 400 requests of a web server with one worker and its client, over a socket.
WEB = HERE / "web.py"
SERVER = HERE / "web_server.py"
#: The paper's 30 s, less its device's 4.8 s, for 352 MB.
NETWORK = "112mbit"
PROGRAMS = HERE / "programs.py"
SIZES_KIB = (16, 28, 80, 100)
TABLE_2_REPS = 10


def whatif(speedup: str, reps: int, setup: str, command: list[str], *flags: str) -> dict[str, Any]:
    """Predict and measure."""
    device = ["--device", str(PROFILE), "--device-speed", SPEED, "--speedup", speedup]
    return chronodisk("whatif", *device, "--validate", "--reps", str(reps), "--setup", setup, *flags, "--", *command)


def row(result: dict[str, Any], index: int = 0) -> dict[str, Any]:
    """Give what a table has of one R."""
    one = result["results"][index]
    elapsed, predicted, measured = result["elapsed_s"], one["predicted_s"], one["measured_s"]
    kept = (
        "speedup",
        "low_s",
        "high_s",
        "by_request_s",
        "freezes",
        "unpaid_s",
        "interrupted_calls",
        "lost_events",
        "device_busy_s",
    )
    return {
        **{name: one[name] for name in kept},
        "elapsed_s": elapsed,
        "predicted_s": predicted,
        "measured_s": measured,
        "error": one["error"],
        "error_without_request": one["error_without_request"],
        "divided_by_r_s": None if one["speedup"] == "inf" else elapsed["median"] / one["speedup"],
        "load": result["load"],
    }


def variation(values: list[float]) -> float:
    """Give the largest distance from the mean, as a share of it."""
    mean = statistics.fmean(values)
    return max(abs(value - mean) for value in values) / mean


def figure_3_and_5(reps: int, sizes_mb: tuple[int, ...]) -> list[dict[str, Any]]:
    """Read a file from its beginning to its end."""
    rows = []
    for size in sizes_mb:
        note(f"figures 3 and 5: {size} MB")
        result = whatif(RATIO, reps, setup(size), ["sh", "-c", READ])
        one = row(result)
        rows.append({"file_mb": size, "variation": variation(one["elapsed_s"]["values"]), **one})
    return rows


def boots(part: str, reps: int, merge: bool) -> None:
    """Boot a Debian image in a virtual machine, and keep each repetition."""
    name, (device, speedup) = f"spe-{part}", BOOTS[part]
    kept = RESULTS / f"{name}.json"
    image, done = boot.versions(), []
    if merge and kept.exists():
        before = json.loads(kept.read_text())
        if before["image"] != image:
            sys.exit(f"{kept.name} is of another image; measure it anew without --merge")
        done = before["runs"]
        if not all("from_memory_s" in one for one in done):
            sys.exit(f"{kept.name} has no boots from memory; measure it anew without --merge")
    for number in range(len(done) + 1, reps + 1):
        note(f"{part}: boot {number} of {reps}")
        done.append(boot.repetition(device, speedup, number))
        # Of a profile that is a file, its name: the path is this machine's.
        named = [Path(word).name for word in device[1:]]
        result = {"part": part, "device": " ".join(named), "image": image, "rows": boot.rows(done)}
        result["from_memory_s"] = boot.spread([one["from_memory_s"] for one in done])
        keep(name, {"schema": SCHEMA, **result, "repetitions": len(done), "runs": done})


def setup(size_mb: int) -> str:
    """Give the shell command that makes a file of this size."""
    return f"head -c {size_mb * MEGABYTE} /dev/urandom > /mnt/file"


def figure_6(reps: int) -> list[dict[str, Any]]:
    """Read files of four sizes at three speeds."""
    rows = []
    for size in (10, 50, 100, 500):
        note(f"figure 6: {size} MB")
        result = whatif("1,2,5", reps, setup(size), ["sh", "-c", READ])
        rows += [{"file_mb": size, **row(result, index)} for index in range(3)]
    return rows


def figure_8(reps: int) -> list[dict[str, Any]]:
    """Serve files from the device to a client."""
    note("figure 8")
    make = "mkdir /mnt/www; for i in $(seq 400); do head -c 200000 /dev/urandom > /mnt/www/$i; done"
    result = whatif(f"{RATIO},inf", reps, make, ["python3", str(WEB), "/mnt/www"])
    rows = []
    for index in range(2):
        one = result["results"][index]
        validated = one["measured_s"] is not None
        base = row(result, index)
        share = one["device_busy_s"] / one["observed_s"]
        rows.append({**base, "device_share": share, "limit_s": result["limit_s"], "validated": validated})
    return rows


def figure_8_server(reps: int) -> list[dict[str, Any]]:
    """Serve files from the device and from memory by nginx to siege."""
    if missing := [program for program in ("nginx", "siege", "tc", "ip") if shutil.which(program) is None]:
        sys.exit(f"figure 8 needs {', '.join(missing)}; Debian: apt-get install nginx-light siege iproute2")
    rows = []
    script = [sys.executable, str(SERVER), "/mnt/www"]
    for rate_limit in (NETWORK, None):
        note(f"figure 8: nginx, network {rate_limit or 'without a limit'}")
        limited = [] if rate_limit is None else ["--rate", rate_limit]
        result = whatif(RATIO, reps, shlex.join([*script, "--make"]), ["unshare", "--net", *script, *limited])
        one, base = result["results"][0], row(result)
        transferred = (web_server.FROM_DEVICE + web_server.FROM_CACHE) * web_server.FILE_BYTES
        throughput = {
            name: transferred / base[f"{name}_s"]["median"] / 1e6 for name in ("elapsed", "predicted", "measured")
        }
        share = one["device_busy_s"] / one["observed_s"]
        rows.append({"network": rate_limit, **base, "device_share": share, "throughput_mb_per_s": throughput})
    return rows


def table_2() -> list[dict[str, Any]]:
    """Read single requests of the table's sizes from the device as it is in the table."""
    rows = []
    for size, expected in zip(SIZES_KIB, (235, 335, 801, 981), strict=True):
        note(f"table 2: {size} KiB")
        count = 2000
        # Reads completed, and milliseconds that they took from issue to completion, by the kernel's own account.
        stat = "awk '{ print \"STAT\", $1, $4 }' /sys/block/$(basename $CHRONODISK_DEVICE)/stat"
        read = f"dd if=$CHRONODISK_DEVICE of=/dev/null bs={size}k count={count} iflag=direct"
        device = ["--device", str(PROFILE), "--fs", "none"]
        seen: dict[str, list[float]] = {"by_kernel_us": [], "by_program_us": []}
        for _ in range(TABLE_2_REPS):
            output = chronodisk_with_output("mount", *device, "--", "sh", "-c", f"{stat}; {read}; {stat}")[1]
            before, after = (line.split()[1:] for line in output.splitlines() if line.startswith("STAT "))
            seen["by_kernel_us"].append((int(after[1]) - int(before[1])) * 1000 / (int(after[0]) - int(before[0])))
            took = next(line for line in output.splitlines() if " copied, " in line)
            seen["by_program_us"].append(float(took.split(" copied, ")[1].split()[0]) * 1e6 / count)
        medians = {way: statistics.median(values) for way, values in seen.items()}
        rows.append(
            {
                "size_kib": size,
                "paper_us": expected,
                **medians,
                "values": seen,
                "error": medians["by_kernel_us"] / expected - 1,
                "error_by_program": medians["by_program_us"] / expected - 1,
                "load": os.getloadavg()[0],
            }
        )
    return rows


def beside(reps: int) -> list[dict[str, Any]]:
    """Compute beside a reader, which is frozen or only accounted for."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        compiled = str(Path(folder) / "beside")
        subprocess.run(["cc", "-O2", "-pthread", "-o", compiled, str(HERE / "beside.c")], check=True)
        # Python's threads share its lock, too. A kernel that puts both threads on one processor is kept from that by
        # `apart`.
        programs: dict[str, tuple[list[str], list[str], float]] = {
            "C": ([compiled], [], pieces_of(compiled)),
            "C, each thread on a processor of its own": ([compiled], ["apart"], pieces_of(compiled)),
            "Python": ([sys.executable, str(PROGRAMS), "beside"], [], pieces_per_second()),
        }
        for language, (words, more, per_second) in programs.items():
            for speed, latency_ms, reads in (("1x", 1, 1500), ("0.1x", 10, 200)):
                # The reader ends after 1.1 times its requests' time, at R = 2 after 0.6; the other thread computes for
                # 0.8. So it is sooner on the slow device and later on the fast one. Both need little more than one
                # processor: who serves the device needs one, too.
                per_read = round(per_second * latency_ms / 1000 / 10)
                command = [*words, str(reads), str(per_read), str(round(reads * per_read * 8)), *more]
                for suspend in ("auto", "never"):
                    note(f"a computing thread beside a reader, {language}: {latency_ms} ms, --suspend {suspend}")
                    result = raw("constant-1ms", speed, "2", reps, command, "--suspend", suspend)
                    rows.append({"program": language, "latency_ms": latency_ms, "suspend": suspend, **row(result)})
    return rows


def pieces_of(compiled: str) -> float:
    """Ask the compiled program how many pieces it does in a second."""
    return float(subprocess.run([compiled], capture_output=True, text=True, check=True).stdout)


def synchronous(reps: int) -> list[dict[str, Any]]:
    """Read 4 KiB at a time."""
    rows = []
    for speed, latency_us, count in (("12.5x", 80, 10000), ("1x", 1000, 1500), ("0.1x", 10000, 200)):
        note(f"synchronous reads of {latency_us} us")
        script = f"exec dd if=$CHRONODISK_DEVICE of=/dev/null bs=4k count={count} iflag=direct status=none"
        result = raw("constant-1ms", speed, "2", reps, ["sh", "-c", script])
        rows.append({"latency_us": latency_us, "reads": count, **row(result)})
    return rows


def sqlite(reps: int) -> list[dict[str, Any]]:
    """Commit one transaction after the other, on the paper's device and on a disk with longer waits."""
    command = [sys.executable, str(PROGRAMS), "sqlite", "/mnt/database"]
    note("SQLite")
    rows = [{"device": PROFILE.name, **row(whatif(RATIO, reps, "true", [*command, "500"]))}]
    note(f"SQLite on {DISK}")
    # Where the head finds a block is chance: a third as many transactions took from 3.45 to 3.95 s.
    on = ["--device", DISK, "--capacity", "2GB", "--speedup", RATIO, "--validate", "--reps", str(reps)]
    result = chronodisk("whatif", *on, "--", *command, "300")
    return [*rows, {"device": DISK, **row(result)}]


def depths(reps: int) -> list[dict[str, Any]]:
    """Keep several requests in flight on two solid-state drives."""
    # Not libaio: fio waits for ever if a freeze ends its last wait when some of its requests have completed.
    rows = []
    for device in ("wd-zn540", "sd-card-a1"):
        for depth in (4, 32):
            note(f"{device}: depth {depth}")
            count = 40000 if device == "wd-zn540" else 4000
            fio = [
                *("fio", "--name=depth", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring", "--thread"),
                *(f"--iodepth={depth}", f"--io_size={count * 4}k", "--size=256m", "--norandommap"),
                *("--filename=$CHRONODISK_DEVICE", "--output=/dev/null"),
            ]
            result = raw(device, "1x", "2", reps, ["sh", "-c", "exec " + " ".join(fio)])
            rows.append({"device": device, "depth": depth, "requests": count, **row(result)})
    return rows


def write_back(reps: int) -> list[dict[str, Any]]:
    """Leave writing to the kernel's threads, on three file systems and a device of 10 ms."""
    programs = {
        "cp": ("4", "cp -r /usr/include/linux /usr/include/c++ /mnt; sync"),
        "dd": ("2", "dd if=/dev/zero of=/mnt/file bs=1M count=20 conv=fsync status=none"),
    }
    device = ["--device", "constant-10ms", "--capacity", "2GB", "--validate", "--reps", str(reps)]
    unthrottled = "echo 0 > /sys/block/$(basename $CHRONODISK_DEVICE)/queue/wbt_lat_usec"
    rows = []
    for file_system in ("ext4", "xfs", "btrfs"):
        for name, (speedup, command) in programs.items():
            for throttled in (True, False):
                note(f"write-back: {name} on {file_system}, {'' if throttled else 'not '}throttled")
                on = ["--fs", file_system, "--setup", "true" if throttled else unthrottled, "--speedup", speedup]
                result = chronodisk("whatif", *device, *on, "--", "sh", "-c", command)
                about = {"file_system": file_system, "program": name, "throttled": throttled}
                rows.append({**about, "helped_s": result["results"][0]["helped_s"], **row(result)})
    return rows


def rate(reps: int) -> list[dict[str, Any]]:
    """Compare requests per second through `mount` with those through the NBD server, nbdfuse and a loop device."""
    rows = []
    for depth in (1, 32):
        fio = [
            *("fio", "--name=rate", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=libaio", "--thread"),
            *(f"--iodepth={depth}", "--time_based", "--runtime=3", "--size=256m", "--norandommap"),
            *("--output-format=json", "--filename=$CHRONODISK_DEVICE"),
        ]
        script = " ".join(fio)
        beside = (
            "set -e; d=$(mktemp -d); nbdfuse $d $uri & n=$!; "
            "while ! test -s $d/nbd; do sleep 0.05; done; "
            "CHRONODISK_DEVICE=$(losetup --find --show --direct-io=on $d/nbd); "
            f"{script}; losetup --detach $CHRONODISK_DEVICE; fusermount3 -u $d || umount $d; wait $n; rmdir $d"
        )
        pairs: dict[str, list[float]] = {"mount": [], "nbdfuse": []}
        for _ in range(reps):
            note(f"requests per second, depth {depth}")
            with tempfile.TemporaryDirectory() as folder:
                flags = ["--nbd", f"unix:{folder}/socket", "--run", beside]
                outputs = {
                    "mount": chronodisk_with_output("mount", "-d", "null", "--fs", "none", "--", "sh", "-c", script)[1],
                    "nbdfuse": chronodisk_with_output("serve", "-d", "null", *flags)[1],
                }
            for way, output in outputs.items():
                pairs[way].append(iops(output))
        medians = {way: statistics.median(values) for way, values in pairs.items()}
        ratio = medians["mount"] / medians["nbdfuse"]
        rows.append({"depth": depth, "medians": medians, "values": pairs, "ratio": ratio, "load": os.getloadavg()[0]})
    return rows


def cold(reps: int) -> list[dict[str, Any]]:
    """Read memory again at once and after waits: what a program's own computing has to do with its waits."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        compiled = str(Path(folder) / "cold")
        subprocess.run(["cc", "-O2", "-o", compiled, str(HERE / "cold.c")], check=True)
        for kib in (32, 400, 3000):
            note(f"{kib} KiB of memory after a wait")
            for way in ("spin", "sleep"):
                waits: dict[int, list[float]] = {wait: [] for wait in (0, 250, 1000, 4000, 16000)}
                for _ in range(reps):
                    for wait, medians in waits.items():
                        words = [compiled, str(kib), str(wait), way, "50"]
                        output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
                        medians.append(statistics.median(int(line) / 1000 for line in output.split()))
                for wait, medians in waits.items():
                    ratio = statistics.median(medians) / statistics.median(waits[0])
                    figures = {"median_us": statistics.median(medians), "min_us": min(medians), "max_us": max(medians)}
                    row = {"kib": kib, "way": way, "wait_us": wait, **figures, "over_at_once": ratio}
                    rows.append({**row, "load": os.getloadavg()[0]})
    return rows


def iops(output: str) -> float:
    """Find fio's JSON among what was printed."""
    begin = output.index('{\n  "fio version"')
    # Its end is the first brace at the beginning of a line.
    whole = output[begin : output.index("\n}", begin) + 2]
    read: float = json.loads(whole)["jobs"][0]["read"]["iops"]
    return read


def raw(device: str, speed: str, speedup: str, reps: int, command: list[str], *flags: str) -> dict[str, Any]:
    """Predict and measure on a block device without a file system."""
    on = ["--device", device, "--device-speed", speed, "--fs", "none", "--speedup", speedup]
    return chronodisk("whatif", *on, "--validate", "--reps", str(reps), *flags, "--", *command)


def main() -> None:
    """Run the parts and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=10, help="alternating repetitions of each row (10)")
    parser.add_argument("--only", choices=PARTS, action="append", help="only these parts")
    parser.add_argument("--merge", action="store_true", help="figures 4 and 7: keep the repetitions that are there")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000], help="megabytes of figures 3 and 5")
    arguments = parser.parse_args()
    runs: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "figure-3-5": lambda: figure_3_and_5(arguments.reps, tuple(arguments.sizes)),
        "figure-6": lambda: figure_6(arguments.reps),
        "figure-8": lambda: figure_8(arguments.reps),
        "figure-8-server": lambda: figure_8_server(arguments.reps),
        "table-2": table_2,
        "beside": lambda: beside(arguments.reps),
        "synchronous": lambda: synchronous(arguments.reps),
        "sqlite": lambda: sqlite(arguments.reps),
        "depths": lambda: depths(arguments.reps),
        "write-back": lambda: write_back(arguments.reps),
        "rate": lambda: rate(arguments.reps),
        "cold": lambda: cold(arguments.reps),
    }
    for part in arguments.only or PARTS:
        if part in BOOTS:
            boots(part, arguments.reps, arguments.merge)
            continue
        keep(f"spe-{part}", {"schema": SCHEMA, "part": part, "rows": runs[part]()})
        note(f"kept in results/spe-{part}.json")


if __name__ == "__main__":
    main()
