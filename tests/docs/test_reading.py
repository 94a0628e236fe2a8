"""Pages are easy to read: short sentences, without the stiff phrases of the former style."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from tests.docs.reading import PROJECT, pages, reading, sentences

LONGEST_MEDIAN = 20
LONGEST_SENTENCE = 50
MOST_STIFF = 6.0
# Programs draw most of these pages: their sentences are parts of tables.
DRAWN = {"docs/reproduction.md", "docs/synthetic-accuracy.md", "docs/accuracy.md"}


def name(path: Path) -> str:
    """Return the path of a page in the project."""
    return path.relative_to(PROJECT).as_posix()


@pytest.mark.parametrize("path", [path for path in pages() if name(path) not in DRAWN], ids=name)
def test_a_page_is_easy_to_read(path: Path) -> None:
    found = reading(path.read_text(encoding="utf-8"))
    assert found.median <= LONGEST_MEDIAN
    assert found.longest <= LONGEST_SENTENCE
    assert found.stiff <= 2 or found.stiff_per_thousand <= MOST_STIFF


def test_the_median_sentence_of_all_pages_is_short() -> None:
    lengths = [
        len(sentence.split())
        for path in pages()
        for sentence in sentences(path.read_text(encoding="utf-8"))
    ]
    assert statistics.median(lengths) <= 16


def test_a_hard_page_is_found() -> None:
    page = "What is left of a unit goes on " + "and on " * 30 + "as of the release.\n"
    found = reading(page)
    assert found.median > LONGEST_MEDIAN and found.longest > LONGEST_SENTENCE and found.stiff == 3
