"""Laws of the errors of the papers' estimates: of a node, a prefix or a range.

Each estimate of `dpcore.papers.honaker` is linear in the measurements, so its error is the
same combination of the levels' noise, and an `ErrorLaw` gives intervals without assuming a normal
error. The estimates from below, z, are the common currency: a node's is its own noise with weight
1 - w_l and its children's z with weight w_l; none has w_l = 0 where the level is measured and 1
where it is not, below the weight of least variance. Every other estimate is a sum of coefficients
times z over *runs* of neighboring nodes (a cover is one run a level) plus, from above, the own
noise of the nodes on a path. Walking down, the coefficient of z of a node is what its parent
passes on plus that of the runs that hold it; it is constant on O(h) intervals of a level, so any
law takes O(h^2).

Source: Honaker, equations 8 to 13; Rameshwar, Tandon, Sharma, equations 5 and 11 to 14, section
III-A; the runs are derived here. All are equal to unit noise sent through the estimators (tests).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.papers.rameshwar import Covering, covering, right_covering
from dptrees.dpcore.trees.error_laws import ErrorLaw
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.error_laws import UniformErrors
from dptrees.dpcore.uniform.plan import Estimator, TreePlan, check_estimator

# A coefficient this small beside the largest is what rounding left of one that cancelled.
_CANCELLED = 1e-13


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A coefficient times the sum of z over the nodes ``start`` to ``stop`` - 1 of a level."""

    level: int
    start: int
    stop: int
    coefficient: float


