#!/usr/bin/env python3
"""A device that takes 1 ms for everything, and thinks about each request for as long as SLOW_FIXED_THINK_MS says (100):
the guest does not notice."""

import os
import time

from chronodisk.model import Device, QueueModel, Request, serve

THINK_SECONDS = float(os.environ.get("SLOW_FIXED_THINK_MS", "100")) / 1000


class SlowFixed(QueueModel):
    device = Device(name="slow-fixed", capacity_sectors=8 << 21, physical_block_bytes=4096)

    def end(self, request: Request, start: int) -> int:
        time.sleep(THINK_SECONDS)
        return start + 1_000_000


if __name__ == "__main__":
    serve(SlowFixed)
