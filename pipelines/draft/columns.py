"""The names and types of the columns of a file: of its schema, never of its values."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from dptrees.pipelines.tables.any_input import TABLE_INPUTS
from dptrees.pipelines.user_error import UserError
from dptrees.transforms.readers.csv_format import DEFAULT_FORMAT
from dptrees.transforms.readers.csv_lines import MalformedHeader, read_header
from dptrees.transforms.readers.parquet_rows import INT96_UNIT


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


def input_columns(path: str) -> InputColumns:
    """The columns of the first file of a path.

    Args:
        path: a local file, a glob or a folder, of Parquet, Arrow IPC or CSV files; the folder of a
            Delta table; the metadata file of an Iceberg table, or ``iceberg:`` and its name.

    Raises:
        UserError: there is no file, of another kind, or it cannot be read.
        InputError: the table cannot be read.
    """
    if (table := table_at(path)) is not None:
        return _table_columns(*table)
    file = _first_file(path)
    end = file.removesuffix(".gz").rpartition(".")[2].lower()
    if end not in _READERS:
        raise UserError(
            f"--input: {file}: the names of columns are read of files that end with "
            f".{', .'.join(_READERS)}"
        )
    try:
        return _READERS[end](file)
    except MalformedHeader:
        raise UserError(f"--input: {file}: has no header that can be read") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"--input: {file}: cannot be read as {end}: {_reason(error)}") from None


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


def _first_file(path: str) -> str:
    if os.path.isdir(path):
        path = os.path.join(glob.escape(path), "**")
    hidden = ("_", ".")
    found = sorted(
        each
        for each in glob.glob(path, recursive=True)
        if os.path.isfile(each) and not os.path.basename(each).startswith(hidden)
    )
    if not found:
        raise UserError(f"--input: {path}: there is no such file")
    return found[0]


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or str(error).partition("\n")[0])


def _parquet(file: str) -> InputColumns:
    with pq.ParquetFile(file, coerce_int96_timestamp_unit=INT96_UNIT) as opened:
        return _typed("parquet", opened.schema_arrow)


def _arrow(file: str) -> InputColumns:
    with pa.OSFile(file) as source:
        try:
            return _typed("arrow", pa.ipc.open_file(source).schema)
        except pa.ArrowInvalid:
            source.seek(0)
            return _typed("arrow", pa.ipc.open_stream(source).schema)


def _typed(format: str, schema: pa.Schema) -> InputColumns:
    return InputColumns(format=format, names=tuple(schema.names), types=tuple(schema.types))


def _csv(file: str) -> InputColumns:
    with pa.input_stream(file, compression="detect") as stream:
        header, _, csv = read_header(stream, DEFAULT_FORMAT)
    names = [name.strip().strip('"') for name in header.decode().strip().split(csv.separator)]
    return InputColumns(format="csv", names=tuple(names), types=(None,) * len(names))


_READERS: dict[str, Callable[[str], InputColumns]] = {
    "parquet": _parquet,
    "pq": _parquet,
    "arrow": _arrow,
    "feather": _arrow,
    "csv": _csv,
}
