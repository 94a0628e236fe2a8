"""Choosing plans: what is requested is there, budgets add up, and all fits memory or is refused
with a sentence whose number is enough; Lemma 5 against a search for the least bound."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.boxes.plan import Estimation, Holding, PartitionPlan
from dptrees.dpcore.boxes.planner import (
    DEFAULT_MEMORY,
    MOST_NODES,
    PartitionChoices,
    PartitionSetting,
    falling_shares,
    lemma_5_shares,
    plan_partition,
    useful_depth,
)
from dptrees.dpcore.privacy.unit import ROW_UNITS, SUBSTITUTE_ROW, Measure, PrivacyUnit
from dptrees.dpcore.sketches.sketch import SketchKind
from dptrees.dpcore.specification import Refusal
from tests.dpcore.boxes.boxes import MECHANISMS, make_setting
from tests.dpcore.refusals import check_refusals


@st.composite
def draw_setting(draw: st.DrawFn) -> PartitionSetting:
    unit = draw(st.sampled_from(ROW_UNITS))
    dimensions = draw(st.integers(1, 6))
    return make_setting(
        bits=draw(st.integers(dimensions, 64)),
        dimensions=dimensions,
        measure=draw(st.sampled_from(Measure)),
        amount=draw(st.fractions(Fraction(1, 100), Fraction(10), max_denominator=100)),
        unit=unit,
        public_total=unit == SUBSTITUTE_ROW and draw(st.booleans()),
    )


@st.composite
def draw_choices(draw: st.DrawFn) -> PartitionChoices:
    mechanism = draw(st.sampled_from(MECHANISMS))
    optional: dict[str, st.SearchStrategy[Any]] = {
        "rows": st.integers(1, 2**36),
        "rows_at_most": st.integers(1, 2**40),
        "depth": st.integers(1, 30),
        "bits_apart": st.integers(1, 8),
        "memory": st.integers(2**10, 2**34),
        "hash_rows": st.integers(1, 5),
        "sketch": st.sampled_from(SketchKind),
        "split_errors": st.floats(0, 9),
        "shares": st.sampled_from(["equal", "lemma_5"]),
        "holding": st.sampled_from(Holding),
    }
    if mechanism != "pmm":
        optional["most"] = st.integers(1, 2**12)
    given = {name: draw(own) for name, own in optional.items() if draw(st.booleans())}
    return PartitionChoices.from_mechanism(mechanism, **given)


def grown_nodes(plan: PartitionPlan) -> int:
    """How many nodes are looked at, at most."""
    return sum(
        min(2**below, plan.rule.most << (below - above)) for above, below in pairwise(plan.depths)
    )


@given(draw_setting(), draw_choices())
@settings(deadline=None, max_examples=300)
def test_every_plan_keeps_what_is_requested(
    setting: PartitionSetting, choices: PartitionChoices
) -> None:
    try:
        plan = plan_partition(setting, choices)
    except Refusal:
        return
    assert sum(plan.amounts, Fraction()) == setting.budget.amount
    spent = plan.spending.epsilon or plan.spending.rho
    assert spent == setting.budget.amount
    assert PartitionPlan.from_spec(plan.spec()) == plan
    assert plan.depths[-1] <= setting.bits and plan.depths[-1] == (choices.depth or plan.depths[-1])
    assert plan.public_total == setting.public_total
    assert plan.unit == setting.unit and plan.measure is setting.budget.measure
    root = choices.root or choices.estimation is Estimation.EVEN_SHARES
    assert (plan.amounts[0] > 0) == (root and not setting.public_total)
    assert choices.estimation in (None, plan.estimation)
    assert plan.rule.most <= (choices.most or math.inf)
    if choices.holding is not None:
        assert plan.holding is choices.holding
    memory = choices.memory or DEFAULT_MEMORY
    if plan.state_bytes is not None:
        assert plan.state_bytes <= memory
    # A node's family is grown whole, however many nodes it has.
    assert plan.rule.most == 1 or grown_nodes(plan) <= MOST_NODES


def enough_memory(setting: PartitionSetting, choices: PartitionChoices) -> int | None:
    """The bytes that a refusal names; None where there is a plan."""
    try:
        plan_partition(setting, choices)
    except Refusal as refusal:
        assert refusal.field == "memory", refusal
        found = re.search(r"below the (\d+)", refusal.rule)
        assert found is not None
        return int(found.group(1))
    return None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_least_memory_that_is_named_works(mechanism: str) -> None:
    """Each limit that is named is kept by the next plan, or names what another part needs."""
    for hash_rows, memory, depth in product([1, 5], [1, 999, 10_000, 10**6], [6, 12, 18]):
        choices = PartitionChoices.from_mechanism(
            mechanism, memory=memory, depth=depth, hash_rows=hash_rows
        )
        named = []
        while (need := enough_memory(make_setting(), choices)) is not None:
            assert need > choices.memory
            named.append(need)
            choices = replace(choices, memory=need)
        # Growing and holding each have a limit of their own: after both are met there is a plan.
        assert len(named) <= 2, (hash_rows, memory, depth)


@pytest.mark.parametrize("holding", [Holding.SKETCH, Holding.DENSE])
def test_a_byte_less_than_is_named_is_too_little(holding: Holding) -> None:
    choices = PartitionChoices(memory=64, depth=12, holding=holding)
    need = enough_memory(make_setting(), choices)
    assert need is not None and enough_memory(make_setting(), replace(choices, memory=need)) is None
    assert enough_memory(make_setting(), replace(choices, memory=need - 1)) == need


def test_the_papers_mechanisms_are_the_papers() -> None:
    plan = plan_partition(
        make_setting(), PartitionChoices.from_mechanism("privhp_paper", depth=10, most=8)
    )
    assert plan.depths == tuple(range(11)) and plan.rule.most == 8
    assert plan.rule.errors is None and plan.rule.parts is None
    assert plan.estimation is Estimation.EVEN_SHARES and plan.amounts[0] > 0
    pmm = plan_partition(make_setting(), PartitionChoices.from_mechanism("pmm", depth=10))
    assert pmm.rule.most == 2**10 and pmm.depths == tuple(range(11))
    held = PartitionChoices.from_mechanism("privhp_paper", depth=10, most=8, holding=Holding.SKETCH)
    sketched = plan_partition(make_setting(), held)
    assert sketched.sketches is not None and sketched.sketches.counters == 3  # L_k = log2 k
    for name in ("most", "parts"):
        with pytest.raises(Refusal, match="PMM splits every node"):
            PartitionChoices.from_mechanism("pmm", **{name: 4})


@pytest.mark.parametrize("unit", ROW_UNITS)
@pytest.mark.parametrize("measure", Measure)
@pytest.mark.parametrize("hash_rows", [1, 3])
def test_the_papers_sketches_are_as_wide_as_collisions_count(
    unit: PrivacyUnit, measure: Measure, hash_rows: int
) -> None:
    """Collisions, rows / width in the mean, are a quarter of the least noise at most, or an eighth
    at least; memory, a width that is given and other mechanisms do not follow it."""
    setting = make_setting(measure=measure, unit=unit, dimensions=1)
    given = {"rows": 10**5, "most": 64, "holding": Holding.SKETCH, "hash_rows": hash_rows}
    plan = plan_partition(setting, PartitionChoices.from_mechanism("privhp_paper", **given))
    assert plan.sketches is not None
    shape, deviations = plan.sketches.shape, [law.variance**0.5 for law in plan.laws if law]
    least = min(deviations[plan.sketches.counters + 1 :])
    assert least / 8 < 10**5 / shape.width <= least / 4
    assert shape.rows == hash_rows
    fixed = plan_partition(
        setting, PartitionChoices.from_mechanism("privhp_paper", **given, width=32)
    )
    assert fixed.sketches is not None and fixed.sketches.shape.width == 32
    small = PartitionChoices.from_mechanism("privhp_paper", **given, memory=2**17)
    held = plan_partition(setting, small)
    assert held.sketches is not None and held.sketches.shape.width < shape.width
    other = plan_partition(setting, PartitionChoices(**given))
    assert other.sketches is not None and other.sketches.shape.width == 2**20


def test_thresholds_are_standard_errors_of_the_childrens_noise() -> None:
    plan = plan_partition(make_setting(), PartitionChoices(depth=12, split_errors=3.0))
    assert plan.rule.errors == 3.0
    assert plan_partition(make_setting(), PartitionChoices(split_errors=0.0)).rule.errors is None


def test_the_depth_of_a_plan_grows_with_epsilon_times_rows() -> None:
    assert useful_depth(make_setting(), 2**20) == 20
    assert useful_depth(make_setting(amount=Fraction(1, 4)), 2**20) == 18
    assert useful_depth(make_setting(unit=SUBSTITUTE_ROW), 2**20) == 19
    rho = make_setting(measure=Measure.RHO, amount=Fraction(1, 4))
    assert useful_depth(rho, 2**20) == 20
    # Rows and a bound of rows alike, and never above the domain.
    for choices in (PartitionChoices(rows=2**12), PartitionChoices(rows_at_most=2**12)):
        one, two, five = (
            plan_partition(make_setting(dimensions=d), choices).depths for d in (1, 2, 5)
        )
        assert one == (0, 4, 8, 12) and two == (0, 4, 8, 12, 16) and five == (0, 5, 10, 15, 20)
    assert plan_partition(make_setting(bits=3), PartitionChoices(rows=2**30)).depths[-1] == 3
    # The papers' depth is the useful one.
    choices = PartitionChoices.from_mechanism("privhp_paper", rows=2**12, most=64)
    assert plan_partition(make_setting(), choices).depths == tuple(range(13))


def make_plan(**fields: Any) -> PartitionPlan:
    return plan_partition(make_setting(), PartitionChoices(**fields))


def test_what_is_refused() -> None:
    whole = ("rows", "rows_at_most", "depth", "bits_apart", "most", "parts", "memory")
    rows: list[tuple[dict[str, Any], str]] = [
        *(({name: 0}, f"{name}: 0 is not at least 1") for name in whole),
        ({"bits_apart": 9}, "bits_apart: 9 is above 8"),
        ({"split_errors": -1.0}, "split_errors: -1.0 is below 0"),
        ({"depth": 25}, "depth: 25 is above 24"),
        ({"depth": 12, "most": 2**25}, f"most: {2**25} is above the 2^24 cells"),
        ({"depth": 24, "holding": Holding.DENSE, "memory": 2**20}, "that dense counts need"),
        ({"depth": 24, "most": 2**22}, "most: a partition of up to"),
        ({"depth": 20, "memory": 100}, "memory: 100 bytes are below the"),
        ({"depth": 20, "memory": 2**16, "width": 2**12, "holding": Holding.SKETCH},
         "of the least plan"),
        ({"holding": Holding.SKETCH, "width": 100}, "width: 100 is not a power of two"),
    ]  # fmt: skip
    check_refusals(make_plan, rows, Refusal)
    # Lemma 5 leaves the deepest levels of a box of one dimension less than 2^-20 of a budget.
    with pytest.raises(Refusal, match=r"^depth: .*levels are too many for this budget"):
        plan_partition(
            make_setting(bits=64, dimensions=1),
            PartitionChoices.from_mechanism("privhp_paper", depth=60, most=1),
        )


def terms(depths: tuple[int, ...], most: int) -> list[float]:
    """What a level's noise moves: all diameters above it, or k of them; of the root 1."""
    found = [1.0]
    for above, depth in pairwise(depths):
        nodes = 2**above if 2**depth <= most else min(2**above, most)
        found.append(nodes * 2.0**-above)
    return found


