"""What a model is, and what it is asked."""

import abc
import heapq
from dataclasses import dataclass, replace
from enum import IntEnum

SECTOR_BYTES = 512


class Op(IntEnum):
    """What a request does; the numbers are the protocol's."""

    READ = 0
    WRITE = 1
    FLUSH = 2
    DISCARD = 3
    WRITE_ZEROES = 4


class Priority(IntEnum):
    """Urgency of a request."""

    IDLE = 0
    NORMAL = 1
    HIGH = 2


class Status(IntEnum):
    """How a request ended."""

    OK = 0
    MEDIA_ERROR = 1
    ABORTED = 2
    UNSUPPORTED = 3


@dataclass(frozen=True, slots=True)
class Request:
    """A request; its range lies inside the device."""

    id: int
    op: Op
    lba: int
    sectors: int
    fua: bool = False
    priority: Priority = Priority.NORMAL
    queue: int = 0
    issuer: int = 0

    @property
    def end(self) -> int:
        """The sector after the last."""
        return self.lba + self.sectors

    @property
    def bytes(self) -> int:
        """Length in bytes."""
        return self.sectors * SECTOR_BYTES


@dataclass(frozen=True, slots=True)
class Completion:
    """That a request is done."""

    id: int
    at: int
    status: Status = Status.OK


@dataclass(frozen=True, slots=True)
class Device:
    """What the guest is told of the device."""

    name: str
    capacity_sectors: int
    logical_block_bytes: int = 512
    physical_block_bytes: int = 512
    volatile_cache: bool = False
    discard_unit_sectors: int | None = None
    rotational: bool = False


@dataclass(frozen=True, slots=True)
class BackgroundDone:
    """Consecutive sectors that a background request has read."""

    lba: int
    #: At least one.
    sectors: int
    #: When the last of them has passed the head.
    at: int


class Background(abc.ABC):
    """Background requests: reads that delay no other request. Each wanted sector is read once."""

    #: Bytes per second that pass a head that is always over data.
    media_bytes_per_s: float

    @abc.abstractmethod
    def want(self, now: int, ranges: list[range], at_rest: bool) -> None:
        """These sectors are wanted from ``now`` on. Sectors beyond the end of the device are ignored. All wanted
        sectors are read in gaps of other requests, and if ``at_rest`` also while nothing else is to do."""

    @abc.abstractmethod
    def forget(self, now: int, ranges: list[range]) -> None:
        """These sectors are not wanted any more."""

    @abc.abstractmethod
    def wanted(self) -> int:
        """Number of sectors that are still wanted."""

    @abc.abstractmethod
    def take(self, until: int) -> list[BackgroundDone]:
        """What was read up to ``until`` and not taken before, in order of time. Nothing arrives before ``until``."""


class Model(abc.ABC):
    """A device model. It is asked in order of time, and never runs ahead: no call is taken back."""

    #: What the guest is told; the seed and a capacity that the user asked for are known when a model is made.
    device: Device

    def __init__(self, seed: int, capacity_sectors: int | None) -> None:
        self.seed = seed
        if capacity_sectors is not None:
            self.device = replace(self.device, capacity_sectors=capacity_sectors)

    @abc.abstractmethod
    def submit(self, now: int, request: Request) -> None:
        """A request arrives at ``now``, after everything that was due by then."""

    @abc.abstractmethod
    def bound(self) -> int:
        """Something is outstanding: nothing completes before this instant if nothing arrives. It is later than every
        instant up to which the model was advanced. Early costs questions, late is wrong."""

    @abc.abstractmethod
    def advance(self, limit: int) -> list[Completion]:
        """Nothing arrives before ``limit``. Goes to the first instant up to ``limit`` at which something completes, and
        tells all that completes there; nothing if nothing does by ``limit``."""

    def submit_anywhere(self, now: int, request: Request, places: list[int]) -> int:
        """A write arrives that may go to any of these sectors. Returns the chosen one: here the first."""
        self.submit(now, replace(request, lba=places[0]))
        return places[0]

    def background(self) -> Background | None:
        """Background requests, if the model serves them."""
        return None

    def statistics(self) -> dict[str, float]:
        """Counters by name, for the result."""
        return {}


class QueueModel(Model):
    """A device that serves in order of arrival on one or more channels."""

    channels: int = 1

    def __init__(self, seed: int, capacity_sectors: int | None) -> None:
        super().__init__(seed, capacity_sectors)
        self._free = [0] * self.channels
        self._due: list[tuple[int, int, Completion]] = []
        self._submitted = 0

    @abc.abstractmethod
    def end(self, request: Request, start: int) -> int:
        """When a request ends whose service begins at ``start``; called once for each, in order of arrival."""

    def submit(self, now: int, request: Request) -> None:
        start = max(self._free[0], now)
        if request.op is Op.DISCARD and self.device.discard_unit_sectors is None:
            end, status = start, Status.UNSUPPORTED
        else:
            end, status = self.end(request, start), Status.OK
        end = max(end, start + 1)
        heapq.heapreplace(self._free, end)
        heapq.heappush(self._due, (end, self._submitted, Completion(request.id, end, status)))
        self._submitted += 1

    def bound(self) -> int:
        return self._due[0][0]

    def advance(self, limit: int) -> list[Completion]:
        done: list[Completion] = []
        first = self._due[0][0]
        while first <= limit and self._due and self._due[0][0] == first:
            done.append(heapq.heappop(self._due)[2])
        return done

    def statistics(self) -> dict[str, float]:
        return {"requests": self._submitted}
