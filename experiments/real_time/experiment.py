"""Tables 2 and 3 and figure 5 of the Memulator paper: how true the time of a served device is, as its client sees it.

The client is libnbd, which knows nothing of us, in two manners: *blocking*, as programs are, which adds what it costs
to wake a process, and *spinning*, which does not. It sends 1,000 requests, one at a time, and measures each; what each
should have taken, the model's service time, is in the server's log. The paper took its times inside the kernel's device
driver, between a request's arrival there and its completion; here they are taken in the client, sockets and all, over a
socket in the file system or, with another network namespace, over TCP through a virtual cable.

*Lateness* is the server's own figure: the return of the system call that sent the reply, minus due, over all requests,
and in a second row without those that the server found hit by a theft of its CPU.

Peers stand beside it in the same run: nbdkit's delay filter, the latency of QEMU's null device, and QEMU's throttle
filter, for which a device's rate is one over its service time. And so does a *bare loop*, a server without a model, a
store, a log or any protocol to speak of, whose lateness is what the host does to whoever waits and sends.

In its last part a client is measured beside a thousand bad ones of its own server, and beside the same ones of a
peer, which tells what of that is their own work on the same processors.

What the host did meanwhile decides; its load average is beside each row.
"""

import argparse
import json
import os
import platform
import statistics
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from common.command import RESULTS, keep, note
from common.plots import save
from real_time import paper
from real_time.hostile import CONNECTIONS, SILENT, bad_clients
from real_time.servers import (
    BARE,
    BARE_MICROS,
    CLIENT_SOURCE,
    LOCAL,
    PEERS,
    Place,
    another_namespace,
    build,
    drive,
    read_bare_lateness,
    read_log,
    serve,
)
from real_time.workloads import WORKLOADS, requests

SCHEMA = "chronodisk.experiment.real-time/1"
NAME = "real-time"
REQUESTS = 1000
DEVICES = ("constant-10ms", "cheetah-x15", "cheetah-9lp", "mems-g2", "constant-1ms", "constant-100us", "constant-20us")
CLIENTS = ("spinning", "blocking")
PARTS = ("accuracy", "bare", "peers", "peak", "overlap", "hostile")
#: Times that a client is measured alone and beside bad ones, in turns.
HOSTILE_ROUNDS = 3
#: Whose clients the bad ones are.
NOBODYS, A_PEERS, OURS = "nobody's", "a peer's", "ours"
#: The peer of which they are clients: it waits for nothing, so what it computes is on their behalf alone.
PEER_OF_BAD_CLIENTS = "QEMU, no delay"
#: Bytes that a device has for the client's purposes; every device has as much or more.
CAPACITY = 1 << 30
#: Bins of the densities, as in the paper's figure 5.
BIN_US, BIN_PERCENT = 1.0, 0.05


def accuracy(client: Path, device: str, workload: str, how: str, place: Place, count: int) -> dict[str, Any]:
    """Measure one workload on one of our devices."""
    load = os.getloadavg()[0]
    with serve("chronodisk", device, place) as server:
        times = drive(client, server, how, 1, requests(workload, CAPACITY, count))
        server.end()
        log = read_log(server)
    row: dict[str, Any] = {
        "server": "chronodisk",
        "device": device,
        "workload": workload,
        "client": how,
        "place": place.name,
    }
    late = [max(0, lateness) / 1e3 for lateness in log.lateness_ns]
    unstolen = [lateness for lateness, stolen in zip(late, log.stolen, strict=True) if not stolen]
    row |= against(log.service_ns, times.took, workload)
    row["lateness_us"] = quantiles(late)
    row["lateness_unstolen_us"] = quantiles(unstolen)
    row["stolen_requests_percent"] = 100 * sum(log.stolen) / len(late)
    row["stolen_time_percent"] = log.stolen_time_percent
    row["realtime_priority"] = log.server["realtime"]
    row["clamped_arrivals"] = log.server["clamped_arrivals"]
    row["transport"] = next(iter(log.server["transports"].values()))
    return row | {"load": load, "paper": paper.table3(device, workload)}


