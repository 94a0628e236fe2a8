"""Values of a unit's columns as a declared type: what is one person is one text.

A declared type makes equal what files write differently, and nothing else: numbers are never
rounded, and a value that is none of the type is null, as if it were missing.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.privacy.unit import UnitType
from dptrees.dpcore.rows.column import is_text, large_texts
from dptrees.dpcore.rows.whole_numbers import is_number, whole_numbers

_INTEGER = r"^\s*([+-]?)0*([0-9]+)(\.0*)?\s*$"
NEEDED = {
    UnitType.INTEGER: "integers, whole floats or decimals, or texts of integers",
    UnitType.TEXT: "texts or integers",
}


def is_readable_as(type: pa.DataType, unit_type: UnitType) -> bool:
    """Return whether columns of a type can have values of a declared type."""
    types = pa.types
    if types.is_dictionary(type):
        return is_readable_as(type.value_type, unit_type)
    if isinstance(type, pa.BaseExtensionType):
        return is_readable_as(type.storage_type, unit_type)
    if types.is_boolean(type):
        return False
    if types.is_null(type) or is_text(type) or types.is_integer(type):
        return True
    if unit_type is UnitType.TEXT:
        return bool(types.is_fixed_size_binary(type))
    return is_number(type)


def declared_values(column: pa.Array, unit_type: UnitType) -> pa.Array:
    """Return values as strings: equal where the values are one of the declared type, else not.

    Args:
        column: (rows,), of a type that `is_readable_as` accepts.
        unit_type: INTEGER: 7, 7.0, decimal 7.00 and the strings "7", "+7", "007", " 7" and "7.0"
            are one; fractions, floats from 2^53 on, to which another integer may have been rounded,
            and all other strings are null. TEXT: strings as they are, integers by their digits.

    Returns:
        (rows,) strings or bytes, null for a value that is null or none of the type; with a
        dictionary where the column has one.

    >>> ids = pa.array(["7", "7.0", " 007", "7.5", "x", None, "-0"])
    >>> declared_values(ids, UnitType.INTEGER).cast(pa.string()).to_pylist()
    ['7', '7', '7', None, None, None, '0']
    >>> declared_values(pa.array([7.0, 0.5, 2.0**53]), UnitType.INTEGER).to_pylist()
    ['7', None, None]
    """
    while isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    type, types = column.type, pa.types
    if types.is_dictionary(type):
        values = declared_values(column.dictionary, unit_type)
        return pa.DictionaryArray.from_arrays(column.indices, values, safe=False)
    if types.is_null(type):
        return column
    if types.is_integer(type):
        return column.cast(pa.large_string())
    if is_text(type):
        texts = large_texts(column)
        return texts if unit_type is UnitType.TEXT else _integer_texts(texts)
    if types.is_fixed_size_binary(type):
        return column.cast(pa.large_binary())
    return _whole_texts(column)


def _integer_texts(texts: pa.Array) -> pa.Array:
    """The shortest text of each integer; null for a text that is none."""
    # As bytes: a text need not be UTF-8, and must not stop a release.
    data = texts.cast(pa.large_binary()) if texts.type != pa.large_binary() else texts
    is_integer = pc.match_substring_regex(data, _INTEGER)
    data = pc.if_else(is_integer, data, pa.scalar(None, pa.large_binary()))
    data = pc.replace_substring_regex(data, _INTEGER, r"\1\2")
    return pc.replace_substring_regex(data, r"^(?:\+|-(0)$)", r"\1")


def _whole_texts(column: pa.Array) -> pa.Array:
    """Floats and decimals that are integers as strings; null for the others."""
    values, is_none = whole_numbers(column)
    plain = pa.array(values.astype(np.int64)).cast(pa.large_string())
    if is_none is None:
        return plain
    nothing = pa.scalar(None, pa.large_string())
    result = pc.if_else(pa.array(is_none), nothing, plain)
    if not pa.types.is_decimal(column.type):
        return result
    # Of decimals beyond 64 bits each is read by itself.
    rows = np.flatnonzero(is_none)
    texts = [_whole_text(each) for each in column.take(pa.array(rows)).to_pylist()]
    return pc.replace_with_mask(result, pa.array(is_none), pa.array(texts, pa.large_string()))


def _whole_text(value: Decimal | None) -> str | None:
    """The text of a decimal that is an integer.

    >>> _whole_text(Decimal("12345678901234567890.00")), _whole_text(Decimal("0.5"))
    ('12345678901234567890', None)
    """
    if value is None:
        return None
    # Not by arithmetic, which rounds to the digits of a context.
    whole, _, fraction = f"{value:f}".partition(".")
    return whole if not fraction.strip("0") else None
