"""Device models in Python for Chronodisk.

A model says when requests complete; Chronodisk starts it with ``--device exec:./model.py`` and asks it over a pipe.
Everything is in virtual nanoseconds, whole numbers: a model may think as long as it likes, nobody's clock runs
meanwhile. What must not happen is that the answer depends on anything but the seed and the requests: no clock, no
``random`` without the seed, no iteration over a ``set``.

A device that serves in order of arrival is a :class:`QueueModel` with one method::

    class Disk(QueueModel):
        device = Device(name="my-disk", capacity_sectors=1 << 20)

        def end(self, request: Request, start: int) -> int:
            return start + 5_000_000

    if __name__ == "__main__":
        serve(Disk)

Any other device is a :class:`Model`. Standard output belongs to the protocol, so words go to
``sys.stderr``.
"""

from chronodisk.model.interface import (
    Background,
    BackgroundDone,
    Completion,
    Device,
    Model,
    Op,
    Priority,
    QueueModel,
    Request,
    Status,
)
from chronodisk.model.random_stream import RandomStream
from chronodisk.model.server import serve

__all__ = [
    "Background",
    "BackgroundDone",
    "Completion",
    "Device",
    "Model",
    "Op",
    "Priority",
    "QueueModel",
    "RandomStream",
    "Request",
    "Status",
    "serve",
]
