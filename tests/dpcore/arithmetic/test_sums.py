"""Sums, integer powers, exponents and interpolation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.arithmetic.sums import (
    binary_exponent,
    decimal_exponent,
    dot,
    hypotenuse,
    integer_power,
    interpolated,
    power_of_ten,
    row_dots,
)
from tests.dpcore.cases import for_each


def test_products_of_vectors_and_rows() -> None:
    matrix = np.arange(12.0).reshape(3, 4)
    vector = np.array([1.0, -2.0, 0.5, 3.0])
    assert dot(matrix[1], vector) == matrix[1] @ vector
    assert row_dots(matrix, vector).tolist() == (matrix @ vector).tolist()


def test_a_sum_does_not_depend_on_the_layout() -> None:
    values = np.sqrt(np.arange(1.0, 20_001.0)).reshape(20, 1000)
    transposed = np.asfortranarray(values)
    assert np.array_equal(row_dots(values, 0.1), row_dots(transposed, 0.1))


@for_each("exponent", [0, 1, 2, 3, 7, 64])
def test_integer_powers(exponent: int) -> None:
    base = np.array([-1.5, 0.0, 1.0, 1.01])
    assert np.allclose(integer_power(base, exponent), base**exponent, rtol=1e-14)


@for_each("exponent", range(-300, 301, 7))
def test_exponents_are_exact_beside_a_power(exponent: int) -> None:
    ten = float(f"1e{exponent}")
    exact = Fraction(ten) >= Fraction(10) ** exponent
    assert decimal_exponent(ten) == (exponent if exact else exponent - 1)
    assert decimal_exponent(Fraction(10) ** exponent) == exponent
    assert decimal_exponent(Fraction(10) ** exponent * Fraction(999, 1000)) == exponent - 1
    two = Fraction(2) ** exponent
    assert binary_exponent(two) == exponent
    assert binary_exponent(two * Fraction(1001, 1000)) == exponent + 1


@pytest.mark.parametrize("function", [binary_exponent, decimal_exponent])
def test_no_exponent_of_0(function: object) -> None:
    with pytest.raises(ValueError, match="above 0"):
        function(0.0)  # type: ignore[operator]


def test_powers_of_ten_are_the_nearest_floats() -> None:
    assert [power_of_ten(each) for each in range(-320, 309)] == [
        float(f"1e{each}") for each in range(-320, 309)
    ]


def test_hypotenuse() -> None:
    assert hypotenuse(1.0, 2.0, 2.0) == 3.0


def test_interpolation_beside_numpy() -> None:
    places = np.array([0.0, 1.0, 1.0, 3.0, 7.0])
    values = np.array([2.0, -1.0, 4.0, 4.0, 0.5])
    x = np.linspace(-1.0, 8.0, 200)
    assert np.allclose(interpolated(x, places, values), np.interp(x, places, values), rtol=1e-14)
    assert interpolated([5.0], [1.0], [9.0]).tolist() == [9.0]
    assert math.isclose(float(interpolated(2.0, places, values)), 4.0)
    # Of equal places the last counts, at the ends as well.
    places = np.array([0.0, 0.0, 5.0, 5.0])
    assert interpolated([0.0, 5.0], places, values[:4]).tolist() == [-1.0, 4.0]
    assert np.interp([0.0, 5.0], places, values[:4]).tolist() == [-1.0, 4.0]
