"""Public tables in files: lists of group-by keys, and the leaves of a hierarchy.

The end of a file's name decides its format: `.parquet`; `.csv`, with a header line; any other
file is a list with one key a line, or a CSV table of leaves. CSV columns of leaves are read as
strings, so leading zeros are kept.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import BinaryIO, TextIO, TypeAlias

import pyarrow as pa

from dptrees.dpcore.hierarchy.leaves import (
    universe_from_code_blocks,
    universe_from_codes,
    universe_from_columns,
    universe_from_parents,
    universe_from_paths,
)
from dptrees.dpcore.hierarchy.universe import Universe, is_parted
from dptrees.dpcore.rows.key_tables import MOST_KEYS
from dptrees.dpcore.rows.keys import MAX_KEYS

Keys: TypeAlias = "tuple[str, ...] | tuple[int, ...]"
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


def read_key_list(path: str) -> Keys:
    """Read the keys of a file, in its order.

    In text and CSV files the keys are integers if all of them are written as integers (without
    leading zeros), else strings; in Parquet files the column's type decides. Empty lines are
    skipped.

    Args:
        path: of a local file; strings are in UTF-8.

    Returns:
        The keys, at least one.

    Raises:
        ValueError: the file cannot be read or does not hold one column of strings or integers.
    """
    with _read_errors(path):
        if path.endswith(".parquet"):
            return _checked(path, _parquet_keys(path))
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = _csv_keys(file) if path.endswith(".csv") else _line_keys(file)
            texts = tuple(islice(lines, MAX_KEYS + 1))
    if len(texts) > MAX_KEYS:
        raise ValueError(
            f"{path} holds more than {MAX_KEYS} keys; a .parquet file may hold {MOST_KEYS}"
        )
    if all(map(_INTEGER.fullmatch, texts)):
        return _checked(path, tuple(map(int, texts)))
    return _checked(path, texts)


@contextmanager
def _read_errors(path: str) -> Iterator[None]:
    """Turn an error of the system or of Arrow about a file of keys into a sentence."""
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or 'not a local file'}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    except pa.ArrowException:
        raise ValueError(f"{path} is not a Parquet file") from None


def _checked(path: str, keys: Keys) -> Keys:
    if not keys:
        raise ValueError(f"{path} holds no key")
    return keys


def _line_keys(file: TextIO) -> Iterator[str]:
    lines = (line.rstrip("\r\n") for line in file)
    return (line for line in lines if line)


def _csv_keys(file: TextIO) -> Iterator[str]:
    rows = csv.reader(file, strict=True)
    try:
        for row in rows:
            if len(row) > 1:
                raise ValueError(
                    f"{file.name} must have one column, but line {rows.line_num} has {len(row)}"
                )
            if rows.line_num > 1 and row and row[0]:
                yield row[0]
    except csv.Error:
        raise ValueError(f"{file.name} is not CSV in line {rows.line_num}") from None


def _parquet_keys(path: str) -> Keys:
    import pyarrow.parquet as pq

    with open(path, "rb") as file:
        table = pq.read_table(file)
    if table.num_columns != 1:
        raise ValueError(f"{path} must have one column, not {table.num_columns}")
    return tuple(table.column(0).to_pylist())


def read_key_table(path: str, columns: Sequence[str]) -> pa.Table:
    """Read the keys of several columns of a file, a row a key, in its order.

    Args:
        path: of a local file, `.parquet`, or `.csv` with a header line; it may have other columns.
        columns: that are read. In CSV files a column whose values are all written as integers
            holds integers, else strings.

    Returns:
        the columns in the order requested, of large_string or int64.

    Raises:
        ValueError: the file cannot be read or lacks a column of strings or integers.
    """
    if not path.endswith((".parquet", ".csv")):
        raise ValueError(f"{path} must be a .parquet or .csv file, as it has several columns")
    with _read_errors(path), open(path, "rb") as file:
        if path.endswith(".parquet"):
            table = _parquet_table(file, path)
        else:
            table = _csv_table(file.read().decode("utf-8-sig"), path)
    for name in columns:
        if table.schema.get_field_index(name) < 0:
            raise ValueError(f"{path} must have one column {name}")
    return pa.table({name: _key_column(path, name, table.column(name)) for name in columns})


def is_large(path: str) -> bool:
    """Whether a file of keys must be read as a table, since it holds more than a list may."""
    if not path.endswith(".parquet"):
        return False
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(path).num_rows > MAX_KEYS  # type: ignore[no-any-return]
    except (OSError, pa.ArrowException):
        return False  # which reading it reports


def read_large_list(path: str, column: str) -> pa.Table:
    """The keys of a file of one column, by the name that the column has in the rows.

    Raises:
        ValueError: as `read_key_table`.
    """
    import pyarrow.parquet as pq

    names = pq.read_schema(path).names
    if len(names) != 1:
        raise ValueError(f"{path} must have one column, not {len(names)}")
    return read_key_table(path, names).rename_columns([column])


def _parquet_table(file: BinaryIO, path: str) -> pa.Table:
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(file)
    if opened.metadata.num_rows > MOST_KEYS:
        # Refused before it is read: it might not fit in memory.
        raise ValueError(
            f"{path} holds {opened.metadata.num_rows} keys, and there may be at most {MOST_KEYS}"
        )
    return opened.read()


def _key_column(path: str, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    types = pa.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_integer(column.type):
        try:
            return column.cast(pa.int64())
        except pa.ArrowException:
            raise ValueError(f"{path} holds in column {name} no 64-bit signed integers") from None
    if types.is_string(column.type) or types.is_large_string(column.type):
        return column.cast(pa.large_string())
    raise ValueError(f"{path} must hold strings or integers in column {name}, not {column.type}")


def _csv_table(text: str, path: str) -> pa.Table:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        heading, *lines = (row for row in rows if row)
    except csv.Error:
        raise ValueError(f"{path} is not CSV in line {rows.line_num}") from None
    except ValueError:
        raise ValueError(f"{path} holds no key") from None
    if any(len(line) != len(heading) for line in lines):
        raise ValueError(f"{path} must have as many values in each line as in its header")
    if not lines:
        raise ValueError(f"{path} holds no key")
    found = {}
    for name, values in zip(heading, zip(*lines, strict=True), strict=True):
        whole = all(map(_INTEGER.fullmatch, values))
        found[name] = (
            pa.array(list(map(int, values)), pa.int64()) if whole else pa.array(values, pa.string())
        )
    return pa.table(found)


_BLOCK_BYTES = 2**24


def read_universe(
    path: str,
    *,
    columns: Sequence[str] = (),
    column: str | None = None,
    digits: Sequence[int] = (),
    separator: str | None = None,
    parent: str | None = None,
    levels: Sequence[str] = (),
) -> Universe:
    """Make a universe of the table of its leaves.

    Args:
        path: of a local file.
        columns: one a level, from the level below the root to the leaves; or else
        column: with `digits`, a code; with `separator`, a path; with `parent`, the name of a node.
        digits: how many digits of the code each level has.
        separator: what is between the labels of a path.
        parent: the column with the name of a node's parent, null or empty below the root.
        levels: the names of the levels; with `columns` the columns' names by default.

    Returns:
        The universe.

    Raises:
        ValueError: one sentence with the file and what is wrong with it, or with the arguments.
    """
    forms = [bool(digits), separator is not None, parent is not None]
    if (column is None) == (not columns) or sum(forms) != (column is not None):
        raise ValueError(
            "a universe needs either columns, or column with one of digits, separator and parent"
        )
    if levels and parent is not None:
        raise ValueError("levels have no names where parent is given")
    if column is not None and digits and (blocks := _blocks(path, column)) is not None:
        return _read_blocks(path, *blocks, column, digits, levels)
    leaves = read_leaves(path, columns or [name for name in (column, parent) if name is not None])
    try:
        if column is not None and parent is not None:
            return universe_from_parents(leaves[column], leaves[parent], columns=(column, parent))
        return universe_from_leaves(
            leaves, column=column, digits=digits, separator=separator, levels=levels
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def universe_from_leaves(
    leaves: Mapping[str, pa.Array | pa.ChunkedArray],
    *,
    column: str | None = None,
    digits: Sequence[int] = (),
    separator: str | None = None,
    levels: Sequence[str] = (),
) -> Universe:
    """Make a universe of its leaves.

    Args:
        leaves: by column, (leaves,) each: one column a level, or else the column of codes or paths.
        column: of the codes or paths; None where each column is a level.
        digits, separator, levels: as of `read_universe`.

    Raises:
        ValueError: one sentence with the column and what is wrong with it.
    """
    if column is None:
        return universe_from_columns(leaves, levels=levels)
    if separator is not None:
        return universe_from_paths(leaves[column], separator, levels=levels, column=column)
    return universe_from_codes(leaves[column], digits, levels=levels, column=column)


def _blocks(path: str, column: str) -> tuple[int, Callable[[int], pa.Array]] | None:
    """The row groups of a Parquet file with more leaves than are held: how many, and the codes of
    each; None of any other."""
    if not path.endswith(".parquet") or not os.path.isfile(path):
        return None
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (pa.ArrowException, OSError):
        return None  # which reading it reports
    if not is_parted("digits", file.metadata.num_rows):
        return None
    _check_columns(path, file.schema_arrow.names, [column])
    groups = range(file.num_row_groups)
    full = [group for group in groups if file.metadata.row_group(group).num_rows]

    def read(block: int) -> pa.Array:
        table = file.read_row_group(full[block], columns=[column], use_threads=False)
        return table.column(column).combine_chunks()

    return len(full), read


def _read_blocks(
    path: str,
    blocks: int,
    read: Callable[[int], pa.Array],
    column: str,
    digits: Sequence[int],
    levels: Sequence[str],
) -> Universe:
    try:
        return universe_from_code_blocks(blocks, read, digits, levels=levels, column=column)
    except (pa.ArrowException, OSError):
        raise ValueError(f"{path} is not a Parquet file") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_leaves(path: str, columns: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """Read some columns of a table, (leaves,) each; from CSV as strings, null where empty.

    Raises:
        ValueError: one sentence: the file is absent, cannot be read, or lacks a column.
    """
    try:
        with open(path, "rb") as file:
            table = (_parquet if path.endswith(".parquet") else _csv)(file, path, list(columns))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or 'not a local file'}") from None
    return {name: table.column(name) for name in columns}


def _parquet(file: BinaryIO, path: str, columns: list[str]) -> pa.Table:
    # Slow to import, and needed for this kind of file alone.
    import pyarrow.parquet

    try:
        parquet = pyarrow.parquet.ParquetFile(file)
        _check_columns(path, parquet.schema_arrow.names, columns)
        return parquet.read(columns=columns)
    except pa.ArrowException:
        raise ValueError(f"{path} is not a Parquet file") from None


def _csv(file: BinaryIO, path: str, columns: list[str]) -> pa.Table:
    import pyarrow.csv

    try:
        header = next(csv.reader([file.readline().decode("utf-8-sig")]), [])
        _check_columns(path, header, columns)
        file.seek(0)
        return pyarrow.csv.read_csv(
            file,
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=columns,
                column_types=dict.fromkeys(columns, pa.string()),
                # Only nothing at all is missing: NA may be a label.
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except (pa.ArrowException, UnicodeDecodeError, csv.Error):
        raise ValueError(
            f"{path} is not a CSV file in UTF-8 with a header, in which every row has as many "
            "fields as the header"
        ) from None


def _check_columns(path: str, header: list[str], columns: list[str]) -> None:
    for name in columns:
        if header.count(name) != 1:
            fault = f"the column {name!r} twice" if name in header else f"no column {name!r}"
            raise ValueError(f"{path} has {fault}")
