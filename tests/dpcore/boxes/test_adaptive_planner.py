"""Plans of adaptive partitions: levels, budgets and thresholds as stated, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.boxes.adaptive import DECISION_PART, AdaptivePartitionPlan, plan_adaptive
from dptrees.dpcore.boxes.plan import Estimation, Holding
from dptrees.dpcore.boxes.planner import PartitionChoices, PartitionSetting
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Measure
from dptrees.dpcore.sketches.sketch import SketchKind
from dptrees.dpcore.specification import Refusal
from tests.dpcore.boxes.boxes import make_setting
from tests.dpcore.boxes.test_planner import draw_setting
from tests.dpcore.refusals import check_refusals


def make_choices(**given: Any) -> PartitionChoices:
    return PartitionChoices.from_mechanism("adaptive", **given)


@given(draw_setting(), st.integers(1, 10**9), st.booleans(), st.booleans())
@settings(deadline=None)
def test_the_budget_is_spent_and_levels_are_within_the_domain(
    setting: PartitionSetting, rows: int, root: bool, apart: bool
) -> None:
    plan = plan_adaptive(setting, make_choices(rows=rows, root=root, decided_apart=apart))
    assert sum(plan.amounts) == setting.budget.amount
    assert plan.measure is setting.budget.measure and plan.unit == setting.unit
    assert plan.depths[-1] <= setting.bits
    assert (plan.amounts[0] > 0) == (root and not setting.public_total)
    measured = (0, *measured_depths(plan)[root and not setting.public_total :])
    steps = [below - above for above, below in pairwise(measured)]
    assert max(steps) <= 8 and len(set(steps[:-1])) <= 1
    assert plan.decision_part == (DECISION_PART if apart else 0)


def measured_depths(plan: AdaptivePartitionPlan) -> tuple[int, ...]:
    """The depths of the levels that have a budget."""
    known = zip(plan.depths, plan.amounts, strict=True)
    return tuple(depth for depth, amount in known if amount)


@pytest.mark.parametrize("measure", Measure)
def test_a_substitution_takes_twice_the_budget_for_the_same_thresholds(measure: Measure) -> None:
    """It moves two counts of a level."""
    one = make_setting(bits=16, measure=measure)
    two = make_setting(bits=16, measure=measure, amount=Fraction(2), unit=SUBSTITUTE_ROW)
    first, second = (plan_adaptive(each, make_choices(rows=10**6)) for each in (one, two))
    assert first.thresholds == second.thresholds and first.depths == second.depths
    assert float(first.laws[-1].variance) == pytest.approx(second.laws[-1].variance, rel=1e-4)


def test_squares_of_two_columns_and_what_remains() -> None:
    plans = {
        bits: plan_adaptive(make_setting(bits=bits), make_choices(rows=10**9))
        for bits in (13, 14, 15, 16)
    }
    assert {bits: measured_depths(plan) for bits, plan in plans.items()} == {
        13: (4, 8, 13),
        14: (4, 8, 12, 14),
        15: (4, 8, 12, 15),
        16: (4, 8, 12, 16),
    }
    assert plans[13].depths == (0, 4, 6, 8, 10, 12, 13)
    assert plans[16].depths == (0, 4, 6, 8, 10, 12, 14, 16)


def test_other_numbers_of_columns_measure_all_levels() -> None:
    for dimensions, depths in ((1, (0, 3, 6, 9, 12, 16)), (3, (0, 3, 6, 9, 12, 16))):
        setting = make_setting(bits=16, dimensions=dimensions)
        plan = plan_adaptive(setting, make_choices(depth=16))
        assert plan.depths == depths and measured_depths(plan) == depths[1:]


@pytest.mark.parametrize("measure", Measure)
def test_budgets_rise_and_thresholds_are_errors_of_children(measure: Measure) -> None:
    """Check that budgets rise by 2^1/2 a level and that thresholds follow the children's noise."""
    amount = Fraction(1, 50)
    setting = make_setting(bits=16, dimensions=3, measure=measure, amount=amount)
    plan = plan_adaptive(setting, make_choices(depth=16, decided_apart=False))
    for one, two in pairwise(plan.amounts[1:]):
        assert float(two / one) == pytest.approx(2**0.5, rel=1e-3)
    for level in range(1, plan.height):
        law = plan.laws[level + 1]
        assert law is not None
        assert plan.thresholds[level] == round(3 * math.sqrt(law.variance))
    equal = plan_adaptive(setting, make_choices(depth=16, shares="equal"))
    assert max(equal.amounts[1:]) - min(equal.amounts[1:]) < Fraction(1, 10**6)


