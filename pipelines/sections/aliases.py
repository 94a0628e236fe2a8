"""Two names of one key: the documented name, and the name that earlier versions had.

`ALIASES` is the only list of them. A configuration is translated once, before it is checked. All
other code, and everything that a release stores, uses the earlier names, so plans, manifests and
releases have the same bytes under either name. A key is translated only at its place in a section:
names of columns, labels, group keys and parameters are never touched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dptrees.pipelines.sections.error import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class Alias:
    """A key with two names.

    Args:
        name: the documented name.
        earlier: the name before; it is still accepted.
        sections: the sections that have the key, by their places in earlier names; ``[]`` is
            each section of a list.
    """

    name: str
    earlier: str
    sections: tuple[str, ...]


ALIASES = (
    Alias(name="group_by", earlier="by", sections=("trees[]",)),
    Alias(name="optimize_for", earlier="for", sections=("trees[]",)),
    Alias(
        name="out_of_range",
        earlier="outside",
        sections=("trees[].domain", "trees[].domain.columns[]"),
    ),
    Alias(
        name="fraction",
        earlier="share",
        sections=(
            "privacy.max_rows",
            "privacy.max_keys",
            "trees[].by",
            "trees[].domain.lower",
            "trees[].domain.upper",
            "trees[].intervals",
        ),
    ),
)
_DOCUMENTED = {alias.earlier: alias.name for alias in ALIASES}
# By the place of a section: the earlier names of its keys, by their documented names.
_EARLIER: dict[str, dict[str, str]] = {}
for _alias in ALIASES:
    for _section in _alias.sections:
        _EARLIER.setdefault(_section, {})[_alias.name] = _alias.earlier
# A place in the sections that have such keys, and its parts.
_PLACE = re.compile(r"(?<![\w.\]])(?:privacy|trees\[\d+\])(?:\.\w+|\[\d+\])+")
_PART = re.compile(r"\.?\w+|\[\d+\]")


def documented(key: str) -> str:
    """Return the documented name of a key of a section.

    >>> documented("by"), documented("domain")
    ('group_by', 'domain')
    """
    return _DOCUMENTED.get(key, key)


@dataclass(frozen=True)
class Spelling:
    """The names that the author of one configuration wrote for the keys that have two.

    Args:
        written: the names, by the places of the keys in earlier names.
    """

    written: Mapping[str, str] = field(default_factory=dict)

    def sentence(self, text: str) -> str:
        """Return a message whose places have the names that the author wrote, and the documented
        ones of keys that were not written.

        >>> spelling = Spelling({"trees[0].by": "by"})
        >>> spelling.sentence("a.yaml: trees[0].by.share: 2 must be below 1")
        'a.yaml: trees[0].by.fraction: 2 must be below 1'
        >>> spelling.sentence("a.yaml: trees[1].by.keys.by: must be a list")
        'a.yaml: trees[1].group_by.keys.by: must be a list'
        """
        return _PLACE.sub(lambda found: self._place(found[0]), text)

    def _place(self, place: str) -> str:
        """Return a place in the names that the author wrote."""
        section, earlier, result = "", "", ""
        for part in _PART.findall(place):
            key = part.removeprefix(".")
            earlier += part
            if key in _EARLIER.get(section, {}).values():
                key = self.written.get(earlier, documented(key))
            result += f".{key}" if part.startswith(".") else key
            section += "[]" if part.startswith("[") else part
        return result

    def restored(self, error: ConfigurationError) -> ConfigurationError:
        """Return an error whose message has the names that the author wrote."""
        return ConfigurationError(self.sentence(str(error)))


def translated(values: object, source: str) -> tuple[object, Spelling]:
    """Return the values of a configuration with the earlier names of all keys.

    Args:
        values: as `pipelines.sections.yaml_document` reads them; they are not changed.
        source: of the configuration, for messages.

    Raises:
        ConfigurationError: a key is given under both names.

    >>> values, spelling = translated({"trees": [{"group_by": {"column": "group_by"}}]}, "a.yaml")
    >>> values, spelling.written
    ({'trees': [{'by': {'column': 'group_by'}}]}, {'trees[0].by': 'group_by'})
    """
    written: dict[str, str] = {}
    return _translated(values, "", "", written, source), Spelling(written)


def _translated(
    value: object, section: str, place: str, written: dict[str, str], source: str
) -> object:
    """Translate a value.

    Args:
        value: at a place.
        section: the place, with ``[]`` for every index.
        place: the place in earlier names.
        written: receives the names that occur of keys that have two.
        source: for messages.
    """
    if not any(each.startswith(section) for each in _EARLIER):
        return value
    if isinstance(value, list):
        return [
            _translated(each, f"{section}[]", f"{place}[{index}]", written, source)
            for index, each in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    names = _EARLIER.get(section, {})
    dot = "." if section else ""
    result = {}
    for key, each in value.items():
        earlier = names.get(key, key)
        if earlier != key and earlier in value:
            spelled = Spelling(written).sentence(f"{place}.{key}")
            raise ConfigurationError(
                f"{source}: {spelled}: is the same key as {earlier}, its earlier name; "
                f"give {key} alone"
            )
        if earlier in names.values():
            written[f"{place}.{earlier}"] = key
        result[earlier] = _translated(
            each, f"{section}{dot}{earlier}", f"{place}{dot}{earlier}", written, source
        )
    return result
