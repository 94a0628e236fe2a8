"""The optimal decision about a key: its law, its guarantee, its exact draws.

Statistical limits have a false-alarm probability of at most 1e-6; the streams are fixed.
"""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.noise.randomness import RandomStream, public_stream
from dptrees.dpcore.privacy import partition_selection
from dptrees.dpcore.privacy.partition_selection import SelectionLaw
from dptrees.dpcore.specification import Refusal

FALSE_ALARM = 1e-6
DRAWS = 40_000
BUDGETS = [
    ("1", "1e-5"),
    ("1/10", "1e-6"),
    ("3", "1e-9"),
    ("1/3", "1/100"),
    ("1/50", "1e-12"),
    ("20", "1e-3"),
    ("200", "1e-8"),
    ("1/1000", "1/4"),
    ("1", "1/2"),
    ("1", "9/10"),
]


def make_law(epsilon: str, delta: str, threshold: int = 1) -> SelectionLaw:
    return SelectionLaw(epsilon=Fraction(epsilon), delta=Fraction(delta), threshold=threshold)


def decimals(epsilon: str, delta: str, most: int) -> list[Decimal]:
    """The recursion as the paper has it, in 60 digits."""
    getcontext().prec = 60
    fraction, d = Fraction(epsilon), Fraction(delta)
    e = (Decimal(fraction.numerator) / fraction.denominator).exp()
    delta_ = Decimal(d.numerator) / d.denominator
    found = [Decimal(0)]
    while len(found) < most:
        p = found[-1]
        found.append(min(e * p + delta_, 1 - (1 - p - delta_) / e, Decimal(1)))
    return found


def test_the_law_is_the_recursion() -> None:
    for epsilon, delta in BUDGETS:
        law = make_law(epsilon, delta)
        # Above 64 an epsilon decides as 64.
        known = decimals(str(min(Fraction(epsilon), Fraction(64))), delta, law.certain_units + 3)
        found = law.probability(np.arange(law.certain_units + 3))
        np.testing.assert_allclose(found, [float(p) for p in known], rtol=2e-15, atol=2.0**-63)
        assert known[law.certain_units] == 1 > known[law.certain_units - 1], (epsilon, delta)
        floors = [int(p * 2**64) for p in known[: law.certain_units]]
        assert law._floors.tolist() == floors, (epsilon, delta)


def test_the_law_is_the_closed_form() -> None:
    for epsilon, delta in BUDGETS[:6]:
        e, d = float(Fraction(epsilon)), float(Fraction(delta))
        law = make_law(epsilon, delta)
        first = 1 + math.floor(math.log((math.exp(e) + 2 * d - 1) / ((math.exp(e) + 1) * d)) / e)
        up = d * math.expm1(first * e) / math.expm1(e)
        for n in range(law.certain_units):
            rest = math.exp(-(n - first) * e)
            closed = (1 - rest) * (1 + d / math.expm1(e)) + rest * up
            if n <= first:
                closed = d * math.expm1(n * e) / math.expm1(e)
            assert law.probability(n) == pytest.approx(closed, rel=1e-9), (epsilon, delta)
        assert partition_selection._certain_units(
            Fraction(epsilon), Fraction(delta)
        ) == pytest.approx(law.certain_units, abs=1.01)


def broken(p: Fraction, q: Fraction, grow: Fraction, delta: Fraction) -> bool:
    """Whether two coins break (epsilon, delta), either way."""
    pairs = ((p, q), (q, p), (1 - p, 1 - q), (1 - q, 1 - p))
    return any(one > grow * other + delta for one, other in pairs)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_every_neighbouring_pair_keeps_the_guarantee(epsilon: str, delta: str) -> None:
    """By the enclosures themselves, over all n, one unit more and one less."""
    for threshold in (1, 7):
        law, bits = make_law(epsilon, delta, threshold), 256
        bounds = partition_selection._probabilities(law._epsilon, law.delta, bits)
        getcontext().prec = 90
        fraction = Fraction(epsilon)
        grow = Fraction((Decimal(fraction.numerator) / fraction.denominator).exp())
        exact = [Fraction(0)] * (threshold - 1)
        exact += [Fraction(low + high, 2 << bits) for low, high in bounds] + [Fraction(1)] * 2
        slack = Fraction(1, 2**200)
        pairs = list(itertools.pairwise(exact))
        assert not any(broken(p, q, grow, law.delta + slack * (1 + grow)) for p, q in pairs)
        # One of the four is met with equality at every step: nothing is left, so a delta that is a
        # thousandth less is broken, and so is a law that skips a count.
        less = law.delta * Fraction(999, 1000)
        if law.delta < Fraction(1, 10) and law.epsilon == law._epsilon:
            assert any(broken(p, q, grow, less) for p, q in pairs)
            skipped = list(zip(exact, exact[2:], strict=False))
            assert any(broken(p, q, grow, law.delta + slack * (1 + grow)) for p, q in skipped)


