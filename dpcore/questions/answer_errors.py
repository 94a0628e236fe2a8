"""Errors of answers that combine several released nodes, for any mechanism."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.questions.intervals import Ends
from dptrees.dpcore.trees.shape import Shape

# Leaves start..stop - 1.
LeafRun = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class SumError:
    """The error of an estimated count.

    Args:
        variance: in rows^2.
        margin: half-width of the confidence interval, in rows.
    """

    variance: float
    margin: float


@dataclass(frozen=True, kw_only=True)
class SumBounds:
    """Leaves whose counts bound a count that was not estimated by itself.

    Args:
        inner: runs of leaves that lie within the counted ones; their interval gives the low end.
        outer: runs of leaves that hold the counted ones; theirs gives the high end.
    """

    inner: Sequence[LeafRun]
    outer: Sequence[LeafRun]


class AnswerErrors(ABC):
    """Errors of the answers about a released tree, at one confidence.

    `dpcore.questions.mechanism.Mechanism.answer_errors` makes them. A mechanism overrides what it
    knows.

    Args:
        tree: the shape.
    """

    def __init__(self, tree: Shape) -> None:
        self._tree = tree

    @abstractmethod
    def node(self, level: int, std_error: float) -> float:
        """Return half the width of a node's confidence interval, in rows."""

    def sum(self, runs: Sequence[LeafRun], key: int) -> SumError | SumBounds:
        """Return the error of the count of several runs of leaves together.

        Args:
            runs: rising, with gaps between them.
            key: code of the tree's key.

        Raises:
            ValueError: the error of a sum is not known for this mechanism.
        """
        raise ValueError(
            "sum: the error of a sum of these counts is not known; query the nodes above them"
        )

    def sum_of_nodes(self, nodes: Sequence[tuple[int, int]], key: int) -> SumError | SumBounds:
        """Return the error of the count of several nodes together.

        Args:
            nodes: (level, node); none is below another.
            key: code of the tree's key.

        Raises:
            ValueError: as `sum`.
        """
        below = [self._tree.leaf_range(*node) for node in nodes]
        return self.sum(merged_runs((each.start, each.stop) for each in below), key)

    def leaf_blocks(self, key: int) -> Integers | None:
        """Return the edges of the blocks of leaves whose rows are taken to lie evenly in them,
        rising from 0 to K; None where every leaf was estimated by itself."""
        return None

    def weighted(self, weights: Floats, key: int) -> float:
        """Return the variance of a weighted sum of the estimates of the leaves.

        Args:
            weights: (K,) alike inside each block of `leaf_blocks`.
            key: code of the tree's key.

        Raises:
            ValueError: it is not known for this mechanism.
        """
        raise ValueError("the error of a weighted sum of these counts is not known")

    def prefix(self, stop: int, key: int, *, simultaneous: bool) -> SumError | SumBounds:
        """Return the error of the count of leaves 0..stop - 1.

        Args:
            stop: 0 to K.
            key: code of the tree's key.
            simultaneous: the interval belongs to a band that holds at all prefixes at once.

        Raises:
            ValueError: no such band is known.
        """
        if simultaneous:
            self.band(np.zeros(0))
        return self.sum([(0, stop)], key)

    def band(self, variances: Floats) -> Floats:
        """Return the margins of prefixes that hold at all prefixes at once.

        Args:
            variances: (...) of the estimates of prefixes, in rows^2.

        Returns:
            (...) in rows.

        Raises:
            ValueError: no such band is known.
        """
        raise ValueError(
            "simultaneous: no band over all values is known for this mechanism; whole levels have "
            "one (optimize_for: estimates)"
        )

    def quantile_ends(self, points: pa.Table, totals: Floats, keys: range) -> Ends:
        """Return the intervals that quantiles are found by, a row for each key.

        Args:
            points: all points of the CDFs of some keys, in the order of keys and leaves.
            totals: (keys,) the estimates of the roots.
            keys: their codes: one key, or all whose trees lie in a chunk.

        Raises:
            TypeError: the mechanism has no CDF.
        """
        raise TypeError(f"{type(self).__name__}: no intervals of quantiles")


def merged_runs(runs: Iterable[LeafRun]) -> list[LeafRun]:
    """Merge runs of leaves that touch or overlap.

    >>> merged_runs([(4, 6), (0, 2), (2, 3), (5, 7)])
    [(0, 3), (4, 7)]
    """
    merged: list[LeafRun] = []
    for start, stop in sorted(runs):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged
