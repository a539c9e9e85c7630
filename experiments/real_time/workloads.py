"""The six artificial workloads of the Memulator paper, section 5.1."""

import random

SECTOR_BYTES = 512
KIB = 1024
WORKLOADS = ("random-small", "mixed-small", "random-uniform", "mixed-uniform", "random-large", "mixed-large")

READ_SHARE = 0.67
SEQUENTIAL_SHARE = 0.2
LOCAL_SHARE = 0.3
#: A local request begins within so many sectors of the one before it.
LOCAL_SECTORS = 500


def requests(workload: str, capacity_bytes: int, count: int, seed: int = 1) -> list[str]:
    """Return lines as the client reads them: operation, offset and length in bytes."""
    draw = random.Random(f"{workload} {seed}")
    order, sizes = workload.split("-")
    capacity = capacity_bytes // SECTOR_BYTES
    lines = []
    begin, end = 0, 0
    for _ in range(count):
        sectors = length_bytes(sizes, draw) // SECTOR_BYTES
        where = draw.random() if order == "mixed" else 1.0
        if where < SEQUENTIAL_SHARE:
            begin = end
        elif where < SEQUENTIAL_SHARE + LOCAL_SHARE:
            begin += draw.randint(-LOCAL_SECTORS, LOCAL_SECTORS)
        else:
            begin = draw.randrange(capacity)
        begin = max(0, min(begin, capacity - sectors))
        end = begin + sectors
        operation = "r" if draw.random() < READ_SHARE else "w"
        lines.append(f"{operation} {begin * SECTOR_BYTES} {sectors * SECTOR_BYTES}")
    return lines


def length_bytes(sizes: str, draw: random.Random) -> int:
    """Return the length of a request: fixed, or in steps of 2 KiB from 2 to 130."""
    match sizes:
        case "small":
            return 4 * KIB
        case "large":
            return 128 * KIB
        case _:
            return 2 * KIB * draw.randint(1, 65)
