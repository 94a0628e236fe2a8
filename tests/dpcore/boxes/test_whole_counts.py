"""Whole counts of grown trees: nonnegative, they add up, what is known to be empty stays so, and
each family is the nearest point of the simplex up to rounding."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from dptrees.dpcore.boxes.partition import (
    Estimates,
    EvenShares,
    GrownTree,
    Nodes,
    least_squares,
    whole_counts,
)
from dptrees.dpcore.boxes.plan import GrowthRule, grow
from tests.dpcore.boxes.grown_trees import ROOTS, random_tree


def compute_counts(tree: GrownTree) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    found = least_squares(tree)
    estimates = [each.estimate for each in found.estimates]
    spreads = list(found.below)
    return whole_counts(tree, estimates, spreads), estimates, spreads


@pytest.mark.parametrize("root", ROOTS)
def test_nonnegative_sums_and_empty_nodes(root: str) -> None:
    rng = np.random.default_rng(ROOTS.index(root))
    for _ in range(200):
        tree = random_tree(rng, root)
        counts, estimates, _ = compute_counts(tree)
        assert counts[0][0] == max(0, np.rint(estimates[0][0]))
        for place, above, level in tree.pairs():
            sums = counts[place].reshape(-1, level.fanout(above)).sum(axis=1)
            assert np.array_equal(sums, counts[place - 1][level.split(above)])
            assert not counts[place][level.variance == 0].any()
        assert all(own.dtype == np.int64 and own.min() >= 0 for own in counts)


def nearest(target: np.ndarray, spread: np.ndarray, total: float) -> np.ndarray:
    """The projection by a solver, over the children that rows can be in."""
    free = spread > 0
    if total == 0:
        return np.zeros(len(target))

    def excess(multiplier: float) -> float:
        return float(np.maximum(0, target - multiplier * spread)[free].sum() - total)

    width = (np.abs(target).sum() + total + 1) / spread[free].min()
    found = optimize.brentq(excess, -width, width, xtol=1e-13, rtol=1e-14, maxiter=1000)
    return np.where(free, np.maximum(0, target - found * spread), 0.0)


@pytest.mark.parametrize("root", ROOTS)
def test_each_family_is_the_projection_rounded(root: str) -> None:
    rng = np.random.default_rng(30 + ROOTS.index(root))
    for _ in range(60):
        tree = random_tree(rng, root)
        counts, estimates, spreads = compute_counts(tree)
        for place, above, level in tree.pairs():
            fanout = level.fanout(above)
            families = zip(
                *(
                    own.reshape(-1, fanout)
                    for own in (counts[place], estimates[place], spreads[place])
                ),
                counts[place - 1][level.split(above)],
                strict=True,
            )
            for own, target, spread, total in families:
                assert np.abs(own - nearest(target, spread, float(total))).max() < 1 + 1e-6


def test_large_counts_beside_empty_siblings() -> None:
    """2^40 rows in one child of 16, 14 without a cell."""
    tree = random_tree(np.random.default_rng(0), "measured", steps=(4,))
    spread = np.zeros(16)
    spread[[3, 15]] = 4.0, 1.0
    estimate = np.zeros(16)
    estimate[[3, 15]] = 2.0**40, -3.0
    counts = whole_counts(tree, [np.array([2.0**40 + 0.4]), estimate], [np.ones(1), spread])
    assert counts[1][3] == 2**40 and counts[1].sum() == 2**40
    # Without the rule for empty siblings they would share what is left over.
    loose = whole_counts(tree, [np.array([2.0**40 + 99]), estimate], [np.ones(1), np.ones(16)])
    assert loose[1][spread == 0].any()


def test_rows_that_no_child_was_estimated_to_have_go_to_those_with_cells() -> None:
    """All of a surplus, by how well each is known; siblings that are known to be empty get none."""
    for total in (9.0, 100.0, 2.0**40):
        tree = random_tree(np.random.default_rng(0), "measured", steps=(3,))
        estimate, spread = np.zeros(8), np.zeros(8)
        estimate[[1, 4, 6]], spread[[1, 4, 6]] = (4.0, 5.0, -2.0), (1.0, 1.0, 2.0)
        counts = whole_counts(tree, [np.array([total]), estimate], [np.ones(1), spread])[1]
        assert counts.sum() == total and not counts[spread == 0].any()
        assert np.abs(counts - nearest(estimate, spread, total)).max() <= 1 + 1e-3


class _Doubling:
    """Two bits, nothing empty."""

    bits = 2

    def has_cells(self, depth: int, nodes: Nodes) -> np.ndarray:
        return np.ones(len(nodes), np.bool_)

    def is_divisible(self, depth: int, nodes: Nodes) -> np.ndarray:
        return np.full(len(nodes), depth < self.bits)


def test_counts_of_even_shares_are_close_to_them() -> None:
    """The shares are consistent already: only rounding is left, of less than 1 row a level."""
    rng = np.random.default_rng(6)

    class Noise:
        def at(self, level: int, depth: int, nodes: Nodes) -> Estimates:
            return Estimates(rng.normal(4.0, 5.0, len(nodes)), np.ones(len(nodes)))

        def variance(self, level: int) -> float:
            return 1.0

    for _ in range(50):
        tree, running = grow(_Doubling(), (0, 1, 2), Noise(), GrowthRule(most=4), EvenShares())
        spreads = [np.where(level.variance > 0, 1.0, 0.0) for level in tree.levels]
        counts = whole_counts(tree, [each.estimate for each in running], spreads)
        for place, (own, each) in enumerate(zip(counts, running, strict=True)):
            assert np.abs(own - each.estimate).max() < place + 1
