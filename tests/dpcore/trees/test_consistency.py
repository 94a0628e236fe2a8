"""Consistent counts: the projection is the optimum, sums hold, remainders go to the largest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.trees import consistency
from dptrees.dpcore.trees.consistency import (
    consistent_counts,
    root_count,
    split_among_children,
    split_counts,
)
from dptrees.dpcore.trees.estimation import estimate_down, estimate_up, estimation_weights
from dptrees.dpcore.trees.shapes import UniformTree
from tests.dpcore.cases import for_each
from tests.dpcore.irregular_trees import irregular, random_irregular_tree


def best_by_enumeration(
    estimates: np.ndarray[Any, Any], below: np.ndarray[Any, Any], total: float
) -> np.ndarray[Any, Any]:
    """The optimum over all choices of the children that are positive."""
    best, least = np.zeros(estimates.size), np.inf
    for size in range(1, estimates.size + 1):
        for chosen in itertools.combinations(range(estimates.size), size):
            mine = list(chosen)
            shares = np.zeros(estimates.size)
            multiplier = (estimates[mine].sum() - total) / below[mine].sum()
            shares[mine] = estimates[mine] - multiplier * below[mine]
            loss = ((shares - estimates) ** 2 / below).sum()
            if (shares >= 0).all() and loss < least:
                best, least = shares, loss
    return best


def by_bisection(
    estimates: np.ndarray[Any, Any], below: np.ndarray[Any, Any], totals: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """max(0, u - lambda a) with the lambda of the sum, which falls in lambda, by bisection."""
    reach = (np.abs(estimates).sum(axis=1) + totals) / below.min(axis=1)
    low, high = -reach, reach
    for _ in range(200):
        middle = (low + high) / 2
        sums = np.maximum(0, estimates - middle[:, None] * below).sum(axis=1)
        low, high = np.where(sums > totals, middle, low), np.where(sums > totals, high, middle)
    return np.maximum(0, estimates - high[:, None] * below)


def check_rounded(
    counts: np.ndarray[Any, Any], shares: np.ndarray[Any, Any], totals: np.ndarray[Any, Any]
) -> None:
    """Integers of the right sum, floors of the shares or one more, by largest remainder."""
    close = 1e-5
    assert counts.dtype == np.int64 and (counts >= 0).all()
    np.testing.assert_array_equal(counts.sum(axis=1), totals)
    moved = counts - shares
    assert (moved > -1 - close).all() and (moved < 1 + close).all()
    # A child that was rounded up by less never comes after one that was rounded down by more.
    up, down = np.where(moved > close, moved, 0.0), np.where(moved < -close, -moved, 0.0)
    remainder_up = np.where(up > 0, 1 - up, 2.0).min(axis=1)
    assert (remainder_up >= down.max(axis=1) - close).all()


def random_nodes(rng: np.random.Generator, nodes: int, children: int, alike: bool) -> Any:
    """Nodes whose siblings are alike, as most are, or not, as beside a trimmed one."""
    estimates = rng.normal(2, 6, (nodes, children))
    below = rng.uniform(0.1, 4, (nodes, 1 if alike else children))
    return estimates, np.broadcast_to(below, estimates.shape), rng.integers(0, 9 * children, nodes)


@for_each("alike", [False, True])
@for_each("children", [1, 2, 3, 5])
def test_counts_are_the_rounded_optimum_of_all_choices(children: int, alike: bool) -> None:
    rng = np.random.default_rng(children)
    estimates, below, totals = random_nodes(rng, 150, children, alike)
    best = [best_by_enumeration(*node) for node in zip(estimates, below, totals, strict=True)]
    check_rounded(split_counts(estimates, below, totals), np.array(best), totals)


@pytest.mark.parametrize("alike", [False, True])
@for_each("children", [7, 40, 200])
def test_counts_of_wide_nodes_are_the_rounded_optimum(children: int, alike: bool) -> None:
    """The optimum by Karush, Kuhn, Tucker: one multiplier for all that are positive."""
    rng = np.random.default_rng(children)
    estimates, below, totals = random_nodes(rng, 500, children, alike)
    shares = by_bisection(estimates, below, totals)
    check_rounded(split_counts(estimates, below, totals), shares, totals)


def test_nodes_of_both_kinds_are_split_as_each_alone() -> None:
    rng = np.random.default_rng(1)
    unlike, alike = random_nodes(rng, 50, 6, False), random_nodes(rng, 50, 6, True)
    mixed = [np.stack(pair, axis=1).reshape(100, -1) for pair in zip(unlike, alike, strict=True)]
    together = split_counts(mixed[0], mixed[1], mixed[2][:, 0] if mixed[2].ndim > 1 else mixed[2])
    np.testing.assert_array_equal(together[::2], split_counts(*unlike))
    np.testing.assert_array_equal(together[1::2], split_counts(*alike))


@for_each("shrunk", [False, True])
@for_each("nodes", [1, 2, 127, 128, 129, 257])
def test_counts_do_not_depend_on_the_nodes_beside_them(nodes: int, shrunk: bool) -> None:
    """Blocks of 128 such nodes are split at a time; two at least, so as to add in one order."""
    estimates, below, totals = random_nodes(np.random.default_rng(3), nodes, 256, True)
    below = np.full(below.shape, 2.3)
    found = split_counts(estimates, below, totals, shrunk=shrunk)
    np.testing.assert_array_equal(found, split_counts(estimates, 2.3, totals, shrunk=shrunk))
    turned = split_counts(estimates[::-1], below, totals[::-1], shrunk=shrunk)
    np.testing.assert_array_equal(found, turned[::-1])


def test_equal_remainders_go_by_position_whatever_the_last_bits() -> None:
    """Leaves under one node share a correction, so their remainders are equal but for rounding."""
    rng = np.random.default_rng(2)
    noisy, correction = rng.integers(20, 3000, (2000, 7)), rng.uniform(-3, 3, (2000, 1))
    totals = noisy.sum(axis=1) + rng.integers(-6, 7, 2000)
    counts = split_counts(noisy + correction, np.full((2000, 7), 7.3), totals)
    share, missing = np.divmod(totals - noisy.sum(axis=1), 7)
    assert (counts == noisy + share[:, None] + (np.arange(7) < missing[:, None])).all()


@for_each(
    ("estimates", "total", "expected"),
    [
        ([1.5, 1.5, 1.0], 4, [2, 1, 1]),
        ([0.0, 0.0, 0.0, 0.0], 2, [1, 1, 0, 0]),
        ([-5.0, -1.0, -5.0], 3, [0, 3, 0]),
        ([10.0, 0.0], 0, [0, 0]),
        ([7.0], 4, [4]),
    ],
)
def test_ties_and_edges(estimates: list[float], total: int, expected: list[int]) -> None:
    counts = split_counts(np.array([estimates]), np.ones((1, len(estimates))), np.array([total]))
    assert counts.tolist() == [expected]


def test_children_known_exactly_are_split_evenly_where_they_disagree_with_their_node() -> None:
    for total, expected in ((5, [2, 3]), (7, [3, 4])):
        found = split_counts(np.array([[2.0, 3.0]]), np.zeros((1, 2)), np.array([total]))
        assert found.tolist() == [expected]


@for_each("size", [2.0**30, 2.0**40, 2.0**50])
def test_sums_hold_at_the_largest_counts(size: float) -> None:
    rng = np.random.default_rng(3)
    estimates = rng.uniform(0, size / 256, (200, 256)) + rng.normal(0, 100, (200, 256))
    totals = np.rint(estimates.sum(axis=1) + rng.normal(0, 50, 200)).astype(np.int64)
    counts = split_counts(estimates, rng.uniform(0.1, 9, (200, 256)), totals)
    assert (counts.sum(axis=1) == totals).all() and (counts >= 0).all()


def test_a_whole_tree_adds_up_and_no_count_is_negative(
    random_tree: Callable[..., UniformTree],
) -> None:
    rng = np.random.default_rng(4)
    for _ in range(40):
        tree = random_tree(rng)
        weights = estimation_weights(tree, list(rng.uniform(0.5, 30, tree.height + 1)))
        truth = tree.level_counts(rng.poisson(2, (4, tree.leaves)))
        noisy = [exact + rng.integers(-9, 10, exact.shape) for exact in truth]
        estimates = estimate_down(weights, estimate_up(weights, noisy))
        counts = consistent_counts(weights.tree, weights.below, estimates, root_count(estimates[0]))
        assert (counts[0] == np.maximum(0, np.rint(estimates[0]))).all()
        for level in range(tree.height):
            assert (tree.child_sum(level, counts[level + 1]) == counts[level]).all()
        assert (counts[-1] >= 0).all()
        alone = consistent_counts(
            weights.tree, weights.below, [u[1] for u in estimates], counts[0][1]
        )
        for one, batch in zip(alone, counts, strict=True):
            assert (one == batch[1]).all()


def test_true_counts_stay_as_they_are(random_tree: Callable[..., UniformTree]) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        tree = random_tree(rng)
        weights = estimation_weights(tree, list(rng.uniform(0.5, 30, tree.height + 1)))
        truth = tree.level_counts(rng.poisson(2, (3, tree.leaves)))
        found = consistent_counts(
            weights.tree, weights.below, [t.astype(float) for t in truth], truth[0]
        )
        for level, exact in zip(found, truth, strict=True):
            assert (level == exact).all()


def test_the_root_is_never_negative() -> None:
    assert root_count(np.array([-0.6, -9.0, 0.4, 0.6, 1e15])).tolist() == [0, 0, 0, 1, 10**15]


@pytest.mark.parametrize("alike", [False, True])
@for_each("scale", [0.3, 4.0, 300.0])
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


def fewest(
    fanouts: list[int], estimates: Any, totals: list[int], below: Any = None
) -> np.ndarray[Any, Any]:
    values = np.asarray(estimates, float)
    return split_among_children(
        np.array(fanouts),
        values,
        np.ones(len(values)) if below is None else np.asarray(below, float),
        np.array(totals),
        fewest=True,
    )


@for_each(
    ("estimates", "total", "counts"),
    [
        ([4.0, 3.0, 2.0], 9, [4, 3, 2]),
        ([50.0, 2.0, -2.0], 50, [50, 0, 0]),  # a share of 1; it must be 1.21
        ([50.0, 3.0, -3.0], 50, [49, 1, 0]),  # a share of 1.5
        ([50.0, 30.0, 2.0], 82, [50, 30, 2]),  # it must be 1.38
        ([50.0, 30.0, 1.0], 81, [51, 30, 0]),
        ([-5.0, -5.0], 3, [2, 1]),  # ties by position
        ([7.0], 4, [4]),
        ([9.0, 1.0, -4.0], 0, [0, 0, 0]),
    ],
)
def test_examples(estimates: list[float], total: int, counts: list[int]) -> None:
    assert fewest([len(estimates)], estimates, [total]).tolist() == counts


def dropped_one_by_one(estimates: Any, below: Any, total: int) -> dict[int, Fraction]:
    """The shares that are left, in exact arithmetic, from all children down."""
    u, a = ([Fraction(float(x)) for x in each] for each in (estimates, below))
    left = sorted(range(len(u)), key=lambda c: (-u[c] / a[c], c))
    while True:
        j, spread = len(left), sum(a[c] for c in left)
        multiplier = (sum(u[c] for c in left) - total) / spread
        shares = {c: u[c] - multiplier * a[c] for c in left}
        last = left[-1]
        if j == 1:
            return shares
        above = sum(max(0, u[c] - Fraction(30 * math.sqrt(a[c]))) for c in left)
        counted = max(Fraction(0), total - above)
        q = counted**2 / (j * spread) * min(1, Fraction(len(u) + 1 - j, j))
        error = a[last] * (1 - a[last] / spread)
        if shares[last] > 0 and shares[last] ** 2 >= 3 * q / (q + 12) * error:
            return shares
        left.pop()


@for_each("seed", range(40))
def test_children_are_dropped_as_one_by_one_in_exact_arithmetic(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fanouts = rng.integers(1, 30, 50)
    starts, children = np.cumsum(fanouts) - fanouts, int(fanouts.sum())
    # Whole 2^-20, as a is in the program: then both compute the same.
    below = 9 * (np.rint(rng.uniform(0.3, 1, children) * 2**20) / 2**20 if seed % 2 else 1.0)
    below = np.broadcast_to(below, children).copy()
    below[starts] = 9.0
    estimates = np.rint(rng.choice([0, 0, 5, 300], children) + rng.laplace(0, 3, children))
    totals = np.maximum(0, np.rint(np.add.reduceat(estimates, starts))).astype(np.int64)
    counts = fewest(fanouts.tolist(), estimates, totals.tolist(), below)
    assert counts.min() >= 0 and np.array_equal(np.add.reduceat(counts, starts), totals)
    for node in np.flatnonzero(totals):
        own = slice(starts[node], starts[node] + fanouts[node])
        shares = dropped_one_by_one(estimates[own], below[own], int(totals[node]))
        for child, count in enumerate(counts[own].tolist()):
            assert abs(count - shares.get(child, Fraction(0))) < 1 + Fraction(1, 1000)
            assert child in shares or count == 0


def test_a_dropped_child_adds_its_squared_share_over_its_error_to_the_fit() -> None:
    """By dense least squares with the sum as a constraint."""
    rng = np.random.default_rng(3)
    a, u, total = rng.uniform(1, 4, 7), rng.normal(5, 3, 7), 40.0

    def fit(kept: list[int]) -> tuple[Any, float]:
        basis = np.zeros((7, len(kept) - 1))
        basis[kept[1:], np.arange(len(kept) - 1)] = 1
        basis[kept[0]] = -1
        start = np.zeros(7)
        start[kept[0]] = total
        scale = 1 / np.sqrt(a)
        free = np.linalg.lstsq(basis * scale[:, None], (u - start) * scale, rcond=None)[0]
        shares = start + basis @ free
        return shares, float((np.square(u - shares) / a).sum())

    whole, loss = fit(list(range(7)))
    for child in range(7):
        _, without = fit([each for each in range(7) if each != child])
        error = a[child] * (1 - a[child] / a.sum())
        assert without - loss == pytest.approx(whole[child] ** 2 / error)


def test_nodes_are_split_each_by_itself() -> None:
    """Any cut into chunks gives the same integers."""
    rng = np.random.default_rng(1)
    fanouts = rng.integers(1, 9, 100)
    estimates = rng.laplace(3, 5, fanouts.sum())
    totals = rng.integers(0, 40, 100)
    whole = fewest(fanouts.tolist(), estimates, totals.tolist())
    for cut in (1, 37, 99):
        children = fanouts[:cut].sum()
        parts = [
            fewest(fanouts[:cut].tolist(), estimates[:children], totals[:cut].tolist()),
            fewest(fanouts[cut:].tolist(), estimates[children:], totals[cut:].tolist()),
        ]
        assert np.array_equal(np.concatenate(parts), whole)


@for_each("scale", [1e3, 1e9, 1e15])
def test_sums_hold_where_noise_is_out_of_all_proportion(scale: float) -> None:
    rng = np.random.default_rng(4)
    fanouts, totals = [1000, 1, 50], [10**6, 7, 2**40]
    estimates = rng.normal(0, scale, 1051)
    counts = fewest(fanouts, estimates, totals, np.full(1051, scale**2))
    sums = np.add.reduceat(counts, [0, 1000, 1001])
    assert counts.min() >= 0 and sums.tolist() == totals


@for_each(
    ("large", "size", "others", "rows", "error", "most"),
    [(1, 1000, 200, 1, 2.0, 1.15), (1, 1000, 200, 2, 2.0, 1.07), (1, 1000, 200, 3, 2.0, 1.05),
     (1, 100_000, 50, 3, 2.0, 1.05), (5, 1_000_000, 100, 30, 20.0, 1.15)],
)  # fmt: skip
def test_a_few_large_children_do_not_take_the_rows_of_the_others(
    large: int, size: int, others: int, rows: int, error: float, most: float
) -> None:
    """The error beside the projection's, which was up to 1.45 times as large where t was used."""
    truth, rng = np.repeat([size, rows], [large, others]), np.random.default_rng(6)
    estimates = truth + np.rint(rng.normal(0, error, (300, len(truth))))
    estimates += (truth.sum() - estimates.sum(axis=1, keepdims=True)) / len(truth)
    square, bias = {}, {}
    for kind in (False, True):
        errors = split_among_children(
            np.full(300, len(truth)), estimates.ravel(), np.full(estimates.size, error**2),
            np.full(300, truth.sum()), fewest=kind,
        ).reshape(estimates.shape) - truth  # fmt: skip
        square[kind], bias[kind] = np.square(errors).mean(), errors[:, :large].mean()
    # Of 15,000 and more errors whose noise is the same: the ratio's standard error is below .01.
    assert square[True] < most**2 * square[False]
    assert abs(bias[True] - bias[False]) < 0.15 * error


def test_few_empty_nodes_get_rows_at_no_greater_error() -> None:
    """What it is for, on 3,000 nodes of 30 children: two in three empty, one of 50."""
    rng = np.random.default_rng(2)
    truth = np.where(np.arange(30) % 3 == 0, 50, 0)
    estimates = truth + rng.laplace(0, 4, (3000, 30))
    arguments = (
        *(np.full(3000, 30), estimates.ravel(), np.full(90_000, 32.0)),
        np.full(3000, truth.sum()),
    )
    wrong, square = {}, {}
    for kind in (False, True):
        errors = split_among_children(*arguments, fewest=kind).reshape(3000, 30) - truth
        wrong[kind] = (errors[:, truth == 0] > 0).mean()
        square[kind] = np.square(errors).mean()
    # The standard error of a part of 60,000 is below .002, that of a mean square .03 of it.
    assert wrong[True] < 0.5 * wrong[False] and square[True] < 1.1 * square[False]
