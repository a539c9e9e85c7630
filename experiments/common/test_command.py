"""What the user hears of work that takes long."""

import contextlib
import io
import time
import unittest
from unittest import mock

from common import command


class Silence(unittest.TestCase):
    """Of an experiment."""

    def test_the_last_words_are_repeated_while_nothing_else_is_said(self) -> None:
        """With the time that has passed since."""
        heartbeat = command._Heartbeat
        printed = io.StringIO()
        with mock.patch.object(heartbeat, "pause_s", 0.05), mock.patch.object(heartbeat, "thread", None):
            with contextlib.redirect_stderr(printed):
                command.note("calibrating\nfork")
                for _ in range(200):
                    if printed.getvalue().count("fork: 0 s so far") >= 2:
                        break
                    time.sleep(0.01)
        self.assertGreaterEqual(printed.getvalue().count("fork: 0 s so far"), 2)


if __name__ == "__main__":
    unittest.main()
