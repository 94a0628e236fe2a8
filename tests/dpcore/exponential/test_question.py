from __future__ import annotations

import itertools
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.exponential.question import (
    ExponentialQuestion,
    ReleasedQuantiles,
)
from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.release.released import ReleaseReader, release_counts
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.specification import Refusal
from tests.dpcore.mechanisms import changed
from tests.dpcore.single_questions import KEY, alone

CELLS = 50

DOMAIN = {"column": "age", "type": "integer", "lower": 0, "upper": CELLS}
QUANTILES = (0.9, 0.1, 0.5)


def question(
    *,
    keyed: bool = False,
    amount: Fraction | int = 100,
    cells: dict[str, object] | None = None,
    share: Fraction = Fraction(0),
) -> ExponentialQuestion:
    keys = KeyList(column="sex", keys=("f", "m")) if keyed else None
    workload = OrderedWorkload(
        name="t",
        mechanism="exponential",
        domain=make_domain(cells or DOMAIN),
        quantiles=QUANTILES,
        keys=keys,
        interval_share=share,
    )
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(amount))
    return workload.planned(Setting(unit=ADD_REMOVE_ROW, budget=budget))


def make_release(planned: ExponentialQuestion, counts: np.ndarray) -> ReleaseReader:
    return release_counts(alone(planned), {"t": counts}, KEY)


def released(keyed: bool = False) -> ReleasedQuantiles:
    counts = np.full((2 if keyed else 1, CELLS), 100)
    tree = make_release(question(keyed=keyed), counts).tree("t")
    assert isinstance(tree, ReleasedQuantiles)
    return tree


def test_quantiles_are_reported_in_the_order_requested() -> None:
    rows = released().quantiles()
    assert [row["q"] for row in rows] == list(QUANTILES)
    assert [abs(row["value"] - CELLS * row["q"]) <= 1 for row in rows] == [True] * 3
    assert rows[0]["ci_low"] is None and rows[0]["value_text"] == f"{rows[0]['value']:.0f}"


def test_keys_have_quantiles_of_their_own() -> None:
    counts = np.zeros((2, CELLS), np.int64)
    counts[0, 10], counts[1, 40] = 1000, 1000
    tree = make_release(question(keyed=True), counts).tree("t")
    assert [tree.quantile("0.5", key)["value"] for key in ("f", "m")] == [10, 40]
    with pytest.raises(ValueError, match="needs a key"):
        tree.quantile(0.5)


def test_nothing_else_is_answered() -> None:
    tree = released()
    for asking in (
        lambda: tree.cdf(3),
        lambda: tree.range(3, 5),
        lambda: tree.top(1, 0),
        lambda: tree.sum([3]),
        lambda: tree.numbered_level(None),
        lambda: tree.quantile(0.3),
    ):
        with pytest.raises(ValueError, match=r"exponential mechanism|only these"):
            asking()
    assert tree.rows_in_all() is None


def test_a_specification_is_read_back() -> None:
    for keyed, share in itertools.product((False, True), (Fraction(0), Fraction(1, 3))):
        own = question(keyed=keyed, share=share)
        assert plan_from_spec(json.loads(json.dumps(alone(own).spec()))).questions == (own,)


def test_one_draw_whatever_is_retried() -> None:
    counts = np.arange(CELLS)
    first, again = (make_release(question(amount=1), counts) for _ in range(2))
    assert first.quantiles is not None and first.quantiles.equals(again.quantiles)


def test_the_confidence_shapes_what_is_drawn_where_there_are_intervals() -> None:
    """Two confidences of one draw would reveal more than the budget allows."""
    for share, alike in ((Fraction(0), True), (Fraction(1, 3), False)):
        own = question(share=share)
        other = changed(own, confidence=0.9, plan=replace(own.plan, confidence=0.9))
        assert (own.law_spec() == other.law_spec()) is alike
    with pytest.raises(ValueError, match="is not that of the plan"):
        replace(question(), confidence=0.9)


def test_intervals_are_reported() -> None:
    counts = np.full((1, CELLS), 1000)
    planned = question(share=Fraction(3, 10))
    tree = make_release(planned, counts).tree("t")
    row = tree.quantile(0.9)  # type: ignore[attr-defined]
    assert row["ci_low"] <= row["value"] <= row["ci_high"]
    assert row["ci_low_text"] == f"{row['ci_low']:.0f}"
    entry = planned.entry()["intervals"]
    assert entry["share"] == "3/10" and entry["rows"] == planned.interval_reach  # type: ignore[index]
    assert "intervals" not in question().entry()


def test_quantiles_are_those_of_the_plan() -> None:
    with pytest.raises(ValueError, match="not those of the plan"):
        replace(question(), quantiles=(0.5,))


def test_a_budget_too_small_is_refused() -> None:
    with pytest.raises(Refusal, match="too small"):
        question(amount=Fraction(1, 2**22))
