"""How far one unit of several rows moves a level: stated, and over all that a unit may have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from dptrees.dpcore.privacy.sensitivity import (
    level_sensitivity,
    prefix_sensitivity,
    sketch_sensitivity,
    sum_sensitivity,
)
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    ROW_UNITS,
    SUBSTITUTE_ROW,
    Neighbors,
    NullUnits,
    PrivacyUnit,
    UnitType,
)
from dptrees.dpcore.specification import Refusal
from tests.dpcore.neighboring import largest

KEYS, NODES = 3, 2  # of a level: so many keys, each with so many nodes
# c, m, r
BOUNDS = [
    (1, None, None),
    (3, None, None),
    (3, 2, None),
    (3, None, 2),
    (3, 2, 2),
    (2, 3, 1),
    (4, 2, 3),
    (3, 1, 2),
    (5, 3, 3),
]
VALUES = [(1, 1), (0, 1), (0, 3), (-2, 2), (-1, 3), (-3, -1), (-2, 5)]


def make_unit(neighbors: Neighbors, c: int, m: int | None, r: int | None) -> PrivacyUnit:
    return PrivacyUnit(neighbors=neighbors, columns=("who",), rows=c, keys=m, rows_per_key=r)


def possible_rows(c: int, m: int | None, r: int | None) -> Iterator[tuple[int, ...]]:
    """The nodes of all the rows that a bounded unit may have."""
    nodes = range(KEYS * NODES)
    for size in range(c + 1):
        for chosen in combinations_with_replacement(nodes, size):
            keys = [node // NODES for node in chosen]
            if m is not None and len(set(keys)) > m:
                continue
            if r is not None and keys and max(map(keys.count, keys)) > r:
                continue
            yield chosen


@lru_cache
def level_sums(
    c: int, m: int | None, r: int | None, values: tuple[int, int], *, keyed: bool
) -> np.ndarray:
    """(n, nodes) what a unit may add to the sums of a level; its extreme values are enough."""
    found = set()
    for chosen in possible_rows(c, m if keyed else None, r if keyed else None):
        for signs in product(sorted(set(values)), repeat=len(chosen)):
            sums = [0] * (KEYS * NODES)
            for node, value in zip(chosen, signs, strict=True):
                sums[node] += value
            found.add(tuple(sums))
    return np.array(sorted(found))


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("keyed", [False, True])
def test_counts_and_sums_move_as_far_as_stated_and_no_farther(
    bounds: tuple[int, int | None, int | None], keyed: bool
) -> None:
    # Pairs of data sets grow with the square of what a unit may have.
    several = {4: [(1, 1), (-2, 5), (-3, -1)], 5: [(1, 1)]}
    for values in several.get(bounds[0], VALUES):
        sums = level_sums(*bounds, values, keyed=keyed)
        for neighbors in Neighbors:
            unit = make_unit(neighbors, *bounds)
            if neighbors is Neighbors.SUBSTITUTE and len(sums) > 2500:
                sums = sums[np.abs(sums).sum(axis=1) >= np.abs(sums).sum(axis=1).max() - 2]
            found = largest(sums, neighbors)
            assert found == sum_sensitivity(unit, *values, single_node=False, keyed=keyed), values
            if values == (1, 1):
                assert found == level_sensitivity(unit, single_node=False, keyed=keyed)


def test_a_rest_beside_full_keys_moves_signed_sums_farther_than_the_design_says() -> None:
    unit = make_unit(Neighbors.SUBSTITUTE, 3, None, 2)
    stated = sum_sensitivity(unit, -2, 5, single_node=False, keyed=True)[1]
    assert stated == 2 * (2 * 5 + 1 * 2) ** 2
    assert stated > max(2 * 5**2, 7**2) * unit.moved(keyed=True)[1]


def test_a_single_node_loses_or_gains_all_rows_of_a_unit() -> None:
    for neighbors in Neighbors:
        unit = make_unit(neighbors, 3, None, None)
        assert level_sensitivity(unit, single_node=True) == (3, 9)
    substitute = make_unit(Neighbors.SUBSTITUTE, 3, None, None)
    assert sum_sensitivity(substitute, -2, 5, single_node=True) == (21, 441)


def test_prefixes_move_as_far_as_stated_and_no_farther() -> None:
    for neighbors, keyed, bounds in product(Neighbors, (False, True), BOUNDS[:7]):
        counts = level_sums(*bounds, (1, 1), keyed=keyed)
        trees = counts.reshape(len(counts), KEYS, NODES) if keyed else counts[:, None, :]
        prefixes = np.cumsum(trees, axis=2).reshape(len(counts), -1)
        unit = make_unit(neighbors, *bounds)
        stated = prefix_sensitivity(unit, trees.shape[2], public_total=False, keyed=keyed)
        found = largest(prefixes, neighbors)
        assert found[0] <= stated[0] and found[1] <= stated[1], bounds
        if neighbors is Neighbors.ADD_REMOVE:
            assert found == stated, bounds


@pytest.mark.parametrize("signed", [False, True])
def test_sketches_move_as_far_as_stated_and_no_farther(signed: bool) -> None:
    """One row of a sketch of two cells, over all functions that hash three values; every row of it
    may move as far."""
    values, cells = 3, 2
    for neighbors, c in product(Neighbors, (1, 2, 3)):
        worst = (0, 0)
        units = [
            chosen
            for n in range(c + 1)
            for chosen in combinations_with_replacement(range(values), n)
        ]
        for places in product(range(cells), repeat=values):
            for signs in product((-1, 1) if signed else (1,), repeat=values):
                tables = np.zeros((len(units), cells), dtype=np.int64)
                for number, chosen in enumerate(units):
                    for value in chosen:
                        tables[number, places[value]] += signs[value]
                found = largest(tables, neighbors)
                worst = max(worst[0], found[0]), max(worst[1], found[1])
        own = make_unit(neighbors, c, None, None)
        same = [own, *(row for row in ROW_UNITS if c == 1 and row.neighbors is neighbors)]
        for unit, rows in product(same, (1, 2)):
            expected = rows * worst[0], rows * worst[1]
            assert sketch_sensitivity(unit, rows, signed=signed) == expected


def test_a_row_is_a_unit_of_one() -> None:
    for row in ROW_UNITS:
        assert row.is_row and not row.drops_rows and row.moved(keyed=True) == (1, 1)
        assert PrivacyUnit.from_spec(row.spec()) == row
        assert PrivacyUnit.from_spec(row.spec() | {"unit": "row"}) == row
    assert (ADD_REMOVE_ROW.name, SUBSTITUTE_ROW.in_words) == ("row", "row")


def test_a_unit_is_read_back_and_reported() -> None:
    unit = PrivacyUnit(
        neighbors=Neighbors.SUBSTITUTE,
        columns=("home", "day"),
        rows=20,
        keys=1,
        rows_per_key=4,
        nulls=NullUnits.OWN,
    )
    assert PrivacyUnit.from_spec(unit.spec()) == unit
    typed = replace(unit, nulls=NullUnits.DROP, type=UnitType.TEXT)
    assert "type" not in unit.spec()["unit"] and PrivacyUnit.from_spec(typed.spec()) == typed
    assert unit.in_words == "home, day, at most 20 rows and 1 key and 4 rows a key of each"
    assert unit.drops_rows and unit.moved(keyed=True) == (4, 16)
    assert make_unit(Neighbors.ADD_REMOVE, 2, 2, 1).moved(keyed=True) == (2, 2)
    assert make_unit(Neighbors.ADD_REMOVE, 5, 1, 1).moved(keyed=True) == (1, 1)


def test_a_unit_of_a_specification_has_no_other_entries() -> None:
    for changes, message in (
        ({"row": 3}, "'row' is not a field of the unit: use columns, rows, keys, rows_per_key"),
        ({"neighbors": "substitute"}, "'neighbors' is not a field of the unit"),
        ({"rows": "20"}, "rows '20' must be a whole number"),
        (None, "unit 'person' must be 'row' or an object"),
    ):
        spec = make_unit(Neighbors.ADD_REMOVE, 20, 1, 4).spec()
        changed = "person" if changes is None else spec["unit"] | changes
        with pytest.raises(ValueError, match=message):
            PrivacyUnit.from_spec(spec | {"unit": changed})


def test_bounds_that_are_none_are_refused() -> None:
    for given, message in (
        ({"rows": 0}, "rows: 0 is not from 1 to 1048576"),
        ({"rows": True}, "rows: True is not a whole number"),
        ({"keys": 2**21}, "keys: 2097152 is not from"),
        ({"rows_per_key": -1}, "rows_per_key: -1 is not from"),
        ({"columns": (), "rows": 2}, "rows: 2 has no effect where the unit is the row"),
        ({"columns": ("a", "a")}, "columns: a column is listed twice"),
    ):
        fields = {"neighbors": Neighbors.ADD_REMOVE, "columns": ("who",)} | given
        with pytest.raises(Refusal, match=message):
            PrivacyUnit(**fields)  # type: ignore[arg-type]
