"""A tree over the periods of a series on the terminal: its plan beside that of one period."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dpcore.series.linear import leaf_variance
from dpcore.series.question import SeriesQuestion
from dpcore.series.temporal import mean_variance
from pipelines.target import Target
from pipelines.terminal_text import escaped
from pipelines.user_error import UserError


def series_entry(question: SeriesQuestion, own: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """The plan of a tree over a series as plain values.

    Args:
        question: the tree, at one of the runs.
        own: of the tree of one period.
    """
    tree, variances = question.temporal, tuple(leaf_variance(each) for each in question.levels)
    to_date = math.sqrt(mean_variance(tree, variances) / variances[0])
    return own(question.shown(0)) | {
        "series": {
            "periods": tree.periods,
            "period": question.period,
            "levels": [
                {"periods": span, each.budget.measure.value: float(each.budget.amount)}
                for span, each in zip(tree.spans, question.levels, strict=True)
                if each.budget is not None
            ],
            "to_date_per_period_rmse": to_date,
        }
    }


def series_lines(
    question: SeriesQuestion,
    entry: Mapping[str, Any],
    own: Callable[[Any, Mapping[str, Any]], Iterator[str]],
) -> Iterator[str]:
    """The temporal levels of a tree, and the plan of one period.

    Args:
        question: the tree, at one of the runs.
        entry: from `series_entry`.
        own: of the tree of one period.
    """
    series = entry["series"]
    yield ""
    yield (
        f"{escaped(question.name)}: period {series['period']} of {series['periods']}; each row is "
        "in one node of every temporal level:"
    )
    for level in series["levels"]:
        ((measure, amount),) = ((n, v) for n, v in level.items() if n != "periods")
        count = series["periods"] // level["periods"]
        yield f"  {count:>6,} nodes of {level['periods']:>4} periods, {measure} {amount:.4f}"
    yield (
        "  a total to date is off by "
        f"{series['to_date_per_period_rmse']:.3g} times a period alone (root mean square over the "
        f"{series['periods']} periods); one period alone:"
    )
    yield from own(question.shown(0), entry)


def series_target(target: Target) -> dict[str, Any]:
    """
    Raises:
        UserError: the budget of a series is not looked for.
    """
    raise UserError("--target-error: the budget of a series cannot be looked for; plan one period")
