"""Counts averaged over the trees that explain the measurements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from dptrees.dpcore.adaptive.averaging import (
    Average,
    Explained,
    average_down,
    explain_leaf,
    explain_parents,
)
from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.planner import plan_adaptive
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.setting import TreeSetting
from tests.dpcore.adaptive_trees import random_adaptive_plan, solve_adaptive, source

EPSILON = Budget(measure=Measure.EPSILON, amount=Fraction(1))


@dataclass(frozen=True)
class Node:
    """A node of a tree of objects, which follows the formulas of the module one by one."""

    leaves: int
    measured: tuple[tuple[float, float], ...]
    children: tuple[Node, ...] = ()

    @property
    def below(self) -> list[tuple[int, float, float]]:
        """(L, y, s) of all measurements of the node and below it."""
        own = [(self.leaves, y, s) for y, s in self.measured]
        return own + [each for child in self.children for each in child.below]

    @property
    def even(self) -> tuple[float, float, float]:
        """(z, a, score) if all below is even, by weighted least squares."""
        sizes, values, variances = np.array(self.below).T
        precision = (sizes**2 / variances).sum()
        density = (sizes * values / variances).sum() / precision
        misfit = ((values - sizes * density) ** 2 / variances).sum()
        return self.leaves * density, self.leaves**2 / precision, -misfit / 2 - 1

    @property
    def split(self) -> tuple[float, float, float]:
        """(z, a, score) if the children explain themselves."""
        z, a, score = (
            sum(each[i] for each in map(Node.both.fget, self.children)) for i in range(3)
        )
        for y, s in self.measured:
            score -= (y - z) ** 2 / (2 * (s + a))
            z, a = (z / a + y / s) / (1 / a + 1 / s), 1 / (1 / a + 1 / s)
        return z, a, score

    @property
    def weight(self) -> float:
        """w, of even."""
        return 1.0 if not self.children else 1 / (1 + math.exp(self.split[2] - self.even[2]))

    @property
    def both(self) -> tuple[float, float, float]:
        if not self.children:
            return self.even
        even, split, w = self.even, self.split, self.weight
        mixed = [w * ours + (1 - w) * theirs for ours, theirs in zip(even, split, strict=True)]
        return mixed[0], mixed[1], math.log(math.exp(even[2]) + math.exp(split[2]))

    def down(self, total: float) -> list[float]:
        """The averages of the leaves, from the node's total."""
        if not self.children:
            return [total / self.leaves] * self.leaves
        explained = [child.both for child in self.children]
        rest = total - sum(z for z, _, _ in explained)
        whole = sum(a for _, a, _ in explained)
        split = [
            leaf
            for child, (z, a, _) in zip(self.children, explained, strict=True)
            for leaf in child.down(z + a / whole * rest)
        ]
        return [self.weight * total / self.leaves + (1 - self.weight) * leaf for leaf in split]


def random_numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> Integers:
    return rng.integers(-5, 30, shape)


@pytest.mark.parametrize("seed", range(20))
def test_formulas_one_node_at_a_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = UniformTree(leaves=int(rng.integers(5, 9)), fanouts=(2, 2, 2))
    variances = rng.uniform(1, 20, 4)
    last = rng.uniform(1, 20, 4)
    numbers = [random_numbers(rng, (1, size)) for size in tree.level_sizes]
    again = [random_numbers(rng, (1, size)) for size in tree.level_sizes]
    splits = [rng.random((1, size)) < 0.7 for size in tree.level_sizes[:-1]]
    leaves = [
        np.array([[len(tree.leaf_range(level, node)) for node in range(size)]])
        for level, size in enumerate(tree.level_sizes)
    ]
    cells = numbers[3].astype(np.float64)
    explained = [explain_leaf((cells, np.full(cells.shape, variances[3])), leaves[3], ())]
    for depth in (2, 1, 0):
        own, second = (numbers[depth], variances[depth]), (again[depth], last[depth])
        a = 1 / (1 / variances[depth] + 1 / last[depth])
        z = a * (numbers[depth] / variances[depth] + again[depth] / last[depth])
        leaf = explain_leaf((z, np.full(z.shape, a)), leaves[depth], (own, second))
        explained.insert(
            0,
            explain_parents(tree, depth, explained[0], own, leaf, leaves[depth], splits[depth]),
        )

    def node(level: int, place: int) -> Node:
        measured = [(float(numbers[level][0, place]), float(variances[level]))]
        children: tuple[Node, ...] = ()
        if level < 3 and splits[level][0, place]:
            stop = min(2 * place + 2, tree.level_sizes[level + 1])
            children = tuple(node(level + 1, child) for child in range(2 * place, stop))
        elif level < 3:
            measured.append((float(again[level][0, place]), float(last[level])))
        return Node(int(leaves[level][0, place]), tuple(measured), children)

    root = node(0, 0)
    for ours, theirs in zip(
        (explained[0].z, explained[0].a, explained[0].score), root.both, strict=True
    ):
        assert float(ours[0, 0]) == pytest.approx(theirs, rel=1e-9)
    average = Average.from_total(explained[0].z)
    for depth in range(3):
        average = average_down(
            tree,
            depth,
            average,
            (explained[depth], explained[depth + 1]),
            (leaves[depth], leaves[depth + 1]),
        )
    np.testing.assert_allclose(average.estimate[0], root.down(root.both[0]), rtol=1e-9, atol=1e-9)


