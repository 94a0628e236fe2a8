"""Questions about a box of three columns of the rows that every kind of tree is released of: counts
held in each of the ways there are, planned as a configuration would have it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dptrees.dpcore.boxes.domain import HypercubeDomain, cell_bits
from dptrees.dpcore.boxes.plan import Holding
from dptrees.dpcore.boxes.planner import PartitionChoices
from dptrees.dpcore.boxes.question import HypercubeQuestion, HypercubeWorkload
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.planning import ReleaseTerms, Share
from dptrees.dpcore.sketches.sketch import SketchKind


def box_domain() -> HypercubeDomain:
    """Numbers, amounts and categories, some of them dropped: 5, 4 and 2 bits."""
    axes = (
        IntegerDomain(column="number", lower=-5, upper=25),
        NumberDomain(column="amount", lower=-80, upper=120, cells=16, outside="drop"),
        CategoryDomain(column="race", categories=("white", "black", "nobody"), unknown="drop"),
    )
    return HypercubeDomain(axes=axes, depths=tuple(cell_bits(axis) for axis in axes))


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
    share = Share(budget=Budget(measure=measure, amount=amount))
    return workload.planned(share, ReleaseTerms(unit=unit))


def sketched(
    name: str, kind: SketchKind, *, rows: int, width: int = 64, **fields: Any
) -> HypercubeQuestion:
    """The same with a sketch for every level below the first ones."""
    own = {"holding": Holding.SKETCH, "sketch": kind, "hash_rows": rows, "width": width, "most": 8}
    return box_question(name, **own | fields)
