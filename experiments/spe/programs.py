"""Programs for `chronodisk whatif` to run: `beside` (a computing thread beside a reader) and `sqlite`."""

import hashlib
import mmap
import os
import random
import sqlite3
import sys
import threading
import time

BLOCK = 4096
#: One hash of this releases Python's lock, so that threads compute beside each other.
PIECE = bytes(65536)


def compute(pieces: int) -> None:
    """Do so much work; how long it takes is the processor's matter."""
    for _ in range(pieces):
        hashlib.sha256(PIECE)


def pieces_per_second() -> float:
    """Measure how fast this processor computes."""
    compute(2000)
    began = time.perf_counter()
    compute(10000)
    return 10000 / (time.perf_counter() - began)


def beside(reads: int, pieces_per_read: int, pieces_beside: int) -> None:
    """Read and compute by turns in one thread, compute in another; the end is the later one's."""
    other = threading.Thread(target=compute, args=(pieces_beside,))
    other.start()
    descriptor = os.open(os.environ["CHRONODISK_DEVICE"], os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, BLOCK)
    numbers = random.Random(1)
    for _ in range(reads):
        compute(pieces_per_read)
        os.preadv(descriptor, [buffer], numbers.randrange(1 << 16) * BLOCK)
    other.join()


def sqlite(path: str, transactions: int) -> None:
    """Insert a row by each transaction, which is on the disk before the next one begins."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE entries (number INTEGER PRIMARY KEY, text TEXT)")
    for number in range(transactions):
        database.execute("INSERT INTO entries VALUES (?, ?)", (number, "x" * 200))
    database.close()


if __name__ == "__main__":
    if sys.argv[1] == "beside":
        beside(*map(int, sys.argv[2:]))
    else:
        sqlite(sys.argv[2], int(sys.argv[3]))
