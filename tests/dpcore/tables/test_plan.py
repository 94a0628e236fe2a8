"""Plans of wide tables."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.tables.plan import MarginalsPlan, PairDesign, TableShape, mean_size
from tests.dpcore.refusals import check_refusals
from tests.dpcore.tables.tiny_tables import make_plan


@pytest.mark.parametrize("measure", Measure)
def test_a_plan_is_written_and_read(measure: Measure) -> None:
    plan = make_plan(Fraction(1, 3), measure)
    assert plan.spent == plan.budget.amount
    read = MarginalsPlan.from_spec(plan.spec(), unit=ADD_REMOVE_ROW, measure=measure)
    assert read == plan


def test_what_is_spent() -> None:
    assert make_plan(2).spending == Spending(epsilon=Fraction(2))
    assert make_plan(2, Measure.RHO).spending == Spending(rho=Fraction(2), moved=None)


def test_noise_and_rates_follow_the_unit() -> None:
    person = PrivacyUnit(neighbors=Neighbors.SUBSTITUTE, columns=("person",), rows=3)
    one, several = make_plan(1), make_plan(1, unit=person)
    assert several.column_law == DiscreteLaplace(scale=6 / one.column_amount)
    design = one.designs[0]
    rates = [float(plan.choice_rate(design)) for plan in (one, several)]
    assert rates[0] == pytest.approx(6 * rates[1], rel=1e-5)
    assert rates[0] == pytest.approx(float(one.choice_amount / 3 / 2), rel=1e-5)
    rho = make_plan(1, Measure.RHO, unit=person)
    assert rho.column_law == DiscreteGaussian(sigma_squared=18 / (2 * rho.column_amount))
    wanted = (2 * float(rho.choice_amount) / 3) ** 0.5 / 6
    assert float(rho.choice_rate(design)) == pytest.approx(wanted, rel=1e-5)


def test_more_rows_have_a_second_round() -> None:
    plan = make_plan(1)
    noise = mean_size(plan.law(plan.pair_amount / plan.tree_pairs))
    least = [each.least_rows for each in plan.designs]
    assert least[0] == 0
    for design in plan.designs:
        assert plan.design(design.least_rows * noise + 1) == design
        if design.least_rows:
            assert plan.design(design.least_rows * noise - 1) != design
    assert make_plan(1, shape=TableShape(sizes=(3, 4))).most_pairs == 1


def test_other_plans_are_refused() -> None:
    plan = make_plan(1)
    rows: list[tuple[dict[str, Any], str]] = [
        ({"pair_amount": plan.pair_amount + Fraction(1, 10**9)}, "sum to"),
        ({"column_amount": Fraction(0)}, "column_amount"),
        ({"choice_amount": Fraction(0)}, "choice_amount"),
        ({"pair_amount": Fraction(0)}, "pair_amount"),
        ({"designs": plan.designs[1:]}, "designs"),
    ]
    check_refusals(partial(replace, plan), rows, Refusal)
    with pytest.raises(Refusal, match="too little"):
        make_plan(Fraction(1, 10**15))
    designs: list[tuple[dict[str, Any], str]] = [
        ({"least_rows": 1, "further_pairs": 2}, "further_part"),
        ({"least_rows": 1, "clique_columns": 5}, "clique_columns"),
        ({"least_rows": -1}, "least_rows"),
        ({"least_rows": 1, "further_pairs": -1}, "further_pairs"),
    ]
    check_refusals(PairDesign, designs, Refusal)
