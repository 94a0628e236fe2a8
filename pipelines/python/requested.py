"""The configuration of a call, in the form that the command would read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dptrees.pipelines.configuration import Configuration, checked_configuration
from dptrees.pipelines.python.config import AnyConfig, plain
from dptrees.pipelines.python.error import Error
from dptrees.pipelines.sections.yaml_document import read_document
from dptrees.transforms.keys import has_scheme

# The value of an omitted key whose value is not read.
_NO_FILE, _NO_KEY = "rows", "env:DPTREES_KEY"
_DEFAULT_ID = "release"


def key_values(key: str | os.PathLike[str] | None) -> dict[str, str]:
    """Return the section for a release key that an argument of a call names.

    >>> key_values("release.key"), key_values("env:RELEASE_KEY"), key_values(None)
    ({'key': 'file:release.key'}, {'key': 'env:RELEASE_KEY'}, {})
    """
    if key is None:
        return {}
    text = os.fspath(key)
    return {"key": text if has_scheme(text) else f"file:{text}"}


def config_values(config: AnyConfig) -> tuple[Any, str]:
    """Return the values of a configuration, and its name in messages.

    Raises:
        ConfigurationError: if its file cannot be read.
        Error: if it has another type.
    """
    if isinstance(config, (str, os.PathLike)):
        path = os.fspath(config)
        return read_document(path), path
    values = plain(config)
    if not isinstance(values, dict):
        raise Error(
            f"config: {type(config).__name__} is neither a dictionary, nor a Config, nor the path "
            "of a YAML file"
        )
    return values, "config"


def check_rows(rows: object, config: AnyConfig) -> None:
    """Refuse a call without rows whose configuration has no input.

    Raises:
        ConfigurationError, Error: it has neither.
    """
    values, _ = config_values(config)
    if rows is None and isinstance(values, dict) and "input" not in values:
        raise Error("rows: give the rows, or a configuration with an input")


def requested_configuration(
    config: AnyConfig, given: Mapping[str, Any], parameters: Mapping[str, object] | None
) -> Configuration:
    """Return the checked configuration of a call.

    Args:
        config: the configuration of the caller.
        given: keys from arguments of the call; they replace the keys of the configuration.
        parameters: parameters of the configuration, by name.

    Raises:
        ConfigurationError, Error: in one sentence.
    """
    values, source = config_values(config)
    if isinstance(values, dict):
        own = values.get("input")
        values = {"release": _DEFAULT_ID} | values | dict(given)
        if "input" in given and isinstance(own, dict):
            # The format of the rows stays; only their place is another one.
            values["input"] = given["input"] | own | {"path": given["input"]["path"]}
        if "key" in given:
            values.pop("key_file", None)
        values.setdefault("output", _NO_FILE)
        values.setdefault("input", {"format": "parquet", "path": _NO_FILE})
        if "key_file" not in values:
            values.setdefault("key", _NO_KEY)
    texts = {name: str(value) for name, value in (parameters or {}).items()}
    return checked_configuration(values, source, texts)


def names_key(config: AnyConfig) -> bool:
    """Return whether a configuration names the place of its key."""
    values, _ = config_values(config)
    return isinstance(values, dict) and ("key" in values or "key_file" in values)
