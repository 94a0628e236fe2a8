"""Errors of estimated counts of ranges: of all ranges, or of ranges of given widths.

All ranges. With P_t the prefixes, the sum of Var(P_t - P_s) over 0 <= s < t <= K is (K + 1) sum
Var P_t - Var(sum P_t). The mean Q of the prefixes is one linear functional, with weight (K - i) /
K on leaf i; inside a node it is alpha times the node's estimate plus an independent rest, where,
over the children, alpha = sum k_c alpha_c and e = sum e_c + sum alpha_c^2 a_c - (sum alpha_c
a_c)^2 / A. Full nodes of a level differ in alpha by a constant only, so the recursion has height
h.

Ranges of a width. The two boundaries of a range are followed up the tree, each with its (alpha,
e) of `dpcore.uniform.prefix_errors`, and with their covariance once they are in one node. The
mean is over all positions where there are few, else over positions spread evenly by the golden
ratio, which no tree is in step with. Source: derived here and checked against dense least
squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.sums import row_dots
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.uniform.prefix_errors import (
    Below,
    Ends,
    Parents,
    Scalars,
    TreeBatch,
    prefix_moments,
)

_GOLDEN = (math.sqrt(5) - 1) / 2
# A variance below this part of the total's from below is that of a range known exactly.
_ROUNDING = 1e-14


def all_ranges_variance(batch: TreeBatch, precisions: Scalars) -> Scalars:
    """The mean variance of an estimated range count, over all K (K + 1) / 2 ranges.

    Args:
        batch: the trees.
        precisions: (..., trees, h + 1), see `TreeBatch.below`.

    Returns:
        (..., trees) in rows^2.

    >>> batch = TreeBatch(leaves=2, fanouts=((2,),))  # of variances 0.5, 0.5 and 0
    >>> all_ranges_variance(batch, np.array([[np.inf, 1.0]])).round(6).tolist()
    [0.333333]
    """
    leaves = batch.leaves
    mean = prefix_moments(batch, precisions).variance
    variance: Scalars = 2 * (
        mean - leaves / (leaves + 1) * _mean_prefix(batch, batch.below(precisions))
    )
    return variance


def _mean_prefix(batch: TreeBatch, below: Below) -> Scalars:
    """The variance of the mean of all K prefixes."""
    full_rest = last_rest = last_alpha = np.zeros_like(below.full[0])
    for index, parents in enumerate(batch.levels):
        full, last, children = below.full[index], below.last[index], below.children[index]
        terms = batch.kept("ranges", index, partial(_Terms.from_parents, parents, batch.leaves))
        at_last = last_alpha - terms.shift
        divisor = np.where(children == 0, 1, children)
        weighted = terms.total * full + at_last * last
        added = terms.squares * full + at_last**2 * last - weighted**2 / divisor
        last_rest = parents.full_children * full_rest + last_rest + added
        last_alpha = weighted / divisor
        of_full = full * terms.step_squared * parents.fanout * terms.fanout_squared / 12
        full_rest = parents.fanout * full_rest + of_full
    variance: Scalars = last_rest + (1 + last_alpha) ** 2 * below.last[-1]
    return variance


@dataclass(frozen=True, kw_only=True)
class _Terms:
    """What the recursion of the mean prefix takes from the shapes alone at one level.

    Attributes:
        shift: by which alpha falls from the first child of the last node to its last child.
        total, squares: the sums of alpha and of alpha^2 over the full children of the last node.
        step_squared: of the step of alpha from child to child.
        fanout_squared: n^2 - 1.
    """

    shift: Floats
    total: Floats
    squares: Floats
    step_squared: Floats
    fanout_squared: Floats

    @classmethod
    def from_parents(cls, parents: Parents, size: int) -> _Terms:
        # Weights are counted from a node's first leaf on: leaf i has -i / K.
        step = parents.child_leaves / size
        middle = -(parents.child_leaves - 1) / (2 * size)
        count, fanout = parents.full_children, parents.fanout
        # The full children of the last node have alpha = middle - j step, j = 0..count - 1.
        mean = middle - step * (count - 1) / 2
        return cls(
            shift=step * count,
            total=count * mean,
            squares=count * mean**2 + step**2 * count * (count**2 - 1) / 12,
            step_squared=step**2,
            fanout_squared=fanout**2 - 1,
        )


def positions(leaves: int, width: int, at_most: int, first: int = 0) -> Integers:
    """Starts of the ranges of a width: everywhere, or so many places spread evenly.

    Args:
        leaves: K.
        width: 1 to K.
        at_most: so many positions.
        first: of the evenly spread positions, the one to begin with.

    >>> positions(10, 7, 100).tolist(), positions(1000, 1, 3).tolist()
    ([0, 1, 2, 3], [0, 618, 236])
    """
    places = leaves - width + 1
    if places <= at_most:
        return np.arange(places)
    spread = np.modf(_GOLDEN * np.arange(first, first + at_most))[0]
    places_of: Integers = np.minimum((spread * places).astype(np.int64), places - 1)
    return places_of


def ranges_variance(
    batch: TreeBatch, precisions: Scalars, starts: Integers, stops: Integers
) -> Scalars:
    """The variance of the estimated counts of leaves ``start`` to ``stop`` - 1.

    Args:
        batch: the trees.
        precisions: (..., trees, h + 1), see `TreeBatch.below`.
        starts, stops: (ranges,) 0 <= start < stop <= K.

    Returns:
        (..., trees, ranges) in rows^2.

    >>> batch = TreeBatch(leaves=4, fanouts=((2, 2),))
    >>> precisions = np.array([[np.inf, 1.0, 1.0]])
    >>> ranges_variance(batch, precisions, np.array([0, 1]), np.array([2, 3])).round(6).tolist()
    [[0.333333, 1.0]]
    """
    below = batch.below(precisions)
    begin, end = (_Boundary(each, np.shape(below.full[0])) for each in (starts, stops))
    covariance: Scalars = np.zeros(1)
    ends = zip(batch.ends(starts), batch.ends(stops), strict=True)
    for index, (first, second) in enumerate(ends):
        left = begin.climb(batch.levels[index], below, index, first)
        right = end.climb(batch.levels[index], below, index, second)
        covariance = covariance + _shared(left, right, first, second)
    rest = begin.rest + end.rest - 2 * covariance
    return _variance(rest, end.alpha - begin.alpha, below)


def ranks_variance(
    batch: TreeBatch, precisions: Scalars, stops: Integers, quantiles: Sequence[float]
) -> Scalars:
    """The variance of prefix - q total at given boundaries: the error in rank of quantiles.

    Args:
        batch: the trees.
        precisions: (..., trees, h + 1), see `TreeBatch.below`.
        stops: (quantiles,) the prefixes are leaves 0 to ``stop`` - 1; 0 <= stop <= K.
        quantiles: the q of each.

    Returns:
        (..., trees, quantiles) in rows^2.

    >>> batch = TreeBatch(leaves=4, fanouts=((4,),))
    >>> ranks_variance(batch, np.array([[0.0, 1.0]]), np.array([2]), [0.5]).tolist()
    [[1.0]]
    """
    below = batch.below(precisions)
    end = _Boundary(stops, np.shape(below.full[0]))
    for index, ends in enumerate(batch.ends(stops)):
        end.climb(batch.levels[index], below, index, ends)
    return _variance(end.rest, end.alpha - np.asarray(quantiles), below)


def ranges_parts(
    batch: TreeBatch, precisions: Floats, starts: Integers, stops: Integers, weights: Floats
) -> Floats:
    """Parts of a weighted sum of `ranges_variance` from the noise of each level.

    The same as `dpcore.uniform.prefix_errors.level_parts`, from derivatives that are taken going
    back down: the work of a few evaluations, and not of one for each level.

    Args:
        batch: the trees.
        precisions: (trees, h + 1), see `TreeBatch.below`.
        starts, stops: (ranges,) 0 <= start < stop <= K.
        weights: (ranges,).

    Returns:
        (trees, h + 1) in rows^2.

    >>> batch = TreeBatch(leaves=4, fanouts=((2, 2),))
    >>> ranges_parts(batch, np.array([[np.inf, 1.0, 1.0]]), np.array([0]), np.array([2]),
    ...              np.array([1.0])).round(6).tolist()
    [[0.0, 0.222222, 0.111111]]
    """
    below = batch.below(precisions)
    begin, end = (_Boundary(each, np.shape(below.full[0])) for each in (starts, stops))
    ends = list(zip(batch.kept_ends(starts), batch.kept_ends(stops), strict=True))
    steps, covariance = [], np.zeros(1)
    for index, (first, second) in enumerate(ends):
        left = begin.climb(batch.levels[index], below, index, first)
        right = end.climb(batch.levels[index], below, index, second)
        covariance = covariance + _shared(left, right, first, second)
        steps.append((left, right))
    across = end.alpha - begin.alpha
    variance = _variance(begin.rest + end.rest - 2 * covariance, across, below)
    slopes = _Slopes(batch, np.where(variance > 0, weights, 0))
    slopes.add_root(across**2)
    of_end = 2 * across * below.last[-1][:, None]
    of_begin = -of_end
    for index in reversed(range(batch.height)):
        (first, second), (left, right) = ends[index], steps[index]
        begin_slope, end_slope = left.slopes(of_begin), right.slopes(of_end)
        parent, child = first.parent == second.parent, first.child == second.child
        _add_shared(begin_slope, end_slope, left, right, parent=parent, child=child)
        slopes.add(index, first, begin_slope)
        slopes.add(index, second, end_slope)
        of_begin, of_end = left.slope_of_alpha(begin_slope), right.slope_of_alpha(end_slope)
    return slopes.parts(precisions, below)


def ranks_parts(
    batch: TreeBatch,
    precisions: Floats,
    stops: Integers,
    quantiles: Sequence[float],
    weights: Floats,
) -> Floats:
    """Parts of a weighted sum of `ranks_variance` from the noise of each level.

    Args:
        batch, precisions, stops, quantiles: as for `ranks_variance`, without leading axes.
        weights: (quantiles,).

    Returns:
        (trees, h + 1) in rows^2.

    >>> batch = TreeBatch(leaves=4, fanouts=((4,),))
    >>> ranks_parts(batch, np.array([[0.0, 1.0]]), np.array([2]), [0.5], np.array([1.0])).tolist()
    [[0.0, 1.0]]
    """
    below = batch.below(precisions)
    end, ends = _Boundary(stops, np.shape(below.full[0])), batch.kept_ends(stops)
    steps = [end.climb(batch.levels[index], below, index, each) for index, each in enumerate(ends)]
    across = end.alpha - np.asarray(quantiles)
    variance = _variance(end.rest, across, below)
    slopes = _Slopes(batch, np.where(variance > 0, weights, 0))
    slopes.add_root(across**2)
    of_alpha = 2 * across * below.last[-1][:, None]
    for index in reversed(range(batch.height)):
        slope = steps[index].slopes(of_alpha)
        slopes.add(index, ends[index], slope)
        of_alpha = steps[index].slope_of_alpha(slope)
    return slopes.parts(precisions, below)


@dataclass(frozen=True, kw_only=True)
class _Step:
    """The values of boundaries in the step through one level: (..., trees, ends) each.

    Attributes:
        alpha: in the child, before the step.
        left, own, total: the variances of the children left of the boundary's child, that child's
            a, and A of the parent.
        covered: sum w_c a_c.
    """

    alpha: Scalars
    left: Scalars
    own: Scalars
    total: Scalars
    covered: Scalars

    def slopes(self, of_alpha: Scalars) -> dict[str, Scalars]:
        """The derivatives of e, and of what comes after it by way of alpha, in the others."""
        of_covered = (of_alpha - 2 * self.covered) / self.total
        return {
            "covered": of_covered,
            "left": 1 + of_covered,
            "own": self.alpha * (self.alpha + of_covered),
            "total": self.covered * (self.covered - of_alpha) / self.total**2,
            "alpha": 2 * self.alpha * self.own,
        }

    def slope_of_alpha(self, slopes: dict[str, Scalars]) -> Scalars:
        """The derivative in the child's alpha."""
        slope: Scalars = slopes["alpha"] + self.own * slopes["covered"]
        return slope


