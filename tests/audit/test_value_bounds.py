"""An audit of chosen bounds of values: the exact law of both choices, from rows on.

Rows pass through bounding and the question's own map, and the release chooses as it does; what is
recorded is which counts the choices were made from, and their joint law is enumerated. Neighbors
differ in one unit of up to nine rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any
from unittest.mock import patch as patched

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.budget import Budget, Measure, Neighbors
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.release.in_memory import release_rows
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.value_bounds import plan as planning
from dptrees.dpcore.value_bounds.plan import ValueBoundsPlan
from dptrees.dpcore.value_bounds.question import ValueBoundsQuestion

Patch = pytest.MonkeyPatch
Row = tuple[str, float | None]  # its unit and its value
KEY = ReleaseKey(bytes(range(32)))
CANDIDATES = (0.0, 1.0, 2.0, 4.0)
VALUES = (-math.inf, -1.0, 0.0, 1.5, 3.0, 9.0, math.nan, None)
ORDERS = (1.5, 2.0, 8.0, 40.0)


def make_question(rng: Random, neighbors: Neighbors, measure: Measure) -> ValueBoundsQuestion:
    amount = rng.choice([Fraction(1, 4), Fraction(1)])
    plan = ValueBoundsPlan(
        unit=PrivacyUnit(neighbors=neighbors, columns=rng.choice([(), ("person",)])),
        budget=Budget(measure=measure, amount=amount),
        lower_amount=amount * rng.choice([Fraction(0), Fraction(1, 2), Fraction(1)]),
        candidates=CANDIDATES,
        tolerated=rng.choice([0, 3, 8]),
    )
    return ValueBoundsQuestion(name="b", column="x", integers=False, trees=("x",), plan=plan)


def make_rows(rng: Random, unit: str, *, is_row: bool) -> list[Row]:
    """Rows of a unit, often all of one value."""
    values = rng.sample(VALUES, 2)
    return [(unit, rng.choice(values)) for _ in range(1 if is_row else rng.choice([1, 2, 5, 9]))]


def tables(rng: Random, unit: PrivacyUnit) -> Iterator[list[Row]]:
    """Yield two tables that differ in one unit."""
    others: list[Row] = []
    values = rng.sample(VALUES[1:6], 2)
    for number in range(rng.choice([3, 10, 40, 90])):
        others += [(f"u{number}", rng.choice(values))]
    for number in range(rng.choice([0, 3, 8])):
        others += [(f"v{number}", rng.choice(VALUES))]
    before = make_rows(rng, "x", is_row=unit.is_row) if unit.substitutes else []
    for own in (before, make_rows(rng, "x", is_row=unit.is_row)):
        rows = [*others, *own]
        rng.shuffle(rows)
        yield rows


def joint_law(plan: ValueBoundsPlan, counts: Any) -> list[float]:
    """The law of all bounds that a plan chooses."""
    if len(plan.sides) == 1:
        return [float(each) for each in plan.probabilities(plan.sides[0], counts)]
    return [
        float(lower * upper)
        for place, lower in enumerate(plan.probabilities("lower", counts))
        for upper in plan.probabilities("upper", counts, place + 1)
    ]


def law(question: ValueBoundsQuestion, rows: list[Row]) -> list[float]:
    """The law of the choices that a release makes from rows."""
    found: list[list[float]] = []

    def chosen(self: ValueBoundsPlan, counts: Any, stream: Any) -> tuple[float, ...]:
        found.append(joint_law(self, counts))
        return self.candidates[: len(self.sides)]

    table = pa.table(
        {
            "person": pa.array([unit for unit, _ in rows], pa.string()),
            "x": pa.array([value for _, value in rows], pa.float64()),
        }
    )
    plan = ReleasePlan(name="r", unit=question.unit, budget=question.budget, questions=(question,))
    with patched.object(ValueBoundsPlan, "chosen", chosen):
        release_rows(plan, table.to_batches(max_chunksize=3), KEY)
    (result,) = found
    return result


def loss(question: ValueBoundsQuestion, one: list[float], two: list[float]) -> float:
    """What a pair of laws reveals, in parts of the claim."""
    claim = float(question.budget.amount)
    pairs = (list(zip(one, two, strict=True)), list(zip(two, one, strict=True)))
    if question.budget.measure is Measure.EPSILON:
        return max(abs(math.log(a / b)) for a, b in pairs[0]) / claim
    return max(
        math.log(math.fsum(b * (a / b) ** order for a, b in each)) / (order * (order - 1)) / claim
        for each, order in itertools.product(pairs, ORDERS)
    )


def losses(measure: Measure, pairs: int = 200) -> Iterator[float]:
    """Yield the losses of random choices from random neighbors."""
    rng = Random(f"values {measure.value}")
    for _ in range(pairs):
        question = make_question(rng, rng.choice(list(Neighbors)), measure)
        yield loss(question, *(law(question, rows) for rows in tables(rng, question.unit)))


@pytest.mark.parametrize(("measure", "met"), [(Measure.EPSILON, 0.6), (Measure.RHO, 0.4)])
def test_no_unit_reveals_more_about_values_than_is_claimed(measure: Measure, met: float) -> None:
    assert met < max(losses(measure)) <= 1 + 1e-9


# --- planted faults -------------------------------------------------------------------------------


def half_the_sensitivity(patch: Patch) -> None:
    patch.setattr(planning, "tail_sensitivity", lambda unit: 1)


def rows_counted_in_place_of_units(patch: Patch) -> None:
    """Each row counts, paid as one unit."""
    unit = property(lambda self: replace(self.plan.unit, rows=9 if self.plan.unit.columns else 1))
    patch.setattr(ValueBoundsQuestion, "unit", unit)
    patch.setattr(PrivacyUnit, "holds", lambda self, other: True)


def a_distance_in_parts_of_all_units(patch: Patch) -> None:
    """A tolerated part of the units in place of a tolerated number of them."""
    own = ValueBoundsPlan.distances

    def distances(self: ValueBoundsPlan, side: str, counts: Any, first: int = 0) -> Any:
        return own(self, side, counts, first) * (1 + counts.sum())

    patch.setattr(ValueBoundsPlan, "distances", distances)


def a_weight_of_the_data(patch: Patch) -> None:
    """Candidates that no value lies near are left out."""
    own = ValueBoundsPlan.weights

    def weights(self: ValueBoundsPlan, side: str, counts: Any, first: int = 0) -> np.ndarray:
        result = own(self, side, counts, first)
        near = counts[:-1][first : first + len(result)] > 0
        return np.where(near, result, 2.0**-60)

    patch.setattr(ValueBoundsPlan, "weights", weights)


@pytest.mark.parametrize(
    "fault",
    [
        half_the_sensitivity,
        rows_counted_in_place_of_units,
        a_distance_in_parts_of_all_units,
        a_weight_of_the_data,
    ],
)
def test_planted_faults_are_found(monkeypatch: Patch, fault: Callable[[Patch], None]) -> None:
    """In the choices and tables that were found to keep their claims above."""
    fault(monkeypatch)
    assert any(each > 1.05 for each in losses(Measure.EPSILON))
