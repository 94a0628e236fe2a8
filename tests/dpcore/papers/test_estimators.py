"""The papers' estimators equal their definitions: least squares on the measurements they may use,
sums over covers found by the paper's procedure, and the printed variances."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.papers.forest import independent_estimates
from dptrees.dpcore.papers.honaker import TreeEstimate, estimate_tree
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import Estimator
from tests.dpcore.conftest import random_tree

SMALL = {"height": 3, "fanout": 3}
EFFICIENT = (Estimator.ABOVE, Estimator.FULL)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A tree, its levels' variances, and a matrix of all that is known: rows are measured nodes."""

    tree: UniformTree
    variances: list[float]
    public: bool

    @property
    def levels(self) -> list[int]:
        return [level for level, v in enumerate(self.variances) if math.isfinite(v)]

    def nodes(self) -> list[tuple[int, int]]:
        return [(level, v) for level in self.levels for v in range(self.tree.level_sizes[level])]

    def row(self, level: int, node: int) -> Floats:
        row = np.zeros(self.tree.leaves)
        row[list(self.tree.leaf_range(level, node))] = 1
        return row

    def best_weights(self, target: Floats, allowed: Callable[[int, int], bool]) -> Floats | None:
        """The weights of least variance among the unbiased ones, over the allowed measurements.

        The minimum of sum s x^2 under X' x = target, by its conditions; None if nothing is
        unbiased.
        """
        nodes = self.nodes()
        chosen = np.array([allowed(*node) for node in nodes])
        rows = np.array([self.row(*node) for node in nodes])[chosen]
        spread = np.array([self.variances[level] for level, _ in nodes])[chosen]
        count, leaves = rows.shape
        system = np.block([[np.diag(spread), rows], [rows.T, np.zeros((leaves, leaves))]])
        expected = np.concatenate([np.zeros(count), target])
        solution = np.linalg.lstsq(system, expected, rcond=None)[0]
        if not np.allclose(system @ solution, expected, atol=1e-8):
            return None
        weights = np.zeros(len(nodes))
        weights[chosen] = solution[:count]
        return weights

    def responses(self, estimator: Estimator) -> TreeEstimate:
        """Return the estimates if one measured node has the value 1 and all others 0, one tree of a
        batch for each measured node."""
        sizes, place = self.tree.level_sizes, 0
        count = len(self.nodes())
        levels: list[Any] = [None] * len(sizes)
        for level in self.levels:
            levels[level] = np.eye(count, dtype=np.int64)[:, place : place + sizes[level]]
            place += sizes[level]
        total = None
        if self.public:
            total, levels[0] = levels[0][:, 0], None
        return estimate_tree(estimator, self.tree, self.variances, levels, total=total)

    def spread(self) -> Floats:
        return np.array([self.variances[level] for level, _ in self.nodes()])

    def is_below(self, top: tuple[int, int]) -> Callable[[int, int], bool]:
        """Whether a node is that node or lies below it."""
        held = self.tree.leaf_range(*top)

        def below(level: int, node: int) -> bool:
            mine = self.tree.leaf_range(level, node)
            return level >= top[0] and held.start <= mine.start < held.stop

        return below

    def cover(self, leaves: range) -> list[tuple[int, int]]:
        """The paper's procedure: from the root, take every node of a level that still fits."""
        rest, taken = set(leaves), []
        for level, size in enumerate(self.tree.level_sizes):
            for node in range(size):
                held = set(self.tree.leaf_range(level, node))
                if held <= rest:
                    taken.append((level, node))
                    rest -= held
        assert not rest
        return taken


def random_case(rng: np.random.Generator, *, public: bool) -> Case:
    tree = random_tree(rng, **SMALL)
    variances = [float(v) for v in rng.uniform(0.5, 40, tree.height + 1)]
    for level in range(tree.height):
        if rng.random() < 0.35:
            variances[level] = math.inf
    if public:
        variances[0] = 0.0
    return Case(tree=tree, variances=variances, public=public)


CASES = [
    random_case(rng, public=public)
    for rng in map(np.random.default_rng, range(12))
    for public in (False, True)
]
Usable = Callable[[int, int], bool]


def estimators(case: Case) -> list[Estimator]:
    return [each for each in Estimator if case.public or each is not Estimator.REFINED]


