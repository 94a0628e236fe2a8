"""Laws of errors: figures that are stated of a sum of variables."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.trees.error_laws import ErrorLaw


def test_distinct_terms_count_the_sizes_that_share_the_variance() -> None:
    """n of equal shares are n, however large they are; one that has nearly all counts as one."""
    wide, normal = DiscreteLaplace(scale=Fraction(10)), DiscreteGaussian(sigma_squared=Fraction(3))
    even = [(wide, 1.0 / n**0.5, n) for n in range(1, 6)]
    assert ErrorLaw(terms=tuple(even)).distinct_terms == pytest.approx(5)
    both = ((wide, 1.0, 1), (normal, (wide.variance / 3) ** 0.5, 1))
    assert ErrorLaw(terms=both).distinct_terms == pytest.approx(2)
    uneven = ErrorLaw(terms=((wide, 100.0, 1), (wide, 1.0, 1), (wide, 0.0, 7)))
    assert 1 < uneven.distinct_terms < 1.001
