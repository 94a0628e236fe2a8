"""The YAML document of a configuration as plain values, the names of its keys, and its errors.

An error is one sentence with file, key path, value and rule; a value may be shown, since a
configuration holds no data. A key has a documented name and one of earlier versions: `ALIASES`
is the only list, a document is translated once, and all other code and everything stored uses
the earlier names, so releases have the same bytes under either. Names of columns, labels, group
keys and parameters are never translated.

Differences from PyYAML's safe loader, which follows YAML 1.1:

- Numbers with a point or an exponent are `Decimal`, so 0.1 is one tenth; 1e-3 is a number.
- Only true and false are truth values: NO, on and y are strings, as a list of keys may hold
  them.
- Numbers are decimal: 02134, 0x1F and 1:30 are strings.
- A key that is given twice in a section, or is not a string, is an error.

Source: YAML 1.2.2, section 10.3 (core schema), with leading zeros as strings; the timestamps of
YAML 1.1.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

import yaml
from pydantic import ValidationError

from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.process import UserError
from dptrees.pipelines.sections.values import UNUSUAL_SIZE, has_usual_size

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
# Keys of domains that are written on trees by mistake.
_OF_DOMAINS = ("kind", "type", "column", "columns", "lower", "upper", "cells", "categories")


class ConfigurationError(UserError):
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
    >>> unknown_key("kind", ["name", "domain"])
    'unknown key; write it inside domain: {kind: ...}'
    """
    known = list(known)
    if key.partition(":")[0] in known and (remark := missing_space(key)):
        return f"unknown key{remark}"
    if (meant := KEYS_BY_STORED_NAME.get(key)) in known:
        return f"unknown key; did you mean {meant}?"
    if key in _OF_DOMAINS and "domain" in known:
        return f"unknown key; write it inside domain: {{{key}: ...}}"
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


_LARGEST_FILE = 2**24
# Values of a document, each as often as aliases repeat it, and levels of its nesting.
_MOST_VALUES = 2**21
_DEEPEST = 64


def read_document(path: str) -> object:
    """Return the values of a YAML file.

    Args:
        path: of a local file in UTF-8.

    Returns:
        Dictionaries, lists, strings, integers, decimals, truth values, dates, datetimes and None.

    Raises:
        ConfigurationError: the file cannot be read or is not YAML.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path}: is a folder, not a configuration file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise ConfigurationError(f"{path}: cannot be read: {reason}") from None
    if len(content) > _LARGEST_FILE:
        raise ConfigurationError(
            f"{path}: is larger than 16 MiB, so it is not a configuration file"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: is not UTF-8 text") from None
    return parse_document(text, path)


def parse_document(text: str, source: str) -> object:
    """The values of a YAML text.

    Args:
        text: one YAML document.
        source: where it comes from, for messages.

    Returns:
        As `read_document`.

    Raises:
        ConfigurationError: the text is not YAML; the message names the line.

    >>> parse_document("{epsilon: 1e-3, keys: [NO, 02134]}", "text")
    {'epsilon': Decimal('0.001'), 'keys': ['NO', '02134']}
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        problem = (error.problem or "is not YAML") + _remark(text, mark)
        raise ConfigurationError(f"{source}: {line}{problem}") from None
    except yaml.reader.ReaderError as error:
        line_number = text.count("\n", 0, error.position) + 1
        raise ConfigurationError(
            f"{source}: line {line_number}: contains a character that YAML does not allow"
        ) from None
    except (KeyError, ValueError):
        raise ConfigurationError(f"{source}: contains a value that does not fit its tag") from None
    except RecursionError:
        raise ConfigurationError(f"{source}: is nested too deeply") from None


def _remark(text: str, mark: Any) -> str:
    """Return a remark that a line lacks a space, given the place of an error and the line before
    it."""
    if mark is None:
        return ""
    lines = [line for line in text.splitlines()[: mark.line + 1] if line.strip()]
    return next(filter(None, map(missing_space, reversed(lines[-2:]))), "")


def plain_scalar(text: str) -> object:
    """What a text is as a plain scalar of YAML: a number, a date, or the text itself.

    >>> plain_scalar("12"), plain_scalar("2013-01-31"), plain_scalar("{a: 1}"), plain_scalar("true")
    (12, datetime.date(2013, 1, 31), '{a: 1}', 'true')
    """
    loader: Any = _Loader("")
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))
    if tag.rpartition(":")[2] not in ("int", "float", "timestamp"):
        return text
    try:
        return loader.construct_object(yaml.ScalarNode(tag, text))
    except yaml.YAMLError:
        return text


