"""What the tests of questions about hierarchies share: small universes of every form, questions
over them, rows, and the nodes of a hierarchy counted row by row, by the definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import (
    universe_from_codes,
    universe_from_columns,
    universe_from_paths,
)
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.irregular.plan import IrregularPlan, sum_sensitivities
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import ReleaseReader
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.rows.policies import MeasureColumn
from tests.dpcore.mechanisms import take_mechanism
from tests.dpcore.released_tables import all_rows

# State, county, block; state 9 has one county of one block: a chain. Leading zeros are kept.
CODES = ["0100", "0101", "0110", "0111", "0112", "1200", "1201", "1310", "1400", "9001"]
BLOCKS = universe_from_codes(pa.array(CODES), (1, 1, 2), levels=("state", "county", "block"))
# No node has a single child, so that no levels are pooled.
BUSHY = universe_from_codes(
    pa.array([f"{a}{b}" for a in range(3) for b in range(4)]), (1, 1), levels=("tens", "ones")
)
# A label holds the separator.
ROUTES = universe_from_columns(
    {
        "origin": pa.array(["EWR", "EWR", "JFK", "JFK", "LGA"]),
        "dest": pa.array(["MCO", "ORD", "A/B", "ORD", "ORD"]),
    }
)
# Leaves on every level.
PATHS = universe_from_paths(pa.array(["etc", "usr/bin/vi", "usr/bin/ed", "usr/lib", "var"]), "/")
UNIVERSES = {"digits": BLOCKS, "bushy": BUSHY, "columns": ROUTES, "paths": PATHS}
COLUMNS = {"digits": ("code",), "bushy": ("tens",), "columns": ("origin", "dest")}
COLUMNS["paths"] = ("path",)


def universe_domain(
    form: str, *, universe: Universe | None = None, **policies: str
) -> HierarchyDomain:
    """The domain of one of the universes."""
    return HierarchyDomain(universe=universe or UNIVERSES[form], columns=COLUMNS[form], **policies)


def hierarchy_question(
    form: str = "digits",
    *,
    name: str = "places",
    domain: HierarchyDomain | None = None,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    budget: Budget | None = None,
    keys: Sequence[str] = (),
    unknown_key: str = "drop",
    public_level: int | None = None,
    measure: MeasureColumn | None = None,
    **fields: Any,
) -> HierarchyQuestion[IrregularMechanism]:
    """A question whose budget is split equally over the levels that are not public."""
    domain = domain or universe_domain(form)
    budget = budget or Budget(measure=Measure.EPSILON, amount=Fraction(1))
    shape, first = domain.tree.shape, 0 if public_level is None else public_level + 1
    share = budget.amount / (shape.height + 1 - first)
    plan = IrregularPlan(
        tree=shape,
        unit=unit,
        budget=budget,
        level_amounts=(Fraction(0),) * first + (share,) * (shape.height + 1 - first),
        public_level=public_level,
        keyed=bool(keys),
        sensitivities=()
        if measure is None
        else sum_sensitivities(
            shape, unit, lower=measure.lower, upper=measure.upper, keyed=bool(keys)
        ),
    )
    listed = KeyList(column="race", keys=tuple(keys), unknown=unknown_key) if keys else None
    return HierarchyQuestion(
        name=name,
        domain=domain,
        mechanism=take_mechanism(IrregularMechanism, fields, plan=plan),
        keys=listed,
        measure=measure,
        **fields,
    )


def make_release_plan(*questions: Question, name: str = "places-2024") -> ReleasePlan:
    """The release of questions that share one budget."""
    budgets = [question.budget for question in questions]
    first = budgets[0]
    assert first is not None
    whole = sum((budget.amount for budget in budgets if budget is not None), Fraction())
    return ReleasePlan(
        name=name,
        unit=questions[0].unit,
        budget=Budget(measure=first.measure, amount=whole),
        questions=questions,
    )


def random_rows(seed: int = 0, size: int = 2000) -> pa.Table:
    """Rows for every universe: known leaves, unknown ones and nulls; keys; amounts."""
    rng = np.random.default_rng(seed)

    def drawn(values: Sequence[Any]) -> pa.Array:
        return pa.array([values[place] for place in rng.integers(0, len(values), size)])

    amounts = rng.normal(20, 40, size)
    amounts[:4] = [np.nan, np.inf, -np.inf, 1e300]
    return pa.table(
        {
            "code": drawn([*CODES, "0199", "77", "abcd", None]),
            "tens": drawn([*(f"{a}{b}" for a in range(3) for b in range(4)), "99", None]),
            "origin": drawn(["EWR", "JFK", "LGA", "SFO", None]),
            "dest": drawn(["MCO", "ORD", "A/B", None]),
            "path": drawn(
                ["etc", "usr/bin/vi", "usr/bin/ed", "usr/lib", "var", "usr", "x/y", None]
            ),
            "race": drawn(["white", "black", "other", None]),
            "amount": pa.array(amounts, mask=rng.random(size) < 0.05),
        }
    )


def leaf_path(form: str, row: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The labels of a row's leaf from the top, or None where it has none: row by row, by hand."""
    values = [row[name] for name in COLUMNS[form]]
    if any(value is None for value in values):
        return None
    if form == "columns":
        known = {("EWR", "MCO"), ("EWR", "ORD"), ("JFK", "A/B"), ("JFK", "ORD"), ("LGA", "ORD")}
        return (values[0], values[1]) if tuple(values) in known else None
    (text,) = values
    if form == "paths":
        known_paths = {"etc", "usr/bin/vi", "usr/bin/ed", "usr/lib", "var"}
        return tuple(text.split("/")) if text in known_paths else None
    if form == "bushy":
        return (
            (text[0], text[1])
            if len(text) == 2 and text[0] in "012" and text[1] in "0123"
            else None
        )
    return (text[0], text[1], text[2:]) if text in CODES else None


