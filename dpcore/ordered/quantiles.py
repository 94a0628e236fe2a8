"""Quantiles from the consistent counts, with intervals from the estimates, chunk by chunk.

The q-quantile is the value below which q of the total lies: the first leaf whose prefix count
reaches max(1, ceil(q total)), from the top-down counts. Its interval inverts the errors of
D_b = prefix_b - q total: the leaf that holds the true quantile is the first b with D_b >= 0. With w
the half-width of the error of D_b (`dpcore.errors.intervals.QuantileMargin`), the interval begins
at the first b where D_b + w_b reaches 0, and ends one past the last b where D_b - w_b does not.

    rising   D rises, but its estimates fluctuate where few rows lie. The first of many fluctuating
             numbers to reach 0 does so too early, so the interval would be far too wide. So the
             limits are replaced by the closest rising ones, in the least squares (isotonic
             regression): they reach 0 where the sum of all limits before is the smallest.
    before   plans of earlier versions have one half-width, and the limits are read as they are.

At each b the estimate is off by more than w_b as often as stated. For the closest rising limits
that is measured, not proved: sums of convex functions of their errors are no larger, at one b they
may be (docs/quantiles.md has the coverage).

Every chunk states what it knows (`chunk_quantiles`); merging is a minimum and a maximum. Limits are
made to rise inside a chunk, so an interval around the edge of two chunks is no narrower than over
all leaves.

Source: the design, section 5; `dpcore.questions.intervals` has the estimates of D_b; Robertson,
Wright, Dykstra, "Order Restricted Statistical Inference", 1988, theorems 1.3.1 and 1.4.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.errors.intervals import QuantileMargin, prefix_margin
from dptrees.dpcore.questions.intervals import Differences, Ends


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantileCells:
    """Positions of quantiles, (trees, quantiles) each.

    Attributes:
        cell: the leaf that holds the quantile, -1 where unknown (or the total count is 0).
        share: the fraction of this leaf's count that lies below the quantile.
        low, high: the first and the last leaf of the interval.
    """

    cell: Integers
    share: Floats
    low: Integers
    high: Integers

    def merge(self, other: QuantileCells) -> QuantileCells:
        """The knowledge of two chunks of the same trees; associative and commutative."""
        known = self.cell >= 0
        return QuantileCells(
            cell=np.where(known, self.cell, other.cell),
            share=np.where(known, self.share, other.share),
            low=np.minimum(self.low, other.low),
            high=np.maximum(self.high, other.high),
        )

    def collapse(self) -> QuantileCells:
        """The knowledge of all rows, as subtrees of one tree, in one row."""
        known = self.cell.argmax(axis=0)[None]
        return QuantileCells(
            cell=np.take_along_axis(self.cell, known, axis=0),
            share=np.take_along_axis(self.share, known, axis=0),
            low=self.low.min(axis=0, keepdims=True),
            high=self.high.max(axis=0, keepdims=True),
        )

    def to_array(self) -> npt.NDArray[np.int64]:
        """(4, trees, quantiles) int64; floats keep their bits."""
        return np.stack([self.cell, self.share.view(np.int64), self.low, self.high])

    @classmethod
    def from_array(cls, array: npt.NDArray[np.int64]) -> QuantileCells:
        """The inverse of `to_array`."""
        cell, share, low, high = array
        return cls(cell=cell, share=share.view(np.float64), low=low, high=high)


@dataclass(frozen=True, kw_only=True, eq=False)
class Totals:
    """The state of the rest of their trees that subtrees need for quantiles, (units,) each.

    Attributes:
        count: the final count of the whole tree; before_count, of all left of the subtree.
    """

    count: Integers
    before_count: Integers


def chunk_quantiles(
    quantiles: Sequence[float],
    counts: Integers,
    totals: Totals,
    *,
    first_leaf: int,
    leaves: int,
    ends: Ends,
) -> QuantileCells:
    """Quantiles of trees as far as the subtrees of a chunk determine them.

    Args:
        quantiles: each in [0, 1].
        counts: (units, n) the final counts of the chunk's CDF points.
        totals: (units,) of the trees.
        first_leaf: the leaf, within its tree, of the chunk's first.
        leaves: K of the whole tree.
        ends: of the intervals of D_b.

    Returns:
        (units, quantiles): a row for each subtree.
    """
    units, size = counts.shape
    # Where a subtree is a whole tree, every row is another key's and starts anew.
    starts = np.zeros(units, np.int64) if size == leaves else first_leaf + size * np.arange(units)
    # Else all rows are one tree's, and follow each other.
    trees = units if size == leaves else 1
    wide, first = units * size // trees, 0 if size == leaves else first_leaf
    rows = []
    for quantile in quantiles:
        reached, share = _value(quantile, counts, totals)
        low, high = _interval(ends(quantile), trees)
        low = np.where(low < wide, first + low, leaves - 1)
        high = np.where(high >= 0, np.minimum(first + high + 1, leaves - 1), 0)
        rows.append(
            QuantileCells(
                cell=np.where(reached >= 0, starts + reached, -1),
                share=share,
                low=np.broadcast_to(low, units),
                high=np.broadcast_to(high, units),
            )
        )
    return QuantileCells.from_array(np.stack([row.to_array() for row in rows], axis=-1))


def _value(quantile: float, counts: Integers, totals: Totals) -> tuple[Integers, Floats]:
    """(units,) the place of the leaf that holds the quantile, -1 where none of the subtree's does;
    and the share of its count below the quantile."""
    exact = quantile * totals.count
    nearest = np.rint(exact)  # 0.55 * 100 is a little above 55 in floating point
    whole = np.abs(exact - nearest) <= 1e-12 * np.maximum(nearest, 1.0)
    wanted = np.maximum(1, np.where(whole, nearest, np.ceil(exact))).astype(np.int64)
    holds = (totals.before_count < wanted) & (wanted <= counts[:, -1])
    reached = (counts >= wanted[:, None]).argmax(axis=1)
    rows = np.arange(len(reached))
    before = np.where(reached > 0, counts[rows, np.maximum(reached - 1, 0)], totals.before_count)
    inside = np.maximum(counts[rows, reached] - before, 1)
    share = np.clip((quantile * totals.count - before) / inside, 0.0, 1.0)
    return np.where(holds, reached, -1), np.where(holds, share, 0.0)


def _interval(differences: Differences, trees: int) -> tuple[Integers, Integers]:
    """(trees,) the place of the first leaf whose upper limit reaches 0 (n where there is none), and
    of the last one whose lower limit does not (-1 where there is none)."""
    margin, *numbers = differences[-1], *(each.reshape(trees, -1) for each in differences[:-1])
    low, high, low_variance, high_variance = numbers
    if not isinstance(margin, QuantileMargin):
        below = low - prefix_margin(margin, low_variance)
        above = high + prefix_margin(margin, high_variance)
        return _as_they_are(np.minimum(below, above), np.maximum(below, above))
    # The rows between the edges that decide whether a leaf holds the quantile: the one at or after
    # its end, and the one at or before its start. Of the first leaf of a chunk it is not known.
    apart = np.zeros((trees, high.shape[1] + 1))
    apart[:, 1:-1] = np.maximum(high[:, 1:] - low[:, :-1], 0.0)
    below = low - margin.rows(low_variance, apart[:, 1:])
    above = high + margin.rows(high_variance, apart[:, :-1])
    return _reached(np.maximum(below, above)), _reached(np.minimum(below, above)) - 1


def _as_they_are(lowest: Floats, highest: Floats) -> tuple[Integers, Integers]:
    size = highest.shape[1]
    not_below, below = highest >= 0, lowest < 0
    low = np.where(not_below.any(axis=1), not_below.argmax(axis=1), size)
    high = np.where(below.any(axis=1), size - 1 - below[:, ::-1].argmax(axis=1), -1)
    return low, high


def _reached(limits: Floats) -> Integers:
    """(trees,) the place of the first leaf where the closest rising limits reach 0; n: there is
    none.

    >>> _reached(np.array([[-3.0, 1.0, -2.0, 1.5, 4.0], [-1.0, -1.0, -1.0, -1.0, 0.5]])).tolist()
    [3, 4]
    """
    sums = np.cumsum(limits, axis=1)
    return np.asarray(np.pad(sums, ((0, 0), (1, 0))).argmin(axis=1))
