"""Plots in notebooks, as SVG."""

from collections.abc import Mapping

_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "p99.9": 0.999}


def distribution_svg(latency_us: Mapping[str, float]) -> str:
    """Bars of the percentiles of a distribution in microseconds."""
    bars = [(name, value) for name, value in latency_us.items() if name in _PERCENTILES or name in ("mean", "max")]
    greatest = max((value for _, value in bars), default=0.0)
    if greatest <= 0:
        return ""
    rows = []
    for index, (name, value) in enumerate(bars):
        y, width = index * 18, 300 * value / greatest
        rows.append(
            f'<text x="44" y="{y + 13}" text-anchor="end">{name}</text>'
            f'<rect x="50" y="{y + 2}" width="{width:.1f}" height="13" fill="#4878a8"/>'
            f'<text x="{width + 55:.1f}" y="{y + 13}">{value:.5g} µs</text>'
        )
    style = "font-family:sans-serif;font-size:11px;fill:currentColor"
    height = 18 * len(bars) + 4
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="460" height="{height}" style="{style}">{"".join(rows)}</svg>'
    )
