"""Boundaries that a simulation of counts samples, and the errors that a reader of them sees.

Each objective of `dpcore.uniform.objectives` reads sums of leaves between boundaries; here are some
of them, spread evenly, a pair of boundaries a simulated release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arithmetic.interpolation import interpolated
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.repair.references import REFERENCES, Distribution
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.objectives import (
    CdfObjective,
    CountObjective,
    NodeObjective,
    Objective,
    QuantileObjective,
    RangeObjective,
)

# Multiples of these two are spread evenly over a square (R. C. Bose's and Weyl's lattices).
_FIRST_STEP, _SECOND_STEP = (math.sqrt(5) - 1) / 2, math.sqrt(2) - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """Boundaries and what is read there.

    Attributes:
        stops: (pairs, 2) boundaries, so many leaves left of each.
        of_stops: (pairs, readings, 2) the coefficients of the errors at the boundaries; None: each
            boundary is read by itself.
        of_total: (pairs, readings) of the error of the whole count; None: it is not read.
    """

    stops: Integers
    of_stops: Floats | None
    of_total: Floats | None

    def mean_square(self, errors: Floats, total: Floats) -> float:
        """Return the mean square of the reading's error, from (pairs, 2) errors at the boundaries
        and (pairs,) of the total."""
        read = errors
        if self.of_stops is not None:
            read = (self.of_stops * errors[:, None, :]).sum(axis=-1)
        if self.of_total is not None:
            read = read + self.of_total * total[:, None]
        return float(np.mean(np.square(read)))


def objective_reading(
    objective: Objective, tree: UniformTree, reference: Distribution, pairs: int
) -> Reading:
    """The reading of an objective, for data that lie as a reference.

    Args:
        objective: any of `dpcore.uniform.objectives`.
        tree: of nodes, whose; of all others its leaves alone matter.
        reference: where the quantiles of the data lie.
        pairs: how many pairs of boundaries.
    """
    leaves, places = tree.leaves, np.arange(pairs, dtype=np.float64)
    first: Floats = (places + 0.5) / pairs
    second: Floats = places * _FIRST_STEP % 1
    if isinstance(objective, QuantileObjective):
        return _quantiles(objective, leaves, reference, pairs)
    if isinstance(objective, CdfObjective):
        stops = 1 + np.floor(np.stack([first, second], axis=1) * leaves).astype(np.int64)
        return Reading(stops=stops, of_stops=None, of_total=None)
    starts, stops = _ranges(objective, tree, first, second)
    return Reading(
        stops=np.stack([starts, stops], axis=1),
        of_stops=np.broadcast_to(np.array([[-1.0, 1.0]]), (pairs, 1, 2)),
        of_total=None,
    )


def reference_histograms(objective: Objective, leaves: int) -> tuple[Distribution, ...]:
    """The histograms that an objective's counts are judged on: the public ones, or where it knows a
    public guess of the distribution, that alone."""
    if not isinstance(objective, QuantileObjective) or not objective.guesses:
        return REFERENCES
    known = sorted(
        (guess.stop / leaves, quantile)
        for guess, quantile in zip(objective.guesses, objective.quantiles, strict=True)
    )
    places, below = (np.array([0.0, *column, 1.0]) for column in zip(*known, strict=True))
    below = np.maximum.accumulate(below)
    return (lambda x: interpolated(x, places, below),)


def _quantiles(
    objective: QuantileObjective, leaves: int, reference: Distribution, pairs: int
) -> Reading:
    """Ranks of quantiles where they lie, or with guesses values in leaves."""
    chosen = np.arange(2 * pairs).reshape(pairs, 2) % len(objective.quantiles)
    quantiles = np.array(objective.quantiles)[chosen]
    if objective.guesses:
        stops = np.array([guess.stop for guess in objective.guesses])[chosen]
        scale = 1 / np.array([guess.density for guess in objective.guesses])[chosen]
    else:
        edges = np.linspace(0, 1, min(leaves, 2**16) + 1)
        nearest = np.searchsorted(reference(edges), quantiles) * leaves // (len(edges) - 1)
        stops, scale = np.clip(nearest, 0, leaves), np.ones((pairs, 2))
    return Reading(
        stops=stops,
        of_stops=np.eye(2) * scale[..., None],
        of_total=-quantiles * scale,
    )


def _ranges(
    objective: Objective, tree: UniformTree, first: Floats, second: Floats
) -> tuple[Integers, Integers]:
    """(pairs,) where ranges begin and end."""
    leaves = tree.leaves
    if isinstance(objective, RangeObjective) and not objective.widths:
        # A triangle, folded from the square: each range of at least one leaf as likely as another.
        ends = np.sort(np.floor(np.stack([first, second]) * (leaves + 1)).astype(np.int64), axis=0)
        same = ends[0] == ends[1]
        return np.where(same & (ends[0] == leaves), leaves - 1, ends[0]), np.where(
            same, np.minimum(ends[1] + 1, leaves), ends[1]
        )
    if isinstance(objective, RangeObjective):
        widths = np.array(objective.widths)[np.arange(len(first)) % len(objective.widths)]
        starts = np.floor(second * (leaves - widths + 1)).astype(np.int64)
        return starts, starts + widths
    if isinstance(objective, CountObjective):
        starts = np.floor(second * leaves).astype(np.int64)
        return starts, starts + 1
    assert isinstance(objective, NodeObjective)
    shares = np.cumsum(objective.weights) / math.fsum(objective.weights)
    third = np.arange(len(first)) * _SECOND_STEP % 1
    levels = np.minimum(np.searchsorted(shares, third, side="right"), tree.height)
    below = np.array([tree.leaves_below(level) for level in range(tree.height + 1)])[levels]
    nodes = np.floor(second * np.array(tree.level_sizes)[levels]).astype(np.int64)
    return nodes * below, np.minimum((nodes + 1) * below, leaves)
