"""Sizes and times as arguments: numbers, or texts with a unit."""

from typing import TypeAlias

from chronodisk import _core
from chronodisk.errors import UsageError

#: Bytes, or a text such as ``"4KiB"`` or ``"9.1 GB"``.
Size: TypeAlias = int | str
#: Nanoseconds, or a text such as ``"100us"`` or ``"3.9 ms"``.
Time: TypeAlias = int | str


def size_bytes(name: str, value: Size) -> int:
    """A size in bytes."""
    return _quantity(name, _core.parse_bytes(value) if isinstance(value, str) else value)


def time_ns(name: str, value: Time) -> int:
    """A time in nanoseconds."""
    return _quantity(name, _core.parse_duration(value) if isinstance(value, str) else value)


def _quantity(name: str, value: int) -> int:
    # A float would be rounded without a word.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise UsageError(f"{name}={value!r}; expected a whole number, or a text with a unit")
    number = int(value)
    if not 0 <= number < 1 << 63:
        raise UsageError(f"{name}={number}; expected 0 to 2**63 - 1")
    return number
