"""Which results say how they were made, and which are older than that rule.

Each result has its commit, date, host, load and command. The results below were made before; they can't be completed
afterwards. They are named with a hash of their contents, so that one that is made anew needs its provenance like any
other. The list may only become shorter. Where such a result is shown, the page says so.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"
ROOT = RESULTS.parent.parent
REQUIRED = ("commit", "date", "host", "load", "command")
#: What a page says of an older result.
MARK = "of an earlier version; conditions not recorded"
#: SHA-256 of each older result, its first sixteen digits.
OLDER = {
    "david-figures": "a4ecec4e70f47e73",
    "guest-clock": "cdf1e9f4f5ceb61d",
    "guest-soak": "99d4217200e64de5",
    "os-pausing-slower-full": "80c29bbbb989dc9b",
    "os-pausing-slower": "98f6c5200ff3ba1a",
    "os-pausing": "55cc8dfb7eadf419",
    "patched-file-system": "700d4cee9045d93e",
    "real-time": "7244ac973f9af16e",
    "ssd-live": "ff223a7cd341f52b",
    "ssd-programs": "b4c94abe934ef651",
    "working-set": "47c75fee49d7e41e",
}
#: Lowered with the list, never raised.
OLDER_MAX = 11


def known(result: dict[str, Any]) -> dict[str, Any]:
    """Give what a result says of itself; some have it at the top."""
    return {**result, **result.get("provenance", {})}


def lacking(result: dict[str, Any]) -> list[str]:
    """Name what a result does not say of how it was made."""
    said = known(result)
    return [name for name in REQUIRED if said.get(name) in (None, "", [], {})]


def digest(path: Path) -> str:
    """Stand for the contents of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def is_older(path: Path) -> bool:
    """Whether a result is one of the list, unchanged."""
    return OLDER.get(path.stem) == digest(path)


def faults(results: Path = RESULTS) -> Iterator[str]:
    """Say what is wrong with the results and the list."""
    there = {path.stem: path for path in sorted(results.glob("*.json"))}
    for name, path in there.items():
        missing = lacking(json.loads(path.read_text()))
        if missing and not is_older(path):
            yield f"{path.name} has no {', '.join(missing)}: common.command.keep writes them"
        if not missing and name in OLDER:
            yield f"{path.name} says how it was made, so it leaves the list OLDER of common/provenance.py"
    yield from (f"{name}.json is gone, so it leaves the list OLDER" for name in OLDER if name not in there)
    if len(OLDER) != OLDER_MAX:
        yield f"the list OLDER has {len(OLDER)} results; expected {OLDER_MAX}, which is lowered with it"


def unmarked(pages: dict[str, str]) -> Iterator[str]:
    """Name the pages that show an older result, or a plot of one, without saying so in the same paragraph."""
    for page, text in pages.items():
        for paragraph in text.split("\n\n"):
            for name in OLDER:
                shown = re.search(rf"results/{name}[a-z0-9-]*\.(json|svg)", paragraph)
                if shown and MARK not in " ".join(paragraph.lower().split()):
                    yield f"{page}: the paragraph that shows results/{name} does not say '{MARK}'"


def pages() -> dict[str, str]:
    """Read the pages that show results, by their paths in the repository."""
    files = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("experiments/*/README.md"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in files}
