"""The exact privacy loss of wide tables: of their noise, and of the choices of pairs.

A wide table measures the counts of all columns, chooses pairs by scores of exact counts, measures
these, and in a second round does so again with a better model. The release of the second table of
rows gets the noisy counts and the choices of the first one's, as in adaptive composition, so all
that is public before a step is the same in both. Then each step's loss is known: |d| / scale or d^2
/ (2 sigma^2) of noise, as in `benchmarks.audit.exact`, and of a choice the largest loss of any
outcome, by the exact law of the weights that both releases give to the candidates. The losses of
all steps add up.

Groups of cells, amounts and laws must be the same in both releases, since only exact counts differ;
where they are not, or where the second release shows anything else, an exact count got past the
noise.

**Means and numbers of different values.** Rows pass through the question's own maps and through
bounding; every draw of noise records to which exact sums it was added. Neighbors differ in a row,
or in one unit of up to nine rows under up to three keys, beside other units whose order is another
one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from benchmarks.audit.choices import flip_law, law_loss, weight_law
from benchmarks.audit.exact import Case, Finding, losses, shows_more
from benchmarks.audit.recording import (
    SECRET,
    Draw,
    NamedStream,
    Place,
    Recorded,
    plan_of,
    recorded_release,
    shuffled_pair,
)
from benchmarks.audit.trees import Palettes, batches, neighbors, ordered_domain, with_units
from benchmarks.audit.units import series_loss
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.exponential.choice import Chosen, flipped, weighed
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.numbers import DistinctDomain, DistinctWorkload, MeanWorkload
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.unit import ROW_UNITS, Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.questions.planning import Setting, Workload
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import _bounded_increments, _plain_increments
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.sketched.domain import SketchDomain
from dptrees.dpcore.sketched.workload import SketchWorkload
from dptrees.dpcore.sketches.sketch import SketchKind
from dptrees.dpcore.tables import question as choosing
from dptrees.dpcore.tables.domain import ALL_TABLES, TableDomain
from dptrees.dpcore.tables.plan import MarginalsPlan, PairDesign, TableShape, cell_amounts
from dptrees.dpcore.tables.question import TableQuestion

NAME = "table"
AMOUNTS = (Fraction(1, 10), Fraction(1), Fraction(7, 3), Fraction(20))
# Of units of several rows: a bound of rows alone, and one that keys would have too.
TABLE_UNITS = (
    *ROW_UNITS,
    *(
        PrivacyUnit(neighbors=neighbors, columns=("person",), **bounds)
        for neighbors in Neighbors
        for bounds in ({"rows": 1}, {"rows": 3}, {"rows": 6, "keys": 2, "rows_per_key": 3})
    ),
)
# Rows of a table beside the unit that differs: so few that noise hides all, and so many that pairs
# are worth measuring.
SIZES = (0, 3, 12, 40, 200)


# --- random plans ---------------------------------------------------------------------------------


def table_case(rng: Random, unit: PrivacyUnit, measure: Measure, *, named: bool = False) -> Case:
    """A random wide table of few columns of few cells, most often planned by no rule."""
    domain, palettes = _domain(rng)
    budget = Budget(measure=measure, amount=rng.choice(AMOUNTS))
    if rng.random() < 0.2:
        plan = MarginalsPlan.planned(shape=domain.shape, unit=unit, budget=budget)
    else:
        plan = _plan_by_hand(rng, domain.shape, unit, budget)
    if named:
        target = rng.randrange(domain.shape.columns)
        star = [pair for pair in domain.shape.pairs if target in pair]
        plan = replace(plan, named=tuple(star[: rng.choice([1, len(star)])]))
    question = TableQuestion(name=NAME, domain=domain, plan=plan)
    release = plan_of(question, budget)
    return Case(plan=release, palettes=palettes if unit.is_row else with_units(palettes))


def _domain(rng: Random) -> tuple[TableDomain, Palettes]:
    axes, palettes, number = [], {}, rng.choice([2, 3, 3, 4])
    while len(axes) < number:
        axis, palette = ordered_domain(rng, f"column_{len(axes)}", drops=True)
        if axis.cells > 1:
            axes.append(axis)
            palettes[axis.column] = palette
    # Fewer cells than a column has: neighboring ones are counted together.
    return TableDomain(axes=tuple(axes), cells=rng.choice([2, 3, 8, 128])), palettes


def _plan_by_hand(
    rng: Random, shape: TableShape, unit: PrivacyUnit, budget: Budget
) -> MarginalsPlan:
    """A plan that spends all of its budget, most of it on a step of one kind or on all."""
    weights = rng.choice([(1, 1, 1), (30, 1, 1), (1, 30, 1), (1, 1, 30)])
    # Half of the plans measure the narrowest column first, and designs move budget.
    moves = rng.random() < 0.5
    column_parts = cell_amounts(shape.sizes, Budget(measure=budget.measure, amount=Fraction(1)))
    parts = [budget.amount * Fraction(each, sum(weights)) for each in weights]
    designs = [_design(rng, shape, 0, moves=moves)]
    if rng.random() < 0.5:
        designs.append(_design(rng, shape, rng.choice([1, 5, 40]), moves=moves))
    return MarginalsPlan(
        shape=shape,
        unit=unit,
        budget=budget,
        column_amount=parts[0] / shape.columns,
        choice_amount=parts[1],
        pair_amount=parts[2],
        designs=tuple(designs),
        column_parts=column_parts if moves else (),
    )


def _design(rng: Random, shape: TableShape, least_rows: int, *, moves: bool) -> PairDesign:
    further = rng.choice([0, 1, shape.columns])
    return PairDesign(
        least_rows=least_rows,
        further_pairs=further,
        further_part=rng.choice([Fraction(1, 10), Fraction(2, 3)]) if further else Fraction(0),
        clique_columns=rng.choice([2, 3, 4]),
        column_part=rng.choice([Fraction(0), Fraction(9, 20)]) if moves else Fraction(0),
        choice_part=rng.choice([Fraction(0), Fraction(9, 20)]) if moves else Fraction(0),
        first_part=rng.choice([Fraction(1), Fraction(1, 3)]) if moves else Fraction(1),
    )


# --- releases -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """A choice among candidates by their weights.

    Attributes:
        weights: (n,) of the candidates.
        flips: by permute-and-flip; else by the exponential mechanism.
        number: of the chosen candidate.
    """

    weights: Floats
    flips: bool
    number: int

    @property
    def law(self) -> list[Fraction]:
        """The exact probability of each candidate."""
        weights = [Fraction(each) for each in self.weights.tolist()]
        return flip_law(weights) if self.flips else weight_law(weights)


@dataclass(kw_only=True, eq=False)
class RecordedTable:
    """A release of a wide table, with all draws and all choices.

    Attributes:
        recorded: the release and its noise.
        choices: by place.
    """

    recorded: Recorded
    choices: dict[Place, Choice] = field(default_factory=dict)


def recorded_table(
    plan: ReleasePlan, counts: Integers, first: RecordedTable | None = None
) -> RecordedTable:
    """A release of a wide table with a record of its draws and choices.

    Args:
        plan: of one wide table.
        counts: of all of its tables, exact.
        first: a release whose noisy counts and choices this one gets; None: it draws its own.
    """
    choices: dict[Place, Choice] = {}

    def wanted(place: Place, draw: Draw) -> Integers | None:
        if first is None:
            return None
        known = first.recorded.draws.get(place)
        assert known is not None and known.size == draw.size, "a table depends on exact counts"
        return known.noisy

    with _recorded_choices(choices, first):
        recorded = recorded_release(plan, {NAME: counts}, wanted)
    return RecordedTable(recorded=recorded, choices=choices)


@contextmanager
def _recorded_choices(choices: dict[Place, Choice], first: RecordedTable | None) -> Iterator[None]:
    """While this lasts, all choices of pairs are recorded, and are the first release's if any."""

    def recording(choose: Any, *, flips: bool) -> Any:
        def chosen(weights: Floats, stream: NamedStream) -> Chosen:
            place = stream.next_place()
            assert place not in choices, f"two choices at {place}"
            if first is None:
                found = choose(weights, stream.bits)
            else:
                known = first.choices.get(place)
                assert known is not None and len(known.weights) == len(weights), (
                    "which choices there are depends on exact counts"
                )
                found = Chosen(known.number, 1)
            choices[place] = Choice(weights=weights, flips=flips, number=found.number)
            return found

        return chosen

    with (
        patch.object(choosing, "flipped", recording(flipped, flips=True)),
        patch.object(choosing, "weighed", recording(weighed, flips=False)),
    ):
        yield


