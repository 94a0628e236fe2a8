"""What the numbers of a tree count: rows, the rows of each unit within its bounds, or another
number."""

from __future__ import annotations

from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.question import Question


def counted_noun(question: Question) -> str:
    """Return what a number of a tree counts, for headings and axes.

    "counted rows" where rows beyond the bounds of a unit are left out: such a number is none of all
    rows, and neither is its interval.
    """
    measure = getattr(question, "measure", None)
    if measure is not None:
        return f"sum of {measure.column}"
    noun: str | None = getattr(question, "noun", None)
    if noun is not None:
        return noun
    unit = _unit(question)
    if unit is None or unit.is_row:
        return "rows"
    return "counted rows" if question.counts_rows else f"values of {unit.name}"


def counted_note(question: Question) -> str | None:
    """Return which rows a tree counts, where it does not count all of them."""
    unit = _unit(question)
    if unit is None or unit.is_row or not question.counts_rows:
        return None
    return f"counts {unit.bounds_in_words} of each {unit.name}"


def _unit(question: Question) -> PrivacyUnit | None:
    unit: PrivacyUnit | None = getattr(question, "unit", None)
    return unit
