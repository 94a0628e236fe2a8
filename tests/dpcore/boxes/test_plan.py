"""Plans of partitions: what is spent, the laws by hand, the specification, what is refused."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.boxes.plan import Estimation, GrowthRule, Holding, LevelSketches, PartitionPlan
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.privacy.composition import MovedTogether
from dptrees.dpcore.privacy.conversion import zcdp_rho
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    ROW_UNITS,
    SUBSTITUTE_ROW,
    Measure,
    PrivacyUnit,
)
from dptrees.dpcore.sketches.estimates import SketchEstimator
from dptrees.dpcore.sketches.sketch import SketchKind, SketchShape
from tests.dpcore.refusals import check_refusals

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def sketches(kind: SketchKind = SketchKind.COUNT_SKETCH, **changes: Any) -> LevelSketches:
    shape = SketchShape(kind=kind, rows=3, width=64)
    return LevelSketches(**{"shape": shape, "counters": 1} | changes)


def make_plan(**changes: Any) -> PartitionPlan:
    known: dict[str, Any] = {
        "depths": (0, 4, 8, 12),
        "amounts": (Fraction(1, 10), HALF, THIRD, Fraction(1, 15)),
        "measure": Measure.EPSILON,
        "unit": ADD_REMOVE_ROW,
        "rule": GrowthRule(most=100),
    }
    if changes.get("sketches") is not None:
        known["holding"] = Holding.SKETCH
    return PartitionPlan(**known | changes)


SUB, ADD = SUBSTITUTE_ROW, ADD_REMOVE_ROW
MIN, SIGNED = SketchKind.COUNT_MIN, SketchKind.COUNT_SKETCH


@pytest.mark.parametrize(
    "unit, kind, moved, squared",
    [
        # One row more moves one count of a level, and a cell of each of 3 rows of a sketch.
        (ADD, MIN, (1, 1, 3, 3), (1, 1, 3, 3)),
        (ADD, SIGNED, (1, 1, 3, 3), (1, 1, 3, 3)),
        # Another row moves two, but of the root; a signed cell may move by 2, which is 4 squared.
        (SUB, MIN, (1, 2, 6, 6), (1, 2, 6, 6)),
        (SUB, SIGNED, (1, 2, 6, 6), (1, 2, 12, 12)),
    ],
)
def test_the_laws_by_hand(
    unit: PrivacyUnit, kind: SketchKind, moved: tuple[int, ...], squared: tuple[int, ...]
) -> None:
    pure = make_plan(unit=unit, sketches=sketches(kind))
    assert pure.laws == tuple(
        DiscreteLaplace(scale=times / amount)
        for times, amount in zip(moved, pure.amounts, strict=True)
    )
    gaussian = replace(pure, measure=Measure.RHO)
    assert gaussian.laws == tuple(
        DiscreteGaussian(sigma_squared=times / (2 * amount))
        for times, amount in zip(squared, gaussian.amounts, strict=True)
    )
    counted = make_plan(unit=unit)
    assert counted.laws[:2] == pure.laws[:2]
    assert counted.laws[2] == DiscreteLaplace(scale=moved[1] / counted.amounts[2])


def test_what_is_spent() -> None:
    assert make_plan().spending.epsilon == 1 and make_plan().spending.rho == 0
    root = make_plan(amounts=(Fraction(0), HALF, THIRD, THIRD))
    assert root.spending.epsilon == Fraction(7, 6) and root.laws[0] is None
    rho = make_plan(measure=Measure.RHO, sketches=sketches(MIN), unit=SUB)
    assert (rho.spending.epsilon, rho.spending.delta, rho.spending.rho) == (0, 0, 1)
    assert rho.spending.moved == tuple(zip(rho.laws, (1, 2, 6, 6), strict=True))
    # A cell that moves by two is no number of cells that move by one: the norm counts.
    signed = make_plan(measure=Measure.RHO, sketches=sketches(SIGNED), unit=SUB)
    assert signed.spending.moved is not None
    small, middle, *sketched = signed.spending.moved
    assert (small[1], middle[1]) == (1, 2)
    assert all(isinstance(law, MovedTogether) and norm == 12 for law, norm in sketched)
    assert make_plan(measure=Measure.RHO, sketches=sketches(SIGNED)).spending.moved is not None


def test_the_certificate_holds_for_what_moves() -> None:
    """Beside a delta the laws themselves are composed: the rho that converts keeps it, and twice as
    much does not."""
    epsilon, delta = Fraction(1), Fraction(1, 10**6)
    rho = zcdp_rho(epsilon, delta)
    plan = make_plan(measure=Measure.RHO, amounts=(Fraction(0), rho / 2, rho / 4, rho / 4))
    assert plan.spending.keeps(epsilon, delta)
    more = make_plan(measure=Measure.RHO, amounts=(Fraction(0), rho, rho / 2, rho / 2))
    assert not more.spending.keeps(epsilon, delta)


def test_state_in_bytes() -> None:
    assert make_plan().state_bytes is None
    assert make_plan(holding=Holding.DENSE).state_bytes == 8 * 2**12
    assert make_plan(sketches=sketches()).state_bytes == 8 * (2**4 + 2 * 3 * 64)
    deeper = make_plan(sketches=sketches(counters=2))
    assert deeper.state_bytes == 8 * (2**8 + 3 * 64)
    assert [deeper.is_sketched(level) for level in range(4)] == [False, False, False, True]
    assert [level["held"] for level in deeper.levels] == ["counters"] * 3 + ["sketch"]


@st.composite
def plans(draw: st.DrawFn) -> PartitionPlan:
    depths = (0, *sorted(draw(st.sets(st.integers(1, 64), min_size=1, max_size=6))))
    height = len(depths) - 1
    amount = st.fractions(Fraction(1, 1000), Fraction(50), max_denominator=1000)
    amounts = [draw(amount) for _ in depths]
    public = draw(st.booleans())
    measured = not public and draw(st.booleans())
    amounts[0] = amounts[0] if measured else Fraction(0)
    known = public or measured
    sketched = None
    if draw(st.booleans()):
        kind = draw(st.sampled_from(SketchKind))
        sketched = LevelSketches(
            shape=SketchShape(kind=kind, rows=draw(st.integers(1, 9)), width=64),
            counters=draw(st.integers(0, height - 1)),
            estimator=draw(st.sampled_from([None, SketchEstimator.MEAN])),
        )
    plain = st.sampled_from([Holding.DENSE, Holding.SPARSE])
    every = st.sampled_from(Estimation)
    return PartitionPlan(
        depths=depths,
        amounts=tuple(amounts),
        measure=draw(st.sampled_from(Measure)),
        unit=SUB if public else draw(st.sampled_from(ROW_UNITS)),
        public_total=public,
        rule=GrowthRule(
            most=draw(st.integers(1, 2**64)),
            parts=draw(st.none() | st.integers(1, 10**6)) if known else None,
            errors=draw(st.none() | st.floats(0, 1e6)),
        ),
        estimation=draw(every) if known else Estimation.LEAST_SQUARES,
        holding=Holding.SKETCH if sketched else draw(plain),
        sketches=sketched,
    )


@given(plans())
@settings(deadline=None)
def test_the_specification_reads_back_through_json(plan: PartitionPlan) -> None:
    spec = json.loads(json.dumps(plan.spec(), allow_nan=False))
    assert spec == plan.spec() and PartitionPlan.from_spec(spec) == plan
    assert len(plan.laws) == len(plan.depths) == len(plan.levels)


def test_all_that_shapes_the_law_is_in_the_specification() -> None:
    """No two plans of this list have one specification."""
    changes: list[dict[str, Any]] = [
        {},
        {"depths": (0, 4, 8, 13)},
        {"amounts": (Fraction(1, 10), HALF, THIRD, Fraction(1, 16))},
        {"measure": Measure.RHO},
        {"unit": SUB},
        {"rule": GrowthRule(most=101)},
        {"rule": GrowthRule(most=100, parts=7)},
        {"rule": GrowthRule(most=100, errors=2.0)},
        {"rule": GrowthRule(most=100, errors=2.5)},
        {"estimation": Estimation.EVEN_SHARES},
        {"holding": Holding.DENSE},
        {"sketches": sketches()},
        {"sketches": sketches(MIN)},
        {"sketches": sketches(counters=2)},
        {"sketches": sketches(estimator=SketchEstimator.MEDIAN)},
        {"sketches": sketches(shape=SketchShape(kind=SIGNED, rows=3, width=128))},
        {"sketches": sketches(shape=SketchShape(kind=SIGNED, rows=4, width=64))},
        {"unit": SUB, "public_total": True, "amounts": (Fraction(0), HALF, THIRD, THIRD)},
    ]
    specs = {json.dumps(make_plan(**each).spec()) for each in changes}
    assert len(specs) == len(changes)
    assert {field.name for field in fields(PartitionPlan)} == {
        "depths", "amounts", "measure", "unit", "rule", "public_total", "estimation",
        "holding", "sketches",
    }  # fmt: skip


def test_a_specification_with_other_noise_is_refused() -> None:
    spec = json.loads(json.dumps(make_plan().spec()))
    spec["levels"][1]["scale"] = "1"
    with pytest.raises(ValueError, match=r"^levels: it does not follow from the other fields"):
        PartitionPlan.from_spec(spec)


NONE = Fraction(0)


def test_what_is_refused() -> None:
    above, root = "amounts: below the root each must be above 0", "the root must be measured, or"
    unmeasured = (NONE, HALF, HALF, HALF)
    rows: list[tuple[dict[str, Any], str]] = [
        ({"depths": (1, 4, 8, 12)}, "depths: (1, 4, 8, 12) do not begin with 0"),
        ({"depths": (0,), "amounts": (HALF,)}, "depths: (0,) do not begin with 0 and go on"),
        ({"depths": (0, 4, 4, 8)}, "do not rise"),
        ({"amounts": (HALF, HALF)}, "amounts: 2 for 4 levels"),
        ({"amounts": (HALF, HALF, NONE, HALF)}, above),
        ({"amounts": (-HALF, HALF, HALF, HALF)}, "amounts: below the root"),
        ({"public_total": True}, "public_total: under substitute only"),
        ({"public_total": True, "unit": SUB}, "public_total: under substitute only"),
        ({"amounts": unmeasured, "estimation": Estimation.EVEN_SHARES}, f"amounts: {root}"),
        ({"amounts": unmeasured, "rule": GrowthRule(most=1, parts=4)}, f"amounts: {root}"),
        ({"holding": Holding.SKETCH}, "sketches: they go with holding sketch"),
        ({"holding": Holding.DENSE, "sketches": sketches()}, "sketches: they go with holding"),
        ({"sketches": sketches(counters=3)}, "counters: no level is left for a sketch"),
    ]
    check_refusals(make_plan, rows)
    rows = [
        ({"counters": -1}, "counters: -1 is below 0"),
        ({"estimator": SketchEstimator.MINIMUM}, "estimator: count_sketch has no"),
    ]
    check_refusals(sketches, rows)
    with pytest.raises(ValueError, match="must be at most 2\\^40"):
        _ = make_plan(amounts=(Fraction(1, 2**45), HALF, HALF, HALF)).laws


def test_without_measurements_nothing_is_reported() -> None:
    plan = make_plan(amounts=(NONE, HALF, HALF, HALF))
    assert [plan.is_measured(level) for level in range(4)] == [False, True, True, True]
    public = replace(plan, unit=SUB, public_total=True)
    assert public.is_measured(0) and public.laws[0] is None
    assert np.isfinite([law.variance for law in public.laws[1:] if law]).all()