def check_nodes(case: Case, estimator: Estimator) -> None:
    """Each node's estimate has the weights and the variance of least squares on what is usable."""
    found = case.responses(estimator)
    for level, size in enumerate(case.tree.level_sizes):
        for node in range(size):
            weights = case.best_weights(
                case.row(level, node), usable_by(case, estimator, (level, node))
            )
            variance = found.level_variances[level][node]
            if weights is None:
                assert math.isinf(variance)
                assert np.isnan(found.levels[level][:, node]).all()
                continue
            np.testing.assert_allclose(found.levels[level][:, node], weights, atol=1e-8)
            assert variance == pytest.approx(float(weights**2 @ case.spread()), abs=1e-9)


def usable_by(case: Case, estimator: Estimator, top: tuple[int, int]) -> Usable:
    """What an estimator may use for a node: what is below it, what is not below, everything, or
    the nearest measurements."""
    below = case.is_below(top)
    nearest = min(each for each in case.levels if each >= top[0])
    return {
        Estimator.BELOW: below,
        Estimator.REFINED: below,
        Estimator.ABOVE: lambda level, node: (level, node) == top or not below(level, node),
        Estimator.FULL: lambda level, node: True,
        Estimator.NONE: lambda level, node: level == nearest and below(level, node),
    }[estimator]


@pytest.mark.parametrize("estimator", Estimator)
def test_nodes_are_least_squares_on_what_an_estimator_may_use(estimator: Estimator) -> None:
    for case in CASES:
        if estimator in estimators(case):
            check_nodes(case, estimator)


def test_prefixes_are_sums_over_covers() -> None:
    for case in CASES:
        leaves = case.tree.leaves
        for estimator in estimators(case):
            found = case.responses(estimator)

            def over(nodes: list[tuple[int, int]], found: TreeEstimate = found) -> Any:
                return sum((found.levels[at][:, node] for at, node in nodes), np.zeros(1))

            for leaf in range(leaves):
                expected = over(case.cover(range(leaf + 1)))
                if estimator is Estimator.REFINED:
                    rest = over(case.cover(range(leaf + 1, leaves)))
                    expected = (expected + found.levels[0][:, 0] - rest) / 2
                elif estimator in EFFICIENT:
                    expected = found.levels[-1][:, : leaf + 1].sum(axis=1)
                np.testing.assert_allclose(found.prefixes[:, leaf], expected, atol=1e-9)
            variances = found.prefixes.T**2 @ case.spread()
            np.testing.assert_allclose(found.prefix_variances, variances, atol=1e-8)
            assert found.prefix_variances.min() >= 0


def sizes_for(estimator: Estimator, tree: UniformTree, variances: list[float]) -> TreeEstimate:
    """For the variances alone: any measurements do."""
    public = variances[0] == 0
    noisy: list[Any] = [
        np.zeros(size) if math.isfinite(v) else None
        for size, v in zip(tree.level_sizes, variances, strict=True)
    ]
    if public:
        noisy[0] = None
    return estimate_tree(estimator, tree, variances, noisy, total=0 if public else None)


def test_honakers_simulation() -> None:
    """A binary tree of 16 leaves and equal noise: the exact ratios behind the paper's figure 4."""
    for root, ratios in (
        (0.0, [0.0, 0.2667, 0.3524, 0.4214, 0.6054]),
        (1.0, [0.5161, 0.3957, 0.3846, 0.4295, 0.6074]),
    ):
        found = sizes_for(
            Estimator.FULL, UniformTree(leaves=16, fanouts=(2,) * 4), [root, 1, 1, 1, 1]
        )
        for variances, ratio in zip(found.level_variances, ratios, strict=True):
            np.testing.assert_allclose(variances, ratio, atol=5e-5)


def test_honakers_examples() -> None:
    tree, variances = UniformTree(leaves=8, fanouts=(2,) * 3), [0.0, 1.0, 1.0, 1.0]
    noisy = [None, np.array([7, 9]), np.array([3, 5, 4, 4]), np.array([1, 2, 3, 1, 2, 0, 1, 4])]
    below = estimate_tree(Estimator.BELOW, tree, variances, noisy, total=15)
    assert below.levels[1][0] == pytest.approx((7 + 8 / 2 + 7 / 4) / (7 / 4))  # equation 9
    above = estimate_tree(Estimator.ABOVE, tree, variances, noisy, total=15)
    np.testing.assert_allclose(above.level_variances[1], 1 / (11 / 4))  # equation 12
    other = 15 - (9 + 8 / 2 + 7 / 4) / (7 / 4)
    assert above.levels[1][0] == pytest.approx((7 + 7 / 4 * other) / (11 / 4))


