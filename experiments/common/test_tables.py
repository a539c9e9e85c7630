"""How tables get into pages."""

import unittest
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from common import tables

PAGE = "Before.\n\n<!-- table: some -->\n\n| a |\n|---|\n| 1 |\n\n<!-- end of table -->\n\nAfter.\n"


def some() -> Iterator[tables.Row]:
    """Two columns, one of them without a head."""
    yield ["", "b"]
    yield ["2", ""]


class Pages(unittest.TestCase):
    """Of a tree with a folder of documents."""

    def pages(self, **texts: str) -> list[tuple[str, str]]:
        """Give the pages that have tables."""
        with TemporaryDirectory() as folder, mock.patch.multiple(tables, ROOT=Path(folder), TABLES={"some": some}):
            (Path(folder) / "docs").mkdir()
            for name, text in texts.items():
                (Path(folder) / "docs" / f"{name}.md").write_text(text)
            return [(path.name, text) for path, text in tables.pages()]

    def test_what_is_around_a_table_stays(self) -> None:
        """And what is in it is written anew."""
        whole = PAGE.replace("| a |\n|---|\n| 1 |\n", "| | b |\n|---|---|\n| 2 | |\n")
        self.assertEqual(self.pages(page=PAGE, other="No table.\n"), [("page.md", whole)])

    def test_a_table_without_its_marks_is_a_fault(self) -> None:
        """Else it would stay as its author typed it."""
        for text in ["No table.\n", PAGE.replace("<!-- end of table -->", ""), PAGE + PAGE]:
            with self.assertRaises(ValueError):
                self.pages(page=text)

    def test_figures_have_the_digits_that_they_need(self) -> None:
        """Two, or all before the point."""
        shown = [tables.digits(value) for value in (0.0, 0.0731, 0.5, 4.32, 33.4, 1013.2)]
        self.assertEqual(shown, ["0", "0.073", "0.5", "4.3", "33", "1,013"])
        self.assertEqual(tables.span([99.96, 100.0], tables.share), "100.0 to 100")
        self.assertEqual(tables.span([3.0, 3.01]), "3.0")


if __name__ == "__main__":
    unittest.main()
