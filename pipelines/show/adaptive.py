"""The description of an adaptive tree's plan: levels, thresholds, predicted errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.planner import (
    adaptive_count_error,
    if_all_split,
    most_undivided,
    noise_if_all_split,
    rows_of_adaptive,
)
from dptrees.dpcore.levels.planner import plan_tree, predicted_cdf_rmse
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.repair.planner import assumed_rows
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.objectives import CDF, RangeObjective
from dptrees.pipelines.process import UserError
from dptrees.pipelines.show.description import (
    CDF_ERRORS,
    LEVEL_ERRORS,
    Column,
    Description,
    Errors,
    Noise,
    Table,
    Unit,
    levels_table,
    table_entries,
)
from dptrees.pipelines.show.levels import (
    cdf_error_in_words,
    counts_in_words,
    uniform_level_errors,
)
from dptrees.pipelines.show.mechanisms import ErrorTarget
from dptrees.pipelines.show.tree_page import ADDS_UP, CENTERED, Note, consistent_count, interval

_SPREAD = "inside a node that was not split, the estimate of that node is spread evenly."
_UNBIASED: Note = (
    "estimate",
    "The least squares combination of all noisy counts of the resulting tree, unbiased given "
    f"that tree; {_SPREAD}",
)
_TOGETHER: Note = (
    "estimate",
    "The least squares combination of all noisy counts of the resulting tree. The same counts "
    f"chose this tree, so the estimate may be slightly biased; {_SPREAD}",
)
_ERROR: Note = (
    "standard error",
    "The typical distance between an estimate and the true number, given the split nodes. There "
    "is no standard error inside a node that was not split.",
)
_EDGES = (
    "Inside a node that was not split, it is a bound that follows from the two edges of the "
    "node, because no count is below 0."
)
_ENDS = (
    f"{CENTERED} Inside a node that was not split, it goes from 0 to the upper end of the "
    "interval of that node."
)
_MECHANISM = (
    "nodes with few rows are not split; such a node is measured a second time with the budget of "
    "the levels below it, so every path from the root to a leaf spends the whole budget"
)
_BY_MEASUREMENT = (
    "the noisy counts themselves decide which nodes are split, so decisions take no budget from "
    "the counts; estimates of nodes near the limit are off by a little more than their noise"
)

# What is read of counts, by the field of its predicted errors.
_READ = {"predicted_prefix_counts": CDF, "predicted_range_counts": RangeObjective()}


def adaptive_description(question: TreeQuestion[AdaptiveMechanism]) -> Description:
    """Describe the plan of an adaptive tree, over a domain of any kind."""
    mechanism, plan = question.mechanism, question.mechanism.plan
    is_uniform, errors = mechanism.is_ordered, _level_errors(mechanism)
    method = f"; adaptive, for {'counts' if mechanism.counts else 'estimates'}"
    predicted = ""
    if isinstance(plan.tree, UniformTree):
        method = f" in an adaptive tree of up to {' x '.join(map(str, plan.tree.fanouts)) or '1'}"
        predicted = f"{cdf_error_in_words(noise_if_all_split(plan))}, if every node is split"
    return Description(
        entry=lambda: _ordered_entry(mechanism) if is_uniform else _hierarchy_entry(question),
        errors=lambda entry: _errors(mechanism, entry),
        method=method,
        budget=plan.budget,
        table=_table(plan, errors),
        facts=_facts(mechanism),
        predicted=predicted,
        intervals=", given the resulting tree",
        notes=(
            _TOGETHER if mechanism.counts else _UNBIASED,
            *consistent_count(ADDS_UP),
            *interval(_EDGES if is_uniform else _ENDS),
            _ERROR,
        ),
        level_errors=errors,
    )


def _level_errors(mechanism: AdaptiveMechanism) -> list[float]:
    """Return the errors of each level's estimates if every node is split."""
    if mechanism.is_ordered:
        return uniform_level_errors(if_all_split(mechanism.plan))
    return list(_hierarchy_planner().split_errors(mechanism))


def _hierarchy_planner() -> Any:
    """The planner of hierarchies, which trees over ordered domains have no use for."""
    from dptrees.dpcore.adaptive import hierarchy_planner

    return hierarchy_planner


def _table(plan: AdaptivePlan, errors: list[float]) -> Table:
    levels, second = range(plan.tree.height + 1), "Second noise where not split"
    decides = [plan.decides(level) for level in levels]
    split = [plan.thresholds[level] if decides[level] else None for level in levels]
    decision, again = (
        [_noise(laws[level]) if decides[level] else None for level in levels]
        for laws in (plan.decision_laws, plan.last_laws)
    )
    at_least = "split at {} noisy rows or more"
    return levels_table(
        plan,
        Column("Split from, in noisy rows", split, Unit.COUNT, at_least, "split_from"),
        Column("", decision, Unit.LAW, key="decision_scale"),
        Column(
            f"{second}, standard deviation", again, Unit.DEVIATION, "otherwise measured again: {}"
        ),
        Column("", again, Unit.LAW, key="second_scale"),
        Column("Error if every node is split", errors, Unit.ERROR),
    )


def _noise(law: Any) -> Noise:
    return Noise(laws=() if law is None else (law,), reason="")


