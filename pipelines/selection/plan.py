"""Private keys: the first stage of a release, which selects the keys that its trees are made of.

The stage is a release of its own, in a folder inside the output: whole or not at all, drawn once,
found finished by a later run. What it released is public from then on. The trees are planned over
it as over any list of keys, with what the stage left of the budget; both parts add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from dptrees.dpcore.choices.key_selection import SelectionPlan, SelectionQuestion, counted_once
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.questions.planning import ReleaseTerms
from dptrees.dpcore.release.composition import Guarantee
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.key_tables import KeyTable, TableKeys
from dptrees.dpcore.rows.keys import OTHER
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.sections.by import PrivateKeys

# Within the output.
FOLDER = "keys"
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
    terms: ReleaseTerms,
    selections: Sequence[PrivateKeys],
    delta_share: Fraction,
) -> ReleasePlan:
    """The plan of the first stage.

    Args:
        release: the release's id.
        guarantee: of the whole release.
        terms: what all trees have in common.
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
    unit = counted_once(terms.unit)
    questions = tuple(
        SelectionQuestion(
            name=f"{FOLDER}-{number}",
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
        name=f"{release}/{FOLDER}",
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
        for question in _questions(plan)
    ]


def selection_lines(plan: ReleasePlan) -> Iterator[str]:
    """What ``dptrees plan`` says a person of the selections."""
    for question in _questions(plan):
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


def _questions(plan: ReleasePlan) -> Iterator[SelectionQuestion]:
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
