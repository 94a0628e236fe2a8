"""The keys that every section of a tree has, its group-by section, and their JSON Schema.

The group-by section names columns, and a public list of keys or `private`. The schema of a value
follows from the rule that reads it; it serves editors, and is no stricter than the rules.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import PlainValidator, WithJsonSchema
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.choices.key_selection import TYPES, KeyColumns
from dptrees.dpcore.questions.planning import Workload
from dptrees.dpcore.release.composition import Guarantee
from dptrees.dpcore.rows.key_tables import KeyTable, TableKeys, UnlistedKeys, product_table
from dptrees.dpcore.rows.keys import KeyList, Keys, listed_values
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import RuleBroken, from_dpcore, shown
from dptrees.pipelines.sections.privacy import AUTO, bound_or_auto
from dptrees.pipelines.sections.public_tables import Keys as ListedKeys
from dptrees.pipelines.sections.public_tables import (
    is_large,
    read_key_list,
    read_key_table,
    read_large_list,
)
from dptrees.pipelines.sections.rules import Amount, Name, Section, Text

Schema = dict[str, Any]

# A parameter may represent any value.
DEFINITIONS: Schema = {"parameter": {"type": "string", "pattern": r"\$\{"}}
_PARAMETER: Schema = {"$ref": "#/$defs/parameter"}
TEXT: Schema = {"type": "string"}
# Dates are strings to a JSON Schema.
BOUND: Schema = {"type": ["number", "string"]}


def number(**limits: float) -> Schema:
    """A number, or the parameter that is one."""
    return {"anyOf": [{"type": "number", **limits}, _PARAMETER]}


def whole(**limits: int) -> Schema:
    """A whole number, or the parameter that is one."""
    return {"anyOf": [{"type": "integer", **limits}, _PARAMETER]}


def words(*allowed: str) -> Schema:
    """One of a few words, or the parameter that is one."""
    return {"anyOf": [{"enum": list(allowed)}, _PARAMETER]}


def several(item: Schema) -> Schema:
    """A list of at least one value."""
    return {"type": "array", "items": item, "minItems": 1}


LABELS: Schema = {
    "anyOf": [several(TEXT), {"type": "object", "additionalProperties": TEXT, "minProperties": 1}]
}


def section(
    properties: Mapping[str, Schema], required: tuple[str, ...], description: str = ""
) -> Schema:
    """Return the schema of a section of these keys and no others.

    Args:
        properties: the schemas of keys.
        required: keys that must be there.
        description: of the section.
    """
    found: Schema = {"type": "object", "properties": dict(properties)}
    found |= {"required": list(required)} if required else {}
    found |= {"description": description} if description else {}
    return found | {"additionalProperties": False}


_RULES: dict[Callable[[object], object], Schema] = {
    rules.text: TEXT,
    rules.name: {"type": "string", "pattern": r"^([A-Za-z0-9._-]|\$\{[^}]*\})+$"},
    rules.amount: number(exclusiveMinimum=0),
    rules.delta: number(exclusiveMinimum=0, exclusiveMaximum=1),
    rules.quantile: number(minimum=0, maximum=1),
    rules.confidence: number(exclusiveMinimum=0, maximum=0.9999),
    rules.weight: number(minimum=0),
    rules.weights: several(number(minimum=0)),
    rules.whole_number: whole(),
    rules.whole_numbers: several(whole(minimum=1)),
    rules.level_budgets: {"anyOf": [words("equal", "optimal"), several(number(minimum=0))]},
    rules.guessed_parts: several({"type": "array", "minItems": 2, "maxItems": 2}),
    rules.null_or_fail: {"anyOf": [{"enum": [None, "null", "fail"]}, _PARAMETER]},
    rules.truth: {"anyOf": [{"type": "boolean"}, _PARAMETER]},
    bound_or_auto: {
        "anyOf": [
            whole(minimum=1),
            words(AUTO),
            section(
                {
                    "fraction": number(exclusiveMinimum=0, exclusiveMaximum=1),
                    "at_most": whole(minimum=2),
                },
                (),
                "A bound of the privacy unit that is chosen privately, as a first stage.",
            ),
        ]
    },
    rules.duration: {
        "anyOf": [{"type": "string", "pattern": "^[1-9][0-9]{0,8}[smhd]$"}, _PARAMETER]
    },
    rules.column_types: {"type": "object", "additionalProperties": TEXT, "minProperties": 1},
    rules.key_file: TEXT,
    rules.key_reference: TEXT,
    rules.signing_key: TEXT,
}
# What the rules that are not listed take at most, by the type that they give.
_TYPES: dict[object, Schema] = {
    int: {"type": ["integer", "string"]},
    float: {"type": ["number", "string"]},
    Fraction: {"type": ["number", "string"]},
    bool: {"type": ["boolean", "string"]},
}


def rule_schema(rule: Callable[..., object], type: object = None) -> Schema:
    """What a rule takes.

    Args:
        rule: of `pipelines.sections.rules`, or any.
        type: of what it gives.

    >>> rule_schema(rules.choice("a", "b"))["anyOf"][0]
    {'enum': ['a', 'b']}
    """
    if isinstance(rule, rules.Choice):
        return words(*rule.allowed)
    if isinstance(rule, rules.Whole):
        return whole(minimum=rule.least, maximum=rule.most)
    return _RULES.get(rule, _TYPES.get(type, {}))


def rules_schema(
    by_key: Mapping[str, Callable[[object], object]], kind: str, **others: Schema
) -> Schema:
    """Return the schema of a kind of domain whose keys have rules.

    Args:
        by_key: the rules.
        kind: of the domain, which must be named.
        others: schemas of keys that are stricter than their rules.
    """
    known = {key: rule_schema(rule) for key, rule in by_key.items()}
    return section(known | {"kind": {"const": kind}} | others, ("kind",))


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


# Each leaf of each key is a row of the output.
MAX_LEAVES = 2**32


class TreeSection(Section):
    """What every tree has: a name and a domain; `workload` makes what it is planned for."""

    # The keys at which refusals of dpcore are put once the budget is known, by its own fields.
    refused: ClassVar[Mapping[str, str]] = {"domain": "domain"}
    name: Name
    domain: Any

    @abstractmethod
    def workload(self) -> Workload[Any]:
        """The workload of the tree, before there is a budget."""

    @property
    def private_keys(self) -> PrivateKeys | None:
        """What selects its keys from the data; None where they are listed, or there are none."""
        return None

    @property
    def leaves(self) -> int | None:
        """How many leaves it has under a key; None where nobody lists them."""
        return None

    def counts_units(self, unit: tuple[str, ...]) -> bool:
        """Whether privacy units count and not rows, so that no bound of rows concerns it.

        Args:
            unit: the columns of the privacy unit.
        """
        domain = self.domain
        has_values = getattr(domain, "per_unit", None) is not None
        return has_values or getattr(domain, "counts_units", False)

    def describe_rule(self, key: str, rule: str, guarantee: Guarantee) -> str:
        """What is said of a choice that dpcore refused once the budget was known.

        Args:
            key: of this section.
            rule: what dpcore says is wrong with it.
            guarantee: of the release.
        """
        return rule


class KnownLeavesSection(TreeSection):
    """A tree of known leaves, once for each of its public keys."""

    group_by: BySection | None = None
    weight: Amount = Fraction(1)
    noise: Annotated[str, PlainValidator(rules.choice("best", "laplace", "gaussian"))] = "best"

    @section_rule(mode="after")
    def _check_size(self) -> Self:
        keys = 1 if self.keys is None else self.keys.size
        if (cells := self.leaves or 0) * keys > MAX_LEAVES:
            times = "" if self.keys is None else f" times {keys} keys"
            raise RuleBroken(
                f"{cells} cells{times} must be at most 2^32 in total, because each is a row of "
                "the output",
                at=f".{self.refused['domain']}",
            )
        return self

    @property
    def leaves(self) -> int | None:
        return int(self.domain.cells)

    @property
    def keys(self) -> Keys | None:
        """The keys, None for one tree over all rows."""
        return None if self.group_by is None else self.group_by.listed

    @property
    def private_keys(self) -> PrivateKeys | None:
        return None if self.group_by is None else self.group_by.private
