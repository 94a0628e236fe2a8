"""Conditions on an input before a row is read: when its files are complete, and its column types.

Only file lists and schemas are read, so the result depends on no row. A type is compared as
Arrow names it; how values are encoded is not a part of the type.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from dptrees.transforms.errors import InputError

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_DURATION = re.compile(r"([1-9]\d{0,8})([smhd])")


def duration_seconds(text: str) -> int:
    """The seconds of a duration.

    Args:
        text: a whole number with the unit s, m, h or d.

    Raises:
        ValueError: it is none, or 0.

    >>> duration_seconds("26h")
    93600
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} must be a duration such as 90m, 26h or 2d")
    return int(match[1]) * dict(_UNITS)[match[2]]


def duration_text(seconds: int) -> str:
    """A duration in its largest whole unit, as a configuration writes it.

    Args:
        seconds: at least 1.

    >>> duration_text(93_600), duration_text(172_800), duration_text(90)
    ('26h', '2d', '90s')
    """
    unit, size = next(each for each in _UNITS if seconds % each[1] == 0)
    return f"{seconds // size}{unit}"


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """The conditions under which the files of an input are complete and may be read.

    Args:
        require: name of a file that marks a complete folder, such as ``_SUCCESS``; "": none.
        min_files: the least number of files of rows.
        max_age: seconds since the last change of the newest file, at most; 0: no limit.
    """

    require: str = ""
    min_files: int = 0
    max_age: int = 0

    def __post_init__(self) -> None:
        if "/" in self.require:
            raise ValueError(f"require: {self.require!r} must be the name of a file, without a /")
        if self.min_files < 0:
            raise ValueError(f"min_files: {self.min_files} must be at least 0")
        if self.max_age < 0:
            raise ValueError(f"max_age: {self.max_age} must be at least 0 seconds")

    @property
    def is_awaited(self) -> bool:
        """Whether the files may be yet to come."""
        return bool(self.require or self.min_files or self.max_age)


AT_ONCE = Arrival()


_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), ?tz=([^\s,\]]+)\]")
_DECIMAL = re.compile(r"decimal(128|256)\((\d{1,2})(?:, ?(\d{1,2}))?\)")
_DICTIONARY = re.compile(r"dictionary<values=(.+), indices=.*>")
# Encodings of values of one type, as the names of types have them.
_ENCODINGS = re.compile(r"^large_|_view$")


# Of a column whose values were not looked at, where they decide (SQLite).
UNKNOWN_TYPE = "unknown"


def arrow_type(text: str) -> str:
    """The name of a type, as Arrow itself writes it.

    Args:
        text: a name or an alias.

    Raises:
        ValueError: Arrow has no such type, or it is nested.

    >>> arrow_type("float64"), arrow_type("timestamp[us,tz=UTC]"), arrow_type("decimal128(10,2)")
    ('double', 'timestamp[us, tz=UTC]', 'decimal128(10, 2)')
    """
    if match := _ZONED.fullmatch(text):
        return str(pa.timestamp(match[1], match[2]))
    if match := _DECIMAL.fullmatch(text):
        make = pa.decimal128 if match[1] == "128" else pa.decimal256
        try:
            return str(make(int(match[2]), int(match[3] or 0)))
        except (ValueError, pa.ArrowException):
            raise ValueError(f"{text!r} has a precision that Arrow does not have") from None
    try:
        return unencoded(str(pa.type_for_alias(text)))
    except ValueError:
        raise ValueError(
            f"{text!r} must be the name of a type of Arrow, such as int64, double, string, bool, "
            "date32, timestamp[us], timestamp[us, tz=UTC] or decimal128(10, 2)"
        ) from None


def unencoded(name: str) -> str:
    """The name of the type of values, whatever their encoding.

    >>> unencoded("large_string"), unencoded("dictionary<values=string, indices=int8, ordered=0>")
    ('string', 'string')
    """
    match = _DICTIONARY.fullmatch(name)
    return _ENCODINGS.sub("", match[1] if match else name)


@dataclass(frozen=True, kw_only=True)
class SchemaContract:
    """Columns that an input must have, with their types. It may have more columns.

    Args:
        types: the names of types, by columns; a field within a column has a name with dots.

    Raises:
        ValueError: there is no column, or a type is none of Arrow.
    """

    types: Mapping[str, str]

    def __post_init__(self) -> None:
        if not self.types:
            raise ValueError("types: must name at least one column")
        for stated in self.types.values():
            arrow_type(stated)

    def check(self, found: Mapping[str, str], place: str) -> None:
        """Refuse columns that break the contract.

        Args:
            found: the names of types, by columns.
            place: the name of the file or table, for messages.

        Raises:
            InputError: a column is missing or has another type; the first one, in the order of the
                contract.

        >>> SchemaContract(types={"age": "int64"}).check({"age": "string"}, "a.parquet")
        Traceback (most recent call last):
        dptrees.transforms.errors.InputError: <dptrees: input.schema: a.parquet has column 'age' ...
        """
        for name, stated in self.types.items():
            expected = arrow_type(stated)
            if name not in found:
                raise InputError(
                    f"input.schema: {place} has no column {name!r}, which must have type {expected}"
                )
            if unencoded(found[name]) not in (expected, UNKNOWN_TYPE):
                raise InputError(
                    f"input.schema: {place} has column {name!r} of type {found[name]}, and it must "
                    f"have type {expected}"
                )
