"""Intervals of single counts at any scale of noise, exactly; margins."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dptrees.dpcore.boxes.parts import interval, standard_margin
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.privacy.unit import Measure

CONFIDENCES = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 0.9999)


def make_law(measure: Measure, scale: float) -> NoiseLaw:
    if measure is Measure.EPSILON:
        return DiscreteLaplace(scale=Fraction(scale).limit_denominator(10**6))
    return DiscreteGaussian(sigma_squared=Fraction(scale**2).limit_denominator(10**6))


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("measure", Measure)
def test_the_interval_of_one_measured_count_holds_it_as_often_as_stated(
    measure: Measure, confidence: float
) -> None:
    """P(|X| <= half) of the law itself, over four decades of scales; planted: margins alone."""
    margin, missed = standard_margin(measure, confidence), 0
    for scale in np.geomspace(0.03, 300, 800):
        law = make_law(measure, float(scale))
        error = math.sqrt(law.variance)
        half = float(interval(1e6, error, margin, math.inf)[1]) - 1e6
        outside = 2 * float(law.survival(math.floor(half + 1e-9)))
        assert outside <= (1 - confidence) * (1 + 1e-6)
        missed += 2 * float(law.survival(math.floor(margin * error))) > 1.1 * (1 - confidence)
    assert missed > (50 if confidence >= 0.9 else 0)


def test_wide_noise_has_the_margin_alone() -> None:
    low, high = interval(5e5, 1e4, 2.0, math.inf)
    assert high - 5e5 == 5e5 - low == pytest.approx(2e4 + 0.5, abs=1e-3)


def test_a_known_count_has_no_width_and_nothing_is_beyond_what_is_possible() -> None:
    low, high = interval(np.array([4.0, 4.0, -9.0]), np.array([0.0, 1.0, 1.0]), 2.0, 5.0)
    assert low.round(2).tolist() == [4.0, 1.34, 0.0] and high.tolist() == [4.0, 5.0, 0.0]


def test_the_margin_is_the_larger_of_both_quantiles() -> None:
    laplace = -math.log(0.05) / math.sqrt(2)
    assert standard_margin(Measure.EPSILON, 0.95) == pytest.approx(laplace)
    assert standard_margin(Measure.RHO, 0.95) == pytest.approx(1.959964, abs=1e-6)
    assert standard_margin(Measure.EPSILON, 0.5) == standard_margin(Measure.RHO, 0.5)


def test_sums_of_laplace_variables_are_within_the_margin() -> None:
    """By partial fractions; below nominal by 1.2e-4 at most, where both quantiles are equal."""
    sums = ((1.0,), (1.0, 0.5), (1.0, 0.999), (1.0, 0.9, 0.5, 0.2))
    for confidence, weights in product(CONFIDENCES, sums):
        margin = standard_margin(Measure.EPSILON, confidence)
        reach = margin * math.sqrt(2 * sum(weight**2 for weight in weights))
        outside = sum(
            math.exp(-reach / own)
            * math.prod(own**2 / (own**2 - other**2) for other in weights if other != own)
            for own in weights
        )
        assert outside <= 1 - confidence + 1.5e-4
