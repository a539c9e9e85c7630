#!/usr/bin/env python3
"""Request pages: interface extensions of a device, for a program in a guest that runs with --interface-extensions.

``interface_extensions.py scan FILE`` reads blocks of FILE at random, and has the device read all of FILE in the gaps.
``interface_extensions.py write FILE`` writes blocks to any of several places in FILE. FILE is a block device. The
formats of the pages are in ``docs/request-pages.md``.
"""

import mmap
import os
import random
import struct
import sys
import time
import zlib

PAGE_BYTES = 4096
SECTOR_BYTES = 512
PAGE_SECTORS = PAGE_BYTES // SECTOR_BYTES
#: What a page asks for.
GAPS, GAPS_AND_REST, TAKE, ANYWHERE = 1, 2, 3, 4
#: Requests of the load.
COUNT = 500
#: Places of a write.
PLACES = 64


class Device:
    """A block device that answers request pages in its first block."""

    def __init__(self, path: str) -> None:
        """Open the device past the page cache."""
        self.file = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.sectors = os.lseek(self.file, 0, os.SEEK_END) // SECTOR_BYTES
        # O_DIRECT needs memory that begins on a page.
        self.buffer = mmap.mmap(-1, PAGE_BYTES)

    def read(self, sector: int) -> bytes:
        """Read the 4 KiB from a sector on."""
        os.preadv(self.file, [self.buffer], sector * SECTOR_BYTES)
        return self.buffer[:]

    def write(self, sector: int, data: bytes) -> None:
        """Write 4 KiB from a sector on."""
        self.buffer[:] = data
        os.pwritev(self.file, [self.buffer], sector * SECTOR_BYTES)

    def ask(self, kind: int, count: int = 0, numbers: tuple[int, ...] = ()) -> None:
        """Write a request page."""
        body = struct.pack("<16sIIIxxxx", b"Chronodisk ask", 1, kind, count)
        body += struct.pack(f"<{len(numbers)}Q", *numbers)
        body = body.ljust(PAGE_BYTES - 4, b"\0")
        self.write(0, body + struct.pack("<I", zlib.crc32(body)))

    def answer(self) -> tuple[int, int, int, bytes]:
        """Read the answer: its outcome, the number of reads in it and of others, and its bytes from the 32nd on."""
        page = self.read(0)
        magic, _, outcome, count, others = struct.unpack_from("<16sIIII", page)
        if magic != b"Chronodisk reply":
            sys.exit("the device does not answer: run the guest with --interface-extensions")
        if outcome in (1, 2):
            sys.exit("the device has no such requests" if outcome == 1 else "the request page has a fault")
        return outcome, count, others, page[32:]


def scan(device: Device) -> None:
    """Read at random while the device reads all of its sectors in the gaps."""
    device.ask(GAPS, 1, (0, device.sectors))
    device.answer()
    begin = time.monotonic()
    for _ in range(COUNT):
        device.read(random.randrange(device.sectors // PAGE_SECTORS) * PAGE_SECTORS)
    seconds = time.monotonic() - begin
    sectors, others = 0, 1
    while others:
        device.ask(TAKE)
        _, count, others, body = device.answer()
        sectors += sum(length for _, length, _ in struct.iter_unpack("<QQQ", body[8 : 8 + 24 * count]))
    print(f"{COUNT / seconds:.1f} reads/s, {sectors * SECTOR_BYTES / seconds / 1e6:.3f} MB/s in their gaps")


def write(device: Device) -> None:
    """Write to any of several free places, and compare with writes to the first of them."""
    times = []
    for ask in (False, True):
        free = list(range(PAGE_SECTORS, PAGE_SECTORS * 1000, PAGE_SECTORS))
        begin, chosen = time.monotonic(), 0.0
        for number in range(COUNT):
            places = random.sample(free, PLACES)
            data = number.to_bytes(4, "little") * (PAGE_BYTES // 4)
            if ask:
                device.ask(ANYWHERE, PLACES, tuple(places))
            since = time.monotonic()
            device.write(places[0], data)
            chosen += time.monotonic() - since
            if ask:
                place = struct.unpack_from("<Q", device.answer()[3])[0]
                if place not in places or device.read(place) != data:
                    sys.exit(f"the block is not at sector {place}")
        times.append((time.monotonic() - begin, chosen / COUNT))
    print(f"{times[0][1] * 1e6:.0f} us a write in place, {times[1][1] * 1e6:.0f} us to any of {PLACES} places")


def main() -> None:
    """Run the part that the command names."""
    parts = {"scan": scan, "write": write}
    if len(sys.argv) != 3 or sys.argv[1] not in parts:
        sys.exit("interface_extensions.py scan|write FILE")
    random.seed(1)
    parts[sys.argv[1]](Device(sys.argv[2]))


if __name__ == "__main__":
    main()
