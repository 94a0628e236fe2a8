"""Holders of the nodes of a level: the drawn nodes that they belong to, and their estimates.

A node that is reached *is held* by itself; one inside a node that was not split by that leaf of the
drawn tree. Most nodes of sparse data share a few holders, so each is known once.

Source: `dpcore.adaptive.solving`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers

_HALF_BITS = 20
# Quotients of integers below 2^52 are exact in floating point once they are rounded down: one that
# is no integer n is at least 1 / L below the next, more than the rounding of n.
_EXACT = 2**52
_SMALL = 2**31


def spread_ends(count: Integers, leaves: Integers, left: Integers) -> Integers:
    """Number of t rows left of a boundary when they are spread evenly over L leaves.

    With t = q L + r and j leaves left of the boundary: q j + floor((r j + floor(L / 2)) / L). It is
    0 at j = 0 and t at j = L, rises, and leaves differ by one at most. Products stay within 64
    bits: r and j up to 2^40 are multiplied half by half.

    Args:
        count: t, at least 0.
        leaves: L, from 1 to 2^40.
        left: j, from 0 to L.

    Returns:
        int64, of the shape that the arguments broadcast to.

    >>> spread_ends(np.array(5), np.array(3), np.arange(4)).tolist()
    [0, 2, 3, 5]
    >>> spread_ends(np.array(2), np.array(4), np.arange(5)).tolist()
    [0, 1, 1, 2, 2]
    """
    if leaves.size and int(leaves.max()) < math.isqrt(_EXACT) // 2 and int(count.max()) < _EXACT:
        each = (count / leaves).astype(np.int64)
        part = (count - each * leaves) * left + (leaves >> 1)
        return np.asarray(each * left + (part / leaves).astype(np.int64))
    each, rest = np.divmod(count, leaves)
    half = leaves // 2
    if leaves.size == 0 or int(leaves.max()) < _SMALL:
        return np.asarray(each * left + (rest * left + half) // leaves)
    high, low = left >> _HALF_BITS, left & (2**_HALF_BITS - 1)
    # r j = (r j_high) 2^20 + r j_low: whole multiples of L are taken out of it step by step.
    whole, part = np.divmod(rest * high, leaves)
    more, part = np.divmod(part << _HALF_BITS, leaves)
    last = (part + rest * low + half) // leaves
    return np.asarray(each * left + (whole << _HALF_BITS) + more + last)


@dataclass(frozen=True, kw_only=True, eq=False)
class Nodes:
    """Estimates, counts and positions of some nodes of the drawn trees, (m,) each.

    Attributes:
        start, stop: the leaves below, within its key's tree.
        ended: its level where it is a leaf of the drawn tree, -1 where it is split.
        count, before_count: the final integers of the node, and of all left of it.
        estimate, variance: u and g.
        before, before_variance, covariance: P, B and C.
        alpha, before_alpha: the coefficients of the whole tree's estimate in u and in P.
    """

    start: Integers
    stop: Integers
    ended: Integers
    count: Integers
    before_count: Integers
    estimate: Floats
    variance: Floats
    before: Floats
    before_variance: Floats
    covariance: Floats
    alpha: Floats
    before_alpha: Floats

    def select(self, places: Integers) -> Nodes:
        """Return the nodes at some places."""
        return Nodes(**{each.name: getattr(self, each.name)[places] for each in fields(self)})

    def joined(self, others: Nodes) -> Nodes:
        """These, then others."""
        return Nodes(
            **{
                each.name: np.concatenate([getattr(self, each.name), getattr(others, each.name)])
                for each in fields(self)
            }
        )

    def rows(self, rows: int) -> Holders:
        """Each as the holder of itself, in so many rows."""
        return Holders(nodes=self, index=np.arange(len(self.start)).reshape(rows, -1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Holders:
    """The holders of the nodes of one level, (rows, n) each.

    Args:
        nodes: those that hold any.
        index: (rows, n) which of them.
    """

    nodes: Nodes
    index: Integers

    def counts_between(self, start: Integers, stop: Integers) -> Integers:
        """The final counts of the leaves of each node, inside its holder or all of it.

        Args:
            start, stop: of shapes that broadcast; each node begins where the one before it stops.
        """
        ends, start = self.ends(stop), np.broadcast_to(start, self.index.shape)
        before = np.empty_like(ends)
        before[:, 1:] = ends[:, :-1]
        before[:, :1] = Holders(nodes=self.nodes, index=self.index[:, :1]).ends(start[:, :1])
        counts: Integers = ends - np.where(start > self.start, before, 0)
        return counts

    def ends(self, leaf: Integers) -> Integers:
        """Spread the holder's rows evenly over its leaves, and return those left of a leaf."""
        return spread_ends(self.count, self.stop - self.start, leaf - self.start)

    def estimates_between(self, start: Integers, stop: Integers) -> Floats:
        """The estimates likewise."""
        spread: Floats = self.estimate * ((stop - start) / (self.stop - self.start))
        return spread

    @cached_property
    def start(self) -> Integers:
        """Its first leaf."""
        return self.nodes.start[self.index]

    @cached_property
    def stop(self) -> Integers:
        """End of its leaves."""
        return self.nodes.stop[self.index]

    @cached_property
    def ended(self) -> Integers:
        """The levels at which nodes ended, as `Nodes.ended` has them."""
        return self.nodes.ended[self.index]

    @cached_property
    def count(self) -> Integers:
        """Its final integer."""
        return self.nodes.count[self.index]

    @cached_property
    def before_count(self) -> Integers:
        """Consistent count of all rows left of the node."""
        return self.nodes.before_count[self.index]

    @cached_property
    def estimate(self) -> Floats:
        """u."""
        return self.nodes.estimate[self.index]

    @cached_property
    def variance(self) -> Floats:
        """g."""
        return self.nodes.variance[self.index]

    @cached_property
    def before(self) -> Floats:
        """P."""
        return self.nodes.before[self.index]

    @cached_property
    def before_variance(self) -> Floats:
        """B."""
        return self.nodes.before_variance[self.index]

    @cached_property
    def covariance(self) -> Floats:
        """C."""
        return self.nodes.covariance[self.index]

    @cached_property
    def alpha(self) -> Floats:
        """The coefficient of the whole tree's estimate in u."""
        return self.nodes.alpha[self.index]

    @cached_property
    def before_alpha(self) -> Floats:
        """Coefficient of the whole tree's estimate in P."""
        return self.nodes.before_alpha[self.index]
