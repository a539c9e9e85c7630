"""How often bootstrap intervals contain the true value, where they do and where they fail.

Each trial draws N independent values from a distribution whose figures are known, and computes 95 % intervals of the
mean, the median, p90 and p99. The shares of trials whose percentile and BCa interval contain the true figure should be
95 %. Few values, far percentiles and heavy tails are where they are not.
"""

import argparse
import math
import os
import random
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import chronodisk

from common.command import keep, note

SCHEMA = "chronodisk.experiment.interval-coverage/1"
NORMAL = statistics.NormalDist()
SHARES = {"median": 0.5, "p90": 0.9, "p99": 0.99}
LEVEL = 0.95


def lognormal(sigma: float) -> tuple[Callable[[random.Random], float], dict[str, float]]:
    """A value, and the true figures."""
    truth = {name: math.exp(sigma * NORMAL.inv_cdf(share)) for name, share in SHARES.items()}
    return lambda source: source.lognormvariate(0.0, sigma), {"mean": math.exp(sigma**2 / 2), **truth}


def population(name: str) -> tuple[Callable[[random.Random], float], dict[str, float]]:
    """What is drawn, and its true figures."""
    if name == "normal":
        truth = {figure: NORMAL.inv_cdf(share) for figure, share in SHARES.items()}
        return lambda source: source.gauss(0.0, 1.0), {"mean": 0.0, **truth}
    if name == "exponential":
        truth = {figure: -math.log(1 - share) for figure, share in SHARES.items()}
        return lambda source: source.expovariate(1.0), {"mean": 1.0, **truth}
    return lognormal(float(name.split()[-1]))


POPULATIONS = ("normal", "exponential", "lognormal, sigma 1", "lognormal, sigma 2")


def row(arguments: tuple[str, int, str, int, int]) -> dict[str, Any]:
    """One row of the table."""
    name, elements, figure, trials, draws = arguments
    draw, truth = population(name)
    source = random.Random(f"{name}, {elements}, {figure}")
    hits = {"percentile": 0, "bca": 0}
    without = 0
    for trial in range(trials):
        values = [draw(source) for _ in range(elements)]
        found = chronodisk.bootstrap(values, figure, draws=draws, level=LEVEL, seed=trial)
        without += found.bca is None
        for kind, ends in (("percentile", found.percentile), ("bca", found.bca)):
            hits[kind] += ends is not None and ends[0] <= truth[figure] <= ends[1]
    shares = {kind: hit / trials for kind, hit in hits.items()}
    return {"population": name, "N": elements, "figure": figure, **shares, "without_bca": without / trials}


def main() -> None:
    """Compute and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=4_000)
    parser.add_argument("--draws", type=int, default=199)
    arguments = parser.parse_args()
    figures = ("mean", "median", "p90", "p99")
    rows = [
        (name, elements, figure, arguments.trials, arguments.draws)
        for name in POPULATIONS
        for elements in (20, 200)
        for figure in figures
    ]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        table = list(pool.map(row, rows))
    # Four standard errors of a share of 95 % around it, and the bounds that the tests hold for N = 200.
    error = math.sqrt(LEVEL * (1 - LEVEL) / arguments.trials)
    result = {
        "schema": SCHEMA,
        "trials": arguments.trials,
        "draws": arguments.draws,
        "level": LEVEL,
        "standard_error": error,
        "rows": table,
    }
    for line in table:
        note(f"{line['population']:20} N={line['N']:<4} {line['figure']:7} {line['percentile']:.3f} {line['bca']:.3f}")
    note(f"wrote {keep('interval-coverage', result).name}")


if __name__ == "__main__":
    main()
