"""The section of a tree that counts the different values of a column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import PlainValidator, WithJsonSchema

from dptrees.dpcore.distinct import DistinctDomain, DistinctWorkload
from dptrees.dpcore.privacy.unit import MOST_ROWS
from dptrees.dpcore.questions.planning import Noise
from dptrees.pipelines.schema.values import TEXT, rules_schema, whole, words
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, from_dpcore, shown
from dptrees.pipelines.sections.tree import KnownLeavesSection

_TYPES = ("text", "integer", "number")


def _most(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_ROWS:
        raise RuleBroken(f"{shown(value)} must be a whole number from 1 to 2^20")
    return value


_RULES: dict[str, Callable[[object], Any]] = {
    "kind": rules.choice("distinct"),
    "column": rules.text,
    "type": rules.choice(*_TYPES),
}
_SCHEMA = rules_schema(_RULES, "distinct", column=TEXT, type=words(*_TYPES))


def read_distinct(value: object) -> DistinctDomain:
    """Make the column whose values are counted of the plain values of a section.

    Raises:
        RuleBroken: at the key whose rule is broken.

    >>> read_distinct({"kind": "distinct", "column": "city"}).column
    'city'
    """
    section = rules.section(value)
    rules.known_keys(section, _RULES)
    given: dict[str, Any] = {
        key: rules.at(f".{key}", _RULES[key], each) for key, each in section.items()
    }
    given.pop("kind", None)
    if "column" not in given:
        raise RuleBroken("is required", at=".column")
    try:
        return DistinctDomain(**given)
    except ValueError as error:
        raise from_dpcore(error, given) from None


class DistinctTree(KnownLeavesSection):
    """How many different values a column has, once for each of the keys."""

    refused: ClassVar[Mapping[str, str]] = {
        "domain": "domain",
        "noise": "noise",
        "max_values": "max_values",
    }
    misplaced: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("quantiles", "guess", "widths", "fanouts", "objective", "optimize_for", "mechanism"),
            "belongs to an ordered domain; the different values of a column are one number",
        ),
        **dict.fromkeys(("measure", "invariants", "node_weights"), "belongs to a hierarchy"),
    }
    domain: Annotated[DistinctDomain, PlainValidator(read_distinct), WithJsonSchema(_SCHEMA)]
    max_values: Annotated[
        int | None, PlainValidator(_most), WithJsonSchema(whole(minimum=1, maximum=MOST_ROWS))
    ] = None

    def workload(self) -> DistinctWorkload:
        return DistinctWorkload(
            name=self.name,
            domain=self.domain,
            keys=self.keys,
            max_values=self.max_values,
            weight=self.weight,
            noise=Noise(self.noise),
        )
