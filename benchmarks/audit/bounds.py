"""The exact privacy loss of bounds that are chosen: the law of the choice, from rows on.

Rows pass through the question's own map, and the release chooses as it does; what is recorded is
the law by which it chose. Nothing is left to chance. Neighbors differ in one unit of up to nine
rows under up to four keys, beside many small units and some large ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from benchmarks.audit.choice_laws import law_loss
from benchmarks.audit.exact import Finding
from benchmarks.audit.recording import SECRET
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.budget import Budget, Measure, Neighbors
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.release.in_memory import release_rows
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.selection.key_columns import KeyColumns
from dptrees.dpcore.unit_bounds.plan import BoundPlan
from dptrees.dpcore.unit_bounds.question import BoundOf, BoundQuestion

Row = tuple[str, str]  # its unit and its key
SIZES = (1, 2, 4, 7)
SHOPS = KeyColumns(columns=("shop",), types=("text",))


def bound_question(rng: Random, neighbors: Neighbors, measure: Measure) -> BoundQuestion:
    """A random choice of a bound, of rows or of keys."""
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


def unit_rows(rng: Random, unit: str) -> list[Row]:
    """Rows of a unit, often all under different keys, so that it has as many of both."""
    number, keys = rng.choice([1, 2, 3, 5, 9]), rng.choice([1, 4, 9])
    return [(unit, f"k{place % keys}") for place in range(number)]


def neighboring_tables(rng: Random, neighbors: Neighbors) -> Iterator[list[Row]]:
    """Yield two tables that differ in one unit: many small units and some large ones are alike."""
    others: list[Row] = []
    for number in range(rng.choice([3, 40, 90])):
        others += [(f"u{number}", f"k{place}") for place in range(rng.choice([1, 2, 2, 3, 5]))]
    for number in range(rng.choice([0, 5])):
        others += unit_rows(rng, f"v{number}")
    before = unit_rows(rng, "x") if neighbors is Neighbors.SUBSTITUTE else []
    for own in (before, unit_rows(rng, "x")):
        rows = [*others, *own]
        rng.shuffle(rows)
        yield rows


def bound_law(question: BoundQuestion, rows: list[Row]) -> list[Fraction]:
    """The law of the choice that a release makes from rows."""
    found: list[list[Fraction]] = []

    def chosen(self: BoundPlan, counts: Any, stream: Any) -> int:
        found.append(self.probabilities(counts))
        return self.sizes[0]

    table = pa.table(
        {
            "person": pa.array([unit for unit, _ in rows], pa.string()),
            "shop": pa.array([key for _, key in rows], pa.string()),
        }
    )
    plan = ReleasePlan(name="r", unit=question.unit, budget=question.budget, questions=(question,))
    with patch.object(BoundPlan, "chosen", chosen):
        release_rows(plan, table.to_batches(max_chunksize=50), ReleaseKey(SECRET))
    (result,) = found
    return result


def audit_bounds(measure: str, *, plans: int, pairs: int, seed: int = 0) -> Finding:
    """Random choices of bounds, each with random pairs of neighboring tables; as `exact.audit`.

    Args:
        measure: "epsilon" or "rho".
        plans, pairs, seed: as there.
    """
    rng, found = Random(f"bounds {measure} {seed}"), Finding()
    for _ in range(plans):
        neighbors = rng.choice(list(Neighbors))
        question = bound_question(rng, neighbors, Measure(measure))
        for _ in range(pairs):
            laws = [bound_law(question, rows) for rows in neighboring_tables(rng, neighbors)]
            loss = law_loss(laws[0], laws[1], question.budget.measure)
            found.add(loss / float(question.budget.amount), leaked=False)
    return found
