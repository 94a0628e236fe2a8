"""Truncated Laplace noise: its law, its exact guarantee, its samples.

Statistical limits have a false-alarm probability of at most 1e-6; the streams are fixed.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace, truncated_laplace
from tests.dpcore.cases import for_each

FALSE_ALARM = 1e-6
LAWS = [(1, 1), (Fraction(1, 3), 2), (2, 5), (7, 3), (Fraction(50, 3), 400), (200, 5000)]


def make_law(scale: object, radius: int) -> TruncatedLaplace:
    return TruncatedLaplace(scale=Fraction(scale), radius=radius)


def dense_pmf(scale: float, radius: int, pad: int = 0) -> np.ndarray:
    """The definition, on -radius - pad .. radius + pad."""
    x = np.arange(-radius - pad, radius + pad + 1)
    weights = np.exp(-np.abs(x) / scale) * (np.abs(x) <= radius)
    return weights / weights.sum()


def hockey_stick(p: np.ndarray, p_moved: np.ndarray, epsilon: float) -> float:
    return math.fsum(np.maximum(0.0, p - math.exp(epsilon) * p_moved))


def chi_squared(sample: np.ndarray, law: TruncatedLaplace) -> float:
    observed = np.bincount(sample + law.radius, minlength=2 * law.radius + 1)
    expected = dense_pmf(float(law.scale), law.radius) * sample.size
    enough = expected >= 10
    observed = np.append(observed[enough], observed[~enough].sum())
    expected = np.append(expected[enough], max(expected[~enough].sum(), 1e-9))
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(stats.chi2.sf(statistic, expected.size - 1))


@for_each(("scale", "radius"), LAWS)
def test_the_law_is_the_definition(scale: object, radius: int) -> None:
    law, p = make_law(scale, radius), dense_pmf(float(Fraction(scale)), radius, pad=2)
    x = np.arange(-radius - 2, radius + 3)
    np.testing.assert_allclose(law.pmf(x), p, rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(law.survival(x), 1 - np.cumsum(p), rtol=0, atol=1e-12)
    np.testing.assert_allclose(law.survival(x[:-1]), np.cumsum(p[::-1])[::-1][1:], atol=1e-13)
    assert law.variance == pytest.approx(float(p @ (x.astype(float) ** 2)), rel=1e-9)
    t = np.array([0.0, 0.01, 1.0, 3.0, -3.0])
    np.testing.assert_allclose(
        law.characteristic_function(t), np.cos(np.outer(t, x)) @ p, atol=1e-11
    )
    for probability in (1.0, 0.3, 1e-3, 1e-12):
        b = law.bound(probability)
        assert p[np.abs(x) > b].sum() <= probability * (1 + 1e-9)
        assert b == 0 or p[np.abs(x) > b - 1].sum() > probability * (1 - 1e-9)


@for_each(("scale", "radius"), LAWS[:5])
@for_each("sensitivity", [1, 2, 5])
@for_each("share", [0.0, 0.3, 0.77, 1.0, 1.5])
def test_delta_is_the_hockey_stick_divergence(
    scale: object, radius: int, sensitivity: int, share: float
) -> None:
    epsilon = Fraction(sensitivity) / Fraction(scale) * Fraction(share)
    p = dense_pmf(float(Fraction(scale)), radius, pad=sensitivity)
    moved = np.concatenate([np.zeros(sensitivity), p[:-sensitivity]])
    delta = float(make_law(scale, radius).delta(epsilon, sensitivity=sensitivity))
    # At the law's own epsilon rounding leaves e^epsilon p_moved just off p.
    assert delta == pytest.approx(hockey_stick(p, moved, float(epsilon)), rel=1e-9, abs=1e-13)
    assert delta == pytest.approx(hockey_stick(moved, p, float(epsilon)), rel=1e-9, abs=1e-13)


@for_each("epsilon", [Fraction(1, 100), Fraction(1, 7), 1, 5])
@for_each("delta", [Fraction(1, 10), Fraction(1, 10**6), Fraction(1, 10**40)])
@for_each("sensitivity", [1, 3])
def test_the_radius_is_the_least(epsilon: Fraction, delta: Fraction, sensitivity: int) -> None:
    law = truncated_laplace(epsilon, delta, sensitivity=sensitivity)
    assert law.delta(epsilon, sensitivity=sensitivity) <= delta
    if law.radius > max(1, law.scale / 64):
        smaller = make_law(law.scale, law.radius - 1)
        assert smaller.delta(epsilon, sensitivity=sensitivity) > delta
    if sensitivity == 1:
        paper = math.log1p(math.expm1(epsilon) / (2 * float(delta))) / float(epsilon)
        assert law.radius <= max(1, math.ceil(paper))
        least = (paper * epsilon + math.log(2 / (math.exp(epsilon) + 1))) / float(epsilon)
        assert law.radius == max(1, math.ceil(least - 1e-9))


@for_each("wrong", ["scale 30 % small", "radius 30 % small", "radius off by one"])
def test_a_planted_error_breaks_the_guarantee(wrong: str) -> None:
    epsilon, delta = Fraction(1, 2), Fraction(1, 10**4)
    law = truncated_laplace(epsilon, delta)
    planted = {
        "scale 30 % small": make_law(law.scale * Fraction(7, 10), law.radius),
        "radius 30 % small": make_law(law.scale, round(0.7 * law.radius)),
        "radius off by one": make_law(law.scale, law.radius - 1),
    }[wrong]
    p = dense_pmf(float(planted.scale), planted.radius, pad=1)
    moved = np.concatenate([[0.0], p[:-1]])
    assert hockey_stick(p, moved, float(epsilon)) > delta
    assert planted.delta(epsilon) > delta


@for_each(("scale", "radius"), [(1, 1), (2, 5), (64, 3), (Fraction(50, 3), 400)])
def test_samples_follow_the_law(scale: object, radius: int) -> None:
    law = make_law(scale, radius)
    sample = law.sample(public_stream("truncated", str(scale)), 300_000)
    assert np.abs(sample).max() <= radius and law.sample(public_stream("none"), 0).shape == (0,)
    assert chi_squared(sample, law) > FALSE_ALARM


def test_samples_of_another_scale_are_found() -> None:
    sample = make_law(Fraction(7, 5), 8).sample(public_stream("planted"), 300_000)
    assert chi_squared(sample, make_law(2, 8)) < FALSE_ALARM
    untruncated = DiscreteLaplace(scale=Fraction(2)).sample(public_stream("planted"), 300_000)
    assert chi_squared(np.clip(untruncated, -8, 8), make_law(2, 8)) < FALSE_ALARM


@for_each(
    ("make", "message"),
    [
        (lambda: make_law(0, 1), "scale"),
        (lambda: TruncatedLaplace(scale=0.5, radius=1), "scale"),  # type: ignore[arg-type]
        (lambda: make_law(1, 0), "radius is 0"),
        (lambda: make_law(1000, 15), "radius is 15"),
        (lambda: TruncatedLaplace(scale=Fraction(1), radius=1.0), "radius is a float"),  # type: ignore[arg-type]
        (lambda: make_law(1, 2).delta(-1), "epsilon is -1"),
        (lambda: make_law(1, 2).delta(1, sensitivity=0), "sensitivity is 0"),
        (lambda: make_law(1, 2).bound(0.0), "probability is 0"),
        (lambda: truncated_laplace(0, Fraction(1, 2)), "epsilon is 0"),
        (lambda: truncated_laplace(1, Fraction(1)), "delta is 1"),
        (lambda: truncated_laplace(1, Fraction(0)), "delta is 0"),
        (lambda: make_law(1, 2).sample(public_stream("x"), -1), "size is -1"),
    ],
)
def test_bad_arguments_are_named(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
