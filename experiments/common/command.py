"""Calls the `chronodisk` command and reads its results."""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments" / "results"
#: Characters on a line of a result.
LINE_WIDTH = 120


class CommandFailed(Exception):
    """The command ended with another status than 0."""


@dataclass(frozen=True)
class Sample:
    """Repeated measurements of one figure."""

    values: list[float]

    @property
    def mean(self) -> float:
        """Arithmetic mean."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float:
        """Standard deviation of the sample; 0 for a single value."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


def executable() -> Path:
    """Return the release build of the command."""
    _Heartbeat.begin()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "chronodisk"


def chronodisk(*arguments: str) -> dict[str, Any]:
    """Run the command with `--json` behind its subcommand and return what it says."""
    return chronodisk_with_output(*arguments)[0]


def chronodisk_with_output(*arguments: str) -> tuple[dict[str, Any], str]:
    """Do the same, and return what the guest's program printed as well, and everything else that was printed."""
    subcommand, *rest = arguments
    call = [str(executable()), *subcommand.split(), "--json", *rest]
    done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(call)} ended with status {done.returncode}:\n{done.stderr}{done.stdout}")
    # What the guest's program printed comes before the result.
    begin = done.stdout.index('{\n  "schema"')
    result: dict[str, Any] = json.loads(done.stdout[begin:])
    return result, done.stdout[:begin] + done.stderr


def run_times_seconds(result: dict[str, Any]) -> Sample:
    """Run time of the program in each repetition, in seconds of the guest's time."""
    return Sample([rep["run_time_ns"] / 1e9 for rep in result["reps"]])


def note(text: str) -> None:
    """Tell the user what goes on."""
    _Heartbeat.begin()
    _Heartbeat.told(text)
    print(text, file=sys.stderr, flush=True)


class _Heartbeat:
    """Says every ten seconds what was told last, and for how long that has been going on."""

    pause_s = 10.0
    lock = threading.Lock()
    thread: threading.Thread | None = None
    words = "starting"
    since = last = time.monotonic()

    @classmethod
    def begin(cls) -> None:
        """Start the thread, once; it ends with the program."""
        with cls.lock:
            if cls.thread is None:
                cls.since = cls.last = time.monotonic()
                cls.thread = threading.Thread(target=cls._beat, daemon=True)
                cls.thread.start()

    @classmethod
    def told(cls, text: str) -> None:
        """Take note of a line that was printed."""
        with cls.lock:
            lines = text.strip().splitlines()
            cls.words = lines[-1].rstrip(": ") if lines else cls.words
            cls.since = cls.last = time.monotonic()

    @classmethod
    def _beat(cls) -> None:
        while True:
            with cls.lock:
                now = time.monotonic()
                wait = cls.last + cls.pause_s - now
                if wait <= 0:
                    cls.last = now
                    print(f"{cls.words}: {now - cls.since:.0f} s so far", file=sys.stderr, flush=True)
            time.sleep(max(wait, 0.05))


def provenance() -> dict[str, Any]:
    """Say of which commit, when, where, under which load and by which command a result was made."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    module = Path(sys.argv[0])
    commit, mark = head, ""
    if executable().exists():
        # What was measured is that of the build, which may be older than what is checked out.
        version = [str(executable()), "--version"]
        program = subprocess.run(version, capture_output=True, text=True, check=False).stdout.strip()
        built_from, mark, _ = program.partition("(")[2].rstrip(")").partition("-dirty")
        full = [*git, "rev-parse", "--verify", "--quiet", built_from]
        commit = subprocess.run(full, capture_output=True, text=True, check=False).stdout.strip() or head
    # Where files lie on this machine is of no use elsewhere.
    words = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    return {
        "commit": commit or "unknown",
        "changed": bool(mark),
        "date": datetime.now(tz=UTC).isoformat(timespec="seconds"),
        "host": {
            "cpu_model": models[0] if models else "unknown",
            "cores": os.cpu_count(),
            "kernel": os.uname().release,
        },
        "load": [round(load, 2) for load in os.getloadavg()],
        "command": " ".join(["python", "-m", f"{module.parent.name}.{module.stem}", *words]),
    }


def keep(name: str, result: dict[str, Any]) -> Path:
    """Write a result as JSON with its provenance, whole or not at all."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    made = result.get("provenance", provenance())
    repetitions = next((result[key] for key in ("repetitions", "reps", "rounds", "trials") if key in result), None)
    if repetitions is not None:
        made.setdefault("repetitions", repetitions)
    result = {**result, "provenance": made}
    path = RESULTS / f"{name}.json"
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json_lines(result) + "\n")
    unfinished.replace(path)
    return path


def json_lines(value: Any, indent: str = "") -> str:
    """Give JSON with as much on a line as fits: histograms have hundreds of short entries."""
    whole = json.dumps(value)
    if not isinstance(value, dict | list) or len(indent) + len(whole) < LINE_WIDTH:
        return whole
    inner = indent + "  "
    if isinstance(value, dict):
        begin, end, values = "{", "}", list(value.values())
        entries = [f"{json.dumps(key)}: {json_lines(part, inner)}" for key, part in value.items()]
    else:
        begin, end, values = "[", "]", value
        entries = [json_lines(part, inner) for part in value]
    shares_lines = not any(isinstance(part, dict | list) for part in values)
    lines = [inner + entries[0]]
    for entry in entries[1:]:
        if shares_lines and len(lines[-1]) + len(entry) + 3 <= LINE_WIDTH:
            lines[-1] += f", {entry}"
        else:
            lines[-1] += ","
            lines.append(inner + entry)
    return "\n".join([begin, *lines, indent + end])
