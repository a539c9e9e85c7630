"""Tables of figures in the pages of `docs/` and in the notebooks of `experiments/`, from the files in their `results`.

A page has `<!-- table: NAME -->` and `<!-- end of table -->` around each of them. `python -m common.measurements`
writes them with its own page, and its `--check` compares them.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"
ROOT = RESULTS.parent.parent
BLOCK = re.compile(r"<!-- table: (?P<name>[a-z0-9-]+) -->\n\n(?P<table>(?:.*\n)*?)\n<!-- end of table -->")

Result = dict[str, Any]
Row = list[str]


def result(name: str) -> Result:
    """Read a result."""
    read: Result = json.loads((RESULTS / f"{name}.json").read_text())
    return read


def digits(value: float) -> str:
    """Give two digits, or all before the point."""
    if value == 0:
        return "0"
    if abs(value) >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def share(value: float) -> str:
    """Give a share in per cent, and nothing short of all as all."""
    return f"{value:.0f}" if value in (0, 100) else f"{value:.1f}"


def span(values: list[float], show: Callable[[float], str] = digits) -> str:
    """Give the lowest and the highest, or the one that both are."""
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"


DEVICES = {
    "constant-10ms": "10 ms",
    "cheetah-9lp": "cheetah-9lp",
    "cheetah-x15": "cheetah-x15",
    "mems-g2": "mems-g2",
    "constant-1ms": "1 ms",
    "constant-100us": "100 µs",
    "constant-20us": "20 µs",
}


def of_server(server: str, device: str, client: str, workload: str | None = None) -> list[Result]:
    """Rows of the accuracy in real time, over the socket in the file system."""
    wanted = {"server": server, "device": device, "client": client, "place": "local"}
    rows = [row for row in result("real-time")["accuracy"] if wanted.items() <= row.items()]
    return [row for row in rows if workload in (None, row["workload"])]


def real_time_accuracy() -> Iterator[Row]:
    """From the lowest to the highest of six workloads."""
    yield ["device", "client", "mean abs. error, %", "under 2 %, % of requests", "lateness p50, µs", "p99, µs"] + [
        "p99, CPU not stolen",
        "stolen, % of requests",
    ]
    for device, title in DEVICES.items():
        for client in ("spinning", "blocking"):
            rows = of_server("chronodisk", device, client)
            yield [
                title,
                client,
                span([row["mean_absolute_error_percent"] for row in rows]),
                span([row["under_2_percent"] for row in rows], share),
                span([row["lateness_us"]["p50"] for row in rows], "{:.1f}".format),
                span([row["lateness_us"]["p99"] for row in rows]),
                span([row["lateness_unstolen_us"]["p99"] for row in rows]),
                span([row["stolen_requests_percent"] for row in rows], "{:.1f}".format),
            ]


def real_time_summary() -> Iterator[Row]:
    """Errors and lateness of both clients, from the lowest to the highest of six workloads."""
    yield ["device", "error, %: spinning", "blocking", "lateness p99, µs: spinning", "blocking"]
    for device, title in DEVICES.items():
        of_clients = [of_server("chronodisk", device, client) for client in ("spinning", "blocking")]
        errors = [span([row["mean_absolute_error_percent"] for row in rows]) for rows in of_clients]
        tails = [span([row["lateness_us"]["p99"] for row in rows]) for rows in of_clients]
        yield [title, *errors, *tails]


def real_time_peers() -> Iterator[Row]:
    """Mean absolute errors of small random requests, of a spinning and a blocking client."""
    servers = {
        "chronodisk": "Chronodisk",
        "nbdkit, delay filter": "nbdkit's delay filter",
        "QEMU, latency of null-co": "QEMU, latency of its null device",
        "QEMU, throttle filter": "QEMU's throttle filter",
    }
    yield ["device", *servers.values()]
    for device in ("constant-10ms", "constant-1ms", "constant-100us"):
        cells = []
        for server in servers:
            clients = [of_server(server, device, client, "random-small") for client in ("spinning", "blocking")]
            shown = [digits(rows[0]["mean_absolute_error_percent"]) for rows in clients if rows]
            cells.append(", ".join(shown) or "can't")
        yield [DEVICES[device], *cells]


def real_time_bare_loop() -> Iterator[Row]:
    """99th percentiles of lateness beside those of a bare loop."""
    yield ["device", "spinning, ours", "bare", "blocking, ours", "bare"]
    for device in ("constant-10ms", "constant-1ms", "constant-100us"):
        cells = []
        for client in ("spinning", "blocking"):
            ours = of_server("chronodisk", device, client, "random-small")[0]
            bare = of_server("bare loop", device, client, "random-small")[0]
            without = digits(ours["lateness_unstolen_us"]["p99"])
            cells += [f"{digits(ours['lateness_us']['p99'])} ({without})", digits(bare["lateness_us"]["p99"])]
        yield [DEVICES[device], *cells]


def working_set() -> Iterator[Row]:
    """Late requests, and the 99th percentile of lateness."""
    stores = {
        "in memory": "all in memory",
        "overflow": "overflow",
        "overflow, preloaded": "overflow, preloaded",
    }
    yield ["device", *stores.values()]
    rows = result("working-set")["rows"]
    for device in dict.fromkeys(row["device"] for row in rows):
        of_store = {row["store"]: row for row in rows if row["device"] == device}
        cells = [
            f"{of_store[store]['late_percent']:.1f} %, {of_store[store]['lateness_us']['p99']:.0f} µs"
            for store in stores
        ]
        yield [DEVICES[device], *cells]


def ssd_live() -> Iterator[Row]:
    """A drive, its simulation, and the model under a guest."""
    yield ["depth", "mean: drive", "simulated", "live, device", "live, as fio saw it", "p99: drive", "simulated"] + [
        "live, device",
        "requests/s: drive",
        "live",
    ]
    for point in result("ssd-live")["points"]:
        drive, simulated, live = point["measured"], point["simulated"], point["live"]
        means = [drive["mean_us"], simulated["mean_us"], live["device"]["mean_us"], live["fio"]["mean_us"]]
        tails = [drive["p99_us"], simulated["p99_us"], live["device"]["p99_us"]]
        rates = [drive["iops"], live["fio"]["iops"]]
        times = [f"{value:.1f}" for value in means + tails]
        yield [str(point["depth"]), *times, *(f"{value:,.0f}" for value in rates)]


def ssd_programs() -> Iterator[Row]:
    """Run times with their deviation, and mean service times."""
    titles = {
        "intel-p4800x": "Optane P4800X",
        "wd-zn540": "Ultrastar ZN540",
        "samsung-970-pro": "970 PRO",
        "nearline-20tb": "20 TB disk",
        "null": "no device time",
    }
    programs = result("ssd-programs")["programs"]
    names = {"postmark": "PostMark", "sqlite": "SQLite"}
    yield ["device", *(names.get(program["name"], program["name"]) for program in programs)]
    for device, title in titles.items():
        cells = []
        for program in programs:
            row = next(row for row in program["rows"] if row["device"] == device)
            time = f"{row['mean_s']:.3g} ± {row['deviation_s']:.2g}"
            cells.append(time if device == "null" else f"{time} ({digits(row['mean_service_us'] / 1e3)} ms)")
        yield [title, *cells]


def david_table2() -> Iterator[Row]:
    """Savings and effects on timing."""
    yield ["", "workload", "full, MB", "squashed, MB", "savings, %", "paper's", "run time, s", "difference, %"] + [
        "paper's",
        "requests",
        "logs",
    ]

    def given(value: float | None, shape: str) -> str:
        return "" if value is None else format(value, shape)

    for row in result("david-table2")["rows"]:
        sizes = [None if row[key] is None else row[key] / 1e6 for key in ("full_bytes", "squashed_bytes")]
        difference = row["error_percent"]
        yield [
            row["file_system"],
            row["workload"],
            *(given(size, ",.1f") for size in sizes),
            given(row["savings_percent"], ".2f"),
            given(row["paper_savings_percent"], ".2f"),
            f"{row['full_seconds']:.3f}",
            "0" if difference == 0 else f"{difference:+.1f}",
            given(row["paper_error_percent"], "+.2f"),
            f"{row['requests']:,}",
            row["logs"],
        ]


def call_traces_same() -> Iterator[Row]:
    """Replays on the device and file system of the recording."""
    yield [
        "program",
        "file system",
        "calls",
        "tasks",
        "requests",
        "equal requests",
        "equal 4 KiB blocks",
        "run time",
    ] + ["replay's error"]
    for row in result("call-traces")["same"]:
        counts = [row[key] for key in ("calls", "tasks", "requests")]
        yield [
            row["title"],
            row["file_system"],
            *(f"{count:,}" for count in counts),
            f"{row['requests_equal_percent']:.1f} %",
            f"{row['blocks_equal_percent']:.2f} %",
            f"{row['run_time_s']:.3f} s",
            f"{row['run_time_off_percent'] + 0:.3f} %",
        ]


def call_traces_across() -> Iterator[Row]:
    """Errors of replays on other devices and file systems, in per cent."""
    traces = result("call-traces")
    titles = {row["program"]: row["title"] for row in traces["same"]}
    places = list(dict.fromkeys((row["device"], row["file_system"]) for row in traces["across"]))
    yield ["program", *(f"{device}, {file_system}" for device, file_system in places)]
    for program in dict.fromkeys(row["program"] for row in traces["across"]):
        errors = {
            (row["device"], row["file_system"]): row["replay_off_percent"]
            for row in traces["across"]
            if row["program"] == program
        }
        yield [titles[program], *(f"{errors[place] + 0:.2f}" if place in errors else "" for place in places)]


def recording_default_clock() -> Iterator[Row]:
    """What recording costs on the default clock."""
    yield ["program", "file system", "pairs", "run time without", "with recording, median of differences"] + [
        "interval of the median",
        "spread of runs without",
    ]
    for row in result("call-traces-default-clock")["recording"]:
        plain = sorted(row["plain_s"])
        yield [row["title"], row["file_system"], str(len(plain)), f"{plain[len(plain) // 2]:.3f} s"] + [
            f"{row['median_difference_percent']:+.1f} %",
            "{:+.1f} to {:+.1f} %".format(*row["median_difference_interval_percent"]),
            f"{row['spread_of_plain_percent']:.1f} %",
        ]


def replays_default_clock() -> Iterator[Row]:
    """Replays on the default clock, beside a second run of the program."""
    yield ["program", "file system", "equal requests", "equal 4 KiB blocks", "run time"] + [
        "a second run: equal requests",
        "equal blocks",
        "run time",
    ]
    for row in result("call-traces-default-clock")["replay"]:
        cells = [row["title"], row["file_system"]]
        for part in ("replay", "chance"):
            requests, blocks, time = (
                row["medians"][f"{part}_{key}"]
                for key in ("requests_equal_percent", "blocks_equal_percent", "run_time_off_percent")
            )
            cells += [f"{requests:.1f} %", f"{blocks:.1f} %", f"{time:+.1f} %"]
        yield cells


def host_kernel() -> Iterator[Row]:
    """Blocks that ext4 writes in a guest and on the host."""
    yield ["program", "guest and host", "the same, program on one processor", "host, twice"]
    for row in result("host-kernel")["rows"]:
        shares = [row[f"{pair}equal_percent"] for pair in ("", "one_processor_", "two_host_runs_")]
        yield [row["title"], *(f"{share:.1f} %" for share in shares)]


def figure_3_of_1994() -> Iterator[Row]:
    """Throughput against the speed of the processor."""
    curves = result("simulation-1994")["figure_3"]
    yield ["speed", *(f"{point['speed']:g}" for point in curves["plain"])]
    yield ["disk alone", *(f"{point['mb_per_s']:.3f}" for point in curves["plain"])]
    yield ["its utilisation", *(f"{point['utilisation']:.2f}" for point in curves["plain"])]
    yield ["with 256 KiB", *(f"{point['mb_per_s']:.3f}" for point in curves["nonvolatile"])]


def table_1_of_1994() -> Iterator[Row]:
    """Deviations of draws from the trace, beside the paper's."""
    rows = result("simulation-1994")["table_1"]
    yield ["speed", *(str(speed) for speed in range(1, 1 + len(rows[0]["percent"]))), "mean"]
    for number, row in enumerate(rows, 1):
        yield [f"draw {number}", *(f"{value:+.1f}" for value in [*row["percent"], row["mean"]])]
    for number, row in enumerate(rows, 1):
        paper = row["paper_percent"]
        yield [f"1994, draw {number}", *(f"{value:+.1f}" for value in [*paper, sum(paper) / len(paper)])]


