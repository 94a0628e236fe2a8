"""Products of power series: beside exact fractions, and where the transform's last bits change."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.arithmetic import sums
from dptrees.dpcore.arithmetic.sums import integer_series_product, later_terms, series_product
from dptrees.dpcore.arrays import Floats
from tests.dpcore.cases import for_each

SIZES = (1, 2, 3, 16, 37)


def exact(values: Floats, series: Floats) -> list[Fraction]:
    a, b = ([Fraction(each) for each in row.tolist()] for row in (values, series))
    return [
        sum((a[i] * b[t - i] for i in range(min(t + 1, len(a)))), Fraction(0))
        for t in range(len(b))
    ]


def coefficients(size: int, seed: int = 1) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=size) * 1e6, 1.0 / (np.arange(size) + 1.0) ** 1.5


@for_each("size", SIZES)
def test_terms_are_as_accurate_as_stated(size: int) -> None:
    values, series = coefficients(size)
    most = float(np.abs(values).max() * np.abs(series).max()) * size**0.5
    for bits in (54, 40, 20):
        for found, true in zip(
            series_product(values, series, bits).tolist(), exact(values, series), strict=True
        ):
            assert abs(Fraction(found) - true) <= most * 2.0**-bits * 4 + abs(true) * 2.0**-52


def test_fewer_bits_are_less_accurate() -> None:
    values, series = coefficients(3000)
    full, less = series_product(values, series), series_product(values, series, 20)
    assert 1e-9 < np.abs(full - less).max() / np.abs(values).max() < 1e-4


@for_each(("m", "n"), [(1, 1), (1, 2), (3, 9), (16, 16), (20, 37), (64, 65)])
def test_later_terms_are_those_of_the_whole_product(m: int, n: int) -> None:
    values, series = coefficients(n)
    expected = [float(each) for each in exact(values[:m], series)[m:]]
    assert np.allclose(later_terms(values[:m], series), expected, rtol=1e-12, atol=1e-7)


def test_many_series_at_once_are_multiplied_as_each_alone() -> None:
    values, series = coefficients(50)
    rows = np.array([values, values * 1e-9, np.zeros(50), values[::-1]])
    together = series_product(rows, series)
    for row, found in zip(rows, together, strict=True):
        assert (series_product(row, series) == found).all()


def test_the_last_bits_of_transforms_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move every number of a transform by a few parts in 2^53, as another processor does."""
    values, series = coefficients(1000)
    expected, whole = series_product(values, series), np.rint(values).astype(np.int64)
    positive = np.arange(1000)
    integers = integer_series_product(whole, positive)
    later = later_terms(values[:300], series)
    rng, forward = np.random.default_rng(8), np.fft.rfft
    plain = np.fft.irfft(forward(values, 2048) * forward(series, 2048), 2048)[:1000]

    def off(*arguments: object, **named: object) -> object:
        found = forward(*arguments, **named)  # type: ignore[call-overload]
        return found * (1 + rng.integers(-4, 5, found.shape) * 2.0**-53)

    monkeypatch.setattr(np.fft, "rfft", off)
    assert (series_product(values, series) == expected).all()
    assert (integer_series_product(whole, positive) == integers).all()
    assert (later_terms(values[:300], series) == later).all()
    moved = np.fft.irfft(off(values, 2048) * off(series, 2048), 2048)[:1000]  # type: ignore[operator]
    assert (plain != moved).any()


def test_errors_of_transforms_are_far_from_where_rounding_would_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    farthest = [0.0]

    def whole(terms: Floats) -> Floats:
        farthest[0] = max(farthest[0], float(np.abs(terms - np.rint(terms)).max()))
        return np.asarray(np.rint(terms))

    monkeypatch.setattr(sums, "_whole", whole)
    for exponent in (1, 4, 7, 10, 13, 16):
        size = 2**exponent
        for values in (np.full(size, 1 / 3), np.cumsum(coefficients(size)[0])):
            series_product(values, values)
    assert farthest[0] < 0.1


def test_a_transform_that_is_not_accurate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    values, series = coefficients(100)
    backward = np.fft.irfft
    monkeypatch.setattr(np.fft, "irfft", lambda *a, **k: backward(*a, **k) + 0.3)
    with pytest.raises(ArithmeticError, match="not accurate"):
        series_product(values, series)
    with pytest.raises(ArithmeticError, match="not accurate"):
        integer_series_product(np.arange(9), np.arange(9))


@pytest.mark.parametrize("planted", [np.inf, np.nan])
def test_infinities_and_nans_are_refused(planted: float) -> None:
    with pytest.raises(ValueError, match="infinite or not a number"):
        series_product(np.array([1.0, planted]), np.ones(2))


def test_integers_are_multiplied_modulo_2_to_the_64() -> None:
    rng = np.random.default_rng(9)
    values, series = rng.integers(-(2**62), 2**62, 40), rng.integers(0, 2**27, 40)
    expected = [
        sum(int(values[i]) * int(series[t - i]) for i in range(t + 1)) % 2**64 for t in range(40)
    ]
    assert integer_series_product(values, series).view(np.uint64).tolist() == expected