def path_text(form: str, labels: Sequence[str]) -> str:
    """How labels are joined."""
    if form in ("digits", "bushy"):
        return "".join(labels)
    return "/".join(label.replace("/", "\\/") if form == "columns" else label for label in labels)


def clamped_value(measure: MeasureColumn | None, value: float | None) -> int | None:
    """Return the amount that a row adds, computed by hand; None for a dropped row."""
    if measure is None:
        return 1
    if value is None or np.isnan(value):
        if measure.missing == "drop":
            return None
        value = 0.0
    return int(np.rint(min(max(value, measure.lower), measure.upper)))


def node_sums(
    question: HierarchyQuestion[IrregularMechanism], form: str, rows: pa.Table
) -> dict[tuple[str | None, str], int]:
    """(key label, path) -> the exact count or sum of every node that rows touch, row by row."""
    domain, keys = question.domain, question.keys
    found: dict[tuple[str | None, str], int] = {}
    for row in rows.to_pylist():
        missing = any(row[name] is None for name in COLUMNS[form])
        labels = leaf_path(form, row)
        if labels is None:
            if (domain.missing if missing else domain.unknown) == "drop":
                continue
            labels = ("other",)
        added = clamped_value(question.measure, row["amount"])
        key = None
        if keys is not None:
            key = row["race"] if row["race"] in keys.keys else "other"
            if key == "other" and keys.unknown == "drop" and "other" not in keys.keys:
                continue
        if added is None:
            continue
        for depth in range(len(labels) + 1):
            place = (key, path_text(form, labels[:depth]))
            found[place] = found.get(place, 0) + added
    return found


def leaf_counts(
    question: HierarchyQuestion[IrregularMechanism], rows: pa.Table
) -> np.ndarray[Any, Any]:
    """(keys * K,) the exact counts, or sums, of all leaves, by the question's own map."""
    columns = {name: rows[name] for name in question.columns}
    increments = question.increments(columns)
    ids, values = np.asarray(increments.cells), increments.values
    counts = np.zeros(question.forest.chunking.cells, np.int64)
    np.add.at(counts, ids, 1 if values is None else values)
    return counts


def all_nodes(release: ReleaseReader, name: str) -> pa.Table:
    """Every row of the nodes of a tree, straight from the parts, in one order for all cuts."""
    table = all_rows(release, "nodes", name)
    table = table.set_column(1, "key", table["key"].cast(pa.string()))
    return table.sort_by([("key", "ascending"), ("level", "ascending"), ("node", "ascending")])