def test_the_limits_in_a_tall_tree() -> None:
    """Halves from below, a third from above, and 5/16 together: equation 13's limit, corrected."""
    tree = UniformTree(leaves=2**14, fanouts=(2,) * 14)
    variances = [0.0, *[1.0] * 14]
    for estimator, level, limit in [
        (Estimator.BELOW, 1, 1 / 2),
        (Estimator.ABOVE, 1, 1 / 3),
        (Estimator.FULL, 2, 5 / 16),
    ]:
        found = sizes_for(estimator, tree, variances).level_variances[level]
        np.testing.assert_allclose(found, limit, rtol=1e-3)


def test_plain_prefixes_have_the_error_of_theorem_iv_1() -> None:
    for fanouts in ((5,), (2, 2, 2), (3, 4), (4, 2, 3)):
        epsilons = np.arange(1.0, len(fanouts) + 1)
        leaves = math.prod(fanouts)
        found = sizes_for(
            Estimator.NONE, UniformTree(leaves=leaves, fanouts=fanouts), [0.0, *(8 / epsilons**2)]
        )
        expected = 4 * leaves * sum((np.array(fanouts) - 1) / epsilons**2)
        assert found.prefix_variances.sum() == pytest.approx(expected), fanouts


def test_refined_prefixes_have_the_error_of_lemma_iv_4() -> None:
    for fanout, height in ((2, 1), (2, 6), (3, 4), (16, 2)):
        leaves, epsilon = fanout**height, 0.7
        tree = UniformTree(leaves=leaves, fanouts=(fanout,) * height)
        variances = [0.0, *[8 / epsilon**2] * height]
        found = sizes_for(Estimator.REFINED, tree, variances)
        level_sums = [
            1 / sum(fanout**-j for j in range(height - level + 1)) for level in range(1, height + 1)
        ]
        expected = 2 * leaves * (fanout - 1) / epsilon**2 * sum(level_sums)
        assert found.prefix_variances.sum() == pytest.approx(expected), (fanout, height)
        below = sizes_for(Estimator.BELOW, tree, variances)
        assert below.prefix_variances.sum() == pytest.approx(2 * expected), (fanout, height)
        for level, share in enumerate(level_sums, start=1):  # proposition B.1
            np.testing.assert_allclose(below.level_variances[level], share * 8 / epsilon**2)


def test_independent_prefixes() -> None:
    for public in (False, True):
        rng = np.random.default_rng(5)
        for _ in range(20):
            tree = random_tree(rng)
            count, leaves = tree.leaves - public, tree.leaves
            measured = rng.integers(-9, 99, (3, count))
            total = rng.integers(0, 99, 3) if public else None
            found = independent_estimates(tree, measured, 2.5, total=total)
            points = measured if total is None else np.column_stack([measured, total])
            np.testing.assert_array_equal(found.prefixes, points)
            np.testing.assert_array_equal(found.prefix_variances, 2.5 * (np.arange(leaves) < count))
            units = independent_estimates(
                tree, np.eye(count), 2.5, total=np.zeros(count, np.int64) if public else None
            )
            for level, (values, spread) in enumerate(
                zip(found.levels, found.level_variances, strict=True)
            ):
                for node in range(tree.level_sizes[level]):
                    held = tree.leaf_range(level, node)
                    before = points[:, held.start - 1] if held.start else 0
                    np.testing.assert_array_equal(
                        values[:, node], points[:, held.stop - 1] - before
                    )
                np.testing.assert_allclose(spread, 2.5 * (units.levels[level] ** 2).sum(axis=0))


