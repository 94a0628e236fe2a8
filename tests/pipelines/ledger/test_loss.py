"""What a release costs, in the measure of its data set."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from dptrees.dpcore.privacy.unit import Measure, Neighbors
from dptrees.dpcore.release.guarantee import guarantee_in_words
from dptrees.pipelines.ledger.accounts import Account, Loss, LossRefused, release_loss
from dptrees.pipelines.ledger.database import LedgerError
from tests.pipelines.ledger.asked import plan_of

SPARSE = "{name: heavy, domain: {kind: sparse, column: code, bits: [8, 8]}}"
LAPLACE = "{name: all, domain: {column: x, lower: 0, upper: 100, cells: 16}, noise: laplace}"
GAUSSIAN = "{name: more, domain: {column: x, lower: 0, upper: 100, cells: 16}, noise: gaussian}"
DELTA = "epsilon: 1, delta: 0.000001"


def test_pure_releases() -> None:
    plan = plan_of("epsilon: 0.3")
    assert release_loss(plan, Measure.EPSILON) == Loss(epsilon=Fraction(3, 10))
    assert release_loss(plan, Measure.RHO) == Loss(rho=Fraction(9, 200))  # epsilon^2 / 2


def test_pure_trees_add_up_as_zcdp() -> None:
    """Each of two trees has half the epsilon, so a quarter of the rho."""
    plan = plan_of("epsilon: 1", tree=f"{LAPLACE}, {LAPLACE.replace('all', 'more')}")
    assert release_loss(plan, Measure.EPSILON) == Loss(epsilon=Fraction(1))
    assert release_loss(plan, Measure.RHO) == Loss(rho=2 * Fraction(1, 2) ** 2 / 2)


def test_a_rho_counts_as_itself_and_not_as_an_epsilon() -> None:
    plan = plan_of("rho: 0.1")
    assert release_loss(plan, Measure.RHO) == Loss(rho=Fraction(1, 10))
    with pytest.raises(LossRefused, match="rho: its data set counts epsilon and delta"):
        release_loss(plan, Measure.EPSILON)


def test_a_delta_beside_an_epsilon() -> None:
    plan = plan_of(DELTA, tree=GAUSSIAN)
    assert release_loss(plan, Measure.EPSILON) == Loss(
        epsilon=Fraction(1), delta=Fraction(1, 10**6)
    )
    assert release_loss(plan, Measure.RHO) == Loss(rho=plan.budget.amount)


def test_pure_trees_beside_a_rho() -> None:
    """The half epsilon of a pure tree is (1/2)^2 / 2 more rho."""
    plan = plan_of(DELTA, tree=f"{LAPLACE}, {GAUSSIAN}")
    assert plan.spending.epsilon == Fraction(1, 2)
    assert release_loss(plan, Measure.RHO) == Loss(rho=plan.budget.amount + Fraction(1, 8))


def test_a_delta_of_its_own_is_no_rho() -> None:
    plan = plan_of(DELTA, tree=SPARSE)
    assert release_loss(plan, Measure.EPSILON).delta == Fraction(1, 10**6)
    with pytest.raises(LossRefused, match="a tree of this release spends a delta of its own"):
        release_loss(plan, Measure.RHO)


def test_a_sum_is_within_a_total_in_every_amount() -> None:
    total = Loss(epsilon=Fraction(1), delta=Fraction(1, 10))
    assert total.within(total)
    assert not Loss(epsilon=Fraction(1), delta=Fraction(2, 10)).within(total)
    assert not Loss(epsilon=Fraction(10**20 + 1, 10**20)).within(total)
    assert not Loss(rho=Fraction(1, 10**30)).within(total)


@pytest.mark.parametrize("unit", ["", ", unit: person, max_rows: 3"])
def test_a_unit_may_be_in_every_period_of_a_series(unit: str) -> None:
    """Which protects its rows of one period; a row is in one."""
    privacies = ("epsilon: 0.5", "rho: 0.1", DELTA)
    pure, concentrated, approximate = (
        plan_of(
            privacy + unit,
            tree=GAUSSIAN if privacy != privacies[0] else LAPLACE,
            series="{periods: 4, period: 2}",
        )
        for privacy in privacies
    )
    times = 4 if unit else 1
    assert release_loss(pure, Measure.EPSILON) == Loss(epsilon=times * Fraction(1, 2))
    assert release_loss(pure, Measure.RHO) == Loss(rho=times**2 * Fraction(1, 8))
    assert release_loss(concentrated, Measure.RHO) == Loss(rho=times**2 * Fraction(1, 10))
    assert release_loss(pure, Measure.EPSILON, per_period=True) == Loss(epsilon=Fraction(1, 2))
    if unit:
        account = Account(
            dataset="days",
            measure=Measure.EPSILON,
            total=Loss(epsilon=Fraction(2)),
            unit=("person", "period"),
            neighbors=Neighbors.ADD_REMOVE,
        )
        assert account.cost(pure) == Loss(epsilon=Fraction(1, 2))
        assert replace(account, unit=("person",)).cost(pure) == Loss(epsilon=Fraction(2))
        with pytest.raises(LedgerError, match="guarantees of two kinds do not add up"):
            replace(account, unit=("home", "period")).cost(pure)
    words = guarantee_in_words(pure)
    assert ("in one period are protected together" in words) == bool(unit)
    assert ("in one period, a unit more than the other" in words) == bool(unit)
    if unit:
        with pytest.raises(LossRefused, match="delta: a series protects a unit's rows of one"):
            release_loss(approximate, Measure.EPSILON)
    else:
        assert release_loss(approximate, Measure.EPSILON).epsilon == 1
