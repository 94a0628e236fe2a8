"""Objectives of plans: the error that a reader of the release will see, in rows^2.

Each objective is a mean of variances after estimation: of all prefixes of the leaves (the CDF),
of quantiles in rank or, with a public guess of the distribution, in value, of ranges of leaves,
of leaves, or of the nodes of a given tree. Source: derived here, as
`dpcore.uniform.prefix_errors` and `dpcore.uniform.range_errors`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dptrees.dpcore.arithmetic.sums import ordered_sum, row_dots
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.specification import Coded, coded
from dptrees.dpcore.uniform.prefix_errors import (
    Scalars,
    TreeBatch,
    level_parts,
    prefix_moments,
    prefix_variance,
)
from dptrees.dpcore.uniform.range_errors import (
    all_ranges_variance,
    positions,
    ranges_parts,
    ranges_variance,
    ranks_parts,
    ranks_variance,
)


def node_variances(batch: TreeBatch, precisions: Scalars) -> Scalars:
    """The mean variance of the estimated counts of each level's nodes.

    Args:
        batch: the trees.
        precisions: (..., trees, h + 1), see `TreeBatch.below`.

    Returns:
        (..., trees, h + 1) in rows^2, root first.

    >>> batch = TreeBatch(leaves=4, fanouts=((2, 2),))
    >>> node_variances(batch, np.array([[np.inf, 1.0, 1.0]])).round(6).tolist()
    [[0.0, 0.333333, 0.583333]]
    """
    below = batch.below(precisions)
    # Over the full nodes of a level together, and of its last node.
    together, last = np.zeros_like(below.last[-1]), below.last[-1]
    levels = [last]
    for index in reversed(range(batch.height)):
        parents, a, children = batch.levels[index], below.full[index], below.children[index]
        divisor = np.where(children == 0, 1, children)  # children known exactly stay so
        of_full = parents.full_nodes * (parents.fanout - 1) * a + together / parents.fanout
        spread = a - a**2 / divisor + (a / divisor) ** 2 * last
        together = of_full + parents.full_children * spread
        own = below.last[index]
        last = own - own**2 / divisor + (own / divisor) ** 2 * last
        count = parents.full_nodes * parents.fanout + parents.full_children + 1
        levels.append((together + last) / count)
    return np.stack(levels, axis=-1)


# Places that a search looks at, to compare many trees and to judge the last few.
SEARCHED_PLACES = 48
JUDGED_PLACES = 256
# So many guesses are all looked at: trees that fit some of them can be bad for the others.
_SEARCHED_GUESSES = 128
# Ranges of each width that a prediction looks at.
_PREDICTED_POSITIONS = 2**13


class Objective(Coded, ABC):
    """The objective that a plan minimizes. Equal values state the same objective."""

    tag = "kind"
    kind: ClassVar[str]

    @property
    def is_costly(self) -> bool:
        """Whether a trial looks at many places, so that a search should try less."""
        return False

    @property
    def reads(self) -> str:
        """Description of the estimates whose error it is, for a person."""
        return "a CDF point, over all cells"

    @property
    def unit(self) -> str:
        """Unit of the root of the error."""
        return "rows"

    @abstractmethod
    def variance(self, batch: TreeBatch, precisions: Scalars) -> Scalars:
        """(..., trees) the mean variance of what will be read, from (..., trees, h + 1)."""

    def searched_parts(self, batch: TreeBatch, precisions: Floats, places: int) -> Floats:
        """Parts of the variance from the noise of each level, for a search.

        Args:
            batch: the trees.
            precisions: (trees, h + 1).
            places: where the objective looks at places, it may look at so many of them only.

        Returns:
            (trees, h + 1); their sums are the variances.
        """
        return level_parts(self.variance, batch, precisions)

    def one_leaf_variance(self, total: float) -> float:
        """The same of a tree of one leaf, whose count has the given variance."""
        return total


@dataclass(frozen=True, kw_only=True)
class CdfObjective(Objective):
    """The variance of an estimated prefix count, mean over the K prefixes."""

    kind: ClassVar[str] = "cdf"

    def variance(self, batch: TreeBatch, precisions: Scalars) -> Scalars:
        """See `dpcore.uniform.prefix_errors`."""
        return prefix_variance(batch, precisions)


@dataclass(frozen=True, kw_only=True)
class Guess:
    """Public guess of the distribution at one quantile.

    Args:
        stop: the leaf boundary nearest to the quantile: so many leaves lie left of it.
        density: rows in one leaf there, for the guessed number of rows.
    """

    stop: int
    density: float

    def __post_init__(self) -> None:
        if not 0 < self.density < math.inf:
            raise ValueError(f"density: {self.density} is not a positive number of rows")


@dataclass(frozen=True, kw_only=True)
class QuantileObjective(Objective):
    """The error of quantiles.

    Without a guess, the variance of prefix - q total, mean over all boundaries and the quantiles:
    the error in rank, in rows, where the data may lie anywhere. With one, the error in value, in
    leaves: to first order that of the rank over the density.

    Args:
        quantiles: those that will be read, each in [0, 1].
        guesses: for each quantile, or none.

    Raises:
        ValueError: no quantile, one outside [0, 1], or another number of guesses.
    """

    quantiles: tuple[float, ...]
    guesses: tuple[Guess, ...] = field(
        default=(),
        metadata=coded(
            write=lambda goal: [[each.stop, each.density] for each in goal.guesses],
            read=lambda pairs: tuple(Guess(stop=stop, density=density) for stop, density in pairs),
        ),
    )
    kind: ClassVar[str] = "quantiles"

    def __post_init__(self) -> None:
        if not self.quantiles:
            raise ValueError("quantiles: there are none")
        for quantile in self.quantiles:
            if not 0 <= quantile <= 1:
                raise ValueError(f"quantiles: {quantile} is not between 0 and 1")
        if self.guesses and len(self.guesses) != len(self.quantiles):
            raise ValueError(
                f"guesses: {len(self.guesses)} of them for {len(self.quantiles)} quantiles"
            )

    @property
    def is_costly(self) -> bool:
        """True if there are many guesses."""
        return len(self.guesses) > 32

    @property
    def reads(self) -> str:
        """The rank of quantiles, or their value."""
        return "quantiles' values, as guessed" if self.guesses else "quantiles' ranks, anywhere"

    @property
    def unit(self) -> str:
        """Unit of the root of the error."""
        return "cells" if self.guesses else "rows"

    def variance(self, batch: TreeBatch, precisions: Scalars) -> Scalars:
        """Return the variance, in rows^2 without guesses, in leaves^2 with them."""
        if not self.guesses:
            return prefix_moments(batch, precisions).rank_variance(self.quantiles)
        stops, quantiles, weights = self._places(batch.leaves, len(self.guesses))
        return row_dots(ranks_variance(batch, precisions, stops, quantiles), weights)

    def searched_parts(self, batch: TreeBatch, precisions: Floats, places: int) -> Floats:
        """Return the parts of the variance at some of very many guesses, evenly chosen; see
        `dpcore.uniform.range_errors.ranks_parts`."""
        if not self.guesses:
            return super().searched_parts(batch, precisions, places)
        at_most = max(places, _SEARCHED_GUESSES)
        return ranks_parts(batch, precisions, *self._places(batch.leaves, at_most))

    def _places(self, leaves: int, at_most: int) -> tuple[Integers, list[float], Floats]:
        """The boundaries, the quantiles and the weights of so many guesses."""
        outside = [guess.stop for guess in self.guesses if not 0 <= guess.stop <= leaves]
        if outside:
            raise ValueError(f"guesses: {outside[0]} is no boundary of {leaves} leaves")
        chosen = _evenly(len(self.guesses), at_most)
        stops = np.array([self.guesses[index].stop for index in chosen])
        densities = np.array([self.guesses[index].density for index in chosen])
        return stops, [self.quantiles[index] for index in chosen], 1 / densities**2 / len(chosen)

    def one_leaf_variance(self, total: float) -> float:
        """The rank of a quantile in one leaf, or its value."""
        if not self.guesses:
            return total * float(np.mean([(1 - q) * (1 - q) for q in self.quantiles]))
        pairs = zip(self.guesses, self.quantiles, strict=True)
        errors = np.array([(guess.stop - q) / guess.density for guess, q in pairs])
        return total * float(np.mean(errors**2))


@dataclass(frozen=True, kw_only=True)
class RangeObjective(Objective):
    """The variance of an estimated range count: mean over all ranges, or over the given widths and
    then over the ranges of each width.

    Args:
        widths: in leaves; none for all ranges.

    Raises:
        ValueError: a width below 1 or not whole.
    """

    widths: tuple[int, ...] = ()
    kind: ClassVar[str] = "ranges"

    @property
    def is_costly(self) -> bool:
        """True if widths are given."""
        return bool(self.widths)

    def __post_init__(self) -> None:
        for width in self.widths:
            if isinstance(width, bool) or not isinstance(width, int) or width < 1:
                raise ValueError(f"widths: {width!r} is not a whole number of leaves above 0")

    @property
    def reads(self) -> str:
        """Description of the ranges, for a person."""
        if not self.widths:
            return "a range, over all ranges"
        return f"ranges of {', '.join(map(str, self.widths))} cells"

    def variance(self, batch: TreeBatch, precisions: Scalars) -> Scalars:
        """Return the mean variance of ranges of a width, at 2^13 places at most, spread evenly, and
        at all places where there are fewer."""
        if not self.widths:
            return all_ranges_variance(batch, precisions)
        self._check_widths(batch.leaves)
        means: list[Scalars] = []
        for width in self.widths:  # one at a time, for the memory
            starts = positions(batch.leaves, width, _PREDICTED_POSITIONS)
            variances = ranges_variance(batch, precisions, starts, starts + width)
            means.append(variances.mean(axis=-1))
        variance: Scalars = np.mean(means, axis=0)
        return variance

    def searched_parts(self, batch: TreeBatch, precisions: Floats, places: int) -> Floats:
        """Return the parts of the variance at some of many widths, evenly chosen; see
        `dpcore.uniform.range_errors.ranges_parts`."""
        if not self.widths:
            return super().searched_parts(batch, precisions, places)
        return ranges_parts(batch, precisions, *self._places(batch.leaves, places))

    def _check_widths(self, leaves: int) -> None:
        too_wide = [width for width in self.widths if width > leaves]
        if too_wide:
            raise ValueError(f"widths: {too_wide[0]} is more than the {leaves} leaves")

    def _places(self, leaves: int, places: int) -> tuple[Integers, Integers, Floats]:
        """Starts and ends of the searched ranges, and their weights: the same for every width."""
        self._check_widths(leaves)
        ordered = sorted(self.widths)
        widths = [ordered[index] for index in _evenly(len(ordered), places)]
        each_of = places // len(widths)
        # Every width goes on where the last one stopped, so that few positions are spread too.
        starts = [
            positions(leaves, width, each_of, each_of * index) for index, width in enumerate(widths)
        ]
        stops = [each + width for each, width in zip(starts, widths, strict=True)]
        weights = [np.full(len(each), 1 / len(each) / len(widths)) for each in starts]
        return np.concatenate(starts), np.concatenate(stops), np.concatenate(weights)

    def one_leaf_variance(self, total: float) -> float:
        """Return the variance of the only leaf."""
        if any(width > 1 for width in self.widths):
            raise ValueError(f"widths: {max(self.widths)} is more than the 1 leaves")
        return total


@dataclass(frozen=True, kw_only=True)
class CountObjective(Objective):
    """The variance of the estimated count of a leaf, mean over the leaves: of categories that have
    no order.

    No linear unbiased plan beats measuring the leaves alone, with all of the budget, where rows are
    added or removed: let the rows of A be what is measured, and its columns have an l2 norm of at
    most 1 (as do columns with an l1 norm of at most 1). Then the diagonal of A^T A is at most 1, so
    trace((A^T A)^-1) >= K, which A = I attains. Under substitute with a public total the same holds
    on the sums of zero.

    Source: derived here; Li, Miklau, Hay, McGregor, Rastogi, "The matrix mechanism", section 4.
    """

    kind: ClassVar[str] = "counts"

    @property
    def reads(self) -> str:
        """Description of the counts, for a person."""
        return "the count of a cell, over all cells"

    def variance(self, batch: TreeBatch, precisions: Scalars) -> Scalars:
        """See `Objective`."""
        variance: Scalars = node_variances(batch, precisions)[..., -1]
        return variance


@dataclass(frozen=True, kw_only=True)
class NodeObjective(Objective):
    """The variance of an estimated node count: mean over the nodes of a level, then over the levels
    by weight. It speaks of the levels of a given tree, so its fan-outs must be given too.

    Args:
        weights: (h + 1,) of the levels, root first; at least one is above 0.

    Raises:
        ValueError: a weight that is negative or no number, or all are 0.
    """

    weights: tuple[float, ...]
    kind: ClassVar[str] = "nodes"

    def __post_init__(self) -> None:
        for weight in self.weights:
            if not 0 <= weight < math.inf:
                raise ValueError(f"level_weights: {weight} is not a number from 0 up")
        if not ordered_sum(self.weights) > 0:
            raise ValueError("level_weights: at least one must be above 0")

    @property
    def reads(self) -> str:
        """Description of the nodes, for a person."""
        return "a node, by the weights of the levels"

    def variance(self, batch: TreeBatch, precisions: Scalars) -> Scalars:
        """See `Objective`."""
        if len(self.weights) != batch.height + 1:
            raise ValueError(
                f"level_weights: {len(self.weights)} of them for {batch.height + 1} levels"
            )
        weights = np.array(self.weights) / ordered_sum(self.weights)
        variance: Scalars = (node_variances(batch, precisions) * weights).sum(axis=-1)
        return variance

    def one_leaf_variance(self, total: float) -> float:
        """Return the variance of the only leaf."""
        if len(self.weights) != 1:
            raise ValueError(f"level_weights: {len(self.weights)} of them for 1 levels")
        return total


def _evenly(count: int, at_most: int) -> list[int]:
    """All of 0 to ``count`` - 1, or so many of them, the middles of equal parts."""
    if count <= at_most:
        return list(range(count))
    return [(2 * index + 1) * count // (2 * at_most) for index in range(at_most)]


CDF = CdfObjective()
