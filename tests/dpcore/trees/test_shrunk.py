"""Counts drawn to even splits: what they keep, what they are without noise, and that they help."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.trees.consistency import consistent_counts, split_counts
from dptrees.dpcore.trees.isotonic import (
    rising_counts,
    rising_means,
    shrunk_counts,
    shrunk_from_root,
)
from dptrees.dpcore.trees.shapes import UniformTree

TREE = UniformTree(leaves=100, fanouts=(4, 5, 6))


def some_estimates(rows: int, seed: int = 1) -> list[Floats]:
    """Return noisy estimates that are sums of noisy leaves, so that all levels agree."""
    random = np.random.default_rng(seed)
    leaves = random.poisson(1.5, (rows, TREE.leaves)) + random.laplace(0, 2.0, (rows, TREE.leaves))
    return TREE.level_counts(leaves)


def variances(value: float) -> list[Floats]:
    return [np.full(size, value) for size in TREE.level_sizes]


@given(st.lists(st.lists(st.integers(-20, 20), min_size=7, max_size=7), min_size=1, max_size=9))
def test_rising_means_are_isotonic_regression(rows: list[list[int]]) -> None:
    values = np.array(rows, dtype=np.float64)
    expected = [isotonic_regression(row).x for row in values]
    assert np.allclose(rising_means(values), expected, atol=1e-12)


def test_rising_means_are_pooled_from_the_left_bit_for_bit() -> None:
    """One row after the other, by a list of blocks: sums are added in the same order."""
    random = np.random.default_rng(8)
    values = np.cumsum(random.normal(0.2, 3.0, (50, 70)), axis=1)
    for row, found in zip(values.tolist(), rising_means(values).tolist(), strict=True):
        blocks: list[tuple[float, int]] = []
        for value in row:
            last, size = value, 1
            while blocks and blocks[-1][0] * size > last * blocks[-1][1]:
                before, many = blocks.pop()
                last, size = before + last, many + size
            blocks.append((last, size))
        assert found == [total / size for total, size in blocks for _ in range(size)]


@pytest.mark.parametrize("public", [False, True])
def test_rising_counts_are_the_closest_ones(public: bool) -> None:
    """Compare with all nonnegative integers up to 11, by squared errors of prefixes."""
    random = np.random.default_rng(4)
    estimates = random.normal(1, 2, (40, 3))
    totals = np.full(40, 4) if public else None
    grid = np.stack(np.meshgrid(*[np.arange(12)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    grid = grid[grid.sum(axis=1) == 4] if public else grid
    compared = slice(None, -1) if public else slice(None)
    for row, found in zip(estimates, rising_counts(estimates, totals), strict=True):
        cost = ((np.cumsum(grid, axis=1) - np.cumsum(row))[:, compared] ** 2).sum(axis=1)
        own = ((np.cumsum(found) - np.cumsum(row))[compared] ** 2).sum()
        assert (found >= 0).all() and own == pytest.approx(cost.min(), abs=1e-4)
        assert not public or found.sum() == 4


@pytest.mark.parametrize("totals", [None, np.array([[90], [0], [200]])])
def test_they_are_nonnegative_and_add_up(totals: Integers | None) -> None:
    estimates = some_estimates(3)
    for below in (variances(0.0), variances(8.0)):
        counts = shrunk_from_root(TREE, below, estimates, totals)
        assert min(each.min() for each in counts) >= 0
        for level in range(TREE.height):
            assert (TREE.child_sum(level, counts[level + 1]) == counts[level]).all()
        assert totals is None or (counts[0] == totals).all()


def test_below_known_roots_they_are_those_of_the_whole_tree() -> None:
    estimates, below = some_estimates(4), variances(8.0)
    whole = shrunk_from_root(TREE, below, estimates, None)
    sizes = [5, 30]
    for node in range(3):  # the last one has fewer leaves
        own = [each[:, node * size : (node + 1) * size] for each, size in _levels(estimates, sizes)]
        tree = UniformTree(leaves=30, fanouts=(5, 6))
        parts = [np.full(size, 8.0) for size in (1, *sizes)]
        counts = shrunk_counts(tree, parts, own, whole[1][:, node : node + 1])
        for part, (each, size) in zip(counts, _levels(whole, sizes), strict=True):
            assert (part == each[:, node * size : (node + 1) * size]).all()


def _levels(values: list[Floats] | list[Integers], sizes: list[int]) -> list[tuple[Floats, int]]:
    return list(zip(values[1:], [1, *sizes], strict=True))


def test_without_noise_they_are_the_truth() -> None:
    leaves = np.random.default_rng(2).poisson(0.3, (3, TREE.leaves))
    exact = TREE.level_counts(leaves)
    compared = shrunk_from_root(TREE, variances(0.0), [each.astype(float) for each in exact], None)
    assert all((mine == each).all() for mine, each in zip(compared, exact, strict=True))


def test_the_more_noise_the_more_even() -> None:
    estimates = np.array([[9.0, 2.0, 1.0, 0.0]])
    spread = [
        split_counts(estimates, np.full((1, 4), below), np.array([12]), shrunk=True).std()
        for below in (0.0, 4.0, 20.0, 1e6)
    ]
    assert spread[0] > spread[1] > spread[2] > spread[3] == 0
    assert (split_counts(estimates, np.ones((1, 4)), np.array([0]), shrunk=True) == 0).all()


def test_they_are_closer_where_rows_are_few() -> None:
    """Prefixes of 40 rows in a tenth of the cells, over 300 draws of the noise."""
    random = np.random.default_rng(7)
    tree = UniformTree(leaves=256, fanouts=(8, 8, 4))
    exact = np.zeros(256, dtype=np.int64)
    exact[20:46] = random.multinomial(40, np.full(26, 1 / 26))
    # Levels are measured apart; the root's children best. Estimates from below, made to agree.
    below = [np.zeros(1), np.full(8, 4.0), np.full(64, 40.0), np.full(256, 90.0)]
    errors = {"top_down": 0.0, "shrunk": 0.0}
    for _ in range(300):
        estimates = [np.zeros((1, 1))]
        levels = tree.level_counts(exact[None])
        for level in range(1, tree.height + 1):
            scale = (below[level][0] / 2) ** 0.5
            noisy = levels[level] + random.laplace(0, scale, levels[level].shape)
            if level == 1:
                estimates = [noisy.sum(axis=1, keepdims=True), noisy]
                continue
            fanout = tree.fanouts[level - 1]
            excess = estimates[-1] - tree.child_sum(level - 1, noisy)
            estimates.append(noisy + tree.to_children(level - 1, excess) / fanout)
        roots = np.maximum(0, np.rint(estimates[0])).astype(np.int64)
        compared = {
            "top_down": consistent_counts(tree, below, estimates, roots),
            "shrunk": shrunk_from_root(tree, below, estimates, None),
        }
        for name, counts in compared.items():
            errors[name] += float(np.square(np.cumsum(counts[-1]) - np.cumsum(exact)).mean())
    assert errors["shrunk"] < 0.85 * errors["top_down"]
