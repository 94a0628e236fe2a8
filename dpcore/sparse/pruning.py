"""The published nodes of a large sparse tree as one table: bounds, consistent counts, pruning.

An ancestor of a published node that was not published is an *implied* node. Bounds that hold for
certain: at least max(0, noisy - R_l) where measured, and the sum of the children's least counts;
at most noisy + R_l, or 2 R_l where not published, and what the parent has at most less the least
counts of siblings. An interval takes every n for which, given publication, neither Y or more nor
Y or less has a probability of at most (1 - confidence) / 2, so it covers with the confidence,
given that the node is published (Weinstein, Fithian, Benjamini 2013, on the integers). Given
publication the laws have a monotone likelihood ratio (the noise is log-concave, and a threshold
keeps that), so both probabilities are monotone in n.

Where children's counts y_c exceed their parent's y by e = sum y_c - y > 0, the nearest counts
that do not, in squares weighted by the variances v_c and v, are y + e v / (v + sum v_c) and y_c -
e v_c / (v + sum v_c). Bottom up every node meets its children so, and then has the variance v sum
v_c / (v + sum v_c); top down children become integers within the certain bounds. Estimates are
the noisy counts; small ones, of at most 2 R, are overstated on average. Pruning folds subtrees that
noise does not distinguish from few rows into their parents; to fold below a number of rows selects
by the intervals again, so nodes near it may be covered more rarely. All of it is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.rows.columns import fixed_width_values
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
            levels[-1] = replace(levels[-1], parents=_places(below, own.keys))
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


Bounds = Sequence[tuple[Integers, Integers]]


def consistent_counts(
    plan: SparsePlan, tree: Sequence[KnownLevel], bounds: Bounds, kept: Sequence[Flags]
) -> list[Integers]:
    """Counts of each level's nodes, (h + 1,), in rows; the counts of a node's kept children sum to
    at most its own.

    Args:
        plan: of the tree.
        tree: from `known_tree`.
        bounds: from `certain_bounds`; kept nodes have counts within them.
        kept: for each level (n,) which nodes are not folded into their parents; folded ones have no
            part in what their parents distribute.

    Source: the docstring of this module.

    >>> from fractions import Fraction
    >>> import pyarrow as pa
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.sparse.pruning import certain_bounds, known_tree
    >>> from dptrees.dpcore.questions.sparse_counts import NodeCounts
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


def pruning_in_words(rows: int, confidence: float) -> str:
    """The rule by which subtrees are folded into their parents, for the manifest.

    The mechanism itself folds counts that the noise does not distinguish from 0: a published node
    is not empty, and a node of a single unit's rows is published with a probability of at most
    delta_l. A larger number of rows folds counts that are not distinguished from fewer rows. It
    selects nodes by their intervals, whose coverage holds over the nodes before it.

    Args:
        rows: a node is kept if its interval begins at so many rows or more, or one below it does;
            0: every published node is kept.
        confidence: of the intervals.

    >>> pruning_in_words(0, 0.95)
    'A node whose noisy count is at most the threshold of its level is folded into its parent.'
    """
    sentence = (
        "A node whose noisy count is at most the threshold of its level is folded into its parent."
    )
    if rows:
        sentence += (
            f" So is a subtree in which no node's interval, at confidence {confidence:g}, "
            f"begins at {rows} rows or more. The intervals cover at this confidence the "
            "counts of the nodes that passed their thresholds, before this folding, which "
            "selects by the intervals; of the nodes that stay fewer may be covered."
        )
    return sentence


@dataclass(frozen=True, kw_only=True, eq=False)
class PrunedLevel:
    """Results for the nodes of one level, keys rising.

    Args:
        keys: uint64 or large_string, (n,).
        estimate: (n,) noisy counts in rows; NaN for an implied node.
        std_error: (n,) of the noise, in rows; NaN for an implied node.
        ci_low, ci_high: (n,) the interval, in rows; at the confidence before pruning by rows.
        least, most: (n,) the certain bounds, in rows; they hold whatever was pruned.
        count: (n,) consistent counts, in rows.
    """

    keys: pa.Array
    estimate: Floats
    std_error: Floats
    ci_low: Integers
    ci_high: Integers
    least: Integers
    most: Integers
    count: Integers


