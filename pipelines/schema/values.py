"""What a value of a configuration may be, as JSON Schema, by the rule that reads it.

A schema is for editors: it names keys and words, and is no stricter than the rules are. A rule that
is not listed here takes what its field's type says, or anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.privacy import AUTO, bound_or_auto

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
