"""Pages are easy to read: short sentences, without the stiff phrases of the former style."""

from __future__ import annotations

import statistics

from tests.docs.reading import PROJECT, Reading, pages, reading, sentences

LONGEST_MEDIAN = 20
LONGEST_SENTENCE = 50
MOST_STIFF = 6.0
# A program draws most of this page: its sentences are parts of tables.
DRAWN = {"docs/reproduction.md"}


def is_easy(found: Reading) -> bool:
    """Whether the figures of a page are within the limits."""
    stiff = found.stiff <= 2 or found.stiff_per_thousand <= MOST_STIFF
    return stiff and found.median <= LONGEST_MEDIAN and found.longest <= LONGEST_SENTENCE


def test_pages_are_easy_to_read() -> None:
    measured = {
        path.relative_to(PROJECT).as_posix(): reading(path.read_text(encoding="utf-8"))
        for path in pages()
    }
    assert len(measured) > 100
    hard = {name: found for name, found in measured.items() if not is_easy(found)}
    assert hard.keys() <= DRAWN, hard


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
    assert not is_easy(found)
