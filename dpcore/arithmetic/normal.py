"""Distribution, tails and quantiles of the normal law, with the same bits on every processor.

All follow from the scaled tail exp(x^2) erfc(x), for which Cody 1969, "Rational Chebyshev
approximations for the error function", has rational functions in three ranges; a quantile is the
limit of Newton's steps on the logarithm of the tail. Relative errors stay below 1e-15, below
1e-13 in the far tails, and below 1e-11 for quantiles close to 1/2.
"""

from __future__ import annotations

import math
from typing import Any, overload

import numpy as np

from dptrees.dpcore.arithmetic.elementary import (
    elementwise,
    exp,
    exp_kernel,
    log,
    log1p,
    polynomial,
)
from dptrees.dpcore.arrays import Floats, Numbers

# Numerators and denominators, from the constant up.
_NEAR = (
    (
        3209.377589138469472562,
        377.485237685302021,
        113.8641541510501556,
        3.161123743870565597,
        0.1857777061846031526,
    ),
    (2844.236833439170622, 1282.616526077372276, 244.0246379344441733, 23.60129095234412093, 1.0),
)
_MIDDLE = (
    (
        1230.33935479799725272,
        2051.0783778260714654,
        1712.04761263407058314,
        881.95222124176909,
        298.6351381974001311,
        66.11919063714162948,
        8.883149794388375941,
        0.5641884969886700892,
        2.15311535474403846e-8,
    ),
    (
        1230.33935480374942043,
        3439.36767414372163696,
        4362.61909014324715820,
        3290.79923573345962678,
        1621.38957456669018874,
        537.181101862009857509,
        117.693950891312499305,
        15.7449261107098347253,
        1.0,
    ),
)
_FAR = (
    (
        6.58749161529837803157e-4,
        0.0160837851487422766278,
        0.125781726111229246204,
        0.360344899949804439429,
        0.305326634961232344035,
        0.0163153871373020978498,
    ),
    (
        0.00233520497626869185443,
        0.0605183413124413191178,
        0.527905102951428412248,
        1.87295284992346047209,
        2.56852019228982242072,
        1.0,
    ),
)
_NEAR_END, _MIDDLE_END = 0.46875, 4.0
_ROOT_HALF = 0.7071067811865476
_PER_ROOT_PI = 0.5641895835477563
_LOG_2 = 0.6931471805599453
_LOG_ROOT_2_PI = 0.9189385332046727


def _square_exponential(ops: Any, x: Any) -> Any:
    """exp(-x^2), where x^2 itself would lose digits: x = n / 16 + rest."""
    rounded = ops.rint(x * 16.0) * 0.0625
    return exp_kernel(ops, -rounded * rounded) * exp_kernel(ops, -(x - rounded) * (x + rounded))


def _scaled_tail(ops: Any, size: Any) -> Any:
    """exp(x^2) erfc(x) of x >= 0.46875."""
    middle = ops.minimum(size, _MIDDLE_END)
    inner = polynomial(_MIDDLE[0], middle) / polynomial(_MIDDLE[1], middle)
    far = ops.maximum(size, _MIDDLE_END)
    inverse = (1.0 / far) / far
    rest = inverse * polynomial(_FAR[0], inverse) / polynomial(_FAR[1], inverse)
    return ops.where(size <= _MIDDLE_END, inner, (_PER_ROOT_PI - rest) / far)


def _central(ops: Any, x: Any) -> Any:
    """erf(x) of |x| <= 0.46875."""
    near = ops.minimum(ops.maximum(x, -_NEAR_END), _NEAR_END)
    square = near * near
    return near * polynomial(_NEAR[0], square) / polynomial(_NEAR[1], square)


def _erfcx(ops: Any, x: Any) -> Any:
    size = ops.maximum(x, -x)
    tail = _scaled_tail(ops, ops.maximum(size, _NEAR_END))
    square = ops.minimum(size, 27.0)
    grown = 1.0 / _square_exponential(ops, square)
    near = (1.0 - _central(ops, x)) * grown
    outer = ops.where(x < 0.0, ops.where(size < 26.7, 2.0 * grown, math.inf) - tail, tail)
    return ops.where(x == x, ops.where(size <= _NEAR_END, near, outer), x)


