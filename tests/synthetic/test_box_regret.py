"""The table of regret of boxes: sums by brute force, counts that are right with much budget."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks import box_regret
from benchmarks.box_regret import BITS, FAMILIES, MECHANISMS, Boxes, Data, released
from dptrees.dpcore.privacy.unit import Budget, Measure


def test_sums_are_those_of_cells() -> None:
    table = np.random.default_rng(1).poisson(2.0, (9, 5, 7)).astype(np.float64)
    for one in (False, True):
        boxes = Boxes.drawn(table.shape, 0.5, one=one)
        found = boxes.sums(table)
        for place in range(50):
            inside = tuple(slice(ends[0][place], ends[1][place]) for ends in boxes.sides)
            assert found[place] == table[inside].sum()


@pytest.mark.parametrize("family", FAMILIES)
def test_shapes_have_their_rows_and_differ(family: str) -> None:
    tables = [Data.drawn(family, which, 2, 500).table for which in range(4)]
    assert all(table.sum() == 500 and table.shape == (256, 256) for table in tables)
    assert len({table.tobytes() for table in tables}) == 4


@pytest.mark.parametrize("columns", BITS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_much_budget_gives_the_data(
    mechanism: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(1000))
    monkeypatch.setitem(box_regret.BUDGETS, Measure.EPSILON, budget)
    data = Data.drawn("sparse", 2, columns, 300)
    found = released(data, Measure.EPSILON, MECHANISMS[mechanism], bytes(32))
    assert found.sum() == pytest.approx(300)
    # A part of a few cells may hold a point; a row anywhere else would be off by one or more.
    assert np.abs(Boxes.drawn(found.shape, 1.0).sums(found - data.table)).mean() < 10
