"""Laws of errors: figures that are stated of a sum of variables."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.trees.error_laws import ErrorLaw, MergedLaw
from tests.dpcore.cases import for_each


def test_distinct_terms_count_the_sizes_that_share_the_variance() -> None:
    """n of equal shares are n, however large they are; one that has nearly all counts as one."""
    wide, normal = DiscreteLaplace(scale=Fraction(10)), DiscreteGaussian(sigma_squared=Fraction(3))
    even = [(wide, 1.0 / n**0.5, n) for n in range(1, 6)]
    assert ErrorLaw(terms=tuple(even)).distinct_terms == pytest.approx(5)
    both = ((wide, 1.0, 1), (normal, (wide.variance / 3) ** 0.5, 1))
    assert ErrorLaw(terms=both).distinct_terms == pytest.approx(2)
    uneven = ErrorLaw(terms=((wide, 100.0, 1), (wide, 1.0, 1), (wide, 0.0, 7)))
    assert 1 < uneven.distinct_terms < 1.001


@for_each("confidence", [0.5, 0.95, 0.999, 0.9999])
def test_a_difference_of_next_to_nothing_widens_next_to_nothing(confidence: float) -> None:
    law = ErrorLaw(terms=((DiscreteLaplace(scale=Fraction(20)), 1.0, 3),))
    merged = MergedLaw(law=law, difference=1e-9, difference_fourth=3e-18)
    exact = law.half_width(confidence)
    # At the highest confidence that there is, the sum with half a row is inverted instead.
    most = exact * 1.01 + (0.6 if confidence == 0.9999 else 0)
    assert exact <= merged.half_width(confidence) <= most
