"""Parameters of a configuration: ``${date}`` in its strings, and ``--set date=2013-01-31``.

They are inserted after the YAML was read, into strings alone: a parameter is part of one string
or one whole value, never a key, a list or a section. ``$${`` represents ``${``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import PlainValidator, ValidationError
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.rows.value_lists import ValueList
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import (
    ConfigurationError,
    RuleBroken,
    configuration_error,
    nearest,
    plain_scalar,
    shown,
)
from dptrees.pipelines.sections.rules import Section

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
_PLACE = re.compile(rf"\$\$\{{|\$\{{(?:({_NAME.pattern})\}})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# Endings of the names of configurations.
CONFIGURATIONS = (".yaml", ".yml")
# These keys hold strings alone, so a parameter is inserted there as its text, whatever its type.
_TEXTS = ("release", "output", "key_file", "key", "signing_key", "input")


def _pattern(value: object) -> str:
    pattern = rules.text(value)
    try:
        _is_match("", pattern)
    except pa.ArrowInvalid:
        raise RuleBroken(f"{shown(value)} is not a regular expression of RE2") from None
    return pattern


def _is_match(text: str, pattern: str) -> bool:
    # By RE2, whose time is linear; some patterns of Python's never end.
    found = pc.match_substring_regex(ValueList((text,)).array, rf"\A(?:{pattern})\z")
    return bool(found[0].as_py())


def _scalar_text(value: object) -> str:
    """A value of the file as ``--set`` would give it."""
    if isinstance(value, (list, dict, bool)) or value is None:
        raise RuleBroken(f"{shown(value)} must be a string, a date or a number")
    return str(value)


def _choices(value: object) -> tuple[str, ...]:
    return rules.each_by(_scalar_text, rules.several(value))


class ParameterSection(Section):
    """What a parameter may be."""

    type: Annotated[str, PlainValidator(rules.choice("text", "date", "integer", "number"))] = "text"
    default: Annotated[str | None, PlainValidator(_scalar_text)] = None
    choices: Annotated[tuple[str, ...] | None, PlainValidator(_choices)] = None
    pattern: Annotated[str | None, PlainValidator(_pattern)] = None

    @section_rule(mode="after")
    def _keep_own_rules(self) -> Self:
        for index, each in enumerate(self.choices or ()):
            rules.at(f".choices[{index}]", self._typed, each)
        if self.default is not None:
            rules.at(".default", self.parse_value, self.default)
        return self

    def parse_value(self, given: object) -> object:
        """The value of a text.

        Raises:
            RuleBroken: it is none that this parameter may have.
        """
        text = str(given)
        value = self._typed(text)
        if self.choices is not None and text not in self.choices:
            raise RuleBroken(f"{shown(text)} must be {' or '.join(self.choices)}")
        if self.pattern is not None and not _is_match(text, self.pattern):
            raise RuleBroken(f"{shown(text)} must match the pattern {self.pattern}")
        return value

    def _typed(self, given: object) -> object:
        text = rules.text(given)
        if self.type == "date":
            return _date(text)
        if self.type == "text":
            return text
        value = plain_scalar(text)
        if self.type == "integer":
            if not isinstance(value, int) or isinstance(value, bool):
                raise RuleBroken(f"{shown(text)} must be a whole number")
        elif isinstance(value, (str, bool, date)) or value is None:
            raise RuleBroken(f"{shown(text)} must be a number")
        return value


def _date(text: str) -> date:
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise RuleBroken(f"{shown(text)} must be a date, such as 2013-01-31")


def given_parameters(texts: Iterable[str]) -> dict[str, str]:
    """The parameters of a command line.

    Args:
        texts: of the form NAME=VALUE.

    Raises:
        ConfigurationError: one is of another form, or is given twice.

    >>> given_parameters(["date=2013-01-31", "where=a=b"])
    {'date': '2013-01-31', 'where': 'a=b'}
    """
    result: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"--set: {shown(text)} must be NAME=VALUE, such as date=2013-01-31"
            )
        if name in result:
            raise ConfigurationError(f"--set: {name} is given twice")
        try:
            result[name] = rules.text(value)
        except RuleBroken as broken:
            raise ConfigurationError(f"--set: {name}: {broken}") from None
    return result


@dataclass(kw_only=True)
class Substitution:
    """The parameters of one configuration, put into its values.

    Args:
        source: of the configuration, for messages.
        given: of the command line, by name.

    Attributes:
        used: the values of the parameters that the configuration refers to, by name.
    """

    source: str
    given: Mapping[str, str]
    used: dict[str, str] = field(default_factory=dict)
    _declared: dict[str, ParameterSection] | None = None
    _values: dict[str, object] = field(default_factory=dict)
    _places: dict[str, set[str]] = field(default_factory=dict)
    _made: dict[int, Any] = field(default_factory=dict)

    def applied(self, values: object) -> object:
        """The values of a configuration in which every parameter has its value.

        Raises:
            ConfigurationError: a parameter is undefined, unknown, unused, or not what it may be.

        >>> Substitution(source="f", given={"day": "2013-01-31"}).applied(
        ...     {"release": "a-${day}", "trees": [{"lower": "${day}"}]})
        {'release': 'a-2013-01-31', 'trees': [{'lower': datetime.date(2013, 1, 31)}]}
        """
        if not isinstance(values, dict):
            return values
        self._declare(values.get("parameters"), is_present="parameters" in values)
        result = {
            name: value if name == "parameters" else self._put(value, name)
            for name, value in values.items()
        }
        for name in self.given:
            if name not in self.used:
                raise ConfigurationError(f"{self.source}: --set {name}: no value holds ${{{name}}}")
        return result

    def misses(self, place: str) -> bool:
        """Whether there are parameters, and none of them is at a place."""
        return bool(self.used) and place not in self._places

    def named(self, error: ConfigurationError) -> ConfigurationError:
        """An error that also names the parameters of the value at its place."""
        for place, names in self._places.items():
            if str(error).startswith(f"{self.source}: {place}: "):
                put = ", ".join(f"{name} is {shown(self.used[name])}" for name in sorted(names))
                return ConfigurationError(f"{error} ({put})")
        return error

    def _declare(self, section: object, *, is_present: bool) -> None:
        if not is_present:
            self._values = {name: plain_scalar(text) for name, text in self.given.items()}
            return
        self._declared = {}
        try:
            for name, entry in rules.section(section).items():
                self._declared[name] = self._section(name, entry)
        except RuleBroken as broken:
            place = f"parameters{broken.at}"
            raise ConfigurationError(f"{self.source}: {place}: {broken}") from None
        for name in self.given:
            if name not in self._declared:
                known = nearest(name, self._declared) if self._declared else "there is none"
                raise ConfigurationError(
                    f"{self.source}: --set {name}: no such parameter is declared; {known}"
                )

    def _section(self, name: str, entry: object) -> ParameterSection:
        if not _NAME.fullmatch(name):
            raise RuleBroken(
                "a parameter's name must be letters, digits, '_' or '-', and begin with a letter",
                at=f".{name}",
            )
        try:
            section = ParameterSection.model_validate({} if entry is None else entry)
        except ValidationError as error:
            place = f"{self.source}: parameters.{name}"
            sentence = str(configuration_error(place, error))
            key, separator, rule = sentence.removeprefix(f"{place}: ").partition(": ")
            joined = f"{place}.{key}: {rule}" if separator else sentence
            raise ConfigurationError(joined) from None
        text = self.given.get(name, section.default)
        if text is not None:
            try:
                self._values[name] = section.parse_value(text)
            except RuleBroken as broken:
                raise ConfigurationError(f"{self.source}: --set {name}: {broken}") from None
        return section

    def _put(self, value: object, place: str) -> object:
        if isinstance(value, str):
            return self._in_text(value, place)
        if not isinstance(value, (dict, list)):
            return value
        # Of an alias in the file, once: it may be in itself.
        if id(value) in self._made:
            return self._made[id(value)]
        made: Any = {} if isinstance(value, dict) else []
        self._made[id(value)] = made
        if isinstance(value, dict):
            made.update({key: self._put(each, f"{place}.{key}") for key, each in value.items()})
        else:
            made += [self._put(each, f"{place}[{index}]") for index, each in enumerate(value)]
        return made

    def _in_text(self, text: str, place: str) -> object:
        whole = _PLACE.fullmatch(text)
        if whole is not None and whole[1] is not None:
            written, value = self._value(whole[1], place)
            return written if place.partition(".")[0].partition("[")[0] in _TEXTS else value

        def written_at(found: re.Match[str]) -> str:
            if found[0] == "$${":
                return "${"
            if found[1] is None:
                raise ConfigurationError(
                    f"{self.source}: {place}: after ${{ must follow the name of a parameter and "
                    "}; for the two characters themselves write $${"
                )
            return self._value(found[1], place)[0]

        return _PLACE.sub(written_at, text)

    def _value(self, name: str, place: str) -> tuple[str, object]:
        """The text of a parameter, and its value."""
        if name not in self._values:
            if self._declared is not None and name not in self._declared:
                known = nearest(name, self._declared) if self._declared else "there is none"
                rule = f"${{{name}}} is not declared under parameters; {known}"
            else:
                rule = f"${{{name}}} has no value; give one with --set {name}=VALUE"
            raise ConfigurationError(f"{self.source}: {place}: {rule}")
        section = (self._declared or {}).get(name)
        text = self.given.get(name, (section and section.default) or "")
        self.used[name] = text
        self._places.setdefault(place, set()).add(name)
        return text, self._values[name]
