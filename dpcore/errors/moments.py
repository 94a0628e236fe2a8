"""The cumulants of the errors of many nodes, and what follows from them.

Source: the second, fourth and sixth cumulants of discrete Laplace and Gaussian variables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arithmetic.sums import dot, integer_power
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.errors.law import BLUR_VARIANCE, law_cumulants
from dptrees.dpcore.noise.laws import DiscreteLaplace, NoiseLaw


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeMoments:
    """The cumulants of the errors of a level's estimates, (n,) each.

    Attributes:
        variance: g in rows^2.
        fourth, sixth: in rows^4 and rows^6; 0 where the error is normal.
    """

    variance: Floats
    fourth: Floats
    sixth: Floats


def noise_cumulant(law: NoiseLaw, order: int) -> float:
    """The second, fourth or sixth cumulant of one variable, in rows^order.

    >>> from fractions import Fraction
    >>> law = DiscreteLaplace(scale=Fraction(2))
    >>> k = np.arange(-200, 201)
    >>> second, fourth, sixth = (float(law.pmf(k) @ k ** float(n)) for n in (2, 4, 6))
    >>> round(noise_cumulant(law, 6) / (sixth - 15 * fourth * second + 30 * second**3), 9)
    1.0
    """
    variance, fourth = law_cumulants(law)
    if order < 6:
        return variance if order == 2 else fourth
    if isinstance(law, DiscreteLaplace):
        return variance + 15 * variance * variance + 30 * (variance * variance * variance)
    if variance > 100 or variance == 0:
        return 0.0
    values = np.arange(-500, 501)
    sixth = dot(law.pmf(values), integer_power(values, 6))
    square = variance * variance
    return sixth - 15 * (fourth + 3 * square) * variance + 30 * (square * variance)


def blurred_excess(moments: NodeMoments) -> Floats:
    """The excess kurtosis of error + U, U uniform on half a row either side."""
    # The fourth cumulant of a uniform variable is -1/120.
    excess: Floats = (moments.fourth - 1 / 120) / (moments.variance + BLUR_VARIANCE) ** 2
    return excess


def excess_kurtosis(moments: NodeMoments) -> Floats:
    """The excess kurtosis of the errors: 0 where they are known exactly."""
    square = moments.variance**2
    excess: Floats = np.divide(moments.fourth, square, out=np.zeros_like(square), where=square > 0)
    return excess
