"""Wide tables: their section, their plans in words, their lines on the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from pydantic import PlainValidator, WithJsonSchema
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.noise.laws import exact_scale
from dptrees.dpcore.questions.planning import Noise
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.tables.domain import TableDomain
from dptrees.dpcore.tables.plan import MarginalsPlan, Pair
from dptrees.dpcore.tables.question import TableQuestion, TableWorkload
from dptrees.dpcore.tables.released import ReleasedTable
from dptrees.pipelines.kinds.boxes import no_target
from dptrees.pipelines.kinds.domains import read_table, table_schema
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import RuleBroken
from dptrees.pipelines.sections.rules import Amount
from dptrees.pipelines.sections.tree import TreeSection
from dptrees.pipelines.show.description import (
    Column,
    Description,
    Errors,
    Table,
    Unit,
    heading,
    level_noise,
)
from dptrees.pipelines.show.figures import counted_noun, with_margin
from dptrees.pipelines.show.mechanisms import KindLines
from dptrees.pipelines.show.tree_page import STANDARD_ERROR, Note
from dptrees.pipelines.terminal_text import escaped


class TableTree(TreeSection):
    """A wide table: every column and every pair of columns."""

    refused: ClassVar[Mapping[str, str]] = {
        "domain": "domain",
        "columns": "domain.columns",
        "cells": "domain.cells",
        "noise": "noise",
    }
    misplaced: ClassVar[Mapping[str, str]] = {
        "group_by": "a table has no keys; make the key one of its columns, with its categories",
        **dict.fromkeys(
            ("quantiles", "guess", "widths", "fanouts", "objective", "optimize_for"),
            "belongs to an ordered domain; you can query every column of a table",
        ),
        **dict.fromkeys(("measure", "invariants", "node_weights"), "belongs to a hierarchy"),
        **dict.fromkeys(("depth", "depths", "k", "sketch"), "belongs to a hypercube"),
    }
    domain: Annotated[TableDomain, PlainValidator(read_table), WithJsonSchema(table_schema())]
    weight: Amount = Fraction(1)
    noise: Annotated[str, PlainValidator(rules.choice("best", "laplace", "gaussian"))] = "best"
    target: Annotated[str | None, PlainValidator(rules.text)] = None
    pairs: Annotated[tuple[tuple[str, str], ...], PlainValidator(rules.column_pairs)] = ()

    @section_rule(mode="after")
    def _check_pairs(self) -> Self:
        try:
            self.workload()
        except Refusal as refusal:
            raise RuleBroken(refusal.rule, at=f".{refusal.field}") from None
        return self

    def workload(self) -> TableWorkload:
        return TableWorkload(
            name=self.name,
            domain=self.domain,
            weight=self.weight,
            noise=Noise(self.noise),
            target=self.target,
            pairs=self.pairs,
        )


# Columns that are named with their cells.
_NAMED = 12
NO_ERROR = (
    "the error of the synthetic rows depends on the data: on how strongly columns are associated "
    "whose pair was not chosen"
)
FEW_COLUMNS = (
    "with two columns, a box (domain.kind: hypercube) gives more accurate synthetic rows and "
    "counts, at a finer resolution"
)
LEFT_OUT = (
    "a row is left out if one of these columns has no value there (domain.missing: category counts "
    "such rows, and synthetic rows have missing values)"
)
_ESTIMATE_OF_PAIRS = (
    "The noisy count itself, which is unbiased and may be negative. The pairs were chosen with a "
    "separate part of the budget, so the choice does not bias it."
)
_COUNT = (
    "The count of the model that is fitted to all noisy tables, rounded: never negative, and "
    "equal in all tables that share a column. Synthetic rows are drawn from this model."
)
_INTERVAL = "It follows from the law of the noise, which does not depend on the data."


def table_description(question: TableQuestion) -> Description:
    """Describe the plan of a table: its columns, and the noise of their tables."""
    plan, domain = question.plan, question.domain
    columns, left = len(domain.columns), len(domain.shape.pairs) - len(plan.named)
    named = f"; measured unasked: {pair_names(question, plan.named)}" if plan.named else ""
    amounts = (*_column_amounts(plan), plan.pair_amount / plan.most_pairs)
    noises = [level_noise(plan.law(each), public=False) for each in amounts]
    return Description(
        entry=lambda: _table_entry(question),
        errors=lambda entry: Errors(notes=tuple(_remarks(question))),
        size=f"a table of {columns} columns, {', '.join(_sizes(question))}",
        method=f"{named}; {left:,} pairs of columns to choose from" if columns > 2 else named,
        budget=question.budget,
        table=Table(
            columns=(
                Column("Noise", noises, Unit.LAW),
                Column("Noise, standard deviation", noises, Unit.DEVIATION, "std error {}"),
            ),
            rows=[
                "a cell of the narrowest column",
                "a cell of the widest column",
                f"a cell of a pair, where {plan.most_pairs} are chosen",
            ],
            title="Count",
            caption="Noise",
        ),
        facts={
            "Exact counts": f"{domain.shape.length:,} counters of all columns and pairs",
        },
        domain_facts={"Columns": ", ".join(_sizes(question))},
        notes=_notes(),
    )


def _remarks(question: TableQuestion) -> Iterator[str]:
    """Say what is known of the errors of a table, and which rows it leaves out."""
    yield NO_ERROR
    if len(question.columns) == 2:
        yield FEW_COLUMNS
    dropping = [axis.column for axis in question.domain.axes if axis.missing == "drop"]
    if dropping:
        more = f" and {len(dropping) - _NAMED} more" if len(dropping) > _NAMED else ""
        yield f"{LEFT_OUT}: {', '.join(map(escaped, dropping[:_NAMED]))}{more}"


def _column_amounts(plan: MarginalsPlan) -> tuple[Fraction, Fraction]:
    """What the narrowest and the widest column spend where rows are many."""
    amounts = plan.column_amounts(plan.designs[-1])
    return min(amounts), max(amounts)


def _notes() -> tuple[Note, ...]:
    return (
        ("estimate", _ESTIMATE_OF_PAIRS),
        STANDARD_ERROR,
        ("interval", _INTERVAL),
        ("count", _COUNT),
    )


def _sizes(question: TableQuestion) -> Iterator[str]:
    """Yield each of the first columns with its number of cells."""
    named = list(zip(question.domain.columns, question.domain.sizes, strict=True))
    yield from (f"{escaped(name)} {size}" for name, size in named[:_NAMED])
    if len(named) > _NAMED:
        yield f"and {len(named) - _NAMED} more"


def _table_entry(question: TableQuestion) -> dict[str, Any]:
    """Return the plan of a table as plain values; the noise is that of the narrowest column."""
    plan, domain = question.plan, question.domain
    law = plan.law(_column_amounts(plan)[0])
    return {
        "keys": 1,
        "mechanism": "marginals",
        "columns": dict(zip(domain.columns, domain.sizes, strict=True)),
        "counters": domain.shape.length,
        "noise": exact_scale(law),
        "std_error": math.sqrt(law.variance),
        "plan": plan.spec(),
    }


def table_summary(tree: ReleasedTable) -> Iterator[str]:
    """The count of all rows, and the chosen pairs in the order of their columns."""
    yield from heading(tree.question, tree.question.columns)
    (total,) = tree.top(1, 0)
    assert total.estimate is not None
    counted = counted_noun(tree.question)
    yield f"  {counted} {with_margin(total.estimate, total.ci_low, total.ci_high, total.std_error)}"
    yield f"  {_measured(tree)}"


def _measured(tree: ReleasedTable) -> str:
    pairs = sorted(table.pair for table in tree.noisy.pairs)
    number = f"{len(pairs)} of {_pairs_in_words(len(tree.question.domain.shape.pairs))}"
    return f"{number} measured: {pair_names(tree.question, pairs) or 'none'}"


def drawn_pairs(tree: ReleasedTable) -> Iterator[str]:
    """Say which pairs of columns were measured, and warn of the others."""
    yield _measured(tree)
    for text in unmeasured_pairs(tree):
        yield f"warning: {text}"


def unmeasured_pairs(tree: ReleasedTable, most: int = _NAMED) -> Iterator[str]:
    """Say of the pairs of columns that were not measured what synthetic rows have of them.

    Args:
        tree: the table.
        most: of the pairs that are named.
    """
    shape, neighbors = tree.question.domain.shape, tree.model.graph.neighbors
    pairs = [(one, other) for one, other in shape.pairs if other not in neighbors[one]]
    if pairs:
        yield (
            f"synthetic rows associate the other {_pairs_in_words(len(pairs))} only as far as the "
            f"measured pairs imply: {pair_names(tree.question, pairs, most)}"
        )
    for column, others in zip(tree.question.columns, neighbors, strict=True):
        if not others:
            yield (
                f"no pair with {escaped(column)} was measured, so in synthetic rows this column is "
                "independent of all others"
            )


def _pairs_in_words(number: int) -> str:
    """A number of pairs, in words."""
    return f"{number:,} pair{'s' * (number != 1)} of columns"


def pair_names(question: TableQuestion, pairs: Sequence[Pair], most: int = _NAMED) -> str:
    """The first pairs, by the names of their columns."""
    names = [escaped(each) for each in question.columns]
    more = f" and {len(pairs) - most} more" if len(pairs) > most else ""
    return ", ".join(f"{names[one]} x {names[two]}" for one, two in pairs[:most]) + more


TABLE_LINES = KindLines(
    describe=table_description,
    target=no_target,
    summary=table_summary,
    drawn=drawn_pairs,
)
