"""What a person reads about a bad configuration: file, key path, value and rule, in one sentence.

The checks of pydantic, of dpcore and of this package all end here. A value from the configuration
may be shown, since the configuration holds no data; the release key is never shown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from dptrees.dpcore.specification import Refusal

_SHOWN_LENGTH = 60
# A key of a configuration and its value, but for the space; a URL is none.
_NO_SPACE = re.compile(r"[\s-]*([a-z][a-z_]*):(?!//)\S")

# Keys of a configuration, by the names that the formats of releases have for them.
KEYS_BY_STORED_NAME = {
    "by": "group_by",
    "for": "optimize_for",
    "outside": "out_of_range",
    "share": "fraction",
}


class ConfigurationError(Exception):
    """The configuration cannot be used; the message is one sentence for the person who wrote it."""


class RuleBroken(ValueError):
    """A value breaks a rule.

    Args:
        rule: what is wrong, with the value and the rule.
        at: where below the validated value, such as ``.lower`` or ``[1].name``.
    """

    def __init__(self, rule: str, at: str = "") -> None:
        super().__init__(rule)
        self.at = at


def shown(value: object) -> str:
    """A value of the configuration as its author would write it, shortened when long.

    >>> shown(True), shown("UA"), shown([1, 2]), shown(10)
    ('true', "'UA'", 'a list', '10')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, dict):
        return "a section"
    if hasattr(value, "__dataframe__") or hasattr(value, "__arrow_c_stream__"):
        return f"a {type(value).__name__}"  # its text would show rows
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


def unknown_key(key: str, known: Iterable[str]) -> str:
    """The sentence about a key that does not exist, with the nearest one that does.

    >>> unknown_key("epsilom", ["epsilon", "rho"])
    'unknown key; did you mean epsilon?'
    >>> unknown_key("colour", ["epsilon", "rho"])
    'unknown key; known are epsilon, rho'
    >>> unknown_key("by", ["name", "group_by"])
    'unknown key; did you mean group_by?'
    >>> unknown_key("epsilon:1", ["epsilon", "rho"])
    'unknown key; a space is missing after epsilon:'
    """
    known = list(known)
    if key.partition(":")[0] in known and (remark := missing_space(key)):
        return f"unknown key{remark}"
    if (meant := KEYS_BY_STORED_NAME.get(key)) in known:
        return f"unknown key; did you mean {meant}?"
    return f"unknown key; {nearest(key, known)}"


def missing_space(text: str) -> str:
    """What is to be said of a text that YAML does not read as a key and its value.

    >>> missing_space("- epsilon:1"), missing_space("gs://bucket"), missing_space("epsilon: 1")
    ('; a space is missing after epsilon:', '', '')
    """
    match = _NO_SPACE.match(text)
    return f"; a space is missing after {match[1]}:" if match else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """What to write for a name that does not exist."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"


def from_dpcore(error: ValueError, given: Mapping[str, object]) -> RuleBroken:
    """A refusal of dpcore at the key of the field that it names.

    Args:
        error: what dpcore raised.
        given: the values by field.

    >>> refusal = Refusal.from_value("cells", "True must be positive.", column="x")
    >>> broken = from_dpcore(refusal, {"cells": True})
    >>> broken.at, str(broken)
    ('.cells', 'true must be positive')
    """
    refusal = to_refusal(error)
    if refusal.field not in given:
        return RuleBroken(str(error).removesuffix("."))
    rule, value = refusal.rule, given[refusal.field]
    if rule.startswith(repr(value)):
        rule = shown(value) + rule.removeprefix(repr(value))
    return RuleBroken(rule, at=f".{refusal.field}")


def to_refusal(error: ValueError) -> Refusal:
    """A refusal of dpcore with the field that it names; the whole sentence is the field, which no
    key has, where it names none.

    >>> refused = to_refusal(ValueError("fanouts: (2,) cover fewer than 9 leaves"))
    >>> refused.field, refused.rule
    ('fanouts', '(2,) cover fewer than 9 leaves')
    """
    if isinstance(error, Refusal):
        return error
    field, _, rule = str(error).partition(": ")
    return Refusal(field, rule)


def key_path(location: Sequence[int | str]) -> str:
    """A place in the configuration as text; tags of pydantic's unions are left out.

    >>> key_path(("trees", 0, "<ordered>", "domain"))
    'trees[0].domain'
    """
    named = [part for part in location if not str(part).startswith("<")]
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in named]
    return "".join(parts).removeprefix(".")


def configuration_error(source: str, error: ValidationError) -> ConfigurationError:
    """The first of pydantic's findings as one sentence, with the number of the others.

    Args:
        source: the file's path.
        error: what pydantic found.
    """
    first, *others = error.errors(include_url=False)
    more = f" (and {len(others)} more)" if others else ""
    return ConfigurationError(f"{source}: {_sentence(first)}{more}")


def _sentence(finding: Any) -> str:
    cause = finding.get("ctx", {}).get("error")
    path = (key_path(finding["loc"]) + getattr(cause, "at", "")).removeprefix(".")
    if cause is not None:
        rule = str(cause)
    else:
        rule = "is required" if finding["type"] == "missing" else finding["msg"]
    return f"{path}: {rule}" if path else rule
