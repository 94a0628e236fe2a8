"""Drawn trees as a release reports them: the nodes that were split, their estimates and errors.

The shape is part of a release, so the variances of all estimates follow from it and the plan:
exactly, where decisions were measured apart. The messages about the roots of chunks are here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.adaptive.least_squares import (
    FromBelow,
    Holders,
    Nodes,
    leaf_from_below,
    leaf_spans,
    one_down,
    parents_from_below,
)
from dptrees.dpcore.adaptive.plan import AdaptivePlan, Kinds, first_variances, may_end
from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.trees.forests import LevelSolution, PrefixSolution, RootSolutions

# Of a nodes table: the level of the node that was not split, itself or one above; null where it was
# split.
ENDED = pa.field("ended", pa.int32())


@dataclass(frozen=True, kw_only=True, eq=False)
class AdaptiveRoots(RootSolutions):
    """The state of the rest of an adaptive tree that a chunk needs, (units,) each.

    Attributes:
        total_variance: of the estimate of the whole tree.
        start, stop, ended, ...: of the root's holder, as `dpcore.adaptive.least_squares.Nodes`;
        ended
            is -1 where the root is reached, and then the chunk itself knows whether it is split.
    """

    integers: ClassVar = (*RootSolutions.integers, "start", "stop", "ended", "held", "held_before")

    total_variance: Floats
    start: Integers
    stop: Integers
    ended: Integers
    held: Integers
    held_before: Integers
    holder: Floats
    variance: Floats
    holder_before: Floats
    before_variance: Floats
    covariance: Floats
    alpha: Floats
    before_alpha: Floats

    @classmethod
    def from_holders(
        cls, holders: Holders, spans: tuple[Integers, Integers], top: Holders
    ) -> AdaptiveRoots:
        """Make the roots from their holders, (rows, n).

        Args:
            holders: of the roots.
            spans: the roots' first leaves, and where they stop.
            top: (rows, 1) the holders of each row's whole tree.
        """
        start, stop = spans
        before_here = holders.before_count + holders.ends(start)
        found = {
            "estimate": holders.estimates_between(start, stop),
            "before": holders.before + holders.estimates_between(holders.start, start),
            "total": top.estimate,
            "count": holders.counts_between(start, stop),
            "before_count": before_here,
            "total_count": top.count,
            "total_variance": top.variance,
            "start": holders.start,
            "stop": holders.stop,
            "ended": holders.ended,
            "held": holders.count,
            "held_before": holders.before_count,
            "holder": holders.estimate,
            "variance": holders.variance,
            "holder_before": holders.before,
            "before_variance": holders.before_variance,
            "covariance": holders.covariance,
            "alpha": holders.alpha,
            "before_alpha": holders.before_alpha,
        }
        shape = holders.estimate.shape
        return cls(
            **{
                name: np.ascontiguousarray(np.broadcast_to(values, shape)).reshape(-1)
                for name, values in found.items()
            }
        )

    def holders(self, rows: int) -> Holders:
        """Return the holders of the roots, (rows, n)."""
        names = {field.name: field.name for field in fields(Nodes)} | {
            "count": "held",
            "before_count": "held_before",
            "estimate": "holder",
            "before": "holder_before",
        }
        return Nodes(**{name: getattr(self, own) for name, own in names.items()}).rows(rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnLevel(LevelSolution):
    """The answer for some nodes of one level of an adaptive tree, (rows, n) each.

    Attributes:
        variance: of the estimate given the drawn tree; NaN inside a node that was not split.
        ended: the level at which the node's path ended: its own where it is a leaf of the drawn
            tree, a smaller one where it lies inside such a leaf, -1 where it was split.
        holder_estimate, holder_variance: of the leaf of the drawn tree that it is or lies in; of a
            node that was split its own.
    """

    ended: Integers
    holder_estimate: Floats
    holder_variance: Floats

    @property
    def inside(self) -> Flags:
        """Flags of the nodes that lie inside a node that was not split."""
        return (self.ended >= 0) & (self.ended < self.level)

    @property
    def ended_column(self) -> pa.Array:
        """(rows * n,) `ended` as a column of the field `ENDED`."""
        ended = np.broadcast_to(self.ended, self.estimate.shape).reshape(-1)
        return pa.array(ended.astype(np.int32), mask=ended < 0)

    @classmethod
    def from_holders(
        cls, level: int, first: int, holders: Holders, spans: tuple[Integers, Integers]
    ) -> DrawnLevel:
        """Make the table from the holders of the level's nodes.

        Args:
            level: which.
            first: the node that the arrays begin with.
            holders: (rows, n).
            spans: the nodes' first leaves, and where they stop.
        """
        inside = (holders.ended >= 0) & (holders.ended < level)
        return cls(
            level=level,
            first_node=first,
            estimate=holders.estimates_between(*spans),
            variance=np.where(inside, np.nan, holders.variance),
            count=holders.counts_between(*spans),
            ended=holders.ended,
            holder_estimate=holders.estimate,
            holder_variance=holders.variance,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnPrefixes(PrefixSolution):
    """The answer for the prefixes that end in a chunk of an adaptive tree, (rows, leaves) each.

    A prefix that ends inside a node that was not split has no variance (NaN); its estimate is
    interpolated between the estimates at the node's edges. Elsewhere both edges are the prefix
    itself.

    Attributes:
        low_estimate, low_variance, low_alpha: of the prefix that ends at the holder's lower edge.
        high_estimate, high_variance, high_alpha: likewise, at its upper edge.
    """

    low_estimate: Floats
    low_variance: Floats
    low_alpha: Floats
    high_estimate: Floats
    high_variance: Floats
    high_alpha: Floats

    @classmethod
    def from_holders(cls, holders: Holders, stop: Integers) -> DrawnPrefixes:
        """Make the table from the holders of leaves.

        Args:
            holders: (rows, leaves).
            stop: where each leaf stops, within its key's tree.
        """
        inside = np.broadcast_to(stop, holders.stop.shape) < holders.stop
        variance = holders.before_variance + 2.0 * holders.covariance + holders.variance
        high_estimate, high_alpha = (
            holders.before + holders.estimate,
            holders.before_alpha + holders.alpha,
        )
        share = (stop - holders.start) / (holders.stop - holders.start)
        return cls(
            estimate=holders.before + holders.estimate * share,
            variance=np.where(inside, np.nan, variance),
            alpha=holders.before_alpha + holders.alpha * share,
            count=holders.before_count + holders.ends(stop),
            low_estimate=np.where(inside, holders.before, high_estimate),
            low_variance=np.where(inside, holders.before_variance, variance),
            low_alpha=np.where(inside, holders.before_alpha, high_alpha),
            high_estimate=high_estimate,
            high_variance=variance,
            high_alpha=high_alpha,
        )


# The rows of one level that a release lists: which nodes, (m,), and of each key their numbers.
Listed = tuple[Integers, Floats | Integers]


class DrawnTrees:
    """The drawn trees of some keys.

    Args:
        plan: by which they were drawn.
        ended: per level, (keys, n_l): the level at which the node's path ended, -1 where it was
            split.

    Raises:
        ValueError: levels of other sizes; paths that no tree of the plan has.
    """

    def __init__(self, plan: AdaptivePlan, ended: Sequence[Integers]) -> None:
        self.plan, self.ended = plan, [np.asarray(each, dtype=np.int64) for each in ended]
        sizes = tuple(each.shape[1] for each in self.ended)
        if sizes != plan.tree.level_sizes:
            raise ValueError(f"ended: levels of {sizes} nodes, not of {plan.tree.level_sizes}")
        if not all(map(self._is_possible, range(plan.tree.height + 1))):
            raise ValueError("ended: the paths that end there are those of no tree of the plan")

    def _is_possible(self, level: int) -> bool:
        """Whether the nodes of a level go on from those above: inside a node that was not split,
        split, or not split where that may be."""
        tree, own = self.plan.tree, self.ended[level]
        above = tree.to_children(level - 1, self.ended[level - 1]) if level else np.array([[-1]])
        ends = (own == level) & may_end(
            self.plan, level, Kinds.from_plan(self.plan, level, 0, own.shape[1])
        )
        goes_on = (own == -1) & (level < tree.height)
        return bool(np.where(above < 0, goes_on | ends, own == above).all())

    @classmethod
    def from_listed(cls, plan: AdaptivePlan, keys: int, levels: Sequence[Listed]) -> DrawnTrees:
        """Read the trees from the rows of a release: nodes that only continue a leaf of an upper
        level have none.

        Args:
            plan, keys: of the trees.
            levels: what is listed of each level, the column ended with -1 for null.

        Raises:
            ValueError: as above.
        """
        results: list[Integers] = []
        for level, (nodes, ended) in enumerate(levels):
            own = (
                plan.tree.to_children(level - 1, results[-1])
                if level
                else np.full((keys, 1), -1, dtype=np.int64)
            )
            if level == plan.tree.height:
                own = np.where(own < 0, level, own)
            own[:, nodes] = ended
            results.append(own)
        return cls(plan, results)

    def levels(self, listed: Sequence[Listed]) -> list[DrawnLevel]:
        """All levels as they were solved, but for their counts, which are 0 here.

        Args:
            listed: the estimates that were released, as for `from_listed`.
        """
        tree, solved = self.plan.tree, list[DrawnLevel]()
        own = held = np.zeros((len(self.ended[0]), 1))
        for level, (nodes, released) in enumerate(listed):
            if level:
                own, held = (tree.to_children(level - 1, each) for each in (own, held))
            own[:, nodes] = released
            ended = self.ended[level]
            inside = (ended >= 0) & (ended < level)
            held = np.where(inside, held, own)
            variance = np.broadcast_to(self.holders[level].variance, own.shape)
            solved.append(
                DrawnLevel(
                    level=level,
                    first_node=0,
                    estimate=own,
                    variance=np.where(inside, np.nan, variance),
                    count=np.zeros(own.shape, dtype=np.int64),
                    ended=ended,
                    holder_estimate=held,
                    holder_variance=variance,
                )
            )
        return solved

    def prefixes(self, estimate: Floats) -> DrawnPrefixes:
        """The prefixes of all leaves, as they were solved.

        Args:
            estimate: (keys, K) that was released of each.
        """
        holders = self.holders[-1]
        found = DrawnPrefixes.from_holders(holders, np.arange(1, self.plan.tree.leaves + 1)[None])
        known = np.concatenate([np.zeros((len(estimate), 1)), estimate], axis=1)
        ends = np.where(np.isnan(found.variance), holders.start, holders.stop)
        return replace(
            found,
            estimate=estimate,
            low_estimate=np.take_along_axis(known, ends, axis=1),
            high_estimate=np.take_along_axis(known, holders.stop, axis=1),
        )

    @cached_property
    def root_variance(self) -> Floats:
        """(keys, 1) of the estimates of the whole trees."""
        a = self.below[0].a
        return np.zeros_like(a) if self.plan.public_total else a

    @property
    def total_variances(self) -> Floats:
        """(keys,) of the estimates of the whole trees, given the drawn trees, as of any other sum
        of leaves."""
        return self.weighted(np.ones((len(self.ended[0]), self.plan.tree.leaves)))

    def weighted(self, weights: Floats) -> Floats:
        """Return the variances of weighted sums of leaves, one of each tree: alpha_v = sum alpha_c
        k_c, e_v = sum e_c + sum alpha_c^2 a_c - (sum alpha_c a_c)^2 / A, and at the root alpha^2 g
        + e.

        Args:
            weights: (keys, K), equal inside each leaf of a drawn tree.

        Returns:
            (keys,).
        """
        tree, alpha, residual = self.plan.tree, weights, np.zeros_like(weights)
        for level in reversed(range(tree.height)):
            here, a = self.below[level], self.below[level + 1].a
            assert here.split is not None and here.sum_a is not None
            weighted = tree.child_sum(level, alpha * a)
            spread = tree.child_sum(level, residual + np.square(alpha) * a)
            first = self._first_child(level)
            residual = np.where(here.split, spread - np.square(weighted) / here.sum_a, 0.0)
            alpha = np.where(here.split, weighted / here.sum_a, alpha[:, first])
        return np.asarray(np.square(alpha[:, 0]) * self.root_variance[:, 0] + residual[:, 0])

    def _first_child(self, level: int) -> Integers:
        sizes = np.ones(self.plan.tree.level_sizes[level + 1], dtype=np.int64)
        counts = self.plan.tree.child_sum(level, sizes)
        return np.cumsum(counts) - counts

    @cached_property
    def holders(self) -> list[Holders]:
        """Holders of every level, (keys, n), with estimates and counts left at 0."""
        tree, keys = self.plan.tree, len(self.ended[0])
        none, zeros = np.zeros(keys, dtype=np.int64), np.zeros(keys)
        result = [
            Nodes(
                start=none,
                stop=none + tree.leaves,
                ended=self.ended[0][:, 0],
                count=none,
                before_count=none,
                estimate=zeros,
                variance=self.root_variance[:, 0],
                before=zeros,
                before_variance=zeros,
                covariance=zeros,
                alpha=zeros + 1.0,
                before_alpha=zeros,
            ).rows(keys)
        ]
        for level in range(tree.height):
            nodes, ended = (self.below[level], self.below[level + 1]), self.ended[level + 1]
            start, stop = leaf_spans(tree, level + 1, 0, ended.shape[1])
            spans = start[None], stop[None]
            result.append(one_down(tree, level, result[-1], nodes, spans, ended))
        return result

    @cached_property
    def below(self) -> list[FromBelow]:
        """Per level, (keys, n), a and A of the passes up; estimates are left at 0."""
        plan, tree, keys = self.plan, self.plan.tree, len(self.ended[0])
        sizes, height = tree.level_sizes, tree.height
        variances = [
            np.broadcast_to(
                first_variances(plan, level, Kinds.from_plan(plan, level, 0, size)), (keys, size)
            )
            for level, size in enumerate(sizes)
        ]
        lowest = np.where(np.isinf(variances[height]), 1.0, variances[height])
        result = [FromBelow(z=np.zeros((keys, sizes[height])), a=lowest)]
        for level in reversed(range(height)):
            split: Flags = self.ended[level] < 0
            leaf = leaf_from_below(None, variances[level], None, plan.last_variances[level])
            own = None, variances[level]
            result.insert(0, parents_from_below(tree, level, result[0], own, leaf, split))
        return result


def listed_nodes(height: int, keys: int, rows: pa.Table, column: str) -> list[Listed]:
    """The rows of each level in a table of nodes, for `DrawnTrees`.

    Args:
        height: of the trees.
        keys: how many they are; rows of a level are in the order of keys and nodes, and of a
            single key in any order.
        rows: with the columns level and node, and the column that is wanted; null is -1.
        column: its name.

    Raises:
        ValueError: rows that are not the same of every key.
    """
    at, node = rows["level"].to_numpy(), rows["node"].to_numpy()
    values = pc.fill_null(rows[column], -1).to_numpy()
    result: list[Listed] = []
    for level in range(height + 1):
        mine = at == level
        result.append((node[mine].reshape(keys, -1)[0], values[mine].reshape(keys, -1)))
    return result


class DrawnTree:
    """The drawn tree of one key.

    Args:
        plan: by which it was drawn.
        ended: per level, (n_l,): the level at which the node's path ended, -1 where it was split.

    Raises:
        ValueError: as `DrawnTrees`.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> from dptrees.dpcore.trees.shapes import UniformTree
    >>> from fractions import Fraction
    >>> plan = AdaptivePlan(
    ...     tree=UniformTree(leaves=4, fanouts=(2, 2)), unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1, 2), Fraction(1, 2)), thresholds=(0, 9))
    >>> drawn = DrawnTree(plan, [np.array([-1]), np.array([1, -1]), np.array([1, 1, 2, 2])])
    >>> drawn.edges.tolist(), drawn.edges_around(1)
    ([0, 2, 3, 4], (0, 2))
    """

    def __init__(self, plan: AdaptivePlan, ended: Sequence[Integers]) -> None:
        # The same tree among no others.
        self.alone = DrawnTrees(plan, [np.asarray(each)[None] for each in ended])
        self.plan, self.ended = plan, [each[0] for each in self.alone.ended]

    @classmethod
    def from_rows(cls, plan: AdaptivePlan, rows: pa.Table) -> DrawnTree:
        """Read the tree from all rows of a key in the table of nodes."""
        listed = listed_nodes(plan.tree.height, 1, rows, "ended")
        return cls(plan, [each[0] for each in DrawnTrees.from_listed(plan, 1, listed).ended])

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
        """Return the variance of the estimate of leaves ``start`` to ``stop`` - 1; NaN where an end
        is no edge."""
        return self.runs([(start, stop)])

    def runs(self, runs: Sequence[tuple[int, int]]) -> float:
        """Return the variance of the sum over runs of leaves, which may overlap; NaN where an end
        is no edge."""
        changes = np.zeros(self.plan.tree.leaves + 1, dtype=np.int64)
        for start, stop in runs:
            changes[start] += 1
            changes[stop] -= 1
        cut = np.flatnonzero(changes)
        if not np.isin(cut, self.edges).all():
            return float("nan")
        return self.weighted(np.cumsum(changes[:-1]).astype(np.float64))

    def prefixes(self, estimate: Floats) -> DrawnPrefixes:
        """The prefixes of all leaves, as they were solved.

        Args:
            estimate: (K,) that was released of each.
        """
        return self.alone.prefixes(estimate[None])

    def weighted(self, weights: Floats) -> float:
        """Return the variance of a weighted sum of leaves, (K,) weights that are equal inside each
        leaf of the drawn tree."""
        return float(self.alone.weighted(weights[None])[0])
