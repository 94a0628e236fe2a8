"""How the strings of a CSV file are written: numbers, dates, and missing values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dptrees.transforms.readers.csv_dates import DateFormat

# Separators of groups of three digits in a number, and the characters accepted for each.
THOUSANDS = {",": ",", ".": ".", " ": " \u00a0\u202f", "'": "'\u2019", "_": "_"}
DECIMALS = (".", ",")


class ColumnTexts(NamedTuple):
    """How the strings of one column are written; see `CsvTexts`."""

    decimal: str
    thousands: str | None
    trim: bool
    nulls: tuple[str, ...]
    date_format: DateFormat | None


PLAIN_COLUMN = ColumnTexts(".", None, False, (), None)


@dataclass(frozen=True, kw_only=True)
class CsvTexts:
    """How the strings of a file are written.

    Args:
        decimal: before the fraction of a number, a point or a comma.
        thousands: between groups of three digits of a number, one of `THOUSANDS`; None: nothing.
        trim: white space around strings is no part of them. (In numbers and dates it never is.)
        null_values: strings that count as missing, beside empty fields: of all columns, or by
            column.
        date_format: how dates and times are written: of all columns, or by column; None, and for a
            column without an entry: by ISO 8601.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> texts = CsvTexts(decimal=",", date_format={"day": "%d.%m.%Y"})
    >>> texts.column_texts("day").date_format.text, texts.column_texts("time").date_format
    ('%d.%m.%Y', None)
    """

    decimal: str = "."
    thousands: str | None = None
    trim: bool = False
    null_values: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()
    date_format: str | Mapping[str, str] | None = None
    _dates: Mapping[str, DateFormat] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.decimal not in DECIMALS:
            raise ValueError(f"decimal: {self.decimal!r} must be '.' or ','")
        if self.thousands is not None and self.thousands not in THOUSANDS:
            known = ", ".join(map(repr, THOUSANDS))
            raise ValueError(f"thousands: {self.thousands!r} must be one of {known}")
        if self.thousands == self.decimal:
            raise ValueError(f"thousands: {self.thousands!r} is the decimal mark too")
        dates = self.date_format
        named = {"": dates} if isinstance(dates, str) else dates or {}
        object.__setattr__(self, "_dates", {name: DateFormat(text) for name, text in named.items()})

    def column_texts(self, column: str) -> ColumnTexts:
        """How the strings of a column are written."""
        nulls = self.null_values
        found = ColumnTexts(
            decimal=self.decimal,
            thousands=self.thousands,
            trim=self.trim,
            nulls=tuple(nulls.get(column, ()) if isinstance(nulls, Mapping) else nulls),
            date_format=self._dates.get("" if isinstance(self.date_format, str) else column),
        )
        return PLAIN_COLUMN if found == PLAIN_COLUMN else found

    @property
    def named(self) -> dict[str, tuple[str, ...]]:
        """The columns that an entry names, by the entry."""
        entries = {"null_values": self.null_values, "date_format": self.date_format}
        return {key: tuple(each) for key, each in entries.items() if isinstance(each, Mapping)}

    def spec(self) -> dict[str, Any]:
        """All that is not as by default, as plain JSON values."""
        result: dict[str, Any] = {}
        for name in ("decimal", "thousands", "trim", "date_format"):
            if getattr(self, name) != getattr(PLAIN_TEXTS, name):
                result[name] = getattr(self, name)
        if isinstance(self.null_values, Mapping):
            result["null_values"] = {name: list(each) for name, each in self.null_values.items()}
        elif self.null_values:
            result["null_values"] = list(self.null_values)
        return result

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "CsvTexts":
        """Read the object from a specification, as `spec` returns it."""
        nulls = spec.get("null_values", ())
        if isinstance(nulls, Mapping):
            return cls(**{**spec, "null_values": {k: tuple(each) for k, each in nulls.items()}})
        return cls(**{**spec, "null_values": tuple(nulls)})


PLAIN_TEXTS = CsvTexts()