@pytest.mark.parametrize("measure", Measure)
def test_thresholds_of_quarters(measure: Measure) -> None:
    setting = make_setting(bits=16, measure=measure, amount=Fraction(1, 50))
    plan = plan_adaptive(setting, make_choices(rows=10**9, decided_apart=False))
    shares = [amount for amount in plan.amounts if amount]
    for one, two in pairwise(shares):
        assert float(two / one) == pytest.approx(2**0.5, rel=1e-3)
    for level in range(1, plan.height):
        own, below, ends = plan.laws[level], plan.laws[level + 1], plan.last_laws[level + 1]
        if own is not None:
            assert below is None and ends is not None
            expected = 4 * math.sqrt(ends.variance)
        else:
            assert below is not None
            errors = 4 / (1 if level + 1 == plan.height else 2)
            expected = errors * math.sqrt(below.variance)
        assert plan.thresholds[level] == round(expected)


def test_levels_go_further_than_even_rows_could_be_distinguished() -> None:
    """A thousand rows, at epsilon 1, of a domain of 60 bits."""
    depths = {
        dimensions: plan_adaptive(
            make_setting(bits=60, dimensions=dimensions), make_choices(rows=1000)
        ).depths[-1]
        for dimensions in (1, 2, 3, 4, 5, 9)
    }
    assert depths == {1: 12, 2: 16, 3: 18, 4: 16, 5: 20, 9: 16}


def test_one_column_has_even_budgets_and_large_thresholds() -> None:
    setting = make_setting(bits=16, dimensions=1, amount=Fraction(1, 50))
    plan = plan_adaptive(setting, make_choices(depth=15, decided_apart=False))
    assert max(plan.amounts[1:]) - min(plan.amounts[1:]) < Fraction(1, 10**6)
    assert plan.laws[2] is not None
    assert plan.thresholds[1] == round(6 * math.sqrt(plan.laws[2].variance))


def test_counts_are_of_least_squares_unless_they_are_to_be_shrunk() -> None:
    plans = [
        plan_adaptive(make_setting(bits=16), make_choices(estimation=estimation))
        for estimation in (None, Estimation.LEAST_SQUARES, Estimation.SHRUNK)
    ]
    assert [plan.shrunk for plan in plans] == [False, False, True]


def test_decisions_of_their_own_need_more_rows() -> None:
    setting = make_setting(bits=16, amount=Fraction(1, 50))
    plan = plan_adaptive(setting, make_choices(split_errors=2.0))
    for level in range(1, plan.height, 2):
        ends, decides = plan.last_laws[level + 1], plan.decision_laws[level]
        assert ends is not None and decides is not None
        assert plan.thresholds[level] == round(math.sqrt(4 * ends.variance + decides.variance))
        below, errors = plan.laws[level + 2], 2 if level + 2 == plan.height else 1
        assert below is not None
        expected = math.sqrt(errors**2 * below.variance + decides.variance / 16)
        assert plan.thresholds[level + 1] == round(expected)
    plan = plan_adaptive(setting, make_choices(split_errors=0.0, decided_apart=False))
    assert plan.thresholds == (0, 0, 0, 0, 0, 0, 0)


def test_what_it_does_not_have_is_refused() -> None:
    counted = "an adaptive partition needs exact counts until a node is looked at"
    rows: list[tuple[dict[str, Any], str]] = [
        ({"holding": Holding.SKETCH}, f"holding: {counted}"),
        ({"width": 64}, f"width: {counted}"),
        ({"sketch": SketchKind.COUNT_MIN}, f"sketch: {counted}"),
        ({"parts": 10}, "splits by noise, not by a part of all rows"),
        ({"shares": "lemma_5"}, "of a partition whose levels are all measured"),
        ({"estimation": Estimation.EVEN_SHARES}, "estimated by least squares"),
        ({"depth": 25}, "depth: 25 is above 24, where parts are one cell"),
        ({"memory": 64, "depth": 8}, "memory: 64 bytes are below"),
    ]

    def plan(**given: Any) -> AdaptivePartitionPlan:
        return plan_adaptive(make_setting(), make_choices(**given))

    check_refusals(plan, rows, Refusal)


def test_decisions_apart_are_of_the_adaptive_partition() -> None:
    for mechanism in ("privhp", "privhp_paper", "pmm", "privtree"):
        with pytest.raises(Refusal, match=r"^decided_apart: "):
            PartitionChoices.from_mechanism(mechanism, decided_apart=False)
