"""Units that are new in a period: what one of them moves, by brute force, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.bounding.row_choice import CountedUnits, TreeBounding
from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.ordered.domain_kinds import NewUnitsDomain
from dptrees.dpcore.privacy.unit import Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.release.kinds import ReadTerms, find_kind
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.runs import Series
from dptrees.dpcore.series.workload import SeriesWorkload, series_question_from_spec
from dptrees.dpcore.specification import Refusal

PERSON = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("who",), rows=5)
CHOICES = KeyedChoices(key=ReleaseKey(bytes(32)), release="r")
PERIODS = 3
WHOLE = OrderedWorkload(name="t", domain=NewUnitsDomain(column="who"))


def planned(
    measure: Measure = Measure.EPSILON, *, most: int | None = 2, unit: PrivacyUnit = PERSON
) -> SeriesQuestion:
    series = Series(periods=PERIODS, period=1, max_periods=most)
    setting = Setting(unit=unit, budget=Budget(measure=measure, amount=Fraction(3)))
    return SeriesWorkload.from_workload(WHOLE, series).planned(setting)


# For each unit, the number of its rows in each period.
Rows = tuple[tuple[int, ...], ...]


def counted(question: SeriesQuestion, rows: Rows) -> list[int]:
    """The counts of the periods, by the code that releases run."""
    known, counts = CountedUnits.none(), []
    for period in range(PERIODS):
        present = [unit for unit, each in enumerate(rows) for _ in range(each[period])]
        own = replace(question, period=period + 1)
        bounding = TreeBounding(own, CHOICES, shards=1)
        who = pa.array(present, pa.int64())
        ids = np.array([[unit + 1, 7] for unit in present], np.uint64).reshape(-1, 2)
        bounding.add(own.row_increments({"who": who}), (ids, None))
        (message,) = bounding.take()
        bounded = bounding.bounded([message.data] if message.data else [], known)
        assert bounded.units is not None
        known = bounded.units
        counts.append(0 if bounded.increments is None else len(bounded.increments.cells))
    return counts


def neighbors() -> Iterator[tuple[Rows, Rows]]:
    """All streams of two units with up to two rows in a period, and each without its last unit."""
    lives = list(product((0, 1, 2), repeat=PERIODS))
    for first, second in product(lives[::2], lives):
        yield (first, second), (first, (0,) * PERIODS)


def most_moved(question: SeriesQuestion) -> int:
    found = (
        np.abs(np.subtract(counted(question, one), counted(question, other))).sum()
        for one, other in neighbors()
    )
    return int(max(found))


def test_a_unit_moves_one_count_of_all_periods_by_one() -> None:
    question = planned()
    assert most_moved(question) == question.unit_periods == 1


def test_counts_to_date_are_those_of_different_units() -> None:
    question = planned()
    for rows, _ in neighbors():
        seen = [sum(any(each[: period + 1]) for each in rows) for period in range(PERIODS)]
        assert np.cumsum(counted(question, rows)).tolist() == seen


def test_units_that_count_in_two_periods_would_move_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeriesQuestion, "counted_periods", property(lambda _: 2))
    assert most_moved(planned()) == 2


def test_the_noise_is_that_of_one_period_however_many_others_count() -> None:
    for measure, most in product(Measure, (1, 2, PERIODS)):
        question = planned(measure, most=most)
        assert question.run.max_periods == most
        assert question.budget is not None and question.budget.amount == 3
        spent = question.spending
        assert (spent.epsilon if measure is Measure.EPSILON else spent.rho) == 3
        assert question.levels == planned(measure, most=1).levels
        assert question.counted_periods == 1


def test_the_question_is_read_back() -> None:
    question = planned()
    terms = ReadTerms(PERSON, Measure.EPSILON, None)
    again = series_question_from_spec(
        question.spec(), lambda level: find_kind(level).question(level, terms)
    )
    assert again == question and again.unit_periods == 1


def test_what_is_not_the_unit_of_all_periods_is_refused() -> None:
    with pytest.raises(Refusal, match="who is not the privacy unit"):
        planned(unit=replace(PERSON, columns=("home",)))
    with pytest.raises(ValueError, match="are those of all periods together"):
        planned(most=None)
    with pytest.raises(Refusal):
        WHOLE.planned(
            Setting(
                unit=PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("a", "b"), rows=1),
                budget=Budget(measure=Measure.RHO, amount=Fraction(1)),
            )
        )


def test_rows_without_a_unit_have_no_cell() -> None:
    column: Any = pa.array(["Ann", None, "Bob"])
    domain = NewUnitsDomain(column="who")
    (outcome,) = domain.row_outcomes({"who": column})
    assert domain.cell_ids(column).tolist() == [0, -1, 0]
    assert outcome.rows.tolist() == [False, True, False]
