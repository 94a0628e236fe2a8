"""The first stage in memory: from rows to the units of each size, and what is released."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.choices.key_selection import KeyColumns
from dptrees.dpcore.choices.unit_bounds import BoundOf, BoundPlan, BoundQuestion, ReleasedBounds
from dptrees.dpcore.privacy.unit import Budget, Measure, Neighbors, NullUnits, PrivacyUnit
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.release.released import release_counts
from tests.dpcore.single_questions import KEY, alone, released

PERSON = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("person",))
SHOPS = KeyColumns(columns=("shop",), types=("text",))


def make_question(
    of: BoundOf = BoundOf.ROWS, unit: PrivacyUnit = PERSON, measure: Measure = Measure.EPSILON
) -> BoundQuestion:
    plan = BoundPlan(
        unit=unit,
        budget=Budget(measure=measure, amount=Fraction(1)),
        sizes=(1, 2, 4),
        tolerated=Fraction(3),
    )
    domain = SHOPS if of is BoundOf.KEYS else None
    return BoundQuestion(name=of.key, of=of, domain=domain, plan=plan)


def counted(question: BoundQuestion, rows: dict[str, Any], size: int = 3) -> list[int]:
    """The exact counts that the choice is made from."""
    found: list[np.ndarray] = []
    own = BoundPlan.chosen

    def chosen(self: BoundPlan, counts: np.ndarray, stream: Any) -> tuple[int]:
        found.append(counts)
        return own(self, counts, stream)

    with patch.object(BoundPlan, "chosen", chosen):
        assert released(question, rows, size=size).bounds[question.name] in question.plan.sizes
    (counts,) = found
    numbers: list[int] = counts.tolist()
    return numbers


def test_units_are_counted_by_their_rows() -> None:
    people = ["a"] * 9 + ["b"] + ["c"] * 3 + ["d"] * 2 + ["e"] * 4 + ["f"]
    random = np.random.default_rng(1).permutation(len(people))
    rows = {"person": pa.array(people).take(pa.array(random))}
    assert counted(make_question(), rows) == [2, 1, 2, 1]


def test_rows_without_a_unit_are_dropped_or_units_of_one_row() -> None:
    for nulls, ones in ((NullUnits.DROP, 1), (NullUnits.OWN, 4)):
        unit = replace(PERSON, nulls=nulls)
        rows = {"person": pa.array(["a", None, "b", None, "b", None])}
        assert counted(make_question(unit=unit), rows) == [ones, 1, 0, 0]


def test_units_are_counted_by_their_different_keys() -> None:
    rows = {
        "person": pa.array(["a", "a", "a", "a", "b", "b", "c", None, "d"]),
        "shop": pa.array(["x", "y", "x", "z", "y", "y", None, "x", ""]),
    }
    assert counted(make_question(BoundOf.KEYS), rows) == [1, 0, 1, 0]
    own = replace(PERSON, nulls=NullUnits.OWN)
    assert counted(make_question(BoundOf.KEYS, own), rows) == [2, 0, 1, 0]


def test_integers_are_keys_too() -> None:
    years = KeyColumns(columns=("year",), types=("integer",))
    question = replace(make_question(BoundOf.KEYS), domain=years)
    rows = {"person": ["a"] * 5 + ["b"] * 3, "year": [1, 2, -3, 2, 1, 7, 7, 7]}
    assert counted(question, rows) == [1, 0, 1, 0]


def test_no_rows_have_a_bound_too() -> None:
    assert counted(make_question(), {"person": pa.array([], pa.string())}) == [0, 0, 0, 0]


def test_a_specification_is_read_back() -> None:
    for measure, of in product(Measure, BoundOf):
        plan = alone(make_question(of, measure=measure))
        again = plan_from_spec(plan.spec())
        assert again == plan and again.digest == plan.digest, (measure, of)


def test_counts_at_hand_give_the_same_choice() -> None:
    question = make_question()
    people = {"person": pa.array(["a"] * 9 + ["b"])}
    one = released(question, people)
    by_counts = release_counts(alone(question), {"max_rows": [1, 0, 0, 1]}, KEY)
    two = by_counts.tree("max_rows")
    assert isinstance(one, ReleasedBounds) and isinstance(two, ReleasedBounds)
    assert one.bounds == two.bounds and one.height == 0
    with pytest.raises(ValueError, match="needs 4 whole numbers"):
        release_counts(alone(question), {"max_rows": [1, 0, 0]}, KEY)
    with pytest.raises(ValueError, match="choice of bounds, which releases no counts"):
        one.top(1, 0)


def test_other_counts_and_folders_get_choices_of_their_own() -> None:
    """The same ones the same; 40 of a law with two likely outcomes are not all alike."""
    question, counts = make_question(), [20, 2, 2, 0]
    plan = alone(question)

    def bound(nonce: bytes) -> int:
        release = release_counts(plan, {"max_rows": counts}, KEY, nonce=nonce)
        found = release.tree("max_rows")
        assert isinstance(found, ReleasedBounds)
        return int(found.bounds["max_rows"])

    found = [bound(bytes([number])) for number in range(40)]
    assert found == [bound(bytes([number])) for number in range(40)] and len(set(found)) > 1


def test_keys_need_columns_and_rows_have_none() -> None:
    with pytest.raises(ValueError, match="domain: it has the columns of keys"):
        replace(make_question(), domain=SHOPS)
    with pytest.raises(ValueError, match="domain: it has the columns of keys"):
        replace(make_question(BoundOf.KEYS), domain=None)


def test_the_entry_states_the_law_and_no_count() -> None:
    entry = make_question().entry()
    assert entry["epsilon"] == "1" and entry["sizes"] == [1, 2, 4]
    assert entry["tolerated_units"] == 3.0 and entry["sensitivity"] == 1
