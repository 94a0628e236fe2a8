"""Whole numbers from columns of integers, floats and decimals.

Writers turn a whole column of integers into floats because of one null (pandas), or into decimals
because of one decimal. So columns of all these types mean the same: a whole number is that integer,
whatever is in the other rows.

A float represents an integer only where no other integer has the same float: below 2^53 for
float64. Beyond, the writer may have rounded it, and it is none.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.rows.column import AnyArray, fixed_width_values, null_rows

# Between bounds with more whole numbers, a number of cells is required: a tree with a cell
# for each takes minutes and gigabytes.
MOST_WHOLE = 10**6
# A remainder and a limb together stay inside int64.
_DIGITS_AT_ONCE = 9
_LIMB = 2**32 - 1


def is_number(type: pa.DataType) -> bool:
    """Whether columns of this plain type hold integers, floats or decimals, or truth values, which
    are 0 and 1 where numbers are read.

    >>> is_number(pa.float64()), is_number(pa.decimal128(20, 0)), is_number(pa.date32())
    (True, True, False)
    """
    return _is_whole(type) or bool(pa.types.is_floating(type)) or is_exact_decimal(type)


def _is_whole(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_boolean(type))


def is_exact_decimal(type: pa.DataType) -> bool:
    """Whether a type is one of decimals with digits behind the point, or none.

    >>> is_exact_decimal(pa.decimal128(38, 10)), is_exact_decimal(pa.int8())
    (True, False)
    """
    return bool(pa.types.is_decimal(type)) and bool(type.scale >= 0)


def has_fractions(type: pa.DataType) -> bool:
    """Whether columns of this plain type can have numbers that are not whole.

    >>> has_fractions(pa.float32()), has_fractions(pa.decimal128(9, 0)), has_fractions(pa.int8())
    (True, False, False)
    """
    return bool(pa.types.is_floating(type)) or (is_exact_decimal(type) and bool(type.scale > 0))


def fractions(column: pa.Array) -> Flags | None:
    """Flags of the numbers that are not whole, or None where all are.

    Args:
        column: of a type that `is_number` accepts, (rows,).

    Returns:
        True for a fraction and for NaN, (rows,), arbitrary where null; or None.

    >>> fractions(pa.array([3.0, 2.5, float("inf")])).tolist()
    [False, True, False]
    """
    if not has_fractions(column.type):
        return None
    if pa.types.is_decimal(column.type):
        broken = ~_floored(column)[1]
    else:
        values = fixed_width_values(column)
        with np.errstate(invalid="ignore"):  # of a signaling NaN
            broken = np.floor(values) != values
    return broken if broken.any() else None


def whole_numbers(column: pa.Array, *, unsigned: bool = False) -> tuple[AnyArray, Flags | None]:
    """The integers that the numbers of a column are.

    Args:
        column: of a type that `is_number` accepts, (rows,).
        unsigned: whether floats and decimals are looked for among the integers of uint64, instead
            of int64.

    Returns:
        Integers of some width, (rows,), arbitrary where there is none; and True where there is none
        (null, NaN, fractions, infinities, floats beyond 2^53), (rows,), or None where each row has
        one.

    >>> values, is_none = whole_numbers(pa.array([3.0, 2.5, -7.0]))
    >>> values.tolist(), is_none.tolist()
    ([3, 2, -7], [False, True, False])
    """
    nulls = null_rows(column)
    if _is_whole(column.type):
        return fixed_width_values(column), nulls
    read = _whole_decimals if pa.types.is_decimal(column.type) else _whole_floats
    values, is_none = read(column, unsigned=unsigned)
    return values, is_none if nulls is None else is_none | nulls


def _whole_floats(column: pa.Array, *, unsigned: bool) -> tuple[AnyArray, Flags]:
    values = fixed_width_values(column)
    dtype = np.dtype(np.uint64 if unsigned else np.int64)
    # A signaling NaN would make a warning of a comparison.
    with np.errstate(invalid="ignore"):
        known = np.abs(values) < math.ldexp(1.0, np.finfo(values.dtype).nmant + 1)
        if unsigned:
            known &= values >= 0
        kept = np.where(known, values, 0)
    whole = kept.astype(dtype)
    return whole, ~known | (whole != kept)


def _whole_decimals(column: pa.Array, *, unsigned: bool) -> tuple[AnyArray, Flags]:
    limbs, is_whole = _floored(column)
    values, sign = _low_word(limbs), _sign(limbs)
    fits = is_whole & _is_extension(limbs, np.zeros_like(sign) if unsigned else values >> 63)
    if unsigned:
        fits &= sign == 0
    values[~fits] = 0
    return values.view(np.uint64) if unsigned else values, ~fits


def floored_decimals(column: pa.Array) -> Integers:
    """The largest integer at or below each decimal, saturated at the ends of int64.

    Args:
        column: of decimals, (rows,).

    Returns:
        int64, (rows,), arbitrary where null.

    >>> from decimal import Decimal
    >>> floored_decimals(pa.array([Decimal("-0.5"), Decimal("7.9"), Decimal(10**30)])).tolist()
    [-1, 7, 9223372036854775807]
    """
    limbs, _ = _floored(column)
    values = _low_word(limbs)
    beyond = ~_is_extension(limbs, values >> 63)
    values[beyond] = (2**63 - 1) ^ _sign(limbs)[beyond]
    return values


def _floored(column: pa.Array) -> tuple[list[Integers], Flags]:
    """Each decimal rounded down, as limbs of 32 bits, the lowest first; the last one has the
    sign; and whether nothing was cut off, (rows,).

    Long division by powers of ten. Arrow's own overflows, raises, or is off by one at large values.
    """
    width = column.type.byte_width
    stored = np.frombuffer(column.buffers()[1], "<i4", offset=width * column.offset)
    rows = stored[: len(column) * width // 4].reshape(len(column), width // 4).astype(np.int64)
    limbs = [*(rows[:, :-1] & _LIMB).T, rows[:, -1]]
    is_whole = np.ones(len(column), np.bool_)
    for start in range(0, column.type.scale, _DIGITS_AT_ONCE):
        divisor = 10 ** min(_DIGITS_AT_ONCE, column.type.scale - start)
        rest: Integers = np.zeros(len(column), np.int64)
        for place in reversed(range(len(limbs))):
            limbs[place], rest = np.divmod((rest << 32) + limbs[place], divisor)
        is_whole &= rest == 0
    return limbs, is_whole


def _low_word(limbs: list[Integers]) -> Integers:
    return limbs[0] + (limbs[1] << 32) if len(limbs) > 1 else limbs[0].copy()


def _sign(limbs: list[Integers]) -> Integers:
    """0, or -1 where negative."""
    return limbs[-1] >> 63


def _is_extension(limbs: list[Integers], sign: Integers) -> Flags:
    """Whether the limbs above the low word say nothing but its sign."""
    same = np.ones(len(sign), np.bool_)
    for limb in limbs[2:-1]:
        same &= limb == sign & _LIMB
    return same & (limbs[-1] == sign) if len(limbs) > 2 else same
