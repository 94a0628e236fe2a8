"""Tables of the keys of a group-by that are many, private or of several columns.

No Python object is made for a single key: a row's values are looked up column by column, and the
result so far is one number, its rank among the beginnings of listed tuples. The label of a key of
one column is its value as text; of several columns the labels are joined by "/", with a backslash
before a slash or a backslash inside one, so that no two keys share a label.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.columns import (
    fixed_width_values,
    is_text,
    map_chunks,
    value_type,
)
from dptrees.dpcore.rows.keys import KEY_POLICIES, OTHER, Keys, not_listed, value_list
from dptrees.dpcore.rows.numbers import ABSENT, is_number, text_buffers
from dptrees.dpcore.rows.policies import (
    DROPPED,
    MISSING_VALUE,
    RowOutcome,
    check_policy,
    missing_flags,
)
from dptrees.dpcore.rows.value_lists import IntegerIndex, TextIndex
from dptrees.dpcore.specification import Refusal, coded

# Its index and its strings stay within some GB.
MOST_KEYS = 2**25
TEXT, INTEGER = pa.large_string(), pa.int64()
_NEEDED = {TEXT: "texts", INTEGER: "integers"}
_INDEX: TypeAlias = "TextIndex | IntegerIndex"


class KeyTable:
    """Distinct keys of one or several columns; public.

    Args:
        table: a column a key column, of large_string or int64, no row null or twice; at least one
            row and column.

    Raises:
        Refusal: no row, too many, a null, a key twice, or a column of another type.

    >>> table = KeyTable(pa.table({"sex": pa.array(["f", "m"], TEXT), "age": pa.array([3, 4])}))
    >>> rows = {"sex": pa.array(["m", "f", None]), "age": pa.array([4, 4, 3])}
    >>> table.positions(rows).tolist(), table.labels_between(0, 2).to_pylist()
    ([1, -1, -1], ['f/3', 'm/4'])
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = _plain(table)
        if not 1 <= table.num_rows <= MOST_KEYS:
            raise Refusal("keys", f"must be from 1 to {MOST_KEYS} keys, not {table.num_rows}")
        for name in table.column_names:
            if table.schema.field(name).type not in _NEEDED:
                raise Refusal("keys", f"must be texts or integers in column {name!r}")
            if table.column(name).null_count:
                raise Refusal("keys", f"must hold no null in column {name!r}")
        if self._beginnings[2] < len(self):
            raise Refusal("keys", "hold a key more than once")

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyTable) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyTable, (self._table,)

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self._table.column_names)

    def to_table(self) -> pa.Table:
        """Return the keys as the table that is written."""
        return self._table

    @cached_property
    def digest(self) -> str:
        """SHA-256 of columns, types and values, in order, in hexadecimal."""
        digest = hashlib.sha256(repr((self._table.schema.names, len(self))).encode())
        for column in self._columns:
            digest.update(str(column.type).encode())
            if column.type == INTEGER:
                digest.update(np.ascontiguousarray(fixed_width_values(column), "<i8").tobytes())
                continue
            offsets, data = text_buffers(column)
            digest.update(np.ascontiguousarray(np.diff(offsets), "<i8").tobytes())
            digest.update(data[offsets[0] : offsets[-1]].tobytes())
        return digest.hexdigest()

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """The type of each column where a file does not give one."""
        return {
            name: INTEGER if column.type == INTEGER else pa.string()
            for name, column in zip(self.columns, self._columns, strict=True)
        }

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        """Refuse columns of types that keys cannot be read from.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """
        for name, column in zip(self.columns, self._columns, strict=True):
            check_key_type(name, types[name], column.type)

    @cached_property
    def _columns(self) -> list[pa.Array]:
        return [_whole(column) for column in self._table.columns]

    @cached_property
    def _indexes(self) -> list[_INDEX]:
        """Map each column's values to their positions among the distinct ones."""
        return [_index(column) for column in self._columns]

    @cached_property
    def _sizes(self) -> list[int]:
        return [len(index) for index in self._indexes]

    @cached_property
    def _beginnings(self) -> tuple[list[IntegerIndex], Integers, int]:
        """Tables from a rank, and the position of the next value, to the next rank; the rank of
        each whole key; and the number of whole keys. A key's first 1, 2, ... values have a rank
        among all keys' first values."""
        steps, rank = [], self._indexes[0].codes(self._columns[0])
        distinct = self._sizes[0]
        for index, size, column in zip(
            self._indexes[1:], self._sizes[1:], self._columns[1:], strict=True
        ):
            both = rank * size + index.codes(column)
            known = np.unique(both)
            steps.append(IntegerIndex(known))
            rank, distinct = steps[-1].positions(both), len(known)
        return steps, rank, distinct

    @cached_property
    def _places(self) -> Integers:
        """The row of the key of each rank."""
        places = np.empty(len(self), np.int64)
        places[self._beginnings[1]] = np.arange(len(self))
        return places

    def positions(self, columns: Mapping[str, pa.Array]) -> Integers:
        """Position of each row's key.

        Args:
            columns: by name, (rows,), plain or dictionary-encoded, of types that `check_types`
                accepts.

        Returns:
            int64, (rows,), writable; -1 where null or not listed.
        """
        self.check_types({name: columns[name].type for name in self.columns})
        rank: Integers | None = None
        for number, name in enumerate(self.columns):
            code = map_chunks(columns[name], self._indexes[number].codes, ABSENT)
            if rank is not None:
                known = (rank >= 0) & (code >= 0)
                both = np.where(known, rank * self._sizes[number] + code, ABSENT)
                code = self._beginnings[0][number - 1].positions(both)
            rank = code
        assert rank is not None
        return np.append(self._places, ABSENT).take(rank)

    def labels_between(self, start: int, stop: int) -> pa.Array:
        """The labels of some keys, string."""
        return key_labels([column[start:stop] for column in self._columns])

    def find_position(self, label: object) -> int | None:
        """The position of a key by its label, or by its value where that is an integer; None where
        it is not listed."""
        texts = split_label(str(label)) if len(self._columns) > 1 else [str(label)]
        if texts is None or len(texts) != len(self._columns):
            return None
        row = {}
        for name, text, column in zip(self.columns, texts, self._columns, strict=True):
            value = _literal(text, column.type)
            if value is None:
                return None
            row[name] = value
        (position,) = self.positions(row).tolist()
        return None if position == ABSENT else int(position)


