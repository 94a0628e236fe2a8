"""Keys of a group-by: a public list, and the code of every row's key.

The list is public by declaration; a value that is not on it follows a policy and is never shown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.columns import is_text, map_chunks, value_type
from dptrees.dpcore.rows.numbers import is_number
from dptrees.dpcore.rows.policies import (
    DROPPED,
    MAP_VERSION,
    MISSING_VALUE,
    RowOutcome,
    check_column,
    check_policy,
    check_version,
    is_integer,
    made,
    missing_flags,
)
from dptrees.dpcore.rows.value_lists import ValueList
from dptrees.dpcore.specification import Coded, Refusal, coded

OTHER = "other"
_TRUTHS = {True: "true", False: "false"}
KEY_POLICIES = ("drop", "other")
MAX_KEYS = 1_000_000
# Keys in the error about one that is not listed.
_SHOWN = 10
_PLAIN = "a column of texts"
_UNQUOTED = ", or a list of numbers without quotes"
_WHOLE = "a column of integers, or of floating-point numbers or decimals that are integers"


class Keys(Coded, ABC):
    """The keys of a group-by: the same tree once per key. Implemented by `KeyList`, and for what is
    large, private or of several columns by `dpcore.rows.key_tables.TableKeys`.

    Attributes:
        unknown: what happens to a row whose key is not listed: "drop", or "other", one more key at
            the end, labeled "other".
    """

    unknown: str
    map_version: ClassVar[int] = MAP_VERSION
    # Whether the keys are known by now.
    is_listed: ClassVar[bool] = True

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Columns from which a row's key is read."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of keys, the one for all others included."""

    @property
    @abstractmethod
    def value_types(self) -> dict[str, pa.DataType]:
        """The type of each column where a file does not give one."""

    @abstractmethod
    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        """Refuse columns of types that keys cannot be read from.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """

    @abstractmethod
    def row_codes(self, columns: Mapping[str, pa.Array]) -> Integers:
        """The key of every row, (rows,) int64 in 0..size-1; -1 for a row that is dropped."""

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        """Rows without a listed key, by cause."""
        codes, name = self.row_codes(columns), ", ".join(self.columns)
        other = codes == (self.size - 1 if self.unknown == OTHER else DROPPED)
        missing = np.logical_or.reduce([missing_flags(columns[each]) for each in self.columns])
        return [
            RowOutcome(name, MISSING_VALUE, self.unknown, other & missing),
            RowOutcome(name, "unknown", self.unknown, other & ~missing),
        ]

    @abstractmethod
    def labels_between(self, start: int, stop: int) -> pa.StringArray:
        """Labels of the keys of the codes start..stop-1."""

    @abstractmethod
    def find_code(self, value: object) -> int:
        """The code of one literal key, "other" included; ValueError when it is not listed."""

    @property
    def drops_rows(self) -> bool:
        """Whether a row can be dropped, so that N cannot be public."""
        return self.unknown == "drop"


