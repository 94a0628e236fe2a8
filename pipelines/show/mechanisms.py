"""Descriptions of mechanisms by their class in dpcore, the thresholds and quantiles among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from dptrees.dpcore.exponential.plan import rank_errors, root_mean_square
from dptrees.dpcore.exponential.question import ExponentialQuestion, choice_entries
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.levels.irregular import ThresholdMechanism
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.pipelines.show.description import Column, Description, Errors, Table, Unit
from dptrees.pipelines.show.figures import percent, rank_margin, significant
from dptrees.pipelines.show.targets import ErrorTarget
from dptrees.pipelines.show.tree_page import ADDS_UP, Note, consistent_count, interval

T = TypeVar("T")

_NOTES = (
    ("estimate", "One of a few numbers; the section of the tree explains them."),
    *consistent_count(ADDS_UP),
    *interval("It may not be centered on the estimate, and a consistent count may be outside it."),
)
# Lowest estimates that are shown, beside the highest.
LOWEST_SHOWN = 10


def threshold_description(question: HierarchyQuestion[ThresholdMechanism]) -> Description:
    """Describe the plan of a hierarchy whose counts are found between thresholds."""
    mechanism, plan = question.mechanism, question.mechanism.plan
    spent = plan.thresholds
    widths: Any = question.widths
    rounds = ["no round", *(f"round {number}" for number in range(1, len(spent.rounds) + 1))]
    left_out = len(rounds) - len(_shown(rounds))
    high = [each if math.isfinite(each) else None for each in widths.high]
    confidence = f"{100 * question.confidence:.6g} %"
    estimates, at_most = _shown(plan.estimates.tolist()), f"Rows, at most, at {confidence}"
    columns = (
        Column("Estimate", estimates, Unit.COUNT, "estimate {:>12}"),
        Column("Rows, at least", _shown(widths.low), Unit.COUNT, "rows from {}"),
        Column(at_most, _shown(widths.high), Unit.COUNT, "to {}"),
    )
    most = f"at most {plan.rows_at_most:,}, as declared beforehand"
    if plan.rows_at_most == MAX_COUNT:
        most = "at most 2^40, the most that are counted"
    predicted = mechanism.predicted_error
    return Description(
        entry=lambda: {
            "mechanism": "thresholds",
            "estimates": [
                {"estimate": float(estimate), "low": low, "high": most}
                for estimate, low, most in zip(plan.estimates, widths.low, high, strict=True)
            ],
            "rounds": [each.spec() for each in spent.rounds],
            "rows_at_most": plan.rows_at_most,
            "predicted": {mechanism.objective.metric: predicted},
        },
        method=", by thresholds",
        table=Table(
            columns=columns,
            rows=_shown(rounds),
            title="Found by",
            caption="Estimates",
            is_open=True,
            note=f"{left_out:,} between the last two are left out." if left_out else "",
        ),
        facts={
            "Budget": f"epsilon = {float(spent.epsilon):.6g}, delta = {float(spent.delta):.6g}",
            "Rounds": f"{len(spent.rounds):,}",
            "Rows of a tree": f"{most}; the upper ends of intervals and the predicted error rest "
            "on it",
            "Planned for": mechanism.objective.reads,
            "Predicted error": f"at most {significant(predicted)} {mechanism.objective.unit}",
        },
        intervals="; their lower ends are certain",
        notes=_NOTES,
        # Estimates have decimals where these distinguish the lowest ones.
        level_errors=[float(plan.estimates[0]) / 10] * (plan.tree.height + 1),
        template="mechanisms/thresholds.html.j2",
    )


def _shown(values: Sequence[T]) -> list[T]:
    """Return the lowest and the highest of the values of estimates."""
    few = len(values) <= LOWEST_SHOWN + 1
    return list(values if few else [*values[:LOWEST_SHOWN], values[-1]])


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


class Described(NamedTuple):
    """What the commands need of a mechanism.

    Attributes:
        describe: gives the description of a question's plan.
        target: gives the budget of one tree alone for an error.
    """

    describe: Callable[[Any], Description]
    target: Callable[[ErrorTarget], dict[str, Any]] = ErrorTarget.to_entry


def _later(describe: str, target: str | None = None) -> Callable[[], Described]:
    """What imports a mechanism's functions when a plan first has it: all take longer than a plan.

    Args:
        describe, target: each a module of `pipelines.show`, a colon, and the name of a function.
    """

    def imported(place: str) -> Any:
        module, _, name = place.partition(":")
        return getattr(import_module(f"dptrees.pipelines.show.{module}"), name)

    if target is None:
        return lambda: Described(imported(describe))
    return lambda: Described(imported(describe), imported(target))


# By the name of the class.
MECHANISMS: dict[str, Callable[[], Described]] = {
    "UniformMechanism": _later("levels:uniform_description", "levels:uniform_target"),
    "IrregularMechanism": _later("levels:irregular_description", "levels:irregular_target"),
    "ThresholdMechanism": _later("mechanisms:threshold_description", "levels:irregular_target"),
    "AdaptiveMechanism": _later("adaptive:adaptive_description", "adaptive:adaptive_target"),
    "FactorizedMechanism": _later("levels:factorized_description"),
    "ExponentialMechanism": _later("mechanisms:exponential_description"),
}


def mechanism_description(question: TreeQuestion[Any]) -> Description:
    """Return what the mechanism of a question says of its plan."""
    return _described(question).describe(question)


def mechanism_target(target: ErrorTarget) -> dict[str, Any]:
    """Return the budget of one tree alone for an error.

    Raises:
        UserError: there is none.
    """
    return _described(target.question).target(target)


def _described(question: TreeQuestion[Any]) -> Described:
    return MECHANISMS[type(question.mechanism).__name__]()
