"""Public lists of group-by keys in files: one column of texts or integers.

The kind of file follows from the end of its name: `.parquet` holds one column, `.csv` one column
below a header line, anything else one key a line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import TextIO, TypeAlias

Keys: TypeAlias = "tuple[str, ...] | tuple[int, ...]"
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


def read_key_list(path: str) -> Keys:
    """The keys of a file, in its order.

    In text and CSV files the keys are integers when all of them are written as integers (without
    leading zeros), else texts; in Parquet files the column's type decides. Empty lines are skipped.

    Args:
        path: of a local file; texts are in UTF-8.

    Returns:
        The keys, at least one.

    Raises:
        ValueError: the file cannot be read or does not hold one column of texts or integers.
    """
    try:
        if path.endswith(".parquet"):
            return _checked(path, _parquet_keys(path))
        with open(path, encoding="utf-8-sig", newline="") as file:
            texts = tuple(_csv_keys(file) if path.endswith(".csv") else _line_keys(file))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text in UTF-8") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or 'not a local file'}") from None
    if all(map(_INTEGER.fullmatch, texts)):
        return _checked(path, tuple(map(int, texts)))
    return _checked(path, texts)


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
    # Slow to import, and needed for this kind of file alone.
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with open(path, "rb") as file:
            table = pyarrow.parquet.read_table(file)
    except pa.ArrowException:
        raise ValueError(f"{path} is not a Parquet file") from None
    if table.num_columns != 1:
        raise ValueError(f"{path} must have one column, not {table.num_columns}")
    return tuple(table.column(0).to_pylist())
