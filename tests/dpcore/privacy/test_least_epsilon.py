"""The epsilon of some noise at a delta: certified, and the least one to four digits."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from dptrees.dpcore.noise.laws import DiscreteGaussian
from dptrees.dpcore.privacy.composition import certified_delta, least_epsilon
from dptrees.dpcore.privacy.conversion import decimal_rank, four_digits, zcdp_epsilon


@pytest.mark.parametrize("sigma_squared", [Fraction(1, 2), Fraction(20), Fraction(10**5)])
def test_it_is_certified_and_the_least(sigma_squared: Fraction) -> None:
    for digits, levels in product((3, 6, 20), (1, 12)):
        moved = [(DiscreteGaussian(sigma_squared=sigma_squared), levels)]
        rho, delta = levels / (2 * sigma_squared), Fraction(1, 10**digits)
        found = least_epsilon(moved, rho, delta)
        assert found <= four_digits(decimal_rank(zcdp_epsilon(rho, delta)) + 1)
        assert certified_delta(moved, found) <= delta * Fraction(100001, 100000)
        # Noise of half a row has few possible losses, so that its delta falls in steps.
        if sigma_squared > 1:
            assert certified_delta(moved, found * Fraction(997, 1000)) > delta


def test_conversion_says_where_counts_are_not_known() -> None:
    rho, delta = Fraction(1, 36), Fraction(1, 10**6)
    found = least_epsilon(None, rho, delta)
    assert zcdp_epsilon(rho, delta) <= found <= zcdp_epsilon(rho, delta) * 1.001
    assert least_epsilon(None, Fraction(1, 10**9), Fraction(1, 2)) == 0
