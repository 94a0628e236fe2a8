"""Dual numbers: values with their derivatives, by real arithmetic.

A formula that is written for arrays, with + - * /, squares, `np.where`, `np.stack` and sums over
the last axis, computes its derivatives when it is given dual numbers. (A complex step would too,
but NumPy multiplies complex numbers with fused operations where the processor has them.)

Source: Clifford 1873; Wengert 1964, "A simple automatic derivative evaluation program".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpcore.arrays import Floats


class Dual:
    """A value and its derivatives in some directions.

    Args:
        value: (...).
        slopes: (directions, ...), or what broadcasts to it.

    >>> x = Dual(np.array([3.0]), np.array([[1.0]]))
    >>> y = 1 / (x**2 + 1)
    >>> y.value, y.slopes  # -2 x / (x^2 + 1)^2
    (array([0.1]), array([[-0.06]]))
    """

    # NumPy's arrays leave operations with a dual number to it.
    __array_ufunc__ = None

    def __init__(self, value: Floats, slopes: Floats) -> None:
        self.value, self.slopes = value, slopes

    @property
    def real(self) -> Floats:
        """The value, under the name that arrays of complex numbers have for theirs."""
        return self.value

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self.value.shape

    def __add__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            return Dual(self.value + other.value, self.slopes + other.slopes)
        return Dual(self.value + other, self.slopes)

    __radd__ = __add__

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slopes)

    def __sub__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            return Dual(self.value - other.value, self.slopes - other.slopes)
        return Dual(self.value - other, self.slopes)

    def __rsub__(self, other: Any) -> Dual:
        return Dual(other - self.value, -self.slopes)

    def __mul__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            slopes = self.slopes * other.value + self.value * other.slopes
            return Dual(self.value * other.value, slopes)
        return Dual(self.value * other, self.slopes * other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            quotient = self.value / other.value
            return Dual(quotient, (self.slopes - quotient * other.slopes) / other.value)
        return Dual(self.value / other, self.slopes / other)

    def __rtruediv__(self, other: Any) -> Dual:
        quotient = other / self.value
        return Dual(quotient, -quotient * (self.slopes / self.value))

    def __pow__(self, exponent: int) -> Dual:
        if exponent != 2:
            raise ValueError(f"exponent: {exponent} is not 2, the only one that formulas here have")
        return self * self

    def __eq__(self, other: object) -> Any:
        return self.value == (other.value if isinstance(other, Dual) else other)

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, key: Any) -> Dual:
        inner = key if isinstance(key, tuple) else (key,)
        of_slopes = (slice(None), *inner)
        return Dual(self.value[key], self.slopes[of_slopes])

    def sum(self, axis: int) -> Dual:
        """Return the sum over the last axis."""
        if axis != -1:
            raise ValueError(f"axis: {axis} is not the last one, -1")
        return Dual(self.value.sum(axis=-1), self.slopes.sum(axis=-1))

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        if function not in _FUNCTIONS:
            return NotImplemented
        return _FUNCTIONS[function](*args, **kwargs)


def _where(condition: Any, then: Any, otherwise: Any) -> Dual:
    first, second = (each if isinstance(each, Dual) else None for each in (then, otherwise))
    known = first if first is not None else second
    assert known is not None
    none = np.zeros_like(known.slopes)
    slopes = [none if each is None else each.slopes for each in (first, second)]
    values = [each.value if isinstance(each, Dual) else each for each in (then, otherwise)]
    return Dual(np.where(condition, *values), np.where(condition, *slopes))


def _stack(parts: Sequence[Dual], axis: int) -> Dual:
    if axis != -1:
        raise ValueError(f"axis: {axis} is not the last one, -1")
    widest = np.broadcast_shapes(*(each.slopes.shape for each in parts))
    slopes = [np.broadcast_to(each.slopes, widest) for each in parts]
    return Dual(np.stack([each.value for each in parts], axis=-1), np.stack(slopes, axis=-1))


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.where: _where,
    np.shape: lambda array: array.shape,
    np.stack: _stack,
    np.zeros_like: lambda like: Dual(np.zeros_like(like.value), np.zeros_like(like.slopes)),
    np.ones_like: lambda like: Dual(np.ones_like(like.value), np.zeros_like(like.slopes)),
}
