"""Replays a log of dm-log-writes, and checks the state at each flush and FUA write after the log's first mark.

Runs in a guest, as root. `replay.py LOG REPLAY COW STATES` prints the number of entries, of states and of failing ones
as JSON. `REPLAY` gets the entries. A snapshot with its changes on `COW` is mounted and checked, as by `chronodisk
crash`: mount, unmount, `e2fsck -f -n`, mount, unmount. The format is that of dm-log-writes.c in Linux.
"""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

MAGIC = 0x6A736677736872
SUPER = struct.Struct("<QQQI")
ENTRY = struct.Struct("<QQQQ")
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
MOUNTED = "/tmp/state"


class Entry(NamedTuple):
    """An entry of the log: its range in sectors, flags, and the place of its data in the log."""

    sector: int
    sectors: int
    flags: int
    data_at: int


def entries(log: int) -> tuple[int, list[Entry]]:
    """Give the size of a sector in bytes, and all entries of the log."""
    magic, version, count, sector_bytes = SUPER.unpack(os.pread(log, SUPER.size, 0))
    if (magic, version) != (MAGIC, 1):
        raise SystemExit(f"expected a log of dm-log-writes, version 1; found {magic:#x}, version {version}")
    found, at = [], sector_bytes
    for _ in range(count):
        # The name of a mark is in the entry's own sector.
        sector, sectors, flags, _ = ENTRY.unpack(os.pread(log, ENTRY.size, at))
        at += sector_bytes
        found.append(Entry(sector, sectors, flags, at))
        at += 0 if flags & (DISCARD | MARK) else sectors * sector_bytes
    return sector_bytes, found


def apply(entry: Entry, log: int, replay: int, sector_bytes: int) -> None:
    """Write the data of an entry; a discard reads as zeros."""
    if entry.flags & MARK or not entry.sectors:
        return
    len_bytes = entry.sectors * sector_bytes
    data = bytes(len_bytes) if entry.flags & DISCARD else os.pread(log, len_bytes, entry.data_at)
    os.pwrite(replay, data, entry.sector * sector_bytes)


def passes(device: str) -> bool:
    """Recover and check a file system."""
    steps = [
        ["mount", device, MOUNTED],
        ["umount", MOUNTED],
        ["e2fsck", "-f", "-n", device],
        ["mount", device, MOUNTED],
        ["umount", MOUNTED],
    ]
    return all(subprocess.run(step, capture_output=True, check=False).returncode == 0 for step in steps)


def snapshots(replay: str, cow: str) -> Generator[str]:
    """Give a new snapshot of the replayed device, time and again."""
    sectors = subprocess.run(["blockdev", "--getsz", replay], capture_output=True, text=True, check=True).stdout.strip()
    table = f"0 {sectors} snapshot {replay} {cow} N 8"
    while True:
        # A snapshot without its header is a new one.
        with Path(cow).open("r+b") as begin:
            begin.write(bytes(4096))
            begin.flush()
            os.fsync(begin.fileno())
        subprocess.run(["dmsetup", "create", "state", "--table", table], check=True)
        yield "/dev/mapper/state"
        subprocess.run(["dmsetup", "remove", "--retry", "state"], check=True)


def main() -> None:
    """Replay the log."""
    log_name, replay_name, cow, most = sys.argv[1:]
    Path(MOUNTED).mkdir()
    log, replay = os.open(log_name, os.O_RDONLY), os.open(replay_name, os.O_RDWR)
    sector_bytes, found = entries(log)
    # The mark is set when there is a file system.
    made = next(index for index, entry in enumerate(found) if entry.flags & MARK)
    ends = [index for index, entry in enumerate(found) if index > made and entry.flags & (FLUSH | FUA)]
    step = max(1, len(ends) // int(most))
    wanted = set(ends[::step][: int(most)])
    states = snapshots(replay_name, cow)
    checked = failed = 0
    for index, entry in enumerate(found):
        apply(entry, log, replay, sector_bytes)
        if index in wanted:
            os.fsync(replay)
            checked += 1
            failed += not passes(next(states))
    states.close()
    print(json.dumps({"entries": len(found), "checked": checked, "failed": failed}))


if __name__ == "__main__":
    main()
