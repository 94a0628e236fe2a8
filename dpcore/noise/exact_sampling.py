"""Exact sampling of symmetric integer laws: no rounding decides.

The law is P(X = x) ~ exp(-E(|x|)), E convex. With B = 2^m every integer is written in exactly one
way as X = h B + L or X = -1 - (h B + L), h >= 0, 0 <= L < B, with a sign s in {0, 1}, so that |X|
= h B + L + s. A draw proposes (h, s) with probability ~ exp(-E(h B + s)) and L uniform, and
accepts with probability exp(-(E(h B + L + s) - E(h B + s))). B is chosen with 32 to 64 high
digits to one scale of the law, so that 1 to 2 % are rejected. (h, s) is drawn by a table over the
first 16 bits of a uniform number. Every comparison with exp(-a), a rational, is decided by two
fixed-point integers that enclose it (exp(-a / 2^k)^(2^k), the alternating Taylor series for the
small argument, a geometric series for the tail), with more bits until it is certain. Sources: von
Neumann's rejection; Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy"
(2020), section 5 and algorithm 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.noise.randomness import Bits

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


Words = npt.NDArray[np.uint64]

# A word of random bits holds, from the lowest: 16 of U, up to 36 of L, 12 of V.
_INDEX_BITS = 16
_ACCEPT_BITS = 12
MAX_LOW_BITS = 64 - _INDEX_BITS - _ACCEPT_BITS

_ACCEPT_SHIFT = np.uint64(64 - _ACCEPT_BITS)
_CELLS = 1 << _INDEX_BITS
_INDEX_MASK = np.uint64(_CELLS - 1)
# The value of a cell in which a boundary lies. No draw that a table can settle is so large.
_TIE = np.iinfo(np.int64).min
# Samples drawn together: their words and results stay in the processor's second cache.
_BLOCK = 1 << 15
# Below this much doubt a float64 comparison of V with exp(-gamma) is not believed.
_DOUBT = 2.0**-40
_TAYLOR_DEGREE = 12
_TAYLOR_LIMIT = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class DigitTable:
    """The inverted distribution function of the high digit and sign, on 16 bits.

    Args:
        exponent: E of the law.
        low_bits: m, 0 to 36; with 0 there is no low digit and nothing is rejected.
        values: (65536,) the signed high digit h B or -1 - h B of each cell of U, or the least
            int64 where a boundary lies inside the cell.
        limits: (65536,) a word of bits below the limit is accepted whatever L is; 0 where a
            boundary lies inside the cell.
        boundaries: ascending, floor(P(J >= j) 2^64) of all j; J = 2 h + s numbers the outcomes.
    """

    exponent: Exponent
    low_bits: int
    values: Integers
    limits: Words
    boundaries: Words


@lru_cache(maxsize=64)
def digit_table(exponent: Exponent, low_bits: int) -> DigitTable:
    """Return the table of a law; the last 64 are kept (up to 1 MiB each).

    Args:
        exponent: E; E(2^low_bits) must be at least 2^-13 (64 digits to a scale).
        low_bits: m, 0 to 36.

    Raises:
        ValueError: if low_bits is out of range.

    >>> table = digit_table(Exponent(linear=Fraction(1)), 0)
    >>> table.values[[-1, 40000, 30000]].tolist()  # U near 1, 0.61, 0.46
    [0, 0, -1]
    """
    if not 0 <= low_bits <= MAX_LOW_BITS:
        raise ValueError(f"low_bits is {low_bits}; it must be from 0 to {MAX_LOW_BITS}")
    boundaries = _boundaries(exponent, 1 << low_bits)
    tied = np.bincount((boundaries >> np.uint64(48)).astype(np.int64), minlength=_CELLS)
    # The outcome of a cell without boundary is the number of boundaries above it.
    outcomes = boundaries.size - np.cumsum(tied)
    tie = tied > 0
    values = np.where(tie, _TIE, _signed_digits(outcomes, low_bits))
    squeeze = _squeeze(exponent, low_bits, boundaries.size + 1)
    limits = np.where(tie, np.uint64(0), squeeze[outcomes])
    for array in (values, limits, boundaries):
        array.flags.writeable = False
    return DigitTable(
        exponent=exponent, low_bits=low_bits, values=values, limits=limits, boundaries=boundaries
    )


def draw(table: DigitTable, stream: Bits, size: int) -> Integers:
    """Return `size` independent draws of the table's law, exact.

    Args:
        table: from `digit_table`.
        stream: uniform bits; how many are read depends on their values.
        size: the number of draws, at least 0.

    Returns:
        (size,) int64.

    A draw beyond 64 bits, of probability below 1e-900000 for the laws of `dpcore.noise.laws`, is
    not provided for.

    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> draw(digit_table(Exponent(linear=Fraction(1)), 0), public_stream("doc"), 3).shape
    (3,)
    """
    out = np.empty(size, dtype=np.int64)
    fill = _fill_resolved if table.low_bits == 0 else _fill_proposed
    rejected = [
        start
        + fill(table, stream.select(slice(start, start + _BLOCK)), out[start : start + _BLOCK])
        for start in range(0, size, _BLOCK)
    ]
    again = np.concatenate(rejected) if rejected else np.empty(0, dtype=np.int64)
    if again.size:
        out[again] = draw(table, stream.select(again), again.size)
    return out


def _fill_resolved(table: DigitTable, stream: Bits, out: Integers) -> Integers:
    """Fill `out` from a table without low digit; return the rejected positions: none."""
    index = stream.uint16(out.size).astype(np.int64)
    # "wrap" is the one mode in which NumPy neither checks nor buffers; every index is in range.
    np.take(table.values, index, out=out, mode="wrap")
    ties = np.flatnonzero(out == _TIE)
    if ties.size:
        out[ties] = _signed_digits(_resolved_outcomes(table, stream.select(ties), index[ties]), 0)
    return np.empty(0, dtype=np.int64)


def _fill_proposed(table: DigitTable, stream: Bits, out: Integers) -> Integers:
    """Fill `out` with proposals; return the positions of those rejected."""
    word = stream.uint64(out.size)
    index = (word & _INDEX_MASK).view(np.int64)
    np.take(table.values, index, out=out, mode="wrap")
    low = word >> np.uint64(_INDEX_BITS)
    low &= np.uint64((1 << table.low_bits) - 1)
    out ^= low.view(np.int64)
    doubtful = np.flatnonzero(word >= table.limits.take(index, mode="wrap"))
    if not doubtful.size:
        return doubtful
    stream = stream.select(doubtful)
    outcome = _resolved_outcomes(table, stream, index[doubtful])
    low_digit = low[doubtful].view(np.int64)
    out[doubtful] = _signed_digits(outcome, table.low_bits) ^ low_digit
    return doubtful[~_accepted(table, stream, outcome, low_digit, word[doubtful])]


def _resolved_outcomes(table: DigitTable, stream: Bits, index: Integers) -> Integers:
    """The outcome J of each U that begins with the 16 bits `index`, by 48 more bits or by all."""
    more = stream.uint64(index.size) >> np.uint64(_INDEX_BITS)
    u = (index.view(np.uint64) << np.uint64(64 - _INDEX_BITS)) | more
    below = np.searchsorted(table.boundaries, u)
    outcome: Integers = table.boundaries.size - below
    # U agrees with a boundary in all 64 bits: about once in 10^16 calls.
    for i in np.flatnonzero(table.boundaries.take(below, mode="clip") == u).tolist():
        outcome[i] = _exact_outcome(table, stream.select(np.array([i])), int(u[i]))
    return outcome


def _accepted(
    table: DigitTable, stream: Bits, outcome: Integers, low_digit: Integers, word: Words
) -> Flags:
    """Whether V < exp(-(E(base + L) - E(base))); V begins with the top bits of `word`."""
    more = stream.uint64(word.size) >> np.uint64(_ACCEPT_BITS)
    v = ((word >> _ACCEPT_SHIFT) << _ACCEPT_SHIFT) | more
    base = _base(outcome, table.low_bits)
    gamma = _exponent_increase(table.exponent, base, low_digit)
    margin = _small_exp(np.minimum(gamma, _TAYLOR_LIMIT)) - v * 2.0**-64
    accepted: Flags = margin > 0
    for i in np.flatnonzero((np.abs(margin) < _DOUBT) | (gamma > _TAYLOR_LIMIT)).tolist():
        k = int(base[i])
        increase = table.exponent(k + int(low_digit[i])) - table.exponent(k)
        accepted[i] = _exact_bernoulli_exp(increase, stream.select(np.array([i])), int(v[i]))
    return accepted


def _exponent_increase(
    exponent: Exponent, base: Integers, low_digit: Integers
) -> npt.NDArray[np.float64]:
    """E(base + L) - E(base) = L (linear + quadratic (2 base + L)), to 2^-50 in relative terms.

    All terms are nonnegative and the integers below 2^53, so that only roundings add up.
    """
    ends = (2 * base + low_digit).astype(np.float64)
    return (float(exponent.quadratic) * ends + float(exponent.linear)) * low_digit


def _small_exp(gamma: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """exp(-gamma) for 0 <= gamma <= 1/2 with an error below 2^-44.

    Own arithmetic, not the C library's: the Taylor remainder is below 0.5^13 / 13! < 2^-45 and
    each of the 12 steps of Horner's rule adds at most two roundings of 2^-53.
    """
    total = np.ones_like(gamma)
    for n in range(_TAYLOR_DEGREE, 0, -1):
        total *= gamma
        total /= -n
        total += 1.0
    return total


def _exact_outcome(table: DigitTable, stream: Bits, u: int) -> int:
    """The outcome of a U that begins with the 64 bits `u`, reading more bits as they are needed."""
    bits = 64
    while True:
        u, bits = (u << 64) | int(stream.uint64(1)[0]), bits + 64
        bounds = survival_bounds(table.exponent, 1 << table.low_bits, bits)
        # The list ends below 2^-bits, so with u = 0 further outcomes may lie beyond its end.
        surely = sum(u + 1 <= low for low, _ in bounds)
        perhaps = sum(u < high for _, high in bounds)
        if surely == perhaps < len(bounds):
            return surely


def _exact_bernoulli_exp(gamma: Fraction, stream: Bits, v: int) -> bool:
    """Whether V < exp(-gamma) for a V that begins with the 64 bits `v`."""
    bits = 64
    while True:
        low, high = exp_bounds(gamma, bits)
        if v + 1 <= low:
            return True
        if v >= high:
            return False
        v, bits = (v << 64) | int(stream.uint64(1)[0]), bits + 64


def _boundaries(exponent: Exponent, step: int) -> Words:
    """floor(P(J >= j) 2^64) for j = 1, 2, ..., ascending, certain to the last bit."""
    bits = 96
    while True:
        excess = bits - 64
        bounds = survival_bounds(exponent, step, bits)
        floors = [(low >> excess, high >> excess) for low, high in bounds]
        if all(low == high for low, high in floors):
            certain = np.array([low for low, _ in reversed(floors)], dtype=np.uint64)
            # One 0 is enough: it makes U = 0 undecided, and no other U is below a 0.
            return certain[np.flatnonzero(certain)[0] - 1 if certain.any() else -1 :]
        bits *= 2


def _signed_digits(outcome: Integers, low_bits: int) -> Integers:
    """h B for s = 0 and -1 - h B for s = 1, so that an exclusive or with L completes X."""
    return ((outcome >> 1) << low_bits) ^ -(outcome & 1)


def _squeeze(exponent: Exponent, low_bits: int, count: int) -> Words:
    """Limit below which a word is accepted for each outcome, L being at its worst: B - 1."""
    if low_bits == 0:
        return np.zeros(count, dtype=np.uint64)
    outcome = np.arange(count)
    gamma = _exponent_increase(
        exponent, _base(outcome, low_bits), np.full(count, (1 << low_bits) - 1)
    )
    least = np.where(gamma > _TAYLOR_LIMIT, 0.0, _small_exp(np.minimum(gamma, _TAYLOR_LIMIT)))
    accepted = np.floor(np.maximum(least - _DOUBT, 0.0) * (1 << _ACCEPT_BITS)).astype(np.uint64)
    limits: Words = accepted << _ACCEPT_SHIFT
    return limits


def _base(outcome: Integers, low_bits: int) -> Integers:
    """The least |X| of each outcome, h B + s."""
    base: Integers = ((outcome >> 1) << low_bits) + (outcome & 1)
    return base
