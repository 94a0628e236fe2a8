"""First stages of a release: bounds of values and units, and keys, that are chosen privately.

A stage is a release of its own, in a folder inside the output: whole or not at all, drawn once,
found finished by a later run. What it released is public from then on. The trees are planned
over it with the rest of the budget; both parts add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dptrees.dpcore.choices.key_selection import (
    KeyColumns,
    SelectionPlan,
    SelectionQuestion,
    counted_once,
)
from dptrees.dpcore.choices.unit_bounds import BoundOf, BoundPlan, BoundQuestion, candidate_sizes
from dptrees.dpcore.choices.value_bounds import (
    DateBoundsPlan,
    DateBoundsQuestion,
    ValueBoundsPlan,
    ValueBoundsQuestion,
)
from dptrees.dpcore.numbers import MeanQuestion
from dptrees.dpcore.privacy.unit import Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.composition import Guarantee
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.key_tables import KeyTable, TableKeys
from dptrees.dpcore.rows.keys import OTHER
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.sections.privacy import OF_TIME, AutoBound, AutoRange
from dptrees.pipelines.sections.tree import PrivateKeys

# Of the budget of a release, what all bounds of values without a fraction spend together.
RANGES_SHARE = Fraction(1, 5)


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
    """The choices that the trees of a configuration need; equal sections share one. Bounds without
    a fraction have equal parts of `RANGES_SHARE`.

    Args:
        trees: name, and the bounds that are chosen, of each tree.
    """
    groups: dict[AutoRange, list[int]] = {}
    for index, (_, auto) in enumerate(trees):
        if auto is not None:
            groups.setdefault(auto, []).append(index)
    without = sum(end.share is None for auto in groups for _, end in auto.ends)
    default = RANGES_SHARE / max(without, 1)
    return tuple(
        RangeChoice(auto.with_share(default), tuple(trees[index][0] for index in found), found[0])
        for auto, found in groups.items()
    )


def range_budget(guarantee: Guarantee, auto: AutoRange) -> Budget:
    """The budget of both bounds of a range together."""
    return guarantee.budget.share(auto.share)


def range_question(choice: RangeChoice, guarantee: Guarantee) -> ValueBoundsQuestion:
    """The question of a choice.

    Args:
        choice: of the bounds of a column.
        guarantee: of the whole release.

    Raises:
        Refusal: a share is too small. Its field is the place in the configuration.
    """
    auto, times = choice.auto, choice.auto.kind in OF_TIME
    given = [value for _, value in auto.given] if times else []
    question: type[ValueBoundsQuestion] = DateBoundsQuestion if times else ValueBoundsQuestion
    try:
        plan: Any = (DateBoundsPlan if times else ValueBoundsPlan)(
            unit=guarantee.unit.once,
            budget=range_budget(guarantee, auto),
            sides=tuple(side for side, _ in auto.ends),
            candidates=tuple(sorted({*auto.candidates, *given})),
        )
    except Refusal as refusal:
        raise Refusal(f"{choice.key}.{refusal.field}", refusal.rule) from None
    return question(
        name=choice.name,
        column=auto.column,
        integers=auto.kind == "integer",
        trees=choice.trees,
        plan=plan,
    )


def _text(value: float | date) -> str:
    number = f"{value:,}" if isinstance(value, int) else f"{value:,.12g}"
    return str(value) if isinstance(value, date) else number


# Within the output.
BOUNDS_FOLDER = "bounds"
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
    if question.unit_value is not None:
        return True
    return question.unit_increments(np.ones(1, np.int64)) is not None


def bounds_plan(
    release: str,
    guarantee: Guarantee,
    auto: Mapping[str, AutoBound],
    keys: UnitKeys | None,
    error: float,
    ranges: Sequence[RangeChoice] = (),
) -> ReleasePlan:
    """The plan of the first stage.

    Args:
        release: the release's id.
        guarantee: of the whole release.
        auto: the bounds of the unit that are chosen, by their keys.
        keys: of units, where these are bounded.
        error: of a typical count, in rows, where a unit has one row and the trees have what the
            stage leaves of the budget.
        ranges: the bounds of values that are chosen; at least one bound in all.

    Raises:
        Refusal: a share is too small; or there is one key, so nothing is to choose. Its field is
            the bound's key and its own.
    """
    once, tolerated = guarantee.unit.once, tolerated_units(error)
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
        questions.append(range_question(choice, guarantee))
        budgets.append(range_budget(guarantee, choice.auto))
    spent = sum((each.amount for each in budgets), Fraction(0))
    return ReleasePlan(
        name=f"{release}/{BOUNDS_FOLDER}",
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


def _choices(plan: ReleasePlan) -> Iterator[BoundQuestion | ValueBoundsQuestion]:
    for question in plan.questions:
        assert isinstance(question, (BoundQuestion, ValueBoundsQuestion))
        yield question


def bounds_entries(plan: ReleasePlan) -> list[dict[str, object]]:
    """What ``dptrees plan`` says of the bounds, as plain values."""
    found: list[dict[str, object]] = []
    for question in _choices(plan):
        spent = {question.budget.measure.value: float(question.budget.amount)}
        if isinstance(question, BoundQuestion):
            what: dict[str, object] = {"bound": question.of.key}
            listed: dict[str, object] = {"sizes": list(question.plan.candidates)}
            listed["tolerated_units"] = float(question.plan.tolerated)
        else:
            what = {"column": question.column, "bounds": list(question.plan.sides)}
            what["trees"] = list(question.trees)
            listed = {"candidates": question.plan.spec()["candidates"]}
            listed["clear_units"] = question.plan.clear
        found.append(what | spent | listed)
    return found


def bounds_lines(plan: ReleasePlan) -> Iterator[str]:
    """What ``dptrees plan`` says a person of the bounds of a release."""
    assert plan.bounds is not None
    means = {each.name for each in plan.questions if isinstance(each, MeanQuestion)}
    choices = list(_choices(plan.bounds.plan))
    for question in choices:
        candidates, budget = question.plan.candidates, question.budget
        noun = "sizes" if isinstance(question, BoundQuestion) else "values"
        yield ""
        yield (
            f"{question.bounds_in_words}: chosen first, {budget.measure.value} "
            f"{float(budget.amount):.4g}, among {len(candidates)} {noun} from "
            f"{_text(candidates[0])} to {_text(candidates[-1])}"
        )
        if isinstance(question, BoundQuestion):
            yield (
                f"  near the smallest bound that at most {float(question.plan.tolerated):,.4g} "
                "units exceed: there, a larger bound adds as much error as it saves"
            )
            continue
        units = "rows" if question.unit.is_row else "units"
        also = ", or bins next to each other with more" if isinstance(candidates[0], date) else ""
        yield (
            f"  from one noisy histogram: a bin of more than {question.plan.clear:,} {units} after "
            f"noise is clear{also}; if none is, no bound is chosen and no tree is made"
        )
        whole = type(candidates[0]) in (int, date)
        of = "its trees" if whole else "its means"
        if whole or means & set(question.trees):
            yield f"  errors of {of} below are for the widest range that may be chosen"
    if not (bounded := [each for each in choices if isinstance(each, BoundQuestion)]):
        return
    one = "1 row" if len(bounded) == 1 and bounded[0].of is BoundOf.ROWS else "1 for each"
    yield (
        f"  all errors below are for a bound of {one}, and grow in proportion to the chosen bound"
    )


# Within the output.
KEYS_FOLDER = "keys"
# Of the delta of a release, the part that selects keys where trees spend the rest.
DELTA_SHARE = Fraction(1, 2)


def distinct(trees: Sequence[PrivateKeys | None]) -> dict[PrivateKeys, int]:
    """The selections of a release, and the first tree of each.

    Args:
        trees: what selects the keys of each tree.

    Raises:
        Refusal: two trees select the keys of the same columns with other shares or thresholds; its
            field is the number of the second tree.
    """
    result: dict[PrivateKeys, int] = {}
    for index, each in enumerate(trees):
        if each is None:
            continue
        for other, first in result.items():
            if other.columns == each.columns and other != each:
                raise Refusal(
                    str(index),
                    "must have the fraction and the threshold of "
                    f"trees[{first}].group_by, which selects the same keys",
                )
        result.setdefault(each, index)
    return result


def selection_plan(
    release: str,
    guarantee: Guarantee,
    selections: Sequence[PrivateKeys],
    delta_share: Fraction,
) -> ReleasePlan:
    """The plan of the first stage.

    Args:
        release: the release's id.
        guarantee: of the whole release.
        selections: that differ, at least one.
        delta_share: the part of the delta that they spend.

    Raises:
        Refusal: there is no delta; or the shares leave nothing for the trees, or are so small that
            nothing could be selected.
    """
    if guarantee.delta is None:
        raise Refusal(
            "delta",
            "is required next to epsilon if keys are private: without a delta, no list of "
            "selected keys is safe to release",
        )
    shares = sum((each.share for each in selections), Fraction(0))
    if shares >= 1:
        raise Refusal(
            "fraction", f"all fractions for private keys sum to {shares}, which is not below 1"
        )
    unit = counted_once(guarantee.unit)
    questions = tuple(
        SelectionQuestion(
            name=f"{KEYS_FOLDER}-{number}",
            domain=each.columns,
            plan=SelectionPlan(
                unit=unit,
                epsilon=guarantee.budget.amount * each.share,
                delta=guarantee.delta * delta_share * each.share / shares,
                threshold=each.threshold,
            ),
        )
        for number, each in enumerate(selections)
    )
    epsilon, delta = (
        sum((getattr(each.spending, name) for each in questions), Fraction(0))
        for name in ("epsilon", "delta")
    )
    return ReleasePlan(
        name=f"{release}/{KEYS_FOLDER}",
        unit=unit,
        budget=Budget(measure=Measure.EPSILON, amount=epsilon),
        questions=questions,
        stated=(epsilon, delta),
    )


def left_for_trees(guarantee: Guarantee, selection: ReleasePlan) -> Guarantee:
    """What the first stage leaves of the budget."""
    epsilon, delta = selection.spending.own
    assert guarantee.delta is not None
    return replace(
        guarantee,
        budget=Budget(measure=Measure.EPSILON, amount=guarantee.budget.amount - epsilon),
        delta=guarantee.delta - delta or None,
    )


def selection_entries(plan: ReleasePlan) -> list[dict[str, object]]:
    """What ``dptrees plan`` says of the selections, as plain values."""
    return [
        {
            "columns": list(question.columns),
            "epsilon": float(question.plan.epsilon),
            "delta": float(question.plan.delta),
            "threshold": question.plan.threshold,
            "units": {
                "0.5": question.plan.law.least_units(0.5),
                "0.99": question.plan.law.least_units(0.99),
                "1": question.plan.law.certain_units,
            },
        }
        for question in _selection_questions(plan)
    ]


def selection_lines(plan: ReleasePlan) -> Iterator[str]:
    """What ``dptrees plan`` says a person of the selections."""
    for question in _selection_questions(plan):
        law, spent = question.plan.law, question.plan
        yield ""
        yield (
            f"keys of {', '.join(question.columns)}: selected first, epsilon "
            f"{float(spent.epsilon):.4g}, delta {float(spent.delta):.4g}"
        )
        yield (
            f"  a key is released with probability 1/2 from {law.least_units(0.5)} units on, with "
            f"0.99 from {law.least_units(0.99)}, and for certain from {law.certain_units}"
        )


def _selection_questions(plan: ReleasePlan) -> Iterator[SelectionQuestion]:
    for question in plan.questions:
        assert isinstance(question, SelectionQuestion)
        yield question


def selected_keys(table: KeyTable, unknown: str) -> TableKeys:
    """The keys of a tree that were selected. Beside a key "other" for all that were not, rows of a
    key of that very label are of those."""
    place = table.find_position(OTHER) if unknown == OTHER else None
    if place is not None:
        kept = [each for each in range(len(table)) if each != place]
        table = KeyTable(table.to_table().take(kept))
    return TableKeys(table=table, unknown=unknown)
