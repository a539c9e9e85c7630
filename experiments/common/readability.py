"""Bounds how hard the pages of `docs/` and the README are to read, by LIX.

LIX is the mean length of a sentence in words plus the share of words of more than six letters in per cent. Björnsson
(1968) has 30 for simple texts and 40 for newspapers. Only paragraphs and items of lists count, without
code, tables and headings. A code span counts as one short word.

`python -m common.readability` prints each page's value and fails if a page exceeds the bound.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import textstat
from markdown_it import MarkdownIt
from markdown_it.token import Token

from common.tables import ROOT

HIGHEST_LIX = 36.0


def prose(page: str) -> str:
    """Give the paragraphs and items of a page in Markdown, each a line that ends a sentence."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page)
    paragraphs = []
    for before, token in zip(tokens, tokens[1:], strict=False):
        if token.type == "inline" and before.type == "paragraph_open":
            text = "".join(words(token.children or [])).strip()
            if text:
                paragraphs.append(text if text[-1] in ".!?" else f"{text}.")
    return "\n".join(paragraphs)


def words(tokens: list[Token]) -> Iterator[str]:
    """Give the text of a paragraph without its markup."""
    for token in tokens:
        match token.type:
            case "text":
                yield token.content
            case "code_inline":
                yield "code"
            case "softbreak" | "hardbreak":
                yield " "


def lix_of(page: str) -> float:
    """Give the LIX of a page in Markdown; zero for a page without prose."""
    text = prose(page)
    return float(textstat.lix(text)) if text else 0.0


def main() -> int:
    """Print the pages, the hardest first."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    values = sorted(((lix_of(page.read_text()), page.relative_to(ROOT)) for page in pages), reverse=True)
    for lix, page in values:
        print(f"{lix:5.1f}  {page}")
    hard: list[Path] = [page for lix, page in values if lix > HIGHEST_LIX]
    for page in hard:
        print(f"{page}: LIX above {HIGHEST_LIX}; shorten its sentences, or use shorter words", file=sys.stderr)
    return 1 if hard else 0


if __name__ == "__main__":
    sys.exit(main())
