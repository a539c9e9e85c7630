"""Confidence intervals of any statistic, by the bootstrap."""

import bisect
import math
import statistics as _statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chronodisk import _core
from chronodisk.errors import UsageError
from chronodisk.quantities import Time, time_ns

_JACKKNIFE_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic of a sample with its intervals."""

    #: Of the sample itself.
    value: float
    #: Elements of the sample: N.
    elements: int
    #: Draws: B.
    draws: int
    #: Between percentiles of the draws; ``None`` with fewer than two elements.
    percentile: tuple[float, float] | None
    #: Bias-corrected and accelerated; ``None`` also if all draws are on one side of the sample's value.
    bca: tuple[float, float] | None
    #: What makes the intervals less certain than they say.
    warnings: tuple[str, ...]

    @property
    def interval(self) -> tuple[float, float] | None:
        """BCa, else percentile."""
        return self.bca or self.percentile

    def __str__(self) -> str:
        ends = "" if self.interval is None else f" ({self.interval[0]:.6g} to {self.interval[1]:.6g})"
        return f"{self.value:.6g}{ends}, N = {self.elements}, B = {self.draws}"


def bootstrap(
    values: Sequence[float],
    statistic: str | Callable[[Sequence[float]], float] = "mean",
    *,
    times_ns: Sequence[int] | None = None,
    block: Time | None = None,
    draws: int = 1_999,
    level: float = 0.95,
    seed: int = 1,
) -> Estimate:
    """Intervals of a statistic of values, such as response times.

    Values must be independent. Those of requests that follow each other are not: ``block`` makes elements of whole
    blocks of time, longer than what the device or the program remembers.

    Args:
        values: the sample; a list, or an array of numpy.
        statistic: ``mean``, ``median``, ``p90`` and the like, or a function of the values of a draw.
        times_ns: the instant of each value in ascending order, needed by ``block``.
        block: length of a block of time, in nanoseconds or as a text such as ``"10s"``.
        draws: how many draws are made (B).
        level: share of samples whose interval contains the population's value.
        seed: of the draws.
    """
    if len(values) == 0:
        raise UsageError("there are no values")
    numbers = [float(value) for value in values]
    if not all(math.isfinite(number) for number in numbers):
        raise UsageError("a value is not a finite number")
    blocks = _blocks(numbers, times_ns, block)
    if callable(statistic):
        return _of_function(blocks, statistic, draws, level, seed)
    return _estimate(_core.bootstrap(blocks, _share(statistic), draws, level, seed))


def _share(statistic: str) -> float | None:
    if statistic == "mean":
        return None
    if statistic == "median":
        return 0.5
    digits = statistic.removeprefix("p")
    try:
        # p999 is the 99.9th percentile, as in the figures of a simulation.
        share = float(digits) / 100 if len(digits) <= 2 or "." in digits else float(f"0.{digits}")
    except ValueError:
        share = math.nan
    if not statistic.startswith("p") or not 0 < share < 1:
        raise UsageError(f"statistic={statistic!r}; expected mean, median, a percentile such as p90, or a function")
    return share


def _blocks(numbers: list[float], times_ns: Sequence[int] | None, block: Time | None) -> list[list[float]]:
    if block is None:
        if times_ns is not None:
            raise UsageError("times_ns needs block")
        return [[number] for number in numbers]
    length = time_ns("block", block)
    if times_ns is None or len(times_ns) != len(numbers):
        raise UsageError("block needs times_ns, one for each value")
    if length == 0:
        raise UsageError("block is 0; expected a time above 0")
    instants = [int(instant) for instant in times_ns]
    if any(later < earlier for earlier, later in zip(instants, instants[1:], strict=False)):
        raise UsageError("times_ns does not ascend")
    first = instants[0]
    count = (instants[-1] - first) // length + 1
    if count > 10_000_000:
        raise UsageError(f"{count} blocks; expected at most 10 million")
    ends = [bisect.bisect_left(instants, first + (index + 1) * length) for index in range(count)]
    return [numbers[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _of_function(
    blocks: list[list[float]], statistic: Callable[[Sequence[float]], float], draws: int, level: float, seed: int
) -> Estimate:
    def of(copies: Sequence[int]) -> float:
        drawn = [value for block, count in zip(blocks, copies, strict=True) for _ in range(count) for value in block]
        try:
            return float(statistic(drawn)) if drawn else math.nan
        except (ValueError, ZeroDivisionError, _statistics.StatisticsError):
            return math.nan

    count = len(blocks)
    value = of([1] * count)
    replicates = [of(_core.bootstrap_copies(count, seed, number)) for number in range(draws)] if count > 1 else []
    groups = min(count, _JACKKNIFE_MAX) if count > 1 else 0
    left_out = []
    for group in range(groups):
        begin, end = count * group // groups, count * (group + 1) // groups
        left_out.append(of([int(not begin <= index < end) for index in range(count)]))
    return _estimate(_core.bootstrap_of(value, count, replicates, left_out, level, seed))


def _estimate(answer: "_core._Answer") -> Estimate:
    value, elements, draws, percentile, bca, warnings = answer
    return Estimate(value, elements, draws, percentile, bca, tuple(warnings))
