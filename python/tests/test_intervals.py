"""Bootstrap intervals."""

import statistics

import pytest

from chronodisk import UsageError, bootstrap

VALUES = [3.0, 1.0, 4.0, 1.5, 9.0, 2.5, 6.0, 5.0, 3.5, 5.5]


def test_an_interval_has_the_value_and_its_size() -> None:
    mean = bootstrap(VALUES, seed=7)
    assert mean.value == pytest.approx(4.1) and (mean.elements, mean.draws) == (10, 1_999)
    assert mean.bca is not None and mean.bca[0] < 4.1 < mean.bca[1]
    assert any("fewer than 30" in warning for warning in mean.warnings)
    assert bootstrap(VALUES, seed=7) == mean and bootstrap(VALUES, seed=8) != mean


def test_a_function_gives_what_the_built_in_statistic_gives() -> None:
    named = bootstrap(VALUES, "mean", draws=199)
    function = bootstrap(VALUES, statistics.fmean, draws=199)
    assert function.percentile == pytest.approx(named.percentile) and function.bca == pytest.approx(named.bca)


def test_blocks_of_time_are_elements() -> None:
    times = [index * 1_000_000 for index in range(1_000)]
    values = [float(index // 100) for index in range(1_000)]
    alone, blocks = bootstrap(values, "median"), bootstrap(values, "median", times_ns=times, block="100 ms")
    assert (alone.elements, blocks.elements) == (1_000, 10)
    assert alone.interval and blocks.interval
    assert blocks.interval[1] - blocks.interval[0] > 2 * (alone.interval[1] - alone.interval[0])


def test_one_value_has_no_interval_and_p99_a_warning() -> None:
    assert bootstrap([5.0]).interval is None
    assert any("p99" in warning for warning in bootstrap(VALUES * 10, "p99").warnings)


@pytest.mark.parametrize(
    "arguments",
    [
        {"values": []},
        {"values": [1.0, float("nan")]},
        {"values": VALUES, "statistic": "mode"},
        {"values": VALUES, "block": "1s"},
        {"values": [1.0, 2.0], "times_ns": [5, 3], "block": 1},
        {"values": [1.0, 2.0], "times_ns": [0, 1 << 60], "block": 1},
        {"values": VALUES, "draws": 0},
    ],
)
def test_what_can_not_be_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        bootstrap(**arguments)  # type: ignore[arg-type]
