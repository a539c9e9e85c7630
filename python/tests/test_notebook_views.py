"""What a notebook shows: tables, plots and bars."""

import sys
import types
from pathlib import Path
from xml.etree import ElementTree

import pytest

import chronodisk
from chronodisk import command, simulate


def plots(html: str) -> list[ElementTree.Element]:
    """The drawings of a page, each of which must be well formed."""
    found = []
    for part in html.split("<svg")[1:]:
        found.append(ElementTree.fromstring("<svg" + part.partition("</svg>")[0] + "</svg>"))
    return found


def test_a_simulation_shows_its_percentiles() -> None:
    html = simulate("cheetah-9lp", "random-read", requests=300)._repr_html_()
    (drawing,) = plots(html)
    texts = [element.text or "" for element in drawing.iter() if element.tag.endswith("text")]
    assert {"mean", "p50", "p99", "max"} <= set(texts) and sum(text.endswith("µs") for text in texts) >= 5


def test_a_sweep_shows_its_table_and_curves(tmp_path: Path) -> None:
    try:
        command.executable()
    except chronodisk.HostError as error:
        pytest.skip(f"no command: {error}")
    axes = {"device": ["constant-1ms", "constant-100us"], "depth": [1, 2, 4]}
    file = {"command": "simulate", "seeds": 2, "options": {"workload": "random-read", "requests": 50}, "axes": axes}
    found = chronodisk.sweep(file, tmp_path / "sweep")
    html = found._repr_html_()
    drawings = plots(html)
    assert len(drawings) == 2, "iops and latency against depth"
    assert "depth" in html and "constant-100us" in html
    # What was opened has the same plots.
    assert len(plots(chronodisk.Sweep.open(tmp_path / "sweep")._repr_html_())) == 2
    with pytest.raises(chronodisk.UsageError, match="is no figure"):
        found.plot("depth", "colour")
    # No axis with numbers, no curve.
    file["axes"] = {"device": ["constant-1ms"]}
    assert not plots(chronodisk.sweep(file, tmp_path / "flat")._repr_html_())


class Bar:
    """What tqdm would show."""

    made: list["Bar"] = []

    def __init__(self, **options: object) -> None:
        self.options, self.total, self.n, self.closed = options, 0, 0, False
        Bar.made.append(self)

    def reset(self, total: int) -> None:
        self.total = total

    def update(self, more: int) -> None:
        self.n += more

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Bar]:
    Bar.made = []
    module = types.ModuleType("tqdm.auto")
    module.tqdm = Bar  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    return Bar.made


def test_bars_are_for_notebooks_or_for_who_asks(bars: list[Bar], monkeypatch: pytest.MonkeyPatch) -> None:
    simulate("constant-1ms", "random-read", requests=100)
    assert not bars
    simulate("constant-1ms", "random-read", requests=100, progress=True)
    assert [(bar.n, bar.total, bar.closed) for bar in bars] == [(100, 100, True)]
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    simulate("constant-1ms", "random-read", requests=100, progress=False)
    simulate("constant-1ms", "random-read", requests=100, progress=lambda done: None)
    assert len(bars) == 1
    simulate("constant-1ms", "random-read", requests=100)
    assert len(bars) == 2
    with pytest.raises(chronodisk.UsageError):
        simulate("constant-1ms", "no-such-workload", progress=True)
    assert bars[-1].closed, "also after an error"


def test_a_sweep_has_a_bar(bars: list[Bar], tmp_path: Path) -> None:
    try:
        command.executable()
    except chronodisk.HostError as error:
        pytest.skip(f"no command: {error}")
    options = {"device": "null", "workload": "random-read", "requests": 10}
    chronodisk.sweep({"command": "simulate", "seeds": 3, "options": options}, tmp_path, progress=True)
    assert [(bar.n, bar.total, bar.closed) for bar in bars] == [(3, 3, True)]


def test_without_tqdm_only_who_asks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    simulate("constant-1ms", "random-read", requests=10)
    with pytest.raises(chronodisk.HostError, match="tqdm"):
        simulate("constant-1ms", "random-read", requests=10, progress=True)
