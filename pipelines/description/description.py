"""The description of a tree's plan, made once and written in several forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any, NamedTuple

from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.privacy.unit import Budget
from dptrees.dpcore.questions.question import Question
from dptrees.pipelines.page.nodes import error_digits
from dptrees.pipelines.page.reading import Note

# Reason that the estimates of a level have no measurement of their own.
UNMEASURED = "not measured; estimated from the measured levels"
PUBLIC_TOTAL = "public: neighbors have the same number of rows"
CDF_ERRORS = "predicted errors of a CDF point, in rows (root mean square over all cells)"
LEVEL_ERRORS = "predicted errors, root mean square over the nodes of each level, root first"


class Unit(Enum):
    """Unit of a column's values, which decides how they are written."""

    COUNT = "count"  # of nodes or of rows
    ERROR = "error"  # in rows
    AMOUNT = "amount"  # of the budget
    FRACTION = "fraction"  # of the budget
    LAW = "law"  # of `Noise`
    DEVIATION = "deviation"  # of `Noise`, in rows
    TEXT = "text"


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Noise of the nodes of a level.

    Attributes:
        laws: from the least noise to the most; none where nothing is measured.
        exact: whether some of its nodes are public, all of them where there is no law.
        reason: why nothing is measured.
    """

    laws: tuple[NoiseLaw, ...] = ()
    exact: bool = False
    reason: str = UNMEASURED

    @property
    def deviations(self) -> list[float]:
        """Standard deviations, from the least to the most."""
        return sorted({math.sqrt(law.variance) for law in self.laws})


def level_noise(law: NoiseLaw | None, *, public: bool) -> Noise:
    """Return the noise of a level whose nodes are alike.

    Args:
        law: of its nodes.
        public: whether it is the root of a tree whose total is public.
    """
    if law is None:
        return Noise(exact=public, reason=PUBLIC_TOTAL if public else UNMEASURED)
    return Noise(laws=(law,))


class Column(NamedTuple):
    """Column of a table.

    Attributes:
        title: on the page; without one, it is not there.
        values: of each row; None: the row has none.
        unit: of the values.
        phrase: on the terminal, where "{}" is the value; likewise.
        key: of the row's JSON object; likewise.
    """

    title: str
    values: Sequence[Any]
    unit: Unit
    phrase: str = ""
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Table of levels, or of what a mechanism has in their place.

    Attributes:
        columns: all of one length.
        rows: names of the rows; None: they are the levels.
        title: of these names, on the page.
        caption: of the table on the page, before the name of the tree.
        note: what holds of several rows.
        is_open: whether the page shows it beside the numbers, and not folded.
    """

    columns: Sequence[Column] = ()
    rows: Sequence[str] | None = None
    title: str = "Level"
    caption: str = "Noise per level"
    note: str = ""
    is_open: bool = False

    def __len__(self) -> int:
        return len(self.columns[0].values) if self.columns else 0


def spent_columns(
    sizes: Sequence[int],
    amounts: Sequence[Fraction],
    noises: Sequence[Noise],
    budget: Budget,
    *,
    keyed: bool,
) -> tuple[Column, ...]:
    """Return what each level has and spends, and the noise of its nodes.

    Args:
        sizes: nodes of each level.
        amounts: of the budget.
        noises: of the levels.
        budget: of the tree.
        keyed: whether there is a tree for each key.
    """
    measure, nodes = budget.measure.value, "Nodes of each key" if keyed else "Nodes"
    fractions = [amount / budget.amount for amount in amounts]
    return (
        Column(nodes, sizes, Unit.COUNT, "{:>12} nodes"),
        Column("Part of the budget", fractions, Unit.FRACTION),
        Column(f"Budget ({measure})", amounts, Unit.AMOUNT, f"{measure} {{}}", measure),
        Column("Noise", noises, Unit.LAW, key="scale"),
        Column("Noise, standard deviation", noises, Unit.DEVIATION, "std error {}"),
    )


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Predicted errors of a plan and of others beside it.

    Attributes:
        heading: what the errors are of.
        rows: the name of a plan, its errors, None where one is not known, and what it is.
        notes: what the errors depend on.
    """

    heading: str = ""
    rows: Sequence[tuple[str, Sequence[float | None], str]] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Description:
    """How a tree is measured, and what that means for its numbers.

    A mechanism gives one for any domain; the domain adds its size and facts.

    Attributes:
        entry: computes the values of ``plan --json`` beside the name and the number of keys, which
            may take a while.
        errors: of these values.
        size: leaves of a tree, in words.
        method: how they are measured, in words that continue the size.
        budget: of the tree, None where the facts state it.
        table: of its levels.
        facts: about the mechanism, by name.
        domain_facts: about the domain, by name, which the size sums up.
        level_names: names of the levels, None where they have none.
        predicted: the error of the tree, in words.
        intervals: what holds of the intervals, after their confidence; None: see the facts.
        notes: how to read the numbers of the tree.
        level_errors: about the largest standard error of each level's estimates, which decides how
            many decimals they have.
        above: lines before the description.
        template: of what the page says of the mechanism alone, from the folder of this package.
    """

    entry: Callable[[], dict[str, Any]]
    errors: Callable[[Mapping[str, Any]], Errors] = lambda entry: Errors()
    size: str = ""
    method: str = ""
    budget: Budget | None = None
    table: Table = field(default_factory=Table)
    facts: Mapping[str, str] = field(default_factory=dict)
    domain_facts: Mapping[str, str] = field(default_factory=dict)
    level_names: Sequence[str] | None = None
    predicted: str = ""
    intervals: str | None = ""
    notes: tuple[Note, ...] = ()
    level_errors: Sequence[float] = ()
    above: tuple[str, ...] = ()
    template: str = ""

    @property
    def digits(self) -> list[int]:
        """Decimals of each level's estimates."""
        return [error_digits(error) for error in self.level_errors]


def plain_description(question: Question) -> Description:
    """Describe the plan of a tree whose kind has no description of its own."""
    return Description(
        entry=lambda: {"plan": question.law_spec()},
        size=f"a tree of kind {question.kind} of {', '.join(question.columns)}",
    )
