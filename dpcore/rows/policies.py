"""Shared base of the maps from rows to numbers: a version, the mark of a dropped row, checks of
fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import TypeVar

from dptrees.dpcore.refusal import Refusal

# Changes whenever a map from values to cells changes for an unchanged configuration.
MAP_VERSION = 1
DROPPED = -1


def check_column(column: object) -> None:
    """Refuse a column name that is not a text of at least one character."""
    if not isinstance(column, str) or not column:
        raise Refusal.from_value("column", f"{column!r} must be a text of at least one character.")


def check_policy(column: str, field: str, policy: object, allowed: tuple[str, ...]) -> None:
    """Refuse a policy that is not one of those allowed."""
    if policy not in allowed:
        raise Refusal.from_value(
            field, f"{policy!r} must be one of {', '.join(allowed)}.", column=column
        )


def is_integer(value: object) -> bool:
    """Whether a literal is a whole number (a truth value is not one).

    >>> is_integer(3), is_integer(True), is_integer(3.0)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool)


_Made = TypeVar("_Made")


def check_version(given: dict[str, object]) -> None:
    """Take the version of a map out of its fields, and refuse another one."""
    version = given.pop("map_version", MAP_VERSION)
    if version != MAP_VERSION:
        raise ValueError(
            f"map_version {version!r} must be {MAP_VERSION}: another version made this."
        )


def made(make: Callable[..., _Made], noun: str, given: dict[str, object]) -> _Made:
    """Call a dataclass with fields by name, refusing the unknown and the absent ones by name."""
    known = {field.name: field for field in fields(make) if field.init}  # type: ignore[arg-type]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a field of {noun}: use {', '.join(known)}.")
    needed = [name for name, field in known.items() if field.default is MISSING]
    absent = [name for name in needed if name not in given]
    if absent:
        raise ValueError(f"{noun} needs the field {absent[0]!r}.")
    return make(**given)
