"""Tests of `readability`."""

import unittest

from common.readability import HIGHEST_LIX, lix_of, prose


class Readability(unittest.TestCase):
    def test_only_paragraphs_and_items_count(self) -> None:
        page = "# A heading\n\nOne `option` and\na [link](page.md).\n\n- An item\n"
        page += "\n```sh\ncode\n```\n\n| a | b |\n|---|---|\n| c | d |\n"
        self.assertEqual(prose(page), "One code and a link.\nAn item.")

    def test_long_sentences_and_long_words_count(self) -> None:
        short = "The disk reads a block. Then it waits."
        self.assertLess(lix_of(short), 10)
        long = "Consequently simultaneously outstanding requirements necessitate comprehensive considerations. " * 3
        self.assertGreater(lix_of(long), HIGHEST_LIX)
        one = " and".join([" the disk reads a block"] * 12) + "."
        self.assertGreater(lix_of(one), HIGHEST_LIX)


if __name__ == "__main__":
    unittest.main()
