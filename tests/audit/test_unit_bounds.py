"""An audit of chosen bounds: the exact law of the choice, from the rows of neighboring tables on.

Rows pass through bounding and the question's own map, and the release chooses as it does; what is
recorded is which counts the choice was made from, and its law is enumerated. Nothing is left to
chance. Neighbors differ in one unit of up to nine rows under up to four keys.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from random import Random
from typing import Any
from unittest.mock import patch as patched

import numpy as np
import pyarrow as pa
import pytest

from dpcore.noise.randomness import ReleaseKey
from dpcore.privacy.budget import Budget, Measure, Neighbors
from dpcore.privacy.unit import PrivacyUnit
from dpcore.questions.place import Increments
from dpcore.release.in_memory import release_rows
from dpcore.release.plan import ReleasePlan
from dpcore.selection.key_columns import KeyColumns
from dpcore.unit_bounds import plan as planning
from dpcore.unit_bounds.plan import BoundPlan
from dpcore.unit_bounds.question import BoundOf, BoundQuestion

Patch = pytest.MonkeyPatch
Row = tuple[str, str]  # its unit and its key
KEY = ReleaseKey(bytes(range(32)))
SIZES = (1, 2, 4, 7)
SHOPS = KeyColumns(columns=("shop",), types=("text",))
ORDERS = (1.5, 2.0, 8.0, 40.0)


def question_of(rng: Random, neighbors: Neighbors, measure: Measure) -> BoundQuestion:
    unit = PrivacyUnit(neighbors=neighbors, columns=("person",))
    of = rng.choice(list(BoundOf))
    plan = BoundPlan(
        unit=unit,
        budget=Budget(measure=measure, amount=rng.choice([Fraction(1, 8), Fraction(1, 2)])),
        sizes=SIZES,
        tolerated=rng.choice([Fraction(0), Fraction(1), Fraction(13, 2)]),
    )
    return BoundQuestion(
        name=of.key, of=of, domain=SHOPS if of is BoundOf.KEYS else None, plan=plan
    )


def rows_of(rng: Random, unit: str) -> list[Row]:
    """Rows of a unit, often all under different keys, so that it has as many of both."""
    number, keys = rng.choice([1, 2, 3, 5, 9]), rng.choice([1, 4, 9])
    return [(unit, f"k{place % keys}") for place in range(number)]


def tables(rng: Random, neighbors: Neighbors) -> Iterator[list[Row]]:
    """Yield two tables that differ in one unit: many small units and some large ones are alike."""
    others: list[Row] = []
    for number in range(rng.choice([3, 40, 90])):
        others += [(f"u{number}", f"k{place}") for place in range(rng.choice([1, 2, 2, 3, 5]))]
    for number in range(rng.choice([0, 5])):
        others += rows_of(rng, f"v{number}")
    before = rows_of(rng, "x") if neighbors is Neighbors.SUBSTITUTE else []
    for own in (before, rows_of(rng, "x")):
        rows = [*others, *own]
        rng.shuffle(rows)
        yield rows


def law(question: BoundQuestion, rows: list[Row]) -> list[float]:
    """The law of the choice that a release makes from rows."""
    found: list[list[float]] = []

    def chosen(self: BoundPlan, counts: Any, stream: Any) -> int:
        found.append([float(each) for each in self.probabilities(counts)])
        return self.sizes[0]

    table = pa.table(
        {
            "person": pa.array([unit for unit, _ in rows], pa.string()),
            "shop": pa.array([key for _, key in rows], pa.string()),
        }
    )
    plan = ReleasePlan(name="r", unit=question.unit, budget=question.budget, questions=(question,))
    with patched.object(BoundPlan, "chosen", chosen):
        release_rows(plan, table.to_batches(max_chunksize=50), KEY)
    (result,) = found
    return result


def loss(question: BoundQuestion, one: list[float], two: list[float]) -> float:
    """What a pair of laws reveals, in parts of the claim."""
    claim = float(question.budget.amount)
    pairs = (list(zip(one, two, strict=True)), list(zip(two, one, strict=True)))
    if question.budget.measure is Measure.EPSILON:
        return max(abs(math.log(a / b)) for a, b in pairs[0]) / claim
    return max(
        math.log(math.fsum(b * (a / b) ** order for a, b in each)) / (order * (order - 1)) / claim
        for each, order in itertools.product(pairs, ORDERS)
    )


def losses(measure: Measure, pairs: int = 12) -> Iterator[float]:
    """Yield the losses of random choices from random neighbors."""
    rng = Random(f"bounds {measure.value}")
    for _ in range(pairs):
        neighbors = rng.choice(list(Neighbors))
        question = question_of(rng, neighbors, measure)
        yield loss(question, *(law(question, rows) for rows in tables(rng, neighbors)))


@pytest.mark.parametrize(("measure", "met"), [(Measure.EPSILON, 0.95), (Measure.RHO, 0.3)])
def test_no_unit_reveals_more_about_bounds_than_is_claimed(measure: Measure, met: float) -> None:
    """A claim of rho is that of the worst choice of this range, which has even odds."""
    assert met < max(losses(measure)) <= 1 + 1e-9


# --- planted faults -------------------------------------------------------------------------------


def half_the_sensitivity(patch: Patch) -> None:
    patch.setattr(planning, "excess_sensitivity", lambda unit: Fraction(1, 2))


def rows_counted_in_place_of_units(patch: Patch) -> None:
    """A score of the rows beyond a bound, paid as one of units."""

    def increments(self: BoundQuestion, rows: np.ndarray) -> Increments:
        return Increments(np.repeat(self.plan.cell_ids(rows), rows))

    patch.setattr(BoundQuestion, "unit_increments", increments)


def distances_on_both_sides(patch: Patch) -> None:
    """|N(t) - m|, which moves up for some sizes and down for others."""

    def distances(self: BoundPlan, counts: np.ndarray) -> np.ndarray:
        above = counts[::-1].cumsum()[::-1][1:] * 2**16 - int(self.tolerated * 2**16)
        result: np.ndarray = np.abs(above) + self.handicaps
        return result - result.min()

    patch.setattr(BoundPlan, "distances", distances)


def a_weight_of_the_data(patch: Patch) -> None:
    """Sizes that no unit has are left out."""
    own = BoundPlan.weights

    def weights(self: BoundPlan, counts: np.ndarray) -> np.ndarray:
        return np.where(counts[:-1] > 0, own(self, counts), 2.0**-60)

    patch.setattr(BoundPlan, "weights", weights)


@pytest.mark.parametrize(
    "fault",
    [
        half_the_sensitivity,
        rows_counted_in_place_of_units,
        distances_on_both_sides,
        a_weight_of_the_data,
    ],
)
def test_planted_faults_are_found(monkeypatch: Patch, fault: Callable[[Patch], None]) -> None:
    """In the choices and tables that were found to keep their claims above."""
    fault(monkeypatch)
    assert any(each > 1.05 for each in losses(Measure.EPSILON))
