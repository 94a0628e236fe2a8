"""The tree that came out, as a release tells it, and what it says of errors.

Which nodes were split is part of a release, so the variances of all estimates can be made again
from it and the plan: exactly, where decisions were measured apart.

Source: `dpcore.adaptive.solving`; for functionals of the leaves, `dpcore.trees.least_squares`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from dpcore.adaptive.drawing import Kinds, first_variances
from dpcore.adaptive.plan import AdaptivePlan
from dpcore.adaptive.roots import DrawnPrefixes
from dpcore.adaptive.solving import (
    FromBelow,
    Holders,
    leaf_from_below,
    leaf_spans,
    one_down,
    parents_from_below,
)
from dpcore.arrays import Flags, Floats, Integers


class DrawnTree:
    """The drawn tree of one key.

    Args:
        plan: by which it was drawn.
        ended: per level, (n_l,): the level at which the node's path ended, -1 where it was split.

    >>> from dpcore.privacy.budget import Budget, Measure
    >>> from dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dpcore.trees.uniform import Tree
    >>> from fractions import Fraction
    >>> plan = AdaptivePlan(
    ...     tree=Tree(leaves=4, fanouts=(2, 2)), unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1, 2), Fraction(1, 2)), thresholds=(0, 9))
    >>> drawn = DrawnTree(plan, [np.array([-1]), np.array([1, -1]), np.array([1, 1, 2, 2])])
    >>> drawn.edges.tolist(), drawn.edges_around(1)
    ([0, 2, 3, 4], (0, 2))
    """

    def __init__(self, plan: AdaptivePlan, ended: Sequence[Integers]) -> None:
        self.plan, self.ended = plan, [np.asarray(each, dtype=np.int64) for each in ended]
        sizes = tuple(each.size for each in self.ended)
        if sizes != plan.tree.level_sizes:
            raise ValueError(f"ended: levels of {sizes} nodes, not of {plan.tree.level_sizes}")

    @cached_property
    def edges(self) -> Integers:
        """The boundaries of the leaves of the drawn tree, rising from 0 to K."""
        tree = self.plan.tree
        starts = [np.array([tree.leaves])]
        for level, ended in enumerate(self.ended):
            first = leaf_spans(tree, level, 0, ended.size)[0]
            starts.append(first[ended == level])
        return np.unique(np.concatenate(starts))

    def is_edge(self, boundary: int) -> bool:
        """Whether a boundary of leaves is one of the drawn tree's."""
        return self.edges_around(boundary)[0] == boundary

    def edges_around(self, boundary: int) -> tuple[int, int]:
        """The closest edges at or left of a boundary, and at or right of it."""
        right = int(np.searchsorted(self.edges, boundary))
        exact = self.edges[right] == boundary
        return int(self.edges[right if exact else right - 1]), int(self.edges[right])

    def node(self, level: int, node: int) -> float:
        """The variance of the estimate of a node, given the drawn tree; NaN inside a leaf of it."""
        if 0 <= self.ended[level][node] < level:
            return float("nan")
        leaves = self.plan.tree.leaf_range(level, node)
        return self.run(leaves.start, leaves.stop)

    def run(self, start: int, stop: int) -> float:
        """Of the estimate of leaves ``start`` to ``stop`` - 1; NaN where an end is no edge."""
        return self.runs([(start, stop)])

    def runs(self, runs: Sequence[tuple[int, int]]) -> float:
        """Of the sum over runs of leaves, which may overlap; NaN where an end is no edge."""
        changes = np.zeros(self.plan.tree.leaves + 1, dtype=np.int64)
        for start, stop in runs:
            changes[start] += 1
            changes[stop] -= 1
        cut = np.flatnonzero(changes)
        if not np.isin(cut, self.edges).all():
            return float("nan")
        return self._of_leaves(np.cumsum(changes[:-1]).astype(np.float64))

    def prefixes(self, estimate: Floats) -> DrawnPrefixes:
        """The prefixes of all leaves, as they were solved.

        Args:
            estimate: (K,) that was released of each.
        """
        holders, tree = self._holders(), self.plan.tree
        stops = np.arange(1, tree.leaves + 1)[None]
        found = DrawnPrefixes.of(holders, stops)
        known = np.concatenate([[0.0], estimate])
        inside = np.isnan(found.variance)
        return replace(
            found,
            estimate=estimate[None],
            low_estimate=known[np.where(inside, holders.start, holders.stop)],
            high_estimate=known[holders.stop],
        )

    def _holders(self) -> Holders:
        """Of the leaves, (1, K), with estimates and counts left at 0."""
        tree, none = self.plan.tree, np.zeros((1, 1), dtype=np.int64)
        zeros = np.zeros((1, 1))
        found = Holders(
            start=none,
            stop=none + tree.leaves,
            ended=self.ended[0][None],
            count=none,
            before_count=none,
            estimate=zeros,
            variance=zeros if self.plan.public_total else self._below[0].a[None],
            before=zeros,
            before_variance=zeros,
            covariance=zeros,
            alpha=zeros + 1.0,
            before_alpha=zeros,
        )
        for level in range(tree.height):
            nodes = _as_row(self._below[level]), _as_row(self._below[level + 1])
            start, stop = leaf_spans(tree, level + 1, 0, self.ended[level + 1].size)
            ended = self.ended[level + 1][None]
            found = one_down(tree, level, found, nodes, (start[None], stop[None]), ended)
        return found

    def _of_leaves(self, weights: Floats) -> float:
        """The variance of a weighted sum of leaves, whose weights are equal inside each leaf of the
        drawn tree: alpha_v = sum alpha_c k_c, e_v = sum e_c + sum alpha_c^2 a_c - (sum alpha_c
        a_c)^2 / A, and at the root alpha^2 g + e."""
        tree, alpha, residual = self.plan.tree, weights, np.zeros_like(weights)
        for level in reversed(range(tree.height)):
            here, a = self._below[level], self._below[level + 1].a
            assert here.split is not None and here.sum_a is not None
            weighted = tree.child_sum(level, alpha * a)
            spread = tree.child_sum(level, residual + alpha**2 * a)
            first = self._first_child(level)
            residual = np.where(here.split, spread - weighted**2 / here.sum_a, 0.0)
            alpha = np.where(here.split, weighted / here.sum_a, alpha[first])
        root = 0.0 if self.plan.public_total else float(self._below[0].a[0])
        return float(alpha[0] ** 2 * root + residual[0])

    def _first_child(self, level: int) -> Integers:
        sizes = np.ones(self.plan.tree.level_sizes[level + 1], dtype=np.int64)
        counts = self.plan.tree.child_sum(level, sizes)
        return np.cumsum(counts) - counts

    @cached_property
    def _below(self) -> list[FromBelow]:
        """Per level, a and A of the passes up; estimates are left at 0."""
        plan, tree = self.plan, self.plan.tree
        sizes, height = tree.level_sizes, tree.height
        variances = [
            np.broadcast_to(first_variances(plan, level, Kinds.of(plan, level, 0, size)), (size,))
            for level, size in enumerate(sizes)
        ]
        lowest = np.where(np.isinf(variances[height]), 1.0, variances[height])
        found = [FromBelow(z=np.zeros(sizes[height]), a=lowest)]
        for level in reversed(range(height)):
            split: Flags = self.ended[level] < 0
            leaf = leaf_from_below(None, variances[level], None, plan.last_variances[level])
            own = None, variances[level]
            found.insert(0, parents_from_below(tree, level, found[0], own, leaf, split))
        return found


def _as_row(level: FromBelow) -> FromBelow:
    """(1, n) of (n,)."""
    if level.split is None or level.sum_z is None or level.sum_a is None:
        return FromBelow(z=level.z[None], a=level.a[None])
    return FromBelow(
        z=level.z[None],
        a=level.a[None],
        split=level.split[None],
        sum_z=level.sum_z[None],
        sum_a=level.sum_a[None],
    )
