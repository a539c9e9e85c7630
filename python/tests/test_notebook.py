"""The cells of the notebook, in order, without Jupyter."""

import ast
import json
import time
from pathlib import Path
from typing import Any

import pytest

import chronodisk
from chronodisk import command

NOTEBOOK = Path(__file__).parents[1] / "examples" / "queue_depths.ipynb"


#: Its promise: a sweep on five profiles, plots and a model in Python within a minute.
SECONDS_MAX = 60


def test_its_cells_run_within_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib").use("svg")
    try:
        command.executable()
    except chronodisk.HostError as error:
        pytest.skip(f"no command: {error}")
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 5
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = 0
    begun = time.monotonic()
    for cell in cells:
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, str(NOTEBOOK), "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)
            shown += bool(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
    assert shown >= 3
    took = time.monotonic() - begun
    with capsys.disabled():
        print(f"the notebook took {took:.1f} s")
    assert took < SECONDS_MAX
