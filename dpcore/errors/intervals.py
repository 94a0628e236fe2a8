"""Intervals around estimates, from their half-widths.

Source: `dpcore.errors.law` gives the widths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar, TypeVar

import numpy as np

from dptrees.dpcore.arithmetic.interpolation import interpolated
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.codec import Coded
from dptrees.dpcore.errors.law import BLUR_VARIANCE, ROUNDING

# Points of log2(1 + 2^-x), rounded up. The lines between them are above it, since it is convex.
_APART = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0)
_FALLEN = (1.0, 0.585, 0.322, 0.17, 0.0444, 0.0057)


@dataclass(frozen=True, kw_only=True)
class QuantileMargin(Coded):
    """Half-widths of the intervals of prefix - q total, where they decide a quantile.

    A quantile lies between two edges, and the interval fails where the lower edge is estimated too
    high or the upper one too low. Both fail with half the error probability where next to no rows
    lie between the edges; where many do, only one of them can, and it may fail with all of it.

    Args:
        both: (slope, offset) where both edges may fail.
        one: (slope, offset) where one may.

    Source: derived here. Beyond m standard errors the tails of errors fall at least as fast as
    exponentials, T(x) = 2^-(x / s), with s the difference of the half-widths of T and 2 T. With r
    rows between the edges the failures at w add up to T(w) + T(w + r), the largest where the
    quantile lies at one of them. That is the error probability at w = one + s log2(1 + 2^-(r / s)).
    """

    both: tuple[float, float]
    one: tuple[float, float]

    def rows(self, variance: Floats, apart: Floats) -> Floats:
        """Return the half-widths, in rows.

        Args:
            variance: of the estimates, in rows^2; zero where the difference is known.
            apart: how many rows lie between the edge and the one on the quantile's other side.

        >>> margin = QuantileMargin(both=(2.0, 0.0), one=(1.6, 0.0))
        >>> margin.rows(np.full(3, 100.0), np.array([0.0, 4.0, 100.0])).round(1).tolist()
        [20.0, 18.3, 16.0]
        """
        both, one = prefix_margin(self.both, variance), prefix_margin(self.one, variance)
        doubled = np.maximum(both - one, 0.0)
        times = np.divide(apart, doubled, out=np.full(doubled.shape, _APART[-1]), where=doubled > 0)
        return one + doubled * interpolated(times, _APART, _FALLEN)


W = TypeVar("W", bound="QuantileWidths")


class QuantileWidths(Coded):
    """Widths of intervals whose margins of quantiles are a later entry: widths that were stored
    before lack it, and the intervals of these releases stay as they are."""

    # Field of the margins, which has a default for widths that lack it.
    later: ClassVar[str]

    def as_stored(self: W, entry: Mapping[str, object]) -> W:
        """Return these widths without margins of quantiles, where an entry has none.

        Args:
            entry: widths as a manifest has them.
        """
        if self.later in entry:
            return self
        (default,) = (each.default for each in fields(self) if each.name == self.later)  # type: ignore[arg-type]
        former: W = replace(self, **{self.later: default})  # type: ignore[type-var]
        return former


def one_sided(confidence: float) -> float:
    """Return the confidence of an interval where only one end may fail, as often as both together
    at the stated confidence; the same one where there is none, at one half or less.

    >>> round(one_sided(0.95), 9), one_sided(0.5)
    (0.9, 0.5)
    """
    return 2.0 * confidence - 1.0 if confidence > 0.5 else confidence


def prefix_margin(width: float | tuple[float, float], variance: Floats) -> Floats:
    """The half-widths of the intervals of prefixes, in rows.

    A prefix's error may lie on the integers, where the width in standard errors jumps from one
    prefix to the next. Blurred by half a row either side it does not, and half a row more covers
    what the blur took.

    Args:
        width: `IntervalWidths.sloped`, or `IntervalWidths.prefix` alone, which is never narrower
            than need be but covers more often.
        variance: of the estimates, in rows^2; zero where the count is known.

    >>> prefix_margin(2.0, np.array([0.0, 100.0])).round(2).tolist()
    [0.0, 20.51]
    """
    slope, offset = width if isinstance(width, tuple) else (width, 0.5)
    margins = slope * np.sqrt(np.maximum(variance, 0.0) + BLUR_VARIANCE) + offset
    return np.where(variance > ROUNDING, margins, 0.0)


def clipped_intervals(
    estimate: Floats,
    variance: Floats,
    margin: Floats,
    top: float | Floats,
    *,
    bottom: float = 0.0,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Estimates with their standard errors and intervals, as they are released.

    A count that is known exactly is that integer, without the rounding of the estimator.

    Args:
        estimate: in rows.
        variance: of the estimates, in rows^2.
        margin: half-widths of the intervals, in rows.
        top: no count is larger: the public number of rows, or infinite.
        bottom: none is smaller: 0 for counts and sums of nonnegative values, -infinite for signed
            sums.

    Returns:
        (estimate, standard error, low, high), in rows.

    >>> [float(each) for each in clipped_intervals(np.array(6.9999999), np.array(1e-15),
    ...                                            np.array(0.0), 9.0)]
    [7.0, 0.0, 7.0, 7.0]
    """
    known = variance <= ROUNDING
    estimate = np.where(known, np.rint(estimate), estimate)
    margin = np.where(known, 0.0, margin)
    error = np.where(known, 0.0, np.sqrt(np.maximum(variance, 0.0)))
    low = np.clip(estimate - margin, bottom, top)
    high = np.clip(estimate + margin, bottom, top)
    return estimate, error, low, high
