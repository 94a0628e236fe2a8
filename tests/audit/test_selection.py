"""Audits of private keys: exact laws with everything known, and attacks on released keys alone.

Neighbors differ in one unit of many rows under many keys. The exact audit compares deltas at the
stated epsilon, which are enumerated: nothing there is left to chance, but for rounding.

False alarms of the attack: a bound is too large only if one of two limits of Clopper and Pearson
fails, each with a probability of at most 1e-6 in parts of how many there are.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.audit.black_box import Claim, limits
from benchmarks.audit.units import audit_selection, selection_plan
from dptrees.dpcore.choices.key_selection import (
    KeyColumns,
    SelectionPlan,
    SelectionQuestion,
    counted_once,
)
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.partition_selection import SelectionLaw
from dptrees.dpcore.privacy.unit import Neighbors, PrivacyUnit
from dptrees.dpcore.release.released import release_rows
from tests.audit.faults import Patch, one_row_too_many, wrong_bounds

Fault = Callable[[Patch], None]
FALSE_ALARM = 1e-6
# Deltas are sums of float64, of losses rounded to 11 digits.
ROUNDING = 1e-6
SEEDS, PLANS, PAIRS = range(2), 12, 2


# --- planted faults -------------------------------------------------------------------------------


def a_unit_twice_under_a_key(patch: Patch) -> None:
    wrong_bounds(patch, rows=lambda own: 2 * own.rows, rows_per_key=lambda own: 2)


def rows_counted_in_place_of_units(patch: Patch) -> None:
    wrong_bounds(patch, rows=lambda own: 1000, rows_per_key=lambda own: None)


def _law(patch: Patch, change: Callable[[SelectionPlan, SelectionLaw], SelectionLaw]) -> None:
    own = SelectionPlan.law.func  # type: ignore[attr-defined]
    patch.setattr(SelectionPlan, "law", property(lambda self: change(self, own(self))))


def delta_doubled(patch: Patch) -> None:
    _law(patch, lambda plan, law: replace(law, delta=2 * law.delta))


def epsilon_doubled(patch: Patch) -> None:
    _law(patch, lambda plan, law: replace(law, epsilon=2 * law.epsilon))


def a_budget_for_each_key(patch: Patch) -> None:
    _law(patch, lambda plan, law: replace(law, epsilon=plan.epsilon, delta=plan.delta))


def keys_that_are_left_not_paid(patch: Patch) -> None:
    """A unit of other rows paid as one more."""
    patch.setattr(SelectionPlan, "moved", property(lambda self: self.unit.moved(keyed=True)[0]))


def one_unit_more_than_there_is(patch: Patch) -> None:
    own = SelectionQuestion.merge

    def merge(self: SelectionQuestion, *arguments: Any) -> Any:
        found = own(self, *arguments)
        return replace(found, counts=found.counts + 1)

    patch.setattr(SelectionQuestion, "merge", merge)


FAULTS: tuple[Fault, ...] = (
    one_row_too_many,
    a_unit_twice_under_a_key,
    rows_counted_in_place_of_units,
    delta_doubled,
    epsilon_doubled,
    a_budget_for_each_key,
    keys_that_are_left_not_paid,
    one_unit_more_than_there_is,
)


# --- exact ----------------------------------------------------------------------------------------


def ratios() -> Iterator[float]:
    """Yield the largest delta that some random tables lose, as a fraction of the claim."""
    for seed in SEEDS:
        yield float(audit_selection(plans=PLANS, pairs=PAIRS, seed=seed).ratio)


def test_no_unit_reveals_more_about_keys_than_is_claimed() -> None:
    assert 0.999 < max(ratios()) <= 1 + ROUNDING


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(monkeypatch: Patch, fault: Fault) -> None:
    """In the plans and tables that were found to keep their claims above."""
    fault(monkeypatch)
    assert any(ratio > 1.05 for ratio in ratios())


# --- attacks --------------------------------------------------------------------------------------

KEYS, MOST_UNITS = 4000, 8
DELTA = Fraction(1, 10)
PERSON = PrivacyUnit(
    neighbors=Neighbors.ADD_REMOVE, columns=("person",), rows=4, keys=1, rows_per_key=2
)


def released_keys(units: int) -> int:
    """How many of some thousand keys are released if so many people have each of them, with many
    rows; a key's coin is its own, so each key is a try."""
    plan = SelectionPlan(unit=counted_once(PERSON), epsilon=Fraction(1), delta=DELTA)
    question = SelectionQuestion(
        name="keys", domain=KeyColumns(columns=("shop",), types=("integer",)), plan=plan
    )
    shops = np.repeat(np.arange(KEYS), 3 * units)
    people = np.arange(len(shops)) // 3
    rows = pa.RecordBatch.from_pydict({"shop": pa.array(shops), "person": pa.array(people)})
    key = ReleaseKey(hashlib.sha256(f"{units} people".encode()).digest())
    release = release_rows(selection_plan(question), [rows], key)
    return len(release._read("nodes", "keys", 0, 0))


def largest_bound() -> float:
    """The largest epsilon that is proved lost by one person more under a key, of 0 to 8 people."""
    claim = Claim(measure="epsilon", amount=Fraction(1), delta=DELTA)
    found = [released_keys(units) for units in range(MOST_UNITS + 1)]
    alarm = FALSE_ALARM / (8 * MOST_UNITS)
    bounds = []
    for pair in itertools.pairwise(found):
        for hits in (pair, [KEYS - each for each in pair]):
            for likelier, other in (hits, hits[::-1]):
                low, high = limits(likelier, KEYS, alarm)[0], limits(other, KEYS, alarm)[1]
                bounds.append(claim.lower_bound(low, high))
    return max(bounds)


def test_which_keys_are_released_keeps_its_claim() -> None:
    assert largest_bound() <= 1


def released_as_of_one_more(patch: Patch) -> None:
    """Where the coin is thrown, so that the exact audit cannot see it."""
    own = SelectionLaw.released
    patch.setattr(SelectionLaw, "released", lambda self, units, bits: own(self, units + 1, bits))


@pytest.mark.parametrize(
    "fault",
    [
        released_as_of_one_more,
        delta_doubled,
        a_unit_twice_under_a_key,
        rows_counted_in_place_of_units,
    ],
)
def test_attacks_find_planted_faults(monkeypatch: Patch, fault: Fault) -> None:
    fault(monkeypatch)
    assert largest_bound() > 1
