"""What the programs of David's table II do that Debian does not package; runs in the guest, with Python alone.

`tree` makes files in the manner of Impressions (Agrawal et al., "Generating Realistic Impressions for File-System
Benchmarking", FAST 2009): log-normal sizes, and a directory's parent drawn with a probability that is proportional to
the parent's subdirectories plus two. `webserver` and `varmail` are like Filebench's personalities of these names, with
one thread. `read`, `randread`, `write` and `randwrite` are requests of 4 KiB to the bare device. `phases` runs commands
one after the other and says how long each took. All is drawn from a seed.
"""

import argparse
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

#: Parameters of the logarithm of a file's size in bytes, those of the larger of the paper's two extremes (figure 1).
SIZE_MU, SIZE_SIGMA = 8.33, 3.18
#: The paper's `imp` has five files for each directory.
FILES_PER_DIRECTORY = 5
#: A request to the bare device, and the part of it that they go to.
BLOCK, RANGE = 4_096, 64 << 30
CHUNK = b"The quick brown fox jumps over the lazy dog, and writes it down.\n" * 16_384
#: A write past the caches.
DIRECT = 16 << 20
#: Filebench's personalities: mean size of a file, and bytes of an append; pages and mails.
SIZE_MEAN, APPEND, PAGES, MAILS = 16_384, 16_384, 4_000, 1_000


RAW = ("read", "randread", "write", "randwrite")


def write(path: Path, size: int) -> None:
    """Make a file of a size."""
    with path.open("wb", buffering=0) as file:
        for at in range(0, size, len(CHUNK)):
            file.write(CHUNK[: size - at])


def write_past_caches(path: Path, size: int, piece: mmap.mmap) -> None:
    """Make a file of whole blocks without a copy of it in the guest's memory."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o644)
    for at in range(0, size, len(piece)):
        part = memoryview(piece)[: size - at]
        if os.pwrite(file, part, at) != len(part):
            sys.exit(f"loads.py: {path} was not written whole at {at}")
    os.close(file)


def text_for_direct_writes() -> mmap.mmap:
    """Return text where the kernel can take it from, in as many bytes as go into a few requests."""
    piece = mmap.mmap(-1, DIRECT)
    piece.write((CHUNK * (DIRECT // len(CHUNK) + 1))[:DIRECT])
    return piece


@dataclass
class Interruption:
    """Whether somebody wants an end."""

    asked: bool = False

    def ask(self, *_: object) -> None:
        """Hear a signal."""
        self.asked = True


@dataclass(frozen=True)
class Tree:
    """How a tree is drawn; it ends when there are so many bytes, or files, or somebody interrupts it."""

    bytes: int
    files: int
    mu: float
    sigma: float
    size_max: int
    #: Whole blocks are written past the guest's caches.
    direct: bool


def tree(root: Path, shape: Tree, draw: random.Random) -> None:
    """Make directories and files."""
    root.mkdir()
    directories = [root]
    # A directory twice, and once more for each of its own.
    parents = [root, root]
    files, left = 0, shape.bytes
    piece = text_for_direct_writes() if shape.direct else None
    interruption = Interruption()
    signal.signal(signal.SIGINT, interruption.ask)
    while left > 0 and files < shape.files and not interruption.asked:
        if files % FILES_PER_DIRECTORY == 0:
            parent = draw.choice(parents)
            directory = parent / f"d{len(directories)}"
            directory.mkdir()
            directories.append(directory)
            parents += [parent, directory, directory]
        size = min(int(draw.lognormvariate(shape.mu, shape.sigma)), shape.size_max, left)
        path = draw.choice(directories) / f"f{files}"
        if piece and size % BLOCK == 0:
            write_past_caches(path, size, piece)
        else:
            write(path, size)
        files += 1
        left -= size
    print(f"WRITTEN {shape.bytes - left}", file=sys.stderr, flush=True)


def gamma(draw: random.Random) -> int:
    """Draw a size from Filebench's gamma distribution."""
    return min(int(draw.gammavariate(1.5, SIZE_MEAN / 1.5)), 1 << 20)


