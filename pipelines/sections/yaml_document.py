"""A YAML file as plain values, with what it takes to check them exactly.

Differences from PyYAML's safe loader, which follows YAML 1.1:

- Numbers with a point or an exponent are `Decimal`, so 0.1 is one tenth; 1e-3 is a number.
- Only true and false are truth values: NO, on and y are strings, as a list of keys may hold them.
- Numbers are decimal: 02134, 0x1F and 1:30 are strings.
- A key that is given twice in a section, or is not a string, is an error.

Source: YAML 1.2.2, section 10.3 (core schema), with leading zeros as strings; the timestamps of
YAML 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

import yaml

from dptrees.pipelines.sections.error import ConfigurationError, missing_space, shown
from dptrees.pipelines.sections.number_size import UNUSUAL_SIZE, has_usual_size

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
