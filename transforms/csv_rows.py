"""CSV files as record batches, each file one split.

A field becomes the type that its domain reads. A text that is no such value is missing, and follows
the column's policy: whether a value can be read depends on that row alone, so it is no error.
"""

import csv
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dpcore.question import Question
from dpcore.release_plan import ReleasePlan
from transforms.errors import InputError

COUNTS_ROWS = 0

_BLOCK_BYTES = 2**24
# Texts that are surely values; the others, few in most files, are tried one by one.
_NUMBER = r"^[-+]?[0-9]+(\.[0-9]*)?$"
_INTEGER = r"^-?[0-9]{1,18}$"
_UNSIGNED = r"^[0-9]{1,18}$"
_DATE = r"^[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$"
_TIME = _DATE[:-1] + r"[ T]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?$"
_ZONED_TIME = _TIME[:-1] + r"(Z|[-+](0[0-9]|1[0-4]):?[0-5][0-9])$"


def splits(file: Any, path: str, plan: ReleasePlan) -> tuple[list[tuple[int, int]], int]:
    """One split, and no count of rows: a CSV file does not tell it.

    Raises:
        InputError: the header lacks a column, or has it twice.
    """
    with _open(file, path, plan):
        pass
    header = _header(file)
    for name in plan.columns:
        if header.count(name) > 1:
            raise InputError(f"input: {path} has the column {name!r} twice")
    return [(0, 0)], 0


def _header(file: Any) -> list[str]:
    """The names of the columns, of a file that has been opened before."""
    if isinstance(file, str):
        stream = pa.input_stream(file, compression="detect")
    else:
        stream = file
        stream.seek(0)
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
    try:
        return next(filter(None, csv.reader(text)), [])
    finally:
        text.detach()


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
        for column, wanted in _value_types(question).items():
            if types.setdefault(column, wanted) != wanted:
                raise InputError(
                    f"trees: the CSV column {column!r} is read as {types[column]} by one tree and "
                    f"as {wanted} by another"
                )
    return types


def _value_types(question: Question) -> dict[str, pa.DataType]:
    try:
        return question.value_types
    except ValueError as error:
        raise InputError(f"trees: {question.name}: {error}") from None


def _open(file: Any, path: str, plan: ReleasePlan) -> pa_csv.CSVStreamingReader:
    names = list(plan.columns)
    try:
        return pa_csv.open_csv(
            pa.input_stream(file, compression="detect") if isinstance(file, str) else file,
            read_options=pa_csv.ReadOptions(block_size=_BLOCK_BYTES),
            parse_options=pa_csv.ParseOptions(newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pa.string()),
                # Only nothing at all is missing: NA may be a key, and a word is no number anyway.
                null_values=[""],
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
        # What becomes of a row must not depend on others: each text is a value or none by itself.
        distinct = pc.utf8_trim_whitespace(texts).dictionary_encode()
        return _values(distinct.dictionary, wanted).take(distinct.indices)


def _values(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The values of different texts, null for those that stand for none."""
    if pa.types.is_integer(wanted):  # a column with gaps is often written as 3.0
        texts = pc.replace_substring_regex(texts, r"^([-+]?\d+)\.0*$", r"\1")
    sure = pc.match_substring_regex(texts, _pattern(wanted))
    nothing = pa.scalar(None, pa.string())
    values = pc.cast(pc.if_else(sure, texts, nothing), wanted)
    doubtful = np.flatnonzero(~sure.to_numpy(zero_copy_only=False))
    if not len(doubtful):
        return values
    tried = pa.concat_arrays([_value(texts.slice(int(place), 1), wanted) for place in doubtful])
    return pc.replace_with_mask(values, pc.invert(sure), tried)


def _value(text: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The value of one text, (1,); null if it is none."""
    try:
        return pc.cast(text, wanted)
    except pa.ArrowException:
        return _floor(text, wanted) if pa.types.is_integer(wanted) else pa.nulls(1, wanted)


def _floor(text: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A number with a fraction as the integer below it, as in a file of floats; else null."""
    try:
        return pc.cast(pc.floor(pc.cast(text, pa.float64())), wanted)
    except pa.ArrowException:
        return pa.nulls(1, wanted)


def _pattern(wanted: pa.DataType) -> str:
    if pa.types.is_integer(wanted):
        return _UNSIGNED if pa.types.is_unsigned_integer(wanted) else _INTEGER
    if pa.types.is_date(wanted):
        return _DATE
    if pa.types.is_timestamp(wanted):
        return _TIME if wanted.tz is None else _ZONED_TIME
    return _NUMBER
