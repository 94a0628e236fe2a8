"""Square roots and Cholesky factors: known to more digits than floating point has."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.arithmetic.matrices import (
    Corrected,
    cholesky_factor,
    decided_rounding,
    path_root_diagonal,
    rough_factor,
    rounded_root_diagonal,
    square_root,
)
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.factorised.optimum import optimal_weights, prefix_gram, weighted_gram
from tests.dpcore.cases import for_each

Numbers = list[list[Decimal]]


def decimals(*matrices: Floats) -> Numbers:
    """The sum of matrices, exactly."""
    rows, columns = matrices[0].shape
    return [
        [sum((Decimal(float(each[i, j])) for each in matrices), Decimal(0)) for j in range(columns)]
        for i in range(rows)
    ]


def largest_difference(left: Numbers, right: Numbers, expected: Numbers) -> Decimal:
    """max |left right' - wanted|."""
    return max(
        abs(sum((x * y for x, y in zip(row, other, strict=True)), Decimal(0)) - true)
        for row, trues in zip(left, expected, strict=True)
        for other, true in zip(right, trues, strict=True)
    )


def test_roots_and_factors_are_known_to_twenty_digits() -> None:
    matrix = prefix_gram(12)
    root = square_root(matrix)
    factor = cholesky_factor(root)
    with localcontext() as context:
        context.prec = 60
        known = decimals(root.start, root.correction)
        assert largest_difference(known, known, decimals(matrix)) < Decimal(10) ** -20
        lower = decimals(factor.start, np.tril(factor.correction))
        assert largest_difference(lower, lower, known) < Decimal(10) ** -20
        rounded = decimals(root.sum)
        assert largest_difference(rounded, rounded, decimals(matrix)) > Decimal(10) ** -16


@for_each("cells", [1, 2, 40, 200])
def test_they_are_those_of_linear_algebra(cells: int) -> None:
    matrix = prefix_gram(cells)
    root = square_root(matrix).sum
    assert np.allclose(root @ root, matrix, rtol=1e-10, atol=1e-10)
    factor = cholesky_factor(square_root(matrix)).sum
    assert np.allclose(factor, np.linalg.cholesky(root), rtol=1e-8, atol=1e-9)
    rough, diagonal = rough_factor(matrix)
    assert np.allclose(rough, factor, rtol=1e-8, atol=1e-9)
    assert np.allclose(diagonal, root.diagonal(), rtol=1e-10)


def off(function: Any, size: float) -> Any:
    """LAPACK of another processor: what it returns is off in its last digits."""
    rng = np.random.default_rng(11)

    def moved(matrix: Floats) -> Any:
        found = function(matrix)
        if isinstance(found, np.ndarray):
            return found * (1 + size * rng.normal(size=found.shape))
        values, vectors = found
        return values * (1 + size * rng.normal(size=values.shape)), vectors + size * rng.normal(
            size=vectors.shape
        )

    return moved


def test_another_lapack_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = prefix_gram(100)
    one = square_root(matrix)
    factor = cholesky_factor(one)
    diagonals = {bits: rounded_root_diagonal(matrix, bits) for bits in (14, 30)}
    rough = rough_factor(matrix)[0]
    for name in ("eigh", "cholesky"):
        monkeypatch.setattr(np.linalg, name, off(getattr(np.linalg, name), 1e-15))
    other = square_root(matrix)
    apart = (one.start - other.start) + (one.correction - other.correction)
    assert np.abs(apart).max() < 1e-19 < np.abs(one.correction).max()
    again = cholesky_factor(other)
    apart = (factor.start - again.start) + np.tril(factor.correction - again.correction)
    assert np.abs(apart).max() < 1e-18
    for bits, diagonal in diagonals.items():
        assert (rounded_root_diagonal(matrix, bits) == diagonal).all()
    assert (rough_factor(matrix)[0] != rough).any()


@for_each("bits", [4, 14, 30])
def test_diagonals_are_rounded_to_so_many_bits(bits: int) -> None:
    matrix = prefix_gram(30)
    found, exact = rounded_root_diagonal(matrix, bits), square_root(matrix).sum.diagonal()
    mantissas = np.frexp(found)[0] * 2.0**bits
    assert (mantissas == np.rint(mantissas)).all()
    assert (np.abs(found / exact - 1) <= 2.0**-bits).all()
    if bits < 30:
        assert (np.abs(found / exact - 1) > 2.0 ** -(bits + 4)).any()


def test_a_correction_is_part_of_what_is_factored() -> None:
    start, correction = np.diag([4.0, 9.0]), np.diag([1e-12, 0.0])
    found = cholesky_factor(Corrected(start=start, correction=correction))
    assert (found.start[0, 0] - 2.0) + found.correction[0, 0] == pytest.approx(2.5e-13, rel=1e-4)


@for_each("cells", [1, 2, 3, 17, 300])
def test_it_is_within_its_bound_of_the_corrected_root(cells: int) -> None:
    weights = np.random.default_rng(cells).uniform(0.1, 4.0, cells)
    exact = square_root(weighted_gram(prefix_gram(cells), np.sqrt(weights)))
    found, error = path_root_diagonal(weights)
    distance = np.abs(found - exact.start.diagonal() - exact.correction.diagonal()).max()
    assert distance <= error < 1e-9
    assert distance < 1e-12 * found.max()  # most of the bound is of rounding that adds up


def test_a_decided_rounding_is_that_of_the_whole_matrix() -> None:
    for seed in range(5):
        weights = np.random.default_rng(seed).uniform(0.3, 2.0, 200)
        rounded = decided_rounding(*_arguments(weights, 14))
        whole = rounded_root_diagonal(weighted_gram(prefix_gram(200), np.sqrt(weights)), 14)
        assert rounded is not None
        np.testing.assert_array_equal(rounded, whole)


def _arguments(weights: Floats, bits: int) -> tuple[Floats, int, float]:
    found, error = path_root_diagonal(weights)
    return found, bits, error


@pytest.mark.parametrize("cells", [1025])
def test_weights_of_prefixes_are_the_same_bits_either_way(cells: int) -> None:
    fast = optimal_weights(prefix_gram, cells, of_prefixes=True)
    slow = optimal_weights(prefix_gram, cells)
    np.testing.assert_array_equal(fast.weights, slow.weights)
    assert (fast.gap, fast.bound) == (slow.gap, slow.bound)
