"""How an answer is written: for a program in full, for a person in figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dptrees.dpcore.questions.released import Answer
from dptrees.pipelines.answers.figures import (
    error_figure,
    figure,
    interval,
    quantile_numbers,
    quantile_texts,
    rank_margin,
    share,
    with_margin,
)
from dptrees.pipelines.answers.table import Column, TextTable

# Fields of the error of a rank, where that is known instead.
_MARGIN = ("rank_rows", "rank_share")
# What the root is called, whose path is empty.
_ROOT = "(all)"


@dataclass(frozen=True, kw_only=True)
class AnswerEntry:
    """One answer, and what comes before it.

    Attributes:
        before: what it is about, such as the key and the period.
        answer: a count; or a row of the quantiles table.
        noun: what is counted: a node, a range, ...
        bounded: the question had bounds, which may have been rounded.
    """

    before: Mapping[str, object]
    answer: Answer | Mapping[str, Any]
    noun: str = "node"
    bounded: bool = False

    @property
    def rounding(self) -> tuple[str, str] | None:
        """The requested and the answered values, where they differ."""
        if not isinstance(self.answer, Answer) or self.answer.asked is None:
            return None
        return self.answer.asked, self.answer.label

    @property
    def has_rank_margin(self) -> bool:
        """Whether it says how far off a rank is, and no interval."""
        if isinstance(self.answer, Answer):
            return False
        return _MARGIN[0] in self.answer and self.answer["ci_low_text"] is None

    def to_program(self) -> dict[str, object]:
        """All that is known, by name: numbers in full, None for what is not known."""
        if not isinstance(self.answer, Answer):
            return {**self.before, **_quantile(self.answer)}
        values = {name: _known(value) for name, value in asdict(self.answer).items()}
        asked, remark = values.pop("asked"), values.pop("remark")
        label, words = values["label"], {"in_words": values.pop("in_words")}
        bounds = {"asked": asked or label, "answered": label} if self.bounded else {}
        remarks = {} if remark is None else {"remark": remark}
        return {**self.before, **values, **bounds, **words, **remarks}


def narrow_table(answers: Sequence[AnswerEntry], confidence: float) -> TextTable:
    """Answers in figures.

    Args:
        answers: of one question.
        confidence: of their intervals.
    """
    first = answers[0]
    columns = [
        Column(name, [str(each.before[name]) for each in answers], is_text=True)
        for name in first.before
    ]
    within = f"{100 * confidence:g} % interval"
    if not isinstance(first.answer, Answer):
        return TextTable((*columns, *_quantile_columns(answers, within)))
    counts = [each.answer for each in answers if isinstance(each.answer, Answer)]
    if any(each.asked for each in counts):
        labels = [each.asked or each.label for each in counts]
        columns += [Column("requested", labels, is_text=True)]
        columns += [Column("answered", [each.shown for each in counts], is_text=True)]
    else:
        columns += [Column(first.noun, [each.shown or _ROOT for each in counts], is_text=True)]
    columns += [
        Column("estimate", [figure(each.estimate, _error(each)) for each in counts]),
        Column("standard error", [error_figure(each.std_error) for each in counts]),
        Column(within, [interval(each.ci_low, each.ci_high, each.std_error) for each in counts]),
        Column("count", [f"{each.count:,}" for each in counts]),
        Column("share", [share(each.fraction, share_error(each)) for each in counts]),
    ]
    return TextTable(tuple(columns))


def answer_remarks(answers: Sequence[AnswerEntry]) -> list[str]:
    """What is said of intervals that are others than those beside them, each sentence once."""
    said = (each.answer.remark for each in answers if isinstance(each.answer, Answer))
    return list(dict.fromkeys(remark for remark in said if remark is not None))


def wide_table(answers: Sequence[AnswerEntry]) -> TextTable:
    """Return answers as a table with a row for each query and a column for each key: estimates with
    half-widths of their intervals, or values.

    Args:
        answers: of one question, each with a key in front.
    """
    keys = dict.fromkeys(str(each.before["key"]) for each in answers)
    lines = dict.fromkeys(_line(each) for each in answers)
    cells = {(_line(each), str(each.before["key"])): _cell(each) for each in answers}
    noun = (*(name for name in answers[0].before if name != "key"), answers[0].noun)
    columns = [
        Column(name, [line[place] for line in lines], is_text=True)
        for place, name in enumerate(noun)
    ]
    columns += [Column(key, [cells.get((line, key), "-") for line in lines]) for key in keys]
    return TextTable(tuple(columns))


def _line(entry: AnswerEntry) -> tuple[str, ...]:
    """What an answer is about, beside its key."""
    about = [str(value) for name, value in entry.before.items() if name != "key"]
    if isinstance(entry.answer, Answer):
        return (*about, entry.answer.shown or _ROOT)
    return (*about, f"{entry.answer['q']:g}")


def _cell(entry: AnswerEntry) -> str:
    """An estimate with its interval, or a value."""
    answer = entry.answer
    if isinstance(answer, Answer):
        shown = answer.count if answer.estimate is None else answer.estimate
        return with_margin(shown, answer.ci_low, answer.ci_high, answer.std_error)
    value, span = quantile_texts(answer)
    return value if entry.has_rank_margin else f"{value} [{span}]"


def _quantile_columns(answers: Sequence[AnswerEntry], within: str) -> list[Column]:
    rows = [each.answer for each in answers if not isinstance(each.answer, Answer)]
    shown = [quantile_texts(row) for row in rows]
    columns = [
        Column("quantile", [f"{row['q']:g}" for row in rows]),
        Column("value", [value for value, _ in shown]),
    ]
    if not answers[0].has_rank_margin:
        return [*columns, Column(within, [span for _, span in shown])]
    margins = [
        rank_margin(*(each.answer[name] for name in _MARGIN))
        for each in answers
        if not isinstance(each.answer, Answer)
    ]
    return [*columns, Column("rank within", margins)]


def _quantile(row: Mapping[str, object]) -> dict[str, object]:
    """Return a quantile for a program, with the names of cells that count values outside the
    bounds, and the margin of its rank."""
    words = {name: row[name] for name in row if name.endswith("_in_words")}
    margin = {name: _known(row[name]) for name in _MARGIN if name in row}
    numbers = quantile_numbers(row)
    return {"q": row["q"]} | numbers | {"in_words": row.get("in_words")} | words | margin


def _known(value: object) -> object:
    """Return the end of an interval, None where it is unbounded: JSON has no infinity."""
    return None if isinstance(value, float) and math.isinf(value) else value


def _error(answer: Answer) -> float | None:
    """The error of an estimate; where it is not known, what its interval would have."""
    if answer.std_error is not None or math.isinf(answer.ci_high - answer.ci_low):
        return answer.std_error
    return (answer.ci_high - answer.ci_low) / 4 or None


def share_error(answer: Answer) -> float | None:
    """About the error of a share; None where nothing is there to say it from."""
    error = _error(answer)
    if error is None or not answer.fraction or not answer.count:
        return None
    return error * answer.fraction / answer.count
