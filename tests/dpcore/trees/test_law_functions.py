"""The functions of the noise laws (variance, tails, transforms), against decimal arithmetic."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw, ZeroNoise
from tests.dpcore.cases import for_each


def laplace(scale: object) -> DiscreteLaplace:
    return DiscreteLaplace(scale=Fraction(scale))


def gaussian(sigma: object) -> DiscreteGaussian:
    return DiscreteGaussian(sigma_squared=Fraction(sigma) ** 2)


def decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


SCALES = [Fraction(1, 1000), Fraction(1, 20), Fraction(1), Fraction(77, 3), Fraction(10**6)]
LARGE = [Fraction(10**9), Fraction(10**12)]


@for_each("scale", SCALES + LARGE)
def test_laplace_functions(scale: Fraction) -> None:
    law = DiscreteLaplace(scale=scale)
    with localcontext(Context(prec=80)):
        q = (-1 / decimal(scale)).exp()
        assert law.variance == pytest.approx(float(2 * q / (1 - q) ** 2), rel=1e-13)
        for k in (0, 1, 5, int(scale), int(20 * scale), int(300 * scale)):
            tail, mass = q ** (k + 1) / (1 + q), (1 - q) / (1 + q) * q**k
            assert float(law.survival(k)) == pytest.approx(float(tail), rel=1e-12)
            assert float(law.survival(-k - 1)) == pytest.approx(float(1 - tail), rel=1e-12)
            assert float(law.pmf(k)) == float(law.pmf(-k)) == pytest.approx(float(mass), rel=1e-12)


@for_each("t", [0.0, 1e-13, 1e-9, 1e-3, 0.5, math.pi, 10.0, 9999.5])
@for_each("scale", SCALES + LARGE)
def test_laplace_characteristic_function(scale: Fraction, t: float) -> None:
    with localcontext(Context(prec=80)):
        q = (-1 / decimal(scale)).exp()
        # 1 - cos t by its series at small t, where a float64 cosine is 1.
        versine = (
            Decimal(t) ** 2 / 2 - Decimal(t) ** 4 / 24 if t < 1e-2 else 1 - Decimal(math.cos(t))
        )
        truth = (1 - q) ** 2 / ((1 - q) ** 2 + 2 * q * versine)
    value = float(DiscreteLaplace(scale=scale).characteristic_function(t))
    assert value == pytest.approx(float(truth), rel=1e-9)


SIGMAS = [Fraction(1, 20), Fraction(1, 3), Fraction(9, 10), Fraction(3), Fraction(60)]


@for_each("sigma", SIGMAS)
def test_gaussian_functions(sigma: Fraction) -> None:
    law = gaussian(sigma)
    with localcontext(Context(prec=60)):
        # 1e-800 is beyond what float64 holds.
        count = int(61 * sigma) + 3
        two_variances = 2 * decimal(sigma) ** 2
        weights = [(-Decimal(k * k) / two_variances).exp() for k in range(count)]
        tails = list(accumulate(reversed(weights)))[::-1]
        total = weights[0] + 2 * tails[1]
        second = 2 * sum(k * k * weight for k, weight in enumerate(weights)) / total
        assert law.variance == pytest.approx(float(second), rel=1e-12)
        for k in sorted({0, 1, 2, int(sigma), int(5 * sigma), int(30 * sigma), int(36 * sigma)}):
            tail = float(tails[k + 1] / total) if k + 1 < count else 0.0
            assert float(law.pmf(k)) == pytest.approx(float(weights[k] / total), rel=1e-12)
            assert float(law.survival(k)) == pytest.approx(tail, rel=1e-12)
            assert float(law.survival(-k - 1)) == pytest.approx(1 - tail, rel=1e-12)


def test_gaussian_survival_where_the_formula_changes() -> None:
    """At sigma = 1000 the integral with corrections equals the sum of the terms."""
    sigma = 1000
    terms = np.exp(-0.5 * (np.arange(40 * sigma) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
    tails = np.cumsum(terms[::-1])[::-1]
    k = np.array([0, 1, 10, 500, 1000, 5000, 20_000, 30_000])
    np.testing.assert_allclose(gaussian(sigma).survival(k), tails[k + 1], rtol=2e-11)
    just_below = DiscreteGaussian(sigma_squared=Fraction(sigma**2) - Fraction(1, 10**9))
    np.testing.assert_allclose(just_below.survival(k), tails[k + 1], rtol=2e-11)
    assert just_below.variance == pytest.approx(sigma**2, rel=1e-12)


@for_each("sigma", [Fraction(10**4), Fraction(10**9), Fraction(2**40)])
def test_gaussian_at_large_sigma_is_nearly_normal(sigma: Fraction) -> None:
    law, z = gaussian(sigma), np.array([0.0, 0.1, 1.0, 5.0, 30.0])
    k = np.floor(z * float(sigma))
    np.testing.assert_allclose(law.survival(k), stats.norm.sf((k + 0.5) / float(sigma)), rtol=1e-5)
    assert law.variance == float(sigma) ** 2
    t = z / float(sigma)
    np.testing.assert_allclose(law.characteristic_function(t), np.exp(-(z**2) / 2), rtol=1e-11)


ENUMERABLE = [laplace(Fraction(1, 20)), laplace(2), laplace(30)] + [
    gaussian(sigma) for sigma in (*SIGMAS, Fraction(499, 1000), Fraction(1, 2))
]


@for_each("law", ENUMERABLE)
def test_characteristic_function_is_the_cosine_sum(law: NoiseLaw) -> None:
    k = np.arange(-1500, 1501)
    t = np.array([[0.0, 1e-6, 0.01, 0.3, 1.0], [2.0, math.pi, 6.0, 100.0, 10_000.0]])
    value = law.characteristic_function(t)
    np.testing.assert_allclose(value, np.cos(t[..., None] * k) @ law.pmf(k), atol=1e-9)
    assert value.shape == t.shape and value[0, 0] == pytest.approx(1, abs=1e-15)


@for_each("law", [*ENUMERABLE, laplace(10**6), gaussian(5000)])
def test_functions_agree(law: NoiseLaw) -> None:
    k = np.arange(-1500, 1501)
    np.testing.assert_allclose(law.survival(k - 1) - law.survival(k), law.pmf(k), atol=2e-15)
    np.testing.assert_allclose(law.survival(-k - 1), 1 - law.survival(k), atol=1e-15)
    assert isinstance(law, NoiseLaw)


@given(
    st.fractions(min_value=Fraction(1, 100), max_value=10**6),
    st.floats(min_value=1e-12, max_value=1.0),
    st.sampled_from([laplace, gaussian]),
)
def test_bound_is_the_least(scale: Fraction, probability: float, make: object) -> None:
    law = make(scale)  # type: ignore[operator]
    bound = law.bound(probability)
    assert 2 * float(law.survival(bound)) <= probability
    assert bound == 0 or 2 * float(law.survival(bound - 1)) > probability


@for_each("law", [laplace(10), gaussian(10), gaussian(2000)])
def test_bound_by_hand(law: NoiseLaw) -> None:
    beyond = float(law.survival(30)) * 2
    assert law.bound(beyond) == 30 and law.bound(beyond * (1 - 1e-9)) == 31
    assert law.bound(1.0) == 0


@for_each("probability", [0.0, -0.1, 1.1, math.nan])
def test_wrong_probabilities_are_refused(probability: float) -> None:
    for law in (laplace(1), gaussian(1), ZeroNoise()):
        with pytest.raises(ValueError, match="probability is"):
            law.bound(probability)
