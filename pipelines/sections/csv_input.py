"""The keys of `input` that describe how a CSV file writes its rows and their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import PlainValidator
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, shown, to_refusal
from dptrees.pipelines.sections.section import Section
from dptrees.transforms.readers.csv_format import DEFAULT_FORMAT, POLICIES, CsvFormat
from dptrees.transforms.readers.csv_values import CsvTexts

_TAB = ("tab", "\\t")
_Words = tuple[str, ...]


def _mark(value: object) -> str:
    """One character; what it may be, `CsvFormat` and `CsvTexts` say."""
    if not isinstance(value, str):
        raise RuleBroken(f"{shown(value)} must be a string; put it in quotes")
    return "\t" if value in _TAB else value


def _quote(value: object) -> str | bool:
    """One character, or false: none quotes."""
    return False if value is False else _mark(value)


def _names(value: object) -> _Words:
    return rules.each_by(rules.text, rules.several(value))


def _word(value: object) -> str:
    """A text, which may be empty or blank."""
    return value if isinstance(value, str) and not value.strip() else rules.text(value)


def _words(value: object) -> _Words:
    return rules.each_by(_word, rules.one_or_several(value))


def _null_values(value: object) -> _Words | Mapping[str, _Words]:
    if not isinstance(value, dict):
        return _words(value)
    return {name: rules.at(f".{name}", _words, each) for name, each in value.items()}


def _date_format(value: object) -> str | Mapping[str, str]:
    if not isinstance(value, dict):
        return rules.text(value)
    return {name: rules.at(f".{name}", rules.text, each) for name, each in value.items()}


class CsvInput(Section):
    """What only a file of the format csv has. A key that is not given is as in a file of commas,
    a header and UTF-8."""

    newlines: Annotated[bool | None, PlainValidator(rules.truth)] = None
    malformed: Annotated[str | None, PlainValidator(rules.choice(*POLICIES))] = None
    separator: Annotated[str | None, PlainValidator(_mark)] = None
    quote: Annotated[str | bool | None, PlainValidator(_quote)] = None
    header: Annotated[bool | None, PlainValidator(rules.truth)] = None
    columns: Annotated[_Words | None, PlainValidator(_names)] = None
    encoding: Annotated[str | None, PlainValidator(rules.text)] = None
    decimal: Annotated[str | None, PlainValidator(_mark)] = None
    thousands: Annotated[str | None, PlainValidator(_mark)] = None
    trim: Annotated[bool | None, PlainValidator(rules.truth)] = None
    null_values: Annotated[_Words | Mapping[str, _Words] | None, PlainValidator(_null_values)] = (
        None
    )
    date_format: Annotated[str | Mapping[str, str] | None, PlainValidator(_date_format)] = None
    escape: Annotated[str | None, PlainValidator(_mark)] = None
    skip_lines: Annotated[int | None, PlainValidator(rules.whole_number)] = None
    comment: Annotated[str | None, PlainValidator(_mark)] = None
    trailing_separator: Annotated[bool | None, PlainValidator(rules.truth)] = None

    @section_rule(mode="after")
    def _names_of_columns(self) -> Self:
        if self.header is False and self.columns is None:
            raise RuleBroken(
                "is required with header: false: the names of all columns, in their order",
                at=".columns",
            )
        if self.columns is not None and self.header is not False:
            raise RuleBroken("goes with header: false; a header names them", at=".columns")
        return self

    @section_rule(mode="after")
    def _goes_together(self) -> Self:
        try:
            _ = self.csv
        except ValueError as error:
            refusal = to_refusal(error)
            raise RuleBroken(refusal.rule, at=f".{refusal.field}") from None
        return self

    @property
    def csv(self) -> CsvFormat:
        """What a row of a CSV file is."""
        quote = DEFAULT_FORMAT.quote if self.quote is None else self.quote
        return CsvFormat(
            quote=quote if isinstance(quote, str) else None,
            malformed=self.malformed or DEFAULT_FORMAT.malformed,
            columns=self.columns or (),
            texts=CsvTexts(
                **self._given("decimal", "thousands", "trim", "null_values", "date_format")
            ),
            **self._given("newlines", "separator", "encoding"),
            **self._given("escape", "skip_lines", "comment", "trailing_separator"),
        )

    def _given(self, *keys: str) -> dict[str, Any]:
        return {key: getattr(self, key) for key in keys if getattr(self, key) is not None}
