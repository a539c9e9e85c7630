"""Clients that do what no client should, beside one that is measured: it should not notice them.

A thousand connections that are through with negotiation and then say nothing; some that ask for a mebibyte time and
again and never read a reply; some whose last request is half of one; some that begin with another protocol, one after
another; and some that hang up while their request is outstanding. All of them are served as far as the server's bounds
allow, and none has a processor of its own: a client's own work is not the server's.

The protocol is that of https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from real_time.servers import Running

SILENT = 1000
OF_EACH_OTHER = 4
#: Serves all of them at the same time.
CONNECTIONS = SILENT + 100
#: Requests of a client that reads no reply, and their length.
UNREAD, UNREAD_BYTES = 64, 1 << 20
#: From one that hangs up or speaks another protocol to the next.
PAUSE_S = 0.1

MAGIC, OPTION_MAGIC, OPTION_EXPORT_NAME = 0x4E42444D41474943, 0x49484156454F5054, 1
FIXED_NEWSTYLE, NO_ZEROES = 1, 2
REQUEST_MAGIC, COMMAND_READ = 0x25609513, 0


@contextmanager
def bad_clients(server: Running) -> Iterator[None]:
    """Have them there, all at once."""
    uri = urlsplit(server.uri)
    path, export = uri.query.removeprefix("socket="), uri.path.removeprefix("/")
    done = threading.Event()
    with contextlib.ExitStack() as open_sockets:
        silent = [open_sockets.enter_context(negotiated(path, export)) for _ in range(SILENT)]
        for client in silent[:OF_EACH_OTHER]:
            client.sendall(b"".join(read(handle, UNREAD_BYTES) for handle in range(UNREAD)))
        for client in silent[OF_EACH_OTHER : 2 * OF_EACH_OTHER]:
            client.sendall(read(0, 4096)[:13])
        coming_and_going = threading.Thread(target=come_and_go, args=(path, export, done))
        coming_and_going.start()
        try:
            yield
        finally:
            done.set()
            coming_and_going.join()


def come_and_go(path: str, export: str, done: threading.Event) -> None:
    """Connect and misbehave, one client after another."""
    while not done.wait(PAUSE_S):
        with negotiated(path, export) as client:
            client.sendall(read(0, 4096))
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            # It may have been shown the door before it is through.
            with contextlib.suppress(OSError):
                client.sendall(b"GET / HTTP/1.1\r\n\r\n" * 8)


def negotiated(path: str, export: str) -> socket.socket:
    """Connect to the export of that name, and get to where requests can be sent."""
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    magic, option_magic, _ = struct.unpack(">QQH", receive(client, 18))
    if (magic, option_magic) != (MAGIC, OPTION_MAGIC):
        raise ValueError(f"{path} greets with {magic:#x} {option_magic:#x}, which is no NBD server")
    client.sendall(struct.pack(">IQII", FIXED_NEWSTYLE | NO_ZEROES, OPTION_MAGIC, OPTION_EXPORT_NAME, len(export)))
    client.sendall(export.encode())
    receive(client, 10)
    return client


def receive(client: socket.socket, count: int) -> bytes:
    """Receive so many bytes."""
    received = b""
    while len(received) < count:
        piece = client.recv(count - len(received))
        if not piece:
            raise ValueError(f"the server hung up after {len(received)} of {count} bytes")
        received += piece
    return received


def read(handle: int, len_bytes: int) -> bytes:
    """Return a request to read from the beginning."""
    return struct.pack(">IHHQQI", REQUEST_MAGIC, 0, COMMAND_READ, handle, 0, len_bytes)
