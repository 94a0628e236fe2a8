"""Sines and cosines whose bits do not depend on the processor.

An angle x is reduced to x - k pi / 2 within pi / 4 of 0, with k pi / 2 in three parts whose
multiples are exact while k is below 2^20; of larger angles the remainder is found in integers, one
by one. Then the series of Taylor, in a fixed order. Errors stay below two units in the last place.

Source: Cody, Waite 1980, "Software Manual for the Elementary Functions".
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, overload

import numpy as np

from dptrees.dpcore.arithmetic.elementary import elementwise, polynomial
from dptrees.dpcore.arrays import Floats, Numbers

_PER_QUARTER = 0.6366197723675814
# pi / 2 in parts of 33 bits, and what is left.
_FIRST = float.fromhex("0x1.921fb544p+0")
_SECOND = float.fromhex("0x1.0b4611a6p-34")
_THIRD = float.fromhex("0x1.3198a2e037073p-69")
# Larger angles are reduced in integers.
_LARGE = 2.0**20
# -1/3!, 1/5!, ... and -1/2!, 1/4!, ...
_SINE = tuple((-1.0) ** n / math.factorial(2 * n + 1) for n in range(1, 10))
# To pi / 2.
_LONG_SINE = tuple((-1.0) ** n / math.factorial(2 * n + 1) for n in range(1, 13))
_COSINE = tuple((-1.0) ** n / math.factorial(2 * n) for n in range(1, 10))


@lru_cache(maxsize=1)
def _quarter() -> int:
    """Return pi / 2 in units of 2^-1200, by Machin's formula in integers."""
    bits = 1264

    def arctangent(inverse: int) -> int:
        term = (1 << bits) // inverse
        total, n, sign = term, 1, -1
        while term:
            term //= inverse * inverse
            n += 2
            total += sign * (term // n)
            sign = -sign
        return total

    return (8 * arctangent(5) - 2 * arctangent(239)) >> (bits - 1200)


def _reduced_large(x: float) -> tuple[int, float]:
    """Return k modulo 4 and x - k pi / 2 of a large angle."""
    numerator, denominator = x.as_integer_ratio()
    quarter = _quarter()
    scaled = (numerator << 1200) // denominator
    k = (2 * scaled + quarter) // (2 * quarter)
    return k % 4, math.ldexp(float((scaled - k * quarter) >> 1100), -100)


def _kernel(shift: int) -> Any:
    """Return the kernel of sin(x + shift pi / 2)."""

    def kernel(ops: Any, x: Any) -> Any:
        k = ops.rint(x * _PER_QUARTER)
        r = ((x - k * _FIRST) - k * _SECOND) - k * _THIRD
        square = r * r
        sine = r + r * square * polynomial(_SINE, square)
        half = 0.5 * square
        one = 1.0 - half
        # What 1 - half lost is added again.
        rest = ((1.0 - one) - half) + square * square * polynomial(_COSINE[1:], square)
        place = k + shift
        quarter = place - 4.0 * ops.rint(place * 0.25 - 0.375)
        value = ops.where((quarter == 0.0) | (quarter == 2.0), sine, one + rest)
        return ops.where(quarter >= 2.0, -value, value)

    return kernel


_KERNELS = {shift: _kernel(shift) for shift in (0, 1)}


def _sine_square_kernel(ops: Any, x: Any) -> Any:
    """sin(x)^2 of |x| <= 2^20: it repeats after half a turn, so no quarters are distinguished."""
    k = 2.0 * ops.rint(x * (0.5 * _PER_QUARTER))
    r = ((x - k * _FIRST) - k * _SECOND) - k * _THIRD
    square = r * r
    sine = 1.0 + square * polynomial(_LONG_SINE, square)
    return square * (sine * sine)


def sine_square(x: Numbers) -> Floats:
    """Return sin(x)^2, in the shape of x, in half of the time that `sin` takes.

    >>> sine_square(np.array([0.0, 0.5])).round(6)
    array([0.      , 0.229849])
    """
    if np.all(np.abs(x) <= _LARGE):
        return np.asarray(elementwise(_sine_square_kernel, x))
    return np.square(sin(x))


def _shifted(x: Any, shift: int) -> Any:
    size = np.abs(x)
    if np.all(size <= _LARGE):
        return elementwise(_KERNELS[shift], x)
    angles = np.array(x, dtype=np.float64)
    large = np.flatnonzero(~(size <= _LARGE))
    shifts = np.zeros(angles.size)
    flat = angles.reshape(-1)
    for place in large.tolist():
        if math.isfinite(flat[place]):
            shifts[place], flat[place] = _reduced_large(float(flat[place]))
        else:
            flat[place] = math.nan
    found = np.asarray(elementwise(_KERNELS[shift], flat))
    for quarter in (1, 2, 3):
        own = shifts == quarter
        if own.any():
            turned = elementwise(_KERNELS[(shift + quarter) % 2], flat[own])
            found[own] = -turned if (shift + quarter) % 4 >= 2 else turned
    return found.reshape(angles.shape) if np.ndim(x) else float(found[0])


@overload
def sin(x: float) -> float: ...
@overload
def sin(x: Numbers) -> Floats: ...
def sin(x: float | Numbers) -> float | Floats:
    """Return the sine of angles in radians, in the shape of x.

    >>> sin(0.5), sin(1e22)
    (0.479425538604203, -0.8522008497671888)
    """
    return _shifted(x, 0)  # type: ignore[no-any-return]


@overload
def cos(x: float) -> float: ...
@overload
def cos(x: Numbers) -> Floats: ...
def cos(x: float | Numbers) -> float | Floats:
    """Return the cosine of angles in radians, in the shape of x.

    >>> cos(0.0), cos(1.0)
    (1.0, 0.5403023058681398)
    """
    return _shifted(x, 1)  # type: ignore[no-any-return]


def within_half_turn(x: Floats) -> Floats:
    """Return the angles within pi of 0 that differ from x by whole turns, in the shape of x.

    >>> within_half_turn(np.array([1.0, 7.0])).round(6)
    array([1.      , 0.716815])
    """
    turns = np.rint(x * (0.25 * _PER_QUARTER))
    quarters = 4.0 * np.where(np.abs(x) <= _LARGE, turns, 0.0)
    near = ((x - quarters * _FIRST) - quarters * _SECOND) - quarters * _THIRD
    for place in zip(*np.nonzero(np.abs(x) > _LARGE), strict=True):
        quarter, rest = _reduced_large(float(x[place]))
        near[place] = rest + (quarter - 4 * (quarter > 2)) * (0.5 * math.pi)
    return near


def sinc(x: Floats) -> Floats:
    """Return sin(x) / x, 1 at 0, in the shape of x. (NumPy's sinc has pi x in place of x.)

    >>> sinc(np.array([0.0, 0.5])).round(6)
    array([1.      , 0.958851])
    """
    divisor = np.where(x == 0, 1.0, x)
    return np.where(x == 0, 1.0, sin(divisor) / divisor)