def p_value(law: SelectionLaw, claimed: SelectionLaw) -> float:
    """Return the smallest p-value, over 1 to 30 units, of the hypothesis that the draws of a law
    come from the claimed one."""
    units = np.repeat(np.arange(1, 31), DRAWS)
    drawn = law.released(units, public_stream("selection")).reshape(30, DRAWS).sum(axis=1)
    return float(
        min(
            stats.binomtest(int(seen), DRAWS, float(p)).pvalue
            for seen, p in zip(drawn, claimed.probability(np.arange(1, 31)), strict=True)
        )
    )


def test_keys_of_1_to_30_units_are_released_as_the_formula_says() -> None:
    for epsilon, delta in (("1/2", "1/100"), ("1/4", "1/1000")):
        law = make_law(epsilon, delta)
        assert p_value(law, law) > FALSE_ALARM / 30, (epsilon, delta)
        doubled = SelectionLaw(epsilon=law.epsilon, delta=2 * law.delta)
        assert p_value(doubled, law) < FALSE_ALARM / 30, (epsilon, delta)

        class OneMore(SelectionLaw):
            def released(self, units: np.ndarray, stream: object) -> np.ndarray:  # type: ignore[override]
                return super().released(units + 1, stream)  # type: ignore[arg-type]

        assert p_value(OneMore(epsilon=law.epsilon, delta=law.delta), law) < FALSE_ALARM / 30


def test_no_unit_is_never_released_and_many_always_are() -> None:
    law = make_law("1", "1/2", threshold=5)
    units = np.repeat([0, 4, 5 + law.certain_units, 2**40], 1000)
    drawn = law.released(units, public_stream("ends")).reshape(4, 1000).sum(axis=1)
    assert drawn.tolist() == [0, 0, 1000, 1000]


def test_a_threshold_moves_the_law() -> None:
    plain, moved = make_law("1/2", "1e-4"), make_law("1/2", "1e-4", threshold=10)
    n = np.arange(60)
    assert np.all(moved.probability(n + 9) == plain.probability(n))
    assert np.all(moved.probability(np.arange(10)) == 0)
    assert moved.certain_units == plain.certain_units + 9
    assert moved.least_units(0.5) == plain.least_units(0.5) + 9


def test_the_least_units_of_a_probability() -> None:
    law = make_law("1/10", "1e-6")
    for probability in (1e-7, 0.01, 0.5, 0.99, 1.0):
        least = law.least_units(probability)
        assert law.probability(least) >= probability > law.probability(least - 1)
    for wrong in (0.0, 1.5):
        with pytest.raises(ValueError, match="probability is"):
            law.least_units(wrong)


class _Words:
    """Words that begin at a boundary, so that a tie must be resolved."""

    def __init__(self, first: int, *more: int) -> None:
        self.words = [first, *more]

    def uint64(self, n: int) -> np.ndarray:
        return np.array([self.words.pop(0) for _ in range(n)], np.uint64)

    def select(self, draws: object) -> _Words:
        return self


def test_a_tie_is_settled_by_more_bits() -> None:
    law = make_law("1/2", "1e-4")
    floor = int(law._floors[7])
    low, high = partition_selection._probabilities(law.epsilon, law.delta, 192)[7]
    following = (low >> 64) - (floor << 64)
    one = np.array([7])
    assert law.released(one, _Words(floor - 1)).tolist() == [True]  # type: ignore[arg-type]
    assert law.released(one, _Words(floor + 1)).tolist() == [False]  # type: ignore[arg-type]
    assert law.released(one, _Words(floor, following - 1)).tolist() == [True]  # type: ignore[arg-type]
    assert law.released(one, _Words(floor, following + 1)).tolist() == [False]  # type: ignore[arg-type]
    # Twice a tie.
    last = (high - (low >> 64 << 64)) % 2**64
    words = _Words(floor, following, last - 2**20)
    assert law.released(one, words).tolist() == [True]  # type: ignore[arg-type]


def test_decisions_are_a_function_of_the_stream() -> None:
    law, units = make_law("1/2", "1e-2"), np.arange(1000) % 40
    one, two = (law.released(units, RandomStream(bytes(32))) for _ in range(2))
    assert np.array_equal(one, two)


def test_what_makes_no_law_is_refused() -> None:
    for values, sentence in (
        ({"epsilon": Fraction(0)}, "epsilon: 0 is not above 0"),
        ({"delta": Fraction(0)}, "delta: 0 is not above 0 and below 1"),
        ({"delta": Fraction(1)}, "delta: 1 is not above 0 and below 1"),
        ({"threshold": 0}, "threshold: 0 is not a whole number from 1 to 2^40"),
        ({"threshold": True}, "threshold: True is not a whole number"),
        ({"epsilon": Fraction(1, 10**6)}, "more than 262144 units"),
        ({"epsilon": Fraction(1, 10**9), "delta": Fraction(1, 10**90)}, "more than 262144 units"),
    ):
        given = {"epsilon": Fraction(1), "delta": Fraction(1, 10**6)} | values
        with pytest.raises(Refusal) as refused:
            SelectionLaw(**given)  # type: ignore[arg-type]
        assert sentence in str(refused.value)
