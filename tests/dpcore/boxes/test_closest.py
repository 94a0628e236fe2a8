"""The mechanism where none is named: adaptive, or PrivHP where exact counts may not fit memory."""

from __future__ import annotations

from typing import Any

import pytest

from dptrees.dpcore.boxes.adaptive import AdaptivePartitionPlan, plan_adaptive
from dptrees.dpcore.boxes.plan import Estimation, Holding, PartitionPlan
from dptrees.dpcore.boxes.planner import PartitionChoices, plan_partition
from dptrees.dpcore.boxes.question import plan_closest
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.sketches.sketch import SketchKind
from dptrees.dpcore.specification import Refusal
from tests.dpcore.boxes.boxes import make_setting


def make_choices(**given: Any) -> PartitionChoices:
    return PartitionChoices.from_mechanism("planned", **given)


@pytest.mark.parametrize("measure", Measure)
def test_the_closest_is_adaptive(measure: Measure) -> None:
    setting = make_setting(measure=measure)
    given: dict[str, Any]
    for given in ({}, {"rows": 1000}, {"decided_apart": True}, {"depth": 12, "split_errors": 2.0}):
        adaptive = PartitionChoices.from_mechanism("adaptive", **{"decided_apart": False} | given)
        assert plan_closest(setting, make_choices(**given)) == plan_adaptive(setting, adaptive)


def test_what_only_privhp_has_is_privhps() -> None:
    setting = make_setting(bits=40)
    for name, value in (
        ("holding", Holding.SKETCH),
        ("width", 64),
        ("hash_rows", 2),
        ("sketch", SketchKind.COUNT_MIN),
        ("parts", 10),
        ("shares", "lemma_5"),
        ("estimation", Estimation.EVEN_SHARES),
        ("memory", 2**18),
        ("rows", 10**9),
    ):
        privhp = PartitionChoices.from_mechanism("privhp", **{name: value})
        found = plan_closest(setting, make_choices(**{name: value}))
        assert found == plan_partition(setting, privhp), name


def test_a_stated_number_of_rows_shows_that_exact_counts_fit() -> None:
    setting, limit = make_setting(bits=40), {"memory": 2**22}
    assert isinstance(plan_closest(setting, make_choices(**limit)), PartitionPlan)
    few = make_choices(**limit, rows_at_most=10**4)
    assert isinstance(plan_closest(setting, few), AdaptivePartitionPlan)


def test_estimates_apart_need_an_adaptive_partition() -> None:
    with pytest.raises(Refusal, match=r"^decided_apart: .*here PrivHP is taken"):
        plan_closest(make_setting(), make_choices(holding=Holding.SKETCH, decided_apart=True))
