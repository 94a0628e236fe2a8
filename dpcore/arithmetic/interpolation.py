"""Values between the points of a table, whose bits do not depend on the processor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats


def interpolated(x: npt.ArrayLike, places: npt.ArrayLike, values: npt.ArrayLike) -> Floats:
    """Return the values at x on the lines between neighboring points, and at the ends beyond them.

    NumPy's interp rounds otherwise where a compiler fuses its multiplication with its addition.

    Args:
        x: (...) where.
        places: (n,) that do not fall, n at least 1.
        values: (n,) at these places.

    Returns:
        The shape of x.

    >>> interpolated([0.0, 1.5, 9.0], [1.0, 2.0], [10.0, 20.0])
    array([10., 15., 20.])
    """
    at, known = np.asarray(x, np.float64), np.asarray(places, np.float64)
    table = np.asarray(values, np.float64)
    if known.size == 1:
        return np.full(at.shape, table[0])
    left = np.clip(np.searchsorted(known, at, side="right") - 1, 0, known.size - 2)
    width = known[left + 1] - known[left]
    part = (at - known[left]) / np.where(width > 0, width, 1.0)
    inside = table[left] + part * (table[left + 1] - table[left])
    return np.asarray(
        np.where(at >= known[-1], table[-1], np.where(at < known[0], table[0], inside))
    )
