"""The bounds of counts between thresholds: against exact sums, and against simulated releases.

Measured errors must not be above the bounds beyond Monte Carlo error (a false alarm of at most 1e-6
a test); on single leaves, where the bounds are nearly exact, measured errors must come close, and
bounds for noise 30 % smaller than it is must be found out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from scipy import stats

import dptrees.dpcore.thresholds.plan
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.thresholds.plan import (
    ThresholdErrors,
    ThresholdPlan,
    ThresholdRound,
    difference_survival,
)
from dptrees.dpcore.thresholds.sparse_vector import classify_forest, remaining_trees, tree_weights
from dptrees.dpcore.trees.shapes import UniformTree
from tests.dpcore.cases import for_each
from tests.dpcore.threshold_questions import calibrated, claiming, worst_alpha_rmse

COPIES = 20_000
SINGLE = ThresholdRound(
    cutoff=1,
    search_epsilon=Fraction(1),
    node_epsilon=Fraction(1, 2),
    delta=Fraction(1, 100),
    tau=40,
    acceptance=38,
    estimate=Fraction(60),
)


@lru_cache
def usual(alpha: float = 0.5) -> ThresholdPlan:
    """A calibrated plan for a tree of height 3."""
    return calibrated(
        height=3, alpha=alpha, epsilon=Fraction(2), delta=Fraction(1, 1000), root_bound=3000
    )


def make_plan(each: ThresholdRound) -> ThresholdPlan:
    return claiming((each,), ADD_REMOVE_ROW)


def simulated(
    plan: ThresholdPlan, tree: UniformTree, counts: np.ndarray, copies: int
) -> list[np.ndarray]:
    """(copies, n_level) estimates of copies of one tree, by rounds on a forest of them."""
    whole = UniformTree(leaves=copies * tree.leaves, fanouts=(copies, *tree.fanouts))
    weights = tree_weights(whole, np.tile(counts, copies))
    forest = [np.array([-1]), *(np.repeat(np.arange(copies), n) for n in tree.level_sizes)]
    stream = public_stream("error", repr(counts.tolist()), copies)
    estimates = [np.full(n, float(plan.least)) for n in whole.level_sizes]
    for each in reversed(plan.rounds):
        top = classify_forest(whole, weights, each, stream, forest)
        for estimate, flags in zip(estimates, top, strict=True):
            estimate[flags] = float(each.estimate)
        forest = remaining_trees(whole, forest, top)
    return [estimate.reshape(copies, -1) for estimate in estimates[1:]]


@for_each("scale", [0.4, 3.0, 40.0])
def test_the_tail_of_a_difference_is_its_sum(scale: float) -> None:
    law = DiscreteLaplace(scale=Fraction(scale).limit_denominator(10))
    k = np.arange(-math.ceil(50 * scale), math.ceil(50 * scale) + 1)
    both = np.convolve(law.pmf(k), law.pmf(k))
    values = np.arange(2 * k[0], 2 * k[-1] + 1)
    for at in (-7, -1, 0, 1, 2, 19):
        summed = math.fsum(both[values >= at])
        assert difference_survival(at, float(law.scale)) == pytest.approx(summed, rel=1e-9)


def missed_by_sums(each: ThresholdRound, count: int) -> float:
    """The exact probability that a round with one cutoff leaves a single leaf BOTTOM."""
    not_looked_at = float(
        difference_survival(count - each.tau + 1, float(each.sparse_vector.query_law.scale))
    )
    rejected = float(each.noise.survival(count - each.acceptance))
    return not_looked_at + (1 - not_looked_at) * rejected


@for_each("count", [30, 40, 55, 75, 90])
def test_single_leaves_are_nearly_exact(count: int) -> None:
    errors = ThresholdErrors(make_plan(SINGLE), height=0, root_bound=1000)
    exact, bound = missed_by_sums(SINGLE, count), float(errors.missed(1, count))
    assert exact <= bound * (1 + 1e-9) and bound <= 1.2 * exact
    found = simulated(
        make_plan(SINGLE), UniformTree(leaves=1, fanouts=()), np.array([count]), COPIES
    )[0]
    seen = int((found == 10).sum())
    assert stats.binom.cdf(seen, COPIES, exact) > 1e-7 < stats.binom.sf(seen - 1, COPIES, exact)


def test_a_bound_of_smaller_noise_is_found_out() -> None:
    planted = replace(SINGLE, search_epsilon=SINGLE.search_epsilon / Fraction(7, 10))
    bound = float(ThresholdErrors(make_plan(planted), height=0, root_bound=99).missed(1, 60))
    found = simulated(make_plan(SINGLE), UniformTree(leaves=1, fanouts=()), np.array([60]), COPIES)[
        0
    ]
    assert stats.binom.sf(int((found == 10).sum()), COPIES, bound) < 1e-6


@for_each("gap", [-10, 0, 10, 30])
def test_levels_found_without_a_node_are_bounded(gap: int) -> None:
    """q = E_Y sup_f P(X >= tau + Y - f) P(N < A - f), by sums over integers."""
    each = replace(SINGLE, tau=SINGLE.acceptance + gap)
    law = DiscreteLaplace(scale=each.sparse_vector.query_law.scale)
    y = np.arange(-200, 201)
    f = np.arange(each.floor - 1, each.acceptance + each.noise.radius + 1)
    top = law.survival(each.tau + y[:, None] - f - 1)
    exact = float(law.pmf(y) @ (top * each.noise.survival(f - each.acceptance)).max(axis=1))
    bound = dptrees.dpcore.thresholds.plan._empty_top(each)
    assert exact <= bound * (1 + 1e-9) and bound <= 1.01 * exact


def worst_data(
    plan: ThresholdPlan, tree: UniformTree, rng: np.random.Generator
) -> list[np.ndarray]:
    """Counts that are hard: one heavy leaf at the edges of rounds, others that use up the levels,
    empty ones, random ones."""
    found = [np.zeros(tree.leaves, dtype=np.int64)]
    for each in plan.rounds[:3]:
        for edge in (each.floor, each.acceptance, each.tau, each.tau + each.noise.radius):
            counts = np.zeros(tree.leaves, dtype=np.int64)
            counts[0] = edge
            found.append(counts.copy())
            counts[tree.leaves // 2] = each.floor + each.noise.radius // 2
            found.append(counts.copy())
    rising = (1.7 ** np.arange(tree.leaves) * plan.rounds[0].floor / 4).astype(np.int64)
    found.append(np.minimum(rising, 200))
    found.append(rng.integers(0, 2 * plan.rounds[0].tau, tree.leaves))
    return found


@pytest.mark.parametrize("alpha", [0.5, 0.9])
def test_no_data_set_has_a_larger_error(alpha: float) -> None:
    tree, copies, kappa = UniformTree(leaves=8, fanouts=(2, 2, 2)), 1500, 50.0
    plan = usual(alpha)
    errors = ThresholdErrors(plan, height=3, root_bound=3000)
    largest = 0.0
    for counts in worst_data(plan, tree, np.random.default_rng(4)):
        weights = tree.level_counts(counts)
        for exact, found in zip(weights, simulated(plan, tree, counts, copies), strict=True):
            squares = np.maximum(np.abs(found - exact) - alpha * exact, 0.0) ** 2
            spread = squares.std(axis=0) / math.sqrt(copies)
            # 5.5 standard errors, and what one unseen event of probability 10 / copies may weigh.
            slack = 5.5 * spread + 10 / copies * worst_alpha_rmse(errors, alpha) ** 2
            bound = errors.alpha_rmse(exact, alpha) ** 2
            assert np.all(squares.mean(axis=0) <= bound + slack)
            largest = max(largest, float(np.sqrt(squares.mean(axis=0).max())))
            # Relative errors are bounded too.
            ratios = np.abs(found - exact) / np.maximum(exact, kappa)
            slack = 5.5 * ratios.std(axis=0) / math.sqrt(copies) + 10 / copies
            bound = errors.smoothed_relative_error(exact, kappa)
            assert np.all(ratios.mean(axis=0) <= bound + slack)
    # The worst case is nearly met, so the bound is not empty.
    assert largest > 0.6 * worst_alpha_rmse(errors, alpha)


def test_the_worst_count_is_among_the_places() -> None:
    plan = usual()
    errors = ThresholdErrors(plan, height=3, root_bound=3000)
    every = errors.alpha_rmse(np.arange(3001.0), 0.5)
    assert every.max() <= worst_alpha_rmse(errors, 0.5) * 1.02
    relative = errors.smoothed_relative_error(np.arange(3001.0), 40.0)
    assert relative.max() <= errors.smoothed_relative_error(errors.places, 40.0).max() * 1.02


def test_bounds_fall_with_the_count_and_rise_with_the_height() -> None:
    plan = usual()
    low, high = (ThresholdErrors(plan, height=h, root_bound=3000) for h in (3, 40))
    counts = np.arange(3001.0)
    for number in range(1, len(plan.rounds) + 1):
        assert np.all(np.diff(low.missed(number, counts)) <= 0)
        assert np.all(low.missed(number, counts) <= high.missed(number, counts))
        # Below its floor a node is never found.
        floor = plan.rounds[number - 1].floor
        assert np.all(low.missed(number, np.arange(max(0, floor))) == 1)


def test_a_plan_without_rounds_has_one_estimate() -> None:
    errors = ThresholdErrors(replace(make_plan(SINGLE), rounds=()), height=3, root_bound=100)
    np.testing.assert_allclose(errors.alpha_rmse([0, 8, 100], 0.5), [10, 0, 40])
    np.testing.assert_allclose(errors.smoothed_relative_error([0, 8, 100], 10.0), [1, 0.2, 0.9])
    assert worst_alpha_rmse(errors, 0.5) == 40


@pytest.mark.parametrize("bound", [0, 2**40 + 1])
def test_bad_root_bounds_are_named(bound: int) -> None:
    with pytest.raises(ValueError, match=f"root_bound is {bound}"):
        ThresholdErrors(make_plan(SINGLE), height=1, root_bound=bound)
