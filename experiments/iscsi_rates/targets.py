"""Two iSCSI targets of the same size on the loopback interface: Chronodisk's, and Linux's tgtd."""

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.command import CommandFailed, executable

CAPACITY_MIB = 256
TGT_NAME = "iqn.2026-11.org.example:tgt"
#: Seconds for the start of a target, and for its end.
PATIENCE_S = 20.0


def free_port() -> int:
    """Give a port of the loopback interface that nobody uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a target accepts connections."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise CommandFailed(f"{process.args!r} accepts no connections")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a target."""
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def chronodisk_target() -> Iterator[str]:
    """Serve the device `null` with its bytes in memory; give its URL."""
    port = free_port()
    words = [str(executable()), "serve", "--device", "null", "--capacity", f"{CAPACITY_MIB}MiB", "--iscsi", str(port)]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"XDG_STATE_HOME": folder}
        process = subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for(port, process)
            yield f"iscsi://127.0.0.1:{port}/iqn.2026-11.org.chronodisk:null/0"
        finally:
            stop(process)


@contextmanager
def tgt_target() -> Iterator[str]:
    """Serve a file in /dev/shm by tgtd; give its URL. Needs root."""
    port = free_port()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        file = Path(folder) / "disk"
        with file.open("wb") as disk:
            disk.truncate(CAPACITY_MIB << 20)
        environment = os.environ | {"TGT_IPC_SOCKET": str(Path(folder) / "control")}
        words = ["tgtd", "-f", "--iscsi", f"portal=127.0.0.1:{port}"]
        process = subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for(port, process)
            for words in (
                ["--op", "new", "--mode", "target", "--tid", "1", "-T", TGT_NAME],
                ["--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", str(file)],
                ["--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"],
            ):
                subprocess.run(["tgtadm", "--lld", "iscsi", *words], env=environment, check=True)
            yield f"iscsi://127.0.0.1:{port}/{TGT_NAME}/1"
        finally:
            stop(process)


TARGETS = {"chronodisk": chronodisk_target, "tgtd": tgt_target}
