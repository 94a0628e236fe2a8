"""Noise of temporal nodes that are still open: its errors, its privacy, and what a rollback does.

dptrees does not release totals so (docs/decisions/0046). The tests back what the decision says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from benchmarks.series import any_tree_error, lower_bound, open_nodes_error, open_nodes_plan
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.series.question import CarriedCounts
from dptrees.dpcore.series.temporal import (
    TemporalSetting,
    TemporalTree,
    best_split,
    split_of_fanout,
)
from dptrees.dpcore.series.totals_to_date import PeriodSums
from tests.dpcore.series_runs import KEY, Runs
from tests.transforms.every_kind import ordered_question

Matrix = np.ndarray[Any, Any]


def tree_matrix(tree: TemporalTree) -> tuple[Matrix, list[int]]:
    """(nodes, T) which periods each existing node has, and the level of each."""
    nodes = tree.closed(tree.periods)
    rows = [[each.first <= at <= each.last for at in range(1, tree.periods + 1)] for each in nodes]
    return np.array(rows, float), [each.level for each in nodes]


def least_squares(matrix: Matrix, variances: Matrix) -> Matrix:
    """L with L A = P, P the totals to date, of least variance."""
    periods = matrix.shape[1]
    weighted = matrix.T / variances
    totals = np.tril(np.ones((periods, periods)))
    result: Matrix = totals @ np.linalg.solve(weighted @ matrix, weighted)
    return result


def test_the_error_of_open_nodes_is_that_of_dense_least_squares() -> None:
    for periods in (5, 14, 33):
        plan = open_nodes_plan(periods)
        rows, variances = [], []
        for level, variance in enumerate(plan.variances):
            if not np.isfinite(variance):
                continue
            for node in range(plan.tree.level_sizes[level]):
                inside = plan.tree.leaf_range(level, node)
                rows.append([float(at in inside) for at in range(periods)])
                variances.append(variance)
        matrix, noise = np.array(rows), np.array(variances)
        weights = least_squares(matrix, noise)
        assert np.allclose(weights @ matrix, np.tril(np.ones((periods, periods))))
        squares = (weights**2 @ noise).mean()
        # Of one count at the whole budget: 2 / epsilon^2.
        one = 2 / float(plan.budget.amount) ** 2
        assert open_nodes_error(periods) == pytest.approx((squares / one) ** 0.5, rel=1e-5)
    # Only what is fixed before counts are known has weights of periods that are still to come.
    assert np.abs(np.triu(weights[:, -periods:], 1)).max() > 1e-3


def test_the_best_tree_of_closed_nodes_is_little_better_than_one_share_for_a_level() -> None:
    for periods, least in ((4, 1.0), (14, 1.0), (90, 0.95)):
        planned = best_split(periods, TemporalSetting(power=2)).error
        assert least * planned <= any_tree_error(periods) <= planned * 1.0001
    # It is one of the trees that it is the best of.
    assert any_tree_error(90) < min(
        split_of_fanout(90, fanout, TemporalSetting(power=2)).error for fanout in (2, 4, 8, 12)
    )


def test_the_bound_is_the_nuclear_norm_and_sums_are_near_it() -> None:
    for periods in (5, 60):
        totals = np.tril(np.ones((periods, periods)))
        singular = np.linalg.svd(totals, compute_uv=False)
        assert lower_bound(periods) == pytest.approx(singular.sum() / periods, rel=1e-12)
        assert 1 <= PeriodSums.for_periods(periods).mean_error(1) / lower_bound(periods) < 1.06


# Exact laws. A node of each level has noise z with probability in proportion to 2^-|z|, so the two
# levels lose ln 2 each: the tree at most ln 4.
LOSS = 4
Rows = Callable[[int], int]
Weights = tuple[tuple[int, int, int], tuple[int, int, int]]
# L A = P of two periods, whose nodes are 1, 2 and 1 to 2; with equal noise, times 3.
WEIGHTS: Weights = ((2, -1, 1), (1, 1, 2))


def outputs_law(
    first: int, second: Rows, reach: int, by_node: Weights
) -> dict[tuple[int, int], Fraction]:
    """The law of both outputs, times 3, of all noise up to `reach` at a node.

    Args:
        first: the rows of the first period.
        second: of the second period, which an adversary chooses by the first output.
        reach: of the noise.
        by_node: 3 L.
    """
    # What is measured of 1, 2 and 1 to 2, weighted: L (A x + z).
    of_first = [weights[0] + weights[2] for weights in by_node]
    of_second = [weights[1] + weights[2] for weights in by_node]
    law: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for noise in product(range(-reach, reach + 1), repeat=3):
        early, late = (
            sum(weight * each for weight, each in zip(weights, noise, strict=True))
            for weights in by_node
        )
        # Rows of the second period are not there yet.
        seen = of_first[0] * first + early
        law[seen, of_first[1] * first + of_second[1] * second(seen) + late] += Fraction(
            1, 2 ** sum(map(abs, noise))
        )
    return law


def losses(
    adversary: Rows, moved: tuple[int, int], by_node: Weights = WEIGHTS, reach: int = 6
) -> Iterator[Fraction]:
    """The ratios of the probabilities of all outputs with a unit and without it, both ways.

    The noise of one side reaches further by 1, which is what the shift needs.
    """
    for sign in (1, -1):
        own = outputs_law(1, adversary, reach, by_node)
        other = outputs_law(
            *(1 + sign * moved[0], lambda seen: adversary(seen) + sign * moved[1]),  # noqa: B023
            *(reach + 1, by_node),
        )
        for at, probability in own.items():
            yield probability / other[at] if at in other else Fraction(10**9)


@pytest.mark.parametrize("moved", [(1, 0), (0, 1)])
def test_adaptive_streams_lose_what_the_tree_does(moved: tuple[int, int]) -> None:
    """The adversary chooses the rows of the second period by the first output."""
    adversaries: list[Rows] = [
        lambda _: 0,
        lambda seen: seen % 2,
        lambda seen: 3 if seen > 4 else 0,
        lambda seen: seen * seen % 5,
    ]
    for adversary in adversaries:
        largest = max(losses(adversary, moved))
        # Near the edge of what noise reaches the ratio is the whole loss of both levels.
        assert 2 < largest <= LOSS, moved


def test_weights_that_do_not_cancel_open_nodes_lose_more() -> None:
    """The first output must have no part of the second period: else a shift of the noise of its
    nodes changes what was said before."""
    assert max(losses(lambda _: 0, (0, 1), ((2, -1, 2), (1, 1, 2)))) > LOSS


# A rollback


def test_a_rollback_discloses_rows_if_noise_is_fixed_before_them() -> None:
    """Two runs of the third of four periods, from one backup, under one key and nonce."""
    periods, again = 4, 3
    matrix, levels = tree_matrix(TemporalTree.from_fanout(periods, 2))
    weights = least_squares(matrix, np.ones(len(levels)))
    law = DiscreteLaplace(scale=Fraction(50))
    stream = ReleaseKey(bytes(32)).stream("noise of open nodes")
    noise = law.sample(stream, len(levels)).astype(float)
    rows = np.array([20, 35, 11, 40])
    corrected = rows + np.array([0, 0, 1, 0])
    first, second = (weights @ (matrix @ each + noise) for each in (rows, corrected))
    assert np.abs(first - np.cumsum(rows)).max() > 5  # each by itself is hidden
    assert second[again - 1] - first[again - 1] == pytest.approx(1, abs=1e-9)


def test_a_rollback_of_a_release_draws_afresh() -> None:
    """The same with what dptrees releases: the difference of both is noise of two draws."""
    tree = ordered_question("tree", measure=Measure.EPSILON, amount=Fraction(1, 20))
    differences = []
    for seed in range(8):
        runs = Runs.of(tree, TemporalTree.from_fanout(4, 2), seed).run(2)
        found = []
        for corrected in (0, 1):
            counts = runs.counts[2].copy()
            counts[0] += corrected
            given = CarriedCounts(period=counts, carried=runs.carried(2))
            plan = runs.plan(3)
            name = plan.questions[0].name
            release = release_counts(plan, {name: given}, KEY, nonce=bytes([3]))
            (table,) = (release._read("nodes", name, 0, 0),)
            found.append(table["estimate"].to_numpy())
        differences.append(found[1] - found[0])
    moved = np.abs(np.array(differences)).max(axis=1)
    # Corrected rows alone would differ by at most 1 in every node.
    assert (moved > 1.5).all(), moved
