"""A series in memory, run after run, for the tests of what it carries, releases and estimates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.questions.messages import STATE, Place
from dptrees.dpcore.questions.released import NODES
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import ReleaseReader, release_counts
from dptrees.dpcore.series.question import CarriedCounts, SeriesQuestion
from dptrees.dpcore.series.released import WindowTables
from dptrees.dpcore.series.runs import select_span
from dptrees.dpcore.series.temporal import Span, TemporalTree, Window, scaled
from dptrees.dpcore.series.totals_to_date import PeriodSums, WeightedPeriods

KEY = ReleaseKey(bytes(range(32)))
# So small that noise is zero, but for a probability that no test meets.
EXACT = Budget(measure=Measure.RHO, amount=Fraction(10**6))


def series_plan(tree: TreeQuestion, temporal: TemporalTree, period: int) -> ReleasePlan:
    """The plan of a run: the tree's budget is that of the series, split equally over levels."""
    budget = tree.budget
    assert budget is not None
    own = replaced(budget, amount=budget.amount / len(temporal.spans))
    levels = [scaled(tree, own) for _ in temporal.spans]
    question = SeriesQuestion.from_trees(temporal, period, levels, tree.name)
    return ReleasePlan(name="runs", unit=tree.unit, budget=budget, questions=(question,))


def sums_plan(tree: TreeQuestion, periods: int, period: int) -> ReleasePlan:
    """The plan of a run that measures a weighted sum of periods, with the tree's budget."""
    budget, sums = tree.budget, PeriodSums.for_periods(periods)
    assert budget is not None
    _, l2_squared = sums.sensitivities(1)
    level = scaled(tree, replaced(budget, amount=budget.amount / l2_squared))
    temporal = TemporalTree(periods=periods)
    question = WeightedPeriods.from_trees(temporal, period, [level], tree.name, sums=sums)
    return ReleasePlan(name="runs", unit=tree.unit, budget=budget, questions=(question,))


@dataclass
class Runs:
    """A series over known counts.

    Args:
        temporal: the tree over the periods.
        plan: of each run.
        counts: (T, keys * K) of the periods.
        key: the release key.
    """

    temporal: TemporalTree
    plan: Callable[[int], ReleasePlan]
    counts: np.ndarray[Any, Any]
    key: ReleaseKey = KEY
    releases: list[ReleaseReader] = field(default_factory=list)

    @classmethod
    def of(cls, tree: TreeQuestion, temporal: TemporalTree, seed: int = 0) -> Runs:
        """A series of Poisson counts."""
        counts = _poisson(tree, temporal.periods, seed)
        return cls(temporal, lambda period: series_plan(tree, temporal, period), counts)

    @classmethod
    def by_sums(cls, tree: TreeQuestion, periods: int, seed: int = 0) -> Runs:
        """A series of Poisson counts, measured by weighted sums of periods."""
        temporal, counts = TemporalTree(periods=periods), _poisson(tree, periods, seed)
        return cls(temporal, lambda period: sums_plan(tree, periods, period), counts)

    def run(self, periods: int | None = None) -> Runs:
        """Makes the runs."""
        for period in range(1, (periods or self.temporal.periods) + 1):
            given = CarriedCounts(period=self.counts[period - 1], carried=self.carried(period - 1))
            plan = self.plan(period)
            made = release_counts(
                plan, {plan.questions[0].name: given}, self.key, nonce=bytes([period])
            )
            self.releases.append(made)
        return self

    def question(self, period: int) -> SeriesQuestion:
        """The tree at a run."""
        (question,) = self.releases[period - 1].plan.questions
        assert isinstance(question, SeriesQuestion)
        return question

    def carried(self, period: int) -> dict[Place, list[bytes]]:
        """What the run after a period merges with its rows."""
        (after,) = self.plan(period + 1).questions
        assert isinstance(after, SeriesQuestion)
        return {
            place: [self.opened(run, place) for run in after.state_runs]
            for place in after.carried_places
        }

    def opened(self, period: int, place: Place) -> bytes:
        """What a run carries on of a place."""
        sealed = self.sealed(period, place)
        return self.question(period).opened(place, sealed, self.key, "runs", bytes([period]))

    def sealed(self, period: int, place: Place) -> bytes:
        """The state of a place after a period, as it is released."""
        table = self.releases[period - 1]._read(STATE, self.question(period).name, *place)
        found: bytes = table["sealed"][0].as_py()
        return found

    def read(self, span: Span, key: int, index: int) -> pa.Table:
        """What was released of a temporal node."""
        release = self.releases[span.last - 1]
        return select_span(release._read(NODES, self.question(1).name, key, index), span)

    def window(self, first: int, last: int, arrived: int | None = None) -> WindowTables:
        """The tables of a window."""
        known = len(self.releases) if arrived is None else arrived
        return WindowTables(
            self.question(known), Window(first=first, last=last, arrived=known), self.read
        )

    @cached_property
    def nodes(self) -> Sequence[Span]:
        """All temporal nodes that closed."""
        return self.temporal.closed(len(self.releases))


def _poisson(tree: TreeQuestion, periods: int, seed: int) -> np.ndarray[Any, Any]:
    cells = tree.forest.chunking.cells
    return np.random.default_rng(seed).poisson(20, (periods, cells))


def level_sums(tree: TreeQuestion, counts: np.ndarray[Any, Any]) -> dict[tuple[int, int], int]:
    """The count of every node (level, node) of one tree, from its leaves."""
    shape = tree.plan.tree
    return {
        (level, node): int(counts[list(shape.leaf_range(level, node))].sum())
        for level, size in enumerate(shape.level_sizes)
        for node in range(size)
    }
