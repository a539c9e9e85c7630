"""The stores that are served, and what fails."""

from dataclasses import dataclass

STORES = {
    "file": ["--store", "{store}/disk"],
    "overflow": ["--store", "overflow:{store}/disk", "--ram-budget", "1MiB"],
    "image": ["--store", "{store}/disk", "--squash=exact"],
}
#: The files of all stores, and the folder that they are in: no other call of the server is touched.
FILES = ["", "/disk", "/disk.map", "/disk.map.new", "/disk.sums", "/disk.sums.new"]
#: Stores whose full disk is an error of writes alone.
SETS_SPACE_ASIDE = {"file", "overflow"}


@dataclass(frozen=True)
class Fault:
    """What fails: strace's expressions, with {n} for the number of the call in its thread."""

    injections: tuple[str, ...]
    #: The bounds that the number is drawn below.
    bounds: tuple[int, ...] = (3, 20, 120)
    #: The calls are made with `--durable` alone.
    durable: bool | None = None
    #: It ends the server.
    kills: bool = False
    #: It is in the server's way of reading.
    reads: bool = False
    #: A file system of a few MiB takes the place of strace.
    full: bool = False


SYNC = "fdatasync,fsync"
LENGTHS = "fallocate,ftruncate,rename"
FAULTS = {
    "a sync fails": Fault((f"{SYNC}:error=EIO:when={{n}}",), (2, 8, 40), durable=True),
    "all syncs fail from one on": Fault((f"{SYNC}:error=EIO:when={{n}}+",), (2, 8, 40), durable=True),
    "a write fails": Fault(("pwrite64:error=EIO:when={n}",)),
    "all writes fail from one on": Fault(("pwrite64:error=EIO:when={n}+",)),
    "no space for a write": Fault(("pwrite64:error=ENOSPC:when={n}",)),
    "no space from a call on": Fault(("pwrite64,fallocate:error=ENOSPC:when={n}+",)),
    "no space to set aside": Fault(("fallocate:error=ENOSPC:when={n}+",), (1, 8, 120)),
    "a length can't change": Fault((f"{LENGTHS}:error=EIO:when={{n}}",), (1, 2, 8)),
    "a read fails": Fault(("pread64,preadv2:error=EIO:when={n}",), reads=True),
    "the disk is full": Fault((), full=True),
    "SIGKILL at a write": Fault(("pwrite64:signal=SIGKILL:when={n}",), kills=True),
    "SIGKILL at a sync": Fault((f"{SYNC}:signal=SIGKILL:when={{n}}",), (2, 8, 40), durable=True, kills=True),
    "SIGKILL at a change of length": Fault((f"{LENGTHS}:signal=SIGKILL:when={{n}}",), (1, 2, 8), kills=True),
}
