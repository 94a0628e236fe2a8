"""``dptrees plan``: what a release would look like and how far off it would be, before any data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.release.guarantee import stated_guarantee
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.accounting.composition import composition_entry, composition_lines
from dptrees.pipelines.accounting.target import check_bounds_given, target_lines, whole_target
from dptrees.pipelines.accounting.target_errors import TargetErrors
from dptrees.pipelines.accounting.totals import totals_entry, totals_lines, with_condition
from dptrees.pipelines.accounting.trees import tree_entries, tree_lines
from dptrees.pipelines.configuration import Configuration, load_configuration
from dptrees.pipelines.faults.log import remark
from dptrees.pipelines.kinds import find_kind
from dptrees.pipelines.selection.plan import selection_entries, selection_lines
from dptrees.pipelines.summary import guarantee_warnings
from dptrees.pipelines.target import ErrorTarget
from dptrees.pipelines.terminal_text import print_json, print_line
from dptrees.pipelines.unit_bounds.plan import bounds_entries, bounds_lines
from dptrees.pipelines.user_error import UserError


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
        # Imported here: few plans read a release.
        from dptrees.pipelines.accounting.unit_bounds import unit_bounds_entry

        entry["units"] = unit_bounds_entry(configuration, units)
    if as_json:
        print_json(entry, indent=1)
        return 0
    for line in guarantee_warnings(plan):
        remark(line)
    _print(plan, entry, wanted_delta=configuration.guarantee.delta is not None)
    if configuration.id_of_all:
        print_line(configuration.id_remark)
    return 0


def _target(
    configuration: Configuration, plan: ReleasePlan, index: int, rmse: float
) -> dict[str, Any]:
    """The budget of one tree alone at which what it is for is this far off."""
    question = plan.questions[index]
    measure = plan.budget.measure if question.budget is None else question.budget.measure
    target = ErrorTarget(
        rmse=rmse,
        place=f"trees[{index}]",
        section=configuration.trees[index],
        question=question,
        measure=measure,
        terms=configuration.terms,
        delta=None if plan.stated is None else plan.stated[1],
    )
    return find_kind(question).lines().target(target)


def _selections(plan: ReleasePlan) -> dict[str, Any]:
    """The choices of bounds and the selections of keys, where there are any."""
    first = {} if plan.bounds is None else {"bounds": bounds_entries(plan.bounds.plan)}
    if plan.selection is None:
        return first
    return first | {"selections": selection_entries(plan.selection)}


def _print(plan: ReleasePlan, entry: Mapping[str, Any], *, wanted_delta: bool) -> None:
    behind = ""
    if plan.stated is not None and plan.composed:
        behind = f", rho = {float(plan.budget.amount):g} behind it"
    if plan.promised is None and wanted_delta:
        behind = "; the Laplace noise that is best here spends no delta"
    print_line(
        f"{plan.name}: {stated_guarantee(plan)}{behind}; errors are standard errors of the "
        "estimates"
    )
    if plan.bounds is not None:
        for line in bounds_lines(plan.bounds.plan):
            print_line(line)
    if plan.selection is not None:
        for line in selection_lines(plan.selection):
            print_line(line)
    for line in composition_lines(entry["composition"]):
        print_line(line)
    for question, tree in zip(plan.questions, entry["trees"], strict=True):
        for line in tree_lines(question, tree):
            print_line(line)
        _print_target(tree.get("target"))
    for line in totals_lines(entry["total"]):
        print_line(line)
    if "target" in entry:
        for line in target_lines(entry["target"]):
            print_line(line)
    if "units" in entry:
        from dptrees.pipelines.accounting.unit_bounds import unit_bounds_lines

        for line in unit_bounds_lines(entry["units"]):
            print_line(line)


def _print_target(target: dict[str, Any] | None) -> None:
    if target is not None:
        measure = Measure.EPSILON if "epsilon" in target else Measure.RHO
        wanted = f"{measure.value} {target[measure.value]:g}"
        wanted += f" and delta {target['delta']:g}" if "delta" in target else ""
        error = with_condition(f"{target['rmse']:g} {target['unit']}", target)
        print_line(f"  for {error}: {wanted} for this tree alone")
