"""The sensitivity of a sketch against all neighboring data sets of tiny domains, under all hash
functions: it assumes nothing about them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from dptrees.dpcore.privacy.sensitivity import sketch_sensitivity
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, ROW_UNITS, PrivacyUnit

CODES, WIDTH = 2, 2
CELLS = tuple(itertools.product(range(WIDTH), (1, -1)))
DROPPED = None


def hash_functions(rows: int, signed: bool) -> Iterator[np.ndarray]:
    """(rows, CODES, 2): the column and the sign of every code in every row."""
    cells = CELLS if signed else [cell for cell in CELLS if cell[1] == 1]
    one_row = list(itertools.product(cells, repeat=CODES))
    yield from map(np.array, itertools.product(one_row, repeat=rows))


def table(data: tuple[int | None, ...], functions: np.ndarray) -> np.ndarray:
    counted = np.zeros((len(functions), WIDTH), np.int64)
    for code in data:
        for row, cells in enumerate(functions):
            if code is not DROPPED:
                column, sign = cells[code]
                counted[row, column] += sign
    return counted


def neighbors(relation: PrivacyUnit) -> Iterator[tuple[tuple, tuple]]:
    universe = (*range(CODES), DROPPED)
    for rest in [(), (0,), (0, 1)]:
        if relation == ADD_REMOVE_ROW:
            yield from (((*rest, code), rest) for code in universe)
        else:
            pairs = itertools.permutations(universe, 2)
            yield from (((*rest, one), (*rest, other)) for one, other in pairs)


@pytest.mark.parametrize("relation", ROW_UNITS)
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("rows", [1, 2])
def test_it_is_the_largest_change(relation: PrivacyUnit, signed: bool, rows: int) -> None:
    changes = [
        np.abs(table(one, functions) - table(other, functions))
        for functions in hash_functions(rows, signed)
        for one, other in neighbors(relation)
    ]
    largest = (
        max(int(each.sum()) for each in changes),
        max(int((each**2).sum()) for each in changes),
    )
    assert sketch_sensitivity(relation, rows, signed=signed) == largest
