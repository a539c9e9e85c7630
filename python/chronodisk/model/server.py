"""Answering Chronodisk's questions over a pipe. The protocol is described in crates/chronodisk-engine/src/protocol."""

import io
import struct
import sys
from collections.abc import Callable
from typing import BinaryIO

from chronodisk.model.interface import Background, BackgroundDone, Completion, Device, Model, Op, Priority, Request

VERSION = 1
MAGIC = b"CHRONODK"
_HEADER = struct.Struct("<IHHQ")
_RESET = struct.Struct("<QQQB")
_SUBMIT = struct.Struct("<QQQIBBBBHHI")
_NEXT = struct.Struct("<QQ")
_BODY_BYTES_MAX = (1 << 20) + (1 << 14)

_BACKGROUND = struct.Struct("<QB")
_BACKGROUND_DONE_MAX = 1 << 15

_HELLO, _RESET_KIND, _SUBMIT_KIND, _NEXT_KIND, _STATISTICS, _END = 1, 2, 7, 8, 9, 10
_SUBMIT_ANYWHERE, _BACKGROUND_KIND, _TAKE_BACKGROUND = 12, 13, 14
_ANSWER, _DONE, _ERROR = 0x8000, 0xFFFE, 0xFFFF
_ERROR_VERSION, _ERROR_VIOLATION, _ERROR_DEVICE, _ERROR_MODEL, _ERROR_UNSUPPORTED = 0, 2, 3, 6, 9

#: Makes a model from a seed and, if the user asked for one, a capacity in sectors; a class is one.
ModelMaker = Callable[[int, int | None], Model]


class _UnsupportedError(Exception):
    """The model can't serve this kind of request."""


