"""What all tests need."""

import signal

import pytest


@pytest.fixture(autouse=True)
def interrupts() -> None:
    """Tests of Ctrl-C need the handler that Python installs unless whoever started it ignores the signal."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
