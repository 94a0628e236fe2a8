"""Messages about the roots of a chunk of an adaptive tree, and the released tables of its nodes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dptrees.dpcore.adaptive.holders import Holders, Nodes
from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.trees.forest import LevelSolution, PrefixSolution, RootSolutions

# Of a nodes table: the level of the node that was not split, itself or one above; null where it was
# split.
ENDED = pa.field("ended", pa.int32())


@dataclass(frozen=True, kw_only=True, eq=False)
class AdaptiveRoots(RootSolutions):
    """The state of the rest of an adaptive tree that a chunk needs, (units,) each.

    Attributes:
        total_variance: of the estimate of the whole tree.
        start, stop, ended, ...: of the root's holder, as `dpcore.adaptive.holders.Nodes`; ended
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