def guest_soak() -> Iterator[Row]:
    """Hard loads in guests on each clock."""
    yield ["clock", "load", "minutes", "runs", "requests", "hangs, failures, warnings", "longest lateness, µs"]
    for soak in result("guest-soak")["soaks"]:
        faults = ", ".join(str(len(soak[kind])) for kind in ("hangs", "failures", "warnings"))
        minutes, latest = round(soak["host_seconds"] / 60), soak["lateness_us"]["max"]
        yield [soak["clock"], soak["load"], str(minutes), str(soak["runs"]), f"{soak['requests']:,}", faults] + [
            f"{latest:,.2f}"
        ]


def os_pausing_slower() -> Iterator[Row]:
    """Paired differences of run times in small, on devices a hundred times as slow."""
    workloads = {"archive": "archive and word count, ext4", "video": "MPEG-2, ext3"}
    arms = {"guest, model thinks": "model waits", "guest, store of 10 MB/s": "store of 10 MB/s"}
    devices = ["ch1-x1", "ch1-x4", "ch4-x1", "ch4-x4"]
    differences = {
        (row["workload"], row["arm"], row["device"].removeprefix("wu-tsai-")): row
        for row in result("os-pausing-slower")["differences"]
    }
    yield ["workload, cost", *devices]
    for workload, title in workloads.items():
        for arm, cost in arms.items():
            rows = [differences[workload, arm, device] for device in devices]
            cells = [f"{row['mean_percent']:+.1f} ± {row['half_width_95_percent']:.1f}" for row in rows]
            yield [f"{title}; {cost}", *cells]


