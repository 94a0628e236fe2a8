"""A wide table on the terminal: its plan, and what was released of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dptrees.dpcore.noise.laws import exact_scale
from dptrees.dpcore.tables.question import TableQuestion
from dptrees.dpcore.tables.released import ReleasedTable
from dptrees.pipelines.answers.figures import with_margin
from dptrees.pipelines.description.description import (
    Column,
    Description,
    Errors,
    Table,
    Unit,
    level_noise,
)
from dptrees.pipelines.page.reading import STANDARD_ERROR, Note
from dptrees.pipelines.plain.counted import counted_noun
from dptrees.pipelines.plain.kind_lines import KindLines
from dptrees.pipelines.plain.lines import heading
from dptrees.pipelines.target import ErrorTarget
from dptrees.pipelines.terminal_text import escaped
from dptrees.pipelines.user_error import UserError

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
_ESTIMATE = (
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
    columns = len(domain.columns)
    laws = plan.column_law, plan.law(plan.pair_amount / plan.most_pairs)
    noises = [level_noise(law, public=False) for law in laws]
    return Description(
        entry=lambda: _entry(question),
        errors=lambda entry: Errors(notes=(NO_ERROR, *([FEW_COLUMNS] if columns == 2 else []))),
        size=f"a table of {columns} columns, {', '.join(_sizes(question))}",
        method=(
            f"; {columns * (columns - 1) // 2:,} pairs of columns to choose from"
            if columns > 2
            else ""
        ),
        budget=question.budget,
        table=Table(
            columns=(
                Column("Noise", noises, Unit.LAW),
                Column("Noise, standard deviation", noises, Unit.DEVIATION, "std error {}"),
            ),
            rows=["a cell of a column", f"a cell of a pair, where {plan.most_pairs} are chosen"],
            title="Count",
            caption="Noise",
        ),
        facts={
            "Exact counts": f"{domain.shape.length:,} counters of all columns and pairs",
        },
        domain_facts={"Columns": ", ".join(_sizes(question))},
        notes=_notes(),
    )


def _notes() -> tuple[Note, ...]:
    return (
        ("estimate", _ESTIMATE),
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


def _entry(question: TableQuestion) -> dict[str, Any]:
    """Return the plan of a table as plain values."""
    plan, domain = question.plan, question.domain
    return {
        "keys": 1,
        "mechanism": "marginals",
        "columns": dict(zip(domain.columns, domain.sizes, strict=True)),
        "counters": domain.shape.length,
        "noise": exact_scale(plan.column_law),
        "std_error": math.sqrt(plan.column_law.variance),
        "plan": plan.spec(),
    }


def table_target(target: ErrorTarget) -> dict[str, Any]:
    """
    Raises:
        UserError: in any case.
    """
    raise UserError(
        f"--target-error: {target.place} is a table, whose error no budget can be found for; "
        "name another tree"
    )


def table_summary(tree: ReleasedTable) -> Iterator[str]:
    """The count of all rows, and the chosen pairs in the order of their columns."""
    yield from heading(tree.question, tree.question.columns)
    (total,) = tree.top(1, 0)
    assert total.estimate is not None
    names = tree.question.columns
    pairs = [
        f"{escaped(names[first])} x {escaped(names[second])}"
        for first, second in sorted(tree.noisy.pairs)
    ]
    more = f" and {len(pairs) - _NAMED} more" if len(pairs) > _NAMED else ""
    counted = counted_noun(tree.question)
    yield f"  {counted} {with_margin(total.estimate, total.ci_low, total.ci_high, total.std_error)}"
    number = f"{len(pairs)} pair{'s' * (len(pairs) != 1)} of columns measured"
    yield f"  {number}: {', '.join(pairs[:_NAMED])}{more}"


TABLE_LINES = KindLines(
    describe=table_description,
    target=table_target,
    summary=table_summary,
)
