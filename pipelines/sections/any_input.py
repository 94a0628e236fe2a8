"""The section `input`: of files, or of a table, as its format says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, Union

from pydantic import Discriminator, Tag

from pipelines.sections.input import InputSection
from pipelines.sections.table_input import TABLE_INPUTS

_FILES = "files"


def _tag(kind: str) -> str:
    """What pydantic calls the section of a kind of input; `key_path` leaves it out."""
    return f"<{kind}>"


def _kind_of(given: object) -> str:
    """The kind of an input: one of tables, or files, whose section says what is wrong with it."""
    format = given.get("format") if isinstance(given, Mapping) else None
    return _tag(format if isinstance(format, str) and format in TABLE_INPUTS else _FILES)


_KINDS: Any = {_FILES: InputSection} | TABLE_INPUTS
_TAGGED = tuple(Annotated[each, Tag(_tag(name))] for name, each in _KINDS.items())
AnyInput: TypeAlias = Annotated[Union[_TAGGED], Discriminator(_kind_of)]  # type: ignore[valid-type]  # noqa: UP007 - of as many as there are