def moment(value: object) -> object:
    """A date or time in quotes as one without them; any other value as it is.

    >>> moment("2013-01-31"), moment("31/01/2013"), moment(31)
    (datetime.date(2013, 1, 31), '31/01/2013', 31)
    """
    found = plain_scalar(value) if isinstance(value, str) else value
    return found if isinstance(found, date) else value


class _Loader(yaml.SafeLoader):
    """Loader of the YAML 1.2 core schema and timestamps; keys are strings and occur once."""

    def construct_document(self, node: yaml.Node) -> Any:
        self._sizes: dict[int, tuple[int, int]] = {}
        self._check_size(node)
        return super().construct_document(node)

    def _check_size(self, node: yaml.Node) -> tuple[int, int]:
        """Return how many values and levels a node has, with those that aliases repeat."""
        if isinstance(node, yaml.ScalarNode):
            return 1, 0
        if id(node) not in self._sizes:
            parts = node.value
            if isinstance(node, yaml.MappingNode):
                parts = [part for pair in node.value for part in pair]
            sizes, levels = zip((0, 0), *map(self._check_size, parts), strict=True)
            if sum(sizes) > _MOST_VALUES or max(levels) >= _DEEPEST:
                rule = f"{_MOST_VALUES:,} values, aliases included, in {_DEEPEST} levels"
                raise _at(node, f"a configuration has at most {rule}")
            self._sizes[id(node)] = sum(sizes) + 1, max(levels) + 1
        return self._sizes[id(node)]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _at(key_node, f"the key {shown(key)} must be a string")
            if key in seen:
                raise _at(key_node, f"the key {key} is given twice in one section")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        try:
            return int(node.value)
        except ValueError:
            raise _at(node, f"{shown(node.value)} is not a whole number") from None

    def construct_yaml_float(self, node: yaml.ScalarNode) -> Any:
        text = node.value.lower().replace(".inf", "inf").replace(".nan", "nan")
        try:
            number = Decimal(text)
        except InvalidOperation:
            raise _at(node, f"{shown(node.value)} is not a number") from None
        if not has_usual_size(number):
            raise _at(node, f"{shown(node.value)} {UNUSUAL_SIZE}")
        return number

    def construct_yaml_timestamp(self, node: yaml.ScalarNode) -> Any:
        try:
            return super().construct_yaml_timestamp(node)
        except (ValueError, AttributeError, OverflowError):
            raise _at(node, f"{shown(node.value)} is not a date or time") from None


def _at(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)


def _set_resolvers() -> None:
    timestamps = [
        (tag, pattern)
        for tag, pattern in yaml.SafeLoader.yaml_implicit_resolvers["1"]
        if tag == "tag:yaml.org,2002:timestamp"
    ]
    patterns = {
        "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        "int": (r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
        "float": (
            r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*([eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)"
            r"|\.[0-9]+([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))|\.(nan|NaN|NAN)",
            list("-+.0123456789"),
        ),
        "merge": (r"<<", ["<"]),
    }
    _Loader.yaml_implicit_resolvers = {}
    for name, (pattern, first) in patterns.items():
        regex = re.compile(f"(?:{pattern})\\Z")
        _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", regex, first)
    for tag, regex in timestamps:
        _Loader.add_implicit_resolver(tag, regex, list("0123456789"))
    for name in ("int", "float", "timestamp"):
        _Loader.add_constructor(
            f"tag:yaml.org,2002:{name}", getattr(_Loader, f"construct_yaml_{name}")
        )


_set_resolvers()


_PLACEHOLDER = re.compile(r"<fill in ([^<>]+)>")


def placeholder(what: str) -> str:
    """The mark for a value that only a person can choose.

    >>> placeholder("the least value")
    '<fill in the least value>'
    """
    return f"<fill in {what}>"


def check_filled(values: object, source: str) -> None:
    """Refuses a configuration in which something is left to be filled in.

    Args:
        values: of the file.
        source: the path of the file.

    Raises:
        ConfigurationError: naming the first key, and how many more there are.

    >>> check_filled({"trees": [{"lower": placeholder("the least value")}]}, "ages.yaml")
    Traceback (most recent call last):
    dptrees.pipelines.sections.document.ConfigurationError: ages.yaml: trees[0].lower: must be \
filled in: the least value
    """
    left = list(_left(values, ()))
    if left:
        place, what = left[0]
        more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
        raise ConfigurationError(f"{source}: {key_path(place)}: must be filled in: {what}{more}")


def _left(
    values: object, place: tuple[int | str, ...]
) -> Iterator[tuple[tuple[int | str, ...], str]]:
    if isinstance(values, dict):
        for key, value in values.items():
            yield from _left(value, (*place, key))
    elif isinstance(values, list):
        for index, value in enumerate(values):
            yield from _left(value, (*place, index))
    elif isinstance(values, str) and (match := _PLACEHOLDER.fullmatch(values)):
        yield place, match[1]
