"""What clients that attack an emulator server do to another client of it.

An honest client gives one request after the other to a disk at the server and measures each answer: for the guest this
is how long it stands still. Phases with and without attackers alternate on one server, so that a change of the host's
load falls on both. The attackers come from another address of the loopback interface and repeat, each in a process of
its own, at a stated rate:

- *memory*: a profile whose tables would take 8 GB.
- *time*: a request at 4e18 ns.
- *terabyte*: one write of 1 TB, and one range of 1 TB of zeros for the store.
- *largest*: the largest writes that are allowed, as many as may be outstanding, to a disk.
- *slow*: 80 connections that send a byte a second and never greet.
- *dead*: 8 sessions with a device that are never heard of again.
- *heavy*: two sessions with a row of 4,096 disks that ask for predictions without a pause.

Attackers are on machines of their own; here they share this one's processors with the server and the honest client.
So their processes get only what idle processors have to spare (`SCHED_IDLE`), and a third kind of phase has, instead of
attackers, as many processes of that kind as there are heavy ones, which compute and send nothing: what this alone does
is not the server's doing. With `--usual-priority` they compete for the processors with the server and the honest
client.

Every attack that is to be refused is timed until its refusal. The result is the ratio of the honest client's 99th
percentiles with and without the attack, that with computing processes and without, and the slowest refusal.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import socket
import statistics
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

from common.command import executable, keep, note

SCHEMA = "chronodisk.experiment.emulator-attack/1"
NAME = "emulator-attack"
HONEST, HOSTILE = "127.0.0.1", "127.0.0.2"
HEADER = struct.Struct("<IHHQ")
HELLO, RESET, CLEAR, SUBMIT, NEXT, END, ERROR = 1, 2, 5, 7, 8, 10, 0xFFFF
READ, WRITE = 0, 1
MIB = 1 << 20

LARGE = """
name = "large"
kind = "ssd"
description = "x"
source = "x"
validation = "unvalidated"
capacity = "3600 GiB"
unwritten-read = "zeros"
flash = { channels = 8, chips-per-channel = 8, dies-per-chip = 1, planes-per-die = 4, blocks-per-plane = 1000, \
pages-per-block = 1000, page-size = "16 KiB", mapping-unit = "4 KiB", cells = "SLC", read = ["50 us"], \
program = ["300 us"], erase = "3 ms" }
bus = { rate = "400 MB/s" }
front = { interface = "nvme", queue-depth = 64, link-rate = "2 GB/s" }
buffer = { size = "16 MiB" }
translation = { allocation = "dynamic", collector = "greedy", collect-below = 8 }
"""

HUGE = """
name = "huge"
kind = "constant"
description = "x"
source = "x"
validation = "unvalidated"
capacity = "4 TiB"
time = "1 ms"
"""


class Refused(Exception):
    """The server has answered with an error, or cut the connection."""


class Client:
    """One session, blocking."""

    def __init__(self, port: int, address: str) -> None:
        self.socket = socket.create_connection((HONEST, port), timeout=30, source_address=(address, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sequence = 0

    def begin(self, label: str = "", profile: str = "") -> None:
        """Greet and make a device."""
        self._say(HELLO, b"CHRONODK" + struct.pack("<H", 1) + bytes(16), 0)
        texts = (text.encode() for text in (label, profile))
        body = struct.pack("<QQQB", 1, 0, 0, 1) + b"".join(struct.pack("<I", len(text)) + text for text in texts)
        self.ask(RESET, body)

    def ask(self, kind: int, body: bytes) -> bytes:
        """Give the next command; returns the body of its answer."""
        self.sequence += 1
        return self._say(kind, body, self.sequence)

    def submit(self, at: int, number: int, lba: int, sectors: int, op: int) -> None:
        """A request arrives."""
        self.ask(SUBMIT, struct.pack("<QQQIBBBBHHI", at, number, lba, sectors, op, 1, 0, 0, 0, 0, 0))

    def next_completion(self, taken: int) -> int:
        """Return the instant of the next completion."""
        answer = self.ask(NEXT, struct.pack("<QQ", taken, taken))
        completed: int = struct.unpack_from("<Q", answer, 1)[0]
        return completed

    def _say(self, kind: int, body: bytes, sequence: int) -> bytes:
        try:
            self.socket.sendall(HEADER.pack(len(body), kind, 0, sequence) + body)
            length, answer, _, _ = HEADER.unpack(self._read(HEADER.size))
            body = self._read(length)
        except OSError as error:
            raise Refused(str(error)) from error
        if answer == ERROR:
            raise Refused(body[5:].decode())
        return body

    def _read(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = self.socket.recv(length - len(data))
            if not piece:
                raise Refused("the connection was cut")
            data += piece
        return data


def honest(port: int, requests: int) -> list[float]:
    """Milliseconds from a request to the answer that says when it completes."""
    client = Client(port, HONEST)
    client.begin("first-disk")
    now, waits = 0, []
    for number in range(requests):
        begun = time.perf_counter()
        client.submit(now, number, number * 7919 % 1_000_000 * 8, 8, READ)
        now = client.next_completion(now)
        waits.append((time.perf_counter() - begun) * 1e3)
        time.sleep(0.0005)
    client.ask(END, b"")
    client.socket.close()
    return waits


def memory(port: int) -> None:
    """Ask for a device that takes 8 GB."""
    Client(port, HOSTILE).begin("large", LARGE)


def far_time(port: int) -> None:
    """A request at 4e18 ns."""
    client = Client(port, HOSTILE)
    client.begin("first-disk")
    client.submit(4 * 10**18, 0, 0, 8, READ)


def terabyte(port: int) -> None:
    """One write of a terabyte."""
    client = Client(port, HOSTILE)
    client.begin("huge", HUGE)
    client.submit(0, 0, 0, 1 << 31, WRITE)


def zeros(port: int) -> None:
    """A terabyte of zeros for the store."""
    client = Client(port, HOSTILE)
    client.begin("huge", HUGE)
    client.ask(CLEAR, struct.pack("<BQQ", 1, 0, 1 << 40))


def largest(port: int) -> None:
    """The largest writes that are allowed, and one more."""
    client = Client(port, HOSTILE)
    client.begin("first-disk")
    for number in range(5):
        client.submit(0, number, 0, 256 * MIB // 512, WRITE)
        client.next_completion(0)


def nested(levels: int) -> str:
    """64 rows of 64 rows of ... disks, one after the other."""
    text, member = "", "first-disk"
    for level in range(levels):
        name = f"row-{level}"
        carried = f'[[member-profile]]\nname = "{member}"\nprofile = {json.dumps(text)}\n' if text else ""
        text = (
            f'name = "{name}"\nkind = "array"\ndescription = "x"\nsource = "x"\nvalidation = "unvalidated"\n'
            f'level = "linear"\nmember = "{member}"\ncount = 64\n{carried}'
        )
        member = name
    return text


def heavy(port: int) -> None:
    """A row of 4,096 disks, which is forked for each prediction, without a pause."""
    while True:
        with contextlib.suppress(Refused, OSError):
            client = Client(port, HOSTILE)
            client.begin("heavy", nested(2))
            now = 0
            for number in range(1_000_000):
                client.submit(now, number, 0, 8, READ)
                now = client.next_completion(now)
        time.sleep(0.1)


REFUSALS = {"memory": memory, "time": far_time, "terabyte": terabyte, "zeros": zeros, "largest": largest}


def refused_repeatedly(name: str, port: int, pause: float, slowest: Any) -> None:
    """Attack until killed; keeps the slowest refusal in seconds."""
    while True:
        begun = time.perf_counter()
        with contextlib.suppress(OSError):
            try:
                REFUSALS[name](port)
                # Nothing refused it.
                slowest.value = float("inf")
            except Refused:
                slowest.value = max(slowest.value, time.perf_counter() - begun)
        time.sleep(pause)


def slow(port: int, count: int) -> None:
    """Connections that never greet; those that were cut are made again."""
    sockets: list[socket.socket] = []
    while True:
        while len(sockets) < count:
            try:
                sockets.append(socket.create_connection((HONEST, port), timeout=5, source_address=(HOSTILE, 0)))
            except OSError:
                break
        time.sleep(1)
        for one in list(sockets):
            try:
                one.send(b"\0")
            except OSError:
                one.close()
                sockets.remove(one)


def dead(port: int, count: int) -> None:
    """Sessions with a device that are never heard of again."""
    clients = []
    for _ in range(count):
        with contextlib.suppress(Refused, OSError):
            client = Client(port, HOSTILE)
            client.begin("first-disk")
            clients.append(client)
    signal.pause()


def compute() -> None:
    """Take a processor, and send nothing."""
    while True:
        pass


def started(jobs: list[tuple[Any, tuple[Any, ...]]], policy: int) -> list[Any]:
    """Start processes of a scheduling policy."""
    processes = [multiprocessing.Process(target=target, args=arguments, daemon=True) for target, arguments in jobs]
    for process in processes:
        process.start()
        assert process.pid is not None
        os.sched_setscheduler(process.pid, policy, os.sched_param(0))
    return processes


def end(processes: list[Any]) -> None:
    """Kill them."""
    for process in processes:
        process.kill()
        process.join()


def attackers(port: int, pause: float, policy: int) -> tuple[list[Any], dict[str, Any]]:
    """Start them all."""
    worst = {name: multiprocessing.Value("d", 0.0) for name in REFUSALS}
    jobs: list[tuple[Any, tuple[Any, ...]]] = [(dead, (port, 8)), (slow, (port, 80))]
    jobs += [(heavy, (port,)), (heavy, (port,))]
    jobs += [(refused_repeatedly, (name, port, pause, worst[name])) for name in REFUSALS]
    return started(jobs, policy), worst


def percentile(values: list[float], share: float) -> float:
    """By nearest rank."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(port: int, rounds: int, requests: int, pause: float, policy: int) -> dict[str, Any]:
    """Alternate phases without attackers, with computing processes, and with attackers."""
    phases: dict[str, list[list[float]]] = {"quiet": [], "computing": [], "attacked": []}
    refusals = dict.fromkeys(REFUSALS, 0.0)
    for number in range(rounds):
        phases["quiet"].append(honest(port, requests))
        processes = started([(compute, ())] * 2, policy)
        phases["computing"].append(honest(port, requests))
        end(processes)
        processes, worst = attackers(port, pause, policy)
        time.sleep(1)
        phases["attacked"].append(honest(port, requests))
        end(processes)
        refusals = {name: max(refusals[name], worst[name].value) for name in REFUSALS}
        p99 = {name: percentile(waits[-1], 0.99) for name, waits in phases.items()}
        figures = ", ".join(f"{name} {value:.3f} ms" for name, value in p99.items())
        note(f"round {number + 1} of {rounds}: p99 {figures}")
        time.sleep(1)
    ratios = {name: ratios_to_quiet(waits, phases["quiet"]) for name, waits in phases.items() if name != "quiet"}
    return {
        "rounds": rounds,
        "requests_per_phase": requests,
        "attack_pause_s": pause,
        "attackers_priority": "idle" if policy == os.SCHED_IDLE else "usual",
        "p50_ms": {name: percentile(sum(waits, []), 0.5) for name, waits in phases.items()},
        "p99_ms": {name: percentile(sum(waits, []), 0.99) for name, waits in phases.items()},
        "p99_ratio_by_round": ratios["attacked"],
        "p99_ratio_median": statistics.median(ratios["attacked"]),
        "p99_ratio_computing_by_round": ratios["computing"],
        "p99_ratio_computing_median": statistics.median(ratios["computing"]),
        "slowest_refusal_s": refusals,
        "load_average": os.getloadavg(),
    }


