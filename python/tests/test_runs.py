"""Runs in guests, and what was kept: these call the command."""

import shutil
import sys
from pathlib import Path

import pytest

import chronodisk
from chronodisk import Requests, Run, command

try:
    command.executable()
except chronodisk.HostError as error:
    pytest.skip(f"no command: {error}", allow_module_level=True)

MODEL = """
from chronodisk.model import Device, QueueModel, Request, serve

class Fixed(QueueModel):
    device = Device(name="fixed", capacity_sectors=1 << 18)

    def end(self, request: Request, start: int) -> int:
        return start + 250_000

if __name__ == "__main__":
    serve(Fixed)
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.skipif(shutil.which("linux.uml") is None, reason="no user-mode-linux here")
def test_a_class_of_python_is_the_device_of_a_guest(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(chronodisk.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", str(package))
    (state / "model.py").write_text(MODEL)
    device = f"exec:{sys.executable} {state / 'model.py'}"
    run = chronodisk.run(["--device", device, "--", "sh", "-c", "cat /etc/passwd > /mnt/copy; sync"])
    table = run.requests().to_pyarrow()
    assert table.num_rows > 10
    times = run.requests().service_times_ns()
    assert times.min() >= 250_000 and run.run_times_s[0] > 0
    assert chronodisk.Run.open("last").directory == run.directory.resolve()
    assert chronodisk.Run.open(run.directory).result == run.result

    # In process, the class itself; the guest's requests are its trace, and their due times are the guest's.
    sys.path.insert(0, str(state))
    try:
        from model import Fixed  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    again = chronodisk.simulate(Fixed, trace=run.log_path()).requests.to_pyarrow()
    assert again["due_ns"].to_pylist() == table["due_ns"].to_pylist()

    other = chronodisk.run(["--device", "constant-1ms", "--capacity", "128MiB", "--", "true"], output=state / "other")
    assert chronodisk.verify(other)["identical"] is True
    # The folder of a guest's run is a trace for the command: its requests by their time stamps, to the nanosecond.
    replayed = state / "replayed"
    words = ["simulate", "--device", "constant-1ms", "--capacity", "128MiB", "--trace", str(other.directory)]
    command.call([*words, "--output", str(replayed)])
    due = [
        Requests.read(path).to_pyarrow()["due_ns"].to_pylist() for path in (other.log_path(), Run(replayed).log_path())
    ]
    assert due[0] == due[1] and len(due[0]) > 10
    compared = chronodisk.compare(other, run)
    assert len(compared["runs"] if "runs" in compared else compared["rows"]) == 2
    # `true` asks for nothing, so that there is nothing to draw.
    for shown, name, drawings in ((run, "fixed", 1), (other, "constant-1ms", 0), (Run(replayed), "constant-1ms", 1)):
        assert name in shown._repr_html_() and shown._repr_html_().count("<svg") == drawings


def test_what_is_not_there_is_a_usage_error(state: Path) -> None:
    with pytest.raises(chronodisk.UsageError, match="nothing-like-it"):
        chronodisk.Run.open("nothing-like-it")
    with pytest.raises(chronodisk.UsageError):
        chronodisk.verify("nothing-like-it")
    with pytest.raises(chronodisk.UsageError):
        chronodisk.run(["--device", "no-such-device", "--", "true"])
    (state / "empty").mkdir()
    with pytest.raises(chronodisk.UsageError, match="holds no run"):
        chronodisk.Run.open(state / "empty")