class _Boundary:
    """The right ends of prefixes, followed up the trees: their alpha and e at a level."""

    def __init__(self, stops: Integers, shape: tuple[int, ...]) -> None:
        # The prefix of no leaves is none of leaf 0, any other is all of its last leaf.
        self.alpha: Scalars = np.broadcast_to((stops > 0) * 1.0, (*shape, len(stops)))
        self.rest: Scalars = np.zeros((*shape, len(stops)))

    def climb(self, parents: Parents, below: Below, index: int, ends: Ends) -> _Step:
        """Climb from the children of a level's parents to the parents."""
        full, last = below.full[index][..., None], below.last[index][..., None]
        children = below.children[index][..., None]
        total = np.where(ends.in_last, children, parents.fanout[:, None] * full)
        total = np.where(total == 0, 1, total)  # children known exactly leave no error
        left, own = ends.place * full, np.where(ends.is_last, last, full)
        covered = left + self.alpha * own
        step = _Step(alpha=self.alpha, left=left, own=own, total=total, covered=covered)
        self.rest = self.rest + left + self.alpha**2 * own - covered**2 / total
        self.alpha = covered / total
        return step


def _shared(begin: _Step, end: _Step, first: Ends, second: Ends) -> Scalars:
    """Term that a node adds to the covariance of two prefixes that end in it, the first not
    later."""
    overlap = np.where(first.child == second.child, end.alpha, 1) * begin.alpha * begin.own
    shared = begin.left + overlap - begin.covered * end.covered / begin.total
    inside: Scalars = np.where(first.parent == second.parent, shared, 0)
    return inside


