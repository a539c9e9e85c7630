"""Servers of block devices, the client, and the places where they run."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet

from common.command import ROOT, CommandFailed, executable, note

CLIENT_SOURCE = Path(__file__).with_name("client.c")
BARE_SOURCE = Path(__file__).with_name("bare.c")
#: What a server of another make offers; nothing of it is ever written to a medium.
PEER_CAPACITY = 1 << 30


@dataclass(frozen=True)
class Place:
    """Where the client is, seen from the server."""

    name: str
    #: What a command of the client's begins with.
    prefix: tuple[str, ...] = ()
    #: Address of the server; without one it listens on a socket in the file system.
    host: str | None = None


LOCAL = Place("local")
#: Addresses that are for documentation, and so nobody's (RFC 5737).
NAMESPACE, SERVER_ADDRESS, CLIENT_ADDRESS = "chronodisk-client", "198.51.100.1", "198.51.100.2"


@contextmanager
def another_namespace() -> Iterator[Place | None]:
    """A network namespace of its own for the client, joined to this one by a virtual cable; None if not permitted."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        note("SKIPPED: another network namespace needs root, and ip (Debian: apt-get install iproute2)")
        yield None
        return
    cable = ["ip", "link", "add", "chronodisk0", "type", "veth", "peer", "name", "chronodisk1", "netns", NAMESPACE]
    within = ["ip", "-n", NAMESPACE]
    subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
    try:
        subprocess.run(cable, check=True)
        subprocess.run(["ip", "addr", "add", f"{SERVER_ADDRESS}/30", "dev", "chronodisk0"], check=True)
        subprocess.run(["ip", "link", "set", "chronodisk0", "up"], check=True)
        subprocess.run([*within, "addr", "add", f"{CLIENT_ADDRESS}/30", "dev", "chronodisk1"], check=True)
        subprocess.run([*within, "link", "set", "chronodisk1", "up"], check=True)
        yield Place("another namespace", ("ip", "netns", "exec", NAMESPACE), SERVER_ADDRESS)
    finally:
        # The cable goes with it.
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=True)


@dataclass
class Running:
    """A server that answers."""

    process: subprocess.Popen[bytes]
    uri: str
    place: Place
    folder: Path

    def end(self) -> None:
        """Let it end in order."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@contextmanager
def serve(kind: str, device: str, place: Place, options: tuple[str, ...] = ()) -> Iterator[Running]:
    """Run a server of a kind with a device, and wait until it listens."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        port = free_port(place.host) if place.host else 0
        address = (place.host, port) if place.host else None
        path = folder / "socket"
        if kind == "chronodisk":
            where = f"{place.host}:{port}" if address else f"unix:{path}"
            own = Path(__file__).with_name(f"{device}.toml")
            chosen = str(own) if own.exists() else device
            command = [str(executable()), "serve", "--device", chosen, "--nbd", where, "--output", str(folder / "run")]
            command += [*(["--insecure"] if address else []), *options]
        elif kind == BARE:
            command = [str(build(BARE_SOURCE)), str(path), str(BARE_MICROS[device]), str(folder / "lateness")]
        else:
            command = peer(kind, device, path, address)
        export = "disk" if command[0] == "qemu-storage-daemon" else ""
        uri = f"nbd://{place.host}:{port}/{export}" if address else f"nbd+unix:///{export}?socket={path}"
        silent = subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=silent, stdout=silent, stderr=subprocess.PIPE)
        try:
            await_listening(process, address or str(path))
            yield Running(process, uri, place, folder)
        finally:
            process.kill()
            process.wait()


#: The server that does nothing but wait and send, and the service times in microseconds that it is measured at.
BARE = "bare loop"
BARE_MICROS = {"constant-10ms": 10_000, "constant-1ms": 1_000, "constant-100us": 100}

#: Clients that a peer serves at once.
PEER_CONNECTIONS = 2000
#: Service time of a peer's device in microseconds, by kind and device.
PEERS = {
    "nbdkit, delay filter": {"constant-10ms": 10_000, "constant-1ms": 1_000},
    "QEMU, latency of null-co": {"constant-10ms": 10_000, "constant-1ms": 1_000, "constant-100us": 100},
    "QEMU, throttle filter": {"constant-10ms": 10_000, "constant-1ms": 1_000, "constant-100us": 100},
    "nbdkit, no delay": {"null": 0},
    "QEMU, no delay": {"null": 0},
}


