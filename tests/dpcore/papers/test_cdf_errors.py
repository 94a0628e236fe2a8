"""The published errors equal sums over the coverings, node by node, and dense covariances."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.papers.rameshwar import (
    covering_nodes,
    histogram_error,
    histogram_error_from_variance,
    independent_error,
    independent_error_from_variance,
    level_variance,
    refined_error,
    refined_error_from_variances,
    tree_error,
    tree_error_from_variances,
)
from dptrees.dpcore.papers.rameshwar_optima import optimal_error, optimal_error_from_variance
from dptrees.dpcore.privacy.unit import Measure

Shape = tuple[int, ...]

SHAPES: list[Shape] = [(2,), (7,), (2, 2), (3, 4), (4, 3), (2, 5, 3), (2, 2, 2, 2), (3, 2, 4)]


def nodes(leaves: int, fanouts: Shape) -> Iterator[tuple[int, int, int]]:
    """The nodes as (level, first leaf, leaf after the last), trimmed to the K leaves, top down."""
    for level in range(len(fanouts) + 1):
        width = math.prod(fanouts[level:])
        for start in range(0, leaves, width):
            yield level, start, min(start + width, leaves)


def covering(leaves: int, fanouts: Shape, start: int, stop: int) -> list[tuple[int, int, int]]:
    """Section IV's procedure: from the top, all nodes that lie within what is not yet covered."""
    uncovered, taken = set(range(start, stop)), []
    for node in nodes(leaves, fanouts):
        inside = set(range(*node[1:]))
        if inside <= uncovered:
            taken.append(node)
            uncovered -= inside
    assert not uncovered
    return taken


def test_covering_nodes_by_the_papers_procedure() -> None:
    for fanouts in SHAPES:
        for leaves in range(1, math.prod(fanouts) + 1):
            counted = [0] * (len(fanouts) + 1)
            for stop in range(1, leaves):  # the last prefix is the root, which has no noise
                for level, _, _ in covering(leaves, fanouts, 0, stop):
                    counted[level] += 1
            assert covering_nodes(leaves, fanouts) == tuple(counted[1:])
            assert covering(leaves, fanouts, 0, leaves)[0][0] == 0


def test_untrimmed_coverings_cost_their_digits_at_the_last_prefix() -> None:
    # Definition IV.1 to the letter, the padded leaves being measured: 10 of 12 leaves.
    literal = [0, 0, 0]
    for stop in range(1, 11):
        for level, _, _ in covering(12, (3, 4), 0, stop):
            literal[level] += 1
    assert literal[1:] == [8 + 2, 13 + 2]  # 10 = 2 * 4 + 2
    assert covering_nodes(10, (3, 4)) == (8, 13)


def test_theorem_iv_1() -> None:
    for fanouts in SHAPES:
        leaves = math.prod(fanouts)
        epsilons = [0.3 + 0.2 * level for level in range(len(fanouts))]
        stated = 4 * leaves * sum((n - 1) / e**2 for n, e in zip(fanouts, epsilons, strict=True))
        assert tree_error(leaves, fanouts, epsilons) == pytest.approx(stated, rel=1e-14)
        assert tree_error(leaves + 1, (2, *fanouts), (1, *epsilons)) > stated


def test_large_shapes_are_exact() -> None:
    fanouts = (16,) * 10
    assert covering_nodes(2**40, fanouts) == (2**39 * 15,) * 10
    digits = np.array(np.unravel_index(np.arange(99_991), (50, 13, 160)))
    assert covering_nodes(99_991, (50, 13, 160)) == tuple(digits.sum(axis=1).tolist())


def refined_prefixes(leaves: int, fanouts: Shape, variances: list[float]) -> tuple[Floats, Floats]:
    """Appendix B by matrices: the refined prefixes' weights on the noisy nodes, and variances.

    Every estimate is a row of weights on the measured nodes, so covariances are exact.
    """
    measured = [node for node in nodes(leaves, fanouts) if node[0] > 0]
    spread = np.array([variances[level - 1] for level, _, _ in measured])
    place = {node: number for number, node in enumerate(measured)}
    weights = np.eye(len(measured))
    for node in reversed(measured):
        level, start, stop = node
        children = [each for each in measured if each[0] == level + 1 and start <= each[1] < stop]
        if not children:
            continue
        from_children = weights[[place[child] for child in children]].sum(axis=0)
        variance = from_children**2 @ spread
        alpha = (1 / variances[level - 1]) / (1 / variances[level - 1] + 1 / variance)
        weights[place[node]] *= alpha
        weights[place[node]] += (1 - alpha) * from_children
    prefixes = np.zeros((leaves, len(measured)))
    for stop in range(1, leaves):
        left = sum(weights[place[node]] for node in covering(leaves, fanouts, 0, stop))
        right = sum(weights[place[node]] for node in covering(leaves, fanouts, stop, leaves))
        prefixes[stop - 1] = (left - right) / 2
    return prefixes, spread


