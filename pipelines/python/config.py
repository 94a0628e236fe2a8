"""A configuration in Python: a dictionary, or a YAML file.

Both become the same values and pass the same checks, so errors name the same key. The keys are
described in docs/configuration.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import KeysView, Mapping, ValuesView
from decimal import Decimal
from typing import Any, TypeAlias, Union

import pyarrow as pa

from dptrees.pipelines.config.configuration import Configuration, checked_configuration
from dptrees.pipelines.python.error import Error
from dptrees.pipelines.python.rows import file_paths
from dptrees.pipelines.sections.document import read_document
from dptrees.pipelines.sections.values import UNUSUAL_SIZE, has_usual_size
from dptrees.transforms.keys import KeyReference, has_scheme
from dptrees.transforms.readers.formats import format_of_names

# All forms of a configuration.
AnyConfig: TypeAlias = Union[Mapping[str, Any], str, "os.PathLike[str]"]


# The keys whose value may be a frame: a row for each leaf, key or category.
_LISTS = ("leaves", "keys", "categories")


def _is_frame(value: Any) -> bool:
    """Return whether a value has columns; a single column of values has none."""
    columns = hasattr(value, "columns") or hasattr(value, "column_names")
    return columns and hasattr(value, "__arrow_c_stream__")


def without_none(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a section that have a value.

    >>> without_none({"epsilon": 1, "delta": None})
    {'epsilon': 1}
    """
    return {name: value for name, value in section.items() if value is not None}


def plain(value: Any) -> Any:
    """Convert a value to the form that a YAML file would give: decimals, and lists for tuples.

    >>> plain({"epsilon": 0.1, "keys": ("UA", "AA"), "categories": range(3)})
    {'epsilon': Decimal('0.1'), 'keys': ['UA', 'AA'], 'categories': [0, 1, 2]}
    """
    if isinstance(value, Mapping):
        return {
            key: _frame_rows(each) if key in _LISTS and _is_frame(each) else plain(each)
            for key, each in value.items()
        }
    if isinstance(value, (list, tuple, range, KeysView, ValuesView)):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return Decimal(repr(float(value)))
    if str(getattr(value, "dtype", "")) in ("float16", "float32") and hasattr(value, "ndim"):
        # Their shortest decimals: 0.1 of 32 bits is another number than 0.1 of 64.
        return [plain(each) for each in value] if value.ndim else Decimal(str(value))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (int, Decimal)) and not has_usual_size(value):
        raise Error(f"a number of the configuration {UNUSUAL_SIZE}")
    if value is None or isinstance(value, (str, bool, int, Decimal, datetime.date)):
        return value
    for name in ("tolist", "to_pylist", "to_list", "as_py"):  # of NumPy, pandas, Arrow, Polars
        if hasattr(value, name):
            return plain(getattr(value, name)())
    return value


def _frame_rows(frame: Any) -> list[Any]:
    """Return the rows of a frame, such as leaves: values of one column, or a list for each row."""
    if type(frame).__module__.startswith("pandas"):
        table = pa.Table.from_pandas(frame, preserve_index=False)
    else:
        table = pa.table(frame)
    columns = [plain(each.to_pylist()) for each in table.columns]
    return columns[0] if len(columns) == 1 else [list(row) for row in zip(*columns, strict=True)]


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


def key_anywhere(key: str | os.PathLike[str]) -> KeyReference:
    """Return a reference to a key; a path is made absolute, since workers have other folders."""
    reference = key_values(key)["key"]
    scheme, _, path = reference.partition(":")
    if scheme == "file":
        reference = f"file:{os.path.abspath(path)}"
    return KeyReference(reference=reference)


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
            f"config: {type(config).__name__} is neither a dictionary nor the path of a YAML file"
        )
    return values, "config"


def rows_configuration(
    rows: object,
    config: AnyConfig,
    given: Mapping[str, Any],
    parameters: Mapping[str, object] | None,
) -> Configuration:
    """Return the checked configuration of a call with rows.

    Args:
        rows: the rows, the paths of files, or None: the input of the configuration.
        config, given, parameters: as for `requested_configuration`.

    Raises:
        ConfigurationError, Error: in one sentence; there are no rows and no input, for example.
    """
    values, _ = config_values(config)
    if rows is None and isinstance(values, dict) and "input" not in values:
        raise Error("rows: give the rows, or a configuration with an input")
    if (paths := file_paths(rows)) is not None:
        given = {**given, "input": {"format": format_of_names(paths), "path": list(paths)}}
    return requested_configuration(config, given, parameters)


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
