"""Enclosures of exponentials, against decimal arithmetic with 150 digits."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.noise.exact_sampling import Exponent, exp_bounds, survival_bounds
from tests.dpcore.cases import for_each

DIGITS = 150


def decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


@given(
    st.fractions(min_value=0, max_value=120, max_denominator=10**30),
    st.integers(min_value=1, max_value=200),
)
def test_exp_lies_within_its_bounds(a: Fraction, bits: int) -> None:
    low, high = exp_bounds(a, bits)
    with localcontext(Context(prec=DIGITS)):
        truth = (-decimal(a)).exp() * 2**bits
        assert low <= truth <= high
    assert 0 <= low <= high <= low + 2


@for_each("a", [Fraction(0), Fraction(1, 2**90), Fraction(2**80), Fraction(63), Fraction(64)])
def test_exp_at_the_ends(a: Fraction) -> None:
    low, high = exp_bounds(a, 64)
    with localcontext(Context(prec=DIGITS)):
        assert low <= (-decimal(a)).exp() * 2**64 <= high <= low + 2


EXPONENTS = [
    (Exponent(linear=Fraction(1, 3)), 1),
    (Exponent(linear=Fraction(1, 700)), 16),
    (Exponent(linear=Fraction(1000)), 1),
    (Exponent(quadratic=Fraction(1, 50)), 1),
    (Exponent(quadratic=Fraction(3, 10**5)), 8),
    (Exponent(quadratic=Fraction(200)), 1),
]


@pytest.mark.parametrize(("exponent", "step"), EXPONENTS)
def test_survival_lies_within_its_bounds(exponent: Exponent, step: int) -> None:
    bits = 90
    bounds = survival_bounds(exponent, step, bits)
    with localcontext(Context(prec=DIGITS)):
        # Twice as many outcomes as are listed: what is left out is below 2^-180.
        weights = [
            (-decimal(exponent((j >> 1) * step + (j & 1)))).exp()
            for j in range(2 * len(bounds) + 20)
        ]
        tails = [Decimal(0)]
        for weight in reversed(weights):
            tails.append(tails[-1] + weight)
        total = tails.pop()
        for (low, high), tail in zip(bounds, tails[::-1], strict=False):
            assert low <= tail / total * 2**bits <= high
            assert high - low < 2**10
        assert tails[::-1][len(bounds) - 1] / total < Decimal(2) ** -80


def test_more_bits_nest() -> None:
    exponent = Exponent(quadratic=Fraction(1, 50))
    coarse, fine = survival_bounds(exponent, 1, 64), survival_bounds(exponent, 1, 256)
    for (low, high), (fine_low, fine_high) in zip(coarse, fine, strict=False):
        assert low << 192 <= fine_low <= fine_high <= high << 192


def test_wrong_exponents_are_refused() -> None:
    with pytest.raises(ValueError, match="linear is -1"):
        Exponent(linear=Fraction(-1))
    with pytest.raises(ValueError, match="both 0"):
        Exponent()
    with pytest.raises(ValueError, match="at least 0"):
        exp_bounds(Fraction(-1), 10)
