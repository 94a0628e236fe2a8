"""A section of a configuration as JSON Schema, from the fields of its class."""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, PlainValidator, WithJsonSchema

from dptrees.pipelines.schema.values import Schema, rule_schema, section, several, words
from dptrees.pipelines.sections import rules


def section_schema(model: type[BaseModel]) -> Schema:
    """The schema of a section.

    Args:
        model: its class.
    """
    fields = {each.alias or name: each for name, each in model.model_fields.items()}
    required = tuple(name for name, field in fields.items() if field.is_required())
    known = {name: _value(field.annotation, field.metadata) for name, field in fields.items()}
    return section(known, required, (inspect.getdoc(model) or "").partition("\n\n")[0])


def _value(type: Any, metadata: Sequence[Any]) -> Schema:
    """What a field takes, by what is annotated, else by its type."""
    for each in metadata:
        if isinstance(each, WithJsonSchema):
            return dict(each.json_schema or {})
    type = _given(type)
    for each in metadata:
        if isinstance(each, PlainValidator):
            return rule_schema(each.func, type)
    items = _type_schema(type)
    alone = any(
        isinstance(each, BeforeValidator) and each.func is rules.one_or_several for each in metadata
    )
    return {"anyOf": [items["items"], items]} if alone and "items" in items else items


def _given(type: Any) -> Any:
    """A type without None: a key that is there has a value."""
    if get_origin(type) in (Union, types.UnionType):
        left = [each for each in get_args(type) if each is not types.NoneType]
        return left[0] if len(left) == 1 else type
    return type


def _type_schema(type: Any) -> Schema:
    origin, arguments = get_origin(type), get_args(type)
    if origin is Annotated:
        return _value(arguments[0], arguments[1:])
    if origin is tuple:
        return several(_type_schema(arguments[0]))
    if origin is Literal:
        return words(*map(str, arguments))
    if origin in (Union, types.UnionType):
        return {"anyOf": [_type_schema(each) for each in arguments]}
    if inspect.isclass(type) and issubclass(type, BaseModel):
        return section_schema(type)
    return rule_schema(_anything, type)


def _anything(value: object) -> object:
    return value
