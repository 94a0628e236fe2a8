"""Estimates of one-way counts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from dptrees.dpcore.tables.estimates import (
    MeasuredTables,
    averaged_cells,
    column_estimate,
    estimated_columns,
    on_simplex,
)
from dptrees.dpcore.tables.plan import row_estimate
from tests.dpcore.tables.tiny_tables import SHAPE, make_plan


@given(st.lists(st.integers(-50, 100), min_size=1, max_size=20), st.integers(1, 500))
def test_the_simplex_is_met(values: list[int], total: int) -> None:
    found = on_simplex(np.array(values, np.float64), float(total))
    assert found.min() >= 0
    assert abs(found.sum() - total) < 1e-9 * total
    # Optimal: what is positive has been moved alike, and the rest by no more.
    moved = np.array(values) - found
    inside = found > 0
    assert np.ptp(moved[inside]) < 1e-6
    assert (moved[~inside] <= moved[inside].max() + 1e-6).all()


def test_the_simplex_is_the_closest_point() -> None:
    values = np.array([4.0, -1.0, 2.0, 0.3])
    rules = {"type": "eq", "fun": lambda x: x.sum() - 5}
    found = minimize(
        lambda x: ((x - values) ** 2).sum(),
        np.full(4, 1.25),
        bounds=[(0, None)] * 4,
        constraints=rules,
    )
    assert np.abs(on_simplex(values, 5.0) - found.x).max() < 1e-5


def test_averages_of_smooth_cells_are_closer_than_counts() -> None:
    rng = np.random.default_rng(3)
    cells = np.arange(100)
    exact = 2000 * np.exp(-(((cells - 40) / 25) ** 2))
    squares = []
    for _ in range(20):
        noisy = exact + rng.normal(0, 100, 100)
        squares.append(
            [((noisy - exact) ** 2).mean(), ((averaged_cells(noisy, 1e4) - exact) ** 2).mean()]
        )
    before, after = np.mean(squares, axis=0)
    assert after < 0.6 * before


def test_steps_remain() -> None:
    """Cells that differ by far more than the noise are not averaged, and totals remain."""
    exact = np.repeat([1000.0, 0.0, 5000.0], [7, 6, 3])
    found = averaged_cells(exact, 1.0)
    assert np.abs(found - exact).max() < 1
    assert column_estimate(exact.astype(np.int64), 1.0, 9.0, ordered=True).sum() == 9.0


def test_all_columns_have_the_estimated_rows() -> None:
    columns = tuple(np.full(size, 60 // size) + (size == 6) for size in SHAPE.sizes)
    measured = MeasuredTables(plan=make_plan(), columns=columns, pairs=())
    assert 55 < measured.rows < 66
    for estimate in estimated_columns(measured):
        assert abs(estimate.sum() - measured.rows) < 1e-9
    assert row_estimate((np.array([-5, -6]), np.array([-9])), (1.0, 2.0)) == 1.0
    # By inverse variances of the sums, 4 and 2.
    assert row_estimate((np.array([1, 2]), np.array([9])), (2.0, 2.0)) == 7.0