def _erfc(ops: Any, x: Any) -> Any:
    size = ops.maximum(x, -x)
    bounded = ops.minimum(ops.maximum(size, _NEAR_END), 30.0)
    tail = _square_exponential(ops, bounded) * _scaled_tail(ops, bounded)
    outer = ops.where(x < 0.0, 2.0 - tail, tail)
    return ops.where(x == x, ops.where(size <= _NEAR_END, 1.0 - _central(ops, x), outer), x)


@overload
def erfcx(x: float) -> float: ...
@overload
def erfcx(x: Numbers) -> Floats: ...
def erfcx(x: float | Numbers) -> float | Floats:
    """Return exp(x^2) erfc(x), in the shape of x.

    >>> erfcx(0.0), round(erfcx(10.0), 12)
    (1.0, 0.056140992744)
    """
    return elementwise(_erfcx, x)  # type: ignore[no-any-return]


@overload
def erfc(x: float) -> float: ...
@overload
def erfc(x: Numbers) -> Floats: ...
def erfc(x: float | Numbers) -> float | Floats:
    """Return 1 - erf(x), in the shape of x.

    >>> erfc(0.0), round(erfc(1.0), 12)
    (1.0, 0.15729920705)
    """
    return elementwise(_erfc, x)  # type: ignore[no-any-return]


@overload
def normal_cdf(x: float) -> float: ...
@overload
def normal_cdf(x: Numbers) -> Floats: ...
def normal_cdf(x: float | Numbers) -> float | Floats:
    """Return P(Z <= x) of a standard normal Z, in the shape of x.

    >>> normal_cdf(0.0), round(normal_cdf(-1.0), 12)
    (0.5, 0.158655253931)
    """
    return 0.5 * erfc(-_ROOT_HALF * x)


def log_normal_cdf(x: float) -> float:
    """Return log P(Z <= x) of a standard normal Z, with all its digits in both tails.

    >>> round(log_normal_cdf(-40.0), 9), log_normal_cdf(10.0)
    (-804.608442014, -7.61985302416...e-24)
    """
    if x > 0:
        return log1p(-normal_cdf(-x))
    return log(0.5 * erfcx(-_ROOT_HALF * x)) - 0.5 * x * x


def normal_quantile(probability: float) -> float:
    """Return the z with P(Z <= z) = probability.

    Args:
        probability: above 0 and below 1.

    Raises:
        ValueError: it is not.

    >>> round(normal_quantile(0.975), 12), normal_quantile(0.5)
    (1.95996398454, 0.0)
    """
    if not 0 < probability < 1:
        raise ValueError(f"probability: {probability} is not above 0 and below 1")
    if probability == 0.5:
        return 0.0
    if probability > 0.5:
        return -_low_quantile(1.0 - probability)
    return _low_quantile(probability)


def normal_quantiles(probabilities: Floats) -> Floats:
    """Return the z with P(Z <= z) = probability, in the shape of the probabilities.

    Args:
        probabilities: (...) above 0 and below 1.

    >>> normal_quantiles(np.array([0.025, 0.5, 0.975])).round(6)
    array([-1.959964,  0.      ,  1.959964])
    """
    low = np.minimum(probabilities, 1.0 - probabilities)
    wanted = log(low)
    moving = low < 0.5
    z = np.where(moving, -np.sqrt(np.maximum(0.0, -2.0 * (wanted + _LOG_2))), 0.0)
    for _ in range(50):
        half = 0.5 * z * z
        found = log(0.5 * erfcx(-_ROOT_HALF * z)) - half
        step = (found - wanted) * exp(found + half + _LOG_ROOT_2_PI)
        z = np.where(moving, z - step, z)
        moving &= np.abs(step) > 1e-16 * np.abs(z)
        if not moving.any():
            break
    return np.where(probabilities > 0.5, -z, z)


def _low_quantile(probability: float) -> float:
    """The quantile of a probability below 1/2, by Newton's steps on log P(Z <= z)."""
    wanted = log(probability)
    z = -math.sqrt(max(0.0, -2.0 * (wanted + _LOG_2)))
    for _ in range(50):
        found = log_normal_cdf(z)
        # The derivative is the density over P(Z <= z).
        step = (found - wanted) * exp(found + 0.5 * z * z + _LOG_ROOT_2_PI)
        z -= step
        if abs(step) <= 1e-16 * abs(z):
            break
    return z
