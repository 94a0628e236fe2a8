"""An audit of chosen bounds of values: the exact law of both choices, from rows on.

Rows pass through bounding and the question's own map, and the release chooses as it does; what is
recorded is which counts the choices were made from, and their joint law is enumerated. Neighbors
differ in one unit of up to nine rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Any
from unittest.mock import patch as patched

import pyarrow as pa

from benchmarks.audit.exact import Finding
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.budget import Budget, Measure, Neighbors
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.release.in_memory import release_rows
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.value_bounds.plan import ValueBoundsPlan
from dptrees.dpcore.value_bounds.question import ValueBoundsQuestion

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


def audit_value_bounds(measure: str, *, plans: int, pairs: int) -> Finding:
    """Random choices of bounds of values, each with a random pair of neighboring tables.

    Args:
        measure: "epsilon" or "rho".
        plans, pairs: their product is the number of choices.
    """
    found = Finding()
    for each in losses(Measure(measure), plans * pairs):
        # The laws are computed in floating point.
        found.add(each if each > 1 + 1e-9 else min(each, 1.0), leaked=False)
    return found
