"""Merged laws: their widths are as for the exact laws, but for what merging may have changed."""

from __future__ import annotations

from fractions import Fraction

from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.trees.error_laws import ErrorLaw, MergedLaw
from tests.dpcore.cases import for_each


@for_each("confidence", [0.5, 0.95, 0.999, 0.9999])
def test_a_difference_of_next_to_nothing_widens_next_to_nothing(confidence: float) -> None:
    law = ErrorLaw(terms=((DiscreteLaplace(scale=Fraction(20)), 1.0, 3),))
    merged = MergedLaw(law=law, difference=1e-9, difference_fourth=3e-18)
    exact = law.half_width(confidence)
    # At the highest confidence that there is, the sum with half a row is inverted instead.
    most = exact * 1.01 + (0.6 if confidence == 0.9999 else 0)
    assert exact <= merged.half_width(confidence) <= most
