"""``dptrees init``: a first configuration with every column as a tree, the first one active.

Names and types come from the file's schema, and no value is read. Bounds, categories and the
budget are left to be filled in: chosen from the data, they would reveal something about it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from dptrees.pipelines.process import UserError
from dptrees.pipelines.sections.document import placeholder
from dptrees.pipelines.sections.input import TABLE_INPUTS
from dptrees.pipelines.terminal_text import print_line
from dptrees.transforms.folder.listing import list_files
from dptrees.transforms.readers import arrow_rows, parquet_rows
from dptrees.transforms.readers.csv_format import DEFAULT_FORMAT
from dptrees.transforms.readers.csv_rows import column_names
from dptrees.transforms.readers.file_columns import are_names, columns_found
from dptrees.transforms.readers.formats import reading, text_stream


@dataclass(frozen=True, kw_only=True)
class InputColumns:
    """What is known of the columns of an input.

    Args:
        format: of the files, as a configuration names it.
        names: of the columns, in their order.
        types: of the columns; None where the files name none.
        table: the name of the table, of a format of tables.
    """

    format: str
    names: tuple[str, ...]
    types: tuple[pa.DataType | None, ...]
    table: str | None = None


def input_columns(path: str, *, header: bool = False) -> InputColumns:
    """The columns of the first file of a path.

    Args:
        path: a local file, a glob or a folder, of Parquet, Arrow IPC or CSV files; the folder of a
            Delta table; the metadata file of an Iceberg table, or ``iceberg:`` and its name.
        header: whether the user states that the first line of a CSV file names its columns. Else
            that line may be a row, and no name is read.

    Raises:
        UserError: there is no file, of another kind; or its first line does not look like names.
        InputError: the file or table cannot be read.
    """
    if (table := table_at(path)) is not None:
        return _table_columns(*table)
    file = list_files([path])[0].path.removeprefix("file://")
    end = file.removesuffix(".gz").rpartition(".")[2].lower()
    if end == "csv":
        return _csv(file, header=header)
    if end not in _READERS:
        raise UserError(
            f"--input: {file}: the names of columns are read of files that end with "
            f".{', .'.join(_READERS)}, .csv"
        )
    reader = _READERS[end]
    return _typed("arrow" if reader is arrow_rows else "parquet", reader.read_schema(file, file))


def table_at(path: str) -> tuple[str, str] | None:
    """The format and the name of the table that a path is of; None of files.

    >>> table_at("iceberg:shop.visits"), table_at("visits/*.parquet")
    (('iceberg', 'shop.visits'), None)
    """
    kind, _, name = path.partition(":")
    if kind == "iceberg":
        return kind, name
    if path.endswith(".metadata.json"):
        return "iceberg", path
    return ("delta", path) if os.path.isdir(os.path.join(path, "_delta_log")) else None


def _table_columns(format: str, name: str) -> InputColumns:
    given = {"format": format, "table": name}
    with TABLE_INPUTS[format].model_validate(given).table_source.pinned() as table:
        return replace(_typed(format, table.schema()), table=name)


def _typed(format: str, schema: pa.Schema) -> InputColumns:
    return InputColumns(format=format, names=tuple(schema.names), types=tuple(schema.types))


def _csv(file: str, *, header: bool) -> InputColumns:
    """The names in a header that the user declares; else one that is to be filled in.

    Raises:
        UserError: the first line does not look like a header.
    """
    names: list[str] = [placeholder("a column")]
    with reading(file, "is not a CSV file"), closing(text_stream(file, file, "csv")) as stream:
        if header:
            names, *_ = column_names(stream, file, (), DEFAULT_FORMAT)
            if not are_names(names):
                raise UserError(f"--header: {file}: {columns_found('', names, ())}")
    return InputColumns(format="csv", names=tuple(names), types=(None,) * len(names))


_READERS: dict[str, Any] = {
    "parquet": parquet_rows,
    "pq": parquet_rows,
    "arrow": arrow_rows,
    "feather": arrow_rows,
}


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


SCHEMA = "configuration.schema.json"


def run_init(path: str, data: str | None, *, header: bool = False) -> int:
    """Write a configuration to be filled in.

    Args:
        path: of the new file.
        data: the rows: a file, a glob or a folder; only names and types of columns are read.
        header: whether the first line of a CSV file may be read, since it names the columns.

    Raises:
        UserError: the file exists already or cannot be made, or the rows cannot be read.
    """
    if os.path.lexists(path):
        raise UserError(f"{path} exists already, and is not overwritten")
    columns = None if data is None else input_columns(data, header=header)
    text = draft(path, data, columns)
    _write_new(path, _schema_line(path) + text)
    print_line(f"{path}: a new configuration. Replace every <fill in ...>, then run:")
    print_line(f"  dptrees plan {path}")
    if columns is not None and columns.format == "csv" and not header:
        print_line("The first line of a CSV file may be a row, so no name was copied. If it names")
        print_line("the columns, delete the configuration and add --header.")
    return 0


def _schema_line(path: str) -> str:
    """What names the schema to editors, where one lies beside the file or in docs above it."""
    folder = above = os.path.dirname(os.path.abspath(path))
    places = [os.path.join(folder, SCHEMA)]
    while os.path.dirname(above) != above:
        places.append(os.path.join(above, "docs", SCHEMA))
        above = os.path.dirname(above)
    found = next(filter(os.path.isfile, places), None)
    if found is None:
        return ""
    return f"# yaml-language-server: $schema={os.path.relpath(found, folder)}\n"


def _write_new(path: str, text: str) -> None:
    """Writes a new file, whole or not at all, and never over another."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        try:
            with open(temporary, "x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    except FileExistsError:
        raise UserError(f"{path} exists already, and is not overwritten") from None
    except OSError as error:
        raise UserError(f"{path} cannot be made: {error.strerror}") from None