class ProtocolError(Exception):
    """The other side said something that can't be."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def serve(make: ModelMaker) -> None:
    """Answers on standard output what is asked on standard input, until that ends."""
    # What a model prints must not get between the answers. Without a buffer nothing is left to write when the other
    # side has closed.
    output = io.FileIO(sys.stdout.fileno(), "wb", closefd=False)
    sys.stdout = sys.stderr
    try:
        Server(make, sys.stdin.buffer, output).run()
    except BrokenPipeError:
        # Nobody waits for an answer any more, as at the end of a run that was interrupted.
        pass


class Server:
    """One session over two streams."""

    def __init__(self, make: ModelMaker, source: BinaryIO, sink: BinaryIO) -> None:
        self._make = make
        self._source = source
        self._sink = sink
        self._model: Model | None = None
        self._outstanding: set[int] = set()
        self._now = 0
        self._executed = 0
        self._background_done: list[BackgroundDone] = []

    def run(self) -> None:
        """Answers until the other side has ended the session or the stream."""
        while header := self._source.read(_HEADER.size):
            if len(header) < _HEADER.size:
                return
            length, kind, _unanswered, sequence = _HEADER.unpack(header)
            if length > _BODY_BYTES_MAX:
                return
            body = self._source.read(length)
            try:
                answer_kind, answer = self._answer(kind, body)
            except ProtocolError as error:
                reason = str(error).encode()
                self._send(_ERROR, sequence, struct.pack("<BI", error.code, len(reason)) + reason)
                return
            except _UnsupportedError as error:
                reason = str(error).encode()
                answer_kind, answer = _ERROR, struct.pack("<BI", _ERROR_UNSUPPORTED, len(reason)) + reason
            except Exception as error:
                # The traceback is for who wrote the model, the reason for who runs the guest.
                reason = f"the model raised {type(error).__name__}: {error}".encode()[:4096]
                self._send(_ERROR, sequence, struct.pack("<BI", _ERROR_MODEL, len(reason)) + reason)
                raise
            self._executed = sequence
            self._send(answer_kind, sequence, answer)
            if kind == _END:
                return

    def _answer(self, kind: int, body: bytes) -> tuple[int, bytes]:
        if kind == _HELLO:
            return self._hello(body)
        if kind == _RESET_KIND:
            return self._reset(body)
        if kind == _SUBMIT_KIND:
            return self._submit(body)
        if kind == _NEXT_KIND:
            return self._next(body)
        if kind == _SUBMIT_ANYWHERE:
            return _ANSWER | _SUBMIT_ANYWHERE, struct.pack("<Q", self._submit_anywhere(body))
        if kind == _BACKGROUND_KIND:
            return self._change_background(body)
        if kind == _TAKE_BACKGROUND:
            return _ANSWER | _TAKE_BACKGROUND, self._take_background(body)
        if kind == _STATISTICS:
            return _ANSWER | _STATISTICS, self._statistics()
        if kind == _END:
            return _DONE, b""
        raise ProtocolError(_ERROR_VIOLATION, f"a model does not understand a command of kind {kind}")

    def _hello(self, body: bytes) -> tuple[int, bytes]:
        if body[:8] != MAGIC:
            raise ProtocolError(_ERROR_VIOLATION, "this is a model, to be started by chronodisk --device exec:COMMAND")
        (version,) = struct.unpack_from("<H", body, 8)
        if version != VERSION:
            reason = f"chronodisk.model speaks version {VERSION} of the protocol, and chronodisk version {version}"
            raise ProtocolError(_ERROR_VERSION, reason)
        return _ANSWER | _HELLO, MAGIC + struct.pack("<H", VERSION) + b"\1" * 16 + struct.pack("<Q", self._executed)

    def _reset(self, body: bytes) -> tuple[int, bytes]:
        seed, capacity_bytes, _store_budget, _speculate = _RESET.unpack_from(body)
        try:
            self._model = self._make(seed, capacity_bytes // 512 if capacity_bytes else None)
        except ValueError as error:
            raise ProtocolError(_ERROR_DEVICE, str(error)) from error
        self._outstanding.clear()
        self._background_done.clear()
        self._now = 0
        return _ANSWER | _RESET_KIND, _info(self._model.device)

    def _submit(self, body: bytes) -> tuple[int, bytes]:
        at, request = self._arrival(body)
        self._device().submit(at, request)
        return _DONE, b""

    def _submit_anywhere(self, body: bytes) -> int:
        at, request = self._arrival(body[: _SUBMIT.size])
        places = [place for (place,) in struct.iter_unpack("<Q", body[_SUBMIT.size :])]
        return self._device().submit_anywhere(at, request, places)

    def _arrival(self, body: bytes) -> tuple[int, Request]:
        at, number, lba, sectors, op, priority, fua, _, queue, _, issuer = _SUBMIT.unpack(body)
        self._now = at
        self._outstanding.add(number)
        return at, Request(number, Op(op), lba, sectors, bool(fua), Priority(priority), queue, issuer)

    def _change_background(self, body: bytes) -> tuple[int, bytes]:
        at, change = _BACKGROUND.unpack_from(body)
        ranges = [range(first, end) for first, end in struct.iter_unpack("<QQ", body[_BACKGROUND.size :])]
        self._now = at
        if change == 2:
            self._background().forget(at, ranges)
        else:
            self._background().want(at, ranges, at_rest=change == 1)
        return _DONE, b""

    def _take_background(self, body: bytes) -> bytes:
        (until,) = struct.unpack("<Q", body)
        background = self._background()
        self._background_done += background.take(until)
        now, self._background_done = (
            self._background_done[:_BACKGROUND_DONE_MAX],
            self._background_done[_BACKGROUND_DONE_MAX:],
        )
        answer = struct.pack("<Qd", background.wanted(), background.media_bytes_per_s)
        return answer + b"".join(struct.pack("<QQQ", done.lba, done.sectors, done.at) for done in now)

    def _background(self) -> Background:
        background = self._device().background()
        if background is None:
            raise _UnsupportedError("the model serves no background requests")
        return background

    def _next(self, body: bytes) -> tuple[int, bytes]:
        _taken, safe_until = _NEXT.unpack(body)
        if not self._outstanding:
            return _ANSWER | _NEXT_KIND, b"\0"
        model = self._device()
        done = model.advance(safe_until)
        if not done:
            return _ANSWER | _NEXT_KIND, struct.pack("<BQ", 2, model.bound())
        return _ANSWER | _NEXT_KIND, self._completions(done)

    def _completions(self, done: list[Completion]) -> bytes:
        at = done[0].at
        answer = struct.pack("<BQ", 1, at)
        for completion in done:
            if completion.at != at:
                raise ValueError(f"advance told completions at {at} and at {completion.at}; expected one instant")
            # Whether it is outstanding at all the other side checks.
            self._outstanding.discard(completion.id)
            answer += struct.pack("<QB", completion.id, completion.status)
        return answer

    def _statistics(self) -> bytes:
        model = self._device().statistics()
        answer = struct.pack("<QQQQI", 0, 0, 0, 0, len(model))
        for name, value in model.items():
            encoded = name.encode()[:256]
            answer += struct.pack("<I", len(encoded)) + encoded + struct.pack("<d", value)
        return answer

    def _device(self) -> Model:
        if self._model is None:
            raise ProtocolError(_ERROR_VIOLATION, "there is no device yet; reset makes one")
        return self._model

    def _send(self, kind: int, sequence: int, body: bytes) -> None:
        rest = _HEADER.pack(len(body), kind, 0, sequence) + body
        while rest:
            rest = rest[self._sink.write(rest) :]


def _info(device: Device) -> bytes:
    name = device.name.encode()
    blocks = (device.capacity_sectors, device.logical_block_bytes, device.physical_block_bytes)
    # It neither runs ahead nor keeps bytes, and has no profile.
    flags = (device.volatile_cache, device.rotational, False, False)
    fixed = struct.pack("<QIII????", *blocks, device.discard_unit_sectors or 0, *flags)
    return fixed + struct.pack("<I", len(name)) + name + struct.pack("<I", 0)
