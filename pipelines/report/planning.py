"""``dptrees plan``: the trees, budgets and predicted errors of a release, before any data.

The rows that bounds of a unit cut off are read from an earlier release of the numbers of rows,
since those numbers are private. One bound is recommended, by the model of
`dpcore.choices.unit_bounds`: the least that as few units exceed as is tolerated, because a larger
one adds as much noise as it saves rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arithmetic.elementary import exp, log
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.questions.planning import UNPREDICTED, Workload
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.composition import TreeRefused, release_budget
from dptrees.dpcore.release.guarantee import budget_text, stated_guarantee
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.split import BudgetSplit
from dptrees.pipelines.config.configuration import Configuration, load_configuration
from dptrees.pipelines.config.registry import find_kind
from dptrees.pipelines.monitoring import remark
from dptrees.pipelines.process import UserError
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.report.summary import closer_quantiles, guarantee_warnings
from dptrees.pipelines.sections.document import ConfigurationError, to_refusal
from dptrees.pipelines.sections.first_stages import (
    bounds_entries,
    bounds_lines,
    selection_entries,
    selection_lines,
    tolerated_units,
)
from dptrees.pipelines.show.description import key_number, plan_entry, plan_lines
from dptrees.pipelines.show.figures import significant
from dptrees.pipelines.show.mechanisms import ErrorTarget, TargetErrors
from dptrees.pipelines.terminal_text import escaped, print_json, print_line


def totals_entry(configuration: Configuration, plan: ReleasePlan) -> dict[str, Any]:
    """The budget, and the leaves and the predicted error of each tree, as plain values; None where
    there is no number: of a tree that nobody lists, of keys that are yet to be selected, of errors
    that compare with no other tree's.

    Args:
        configuration: of the release.
        plan: of the same.
    """
    trees: list[dict[str, Any]] = []
    for section, workload, question in zip(
        configuration.trees, configuration.workloads, plan.questions, strict=True
    ):
        own = {"leaves": section.leaves, "keys": key_number(question)}
        trees.append({"name": question.name} | own | predicted_entry(workload, question))
    known = [each["leaves"] * each["keys"] for each in trees if each["leaves"] and each["keys"]]
    return {"budget": budget_text(plan), "leaves": sum(known), "trees": trees}


def predicted_entry(workload: Workload[Any], question: Question) -> dict[str, Any]:
    """A tree's predicted error, None if it compares with no other tree's, and what it holds for
    where it is not whatever the data."""
    error, unit, condition = workload.reported_error(question) or (None, None, None)
    held = {} if condition is None else {"condition": condition}
    return {"error": error, "unit": unit} | held


def with_condition(error: str, entry: Mapping[str, Any]) -> str:
    """The error of an entry for a person, and what it holds for."""
    return f"{error} {entry['condition']}" if "condition" in entry else error


def totals_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    """The same for a person, one line a tree."""
    trees = entry["trees"]
    number = f"{len(trees)} tree{'s' if len(trees) > 1 else ''}"
    yield ""
    leaves = f", {entry['leaves']:,} leaves" if entry["leaves"] else ""
    yield f"in all: {number}{leaves}, {entry['budget']}"
    rows = [
        (
            escaped(each["name"]),
            "-" if each["leaves"] is None else f"{each['leaves']:,}",
            "-" if each["keys"] is None else f"{each['keys']:,}",
            "-"
            if each["error"] is None
            else with_condition(f"{each['error']:.4g} {each['unit']}", each),
        )
        for each in trees
    ]
    heading = ("tree", "leaves", "keys", "predicted error")
    widths = [max(len(row[place]) for row in (heading, *rows)) for place in range(3)]
    for name, leaves, keys, error in (heading, *rows):
        yield f"  {name:<{widths[0]}}  {leaves:>{widths[1]}}  {keys:>{widths[2]}}  {error}"


def composition_entry(configuration: Configuration, plan: ReleasePlan) -> dict[str, Any]:
    """The split of the budget, as plain values.

    Args:
        configuration: of the release.
        plan: of the same.
    """
    trees = [
        {
            "name": workload.name,
            "spends": _amounts(question.spending),
            **_error(workload, question),
        }
        for workload, question in zip(configuration.workloads, plan.questions, strict=True)
    ]
    split = configuration.guarantee.split.value
    return {"split": split, "stated": _stated(plan), "trees": trees}


def _stated(plan: ReleasePlan) -> dict[str, float]:
    if plan.stated is not None:
        return _amounts(Spending(epsilon=plan.stated[0], delta=plan.stated[1]))
    return {plan.budget.measure.value: float(plan.budget.amount)}


def _amounts(spending: Spending) -> dict[str, float]:
    """What is spent, without what is not."""
    amounts = {name: getattr(spending, name) for name in ("epsilon", "delta", "rho")}
    return {name: float(amount) for name, amount in amounts.items() if amount}


def _error(workload: Workload[Any], question: Any) -> dict[str, Any]:
    """The predicted error, of trees that have one that compares."""
    if workload.error_unit is None:
        return {}
    return {
        "error": workload.predicted(question),
        "unit": workload.error_unit,
        "weight": float(workload.weight),
    }


def composition_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    """The same for a person; no line if the split is by weights."""
    if entry["split"] == BudgetSplit.WEIGHTS.value:
        return
    errors = [each["error"] * each["weight"] for each in entry["trees"]]
    said = f"from {min(errors):.5g} to {max(errors):.5g}"
    if entry["split"] == BudgetSplit.LEAST_ERROR.value:
        said = f"sum to {math.fsum(errors):.5g}"
    yield f"split {entry['split']}: errors times weights {said}"
    for each in entry["trees"]:
        yield (
            f"  {escaped(each['name'])}: {_text(each['spends'])}, error "
            f"{significant(each['error'])} {each['unit']}, weight {each['weight']:g}"
        )


def _text(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {amount:.4g}" for name, amount in amounts.items())


def tree_entries(configuration: Configuration, plan: ReleasePlan) -> list[dict[str, Any]]:
    """The plans of all trees as plain values; `why` a mechanism was taken where several were open,
    and where quantiles alone would be `closer`.

    Args:
        configuration: of the release.
        plan: of it.
    """
    result, closer = [], closer_quantiles(configuration, plan)
    for workload, question in zip(configuration.workloads, plan.questions, strict=True):
        why = workload.why(question)
        entry = plan_entry(question, find_kind(question).lines().describe(question))
        more = {"why": why, "closer": closer.get(question.name)}
        result.append(entry | {key: each for key, each in more.items() if each is not None})
    return result


def tree_lines(question: Question, entry: Mapping[str, Any]) -> Iterator[str]:
    """The plan of one tree for a person.

    Args:
        question: of the tree.
        entry: one of `tree_entries`.
    """
    yield from plan_lines(question, find_kind(question).lines().describe(question), entry)
    if "why" in entry:
        yield f"  {entry['why']}"
    if "closer" in entry:
        yield f"  {entry['closer']['words']}"


def check_bounds_given(configuration: Configuration) -> None:
    """Refuse a wanted error where bounds of the unit are yet to be chosen.

    Raises:
        UserError: naming the bound.
    """
    if configuration.chooses_bounds:
        first = next(iter(configuration.bound_shares))
        raise UserError(
            f"--target-error: needs {first} as a number: all errors grow with the bound "
            "that would be chosen"
        )


def whole_target(configuration: Configuration, errors: Mapping[int, float]) -> dict[str, Any]:
    """The least budget of a whole release at which errors are at most as wanted, and the errors
    there, as plain values.

    Args:
        configuration: of the release, whose split, delta and choices hold.
        errors: that are wanted, by the places of the trees.

    Raises:
        UserError: there is no such budget.
    """
    check_bounds_given(configuration)
    guarantee, workloads = configuration.guarantee, configuration.workloads
    try:
        amount = release_budget(errors, guarantee, workloads)
    except ValueError as problem:
        _check_predicted(configuration, errors)
        raise UserError(f"--target-error: the whole release: {to_refusal(problem).rule}") from None
    measure = guarantee.budget.measure
    at = replace(guarantee, budget=Budget(measure=measure, amount=amount))
    plan = replace(configuration, guarantee=at).plan()
    found: dict[str, Any] = {measure.value: float(amount)}
    if guarantee.delta is not None:
        found["delta"] = float(guarantee.delta)
    return found | {
        "split": guarantee.split.value,
        "trees": [
            {"name": workload.name, "wanted": errors.get(index)}
            | predicted_entry(workload, question)
            for index, (workload, question) in enumerate(
                zip(workloads, plan.questions, strict=True)
            )
            if workload.error_unit is not None
        ],
    }


def _check_predicted(configuration: Configuration, errors: Mapping[int, float]) -> None:
    """Refuse wanted errors of trees without a predicted error.

    Raises:
        UserError: naming the tree.
    """
    questions = configuration.plan().questions
    for index in errors:
        workload = configuration.workloads[index]
        if workload.error_unit is None and workload.predicted(questions[index]) == UNPREDICTED:
            raise UserError(f"--target-error: tree {workload.name} has no predicted error")


def target_lines(target: Mapping[str, Any]) -> Iterator[str]:
    """The same for a person."""
    amounts = (name for name in ("epsilon", "rho", "delta") if name in target)
    budget = " and ".join(f"{name} {target[name]:g}" for name in amounts)
    yield ""
    yield f"for the whole release, split by {target['split']}: {budget}; predicted errors:"
    for tree in target["trees"]:
        wanted = "" if tree["wanted"] is None else f" (at most {tree['wanted']:g} wanted)"
        error = with_condition(f"{significant(tree['error'])}{wanted}, {tree['unit']}", tree)
        yield f"  {escaped(tree['name'])}: {error}"


# Of the rows, the parts that bounds are shown for.
_KEPT = (0.5, 0.75, 0.9, 0.95, 0.99)
# Numbers of units below so many standard errors are mostly noise; what they follow is read off
# between these and so many.
_SURE = (3.0, 12.0)
_NEAR = 0.5
# Of an interval, in standard errors.
_WIDTH = 4.0
_LEAST_POWER = 0.5


def unit_bounds_entry(configuration: Configuration, path: str) -> dict[str, Any]:
    """Bounds of the rows of a unit, what each leaves out, and the errors of the plan with it.

    Args:
        configuration: of the release to be planned.
        path: of a release that has a tree of units by their rows.

    Returns:
        `release`, its `budget` and its `most`; `recommended`, a bound; `bounds`, each with
        `max_rows`, `rows_left_out` (a part of all rows), `units_cut` (a part of all units) and
        `errors` by tree (None where the tree cannot be planned with it).

    Raises:
        UserError: the folder has no such tree, or is of another unit, or found no units.
    """
    folder = ReleaseFolder(path)
    unit, released = configuration.guarantee.unit, folder.plan.unit
    if unit.is_row:
        raise UserError("--units: the unit of the configuration is the row, which needs no bound")
    counted = [
        each
        for each in folder.plan.questions
        if each.unit_increments(np.ones(1, np.int64)) is not None
    ]
    if not counted:
        raise UserError(
            f"--units: {path} has no tree whose domain has the type unit_rows, which says how "
            "many rows units have"
        )
    if released.columns != unit.columns:
        raise UserError(
            f"--units: {path} is about {released.name}, but the privacy unit is {unit.name}"
        )
    units = UnitNumbers.from_table(folder.rows("cdf", counted[0].name))
    if not units.with_more[0]:
        raise UserError(f"--units: {path} found no units, so there is nothing to choose by")
    tolerated = float(tolerated_units(configuration.error_of_one_row))
    recommended = units.recommended(tolerated)
    with_more = units.with_tail(recommended, tolerated)
    given = [] if "max_rows" in configuration.auto_bounds else [unit.rows]
    return {
        "release": path,
        "budget": budget_text(folder.plan),
        "most": units.most,
        "recommended": recommended,
        "bounds": [
            _bound(configuration, rows, with_more)
            for rows in sorted({*given, recommended, *_keeping(with_more)})
        ],
    }


@dataclass(frozen=True, kw_only=True)
class UnitNumbers:
    """Noisy numbers of units by their rows.

    Args:
        with_more: (most + 1,) units of more than 0, 1, ... rows, falling.
        estimates: (most + 1,) the same without bias, falling but for noise.
        error: a typical standard error of these.
    """

    with_more: Floats
    estimates: Floats
    error: float

    @classmethod
    def from_table(cls, rows: pa.Table) -> UnitNumbers:
        """The numbers of a released tree of units.

        Args:
            rows: of its CDF: `count`, `estimate`, `ci_low` and `ci_high`, (most,) each. Counts that
                are averages have no standard error, but intervals, which are about four wide.
        """
        counts, estimates = (_above(rows[name]) for name in ("count", "estimate"))
        low, high = (np.asarray(rows[name], np.float64) for name in ("ci_low", "ci_high"))
        error = math.sqrt(math.fsum(((high - low) ** 2).tolist()) / len(low)) / _WIDTH
        return cls(with_more=counts, estimates=estimates, error=error)

    @property
    def most(self) -> int:
        """The rows from which on units are not distinguished."""
        return len(self.with_more) - 1

    def recommended(self, tolerated: float) -> int:
        """The least bound that no more than some units exceed.

        Fewer than three standard errors of units are mostly noise. The bound is then halfway, in
        ratio, between where the estimates fall to half a standard error, and where the power law
        through twelve and three standard errors falls to the tolerated number.

        Args:
            tolerated: how many units may exceed it.
        """
        sure, many = (_first_below(self.with_more, times * self.error) for times in _SURE)
        if tolerated >= _SURE[0] * self.error:
            return min(_first_below(self.estimates, tolerated), self.most)
        if not 1 <= many < sure < self.most:
            return min(sure, self.most)
        seen = min(_SURE[1] * self.error, float(self.with_more[1])) / (_SURE[0] * self.error)
        power = max(log(max(seen, 1.0)) / log(sure / many), _LEAST_POWER)
        far = log(float(sure)) + log(_SURE[0] * self.error / tolerated) / power
        near = log(float(_first_below(self.estimates, max(tolerated, _NEAR * self.error))))
        return max(1, min(round(exp((near + far) / 2)), self.most))

    def with_tail(self, bound: int, tolerated: float) -> Floats:
        """Numbers of units of more rows, where what is mostly noise is the power law that falls to
        the tolerated number at a bound.

        Args:
            bound: as of `recommended`.
            tolerated: as of `recommended`.
        """
        least = _SURE[0] * self.error
        sure = _first_below(self.with_more, least)
        if not 1 <= sure < bound or not 0 < tolerated < least:
            return self.with_more
        power = log(least / tolerated) / log(bound / sure)
        tail = [least * exp(-power * log(t / sure)) for t in range(sure, self.most + 1)]
        return np.concatenate([self.with_more[:sure], tail])


def _above(up_to: Any) -> Floats:
    """Units of more than 0, 1, ... rows, from units of up to 1, 2, ... rows."""
    numbers = np.asarray(up_to, dtype=np.float64)
    result: Floats = numbers[-1] - np.concatenate([[0.0], numbers])
    return result


def _first_below(with_more: Floats, most: float) -> int:
    """The first number of rows, from 1 on, that no more units exceed; beyond the last: none."""
    below = np.flatnonzero(with_more[1:] <= most)
    return int(below[0]) + 1 if len(below) else len(with_more)


def _keeping(with_more: Floats) -> list[int]:
    """The least bounds that keep some parts of the rows."""
    kept = np.cumsum(with_more[:-1])
    found = np.searchsorted(kept, np.array(_KEPT) * kept[-1] * (1 - 1e-12)) + 1
    return [int(each) for each in found]


def _bound(configuration: Configuration, rows: int, with_more: Floats) -> dict[str, Any]:
    every, most = with_more[:-1], len(with_more) - 1
    left_out = every[min(rows, most) :].sum() / every.sum()
    return {
        "max_rows": rows,
        "rows_left_out": float(left_out),
        "units_cut": float(with_more[min(rows, most)] / with_more[0]),
        "errors": _errors(configuration, rows),
    }


def _errors(configuration: Configuration, rows: int) -> dict[str, float] | None:
    unit = replace(configuration.guarantee.unit, rows=rows)
    bounded = replace(configuration, guarantee=replace(configuration.guarantee, unit=unit))
    try:
        plan = bounded.plan()
    except (ConfigurationError, TreeRefused):
        return None
    pairs = zip(bounded.workloads, plan.questions, strict=True)
    return {each.name: each.predicted(question) for each, question in pairs}


def unit_bounds_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    """The same for a person."""
    yield (
        f"rows of a unit, from {entry['release']} ({entry['budget']}, spent in addition to this "
        f"plan; more than {entry['most']:,} count as that):"
    )
    names = next((list(each["errors"]) for each in entry["bounds"] if each["errors"]), [])
    yield "  ".join(["  max_rows", "rows left out", "units cut", *(f"{name} ±" for name in names)])
    for each in entry["bounds"]:
        errors = each["errors"] or {}
        shown = (significant(errors[name]) if name in errors else "not possible" for name in names)
        widths = (len(name) + 2 for name in names)
        is_best = each["max_rows"] == entry["recommended"]
        mark = ["recommended"] if is_best else []
        yield "  ".join(
            [
                f"{each['max_rows']:>10,}",
                f"{each['rows_left_out']:>13.1%}",
                f"{each['units_cut']:>9.1%}",
                *(text.rjust(width) for text, width in zip(shown, widths, strict=True)),
                *mark,
            ]
        )


def run_plan(
    path: str,
    *,
    target_errors: TargetErrors | None,
    rows_guess: float | None,
    units: str | None,
    as_json: bool,
    parameters: Mapping[str, str] | None = None,
) -> int:
    """Print the plan of a configuration.

    Args:
        path: of the YAML file.
        target_errors: also find the budgets that reach these errors: of the whole release, and of
            each tree alone.
        rows_guess: a public guess of the number of rows, for errors that are fractions of it.
        units: a release of the numbers of rows per unit; also show the rows that bounds cut off,
            and what the bounds cost.
        as_json: print one JSON object.
        parameters: parameters of the command line, by name.
    """
    configuration = load_configuration(path, parameters)
    if target_errors is None and rows_guess is not None:
        raise UserError("--rows-guess: goes with --target-error")
    errors = (
        {} if target_errors is None else target_errors.by_tree(configuration.workloads, rows_guess)
    )
    if errors:
        check_bounds_given(configuration)
    plan = configuration.plan()
    trees = tree_entries(configuration, plan)
    for index, error in errors.items():
        trees[index]["target"] = _target(configuration, plan, index, error)
    composed = {"composition": composition_entry(configuration, plan)}
    entry = {"trees": trees} | composed | _selections(plan)
    entry["total"] = totals_entry(configuration, plan)
    if errors:
        entry["target"] = whole_target(configuration, errors)
    if units is not None:
        entry["units"] = unit_bounds_entry(configuration, units)
    if as_json:
        print_json(entry, indent=1)
        return 0
    for line in guarantee_warnings(plan):
        remark(line)
    for line in _lines(plan, entry, wanted_delta=configuration.guarantee.delta is not None):
        print_line(line)
    if configuration.id_of_all:
        print_line(configuration.id_remark)
    return 0


def _target(
    configuration: Configuration, plan: ReleasePlan, index: int, rmse: float
) -> dict[str, Any]:
    """The budget of one tree alone at which what it is for is this far off."""
    question = plan.questions[index]
    budget = question.budget or plan.budget
    target = ErrorTarget(
        rmse=rmse,
        place=f"trees[{index}]",
        section=configuration.trees[index],
        question=question,
        setting=configuration.guarantee.setting(budget),
        delta=None if plan.stated is None else plan.stated[1],
    )
    return find_kind(question).lines().target(target)


def _selections(plan: ReleasePlan) -> dict[str, Any]:
    """The choices of bounds and the selections of keys, where there are any."""
    first = {} if plan.bounds is None else {"bounds": bounds_entries(plan.bounds.plan)}
    if plan.selection is None:
        return first
    return first | {"selections": selection_entries(plan.selection)}


def _lines(plan: ReleasePlan, entry: Mapping[str, Any], *, wanted_delta: bool) -> Iterator[str]:
    """Yield the plan for a person."""
    behind = ""
    if plan.stated is not None and plan.composed:
        behind = f", rho = {float(plan.budget.amount):g} behind it"
    if plan.promised is None and wanted_delta:
        behind = "; the Laplace noise that is best here spends no delta"
    yield (
        f"{plan.name}: {stated_guarantee(plan)}{behind}; errors are standard errors of the "
        "estimates"
    )
    if plan.bounds is not None:
        yield from bounds_lines(plan)
    if plan.selection is not None:
        yield from selection_lines(plan.selection)
    yield from composition_lines(entry["composition"])
    for question, tree in zip(plan.questions, entry["trees"], strict=True):
        yield from tree_lines(question, tree)
        if "target" in tree:
            yield _target_line(tree["target"])
    yield from totals_lines(entry["total"])
    if "target" in entry:
        yield from target_lines(entry["target"])
    if "units" in entry:
        yield from unit_bounds_lines(entry["units"])


def _target_line(target: Mapping[str, Any]) -> str:
    measure = Measure.EPSILON if "epsilon" in target else Measure.RHO
    wanted = f"{measure.value} {target[measure.value]:g}"
    wanted += f" and delta {target['delta']:g}" if "delta" in target else ""
    error = with_condition(f"{target['rmse']:g} {target['unit']}", target)
    return f"  for {error}: {wanted} for this tree alone"
