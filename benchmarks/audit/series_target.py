"""A series of two releases to attack: what is read is all that both of them publish."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from benchmarks.audit.target import NAME, Target
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.questions.place import STATE, Place
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.release.in_memory import release_counts
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.release import ReleaseReader
from dptrees.dpcore.series.carried_counts import CarriedCounts
from dptrees.dpcore.series.linear import scaled
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.temporal import TemporalTree

PERIODS = 2


@dataclass(frozen=True, kw_only=True)
class SeriesTarget(Target):
    """A series whose first period has the rows of a data set, and whose second has none.

    Args:
        plan: the tree as one release, whose budget becomes that of the series.
    """

    @cached_property
    def runs(self) -> tuple[ReleasePlan, ...]:
        """The plan of each period: the budget in equal parts for each temporal level."""
        temporal = TemporalTree.from_fanout(PERIODS, 2)
        (tree,) = self.plan.questions
        assert isinstance(tree, TreeQuestion)
        own = replace(self.plan.budget, amount=self.plan.budget.amount / len(temporal.spans))
        levels = [scaled(tree, own) for _ in temporal.spans]
        return tuple(
            replace(
                self.plan, questions=(SeriesQuestion.from_trees(temporal, period, levels, NAME),)
            )
            for period in range(1, PERIODS + 1)
        )

    def released(self, which: str, key: ReleaseKey) -> Floats:
        counts = self.data(which)["counts"][NAME]
        carried: dict[Place, list[bytes]] = {}
        numbers = []
        for period, plan in enumerate(self.runs, start=1):
            given = CarriedCounts(period=counts, carried=carried)
            made = release_counts(plan, {NAME: given}, key, nonce=bytes([period]))
            numbers.append(self.read(made))
            carried, counts = _carried(made, key, period), np.zeros_like(counts)
        return np.concatenate(numbers)


def _carried(made: ReleaseReader, key: ReleaseKey, period: int) -> dict[Place, list[bytes]]:
    """Return the exact counts that a run hands to the next one, as only the key can open them."""
    (question,) = made.plan.questions
    assert isinstance(question, SeriesQuestion)
    name = made.plan.name
    return {
        place: [
            question.opened(
                place,
                made._read(STATE, NAME, *place)["sealed"][0].as_py(),
                key,
                name,
                bytes([period]),
            )
        ]
        for place in question.places
        if question.temporal.carried(period)
    }
