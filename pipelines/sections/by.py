"""The `by` section of a tree: a group-by column and the public list of its keys."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

from pydantic import PlainValidator
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dpcore.rows.keys import KeyList
from pipelines.sections import rules
from pipelines.sections.error import RuleBroken, from_dpcore, shown
from pipelines.sections.key_lists import Keys, read_key_list
from pipelines.sections.section import Section, Text


def _keys(value: object) -> tuple[object, ...]:
    if value == "private":
        raise RuleBroken("private is not supported yet; list the keys")
    if isinstance(value, str):
        raise RuleBroken(f"{shown(value)} must be a list; for a file of keys use keys_file")
    return tuple(map(rules.plain_value, rules.several(value)))


class BySection(Section):
    """A group-by column and the public list of its keys."""

    column: Text
    keys: Annotated[tuple[Any, ...] | None, PlainValidator(_keys)] = None
    keys_file: Text | None = None
    unknown: Annotated[str, PlainValidator(rules.choice("drop", "other"))] = "drop"

    @section_rule(mode="after")
    def _check_list(self) -> Self:
        rules.exactly_one(keys=self.keys, keys_file=self.keys_file)
        _ = self.key_list
        return self

    @cached_property
    def key_list(self) -> KeyList:
        """The keys, those of a file read once."""
        keys = self._keys_of_file() if self.keys is None else self.keys
        try:
            return KeyList(column=self.column, keys=keys, unknown=self.unknown)
        except ValueError as error:
            broken = from_dpcore(error, {"keys": keys})
            if broken.at and self.keys is None:
                raise RuleBroken(f"its keys {broken}", at=".keys_file") from None
            raise broken from None

    def _keys_of_file(self) -> Keys:
        try:
            return read_key_list(str(self.keys_file))
        except ValueError as error:
            raise RuleBroken(str(error), at=".keys_file") from None
