"""What the report says of an ordered domain that was measured by a strategy past trees."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa

from dpcore.factorised.forest import errors_of
from dpcore.factorised.mechanism import FactorisedMechanism
from dpcore.ordered.question import OrderedQuestion
from dpcore.privacy.budget import Budget
from pipelines.factorised.lines import predicted_rmse, sums_in_words
from pipelines.ordered.measured import HowMeasured
from pipelines.ordered.page import cdf_tree
from pipelines.page.nodes import ReleasedTables
from pipelines.page.numbers import budget_share
from pipelines.page.tree_page import PageRoom, TreePage


def factorised_tree(
    release: ReleasedTables,
    question: OrderedQuestion[FactorisedMechanism],
    room: PageRoom,
) -> TreePage:
    """An ordered domain on the page, measured by weighted sums of its cells."""
    return cdf_tree(release, question, room, _how_measured)


def _how_measured(
    question: OrderedQuestion[FactorisedMechanism],
    whole: Budget,
    levels: Sequence[pa.Table],
) -> HowMeasured:
    plan, errors = question.mechanism.plan, errors_of(question.mechanism.plan)
    of_keys = " of each key" if plan.keyed else ""
    deviations = [math.sqrt(float(each.max())) for each in errors.levels]
    return HowMeasured(
        method=(
            f"{sums_in_words(question)}; {budget_share(plan.budget, whole)}. Nodes are sums of "
            "estimated cells: no level has noise of its own."
        ),
        titles=("Level", "Nodes", "Standard error of the estimate, at most"),
        rows=[
            [f"{level}", f"{size:,}", f"{deviation:,.4g}"]
            for level, (size, deviation) in enumerate(
                zip(plan.tree.level_sizes, deviations, strict=True)
            )
        ],
        predicted=(
            f"Predicted error of the CDF: {predicted_rmse(question):,.4g} rows, the root mean "
            f"square over its {question.domain.cells:,} points{of_keys}."
        ),
        errors=deviations,
    )