def peer(kind: str, device: str, path: Path, address: tuple[str, int] | None) -> list[str]:
    """Return the command that serves a device of no bytes' worth with a peer's means of being slow."""
    micros = PEERS[kind][device]
    if kind.startswith("nbdkit"):
        where = ["-i", address[0], "-p", str(address[1])] if address else ["-U", str(path)]
        delay = [f"rdelay={micros // 1000}ms", f"wdelay={micros // 1000}ms"] if micros else []
        filters = ["--filter=delay"] if micros else []
        return ["nbdkit", "-f", *where, *filters, "memory", str(PEER_CAPACITY), *delay]
    # Sends data instead of telling of a hole.
    null = f"driver=null-co,size={PEER_CAPACITY},read-zeroes=off,node-name=null"
    node = "null"
    throttle = []
    if "latency" in kind:
        null += f",latency-ns={micros * 1000}"
    elif "throttle" in kind:
        node = "slow"
        throttle += ["--object", f"throttle-group,id=group,x-iops-total={1_000_000 // micros}"]
        throttle += ["--blockdev", "driver=throttle,node-name=slow,throttle-group=group,file=null"]
    where_text = f"type=inet,host={address[0]},port={address[1]}" if address else f"type=unix,path={path}"
    nbd_server = ",".join(f"addr.{part}" for part in where_text.split(","))
    # Newer ones serve only a hundred unless told otherwise.
    nbd_server += f",max-connections={PEER_CONNECTIONS}"
    export = ["--nbd-server", nbd_server, "--export", f"type=nbd,id=e,node-name={node},name=disk,writable=on"]
    return ["qemu-storage-daemon", "--blockdev", null, *throttle, *export]


def free_port(host: str) -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def await_listening(process: subprocess.Popen[bytes], address: tuple[str, int] | str) -> None:
    """Wait until something listens there."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    for _ in range(1000):
        with socket.socket(family) as probe:
            if probe.connect_ex(address) == 0:
                return
        if process.poll() is not None:
            said = process.stderr.read().decode(errors="replace") if process.stderr else ""
            raise CommandFailed(f"{process.args!r} ended with status {process.returncode}:\n{said}")
        time.sleep(0.01)
    raise CommandFailed(f"{process.args!r} does not listen")


def build(source: Path) -> Path:
    """Compile a program of this experiment's with the host's libnbd."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    target.mkdir(parents=True, exist_ok=True)
    binary = target / f"experiments-nbd-{source.stem}"
    compiler = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(binary), str(source), "-lnbd", "-pthread"]
    try:
        subprocess.run(compiler, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CommandFailed(f"{source.name} needs a C compiler and libnbd (Debian: gcc, libnbd-dev)") from error
    return binary


@dataclass(frozen=True)
class Times:
    """What the client measured, in nanoseconds."""

    took: list[int]
    begun: list[int]

    @property
    def elapsed_s(self) -> float:
        """From the first request to the last reply."""
        ends = [begun + took for begun, took in zip(self.begun, self.took, strict=True)]
        return (max(ends) - min(self.begun)) / 1e9


def drive(client: Path, server: Running, how: str, depth: int, lines: list[str]) -> Times:
    """Send the requests, so many at a time, with a blocking or a spinning client."""
    call = [*server.place.prefix, str(client), server.uri, how, str(depth)]
    done = subprocess.run(call, input="\n".join(lines), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(call)} ended with status {done.returncode}:\n{done.stderr}")
    took, begun = zip(*(map(int, line.split()) for line in done.stdout.splitlines()), strict=True)
    return Times(list(took), list(begun))


@dataclass(frozen=True)
class Log:
    """What our server says of the same requests, in the order of their arrival."""

    service_ns: list[int]
    #: The return of the system call that sent the reply, minus due; negative if that was before.
    lateness_ns: list[int]
    stolen: list[bool]
    #: The number of each request's connection.
    issuer: list[int]
    #: The result's part on serving.
    server: dict[str, Any]

    @property
    def stolen_time_percent(self) -> float:
        """Share of the server's waiting that the host gave to others."""
        waited = self.server["asleep_ns"] + self.server["spinning_ns"]
        return 100.0 * float(self.server["stolen_ns"]) / max(1.0, float(waited))


def read_log(server: Running) -> Log:
    """Read the log of our server, which has ended."""
    run = server.folder / "run"
    columns = ["arrival_ns", "due_ns", "completed_ns", "stolen", "issuer"]
    table = pyarrow.parquet.read_table(run / "requests-0.parquet", columns=columns).to_pydict()
    every = zip(*(table[column] for column in columns), strict=True)
    # A request whose client has hung up is never completed.
    rows = [row for row in every if row[2] is not None]
    return Log(
        service_ns=[due - arrival for arrival, due, *_ in rows],
        lateness_ns=[completed - due for _, due, completed, *_ in rows],
        stolen=[stolen for *_, stolen, _ in rows],
        issuer=[issuer for *_, issuer in rows],
        server=json.loads((run / "result.json").read_text())["reps"][0]["server"],
    )


def read_bare_lateness(server: Running) -> list[int]:
    """Read by how many nanoseconds each reply of the bare loop was late, which has ended."""
    return [int(line) for line in (server.folder / "lateness").read_text().split()]
