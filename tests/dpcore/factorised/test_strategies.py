"""Strategies in whole numbers: fast paths equal the dense matrix, whatever the machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dptrees.dpcore.arithmetic.matrices import rough_factor
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.factorised import strategies as dense
from dptrees.dpcore.factorised.optimum import Read
from dptrees.dpcore.factorised.strategies import (
    MOST_LEAVES,
    DenseStrategy,
    MatrixStrategy,
    ToeplitzStrategy,
    best_strategy,
    listed_tree,
    plan_strategy,
)
from dptrees.dpcore.specification import MatrixError
from tests.dpcore.cases import for_each

CDF = Read(kind="cdf")
SIZES = (1, 2, 3, 17, 64, 100)


def strategies() -> list[MatrixStrategy]:
    return [
        *(ToeplitzStrategy.from_size(cells) for cells in SIZES),
        *(best_strategy(cells, CDF) for cells in SIZES),
        best_strategy(40, Read(kind="quantiles", shares=(0.25, 0.5))),
        best_strategy(40, Read(kind="ranges", widths=(5,))),
    ]


def prefix_rows(matrix: Integers) -> Floats:
    """(K + 1, K) what the noise of each sum has in each prefix, by definition."""
    return np.pad(np.cumsum(np.linalg.inv(matrix.astype(float)), axis=0), ((1, 0), (0, 0)))


@pytest.mark.parametrize("strategy", strategies(), ids=lambda each: type(each).__name__)
def test_all_figures_are_those_of_the_dense_matrix(strategy: MatrixStrategy) -> None:
    dense, cells = strategy.dense(), strategy.leaves
    again = MatrixStrategy.from_spec(strategy.spec())
    assert again == strategy and (again.dense() == dense).all()
    exact, rng = dense.astype(object), np.random.default_rng(2)
    for top in (10, 2**33 // cells):
        counts = rng.integers(0, top, (3, cells))
        sums = strategy.measured(counts)
        assert (sums.astype(object) == counts.astype(object) @ exact.T).all()
        assert np.allclose(strategy.estimated(sums), counts, rtol=1e-9, atol=1e-6)
    # A count too large wraps, and moves what is released as the exact sum would.
    counts = np.full((1, cells), 2**45 + 12345, np.int64)
    expected = counts.astype(object) @ exact.T % 2**64
    assert (strategy.measured(counts).view(np.uint64).astype(object) == expected).all()

    gram = exact.T @ exact
    own = gram.diagonal()
    distance = (own[:, None] + own[None] - 2 * gram).max()
    assert strategy.column_norm == own.max()
    assert strategy.column_distance >= distance
    if isinstance(strategy, DenseStrategy):
        assert strategy.column_distance == distance
    assert strategy.largest >= abs(dense).max()

    rows = prefix_rows(dense)
    assert np.allclose(strategy.prefix_variances, (rows[1:] ** 2).sum(axis=1))
    assert np.allclose(strategy.total_covariances, rows[1:] @ rows[-1])
    starts, stops = np.triu_indices(cells + 1)
    variances = ((rows[stops] - rows[starts]) ** 2).sum(axis=1)
    assert np.allclose(strategy.range_variances(starts, stops), variances, atol=1e-12)
    weights = np.random.default_rng(3).normal(size=cells)
    solved = np.linalg.solve(dense.T.astype(float), weights)
    assert np.allclose(strategy.coefficients(weights), solved)


def test_another_matrix_than_planned_is_refused() -> None:
    """Refuse a matrix such as a machine with inexact arithmetic would make."""
    one = best_strategy(20, CDF)
    with pytest.raises(MatrixError, match="another matrix"):
        replace(one, threshold=one.threshold + 0.05).dense()


def test_a_matrix_of_a_less_accurate_lapack_is_the_planned_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = best_strategy(60, CDF)
    expected = one.dense()

    def rough(matrix: Floats) -> tuple[Floats, Floats]:
        factor, diagonal = rough_factor(matrix)
        return factor * (1 + 1e-5), diagonal

    monkeypatch.setattr(dense, "rough_factor", rough)
    dense._matrix.cache_clear()
    dense._last_planned.clear()
    assert (one.dense() == expected).all()


def test_rounding_is_far_from_ties() -> None:
    """Eigenvectors in single steps of floating point, and the matrix is the same."""
    one = best_strategy(300, CDF)
    for step in (1e-12, -1e-12):
        weights = tuple(each * (1 + step) for each in one.weights)
        assert (replace(one, weights=weights).dense() == one.dense()).all()


@pytest.mark.parametrize(("cells", "best", "even"), [(256, 2.524, 2.575), (1024, 2.955, 3.01)])
def test_errors_are_those_of_the_issue(cells: int, best: float, even: float) -> None:
    for strategy, expected in (
        (best_strategy(cells, CDF), best),
        (ToeplitzStrategy.from_size(cells), even),
    ):
        rmse = (strategy.prefix_variances.mean() * strategy.column_norm) ** 0.5
        assert rmse == pytest.approx(expected, rel=1.5e-3)


def test_what_is_planned() -> None:
    assert isinstance(plan_strategy(65, CDF), DenseStrategy)
    assert plan_strategy(5000, CDF) == ToeplitzStrategy.from_size(5000)
    with pytest.raises(ValueError, match="cells"):
        plan_strategy(MOST_LEAVES + 1, CDF)


@for_each("cells", [1, 2, 16, 17, 256, 257, 1000, 4097, 2**20])
def test_the_reported_tree_has_all_cells(cells: int) -> None:
    tree = listed_tree(cells)
    assert tree.leaves == cells and all(fanout <= 16 for fanout in tree.fanouts)
