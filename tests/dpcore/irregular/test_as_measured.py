"""Trees without estimation: every node's count is its own measurement, whatever the chunks are."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.irregular.forest import AsMeasuredForest
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.planner import with_equal_shares
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.trees.shapes import IrregularTree
from tests.dpcore.irregular.test_forest import (
    PlacedLaw,
    PlacedNoise,
    check_equal,
    solve,
    source,
    with_laws,
)
from tests.dpcore.irregular_trees import EPSILON, RHO, make_plan, node_chains, random_irregular_plan


def equal_plan(
    rng: np.random.Generator, *, public: bool, budget: Budget = EPSILON
) -> IrregularPlan:
    return with_equal_shares(random_irregular_plan(rng, public=public, budget=budget))


def expected_variance(plan: IrregularPlan, level: int, node: int) -> float:
    """By the definition: that of the lowest single child in a row of them, or 0 if public."""
    tree, chain = plan.tree, int(node_chains(plan.tree)[level][node])
    while level < tree.height and len(tree.children(level, node)) == 1:
        if plan.is_public(level, chain):
            return 0.0
        level, node, chain = level + 1, tree.children(level, node)[0], chain + 1
    law = plan.law(level, chain)
    return 0.0 if law is None else law.variance


@pytest.mark.parametrize("seed", range(12))
def test_chunks_give_the_measurements(seed: int) -> None:
    rng, public = np.random.default_rng(seed), seed % 2 == 1
    stated = equal_plan(rng, public=public)
    plan = with_laws(stated, lambda law: PlacedLaw(7))
    counts = rng.integers(0, 40, (1, plan.tree.leaves))
    answers = []
    for size in (1, 3, 8, 2**17):
        forest = AsMeasuredForest(plan, chunk_leaves=size)
        answers.append(solve(forest, counts, PlacedNoise(forest)))
    whole, exact = answers[-1], plan.tree.level_counts(counts)
    for level, estimates in enumerate(whole.estimates):
        assert np.abs(estimates - exact[level]).max() <= 7
        for node in range(plan.tree.level_sizes[level]):
            expected = expected_variance(stated, level, node)
            assert whole.variances[level][0, node] == pytest.approx(expected)
            if expected == 0:
                assert estimates[0, node] == exact[level][0, node]
    for other in answers[:-1]:
        check_equal(other, whole)
    for level in range(plan.tree.height):
        np.testing.assert_array_equal(
            plan.tree.child_sum(level, whole.counts[level + 1]), whole.counts[level]
        )


@pytest.mark.parametrize("budget", [EPSILON, RHO], ids=["epsilon", "rho"])
def test_intervals_cover(release_key: ReleaseKey, budget: Budget) -> None:
    """Over many keys, the intervals of a tree with chains hold the truth as often as they say: at
    least, and for noise 30 % larger seen to hold it less often."""
    keys, confidence = 4000, 0.9
    tree = IrregularTree.from_fanouts([[3], [1, 2, 1], [2, 1, 1, 1]])
    plan = with_equal_shares(make_plan(tree, 0, 0, 0, budget.amount, budget=budget, keyed=True))
    counts, noise = np.full((keys, tree.leaves), 50), source(release_key)
    exact = tree.level_counts(counts)
    # Of keys * nodes of a level: five nodes are as good as independent of key.
    tolerance = 5.5 * np.sqrt(confidence * (1 - confidence) / keys)

    def coverage(drawn: IrregularPlan) -> list[float]:
        solved = solve(AsMeasuredForest(drawn, keys=keys), counts, noise)
        margins = AsMeasuredForest(plan).margins(confidence)
        margins[-1] = np.repeat(margins[-1], tree.fanouts[-1])
        return [
            float((np.abs(estimates - truth) <= margin).mean(axis=0).min())
            for estimates, truth, margin in zip(solved.estimates, exact, margins, strict=True)
        ]

    assert min(coverage(plan)) >= confidence - tolerance
    if budget.measure is Measure.EPSILON:
        wide = with_laws(plan, lambda law: DiscreteLaplace(scale=law.scale * 13 / 10))
        assert min(coverage(wide)) < confidence - tolerance


def test_needs_all_levels() -> None:
    plan = equal_plan(np.random.default_rng(3), public=False)
    amounts = (Fraction(0), *plan.level_amounts[1:])
    with pytest.raises(ValueError, match="estimation: none needs every level"):
        AsMeasuredForest(replace(plan, level_amounts=amounts))
