"""Plots as SVG, the same bytes for the same figures."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

mpl.rcParams["svg.hashsalt"] = "chronodisk"


def bars(path: Path, title: str, axis: str, values: dict[str, tuple[float, float]]) -> None:
    """One bar for each name, with its mean and standard deviation."""
    figure = Figure(figsize=(7, 1.2 + 0.5 * len(values)), layout="constrained")
    axes = figure.add_subplot()
    names = list(values)
    axes.barh(names, [values[name][0] for name in names], xerr=[values[name][1] for name in names], color="#4477aa")
    axes.invert_yaxis()
    axes.set_xlabel(axis)
    axes.set_title(title, fontsize=10, wrap=True)
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write a figure without the date and the version that would change its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
