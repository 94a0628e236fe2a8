"""Descriptions of plans that measure levels or weighted sums, or that choose quantiles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any

from dptrees.dpcore.exponential.plan import rank_errors, root_mean_square
from dptrees.dpcore.exponential.question import ExponentialQuestion, choice_entries
from dptrees.dpcore.factorised.mechanism import FactorizedMechanism, compute_errors
from dptrees.dpcore.levels.planner import candidates, plan_tree, predicted_cdf_rmse, predicted_error
from dptrees.dpcore.levels.uniform import UniformMechanism, estimate_errors
from dptrees.dpcore.noise.laws import exact_scale
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.privacy.composition import least_epsilon
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.repair.planner import assumed_rows, can_be_simulated, count_error
from dptrees.dpcore.uniform.objectives import CdfObjective, Objective
from dptrees.dpcore.uniform.plan import (
    Consistency,
    Measured,
    TreePlan,
    TreeSetting,
    counted,
    estimate_in_words,
    moved_counts,
)
from dptrees.pipelines.process import UserError
from dptrees.pipelines.show.description import (
    CDF_ERRORS,
    PUBLIC_TOTAL,
    Column,
    Description,
    Errors,
    Table,
    Unit,
    levels_table,
    table_entries,
)
from dptrees.pipelines.show.figures import percent, rank_margin, significant
from dptrees.pipelines.show.mechanisms import ErrorTarget
from dptrees.pipelines.show.tree_page import (
    ADDS_UP,
    CENTERED,
    STANDARD_ERROR,
    Note,
    consistent_count,
    interval,
    unbiased_estimate,
)


def uniform_description(question: OrderedQuestion[UniformMechanism]) -> Description:
    """Describe the plan of a uniform tree, beside the published mechanisms."""
    mechanism = question.mechanism
    plan, shape = mechanism.plan, " x ".join(map(str, mechanism.plan.tree.fanouts)) or "1"
    errors, predicted = uniform_level_errors(plan), ""
    if question.is_ordered:
        predicted = cdf_error_in_words(predicted_cdf_rmse(plan))
    return Description(
        entry=lambda: _uniform_entry(question),
        errors=lambda entry: _compared(question, entry),
        method=f" in a tree of {shape}" if question.is_ordered else "",
        budget=plan.budget,
        table=_uniform_table(plan, error_column(errors)),
        facts=_uniform_facts(mechanism),
        predicted=predicted,
        notes=linear_notes(f"number of {getattr(question.domain, 'noun', 'rows')}"),
        level_errors=errors,
    )


def cdf_error_in_words(error: float) -> str:
    """Return the predicted error of a CDF in words."""
    return f"{error:,.4g} rows for a CDF point (root mean square over all cells)"


def linear_notes(noun: str = "number of rows", *, signed: bool = False) -> tuple[Note, ...]:
    """Explain numbers that are linear in all noisy counts."""
    of_interval = "number" if noun == "number of rows" else noun
    return (
        unbiased_estimate(noun),
        *consistent_count(ADDS_UP, signed=signed),
        *interval(CENTERED, noun=of_interval),
        STANDARD_ERROR,
    )


def _uniform_table(plan: TreePlan, *more: Column) -> Table:
    table = levels_table(plan, *more)
    ((what, count),) = counted(plan, plan.tree.height).items()
    if what == "nodes":
        return table
    texts = [f"{size:>12,} nodes" for size in plan.tree.level_sizes[:-1]]
    counts = Column("", [*texts, f"{count:>12,} {what}"], Unit.TEXT, "{}")
    sizes, *others = table.columns
    return replace(table, columns=(counts, sizes._replace(phrase=""), *others))


def error_column(errors: Sequence[float]) -> Column:
    """Return the column of the largest error of an estimate of each level."""
    return Column("Largest standard error of an estimate", errors, Unit.ERROR)


def _uniform_facts(mechanism: UniformMechanism) -> dict[str, str]:
    plan, counts = mechanism.plan, ""
    estimates = ""
    if plan.is_complement:
        estimates = "one cell has noise, and the other is the public number of rows less it"
    elif plan.measured is Measured.PREFIXES:
        estimates = "every CDF point has its own noise"
    elif not plan.is_efficient:
        estimates = f"by the estimator of a paper, not by least squares: {plan.estimator.value}"
    if mechanism.consistency is Consistency.SHRUNK:
        counts = (
            "counts of siblings are moved towards equal counts, by as much as noise may separate "
            "them"
        )
    elif mechanism.consistency is not Consistency.TOP_DOWN:
        counts = f"from the closest CDF ({mechanism.consistency.value})"
    made_for = "the counts, by a model, and not the estimates" if mechanism.for_counts else ""
    facts = {"Estimates": estimates, "Counts": counts, "Planned for": made_for}
    return {name: fact for name, fact in facts.items() if fact}


def uniform_level_errors(plan: TreePlan) -> list[float]:
    """Return the largest standard error of the estimates of each level, from the plan alone: of the
    first nodes, the middle one and the last."""
    errors = estimate_errors(plan)
    return [
        math.sqrt(
            max(
                errors.node(level, node).variance
                for node in {0, min(1, size - 1), size // 2, size - 1}
            )
        )
        for level, size in enumerate(plan.tree.level_sizes)
    ]


def _uniform_entry(question: OrderedQuestion[UniformMechanism]) -> dict[str, Any]:
    """Return the plan beside the published mechanisms; of categories without an order, beside those
    alone whose counts' errors are known."""
    mechanism = question.mechanism
    compared = candidates(mechanism.plan, mechanism.objective)
    if not question.is_ordered:
        compared = tuple(each for each in compared if each.plan.is_best)
    return {
        **_described(mechanism.plan),
        "predicted": _predicted(mechanism.plan, question),
        **_predicted_counts(mechanism),
        "candidates": [
            {
                "label": each.label,
                "estimation": each.plan.estimator.value,
                "estimate": estimate_in_words(each.plan),
                **_described(each.plan),
                "predicted": _predicted(each.plan, question),
            }
            for each in compared
        ],
    }


