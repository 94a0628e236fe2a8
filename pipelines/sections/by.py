"""The section `group_by` of a tree: its columns, and the public list of keys or `private`."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import PlainValidator, WithJsonSchema
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.choices.key_selection import TYPES, KeyColumns
from dptrees.dpcore.rows.key_tables import KeyTable, TableKeys, UnlistedKeys, product_table
from dptrees.dpcore.rows.keys import KeyList, Keys, listed_values
from dptrees.pipelines.schema.values import LABELS
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, from_dpcore, shown
from dptrees.pipelines.sections.key_lists import Keys as ListedKeys
from dptrees.pipelines.sections.key_lists import (
    is_large,
    read_key_list,
    read_key_table,
    read_large_list,
)
from dptrees.pipelines.sections.section import Section, Text

PRIVATE = "private"
DEFAULT_SHARE = Fraction(1, 10)
_PRIVATE_ONLY = ("fraction", "threshold", "type")


@dataclass(frozen=True, kw_only=True)
class PrivateKeys:
    """What selects the keys of one tree or several.

    Args:
        columns: of the keys.
        share: the part of the epsilon of the release that it spends.
        threshold: keys of fewer units are never released.
    """

    columns: KeyColumns
    share: Fraction
    threshold: int


def _keys(value: object) -> object:
    if value == PRIVATE:
        return PRIVATE
    if isinstance(value, dict):
        lists = rules.section(value)
        return {name: rules.at(f".{name}", _keys_of_list, each) for name, each in lists.items()}
    return _keys_of_list(value)


def _keys_of_list(value: object) -> tuple[object, ...]:
    if isinstance(value, str):
        raise RuleBroken(
            f"{shown(value)} must be a list; for a file of keys use keys_file, for keys that are "
            "not listed, private"
        )
    return listed_values([rules.plain_value(each) for each in rules.several(value)])


def _columns(value: object) -> tuple[str, ...]:
    return rules.each_once(tuple(map(rules.text, rules.several(value))))


def _types(value: object) -> tuple[str, ...]:
    return tuple(map(rules.choice(*TYPES), rules.one_or_several(value)))


def _threshold(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**40:
        raise RuleBroken(f"{shown(value)} must be a whole number from 1 to 2^40")
    return value


class BySection(Section):
    """Group-by columns and the public list of their keys, or the private selection of these."""

    column: Text | None = None
    columns: Annotated[tuple[str, ...] | None, PlainValidator(_columns)] = None
    keys: Annotated[Any, PlainValidator(_keys)] = None
    keys_file: Text | None = None
    labels: Annotated[Any, PlainValidator(rules.labels), WithJsonSchema(LABELS)] = None
    unknown: Annotated[str, PlainValidator(rules.choice("drop", "other"))] = "drop"
    fraction: Annotated[Fraction, PlainValidator(rules.share)] = DEFAULT_SHARE
    threshold: Annotated[int, PlainValidator(_threshold)] = 1
    type: Annotated[tuple[str, ...], PlainValidator(_types)] = ("text",)

    @section_rule(mode="after")
    def _check_list(self) -> Self:
        if self.column is None and self.columns is None:
            raise RuleBroken("is required", at=".column")
        rules.exactly_one(column=self.column, columns=self.columns)
        rules.exactly_one(keys=self.keys, keys_file=self.keys_file)
        if not self.is_private:
            for key in _PRIVATE_ONLY:
                if key in self.model_fields_set:
                    raise RuleBroken("belongs to keys: private", at=f".{key}")
        elif len(self.type) not in (1, len(self.names)):
            raise RuleBroken(
                f"must be one for all columns, or {len(self.names)}, one for each", at=".type"
            )
        _ = self.listed
        return self

    @property
    def is_private(self) -> bool:
        """Whether the keys are selected from the data."""
        return bool(self.keys == PRIVATE)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns or (str(self.column),)

    @property
    def private(self) -> PrivateKeys | None:
        """What selects the keys; None where they are listed."""
        if not self.is_private:
            return None
        types = self.type * len(self.names) if len(self.type) == 1 else self.type
        columns = KeyColumns(columns=self.names, types=types)
        return PrivateKeys(columns=columns, share=self.fraction, threshold=self.threshold)

    @cached_property
    def listed(self) -> Keys:
        """The keys, read once if they are in a file; placeholders if they are to be selected."""
        large = self.keys_file is not None and is_large(self.keys_file)
        if self.labels is not None and (self.is_private or self.columns is not None or large):
            raise RuleBroken("goes with the listed keys of one column", at=".labels")
        if (private := self.private) is not None:
            return UnlistedKeys(table=_placeholder_table(private.columns), unknown=self.unknown)
        if self.columns is None and not isinstance(self.keys, dict) and not large:
            return self._key_list
        try:
            return TableKeys(table=self._key_table(), unknown=self.unknown)
        except ValueError as error:
            at = ".keys" if self.keys_file is None else ".keys_file"
            broken = from_dpcore(error, {"keys": self.keys})
            raise RuleBroken(str(broken), at=at) from None

    @property
    def _key_list(self) -> KeyList:
        keys = self._keys_of_file() if self.keys is None else self.keys
        names: tuple[str, ...] = ()
        if self.labels is not None:
            names = rules.at(".labels", lambda given: rules.names_of(keys, given), self.labels)
        try:
            return KeyList(
                column=str(self.column), keys=keys, unknown=self.unknown, value_names=names
            )
        except ValueError as error:
            broken = from_dpcore(error, {"keys": keys, "labels": self.labels})
            if broken.at and self.keys is None:
                raise RuleBroken(f"its keys {broken}", at=".keys_file") from None
            raise broken from None

    def _keys_of_file(self) -> ListedKeys:
        try:
            return read_key_list(str(self.keys_file))
        except ValueError as error:
            raise RuleBroken(str(error), at=".keys_file") from None

    def _key_table(self) -> KeyTable:
        """The table of a file, or the product of the lists of all columns."""
        if self.keys_file is not None and self.column is not None:
            return KeyTable(read_large_list(self.keys_file, self.column))
        if self.keys_file is not None:
            return KeyTable(read_key_table(self.keys_file, self.names))
        if not isinstance(self.keys, dict) or set(self.keys) != set(self.names):
            raise ValueError(
                f"must be private, or a list for each of {', '.join(self.names)}; for a list of "
                "tuples use keys_file"
            )
        return product_table({name: self.keys[name] for name in self.names})


def _placeholder_table(columns: KeyColumns) -> KeyTable:
    """A table of one key, to plan with before keys are selected."""
    values = {"text": pa.array(["any"], TYPES["text"]), "integer": pa.array(np.zeros(1, np.int64))}
    return KeyTable(
        pa.table({n: values[t] for n, t in zip(columns.columns, columns.types, strict=True)})
    )
