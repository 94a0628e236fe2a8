"""Integer counts of the nodes of a sparse tree in which no children sum to more than their parent.

Not all children of a node are published, so their counts y_c may sum to less than the node's own
count y, but not to more. Where the noisy counts do, with an excess e = sum y_c - y > 0, the nearest
counts that do not, in squares weighted by the variances v_c and v of the noise, are

    y + e v / (v + sum v_c)   and   y_c - e v_c / (v + sum v_c),

the projection onto the half-space sum y_c <= y. The node moves far where it is the noisier side,
as a root with little budget is, and hardly where its children are. Bottom up every node meets its
children so, and has from there the variance v sum v_c / (v + sum v_c); top down the children then
are lowered to what their parents have, as integers within the certain bounds.

Source: derived here; two passes as in Hay, Rastogi, Miklau, Suciu 2010, with an inequality in place
of their equation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.sparse.bounds import KnownLevel, child_sums
from dptrees.dpcore.sparse.plan import SparsePlan

Bounds = Sequence[tuple[Integers, Integers]]


def consistent_counts(
    plan: SparsePlan, tree: Sequence[KnownLevel], bounds: Bounds, kept: Sequence[Flags]
) -> list[Integers]:
    """Counts of each level's nodes, (h + 1,), in rows; the counts of a node's kept children sum to
    at most its own.

    Args:
        plan: of the tree.
        tree: from `dpcore.sparse.bounds.known_tree`.
        bounds: from `dpcore.sparse.bounds.certain_bounds`; kept nodes have counts within them.
        kept: for each level (n,) which nodes are not folded into their parents; folded ones have no
            part in what their parents distribute.

    Source: the docstring of this module.

    >>> from fractions import Fraction
    >>> import pyarrow as pa
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.sparse.bounds import certain_bounds, known_tree
    >>> from dptrees.dpcore.questions.node_counts import NodeCounts
    >>> from dptrees.dpcore.sparse.domain import CodeDomain
    >>> from dptrees.dpcore.sparse.plan import plan_sparse
    >>> domain = CodeDomain(column="address", widths=(8, 24))
    >>> plan = plan_sparse(domain.names, Fraction(1), Fraction(1, 10**6), ADD_REMOVE_ROW)
    >>> tree = known_tree(domain, [
    ...     NodeCounts(keys=pa.array(keys, pa.uint64()), counts=np.array(noisy, np.int64))
    ...     for keys, noisy in [([0], [500]), ([9, 10], [120, 420]), ([], [])]])
    >>> kept = [np.ones(len(level), np.bool_) for level in tree]
    >>> [own.tolist() for own in consistent_counts(plan, tree, certain_bounds(plan, tree), kept)]
    [[536], [118, 418], []]
    """
    wanted = _met_counts(plan, tree, bounds, kept)
    counts = [wanted[0]]
    for number in range(1, len(tree)):
        least = np.where(kept[number], bounds[number][0], 0)
        counts.append(_lowered(wanted[number], least, tree[number].parents, counts[-1]))
    return counts


def _met_counts(
    plan: SparsePlan, tree: Sequence[KnownLevel], bounds: Bounds, kept: Sequence[Flags]
) -> list[Integers]:
    """Bottom up: each node's noisy count, moved towards its children's where they sum to more; of
    an implied node, which has none, their sum."""
    met: list[Integers] = []
    variances = np.empty(0)
    for number in range(len(tree) - 1, -1, -1):
        level = tree[number]
        own, error = level.noisy, plan.standard_error(number)
        spread = np.full(len(level), error * error)
        if met:
            sums = child_sums(tree[number + 1], met[-1], len(level))
            below = np.zeros(len(level))
            np.add.at(below, tree[number + 1].parents, variances)
            own, spread = _met(level, spread, sums, below)
        met.append(np.where(kept[number], np.clip(own, *bounds[number]), 0))
        variances = np.where(kept[number], spread, 0.0)
    return met[::-1]


def _met(
    level: KnownLevel, spread: Floats, sums: Integers, below: Floats
) -> tuple[Integers, Floats]:
    """Counts and variances of nodes. `spread` has their own variances; `sums` and `below` have the
    counts and variances of their children."""
    excess = np.maximum(sums - level.noisy, 0)
    both = spread + below
    share = np.divide(spread, both, out=np.zeros_like(both), where=both > 0)
    moved = level.noisy + np.rint(excess * share).astype(np.int64)
    variances = np.where(excess > 0, share * below, spread)
    return np.where(level.measured, moved, sums), np.where(level.measured, variances, below)


def _lowered(wanted: Integers, least: Integers, parents: Integers, totals: Integers) -> Integers:
    """The nearest integers (least squares) to `wanted`, each at least `least`, whose sum over the
    children of a node is at most its total.

    Where they sum to too much, all children go down by the same number, though not below their
    least counts; a remainder goes to the first of those that still can.
    """
    order = np.lexsort((wanted - least, parents))
    slack, owner = (wanted - least)[order], parents[order]
    sums = np.zeros(len(totals), np.int64)
    np.add.at(sums, parents, wanted)
    excess = np.maximum(sums - totals, 0)
    sizes = np.bincount(parents, minlength=len(totals))
    starts = np.cumsum(sizes) - sizes
    left = sizes[owner] - (np.arange(len(owner)) - starts[owner])
    running = np.concatenate([[0], np.cumsum(slack)])
    before = running[:-1] - running[starts[owner]]
    emptied = before + slack * left <= excess[owner]
    # The children that are not emptied, the last of each node, share what is left of its excess.
    taken, many = np.zeros(len(totals), np.int64), np.zeros(len(totals), np.int64)
    np.add.at(taken, owner[emptied], slack[emptied])
    np.add.at(many, owner[~emptied], 1)
    share, extra = np.divmod(excess - taken, np.maximum(many, 1))
    rank = np.arange(len(owner)) - (starts + sizes - many)[owner]
    down = np.where(emptied, slack, share[owner] + (rank < extra[owner]))
    lowered: Integers = wanted.copy()
    lowered[order] -= down
    return lowered
