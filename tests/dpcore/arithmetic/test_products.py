"""Products of matrices: beside exact fractions, and the same where BLAS adds in another order."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.arithmetic.matrices import (
    gram_residual,
    integer_product,
    inverse_upper,
    product,
    solved_lower,
    solved_upper,
)
from dptrees.dpcore.arrays import Floats, Integers
from tests.dpcore.cases import for_each

SIZES = ((1, 1, 1), (3, 5, 2), (17, 64, 9), (4, 300, 5))


def factors(size: tuple[int, int, int], seed: int = 1) -> tuple[Floats, Floats]:
    """Matrices whose entries differ in size by many powers of two."""
    rng, (m, k, n) = np.random.default_rng(seed), size
    a = rng.normal(size=(m, k)) * 2.0 ** rng.integers(-12, 12, (m, k))
    b = rng.normal(size=(k, n)) * 2.0 ** rng.integers(-12, 12, (k, n))
    return a, b


def exact(a: Floats, b: Floats) -> list[list[Fraction]]:
    left, right = ([[Fraction(x) for x in row] for row in each.tolist()] for each in (a, b.T))
    return [
        [sum((x * y for x, y in zip(row, column, strict=True)), Fraction(0)) for column in right]
        for row in left
    ]


@for_each("size", SIZES)
def test_errors_of_products_are_as_stated(size: tuple[int, int, int]) -> None:
    a, b = factors(size)
    most = np.abs(a).max(axis=1)[:, None] * np.abs(b).max(axis=0)
    for row, expected, bounds in zip(
        product(a, b).tolist(), exact(a, b), most.tolist(), strict=True
    ):
        for value, true, bound in zip(row, expected, bounds, strict=True):
            assert abs(Fraction(value) - true) <= 2.0**-52 * size[1] * bound + 2.0**-53 * abs(true)


def test_a_product_of_integers_is_exact() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-(2**20), 2**20, (6, 700)), rng.integers(-(2**20), 2**20, (700, 4))
    assert (product(a.astype(float), b.astype(float)) == a @ b).all()


@for_each("largest", [3, 2**20, 2**40])
def test_integers_are_multiplied_modulo_2_to_the_64(largest: int) -> None:
    rng = np.random.default_rng(4)
    a: Integers = rng.integers(-largest, largest, (5, 60))
    b: Integers = rng.integers(-largest, largest, (60, 3))
    expected = a.astype(object) @ b.astype(object) % 2**64
    assert (integer_product(a, b).view(np.uint64).astype(object) == expected).all()


def test_a_product_does_not_depend_on_the_order_of_its_terms() -> None:
    """Which is what processors differ in; sums of BLAS change."""
    (a, b), order = factors((30, 400, 30)), np.random.default_rng(5).permutation(400)
    assert (product(a[:, order], b[order]) == product(a, b)).all()
    assert (a[:, order] @ b[order] != a @ b).any()


def test_zeros_and_sizes_of_nothing() -> None:
    assert product(np.zeros((2, 3)), np.ones((3, 2))).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert product(np.zeros((2, 0)), np.zeros((0, 1))).tolist() == [[0.0], [0.0]]
    assert product(np.zeros((0, 2)), np.zeros((2, 1))).shape == (0, 1)


def test_large_and_small_rows_keep_their_digits() -> None:
    scales = np.array([[1e150], [1e-150], [1e-250]])
    a, b = factors((3, 20, 2))
    assert np.allclose(product(a * scales, b) / scales, a @ b, rtol=1e-12)


@for_each("planted", [np.inf, -np.inf, np.nan])
def test_infinities_and_nans_are_refused(planted: float) -> None:
    a, b = factors((3, 5, 2))
    a[1, 2] = planted
    with pytest.raises(ValueError, match="infinite or not a number"):
        product(a, b)
    with pytest.raises(ValueError, match="infinite or not a number"):
        product(b.T, a.T)
    with pytest.raises(ValueError, match="infinite or not a number"):
        gram_residual(np.zeros((3, 3)), a)


@for_each("size", [1, 4, 30])
def test_residuals_are_known_where_all_but_the_last_digits_cancel(size: int) -> None:
    a = np.rint(np.random.default_rng(6).normal(size=(size, size)) * 2**40) / 2**40
    target = a @ a.T
    found = gram_residual(target, a)
    products, targets = exact(a, a.T), target.tolist()
    for i in range(size):
        for j in range(size):
            true = Fraction(targets[i][j]) - products[i][j]
            assert abs(Fraction(float(found[i, j])) - true) <= abs(true) * 2.0**-50 + 2.0**-75
    assert (found == gram_residual(target[::-1, ::-1], a[::-1])[::-1, ::-1]).all()


@for_each("size", [1, 2, 63, 64, 65, 200])
def test_triangular_systems_are_those_of_linear_algebra(size: int) -> None:
    rng = np.random.default_rng(7)
    matrix = np.triu(rng.integers(0, 50, (size, size))).astype(float) + 300 * np.eye(size)
    sums = rng.normal(size=(size, 3)) * 1000
    expected = np.linalg.solve(matrix, sums)
    assert np.allclose(solved_upper(matrix, sums), expected, rtol=1e-12, atol=1e-12)
    expected = np.linalg.solve(matrix.T, sums)
    assert np.allclose(solved_lower(matrix.T, sums), expected, rtol=1e-12, atol=1e-12)
    assert np.allclose(inverse_upper(matrix), np.linalg.inv(matrix), rtol=1e-12, atol=1e-15)


def test_systems_do_not_change_their_arguments() -> None:
    matrix, sums = np.eye(3) * 2, np.ones((3, 1))
    solved_upper(matrix, sums)
    assert (sums == 1).all() and (matrix == np.eye(3) * 2).all()
