"""Exact sampling of symmetric integer laws: a table for the high digit, raw bits for the low one.

The law is P(X = x) ~ exp(-E(|x|)) with E convex: linear for the discrete Laplace law, quadratic
for the discrete Gaussian. With B = 2^m write

    X = h B + L  or  X = -1 - (h B + L)      (h >= 0, 0 <= L < B, a sign s in {0, 1})

so that |X| = h B + L + s and every integer is written in exactly one way. A draw proposes

    (h, s) with probability ~ exp(-E(h B + s)),    L uniform,

and accepts with probability exp(-(E(h B + L + s) - E(h B + s))); a rejected draw starts again.
B is chosen with 32 to 64 high digits to one scale of the law, so that 1 to 2 % are rejected. (For
the Laplace law the digits h and L are independent: this draws each by itself.)

(h, s) is drawn by inverting its distribution function at a uniform U: a table over the first 16
bits of U, and where a boundary between outcomes lies inside a table cell, as many more bits as
settle the comparison. Acceptance compares a second uniform V, and 12 bits of it mostly suffice.
Every comparison is decided by enclosures (dpcore/noise/exponential_bounds.py), never by rounding:
the law is exact.

Sources: von Neumann's rejection; the reduction of the discrete Gaussian to comparisons with
exp(-rational), Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (2020),
section 5; the digits of a geometric variable, the same, algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.noise.exponential_bounds import Exponent, exp_bounds, survival_bounds
from dptrees.dpcore.noise.randomness import Bits

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

    A draw beyond 64 bits, of probability below 1e-900000 for the laws of samplers.py, is not
    provided for.

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
