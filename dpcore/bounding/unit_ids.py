"""Ids of privacy units: 16 bytes for the values of a row's unit columns, whatever their type.

An id is a keyed pseudorandom function of the values, not of how a file stores them: the CBC-MAC
of AES-256 over an encoding in blocks of 16 bytes. The first block holds their number, so no
encoding begins another, and CBC-MAC is a pseudorandom function (Bellare, Kilian, Rogaway, "The
Security of the Cipher Block Chaining Message Authentication Code", JCSS 2000; for prefix-free
messages Petrank, Rackoff, J. Cryptology 2000). Only strings above 4096 bytes are hashed one by
one first.

*Two units with one id* would be bounded as one, and the guarantee would be that of two units.
Encodings of one block (numbers, timestamps, strings of up to ten bytes) never collide, since AES
is a permutation. Else any two of n units collide with a chance of at most some n^2 / 2^128:
10^-20 for 10^9 units, far below every delta, and nobody without the key can look for such a pair.
All noise already assumes that AES cannot be distinguished from random, so ids add no assumption.

*Types.* The same person as 7 and "7", or 2^53 + 1 as an integer and as a float, has two ids. So
all inputs of a release, and all periods of a series that remembers units, keep one family of
types for each unit column; only names of types decide, and a type listed nowhere is its own
family. A declared type makes equal what files write differently: numbers are never rounded, and a
value that is none of the type is null. Source: the design, section 4.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.noise.randomness import KeyedBlocks
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.privacy.unit import PrivacyUnit, UnitType
from dptrees.dpcore.rows.columns import (
    AnyArray,
    fixed_width_values,
    is_text,
    large_texts,
    missing_rows,
    null_rows,
)
from dptrees.dpcore.rows.numbers import is_number, text_buffers, whole_numbers

_ENCODED = re.compile(r"dictionary<values=(.+), indices=.*>")
_FAMILIES = {
    "integers": r"u?int\d+|decimal\d+\(.+\)",
    "truth values": r"bool",
    "text": r"(large_)?string(_view)?|text|of the path",
    "bytes": r"(large_)?binary(_view)?",
    "fixed_size_binary[16]": r"extension<arrow\.uuid>",
    "dates or times without a zone": r"date\d+\[\w+\]|timestamp\[\w+\]",
    "times with a zone": r"timestamp\[\w+, tz=.+\]",
    "times of day": r"time\d+\[\w+\]",
    "durations": r"duration\[\w+\]",
}
# The types that a declared type reads as one: an unequal value is null, or differs as text.
_DECLARED = {
    UnitType.INTEGER: r".*",
    UnitType.TEXT: f"{_FAMILIES['text']}|u?int\\d+|(large_)?binary(_view)?",
}


def unit_family(type_name: str, declared: UnitType | None = None) -> str | None:
    """Return the family of a type; None for the type of nulls, whose rows have no unit,
    and for a type that is not known.

    Args:
        type_name: as Arrow writes it, or "text" for a file of strings.
        declared: the declared type of the unit.

    >>> unit_family("int8") == unit_family("decimal128(20, 0)"), unit_family("double")
    (True, 'double')
    >>> unit_family("dictionary<values=large_string, indices=int8, ordered=0>")
    'text'
    >>> unit_family("int8", UnitType.TEXT), unit_family("fixed_size_binary[16]", UnitType.TEXT)
    ('text', 'fixed_size_binary[16]')
    """
    encoded = _ENCODED.fullmatch(type_name)
    name = encoded[1] if encoded else type_name
    if name in ("null", "unknown"):  # `check --no-rows` does not look at values of SQLite
        return None
    if declared is not None and re.fullmatch(_DECLARED[declared], name):
        return declared.value
    return next((each for each, types in _FAMILIES.items() if re.fullmatch(types, name)), name)


def unit_families(
    unit: PrivacyUnit, types: Mapping[str, str], others: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the families of the unit's columns in all inputs that were seen, by column.

    Args:
        unit: the privacy unit.
        types: the names of the types of an input's columns; a column that is missing is null.
        others: the families in other inputs.

    Raises:
        ValueError: a column has another family than in other inputs; it names the way out.
    """
    result = dict(others or {})
    for column in unit.columns:
        family = unit_family(types.get(column, "null"), unit.type)
        if family is not None and result.setdefault(column, family) != family:
            raise mixed_families(column, family, result[column])
    return result