# --- pairs of tables ------------------------------------------------------------------------------


def table_counts(plan: ReleasePlan, parts: Sequence[Mapping[str, pa.Array]]) -> Integers:
    """The exact counts of a wide table, by the release's own steps from rows on."""
    (question,) = plan.questions
    choices = KeyedChoices(key=ReleaseKey(SECRET), release=plan.name)
    counter = question.counter(dense=True, choices=choices)
    rows = [pa.RecordBatch.from_pydict(dict(columns)) for columns in parts]
    reading = _plain_increments if plan.unit.is_row else _bounded_increments
    for _, increments, number in reading(plan, rows, choices):
        counter.add(increments, number)
    merged = question.merge(ALL_TABLES, (partial.data for partial in counter.take()))
    result: Integers = merged.counts  # type: ignore[attr-defined]
    return result


def neighboring_tables(rng: Random, case: Case) -> list[Integers]:
    """The exact counts of two neighboring tables of rows, in any order."""
    unit, size = case.plan.unit, rng.choice(SIZES)
    tables = neighbors(rng, case.palettes, unit, size)
    result = [table_counts(case.plan, batches(rng, case.palettes, rows)) for rows in tables]
    rng.shuffle(result)
    return result


def table_loss(plan: ReleasePlan, first: RecordedTable, second: RecordedTable) -> float:
    """What a pair loses, in parts of what the release claims."""
    measure, spent = plan.budget.measure, Fraction(0)
    for each in losses(first.recorded, second.recorded).values():
        assert not (each.rho if measure is Measure.EPSILON else each.epsilon), (
            "noise of another law"
        )
        spent += each.epsilon if measure is Measure.EPSILON else each.rho
    assert first.choices.keys() == second.choices.keys(), "which choices there are depends on data"
    chosen = sum(
        law_loss(each.law, second.choices[place].law, measure)
        for place, each in first.choices.items()
    )
    return float(spent / plan.budget.amount) + chosen / float(plan.budget.amount)


