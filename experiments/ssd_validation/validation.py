"""Drives that were measured, beside the models of them.

Each point of a measured sweep is simulated as it was measured: a closed loop at its depth. The table has the error of
the mean and of the 99th percentile of each point; the plots show both. The sweeps of flash drives lie beside the
repository in ../shared/reference, or where CHRONODISK_REFERENCE says; without them only the published points that the
repository has itself are compared.
"""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.command import RESULTS, ROOT, chronodisk, keep, note

REFERENCE = Path(os.environ.get("CHRONODISK_REFERENCE", ROOT.parent / "shared" / "reference"))


@dataclass(frozen=True)
class Case:
    """A profile and the sweep of its drive."""

    profile: str
    data: Path
    condition: str


CASES = (
    Case("intel-p4800x", Path(__file__).with_name("intel-p4800x.csv"), "set=P4800X"),
    Case("wd-zn540", REFERENCE / "ssd" / "measured-drives.csv", "set=zns-a"),
    Case("nvme-a", REFERENCE / "ssd" / "measured-drives.csv", "set=nvme-a"),
)


def percent(measured: float | None, modelled: float | None) -> float | None:
    """Return how much the modelled figure is above the measured one."""
    if measured is None or modelled is None:
        return None
    return round((modelled / measured - 1) * 100, 2)


def absolute_mean(errors: list[float | None]) -> float | None:
    """Return the mean of what is there, without signs."""
    known = [abs(error) for error in errors if error is not None]
    return round(sum(known) / len(known), 2) if known else None


def compare(case: Case, requests: int) -> dict[str, Any]:
    """Simulate a sweep and return its points with their errors."""
    plot = RESULTS / f"ssd-validation-{case.profile}.svg"
    RESULTS.mkdir(parents=True, exist_ok=True)
    words = ["--profile", case.profile, "--data", str(case.data), "--only", case.condition, "--check"]
    result = chronodisk("fit", *words, "--requests", str(requests), "--plot", str(plot))
    points = []
    for point in result["points"]:
        measured, modelled = point["measured"], point["before"]
        points.append(
            {
                "set": point["set"],
                "block_bytes": point["block_bytes"],
                "depth": point["depth"],
                "used": point["used"],
                "measured_mean_us": measured["mean_us"],
                "modelled_mean_us": round(modelled["mean_us"], 2),
                "mean_error_percent": percent(measured["mean_us"], modelled["mean_us"]),
                "measured_p99_us": measured["p99_us"],
                "modelled_p99_us": round(modelled["p99_us"], 2),
                "p99_error_percent": percent(measured["p99_us"], modelled["p99_us"]),
            }
        )
    counted = [point for point in points if point["used"] != "excluded"]
    return {
        "profile": case.profile,
        "points": points,
        "mean_error_percent": absolute_mean([point["mean_error_percent"] for point in counted]),
        "p99_error_percent": absolute_mean([point["p99_error_percent"] for point in counted]),
    }


def table(result: dict[str, Any]) -> str:
    """Return a drive's points as text."""
    lines = [
        f"{result['profile']}: absolute error of the mean {result['mean_error_percent']} %, "
        f"of the 99th percentile {result['p99_error_percent']} %"
    ]
    for point in result["points"]:
        figures = ""
        for name in ("mean", "p99"):
            measured, modelled = point[f"measured_{name}_us"], point[f"modelled_{name}_us"]
            figures += f"{measured:>11.1f} {modelled:>10.1f} {point[f'{name}_error_percent']:>+8.1f} %"
        excluded = "  not monotone" if point["used"] == "excluded" else ""
        lines.append(f"  {point['set'][:44]:<44} {point['block_bytes']:>7} {point['depth']:>4} {figures}{excluded}")
    return "\n".join(lines)


def main() -> None:
    """Compare all drives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000, help="requests measured at each point")
    arguments = parser.parse_args()
    results = []
    profiles = {device["name"] for device in chronodisk("devices")["devices"]}
    for case in CASES:
        if not case.data.exists() or case.profile not in profiles:
            note(f"SKIPPED {case.profile}: no {case.data}, or no such profile")
            continue
        results.append(compare(case, arguments.requests))
        print(table(results[-1]))
    keep("ssd-validation", {"schema": "chronodisk.experiments.ssd-validation/1", "drives": results})


if __name__ == "__main__":
    main()