#: Broken promises of the injector's harness, as the table has them: the harness's rule, and a kind of fault that must
#: have taken effect; an empty one may be any.
BROKEN = {
    "a completed write or flush was gone after the end of the process": ("lost", "end of the process"),
    "the same where the store was dropped": ("lost", "dropped"),
    "the same after an orderly end": ("lost", "orderly end"),
    "the same after a power cut, with `--durable`": ("lost", "power cut"),
    "the same after a full disk": ("lost on a full disk", ""),
    "acknowledged data did not fit at a flush or the end": ("acknowledged bytes do not fit on the disk", ""),
    "a read failed on a full disk, or after the end": ("a read fails on a full disk", ""),
    "a read returned other bytes": ("wrong bytes", ""),
    "a flush succeeded after a failed synchronisation": ("a failed synchronisation was forgotten", ""),
    "a store could not be opened after a failed or killed creation or change": ("opening failed", ""),
    "a creation that failed left a file": ("a failed creation left a file", ""),
}


def fault_injector() -> Iterator[Row]:
    """What the injector found in each kind of store."""
    kept = result("fault-injector")
    kinds = {"file": ["File"], "overflow": ["Overflow"], "image": ["Exact", "Classified"]}
    histories = {
        kind: sum(row["histories"] for row in kept["before"]["stores"] if row["store"] in stores)
        for kind, stores in kinds.items()
    }
    yield ["histories in which", *(f"{kind}, of {count:,}" for kind, count in histories.items()), "now"]
    told = 0
    for what, (rule, fault) in BROKEN.items():
        found = {
            name: [row for row in kept[name]["found"] if row["rule"] == rule and fault in row["faults"]]
            for name in ("before", "now")
        }
        counts = [sum(row["histories"] for row in found["before"] if row["store"] in of) for of in kinds.values()]
        now = sum(row["histories"] for row in found["now"])
        told += sum(counts) + now
        if sum(counts) + now > 0:
            yield [what, *(f"{count:,}" for count in counts), str(now)]
    rest = sum(row["histories"] for name in ("before", "now") for row in kept[name]["found"]) - told
    if rest != 0:
        raise ValueError(f"fault-injector.json: {rest} histories are in no row of the table, or in several")