def test_one_leaf_and_batches() -> None:
    for estimator in Estimator:
        alone = UniformTree(leaves=1, fanouts=())
        known = estimate_tree(estimator, alone, [0.0], [None], total=np.array([4, 6]))
        assert known.levels[0].tolist() == known.prefixes.tolist() == [[4.0], [6.0]], estimator
        assert known.prefix_variances.tolist() == [0.0], estimator
        if estimator is not Estimator.REFINED:
            noisy = estimate_tree(estimator, alone, [3.0], [np.array([5])])
            assert (noisy.prefixes.tolist(), noisy.prefix_variances.tolist()) == ([5.0], [3.0])
        tree, rng = UniformTree(leaves=11, fanouts=(3, 4)), np.random.default_rng(1)
        batch = [None, rng.integers(0, 9, (2, 5, 3)), rng.integers(0, 9, (2, 5, 11))]
        totals = rng.integers(0, 99, (2, 5))
        spread = [0.0, 2.0, 1.0]
        together = estimate_tree(estimator, tree, spread, batch, total=totals)
        single = [None, batch[1][1, 2], batch[2][1, 2]]
        one = estimate_tree(estimator, tree, spread, single, total=int(totals[1, 2]))
        np.testing.assert_array_equal(together.prefixes[1, 2], one.prefixes)
        for many, few in zip(together.levels, one.levels, strict=True):
            np.testing.assert_array_equal(many[1, 2], few)
        shared = estimate_tree(estimator, tree, spread, batch, total=7)  # one N for the whole batch
        assert shared.prefixes.shape == (2, 5, 11), estimator
        np.testing.assert_allclose(shared.prefixes[..., -1], 7.0)


TREE = UniformTree(leaves=4, fanouts=(2, 2))
MIDDLE, LEAVES = np.array([3, 4]), np.array([1, 2, 3, 4])


def test_refuses() -> None:
    for variances, measurements, total, rule in [
        ([0.0, 1.0], [None, MIDDLE, LEAVES], 7, "2 of them for 3 levels"),
        ([0.0, -1.0, 1.0], [None, MIDDLE, LEAVES], 7, "negative or not a number"),
        ([0.0, math.nan, 1.0], [None, MIDDLE, LEAVES], 7, "negative or not a number"),
        ([0.0, 1.0, math.inf], [None, MIDDLE, None], 7, "leaves must be measured"),
        ([0.0, 1.0, 1.0], [None, MIDDLE, LEAVES], None, "must be 0 where total is given"),
        ([2.0, 1.0, 1.0], [None, MIDDLE, LEAVES], 7, "must be 0 where total is given"),
        ([math.inf, 1.0, 1.0], [None, MIDDLE, LEAVES], 7, "must be 0 where total is given"),
        ([0.0, 1.0, 1.0], [MIDDLE, LEAVES], 7, "2 for 3 levels"),
        ([0.0, 1.0, 1.0], [np.array([7]), MIDDLE, LEAVES], 7, "level 0 must be None"),
        ([0.0, math.inf, 1.0], [None, MIDDLE, LEAVES], 7, "level 1 must be None"),
        ([0.0, 1.0, 1.0], [None, None, LEAVES], 7, "level 1 must be an array"),
        ([0.0, 1.0, 1.0], [None, LEAVES, LEAVES], 7, r"level 1 has shape \(4,\), not \(2,\)"),
        ([0.0, 1.0, 1.0], [None, MIDDLE, LEAVES[None]], 7, r"level 1 has shape \(2,\), not \(1, 2"),
        ([0.0, 1.0, 1.0], [None, MIDDLE, LEAVES], np.array([7, 8]), r"total: shape \(2,\)"),
    ]:
        with pytest.raises(ValueError, match=rule):
            estimate_tree(Estimator.BELOW, TREE, variances, measurements, total=total)


def test_refuses_what_an_estimator_cannot_do() -> None:
    with pytest.raises(ValueError, match="refined needs a public total"):
        estimate_tree(Estimator.REFINED, TREE, [1.0, 1.0, 1.0], [LEAVES[:1], MIDDLE, LEAVES])
    with pytest.raises(ValueError, match=r"shape \(4,\) instead of \(..., 3\)"):
        independent_estimates(TREE, LEAVES, 1.0, total=10)
    with pytest.raises(ValueError, match=r"shape \(3,\) instead of \(..., 4\)"):
        independent_estimates(TREE, LEAVES[:3], 1.0)
    for variance in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="not finite and nonnegative"):
            independent_estimates(TREE, LEAVES, variance)