def test_refined_error_by_dense_covariance() -> None:
    for fanouts in SHAPES:
        variances = [1.0 + 0.7 * level**2 for level in range(len(fanouts))][::-1]
        for leaves in range(1, math.prod(fanouts) + 1):
            prefixes, spread = refined_prefixes(leaves, fanouts, variances)
            expected = float(np.trace(prefixes @ np.diag(spread) @ prefixes.T))
            refined = refined_error_from_variances(leaves, fanouts, variances)
            assert refined == pytest.approx(expected, rel=1e-12), fanouts


def test_lemma_iv_4() -> None:
    for fanout, height in ((2, 1), (2, 5), (3, 3), (5, 2), (16, 2), (16, 10)):
        leaves, each = fanout**height, 0.7 / height
        sums = [sum(float(fanout) ** -j for j in range(height - i)) for i in range(height)]
        stated = 2 * leaves * (fanout - 1) / each**2 * sum(1 / precision for precision in sums)
        refined = refined_error(leaves, (fanout,) * height, (each,) * height)
        assert refined == pytest.approx(stated, rel=1e-13), (fanout, height)
        plain = tree_error(leaves, (fanout,) * height, (each,) * height)
        # With one level, only the averaging of left and right is left.
        assert (
            refined == pytest.approx(plain / 2, rel=1e-15) if height == 1 else refined < plain / 2
        )


def test_refinement_of_simulated_counts() -> None:
    """Noise put through the estimates has the stated error; one 5 % off in scale is seen."""
    variances, draws = [1.0, 2.0], 40_000
    prefixes, spread = refined_prefixes(11, (3, 4), variances)
    noise = np.random.default_rng(7).normal(size=(draws, len(spread))) * np.sqrt(spread)
    squared = ((noise @ prefixes.T) ** 2).sum(axis=1)
    expected = refined_error_from_variances(11, (3, 4), variances)
    # The sum of squares has variance 2 tr(C^2); 4.9 deviations are 1e-6 two-sided.
    covariance = prefixes @ np.diag(spread) @ prefixes.T
    tolerance = 4.9 * math.sqrt(2 * np.trace(covariance @ covariance) / draws)
    assert abs(squared.mean() - expected) < tolerance
    assert abs(1.05**2 * squared.mean() - expected) > tolerance


def test_lemma_iii_1_and_iii_2() -> None:
    for leaves in range(1, 30):
        prefixes = np.tril(np.ones((leaves, leaves)))[:-1, : max(leaves - 1, 0)]
        per_leaf = 2 * (2 / 0.3) ** 2
        histogram = np.trace(prefixes @ prefixes.T) * per_leaf if leaves > 1 else 0.0
        assert histogram_error(leaves, 0.3) == pytest.approx(histogram, rel=1e-12)
        sensitivity = leaves - 1  # a row from the first bin to the last
        independent = (leaves - 1) * 2 * (sensitivity / 0.3) ** 2
        assert independent_error(leaves, 0.3) == pytest.approx(independent, rel=1e-12)
        # "From Lemmas III.1 and III.2 ... for K >= 4."
        if leaves > 1:
            assert (histogram_error(leaves, 1) < independent_error(leaves, 1)) == (leaves >= 4)


def test_normalised_errors_of_figure_1() -> None:
    """K = 256: independent > binary tree > histogram > 16-ary tree, at any epsilon."""
    for epsilon in (0.1, 1.0, 5.0):
        binary = tree_error(256, (2,) * 8, [epsilon / 8] * 8)
        sixteen = tree_error(256, (16, 16), [epsilon / 2] * 2)
        histogram = histogram_error(256, epsilon)
        assert independent_error(256, epsilon) > binary > histogram > sixteen
        assert sixteen * epsilon**2 == pytest.approx(256 * 480)


