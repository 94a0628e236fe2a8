"""The description of quantiles by the exponential mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dptrees.dpcore.exponential.plan import rank_errors, root_mean_square
from dptrees.dpcore.exponential.question import ExponentialQuestion, choice_entries
from dptrees.pipelines.show.description import Column, Description, Errors, Table, Unit
from dptrees.pipelines.show.figures import percent, rank_margin
from dptrees.pipelines.show.tree_page import Note

_RANK: Note = (
    "rank",
    "The number of rows below a value. The rank of a released quantile differs from the "
    "requested rank by at most the number of rows in the table, with the stated confidence for "
    "each quantile separately.",
)
_DENSE = (
    "the standard deviation of a rank is for densely spread rows: it is smaller if each cell has "
    "many rows, and larger if few rows are spread over many cells; the bound on the error of a "
    "rank holds for any data"
)


def exponential_description(question: ExponentialQuestion) -> Description:
    """Describe the choices of quantiles, in rising order."""
    plan, reach, confidence = question.plan, question.interval_reach, percent(question.confidence)
    measure, choices, errors = plan.budget.measure.value, choice_entries(plan), rank_errors(plan)
    margins = dict(zip(question.order, question.rank_margins, strict=True))
    most = [margins[place] for place in range(len(choices))]
    amounts = [Fraction(str(each[measure])) for each in choices]
    among, laws = ([each[name] for each in choices] for name in ("among", "law"))
    bounds, at_most = [rank_margin(*margin) for margin in most], f"at most {{}} with {confidence}"
    columns = [
        Column(f"Budget ({measure})", amounts, Unit.AMOUNT, f"{measure} {{}}"),
        Column("Chosen among", among, Unit.TEXT, "among {}"),
        Column("Rank off by, standard deviation", errors, Unit.ERROR, "rank off by {} rows"),
        Column("Rank off by at most", bounds, Unit.TEXT, at_most),
        Column("Law", laws, Unit.TEXT),
    ]
    facts: dict[str, str] = {}
    if reach is not None:
        reached = dict(zip(question.order, reach, strict=True))
        rows = [reached[place] for place in range(len(choices))]
        phrase = "interval reaches {} rows"
        columns.append(Column("Interval reaches, rows", rows, Unit.COUNT, phrase))
        facts["Intervals"] = (
            f"{100 * float(plan.interval_share):g} % of the budget, {measure} "
            f"{float(plan.interval_amount):.4g} each; with {confidence} they contain the "
            "quantile; their ends are as many ranks below and above it as the interval reaches"
        )
    return Description(
        entry=lambda: {
            "mechanism": question.kind,
            "levels": [],
            "predicted": {"rank_rmse": root_mean_square(errors)},
            **_interval_entry(question),
            "quantiles": [
                choice | {"rank_error": error, "rank_margin": margin._asdict()}
                for choice, error, margin in zip(choices, errors, most, strict=True)
            ],
            "candidates": [],
        },
        errors=lambda entry: Errors(notes=(_DENSE,)),
        method=", quantiles by the exponential mechanism, no CDF",
        budget=plan.budget,
        table=Table(
            columns=columns,
            rows=[f"{choice['q']:.6g}" for choice in choices],
            title="Quantile",
            caption="Choices",
            is_open=True,
        ),
        facts=facts,
        intervals=None,
        notes=(_RANK,),
    )


def _interval_entry(question: ExponentialQuestion) -> Mapping[str, Any]:
    """Return what intervals spend, and how far they reach; nothing without them."""
    if question.interval_reach is None:
        return {}
    reached = dict(zip(map(str, question.quantiles), question.interval_reach, strict=True))
    return {"intervals": {"share": str(question.plan.interval_share), "reach": reached}}
