"""The types, as a user's own script meets them: mypy --strict on it, with the package installed in an environment."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

import chronodisk

SCRIPT = """
from concurrent.futures import ThreadPoolExecutor

import chronodisk
from chronodisk.model import Device, QueueModel, Request


class Disk(QueueModel):
    device = Device(name="my-disk", capacity_sectors=1 << 24)

    def end(self, request: Request, start: int) -> int:
        return start + 4_000_000 + 50 * request.bytes


disk = chronodisk.Profile.load("cheetah-9lp").with_(seek__single="1 ms")
found = chronodisk.simulate(disk, "random-read", requests=100, depth=4, progress=False)
mean: float = found.latency_us["mean"]
own: float = chronodisk.simulate(Disk, "random-read", requests=100).iops
p90 = chronodisk.bootstrap([1.0, 2.0, 4.0], "p90").value
with ThreadPoolExecutor(2) as pool:
    swept = chronodisk.sweep({"command": "simulate", "axes": {"device": ["null"]}}, "out", executor=pool)
for row in swept.rows("iops"):
    print(row["value"], mean, own, p90)
run = chronodisk.run(["--device", "null", "--", "true"])
print(run.run_times_s[0], chronodisk.compare(run, run, fail_if=["run_time > +5%"]))
"""


def test_a_users_script_passes_mypy_strict(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    venv.create(tmp_path / "venv", with_pip=False)
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    (site / "chronodisk").symlink_to(Path(chronodisk.__file__).parent)
    (tmp_path / "script.py").write_text(SCRIPT)

    def check() -> subprocess.CompletedProcess[str]:
        words = ["--strict", "--python-executable", str(tmp_path / "venv/bin/python"), "script.py"]
        return subprocess.run([sys.executable, "-m", "mypy", *words], cwd=tmp_path, capture_output=True, text=True)

    done = check()
    assert done.returncode == 0, done.stdout + done.stderr
    # It has seen the package's types.
    (tmp_path / "script.py").write_text(SCRIPT.replace("mean: float", "mean: str"))
    done = check()
    assert done.returncode == 1 and '"float", variable has type "str"' in done.stdout, done.stdout + done.stderr
