"""Numbers of different values on the terminal: their plan, and what was released of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dptrees.dpcore.distinct import DistinctQuestion, ReleasedDistinct
from dptrees.dpcore.noise.laws import exact_scale
from dptrees.pipelines.description.description import (
    Column,
    Description,
    Errors,
    Table,
    Unit,
    level_noise,
)
from dptrees.pipelines.page.extent import clip
from dptrees.pipelines.plain.counted import counted_noun
from dptrees.pipelines.plain.kind_lines import KindLines
from dptrees.pipelines.plain.lines import heading, totals
from dptrees.pipelines.target import ErrorTarget

BOUNDED = (
    "a value counts if it is among the counted values of at least one unit; the number of "
    "dropped values is not known"
)


def distinct_description(question: DistinctQuestion) -> Description:
    """Describe the plan of a number of different values: the bound and the noise."""
    plan = question.plan
    noise = [level_noise(plan.law, public=False)]
    facts = {} if plan.unit.is_row else {"Values that count": values_in_words(question)}
    return Description(
        entry=lambda: _entry(question),
        errors=lambda entry: Errors(notes=() if plan.unit.is_row else (BOUNDED,)),
        size=f"the number of different values of {clip(question.domain.column)}",
        budget=question.budget,
        table=Table(
            columns=(
                Column("Noise", noise, Unit.LAW),
                Column("Noise, standard deviation", noise, Unit.DEVIATION, "std error {}"),
            ),
            rows=["different values"],
            title="Number",
            caption="Noise",
        ),
        facts=facts,
    )


def values_in_words(question: DistinctQuestion) -> str:
    """How many values of a unit count."""
    most = question.plan.max_values
    values = f"{most:,} value{'s' * (most > 1)}"
    if question.keys is not None:
        values += ", over all keys,"
    return f"at most {values} of each {question.plan.unit.name}"


def _entry(question: DistinctQuestion) -> dict[str, Any]:
    """Return the plan as plain values."""
    law = question.plan.law
    return {
        "mechanism": "count of different values",
        "max_values": question.plan.max_values,
        "noise": exact_scale(law),
        "std_error": math.sqrt(law.variance),
    }


def distinct_target(target: ErrorTarget) -> dict[str, Any]:
    """Return the budget of the tree alone for an error, in different values."""
    return target.to_entry("different values")


def distinct_summary(tree: ReleasedDistinct) -> Iterator[str]:
    """The number of different values under the first keys."""
    yield from heading(tree.question, tree.question.columns)
    yield from totals(tree, counted_noun(tree.question), lambda label, blanks: ())
    if not tree.question.plan.unit.is_row:
        yield f"  {values_in_words(tree.question)} count"


DISTINCT_LINES = KindLines(
    describe=distinct_description,
    target=distinct_target,
    summary=distinct_summary,
)
