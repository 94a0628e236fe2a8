"""A mean that is measured alone on the terminal: its plan, and what was released of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dptrees.dpcore.mean import MeanQuestion, ReleasedMean
from dptrees.dpcore.noise.laws import exact_scale
from dptrees.dpcore.noise.source import LARGEST_DIVIDED, MAX_COUNT
from dptrees.dpcore.questions.answer_errors import StatisticKind
from dptrees.pipelines.answers.figures import significant, with_margin
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

_ALONE = "no tree of counts is measured, so there are no quantiles and no other statistics"


def mean_description(question: MeanQuestion) -> Description:
    """Describe the plan of a mean: its error times the number of rows."""
    law, (lower, upper) = question.plan.law, question.ends
    middle = float(upper - lower) * question.share_error / math.sqrt(2)
    noise = [level_noise(law, public=False)]
    return Description(
        entry=lambda: _entry(question),
        errors=lambda entry: Errors(
            notes=(
                f"standard error of a mean: {significant(middle)} / rows in the middle of "
                f"the bounds, {significant(math.sqrt(2) * middle)} / rows at a bound",
                *_rows_held(question.plan.parts),
                _ALONE,
            )
        ),
        size=f"the mean of {clip(question.domain.column)}, measured alone",
        budget=question.budget,
        table=Table(
            columns=(
                Column("Noise of a part", noise, Unit.LAW),
                Column("Standard error", [question.rows_error], Unit.ERROR, "std error {}"),
            ),
            rows=["number of rows"],
            title="Number",
            caption="Noise",
        ),
    )


def _rows_held(parts: int) -> Iterator[str]:
    """How many rows the sums hold, if a table may have more."""
    if (held := LARGEST_DIVIDED // parts) < MAX_COUNT:
        yield f"its sums hold {held:,} rows at a bound; a release of more stops without a result"


def _entry(question: MeanQuestion) -> dict[str, Any]:
    """Return the plan as plain values."""
    return {
        "mechanism": "mean of split rows",
        "noise": exact_scale(question.plan.law),
        "parts_of_a_row": question.plan.parts,
        "std_error_rows": question.rows_error,
    }


def mean_target(target: ErrorTarget) -> dict[str, Any]:
    """Return the budget of the tree alone for an error of the mean, times the number of rows."""
    return target.to_entry(f"{target.question.domain.column} times rows")


def mean_summary(tree: ReleasedMean) -> Iterator[str]:
    """The number of rows and the mean of the first keys."""

    def mean(label: str | None, blanks: str) -> Iterator[str]:
        yield f"  {blanks}mean {mean_text(tree, label)}"

    yield from heading(tree.question, tree.question.domain.columns)
    yield from totals(tree, counted_noun(tree.question), mean)


def mean_text(tree: ReleasedMean, label: str | None) -> str:
    """The mean under a key with its margin; why there is none where rows are too few."""
    try:
        found = tree.statistic(StatisticKind.MEAN, key=label)
    except ValueError:
        return "not known: too few rows"
    return with_margin(found.value, found.ci_low, found.ci_high)


MEAN_LINES = KindLines(
    describe=mean_description,
    target=mean_target,
    summary=mean_summary,
)
