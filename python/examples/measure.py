#!/usr/bin/env python3
"""What a user's script looks like: figures, tables, intervals, a sweep. `mypy --strict` passes on it."""

import tempfile
from concurrent.futures import ThreadPoolExecutor

import chronodisk
from chronodisk.model import Device, QueueModel, Request


class Fixed(QueueModel):
    device = Device(name="fixed", capacity_sectors=1 << 20)

    def end(self, request: Request, start: int) -> int:
        return start + 250_000


def main() -> None:
    disk = chronodisk.Profile.load("cheetah-9lp")
    found = chronodisk.simulate(disk, "random-read", requests=2_000, depth=4, block_size="16KiB")
    print(f"{found.device}: {found.iops:.1f} requests/s, p99 {found.latency_us['p99']:.0f} µs")

    # Response times of neighbours depend on each other: blocks of a second are the elements.
    table = found.requests.to_pyarrow()
    times_us = (found.requests.service_times_ns() / 1e3).tolist()
    print("mean", chronodisk.bootstrap(times_us, times_ns=table["arrival_ns"].to_pylist(), block="1 s"))

    # The same requests, at the same times, on a device in Python.
    print(chronodisk.simulate(Fixed, trace=found.requests, beyond="wrap"))

    file = {
        "command": "simulate",
        "seeds": 2,
        "options": {"workload": "random-read", "requests": 500, "device": "cheetah-9lp"},
        "axes": {"depth": [1, 8]},
    }
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(2) as pool:
        for row in chronodisk.sweep(file, directory, executor=pool).rows("iops"):
            print(row["depth"], round(row["value"], 1))


if __name__ == "__main__":
    main()