def webserver(root: Path, operations: int, draw: random.Random) -> None:
    """Read whole files, ten for each append to a log."""
    root.mkdir()
    paths = [root / f"page{index}" for index in range(PAGES)]
    for path in paths:
        write(path, gamma(draw))
    os.sync()
    drop_caches()
    with (root / "log").open("ab", buffering=0) as log:
        for operation in range(operations):
            draw.choice(paths).read_bytes()
            if operation % 10 == 9:
                log.write(CHUNK[:APPEND])


def varmail(root: Path, operations: int, draw: random.Random) -> None:
    """Delete a mail, write one and append to one with fsync, and read one, in one directory."""
    root.mkdir()
    paths = [root / f"mail{index}" for index in range(MAILS)]
    for path in paths:
        write(path, gamma(draw))
    for _ in range(operations):
        draw.choice(paths).unlink(missing_ok=True)
        for mode in ("wb", "ab"):
            with draw.choice(paths).open(mode, buffering=0) as file:
                file.write(CHUNK[: draw.randrange(1, APPEND)])
                os.fsync(file.fileno())
        path = draw.choice(paths)
        if path.exists():
            path.read_bytes()


def raw(device: Path, requests: int, draw: random.Random, kind: str) -> None:
    """Read or write blocks, one after the other, past the caches."""
    block = mmap.mmap(-1, BLOCK)
    block.write(CHUNK[:BLOCK])
    file = os.open(device, os.O_RDWR | os.O_DIRECT)
    for request in range(requests):
        at = BLOCK * (draw.randrange(RANGE // BLOCK) if kind.startswith("rand") else request)
        done = os.preadv(file, [block], at) if kind.endswith("read") else os.pwritev(file, [block], at)
        if done != BLOCK:
            sys.exit(f"loads.py: {done} of {BLOCK} bytes at {at}")
    os.fsync(file)
    os.close(file)


def drop_caches() -> None:
    """Leave nothing in memory that is on the device as well."""
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError as error:
        sys.exit(f"loads.py: the caches can't be emptied: {error}")


def phases(commands: dict[str, str]) -> None:
    """Run shell commands, each with empty caches, and say how long each took until it was on disk."""
    for name, command in commands.items():
        os.sync()
        drop_caches()
        begun = time.monotonic_ns()
        done = subprocess.run(command, shell=True, stdout=subprocess.DEVNULL, check=False)
        # grep's 1 says that it found nothing.
        if done.returncode not in (0, 1):
            sys.exit(f"loads.py: {command} ended with status {done.returncode}")
        os.sync()
        print(f"PHASE {name} {(time.monotonic_ns() - begun) / 1e9:.9f}", file=sys.stderr, flush=True)


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("load", choices=["tree", "webserver", "varmail", "phases", *RAW])
    parser.add_argument("root", help="new directory, or the device; for phases, their commands as JSON")
    parser.add_argument("amount", nargs="?", type=int, default=0, help="bytes of a tree, else operations")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mu", type=float, default=SIZE_MU, help="mean of the logarithm of a size in bytes")
    parser.add_argument("--sigma", type=float, default=SIZE_SIGMA, help="its standard deviation")
    parser.add_argument("--files", type=int, default=1 << 40, help="of a tree at most")
    parser.add_argument("--size-max", type=int, default=1 << 30, help="of a file of a tree, in bytes")
    parser.add_argument("--direct", action="store_true", help="files of whole blocks are written past the caches")
    arguments = parser.parse_args()
    draw, root = random.Random(arguments.seed), Path(arguments.root)
    match arguments.load:
        case "phases":
            phases(json.loads(arguments.root))
        case "tree":
            given = arguments
            shape = Tree(given.amount, given.files, given.mu, given.sigma, given.size_max, given.direct)
            tree(root, shape, draw)
        case "webserver":
            webserver(root, arguments.amount, draw)
        case "varmail":
            varmail(root, arguments.amount, draw)
        case kind:
            raw(root, arguments.amount, draw, kind)


if __name__ == "__main__":
    main()
