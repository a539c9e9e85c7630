"""What a client knows: for each sector the contents that it may have now, and those that it may have after the end.

The contract is the one of docs/durability.md. A sector is old or new, never a mixture.

- A change (write, zeroing, discard) that completed is there now. Without a volatile cache, or with the FUA flag, it is
  there afterwards, too. With a cache, everything that was possible before is possible afterwards as well.
- A change that failed, or whose reply never came, may be there or not.
- A flush that completed keeps each change that had completed when the flush was sent.
- After a failed synchronisation what it covered is old or new, for reads, too.
- An orderly end with status 0 keeps everything that is there.
"""

import hashlib
import struct

SECTOR_BYTES = 512
#: The change that every sector of a new device has.
NEW = 0


def contents(change: int, sector: int) -> bytes:
    """Return a sector as a change that writes leaves it: every second change leaves bytes that do not compress."""
    word = struct.pack("<II", change, sector)
    if change % 2 == 0:
        return word * (SECTOR_BYTES // len(word))
    return word + hashlib.shake_128(word).digest(SECTOR_BYTES - len(word))


class Ledger:
    """The knowledge of one client, which never has two changes of one sector under way."""

    def __init__(self, capacity_bytes: int, has_cache: bool) -> None:
        """Begin with a device of zeros."""
        self.sectors = capacity_bytes // SECTOR_BYTES
        self.has_cache = has_cache
        #: For each sector the changes that it may have, oldest first.
        self.now = [[NEW] for _ in range(self.sectors)]
        self.afterwards = [[NEW] for _ in range(self.sectors)]
        #: Changes that leave zeros.
        self.zeros = {NEW}
        #: The completed changes in their order.
        self.completions = {NEW: 0}
        self.changes = 0
        #: How often something was promised.
        self.promises = 0

    def send(self, first: int, count: int, zeros: bool) -> int:
        """Number a change that is on its way to a range of sectors."""
        self.changes += 1
        if zeros:
            self.zeros.add(self.changes)
        for sector in range(first, first + count):
            self.now[sector].append(self.changes)
            self.afterwards[sector].append(self.changes)
        return self.changes

    def complete(self, change: int, first: int, count: int, fua: bool) -> None:
        """Note that a change has completed."""
        self.completions[change] = len(self.completions)
        is_safe = fua or not self.has_cache
        self.promises += is_safe
        for sector in range(first, first + count):
            self.now[sector] = [change]
            if is_safe:
                self.afterwards[sector] = [change]

    def send_flush(self) -> int:
        """Return what a flush covers that is sent now."""
        return len(self.completions)

    def complete_flush(self, covered: int) -> None:
        """Note that a flush has completed."""
        self.promises += 1
        for sector, possible in enumerate(self.afterwards):
            if len(possible) == 1:
                continue
            # A change that did not complete has no place among the completions.
            safe = [at for at, change in enumerate(possible) if self.completions.get(change, covered) < covered]
            if safe:
                self.afterwards[sector] = possible[safe[-1] :]

    def fail_synchronisation(self) -> None:
        """Note that a synchronisation has failed."""
        self.now = [list(possible) for possible in self.afterwards]

    def end(self, in_order: bool) -> None:
        """Note that the server has ended, and whether it said that it kept everything."""
        if in_order:
            self.afterwards = [list(possible) for possible in self.now]
        else:
            self.now = [list(possible) for possible in self.afterwards]

    def check(self, first: int, found: bytes) -> str | None:
        """Compare what a read returned; say what is wrong with the first sector that is wrong."""
        for index in range(len(found) // SECTOR_BYTES):
            sector = first + index
            if self._change_of(sector, found, index) is None:
                change, place = struct.unpack_from("<II", found, index * SECTOR_BYTES)
                return f"sector {sector} begins with change {change} of {place}, expected {self.now[sector]}"
        return None

    def settle(self, first: int, found: bytes) -> None:
        """Note what was found after an end: it is what there is."""
        for index in range(len(found) // SECTOR_BYTES):
            change = self._change_of(first + index, found, index)
            if change is not None:
                self.now[first + index] = [change]
                self.afterwards[first + index] = [change]

    def _change_of(self, sector: int, found: bytes, index: int) -> int | None:
        begin = index * SECTOR_BYTES
        piece = found[begin : begin + SECTOR_BYTES]
        for change in reversed(self.now[sector]):
            expected = bytes(SECTOR_BYTES) if change in self.zeros else contents(change, sector)
            if piece == expected:
                return change
        return None