def test_better_explanation_has_the_weight_of_its_likelihood() -> None:
    """Two children with 10 and 10 rows fit even; with 0 and 20, of variance 2, they do not."""
    tree = UniformTree(leaves=2, fanouts=(2,))

    def weight(left: float, right: float) -> float:
        cells = explain_leaf((np.array([[left, right]]), np.full((1, 2), 2.0)), np.ones((1, 2)), ())
        unsplit = Explained(
            **{
                name: np.zeros((1, 1))
                for name in ("z", "a", "score", "density", "precision", "misfit")
            }
        )
        parent = explain_parents(
            tree, 0, cells, (None, np.inf), unsplit, np.full((1, 1), 2), np.ones((1, 1), bool)
        )
        assert parent.even is not None
        return float(parent.even[0, 0])

    # One parameter less: e to 1.
    assert weight(10, 10) == pytest.approx(math.e / (1 + math.e))
    # Each is off by 10 under even: 2 x 10^2 / 2 x 2 = 50, less the parameter.
    assert weight(0, 20) == pytest.approx(math.exp(-49), rel=1e-6)
    assert weight(0, 10**6) == 0.0


@pytest.mark.parametrize("seed", range(6))
def test_only_counts_are_averaged(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = UniformTree(leaves=27, fanouts=(3, 3, 3))
    plan = random_adaptive_plan(rng, tree)
    exact = rng.poisson(rng.choice([0.3, 5, 40], tree.leaves))
    plain, averaged = (
        solve_adaptive(AdaptiveForest(plan, averaged=each, chunk_leaves=9), exact, source(seed))
        for each in (False, True)
    )
    for ours, theirs in zip(averaged.levels, plain.levels, strict=True):
        for name in ("estimate", "variance", "ended"):
            np.testing.assert_array_equal(ours[name], theirs[name])
    counts = [level["count"] for level in averaged.levels]
    assert all(level.min() >= 0 for level in counts)
    for parents, children in pairwise(counts):
        np.testing.assert_array_equal(parents, children.reshape(len(parents), -1, 3).sum(-1))
    assert counts[0] == plain.levels[0]["count"]


def errors(plan: AdaptivePlan, exact: Integers, *, averaged: bool) -> Floats:
    """The mean square error of prefixes of counts, one for each of 200 releases."""
    forest, result = AdaptiveForest(plan, averaged=averaged), []
    for seed in range(200):
        found = solve_adaptive(forest, exact, source(seed)).levels[-1]["count"][0]
        result.append(np.mean(np.square(np.cumsum(found - exact))))
    return np.array(result)


def test_even_data_become_closer_and_spikes_no_worse() -> None:
    """At the same noise: 3,000 rows in 64 even cells, and 3,000 rows in four of them."""
    plan = plan_adaptive(TreeSetting(leaves=64, budget=EPSILON, unit=ADD_REMOVE_ROW), counts=True)
    even, spiky = np.full(64, 47), np.where(np.arange(64) % 16 == 5, 750, 0)
    for exact, least, most in ((even, 0.3, 0.8), (spiky, 0.8, 1.05)):
        ratio = (
            errors(plan, exact, averaged=True).mean() / errors(plan, exact, averaged=False).mean()
        )
        assert least < ratio < most
