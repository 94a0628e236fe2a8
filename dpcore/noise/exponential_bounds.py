"""Exponentials enclosed between integers, so that a comparison with one is certain.

An exact sampler compares uniform random bits with probabilities built from exp(-a), a rational.
Such a probability is irrational and is never represented; instead it is enclosed here between two
fixed-point integers with any number of bits, every rounding being directed outwards. More bits
always settle a comparison that fewer bits leave open.

Formulas: exp(-a) = exp(-a / 2^k)^(2^k), with the alternating Taylor series for the small argument;
the sums over a convex exponent are closed by a geometric series.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

Bounds = tuple[int, int]

# Bits worked with beyond those requested. The sums below lose fewer than 25 of them.
_GUARD_BITS = 40


@dataclass(frozen=True, kw_only=True)
class Exponent:
    """The exponent E(k) = linear k + quadratic k^2 of a law P(|X| = k) ~ exp(-E(k)), k >= 0.

    Args:
        linear: 1 / scale for the discrete Laplace law, else 0.
        quadratic: 1 / (2 sigma^2) for the discrete Gaussian law, else 0.

    Raises:
        ValueError: unless both are at least 0 and one is positive.

    >>> Exponent(linear=Fraction(1, 2))(3)
    Fraction(3, 2)
    """

    linear: Fraction = Fraction(0)
    quadratic: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        for name, value in (("linear", self.linear), ("quadratic", self.quadratic)):
            if value < 0:
                raise ValueError(f"{name} is {value}; it must be at least 0")
        if self.linear + self.quadratic == 0:
            raise ValueError("linear and quadratic are both 0; one of them must be positive")

    def __call__(self, k: int) -> Fraction:
        return k * (self.linear + k * self.quadratic)


def exp_bounds(a: Fraction, bits: int) -> Bounds:
    """Return integers (low, high) with low <= exp(-a) 2^bits <= high.

    The enclosure is at most 2 units wide.

    Args:
        a: at least 0.
        bits: the number of fractional bits, at least 1.

    Raises:
        ValueError: if `a` is negative.

    >>> exp_bounds(Fraction(1), 20)  # 385749.5... = 2^20 / e
    (385749, 385750)
    """
    if a < 0:
        raise ValueError(f"the exponent is -({a}); a must be at least 0")
    if a >= bits:
        return 0, 1
    halvings = max(0, a.numerator.bit_length() - a.denominator.bit_length() + 8)
    working = bits + 2 * halvings + 16
    argument = (a.numerator << working) // (a.denominator << halvings)
    low, high = _small_exp_bounds(argument, working)
    for _ in range(halvings):
        low, high = _product((low, high), (low, high), working)
    excess = working - bits
    return low >> excess, -(-high >> excess)


def survival_bounds(exponent: Exponent, step: int, bits: int) -> list[Bounds]:
    """Enclose P(J >= j) for j = 1, 2, ..., until it is below about 2^-bits.

    J = 2 h + s is the number of an outcome (h, s), h >= 0 a digit in units of `step` and s in
    {0, 1} a sign, with P(h, s) proportional to exp(-E(h step + s)).

    Args:
        exponent: E.
        step: the unit of the digit h, at least 1; E(step) must be at least 2^-16, so that the
            sums converge within the guard bits.
        bits: the number of fractional bits.

    Returns:
        A list of (low, high) with low <= P(J >= j) 2^bits <= high, j = 1, 2, ...

    >>> survival_bounds(Exponent(linear=Fraction(1)), 1, 8)[:2]  # 2 q / (1 + q), then q
    [(136, 139), (93, 95)]
    """
    signs = [_weights(exponent, step, sign, bits) for sign in (0, 1)]
    length = max(len(weights) for weights, _ in signs)
    # A sign's list that ended early counts as 0 from there: its tail bound covers it.
    pairs = [weights + [(0, 0)] * (length - len(weights)) for weights, _ in signs]
    tail = sum(bound for _, bound in signs)
    backwards = [pairs[sign][h] for h in reversed(range(length)) for sign in (1, 0)]
    lows = list(accumulate((low for low, _ in backwards), initial=0))
    highs = list(accumulate((high for _, high in backwards), initial=tail))
    total_low, total_high = lows[-1], highs[-1]
    return [
        ((low << bits) // total_high, min(1 << bits, -(-(high << bits) // total_low)))
        for low, high in zip(lows[-2::-1], highs[-2::-1], strict=True)
    ]


def _weights(exponent: Exponent, step: int, sign: int, bits: int) -> tuple[list[Bounds], int]:
    """exp(-E(h step + sign)) for h = 0, 1, ..., and a bound on the sum of those left out."""
    working = bits + _GUARD_BITS
    listed: list[Bounds] = []
    sequence = _weights_and_ratios(exponent, step, sign, working)
    weight, ratio = next(sequence)
    while weight[1] > 1 << _GUARD_BITS:
        listed.append(weight)
        weight, ratio = next(sequence)
    # E is convex, so each weight from here on is at most `ratio` times the one before it.
    return listed, -(-(weight[1] << working) // ((1 << working) - ratio[1]))


def _weights_and_ratios(
    exponent: Exponent, step: int, sign: int, working: int
) -> Iterator[tuple[Bounds, Bounds]]:
    """exp(-E(base)) and exp(-(E(base + step) - E(base))), base = h step + sign, h = 0, 1, ..."""
    start = exponent(sign)
    weight = exp_bounds(start, working)
    ratio = exp_bounds(exponent(sign + step) - start, working)
    change = exp_bounds(2 * exponent.quadratic * step * step, working)
    while True:
        yield weight, ratio
        weight = _product(weight, ratio, working)
        if exponent.quadratic:
            ratio = _product(ratio, change, working)


def _product(left: Bounds, right: Bounds, bits: int) -> Bounds:
    return (left[0] * right[0]) >> bits, -(-(left[1] * right[1]) >> bits)


def _small_exp_bounds(argument: int, bits: int) -> Bounds:
    """Enclose exp(-x) 2^bits for all x with argument <= x 2^bits <= argument + 1, x < 1/64.

    By induction the computed term n is below x^n / n! 2^bits by less than 3 units (truncating the
    argument costs at most 1 unit, the shift 1 and the division 1); the first term left out is
    computed as 0, so all terms left out together are less than 4 units.
    """
    total = term = 1 << bits
    count = 0
    while term:
        count += 1
        term = ((term * argument) >> bits) // count
        total += -term if count % 2 else term
    error = 3 * count + 4
    return max(0, total - error), min(1 << bits, total + error)
