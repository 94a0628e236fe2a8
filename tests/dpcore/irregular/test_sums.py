"""Signed integer sums: consistent at every node, the same in chunks of any size, of the predicted
error from the rows to the release."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.irregular.forest import IrregularForest
from dptrees.dpcore.irregular.plan import IrregularPlan, level_sensitivities, sum_sensitivities
from dptrees.dpcore.irregular.planner import with_best_shares
from dptrees.dpcore.noise.laws import DiscreteLaplace, ZeroNoise
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget
from dptrees.dpcore.rows.policies import MeasureColumn
from dptrees.dpcore.trees.consistency import consistent_counts, split_among_children
from dptrees.dpcore.trees.estimation import estimation_weights
from tests.dpcore.irregular.test_forest import (
    CHAINED,
    SIZES,
    PlacedLaw,
    PlacedNoise,
    solve,
    source,
    with_laws,
)
from tests.dpcore.irregular_trees import (
    EPSILON,
    RHO,
    make_plan,
    random_irregular_plan,
    random_irregular_tree,
)

Array = np.ndarray[Any, Any]


# --- integers that add up -----------------------------------------------------------------------


def split_alone(estimates: Array, below: Array, total: int) -> Array:
    """One node's children, by sorting: the definition."""
    correction = (total - estimates.sum()) / below.sum() if below.sum() else 0.0
    shares = estimates + correction * below
    floors = np.floor(shares)
    remainders = np.rint((shares - floors) * 2**20)
    order = sorted(range(len(shares)), key=lambda child: (-remainders[child], child))
    found = floors.astype(int)
    for child in order[: total - int(floors.sum())]:
        found[child] += 1
    return found


