"""The epsilon that noise of a zCDP budget keeps at a delta: by certificate, and never by less.

Sources: as `dpcore.privacy.loss` and `dpcore.privacy.conversion`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.privacy.conversion import DELTA_FLOOR, Real, zcdp_epsilon
from dptrees.dpcore.privacy.decimal_rank import decimal_rank, four_digits
from dptrees.dpcore.privacy.loss import Moved, certified_delta

_MOST_CERTIFICATES = 6


def least_epsilon(
    moved: Sequence[tuple[Moved, int]] | None, rho: Fraction, delta: Real
) -> Fraction:
    """The least epsilon of four significant digits found at which noise of a rho keeps a delta.

    The root of log 1 / delta is nearly a line in epsilon, exactly so in the bound of zCDP; its
    steps are certified, at most 6 of them.

    Args:
        moved: as for `certified_delta`; None where it is not known, so that conversion alone says.
        rho: that the noise keeps under zCDP.
        delta: from 1e-290 to below 1.

    Returns:
        epsilon, at most that of the conversion rounded up; 0 where the conversion says so.

    Raises:
        ValueError: rho or delta out of range.

    >>> from dptrees.dpcore.noise.laws import DiscreteGaussian
    >>> law = DiscreteGaussian(sigma_squared=Fraction(18))
    >>> least_epsilon([(law, 1)], Fraction(1, 36), 1e-6)
    Fraction(399, 400)
    >>> least_epsilon(None, Fraction(1, 36), 1e-6)
    Fraction(1073, 1000)
    """
    converted = zcdp_epsilon(rho, delta)
    if not converted:
        return Fraction(0)
    high, low = decimal_rank(converted) + 1, decimal_rank(converted) - 9000
    if moved is None:
        return four_digits(high)
    wanted, place = math.sqrt(-log(float(delta))), high
    known: list[tuple[float, float]] = []  # epsilon, and the root of log 1 / delta
    for _ in range(_MOST_CERTIFICATES):
        if high - low <= 1:
            break
        certified = certified_delta(moved, four_digits(place))
        low, high = (low, place) if certified <= delta else (place, high)
        known.append((float(four_digits(place)), math.sqrt(-log(max(certified, DELTA_FLOOR)))))
        slope = 1 / (2 * math.sqrt(rho))
        if len(known) > 1 and known[-1][0] != known[-2][0]:
            slope = max(slope / 4, (known[-1][1] - known[-2][1]) / (known[-1][0] - known[-2][0]))
        epsilon = known[-1][0] + (wanted - known[-1][1]) / slope
        place = decimal_rank(max(epsilon, float(four_digits(low)))) + 1
        place = min(max(place, low + 1), high - 1)
    return four_digits(high)
