"""CSV files as record batches, each file one split.

A row is a line, or a record where quoted values may hold line ends. What becomes of it depends on
it alone: `transforms.readers.csv_lines` separates rows and leaves out those that are malformed,
and Arrow's parser leaves out those with too many or too few fields. A field becomes the type that
its domain reads. A text that is no such value is missing, and follows the column's policy.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.column_types import column_types
from dptrees.transforms.readers.csv_encodings import UTF_8, as_utf8
from dptrees.transforms.readers.csv_format import DEFAULT_FORMAT, ROW_BYTES, CsvFormat
from dptrees.transforms.readers.csv_header import column_names, parse_options
from dptrees.transforms.readers.csv_lines import (
    FEWER,
    MORE,
    MORE_EMPTY,
    Malformed,
    MalformedRow,
    well_formed_rows,
)
from dptrees.transforms.readers.csv_values import typed
from dptrees.transforms.readers.file_columns import path_columns, path_constants, repeated
from dptrees.transforms.readers.first_bytes import text_stream
from dptrees.transforms.readers.formats import reading

COUNTS_ROWS = 0
# Its beginning says how it is read.
WHOLE_BYTES = 0

_NOT_CSV = "is not a CSV file"


def splits(
    file: Any, path: str, plan: ReleasePlan, csv: CsvFormat = DEFAULT_FORMAT
) -> tuple[list[tuple[int, int]], int]:
    """One split, and no count of rows: a CSV file does not state it.

    Raises:
        InputError: there is no header, or it is malformed, lacks a column or has it twice; or the
            dialect does not go with the plan.
    """
    _check_zones(column_types(plan), csv)
    with reading(path, _NOT_CSV), closing(_stream(file, path, csv)) as stream:
        column_names(stream, path, plan.columns, csv)
    return [(0, 0)], 0


def batches(
    file: Any,
    split: Any,
    plan: ReleasePlan,
    csv: CsvFormat = DEFAULT_FORMAT,
    malformed: Malformed | None = None,
) -> Iterator[pa.RecordBatch]:
    """The record batches of a file, each column of the type that its domain reads.

    Args:
        file: as `transforms.readers.read.open_file` gives it.
        split: the whole file.
        plan: says which columns are read.
        csv: what a row is.
        malformed: to which malformed rows are added, for who has the file; None: nobody counts
            them.

    Raises:
        InputError: as `splits`; or a row is malformed, and the policy is to fail.
    """
    types = column_types(plan)
    malformed = Counter() if malformed is None else malformed
    _check_zones(types, csv)
    texts = {name: csv.texts.column_texts(name) for name in plan.columns}
    try:
        with reading(split.path, _NOT_CSV), closing(_stream(file, split.path, csv)) as stream:
            names, rest, csv = column_names(stream, split.path, plan.columns, csv)
            there = path_columns(split.path).keys() & types.keys()
            path_values = path_constants(split.path, there - set(names), plan)
            for text in well_formed_rows(rest, stream, csv, malformed):
                for batch in _parsed(text, names, plan, csv, malformed):
                    columns = [
                        repeated(path_values[name], batch.num_rows)
                        if name in path_values
                        else typed(batch.column(name), types[name], texts[name])
                        for name in plan.columns
                    ]
                    yield pa.RecordBatch.from_arrays(columns, names=list(plan.columns))
    except MalformedRow:
        raise _malformed(split.path, csv) from None


def describe_columns(file: Any, path: str, csv: CsvFormat = DEFAULT_FORMAT) -> dict[str, str]:
    """The columns of a file, all of strings.

    Raises:
        InputError: the file cannot be read, or has no header.
    """
    with reading(path, _NOT_CSV), closing(_stream(file, path, csv)) as stream:
        return dict.fromkeys(column_names(stream, path, (), csv)[0], "text")


def check_dialect(plan: ReleasePlan, csv: CsvFormat) -> None:
    """Refuses, before any file is read, a dialect that does not go with the columns of a plan.

    Args:
        plan: of all trees.
        csv: what a row is.

    Raises:
        InputError: an entry names a column that is not read, or one of a date that is read as none;
            or as `column_types`.
    """
    types = column_types(plan)
    for key, columns in csv.texts.named.items():
        for column in columns:
            if column not in types:
                raise InputError(f"input.{key}.{column}: no tree reads such a column")
            if key == "date_format" and not _is_moment(types[column]):
                raise InputError(f"input.{key}.{column}: the column is read as {types[column]}")
    _check_zones(types, csv)


def _is_moment(target_type: pa.DataType) -> bool:
    return bool(pa.types.is_date(target_type) or pa.types.is_timestamp(target_type))


def _check_zones(types: Mapping[str, pa.DataType], csv: CsvFormat) -> None:
    """Refuses formats without a zone where instants are read, and the other way round."""
    for column, wanted in types.items():
        how = csv.texts.column_texts(column).date_format
        is_time = pa.types.is_timestamp(wanted)
        if how is not None and is_time and how.has_zone != (wanted.tz is not None):
            lacks = "has %z" if how.has_zone else "has no %z"
            zone = "with" if wanted.tz is not None else "without"
            raise InputError(
                f"input.date_format: {how.text!r} {lacks}, and the column {column!r} is read as "
                f"times {zone} a zone, as the bounds of its tree are"
            )


def _stream(file: Any, path: str, csv: CsvFormat) -> Any:
    """The bytes of a file, in UTF-8."""
    return as_utf8(text_stream(file, path, "csv"), csv.encoding)


def _parsed(
    text: bytes, names: list[str], plan: ReleasePlan, csv: CsvFormat, malformed: Malformed
) -> list[pa.RecordBatch]:
    """The rows of a block that have as many fields as there are names; all columns are strings."""
    columns = [name for name in plan.columns if name in names]  # the others are in the path

    def skip(row: pa_csv.InvalidRow) -> str:
        kind = FEWER if row.actual_columns < len(names) else MORE
        if row.actual_columns == len(names) + 1 and row.text.endswith(csv.separator):
            kind = MORE_EMPTY
        malformed[kind, len(names), row.actual_columns] += 1
        return "skip"

    try:
        table = pa_csv.read_csv(
            pa.BufferReader(text),
            read_options=pa_csv.ReadOptions(column_names=names, block_size=len(text) + 1),
            parse_options=parse_options(
                csv,
                newlines_in_values=csv.newlines,
                invalid_row_handler=skip if csv.malformed == "drop" else None,
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


def _malformed(path: str, csv: CsvFormat) -> InputError:
    return InputError(
        f"input: {path} has a malformed row, and input.malformed is fail: as many fields as "
        f"{'in the header' if not csv.columns else 'columns'}, every quote closed, "
        f"{'UTF-8' if csv.encoding == UTF_8 else csv.encoding}, and at most "
        f"{ROW_BYTES // 2**20} MiB"
    )