def _facts(mechanism: AdaptiveMechanism) -> dict[str, str]:
    plan, rows = mechanism.plan, mechanism.guessed_rows
    facts = {"Adaptive": _MECHANISM, "Decisions": _BY_MEASUREMENT}
    if plan.decision_part:
        facts["Decisions"] = (
            f"{100 * float(plan.decision_part):g} % of the budget of each level with decisions is "
            "for decisions alone, so that estimates are unbiased given the resulting tree"
        )
    if plan.public_total:
        facts["Exact"] = "the number of rows, public by declaration and not protected"
    if rows is not None:
        facts["Planned for"] = f"{rows:,.0f} rows in a tree, a public guess"
    if mechanism.is_ordered:
        most = float(f"{rows_of_adaptive(if_all_split(plan).setting, counts=mechanism.counts):.2g}")
        read = "counts" if mechanism.counts else "estimates"
        facts["Best for"] = (
            f"up to about {most:,.0f} rows; for more rows, noise on whole levels is expected to "
            f"give more accurate {read}"
        )
    return facts


def _ordered_entry(mechanism: AdaptiveMechanism) -> dict[str, Any]:
    plan, tree, compared = mechanism.plan, mechanism.plan.tree, []
    assert isinstance(tree, UniformTree)
    try:
        whole = plan_tree(if_all_split(plan).setting)
    except ValueError:
        pass  # the noise of some trees of whole levels is too small or too large
    else:
        predicted = {"cdf_rmse": predicted_cdf_rmse(whole)}
        fanouts = list(whole.tree.fanouts)
        compared = [{"label": "planned", "fanouts": fanouts, "predicted": predicted}]
    return {
        "mechanism": mechanism.kind,
        "fanouts": list(tree.fanouts),
        "decision_part": float(plan.decision_part),
        "levels": table_entries(_table(plan, _level_errors(mechanism))),
        "predicted": {
            "cdf_rmse_if_all_split": noise_if_all_split(plan),
            "rows_of_a_node_not_split": most_undivided(plan),
        },
        "candidates": compared,
        **_predicted_counts(mechanism),
    }


def _predicted_counts(mechanism: AdaptiveMechanism) -> dict[str, Any]:
    """Return the errors of the counts of prefixes and of ranges, where counts are what is read."""
    if not mechanism.counts:
        return {}
    plan, rows = mechanism.plan, mechanism.guessed_rows
    rows = assumed_rows(if_all_split(plan).setting) if rows is None else max(1, round(rows))
    errors = {
        name: adaptive_count_error(plan, objective, rows) for name, objective in _READ.items()
    }
    return {name: asdict(error) for name, error in errors.items() if error is not None}


def _hierarchy_entry(question: TreeQuestion[AdaptiveMechanism]) -> dict[str, Any]:
    """Return the plan of a hierarchy as plain values.

    ``if_all_split`` is exact: of the estimates where every node is split; of counts it is what they
    have where no node is sparse. ``for_guess`` follows from the model of
    `dpcore.adaptive.hierarchy_planner`, and ``ends`` is the level where it expects nodes to end.
    """
    mechanism, rows, domain = question.mechanism, question.mechanism.guessed_rows, question.domain
    names = domain.tree.level_names  # type: ignore[attr-defined]
    planner = _hierarchy_planner()
    predicted: dict[str, Any] = {
        "if_all_split": {"level_rmse": list(planner.split_errors(mechanism))}
    }
    if rows is not None:
        errors = planner.modelled_errors(mechanism.plan, rows, counts=mechanism.counts)
        predicted["for_guess"] = {
            "rows": rows,
            "level_rmse": list(errors.level_errors),
            "nodes_rmse": planner.predicted_rmse(mechanism),
            "ends": names[errors.ends],
        }
    own = mechanism.entry(names)
    return {name: own[name] for name in ("mechanism", "for", "levels")} | {"predicted": predicted}


def _errors(mechanism: AdaptiveMechanism, entry: Mapping[str, Any]) -> Errors:
    predicted, heading = entry["predicted"], LEVEL_ERRORS
    if mechanism.is_ordered:
        heading = CDF_ERRORS
        rows = [("adaptive, if every node is split", [predicted["cdf_rmse_if_all_split"]], "")]
        for each in entry["candidates"]:
            error = each["predicted"]["cdf_rmse"]
            rows.append(("whole levels, whatever the data", [error], ""))
    else:
        rows = [("if every node is split", predicted["if_all_split"]["level_rmse"], "")]
        if guess := predicted.get("for_guess"):
            name, ends = f"{guess['rows']:,.0f} rows, spread evenly", guess["ends"]
            rows.append((name, guess["level_rmse"], f"nodes end at level {ends}"))
    return Errors(
        heading=heading,
        rows=rows,
        notes=(
            "the error depends on the data: the fewer nodes are split, the less noise; the rows "
            f"of a node that is not split (up to about {most_undivided(mechanism.plan):,}) are "
            "assumed to be evenly spread",
            *(counts_in_words(mechanism, entry, _READ) if mechanism.is_ordered else ()),
        ),
    )


def adaptive_target(target: ErrorTarget) -> dict[str, Any]:
    """Return the budget of one adaptive tree alone at which it is this far off by its model: in the
    counts of a CDF or of ranges, or in the nodes of a hierarchy if the guess of its rows holds.

    Raises:
        UserError: there is no such budget; a hierarchy has no guess, or estimates of an ordered
            domain are read.
    """
    mechanism = target.question.mechanism
    if mechanism.counts if mechanism.is_ordered else mechanism.guessed_rows is not None:
        return target.to_entry()
    instead = "give it a guess with rows, or split every node (mechanism: tree)"
    if mechanism.is_ordered:
        instead = (
            "read its counts (optimize_for: counts), or plan it by whole levels "
            "(mechanism: planned)"
        )
    raise UserError(
        f"--target-error: {target.place} is an adaptive tree, whose error depends on the data; "
        f"{instead}"
    )
