"""The public universe of a hierarchy from a file: a table of its leaves, Parquet or CSV.

The end of a file's name decides its format: `.parquet`, anything else is CSV with a header line.
The columns of a CSV file are read as strings, so leading zeros are kept.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

import pyarrow as pa

from dptrees.dpcore.hierarchy.leaves import (
    universe_from_code_blocks,
    universe_from_codes,
    universe_from_columns,
    universe_from_parents,
    universe_from_paths,
)
from dptrees.dpcore.hierarchy.universe import Universe, is_parted

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
