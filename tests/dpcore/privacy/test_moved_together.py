"""The certificate for counts that a unit moves by more than one, against exact deltas."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce

import numpy as np
import pytest

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.privacy.composition import (
    MovedTogether,
    Spending,
    certified_delta,
    moved_by,
    moved_of_levels,
)
from dptrees.dpcore.privacy.conversion import zcdp_delta


def exact_delta(moves: tuple[int, ...], variance: float, epsilon: float) -> float:
    """Return the exact delta of counts with noise of one law that move by so much each, over all
    outputs that are not too rare."""
    reach = int(13 * variance**0.5) + max(moves)
    noise = np.arange(-reach, reach + 1)
    before = np.exp(-(noise**2) / (2 * variance))
    before /= before.sum()
    one: list[np.ndarray] = []
    for move in moves:
        after = np.exp(-((noise - move) ** 2) / (2 * variance))
        one.append(after / after.sum())
    first = reduce(np.multiply.outer, [before] * len(moves))
    second = reduce(np.multiply.outer, one)
    return float(np.maximum(0.0, first - np.exp(epsilon) * second).sum())


# Moves, variance, epsilon, and how far above the exact delta the certificate may be.
CASES = [
    ((50,), 40000, 1.0, 1.001),
    ((30, 40), 40000, 1.0, 1.001),
    ((5,), 400, 1.0, 1.08),
    ((3, 4), 400, 1.0, 1.08),
    ((5,), 100, 1.0, 1.11),
    ((7,), 60, 3.0, 1.5),
    ((2,), 12, 2.0, 8.0),
]


@pytest.mark.parametrize(("moves", "variance", "epsilon", "most"), CASES)
def test_it_bounds_the_exact_delta_and_closely_where_noise_is_large(
    moves: tuple[int, ...], variance: int, epsilon: float, most: float
) -> None:
    law = DiscreteGaussian(sigma_squared=Fraction(variance))
    squared = sum(move**2 for move in moves)
    found = certified_delta([(MovedTogether(law=law), squared)], epsilon)
    exact = exact_delta(moves, variance, epsilon)
    assert exact <= found <= most * exact
    # A move that is a little smaller than the one that is there is not covered.
    planted = certified_delta([(MovedTogether(law=law), int(squared * 0.7))], epsilon)
    assert variance < 400 or planted < exact


def test_rows_of_a_unit_need_less_noise_than_conversion_says() -> None:
    law = DiscreteGaussian(sigma_squared=Fraction(10**6))
    found = certified_delta([(MovedTogether(law=law), 50_000)], 1.0)
    assert found < zcdp_delta(Fraction(50_000, 2 * 10**6), 1.0) / 3


def test_levels_of_several_units_compose() -> None:
    """Moves of 3 and of 4 in counts of one law are one of 5."""
    law = DiscreteGaussian(sigma_squared=Fraction(400))
    apart = [(MovedTogether(law=law), 9), (MovedTogether(law=law), 16)]
    assert certified_delta(apart, 1.0) == certified_delta([(MovedTogether(law=law), 25)], 1.0)
    mixed = [(MovedTogether(law=law), 16), (law, 9)]
    assert certified_delta(mixed, 1.0) == pytest.approx(certified_delta(apart, 1.0), rel=0.1)


def test_what_is_known_of_levels() -> None:
    large, small = (DiscreteGaussian(sigma_squared=Fraction(each)) for each in (12, 11))
    assert moved_by(small, 2, 2) == (small, 2)
    assert moved_by(large, 2, 4) == (MovedTogether(law=large), 4)
    assert moved_by(small, 2, 4) is None
    assert moved_by(DiscreteLaplace(scale=Fraction(9)), 2, 4) is None
    assert moved_of_levels([(large, (2, 4)), (small, (1, 1))]) == (
        (MovedTogether(law=large), 4),
        (small, 1),
    )
    assert moved_of_levels([(large, (2, 4)), (small, (2, 4))]) is None
    spent = Spending(rho=Fraction(1), moved=moved_of_levels([(large, (2, 4))]))
    assert (spent + spent).moved == ((MovedTogether(law=large), 4),) * 2
    with pytest.raises(ValueError, match="a variance of 11 is below 12"):
        MovedTogether(law=small)
