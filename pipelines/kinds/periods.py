"""A tree over the periods of a series: its plan beside that of one period, and its run's page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.runs import Lateness, counted_in_words, select_span
from dptrees.dpcore.series.temporal import mean_variance
from dptrees.dpcore.series.totals_to_date import WeightedPeriods
from dptrees.dpcore.series.workload import whole_units_cost
from dptrees.pipelines.process import UserError
from dptrees.pipelines.show.charts import capitalized
from dptrees.pipelines.show.description import Description
from dptrees.pipelines.show.mechanisms import ErrorTarget
from dptrees.pipelines.show.page_nodes import ReleasedTables, clip
from dptrees.pipelines.show.tree_page import DROPPED, PageRoom, TreePage
from dptrees.pipelines.terminal_text import escaped


def series_description(question: SeriesQuestion, period: Description) -> Description:
    """Describe the plan of a tree over the periods of a series.

    Args:
        question: the tree, at one of the runs.
        period: the plan of the tree of one period.
    """
    periods = question.temporal.periods
    series: dict[str, Any] = {"periods": periods, "period": question.period}
    counted: list[str] = []
    if question.max_periods is not None:
        series["max_periods"] = question.unit_periods
        run = question.run._replace(max_periods=question.unit_periods)
        note = getattr(question.shown(0).domain, "note", None)
        counted = [f"  {capitalized(note)}." if note else f"  {counted_in_words(run)}"]
        counted += [f"  {words}" for words in cost_in_words([question])]
    if question.lateness is not None:
        late = question.lateness
        counted.append(
            f"  Rows whose {escaped(late.column)} is more than {late.periods} periods before the "
            "period, after it or missing are not counted."
        )
    head = f"{escaped(question.name)}: period {question.period} of {periods}; "
    if isinstance(question, WeightedPeriods):
        entries, lines = _by_sums(question)
        above = [f"{head}each run measures a weighted sum of all periods so far:", *lines[:-1]]
        above += [*counted, *lines[-1:], *period.above]
    elif question.released_spans:
        entries, lines = _temporal(question)
        above = [f"{head}each row is in one node of every temporal level:", *lines[:-1]]
        above += [*counted, *lines[-1:], *period.above]
    else:
        entries = {"separate": True}
        reason = "as the answers of several periods of this tree do not add up"
        if question.window is not None:
            counted.append(
                "  series.optimize_for has no effect on it: it has no tree over periods."
            )
        above = [f"{head}each period is released separately, {reason}", *counted, *period.above]
    return replace(
        period,
        entry=lambda: period.entry() | {"series": series | entries},
        above=("", *above),
    )


def cost_in_words(questions: Sequence[object]) -> list[str]:
    """Return a sentence on what protecting all rows of a unit costs; none where it costs nothing.

    Args:
        questions: the trees of a release.
    """
    runs = [each for each in questions if isinstance(each, SeriesQuestion)]
    costs = [cost for each in runs if (cost := whole_units_cost(each)) is not None]
    if not costs or max(costs) < 1.005:
        return []
    numbers = "totals to date" if all(each.released_spans for each in runs) else "numbers"
    measure = next(each.budget.measure.value for each in runs if each.budget is not None)
    most = f"{max(costs):.2f}" if max(costs) < 10 else f"{max(costs):.0f}"
    upto = "" if max(costs) - min(costs) < 0.005 else "up to "
    return [
        f"At the same {measure} {numbers} are {upto}{most} times as far off as if a unit's rows of "
        "one period were protected."
    ]


def _temporal(question: SeriesQuestion) -> tuple[dict[str, Any], list[str]]:
    """The budgets of temporal levels and the error of totals to date, as entries and as lines."""
    tree, variances = question.temporal, question.node_variances
    of_nodes = partial(mean_variance, tree, variances, from_below=question.adds_up)
    to_date = math.sqrt(of_nodes() / variances[0])
    windows = _windows(tree.periods, lambda size: of_nodes(window=size) / variances[0])
    levels: list[dict[str, Any]] = [
        {"periods": span, each.measure.value: float(each.amount)}
        for span, each in zip(tree.spans, question.level_budgets, strict=True)
    ]
    lines = [_level(tree.periods, **level) for level in levels]
    lines += _windows_in_words(windows, "a single period")
    lines.append(
        f"  the error of a total to date is {to_date:.3g} times that of a single period (root "
        f"mean square over the {tree.periods} periods); a single period:"
    )
    return {"levels": levels, "to_date_per_period_rmse": to_date, **windows}, lines


def _by_sums(question: WeightedPeriods) -> tuple[dict[str, Any], list[str]]:
    """The budget of the sums and the error of totals to date, as entries and as lines."""
    own, last = question.budget, question.temporal.periods
    assert own is not None
    of_sums, alone = question.sums.mean_variance, question.sums.variance(*[question.period] * 2)
    totals = math.sqrt(of_sums() / alone)
    windows = _windows(last, lambda size: of_sums(size) / alone)
    spent = {own.measure.value: float(own.amount)}
    lines = [
        f"  {last:>6,} sums, {own.measure.value} {float(own.amount):.4f} together",
        *_windows_in_words(windows, "this period"),
        f"  the error of a total to date is {totals:.3g} times that of this period (root mean "
        f"square over the {last} periods); this period by itself:",
    ]
    return {"sums": spent, "to_date_per_period_rmse": totals, **windows}, lines


# Of days, weeks, months, quarters and years.
_WINDOWS = (7, 30, 90, 365)


def _windows(periods: int, ratio: Callable[[int], float]) -> dict[str, dict[str, float]]:
    """The errors of windows when they end, in that of one period, by their lengths; only of fewer
    periods than the series.

    Args:
        periods: of the series.
        ratio: of the mean variance of windows of a length to that of one period.
    """
    found = {str(size): math.sqrt(ratio(size)) for size in _WINDOWS if size < periods}
    return {"window_per_period_rmse": found} if found else {}


def _windows_in_words(windows: Mapping[str, Mapping[str, float]], period: str) -> list[str]:
    """One line, or none."""
    return [
        f"  the error of windows of {', '.join(found)} periods, when they end, is "
        f"{', '.join(f'{error:.3g}' for error in found.values())} times that of {period}"
        for found in windows.values()
    ]


def _level(in_all: int, periods: int, **spent: Any) -> str:
    ((measure, amount),) = spent.items()
    return f"  {in_all // periods:>6,} nodes of {periods:>4} periods, {measure} {amount:.4f}"


def series_target(target: ErrorTarget) -> dict[str, Any]:
    """
    Raises:
        UserError: the budget of a series is not looked for.
    """
    raise UserError("--target-error: the budget of a series cannot be looked for; plan one period")


def period_tree(
    release: ReleasedTables,
    question: SeriesQuestion,
    room: PageRoom,
    own: Callable[[ReleasedTables, Any, PageRoom], TreePage],
) -> TreePage:
    """The period of a run on its page.

    Args:
        release: the run.
        question: the tree, at this run.
        room: of the page.
        own: of the tree of one period.
    """
    mine = _OwnPeriod(release, question) if question.released_spans else release
    page = own(mine, question.shown(0), room)
    if question.lateness is None:
        return page
    said: dict[str, Any] = dict(page.said)
    said["policies"] = [*said["policies"], _late_rows(question.name, question.lateness)]
    return replace(page, said=said)


def _late_rows(tree: str, lateness: Lateness) -> dict[str, str]:
    """The row of the table of unusual values: of dates out of time."""
    late = f"late by more than {lateness.periods} periods, or ahead of the period: {DROPPED}"
    return {
        "column": clip(lateness.column),
        "tree": clip(tree),
        "outside": late,
        "missing": DROPPED,
        "unknown": "",
    }


class _OwnPeriod:
    """The tables of a run, of its own period alone.

    Args:
        release: the run.
        question: the tree, at this run.
    """

    def __init__(self, release: ReleasedTables, question: SeriesQuestion) -> None:
        self._release = release
        self._span = question.temporal.find_span(0, question.period)

    @property
    def plan(self) -> ReleasePlan:
        """The specification of the run."""
        return self._release.plan

    @property
    def manifest(self) -> Mapping[str, object]:
        """Manifest of the run."""
        return self._release.manifest

    def batches(
        self, kind: str, tree: str, *, keys: int | None = None, levels: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the period."""
        # Rows are in the order of nodes, so none may be left out before the period's are found.
        for batch in self._release.batches(kind, tree, keys=keys):
            mine = select_span(pa.Table.from_batches([batch]), self._span)
            yield from mine.to_batches()

    def part(self, kind: str, tree: str, key: int, index: int) -> pa.Table:
        """The rows of the period in a part."""
        return select_span(self._release.part(kind, tree, key, index), self._span)

    def quantiles(self) -> pa.Table | None:
        """Quantiles of the period."""
        table = self._release.quantiles()
        return None if table is None else select_span(table, self._span)
