"""What clients ask for."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from store_faults.ledger import SECTOR_BYTES

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Operation:
    """A request that a load asks for."""

    kind: str
    offset: int = 0
    length: int = 0
    fua: bool = False


def small_writes(draw: random.Random, capacity: int) -> Iterator[Operation]:
    """Random writes of 4 KiB, a third of them to the same 64 blocks, with flushes and reads."""
    for _ in range(500):
        kind = draw.choices(["write", "read", "flush"], [80, 14, 6])[0]
        block = draw.randrange(64 if draw.random() < 1 / 3 else capacity // (4 * KIB))
        yield Operation(kind, block * 4 * KIB, 4 * KIB, fua=kind == "write" and draw.random() < 0.05)


def large_writes(draw: random.Random, capacity: int) -> Iterator[Operation]:
    """Sequential writes of 64 KiB to 1 MiB, round and round, with flushes and reads."""
    offset = 0
    for _ in range(40):
        length = draw.choice([64, 128, 256, 512, 1024]) * KIB
        offset = offset if offset + length <= capacity else 0
        yield Operation("write", offset, length)
        offset += length
        if draw.random() < 0.2:
            yield Operation("flush")
        if draw.random() < 0.2:
            yield Operation("read", draw.randrange(capacity // (64 * KIB)) * 64 * KIB, 64 * KIB)


def zeroing(draw: random.Random, capacity: int) -> Iterator[Operation]:
    """Writes, zeroings (some keep their space) and discards of 512 bytes to 128 KiB on one quarter of the device."""
    sectors = capacity // SECTOR_BYTES // 4
    for _ in range(250):
        kind = draw.choices(["write", "zero", "reserve", "trim", "read", "flush"], [40, 11, 11, 12, 20, 6])[0]
        count = draw.choice([1, 8, 8, 32, 256])
        sector = draw.randrange(sectors - count)
        if draw.random() < 0.7:
            sector, count = sector // 8 * 8, (count + 7) // 8 * 8
        yield Operation(kind, sector * SECTOR_BYTES, count * SECTOR_BYTES)


def full_device(draw: random.Random, capacity: int) -> Iterator[Operation]:
    """The whole device once, then random writes of 4 KiB over it."""
    for offset in range(0, capacity, 256 * KIB):
        yield Operation("write", offset, 256 * KIB)
        if draw.random() < 0.1:
            yield Operation("flush")
    yield Operation("flush")
    for _ in range(200):
        kind = draw.choices(["write", "read", "flush"], [80, 14, 6])[0]
        yield Operation(kind, draw.randrange(capacity // (4 * KIB)) * 4 * KIB, 4 * KIB)


LOADS = {
    "small writes": small_writes,
    "large writes": large_writes,
    "zeroing": zeroing,
    "full device": full_device,
}
