"""The variance of a range of leaves equals that of dense least squares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpcore.forest import Forest
from dpcore.plan import TreePlan
from dpcore.privacy import Measure
from dpcore.ranges import range_variance
from dpcore.uncertainty import TreeErrors


@pytest.mark.parametrize("seed", range(12))
def test_equals_dense_least_squares(
    random_plan: Callable[..., TreePlan], dense_least_squares: Callable[..., Any], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    plan = random_plan(rng, public=seed % 2 == 0, measure=list(Measure)[seed % 3 % 2])
    tree = plan.tree
    per_node = [np.full(n, v) for n, v in zip(tree.level_sizes, plan.variances, strict=True)]
    covariance = dense_least_squares(tree, per_node).covariance
    boundaries = rng.integers(0, tree.leaves + 1, (60, 2))
    for start, stop in [*np.sort(boundaries, axis=1).tolist(), [0, tree.leaves], [0, 1]]:
        expected = covariance[start:stop, start:stop].sum()
        assert range_variance(plan, start, stop) == pytest.approx(expected, rel=1e-8, abs=1e-7)


@pytest.mark.parametrize("public", [False, True])
def test_prefixes_nodes_and_the_whole_are_ranges(
    random_plan: Callable[..., TreePlan], public: bool
) -> None:
    plan = random_plan(np.random.default_rng(5), public=public)
    tree, errors = plan.tree, TreeErrors(plan)
    for leaf in range(tree.leaves):
        assert range_variance(plan, 0, leaf + 1) == pytest.approx(
            errors.prefix(leaf).variance, abs=1e-8
        )
    for level, size in enumerate(tree.level_sizes):
        for node in range(size):
            mine = tree.leaf_range(level, node)
            assert range_variance(plan, mine.start, mine.stop) == pytest.approx(
                errors.node(level, node).variance, abs=1e-8
            )
    assert range_variance(plan, 0, tree.leaves) == pytest.approx(Forest(plan).root_variance)


def test_an_empty_range_has_no_error(random_plan: Callable[..., TreePlan]) -> None:
    assert range_variance(random_plan(np.random.default_rng(0)), 1, 1) == 0.0


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, 10**6)])
def test_refuses(random_plan: Callable[..., TreePlan], start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="range: "):
        range_variance(random_plan(np.random.default_rng(0)), start, stop)
