"""A tree over the periods of a series on the terminal: its plan beside that of one period."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dpcore.series.linear import leaf_variance
from dpcore.series.question import SeriesQuestion
from dpcore.series.temporal import mean_variance
from dpcore.series.words import counted_in_words
from pipelines.description.description import Description
from pipelines.target import ErrorTarget
from pipelines.terminal_text import escaped
from pipelines.user_error import UserError


def series_description(question: SeriesQuestion, period: Description) -> Description:
    """Describe the plan of a tree over the periods of a series.

    Args:
        question: the tree, at one of the runs.
        period: the plan of the tree of one period.
    """
    if not question.adds_up:
        return _separate_description(question, period)
    tree, variances = question.temporal, tuple(leaf_variance(each) for each in question.trees)
    to_date = math.sqrt(mean_variance(tree, variances) / variances[0])
    levels: list[dict[str, Any]] = [
        {"periods": span, each.measure.value: float(each.amount)}
        for span, each in zip(tree.spans, question.level_budgets, strict=False)
    ]
    series: dict[str, Any] = {
        "periods": tree.periods,
        "period": question.period,
        "levels": levels,
        "to_date_per_period_rmse": to_date,
    }
    counted = _counted(question)
    if question.max_periods is not None:
        series["max_periods"] = question.max_periods
    return replace(
        period,
        entry=lambda: period.entry() | {"series": series},
        above=(
            "",
            f"{escaped(question.name)}: period {question.period} of {tree.periods}; each row is in "
            "one node of every temporal level:",
            *(_level(tree.periods, **level) for level in levels),
            *counted,
            f"  a total to date is off by {to_date:.3g} times a period alone (root mean square "
            f"over the {tree.periods} periods); one period alone:",
        ),
    )


def _separate_description(question: SeriesQuestion, period: Description) -> Description:
    """Describe a tree that is released by itself in every period."""
    periods = question.temporal.periods
    series: dict[str, Any] = {"periods": periods, "period": question.period, "separate": True}
    if question.max_periods is not None:
        series["max_periods"] = question.max_periods
    return replace(
        period,
        entry=lambda: period.entry() | {"series": series},
        above=(
            "",
            f"{escaped(question.name)}: period {question.period} of {periods}; each is released by "
            "itself, as the answers of several periods of this tree do not add up",
            *_counted(question),
            *period.above,
        ),
    )


def _counted(question: SeriesQuestion) -> tuple[str, ...]:
    run = question.run
    return () if run.max_periods is None else (f"  {counted_in_words(run)}",)


def _level(in_all: int, periods: int, **spent: Any) -> str:
    ((measure, amount),) = spent.items()
    return f"  {in_all // periods:>6,} nodes of {periods:>4} periods, {measure} {amount:.4f}"


def series_target(target: ErrorTarget) -> dict[str, Any]:
    """
    Raises:
        UserError: the budget of a series is not looked for.
    """
    raise UserError("--target-error: the budget of a series cannot be looked for; plan one period")
