"""Bounds of values in the first stage of a release: their questions, and what a person reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from dptrees.dpcore.choices.value_bounds import (
    ValueBoundsPlan,
    ValueBoundsQuestion,
    least_tolerated,
)
from dptrees.dpcore.privacy.unit import Budget, PrivacyUnit
from dptrees.dpcore.release.composition import Guarantee
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.value_bounds.auto import LOWER, AutoRange

# Units beyond a bound, in typical errors of a count.
TOLERATED_ERRORS = 2


class RangeChoice(NamedTuple):
    """Bounds of a column that are chosen once, for all trees whose sections have the same ones.

    Attributes:
        auto: the bounds.
        trees: the names of the trees, in their order.
        first: the place of the first of them in the configuration.
    """

    auto: AutoRange
    trees: tuple[str, ...]
    first: int

    @property
    def name(self) -> str:
        """The name of the choice among the trees of the first stage."""
        return f"range-{self.first}"

    @property
    def key(self) -> str:
        """The key of the first bound in the configuration."""
        return f"trees[{self.first}].domain.{self.auto.ends[0][0]}"


def range_choices(trees: Sequence[tuple[str, AutoRange | None]]) -> tuple[RangeChoice, ...]:
    """The choices that the trees of a configuration need; equal sections share one.

    Args:
        trees: name, and the bounds that are chosen, of each tree.
    """
    groups: dict[AutoRange, list[int]] = {}
    for index, (_, auto) in enumerate(trees):
        if auto is not None:
            groups.setdefault(auto, []).append(index)
    return tuple(
        RangeChoice(auto, tuple(trees[index][0] for index in found), found[0])
        for auto, found in groups.items()
    )


def range_budget(guarantee: Guarantee, auto: AutoRange) -> Budget:
    """The budget of both bounds of a range together."""
    amounts = [guarantee.budget.share(end.share).amount for _, end in auto.ends]
    return Budget(measure=guarantee.budget.measure, amount=sum(amounts, Fraction(0)))


def range_question(
    choice: RangeChoice, guarantee: Guarantee, unit: PrivacyUnit, error: float
) -> ValueBoundsQuestion:
    """The question of a choice.

    Args:
        choice: of the bounds of a column.
        guarantee: of the whole release.
        unit: the privacy unit, which counts once here.
        error: of a typical count, in rows, where a unit has one row.

    Raises:
        Refusal: a share is too small. Its field is the place in the configuration.
    """
    auto, candidates = choice.auto, choice.auto.candidates
    amounts = {side: guarantee.budget.share(end.share) for side, end in auto.ends}
    least = max(least_tolerated(each, unit, len(candidates)) for each in amounts.values())
    try:
        plan = ValueBoundsPlan(
            unit=unit.once,
            budget=range_budget(guarantee, auto),
            lower_amount=amounts[LOWER].amount if LOWER in amounts else Fraction(0),
            candidates=candidates,
            tolerated=max(math.ceil(TOLERATED_ERRORS * float(f"{error:.6g}")), least),
        )
    except Refusal as refusal:
        raise Refusal(f"{choice.key}.{refusal.field}", refusal.rule) from None
    return ValueBoundsQuestion(
        name=choice.name,
        column=auto.column,
        integers=auto.integers,
        trees=choice.trees,
        plan=plan,
    )


def range_questions(plan: ReleasePlan) -> Iterator[ValueBoundsQuestion]:
    """The choices of bounds of values in the plan of a first stage."""
    for question in plan.questions:
        if isinstance(question, ValueBoundsQuestion):
            yield question


def range_entries(plan: ReleasePlan) -> list[dict[str, object]]:
    """What ``dptrees plan`` says of bounds of values, as plain values."""
    return [
        {
            "column": question.column,
            "bounds": list(question.plan.sides),
            "trees": list(question.trees),
            question.budget.measure.value: float(question.budget.amount),
            "candidates": list(question.plan.candidates),
            "tolerated_units": question.plan.tolerated,
        }
        for question in range_questions(plan)
    ]


def range_lines(plan: ReleasePlan) -> Iterator[str]:
    """What ``dptrees plan`` says to a person of bounds of values."""
    for question in range_questions(plan):
        choice, budget = question.plan, question.budget
        first, last = choice.candidates[0], choice.candidates[-1]
        noun = "rows" if question.unit.is_row else "units"
        yield ""
        yield (
            f"{question.bounds_in_words}: chosen first, {budget.measure.value} "
            f"{float(budget.amount):.4g}, among {len(choice.candidates)} values from "
            f"{_number(first)} to {_number(last)}"
        )
        each = " of each" if len(choice.sides) > 1 else ""
        yield f"  about {choice.tolerated:,} {noun} are expected beyond the bound{each}"
        if question.integers:
            yield "  errors of its trees below are for the widest range that may be chosen"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.12g}"
