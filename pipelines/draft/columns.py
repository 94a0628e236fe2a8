"""The names and types of the columns of a file: of its schema, never of its values."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from dptrees.pipelines.draft.placeholders import placeholder
from dptrees.pipelines.tables.any_input import TABLE_INPUTS
from dptrees.pipelines.user_error import UserError
from dptrees.transforms.readers import arrow_rows, parquet_rows
from dptrees.transforms.readers.csv_format import DEFAULT_FORMAT
from dptrees.transforms.readers.csv_rows import column_names
from dptrees.transforms.readers.file_columns import are_names, columns_found
from dptrees.transforms.readers.formats import reading, text_stream
from dptrees.transforms.readers.listing import list_files


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
