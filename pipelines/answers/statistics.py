"""How a statistic of values is written: for a program in full, for a person in figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from dptrees.dpcore.questions.answer_errors import Statistic, StatisticKind
from dptrees.pipelines.answers.figures import error_figure, figure, interval, significant
from dptrees.pipelines.answers.table import Column, TextTable

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
    columns = [
        Column(name, [str(each.before[name]) for each in entries], is_text=True)
        for name in first.before
    ]
    columns += [
        Column("values", [each.label for each in found], is_text=True),
        Column(_HEADINGS[first.kind], [figure(each.value, _error(each)) for each in found]),
        Column("standard error", [error_figure(_known(each.std_error)) for each in found]),
        Column(
            f"{100 * confidence:g} % interval",
            [interval(each.ci_low, each.ci_high, _error(each)) for each in found],
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
    return any(100 * each.found.within > (_known(each.found.std_error) or 0.0) for each in entries)


def _error(found: Statistic) -> float | None:
    """What decides how many digits are shown: the wider of noise and cells."""
    if found.std_error == 0 and not found.within:
        return 0.0
    known = [each for each in (_known(found.std_error), found.within / 2) if each]
    return max(known, default=None)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
