"""The counts of an irregular tree equal the counts of `dpcore.trees.consistency`, node by node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.trees import consistency
from dptrees.dpcore.trees.consistency import consistent_counts, split_among_children, split_counts
from dptrees.dpcore.trees.estimation import estimation_weights
from dptrees.dpcore.trees.shapes import UniformTree
from tests.dpcore.irregular_trees import random_irregular_tree
from tests.dpcore.trees.test_irregular import irregular


@pytest.mark.parametrize("scale", [0.3, 4.0, 300.0])
@pytest.mark.parametrize("alike", [False, True])
def test_equals_the_split_of_each_node_alone(scale: float, alike: bool) -> None:
    rng = np.random.default_rng(int(scale * 10))
    fanouts = rng.integers(1, 9, 400)
    children = int(fanouts.sum())
    estimates = rng.normal(scale / 2, scale, children)
    estimates[rng.random(children) < 0.3] = 0.5  # ties
    below = np.full(children, 2.0) if alike else rng.uniform(0.5, 9, children)
    totals = rng.poisson(scale * fanouts)
    found = split_among_children(fanouts, estimates, below, totals)
    ends = np.cumsum(fanouts)
    for total, size, end in zip(totals, fanouts, ends, strict=True):
        mine = slice(end - size, end)
        alone = split_counts(estimates[None, mine], below[None, mine], np.array([total]))[0]
        np.testing.assert_array_equal(found[mine], alone)
        assert alone.sum() == total and alone.min() >= 0


def test_equals_the_level_uniform_tree(random_tree: Callable[..., UniformTree]) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        uniform = random_tree(rng)
        weights = estimation_weights(uniform, list(rng.uniform(1, 9, uniform.height + 1)))
        estimates = [rng.normal(4, 9, (3, n)) for n in uniform.level_sizes]
        roots = rng.integers(0, 90, (3, 1))
        pairs = zip(
            consistent_counts(irregular(uniform), weights.below, estimates, roots),
            consistent_counts(weights.tree, weights.below, estimates, roots),
            strict=True,
        )
        for mine, theirs in pairs:
            np.testing.assert_array_equal(mine, theirs)


def test_sums_hold_at_every_node_and_no_count_is_negative() -> None:
    rng = np.random.default_rng(6)
    for _ in range(30):
        tree = random_irregular_tree(rng, height=5, roots=2)
        estimates = [rng.normal(3, 40, (4, n)) for n in tree.level_sizes]
        below: list[Any] = [rng.uniform(0, 3, n) for n in tree.level_sizes]
        counts = consistent_counts(tree, below, estimates, rng.integers(0, 10**9, (4, 2)))
        for level in range(tree.height):
            np.testing.assert_array_equal(tree.child_sum(level, counts[level + 1]), counts[level])
            assert counts[level + 1].min() >= 0 and counts[level + 1].dtype == np.int64


def test_children_that_are_known_exactly_keep_their_counts() -> None:
    rng = np.random.default_rng(7)
    tree = random_irregular_tree(rng)
    truth = tree.level_counts(rng.integers(0, 9, tree.leaves))
    known = [np.zeros(n) for n in tree.level_sizes]
    found = consistent_counts(tree, known, [y.astype(np.float64) for y in truth], truth[0])
    for mine, exact in zip(found, truth, strict=True):
        np.testing.assert_array_equal(mine, exact)


def test_a_level_too_large_for_one_sort_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consistency, "_REMAINDER_BITS", 60)
    with pytest.raises(ValueError, match="split in chunks"):
        split_among_children(
            np.array([2, 3]), np.full(5, 1.5), np.ones(5), np.array([3, 4], dtype=np.int64)
        )
