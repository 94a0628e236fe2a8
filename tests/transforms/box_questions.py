"""Questions about a box, and about a table, of three columns of the rows of every kind: counts held
in each of the ways there are, planned as a configuration would have it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dptrees.dpcore.boxes.domain import HypercubeDomain, cell_bits
from dptrees.dpcore.boxes.plan import Holding
from dptrees.dpcore.boxes.planner import PartitionChoices
from dptrees.dpcore.boxes.question import HypercubeQuestion, HypercubeWorkload
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.sketches.sketch import SketchKind
from dptrees.dpcore.tables.domain import TableDomain
from dptrees.dpcore.tables.question import TableQuestion, TableWorkload


def axes(cells: int) -> tuple[StepDomain, NumberDomain, CategoryDomain]:
    """Numbers, amounts and categories, some of them dropped."""
    return (
        StepDomain(kind="integer", column="number", lower=-5, upper=25),
        NumberDomain(column="amount", lower=-80, upper=120, cells=cells, outside="drop"),
        CategoryDomain(column="race", categories=("white", "black", "nobody"), unknown="drop"),
    )


def box_domain() -> HypercubeDomain:
    """Columns of 5, 4 and 2 bits."""
    columns = axes(cells=16)
    return HypercubeDomain(axes=columns, depths=tuple(cell_bits(each) for each in columns))


def box_question(
    name: str = "box",
    *,
    mechanism: str = "privhp",
    measure: Measure = Measure.EPSILON,
    amount: Fraction = Fraction(1),
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    **choices: Any,
) -> HypercubeQuestion:
    """The partition of the box, as it is planned for some choices."""
    workload = HypercubeWorkload(
        name=name,
        domain=box_domain(),
        choices=PartitionChoices.from_mechanism(mechanism, **{"rows": 900} | choices),
    )
    budget = Budget(measure=measure, amount=amount)
    return workload.planned(Setting(unit=unit, budget=budget))


def sketched(
    name: str, kind: SketchKind, *, rows: int, width: int = 64, **fields: Any
) -> HypercubeQuestion:
    """The same with a sketch for every level below the first ones."""
    own = {"holding": Holding.SKETCH, "sketch": kind, "hash_rows": rows, "width": width, "most": 8}
    return box_question(name, **own | fields)


def table_question(
    name: str = "table",
    *,
    measure: Measure = Measure.EPSILON,
    amount: Fraction = Fraction(1),
    unit: PrivacyUnit = ADD_REMOVE_ROW,
) -> TableQuestion:
    """The question of a table as it is planned: numbers in pairs, of 15, 10 and 3 cells."""
    workload = TableWorkload(name=name, domain=TableDomain(axes=axes(cells=20), cells=16))
    budget = Budget(measure=measure, amount=amount)
    return workload.planned(Setting(unit=unit, budget=budget))