def mixed_families(column: str, one: str, other: str) -> ValueError:
    """Return the error of a column of the unit that has two families."""
    return ValueError(
        f"column {column!r} of the privacy unit is of type {one}, and elsewhere of type {other}: "
        "one unit could count as two. Write one type everywhere, or declare privacy.unit_type"
    )


_INTEGER_PATTERN = r"^\s*([+-]?)0*([0-9]+)(\.0*)?\s*$"
DECLARED_NEEDED = {
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
    is_integer = pc.match_substring_regex(data, _INTEGER_PATTERN)
    data = pc.if_else(is_integer, data, pa.scalar(None, pa.large_binary()))
    data = pc.replace_substring_regex(data, _INTEGER_PATTERN, r"\1\2")
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


Blocks = npt.NDArray[np.uint64]  # (n, 2): the halves of blocks of 16 bytes

# An id of each row, arbitrary where it has no unit; and which have none, None: each has one.
Units = tuple[Blocks, Flags | None]

NEEDED = "texts, numbers, truth values, dates or times"

# A block has ten bytes of the value, one that says what it is, and five more: a text's length, or
# what else there is of a value of fixed size.
_HEAD_BYTES, _BLOCK_BYTES = 10, 16
_TAG_SHIFT, _EXTRA_SHIFT = np.uint64(16), np.uint64(24)
_INTEGER, _LARGE, _FLOAT, _MOMENT, _DURATION, _DECIMAL, _TEXT, _LONG = range(1, 9)
# Longer strings are hashed before they are chained, so that one does not take a step for each
# block.
_LONGEST_CHAINED = 4096
# Beyond this many times the rows, a dictionary's values are taken before they are read.
_DICTIONARY_SHARE = 4
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400


class UnitIds:
    """The ids of the units of a release's rows, the same for all its trees.

    Args:
        choices: under whose key and release they are made.
        type: of the values; None: as they are stored.

    >>> from dptrees.dpcore.noise.randomness import ReleaseKey
    >>> ids = UnitIds(KeyedChoices(key=ReleaseKey(bytes(32)), release="flights"))
    >>> numbers, missing = ids.row_ids([pa.array([7, None, 3], pa.int8())])
    >>> floats, _ = ids.row_ids([pa.array([3.0, 7.0])])
    >>> missing.tolist(), bool((floats == numbers[[2, 0]]).all())
    ([False, True, False], True)
    """

    def __init__(self, choices: KeyedChoices, type: UnitType | None = None) -> None:
        self._type = type
        self._value = choices.key.blocks("unit", choices.release)
        self._several = choices.key.blocks("unit of several columns", choices.release)

    def row_ids(self, columns: Sequence[pa.Array]) -> Units:
        """The id of every row's unit.

        Of several columns it is CBC-MAC again, over their number and the id of each.

        Args:
            columns: at least one, (rows,) each, of types that `check_unit_types` accepts.

        Returns:
            (rows, 2) ids, arbitrary where there is none; and True where a value is null or NaN,
            (rows,), or None where there is none such.
        """
        if self._type is not None:
            columns = [declared_values(column, self._type) for column in columns]
        ids, missing = value_ids(columns[0], self._value)
        if len(columns) == 1:
            return ids, missing
        number = np.array([[len(columns), 0]], np.uint64)
        chained = self._several(self._several(number) ^ ids)
        for column in columns[1:]:
            ids, also = value_ids(column, self._value)
            chained = self._several(chained ^ ids)
            missing = also if missing is None else missing if also is None else missing | also
        return chained, missing


def check_unit_types(
    unit: PrivacyUnit, types: Mapping[str, pa.DataType], others: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Refuse unit columns of types whose values have no id, or other ids than in other inputs.

    Args:
        unit: the privacy unit.
        types: of its columns.
        others: the families of its columns in other inputs.

    Returns:
        the families in all of them.

    Raises:
        ValueError: naming the column, the type and what is needed.
    """
    for name in unit.columns:
        if unit.type is not None and not is_readable_as(types[name], unit.type):
            raise ValueError(
                f"column {name!r} has type {types[name]}, but a privacy unit of the declared type "
                f"{unit.type.value} needs {DECLARED_NEEDED[unit.type]}."
            )
        if not has_ids(types[name]):
            raise ValueError(
                f"column {name!r} has type {types[name]}, but a privacy unit needs {NEEDED}."
            )
    return unit_families(unit, {name: str(types[name]) for name in unit.columns}, others)


def has_ids(type: pa.DataType) -> bool:
    """Whether values of a type have ids: strings, numbers, truth values, dates and times do."""
    types = pa.types
    if types.is_dictionary(type):
        return has_ids(type.value_type)
    if isinstance(type, pa.BaseExtensionType):
        return has_ids(type.storage_type)
    return bool(
        types.is_null(type)
        or types.is_boolean(type)
        or is_number(type)
        or _per_second(type) is not None
        or is_text(type)
        or types.is_fixed_size_binary(type)
    )


def value_ids(column: pa.Array, blocks: KeyedBlocks) -> Units:
    """The id of every value of one column: equal values have one, whatever their type's width.

    Integers, floats and decimals that are one number, truth values as 0 and 1, are equal; so are
    dates and timestamps of one moment, and strings and bytes alike. A float to which another
    integer may have been rounded (`dpcore.rows.numbers`) is equal to floats alone.

    Args:
        column: (rows,), plain or with a dictionary.
        blocks: the permutation that they are made with.

    Returns:
        As `UnitIds.row_ids`.
    """
    while isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    type, types = column.type, pa.types
    if types.is_null(type):
        return np.zeros((len(column), 2), np.uint64), np.ones(len(column), np.bool_)
    if types.is_dictionary(type):
        return _dictionary_ids(column, blocks)
    if types.is_boolean(type):
        column, type = column.cast(pa.uint8()), pa.uint8()
    if is_text(type) or types.is_fixed_size_binary(type):
        texts = large_texts(column) if is_text(type) else column.cast(pa.large_binary())
        return _text_ids(*_buffers(texts), _TEXT, blocks), null_rows(column)
    missing = missing_rows(column)
    return (_moment_ids if _per_second(type) else _number_ids)(column, blocks), missing


def _dictionary_ids(column: pa.Array, blocks: KeyedBlocks) -> Units:
    dictionary, indices = column.dictionary, fixed_width_values(column.indices).astype(np.int64)
    missing = null_rows(column.indices)
    if missing is not None:
        indices[missing] = 0
    if len(dictionary) > _DICTIONARY_SHARE * len(column):
        used, indices = np.unique(indices, return_inverse=True)
        # Arrow cannot take from views.
        plain = large_texts(dictionary) if is_text(dictionary.type) else dictionary
        dictionary = plain.take(pa.array(used))
    if len(dictionary) == 0:
        return np.zeros((len(column), 2), np.uint64), missing
    ids, none = value_ids(dictionary, blocks)
    if none is not None:
        missing = none[indices] if missing is None else missing | none[indices]
    return ids[indices], missing


def _fixed(values: AnyArray, tag: int, extra: AnyArray | int = 0) -> Blocks:
    """Blocks of values of fixed size: eight bytes, what they are, and at most five bytes more."""
    made = np.empty((len(values), 2), np.uint64)
    made[:, 0] = values.view(np.uint64)
    made[:, 1] = np.uint64(tag) << _TAG_SHIFT
    made[:, 1] |= np.asarray(extra).astype(np.uint64) << _EXTRA_SHIFT
    return made


def _number_ids(column: pa.Array, blocks: KeyedBlocks) -> Blocks:
    values, is_none = whole_numbers(column)
    made = _fixed(values.astype(np.int64), _INTEGER)
    if values.dtype == np.uint64:
        made[values > np.uint64(2**63 - 1), 1] = np.uint64(_LARGE) << _TAG_SHIFT
    if is_none is None or pa.types.is_integer(column.type):
        return blocks(made)
    rows = np.flatnonzero(is_none)
    if pa.types.is_floating(column.type):
        with np.errstate(invalid="ignore"):  # some NaN warn when they are widened
            floats = fixed_width_values(column)[rows].astype(np.float64)
        made[rows] = _fixed(floats, _FLOAT)
        return blocks(made)
    result = blocks(made)
    result[rows] = _decimal_ids(column.take(pa.array(rows)), blocks)
    return result


def _decimal_ids(column: pa.Array, blocks: KeyedBlocks) -> Blocks:
    """Make the ids of decimals that are no integers of int64; hardly any unit is one, so each is
    read by itself."""
    values, is_none = whole_numbers(column, unsigned=True)
    result = blocks(_fixed(values, _LARGE))
    if is_none is not None:
        rows = np.flatnonzero(is_none)
        texts = [_decimal_text(each) for each in column.take(pa.array(rows)).to_pylist()]
        result[rows] = _text_ids(*_buffers(pa.array(texts, pa.large_binary())), _DECIMAL, blocks)
    return result


def _decimal_text(value: Decimal | None) -> bytes | None:
    """Its sign, digits and exponent, without zeros at the end.

    >>> _decimal_text(Decimal("2.50")) == _decimal_text(Decimal("2.5"))
    True
    """
    if value is None:
        return None
    sign, digits, exponent = value.as_tuple()
    written = "".join(map(str, digits))
    kept = written.rstrip("0")
    return f"{sign} {kept} {int(exponent) + len(written) - len(kept)}".encode()


def _per_second(type: pa.DataType) -> int | None:
    """Number of parts of a second in a type of dates or times; None: it is no such type."""
    types = pa.types
    if types.is_date(type):
        return _PER_SECOND["ms" if types.is_date64(type) else "s"]
    if types.is_timestamp(type) or types.is_time(type) or types.is_duration(type):
        return _PER_SECOND[type.unit]
    return None


def _moment_ids(column: pa.Array, blocks: KeyedBlocks) -> Blocks:
    """Make the ids of dates and times, from seconds and billionths; a date is its midnight."""
    type, types = column.type, pa.types
    parts = _per_second(type)
    assert parts is not None
    stored = f"i{type.bit_width // 8}"
    values = np.frombuffer(column.buffers()[1] or b"", stored)
    values = values[column.offset : column.offset + len(column)].astype(np.int64)
    if types.is_date32(type):
        values = values * _DAY
    seconds, rest = np.divmod(values, parts)
    is_moment = types.is_date(type) or types.is_timestamp(type)
    return blocks(_fixed(seconds, _MOMENT if is_moment else _DURATION, rest * (10**9 // parts)))


def _buffers(texts: pa.Array) -> tuple[Integers, AnyArray]:
    offsets, data = text_buffers(texts)
    return offsets.astype(np.int64, copy=False), data


def _masks() -> Blocks:
    """(17, 2) what keeps so many of the first bytes of a block."""
    kept = np.arange(_BLOCK_BYTES) < np.arange(_BLOCK_BYTES + 1)[:, None]
    return np.where(kept, 255, 0).astype(np.uint8).view("<u8").astype(np.uint64)


_KEPT = _masks()


def _text_ids(offsets: Integers, data: AnyArray, tag: int, blocks: KeyedBlocks) -> Blocks:
    """Make the ids of strings in a buffer: (n + 1,) offsets, and bytes."""
    data, offsets = data[offsets[0] : offsets[-1]], offsets - offsets[0]
    starts, lengths = offsets[:-1], np.diff(offsets)
    # Space for the last block of the last string.
    room = np.concatenate([data, np.zeros(_BLOCK_BYTES, np.uint8)])
    windows = np.ndarray(len(room) - _BLOCK_BYTES + 1, f"V{_BLOCK_BYTES}", room, strides=(1,))

    def block(rows: Integers | slice, done: int, most: int) -> Blocks:
        result: Blocks = windows[starts[rows] + done].view("<u8").reshape(-1, 2).astype(np.uint64)
        result &= _KEPT[np.minimum(lengths[rows] - done, most)]
        return result

    first = block(slice(None), 0, _HEAD_BYTES)
    first[:, 1] |= np.uint64(tag) << _TAG_SHIFT | lengths.astype(np.uint64) << _EXTRA_SHIFT
    result, done = blocks(first), _HEAD_BYTES
    rows = np.flatnonzero((lengths > done) & (lengths <= _LONGEST_CHAINED))
    while rows.size:
        result[rows] = blocks(result[rows] ^ block(rows, done, _BLOCK_BYTES))
        done += _BLOCK_BYTES
        rows = rows[lengths[rows] > done]
    long = np.flatnonzero(lengths > _LONGEST_CHAINED)
    if long.size:
        texts = (data[offsets[row] : offsets[row + 1]].tobytes() for row in long)
        hashed = [hashlib.sha256(text).digest() for text in texts]
        ends = np.arange(long.size + 1) * hashlib.sha256().digest_size
        result[long] = _text_ids(ends, np.frombuffer(b"".join(hashed), np.uint8), _LONG, blocks)
    return result
