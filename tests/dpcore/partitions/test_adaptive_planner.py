"""Plans of adaptive partitions: levels, budgets and thresholds as stated, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.partitions.adaptive_planner import DECISION_PART, plan_adaptive
from dpcore.partitions.choices import ADAPTIVE_SPLIT_ERRORS, PartitionChoices, PartitionSetting
from dpcore.partitions.plan import Estimation, Holding
from dpcore.privacy.budget import Measure
from dpcore.refusal import Refusal
from dpcore.sketches.shape import SketchKind
from tests.dpcore.partitions.test_planner import setting_of, settings_of


def choices_of(**given: Any) -> PartitionChoices:
    return PartitionChoices.of("adaptive", **given)


@given(settings_of(), st.integers(1, 10**9), st.booleans(), st.booleans())
@settings(deadline=None)
def test_the_budget_is_spent_and_levels_are_within_the_domain(
    setting: PartitionSetting, rows: int, root: bool, apart: bool
) -> None:
    plan = plan_adaptive(setting, choices_of(rows=rows, root=root, decided_apart=apart))
    assert sum(plan.amounts) == setting.budget.amount
    assert plan.measure is setting.budget.measure and plan.unit == setting.unit
    assert plan.depths[-1] <= setting.bits
    assert (plan.amounts[0] > 0) == (root and not setting.public_total)
    steps = [below - above for above, below in pairwise(plan.depths)]
    assert max(steps) <= 8 and len(set(steps[:-1])) <= 1
    assert plan.decision_part == (DECISION_PART if apart else 0)


def test_squares_of_two_columns_and_what_remains() -> None:
    depths = {
        bits: plan_adaptive(setting_of(bits=bits), choices_of(rows=10**9)).depths
        for bits in (13, 14, 15, 16)
    }
    assert depths == {
        13: (0, 4, 8, 13),
        14: (0, 4, 8, 12, 14),
        15: (0, 4, 8, 12, 15),
        16: (0, 4, 8, 12, 16),
    }


@pytest.mark.parametrize("measure", Measure)
def test_budgets_rise_and_thresholds_are_errors_of_children(measure: Measure) -> None:
    setting = setting_of(bits=16, measure=measure, amount=Fraction(1, 50))
    plan = plan_adaptive(setting, choices_of(rows=10**9, decided_apart=False))
    for one, two in pairwise(plan.amounts[1:]):
        assert float(two / one) == pytest.approx(2**0.5, rel=1e-3)
    for level in range(1, plan.height):
        law = plan.laws[level + 1]
        assert law is not None
        expected = ADAPTIVE_SPLIT_ERRORS * math.sqrt(law.variance)
        assert plan.thresholds[level] == round(expected)
    equal = plan_adaptive(setting, choices_of(shares="equal"))
    assert max(equal.amounts[1:]) - min(equal.amounts[1:]) < Fraction(1, 10**6)


def test_decisions_of_their_own_ask_for_more_rows() -> None:
    setting = setting_of(bits=16, amount=Fraction(1, 50))
    plan = plan_adaptive(setting, choices_of(split_errors=2.0))
    for level in range(1, plan.height):
        below, decides = plan.laws[level + 1], plan.decision_laws[level]
        assert below is not None and decides is not None
        assert plan.thresholds[level] == round(math.sqrt(4 * below.variance + decides.variance))
    plan = plan_adaptive(setting, choices_of(split_errors=0.0, decided_apart=False))
    assert plan.thresholds == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("given", "field", "told"),
    [
        ({"holding": Holding.SKETCH}, "holding", "needs exact counts until a node is looked at"),
        ({"width": 64}, "width", "needs exact counts until a node is looked at"),
        ({"sketch": SketchKind.COUNT_MIN}, "sketch", "needs exact counts"),
        ({"parts": 10}, "parts", "splits by noise, not by a part of all rows"),
        ({"shares": "lemma_5"}, "shares", "of a partition whose levels are all measured"),
        ({"estimation": Estimation.EVEN_SHARES}, "estimation", "estimated by least squares"),
        ({"depth": 25}, "depth", "25 is above 24, where parts are one cell"),
        ({"memory": 64, "depth": 8}, "memory", "64 bytes are below"),
    ],
)
def test_what_it_does_not_have_is_refused(given: dict[str, Any], field: str, told: str) -> None:
    with pytest.raises(Refusal) as caught:
        plan_adaptive(setting_of(), choices_of(**given))
    assert caught.value.field == field and told in caught.value.rule


@pytest.mark.parametrize("mechanism", ["privhp", "privhp_paper", "pmm", "privtree"])
def test_decisions_apart_are_of_the_adaptive_partition(mechanism: str) -> None:
    with pytest.raises(Refusal) as caught:
        PartitionChoices.of(mechanism, decided_apart=False)
    assert caught.value.field == "decided_apart"