def peer_accuracy(client: Path, kind: str, device: str, how: str, place: Place, count: int) -> dict[str, Any]:
    """Measure one workload on a peer's device."""
    load = os.getloadavg()[0]
    workload = WORKLOADS[0]
    with serve(kind, device, place) as server:
        times = drive(client, server, how, 1, requests(workload, CAPACITY, count))
        server.end()
    row = {"server": kind, "device": device, "workload": workload, "client": how, "place": place.name}
    return row | against([PEERS[kind][device] * 1000] * count, times.took, workload) | {"load": load}


def bare(client: Path, device: str, how: str, count: int) -> dict[str, Any]:
    """Measure what remains of lateness where a server does nothing but wait and send."""
    load = os.getloadavg()[0]
    workload = WORKLOADS[0]
    with serve(BARE, device, LOCAL) as server:
        times = drive(client, server, how, 1, requests(workload, CAPACITY, count))
        server.process.wait(60)
        late = [max(0, lateness) / 1e3 for lateness in read_bare_lateness(server)]
    row = {"server": BARE, "device": device, "workload": workload, "client": how, "place": LOCAL.name}
    row |= against([BARE_MICROS[device] * 1000] * count, times.took, workload)
    return row | {"lateness_us": quantiles(late), "load": load}


def against(service_ns: list[int], took_ns: list[int], workload: str) -> dict[str, Any]:
    """Compare what each request took with what it should have taken."""
    errors = [(took - service) / 1e3 for service, took in zip(service_ns, took_ns, strict=True)]
    percents = [100e3 * error / service for error, service in zip(errors, service_ns, strict=True)]
    absolute = [abs(percent) for percent in percents]
    figures: dict[str, Any] = {
        "mean_service_us": statistics.fmean(service_ns) / 1e3,
        "mean_error_us": statistics.fmean(errors),
        "median_error_us": statistics.median(errors),
        "mean_absolute_error_percent": statistics.fmean(absolute),
        "under_1_percent": 100 * sum(percent < 1 for percent in absolute) / len(absolute),
        "under_2_percent": 100 * sum(percent < 2 for percent in absolute) / len(absolute),
    }
    if workload.endswith("uniform"):
        figures["error_density"] = {"us": histogram(errors, BIN_US), "percent": histogram(percents, BIN_PERCENT)}
    return figures


def histogram(values: Iterable[float], width: float) -> dict[str, int]:
    """Count values by the bin in which they lie, named by its number."""
    counts: dict[int, int] = {}
    for value in values:
        number = round(value / width)
        counts[number] = counts.get(number, 0) + 1
    return {str(number): counts[number] for number in sorted(counts)}


