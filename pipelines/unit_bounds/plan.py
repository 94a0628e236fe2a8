"""Bounds of a unit that are chosen privately: the first stage of a release that has some.

The stage is a release of its own, in a folder inside the output: whole or not at all, drawn once,
found finished by a later run. What it released is public from then on. The trees are planned with
the chosen bounds and with what the stage left of the budget; both parts add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.choices.key_selection import KeyColumns
from dptrees.dpcore.choices.unit_bounds import BoundOf, BoundPlan, BoundQuestion, candidate_sizes
from dptrees.dpcore.privacy.unit import Budget, PrivacyUnit
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.composition import Guarantee
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.sections.privacy import AutoBound
from dptrees.pipelines.value_bounds.plan import (
    RangeChoice,
    range_budget,
    range_entries,
    range_lines,
    range_question,
)

# Within the output.
FOLDER = "bounds"
# Of the typical error of a tree where a unit has one row, how many units may exceed the bound:
# prefixes and ranges lose about half of the rows that are left out.
TOLERATED_PER_ROW = 2
_PART = 2**16


class UnitKeys(NamedTuple):
    """The keys of units that are counted where their number is bounded.

    Attributes:
        columns: of the keys.
        most: how many are listed; None: nobody lists them.
    """

    columns: KeyColumns
    most: int | None


def tolerated_units(error: float) -> Fraction:
    """The number of units that may exceed a bound.

    Args:
        error: of a typical count, in rows, where a unit has one row.

    >>> float(tolerated_units(7.86))
    15.719985...
    """
    wanted = float(f"{TOLERATED_PER_ROW * error:.6g}")
    return Fraction(min(math.floor(wanted * _PART), 2**40 * _PART), _PART)


def mean_error(errors: Mapping[str, tuple[Fraction, float]]) -> float:
    """The mean error of trees by their weights.

    Args:
        errors: of each tree that counts rows, its weight and its error, by name.
    """
    total = sum((weight for weight, _ in errors.values()), Fraction(0))
    return math.fsum(float(weight / total) * error for weight, error in errors.values())


def counts_units(question: Question) -> bool:
    """Whether a tree counts each unit once, so that no bound concerns it."""
    return question.unit_increments(np.ones(1, np.int64)) is not None


def bounds_plan(
    release: str,
    guarantee: Guarantee,
    unit: PrivacyUnit,
    auto: Mapping[str, AutoBound],
    keys: UnitKeys | None,
    error: float,
    ranges: Sequence[RangeChoice] = (),
) -> ReleasePlan:
    """The plan of the first stage.

    Args:
        release: the release's id.
        guarantee: of the whole release.
        unit: the privacy unit.
        auto: the bounds of the unit that are chosen, by their keys.
        keys: of units, where these are bounded.
        error: of a typical count, in rows, where a unit has one row and the trees have what the
            stage leaves of the budget.
        ranges: the bounds of values that are chosen; at least one bound in all.

    Raises:
        Refusal: a share is too small; or there is one key, so nothing is to choose. Its field is
            the bound's key and its own.
    """
    once, tolerated = unit.once, tolerated_units(error)
    questions: list[Question] = []
    budgets = []
    for name, each in auto.items():
        of = next(bound for bound in BoundOf if bound.key == name)
        domain, at_most = None, each.at_most
        if of is BoundOf.KEYS:
            assert keys is not None
            domain, at_most = keys.columns, min(at_most, keys.most or at_most)
        try:
            plan = BoundPlan(
                unit=once,
                budget=guarantee.budget.share(each.share),
                sizes=candidate_sizes(at_most),
                tolerated=tolerated,
            )
        except Refusal as refusal:
            raise Refusal(f"privacy.{name}.{refusal.field}", refusal.rule) from None
        questions.append(BoundQuestion(name=name, of=of, domain=domain, plan=plan))
        budgets.append(plan.budget)
    for choice in ranges:
        questions.append(range_question(choice, guarantee, once, error))
        budgets.append(range_budget(guarantee, choice.auto))
    spent = sum((each.amount for each in budgets), Fraction(0))
    return ReleasePlan(
        name=f"{release}/{FOLDER}",
        unit=once,
        budget=Budget(measure=guarantee.budget.measure, amount=spent),
        questions=tuple(questions),
    )


def left_after_bounds(guarantee: Guarantee, shares: Iterable[Fraction]) -> Guarantee:
    """What the first stage leaves of the budget.

    Args:
        guarantee: of the whole release.
        shares: of the bounds that are chosen.

    Raises:
        Refusal: nothing.
    """
    spent = sum(shares, Fraction(0))
    if spent >= 1:
        raise Refusal("fraction", f"all fractions for bounds sum to {spent}, which is not below 1")
    return replace(guarantee, budget=guarantee.budget.share(1 - spent))


def with_bounds(unit: PrivacyUnit, values: Mapping[str, int]) -> PrivacyUnit:
    """The unit with the bounds that were chosen, by their keys."""
    rows, keys = values.get("max_rows", unit.rows), values.get("max_keys", unit.keys)
    return replace(unit, rows=rows, keys=keys)


def bounds_entries(plan: ReleasePlan) -> list[dict[str, object]]:
    """What ``dptrees plan`` says of the bounds, as plain values."""
    return [
        {
            "bound": question.of.key,
            question.budget.measure.value: float(question.budget.amount),
            "sizes": list(question.plan.sizes),
            "tolerated_units": float(question.plan.tolerated),
        }
        for question in _questions(plan)
    ] + range_entries(plan)


def bounds_lines(plan: ReleasePlan) -> Iterator[str]:
    """What ``dptrees plan`` says a person of the bounds."""
    for question in _questions(plan):
        choice, budget = question.plan, question.budget
        yield ""
        yield (
            f"{question.of.key}: chosen first, {budget.measure.value} {float(budget.amount):.4g}, "
            f"among {len(choice.sizes)} sizes from {choice.sizes[0]} to {choice.sizes[-1]:,}"
        )
        yield (
            f"  near the smallest bound that at most {float(choice.tolerated):,.4g} units exceed: "
            "there, a larger bound adds as much error as it saves"
        )
    yield from range_lines(plan)
    if not (bounded := list(_questions(plan))):
        return
    one = "1 row" if len(bounded) == 1 and bounded[0].of is BoundOf.ROWS else "1 for each"
    yield (
        f"  all errors below are for a bound of {one}, and grow in proportion to the chosen bound"
    )


def _questions(plan: ReleasePlan) -> Iterator[BoundQuestion]:
    for question in plan.questions:
        if isinstance(question, BoundQuestion):
            yield question
