"""Bounds on the counts of a sparse tree's nodes, from the published nodes.

A published node may have an ancestor that did not pass the threshold of its own level. It exists
for certain, since a node has the rows of its descendants, so it is put into the tree as an
*implied* node, without a noisy count of its own.

Certain bounds hold whatever the noise drew, since it is bounded. A node of level l has

    at least  max(0, noisy - R_l)  if it was measured, and the sum of its children's least counts,
    at most   noisy + R_l  if it was measured, else 2 R_l, as it was not published; and what its
              parent has at most less the least counts of its siblings.

`published_bounds` gives intervals for counts that are only seen because their noisy counts passed a
threshold. A node of n rows has the noisy count Y = n + Z and is published if Y > T. Given that, Y
is larger than n + Z would be: an interval that takes Y for n + Z misses most small counts, though
it rarely meets one. Here an n is in the interval if, given publication, neither Y or more nor Y or
less has a probability of at most (1 - confidence) / 2. So for every n, given that the node is
published, the interval covers n with at least the confidence. Since |Z| <= R, n is in
[Y - R, Y + R] for certain.

This holds over all nodes that pass their threshold. A further selection among them by Y, such as
the pruning of `dpcore.sparse.pruning`, lowers the coverage among the nodes that are left, except
for certain intervals.

Given publication the laws of Y for the different n have a monotone likelihood ratio (the noise is
log-concave, and a threshold keeps that), so both probabilities are monotone in n.

Source: selection-adjusted intervals, Weinstein, Fithian, Benjamini 2013, on the integers. The
certain bounds are derived here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.rows.column import fixed_width_values
from dptrees.dpcore.sparse.domain import SparseDomain
from dptrees.dpcore.sparse.plan import SparsePlan

HIGHEST_CONFIDENCE = 0.9999
# Keeps an atom at the very end of an interval inside, whatever the rounding.
_INWARDS = 1 - 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownLevel:
    """The nodes of a level that are known to exist, keys rising.

    Args:
        keys: uint64 or large_string, (n,).
        noisy: (n,) int64, in rows; 0 where not measured.
        measured: (n,) whether the node passed its threshold; else it is implied by one below.
        parents: (n,) places of the parents on the level above; all 0 for the root.
    """

    keys: pa.Array
    noisy: Integers
    measured: Flags
    parents: Integers

    def __len__(self) -> int:
        return len(self.noisy)


def known_tree(domain: SparseDomain, published: Sequence[NodeCounts]) -> list[KnownLevel]:
    """The published nodes with all their ancestors.

    Args:
        domain: of the tree.
        published: (h + 1,) the noisy counts of each level, root first; the root is there.

    Raises:
        ValueError: another number of levels, or not exactly one root.

    >>> from dptrees.dpcore.sparse.labels import PathDomain
    >>> domain = PathDomain(column="url", depth=2)
    >>> root = NodeCounts(keys=domain.root_keys, counts=np.array([50]))
    >>> leaf = NodeCounts(keys=pa.array(["a/b"], pa.large_string()), counts=np.array([40]))
    >>> tree = known_tree(domain, [root, NodeCounts.empty(domain.key_type), leaf])
    >>> tree[1].keys.to_pylist(), tree[1].measured.tolist()
    (['a'], [False])
    """
    if len(published) != domain.height + 1 or len(published[0]) != 1:
        raise ValueError(f"published: there must be {domain.height + 1} levels, the root first")
    levels: list[KnownLevel] = []
    below: pa.Array | None = None
    for level in range(domain.height, -1, -1):
        own, measured = _with_implied(published[level], below)
        if levels:
            parents = _places(below, own.keys)
            levels[-1] = KnownLevel(
                keys=levels[-1].keys,
                noisy=levels[-1].noisy,
                measured=levels[-1].measured,
                parents=parents,
            )
        below = domain.parent_keys(level, own.keys) if level else None
        levels.append(
            KnownLevel(
                keys=own.keys,
                noisy=own.counts,
                measured=measured,
                parents=np.zeros(len(own), np.int64),
            )
        )
    return levels[::-1]


def _with_implied(published: NodeCounts, named: pa.Array | None) -> tuple[NodeCounts, Flags]:
    """The published nodes of a level and those that children name; whether each was measured."""
    if named is None or len(named) == 0:
        return published, np.ones(len(published), np.bool_)
    distinct = NodeCounts.grouped(named).keys
    missing = distinct.filter(pa.array(_places(distinct, published.keys) < 0))
    both = NodeCounts.grouped(
        pa.concat_arrays([published.keys, missing]),
        np.concatenate([published.counts, np.zeros(len(missing), np.int64)]),
    )
    return both, _places(both.keys, published.keys) >= 0


def _places(keys: pa.Array, among: pa.Array) -> Integers:
    """The position of each key among others; -1 where it is not among them."""
    found = pc.index_in(keys, value_set=among).fill_null(-1)
    places: Integers = fixed_width_values(found).astype(np.int64)
    return places


def child_sums(level: KnownLevel, values: Integers, parents: int) -> Integers:
    """Sum over the children of each node of the level above, (parents,)."""
    sums = np.zeros(parents, np.int64)
    np.add.at(sums, level.parents, values)
    return sums


def certain_bounds(plan: SparsePlan, tree: Sequence[KnownLevel]) -> list[tuple[Integers, Integers]]:
    """(h + 1,) the least and the largest count that each known node can have, in rows.

    Args:
        plan: of the tree.
        tree: from `known_tree`.

    Source: the docstring of this module.
    """
    least = _least_counts(plan, tree)
    most = [np.maximum(tree[0].noisy + plan.radius(0), least[0])]
    for number in range(1, len(tree)):
        level, radius = tree[number], plan.radius(number)
        own = np.where(level.measured, level.noisy + radius, 2 * radius)
        others = child_sums(level, least[number], len(tree[number - 1]))
        room = (most[-1] - others)[level.parents] + least[number]
        most.append(np.maximum(np.minimum(own, room), least[number]))
    return list(zip(least, most, strict=True))


def _least_counts(plan: SparsePlan, tree: Sequence[KnownLevel]) -> list[Integers]:
    least: list[Integers] = []
    for number in range(len(tree) - 1, -1, -1):
        level = tree[number]
        own = np.where(level.measured, level.noisy - plan.radius(number), 0)
        if least:
            own = np.maximum(own, child_sums(tree[number + 1], least[-1], len(level)))
        least.append(np.maximum(own, 0))
    return least[::-1]


def published_bounds(
    law: TruncatedLaplace, threshold: int | None, noisy: Integers, confidence: float
) -> tuple[Integers, Integers]:
    """The ends of the intervals of published nodes, not clipped at 0.

    Args:
        law: of the noise, of radius R.
        threshold: T, at least R; None: the node was published in any case.
        noisy: (n,) int64, each above the threshold.
        confidence: above 0 and at most 0.9999; or 1 for the certain interval.

    Returns:
        (n,) the least and (n,) the largest count, int64.

    Raises:
        ValueError: a confidence out of range, a noisy count that would not have been published.

    >>> from fractions import Fraction
    >>> law = TruncatedLaplace(scale=Fraction(2), radius=25)
    >>> low, high = published_bounds(law, 25, np.array([26, 40, 200]), 0.95)
    >>> list(zip(low.tolist(), high.tolist()))
    [(1, 30), (34, 46), (194, 206)]
    """
    if confidence == 1:
        return noisy - law.radius, noisy + law.radius
    if not 0 < confidence <= HIGHEST_CONFIDENCE:
        raise ValueError(
            f"confidence is {confidence}; it must be above 0 and at most {HIGHEST_CONFIDENCE}, or 1"
        )
    if threshold is None:
        width = law.bound(1 - confidence)
        return noisy - width, noisy + width
    if noisy.size and int(noisy.min()) <= threshold:
        raise ValueError("noisy: a count is not above the threshold")
    # From here on a node in reach would have been published whatever its noise.
    plain = threshold + 2 * law.radius + 1
    seen, places = np.unique(np.minimum(noisy, plain), return_inverse=True)
    low, high = _ends(law, threshold, seen, (1 - confidence) / 2 * _INWARDS)
    beyond = np.maximum(noisy - plain, 0)
    return low[places] + beyond, high[places] + beyond


def _ends(
    law: TruncatedLaplace, threshold: int, seen: Integers, tail: float
) -> tuple[Integers, Integers]:
    def not_too_few(n: Integers) -> Flags:
        flags: Flags = law.survival(seen - n - 1) > tail * law.survival(threshold - n)
        return flags

    def not_too_many(n: Integers) -> Flags:
        published = law.survival(threshold - n)
        flags: Flags = published - law.survival(seen - n) > tail * published
        return flags

    # A node of threshold - R rows or less is never published.
    least = np.maximum(seen - law.radius, threshold - law.radius + 1)
    low = _first(not_too_few, least - 1, seen + law.radius)
    high = _first(lambda n: ~not_too_many(n), least, seen + law.radius + 1) - 1
    return low, high


def _first(holds: Callable[[Integers], Flags], below: Integers, above: Integers) -> Integers:
    """The least n above `below` where a rising condition holds, for each place; it does at `above`
    (and is never evaluated there)."""
    low, high = below.copy(), above.copy()
    while np.any(high - low > 1):
        middle = (low + high) // 2
        open_ = high - low > 1
        found = holds(middle)
        high = np.where(open_ & found, middle, high)
        low = np.where(open_ & ~found, middle, low)
    found_at: Integers = high
    return found_at
