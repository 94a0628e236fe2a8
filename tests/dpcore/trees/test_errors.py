"""Metrics of errors against their definitions, by sums and by simulation; laws of sums."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, stats

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw, ZeroNoise
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace
from dptrees.dpcore.trees.error_laws import ErrorLaw, MergedLaw
from dptrees.dpcore.trees.relative_errors import (
    alpha_rmse,
    gaussian_alpha_rmse,
    gaussian_smoothed_relative_error,
    law_alpha_rmse,
    law_smoothed_relative_error,
    mixed_alpha_rmse,
    mixed_smoothed_relative_error,
    smoothed_relative_error,
)
from tests.dpcore.cases import for_each

LAWS: list[NoiseLaw] = [
    DiscreteLaplace(scale=Fraction(1, 2)),
    DiscreteLaplace(scale=Fraction(40)),
    DiscreteGaussian(sigma_squared=Fraction(30)),
    TruncatedLaplace(scale=Fraction(20), radius=100),
    ZeroNoise(),
]


@for_each("law", LAWS)
@for_each("alpha", [0.0, 0.1, 0.37])
def test_predictions_are_the_definition(law: NoiseLaw, alpha: float) -> None:
    truth = np.array([0.0, 1.0, 10.0, 57.0, 200.0])
    x = np.arange(-3000, 3001)
    p = law.pmf(x)
    excess = np.maximum(np.abs(x) - alpha * truth[:, np.newaxis], 0.0)
    np.testing.assert_allclose(law_alpha_rmse(law, truth, alpha), np.sqrt(excess**2 @ p), rtol=1e-9)
    mean = np.abs(x) @ p / np.maximum(truth, 5.0)
    np.testing.assert_allclose(law_smoothed_relative_error(law, truth, 5.0), mean, rtol=1e-9)


@for_each("t", [0.0, 0.5, 3.0, 12.0, 25.0])
def test_the_normal_closed_form_is_the_integral(t: float) -> None:
    def tail(x: float) -> float:
        return 2 * x * x * math.exp(-0.5 * x * x - x * t) / math.sqrt(2 * math.pi)

    # exp(-t^2 / 2) taken out, so that the integral keeps its digits.
    expected = math.sqrt(integrate.quad(tail, 0, np.inf)[0]) * math.exp(-t * t / 4)
    assert gaussian_alpha_rmse(1.0, t, 1.0) == pytest.approx(expected, rel=1e-6)
    assert gaussian_alpha_rmse(7.0, t * 70, 0.1) == pytest.approx(7 * expected, rel=1e-6)


def test_degenerate_normal_errors() -> None:
    assert gaussian_alpha_rmse([0.0, 1.0], [0.0, 1e6], 0.5).tolist() == [0.0, 0.0]
    assert gaussian_smoothed_relative_error(0.0, 3.0, 1.0) == 0.0
    law = DiscreteGaussian(sigma_squared=Fraction(40**2))
    truth = np.array([0.0, 100.0, 500.0])
    np.testing.assert_allclose(
        gaussian_alpha_rmse(40.0, truth, 0.1), law_alpha_rmse(law, truth, 0.1), rtol=1e-3
    )
    np.testing.assert_allclose(
        gaussian_smoothed_relative_error(40.0, truth, 9.0),
        law_smoothed_relative_error(law, truth, 9.0),
        rtol=1e-3,
    )


@for_each(("g", "b"), [(4.0, 3.0), (0.3, 0.1), (1.0, 5.0)])
def test_the_mixed_closed_form_is_the_integral(g: float, b: float) -> None:
    # E|m + L| of Laplace noise L is |m| + b exp(-|m| / b); m is normal.
    def mean(z: float) -> float:
        density = math.exp(-z * z / 2) * math.sqrt(2 / math.pi)
        return density * (g * z + b * math.exp(-g * z / b))

    expected = integrate.quad(mean, 0, 40, epsabs=0, epsrel=1e-10, limit=200)[0] / 7
    error = mixed_smoothed_relative_error(g**2 + 2 * b**2, 12 * b**4, 2.0, 7.0)
    assert float(error) == pytest.approx(expected, rel=1e-8)


@for_each(("g", "b"), [(30.0, 4.0), (4.0, 4.0), (2.0, 30.0)])
@for_each("forgiven", [0.0, 3.0, 25.0, 150.0])
def test_the_mixed_closed_form_beyond_what_is_forgiven_is_the_integral(
    g: float, b: float, forgiven: float
) -> None:
    """By a fine sum over normal noise; E max(|m + L| - t, 0)^2 of Laplace noise is in closed
    form."""
    m = np.linspace(-12 * g, 12 * g, 20_001)
    weights = stats.norm.pdf(m, scale=g) * (m[1] - m[0])
    # From a distance t - m above m, of either side: b^2 exp(-distance / b), and more within.
    above, below = m - forgiven, -m - forgiven
    excess = sum(
        np.where(
            side > 0,
            side**2 + 2 * b**2 - b**2 * np.exp(-np.abs(side) / b),
            b**2 * np.exp(-np.abs(side) / b),
        )
        for side in (above, below)
    )
    error = mixed_alpha_rmse(g**2 + 2 * b**2, 12 * b**4, 10 * forgiven, 0.1)
    assert float(error) ** 2 == pytest.approx(float(weights @ excess), rel=1e-6, abs=1e-12)


def test_measured_errors_agree_with_predicted_ones_and_find_less_noise() -> None:
    truth, alpha, releases = np.array([0.0, 30.0, 100.0]), 0.1, 100_000
    law = DiscreteLaplace(scale=Fraction(10))
    noise = law.sample(public_stream("relative"), releases * 3).reshape(-1, 3)
    squares = np.maximum(np.abs(noise) - alpha * truth, 0.0) ** 2
    tolerance = stats.norm.isf(1e-7) * squares.std(axis=0) / math.sqrt(releases)
    predicted = law_alpha_rmse(law, truth, alpha) ** 2
    measured = alpha_rmse(truth + noise, truth, alpha) ** 2
    assert np.all(np.abs(measured - predicted) < tolerance)
    planted = alpha_rmse(truth + 0.7 * noise, truth, alpha) ** 2
    assert np.all(np.abs(planted - predicted) > tolerance)


@for_each(
    ("make", "message"),
    [
        (lambda: alpha_rmse([[1.0]], [1.0], -0.1), "alpha is -0.1"),
        (lambda: alpha_rmse([[1.0]], [-1.0], 0.1), "truth"),
        (lambda: alpha_rmse([1.0], [1.0], 0.1), "estimates has shape"),
        (lambda: alpha_rmse(np.empty((0, 1)), [1.0], 0.1), "estimates has shape"),
        (lambda: smoothed_relative_error([[1.0]], [1.0], 0.0), "kappa is 0"),
        (lambda: gaussian_alpha_rmse(-1.0, 1.0, 0.1), "std_error"),
        (lambda: law_alpha_rmse(DiscreteGaussian(sigma_squared=Fraction(10**14)), 1, 0.1), "law"),
    ],
)
def test_bad_arguments_are_named(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


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
