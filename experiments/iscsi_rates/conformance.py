"""The conformance tests of libiscsi (`iscsi-test-cu`) on Chronodisk's target, and on tgtd for comparison.

Each test runs in a process of its own, so that a skipped one is told apart from a passed one: the program counts both
as passed. Tests that overwrite the disk are permitted. Needs Debian's packages libiscsi-bin and tgt, and root.
"""

import argparse
import re
import subprocess
from typing import Any

from common.command import keep, note
from iscsi_rates.targets import TARGETS

SCHEMA = "chronodisk.experiment.iscsi-conformance/1"
NAME = "iscsi-conformance"
#: Seconds for one test.
PATIENCE_S = 60.0
SKIPPED = re.compile(r"\[SKIPPED\] *([^\[\n]*)")
ASSERTION = re.compile(r"^ +\d+\. (\S+:\d+) +- (.*?) *(?:\[.*)?$", re.MULTILINE)


def names() -> list[str]:
    """Give the names of all tests, as SUITE.TEST."""
    listed = subprocess.run(["iscsi-test-cu", "--list"], capture_output=True, text=True, check=False).stdout
    return [name.removeprefix("ALL.") for name in listed.split() if re.fullmatch(r"ALL\.[^.]+\.[^.]+", name)]


def tried(name: str, url: str) -> dict[str, Any]:
    """Run a test: its outcome, and the reason if it did not pass."""
    words = ["iscsi-test-cu", "--dataloss", "--allow-sanitize", "--fail", "--normal", "--test", f"ALL.{name}", url]
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        return {"test": name, "outcome": "failed", "reason": f"no end after {PATIENCE_S:g} s"}
    said = done.stdout + done.stderr
    if done.returncode != 0 or "Run Summary" not in said:
        found = ASSERTION.search(said)
        return {"test": name, "outcome": "failed", "reason": " ".join(found.groups()) if found else "the program ended"}
    # Every test begins with a look for registered keys, which says this of targets without them.
    reasons = [reason.strip() for reason in SKIPPED.findall(said)]
    if reasons:
        return {"test": name, "outcome": "skipped", "reason": reasons[-1]}
    return {"test": name, "outcome": "passed"}


def main() -> None:
    """Run all tests on both targets, and keep the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    targets: dict[str, Any] = {}
    for target, serve in TARGETS.items():
        with serve() as url:
            note(f"{target}: {len(names())} tests")
            tests = [tried(name, url) for name in names()]
        counts = {
            outcome: sum(test["outcome"] == outcome for test in tests) for outcome in ("passed", "failed", "skipped")
        }
        print(target, counts)
        for test in tests:
            if test["outcome"] == "failed":
                print(f"  {test['test']}: {test['reason']}")
        targets[target] = counts | {"tests": tests}
    note(f"result: {keep(NAME, {'schema': SCHEMA, 'repetitions': 1, 'targets': targets})}")


if __name__ == "__main__":
    main()
