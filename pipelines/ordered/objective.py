"""The objective of a tree: from the plain values of its section to an objective of dpcore."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dptrees.dpcore.arithmetic.sums import interpolated
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.uniform.objectives import (
    CdfObjective,
    CountObjective,
    Guess,
    NodeObjective,
    Objective,
    QuantileObjective,
    RangeObjective,
)

# A guess is off: the plan is made for the guessed place of each quantile and some beside it.
_BESIDE = (-0.05, -0.025, 0.0, 0.025, 0.05)


def make_objective(
    kind: str,
    domain: OrderedDomain,
    *,
    quantiles: tuple[float, ...] = (),
    guess: tuple[Fraction, Sequence[tuple[object, float]]] | None = None,
    widths: tuple[int, ...] = (),
    level_weights: tuple[float, ...] = (),
) -> Objective:
    """The objective that a tree's section describes.

    Args:
        kind: cdf, quantiles, ranges, counts, nodes or mean.
        domain: of the tree.
        quantiles: those that will be read.
        guess: the number of rows, and pairs of a value and the part of the rows below it.
        widths: of ranges, in cells.
        level_weights: of nodes, root first.

    Raises:
        ValueError: a guess that is no CDF, or values that do not fit the domain.
    """
    if kind == "ranges":
        for width in widths:
            if width > domain.cells:
                raise Refusal("widths", f"{width} is more than the {domain.cells} cells")
        return RangeObjective(widths=widths)
    if kind == "nodes":
        return NodeObjective(weights=level_weights)
    # A mean has no tree of counts, and so no plan that an objective would be for.
    if kind in ("cdf", "mean"):
        return CdfObjective()
    if kind == "counts":
        return CountObjective()
    if guess is None:
        return QuantileObjective(quantiles=quantiles)
    rows, below = guess
    places, parts = _guessed_cdf(domain, below)
    looked_at = [
        min(max(quantile + beside, 0.0), 1.0) for quantile in quantiles for beside in _BESIDE
    ]
    densities = np.diff(parts) / np.diff(places) * float(rows)
    guesses = []
    for quantile in looked_at:
        inside = int(np.clip(np.searchsorted(parts, quantile, "right") - 1, 0, len(densities) - 1))
        stop = round(float(interpolated(quantile, parts, places)))
        guesses.append(Guess(stop=stop, density=float(densities[inside])))
    return QuantileObjective(quantiles=tuple(looked_at), guesses=tuple(guesses))


def _guessed_cdf(
    domain: OrderedDomain, below: Sequence[tuple[object, float]]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...]:
    """Boundaries of cells from 0 to K, and the part of the rows below each; both increase."""
    places, parts = [0], [0.0]
    for value, part in below:
        try:
            place = domain.find_boundary(value)
        except ValueError:
            raise Refusal("guess", f"{value} is not a value of the domain") from None
        if place == domain.cells and part != 1:
            raise Refusal("guess", f"{value} must lie below the end of the domain")
        if place <= places[-1] and not (place == 0 and len(places) == 1):
            raise Refusal("guess", "its values must increase, by a cell at least")
        if not parts[-1] < part < 1 and not (place == domain.cells and part == 1):
            raise Refusal("guess", "its parts must increase, from above 0 to below 1")
        places.append(place)
        parts.append(part)
    if places[-1] < domain.cells:
        places.append(domain.cells)
        parts.append(1.0)
    if places[1] == 0:
        raise Refusal("guess", "its first value must lie above the domain's first")
    return np.array(places, np.float64), np.array(parts)