def ratios_to_quiet(waits: list[list[float]], quiet: list[list[float]]) -> list[float]:
    """Of the 99th percentiles, round by round."""
    return [percentile(one, 0.99) / percentile(free, 0.99) for free, one in zip(quiet, waits, strict=True)]


def main() -> None:
    """Measure and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--requests", type=int, default=5000, help="of each phase")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between two attacks of one kind")
    parser.add_argument("--chronodisk", type=Path, default=executable(), help="the command to measure")
    parser.add_argument("--usual-priority", action="store_true", help="of the attackers' own processes")
    parser.add_argument("--dry-run", action="store_true", help="print the figures and keep nothing")
    arguments = parser.parse_args()
    command = [arguments.chronodisk, "emulator-server", "--listen", "0", "--device", "first-disk"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        port = int(server.stderr.readline().rsplit(":", 1)[1])
        try:
            policy = os.SCHED_OTHER if arguments.usual_priority else os.SCHED_IDLE
            result = measure(port, arguments.rounds, arguments.requests, arguments.pause, policy)
        finally:
            begun = time.perf_counter()
            server.terminate()
            server.wait()
    result = {"schema": SCHEMA, "end_after_sigterm_s": time.perf_counter() - begun, **result}
    for name, who in (("p99_ratio_median", "attackers"), ("p99_ratio_computing_median", "computing processes")):
        note(f"p99 with {who} over p99 without: {result[name]:.2f} (median of rounds)")
    note(f"slowest refusals in s: {result['slowest_refusal_s']}")
    if arguments.dry_run:
        print(result)
    else:
        keep(NAME, result)


if __name__ == "__main__":
    main()
