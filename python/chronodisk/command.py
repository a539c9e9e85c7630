"""The command ``chronodisk``: where it is, and calling it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from chronodisk.errors import ChronodiskError, CommandError, HostError, UsageError


def executable() -> str:
    """The command's executable: the environment's ``CHRONODISK``, the one of this package, or the first on ``PATH``."""
    named = os.environ.get("CHRONODISK")
    if named:
        return named
    inside = Path(__file__).parent / "bin" / "chronodisk"
    beside = Path(sysconfig.get_path("scripts")) / "chronodisk"
    for candidate in (inside, beside):
        # What is beside Python may be the script that looks for the executable here.
        if candidate.is_file() and candidate.read_bytes()[:4] == b"\x7fELF":
            return str(candidate)
    found = shutil.which("chronodisk")
    if found is None:
        raise HostError("there is no command chronodisk", "install it, or name its executable in CHRONODISK")
    return found


def call(
    arguments: Sequence[str], *, env: Mapping[str, str] | None = None, expected: Sequence[int] = (0,)
) -> tuple[int, str, str]:
    """Runs the command, and gives its exit status and what it printed; Ctrl-C ends it first."""
    line = [executable(), *arguments]
    environment = {**os.environ, "NO_COLOR": "1", **(env or {})}
    try:
        process = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
        )
    except OSError as error:
        raise HostError(f"{line[0]} can't be started: {error.strerror}") from error
    try:
        out, err = process.communicate()
    except BaseException:
        # It got the signal too, if it was from the terminal; it ends cleanly either way.
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    if status not in expected:
        raise _error(arguments, status, err)
    return status, out, err


def call_json(arguments: Sequence[str], *, expected: Sequence[int] = (0,)) -> dict[str, Any]:
    """Runs the command with ``--json``, and gives what it printed."""
    _, out, err = call(arguments, expected=expected)
    try:
        result: dict[str, Any] = json.loads(out[out.index("{") :])
    except ValueError as error:
        raise CommandError(f"chronodisk {' '.join(arguments)} printed no result: {err.strip()}", 0) from error
    return result


def _error(arguments: Sequence[str], status: int, err: str) -> ChronodiskError:
    message = err.strip() or f"chronodisk {' '.join(arguments)} ended with status {status}"
    if status == 2:
        return UsageError(message)
    if status == 3:
        return HostError(message)
    return CommandError(message, status)


def main() -> NoReturn:
    """The command itself, as the script of the package starts it."""
    found = executable()
    os.execv(found, ["chronodisk", *sys.argv[1:]])
