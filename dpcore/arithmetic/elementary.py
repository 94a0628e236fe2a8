"""Exponentials, logarithms, sines and cosines that give the same bits on every processor.

A C library and NumPy choose their code for exp, log or pow by the processor, and the last bits
differ. These functions use only + - * /, square roots, rounding to integers and scaling by powers
of two, which IEEE 754 defines to the last bit, in a fixed order; a number and an array of it have
the same bits. An angle x is reduced to x - k pi / 2 with k pi / 2 in three parts, exact while k
is below 2^20; beyond, the remainder is computed in integers. Errors stay below one unit in the
last place for exp and log and below two for the others; powers err by |y log x| units more.
Sources: Cody, Waite 1980, "Software Manual for the Elementary Functions" (reduction by a constant
in parts); Goldberg 1991, theorem 4 (log1p); the series are Taylor series.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any, TypeVar, overload

import numpy as np

from dptrees.dpcore.arrays import Floats, Numbers

# A number or an array: what the kernels compute with alike.
Real = TypeVar("Real", float, Floats)
_Kernel = Callable[[Any, Any], Any]

# log 2 in two parts. The first has 32 bits: a multiple of it below 2^20 is exact.
_LOG_2_HIGH = float.fromhex("0x1.62e42feep-1")
_LOG_2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_LOG_2 = 0.6931471805599453
_PER_LOG_2 = 1.4426950408889634
_LEAST, _LARGEST = -746.0, 710.0
_ROOT_HALF = 0.7071067811865476
# From here on exp(x) - 1 is exp(x), or -1.
_ONE_IS_LOST = 60.0
# 1/2!, 1/3!, ..., 1/14!: beyond them terms are below 2^-58 for |x| <= log(2) / 2.
_FACTORIALS = tuple(1.0 / math.factorial(n) for n in range(2, 15))
# 2/3, 2/5, ..., 2/25: of log((1 + s) / (1 - s)) / s for |s| < 0.172.
_ODD = tuple(2.0 / (2 * n + 1) for n in range(1, 13))
_CUBE_STEPS = 5
_FALLING_FACTORIALS, _FALLING_ODD = _FACTORIALS[-2::-1], _ODD[-2::-1]
# Elements at a time: temporary arrays then stay in the cache.
_BLOCK = 2**13


class _Arrays:
    """The operations of a kernel that arrays and numbers write differently: of arrays."""

    where = staticmethod(np.where)
    rint = staticmethod(np.rint)
    minimum, maximum = staticmethod(np.minimum), staticmethod(np.maximum)
    sqrt = staticmethod(np.sqrt)
    frexp = staticmethod(np.frexp)

    @staticmethod
    def ldexp(values: Floats, exponents: Floats) -> Floats:
        return np.ldexp(values, exponents.astype(np.int32))


class _Numbers:
    """The same of numbers."""

    sqrt = staticmethod(math.sqrt)
    frexp = staticmethod(math.frexp)

    @staticmethod
    def rint(value: float) -> float:
        # Larger numbers are integers already; NaN and infinity stay what they are.
        return float(round(value)) if abs(value) < 2.0**52 else value

    @staticmethod
    def where(condition: bool, then: float, otherwise: float) -> float:
        return then if condition else otherwise

    @staticmethod
    def minimum(first: float, second: float) -> float:
        return second if second < first else first

    @staticmethod
    def maximum(first: float, second: float) -> float:
        return second if second > first else first

    @staticmethod
    def ldexp(value: float, exponent: int) -> float:
        try:
            return math.ldexp(value, int(exponent))
        except OverflowError:
            return math.copysign(math.inf, value)


def elementwise(kernel: _Kernel, values: Any) -> Any:
    """Apply a kernel to a number, or to an array by blocks that fit the cache.

    Args:
        kernel: from the operations and finite numbers, or a block of them, to as many.
        values: a number, or (...) of them.

    Returns:
        A float for a number, else (...) float64.

    >>> elementwise(lambda ops, x: ops.sqrt(x), 4.0)
    2.0
    """
    if np.ndim(values) == 0:
        return float(kernel(_Numbers, float(values)))
    whole = np.asarray(values, dtype=np.float64)
    result = np.empty(whole.shape)
    flat, out = whole.reshape(-1), result.reshape(-1)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            out[block] = kernel(_Arrays, flat[block])
    return result


def polynomial(coefficients: tuple[float, ...], x: Real) -> Real:
    """Return c_0 + c_1 x + c_2 x^2 + ..., two coefficients at least, from the highest power down.

    >>> polynomial((1.0, 2.0, 3.0), 2.0)
    17.0
    """
    value: Any = coefficients[-1] * x + coefficients[-2]
    for coefficient in coefficients[-3::-1]:
        value *= x
        value += coefficient
    return value  # type: ignore[no-any-return]


def _reduced(ops: Any, x: Any) -> tuple[Any, Any]:
    """k and r with x = k log 2 + r and |r| <= log(2) / 2."""
    k = ops.rint(x * _PER_LOG_2)
    return k, (x - k * _LOG_2_HIGH) - k * _LOG_2_LOW


def _expm1_near_zero(r: Any) -> Any:
    return r + r * r * polynomial(_FACTORIALS, r)


def exp_kernel(ops: Any, x: Any) -> Any:
    near = ops.minimum(ops.maximum(ops.where(x == x, x, 0.0), _LEAST), _LARGEST)
    k, r = _reduced(ops, near)
    return ops.where(x == x, ops.ldexp(1.0 + _expm1_near_zero(r), k), x)


def _exp2(ops: Any, x: Any) -> Any:
    near = ops.minimum(ops.maximum(ops.where(x == x, x, 0.0), -1100.0), 1100.0)
    rounded = ops.rint(near)
    return ops.where(x == x, ops.ldexp(exp_kernel(ops, (near - rounded) * _LOG_2), rounded), x)


def _expm1(ops: Any, x: Any) -> Any:
    near = ops.minimum(ops.maximum(ops.where(x == x, x, 0.0), -_ONE_IS_LOST), _ONE_IS_LOST)
    k, r = _reduced(ops, near)
    one = ops.ldexp(1.0 + 0.0 * r, k)
    small = one * _expm1_near_zero(r) + (one - 1.0)
    return ops.where(
        x != near,
        exp_kernel(ops, x) - 1.0,
        ops.where(k == 0, ops.where(x == 0.0, x, _expm1_near_zero(r)), small),
    )


def _log(ops: Any, x: Any) -> Any:
    mantissa, k = ops.frexp(ops.where((x > 0.0) & (x < math.inf), x, 1.0))
    low = mantissa < _ROOT_HALF
    f = ops.where(low, 2.0 * mantissa, mantissa) - 1.0
    k = ops.where(low, k - 1.0, k + 0.0)
    # log(1 + f) = log((1 + s) / (1 - s)) = f - (f^2 / 2 - s (f^2 / 2 + R(s^2))): 2 s = f - s f.
    s = f / (2.0 + f)
    square = s * s
    half = 0.5 * f * f
    rest = square * polynomial(_ODD, square)
    found = k * _LOG_2_HIGH - ((half - (s * (half + rest) + k * _LOG_2_LOW)) - f)
    at_ends = ops.where(x == 0.0, -math.inf, ops.where(x > 0.0, x, math.nan))
    return ops.where((x > 0.0) & (x < math.inf), found, at_ends)


def _log1p(ops: Any, x: Any) -> Any:
    one_more = 1.0 + x
    lost = ops.where(one_more == math.inf, 0.0, x - (one_more - 1.0))
    divisor = ops.where(one_more == 0.0, 1.0, one_more)
    found = _log(ops, one_more) + lost / divisor
    return ops.where(one_more == 1.0, x, found)


def _sinh(ops: Any, x: Any) -> Any:
    size = ops.maximum(x, -x)
    less = _expm1(ops, ops.minimum(size, _ONE_IS_LOST))
    near = 0.5 * (less + less / (less + 1.0))
    half = exp_kernel(ops, 0.5 * size)
    value = ops.where(size < _ONE_IS_LOST, near, (0.5 * half) * half)
    return ops.where(x < 0.0, -value, ops.where(x == x, value, x))


def _tanh(ops: Any, x: Any) -> Any:
    size = ops.minimum(ops.maximum(x, -x), 22.0)
    less = _expm1(ops, 2.0 * size)
    value = less / (less + 2.0)
    return ops.where(x < 0.0, -value, ops.where(x == x, value, x))


# Numbers by themselves, in the same order of operations: planners take logarithms by the million.


def _expm1_number_near_zero(r: float) -> float:
    value = _FACTORIALS[-1]
    for coefficient in _FALLING_FACTORIALS:
        value = value * r + coefficient
    return r + r * r * value


def _exp_number(x: float) -> float:
    k = round(x * _PER_LOG_2)
    r = (x - k * _LOG_2_HIGH) - k * _LOG_2_LOW
    return math.ldexp(1.0 + _expm1_number_near_zero(r), k)


def _expm1_number(x: float) -> float:
    k = round(x * _PER_LOG_2)
    r = (x - k * _LOG_2_HIGH) - k * _LOG_2_LOW
    if k == 0:
        return _expm1_number_near_zero(r) if x else x
    one = math.ldexp(1.0, k)
    return one * _expm1_number_near_zero(r) + (one - 1.0)


def _log_number(x: float) -> float:
    mantissa, k = math.frexp(x)
    if mantissa < _ROOT_HALF:
        mantissa, k = 2.0 * mantissa, k - 1
    f = mantissa - 1.0
    s = f / (2.0 + f)
    square = s * s
    half = 0.5 * f * f
    value = _ODD[-1]
    for coefficient in _FALLING_ODD:
        value = value * square + coefficient
    return k * _LOG_2_HIGH - ((half - (s * (half + square * value) + k * _LOG_2_LOW)) - f)


def _log1p_number(x: float) -> float:
    one_more = 1.0 + x
    if one_more == 1.0:
        return x
    return _log_number(one_more) + (x - (one_more - 1.0)) / one_more


@overload
def exp(x: float) -> float: ...
@overload
def exp(x: Numbers) -> Floats: ...
def exp(x: float | Numbers) -> float | Floats:
    """Return e^x, in the shape of x: infinite above 709.78, 0 below -745.14.

    >>> exp(0.0), exp(-1000.0), round(exp(1.0), 14)
    (1.0, 0.0, 2.71828182845905)
    """
    if isinstance(x, float) and -700.0 < x < 700.0:
        return _exp_number(float(x))
    return elementwise(exp_kernel, x)  # type: ignore[no-any-return]


@overload
def expm1(x: float) -> float: ...
@overload
def expm1(x: Numbers) -> Floats: ...
def expm1(x: float | Numbers) -> float | Floats:
    """Return e^x - 1, in the shape of x, with all its digits near 0.

    >>> expm1(1e-20)
    1e-20
    """
    if isinstance(x, float) and -_ONE_IS_LOST < x < _ONE_IS_LOST:
        return _expm1_number(float(x))
    return elementwise(_expm1, x)  # type: ignore[no-any-return]


@overload
def log(x: float) -> float: ...
@overload
def log(x: Numbers) -> Floats: ...
def log(x: float | Numbers) -> float | Floats:
    """Return the natural logarithm, in the shape of x: -infinity at 0, NaN below.

    >>> log(10.0), log(0.0)
    (2.302585092994046, -inf)
    """
    if isinstance(x, float) and 0.0 < x < math.inf:
        return _log_number(float(x))
    return elementwise(_log, x)  # type: ignore[no-any-return]


def log2(x: float) -> float:
    """Return the logarithm to base 2 of a finite number above 0, of powers of 2 exactly.

    >>> log2(8.0), log2(0.5)
    (3.0, -1.0)
    """
    mantissa, exponent = math.frexp(x)
    return exponent + log(mantissa) / log(2.0)


@overload
def exp2(x: float) -> float: ...
@overload
def exp2(x: Floats) -> Floats: ...
def exp2(x: float | Floats) -> float | Floats:
    """Return 2^x, in the shape of x, of whole numbers exactly.

    >>> exp2(10.0), exp2(np.array([-1.0, 0.5])).round(6)
    (1024.0, array([0.5     , 1.414214]))
    """
    return elementwise(_exp2, x)  # type: ignore[no-any-return]


def cube_root(x: float) -> float:
    """Return the cube root of a finite number x >= 0.

    >>> cube_root(27.0), cube_root(0.0)
    (3.0, 0.0)
    """
    mantissa, exponent = math.frexp(x)
    whole, rest = divmod(exponent, 3)
    # From 1/2 to 4; a line is off by less than a tenth, and Newton's steps double the digits.
    scaled = math.ldexp(mantissa, rest)
    root = 0.65 + 0.26 * scaled
    for _ in range(_CUBE_STEPS if x else 0):
        root -= (root - scaled / (root * root)) / 3.0
    return math.ldexp(root, whole) if x else x


@overload
def log1p(x: float) -> float: ...
@overload
def log1p(x: Numbers) -> Floats: ...
def log1p(x: float | Numbers) -> float | Floats:
    """Return log(1 + x), in the shape of x, with all its digits near 0.

    >>> log1p(1e-20)
    1e-20
    """
    if isinstance(x, float) and -1.0 < x < 1e300:
        return _log1p_number(float(x))
    return elementwise(_log1p, x)  # type: ignore[no-any-return]


@overload
def sinh(x: float) -> float: ...
@overload
def sinh(x: Numbers) -> Floats: ...
def sinh(x: float | Numbers) -> float | Floats:
    """Return the hyperbolic sine, in the shape of x.

    >>> sinh(1.0)
    1.1752011936438014
    """
    return elementwise(_sinh, x)  # type: ignore[no-any-return]


@overload
def tanh(x: float) -> float: ...
@overload
def tanh(x: Numbers) -> Floats: ...
def tanh(x: float | Numbers) -> float | Floats:
    """Return the hyperbolic tangent, in the shape of x.

    >>> tanh(0.0), tanh(30.0)
    (0.0, 1.0)
    """
    return elementwise(_tanh, x)  # type: ignore[no-any-return]


def log_add_exp(values: Floats) -> float:
    """Return log(e^v_1 + ... + e^v_n), which never overflows.

    >>> round(log_add_exp(np.array([1000.0, 1000.0])), 9)
    1000.693147181
    """
    most = float(values.max())
    return most + log(float(exp(values - most).sum()))


@overload
def power(x: float, y: float) -> float: ...
@overload
def power(x: Numbers, y: float | Numbers) -> Floats: ...
@overload
def power(x: float, y: Numbers) -> Floats: ...
def power(x: float | Numbers, y: float | Numbers) -> float | Floats:
    """Return x^y for x >= 0, in the common shape of both: e^(y log x), and 1 where y is 0.

    >>> power(2.0, 0.5), power(0.0, 0.0)
    (1.414213562373095, 1.0)
    """
    with np.errstate(all="ignore"):
        return exp(np.where(np.equal(y, 0.0), 0.0, y * np.asarray(log(x))))


def rounded_power(x: float, y: float) -> float:
    """Return x^y for x > 0, rounded to the nearest float64, by decimal arithmetic of 40 digits.

    >>> rounded_power(4096, 1 / 2), rounded_power(2, 0.5)
    (64.0, 1.4142135623730951)
    """
    with localcontext() as context:
        context.prec = 40
        return float(Decimal(x) ** Decimal(y))


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
