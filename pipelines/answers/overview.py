"""The values of a column at a glance: how many, their mean and spread, their quantiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from dptrees.dpcore.questions.answer_errors import StatisticKind
from dptrees.dpcore.questions.released import Released
from dptrees.pipelines.answers.figures import column_value, figure, quantile_numbers, with_margin
from dptrees.pipelines.answers.table import Column, TextTable

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
    for share, row in quantiles:
        yield Figure(statistic=f"{100 * share:g} %", **row)


def overview_table(lines: Sequence[tuple[Mapping[str, object], Sequence[Figure]]]) -> TextTable:
    """Overviews in figures, a line each.

    Args:
        lines: what each is about, such as its key, and its figures; at least one.
    """
    before, first = lines[0]
    columns = [
        Column(name, [str(about[name]) for about, _ in lines], is_text=True) for name in before
    ]
    for place, each in enumerate(first):
        cells = [_cell(figures[place]) for _, figures in lines]
        columns.append(Column(each.statistic, cells))
    return TextTable(tuple(columns))


def _cell(found: Figure) -> str:
    """A value with the farther end of its interval on both sides; of dates with the interval.

    >>> _cell(Figure(statistic="mean", value=30.521, ci_low=30.474, ci_high=30.568))
    '30.521 ± 0.047'
    >>> _cell(Figure(statistic="50 %", value=36, ci_low=36, ci_high=37))
    '36 ± 1'
    >>> _cell(Figure(statistic="std", value=None, ci_low=None, ci_high=None))
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