def store_faults() -> Iterator[Row]:
    """What a client of real servers found."""
    kinds = {
        "lost": "bytes lost",
        "not_opened": "not opened",
        "wrong_read": "wrong bytes read",
        "hidden": "failure hidden",
        "failed_read": "read failed",
        "failed_flush": "flush failed",
        "hang": "hung",
        "status": "wrong status",
    }
    yield ["store, build", "trials (fault took effect)", *kinds.values()]
    cells: dict[tuple[str, bool, str], list[Result]] = {}
    for row in result("store-faults")["rows"]:
        cells.setdefault((row["store"], row["cache"], row["build"]), []).append(row)
    for (store, cache, build), rows in sorted(cells.items()):
        trials, injected = (sum(row[key] for row in rows) for key in ("trials", "injected"))
        counts = [sum(row[kind] for row in rows) for kind in kinds]
        name = f"{store} {'with' if cache else 'without'} a cache, {build}"
        yield [name, f"{trials} ({injected})", *(str(count) for count in counts)]


#: What makes the rows of each table, its head first.
TABLES: dict[str, Callable[[], Iterator[Row]]] = {
    "real-time-accuracy": real_time_accuracy,
    "real-time-summary": real_time_summary,
    "real-time-peers": real_time_peers,
    "real-time-bare-loop": real_time_bare_loop,
    "working-set": working_set,
    "ssd-live": ssd_live,
    "ssd-programs": ssd_programs,
    "david-table2": david_table2,
    "call-traces-same": call_traces_same,
    "call-traces-across": call_traces_across,
    "call-traces-recording-cost": recording_default_clock,
    "call-traces-default-clock": replays_default_clock,
    "host-kernel": host_kernel,
    "simulation-1994-table-1": table_1_of_1994,
    "simulation-1994-figure-3": figure_3_of_1994,
    "fault-injector": fault_injector,
    "guest-soak": guest_soak,
    "os-pausing-slower": os_pausing_slower,
}


def table(name: str) -> str:
    """Write a table."""
    head, *rows = TABLES[name]()
    lines = [head, ["---"] * len(head), *rows]
    text = "".join("".join(f"| {cell} " if cell else "| " for cell in line) + "|\n" for line in lines)
    return text.replace("| --- ", "|---")


def written(text: str) -> str:
    """Give a page with its tables anew."""
    return BLOCK.sub(
        lambda block: f"<!-- table: {block['name']} -->\n\n{table(block['name'])}\n<!-- end of table -->", text
    )


def pages() -> Iterator[tuple[Path, str]]:
    """Give the pages that have tables, each with what it should say."""
    missing = set(TABLES)
    for path in sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("experiments/*/README.md")]):
        text = path.read_text()
        names = {block["name"] for block in BLOCK.finditer(text)}
        if text.count("<!-- table:") != len(names):
            raise ValueError(f"{path.relative_to(ROOT)}: a table without its end, or one that is there twice")
        missing -= names
        if names:
            yield path, written(text)
    if missing:
        raise ValueError(f"no page has the tables {', '.join(sorted(missing))}")
