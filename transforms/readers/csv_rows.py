"""CSV files as record batches, each file one split.

A row is a line, or a record where quoted values may hold line ends. What becomes of it depends on
it alone: `transforms.readers.csv_lines` tells rows apart and leaves out those that are malformed,
and Arrow's parser leaves out those with too many or too few fields. A field becomes the type that
its domain reads. A text that is no such value is missing, and follows the column's policy.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dpcore.privacy.unit import NullUnits
from dpcore.questions.question import Question
from dpcore.release.plan import ReleasePlan
from transforms.errors import InputError
from transforms.passing import may_pass, not_now
from transforms.readers.csv_format import DEFAULT_FORMAT, ROW_BYTES, CsvFormat
from transforms.readers.csv_lines import (
    MalformedHeader,
    MalformedRow,
    read_header,
    well_formed_rows,
)

COUNTS_ROWS = 0

# Texts that are surely values; the others, few in most files, are tried one by one.
_NUMBER = r"^[-+]?[0-9]+(\.[0-9]*)?$"
_INTEGER = r"^-?[0-9]{1,18}$"
_UNSIGNED = r"^[0-9]{1,18}$"
_DATE = r"^[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$"
_TIME = _DATE[:-1] + r"[ T]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?$"
_ZONED_TIME = _TIME[:-1] + r"(Z|[-+](0[0-9]|1[0-4]):?[0-5][0-9])$"


def splits(
    file: Any, path: str, plan: ReleasePlan, csv: CsvFormat = DEFAULT_FORMAT
) -> tuple[list[tuple[int, int]], int]:
    """One split, and no count of rows: a CSV file does not tell it.

    Raises:
        InputError: there is no header, or it is malformed, lacks a column or has it twice.
    """
    try:
        with closing(_stream(file)) as stream:
            _header(stream, path, plan, csv)
    except MemoryError:  # Arrow's too; it tells nothing of the file
        raise
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None
    return [(0, 0)], 0


def batches(
    file: Any, split: Any, plan: ReleasePlan, csv: CsvFormat = DEFAULT_FORMAT
) -> Iterator[pa.RecordBatch]:
    """The record batches of a file, each column of the type that its domain reads.

    Raises:
        InputError: as `splits`; or a row is malformed, and the policy is to fail.
    """
    types = column_types(plan)
    try:
        with closing(_stream(file)) as stream:
            names, rest = _header(stream, split.path, plan, csv)
            for text in well_formed_rows(rest, stream, csv):
                for batch in _parsed(text, names, plan, csv):
                    columns = [_typed(batch.column(name), types[name]) for name in plan.columns]
                    yield pa.RecordBatch.from_arrays(columns, names=list(plan.columns))
    except MalformedRow:
        raise _malformed(split.path) from None
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(split.path, error) from None


def column_types(plan: ReleasePlan) -> dict[str, pa.DataType]:
    """The type in which each column is read: that of the values of its domain or key list.

    Raises:
        InputError: two trees read one column as different types; or a tree reads a column of the
            privacy unit as other than text, and rows without a unit are each their own: many rows
            of one text that is no such value would be many units.
    """
    types: dict[str, pa.DataType] = {}
    for question in plan.questions:
        for column, wanted in _value_types(question).items():
            if types.setdefault(column, wanted) != wanted:
                raise InputError(
                    f"trees: the CSV column {column!r} is read as {types[column]} by one tree and "
                    f"as {wanted} by another"
                )
    for column in plan.unit.columns if plan.unit.nulls is NullUnits.OWN else ():
        if types.get(column, pa.string()) not in (pa.string(), pa.large_string()):
            raise InputError(
                f"privacy.null_unit: own does not go with the CSV column {column!r}, which names "
                f"the unit and is read as {types[column]} by a tree: a text that is none would be "
                "as many units as it has rows; drop them, or write Parquet"
            )
    # Of a unit what the file says is enough.
    return dict.fromkeys(plan.unit.columns, pa.string()) | types


def _value_types(question: Question) -> dict[str, pa.DataType]:
    try:
        return question.value_types
    except ValueError as error:
        raise InputError(f"trees: {question.name}: {error}") from None


def _stream(file: Any) -> Any:
    return pa.input_stream(file, compression="detect") if isinstance(file, str) else file


def _header(stream: Any, path: str, plan: ReleasePlan, csv: CsvFormat) -> tuple[list[str], bytes]:
    """The names of the columns, and what has been read behind them."""
    try:
        header, rest = read_header(stream, csv)
    except MalformedHeader:
        raise InputError(
            f"input: {path} is not a CSV file in UTF-8 that begins with a header, in which every "
            "quote is closed"
        ) from None
    names = pa_csv.read_csv(
        pa.BufferReader(header), parse_options=pa_csv.ParseOptions(newlines_in_values=True)
    ).column_names
    for name in plan.columns:
        if name not in names:
            raise InputError(f"input: {path} has no column {name!r}")
        if names.count(name) > 1:
            raise InputError(f"input: {path} has the column {name!r} twice")
    return names, rest


def _parsed(
    text: bytes, names: list[str], plan: ReleasePlan, csv: CsvFormat
) -> list[pa.RecordBatch]:
    """The rows of a text that have as many fields as there are names; all columns are texts."""
    columns = list(plan.columns)
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(text),
            read_options=pa_csv.ReadOptions(column_names=names, block_size=len(text) + 1),
            parse_options=pa_csv.ParseOptions(
                newlines_in_values=csv.newlines,
                invalid_row_handler=_skip if csv.malformed == "drop" else None,
            ),
            convert_options=pa_csv.ConvertOptions(
                check_utf8=False,  # it is
                include_columns=columns,
                column_types=dict.fromkeys(columns, pa.string()),
                # Only nothing at all is missing: NA may be a key, and a word is no number anyway.
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        raise MalformedRow from None
    return list(table.to_batches())


def _skip(_: pa_csv.InvalidRow) -> str:
    return "skip"


def _malformed(path: str) -> InputError:
    return InputError(
        f"input: {path} has a malformed row, and input.malformed is fail: as many fields as in the "
        f"header, every quote closed, UTF-8, and at most {ROW_BYTES // 2**20} MiB"
    )


def _unreadable(path: str, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"input: {path} does not exist")
    if isinstance(error, PermissionError):
        return InputError(f"input: {path} cannot be read: permission denied")
    if may_pass(error):
        return not_now(path, error)
    return InputError(f"input: {path} is not a CSV file, or is damaged or cut short")


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
