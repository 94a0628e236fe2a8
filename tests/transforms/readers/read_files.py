"""Plans of a few columns, and files that are read with them, as the tests of readers need them."""

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from dptrees.dpcore.bounding.unit_ids import UnitIds
from dptrees.dpcore.levels.planner import plan_tree
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    Budget,
    Measure,
    Neighbors,
    PrivacyUnit,
    UnitType,
)
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.uniform.plan import TreeSetting
from dptrees.transforms.readers import csv_rows
from dptrees.transforms.readers.csv_format import CsvFormat
from dptrees.transforms.readers.formats import find_reader
from dptrees.transforms.readers.read import FileSplit

CHOICES = KeyedChoices(key=ReleaseKey(bytes(range(32))), release="units")


def make_plan(*domains: OrderedDomain, unit: PrivacyUnit = ADD_REMOVE_ROW) -> ReleasePlan:
    """Make the plan of a tree for each domain."""
    budget = Budget(measure=Measure.EPSILON, amount=1)
    questions = [
        OrderedQuestion(
            name=f"tree{index}",
            domain=domain,
            mechanism=UniformMechanism(
                plan=plan_tree(TreeSetting(leaves=domain.cells, budget=budget.share(1), unit=unit))
            ),
        )
        for index, domain in enumerate(domains)
    ]
    whole = Budget(measure=Measure.EPSILON, amount=len(questions))
    return ReleasePlan(name="csv", unit=unit, budget=whole, questions=tuple(questions))


def text_plan(*columns: str) -> ReleasePlan:
    """Make a plan that reads columns as text."""
    return make_plan(*(CategoryDomain(column=name, categories=("1", "2")) for name in columns))


def column_unit(column: str, **fields: Any) -> PrivacyUnit:
    """Return the unit that a column names."""
    return PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=(column,), **fields)


def unit_plan(type: UnitType | None = None) -> ReleasePlan:
    """Make the plan of a tree of `x` and of units that `id` names."""
    domain = StepDomain(kind="integer", column="x", lower=0, upper=10)
    return make_plan(domain, unit=column_unit("id", type=type))


def unit_ids(column: pa.Array, type: UnitType | None = None) -> list[str | None]:
    """Return the id of each row's unit; None of a row without one."""
    made, missing = UnitIds(CHOICES, type).row_ids([column])
    none = [False] * len(made) if missing is None else missing.tolist()
    return [None if no else each.tobytes().hex() for each, no in zip(made, none, strict=True)]


def read_batches(format: str, path: str, plan: ReleasePlan) -> Iterator[pa.RecordBatch]:
    """The batches of all splits of a file."""
    reader = find_reader(format)
    for start, stop in reader.splits(path, path, plan)[0]:
        yield from reader.batches(path, FileSplit(path, start, stop, 0), plan)


def read_csv(
    data: bytes, plan: ReleasePlan, *, block: int, limit: int, **rules: Any
) -> list[tuple[Any, ...]]:
    """The rows of CSV in memory, in blocks of some bytes and rows of at most a limit."""
    csv = CsvFormat(row_bytes=limit, block_bytes=block, **rules)
    batches = csv_rows.batches(io.BytesIO(data), FileSplit("x.csv", 0, 0, 0), plan, csv)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