def product_table(lists: Mapping[str, tuple[str, ...] | tuple[int, ...]]) -> KeyTable:
    """All tuples of the values of some columns, the last column's the fastest.

    Args:
        lists: the values of each column, all strings or all integers, none twice.

    Raises:
        Refusal: a list of another kind, or more tuples than a table may hold.

    >>> product_table({"sex": ("f", "m"), "age": (1, 2)}).labels_between(0, 4).to_pylist()
    ['f/1', 'f/2', 'm/1', 'm/2']
    """
    values = [value_list(name, "keys", each) for name, each in lists.items()]
    sizes = [len(each.values) for each in values]
    size = math.prod(sizes)
    if size > MOST_KEYS:
        raise Refusal("keys", f"must be at most {MOST_KEYS} tuples, not {size}")
    places = np.unravel_index(np.arange(size), sizes)
    columns = {
        name: each.array.cast(TEXT if each.is_text else INTEGER).take(pa.array(own))
        for name, each, own in zip(lists, values, places, strict=True)
    }
    return KeyTable(pa.table(columns))


def key_labels(columns: list[pa.Array]) -> pa.Array:
    """The labels of keys.

    Args:
        columns: of large_string or int64, (n,) each.

    Returns:
        string, (n,).

    >>> key_labels([pa.array(["a/b"], TEXT), pa.array([7])]).to_pylist()
    ['a\\\\/b/7']
    """
    texts = [column.cast(TEXT) for column in columns]
    if len(texts) == 1:
        return texts[0].cast(pa.string())
    for number, each in enumerate(texts):
        for sign in ("\\", "/"):
            each = pc.replace_substring(each, sign, "\\" + sign)
        texts[number] = each
    joined = pc.binary_join_element_wise(*texts, pa.scalar("/", TEXT))
    return joined.cast(pa.string())


def split_label(label: str) -> list[str] | None:
    """The values of a label of several columns; None for a text that is no label.

    >>> split_label("a\\\\/b/7"), split_label("a\\\\b")
    (['a/b', '7'], None)
    """
    parts, escaped = [""], False
    for letter in label:
        if escaped and letter not in "\\/":
            return None
        if not escaped and letter == "\\":
            escaped = True
            continue
        if not escaped and letter == "/":
            parts.append("")
        else:
            parts[-1] += letter
        escaped = False
    return None if escaped else parts