def test_theorem_iv_3() -> None:
    for leaves, height in ((3, 1), (256, 2), (1000, 3), (2**20, 5), (9, 2)):
        beta = leaves ** (1 / height)
        second = 4 * leaves * math.log(leaves) ** 3 / 0.3**2 * (beta - 1) / math.log(beta) ** 3
        assert optimal_error(leaves, height, 0.3) == pytest.approx(second, rel=1e-12)
        # No fan-outs of at least 3 and no budgets do better; equal ones that are whole reach it.
        least = math.inf
        rng = np.random.default_rng(leaves)
        for _ in range(300):
            logs = math.log(3) + rng.dirichlet(np.ones(height)) * (
                math.log(leaves) - height * math.log(3)
            )
            budgets = 0.3 * rng.dirichlet(np.full(height, 20.0))
            least = min(least, 4 * leaves * float(np.sum(np.expm1(logs) / budgets**2)))
        assert optimal_error(leaves, height, 0.3) <= least * (1 + 1e-12)
        whole = round(beta)
        if whole**height == leaves:
            equal = tree_error(leaves, (whole,) * height, [0.3 / height] * height)
            assert equal == pytest.approx(optimal_error(leaves, height, 0.3), rel=1e-12)


def test_zcdp_by_variances() -> None:
    rho = level_variance(Fraction(1, 10), Measure.RHO)
    assert rho == pytest.approx(10)
    equal = tree_error_from_variances(4**5, (4,) * 5, [rho] * 5)
    assert equal == pytest.approx(optimal_error_from_variance(4**5, 5, rho), rel=1e-12)
    # At rho = 1 over five levels: the published 37.5 a cell.
    assert tree_error_from_variances(4**5, (4,) * 5, [level_variance(0.2, Measure.RHO)] * 5) == (
        pytest.approx(37.5 * 4**5)
    )
    assert histogram_error_from_variance(7, 2.0) == 42
    assert independent_error_from_variance(7, 2.0) == 12


BAD_AMOUNTS = [0, -1, math.nan, math.inf, Fraction(0), 10**400, Fraction(1, 10**400)]


def test_refuses_budgets() -> None:
    for amount in BAD_AMOUNTS:
        for error in (
            level_variance,
            lambda amount: level_variance(amount, Measure.RHO),
            lambda amount: independent_error(5, amount),
            lambda amount: histogram_error(5, amount),
            lambda amount: tree_error(4, (2, 2), (1, amount)),
            lambda amount: refined_error(4, (2, 2), (1, amount)),
            lambda amount: optimal_error(9, 2, amount),
        ):
            with pytest.raises(ValueError, match="is not a positive finite number"):
                error(amount)


def test_refuses_budgets_beyond_floating_point() -> None:
    with pytest.raises(ValueError, match="variance: inf"):
        level_variance(1e-300)


def test_refuses_variances() -> None:
    for variance in (0, -1, math.nan, math.inf):
        for error in (
            lambda variance: independent_error_from_variance(5, variance),
            lambda variance: histogram_error_from_variance(5, variance),
            lambda variance: tree_error_from_variances(4, (2, 2), (1.0, variance)),
            lambda variance: refined_error_from_variances(4, (2, 2), (1.0, variance)),
            lambda variance: optimal_error_from_variance(9, 2, variance),
        ):
            with pytest.raises(ValueError, match=r"variance: .* is not a positive finite number"):
                error(variance)


def test_refuses_leaves() -> None:
    for error in (independent_error, histogram_error):
        for leaves in (0, -3, 2**40 + 1):
            with pytest.raises(ValueError, match="leaves"):
                error(leaves, 1.0)


def test_refuses_shapes() -> None:
    for error in (tree_error, refined_error):
        for leaves, fanouts, epsilons, message in [
            (0, (2,), (1,), "leaves: 0"),
            (5, (2, 2), (1, 1), "cover fewer than 5"),
            (2, (2, 1), (1, 1), "fan-out below 2"),
            (2, (-2, -2), (1, 1), "fan-out below 2"),
            (4, (2, 2), (1,), "levels: 1 of them for 2"),
        ]:
            with pytest.raises(ValueError, match=message):
                error(leaves, fanouts, epsilons)


def test_refuses_heights() -> None:
    for height, match in ((0, "height"), (41, "height"), (6, "at least 3"), (40, "at least 3")):
        with pytest.raises(ValueError, match=match):
            optimal_error(256, height, 1)


def test_levels_that_repeat_the_root_cost_nothing() -> None:
    for shape in itertools.permutations((5, 9, 2**39)):
        if math.prod(shape[1:]) < 7:
            continue
        lower = shape[next(i for i in range(3) if math.prod(shape[i + 1 :]) < 7) :]
        for error in (tree_error_from_variances, refined_error_from_variances):
            whole = error(7, shape, [1.0] * 3)
            assert whole == pytest.approx(error(7, lower, [1.0] * len(lower)), rel=1e-14)
