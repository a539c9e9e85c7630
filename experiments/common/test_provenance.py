"""What is refused of results, and of pages that show them."""

import json
import unittest
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from common import provenance

WHOLE = {"commit": "a", "date": "b", "host": {"cpu_model": "c"}, "load": [1.0], "command": "d"}


class Results(unittest.TestCase):
    """Of a folder of results."""

    def setUp(self) -> None:
        """Make an empty folder."""
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name: str, result: Mapping[str, object]) -> str:
        """Write a result and return what stands for it."""
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(result))
        return provenance.digest(path)

    def faults(self, older: dict[str, str], most: int) -> str:
        """Say what is wrong with the folder, given a list of older results."""
        with mock.patch.multiple(provenance, OLDER=older, OLDER_MAX=most):
            return "\n".join(provenance.faults(self.folder))

    def test_a_new_result_needs_all_of_it(self) -> None:
        """At the top or among its provenance."""
        self.write("top", WHOLE)
        self.write("inside", {"rows": [], "provenance": WHOLE})
        self.assertEqual(self.faults({}, 0), "")
        self.write("bare", {"rows": [], "provenance": {**WHOLE, "load": None, "host": {}}})
        self.assertIn("bare.json has no host, load", self.faults({}, 0))

    def test_an_older_result_is_accepted_as_it_was(self) -> None:
        """And not once its contents are new."""
        hash_before = self.write("old", {"rows": [1]})
        self.assertEqual(self.faults({"old": hash_before}, 1), "")
        self.write("old", {"rows": [2]})
        self.assertIn("old.json has no commit", self.faults({"old": hash_before}, 1))

    def test_the_list_becomes_shorter(self) -> None:
        """When a result is made anew or removed, and it does not grow."""
        whole = self.write("anew", WHOLE)
        self.assertIn("anew.json says how it was made", self.faults({"anew": whole}, 1))
        self.assertIn("gone.json is gone", self.faults({"gone": "0"}, 1))
        old = self.write("old", {"rows": []})
        self.assertIn("has 1 results; expected 0", self.faults({"old": old}, 0))

    def test_pages_say_what_is_older(self) -> None:
        """In the paragraph that shows it."""
        page = f"[figures](../experiments/results/old.json), {provenance.MARK.replace(' ', chr(10), 1)}.\n\nNext."
        with mock.patch.dict(provenance.OLDER, {"old": "0"}, clear=True):
            self.assertEqual(list(provenance.unmarked({"page": page, "other": "results/new.json"})), [])
            plot = f"![Plot](../experiments/results/old-1.svg)\n\n{provenance.MARK}"
            self.assertEqual(len(list(provenance.unmarked({"page": plot}))), 1)


if __name__ == "__main__":
    unittest.main()
