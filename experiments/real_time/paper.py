"""What the Memulator paper measured: its tables 2 and 3."""

from real_time.workloads import WORKLOADS

#: Requests of one sector per second, and MB/s of requests of 1,024 sectors, where nothing waits.
TABLE2 = {"local": (22_468, 84.5), "another namespace": (8_883, 103.5)}

#: By device: mean service time in µs, mean error in µs, mean absolute error in per cent, per cent of the requests with
#: less than 1 % of error; a column a workload.
TABLE3_COLUMNS = {
    "constant-10ms": (
        (10_000, 10_000, 10_000, 10_000, 10_000, 10_000),
        (-0.65, -0.49, 0.93, 0.75, 2.36, 1.42),
        (0.01, 0.01, 0.04, 0.02, 0.05, 0.05),
        (100, 100, 99.9, 100.0, 100.0, 99.9),
    ),
    "cheetah-x15": (
        (6_509, 5_568, 9_116, 8_410, 11_301, 10_154),
        (5.33, 10.87, 0.92, -0.19, -10.08, -9.70),
        (0.11, 0.33, 0.07, 0.08, 0.09, 0.11),
        (99.5, 92.4, 99.9, 99.1, 100, 100),
    ),
    "mems-g2": (
        (1_057, 1_049, 2_001, 1_957, 2_846, 2_857),
        (-0.21, 0.16, -0.59, -0.50, -1.54, -0.01),
        (0.13, 0.16, 0.13, 0.14, 0.13, 0.11),
        (100, 99.4, 100, 98.9, 100, 100),
    ),
}


def table3(device: str, workload: str) -> dict[str, float] | None:
    """Return the paper's figures for a device and a workload, if it has them."""
    if device not in TABLE3_COLUMNS:
        return None
    names = ("mean_service_us", "mean_error_us", "mean_absolute_error_percent", "under_1_percent")
    column = WORKLOADS.index(workload)
    return {name: float(row[column]) for name, row in zip(names, TABLE3_COLUMNS[device], strict=True)}
