"""Intervals around estimates, from their half-widths.

Source: `dpcore.errors.law` gives the widths.
"""

from __future__ import annotations

import numpy as np

from dpcore.arrays import Floats
from dpcore.errors.law import BLUR_VARIANCE, ROUNDING


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