@pytest.mark.parametrize("scale", [0.3, 4.0, 3e5])
def test_equals_the_split_of_each_node_alone(scale: float) -> None:
    rng = np.random.default_rng(int(scale * 10))
    fanouts = rng.integers(1, 9, 400)
    children = int(fanouts.sum())
    estimates = rng.normal(0, scale, children)
    estimates[rng.random(children) < 0.3] = -0.5  # ties
    for below in (np.full(children, 2.0), rng.uniform(0.5, 9, children)):
        totals = np.rint(rng.normal(0, scale * fanouts)).astype(np.int64)
        found = split_among_children(fanouts, estimates, below, totals, signed=True)
        ends = np.cumsum(fanouts)
        for total, size, end in zip(totals.tolist(), fanouts, ends, strict=True):
            mine = slice(end - size, end)
            alone = split_alone(estimates[mine], below[mine], total)
            np.testing.assert_array_equal(found[mine], alone)


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.7, 30.0, 1e9]))
@settings(max_examples=100, deadline=None)
def test_signed_sums_add_up_at_every_node_and_are_near_the_real_solution(
    seed: int, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    tree = random_irregular_tree(rng, height=4, roots=2)
    estimates = [rng.normal(0, scale, (3, n)) for n in tree.level_sizes]
    below: list[Any] = [rng.uniform(0.1, 3, n) for n in tree.level_sizes]
    roots = np.rint(rng.normal(0, scale, (3, 2))).astype(np.int64)
    sums = consistent_counts(tree, below, estimates, roots, signed=True)
    np.testing.assert_array_equal(sums[0], roots)
    for level in range(tree.height):
        values, spread = estimates[level + 1], below[level + 1]
        np.testing.assert_array_equal(tree.child_sum(level, sums[level + 1]), sums[level])
        per_variance = (sums[level] - tree.child_sum(level, values)) / tree.child_sum(level, spread)
        real = values + tree.to_children(level, per_variance) * spread
        assert np.abs(sums[level + 1] - real).max() < 1 + 1e-6


def test_equals_the_nonnegative_integers_where_nothing_is_negative() -> None:
    rng = np.random.default_rng(6)
    some_differ = False
    for shift in (60, 0):
        for _ in range(20):
            tree = random_irregular_tree(rng)
            leaves = rng.normal(shift, 5, tree.leaves)
            estimates = tree.level_counts(leaves)
            below = [np.ones(n) for n in tree.level_sizes]
            roots = np.maximum(0, np.rint(estimates[0])).astype(np.int64)
            pairs = zip(
                consistent_counts(tree, below, estimates, roots, signed=True),
                consistent_counts(tree, below, estimates, roots),
                strict=True,
            )
            equal = all(np.array_equal(mine, theirs) for mine, theirs in pairs)
            assert equal or shift == 0
            some_differ |= not equal
    assert some_differ


def test_sums_hold_where_floats_are_too_coarse_for_them() -> None:
    """A correction of less than the last bit of each child is lost, and rounding has to make it."""
    rng = np.random.default_rng(8)
    fanouts = np.array([40_000, 3])
    exact = rng.integers(2**45, 2**46, 40_003) * rng.choice([-1, 1], 40_003)
    floats, below = exact.astype(np.float64), np.ones(40_003)
    for shift in (-7, 7):
        totals = np.array([int(exact[:40_000].sum()) + shift, -5])
        found = split_among_children(fanouts, floats, below, totals, signed=True)
        assert [int(found[:40_000].sum()), int(found[40_000:].sum())] == totals.tolist()


def test_children_that_are_known_exactly_keep_their_sums() -> None:
    rng = np.random.default_rng(7)
    tree = random_irregular_tree(rng)
    truth = tree.level_counts(rng.integers(-9, 9, tree.leaves))
    known = [np.zeros(n) for n in tree.level_sizes]
    estimates = [y + rng.uniform(-1e-9, 1e-9, y.shape) for y in truth]
    found = consistent_counts(tree, known, estimates, truth[0], signed=True)
    for mine, exact in zip(found, truth, strict=True):
        np.testing.assert_array_equal(mine, exact)


# --- the forest ---------------------------------------------------------------------------------


@pytest.mark.parametrize("public", [False, True], ids=["N private", "levels public"])
@pytest.mark.parametrize("seed", range(4))
def test_chunks_of_any_size_give_the_same_sums(public: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    plan = with_laws(random_irregular_plan(rng, public=public), lambda law: PlacedLaw(9))
    tree, keys = plan.tree, 1 if public else int(rng.integers(1, 4))
    sums = rng.integers(-60, 60, (keys, tree.leaves))
    sums[:, 0] = -60
    results = []
    for size in SIZES:
        forest = IrregularForest(plan, keys=keys, chunk_leaves=size, signed=True)
        results.append(solve(forest, sums, PlacedNoise(forest)))
    found = results[-1]
    for other in results[:-1]:
        for ours, theirs in zip(found.counts, other.counts, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    # Of the whole tree, from its own estimates.
    weights = estimation_weights(
        tree,  # type: ignore[arg-type]
        [*plan.variances_above_leaves, np.repeat(plan.leaf_variances, tree.fanouts[-1])],
    )
    root = np.rint(found.estimates[0]).astype(np.int64)
    whole = consistent_counts(tree, weights.below, found.estimates, root, signed=True)
    for level, (ours, theirs) in enumerate(zip(found.counts, whole, strict=True)):
        np.testing.assert_array_equal(ours, theirs)
        if public and plan.public_level is not None and level <= plan.public_level:
            np.testing.assert_array_equal(ours, tree.level_counts(sums)[level])
    assert min(row.min() for row in found.counts) < 0


def test_zero_noise_gives_the_signed_truth_back() -> None:
    rng = np.random.default_rng(11)
    for size in SIZES * 2:
        plan = with_laws(random_irregular_plan(rng), lambda law: ZeroNoise())
        sums = rng.integers(-5, 4, (3, plan.tree.leaves))
        forest = IrregularForest(plan, keys=3, chunk_leaves=size, signed=True)
        found = solve(forest, sums, PlacedNoise(forest))
        for level, truth in enumerate(plan.tree.level_counts(sums)):
            np.testing.assert_array_equal(found.counts[level], truth)
    counts = solve(IrregularForest(plan, keys=3), sums, PlacedNoise(forest)).counts
    assert min(row.min() for row in counts) == 0  # what the parameter is for


# --- from the rows to the release ---------------------------------------------------------------

BALANCE = MeasureColumn(column="balance", lower=-4, upper=9)


def exact_sums(rng: np.random.Generator, keys: int) -> Array:
    """(keys, leaves) of rows whose values are fractions, missing, infinite and out of bounds."""
    rows = 20 * keys
    numbers = np.where(rng.random(rows) < 0.05, np.inf, rng.normal(-1, 8, rows))
    values, dropped = BALANCE.values(pa.array(numbers, mask=rng.random(rows) < 0.1))
    assert dropped is not None and values.min() == -4 and values.max() == 9
    cells = rng.integers(0, keys * CHAINED.leaves, rows)
    sums = np.zeros(keys * CHAINED.leaves, np.int64)
    np.add.at(sums, cells, values)
    return sums.reshape(keys, -1)


def sum_plan(budget: Budget) -> IrregularPlan:
    return with_best_shares(
        make_plan(
            CHAINED,
            unit=SUBSTITUTE_ROW,
            budget=budget,
            keyed=True,
            sensitivities=sum_sensitivities(
                CHAINED, SUBSTITUTE_ROW, lower=BALANCE.lower, upper=BALANCE.upper, keyed=True
            ),
        )
    )


def z_scores(
    plan: IrregularPlan,
    release_key: Any,
    *,
    keys: int = 3000,
    chunk_leaves: int = 2**17,
    signed: bool = True,
) -> Array:
    """(3,) how many standard deviations from what is predicted are, over the keys: the estimates'
    mean error, the integers' mean error, and the mean of error^2 / g."""
    sums = exact_sums(np.random.default_rng(1), keys)
    forest = IrregularForest(plan, keys=keys, chunk_leaves=chunk_leaves, signed=signed)
    found = solve(forest, sums, source(release_key))
    truth = np.concatenate(CHAINED.level_counts(sums), axis=1)
    spread = np.sqrt(np.concatenate(found.variances, axis=1))
    errors = (np.concatenate(found.estimates, axis=1) - truth) / spread
    rounded = (np.concatenate(found.counts, axis=1) - truth) / spread
    per_key = np.stack([errors.mean(axis=1), rounded.mean(axis=1), (errors**2).mean(axis=1) - 1])
    scores: Array = per_key.mean(axis=1) / (per_key.std(axis=1) / math.sqrt(keys))
    return scores


@pytest.mark.parametrize("budget", [EPSILON, RHO], ids=["epsilon", "rho"])
@pytest.mark.parametrize(("keys", "chunk_leaves"), [(400, 8), (3000, 2**17)])
def test_sums_are_unbiased_and_of_the_predicted_variance(
    release_key: Any, budget: Budget, keys: int, chunk_leaves: int
) -> None:
    scores = z_scores(sum_plan(budget), release_key, keys=keys, chunk_leaves=chunk_leaves)
    # Each of the twelve numbers beyond 5.4 standard deviations: together below 1e-6.
    assert np.abs(scores).max() < 5.4


def scaled(law: Any) -> Any:
    if isinstance(law, DiscreteLaplace):
        return DiscreteLaplace(scale=law.scale * Fraction(7, 10))
    return replace(law, sigma_squared=law.sigma_squared * Fraction(49, 100))


def plant_counts(plan: IrregularPlan) -> IrregularPlan:
    """Return a wrong plan: it draws the noise of counts and states the variances of sums."""
    counts = level_sensitivities(plan.tree, plan.unit, keyed=True)
    planted = replace(plan)
    planted.__dict__["class_variances"] = plan.class_variances
    planted.__dict__["_laws"] = replace(plan, sensitivities=counts)._laws
    return planted


@pytest.mark.parametrize("budget", [EPSILON, RHO], ids=["epsilon", "rho"])
@pytest.mark.parametrize("plant", [lambda plan: with_laws(plan, scaled), plant_counts])
def test_noise_that_is_too_small_is_noticed(
    release_key: Any, budget: Budget, plant: Callable[[IrregularPlan], IrregularPlan]
) -> None:
    assert z_scores(plant(sum_plan(budget)), release_key)[2] < -5.4


def test_the_projection_of_counts_would_be_a_bias_and_is_noticed(release_key: Any) -> None:
    scores = z_scores(sum_plan(EPSILON), release_key, signed=False)
    assert scores[1] > 5.4 > abs(scores[0])
