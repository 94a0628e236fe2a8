"""A forest in chunks of any size gives what the whole tree in one array gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.noise.laws import ZeroNoise
from dptrees.dpcore.trees.consistency import consistent_counts, root_count
from dptrees.dpcore.trees.estimation import (
    estimate_down,
    estimate_up,
    estimation_weights,
    prefix_weights,
)
from dptrees.dpcore.trees.forests import RootSolutions
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import TreePlan, UniformForest
from tests.dpcore.tree_settings import PUBLIC, ROWS, planned_tree

SIZES = [1, 2, 4, 8, 16, 40, 2**17]
QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)


def whole_tree(plan: TreePlan, counts: np.ndarray[Any, Any], noise: Any) -> dict[str, Any]:
    """Everything from one array per level, (keys, n_l), with noise by the number of the node."""
    tree, public = plan.tree, plan.public_total
    exact = tree.level_counts(counts)
    streams = [noise.stream("t", 0, 0, level) for level in range(tree.height + 1)]
    measured: list[Any] = [
        None if law is None else y + law.sample(stream, y.size).reshape(y.shape)
        for y, law, stream in zip(exact, plan.laws, streams, strict=True)
    ]
    weights = estimation_weights(
        tree, [np.inf if public else plan.variances[0], *plan.variances[1:]]
    )
    estimates = estimate_down(
        weights, estimate_up(weights, measured), exact[0].astype(float) if public else None
    )
    found = consistent_counts(weights.tree, weights.below, estimates, root_count(estimates[0]))
    root = 0.0 if public else float(weights.below[0][0])
    prefixes = prefix_weights(weights, through=True)
    return {
        "estimates": estimates,
        "variances": weights.variances(root),
        "counts": found,
        "prefix_estimate": np.cumsum(estimates[-1], axis=1),
        "prefix_variance": prefixes.variance(root),
        "prefix_alpha": prefixes.alpha,
        "prefix_count": np.cumsum(found[-1], axis=1),
    }


@pytest.mark.parametrize("public", [False, True], ids=["N private", "N public"])
@pytest.mark.parametrize("seed", range(6))
def test_chunked_equals_whole(
    random_plan: Callable[..., TreePlan],
    replace_laws: Callable[..., TreePlan],
    node_noise_law: Callable[..., Any],
    node_noise_source: Callable[..., Any],
    solve_forest: Callable[..., Any],
    public: bool,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    plan = replace_laws(random_plan(rng, public=public), lambda law: node_noise_law(width=9))
    keys = 1 if public else int(rng.integers(1, 5))
    counts = rng.poisson(rng.choice([0.3, 5, 200]), (keys, plan.tree.leaves))
    first = None
    for size in SIZES:
        forest = UniformForest(plan, keys=keys, chunk_leaves=size)
        noise = node_noise_source(chunking=forest.chunking)
        found = solve_forest(forest, counts, noise, QUANTILES)
        expected = whole_tree(
            plan, counts, node_noise_source(chunking=UniformForest(plan).chunking)
        )
        for name in ("estimates", "variances"):
            for ours, theirs in zip(getattr(found, name), expected[name], strict=True):
                np.testing.assert_allclose(
                    ours, np.broadcast_to(theirs, ours.shape), rtol=1e-9, atol=1e-8
                )
        for ours, theirs in zip(found.counts, expected["counts"], strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for name in ("prefix_estimate", "prefix_variance", "prefix_alpha", "prefix_count"):
            ours = getattr(found, name)
            np.testing.assert_allclose(
                ours, np.broadcast_to(expected[name], ours.shape), rtol=1e-9, atol=1e-7
            )
        # Estimates, so quantiles too, may differ in the last bit: the share by rounding alone.
        first = first or found
        np.testing.assert_array_equal(found.quantiles.cell, first.quantiles.cell)
        np.testing.assert_allclose(found.quantiles.share, first.quantiles.share)
        np.testing.assert_array_equal(found.quantiles.low, first.quantiles.low)
        np.testing.assert_array_equal(found.quantiles.high, first.quantiles.high)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("public", [False, True], ids=["N private", "N public"])
def test_zero_noise_gives_the_truth_back(
    random_plan: Callable[..., TreePlan],
    replace_laws: Callable[..., TreePlan],
    solve_forest: Callable[..., Any],
    node_noise_source: Callable[..., Any],
    size: int,
    public: bool,
) -> None:
    """Whether the plan knows that there is no noise (variance 0) or believes in some."""
    rng = np.random.default_rng(11)
    for trial in range(8):
        plan = replace_laws(random_plan(rng, public=public), lambda law: ZeroNoise())
        if trial % 2:
            plan.__dict__["variances"] = tuple(
                0.0 if law or (public and level == 0) else np.inf
                for level, law in enumerate(plan.laws)
            )
        tree, keys = plan.tree, 1 if public else 3
        counts = rng.poisson(1.5, (keys, tree.leaves))
        forest = UniformForest(plan, keys=keys, chunk_leaves=size)
        noise = node_noise_source(chunking=forest.chunking)
        found = solve_forest(forest, counts, noise, QUANTILES)
        for level, truth in enumerate(tree.level_counts(counts)):
            np.testing.assert_allclose(found.estimates[level], truth, atol=1e-8)
            np.testing.assert_array_equal(found.counts[level], truth)
        cdf = np.cumsum(counts, axis=1)
        np.testing.assert_array_equal(found.prefix_count, cdf)
        np.testing.assert_allclose(found.prefix_estimate, cdf, atol=1e-8)
        for place, quantile in enumerate(QUANTILES):
            ranks = np.maximum(1, np.ceil(quantile * cdf[:, -1:]))
            expected = np.where(cdf[:, -1] > 0, (cdf >= ranks).argmax(axis=1), -1)
            np.testing.assert_array_equal(found.quantiles.cell[:, place], expected)


def test_many_keys_in_a_chunk_equal_one_key_at_a_time(
    random_plan: Callable[..., TreePlan],
    replace_laws: Callable[..., TreePlan],
    node_noise_law: Callable[..., Any],
    node_noise_source: Callable[..., Any],
    solve_forest: Callable[..., Any],
) -> None:
    rng = np.random.default_rng(21)
    for _ in range(6):
        plan = replace_laws(random_plan(rng, public=False), lambda law: node_noise_law(width=5))
        counts = rng.poisson(4, (7, plan.tree.leaves))
        together = UniformForest(plan, keys=7)
        alone = UniformForest(plan, keys=7, chunk_leaves=plan.tree.leaves)
        assert len(together.chunking) == 1 and len(alone.chunking) == 7
        many, one = (
            solve_forest(forest, counts, node_noise_source(chunking=forest.chunking))
            for forest in (together, alone)
        )
        for level in range(plan.tree.height + 1):
            np.testing.assert_array_equal(many.estimates[level], one.estimates[level])
            np.testing.assert_array_equal(many.counts[level], one.counts[level])
        np.testing.assert_array_equal(many.quantiles.to_array(), one.quantiles.to_array())


@pytest.mark.parametrize("public", [False, True])
def test_a_tree_of_one_leaf(
    solve_forest: Callable[..., Any], release_key: Any, public: bool
) -> None:
    plan = planned_tree(1, PUBLIC if public else ROWS)
    plan = replace(plan)
    if not public:
        plan.__dict__["laws"] = (ZeroNoise(),)
    found = solve_forest(UniformForest(plan), np.array([[5]]), _NoStreams())
    assert found.counts[0].tolist() == [[5]] and found.prefix_count.tolist() == [[5]]


class _NoStreams:
    largest = 2**50

    def for_counts(self, counts: object) -> _NoStreams:
        return self

    def stream(self, *place: object) -> None:
        return None


def test_variances_come_from_the_plan_alone(
    random_plan: Callable[..., TreePlan], solve_forest: Callable[..., Any]
) -> None:
    """The widths of an answer must not reveal anything about the counts."""
    plan = random_plan(np.random.default_rng(4), tree=UniformTree(leaves=22, fanouts=(4, 6)))
    for size in (4, 100):
        forest = UniformForest(plan, chunk_leaves=size)
        for chunk in forest.chunking:
            variance, alpha = forest.prefix_variances(chunk)
            expected = prefix_weights(forest_weights(plan), through=True)
            mine = slice(chunk.start, chunk.start + chunk.leaves)
            np.testing.assert_allclose(
                variance.reshape(-1), expected.variance(forest.root_variance)[mine]
            )
            np.testing.assert_allclose(alpha.reshape(-1), expected.alpha[mine])


def forest_weights(plan: TreePlan) -> Any:
    variances = list(plan.variances)
    if plan.public_total:
        variances[0] = np.inf
    return estimation_weights(plan.tree, variances)


def test_solutions_of_roots_travel_as_one_array() -> None:
    rng = np.random.default_rng(6)
    roots = RootSolutions(
        estimate=rng.normal(size=4),
        before=rng.normal(size=4),
        total=rng.normal(size=4),
        count=rng.integers(0, 9, 4),
        before_count=rng.integers(0, 9, 4),
        total_count=rng.integers(0, 9, 4),
    )
    array = roots.to_array()
    assert array.dtype == np.int64 and array.shape == (RootSolutions.width(), 4)
    again = RootSolutions.from_array(array).slice(1, 3)
    for name in ("estimate", "before", "total", "count", "before_count", "total_count"):
        np.testing.assert_array_equal(getattr(again, name), getattr(roots, name)[1:3])