def _described(plan: TreePlan) -> dict[str, Any]:
    return {
        "mechanism": plan.measured.value,
        "fanouts": list(plan.tree.fanouts),
        "levels": table_entries(_uniform_table(plan)),
    }


def _predicted(plan: TreePlan, question: OrderedQuestion[UniformMechanism]) -> dict[str, float]:
    """Return the error of a CDF point, where there is a CDF, and of the objective where that is
    known: of efficient estimates, and of nodes only in the tree whose levels are weighted."""
    objective = question.mechanism.objective
    predicted = {"cdf_rmse": predicted_cdf_rmse(plan)} if question.is_ordered else {}
    with suppress(ValueError):
        if plan.is_best:
            predicted[_error_name(objective)] = predicted_error(plan, objective)
    return predicted


def _predicted_counts(mechanism: UniformMechanism) -> dict[str, Any]:
    """Return the errors of the counts, where they are requested and can be simulated."""
    plan, rows = mechanism.plan, mechanism.guessed_rows
    if (rows is None and not mechanism.for_counts) or not can_be_simulated(plan):
        return {}
    shrunk = mechanism.consistency is Consistency.SHRUNK
    rows = rows or assumed_rows(plan.setting)
    return {"predicted_counts": asdict(count_error(plan, mechanism.objective, rows, shrunk=shrunk))}


def _error_name(objective: Objective) -> str:
    return f"{objective.kind}_rmse" if objective.unit == "rows" else "quantiles_rmse_in_cells"


# The estimators of candidates, whose names dpcore gives, in words.
_ESTIMATORS = {"efficient": "least squares", "as published": "as in the paper"}


def _compared(question: OrderedQuestion[UniformMechanism], entry: Mapping[str, Any]) -> Errors:
    objective = question.mechanism.objective
    names, heading = ["cdf_rmse"], CDF_ERRORS
    if not question.is_ordered:
        names = [_error_name(objective)]
        heading = "predicted error of the count of a category, in rows (root mean square)"
    elif objective != CdfObjective():
        names.append(_error_name(objective))
        heading += f",\nand of {objective.reads}, in {objective.unit}"
    return Errors(
        heading=heading,
        rows=[
            (
                f"{each['label']}, {_ESTIMATORS.get(each['estimate'], each['estimate'])}",
                [each["predicted"].get(name) for name in names],
                shape_in_words(each["fanouts"]) if question.is_ordered else "",
            )
            for each in entry["candidates"]
        ],
        notes=tuple(counts_in_words(question.mechanism, entry, {"predicted_counts": objective})),
    )


def counts_in_words(
    mechanism: Any, entry: Mapping[str, Any], read: Mapping[str, Objective]
) -> Iterator[str]:
    """Yield the predicted errors of counts, and where their number of rows comes from.

    Args:
        mechanism: that the errors are of.
        entry: of its plan, with the errors.
        read: what is read of the counts, by the name of its errors.
    """
    rows = "a guess of" if mechanism.guessed_rows else "no guess, assuming"
    for name, objective in read.items():
        if counts := entry.get(name):
            typical, least, most = (
                significant(counts[key]) for key in ("typical", "least", "most")
            )
            yield (
                f"counts, {objective.reads}: {typical} {objective.unit} expected error by a model "
                f"({least} to {most} on public histograms; {rows} {counts['rows']:,} rows)"
            )


