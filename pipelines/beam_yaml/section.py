"""The section of a Beam YAML step: a configuration whose rows usually come from the step before.

Beam reads YAML 1.1 and floats, `pipelines.sections.yaml_document` YAML 1.2 and decimals. So a
section is written as JSON, which both read alike, and checked like a configuration file of dptrees.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from dptrees.pipelines.configuration import Configuration, checked_configuration
from dptrees.pipelines.sections.error import ConfigurationError
from dptrees.pipelines.sections.yaml_document import parse_document

SOURCE = "DPTree"
# A placeholder for the rows of the step before: no file is read.
_NO_FILES = {"format": "parquet", "path": "rows of the step before"}
# What a step cannot do, since it takes place before the job and after it.
_OUTSIDE = "does not go with DPTree, which does nothing {} the job; dptrees release does"
_REFUSED = {
    "ledger": _OUTSIDE.format("before"),
    "dataset": _OUTSIDE.format("before"),
    "signing_key": _OUTSIDE.format("after"),
}
# A number to YAML 1.2, and a text to YAML 1.1, which wants a point and a sign.
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")


def section_text(section: Mapping[str, Any]) -> str:
    """A section as JSON.

    Args:
        section: as Beam reads it.

    Raises:
        ConfigurationError: it holds what no YAML can say.

    >>> section_text({"privacy": {"epsilon": 0.1, "delta": "1e-6"}})
    '{"privacy": {"epsilon": 0.1, "delta": 1e-06}}'
    """
    try:
        return json.dumps(_numbers(section), default=_day)
    except TypeError as error:
        raise ConfigurationError(f"{SOURCE}: {error}") from None


def configuration_of_text(text: str) -> Configuration:
    """The checked configuration of a section.

    Args:
        text: YAML, or the JSON of `section_text`.

    Raises:
        ConfigurationError: in one sentence, as of a file.
    """
    values = parse_document(text, SOURCE)
    if isinstance(values, dict):
        for key, rule in _REFUSED.items():
            if key in values:
                raise ConfigurationError(f"{SOURCE}: {key}: {rule}")
        values = {"input": _NO_FILES} | values
    configuration = checked_configuration(values, SOURCE, {})
    if configuration.table is not None:
        raise ConfigurationError(
            f"{SOURCE}: input: tables do not go with DPTree; dptrees release does"
        )
    if configuration.selection is not None:
        raise ConfigurationError(
            f"{SOURCE}: trees: keys: private {_OUTSIDE.format('before')}; list the keys"
        )
    if configuration.chooses_bounds:
        first = next(iter(configuration.bound_shares))
        raise ConfigurationError(
            f"{SOURCE}: {first}: auto {_OUTSIDE.format('before')}; give a number"
        )
    return configuration


def check_rows(configuration: Configuration, *, given: bool) -> None:
    """Checks that rows come from one place.

    Args:
        configuration: of the section.
        given: whether a step comes before.

    Raises:
        ConfigurationError: they come from two places, or from none.
    """
    has_files = configuration.input_paths != (_NO_FILES["path"],)
    if has_files and given:
        raise ConfigurationError(
            f"{SOURCE}: input: does not go with a step before, whose rows are released"
        )
    if not has_files and not given:
        raise ConfigurationError(f"{SOURCE}: input: is required, since there is no step before")


def _numbers(value: Any) -> Any:
    """Restore the numbers that Beam read as strings, but not in lists, which may hold keys."""
    if isinstance(value, Mapping):
        return {name: _number(_numbers(each)) for name, each in value.items()}
    return [_numbers(each) for each in value] if isinstance(value, (list, tuple)) else value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def _day(value: object) -> str:
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{value!r} is no value of YAML")