def check_key_type(name: str, type: pa.DataType, expected: pa.DataType) -> None:
    """Refuse a column that keys of a type cannot be read from.

    Args:
        name: of the column.
        type: the column's.
        expected: large_string or int64.

    Raises:
        ValueError: naming the column, the type and what is needed.
    """
    plain = value_type(type)
    fits = is_text(plain) if expected == TEXT else is_number(plain)
    if not fits and not pa.types.is_null(plain):
        raise ValueError(
            f"column {name!r} has type {type}, but these keys need a column of {_NEEDED[expected]}."
        )


def _plain(table: pa.Table) -> pa.Table:
    """The table without what a file adds: chunks, metadata, and small offsets of strings."""
    types = [
        pa.field(field.name, TEXT if is_text(field.type) else field.type) for field in table.schema
    ]
    return table.cast(pa.schema(types)).combine_chunks()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else column.combine_chunks()


def _index(column: pa.Array) -> _INDEX:
    distinct = pc.unique(column)
    if column.type == INTEGER:
        return IntegerIndex(fixed_width_values(distinct))
    return TextIndex(distinct)


def _literal(text: str, type: pa.DataType) -> pa.Array | None:
    """A text as a column of one value; None where it is no integer."""
    if type == TEXT:
        return pa.array([text], TEXT)
    plain = text.strip().removeprefix("+")
    if not plain.removeprefix("-").isdecimal() or not -(2**63) <= int(plain) < 2**63:
        return None
    return pa.array(np.array([int(plain)], np.int64))


@dataclass(frozen=True, kw_only=True)
class TableKeys(Keys):
    """The keys of a group-by that are in a table, which travels and is written by itself.

    Args:
        table: the keys.
        unknown: what happens to null and to a key that is not listed: "drop", or "other".

    Raises:
        ValueError: another policy; or "other" beside a listed key of that label.

    >>> table = KeyTable(pa.table({"shop": pa.array(["a", "b"], pa.large_string())}))
    >>> keys = TableKeys(table=table, unknown="other")
    >>> keys.row_codes({"shop": pa.array(["b", "c", None])}).tolist()
    [1, 2, 2]
    >>> keys.labels_between(1, 3).to_pylist(), keys.find_code("other")
    (['b', 'other'], 2)
    """

    written = ("map_version", "columns", "table", "unknown")

    table: KeyTable = field(metadata=coded(write=lambda keys: keys.table.digest))
    unknown: str = "drop"

    def __post_init__(self) -> None:
        check_policy(", ".join(self.table.columns), "unknown", self.unknown, KEY_POLICIES)
        if self.unknown == OTHER and self.table.find_position(OTHER) is not None:
            raise ValueError(f"keys: must not hold {OTHER!r} when unknown is {OTHER!r}")

    def with_table(self, table: object) -> TableKeys:
        """The same keys, whose table lies elsewhere."""
        assert isinstance(table, KeyTable)
        return TableKeys(table=table, unknown=self.unknown)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.table.columns

    @property
    def size(self) -> int:
        return len(self.table) + (self.unknown == OTHER)

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return self.table.value_types

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        self.table.check_types(types)

    def row_codes(self, columns: Mapping[str, pa.Array]) -> Integers:
        codes = self.table.positions(columns)
        if self.unknown == OTHER:
            codes[codes == DROPPED] = len(self.table)
        return codes

    def labels_between(self, start: int, stop: int) -> pa.StringArray:
        listed = self.table.labels_between(start, min(stop, len(self.table)))
        if stop <= len(self.table):
            return listed
        return pa.concat_arrays([listed, pa.array([OTHER], pa.string())])

    def find_code(self, value: object) -> int:
        if self.unknown == OTHER and value == OTHER:
            return len(self.table)
        if isinstance(value, np.generic):
            value = value.item()
        position = self.table.find_position(value)
        if position is None:
            keys = self.labels_between(0, len(self.table)).to_pylist()
            raise ValueError(not_listed(", ".join(self.columns), "key", value, keys))
        return position


class UnlistedKeys(TableKeys):
    """Placeholder for keys that are yet to be selected, where a tree is planned: for one key."""

    is_listed = False

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        missing = np.logical_or.reduce([missing_flags(columns[name]) for name in self.columns])
        return [RowOutcome(", ".join(self.columns), MISSING_VALUE, self.unknown, missing)]
