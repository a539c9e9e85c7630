#!/usr/bin/env python3
"""A disk with one platter and one head; its twin in Rust is the profile one-platter.toml beside it."""

import math

from chronodisk.model import Device, Op, QueueModel, RandomStream, Request, serve

CYLINDERS, SECTORS_PER_TRACK = 4000, 500
OVERHEAD, SWITCH, SETTLE = 500_000, 1_500_000, 1_000_000  # ns
SINGLE, AVERAGE, FULL = 1_000_000, 8_500_000, 16_000_000  # ns
PER_NANO = 7_200_000  # positions that pass the head in a nanosecond
TURN = 60_000_000_000_000  # positions in a turn, so that both are whole
TRACK = TURN + SWITCH * PER_NANO  # positions from a track's beginning to the next one's
BYTES_PER_SECOND = 300_000_000


class OnePlatter(QueueModel):
    device = Device(name="one-platter", capacity_sectors=CYLINDERS * SECTORS_PER_TRACK, rotational=True)

    def __init__(self, seed: int, capacity_sectors: int | None) -> None:
        super().__init__(seed, capacity_sectors)
        self.phase = RandomStream(seed, "simple-disk", "phase").below(TURN)
        self.cylinder = 0

    def end(self, request: Request, start: int) -> int:
        commanded = start + OVERHEAD
        if request.op in (Op.FLUSH, Op.DISCARD):
            return commanded
        cylinder = request.lba // SECTORS_PER_TRACK
        moved = seek_time(abs(cylinder - self.cylinder)) if cylinder != self.cylinder else 0
        self.cylinder = (request.end - 1) // SECTORS_PER_TRACK
        settle = SETTLE if moved and request.op is not Op.READ else 0
        place, length = begin(request.lba), begin(request.end - 1) - begin(request.lba) + last_sector(request.end - 1)
        ready = self.passed(commanded + moved + settle)
        bus = bus_time(request.bytes) if request.op in (Op.READ, Op.WRITE) else 0
        first_on_bus = min(bus_time(512), bus)
        if request.op is Op.WRITE:  # the medium does not overtake the data
            ready = max(ready, self.passed(commanded + first_on_bus), self.passed(commanded + bus) - length)
        at = ready + (place - ready) % TURN
        ended = self.instant(at + length)
        return max(ended + first_on_bus, self.instant(at) + bus) if request.op is Op.READ else ended

    def passed(self, at: int) -> int:
        return at * PER_NANO + self.phase

    def instant(self, passed: int) -> int:
        return -((self.phase - passed) // PER_NANO)


def seek_time(distance: int) -> int:
    """Lee and Katz's three-point curve, in whole numbers."""
    root, linear = -10 * SINGLE + 15 * AVERAGE - 5 * FULL, 7 * SINGLE - 15 * AVERAGE + 8 * FULL
    curved = root * math.isqrt(((distance - 1) << 62) // (CYLINDERS - 2)) >> 31
    return SINGLE + (curved + linear * (distance - 1) // (CYLINDERS - 2)) // 3


def begin(sector: int) -> int:
    return sector // SECTORS_PER_TRACK * TRACK + sector % SECTORS_PER_TRACK * TURN // SECTORS_PER_TRACK


def last_sector(sector: int) -> int:
    angle = sector % SECTORS_PER_TRACK
    return (angle + 1) * TURN // SECTORS_PER_TRACK - angle * TURN // SECTORS_PER_TRACK


def bus_time(size: int) -> int:
    return -(-size * 1_000_000_000 // BYTES_PER_SECOND)


if __name__ == "__main__":
    serve(OnePlatter)
