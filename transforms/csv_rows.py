"""CSV files as record batches, each file one split.

A field becomes the type that its domain reads. A text that is no such value is missing, and follows
the column's policy: whether a value can be read depends on that row alone, so it is no error.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dpcore.domain import KeyList, OrderedDomain
from dpcore.question import ReleasePlan
from transforms.errors import InputError

COUNTS_ROWS = 0

_BLOCK_BYTES = 2**24
_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
_INTEGER = r"^\s*[-+]?\d{1,18}\s*$"
_DATE = r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$"
_TIME = _DATE[:-1] + (r"([ T]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?(Z|[-+]\d\d:?\d\d)?)?$")


def splits(file: Any, path: str, plan: ReleasePlan) -> tuple[list[tuple[int, int]], int]:
    """One split, and no count of rows: a CSV file does not tell it.

    Raises:
        InputError: the header lacks a column.
    """
    with _open(file, path, plan):
        pass
    return [(0, 0)], 0


def batches(file: Any, split: Any, plan: ReleasePlan) -> Iterator[pa.RecordBatch]:
    """The record batches of a file, each column of the type that its domain reads.

    Raises:
        InputError: a row has more or fewer fields than the header, or the text is not UTF-8.
    """
    types = column_types(plan)
    with _open(file, split.path, plan) as reader:
        try:
            for batch in reader:
                columns = [_typed(batch.column(name), types[name]) for name in plan.columns]
                yield pa.RecordBatch.from_arrays(columns, names=list(plan.columns))
        except pa.ArrowException:
            raise _ragged(split.path) from None


def column_types(plan: ReleasePlan) -> dict[str, pa.DataType]:
    """The type in which each column is read: that of the values of its domain or key list.

    Raises:
        InputError: two trees read one column as different types.
    """
    types: dict[str, pa.DataType] = {}
    for question in plan.questions:
        readers: list[OrderedDomain | KeyList] = [question.domain]
        if question.keys is not None:
            readers.append(question.keys)
        for reader in readers:
            wanted = reader.value_type
            if types.setdefault(reader.column, wanted) != wanted:
                raise InputError(
                    f"trees: the CSV column {reader.column!r} is read as {types[reader.column]} by "
                    f"one tree and as {wanted} by another"
                )
    return types


def _open(file: Any, path: str, plan: ReleasePlan) -> pa_csv.CSVStreamingReader:
    names = list(plan.columns)
    try:
        return pa_csv.open_csv(
            pa.input_stream(file, compression="detect") if isinstance(file, str) else file,
            read_options=pa_csv.ReadOptions(block_size=_BLOCK_BYTES),
            convert_options=pa_csv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except KeyError as error:
        missing = next((name for name in names if f"'{name}'" in str(error)), names[0])
        raise InputError(f"input: {path} has no column {missing!r}") from None
    except FileNotFoundError:
        raise InputError(f"input: {path} does not exist") from None
    except PermissionError:
        raise InputError(f"input: {path} cannot be read: permission denied") from None
    except (pa.ArrowException, OSError):
        raise _ragged(path) from None


def _ragged(path: str) -> InputError:
    return InputError(
        f"input: {path} is not a CSV file with a header, in which every row has as many fields as "
        "the header, in UTF-8"
    )


def _typed(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The values that texts stand for; null where a text stands for none."""
    if pa.types.is_string(wanted):
        return texts
    try:
        return pc.cast(texts, wanted)
    except pa.ArrowException:
        # Some text is no such value: only then is each looked at.
        nothing = pa.scalar(None, pa.string())
        return pc.cast(pc.if_else(_readable(texts, wanted), texts, nothing), wanted)


def _readable(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    pattern = _NUMBER
    if pa.types.is_integer(wanted):
        pattern = _INTEGER
    elif pa.types.is_date(wanted):
        pattern = _DATE
    elif pa.types.is_timestamp(wanted):
        pattern = _TIME
    return pc.match_substring_regex(texts, pattern)
