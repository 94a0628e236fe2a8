"""The text of a first configuration: every column as a tree, the first one active.

No value of the data is read. Bounds, categories and the budget are left to be filled in: chosen
from the data, they would reveal something about it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pyarrow as pa

from dptrees.pipelines.draft.columns import InputColumns
from dptrees.pipelines.draft.placeholders import placeholder

_HEAD = """\
# The configuration of a release: the input rows, the privacy guarantee, and the counts.
# Everything here is public: choose it without looking at the data. Replace every <fill in ...>;
# dptrees refuses the file until then. All keys: docs/configuration/index.md.
#     dptrees keygen release.key
#     dptrees plan {file}
#     dptrees release {file}
# Relative paths start at the folder in which the command runs.

release: {name}
input:
  format: {format}
  {key}: {path}
output: out/{name}    # a new folder, written completely or not at all
key_file: release.key

privacy:
  epsilon: {epsilon}    # smaller values protect more; 1 is common
  neighbors: add_remove    # compares data sets with and without one privacy unit
  # If a person can have many rows, name the privacy unit, to protect all of them together:
  # unit: {unit}
  # max_rows: {rows}

trees:
"""
_FIRST, _LAST = (
    placeholder("the first date or time"),
    placeholder("the date or time after the last"),
)
_LEAST, _END = placeholder("the least value"), placeholder("the end, above the largest value")
_ESTIMATES = (
    "    # optimize_for: estimates    # or counts (default): closer counts, wider intervals"
)
_NAME = re.compile(r"[^A-Za-z0-9._-]+")


def draft(file: str, path: str | None, found: InputColumns | None) -> str:
    """A configuration to fill in.

    Args:
        file: where it will lie.
        path: of the input; None: to be filled in.
        found: the columns of the input; None: one that is to be filled in.

    Returns:
        YAML, with comments.
    """
    columns = found or InputColumns(
        format=placeholder("parquet or csv"), names=(placeholder("a column"),), types=(None,)
    )
    name = _NAME.sub("-", file.rpartition("/")[2].partition(".")[0]).strip(".-") or "release"
    head = _HEAD.format(
        file=file,
        name=_scalar(name),
        format=columns.format,
        key="path" if columns.table is None else "table",
        path=_scalar(
            columns.table or path or placeholder("a file or a glob, such as data/*.parquet")
        ),
        epsilon=placeholder("the budget"),
        unit=placeholder("the column that names a person"),
        rows=placeholder("how many rows of a person count"),
    )
    return head + "\n".join(_trees(columns)) + "\n"


def _trees(columns: InputColumns) -> Iterator[str]:
    """Every column as a tree: the first that can be one, and the others as comments."""
    is_commented, names = False, _tree_names(columns.names)
    for name, column, type in zip(names, columns.names, columns.types, strict=True):
        said = "" if type is None else f"  # {type}"
        domain = list(_domain(type))
        if not domain:
            yield f"  # {_scalar(column)}: {type}; docs/configuration/ordered.md says what reads it"
            continue
        lines = [
            f"  - name: {_scalar(name)}",
            "    domain:",
            f"      column: {_scalar(column)}{said}",
            *(f"      {line}" for line in domain),
        ]
        if not is_commented and "type: category" not in domain:
            lines.append(_ESTIMATES)
        yield from (line if not is_commented else f"  # {line[2:]}" for line in lines)
        is_commented = True


def _tree_names(columns: tuple[str, ...]) -> list[str]:
    """A name for the tree of each column."""
    names: list[str] = []
    for column in columns:
        name = _NAME.sub("-", column).strip(".-")[:90] or "tree"
        names.append(name if name not in names else f"{name}-{len(names)}")
    return names


def _domain(type: pa.DataType | None) -> Iterator[str]:
    """The keys of a domain of columns of a type; none where no tree reads them."""
    plain = type.value_type if type is not None and pa.types.is_dictionary(type) else type
    if plain is None:
        words = placeholder("number, integer, date, timestamp or category")
        yield f"type: {words}"
        yield "# a category has categories, as [a, b, other], in place of lower and upper"
        yield from _bounds(_LEAST, _END)
    elif pa.types.is_integer(plain):
        yield "type: integer"
        yield from _bounds(_LEAST, _END)
    elif pa.types.is_floating(plain) or pa.types.is_decimal(plain):
        yield "type: number"
        yield from _bounds(_LEAST, _END)
        yield f"cells: {placeholder('how many cells')}"
    elif pa.types.is_date(plain):
        yield "type: date"
        yield from _bounds(_FIRST, _LAST)
    elif pa.types.is_timestamp(plain):
        yield "type: timestamp"
        yield from _bounds(_FIRST, _LAST)
        yield f"cells: {placeholder('how many cells')}"
    elif _is_text(plain):
        yield "type: category"
        yield f"categories: {placeholder('the list, as [a, b, other]')}"
        yield "unknown: drop    # last: a value that is not listed counts as the last category"


def _is_text(type: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(kind(type) for kind in kinds)


def _bounds(lower: str, upper: str) -> Iterator[str]:
    yield f"lower: {lower}"
    yield f"upper: {upper}"


def _scalar(text: str) -> str:
    """A text as YAML has it: plain where nothing could be meant by it, else in quotes."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./*-]*|<fill in [^<>:#]+>", text)
    words = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
    return text if plain and text.lower() not in words else json.dumps(text)
