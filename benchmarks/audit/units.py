"""Neighboring tables that differ in one privacy unit of many rows, counted as a release does it.

    rows -> bounding -> exact counts

The unit is as heavy as it can be and placed worst: more rows than are counted, all alike, or under
every key, or of a few kinds. The rows of other units surround it, in a different order in each
table, since neither order nor other units may change which rows stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
import pyarrow as pa

from benchmarks.audit.exact import (
    KINDS,
    Case,
    Counted,
    Finding,
    are_neighbors,
    audit_pair,
    make_case,
)
from benchmarks.audit.published import STATED, sparse_pair, sparse_plan
from benchmarks.audit.recording import SECRET
from benchmarks.audit.rows import Palette, Palettes, Row, batches, random_row
from benchmarks.audit.searches import threshold_loss
from benchmarks.audit.threshold_cases import shows_more, threshold_plan, threshold_question
from benchmarks.audit.trees import sparse_draft
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.privacy.budget import Neighbors
from dptrees.dpcore.privacy.unit import NullUnits, PrivacyUnit
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.questions.place import Increments
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.release.in_memory import _bounded_increments
from dptrees.dpcore.release.plan import ReleasePlan

COLUMN, HEAVY = "person", "heavy"
OTHERS = ("a", "b", "c", "d")
# Rows a key, keys and rows that meet each other in every way: one binds, or another, or all.
BOUNDS = (
    {"rows": 1},
    {"rows": 4},
    {"rows": 3, "keys": 1},
    {"rows": 6, "keys": 2, "rows_per_key": 3},
    {"rows": 5, "keys": 3, "rows_per_key": 2},
    {"rows": 3, "rows_per_key": 2},
    {"rows": 9, "keys": 1, "rows_per_key": 2},
    {"rows": 9, "keys": 2, "rows_per_key": 1},
)
# Public counts belong to a table whose rows are the units.
KINDS_OF_UNITS = tuple(kind for kind in KINDS if kind != "hierarchies, public counts")
UNITS = tuple(
    PrivacyUnit(neighbors=neighbors, columns=(COLUMN,), nulls=nulls, **bounds)
    for bounds in BOUNDS
    for neighbors in Neighbors
    for nulls in NullUnits
)


def with_units(case: Case) -> Case:
    """A release whose tables name the unit of each row, null for some."""
    people = Palette(type=pa.string(), values=(*OTHERS, None))
    return Case(plan=case.plan, palettes={**case.palettes, COLUMN: people})


def heavy_rows(rng: Random, palettes: Palettes, unit: PrivacyUnit) -> list[Row]:
    """Rows of one unit, most often more than are counted of it, wherever they may do harm."""
    names = list(palettes)
    first = random_row(rng, palettes)
    kind = rng.randrange(5)
    if kind == 0:  # a row that has no unit, and is one of its own or none
        found = [_of(first, names, **{COLUMN: None})] if unit.nulls is NullUnits.OWN else []
        return found
    many = unit.rows + rng.randint(1, 3)
    if kind == 1:
        found = [first] * many
    elif kind == 2:
        found = [random_row(rng, palettes) for _ in range(rng.randint(1, 8))]
    else:  # under every key, alike but for it or not
        found = []
        for name in [each for each in names if each.endswith("_by") or each == "by"] or [COLUMN]:
            for value in palettes[name].values:
                row = first if kind == 3 else random_row(rng, palettes)
                found += [_of(row, names, **{name: value})] * many
    amounts = [name for name in names if name.endswith("_amount")]
    farthest = {name: rng.choice((-1e300, 1e300)) for name in amounts if rng.random() < 0.6}
    return [_of(row, names, **{COLUMN: HEAVY}, **farthest) for row in found]


def _of(row: Row, names: Sequence[str], **changed: object) -> Row:
    """A row with other values."""
    return tuple(changed.get(name, value) for name, value in zip(names, row, strict=True))


def neighboring_units(
    rng: Random, palettes: Palettes, unit: PrivacyUnit, size: int
) -> tuple[list[Row], list[Row]]:
    """Two tables; the second has one unit more, or one unit with other rows."""
    others = [random_row(rng, palettes) for _ in range(size)]
    before = heavy_rows(rng, palettes, unit) if unit.substitutes else []
    tables = [*others, *before], [*others, *heavy_rows(rng, palettes, unit)]
    for table in tables:
        rng.shuffle(table)
    return tables


def bounded_counts(
    plan: ReleasePlan, parts: Sequence[Mapping[str, pa.Array]]
) -> dict[str, Counted]:
    """The exact counts of what stays of each unit's rows, by the release's own steps."""
    choices = KeyedChoices(key=ReleaseKey(SECRET), release=plan.name)
    added: dict[str, list[Increments]] = {question.name: [] for question in plan.questions}
    rows = [pa.RecordBatch.from_pydict(dict(columns)) for columns in parts]
    for question, increments, _ in _bounded_increments(plan, rows, choices):
        added[question.name].append(increments)
    return {question.name: _counts(question, added[question.name]) for question in plan.questions}


def _counts(question: Question, added: Sequence[Increments]) -> Counted:
    if not isinstance(question, TreeQuestion):
        parts = [NodeCounts.grouped(each.cells, each.values) for each in added if len(each.cells)]
        return NodeCounts.merged(parts or [question.domain.leaf_counts(_no_rows(question))])
    counts = np.zeros(question.forest.chunking.cells, np.int64)
    for cells, values in added:
        np.add.at(counts, np.asarray(cells), 1 if values is None else values)
    return counts


def _no_rows(question: Question) -> dict[str, pa.Array]:
    return {name: pa.array([], question.value_types[name]) for name in question.columns}


def neighboring_counts(
    rng: Random, case: Case
) -> tuple[dict[str, Counted], dict[str, Counted]] | None:
    """The exact counts of two neighboring tables; None if none were found that agree on what is
    public."""
    for _ in range(60):
        tables = neighboring_units(rng, case.palettes, case.plan.unit, rng.randrange(12))
        one, two = (bounded_counts(case.plan, batches(rng, case.palettes, rows)) for rows in tables)
        if are_neighbors(case, one, two):
            return one, two
    return None


def unit_case(rng: Random, kind: str, measure: str, unit: PrivacyUnit) -> Case:
    """A random release that protects a unit; one with more keys than the unit may have, where its
    keys are bounded and the kind has any."""
    for _ in range(1 if unit.keys is None or "box" in kind else 40):
        case = make_case(rng, kind, measure, units=(unit,))
        if any(each.key_count > (unit.keys or 0) for each in case.plan.questions if each.is_keyed):
            break
    return with_units(case)


def audit_units(
    kind: str,
    measure: str,
    *,
    plans: int,
    pairs: int,
    seed: int = 0,
    units: Sequence[PrivacyUnit] = UNITS,
) -> Finding:
    """Audit as `exact.audit` does, between tables that differ in one unit of many rows.

    Args:
        kind, measure, plans, pairs, seed: as there.
        units: which units are protected; all in turn.
    """
    rng, found = Random(f"units {kind} {measure} {seed}"), Finding()
    order = rng.sample(units, len(units))
    for number in range(plans):
        case = unit_case(rng, kind, measure, order[number % len(order)])
        for _ in range(pairs):
            tables = neighboring_counts(rng, case)
            if tables is not None:
                found.add(*audit_pair(case, *tables, replay=rng.random() < 0.5))
    return found


def audit_sparse_units(
    *, plans: int, pairs: int, seed: int = 0, units: Sequence[PrivacyUnit] = UNITS
) -> Finding:
    """Audit as `published.audit_sparse` does, between tables that differ in one unit of many
    rows."""
    rng, found = Random(f"units of sparse trees {seed}"), Finding()
    order = rng.sample(units, len(units))
    for number in range(plans):
        unit, stated = order[number % len(order)], rng.choice(STATED)
        question, palettes = sparse_draft(rng, "tree", unit, *stated)
        case = with_units(Case(plan=sparse_plan(question, *stated), palettes=palettes))
        for _ in range(pairs):
            tables = neighboring_units(rng, case.palettes, unit, rng.choice([0, 3, 12, 40]))
            parts = (batches(rng, case.palettes, rows) for rows in tables)
            one, two = (bounded_counts(case.plan, each)["tree"] for each in parts)
            found.add(*sparse_pair(case.plan, one, two))
    return found


def audit_threshold_units(*, plans: int, pairs: int, seed: int = 0) -> Finding:
    """Audit as `threshold_cases.audit_thresholds` does, between tables that differ in one unit of
    many rows, one of them counted."""
    rng, found = Random(f"units of searches {seed}"), Finding()
    units = [unit for unit in UNITS if unit.rows == 1]
    for number in range(plans):
        unit = units[number % len(units)]
        question, palettes = threshold_question(rng, unit, keyed=number % 4 == 3)
        case = with_units(Case(plan=threshold_plan(question), palettes=palettes))
        epsilon, delta = question.spending.own
        for _ in range(pairs):
            tables = neighboring_units(rng, case.palettes, unit, rng.randrange(30))
            parts = (batches(rng, case.palettes, rows) for rows in tables)
            one, two = (bounded_counts(case.plan, each)[question.name] for each in parts)
            ratio = threshold_loss(question, one, two, float(delta)) / float(epsilon)
            found.add(ratio, shows_more(question, one, two))
    return found