def _runs(nodes: Covering, coefficient: float) -> list[_Run]:
    return [
        _Run(level=level, start=run.start, stop=run.stop, coefficient=coefficient)
        for level, run in nodes
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pieces:
    """A coefficient for each node of a level: values[i] from node starts[i] on; starts[0] is 0."""

    starts: npt.NDArray[np.int64]
    values: Floats

    def plus(self, size: int, runs: Sequence[_Run]) -> _Pieces:
        """The sum with runs over the level's nodes; its last node is a piece of its own."""
        ends = [end for run in runs for end in (run.start, run.stop) if end < size]
        starts = np.unique(np.concatenate([self.starts, np.array([size - 1, *ends], np.int64)]))
        values = self.values[np.searchsorted(self.starts, starts, side="right") - 1]
        for run in runs:
            values[(run.start <= starts) & (starts < run.stop)] += run.coefficient
        return _Pieces(starts=starts, values=values)


@dataclass(frozen=True, kw_only=True)
class EstimatorErrors:
    """The error laws of one estimator on one plan's tree, as `estimate_tree` returns its estimates.

    Args:
        estimator: which one.
        plan: the tree, the law of each level's noise, whether N is public.

    Raises:
        ValueError: REFINED where N is not public.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure
    >>> plan = TreePlan(
    ...     tree=UniformTree(leaves=4, fanouts=(2, 2)), unit=SUBSTITUTE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(2)),
    ...     level_amounts=(Fraction(0), Fraction(1), Fraction(1)), public_total=True)
    >>> for estimator in Estimator:
    ...     errors = EstimatorErrors(estimator=estimator, plan=plan)
    ...     laws = errors.node(1, 0), errors.prefix(2), errors.range(1, 3)
    ...     print(estimator.value, [round(law.variance / plan.variances[1], 3) for law in laws])
    none [1.0, 2.0, 3.0]
    below [0.667, 1.667, 2.0]
    above [0.4, 0.583, 1.0]
    refined [0.667, 0.667, 1.333]
    full [0.333, 0.583, 1.0]
    """

    estimator: Estimator
    plan: TreePlan

    def __post_init__(self) -> None:
        check_estimator(self.estimator, public_total=self.plan.public_total)

    @cached_property
    def _efficient(self) -> UniformErrors:
        return UniformErrors(self.plan)

    @property
    def _is_efficient(self) -> bool:
        """Whether prefixes and ranges are the fully efficient ones."""
        return self.estimator in (Estimator.ABOVE, Estimator.FULL)

    def node(self, level: int, node: int) -> ErrorLaw:
        """The error of the estimate of one node's count.

        Raises:
            ValueError: no such node; or ABOVE for a node that only what is below it measures.
        """
        _check_node(level, node, self.plan.tree)
        if self.estimator is Estimator.FULL:
            return self._efficient.node(level, node)
        if self.estimator is Estimator.ABOVE:
            return self._node_from_above(level, node)
        return self._law([_Run(level=level, start=node, stop=node + 1, coefficient=1.0)])

    def prefix(self, leaf: int, *, less_total: float = 0.0) -> ErrorLaw:
        """The error of the estimated count of leaves 0 to ``leaf``, less a multiple of the total's.

        Args:
            leaf: the last leaf of the prefix.
            less_total: q, for the error of prefix - q total, which decides a quantile; the total is
                the last prefix.

        Raises:
            ValueError: no such leaf.
        """
        _check_leaf(leaf, self.plan.tree)
        if self._is_efficient:
            return self._efficient.prefix(leaf, less_total=less_total)
        total = self._prefix_runs(self.plan.tree.leaves, -less_total)
        return self._law(self._prefix_runs(leaf + 1, 1.0) + total)

    def range(self, start: int, stop: int) -> ErrorLaw:
        """The error of the estimated count of leaves ``start`` to ``stop`` - 1.

        The estimate is the difference of two prefixes', so that ranges add up. Only for FULL is it
        also the sum of the estimates of the nodes that make up the range.

        Args:
            start, stop: 0 <= start <= stop <= K.

        Raises:
            ValueError: not a range of the tree's leaves.
        """
        _check_range(start, stop, self.plan.tree)
        if start == stop:
            return ErrorLaw(terms=())
        if self._is_efficient:
            return self._efficient.range(start, stop)
        return self._law(self._prefix_runs(stop, 1.0) + self._prefix_runs(start, -1.0))

    def sum(self, runs: Sequence[tuple[int, int]]) -> ErrorLaw:
        """The error of the sum of the estimates of several ranges, as `range` has them.

        Args:
            runs: [start, stop) of each, rising, with gaps between them.
        """
        if self._is_efficient:
            return self._efficient.sum(runs)
        return self._law(
            [
                run
                for start, stop in runs
                for run in (*self._prefix_runs(stop, 1.0), *self._prefix_runs(start, -1.0))
            ]
        )

    def _prefix_runs(self, stop: int, coefficient: float) -> list[_Run]:
        """A multiple of the estimate of leaves 0 to ``stop`` - 1, but for what is public of it."""
        left = covering(self.plan.tree, stop - 1)
        if self.estimator is not Estimator.REFINED:
            return _runs(left, coefficient)
        right = right_covering(self.plan.tree, stop - 1)
        return _runs(left, coefficient / 2) + _runs(right, -coefficient / 2)

    def _node_from_above(self, level: int, node: int) -> ErrorLaw:
        """t+ = w y + (1 - w) (the parent's t+ less the siblings' z), unrolled up to the root."""
        tree = self.plan.tree
        path = [node // math.prod(tree.fanouts[above:level]) for above in range(level + 1)]
        runs, own, share = [], [], 1.0
        weights = self._path_weights(path)
        for child in range(level, 0, -1):
            own.append((child, share * weights[child]))
            share *= 1 - weights[child]
            siblings = tree.children(child - 1, path[child - 1])
            for start, stop in ((siblings.start, path[child]), (path[child] + 1, siblings.stop)):
                runs.append(_Run(level=child, start=start, stop=stop, coefficient=-share))
        return self._law(runs, [*own, (0, share)])

    def _path_weights(self, path: Sequence[int]) -> list[float]:
        """w of each node of a path from the root in its estimate from above; the root's is 1."""
        variances, errors = self.plan.variances, self._efficient
        weights, spread = [1.0], variances[0]
        for level in range(1, len(path)):
            others = errors.total(level - 1, path[level - 1]) - errors.below(level, path[level])
            spread += others
            if math.isinf(variances[level]):
                weights.append(0.0)
                continue
            both = spread + variances[level]
            weights.append(spread / both if 0 < both < math.inf else 1.0)
            spread = weights[-1] * variances[level]
        if math.isinf(spread):
            raise ValueError(
                f"node: {path[-1]} of level {len(path) - 1} has no estimate from above, as neither "
                "it nor any level above it is measured"
            )
        return weights

    def _law(self, runs: Sequence[_Run], own: Sequence[tuple[int, float]] = ()) -> ErrorLaw:
        """The error of a sum of runs, and of single nodes' own noise, (level, coefficient)."""
        found: dict[tuple[int, float], int] = {}

        def add(level: int, coefficient: float, count: int) -> None:
            key = level, abs(coefficient)  # the noise is symmetric
            found[key] = found.get(key, 0) + count

        for level, coefficient in own:
            add(level, coefficient, 1)
        passed_on = _Pieces(starts=np.zeros(1, np.int64), values=np.zeros(1))
        for level, size in enumerate(self.plan.tree.level_sizes):
            held = passed_on.plus(size, [run for run in runs if run.level == level])
            ordinary, last = self._children_weights(level)
            weights = np.where(held.starts == size - 1, last, ordinary)
            counts = np.diff(held.starts, append=size)
            for coefficient, count in zip(held.values * (1 - weights), counts, strict=True):
                add(level, float(coefficient), int(count))
            if level < self.plan.tree.height:
                fanout = min(self.plan.tree.fanouts[level], self.plan.tree.leaves)
                passed_on = _Pieces(starts=held.starts * fanout, values=held.values * weights)
        least = _CANCELLED * max(size for _, size in found)
        laws = self.plan.laws
        return ErrorLaw(
            terms=tuple(
                (law, size, count)
                for (level, size), count in found.items()
                if (law := laws[level]) is not None and size > least
            )
        )

    def _children_weights(self, level: int) -> tuple[float, float]:
        """w of (an ordinary, the last) node of a level: the weight of its children's z in its z."""
        tree, variance = self.plan.tree, self.plan.variances[level]
        if level == tree.height:
            return 0.0, 0.0
        if math.isinf(variance):
            return 1.0, 1.0
        if self.estimator is Estimator.NONE or variance == 0:
            return 0.0, 0.0
        ordinary = self._efficient.total(level, 0)
        last = self._efficient.total(level, tree.level_sizes[level] - 1)
        return variance / (variance + ordinary), variance / (variance + last)


@dataclass(frozen=True, kw_only=True)
class IndependentErrors:
    """The error laws of `independent_estimates`, where each prefix was measured by itself.

    Args:
        tree: the shape.
        law: of the noise of one prefix.
        public_total: the last prefix is N, known exactly.

    Source: Rameshwar et al., section III-A.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.noise.laws import DiscreteLaplace
    >>> law = DiscreteLaplace(scale=Fraction(5))
    >>> errors = IndependentErrors(tree=UniformTree(leaves=4, fanouts=(4,)), law=law,
    ...     public_total=True)
    >>> [errors.node(1, leaf).variance / law.variance for leaf in range(4)]
    [1.0, 2.0, 2.0, 1.0]
    """

    tree: UniformTree
    law: NoiseLaw
    public_total: bool = False

    def node(self, level: int, node: int) -> ErrorLaw:
        """The error of the estimate of one node's count: that of its range of leaves."""
        _check_node(level, node, self.tree)
        leaves = self.tree.leaf_range(level, node)
        return self.range(leaves.start, leaves.stop)

    def prefix(self, leaf: int, *, less_total: float = 0.0) -> ErrorLaw:
        """The error of the count of leaves 0 to ``leaf``, less a multiple of the last prefix's."""
        _check_leaf(leaf, self.tree)
        last = self.tree.leaves - 1
        if leaf == last:
            return self._law({last: 1.0 - less_total})
        return self._law({leaf: 1.0, last: -less_total})

    def range(self, start: int, stop: int) -> ErrorLaw:
        """The error of the estimated count of leaves ``start`` to ``stop`` - 1."""
        _check_range(start, stop, self.tree)
        return self._law({stop - 1: 1.0, start - 1: -1.0} if start < stop else {})

    def sum(self, runs: Sequence[tuple[int, int]]) -> ErrorLaw:
        """The error of the sum of several ranges, rising, with gaps between them."""
        ends = {stop - 1: 1.0 for _, stop in runs} | {start - 1: -1.0 for start, _ in runs}
        return self._law(ends)

    def _law(self, coefficients: dict[int, float]) -> ErrorLaw:
        """Return the error law of a combination of prefixes, by their last leaves; -1 represents
        the empty prefix."""
        noisy = range(self.tree.leaves - self.public_total)
        sizes = Counter(abs(value) for leaf, value in coefficients.items() if leaf in noisy)
        return ErrorLaw(
            terms=tuple((self.law, size, count) for size, count in sizes.items() if size)
        )


def _check_node(level: int, node: int, tree: UniformTree) -> None:
    if not (0 <= level <= tree.height and 0 <= node < tree.level_sizes[level]):
        raise ValueError(f"node: {node} of level {level} is not in the tree")


def _check_leaf(leaf: int, tree: UniformTree) -> None:
    if not 0 <= leaf < tree.leaves:
        raise ValueError(f"leaf: {leaf} is not from 0 to {tree.leaves - 1}")


def _check_range(start: int, stop: int, tree: UniformTree) -> None:
    if not 0 <= start <= stop <= tree.leaves:
        raise ValueError(f"range: {start} to {stop} is not within 0 to {tree.leaves}")
