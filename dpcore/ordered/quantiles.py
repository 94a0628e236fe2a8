"""Quantiles from the consistent counts, with intervals from the estimates, chunk by chunk.

The q-quantile is the value below which q of the total lies: the first leaf whose prefix count
reaches max(1, ceil(q total)), from the top-down counts. Its interval inverts the errors of
D_b = prefix_b - q total: the leaf that holds the true quantile is the first b with D_b >= 0, so
with w the half-width of the error of D_b it is no earlier than the first b with D_b + w_b >= 0 and
no later than one past the last b with D_b - w_b < 0. Each side fails with half the error
probability, so the interval covers the true quantile at least as often as stated.

Every chunk states what it knows (`chunk_quantiles`); merging is a minimum and a maximum.

Source: the design, section 5; `dpcore.questions.intervals` has the intervals of D_b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpcore.arrays import Floats, Integers
from dpcore.questions.intervals import Ends


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
    rows = []
    for quantile in quantiles:
        reached, share = _value(quantile, counts, totals)
        low, high = _interval(*ends(quantile))
        rows.append(
            QuantileCells(
                cell=np.where(reached >= 0, starts + reached, -1),
                share=share,
                low=np.where(low < size, starts + low, leaves - 1),
                high=np.where(high >= 0, np.minimum(starts + high + 1, leaves - 1), 0),
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


def _interval(lowest: Floats, highest: Floats) -> tuple[Integers, Integers]:
    """(units,) the place of the first leaf with D + w >= 0 (n where there is none), and of the last
    with D - w < 0 (-1 where there is none)."""
    size = highest.shape[1]
    not_below, below = highest >= 0, lowest < 0
    low = np.where(not_below.any(axis=1), not_below.argmax(axis=1), size)
    high = np.where(below.any(axis=1), size - 1 - below[:, ::-1].argmax(axis=1), -1)
    return low, high
