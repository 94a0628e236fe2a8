"""The first stage in memory: what is released, how likely, and that it is the same again.

Statistical limits have a false-alarm probability of at most 1e-6; the keys are fixed.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dptrees.dpcore.choices.key_selection import (
    KeyColumns,
    SelectionPlan,
    SelectionQuestion,
    counted_once,
)
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.privacy.unit import Neighbors, PrivacyUnit
from dptrees.dpcore.questions.messages import Place
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.specification import Refusal
from tests.dpcore.single_questions import KEY, alone, released

FALSE_ALARM = 1e-6
COPIES = 3000
ROW = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE)


def make_question(
    *, neighbors: Neighbors = Neighbors.ADD_REMOVE, threshold: int = 1, shards: int = 5
) -> SelectionQuestion:
    plan = SelectionPlan(
        unit=PrivacyUnit(neighbors=neighbors),
        epsilon=Fraction(1, 2),
        delta=Fraction(1, 100),
        threshold=threshold,
    )
    columns = KeyColumns(columns=("k",), types=("integer",))
    return SelectionQuestion(name="keys", domain=columns, plan=plan, shards=shards)


def keys_of(question: SelectionQuestion, keys: np.ndarray, nonce: bytes = b"") -> list[int]:
    """The released keys, of batches."""
    found: list[int] = (
        released(question, {"k": pa.array(keys)}, nonce=nonce).table.column("k").to_pylist()
    )
    return found


def keys_of_units(most: int) -> np.ndarray:
    """COPIES keys of each number of units from 1 to `most`; key n * COPIES + i has n units."""
    units = np.arange(1, most + 1)
    keys = (units[:, None] * COPIES + np.arange(COPIES)).reshape(-1)
    return np.random.default_rng(5).permutation(np.repeat(keys, np.repeat(units, COPIES)))


@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_keys_are_released_as_likely_as_the_formula_says(neighbors: Neighbors) -> None:
    question, rows = make_question(neighbors=neighbors), keys_of_units(30)
    seen = np.bincount(np.array(keys_of(question, rows)) // COPIES, minlength=31)[1:]
    # Of the decision about one key: half the budget where a row may leave one and enter another.
    half = 2 if neighbors is Neighbors.SUBSTITUTE else 1
    law = question.plan.law
    assert (law.epsilon, law.delta) == (Fraction(1, 2 * half), Fraction(1, 100 * half))
    expected = law.probability(np.arange(1, 31))

    def least(expected: np.ndarray) -> float:
        pairs = zip(seen, expected, strict=True)
        return min(stats.binomtest(int(n), COPIES, float(p)).pvalue for n, p in pairs)

    assert least(expected) > FALSE_ALARM / 30
    assert least(law.probability(np.arange(2, 32))) < FALSE_ALARM / 30
    assert least(law.probability(np.arange(30))) < FALSE_ALARM / 30


def test_the_entry_says_how_many_units_a_key_needs() -> None:
    for threshold in (1, 7):
        question = make_question(threshold=threshold)
        probability, entry = question.plan.law.probability, question.entry()
        for name, least in (("units_for_half", 0.5), ("units_for_certain", 1.0)):
            units = entry[name]
            assert isinstance(units, int) and units >= threshold
            assert probability(units - 1) < least <= probability(units), threshold


def test_the_released_table_is_sorted_and_holds_nothing_but_keys() -> None:
    question = make_question()
    rows = keys_of_units(20)
    found = keys_of(question, rows)
    assert found == sorted(found) and set(found) <= set(rows.tolist())
    table = released(question, {"k": pa.array(rows)}).table
    assert table.column_names == ["k"] and len(table.to_batches()) == 1


def test_the_order_of_rows_and_the_batches_do_not_matter() -> None:
    question, rows = make_question(), keys_of_units(12)
    again = np.random.default_rng(9).permutation(rows)
    assert keys_of(question, rows) == keys_of(question, again)


def test_other_rows_another_nonce_and_other_shards_draw_afresh() -> None:
    question, rows = make_question(), keys_of_units(12)
    first = keys_of(question, rows)
    # One row more, of a key that is surely released: else the same keys would come again.
    more = np.append(rows, np.full(1, rows[0]))
    for other in (
        keys_of(question, more),
        keys_of(question, rows, nonce=b"other"),
        keys_of(replace(question, shards=6), rows),
    ):
        # Of some 36,000 keys thousands are undecided, so the sets differ by far.
        assert len(set(first) ^ set(other)) > 1000


def test_keys_below_the_threshold_are_never_released() -> None:
    rows = keys_of_units(12)
    found = np.array(keys_of(make_question(threshold=9), rows)) // COPIES
    assert found.min() >= 9 and {9, 12} <= set(found.tolist())


def test_without_rows_nothing_is_released() -> None:
    assert keys_of(make_question(), np.empty(0, np.int64)) == []


def test_every_place_has_a_partial_whatever_the_rows_are() -> None:
    question = make_question(shards=4)
    choices = KeyedChoices(key=KEY, release="r")
    for rows in (np.empty(0, np.int64), np.zeros(5, np.int64), np.arange(50)):
        counter = question.counter(dense=False, choices=choices)
        kept = counter.add(question.increments({"k": pa.array(rows)}), len(rows))
        partials = list(counter.take())
        assert sorted(each.place for each in partials) == question.places
        assert kept == len(rows) == sum(each.total for each in partials)


def test_what_leaves_the_decision_holds_no_count() -> None:
    """A key of 40 units and one of 4,000 leave the same bytes."""
    question = make_question(shards=1)
    source = NoiseSource(key=KEY, release="r", spec_digest=b"", global_digest=b"")
    sent = {
        question.draw(
            Place(0, 0),
            NodeCounts(keys=pa.array([5], pa.uint64()), counts=np.array([units])).to_bytes(),
            source,
        ).sent
        for units in (100, 40_000)
    }
    assert len(sent) == 1


def test_the_specification_reads_back() -> None:
    for neighbors in Neighbors:
        whole = alone(make_question(threshold=4, neighbors=neighbors))
        assert plan_from_spec(whole.spec()) == whole


def test_a_unit_counts_once_under_a_key() -> None:
    person = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=10, keys=3)
    with pytest.raises(Refusal, match="a unit counts once under a key"):
        SelectionPlan(unit=person, epsilon=Fraction(1), delta=Fraction(1, 100))
    once = SelectionPlan(unit=counted_once(person), epsilon=Fraction(1), delta=Fraction(1, 100))
    assert once.moved == 3 and once.law.delta == Fraction(1, 300)
    other = replace(once, unit=replace(once.unit, neighbors=Neighbors.SUBSTITUTE))
    assert other.moved == 6 and other.law.epsilon == Fraction(1, 6)
    few = replace(person, rows=2, keys=None)
    assert counted_once(few).moved(keyed=True) == (2, 2)
    assert counted_once(ROW) is ROW


def test_a_selection_answers_no_counts() -> None:
    tree = released(make_question(), {"k": pa.array([1, 2])})
    with pytest.raises(ValueError, match="releases no counts"):
        tree.top(1, 0)
    with pytest.raises(ValueError, match="shards: 0 is not at least 1"):
        replace(make_question(), shards=0)
