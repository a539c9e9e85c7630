"""Tests of what the figures of the default clock are made of."""

import unittest
from typing import Any

from call_traces.default_clock import interval_of_median, others


class TestIntervalOfMedian(unittest.TestCase):
    """The values are their own ranks."""

    def test_few_values_have_their_whole_range(self) -> None:
        """Five are too few for 95 %; seven have the median in their range in 98.4 % of cases."""
        for count in (1, 5, 7):
            ranks = [float(value) for value in range(count, 0, -1)]
            self.assertEqual(interval_of_median(ranks), [1, count])

    def test_many_values_have_the_narrowest_interval_of_95_percent(self) -> None:
        """Of the binomial distribution: the 6th to 16th of 21 have it in 97.3 % of cases, the 7th to 15th in 92.2 %."""
        self.assertEqual(interval_of_median([float(value) for value in range(1, 22)]), [6, 16])


class TestOthers(unittest.TestCase):
    """Some programs are measured anew."""

    def test_the_others_keep_their_figures_and_their_conditions(self) -> None:
        """A row that has conditions of its own keeps those; another one has the whole result's."""
        rows = [{"program": "build"}, {"program": "sqlite", "commit": "b", "date": "2"}, {"program": "postmark"}]
        kept: dict[str, Any] = {"provenance": {"commit": "a", "date": "1", "load": []}, "recording": rows}
        left = [
            {"program": "build", "commit": "a", "date": "1"},
            {"program": "sqlite", "commit": "b", "date": "2"},
        ]
        self.assertEqual(others(kept, "recording", {"postmark"}), left)


if __name__ == "__main__":
    unittest.main()
