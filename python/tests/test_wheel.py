"""The wheel as a user has it: installed into a new environment outside of the sources.

Building one takes minutes, so only ``make -C python wheel wheel-test`` runs this.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

WHEEL = os.environ.get("CHRONODISK_WHEEL")
if not WHEEL:
    pytest.skip("no wheel was built; make -C python wheel wheel-test", allow_module_level=True)

USE = """
import chronodisk, pathlib, sys
from chronodisk import command
assert pathlib.Path(chronodisk.__file__).is_relative_to(sys.prefix), chronodisk.__file__
found = chronodisk.simulate("constant-1ms", "random-read", requests=100)
assert found.latency_us["mean"] == 1000.0, found.latency_us
assert len(found.requests) == 100
inside = pathlib.Path(command.executable())
assert inside.is_relative_to(sys.prefix) and inside.name == "chronodisk", inside
print(chronodisk.__version__)
"""

RUN = """
import chronodisk
run = chronodisk.run(["--device", "constant-1ms", "--capacity", "64MiB", "--", "true"])
assert run.run_times_s[0] > 0 and chronodisk.verify(run)["identical"]
"""


class Environment:
    """A new virtual environment with nothing but the wheel."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        # No dependency, and no index: what is missing in the wheel is missing.
        options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
        subprocess.run([self.bin / "python", "-m", "pip", "install", *options, str(WHEEL)], check=True)

    def call(self, *words: str) -> str:
        """Runs a command with this environment first on its path, outside of the sources."""
        kept = {name: value for name, value in os.environ.items() if name not in ("CHRONODISK", "PYTHONPATH")}
        env = {**kept, "PATH": f"{self.bin}:{os.environ['PATH']}", "XDG_STATE_HOME": str(self.folder)}
        done = subprocess.run(words, cwd=self.folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("wheel"))


def test_it_is_for_every_python_from_3_11_on_and_holds_the_command() -> None:
    assert "-cp311-abi3-" in str(WHEEL)
    with zipfile.ZipFile(str(WHEEL)) as wheel:
        names = wheel.namelist()
        command = wheel.getinfo("chronodisk/bin/chronodisk")
    assert command.external_attr >> 16 & 0o111 == 0o111, "it can be executed"
    assert [name for name in names if name.endswith(".so")] == ["chronodisk/_core.abi3.so"]
    assert "chronodisk/py.typed" in names and "chronodisk/_core.pyi" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests/")]


def test_the_package_and_its_command_work(environment: Environment) -> None:
    version = environment.call("python", "-c", USE).strip()
    assert shutil.which("chronodisk", path=str(environment.bin))
    assert environment.call("chronodisk", "--version").split()[1] == version
    told = environment.call("chronodisk", "simulate", "--device", "constant-1ms", "--workload", "random-read", "--json")
    assert '"mean": 1000.0' in told


@pytest.mark.skipif(shutil.which("linux.uml") is None, reason="no user-mode-linux here")
def test_a_run_finds_the_command(environment: Environment) -> None:
    environment.call("python", "-c", RUN)
