"""The variance of a range of leaves equals that of dense least squares."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.levels.uniform import range_error, range_margin
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.uniform.error_laws import UniformErrors
from dptrees.dpcore.uniform.plan import TreePlan, UniformForest
from tests.dpcore.cases import for_each
from tests.dpcore.tree_runs import unit_responses
from tests.dpcore.tree_settings import tree_plan


@for_each("seed", range(6))
def test_the_law_has_the_coefficients_of_the_estimator(
    random_plan: Callable[..., TreePlan], seed: int
) -> None:
    """Noise of one row in one node at a time, through the estimation, gives each coefficient."""
    plan = random_plan(np.random.default_rng(30 + seed), public=seed % 2 == 0)
    tree, responses = plan.tree, [leaves for _, leaves in unit_responses(plan)]
    rng = np.random.default_rng(seed)
    for start, stop in np.sort(rng.integers(0, tree.leaves + 1, (25, 2)), axis=1).tolist():
        expected = np.sort([abs(response[start:stop].sum()) for response in responses])
        terms = range_error(plan, start, stop).terms
        found = np.sort(np.concatenate([[0.0], *([abs(c)] * n for _, c, n in terms)]))
        padded = np.concatenate([np.zeros(max(0, expected.size + 1 - found.size)), found])
        np.testing.assert_allclose(padded[-expected.size :], expected, atol=1e-9)


def random_runs(rng: np.random.Generator, leaves: int) -> list[tuple[int, int]]:
    """Runs of leaves with gaps between them."""
    edges = np.unique(rng.integers(0, leaves + 1, 2 * int(rng.integers(1, 5)))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=False))


@for_each("seed", range(24))
def test_ranges_and_sums_of_several_runs_equal_dense_least_squares(
    random_plan: Callable[..., TreePlan], dense_least_squares: Callable[..., Any], seed: int
) -> None:
    rng = np.random.default_rng(70 + seed)
    plan = random_plan(rng, public=seed % 2 == 0, measure=list(Measure)[seed % 3 % 2])
    tree, errors = plan.tree, UniformErrors(plan)
    per_node = [np.full(n, v) for n, v in zip(tree.level_sizes, plan.variances, strict=True)]
    covariance = dense_least_squares(tree, per_node).covariance
    for _ in range(20):
        runs = random_runs(rng, tree.leaves)
        inside = np.zeros(tree.leaves)
        for start, stop in runs:
            inside[start:stop] = 1
            own = covariance[start:stop, start:stop].sum()
            assert range_error(plan, start, stop).variance == pytest.approx(own, rel=1e-8, abs=1e-7)
        law = errors.sum(runs)
        assert law.variance == pytest.approx(inside @ covariance @ inside, rel=1e-8, abs=1e-7)
        if len(runs) == 1:
            alone = errors.range(*runs[0])
            assert law.fourth_cumulant == pytest.approx(alone.fourth_cumulant, rel=1e-8, abs=1e-6)


def test_margins_are_the_laws_own(random_plan: Callable[..., TreePlan]) -> None:
    plan = random_plan(np.random.default_rng(3), public=True)
    last = plan.tree.leaves
    for known in ((0, last), (1, 1)):
        assert range_margin(range_error(plan, *known), 0.95) == 0.0
    law = range_error(plan, 1, last - 1)
    assert range_margin(law, 0.9) == pytest.approx(law.half_width(0.9), rel=2e-9)
    with pytest.raises(ValueError, match="confidence"):
        range_margin(law, 1.0)


@pytest.mark.parametrize("public", [False, True])
def test_prefixes_nodes_and_the_whole_are_ranges(
    random_plan: Callable[..., TreePlan], public: bool
) -> None:
    plan = random_plan(np.random.default_rng(5), public=public)
    tree, errors = plan.tree, UniformErrors(plan)
    for leaf in range(tree.leaves):
        assert range_error(plan, 0, leaf + 1).variance == pytest.approx(
            errors.prefix(leaf).variance, abs=1e-8
        )
    for level, size in enumerate(tree.level_sizes):
        for node in range(size):
            mine = tree.leaf_range(level, node)
            assert range_error(plan, mine.start, mine.stop).variance == pytest.approx(
                errors.node(level, node).variance, abs=1e-8
            )
    assert range_error(plan, 0, tree.leaves).variance == pytest.approx(
        UniformForest(plan).root_variance
    )


@for_each(("start", "stop"), [(-1, 1), (2, 1), (0, 10**6)])
def test_refuses(random_plan: Callable[..., TreePlan], start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="range: "):
        range_error(random_plan(np.random.default_rng(0)), start, stop)


def test_an_empty_range_has_no_error_but_its_share_of_the_total() -> None:
    plan = tree_plan(4, (2, 2), (Fraction(0), Fraction(0), Fraction(1)))
    errors = UniformErrors(plan)
    for place in range(5):
        assert errors.range(place, place).variance == 0
        less = errors.range(place, place, less_total=0.5).variance
        assert less == pytest.approx(plan.variances[-1])  # 0.5^2 of four leaves
