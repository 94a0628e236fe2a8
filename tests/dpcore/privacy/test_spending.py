"""What trees spend adds up, and never says less than its parts do."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.privacy.composition import Spending, certified_delta
from dptrees.dpcore.privacy.conversion import zcdp_rho

AMOUNTS = st.fractions(0, 4, max_denominator=20)
LAWS = st.sampled_from(
    [(DiscreteLaplace(scale=Fraction(3)), 2), (DiscreteGaussian(sigma_squared=Fraction(9)), 1)]
)
MOVED = st.one_of(st.none(), st.lists(LAWS, max_size=3).map(tuple))
SPENT = st.builds(Spending, epsilon=AMOUNTS, delta=AMOUNTS, rho=AMOUNTS, moved=MOVED)
ONE = Fraction(1)


@given(one=SPENT, two=SPENT, three=SPENT)
def test_it_adds_up_in_any_order(one: Spending, two: Spending, three: Spending) -> None:
    left, right = (one + two) + three, one + (two + three)
    assert left == right
    assert left.own == (three + two + one).own and left.rho == (three + one + two).rho
    unknown = any(each.moved is None for each in (one, two, three))
    assert (left.moved is None) == unknown
    assert one + Spending() == one


def test_what_is_of_its_own_adds_up_exactly() -> None:
    tiny = Fraction(1, 10**30)
    spent = sum([Spending(epsilon=ONE / 3, delta=ONE / 10**7)] * 3, start=Spending())
    assert spent.keeps(ONE, 3 * ONE / 10**7)
    assert not spent.keeps(ONE - tiny, ONE) and not spent.keeps(ONE, 3 * ONE / 10**7 - tiny)


def test_a_rho_keeps_what_is_left() -> None:
    delta, law = ONE / 10**6, DiscreteGaussian(sigma_squared=Fraction(200))
    rho = ONE / 400
    shared = Spending(rho=rho, moved=((law, 1),))
    epsilon = Fraction(1, 2)
    assert shared.keeps(epsilon, delta) == (
        rho <= zcdp_rho(epsilon, delta) or certified_delta(shared.moved or (), epsilon) <= delta
    )
    beside = shared + Spending(epsilon=epsilon)
    assert beside.keeps(2 * epsilon, delta) == shared.keeps(epsilon, delta)
    assert not beside.keeps(epsilon, delta)  # nothing is left
    assert not (shared + Spending(delta=delta)).keeps(ONE, delta)


def test_unknown_counts_are_kept_by_conversion_alone() -> None:
    for factor, kept in ((Fraction(99, 100), True), (Fraction(101, 100), False)):
        delta = ONE / 10**6
        spent = Spending(rho=zcdp_rho(ONE, delta) * factor, moved=None)
        assert spent.keeps(ONE, delta) is kept
        # Of a whole that is larger than what is spent of it, the whole counts.
        assert not spent.keeps(ONE, delta, rho=2 * zcdp_rho(ONE, delta)), (factor, kept)
        # A whole that is less than what is spent of it is none.
        assert spent.keeps(ONE, delta, rho=spent.rho / 2) is kept


def test_nothing_is_given_back() -> None:
    for name in ("epsilon", "delta", "rho"):
        with pytest.raises(ValueError, match=f"{name}: -1/3 is below 0"):
            Spending(**{name: Fraction(-1, 3)})  # type: ignore[arg-type]


def test_a_rho_whose_noise_is_not_stated_is_converted() -> None:
    """A certificate of the noise that others state would forget it."""
    delta, law = ONE / 10**6, DiscreteGaussian(sigma_squared=Fraction(2000))
    silent, stated = Spending(rho=ONE / 40), Spending(rho=ONE / 4000, moved=((law, 1),))
    assert silent.moved is None and Spending(epsilon=ONE).moved == ()
    together = silent + stated
    assert together.moved is None
    for epsilon in (ONE / 2, ONE, 2 * ONE):
        assert together.keeps(epsilon, delta) == (together.rho <= zcdp_rho(epsilon, delta))
    assert Spending(rho=ONE / 40, moved=()).keeps(ONE / 100, delta), (
        "which is why it is not assumed"
    )
