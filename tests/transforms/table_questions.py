"""Questions about a table of three columns of the rows that every kind of tree is released of."""

from __future__ import annotations

from fractions import Fraction

from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.planning import ReleaseTerms, Share
from dptrees.dpcore.tables.domain import TableDomain
from dptrees.dpcore.tables.question import TableQuestion, TableWorkload


def table_domain() -> TableDomain:
    """Numbers in pairs, amounts and categories, some of them dropped: 15, 10 and 3 cells."""
    return TableDomain(
        axes=(
            IntegerDomain(column="number", lower=-5, upper=25),
            NumberDomain(column="amount", lower=-80, upper=120, cells=20, outside="drop"),
            CategoryDomain(column="race", categories=("white", "black", "nobody"), unknown="drop"),
        ),
        cells=16,
    )


def table_question(
    name: str = "table",
    *,
    measure: Measure = Measure.EPSILON,
    amount: Fraction = Fraction(1),
    unit: PrivacyUnit = ADD_REMOVE_ROW,
) -> TableQuestion:
    """The question of a table as it is planned."""
    workload = TableWorkload(name=name, domain=table_domain())
    share = Share(budget=Budget(measure=measure, amount=amount))
    return workload.planned(share, ReleaseTerms(unit=unit))