def bound(shares: np.ndarray, weights: np.ndarray, measure: Measure) -> float:
    power = 1.0 if measure is Measure.EPSILON else 0.5
    return float((weights / shares**power).sum())


@pytest.mark.parametrize("measure", Measure)
def test_lemma_5_is_the_least_of_its_bound(measure: Measure) -> None:
    for depths, most in (((0, 1, 2, 3, 4), 2), ((0, 4, 8, 12), 16), ((0, 3), 1)):
        shares = lemma_5_shares(depths, lambda depth: 2.0**-depth, most, measure)
        weights = np.array(terms(depths, most))
        assert shares.sum() == pytest.approx(1.0)
        least, rng = bound(shares, weights, measure), np.random.default_rng(0)
        for _ in range(300):
            other = shares * np.exp(rng.normal(0, 0.3, len(shares)))
            assert bound(other / other.sum(), weights, measure) >= least - 1e-12


def test_lemma_5_of_the_paper_in_one_dimension() -> None:
    """gamma_l = 2^-l: Gamma is 1 down to L_k + 1, then k gamma_{l-1} falls by halves."""
    shares = lemma_5_shares((0, 1, 2, 3, 4, 5), lambda depth: 2.0**-depth, 4, Measure.EPSILON)
    assert (shares / shares[0]) ** 2 == pytest.approx([1, 1, 1, 1, 1 / 2, 1 / 4])


def test_falling_shares() -> None:
    assert falling_shares(4, 0.0).tolist() == [0.25] * 4
    assert np.diff(np.log2(falling_shares(5, 1.5))) == pytest.approx([-1.5] * 4)
