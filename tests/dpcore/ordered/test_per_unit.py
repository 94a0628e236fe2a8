"""One value of each unit: the sum, or another number, of the values of its rows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.bounding.row_choice import RowBounds, RowChoice, TreeBounding
from dptrees.dpcore.bounding.unit_ids import UnitIds
from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.numbers import MeanWorkload
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    Budget,
    Measure,
    Neighbors,
    NullUnits,
    PrivacyUnit,
)
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.composition import Guarantee, TreeRefused, plan_release
from dptrees.dpcore.release.plan import ReleasePlan, plan_from_spec
from dptrees.dpcore.release.released import release_rows
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.rows.unit_values import (
    LARGEST_AMOUNT,
    UnitValue,
    amounts_of,
    decimal_digits,
    numbers_of,
    unit_amounts,
)
from dptrees.dpcore.specification import Refusal
from tests.dpcore.cases import for_each
from tests.dpcore.neighboring import largest

KEY = ReleaseKey(bytes(range(32)))
KEYS = KeyList(column="country", keys=("de", "fr", "us"))


def fares(value: str, **more: Any) -> OrderedDomain:
    """Ten cells of 0.1 from 0 to 1; of rows of a unit, 0 to 9 and more."""
    chosen = {"type": "integer", "upper": 10} if value == "rows" else {"upper": 1, "cells": 10}
    return make_domain({"column": "fare", "lower": 0, "per_unit": value, **chosen, **more})


def person(**more: Any) -> PrivacyUnit:
    chosen = {"neighbors": Neighbors.ADD_REMOVE, "rows": 3, "keys": 2} | more
    return PrivacyUnit(columns=("person",), **chosen)


def make_plan(domain: OrderedDomain, unit: PrivacyUnit, keys: KeyList | None = None) -> ReleasePlan:
    """A plan whose noise is 0 but for a probability of e^-100000."""
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(10**9))
    workloads = [
        OrderedWorkload(name="tree", domain=domain, keys=keys),
        MeanWorkload(name="mean", domain=domain, keys=keys),
    ]
    return plan_release("fares", Guarantee(unit=unit, budget=budget), workloads)


def draw_rows(rng: np.random.Generator, rows: int) -> pa.Table:
    """Values of one decimal, some of them missing, some far out of bounds."""
    fare = rng.integers(-3, 6, rows) / 10
    fare[rng.random(rows) < 0.02] = 1e300
    fares = pa.array(fare, mask=rng.random(rows) < 0.1)
    people = pa.array(rng.integers(0, rows // 4, rows))
    return pa.table({
        "person": people, "fare": fares, "country": pa.array(rng.choice(["de", "fr", "xx"], rows)),
    })  # fmt: skip


def expected_cells(
    value: str, table: pa.Table, *, keyed: bool
) -> dict[tuple[str | None, int], int]:
    """How many units are in each cell, in exact decimals."""
    of_units: dict[tuple[int, str | None], list[Decimal]] = defaultdict(list)
    for row in table.to_pylist():
        if row["fare"] is not None and (not keyed or row["country"] != "xx"):
            place = row["person"], row["country"] if keyed else None
            of_units[place].append(Decimal(repr(row["fare"])))
    combine: dict[str, Any] = {"sum": sum, "smallest": min, "largest": max}
    combine |= {"mean": lambda each: sum(each) / len(each), "rows": lambda each: len(each) / 10}
    cells: dict[tuple[str | None, int], int] = defaultdict(int)
    for (_, key), values in of_units.items():
        cells[key, int(min(max(combine[value](values) * 10, 0), 9))] += 1
    return cells


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("value", [each.value for each in UnitValue])
def test_values_of_units_are_exact_whatever_the_order_and_the_batches(
    value: str, keyed: bool
) -> None:
    rng = np.random.default_rng(4)
    plan = make_plan(fares(value), person(rows=3), KEYS if keyed else None)
    table = draw_rows(rng, 400)
    expected = expected_cells(value, table, keyed=keyed)
    for batches in (1, 7):
        table = table.take(pa.array(rng.permutation(len(table))))
        parts = table.to_batches(max_chunksize=-(-len(table) // batches))
        released = release_rows(plan_from_spec(plan.spec()), parts, KEY)
        for key in ("de", "fr", "us") if keyed else (None,):
            found = released.tree("tree").top(10, released.tree("tree").height, key)
            counts = {each.label: each.count for each in found}
            domain = plan.question("tree").domain  # type: ignore[attr-defined]
            labels = domain.labels(0, 10).to_pylist()
            assert [counts[label] for label in labels] == [expected[key, n] for n in range(10)]
            total = sum(expected[key, n] for n in range(10))
            assert released.tree("mean").at_path("", key).count == total


def test_a_row_without_a_unit_is_a_unit_or_left_out() -> None:
    rows = pa.table({"person": ["a", None, None, "a"], "fare": [0.1, 0.1, 0.1, 0.2]})
    for nulls, wanted in ((NullUnits.DROP, [0, 0, 0, 1]), (NullUnits.OWN, [0, 2, 0, 1])):
        plan = make_plan(fares("sum"), person(nulls=nulls))
        tree = release_rows(plan, rows.to_batches(), KEY).tree("tree")
        assert [tree.range(n / 10, (n + 1) / 10).count for n in range(4)] == wanted


def counts_of_a_unit(question: Question, rows: list[tuple[str, float]], cells: int) -> np.ndarray:
    """The exact counts of the leaves if one unit has these rows."""
    choices = KeyedChoices(key=KEY, release="fares")
    bounding = TreeBounding(question, choices)
    columns = {
        "country": pa.array([key for key, _ in rows]), "fare": pa.array([fare for _, fare in rows]),
    }  # fmt: skip
    ids = UnitIds(choices).row_ids([pa.array(["ann"] * len(rows))])
    bounding.add(question.row_increments(columns), ids)
    counts = np.zeros(cells, np.int64)
    for shard in bounding.take():
        increments = bounding.bounded([shard.data]).increments
        if increments is not None:
            assert isinstance(increments.cells, np.ndarray)
            weights = np.ones(len(increments.cells)) if increments.values is None else (
                increments.values
            )  # fmt: skip
            np.add.at(counts, increments.cells, weights.astype(np.int64))
    return counts


def all_counts(question: Question, cells: int) -> np.ndarray:
    """The exact counts of each unit of one to three rows of three keys and four values."""
    kinds = list(product(("de", "fr", "us"), (-0.25, 0.0, 0.25, 7.0)))
    units = (rows for size in (1, 2, 3) for rows in combinations_with_replacement(kinds, size))
    return np.array([counts_of_a_unit(question, list(rows), cells) for rows in units])


@pytest.mark.parametrize("neighbors", list(Neighbors))
@for_each("value", [UnitValue.SUM, UnitValue.MEAN, UnitValue.LARGEST])
@for_each("keys", [KEYS, None])
def test_a_unit_moves_the_counts_by_what_its_guarantee_states(
    neighbors: Neighbors, value: UnitValue, keys: KeyList | None
) -> None:
    unit = person(neighbors=neighbors)
    question = make_plan(fares(value.value), unit, keys).question("tree")
    assert question.unit == (unit.once if keys is None else unit.once_per_key)
    assert unit.holds(question.unit)
    stated = question.unit.moved(keyed=keys is not None)
    counts = all_counts(question, 30)
    times = 1 if neighbors is Neighbors.ADD_REMOVE else 2
    assert largest(counts, neighbors) == (times * stated[0], times * stated[1])


def test_the_brute_force_finds_a_bound_of_keys_that_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = make_plan(fares("sum"), person(), KEYS).question("tree")
    choice = RowChoice(RowBounds(rows=3, keys=3), KeyedChoices(key=KEY, release="fares"), "tree")
    monkeypatch.setattr(TreeBounding, "_choice", choice, raising=False)
    monkeypatch.setattr(TreeBounding, "_select_keys", lambda self, runs: runs)
    assert largest(all_counts(question, 30), Neighbors.ADD_REMOVE) == (3, 3)


def test_the_parts_of_a_mean_move_by_its_sensitivity() -> None:
    question = make_plan(fares("sum"), person(), KEYS).question("mean")
    counts = all_counts(question, 6)
    assert largest(counts, Neighbors.ADD_REMOVE) == question.sensitivity  # type: ignore[attr-defined]


@given(
    st.lists(st.lists(st.integers(-LARGEST_AMOUNT, LARGEST_AMOUNT), min_size=1), min_size=1),
    st.integers(1, 2**20),
)
def test_amounts_of_units_are_those_of_whole_numbers(units: list[list[int]], times: int) -> None:
    """Also of sums that do not fit 64 bits."""
    ordered = [sorted(each) for each in units]
    starts = np.cumsum([0, *map(len, ordered)])[:-1]
    amounts = np.array([amount for unit in ordered for amount in unit])
    counts = np.full(len(amounts), times)
    sums = [min(max(times * sum(each), -LARGEST_AMOUNT), LARGEST_AMOUNT) for each in ordered]
    found = unit_amounts(UnitValue.SUM, starts, amounts, counts).tolist()
    # A sum of exactly 2^62 counts as one less than it, and no bound is near it.
    assert all(
        abs(one - other) <= (abs(other) == LARGEST_AMOUNT)
        for one, other in zip(found, sums, strict=True)
    )
    means = [times * sum(each) // (times * len(each)) for each in ordered]
    assert unit_amounts(UnitValue.MEAN, starts, amounts, counts).tolist() == means


@for_each("bounds", [(0, 1), (-1e20, 3), (0, 1e-290), (-300, 250), (0, 999_999_999_999_999)])
def test_decimals_between_the_bounds_come_back_as_they_were(bounds: tuple[float, float]) -> None:
    digits = decimal_digits(*bounds)
    reach = max(map(abs, bounds))
    assert 10**9 < Fraction(reach) * Fraction(10) ** digits <= 10**15
    numbers = np.array([float(f"{reach * part:.6g}") for part in (-1, -0.37, 0.123, 0.9, 1)])
    found = numbers_of(amounts_of(numbers, digits), digits)
    # Powers beyond 10^22 are no floats.
    assert found.tolist() == (numbers.tolist() if digits <= 22 else pytest.approx(numbers, 1e-15))


def test_odd_values_of_rows() -> None:
    number, whole = fares("sum"), fares("rows")
    cells = number.amount_cells(number.amounts(pa.array([float("inf"), float("-inf"), 0.3])))
    assert cells.tolist() == [9, 0, 3]
    assert (number.amounts(pa.array([None, float("nan")])) < -LARGEST_AMOUNT).all()
    counted = whole.amounts(pa.array([0.5, None, float("nan"), 7]))
    assert (counted >= 0).tolist() == [True, False, False, True]
    visits = make_domain(
        {"column": "n", "type": "integer", "lower": 0, "upper": 5, "per_unit": "sum"}
    )
    amounts = visits.amounts(pa.array([2**64 - 1, 3], pa.uint64()))
    assert visits.amount_cells(amounts).tolist() == [4, 3]
    assert (visits.amounts(pa.array([1.5, 2.0])) < 0).tolist() == [True, False]
    drop = replace(visits, outside="drop")  # type: ignore[type-var]
    assert drop.amount_cells(np.array([-1, 0, 4, 5])).tolist() == [-1, 0, 4, -1]


@for_each(
    ("domain", "words"),
    [
        ({"per_unit": "median", "cells": 2}, "'median' must be one of sum, mean, smallest"),
        ({"per_unit": "mean", "type": "integer"}, "mean needs the type number"),
        ({"per_unit": "rows", "cells": 2}, "rows needs the type integer"),
        ({"per_unit": "sum", "cells": 2, "missing": "first"}, "must be drop"),
    ],
)
def test_values_that_a_unit_does_not_have_are_refused(domain: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_domain({"column": "fare", "lower": 0, "upper": 9, **domain})


def test_a_row_has_no_value_of_a_unit() -> None:
    with pytest.raises((Refusal, TreeRefused), match="needs a privacy unit"):
        make_plan(fares("sum"), ADD_REMOVE_ROW)
