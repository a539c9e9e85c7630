"""The order, the memory and the failures of `make reproduce`, with steps that do nothing."""

import contextlib
import io
import re
import tempfile
import unittest
from pathlib import Path

from common.command import ROOT
from reproduce.experiment import Progress, chosen, is_well, reproduce
from reproduce.steps import PAPERS, Paper, Step

FIRST, SECOND, AS_ROOT = Step("first", "a", 1), Step("second", "b", 2, ("SIZE=2",)), Step("c", "c", 1, needs_root=True)
PAPER = Paper("paper", "Title", [FIRST, SECOND, AS_ROOT, Step("large", "d", 600, is_slow=True)])


class Steps(unittest.TestCase):
    """Of a paper."""

    def setUp(self) -> None:
        """Begin without an ended step."""
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.called: list[str] = []

    def progress(self, sources: str) -> Progress:
        """Progress with these sources."""
        return Progress(Path(self.folder.name) / "steps.json", sources)

    def outcomes(self, sources: str, failing: str = "", is_root: bool = False) -> dict[str, str]:
        """Run the fast steps, one of which fails."""

        def run(step: Step, _log: Path) -> int:
            self.called.append(step.name)
            return 2 if step.name == failing else 0

        with contextlib.redirect_stderr(io.StringIO()):
            return reproduce(chosen([PAPER], None, "fast"), self.progress(sources), run, is_root)

    def test_an_ended_step_is_not_repeated_until_the_sources_change(self) -> None:
        """A failed one is, and the rest runs in spite of it."""
        failed = {"first": "FAILED with status 2", "second SIZE=2": "0 min", "c": "needs root"}
        self.assertEqual(self.outcomes("one", failing="first"), failed)
        again = {"first": "0 min", "second SIZE=2": "made before", "c": "0 min"}
        self.assertEqual(self.outcomes("one", is_root=True), again)
        self.assertEqual(set(self.outcomes("two", is_root=True).values()), {"0 min"})
        names = ["first", "second SIZE=2", "c"]
        self.assertEqual(self.called, [*names[:2], "first", "c", *names])
        self.assertEqual([is_well(outcome) for outcome in failed.values()], [False, True, False])

    def test_an_interrupted_step_has_not_ended(self) -> None:
        """The steps before it have."""

        def run(step: Step, _log: Path) -> int:
            if step is SECOND:
                raise KeyboardInterrupt
            return 0

        progress = self.progress("one")
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(KeyboardInterrupt):
            reproduce(chosen([PAPER], None, "fast"), progress, run, is_root=True)
        self.assertEqual([progress.minutes(step) for step in (FIRST, SECOND)], [0.0, None])
        progress.forget([SECOND])
        self.assertEqual(progress.minutes(FIRST), 0.0)
        progress.forget([FIRST])
        self.assertIsNone(progress.minutes(FIRST))

    def test_papers_and_tiers_are_chosen(self) -> None:
        """By name."""
        self.assertEqual(chosen([PAPER], "other", "all"), [])
        self.assertEqual([step.target for _, step in chosen([PAPER], "paper", "slow")], ["large"])
        self.assertEqual(len(chosen([PAPER], None, "all")), len(PAPER.steps))

    def test_every_step_is_a_target_and_has_a_name_of_its_own(self) -> None:
        """Of the Makefile."""
        targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "experiments" / "Makefile").read_text(), re.MULTILINE))
        steps = [step for paper in PAPERS for step in paper.steps]
        self.assertEqual({step.target for step in steps} - targets, set())
        self.assertEqual(len({step.name for step in steps}), len(steps))


if __name__ == "__main__":
    unittest.main()