def solve_levels(
    plan: SparsePlan,
    domain: SparseDomain,
    published: Sequence[NodeCounts],
    *,
    confidence: float = 0.95,
    prune_below: int = 0,
) -> list[PrunedLevel]:
    """All levels of one tree from its published nodes, root first.

    Args:
        plan: of the tree.
        domain: of the tree.
        published: (h + 1,) from `dpcore.sparse.plan.publish_shard`, the parts of a level
            merged.
        confidence: of the intervals, above 0 and at most 0.9999, or 1.
        prune_below: a node is kept if its interval begins at so many rows or more, or one below it
            does; 0: every published node is kept.

    Raises:
        ValueError: another number of levels, or a confidence out of range.

    Source: the docstring of this module.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.sparse.domain import CodeDomain
    >>> from dptrees.dpcore.sparse.plan import plan_sparse
    >>> domain = CodeDomain(column="address", widths=(8, 24))
    >>> plan = plan_sparse(domain.names, Fraction(1), Fraction(1, 10**6), ADD_REMOVE_ROW)
    >>> counts = [([0], [500]), ([9, 10], [90, 420]), ([10 << 24], [70])]
    >>> levels = solve_levels(plan, domain, [
    ...     NodeCounts(keys=pa.array(keys, pa.uint64()), counts=np.array(noisy))
    ...     for keys, noisy in counts])
    >>> [level.count.tolist() for level in levels]
    [[509], [89, 420], [70]]
    """
    tree = known_tree(domain, published)
    bounds = certain_bounds(plan, tree)
    intervals = [
        _intervals(plan, number, level, own, confidence)
        for number, (level, own) in enumerate(zip(tree, bounds, strict=True))
    ]
    kept = _kept(tree, intervals, prune_below)
    counts = consistent_counts(plan, tree, bounds, kept)
    parts = zip(tree, bounds, intervals, kept, counts, strict=True)
    return [
        PrunedLevel(
            keys=level.keys.filter(pa.array(stays)),
            estimate=np.where(level.measured, level.noisy.astype(np.float64), np.nan)[stays],
            std_error=np.where(level.measured, plan.standard_error(number), np.nan)[stays],
            ci_low=low[stays],
            ci_high=high[stays],
            least=least[stays],
            most=most[stays],
            count=count[stays],
        )
        for number, (level, (least, most), (low, high), stays, count) in enumerate(parts)
    ]


def _intervals(
    plan: SparsePlan,
    number: int,
    level: KnownLevel,
    bounds: tuple[Integers, Integers],
    confidence: float,
) -> tuple[Integers, Integers]:
    """Within the certain bounds, which are all that is known of implied nodes."""
    low, high = bounds[0].copy(), bounds[1].copy()
    law, noisy = plan.law(number), level.noisy[level.measured]
    if law is not None:
        ends = published_bounds(law, plan.threshold(number), noisy, confidence)
        low[level.measured], high[level.measured] = ends
    return np.clip(low, *bounds), np.clip(high, *bounds)


def _kept(tree: Sequence[KnownLevel], intervals: Bounds, prune_below: int) -> list[Flags]:
    """Flags of the nodes that are not folded; with a node all its ancestors."""
    kept: list[Flags] = []
    for number in range(len(tree) - 1, -1, -1):
        own = intervals[number][0] >= prune_below
        if kept:
            below = child_sums(tree[number + 1], kept[-1].astype(np.int64), len(own))
            own = own | (below > 0)
        kept.append(own if number else np.ones(1, np.bool_))
    return kept[::-1]
