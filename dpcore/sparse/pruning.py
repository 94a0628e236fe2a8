"""The published nodes of a large sparse tree as one table: intervals, counts that add up, pruning.

Everything here is computed from what was published, so it costs no privacy.

- *Estimate*: the node's own noisy count; unbiased before it passed the threshold, so counts of
  2 R rows or less are overstated on average. NaN for an implied node (`dpcore.sparse.bounds`).
- *Interval*: given that the node passed its threshold, it covers the true count with at least the
  confidence, whatever that count is (`dpcore.sparse.bounds`); within the certain bounds, which
  hold always. For an implied node it is the certain bounds.
- *Count*: nonnegative integers within the certain bounds, near the estimates; the children of a
  node sum to at most the node's count, and what is missing is in nodes that were not published
  (`dpcore.sparse.consistency`).
- *Pruning*: subtrees that the noise does not distinguish from nothing, or from few rows, are folded
  into their parents, where their rows remain counted. To fold by `Pruning.rows` selects nodes by
  their intervals once more: these cover with the confidence before it, and of the nodes that stay
  those near `rows` may be covered more rarely. The certain bounds hold for whatever stays.

Source: derived here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.sparse.bounds import (
    KnownLevel,
    certain_bounds,
    child_sums,
    known_tree,
    published_bounds,
)
from dptrees.dpcore.sparse.consistency import consistent_counts
from dptrees.dpcore.sparse.domain import SparseDomain
from dptrees.dpcore.sparse.plan import SparsePlan

Bounds = Sequence[tuple[Integers, Integers]]


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """Rule by which subtrees are folded into their parents.

    The mechanism itself folds counts that the noise does not distinguish from 0: a published node
    is not empty, and a node of a single unit's rows is published with a probability of at most
    delta_l. A larger `rows` folds counts that are not distinguished from less than so many rows.
    It selects nodes by their intervals, whose coverage holds over the nodes before it.

    Args:
        rows: a node is kept if its interval begins at so many rows or more, or one below it does;
            0: every published node is kept.

    Raises:
        ValueError: a negative number.

    >>> Pruning(rows=100).rule, Pruning().sentence(0.95)
    ('interval', 'A node whose noisy count is at most the threshold of its level is folded into \
its parent.')
    """

    rows: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 0:
            raise ValueError(f"rows is {self.rows!r}; it must be an integer of at least 0")

    @property
    def rule(self) -> str:
        """The rule's name: threshold or interval."""
        return "interval" if self.rows else "threshold"

    def sentence(self, confidence: float) -> str:
        """The rule in words, for the manifest."""
        sentence = (
            "A node whose noisy count is at most the threshold of its level is folded into its "
            "parent."
        )
        if self.rows:
            sentence += (
                f" So is a subtree in which no node's interval, at confidence {confidence:g}, "
                f"begins at {self.rows} rows or more. The intervals cover at this confidence the "
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
    pruning: Pruning | None = None,
) -> list[PrunedLevel]:
    """All levels of one tree from its published nodes, root first.

    Args:
        plan: of the tree.
        domain: of the tree.
        published: (h + 1,) from `dpcore.sparse.publication.publish_shard`, the parts of a level
            merged.
        confidence: of the intervals, above 0 and at most 0.9999, or 1.
        pruning: the rule; by default every published node is kept.

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
    kept = _kept(tree, intervals, Pruning() if pruning is None else pruning)
    counts = consistent_counts(plan, tree, bounds, kept)
    return [
        _pruned_level(plan, number, *parts)
        for number, parts in enumerate(zip(tree, bounds, intervals, kept, counts, strict=True))
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


def _kept(tree: Sequence[KnownLevel], intervals: Bounds, pruning: Pruning) -> list[Flags]:
    """Flags of the nodes that are not folded; with a node all its ancestors."""
    kept: list[Flags] = []
    for number in range(len(tree) - 1, -1, -1):
        own = intervals[number][0] >= pruning.rows
        if kept:
            below = child_sums(tree[number + 1], kept[-1].astype(np.int64), len(own))
            own = own | (below > 0)
        kept.append(own if number else np.ones(1, np.bool_))
    return kept[::-1]


def _pruned_level(
    plan: SparsePlan,
    number: int,
    level: KnownLevel,
    bounds: tuple[Integers, Integers],
    interval: tuple[Integers, Integers],
    kept: Flags,
    counts: Integers,
) -> PrunedLevel:
    return PrunedLevel(
        keys=level.keys.filter(pa.array(kept)),
        estimate=np.where(level.measured, level.noisy.astype(np.float64), np.nan)[kept],
        std_error=np.where(level.measured, plan.standard_error(number), np.nan)[kept],
        ci_low=interval[0][kept],
        ci_high=interval[1][kept],
        least=bounds[0][kept],
        most=bounds[1][kept],
        count=counts[kept],
    )
