"""Plans of wide tables."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.tables.plan import MarginalsPlan, PairDesign, TableShape, mean_size
from dptrees.dpcore.tables.question import _rounds, named_pairs
from tests.dpcore.refusals import check_refusals
from tests.dpcore.tables.tiny_tables import make_plan


@pytest.mark.parametrize("measure", Measure)
def test_a_plan_is_written_and_read(measure: Measure) -> None:
    plan = make_plan(Fraction(1, 3), measure)
    assert plan.spent == plan.budget.amount and "named" not in plan.spec()
    for each in (plan, replace(plan, named=((0, 2), (1, 2)))):
        read = MarginalsPlan.from_spec(each.spec(), unit=ADD_REMOVE_ROW, measure=measure)
        assert read == each


def test_what_is_spent() -> None:
    assert make_plan(2).spending == Spending(epsilon=Fraction(2))
    assert make_plan(2, Measure.RHO).spending == Spending(rho=Fraction(2), moved=None)


def test_noise_and_rates_follow_the_unit() -> None:
    person = PrivacyUnit(neighbors=Neighbors.SUBSTITUTE, columns=("person",), rows=3)
    one, several = make_plan(1), make_plan(1, unit=person)
    design = one.designs[-1]
    amounts = one.column_amounts(design)
    assert several.column_amounts(design) == amounts
    assert several.law(amounts[0]) == DiscreteLaplace(scale=6 / amounts[0])
    rates = [float(plan.choice_rate(design)) for plan in (one, several)]
    assert rates[0] == pytest.approx(6 * rates[1], rel=1e-4)
    choices = one.choices(design)
    assert rates[0] == pytest.approx(float(one.choice_amount / choices / 2), rel=1e-4)
    rho = make_plan(1, Measure.RHO, unit=person)
    assert rho.law(Fraction(3)) == DiscreteGaussian(sigma_squared=Fraction(18, 6))
    wanted = (2 * float(rho.choice_amount) / choices) ** 0.5 / 6
    assert float(rho.choice_rate(design)) == pytest.approx(wanted, rel=1e-4)


def test_more_rows_have_a_second_round() -> None:
    plan = make_plan(1)
    noise = mean_size(plan.law(plan.pair_amount / plan.tree_pairs))
    least = [each.least_rows for each in plan.designs]
    assert least[0] == 0
    for design in plan.designs:
        for more in (1, -1):
            rows = round(design.least_rows * noise) + more
            first = [np.array([rows - 5, 2, 3])]
            assert (plan.design(first) == design) == (more > 0 or not design.least_rows)
    assert make_plan(1, shape=TableShape(sizes=(3, 4))).most_pairs == 1


@pytest.mark.parametrize("measure", Measure)
def test_the_narrowest_column_gets_the_same_in_every_design(measure: Measure) -> None:
    """It decides on the design; the others grow alike. All noise is the least in sum."""
    plan = make_plan(1, measure, shape=TableShape(sizes=(64, 2, 9)))
    assert plan.first_columns == (1,)
    most = plan.column_amounts(plan.designs[0])
    for design in plan.designs:
        amounts = plan.column_amounts(design)
        assert amounts[1] == most[1]
        assert amounts[0] / amounts[2] == most[0] / most[2]
    power = 0.5 if measure is Measure.EPSILON else 2 / 3
    assert float(most[0] / most[2]) == pytest.approx((64 / 9) ** power, rel=1e-4)
    many = replace(plan.designs[-1], least_rows=0)
    equal = replace(plan, column_parts=(), designs=(many,))
    assert equal.first_columns == range(3)
    assert set(equal.column_amounts(equal.designs[0])) == {equal.column_amount}


FIVE = TableShape(sizes=(2,) * 5)


def test_every_round_together_spends_what_pairs_have() -> None:
    """Over all sets of up to four named pairs of five columns, and all designs."""
    for number in range(5):
        for pairs in combinations(FIVE.pairs, number):
            plan = replace(make_plan(1, shape=FIVE), named=pairs)
            joined = {frozenset({each}) for each in range(5)}
            for pair in pairs:
                touched = {each for each in joined if each & set(pair)}
                joined = joined - touched | {frozenset().union(*touched)}
            assert plan.tree_pairs == len(joined) - 1
            for design in plan.designs:
                rounds = _rounds(plan, design)
                chosen = [each.pairs for each in rounds if not each.named]
                assert sum(chosen) == plan.choices(design)
                spent = sum((each.amount for each in rounds), sum(plan.column_amounts(design)))
                spent += 0 if not chosen else plan.choices_amount(design)
                assert spent == plan.spent_by(design) == plan.spent == plan.budget.amount
                firsts = [each.first for each in rounds]
                ends = [each.first + each.pairs for each in rounds]
                assert firsts == [0, *ends[:-1]]


def test_pairs_are_named_if_and_only_if_a_model_can_have_them() -> None:
    """Brute force over all graphs of five columns, by removing simplicial columns."""
    for chosen in product((False, True), repeat=10):
        pairs = [pair for pair, known in zip(FIVE.pairs, chosen, strict=True) if known]
        left = set(range(5))
        beside = {each: {sum(pair) - each for pair in pairs if each in pair} for each in left}
        largest = 1
        while left:
            simplicial = [
                each
                for each in left
                if all(pair in pairs for pair in combinations(sorted(beside[each] & left), 2))
            ]
            if not simplicial:
                break
            largest = max(largest, 1 + len(beside[simplicial[0]] & left))
            left.remove(simplicial[0])
        try:
            assert sorted(named_pairs(FIVE, pairs)) == pairs
            allowed = True
        except Refusal:
            allowed = False
        assert allowed == (not left and largest <= 4)
    with pytest.raises(Refusal, match=r"7 are named; at most 3 \(columns"):
        named_pairs(TableShape(sizes=(2, 2, 2)), [(0, 1)] * 7)


def test_other_plans_are_refused() -> None:
    plan = make_plan(1)
    rows: list[tuple[dict[str, Any], str]] = [
        ({"pair_amount": plan.pair_amount + Fraction(1, 10**9)}, "sum to"),
        ({"column_amount": Fraction(0)}, "column_amount"),
        ({"choice_amount": Fraction(0)}, "choice_amount"),
        ({"pair_amount": Fraction(0)}, "pair_amount"),
        ({"designs": plan.designs[1:]}, "designs"),
        ({"named": ((1, 0),)}, "named"),
        ({"named": ((0, 1), (0, 1))}, "named"),
        ({"column_parts": plan.column_parts[1:]}, "column_parts"),
        ({"column_parts": (Fraction(1, 2),) * 4}, "column_parts"),
        ({"column_parts": (Fraction(0), *(Fraction(1, 3),) * 3)}, "column_parts"),
        ({"column_parts": ()}, "column_parts"),
    ]
    check_refusals(partial(replace, plan), rows, Refusal)
    with pytest.raises(Refusal, match="too little"):
        make_plan(Fraction(1, 10**15))
    designs: list[tuple[dict[str, Any], str]] = [
        ({"least_rows": 1, "further_pairs": 2}, "further_part"),
        ({"least_rows": 1, "clique_columns": 5}, "clique_columns"),
        ({"least_rows": -1}, "least_rows"),
        ({"least_rows": 1, "further_pairs": -1}, "further_pairs"),
        ({"least_rows": 1, "column_part": Fraction(-1, 9)}, "column_part"),
        ({"least_rows": 1, "choice_part": Fraction(-1, 9)}, "choice_part"),
        ({"least_rows": 1, "column_part": Fraction(1, 2), "choice_part": Fraction(1, 2)}, "pairs"),
        ({"least_rows": 1, "first_part": Fraction(0)}, "first_part"),
    ]
    check_refusals(PairDesign, designs, Refusal)
