"""Dual numbers: values with their derivatives, by real arithmetic.

A formula for arrays with + - * /, squares, `np.where`, `np.stack` and sums over the last axis
computes its derivatives when it is given dual numbers. (NumPy may multiply complex numbers with
fused operations, so a complex step would depend on the processor.) Source: Clifford 1873; Wengert
1964, "A simple automatic derivative evaluation program".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dptrees.dpcore.arrays import Floats


class Dual:
    """A value and its derivatives in some directions.

    All of them are in one array, so that most operations are one call of NumPy. An array that is
    combined with a dual number has no more axes than its value.

    Args:
        value: (...).
        slopes: (directions, ...), or what broadcasts to it.

    >>> x = Dual(np.array([3.0]), np.array([[1.0]]))
    >>> y = 1 / (x**2 + 1)
    >>> y.value, y.slopes  # -2 x / (x^2 + 1)^2
    (array([0.1]), array([[-0.06]]))
    """

    __slots__ = ("parts",)

    # NumPy's arrays leave operations with a dual number to it.
    __array_ufunc__ = None

    parts: Floats

    def __init__(self, value: Floats, slopes: Floats) -> None:
        shape = np.broadcast_shapes(slopes.shape, (1, *value.shape))
        self.parts = np.empty((shape[0] + 1, *shape[1:]))
        self.parts[0], self.parts[1:] = value, slopes

    @classmethod
    def from_parts(cls, parts: Floats) -> Dual:
        """Return the number of a value and its derivatives.

        Args:
            parts: (1 + directions, ...), the value first.

        >>> Dual.from_parts(np.array([[3.0], [1.0]])).value
        array([3.])
        """
        made: Dual = object.__new__(cls)
        made.parts = parts
        return made

    @property
    def value(self) -> Floats:
        """The value, (...)."""
        first: Floats = self.parts[0]
        return first

    @property
    def slopes(self) -> Floats:
        """Derivatives of the value, (directions, ...)."""
        return self.parts[1:]

    @property
    def real(self) -> Floats:
        """The value, under the name that arrays of complex numbers have for theirs."""
        return self.value

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self.parts.shape[1:]

    def __add__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            return _made(self.parts + other.parts)
        parts = self.parts.copy()
        parts[0] += other
        return _made(parts)

    __radd__ = __add__

    def __neg__(self) -> Dual:
        return _made(-self.parts)

    def __sub__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            return _made(self.parts - other.parts)
        parts = self.parts.copy()
        parts[0] -= other
        return _made(parts)

    def __rsub__(self, other: Any) -> Dual:
        parts = -self.parts
        np.subtract(other, self.parts[0], out=parts[0])
        return _made(parts)

    def __mul__(self, other: Any) -> Dual:
        if not isinstance(other, Dual):
            return _made(self.parts * other)
        own, factor = self.parts, other.parts
        parts = own * factor[0]
        slopes = parts[1:]
        slopes += own[0] * factor[1:]
        return _made(parts)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Dual:
        if not isinstance(other, Dual):
            return _made(self.parts / other)
        divisor = other.parts[0]
        parts = self.parts.copy()
        quotient = parts[0] / divisor
        slopes = parts[1:]
        slopes -= quotient * other.parts[1:]
        slopes /= divisor
        parts[0] = quotient
        return _made(parts)

    def __rtruediv__(self, other: Any) -> Dual:
        own = self.parts
        value = own[0]
        parts = np.empty_like(own)
        quotient = parts[0] = other / value
        slopes = np.divide(own[1:], value, out=parts[1:])
        slopes *= -quotient
        return _made(parts)

    def __pow__(self, exponent: int) -> Dual:
        if exponent != 2:
            raise ValueError(f"exponent: {exponent} is not 2, the only one that formulas here have")
        parts = self.parts * self.parts[0]
        slopes = parts[1:]
        slopes += slopes
        return _made(parts)

    def __eq__(self, other: object) -> Any:
        return self.parts[0] == (other.parts[0] if isinstance(other, Dual) else other)

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, key: Any) -> Dual:
        inner = key if isinstance(key, tuple) else (key,)
        of_parts = (slice(None), *inner)
        return _made(self.parts[of_parts])

    def sum(self, axis: int) -> Dual:
        """Return the sum over the last axis."""
        if axis != -1:
            raise ValueError(f"axis: {axis} is not the last one, -1")
        return _made(self.parts.sum(axis=-1))

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        if function not in _FUNCTIONS:
            return NotImplemented
        return _FUNCTIONS[function](*args, **kwargs)


_made = Dual.from_parts


def _where(condition: Any, then: Any, otherwise: Any) -> Dual:
    if isinstance(then, Dual) and isinstance(otherwise, Dual):
        return _made(np.where(condition, then.parts, otherwise.parts))
    if isinstance(then, Dual):
        parts = np.where(condition, then.parts, 0.0)
        parts[0] = np.where(condition, then.parts[0], otherwise)
    else:
        parts = np.where(condition, 0.0, otherwise.parts)
        parts[0] = np.where(condition, then, otherwise.parts[0])
    return _made(parts)


def _stack(parts: Sequence[Dual], axis: int) -> Dual:
    if axis != -1:
        raise ValueError(f"axis: {axis} is not the last one, -1")
    return _made(np.stack([each.parts for each in parts], axis=-1))


def _ones_like(like: Dual) -> Dual:
    parts = np.zeros_like(like.parts)
    parts[0] = 1.0
    return _made(parts)


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.where: _where,
    np.shape: lambda array: array.shape,
    np.stack: _stack,
    np.zeros_like: lambda like: _made(np.zeros_like(like.parts)),
    np.ones_like: _ones_like,
}
