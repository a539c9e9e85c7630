"""One trial: a server whose system calls fail, a load, an end, and the same store served again.

It runs in a Python that has libnbd's module, reads its specification as JSON and prints the outcome as JSON. Nothing of
Chronodisk is used but the command.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbd

from store_faults.client import HANG_S, Client, HungServer
from store_faults.faults import FAULTS, FILES, SETS_SPACE_ASIDE, STORES
from store_faults.ledger import Ledger
from store_faults.loads import LOADS, MIB, Operation

CAPACITY_BYTES = 8 * MIB
#: A server that can't do its work ends with this status.
STATUS_FAILURE = 3


@dataclass
class Outcome:
    """What a trial showed."""

    #: The fault took effect.
    injected: bool = False
    #: The server refused to start with the fault.
    refused: bool = False
    #: How often something was promised before the end.
    promises: int = 0
    #: What went wrong, by its kind.
    wrong: dict[str, str] = field(default_factory=dict)


class Unservable(Exception):
    """A server ended before clients could connect."""

    def __init__(self, status: int, errors: str) -> None:
        """Keep the status and what it said."""
        super().__init__(f"status {status}: {errors}")
        self.status = status


class Place:
    """A folder for one device, and the namespace in which it may lie on a small file system."""

    def __init__(self, folder: Path, space_bytes: int | None) -> None:
        """Make it; with `space_bytes` as a file system of its own."""
        self.folder = folder
        self.store = folder / "store"
        self.store.mkdir()
        self.wrapper: list[str] = []
        self.holder: subprocess.Popen[str] | None = None
        if space_bytes is None:
            return
        script = f"mount -t tmpfs -o size={space_bytes} store '{self.store}' && echo ready && exec sleep 600"
        is_root = os.geteuid() == 0
        call = ["unshare", *([] if is_root else ["--map-root-user"]), "--mount", "sh", "-c", script]
        self.holder = subprocess.Popen(call, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout is not None
        if self.holder.stdout.readline() != "ready\n":
            raise RuntimeError("no file system can be mounted in a namespace of its own")
        into = [] if is_root else ["--user", "--preserve-credentials"]
        self.wrapper = ["nsenter", "--target", str(self.holder.pid), "--mount", *into, "--"]

    def make_room(self) -> None:
        """Give the small file system as much space as anybody needs."""
        if self.holder is not None:
            again = ["mount", "-o", f"remount,size={64 * MIB}", str(self.store)]
            subprocess.run([*self.wrapper, *again], check=True)

    def end(self) -> None:
        """Let go of the namespace."""
        if self.holder is not None:
            self.holder.kill()
            self.holder.communicate()


class Server:
    """A device that is served."""

    def __init__(self, place: Place, command: str, device: str, options: list[str], injections: list[str]) -> None:
        """Start, and wait until clients can connect."""
        self.socket = place.folder / "nbd.sock"
        self.log = place.folder / "strace.log"
        self.errors = place.folder / "stderr"
        pid_file = place.folder / "pid"
        for path in (self.socket, pid_file, self.log):
            path.unlink(missing_ok=True)
        shutil.rmtree(place.folder / "run", ignore_errors=True)
        call = list(place.wrapper)
        if injections:
            # With seccomp only these calls stop, but strace 6.1 then injects no signal.
            fast = [] if any("signal=" in injection for injection in injections) else ["--seccomp-bpf"]
            call += ["strace", "-f", *fast, "-qq", "-o", str(self.log)]
            call += [part for name in FILES for part in ("-P", f"{place.store}{name}")]
            calls = ",".join(injection.partition(":")[0] for injection in injections)
            call += ["-e", f"trace={calls}"]
            call += [part for injection in injections for part in ("-e", f"inject={injection}")]
        call += [command, "serve", "--device", device, "--capacity", f"{CAPACITY_BYTES}B", *options]
        call += ["--nbd", f"unix:{self.socket}", "--pidfile", str(pid_file), "--no-realtime"]
        call += ["-o", str(place.folder / "run")]
        environment = {**os.environ, "XDG_STATE_HOME": str(place.folder), "RUST_BACKTRACE": "0"}
        with self.errors.open("w") as errors:
            silent = subprocess.DEVNULL
            self.process = subprocess.Popen(
                call, stdin=silent, stdout=silent, stderr=errors, env=environment, start_new_session=True
            )
        give_up = time.monotonic() + HANG_S
        while True:
            text = pid_file.read_text().strip() if pid_file.exists() else ""
            if text:
                self.pid = int(text)
                return
            if self.process.poll() is not None:
                raise Unservable(self.process.returncode, self.said())
            if time.monotonic() > give_up:
                # strace alone would let go of the server.
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
                raise HungServer("the server did not start")
            time.sleep(0.002)

    def said(self) -> str:
        """Return what it said on standard error."""
        return self.errors.read_text(errors="replace").strip()

    def signal(self, number: int) -> None:
        """Signal the server itself, if it is there."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def end(self, number: int) -> int:
        """End it by a signal; return the status."""
        self.signal(number)
        try:
            return self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self.process.wait()
            raise HungServer("the server did not end") from None

    def was_injected(self) -> bool:
        """Whether a call failed on request."""
        return self.log.exists() and "(INJECTED)" in self.log.read_text(errors="replace")


