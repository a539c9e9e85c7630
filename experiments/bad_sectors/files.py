"""Makes and reads the files of a file system with bad sectors; runs in a guest, with the host's Python alone.

`files.py make` makes them. `files.py look` reads each, replaces the bytes of those that can't be read, reads these once
more, and prints what became of them as JSON.
"""

import errno
import json
import os
import random
import sys
from collections import Counter
from pathlib import Path

ROOT = Path("/mnt")
FOLDERS = 64
FILES_OF_A_FOLDER = 32
LEN_BYTES = 16 << 10
WHOLE, WRONG = "whole", "wrong bytes"


def names() -> list[str]:
    """Give the names of all files, folder by folder."""
    return [f"folder-{folder}/file-{file}" for folder in range(FOLDERS) for file in range(FILES_OF_A_FOLDER)]


def contents(name: str) -> bytes:
    """Give the bytes of a file: its name decides them."""
    return random.Random(name).randbytes(LEN_BYTES)  # noqa: S311


def make() -> None:
    """Make all files, and put them on the device."""
    for name in names():
        path = ROOT / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(contents(name))
    os.sync()


def error_name(error: OSError) -> str:
    """Give the name of an error, such as EIO."""
    return errno.errorcode.get(error.errno or 0, str(error.errno))


def read(name: str) -> str:
    """Read a file from the device, and say what came."""
    try:
        got = (ROOT / name).read_bytes()
    except OSError as error:
        return error_name(error)
    return WHOLE if got == contents(name) else WRONG


def rewrite(name: str) -> str:
    """Write a file's bytes in place, and read them back from the device."""
    try:
        with (ROOT / name).open("r+b") as file:
            file.write(contents(name))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        return error_name(error)
    return read(name)


def create() -> str:
    """Make a further file, and put it on the device."""
    try:
        with (ROOT / "further").open("wb") as file:
            file.write(b"further")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error_name(error)
    return WHOLE


def look() -> None:
    """Read all files, rewrite those that can't be read, and print both."""
    found = {name: read(name) for name in names()}
    lost = [name for name, how in found.items() if how != WHOLE]
    again = Counter(rewrite(name) for name in lost)
    print(json.dumps({"read": Counter(found.values()), "rewritten": again, "create": create()}))


if __name__ == "__main__":
    {"make": make, "look": look}[sys.argv[1]]()
