"""The columns of keys that nobody lists: from the rows of a batch to packed keys, and back.

In flight a key is one number or one string: an integer of one column with its sign bit turned, so
that unsigned keys rise as the integers do; else the strings of all columns, joined by a sign of one
byte, which is escaped inside them. What becomes of a row depends on that row alone: one with a
null, a string that is empty or not UTF-8, or a number that is no integer, has no key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.codec import Coded
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.column import (
    fixed_width_values,
    large_texts,
    plain_values,
    readable_texts,
    value_type,
)
from dptrees.dpcore.rows.key_table import INTEGER, TEXT, check_key_type
from dptrees.dpcore.rows.whole_numbers import whole_numbers

TYPES = {"text": TEXT, "integer": INTEGER}
_SIGN = np.uint64(2**63)
# Between the strings of a key. A string that holds it, or the sign that escapes it, is escaped.
_JOINT, _ESCAPE = "\x00", "\x01"
_ESCAPES = ((_ESCAPE, _ESCAPE + "A"), (_JOINT, _ESCAPE + "B"))


@dataclass(frozen=True, kw_only=True)
class KeyColumns(Coded):
    """The columns of keys that nobody lists.

    Args:
        columns: their names, at least one, all different.
        types: of each, "text" or "integer".

    Raises:
        Refusal: no column, one twice, or another type.

    >>> shops = KeyColumns(columns=("shop", "year"), types=("text", "integer"))
    >>> rows = {"shop": pa.array(["a", "", "b"]), "year": pa.array([7, 7, -1])}
    >>> keys = shops.row_keys(rows)
    >>> keys.is_valid().to_pylist(), shops.table(keys.drop_null()).to_pylist()
    ([True, False, True], [{'shop': 'a', 'year': 7}, {'shop': 'b', 'year': -1}])
    """

    kind: ClassVar[str] = "selection"
    written = ("kind", "columns", "types")

    columns: tuple[str, ...]
    types: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise Refusal("columns", "there must be one or more, all different")
        if len(self.types) != len(self.columns) or not set(self.types) <= set(TYPES):
            raise Refusal("types", f"there must be text or integer for each of {self.columns}")

    @property
    def is_integer(self) -> bool:
        """Whether keys are integers of one column."""
        return self.types == ("integer",)

    @property
    def key_type(self) -> pa.DataType:
        """Type of packed keys: uint64 or large_string."""
        return pa.uint64() if self.is_integer else TEXT

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """The type of each column where a file does not give one."""
        plain = {"text": pa.string(), "integer": INTEGER}
        return {name: plain[type] for name, type in zip(self.columns, self.types, strict=True)}

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        """Refuse columns of types that keys cannot be read from.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """
        for name, type in zip(self.columns, self.types, strict=True):
            try:
                check_key_type(name, types[name], TYPES[type])
            except ValueError as error:
                other = "integer" if type == "text" else "text"
                hint = f" (private keys are of type {type}, unless by says type: {other})."
                raise ValueError(str(error).removesuffix(".") + hint) from None

    def row_keys(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        """The packed key of each row, (rows,); null where it has none.

        Args:
            columns: by name, (rows,), plain or dictionary-encoded, of types that `check_types`
                accepts.
        """
        self.check_types({name: columns[name].type for name in self.columns})
        if self.is_integer:
            return _by_values(columns[self.columns[0]], _packed_integers)
        if len(self.columns) == 1:
            return _by_values(columns[self.columns[0]], _texts)
        texts = [
            _by_values(columns[name], _escaped_texts if type == "text" else _integer_texts)
            for name, type in zip(self.columns, self.types, strict=True)
        ]
        return pc.binary_join_element_wise(*texts, pa.scalar(_JOINT, TEXT))

    def leaf_counts(self, columns: Mapping[str, pa.Array]) -> NodeCounts:
        """Number of a batch's rows with each packed key."""
        return NodeCounts.grouped(self.row_keys(columns).drop_null())

    def table(self, keys: pa.Array) -> pa.Table:
        """Packed keys as a table of their values, in the same order.

        Args:
            keys: (n,), none null.

        Returns:
            a column a key column, of large_string or int64.
        """
        if self.is_integer:
            values = (fixed_width_values(keys) ^ _SIGN).view(np.int64)
            return pa.table({self.columns[0]: pa.array(values)})
        if len(self.columns) == 1:
            return pa.table({self.columns[0]: keys})
        parts = pc.list_flatten(pc.split_pattern(keys, _JOINT))
        number = len(self.columns)
        found = {}
        for place, (name, type) in enumerate(zip(self.columns, self.types, strict=True)):
            own = parts.take(pa.array(np.arange(place, len(parts), number)))
            found[name] = own.cast(INTEGER) if type == "integer" else _unescaped(own)
        return pa.table(found)


def _by_values(column: pa.Array, mapping: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """A map of values applied to a column, to a dictionary's values once."""
    column = plain_values(column)
    if pa.types.is_null(value_type(column.type)):
        return pa.nulls(len(column), mapping(pa.array([], pa.string())).type)
    if not pa.types.is_dictionary(column.type):
        return mapping(column)
    return mapping(plain_values(column.dictionary)).take(column.indices)


def _packed_integers(column: pa.Array) -> pa.Array:
    if len(column) == 0:
        return pa.array([], pa.uint64())
    values, is_none = _int64(column)
    return pa.array(values.view(np.uint64) ^ _SIGN, mask=is_none)


def _integer_texts(column: pa.Array) -> pa.Array:
    if len(column) == 0:
        return pa.array([], TEXT)
    values, is_none = _int64(column)
    return pa.array(values, mask=is_none).cast(TEXT)


def _int64(column: pa.Array) -> tuple[Integers, Any]:
    values, is_none = whole_numbers(column)
    if values.dtype == np.uint64:
        beyond = values > np.uint64(2**63 - 1)
        is_none = beyond if is_none is None else is_none | beyond
    return values.astype(np.int64), is_none


def _texts(column: pa.Array) -> pa.Array:
    texts = readable_texts(large_texts(column))
    empty = pc.equal(texts, "")
    return pc.if_else(empty, pa.scalar(None, TEXT), texts) if pc.any(empty).as_py() else texts


def _escaped_texts(column: pa.Array) -> pa.Array:
    encoded = _texts(column).dictionary_encode()
    labels = encoded.dictionary
    for sign, other in _ESCAPES:
        labels = pc.replace_substring(labels, sign, other)
    return labels.take(encoded.indices)


def _unescaped(labels: pa.Array) -> pa.Array:
    for sign, other in reversed(_ESCAPES):
        labels = pc.replace_substring(labels, other, sign)
    return labels