@dataclass(frozen=True, kw_only=True)
class KeyList(Keys):
    """The public list of keys of a group-by: the same tree once per key.

    Attributes:
        column: the name of the column.
        keys: the values, all strings or all integers, without duplicates, at most 1e6.
        unknown: what happens to null and to a value that is not listed: "drop", or "other", one
            more key at the end, labeled "other".
        value_names: the labels of the keys, in their order; none: the keys themselves.

    Raises:
        ValueError: naming the field and the rule.

    >>> carrier = KeyList(column="carrier", keys=("UA", "AA"), unknown="other")
    >>> carrier.codes(pa.array(["AA", "DL", None, "UA"])).tolist()
    [1, 2, 2, 0]
    >>> carrier.size, carrier.labels
    (3, ('UA', 'AA', 'other'))
    >>> sex = KeyList(column="sex", keys=(1, 2), value_names=("men", "women"))
    >>> sex.labels, sex.find_code(2), sex.find_code("women")
    (('men', 'women'), 1, 1)
    """

    written = ("map_version", "column", "keys", "unknown", "value_names")

    column: str
    keys: tuple[str, ...] | tuple[int, ...]
    unknown: str = "drop"
    value_names: tuple[str, ...] = field(default=(), metadata=coded(omit=()))
    _list: ValueList = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_column(self.column)
        check_policy(self.column, "unknown", self.unknown, KEY_POLICIES)
        object.__setattr__(self, "_list", value_list(self.column, "keys", self.keys))
        if len(self.keys) > MAX_KEYS:
            raise Refusal.from_value(
                "keys", f"must be at most {MAX_KEYS}, not {len(self.keys)}.", column=self.column
            )
        if self.unknown == OTHER and OTHER in self.keys:
            raise Refusal.from_value(
                "keys", f"must not hold {OTHER!r} when unknown is {OTHER!r}.", column=self.column
            )
        taken = (OTHER,) if self.unknown == OTHER else ()
        check_names(self.column, self.keys, self.value_names, taken)

    @property
    def value_type(self) -> pa.DataType:
        """The Arrow type of the keys: string or int64."""
        return self._list.type

    @property
    def size(self) -> int:
        """The number of keys, the one for all others included."""
        return len(self.keys) + (self.unknown == OTHER)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return {self.column: self.value_type}

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of all keys, in the order of their codes."""
        return tuple(self._labels_between(0, self.size))

    def labels_between(self, start: int, stop: int) -> pa.StringArray:
        return pa.array(self._labels_between(start, stop), pa.string())

    def _labels_between(self, start: int, stop: int) -> list[str]:
        """The labels of some keys, without making the labels of all."""
        labels = list(map(str, (self.value_names or self.keys)[start:stop]))
        return labels + [OTHER] * (self.unknown == OTHER and start <= len(self.keys) < stop)

    def find_code(self, value: object) -> int:
        if self.unknown == OTHER and value == OTHER:
            return len(self.keys)
        return find_named(self.column, "key", self._list, self.value_names, value)

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        self.check_type(types[self.column])

    def row_codes(self, columns: Mapping[str, pa.Array]) -> Integers:
        return self.codes(columns[self.column])

    def check_type(self, type: pa.DataType) -> None:
        """Refuse a column type that these keys cannot be read from.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """
        plain = value_type(type)
        needed = None if pa.types.is_null(plain) else needed_type(self._list, plain)
        if needed is not None:
            raise ValueError(
                f"column {self.column!r} has type {type}, but these keys need {needed}."
            )

    def codes(self, column: pa.Array | pa.ChunkedArray) -> Integers:
        """The key of every row.

        Args:
            column: the rows, (rows,), of a type that `check_type` accepts; plain or
                dictionary-encoded.

        Returns:
            int64 codes in 0..size-1, (rows,); -1 for a row that is dropped.

        Raises:
            ValueError: the column's type cannot be used.
        """
        self.check_type(column.type)
        unknown = len(self.keys) if self.unknown == OTHER else DROPPED

        def listed(plain: pa.Array) -> Integers:
            codes = self._list.codes(plain)
            if unknown != DROPPED:
                codes[codes < 0] = unknown
            return codes

        return map_chunks(column, listed, unknown)


def value_list(column: str, name: str, values: object) -> ValueList:
    if not isinstance(values, tuple) or not values:
        raise Refusal.from_value(
            name, "must be a list of at least one value, such as [north, south].", column=column
        )
    if not (all(isinstance(value, str) for value in values) or all(map(is_integer, values))):
        raise Refusal.from_value(name, "must be all texts or all whole numbers.", column=column)
    if len(set(values)) < len(values):
        twice, _ = Counter(values).most_common(1)[0]
        raise Refusal.from_value(name, f"hold {twice!r} more than once.", column=column)
    try:
        return ValueList(values)
    except (pa.ArrowException, OverflowError, UnicodeError):
        raise Refusal.from_value(
            name, "must be valid Unicode texts or 64-bit signed integers.", column=column
        ) from None


def listed_values(values: Sequence[object]) -> tuple[object, ...]:
    """The values of a list as a tuple; truth values as the strings that columns of them are read
    as.

    >>> listed_values([True, False, "unknown"])
    ('true', 'false', 'unknown')
    """
    return tuple(_TRUTHS[each] if isinstance(each, bool) else each for each in values)


def needed_type(values: ValueList, type: pa.DataType) -> str | None:
    if values.is_text:
        # Truth values give no other strings.
        others = pa.types.is_boolean(type) and not set(_TRUTHS.values()) & set(values.values)
        if is_text(type) and not others:
            return None
        are_numbers = all(isinstance(each, str) and each.isdecimal() for each in values.values)
        return _PLAIN + _UNQUOTED if is_number(type) and are_numbers else _PLAIN
    return None if is_number(type) else _WHOLE


def find_named(
    column: str, noun: str, values: ValueList, names: Sequence[str], value: object
) -> int:
    """The place of a value in a list, or of the name that it has there.

    Raises:
        ValueError: it is neither.
    """
    if value in names:
        return names.index(str(value))
    position = values.position(value)
    if position is None:
        raise ValueError(not_listed(column, noun, value, names or values.values))
    return position


def check_names(
    column: str, values: Sequence[object], names: Sequence[str], taken: Sequence[str] = ()
) -> None:
    """Check that listed values have a name each, and that nothing else has it.

    Args:
        column: of the values.
        values: listed.
        names: in their order; none at all is right too.
        taken: what no name may be.

    Raises:
        Refusal: at ``labels``.

    >>> check_names("sex", (1, 2), ("women", "1"))
    Traceback (most recent call last):
    dptrees.dpcore.specification.Refusal: column 'sex': labels '1' is another value of the list.
    """
    if not names:
        return

    def refused(rule: str) -> Refusal:
        return Refusal.from_value("labels", rule, column=column)

    if len(names) != len(values):
        raise refused(f"must be {len(values)}, one for each value, not {len(names)}.")
    others = {str(value): place for place, value in enumerate(values)}
    for place, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise refused(f"{name!r} must be a line of text.")
        if name in taken or others.get(name, place) != place:
            raise refused(f"{name!r} is another value of the list.")
    if len(set(names)) < len(names):
        twice, _ = Counter(names).most_common(1)[0]
        raise refused(f"hold {twice!r} more than once.")


def not_listed(column: str, noun: str, value: object, listed: Sequence[object]) -> str:
    """Return the error about a value that a list does not have, with the first that it has.

    >>> not_listed("carrier", "key", "XX", ["AA", "DL"])
    "column 'carrier': 'XX' is not a listed key; those listed are AA, DL"
    """
    shown = ", ".join(map(str, listed[:_SHOWN]))
    more = f" and {len(listed) - _SHOWN:,} more" if len(listed) > _SHOWN else ""
    return f"column {column!r}: {value!r} is not a listed {noun}; those listed are {shown}{more}"


def keys_from_spec(spec: object) -> Keys | None:
    """The keys of a specification; None where it has none. Keys of a table were read before
    (`dpcore.release.plan.plan_from_spec`)."""
    return make_key_list(spec) if isinstance(spec, Mapping) else cast("Keys | None", spec)


def make_key_list(values: Mapping[str, object]) -> KeyList:
    """Make a key list from plain values: `column`, `keys`, `unknown`, or what `spec()` returned.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> make_key_list({"column": "carrier", "keys": ["UA", "AA"]}).size
    2
    """
    given = dict(values)
    check_version(given)
    if isinstance(keys := given.get("keys"), list):
        given["keys"] = listed_values(keys)
    if isinstance(names := given.get("value_names"), list):
        given["value_names"] = tuple(names)
    return made(KeyList, "a key list", given)


# Of a cell that begins with the code of a key.
KEY_BITS = 64


def counts_by_key(cells: Integers, keys: int) -> Integers:
    """Number of different cells under each key, (keys,).

    Args:
        cells: uint64, (n,) all different.
        keys: how many there are.

    >>> cells = np.array([1, 2**63, 2**63 + 5], np.uint64)
    >>> counts_by_key(cells, 2).tolist(), counts_by_key(cells, 1).tolist()
    ([1, 2], [3])
    """
    bits = (keys - 1).bit_length()
    if not bits:
        return np.array([len(cells)], np.int64)
    codes = (cells >> np.uint64(KEY_BITS - bits)).astype(np.int64)
    return np.bincount(codes, minlength=keys).astype(np.int64)