def _add_shared(
    of_begin: dict[str, Scalars],
    of_end: dict[str, Scalars],
    begin: _Step,
    end: _Step,
    *,
    parent: npt.NDArray[np.bool_],
    child: npt.NDArray[np.bool_],
) -> None:
    """The derivatives of -2 `_shared`, where the parent, or the child too, is the same."""
    double = 2.0 * parent
    ratio = double / begin.total
    begin_covered, end_covered = ratio * end.covered, ratio * begin.covered
    within = double * np.where(child, end.alpha, 1)
    of_begin["covered"] = of_begin["covered"] + begin_covered
    of_begin["left"] = of_begin["left"] + begin_covered - double
    of_begin["own"] = of_begin["own"] + begin.alpha * (begin_covered - within)
    of_begin["total"] = of_begin["total"] - begin_covered * begin.covered / begin.total
    of_begin["alpha"] = of_begin["alpha"] - within * begin.own
    of_end["covered"] = of_end["covered"] + end_covered
    of_end["left"] = of_end["left"] + end_covered
    of_end["own"] = of_end["own"] + end.alpha * end_covered
    of_end["alpha"] = of_end["alpha"] - double * child * begin.alpha * begin.own


class _Slopes:
    """Derivatives of weighted sums of variances in the a of full nodes, last nodes and in A."""

    def __init__(self, batch: TreeBatch, weights: Floats) -> None:
        def zeros(count: int) -> list[Scalars]:
            return [np.zeros(len(batch.fanouts)) for _ in range(count)]

        self.batch, self.weights = batch, weights
        height = batch.height
        self.sums = Below(full=zeros(height + 1), last=zeros(height + 1), children=zeros(height))

    def add_root(self, slope: Floats) -> None:
        """Add the derivative in the root's variance."""
        self.sums.last[-1] += self._sum(slope)

    def add(self, index: int, ends: Ends, slopes: dict[str, Scalars]) -> None:
        """Add the sums of one level of children."""
        of_own, of_total = slopes["own"], slopes["total"]
        own_last, total_last = self._sum(of_own * ends.is_last), self._sum(of_total * ends.in_last)
        of_full = self._sum(slopes["left"] * ends.place + of_own) - own_last
        fanout = self.batch.levels[index].fanout
        self.sums.full[index] += of_full + fanout * (self._sum(of_total) - total_last)
        self.sums.last[index] += own_last
        self.sums.children[index] += total_last

    def _sum(self, slopes: Floats) -> Floats:
        """(trees,) weighted over the ends."""
        return row_dots(slopes, self.weights)

    def parts(self, precisions: Floats, below: Below) -> Floats:
        """Each level's precision times the negative derivative in it; 0 of a known root."""
        slopes = self.batch.precision_slopes(precisions, below, self.sums)
        known = np.isinf(precisions)
        parts: Floats = np.where(known, 0, -slopes * np.where(known, 0, precisions))
        return parts


def _variance(rest: Scalars, alpha: Scalars, below: Below) -> Scalars:
    """e + alpha^2 g at the root, 0 where what is left of the total's variance is but rounding."""
    variance = rest + alpha**2 * below.last[-1][..., None]
    least = _ROUNDING * below.children[-1].real[..., None]
    return np.where(variance.real > least, variance, 0)
