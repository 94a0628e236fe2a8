"""The exact privacy loss of means and of numbers of different values, from rows on.

Rows pass through the question's own maps and through bounding; every draw of noise records to which
exact sums it was added. Neighbors differ in a row, or in one unit of up to nine rows under up to
three keys, beside other units whose order is another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from random import Random
from typing import Any

import pyarrow as pa

from benchmarks.audit.exact import Finding, Loss
from benchmarks.audit.recording import Draw, Place, Recorded, public_output, recorded
from dptrees.dpcore.distinct.domain import DistinctDomain
from dptrees.dpcore.distinct.workload import DistinctWorkload
from dptrees.dpcore.mean.workload import MeanWorkload
from dptrees.dpcore.ordered.make import make_domain
from dptrees.dpcore.privacy.budget import Budget, Measure, Neighbors
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.workload import ReleaseTerms, Share, Workload
from dptrees.dpcore.release.in_memory import release_rows
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.keys import KeyList

Row = tuple[str, str, float | None]  # its unit, its key and its value
KEYS = ("north", "south", "east")
AMOUNTS = (Fraction(1, 3), Fraction(1), Fraction(7, 2))
# At the bounds, between them, beyond them, and none.
VALUES = (0.0, 9.0, 3.0, 4.5, -7.0, 1e9, math.inf, math.nan, None)
UNITS = (
    {},
    {"columns": ("person",), "rows": 1},
    {"columns": ("person",), "rows": 4},
    {"columns": ("person",), "rows": 6, "keys": 2, "rows_per_key": 3},
)


def mean_workload(rng: Random, keys: KeyList | None) -> Workload[Any]:
    """A random mean: of whole numbers or numbers, clamped or dropped."""
    domain: dict[str, Any] = {"column": "value", "lower": 0, "upper": 9}
    if rng.random() < 0.5:
        domain |= {"type": "integer"}
    else:
        domain |= {"cells": rng.choice([2, 9, 1000])}
    domain |= {"outside": rng.choice(["clamp", "drop"])}
    return MeanWorkload(name="t", domain=make_domain(domain), keys=keys)


def distinct_workload(rng: Random, keys: KeyList | None) -> Workload[Any]:
    """A random number of different values; a unit counts with one of them or with several."""
    most = rng.choice([None, 1, 2, 3])
    return DistinctWorkload(
        name="t", domain=DistinctDomain(column="value"), keys=keys, max_values=most
    )


WORKLOADS: dict[str, Callable[[Random, KeyList | None], Workload[Any]]] = {
    "means": mean_workload,
    "different values": distinct_workload,
}


def unit_rows(rng: Random, unit: str, most: int) -> list[Row]:
    """Rows of a unit, all alike, or of a few kinds."""
    kinds = [(rng.choice(KEYS), rng.choice(VALUES)) for _ in range(rng.choice([1, 2, 4, 9]))]
    return [(unit, *rng.choice(kinds)) for _ in range(rng.randint(1, most))]


def neighboring_tables(rng: Random, unit: PrivacyUnit) -> Iterator[list[Row]]:
    """Yield two tables that differ in a unit, which is a row where none is named."""
    most = 9 if unit.columns else 1
    others: list[Row] = []
    for number in range(rng.choice([0, 0, 3, 20])):
        others += unit_rows(rng, f"u{number}", 5)
    before = unit_rows(rng, "x", most) if unit.neighbors is Neighbors.SUBSTITUTE else []
    for own in (before, unit_rows(rng, "x", most)):
        rows = [*others, *own]
        rng.shuffle(rows)
        yield rows


def released(
    plan: ReleasePlan, rows: Sequence[Row], wanted: Callable[[Place, Draw], Any]
) -> Recorded:
    """A release of the rows with a record of its draws."""
    columns = {
        "person": pa.array([unit for unit, _, _ in rows], pa.string()),
        "place": pa.array([key for _, key, _ in rows], pa.string()),
        "value": pa.array([value for _, _, value in rows], pa.float64()),
    }
    batches = pa.table(columns).to_batches(max_chunksize=7)
    return recorded(lambda key: release_rows(plan, batches, key), wanted)


def audit_columns(kind: str, measure: str, *, plans: int, pairs: int, seed: int = 0) -> Finding:
    """Random questions, each with random pairs of neighboring tables; as `exact.audit`.

    Args:
        kind: of WORKLOADS.
        measure: "epsilon" or "rho".
        plans, pairs, seed: as there.
    """
    rng, found = Random(f"{kind} {measure} {seed}"), Finding()
    for _ in range(plans):
        keys = KeyList(column="place", keys=KEYS) if rng.random() < 0.5 else None
        bounds: dict[str, Any] = rng.choice(UNITS)
        if keys is None:
            bounds = {name: each for name, each in bounds.items() if name in ("columns", "rows")}
        unit = PrivacyUnit(neighbors=rng.choice(list(Neighbors)), **bounds)
        budget = Budget(measure=Measure(measure), amount=rng.choice(AMOUNTS))
        workload = WORKLOADS[kind](rng, keys)
        question = workload.planned(Share(budget=budget), ReleaseTerms(unit=unit))
        plan = ReleasePlan(name="r", unit=unit, budget=budget, questions=(question,))
        for _ in range(pairs):
            found.add(*_pair(rng, plan))
    return found


def _pair(rng: Random, plan: ReleasePlan) -> tuple[Fraction, bool]:
    """The loss of a pair of neighbors in parts of the claim, and whether the second release showed
    anything exact once it was given the noisy sums of the first."""
    one_rows, two_rows = neighboring_tables(rng, plan.unit)
    one = released(plan, one_rows, lambda place, draw: None)
    two = released(plan, two_rows, lambda place, draw: one.draws[place].noisy)
    loss = Loss()
    for place, draw in one.draws.items():
        other = two.draws[place]
        assert draw.law == other.law and draw.exact is not None and other.exact is not None
        loss.add(draw.law, (draw.exact - other.exact).tolist())
    assert one.release is not None and two.release is not None
    spent = loss.epsilon if plan.budget.measure is Measure.EPSILON else loss.rho
    return spent / plan.budget.amount, public_output(one.release) != public_output(two.release)
