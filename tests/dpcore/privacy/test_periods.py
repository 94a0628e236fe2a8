"""A unit in several periods of a series: sensitivities by brute force, and what is spent on it."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.privacy.composition import MovedTogether, Spending, certified_delta
from dptrees.dpcore.privacy.sensitivity import periods_sensitivity

PERIODS, LEAVES = 6, 2


def test_sensitivities_of_periods_by_brute_force() -> None:
    """A unit has one row of each period in one of two leaves, or none; in at most so many."""
    for span, most in product((1, 2, 3, 6), range(1, PERIODS + 1)):
        l1 = l2_squared = 0
        for rows in product(range(LEAVES + 1), repeat=PERIODS):  # 0: none
            if sum(each > 0 for each in rows) > most:
                continue
            nodes = np.zeros((PERIODS // span, LEAVES), int)
            for period, leaf in enumerate(rows):
                if leaf:
                    nodes[period // span, leaf - 1] += 1
            l1 = max(l1, int(nodes.sum()))
            l2_squared = max(l2_squared, int((nodes**2).sum()))
        assert (l1, l2_squared) == periods_sensitivity(most, span)


def test_what_is_spent_grows_with_the_periods() -> None:
    spent = Spending(epsilon=Fraction(1, 10), rho=Fraction(1, 50)).for_periods(5, 9)
    assert (spent.epsilon, spent.rho) == (Fraction(1, 2), Fraction(9, 50))
    own = Spending(epsilon=Fraction(1), delta=Fraction(1, 100))
    assert own.for_periods(2, 2).own == (Fraction(2), Fraction(1, 50))
    with pytest.raises(ValueError, match="delta: a tree that spends one"):
        own.for_periods(2, 4)


def test_counts_that_move_by_more_than_one_are_known_of_wide_noise_alone() -> None:
    wide, narrow = (DiscreteGaussian(sigma_squared=Fraction(each)) for each in (40, 2))
    assert Spending(moved=((narrow, 3),)).for_periods(5, 5).moved == ((narrow, 15),)
    assert Spending(moved=((wide, 3),)).for_periods(5, 9).moved == ((MovedTogether(law=wide), 27),)
    assert Spending(moved=((narrow, 3),)).for_periods(5, 9).moved is None
    assert Spending(moved=None).for_periods(5, 5).moved is None
    together = MovedTogether(law=wide)
    assert Spending(moved=((together, 4),)).for_periods(5, 9).moved == ((together, 36),)
    laplace = DiscreteLaplace(scale=Fraction(20))
    assert Spending(moved=((laplace, 1),)).for_periods(2, 4).moved is None


def test_the_certificate_of_several_periods_is_that_of_larger_noise() -> None:
    """Five periods in one node lose what one period loses under a fifth of the sigma."""
    small, large = (DiscreteGaussian(sigma_squared=Fraction(each)) for each in (400, 10_000))
    moved = Spending(moved=((large, 1),)).for_periods(5, 25).moved
    assert moved is not None
    one, five = certified_delta([(small, 1)], 0.5), certified_delta(moved, 0.5)
    assert five == pytest.approx(one, rel=1e-2) and five > 0