def table_pair(case: Case, one: Integers, two: Integers) -> tuple[float, bool]:
    """The loss of a pair in parts of the claim, and whether a release shows more than its noise
    and choices."""
    first, alone = (recorded_table(case.plan, each) for each in (one, two))
    if not np.array_equal(one, two):
        shared = set(first.recorded.names) & set(alone.recorded.names)
        assert not shared, "other data draw the same noise"
    second = recorded_table(case.plan, two, first)
    return table_loss(case.plan, first, second), shows_more(first.recorded, second.recorded)


def audit_tables(
    measure: str,
    *,
    plans: int,
    pairs: int,
    seed: int = 0,
    units: Sequence[PrivacyUnit] = TABLE_UNITS,
    named: bool = False,
) -> Finding:
    """Random wide tables, each with random pairs of neighboring tables of rows; as `exact.audit`.

    Args:
        measure: "epsilon" or "rho".
        plans, pairs, seed: as there.
        units: which units are protected; all in turn.
        named: whether pairs are measured without a choice.
    """
    rng, found = Random(f"wide tables {measure} {seed}"), Finding()
    order = rng.sample(units, len(units))
    for number in range(plans):
        case = table_case(rng, order[number % len(order)], Measure(measure), named=named)
        for _ in range(pairs):
            found.add(*table_pair(case, *neighboring_tables(rng, case)))
    return found


Row = tuple[str, str, float | None]  # its unit, its key and its value
KEYS = ("north", "south", "east")
COLUMN_AMOUNTS = (Fraction(1, 3), Fraction(1), Fraction(7, 2))
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


def sketch_workload(rng: Random, keys: KeyList | None) -> Workload[Any]:
    """A random sketch, in so few cells that values collide; it has no keys."""
    return SketchWorkload(
        name="t",
        domain=SketchDomain(column="place"),
        width=rng.choice([2, 4, 64]),
        hashes=rng.choice([1, 2, 3, 5]),
        type=rng.choice(list(SketchKind)),
    )


WORKLOADS: dict[str, Callable[[Random, KeyList | None], Workload[Any]]] = {
    "means": mean_workload,
    "different values": distinct_workload,
    "sketches": sketch_workload,
}


def unit_rows(rng: Random, unit: str, most: int) -> list[Row]:
    """Rows of a unit, all alike, or of a few kinds."""
    kinds = [(rng.choice(KEYS), rng.choice(VALUES)) for _ in range(rng.choice([1, 2, 4, 9]))]
    return [(unit, *rng.choice(kinds)) for _ in range(rng.randint(1, most))]


def neighboring_columns(rng: Random, unit: PrivacyUnit) -> Iterator[list[Row]]:
    """Two tables that differ in a unit, which is a row where none is named."""
    most = 9 if unit.columns else 1
    others: list[Row] = []
    for number in range(rng.choice([0, 0, 3, 20])):
        others += unit_rows(rng, f"u{number}", 5)
    before = unit_rows(rng, "x", most) if unit.neighbors is Neighbors.SUBSTITUTE else []
    return shuffled_pair(rng, others, before, unit_rows(rng, "x", most))


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
        budget = Budget(measure=Measure(measure), amount=rng.choice(COLUMN_AMOUNTS))
        workload = WORKLOADS[kind](rng, keys)
        question = workload.planned(Setting(unit=unit, budget=budget))
        plan = plan_of(question, budget)
        for _ in range(pairs):
            one, two = neighboring_columns(rng, unit)
            found.add(*series_loss([plan], [one], [two], "float64"))
    return found