def shape_in_words(fanouts: Iterable[int]) -> str:
    """Return fan-outs with repetitions as powers: 16^4."""
    runs: list[list[int]] = []
    for fanout in fanouts:
        if runs and runs[-1][0] == fanout:
            runs[-1][1] += 1
        else:
            runs.append([fanout, 1])
    texts = [f"{fanout}^{count}" if count > 1 else str(fanout) for fanout, count in runs]
    return " x ".join(texts) or "1"


def uniform_target(target: ErrorTarget) -> dict[str, Any]:
    """Return the budget of one tree alone for an error, with an epsilon that a rho keeps beside a
    delta.

    Raises:
        UserError: the budget is fixed, or there is none.
    """
    if target.section.workload().has_fixed_amounts:
        raise UserError(
            f"--target-error: {target.place}.level_budgets fixes the budget; use equal or optimal"
        )
    mechanism = target.question.mechanism
    result = target.to_entry(mechanism.objective.unit if mechanism.plan.is_best else "rows")
    if target.delta is None or target.measure is not Measure.RHO:
        return result
    plan = target.planned(target.amount).plan
    epsilon = least_epsilon(moved_counts(plan), plan.budget.amount, target.delta)
    return result | {"epsilon": float(epsilon), "delta": float(target.delta)}


def factorized_description(question: OrderedQuestion[FactorizedMechanism]) -> Description:
    """Describe the plan of weighted sums."""
    mechanism, plan = question.mechanism, question.mechanism.plan
    errors = compute_errors(plan)
    predicted = math.sqrt(errors.prefixes.mean())
    level_errors = [math.sqrt(float(each.max())) for each in errors.levels]
    # In units of the sums: what a row at most adds is 1.
    deviation = math.sqrt(plan.law.variance / plan.strategy.column_norm)
    sums = (
        f"{plan.tree.leaves:,} {mechanism.strategy_in_words}, each with discrete Gaussian noise of "
        f"std error {significant(deviation)}, where a row moves all sums together by at most 1 "
        "(root of the sum of squares)"
    )
    nodes = "sums of estimated cells; no level has its own noise"
    title = "Nodes of each key" if plan.keyed else "Nodes"
    sizes = Column(title, plan.tree.level_sizes, Unit.COUNT)
    return Description(
        entry=lambda: _entry(mechanism, predicted),
        errors=_errors,
        method=f", {plan.budget.measure.value} {float(plan.budget.amount):.4f}",
        budget=plan.budget,
        table=Table(columns=(sizes, error_column(level_errors)), caption="Errors per level"),
        facts={"Measured": sums, "Nodes": nodes}
        | ({"Total": PUBLIC_TOTAL} if plan.public_total else {}),
        predicted=cdf_error_in_words(predicted),
        notes=linear_notes(),
        level_errors=level_errors,
    )


def _entry(mechanism: FactorizedMechanism, predicted: float) -> dict[str, Any]:
    plan = mechanism.plan
    tree = _planned_tree(mechanism)
    return {
        "mechanism": mechanism.kind,
        "fanouts": list(plan.tree.fanouts),
        "strategy": mechanism.strategy_in_words,
        "sums": plan.tree.leaves,
        plan.budget.measure.value: float(plan.budget.amount),
        "scale": exact_scale(plan.law),
        "row_moves": math.sqrt(plan.strategy.column_norm),
        "predicted": {"cdf_rmse": predicted},
        "candidates": [
            {"label": "factorised", "predicted": {"cdf_rmse": predicted}},
            {
                "label": "planned tree",
                "fanouts": list(tree.tree.fanouts),
                "predicted": {"cdf_rmse": predicted_cdf_rmse(tree)},
            },
        ],
    }


def _planned_tree(mechanism: FactorizedMechanism) -> TreePlan:
    """Return the plan of whole levels for the same cells and budget."""
    plan = mechanism.plan
    return plan_tree(
        TreeSetting(
            leaves=plan.tree.leaves,
            budget=plan.budget,
            unit=plan.unit,
            public_total=plan.public_total,
            keyed=plan.keyed,
        )
    )


def _errors(entry: Mapping[str, Any]) -> Errors:
    rows = []
    for each in entry["candidates"]:
        shape = shape_in_words(each["fanouts"]) if "fanouts" in each else ""
        rows.append((each["label"], [each["predicted"]["cdf_rmse"]], shape))
    return Errors(heading=CDF_ERRORS, rows=rows)


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