def quantiles(values: list[float]) -> dict[str, float]:
    """Return the median, the 99th percentile and the largest, by nearest rank."""
    ordered = sorted(values)
    of = {name: ordered[max(0, -(-len(ordered) * share // 100) - 1)] for name, share in (("p50", 50), ("p99", 99))}
    return of | {"max": ordered[-1]}


def peak(client: Path, kind: str, place: Place) -> dict[str, Any]:
    """Table 2: 1,024 requests of one sector, and as many of 1,024 sectors, one at a time, with nothing to wait for."""
    count = 1 << 10
    elapsed = []
    for length in (512, 1024 * 512):
        with serve(kind, "null", place) as server:
            lines = [f"r {index * length % CAPACITY} {length}" for index in range(count)]
            # Warm, as the paper's memory was.
            drive(client, server, "blocking", 1, [line.replace("r", "w", 1) for line in lines])
            elapsed.append(drive(client, server, "blocking", 1, lines).elapsed_s)
            server.end()
    row = {"server": kind, "place": place.name}
    return row | {"requests_per_s": count / elapsed[0], "megabytes_per_s": count * 1024 * 512 / elapsed[1] / 1e6}


def overlap(client: Path, how: str, place: Place, count: int) -> dict[str, Any]:
    """32 requests at a time on a device of 10 ms that serves any number at once."""
    with serve("chronodisk", "constant-10ms", place) as server:
        times = drive(client, server, how, 32, requests("random-small", CAPACITY, count))
        server.end()
        log = read_log(server)
    took = [nanos / 1e3 for nanos in times.took]
    late = [max(0, lateness) / 1e3 for lateness in log.lateness_ns]
    row: dict[str, Any] = {"depth": 32, "client": how, "place": place.name}
    row |= {"mean_us": statistics.fmean(took), "took_us": quantiles(took), "lateness_us": quantiles(late)}
    return row | {"service_us": 10_000, "elapsed_s": times.elapsed_s, "load": os.getloadavg()[0]}


def beside_bad_clients(client: Path, device: str, count: int, whose: str) -> dict[str, Any]:
    """Measure whether a client notices others that misbehave."""
    load = os.getloadavg()[0]
    workload = WORKLOADS[0]
    with ExitStack() as servers:
        server = servers.enter_context(serve("chronodisk", device, LOCAL, ("--connections", str(CONNECTIONS))))
        with ExitStack() as bad:
            if whose == OURS:
                bad.enter_context(bad_clients(server))
            elif whose == A_PEERS:
                peer = servers.enter_context(serve(PEER_OF_BAD_CLIENTS, "null", LOCAL))
                bad.enter_context(bad_clients(peer))
            times = drive(client, server, "spinning", 1, requests(workload, CAPACITY, count))
        server.end()
        log = read_log(server)
    good = Counter(log.issuer).most_common(1)[0][0]
    service_ns, lateness_ns = (
        [value for value, issuer in zip(values, log.issuer, strict=True) if issuer == good]
        for values in (log.service_ns, log.lateness_ns)
    )
    row: dict[str, Any] = {"device": device, "client": "spinning", "bad_clients": whose}
    row |= against(service_ns, times.took, workload)
    row["lateness_us"] = quantiles([max(0, lateness) / 1e3 for lateness in lateness_ns])
    return row | {"connections": log.server["connections"], "load": load}


def measure(client: Path, places: list[Place], chosen: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Measure what was chosen."""
    result: dict[str, list[dict[str, Any]]] = {"accuracy": [], "peak": [], "overlap": [], "hostile": []}
    for place in places:
        for how in chosen.clients:
            if "accuracy" in chosen.parts:
                for device in chosen.devices:
                    note(f"{device}, {how} client, {place.name}")
                    rows = [accuracy(client, device, name, how, place, chosen.requests) for name in WORKLOADS]
                    result["accuracy"] += rows
            if "overlap" in chosen.parts:
                note(f"32 requests at a time, {how} client, {place.name}")
                result["overlap"].append(overlap(client, how, place, 10 * chosen.requests))
        if "bare" in chosen.parts and place == LOCAL:
            for device in (device for device in BARE_MICROS if device in chosen.devices):
                for how in chosen.clients:
                    note(f"{BARE}, {device}, {how} client")
                    result["accuracy"].append(bare(client, device, how, chosen.requests))
        if "peers" in chosen.parts and place == LOCAL:
            result["accuracy"] += list(peers(client, chosen))
        if "hostile" in chosen.parts and place == LOCAL:
            for device in (device for device in BARE_MICROS if device in chosen.devices):
                for whose in (NOBODYS, A_PEERS, OURS) * HOSTILE_ROUNDS:
                    note(f"{device}, bad clients are {whose}")
                    result["hostile"].append(beside_bad_clients(client, device, chosen.requests, whose))
        if "peak" in chosen.parts:
            for kind in ("chronodisk", "nbdkit, no delay", "QEMU, no delay"):
                note(f"peak rate, {kind}, {place.name}")
                result["peak"].append(peak(client, kind, place))
    return result


def peers(client: Path, chosen: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """Measure the peers on what they can express."""
    for kind, devices in PEERS.items():
        for device in (device for device in devices if device in chosen.devices):
            for how in chosen.clients:
                note(f"{kind}, {device}, {how} client")
                yield peer_accuracy(client, kind, device, how, LOCAL, chosen.requests)


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what names a row."""
    return tuple(row.get(name) for name in ("server", "device", "workload", "client", "place"))


def merge(new: dict[str, Any]) -> dict[str, Any]:
    """Add to the kept result what was measured, instead of what is there of the same name."""
    path = RESULTS / f"{NAME}.json"
    if not path.exists():
        return new
    old = json.loads(path.read_text())
    for part in ("accuracy", "peak", "overlap"):
        measured = {key(row) for row in new[part]}
        new[part] = [row for row in old[part] if key(row) not in measured] + new[part]
    new["hostile"] = new["hostile"] or old.get("hostile", [])
    return new


def tables(result: dict[str, Any]) -> str:
    """Lay out the figures for a reader, the paper's beside ours."""
    lines = [
        "Accuracy: error and |error| as the client sees them; lateness as the server does; the paper's in brackets",
        f"  {'device':<15}{'workload':<15}{'client':<10}{'place':<18}{'service µs':>11}{'error µs':>17}"
        f"{'|error| %':>15}{'< 1 %':>16}{'< 2 %':>7}{'late p50':>9}{'p99':>8}{'unstolen':>9}{'stolen':>8}{'load':>6}",
    ]
    for row in result["accuracy"]:
        if row["server"] != "chronodisk":
            lines.append(f"  {row['server']}:")
        theirs = row.get("paper") or {}

        def beside(name: str, digits: int, row: dict[str, Any] = row, theirs: dict[str, float] = theirs) -> str:
            bracket = f" ({theirs[name]:.{digits}f})" if name in theirs else ""
            return f"{row[name]:.{digits}f}{bracket}"

        line = (
            f"  {row['device']:<15}{row['workload']:<15}{row['client']:<10}{row['place']:<18}"
            f"{row['mean_service_us']:>11.0f}{beside('mean_error_us', 2):>17}"
            f"{beside('mean_absolute_error_percent', 2):>15}{beside('under_1_percent', 1):>16}"
            f"{row['under_2_percent']:>7.1f}"
        )
        late, unstolen = row.get("lateness_us"), row.get("lateness_unstolen_us")
        line += f"{late['p50']:>9.2f}{late['p99']:>8.2f}" if late else " " * 17
        line += f"{unstolen['p99']:>9.2f}{row['stolen_requests_percent']:>6.1f} %" if unstolen else " " * 17
        lines.append(line + f"{row['load']:>6.1f}")
    lines += ["", "Table 2: 1,024 requests of one sector, and of 1,024 sectors, one at a time; the paper's in brackets"]
    for row in result["peak"]:
        rate, width = paper.TABLE2[row["place"]]
        lines.append(
            f"  {row['server']:<26}{row['place']:<18}{row['requests_per_s']:>9.0f} requests/s ({rate})"
            f"{row['megabytes_per_s']:>9.0f} MB/s ({width})"
        )
    lines += ["", "32 requests at a time, each of 10 ms"]
    for row in result["overlap"]:
        took, late = row["took_us"], row["lateness_us"]
        lines.append(
            f"  {row['client']:<10}{row['place']:<18}mean {row['mean_us']:.0f} µs, p50 {took['p50']:.0f},"
            f" p99 {took['p99']:.0f}; lateness p50 {late['p50']:.2f}, p99 {late['p99']:.2f}"
        )
    lines += [
        "",
        f"A spinning client alone, and beside {SILENT} bad ones of {PEER_OF_BAD_CLIENTS}, and of its own server",
    ]
    for row in result["hostile"]:
        late = row["lateness_us"]
        lines.append(
            f"  {row['device']:<15}{row['bad_clients']:<10}"
            f"error {row['mean_error_us']:.2f} µs, {row['mean_absolute_error_percent']:.2f} %;"
            f" lateness p50 {late['p50']:.2f}, p99 {late['p99']:.2f}, max {late['max']:.0f}; load {row['load']:.1f}"
        )
    return "\n".join(lines)


def plot(result: dict[str, Any]) -> None:
    """Draw the densities of the uniform workloads, as the paper's figure 5 does."""
    rows = [row for row in result["accuracy"] if "error_density" in row]
    devices = [device for device in DEVICES if any(row["device"] == device for row in rows)]
    if not devices:
        return
    figure = Figure(figsize=(9, 2.1 * len(devices)), layout="constrained")
    grid = figure.subplots(len(devices), 2, squeeze=False)
    for device, (left, right) in zip(devices, grid, strict=True):
        of_device = [row for row in rows if row["device"] == device]
        for client, place in sorted({(row["client"], row["place"]) for row in of_device}, reverse=True):
            chosen = [row["error_density"] for row in of_device if (row["client"], row["place"]) == (client, place)]
            for axes, unit, width, limit in ((left, "us", BIN_US, 60.0), (right, "percent", BIN_PERCENT, 2.0)):
                bins, counts = combined([density[unit] for density in chosen])
                shares = [100 * count / sum(counts) for count in counts]
                inside = [(b * width, share) for b, share in zip(bins, shares, strict=True) if abs(b * width) <= limit]
                # An error of a few µs is tens of per cent of a fast device's time.
                if inside:
                    axes.step(*zip(*inside, strict=True), where="mid", linewidth=0.9, label=f"{client}, {place}")
                axes.set_xlim(-limit, limit)
        left.set_ylabel(f"{device}\n% of requests", fontsize=8)
    grid[0][0].legend(fontsize=6)
    grid[-1][0].set_xlabel(f"error in µs (bins of {BIN_US:.0f} µs)")
    grid[-1][1].set_xlabel(f"error in % (bins of {BIN_PERCENT} %)")
    figure.suptitle("Densities of emulation error, random and mixed uniform workloads", fontsize=10)
    save(figure, RESULTS / f"{NAME}.svg")


def combined(densities: list[dict[str, int]]) -> tuple[list[int], list[int]]:
    """Add densities up; bins that nothing fell into have a count of 0."""
    counts: dict[int, int] = {}
    for density in densities:
        for number, count in density.items():
            counts[int(number)] = counts.get(int(number), 0) + count
    bins = list(range(min(counts), max(counts) + 1)) if max(counts) - min(counts) < 10_000 else sorted(counts)
    return bins, [counts.get(number, 0) for number in bins]


def main() -> None:
    """Measure everything, or what is chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=REQUESTS, help=f"of each workload ({REQUESTS})")
    parser.add_argument("--devices", nargs="+", choices=DEVICES, default=DEVICES, metavar="DEVICE")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=CLIENTS, metavar="CLIENT")
    parser.add_argument("--places", nargs="+", choices=("local", "remote"), default=("local", "remote"))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--merge", action="store_true", help="keep the rows of the last result that are not measured")
    parser.add_argument("--dry", action="store_true", help="print the tables and keep nothing")
    chosen = parser.parse_args()
    client = build(CLIENT_SOURCE)
    with another_namespace() as namespace:
        remote = [namespace] if namespace else []
        places = [LOCAL] * ("local" in chosen.places) + remote * ("remote" in chosen.places)
        measured = measure(client, places, chosen)
    result: dict[str, Any] = {"schema": SCHEMA, "requests": chosen.requests, "kernel": platform.release()}
    result |= {"processors": os.cpu_count(), **measured}
    if chosen.merge:
        result = merge(result)
    print(tables(result), flush=True)
    if not chosen.dry:
        keep(NAME, result)
        plot(result)


if __name__ == "__main__":
    main()
