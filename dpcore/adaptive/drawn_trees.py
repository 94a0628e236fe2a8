"""The trees that came out under several keys, as a release says them, and what they say of errors.

Source: `dpcore.adaptive.solving`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.adaptive.drawing import Kinds, first_variances, may_end
from dptrees.dpcore.adaptive.holders import Holders, Nodes
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.roots import DrawnLevel, DrawnPrefixes
from dptrees.dpcore.adaptive.solving import (
    FromBelow,
    leaf_from_below,
    leaf_spans,
    one_down,
    parents_from_below,
)
from dptrees.dpcore.arrays import Flags, Floats, Integers

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
