"""The definitions and smaller results of Rameshwar et al. and Honaker, against their own words."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dptrees import papers
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.papers.honaker import (
    adjacent,
    below_by_levels,
    depth,
    efficient_estimate,
    node_estimates,
    parent,
    tall_tree_limits,
)
from dptrees.dpcore.papers.rameshwar import (
    approximate_cdf,
    below_variance,
    cover_sums,
    covering,
    l1_error,
    level_variance,
    privacy_loss,
    refined_error,
    refined_prefixes,
    right_cover_sums,
    right_covering,
    sensitivity,
    squared_l2_error,
    unequal_budgets_loss,
)
from dptrees.dpcore.papers.rameshwar_optima import (
    allocations_bound,
    best_factorization,
    convexity,
    equal_budget_bound,
    unequal_fanouts,
)
from dptrees.dpcore.privacy.sensitivity import noise_law
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import Estimator

TREES = [
    UniformTree(leaves=leaves, fanouts=fanouts)
    for leaves, fanouts in [(12, (3, 4)), (10, (3, 4)), (7, (7,)), (13, (2, 2, 4)), (16, (2,) * 4)]
]


def test_the_modules_are_the_same_by_both_names() -> None:
    import dptrees.papers.honaker as named

    assert named is papers.honaker and named.__name__ == "dptrees.dpcore.papers.honaker"
    assert all(getattr(papers, name).__doc__ for name in papers.__all__)


def test_coverings_by_the_papers_procedure() -> None:
    """From the root down, all nodes of a level that lie within what is not yet covered."""
    for tree in TREES:
        for leaf in range(-1, tree.leaves):
            for found, wanted in (
                (covering(tree, leaf), range(leaf + 1)),
                (right_covering(tree, leaf), range(leaf + 1, tree.leaves)),
            ):
                rest, taken = set(wanted), []
                for level, size in enumerate(tree.level_sizes):
                    for node in range(size):
                        held = set(tree.leaf_range(level, node))
                        if held <= rest:
                            taken.append((level, node))
                            rest -= held
                assert [(level, node) for level, nodes in found for node in nodes] == taken


def test_sums_over_coverings_are_the_equations() -> None:
    rng = np.random.default_rng(0)
    for tree in TREES:
        levels = [rng.normal(size=(2, size)) for size in tree.level_sizes]
        for leaf in range(tree.leaves):

            def over(nodes: list[tuple[int, range]], levels: list[Floats] = levels) -> Floats:
                total: Floats = sum(
                    (levels[level][:, list(run)].sum(axis=1) for level, run in nodes), np.zeros(2)
                )
                return total

            left, right = over(covering(tree, leaf)), over(right_covering(tree, leaf))
            np.testing.assert_allclose(cover_sums(tree, levels)[:, leaf], left, atol=1e-12)
            np.testing.assert_allclose(right_cover_sums(tree, levels)[:, leaf], right, atol=1e-12)
            both = (left + levels[0][:, 0] - right) / 2
            np.testing.assert_allclose(refined_prefixes(tree, levels)[:, leaf], both, atol=1e-12)


def test_the_bins_of_equation_1() -> None:
    samples = np.random.default_rng(1).uniform(-3, 5, 400)
    for bins in (1, 7, 32):
        expected = [(samples < -3 + 8 * (j + 1) / bins).mean() for j in range(bins - 1)]
        np.testing.assert_allclose(approximate_cdf(samples, -3, 5, bins), [*expected, 1.0])
    assert approximate_cdf([math.nextafter(5, 0)], -3, 5, 3).tolist() == [0.0, 0.0, 1.0]
    for outside in ([5.0], [-3.1], [], [math.nan]):
        with pytest.raises(ValueError, match="samples: must be at least one"):
            approximate_cdf(outside, -3, 5, 2)


def test_laplace_noise_of_the_sensitivity_is_private() -> None:
    """Theorem II.1 by Definitions II.1 and II.3: two counts, one row substituted."""
    epsilon = Fraction(1, 2)

    def counts(rows: tuple[int, ...]) -> list[float]:
        return [rows.count(0), rows.count(1)]

    moved = sensitivity(counts, range(2), 3)
    assert moved == 2
    law = noise_law(Budget(measure=Measure.EPSILON, amount=epsilon), int(moved), int(moved))
    assert isinstance(law, DiscreteLaplace) and law.scale == 4
    ratio = math.exp(-1 / float(law.scale))
    outcomes = list(itertools.product(range(-40, 41), repeat=2))

    def probabilities(rows: tuple[int, ...]) -> list[float]:
        exact = counts(rows)
        shares = (1 - ratio) / (1 + ratio)
        return [
            math.prod(shares * ratio ** abs(x - c) for x, c in zip(outcome, exact, strict=True))
            for outcome in outcomes
        ]

    loss = privacy_loss(probabilities((0, 0, 1)), probabilities((0, 1, 1)))
    assert loss == pytest.approx(float(epsilon))
    assert privacy_loss([0.5, 0.5], [1.0, 0.0]) == math.inf


def test_errors_of_runs() -> None:
    exact = np.array([1.0, 2.0, 4.0])
    noise = np.random.default_rng(2).laplace(0, 2 / 0.5, (20_000, 3))
    # The variance of a square of Laplace noise of scale b is 20 b^4: five sigma.
    assert abs(squared_l2_error(exact + noise, exact) - 3 * level_variance(0.5)) < 5 * 0.88
    assert abs(l1_error(exact + noise, exact) - 3 * 4) < 5 * 0.05


def test_unequal_budgets_of_bins_lose_the_largest_pair() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        epsilons = rng.uniform(0.1, 2, 5).tolist()
        pairs = [a + b for a, b in itertools.combinations(epsilons, 2)]
        assert unequal_budgets_loss(epsilons) == pytest.approx(max(pairs))
    for few in ([], [0.5]):
        with pytest.raises(ValueError, match="a row needs two bins"):
            unequal_budgets_loss(few)


def test_equal_budgets_are_best_for_a_histogram_but_not_for_a_cdf() -> None:
    """By a grid of budgets of three bins with loss 1, N known: bins 1 and 2 make up two prefixes,
    in which bin 1 is twice."""
    grid = np.linspace(0.3, 0.7, 401)
    for weights, best, least in (((1, 1, 1), 0.5, 12), ((2, 1, 0), 0.557, 11.54)):
        errors = []
        for first in grid:
            budgets = np.minimum([first, 1 - first, 1 - first], 0.5 if first < 0.5 else 1)
            assert unequal_budgets_loss(budgets.tolist()) <= 1 + 1e-12
            errors.append((np.array(weights) / budgets**2).sum())
        assert min(errors) == pytest.approx(least, abs=0.005)
        assert grid[np.argmin(errors)] == pytest.approx(best, abs=0.002)


def test_least_squares_has_two_thirds_to_three_quarters_of_lemma_iv_4() -> None:
    """By dense algebra, K = 256 and equal budgets: the module's docstring."""
    leaves = 256
    prefixes = np.tril(np.ones((leaves, leaves)))
    known = np.vstack([np.eye(leaves - 1), -np.ones(leaves - 1)])  # N is public
    for fanouts, expected in {
        (256,): 0.669,
        (16, 16): 0.688,
        (8, 4, 8): 0.706,
        (4,) * 4: 0.720,
        (2,) * 8: 0.751,
    }.items():
        sizes = np.cumprod(fanouts)
        nodes = [np.kron(np.eye(size), np.ones(leaves // size)) for size in sizes]
        precision = sum(each.T @ each for each in nodes) / level_variance(1 / len(fanouts))
        errors = (
            prefixes @ known @ np.linalg.inv(known.T @ precision @ known) @ (prefixes @ known).T
        )
        refined = refined_error(leaves, fanouts, [1 / len(fanouts)] * len(fanouts))
        assert np.trace(errors) / refined == pytest.approx(expected, abs=0.001), fanouts


def test_convexity_is_the_hessians() -> None:
    """By differences; the determinant has its zero at a fan-out of 3."""

    def phi(r: float, epsilon: float) -> float:
        return (math.exp(r) - 1) / epsilon**2

    step = 1e-4
    for fanout, epsilon in [(2.0, 1.0), (3.0, 0.7), (5.0, 1.3)]:
        r = math.log(fanout)
        plus = [phi(r + a * step, epsilon + b * step) for a in (-1, 0, 1) for b in (-1, 0, 1)]
        second_r = (plus[1] - 2 * plus[4] + plus[7]) / step**2
        second_e = (plus[3] - 2 * plus[4] + plus[5]) / step**2
        mixed = (plus[0] - plus[2] - plus[6] + plus[8]) / (4 * step**2)
        trace, determinant = convexity(fanout, epsilon)
        assert trace == pytest.approx(second_r + second_e, rel=1e-4)
        assert determinant == pytest.approx(second_r * second_e - mixed**2, rel=1e-3, abs=1e-3)


def test_proposition_b_1_by_its_recursion() -> None:
    for fanout, height, epsilon in [(2, 5, 0.3), (16, 2, 1.0), (3, 1, 2.0)]:
        variance = 8 / epsilon**2
        for level in range(height, 0, -1):
            assert below_variance(fanout, level, height, epsilon) == pytest.approx(variance)
            variance = 1 / (epsilon**2 / 8 + 1 / (fanout * variance))


def test_lemmas_v_1_and_v_2_hold() -> None:
    def g(fanouts: tuple[int, ...]) -> int:
        return len(fanouts) ** 2 * sum(fanout - 1 for fanout in fanouts)

    for leaves in (2, 36, 96, 210, 1024):
        best = best_factorization(leaves)
        bounds = [equal_budget_bound(leaves, height) for height in range(1, 12)]
        assert g(best) >= bounds[len(best) - 1] * (1 - 1e-12) >= min(bounds) * (1 - 1e-12)
        assert allocations_bound(leaves) >= 1
    for exponent in (11, 13, 17, 19, 23, 37, 41):
        unequal = unequal_fanouts(exponent)
        assert math.prod(unequal) == 2**exponent
        assert 3 * g(unequal) < min(g((2,) * exponent), g((2**exponent,)))
    for other in (7, 12, 15):
        with pytest.raises(ValueError, match="not a prime of at least 11"):
            unequal_fanouts(other)


def test_honakers_numbers_of_nodes() -> None:
    for node in range(1, 64):
        assert depth(node) == math.floor(math.log2(node))
        assert parent(node) == node // 2
        assert adjacent(node) == (node + 1 if node % 2 == 0 else node - 1)


def from_below(t: Floats, sigmas: Floats, node: int) -> tuple[float, float]:
    """Equation 10, by its recursion, with a standard error of its own for every node."""
    if 2 * node >= len(t):
        return float(t[node]), float(sigmas[node])
    (left, left_error), (right, right_error) = (
        from_below(t, sigmas, 2 * node + side) for side in (0, 1)
    )
    below = math.hypot(left_error, right_error)
    return efficient_estimate([float(t[node]), left + right], [float(sigmas[node]), below])


def test_equation_8_is_equation_10_where_errors_depend_on_the_depth() -> None:
    rng = np.random.default_rng(4)
    t = rng.normal(size=32)
    by_depth = rng.uniform(0.5, 2, 5)
    sigmas = np.array([np.nan, *(by_depth[depth(node)] for node in range(1, 32))])
    estimates, errors = node_estimates(Estimator.BELOW, t, by_depth.tolist())
    for node in range(1, 32):
        expected = from_below(t, sigmas, node)
        assert below_by_levels(t, sigmas, node) == pytest.approx(expected)
        assert (estimates[node], errors[node]) == pytest.approx(expected)
    # The erratum: half of the leaves nearly exact, and sums of whole levels are not the best.
    sigmas[16:24] = 0.01
    assert from_below(t, sigmas, 1)[1] < 0.98 * below_by_levels(t, sigmas, 1)[1]


def test_the_limits_are_those_of_a_tall_tree() -> None:
    below, above, full = tall_tree_limits(3.0)
    t, sigmas = np.zeros(2**15), [3.0] * 15
    for estimator, node, limit in [
        (Estimator.BELOW, 2, below),
        (Estimator.ABOVE, 2, above),
        (Estimator.FULL, 4, full),
    ]:
        found = node_estimates(estimator, t, sigmas, total=0)[1][node]
        assert found == pytest.approx(limit, rel=1e-3)
    assert full == pytest.approx(3 * math.sqrt(5 / 16))


def test_elsewhere_in_a_tall_tree() -> None:
    """The figures in the docstring of `tall_tree_limits`, of depths 1, 2, 3 and 7."""
    t, sigmas = np.zeros(2**17), [1.0] * 17
    for estimator, expected in [
        (Estimator.ABOVE, (0.577, 0.674, 0.699, math.sqrt(1 / 2))),
        (Estimator.FULL, (0.5, 0.559, 0.573, math.sqrt(1 / 3))),
    ]:
        errors = node_estimates(estimator, t, sigmas, total=0)[1]
        for level, each in zip((1, 2, 3, 7), expected, strict=True):
            assert errors[2**level] == pytest.approx(each, abs=0.001)
