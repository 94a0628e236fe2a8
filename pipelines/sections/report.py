"""The section `report`: what the page says of the data, beside what was released of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainValidator
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, shown
from dptrees.pipelines.sections.section import Section

_LONGEST = 200


def _line(value: object) -> str:
    """A line of text."""
    line = rules.text(value)
    if len(line) > _LONGEST or not line.isprintable():
        raise RuleBroken(f"{shown(line)} must be one line of at most {_LONGEST} characters")
    return line


def _date(value: object) -> str:
    """A day, or how else a time is said."""
    return value.isoformat() if isinstance(value, (date, datetime)) else _line(value)


Line = Annotated[str, PlainValidator(_line)]


class ColumnSection(Section):
    """What a column is called on the page and in drawings, in place of its name."""

    label: Line | None = None
    unit: Line | None = None

    @section_rule(mode="after")
    def _not_empty(self) -> Self:
        if self.label is None and self.unit is None:
            raise RuleBroken("must hold label or unit")
        return self


class ReportSection(Section):
    """What the page of a release says of its data. It is public, and in the manifest as it is
    here; what it says of columns as one string of JSON."""

    title: Line | None = None
    source: Line | None = None
    contact: Line | None = None
    date: Annotated[str | None, PlainValidator(_date)] = None
    columns: Annotated[dict[str, ColumnSection], BeforeValidator(rules.section)] = Field(
        default_factory=dict
    )

    @section_rule(mode="after")
    def _not_empty(self) -> Self:
        if not self.texts:
            raise RuleBroken("must hold title, source, contact, date or columns")
        return self

    @property
    def texts(self) -> Mapping[str, str]:
        """The strings of the section by name, without the absent ones."""
        texts: dict[str, str] = self.model_dump(exclude_none=True, exclude={"columns"})
        if self.columns:
            named = {
                name: each.model_dump(exclude_none=True) for name, each in self.columns.items()
            }
            texts["columns"] = json.dumps(named, ensure_ascii=False, sort_keys=True)
        return texts
