"""What a public guess of the rows chooses of an ordered domain."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.adaptive.planner import AdaptiveTree
from dptrees.dpcore.exponential.question import ExponentialQuestion, ExponentialWorkload
from dptrees.dpcore.levels.planner import WholeLevels
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.ordered.workload import OrderedWorkload
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import ReleaseTerms, Share
from dptrees.dpcore.release.mechanism_choice import OrderedChoice
from dptrees.dpcore.rows.keys import KeyList

SHARE = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
TERMS = ReleaseTerms(unit=ADD_REMOVE_ROW)
DOMAIN = IntegerDomain(column="x", lower=0, upper=1024)


def guessed(rows: int, *, quantiles: tuple[float, ...] = (), upper: int = 1024) -> OrderedChoice:
    domain = IntegerDomain(column="x", lower=0, upper=upper)
    alone = ExponentialWorkload(name="t", domain=domain, quantiles=quantiles)
    return OrderedChoice(
        name="t",
        guessed_rows=Fraction(rows),
        whole=OrderedWorkload(name="t", domain=domain),
        adaptive=OrderedWorkload(
            name="t", domain=domain, candidate=AdaptiveTree(guessed_rows=float(rows))
        ),
        exponential=alone if quantiles else None,
    )


def test_few_rows_make_it_adaptive() -> None:
    few, many = guessed(1_000), guessed(10**7)
    planned = few.planned(SHARE, TERMS)
    assert (
        isinstance(planned.mechanism, AdaptiveMechanism) and planned.mechanism.guessed_rows == 1_000
    )
    assert planned.plan.decision_part and few.resolved(planned) is few.adaptive
    assert "chosen for the guess of 1,000 rows: an adaptive tree" in str(few.why(planned))
    other = many.planned(SHARE, TERMS)
    assert isinstance(other.mechanism, UniformMechanism) and other == many.whole.planned(
        SHARE, TERMS
    )
    assert "whole levels, as an adaptive tree is expected to be closer up to" in str(
        many.why(other)
    )
    assert few.predicted(planned) > many.predicted(other) > 0
    assert few.error_unit is None and few.linear() is few.whole


def test_other_quantiles_are_read_off_a_tree_for_counts() -> None:
    many = tuple(part / 20 for part in range(1, 20))
    closer = "an adaptive tree, as its counts are expected to be closer than whole levels'"
    for rows, kind, named in (
        (1_000, AdaptiveMechanism, closer),
        (10**7, UniformMechanism, "planned for counts, as quantiles are read off counts"),
    ):
        workload = guessed(rows, quantiles=many)
        assert workload.adaptive is not None
        counts = AdaptiveTree(counts=True, guessed_rows=float(rows))
        workload = replace(
            workload,
            for_counts=True,
            whole=replace(workload.whole, candidate=WholeLevels(for_counts=True)),
            adaptive=replace(workload.adaptive, candidate=counts),
        )
        planned = workload.planned(SHARE, TERMS)
        assert isinstance(planned.mechanism, kind)
        assert str(workload.why(planned)).endswith(named)


def test_few_quantiles_of_many_rows_are_chosen() -> None:
    workload = guessed(30_000, quantiles=(0.75, 0.5))
    planned = workload.planned(SHARE, TERMS)
    assert isinstance(planned, ExponentialQuestion) and planned.quantiles == (0.75, 0.5)
    assert "it gives no CDF" in str(workload.why(planned))
    assert workload.exponential is not None
    assert workload.predicted(planned) == workload.exponential.predicted(planned)


@pytest.mark.parametrize(
    ("rows", "quantiles", "upper", "kind"),
    [
        (20, (0.25, 0.5, 0.75), 1024, AdaptiveMechanism),
        (
            10**7,
            tuple(n / 20 for n in range(1, 20)),
            1024,
            UniformMechanism,
        ),
        (10**7, (0.0, 0.5), 1024, UniformMechanism),
        (10**9, (0.5,), 2**20, UniformMechanism),
    ],
    ids=["few rows", "many quantiles", "a minimum", "many cells"],
)
def test_other_quantiles_are_read_from_a_tree(
    rows: int, quantiles: tuple[float, ...], upper: int, kind: type
) -> None:
    question = guessed(rows, quantiles=quantiles, upper=upper).planned(SHARE, TERMS)
    assert isinstance(question.mechanism, kind)


def test_keys_that_were_selected_are_those_of_what_is_chosen() -> None:
    for rows in (1_000, 10**7):
        keys = KeyList(column="place", keys=("north", "south"))
        for quantiles in ((), (0.5,)):
            workload = guessed(rows, quantiles=quantiles).with_keys(keys)
            assert workload.planned(SHARE, TERMS).keys == keys, rows
