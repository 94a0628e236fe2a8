"""Laws of the errors of a level-uniform tree's estimates, as combinations of noise.

The coefficients follow from the passes of `dpcore.trees.estimation`. They repeat: O(h^2) distinct
ones describe any node, prefix or range, however many leaves. Source: derived here; equal to unit
noise sent through the estimator (tests).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dptrees.dpcore.arithmetic.sums import integer_power, ordered_sum
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.trees.error_laws import ErrorLaw, law_cumulants
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import TreePlan

Expansion = tuple[tuple[int, float, int], ...]  # (level, coefficient, multiplicity)


@dataclass(frozen=True, kw_only=True)
class _Touched:
    """The part of a node inside a sum.

    Attributes:
        share: alpha.
        inside: how many children are inside as a whole.
        whole_last: how many of them are the last node of their level, 0 or 1.
        below: the children that are inside in part.
    """

    share: float
    inside: int = 0
    whole_last: int = 0
    below: dict[int, _Touched] = field(default_factory=dict)

    @property
    def is_entered(self) -> bool:
        """Whether some of its leaves are inside and some are not."""
        return bool(self.inside or self.below)


class UniformErrors:
    """The error laws of the estimates of one plan's tree.

    Nodes come in two classes a level: the last one, which may be trimmed, and all others.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure
    >>> from dptrees.dpcore.trees.shapes import UniformTree
    >>> plan = TreePlan(
    ...     tree=UniformTree(leaves=4, fanouts=(4,)), unit=SUBSTITUTE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1)), public_total=True)
    >>> law = UniformErrors(plan).node(1, 0)
    >>> round(law.variance / plan.variances[1], 6)  # 1 - 1/4: the total is known
    0.75
    """

    def __init__(self, plan: TreePlan) -> None:
        self._plan = plan
        self._tree = tree = plan.tree
        # Per level, then for (an ordinary, the last) node.
        self._below: list[tuple[float, float]] = [(plan.variances[-1],) * 2]
        self._children: list[tuple[float, float]] = [(0.0, 0.0)]
        self._sums: list[tuple[float, float]] = [(0.0, 0.0)]
        self._expansions: list[tuple[Expansion, Expansion]] = [(((tree.height, 1.0, 1),),) * 2]
        for level in reversed(range(tree.height)):
            self._step_up(level)

    def _step_up(self, level: int) -> None:
        tree, (ordinary, last) = self._tree, self._below[0]
        rest = len(tree.children(level, tree.level_sizes[level] - 1)) - 1
        sums = (tree.fanouts[level] * ordinary, rest * ordinary + last)
        variance = self._plan.variances[level]
        children = tuple(
            1.0 if math.isinf(variance) else variance / (variance + total) if variance else 0.0
            for total in sums
        )
        of_ordinary, of_last = self._expansions[0]
        expansions = (
            _combine((level, 1 - children[0], 1), (children[0], of_ordinary, tree.fanouts[level])),
            _combine(
                (level, 1 - children[1], 1),
                (children[1], of_ordinary, rest),
                (children[1], of_last, 1),
            ),
        )
        self._sums.insert(0, sums)
        self._children.insert(0, (children[0], children[1]))
        self._below.insert(0, (children[0] * sums[0], children[1] * sums[1]))
        self._expansions.insert(0, expansions)

    @property
    def tree(self) -> UniformTree:
        """The plan's tree."""
        return self._tree

    @property
    def root_variance(self) -> float:
        """g of the root in rows^2: 0 where it is public."""
        return 0.0 if self._plan.public_total else self._below[0][1]

    def below(self, level: int, node: int) -> float:
        """a of a node: the variance of the estimate from it and what lies below it."""
        return self._below[level][self._is_last(level, node)]

    def total(self, level: int, node: int) -> float:
        """A of a node: the sum of a over its children."""
        return self._sums[level][self._is_last(level, node)]

    def gain(self, level: int, node: int) -> float:
        """k of a node of level 1 or below: its share of what its parent's estimate corrects."""
        total = self.total(level - 1, node // self._tree.fanouts[level - 1])
        return self.below(level, node) / total if total else 0.0

    def largest_coefficient(self, level: int) -> float:
        """Bound on the coefficient of a node's noise of a level in any prefix or range: its part in
        its z."""
        return 1.0 - min(self._children[level])

    def fourth_cumulant_below(self, level: int) -> float:
        """Return the fourth cumulant of z of an ordinary node, in rows^4."""
        return float(self._fourth_cumulants()[level, 0])

    def largest_kurtosis_share(self) -> float:
        """M with c^4 K <= M c^2 Var X for the noise X of any node: max C^2 K / Var, in rows^2."""
        moments = [law_cumulants(law) if law else (0.0, 0.0) for law in self._plan.laws]
        return max(
            _square(self.largest_coefficient(level)) * fourth / variance if variance else 0.0
            for level, (variance, fourth) in enumerate(moments)
        )

    def _is_last(self, level: int, node: int) -> int:
        return int(node == self._tree.level_sizes[level] - 1)

    def node(self, level: int, node: int) -> ErrorLaw:
        """The error of the estimate of one node's count."""
        leaves = self._tree.leaf_range(level, node)
        return self.range(leaves.start, leaves.stop)

    def prefix(self, leaf: int, *, less_total: float = 0.0) -> ErrorLaw:
        """The error of the estimated count of leaves 0 to ``leaf``, less a multiple of the total's.

        Args:
            leaf: the last leaf of the prefix.
            less_total: q, for the error of prefix - q total, which decides a quantile.
        """
        return self.range(0, leaf + 1, less_total=less_total)

    def range(self, start: int, stop: int, *, less_total: float = 0.0) -> ErrorLaw:
        """The error of the estimated count of leaves ``start`` to ``stop`` - 1, less q total.

        A node v with a share in the range, alpha_v = sum w_c k_c over its children, carries
        z_v with a coefficient theta_v, which splits into its own noise, (1 - m_v) theta_v, and
        its children's: theta_c = w_c - (alpha_v - m_v theta_v), with m_v the children's weight in
        z_v, w_c = alpha_c (1 inside, 0 outside). The root has theta = alpha - q, 0 where public.

        Args:
            start, stop: 0 <= start <= stop <= K.
            less_total: q.
        """
        if start == stop:  # nothing but the share of the total; its law is symmetric
            whole = self.range(0, self._tree.leaves).terms if less_total else ()
            return ErrorLaw(terms=tuple((law, less_total * c, count) for law, c, count in whole))
        shares: dict[tuple[int, int], float] = {}
        share = self._find_shares(0, 0, start, stop, shares)
        theta = 0.0 if self._plan.public_total else share - less_total
        parts = _merge(self._split(0, 0, theta, start, stop, shares))
        laws = self._plan.laws
        return ErrorLaw(
            terms=tuple(
                (law, coefficient, count)
                for level, coefficient, count in parts
                if (law := laws[level]) is not None
            )
        )

    def _find_shares(
        self, level: int, node: int, start: int, stop: int, found: dict[tuple[int, int], float]
    ) -> float:
        """alpha of a node; and, in ``found``, of all nodes that the range touches but in part."""
        leaves = self._tree.leaf_range(level, node)
        if start <= leaves.start and leaves.stop <= stop:
            return 1.0
        if stop <= leaves.start or leaves.stop <= start:
            return 0.0
        first, last = self._entered(level, node, start, stop)
        share = max(0, last - first - 1) * self.gain(level + 1, first)
        for child in {first, last}:
            below = self._find_shares(level + 1, child, start, stop, found)
            share += below * self.gain(level + 1, child)
        found[level, node] = share
        return share

    def _entered(self, level: int, node: int, start: int, stop: int) -> tuple[int, int]:
        """The first and the last child that the range touches."""
        children, width = self._tree.children(level, node), self._tree.leaves_below(level + 1)
        return max(start // width, children.start), min((stop - 1) // width, children.stop - 1)

    def _split(
        self,
        level: int,
        node: int,
        theta: float,
        start: int,
        stop: int,
        shares: dict[tuple[int, int], float],
    ) -> list[tuple[int, float, int]]:
        """theta z_v and what the range adds below v, as noise of single nodes."""
        tree, is_last = self._tree, self._is_last(level, node)
        if (level, node) not in shares:
            return _scaled(theta, self._expansions[level][is_last], 1)
        weight = self._children[level][is_last]
        outside = weight * theta - shares[level, node]
        first, last = self._entered(level, node, start, stop)
        children, (of_ordinary, of_last) = tree.children(level, node), self._expansions[level + 1]
        beyond = children.stop - 1 - last
        trimmed = int(beyond > 0 and self._is_last(level + 1, children.stop - 1))
        parts = [(level, (1 - weight) * theta, 1)]
        parts += _scaled(outside, of_ordinary, first - children.start + beyond - trimmed)
        parts += _scaled(outside, of_last, trimmed)
        parts += _scaled(1 + outside, of_ordinary, max(0, last - first - 1))
        for child in {first, last}:
            # A child that is touched but not split is inside as a whole.
            share = shares.get((level + 1, child), 1.0)
            parts += self._split(level + 1, child, share + outside, start, stop, shares)
        return parts

    def sum(self, runs: Sequence[tuple[int, int]]) -> ErrorLaw:
        """The error of the estimated count of several runs of leaves together.

        As `range`: with alpha_v the share of a node that is inside.

        Args:
            runs: [start, stop) of each, rising, with gaps between them.
        """
        touched = self._touched(0, 0, runs)
        theta = 0.0 if self._plan.public_total else touched.share
        laws = self._plan.laws
        return ErrorLaw(
            terms=tuple(
                (law, coefficient, count)
                for level, coefficient, count in _merge(self._shared_out(touched, 0, 0, theta))
                if (law := laws[level]) is not None
            )
        )

    def _touched(self, level: int, node: int, runs: Sequence[tuple[int, int]]) -> _Touched:
        """The part of a node inside some runs of leaves that all touch it."""
        leaves = self._tree.leaf_range(level, node)
        if len(runs) == 1 and runs[0][0] <= leaves.start and leaves.stop <= runs[0][1]:
            return _Touched(share=1.0)
        if not runs:
            return _Touched(share=0.0)
        width, children = self._tree.leaves_below(level + 1), self._tree.children(level, node)
        inside, parts = 0, dict[int, list[tuple[int, int]]]()
        for start, stop in runs:
            start, stop = max(start, leaves.start), min(stop, leaves.stop)
            first, last = -(-start // width), stop // width
            if stop == leaves.stop:
                last = children.stop
            inside += max(0, last - first)
            for child in {start // width, (stop - 1) // width}:
                if not first <= child < last:
                    parts.setdefault(child, []).append((start, stop))
        below = {child: self._touched(level + 1, child, own) for child, own in parts.items()}
        end = children.stop - 1
        # The last node of a level is of a class of its own, wherever it is.
        holds_last = self._is_last(level + 1, end) and runs[-1][1] >= leaves.stop
        whole_last = int(bool(holds_last) and end not in below)
        share = (inside - whole_last) * self.gain(level + 1, children.start)
        share += whole_last * self.gain(level + 1, end)
        share += ordered_sum(
            each.share * self.gain(level + 1, child) for child, each in below.items()
        )
        return _Touched(share=share, inside=inside, whole_last=whole_last, below=below)

    def _shared_out(
        self, touched: _Touched, level: int, node: int, theta: float
    ) -> list[tuple[int, float, int]]:
        """theta z_v and what the runs add below v, as noise of single nodes."""
        is_last = self._is_last(level, node)
        if not touched.is_entered:
            return _scaled(theta, self._expansions[level][is_last], 1)
        weight = self._children[level][is_last]
        outside = weight * theta - touched.share
        children, (ordinary, last) = self._tree.children(level, node), self._expansions[level + 1]
        end, whole_last = children.stop - 1, touched.whole_last
        left_last = int(
            bool(self._is_last(level + 1, end)) and not whole_last and end not in touched.below
        )
        left = len(children) - touched.inside - len(touched.below) - left_last
        parts = [(level, (1 - weight) * theta, 1)]
        parts += _scaled(outside, ordinary, left) + _scaled(outside, last, left_last)
        parts += _scaled(1 + outside, ordinary, touched.inside - whole_last)
        parts += _scaled(1 + outside, last, whole_last)
        for child, own in touched.below.items():
            parts += self._shared_out(own, level + 1, child, own.share + outside)
        return parts

    def moments_of_prefixes(self, leaf: Integers, less_total: Floats) -> tuple[Floats, Floats]:
        """The variances and fourth cumulants of many a `prefix`, without their laws.

        Args:
            leaf, less_total: (n,) of each.

        Returns:
            (n,) in rows^2, and (n,) in rows^4.
        """
        tree, height = self._tree, self._tree.height
        fourth = self._fourth_cumulants()
        path = [leaf // tree.leaves_below(level) for level in range(height + 1)]
        on_edge = [
            (nodes == size - 1).astype(np.int64)
            for nodes, size in zip(path, tree.level_sizes, strict=True)
        ]
        below, sums = np.array(self._below), np.array(self._sums)
        alpha = [np.ones(leaf.size)]
        for level in reversed(range(height)):
            total = sums[level][on_edge[level]]
            position = path[level + 1] - path[level] * tree.fanouts[level]
            own = below[level + 1][on_edge[level + 1]]
            weighted = position * below[level + 1, 0] + alpha[0] * own
            alpha.insert(0, weighted / np.where(total > 0, total, 1.0))
        theta = np.zeros(leaf.size) if self._plan.public_total else alpha[0] - less_total
        variance, cumulant = np.zeros(leaf.size), np.zeros(leaf.size)
        for level in range(height):
            edge, law = on_edge[level], self._plan.laws[level]
            weight = np.array(self._children[level])[edge]
            if law is not None:
                noise, noise_fourth = law_cumulants(law)
                variance += ((1 - weight) * theta) ** 2 * noise
                cumulant += integer_power((1 - weight) * theta, 4) * noise_fourth
            outside = weight * theta - alpha[level]
            first = path[level] * tree.fanouts[level]
            stop = np.minimum(first + tree.fanouts[level], tree.level_sizes[level + 1])
            left, right = path[level + 1] - first, stop - 1 - path[level + 1]
            trimmed = edge * (right > 0)
            for power, total, each in ((2, variance, below), (4, cumulant, fourth)):
                ordinary, last = each[level + 1]
                total += left * integer_power(1 + outside, power) * ordinary
                total += integer_power(outside, power) * (
                    (right - trimmed) * ordinary + trimmed * last
                )
            theta = alpha[level + 1] + outside
        variance += theta**2 * below[height][on_edge[height]]
        cumulant += integer_power(theta, 4) * fourth[height][on_edge[height]]
        return variance, cumulant

    def _fourth_cumulants(self) -> Floats:
        """(h + 1, 2) of z, of an ordinary and of the last node of each level."""
        laws = [law_cumulants(law)[1] if law else 0.0 for law in self._plan.laws]
        results = [[laws[-1]] * 2]
        for level in reversed(range(self._tree.height)):
            tree, (ordinary, last) = self._tree, results[0]
            rest = len(tree.children(level, tree.level_sizes[level] - 1)) - 1
            sums = (tree.fanouts[level] * ordinary, rest * ordinary + last)
            results.insert(
                0,
                [
                    _square(_square(1 - weight)) * laws[level] + _square(_square(weight)) * total
                    for weight, total in zip(self._children[level], sums, strict=True)
                ],
            )
        return np.array(results)


def _scaled(weight: float, expansion: Expansion, count: int) -> list[tuple[int, float, int]]:
    if not (weight and count):
        return []
    return [(level, weight * value, count * many) for level, value, many in expansion]


def _combine(own: tuple[int, float, int], *parts: tuple[float, Expansion, int]) -> Expansion:
    """A node's own noise plus weighted sums of alike independent expansions."""
    combined = [own] if own[1] and own[2] else []
    for weight, expansion, count in parts:
        combined += _scaled(weight, expansion, count)
    return _merge(combined)


def _merge(parts: Sequence[tuple[int, float, int]]) -> Expansion:
    """Add up the multiplicities of equal coefficients of a level."""
    merged: dict[tuple[int, float], int] = {}
    for level, coefficient, count in parts:
        size = abs(coefficient)
        merged[level, size] = merged.get((level, size), 0) + count
    return tuple((level, size, count) for (level, size), count in merged.items())


def _square(value: float) -> float:
    return value * value
