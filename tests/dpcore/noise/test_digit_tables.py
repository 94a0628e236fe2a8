"""The tables and their comparisons, cell by cell, with streams of chosen bits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.noise.exact_sampling import (
    _TIE,
    DigitTable,
    Exponent,
    _accepted,
    _exact_bernoulli_exp,
    _resolved_outcomes,
    _small_exp,
    digit_table,
    draw,
    exp_bounds,
    survival_bounds,
)
from dptrees.dpcore.noise.randomness import RandomStream
from tests.dpcore.cases import for_each

ONES = 2**64 - 1
PLAIN = [
    Exponent(linear=Fraction(1)),
    Exponent(linear=Fraction(1, 40)),
    Exponent(linear=Fraction(1000)),
    Exponent(quadratic=Fraction(1, 2)),
    Exponent(quadratic=Fraction(1, 5000)),
    Exponent(quadratic=Fraction(1, 7)),
]
SPLIT = [
    (Exponent(linear=Fraction(1, 100)), 1),
    (Exponent(linear=Fraction(1, 2**40)), 35),
    (Exponent(quadratic=Fraction(1, 2 * 90**2)), 1),
    (Exponent(quadratic=Fraction(1, 2**81)), 35),
]
ALL = [(exponent, 0) for exponent in PLAIN] + SPLIT


class ScriptedStream(RandomStream):
    """A stream that replays given words and refuses to be read beyond them."""

    def __init__(self, *words: int, halves: list[int] | None = None) -> None:
        self.words, self.halves = list(words), halves or []

    def uint16(self, n: int) -> np.ndarray:
        assert n <= len(self.halves)
        taken, self.halves = self.halves[:n], self.halves[n:]
        return np.array(taken, dtype=np.uint16)

    def uint64(self, n: int) -> np.ndarray:
        assert n <= len(self.words)
        taken, self.words = self.words[:n], self.words[n:]
        return np.array(taken, dtype=np.uint64)


def outcome_numbers(values: np.ndarray, low_bits: int) -> np.ndarray:
    return np.where(values < 0, 2 * (~values >> low_bits) + 1, 2 * (values >> low_bits))


@pytest.mark.parametrize(("exponent", "low_bits"), ALL)
def test_settled_cells_have_their_outcome_s_mass(exponent: Exponent, low_bits: int) -> None:
    """Over all 65,536 first words: each cell lies wholly inside the outcome that it names."""
    bits = 80
    bounds = survival_bounds(exponent, 1 << low_bits, bits)
    low = np.array([1 << bits] + [low for low, _ in bounds] + [0], dtype=object)
    high = np.array([1 << bits] + [high for _, high in bounds] + [0], dtype=object)
    table = digit_table(exponent, low_bits)
    cells = np.flatnonzero(table.values != _TIE)
    outcome = outcome_numbers(table.values[cells], low_bits)
    start = cells.astype(object) << (bits - 16)
    # U in the cell must satisfy P(J >= j + 1) <= U < P(J >= j).
    assert (start >= high[outcome + 1]).all()
    assert (start + (1 << (bits - 16)) <= low[outcome]).all()
    # As many resolved cells as exact probabilities allow: an outcome loses two ties at most.
    mass = np.bincount(outcome, minlength=len(bounds) + 1)[: len(bounds) + 1]
    exact = np.array([int(high[j] - low[j + 1]) / 2 ** (bits - 16) for j in range(len(bounds) + 1)])
    assert (mass <= exact).all() and (mass > exact - 2).all()


@for_each("exponent", PLAIN[:2] + PLAIN[3:5])
def test_draw_over_all_first_words(exponent: Exponent) -> None:
    table = digit_table(exponent, 0)
    ties = int((table.values == _TIE).sum())
    stream = ScriptedStream(*[1 << 63] * ties, halves=list(range(65536)))
    drawn = draw(table, stream, 65536)
    assert not stream.halves and not stream.words
    settled = table.values != _TIE
    np.testing.assert_array_equal(drawn[settled], table.values[settled])
    # U falls as the outcome's number grows, over the ties too.
    assert (np.diff(outcome_numbers(drawn, 0)) <= 0).all()


@for_each(("exponent", "low_bits"), ALL)
def test_squeeze_never_accepts_too_much(exponent: Exponent, low_bits: int) -> None:
    table = digit_table(exponent, low_bits)
    if low_bits == 0:
        assert not table.limits.any()
        return
    cells = np.flatnonzero(table.values != _TIE)
    assert (table.limits[table.values == _TIE] == 0).all()
    outcome = outcome_numbers(table.values[cells], low_bits)
    for j in np.unique(outcome).tolist():
        base = ((j >> 1) << low_bits) + (j & 1)
        worst = exponent(base + (1 << low_bits) - 1) - exponent(base)
        limits = np.unique(table.limits[cells[outcome == j]])
        assert limits.size == 1 and int(limits[0]) <= exp_bounds(worst, 64)[0]
        assert int(limits[0]) >= exp_bounds(worst, 64)[0] - 2**53 or worst > Fraction(1, 2)


def settle(table: DigitTable, u: int, *more: int) -> int:
    """The outcome of the U whose 64 bits are `u`, with `more` words after them."""
    index = np.array([u >> 48], dtype=np.int64)
    stream = ScriptedStream((u & (2**48 - 1)) << 16, *more)
    outcome = int(_resolved_outcomes(table, stream, index)[0])
    assert not stream.words
    return outcome


@pytest.mark.parametrize(("exponent", "low_bits"), ALL)
def test_ties_are_refined(exponent: Exponent, low_bits: int) -> None:
    table = digit_table(exponent, low_bits)
    numbered = table.boundaries[::-1].tolist()
    for j, boundary in list(enumerate(numbered, start=1))[:: max(1, len(numbered) // 5)]:
        # Far in the tail, below 2^-40, boundaries crowd.
        if boundary < 2**24:
            continue
        assert settle(table, boundary - 1) == j
        assert settle(table, boundary + 1) == j - 1
        # Equal in 64 bits: the next words decide, on either side of the boundary.
        assert settle(table, boundary, 0) == j
        assert settle(table, boundary, ONES) == j - 1


def test_ties_are_refined_without_a_cap() -> None:
    exponent = Exponent(linear=Fraction(1, 3))
    low, high = survival_bounds(exponent, 1, 400)[4]
    prefix = low >> 400 - 256
    assert prefix == high >> 400 - 256
    words = [prefix >> shift & ONES for shift in (192, 128, 64, 0)]
    table = digit_table(exponent, 0)
    assert settle(table, words[0], *words[1:], 0) == 5
    assert settle(table, words[0], *words[1:], ONES) == 4


def test_outcomes_beyond_the_table() -> None:
    table = digit_table(Exponent(linear=Fraction(1)), 0)
    far = settle(table, 0, 0, 1 << 63)
    # 2^-129 = 2 q^h / (1 + q) or q^h: h = 89 or 90.
    assert far in (2 * 89, 2 * 89 + 1, 2 * 90)


@for_each("gamma", [Fraction(1, 64), Fraction(1, 3), Fraction(9, 2), Fraction(40)])
def test_bernoulli_is_refined(gamma: Fraction) -> None:
    v = exp_bounds(gamma, 200)[0] >> 136
    assert _exact_bernoulli_exp(gamma, ScriptedStream(0), v)
    assert not _exact_bernoulli_exp(gamma, ScriptedStream(ONES), v)
    assert _exact_bernoulli_exp(gamma, ScriptedStream(0), v - 1)
    assert not _exact_bernoulli_exp(gamma, ScriptedStream(0), v + 2)


@for_each(
    ("exponent", "outcome", "low_digit"),
    [(*SPLIT[0], 1), (*SPLIT[1], 2**34 + 5), (*SPLIT[2], 1), (*SPLIT[3], 2**35 - 1)],
)
def test_acceptance_agrees_with_exact_arithmetic(
    exponent: Exponent, outcome: int, low_digit: int
) -> None:
    """V on both sides of exp(-gamma), at distances that float64 settles and does not settle."""
    low_bits = dict(SPLIT)[exponent]
    table = digit_table(exponent, low_bits)
    for j in (0, 1, 30, 151, 20_000):
        base = ((j >> 1) << low_bits) + (j & 1)
        gamma = exponent(base + low_digit) - exponent(base)
        edge = exp_bounds(gamma, 200)[0] >> 136
        for distance in (1, 2**10, 2**22, 2**26, 2**40):
            for v, expected in ((edge - distance, True), (edge + 1 + distance, False)):
                if not 0 <= v <= ONES:
                    continue
                accepted = _accepted(
                    table,
                    ScriptedStream((v & (2**52 - 1)) << 12, ONES, ONES),
                    np.array([j]),
                    np.array([low_digit]),
                    np.array([v], dtype=np.uint64),
                )
                assert accepted.tolist() == [expected], (j, distance)


def test_word_layout() -> None:
    """U, L and V are taken from the bits that the table was made for; V = ones is rejected."""
    table = digit_table(Exponent(linear=Fraction(1, 2**40)), 35)
    low = 2**35 - 2
    cell = int(np.flatnonzero((table.values < 0) & (table.values != _TIE))[100])
    assert draw(table, ScriptedStream(cell | low << 16), 1).tolist() == [
        int(table.values[cell]) ^ low
    ]
    rejected = cell | low << 16 | 0xFFF << 52
    drawn = draw(table, ScriptedStream(rejected, 0, ONES, cell | 7 << 16), 1)
    assert drawn.tolist() == [int(table.values[cell]) ^ 7]


def test_taylor_error() -> None:
    gamma = np.linspace(0, 0.5, 2001)
    exact = [exp_bounds(Fraction(g), 80)[0] / 2**80 for g in gamma.tolist()]
    assert np.abs(_small_exp(gamma) - exact).max() < 2.0**-44


def test_tables_are_kept_and_read_only() -> None:
    table = digit_table(Exponent(linear=Fraction(1)), 0)
    assert digit_table(Exponent(linear=Fraction(1)), 0) is table
    for array in (table.values, table.limits, table.boundaries):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.parametrize("low_bits", [-1, 37])
def test_low_bits_out_of_range_are_refused(low_bits: int) -> None:
    with pytest.raises(ValueError, match="low_bits is"):
        digit_table(Exponent(linear=Fraction(1)), low_bits)
