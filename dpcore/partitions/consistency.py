"""Counts of children made to agree with their parent's, from the root down.

The paper's way shares the difference evenly; the other is the best linear estimate from what was
measured along the way from the root, which weighs the parent by how well it is known. Both take a
level at a time, so that a partition can grow by them.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from dptrees.dpcore.arrays import Floats


class Running(NamedTuple):
    """Estimates while a partition grows.

    Attributes:
        estimate: (n,) in rows.
        variance: (n,) of its error, in rows^2, given the partition; NaN where it is not known.
    """

    estimate: Floats
    variance: Floats


class GrowthConsistency(Protocol):
    """Rule that makes children agree with their parents while a partition grows."""

    def root(self, value: Floats, variance: Floats) -> Running:
        """Begin with the root, (1,) each."""

    def children(self, parents: Running, value: Floats, variance: Floats) -> Running:
        """Return consistent values of the children of some nodes.

        Args:
            parents: (m,) of the nodes that are split.
            value, variance: (m, n) what is measured of their children; a variance of 0 where the
                count is known.

        Returns:
            (m, n) of the children.
        """


class EvenShares(GrowthConsistency):
    """Algorithm 4: what children have too much or too little is shared evenly.

    First negative counts become 0 (error correction type 1). Then each child gives up an equal part
    of the excess L = sum - parent; one that would become negative is set to 0 and its sibling has
    all of the parent's (error correction type 2). With more than two children, where the paper
    gives no rule, those that would become negative are set to 0 and the others share what remains,
    until none would. A child that no row can be in takes no part.

    Source: Holland, Camtepe, Thapa, Xue, Algorithm 4; a root below 0 is taken as 0, which the paper
    leaves open.

    >>> parent = Running(np.array([5.0]), np.array([np.nan]))
    >>> EvenShares().children(parent, np.array([[3.5, 3.7]]), np.ones((1, 2))).estimate.round(6)
    array([[2.4, 2.6]])
    >>> EvenShares().children(parent, np.array([[-2.0, 9.0]]), np.ones((1, 2))).estimate
    array([[0., 5.]])
    """

    def root(self, value: Floats, variance: Floats) -> Running:
        return Running(np.maximum(value, 0.0), np.full(value.shape, np.nan))

    def children(self, parents: Running, value: Floats, variance: Floats) -> Running:
        open_ = variance > 0
        count = np.where(open_, np.maximum(value, 0.0), 0.0)
        total = parents.estimate[:, np.newaxis]
        while True:
            many = np.maximum(open_.sum(axis=1, keepdims=True), 1)
            excess = np.where(open_, count, 0.0).sum(axis=1, keepdims=True) - total
            shared = np.where(open_, count - excess / many, 0.0)
            below = shared < 0
            if not below.any():
                return Running(shared, np.full(shared.shape, np.nan))
            open_ &= ~below


class BestLinear(GrowthConsistency):
    """The best linear unbiased estimates from what was measured of a node, of its ancestors, and of
    the siblings of each of them. What cousins say of their common ancestor is left to the least
    squares of the grown tree (`dpcore.partitions.least_squares`).

    Let p be the variance of a parent's estimate u, and y_c its children's values with variances
    v_c, S = sum y_c, A = sum v_c. Both speak of the parent, so it becomes u' = (u / p + S / A)
    / (1/p + 1/A) with variance p' = 1 / (1/p + 1/A), and a child y_c + (v_c / A) (u' - S) with
    variance v_c - v_c^2 / A + (v_c / A)^2 p'. Estimates may be negative; that they are unbiased is
    true of a partition that was fixed beforehand.

    Source: the design, section 5, of a tree in which nothing but the ancestors is split (a Kalman
    filter down the levels); Hay, Rastogi, Miklau, Suciu 2010 for the whole tree.

    >>> parent = Running(np.array([5.0]), np.array([0.0]))
    >>> BestLinear().children(parent, np.array([[3.5, 3.7]]), np.ones((1, 2))).estimate.round(6)
    array([[2.4, 2.6]])
    """

    def root(self, value: Floats, variance: Floats) -> Running:
        return Running(value, variance)

    def children(self, parents: Running, value: Floats, variance: Floats) -> Running:
        sums, spreads = value.sum(axis=1), variance.sum(axis=1)
        # Of a parent that nothing is known of the children determine all.
        blank = np.isinf(parents.variance)
        own = np.where(blank, 1.0, parents.variance)
        weight = np.where(blank, 1.0, own / (own + spreads))
        known = np.where(blank, sums, parents.estimate + weight * (sums - parents.estimate))
        left = np.where(blank, spreads, own * (1 - weight))
        share = np.divide(
            variance, spreads[:, np.newaxis], out=np.zeros_like(variance), where=variance > 0
        )
        count = value + share * (known - sums)[:, np.newaxis]
        return Running(count, variance * (1 - share) + np.square(share) * left[:, np.newaxis])