class Trial:
    """A device through its lives."""

    def __init__(self, specification: dict[str, Any], folder: Path) -> None:
        """Draw what the specification leaves open."""
        self.specification = specification
        self.fault = FAULTS[specification["fault"]]
        names = ("store", "cache", "fault", "load", "seed")
        self.draw = random.Random("/".join(str(specification[name]) for name in names))
        small = self.draw.randrange(MIB // 4, 3 * MIB) if self.fault.full else None
        self.place = Place(folder, small)
        self.ledger = Ledger(CAPACITY_BYTES, specification["cache"])
        self.outcome = Outcome()
        is_durable = self.draw.random() < 0.5 if self.fault.durable is None else self.fault.durable
        self.options = [part.format(store=self.place.store) for part in STORES[specification["store"]]]
        self.options += ["--durable"] if is_durable else []
        #: SIGTERM or SIGKILL ends a server that the fault does not end.
        self.ends_in_order = self.draw.random() < 0.6
        #: It ended with status 0.
        self.ended_fine = False

    def wrong(self, kind: str, text: str) -> None:
        """Note what went wrong first."""
        self.outcome.wrong.setdefault(kind, text)

    def serve(self, injections: list[str] | None = None) -> Server:
        """Start a server of the device."""
        command, device = self.specification["command"], self.specification["device"]
        return Server(self.place, command, device, self.options, injections or [])

    def go(self) -> Outcome:
        """Go through all lives."""
        try:
            # On a full disk an earlier life would fail already.
            if not self.fault.full and self.draw.random() < 0.5:
                self.live_well(LOADS["small writes"])
            self.live_with_fault()
            self.place.make_room()
            self.look("lost")
        except HungServer as hung:
            self.wrong("hang", str(hung))
        finally:
            self.place.end()
        return self.outcome

    def live_well(self, load: Any) -> None:
        """Live without a fault, up to an orderly end."""
        server = self.serve()
        try:
            client = Client(server.socket, self.ledger, sync_fault=False)
            client.run(load(self.draw, CAPACITY_BYTES), 8)
            self.expect_fine(server.end(signal.SIGTERM), client.wrong, server)
        finally:
            server.signal(signal.SIGKILL)
        self.ledger.end(in_order=True)

    def expect_fine(self, status: int, wrong: dict[str, str], server: Server) -> None:
        """Nothing may go wrong without a fault."""
        for kind, text in wrong.items():
            self.wrong(kind, text)
        if status != 0:
            self.wrong("status", f"status {status} without a fault: {server.said()}")

    def live_with_fault(self) -> None:
        """Live with the fault, up to an end of any kind."""
        number = self.draw.randint(1, self.draw.choice(self.fault.bounds))
        injections = [injection.format(n=number) for injection in self.fault.injections]
        try:
            server = self.serve(injections)
        except Unservable as refused:
            self.outcome.refused = self.outcome.injected = True
            if refused.status not in (STATUS_FAILURE, -signal.SIGKILL if self.fault.kills else STATUS_FAILURE):
                self.wrong("status", f"a start that failed: {refused}")
            self.ledger.end(in_order=False)
            return
        client = None
        sync_fault = bool(self.fault.durable) and not self.fault.kills
        try:
            with contextlib.suppress(nbd.Error):
                client = Client(server.socket, self.ledger, sync_fault)
                load = LOADS[self.specification["load"]]
                client.run(load(self.draw, CAPACITY_BYTES), self.draw.choice([1, 2, 8]))
            self.judge_end(server, client)
        finally:
            server.signal(signal.SIGKILL)
            self.outcome.injected |= server.was_injected()
            self.outcome.promises = self.ledger.promises

    def judge_end(self, server: Server, client: Client | None) -> None:
        """End the server, unless the fault did, and judge its status."""
        wrong = client.wrong if client is not None else {}
        has_failed = client is not None and client.has_failed
        for kind, text in wrong.items():
            # That a read fails whose system call fails is no news.
            if not (kind == "failed read" and self.fault.reads):
                self.wrong(kind, text)
        if self.fault.kills:
            status = server.end(signal.SIGKILL)
            # Either this signal ended it or the injected one.
            self.outcome.injected |= client is None or client.is_gone
            if status != -signal.SIGKILL:
                self.wrong("status", f"status {status} at SIGKILL")
            self.ledger.end(in_order=False)
            return
        if client is None or client.is_gone:
            self.wrong("status", f"the server closed the connection: {server.said()}")
        if self.fault.full:
            self.outcome.injected |= has_failed
            if client is not None and client.has_failed_flush and self.specification["store"] in SETS_SPACE_ASIDE:
                self.wrong("failed flush", "space that was set aside is not there")
        if not self.ends_in_order:
            server.end(signal.SIGKILL)
            self.ledger.end(in_order=False)
            return
        status = server.end(signal.SIGTERM)
        self.outcome.injected |= server.was_injected() or (self.fault.full and status != 0)
        if status not in (0, STATUS_FAILURE) or (status != 0 and not self.outcome.injected):
            self.wrong("status", f"status {status} at SIGTERM: {server.said()}")
        if status == 0 and client is not None and client.sync_fault and client.has_failed:
            self.wrong("hidden", "status 0 after a failed synchronisation")
        self.ended_fine = status == 0
        self.ledger.end(in_order=self.ended_fine)

    def look(self, kind: str) -> None:
        """Serve the store without a fault and compare; then it must be as good as any."""
        for life in range(2):
            try:
                server = self.serve()
            except Unservable as refused:
                self.wrong("not opened", f"{refused}")
                return
            try:
                client = Client(server.socket, self.ledger, sync_fault=False)
                try:
                    lost = client.compare()
                except nbd.Error as error:
                    lost = f"a read after the end fails: {error}"
                if lost is not None:
                    self.wrong(kind, f"{lost} (life {life} after the fault)")
                    if self.ended_fine:
                        self.wrong("status", "status 0, and bytes are lost")
                    return
                client.run(LOADS["small writes"](self.draw, CAPACITY_BYTES), 8)
                client.run(iter([Operation("flush")]), 1)
                self.expect_fine(server.end(signal.SIGTERM), client.wrong, server)
            finally:
                server.signal(signal.SIGKILL)
            self.ledger.end(in_order=True)


def main() -> None:
    """Do one trial."""
    specification = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="store-faults-") as folder:
        outcome = Trial(specification, Path(folder).resolve()).go()
    print(json.dumps(vars(outcome)))


if __name__ == "__main__":
    main()
