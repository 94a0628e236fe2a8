"""Answers of a release as tables and entries: in full for a program, rounded for a person."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, cast

from dptrees.dpcore.questions.released import Answer, Released, Statistic, StatisticKind
from dptrees.pipelines.show.figures import (
    column_value,
    error_figure,
    figure,
    interval,
    quantile_numbers,
    quantile_texts,
    rank_margin,
    share,
    significant,
    with_margin,
)
from dptrees.pipelines.terminal_text import escaped

# What a spreadsheet would take for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        heading: of the column.
        cells: of each line.
        is_text: it is aligned to the left, numbers to the right.
    """

    heading: str
    cells: Sequence[str]
    is_text: bool = False


class TextTable(NamedTuple):
    """Columns of one length, below their headings."""

    columns: tuple[Column, ...]

    @classmethod
    def from_rows(cls, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> TextTable:
        """Return a table of rows, with all columns aligned to the right."""
        columns = enumerate(headings)
        return cls(tuple(Column(name, [row[place] for row in rows]) for place, name in columns))

    def lines(self) -> Iterator[str]:
        """The heading and the lines.

        >>> table = TextTable((Column("", ["a", "bb"], is_text=True), Column("count", ["10", "9"])))
        >>> for line in table.lines():
        ...     print(line)
            count
        a      10
        bb      9
        """
        columns = [
            (column.is_text, [escaped(text) for text in (column.heading, *column.cells)])
            for column in self.columns
        ]
        widths = [max(map(len, texts)) for _, texts in columns]
        for cells in zip(*(texts for _, texts in columns), strict=True):
            aligned = [
                text.ljust(width) if is_text else text.rjust(width)
                for (is_text, _), text, width in zip(columns, cells, widths, strict=True)
            ]
            yield "  ".join(aligned).rstrip()


def csv_lines(rows: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Rows as CSV (RFC 4180), the names of their columns first; without line ends.

    A text that a spreadsheet would take for a formula has an apostrophe before it; one that is a
    number is left as it is. Control characters are written as their escapes, so that a line is a
    row.

    Args:
        rows: of one set of names each; None is written as nothing.

    >>> for line in csv_lines([{"label": "=1+1, x", "estimate": -0.5, "ci_high": None}]):
    ...     print(line)
    label,estimate,ci_high
    "'=1+1, x",-0.5,
    """
    for number, row in enumerate(rows):
        if not number:
            yield _csv_line(row)
        yield _csv_line(map(_csv_cell, row.values()))


def _csv_line(cells: Iterable[str]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(cells)
    return written.getvalue()


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else ""
    text = str(value)
    if not isinstance(value, int) and text.startswith(_FORMULA) and not _is_number(text):
        text = f"'{text}"
    return escaped(text)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


# Fields of the error of a rank, where that is known instead.
_MARGIN = ("rank_rows", "rank_share")


@dataclass(frozen=True, kw_only=True)
class AnswerEntry:
    """One answer, and what comes before it.

    Attributes:
        before: what it is about, such as the key and the period.
        answer: a count; or a row of the quantiles table.
        noun: what is counted: a node, a range, ...
        bounded: the question had bounds, which may have been rounded.
        empty: what is shown for an empty label, such as the root's.
    """

    before: Mapping[str, object]
    answer: Answer | Mapping[str, Any]
    noun: str = "node"
    bounded: bool = False
    empty: str = "-"

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
    first, columns = answers[0], _before([each.before for each in answers])
    within = f"{100 * confidence:g} % interval"
    if not isinstance(first.answer, Answer):
        return TextTable((*columns, *_quantile_columns(answers, within)))
    counts = [each.answer for each in answers if isinstance(each.answer, Answer)]
    if any(each.asked for each in counts):
        labels = [each.asked or each.label for each in counts]
        columns += [Column("requested", labels, is_text=True)]
        columns += [Column("answered", [each.shown for each in counts], is_text=True)]
    else:
        labels = [own.shown or each.empty for own, each in zip(counts, answers, strict=True)]
        columns += [Column(first.noun, labels, is_text=True)]
    columns += [
        Column("estimate", [figure(each.estimate, _error(each)) for each in counts]),
        Column("standard error", [error_figure(each.std_error) for each in counts]),
        Column(within, [interval(each.ci_low, each.ci_high, each.std_error) for each in counts]),
        Column("count", [f"{each.count:,}" for each in counts]),
        Column("share", [share(each.fraction, share_error(each)) for each in counts]),
    ]
    return TextTable(tuple(columns))


def _before(abouts: Sequence[Mapping[str, object]]) -> list[Column]:
    """Columns of what lines are about, such as their key and period."""
    return [
        Column(name, [str(about[name]) for about in abouts], is_text=True) for name in abouts[0]
    ]


def answer_remarks(answers: Sequence[AnswerEntry]) -> list[str]:
    """What is said of intervals that are others than those beside them, and of rows that are apart,
    each sentence once."""
    found = (each.answer for each in answers)
    said = (each.remark if isinstance(each, Answer) else each.get("remark") for each in found)
    return list(dict.fromkeys(str(remark) for remark in said if remark is not None))


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
        return (*about, entry.answer.shown or entry.empty)
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
    bounds, the margin of its rank, and what is said of rows that are apart."""
    words = {name: row[name] for name in row if name.endswith(("_in_words", "remark"))}
    margin = {name: _known(row[name]) for name in _MARGIN if name in row}
    numbers = quantile_numbers(row)
    return {"q": row["q"]} | numbers | {"in_words": row.get("in_words")} | words | margin


def _known(value: object) -> object:
    """Return a number without a negative zero, None for an end of an interval that is unbounded:
    JSON has no infinity."""
    return value if not isinstance(value, float) else None if math.isinf(value) else value + 0.0


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


QUARTILES = (0.25, 0.5, 0.75)
_STATISTICS = (StatisticKind.MEAN, StatisticKind.STD)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line of an overview.

    Attributes:
        statistic: "rows", "mean", "std", or a quantile such as "25 %".
        value: the estimate; None where it is not known, such as the mean of dates.
        ci_low, ci_high: the interval for the true one.
    """

    statistic: str
    value: object
    ci_low: object
    ci_high: object


def overview(tree: Released, key: object) -> Iterator[Figure]:
    """Yield the number of rows, the mean, the standard deviation and the quantiles of a tree.

    The quantiles are the ones that the configuration lists, else the quartiles. A tree with a mean
    alone has its total in place of both.

    Args:
        tree: with an order, or with a mean.
        key: of a tree with keys.

    Raises:
        ValueError: the tree has neither, or no such key.
    """
    kinds, shares = tree.only_statistics, cast("Sequence[float]", ())
    if getattr(tree.question, "is_ordered", False):
        kinds = _STATISTICS
        shares = getattr(tree.question, "quantiles", ()) or QUARTILES
    elif not kinds:
        raise ValueError(
            f"describe: tree {tree.question.name} has no CDF and no mean, so there is nothing "
            "to describe; query its nodes or quantiles"
        )
    (root,) = tree.top(1, 0, key)
    quantiles = [(share, quantile_numbers(tree.quantile(share, key))) for share in shares]
    yield Figure(statistic="rows", value=root.estimate, ci_low=root.ci_low, ci_high=root.ci_high)
    for kind in kinds:
        try:
            found = tree.statistic(kind, None, None, key)
        except ValueError:  # the values are no numbers, or too few
            yield Figure(statistic=kind.value, value=None, ci_low=None, ci_high=None)
            continue
        yield Figure(
            statistic=kind.value, value=found.value, ci_low=found.ci_low, ci_high=found.ci_high
        )
    for level, row in quantiles:
        yield Figure(statistic=f"{100 * level:g} %", **row)


def counted_values(tree: Released) -> str | None:
    """Return what the values of an overview are, where values outside the bounds count too."""
    domain: Any = getattr(tree.question, "domain", None)
    if not getattr(domain, "clamps", False):
        return None
    return cast("str", domain.counted_as(0, domain.cells))


def overview_table(lines: Sequence[tuple[Mapping[str, object], Sequence[Figure]]]) -> TextTable:
    """Overviews in figures, a line each.

    Args:
        lines: what each is about, such as its key, and its figures; at least one.
    """
    columns = _before([about for about, _ in lines])
    for place, each in enumerate(lines[0][1]):
        cells = [_figure_cell(figures[place]) for _, figures in lines]
        columns.append(Column(each.statistic, cells))
    return TextTable(tuple(columns))


def _figure_cell(found: Figure) -> str:
    """A value with the farther end of its interval on both sides; of dates with the interval.

    >>> _figure_cell(Figure(statistic="mean", value=30.521, ci_low=30.474, ci_high=30.568))
    '30.521 ± 0.047'
    >>> _figure_cell(Figure(statistic="50 %", value=36, ci_low=36, ci_high=37))
    '36 ± 1'
    >>> _figure_cell(Figure(statistic="std", value=None, ci_low=None, ci_high=None))
    '-'
    """
    value, low, high = found.value, found.ci_low, found.ci_high
    if value is None:
        return "-"
    ends = [each for each in (value, low, high) if isinstance(each, (int, float))]
    if len(ends) < len((value, low, high)):
        shown, span = column_value(value, low, high)
        return shown if span == shown else f"{shown} [{span}]"
    half = max(ends[2] - ends[0], ends[0] - ends[1])
    if all(float(each).is_integer() for each in ends):
        return f"{ends[0]:,.0f} ± {half:,.0f}"
    if half == 0:
        return f"{figure(ends[0])} ± 0"
    return with_margin(ends[0], ends[0] - half, ends[0] + half)


_HEADINGS = {
    StatisticKind.MEAN: "mean",
    StatisticKind.VARIANCE: "variance",
    StatisticKind.STD: "standard deviation",
    StatisticKind.TOTAL: "total",
    StatisticKind.SHARE: "share",
}


@dataclass(frozen=True, kw_only=True)
class StatisticEntry:
    """A statistic, and what comes before it.

    Attributes:
        before: what it is about, such as the key and the period.
        kind: of the statistic.
        found: the statistic.
    """

    before: Mapping[str, object]
    kind: StatisticKind
    found: Statistic

    def to_program(self) -> dict[str, object]:
        """All that is known, by name: numbers in full, None for what is not known."""
        values = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(self.found).items()
        }
        return {**self.before, "statistic": self.kind.value, **values}


def statistic_table(entries: Sequence[StatisticEntry], confidence: float) -> TextTable:
    """Statistics in figures.

    Args:
        entries: of one kind, at least one.
        confidence: of their intervals.
    """
    first, found = entries[0], [each.found for each in entries]
    columns = _before([each.before for each in entries])
    columns += [
        Column("values", [each.shown for each in found], is_text=True),
        Column(_HEADINGS[first.kind], [figure(each.value, _widest_error(each)) for each in found]),
        Column("standard error", [error_figure(_known_error(each.std_error)) for each in found]),
        Column(
            f"{100 * confidence:g} % interval",
            [interval(each.ci_low, each.ci_high, _widest_error(each)) for each in found],
        ),
    ]
    if _has_wide_cells(entries):
        parts = [f"± {significant(each.within)}" for each in found]
        columns.append(Column("of it by cells", parts))
    return TextTable(tuple(columns))


def statistic_remarks(entries: Sequence[StatisticEntry], confidence: float) -> Iterator[str]:
    """What the intervals mean."""
    yield f"Intervals hold with {100 * confidence:g} % confidence, for each number separately."
    if _has_wide_cells(entries):
        yield (
            "Values are known only up to their cells, or undivided ranges of cells; the last "
            "column shows how much this adds to either side of an interval."
        )


def _has_wide_cells(entries: Sequence[StatisticEntry]) -> bool:
    """Whether cells widen an interval by more than a hundredth of the standard error."""
    return any(
        100 * each.found.within > (_known_error(each.found.std_error) or 0.0) for each in entries
    )


def _widest_error(found: Statistic) -> float | None:
    """What decides how many digits are shown: the wider of noise and cells."""
    if found.std_error == 0 and not found.within:
        return 0.0
    known = [each for each in (_known_error(found.std_error), found.within / 2) if each]
    return max(known, default=None)


def _known_error(value: float) -> float | None:
    return None if math.isnan(value) else value
