"""A client of libnbd that keeps several requests under way and knows what was promised."""

import errno
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbd

from store_faults.ledger import SECTOR_BYTES, Ledger, contents
from store_faults.loads import KIB, Operation

#: Without a reply for so long a server counts as hung.
HANG_S = 20.0
#: How much is compared with one read.
COMPARED_BYTES = 256 * KIB


class HungServer(Exception):
    """No reply came for `HANG_S`."""


@dataclass
class Pending:
    """A request under way."""

    operation: Operation
    buffer: nbd.Buffer | None
    #: The number of a change, or what a flush covers.
    number: int
    #: A request had failed when this one was sent.
    after_failure: bool

    def overlaps(self, other: Operation) -> bool:
        """Whether both touch the same bytes, and one changes them."""
        own = self.operation
        if own.kind == other.kind == "read":
            return False
        return own.offset < other.offset + other.length and other.offset < own.offset + own.length


class Client:
    """A connection to a server, and what is learned from it."""

    def __init__(self, socket: Path, ledger: Ledger, sync_fault: bool) -> None:
        """Connect. With `sync_fault` synchronisations are what fails, if anything does."""
        self.ledger = ledger
        self.sync_fault = sync_fault
        self.handle = nbd.NBD()
        self.handle.connect_unix(str(socket))
        self.has_fua = self.handle.can_fua()
        self.under_way: dict[int, Pending] = {}
        self.is_gone = False
        #: What went wrong, by its kind; the first of each.
        self.wrong: dict[str, str] = {}
        #: A change or a flush failed; a flush did.
        self.has_failed = self.has_failed_flush = False

    def note(self, kind: str, text: str) -> None:
        """Keep what went wrong first."""
        self.wrong.setdefault(kind, text)

    def run(self, operations: Iterator[Operation], depth: int) -> bool:
        """Do all operations, so many at a time; false if the server went away."""
        for operation in operations:
            while len(self.under_way) >= depth or any(one.overlaps(operation) for one in self.under_way.values()):
                if not self._wait():
                    return False
            try:
                self._send(operation)
            except nbd.Error:
                if not self._is_dead():
                    raise
                self.is_gone = True
                return False
        while self.under_way:
            if not self._wait():
                return False
        return True

    def compare(self) -> str | None:
        """Read the whole device after an end; say what it lost."""
        size = self.handle.get_size()
        lost = None
        for offset in range(0, size, COMPARED_BYTES):
            found = bytes(self.handle.pread(min(COMPARED_BYTES, size - offset), offset))
            lost = lost or self.ledger.check(offset // SECTOR_BYTES, found)
            self.ledger.settle(offset // SECTOR_BYTES, found)
        return lost

    def _send(self, operation: Operation) -> None:
        first, count = operation.offset // SECTOR_BYTES, operation.length // SECTOR_BYTES
        handle, buffer, number = self.handle, None, 0
        flags = nbd.CMD_FLAG_FUA if operation.fua and self.has_fua else 0
        after_failure = self.has_failed
        if operation.kind == "read":
            buffer = nbd.Buffer(operation.length)
            cookie = handle.aio_pread(buffer, operation.offset)
        elif operation.kind == "flush":
            number = self.ledger.send_flush()
            cookie = handle.aio_flush()
        else:
            number = self.ledger.send(first, count, zeros=operation.kind != "write")
            if operation.kind == "write":
                data = b"".join(contents(number, sector) for sector in range(first, first + count))
                buffer = nbd.Buffer.from_bytearray(bytearray(data))
                cookie = handle.aio_pwrite(buffer, operation.offset, flags=flags)
            elif operation.kind == "zero":
                cookie = handle.aio_zero(operation.length, operation.offset)
            elif operation.kind == "reserve":
                cookie = handle.aio_zero(operation.length, operation.offset, flags=nbd.CMD_FLAG_NO_HOLE)
            else:
                cookie = handle.aio_trim(operation.length, operation.offset)
        self.under_way[cookie] = Pending(operation, buffer, number, after_failure)

    def _is_dead(self) -> bool:
        return bool(self.handle.aio_is_dead() or self.handle.aio_is_closed())

    def _wait(self) -> bool:
        """Take the replies that are there, at least one; false if the server went away."""
        give_up = time.monotonic() + HANG_S
        while True:
            taken = False
            while (cookie := self._completed()) > 0:
                self._take(cookie)
                taken = True
            if taken:
                return True
            if self._is_dead():
                self.is_gone = True
                return False
            if time.monotonic() > give_up:
                kinds = sorted(one.operation.kind for one in self.under_way.values())
                raise HungServer(f"no reply to {', '.join(kinds)}")
            try:
                self.handle.poll(1000)
            except nbd.Error:
                if not self._is_dead():
                    raise

    def _completed(self) -> int:
        try:
            return int(self.handle.aio_peek_command_completed())
        except nbd.Error:
            return 0

    def _take(self, cookie: int) -> None:
        pending = self.under_way.pop(cookie)
        operation = pending.operation
        try:
            self.handle.aio_command_completed(cookie)
        except nbd.Error as error:
            # Without a connection no reply has come, and libnbd ends the request by itself.
            if error.errnum != errno.ENOTCONN:
                self._take_failure(operation, error)
            return
        first, count = operation.offset // SECTOR_BYTES, operation.length // SECTOR_BYTES
        if operation.kind == "read":
            assert pending.buffer is not None
            wrong = self.ledger.check(first, bytes(pending.buffer.to_bytearray()))
            if wrong is not None:
                self.note("wrong read", wrong)
            return
        if operation.kind == "flush":
            self.ledger.complete_flush(pending.number)
            is_synchronised = True
        else:
            fua = operation.fua and self.has_fua
            self.ledger.complete(pending.number, first, count, fua)
            is_synchronised = fua or not self.ledger.has_cache
        if self.sync_fault and pending.after_failure and is_synchronised:
            self.note("hidden", f"a {operation.kind} succeeded after a failed synchronisation")

    def _take_failure(self, operation: Operation, error: nbd.Error) -> None:
        if operation.kind == "read":
            self.note("failed read", str(error))
            return
        self.has_failed = True
        self.has_failed_flush |= operation.kind == "flush"
        if self.sync_fault:
            self.ledger.fail_synchronisation()
