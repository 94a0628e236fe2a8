"""CSV files as record batches, each file one split.

A row is a line, or a record where quoted values may hold line ends. What becomes of it depends on
it alone: `transforms.readers.csv_lines` tells rows apart and leaves out those that are malformed,
and Arrow's parser leaves out those with too many or too few fields. A field becomes the type that
its domain reads. A text that is no such value is missing, and follows the column's policy.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from dpcore.privacy.unit import NullUnits
from dpcore.questions.question import Question
from dpcore.release.plan import ReleasePlan
from transforms.errors import InputError
from transforms.passing import may_pass, not_now
from transforms.readers.csv_encodings import UTF_8, as_utf8
from transforms.readers.csv_format import DEFAULT_FORMAT, ROW_BYTES, CsvFormat
from transforms.readers.csv_header import column_names, parse_options
from transforms.readers.csv_lines import MalformedRow, well_formed_rows
from transforms.readers.csv_values import typed
from transforms.readers.path_columns import path_columns, repeated

COUNTS_ROWS = 0


def splits(
    file: Any, path: str, plan: ReleasePlan, csv: CsvFormat = DEFAULT_FORMAT
) -> tuple[list[tuple[int, int]], int]:
    """One split, and no count of rows: a CSV file does not tell it.

    Raises:
        InputError: there is no header, or it is malformed, lacks a column or has it twice; or the
            dialect does not go with the plan.
    """
    _check_zones(column_types(plan), csv)
    try:
        with closing(_stream(file, csv)) as stream:
            column_names(stream, path, plan.columns, csv)
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
    _check_zones(types, csv)
    texts = {name: csv.texts.of(name) for name in plan.columns}
    try:
        with closing(_stream(file, csv)) as stream:
            names, rest = column_names(stream, split.path, plan.columns, csv)
            told = _told(split.path, names, types)
            for text in well_formed_rows(rest, stream, csv):
                for batch in _parsed(text, names, plan, csv):
                    columns = [
                        repeated(told[name], batch.num_rows)
                        if name in told
                        else typed(batch.column(name), types[name], texts[name])
                        for name in plan.columns
                    ]
                    yield pa.RecordBatch.from_arrays(columns, names=list(plan.columns))
    except MalformedRow:
        raise _malformed(split.path, csv) from None
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(split.path, error) from None


def found(file: Any, path: str, csv: CsvFormat = DEFAULT_FORMAT) -> dict[str, str]:
    """The columns of a file, all of texts.

    Raises:
        InputError: the file cannot be read, or has no header.
    """
    try:
        with closing(_stream(file, csv)) as stream:
            return dict.fromkeys(column_names(stream, path, (), csv)[0], "text")
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None


def column_types(
    plan: ReleasePlan, *, of: str = "CSV", only: Collection[str] | None = None
) -> dict[str, pa.DataType]:
    """The type in which each column is read: that of the values of its domain or key list.

    Args:
        plan: whose columns they are.
        of: what tells no types, for messages.
        only: the columns of which it is asked; None: all.

    Raises:
        InputError: two trees read one column as different types; or a tree reads a column of the
            privacy unit as other than text, and rows without a unit are each their own: many rows
            of one text that is no such value would be many units.
    """
    types: dict[str, pa.DataType] = {}
    for question in plan.questions:
        for column, wanted in _value_types(question).items():
            if only is not None and column not in only:
                continue
            if types.setdefault(column, wanted) != wanted:
                raise InputError(
                    f"trees: the {of} column {column!r} is read as {types[column]} by one tree and "
                    f"as {wanted} by another"
                )
    for column in plan.unit.columns if plan.unit.nulls is NullUnits.OWN else ():
        if types.get(column, pa.string()) not in (pa.string(), pa.large_string()):
            raise InputError(
                f"privacy.null_unit: own does not go with the {of} column {column!r}, which names "
                f"the unit and is read as {types[column]} by a tree: a text that is none would be "
                "as many units as it has rows; drop them, or write Parquet"
            )
    # Of a unit what the file says is enough.
    return dict.fromkeys(plan.unit.columns, pa.string()) | types


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


def _is_moment(wanted: pa.DataType) -> bool:
    return bool(pa.types.is_date(wanted) or pa.types.is_timestamp(wanted))


def _check_zones(types: Mapping[str, pa.DataType], csv: CsvFormat) -> None:
    """Refuses formats that tell no zone where instants are read, and the other way round."""
    for column, wanted in types.items():
        how = csv.texts.of(column).date_format
        is_time = pa.types.is_timestamp(wanted)
        if how is not None and is_time and how.has_zone != (wanted.tz is not None):
            lacks = "has %z" if how.has_zone else "has no %z"
            zone = "with" if wanted.tz is not None else "without"
            raise InputError(
                f"input.date_format: {how.text!r} {lacks}, and the column {column!r} is read as "
                f"times {zone} a zone, as the bounds of its tree are"
            )


def _value_types(question: Question) -> dict[str, pa.DataType]:
    try:
        return question.value_types
    except ValueError as error:
        raise InputError(f"trees: {question.name}: {error}") from None


def _stream(file: Any, csv: CsvFormat) -> Any:
    """The bytes of a file, in UTF-8."""
    stream = pa.input_stream(file, compression="detect") if isinstance(file, str) else file
    return as_utf8(stream, csv.encoding)


def _told(path: str, names: list[str], types: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
    """The values, (1,), of columns that the path tells and the file has not."""
    return {
        name: typed(pa.array([text], pa.string()), types[name])
        for name, text in path_columns(path).items()
        if name in types and name not in names
    }


def _parsed(
    text: bytes, names: list[str], plan: ReleasePlan, csv: CsvFormat
) -> list[pa.RecordBatch]:
    """The rows of a text that have as many fields as there are names; all columns are texts."""
    columns = [name for name in plan.columns if name in names]  # the others are in the path
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(text),
            read_options=pa_csv.ReadOptions(column_names=names, block_size=len(text) + 1),
            parse_options=parse_options(
                csv,
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


def _malformed(path: str, csv: CsvFormat) -> InputError:
    return InputError(
        f"input: {path} has a malformed row, and input.malformed is fail: as many fields as "
        f"{'in the header' if not csv.columns else 'columns'}, every quote closed, "
        f"{'UTF-8' if csv.encoding == UTF_8 else csv.encoding}, and at most "
        f"{ROW_BYTES // 2**20} MiB"
    )


def _unreadable(path: str, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"input: {path} does not exist")
    if isinstance(error, PermissionError):
        return InputError(f"input: {path} cannot be read: permission denied")
    if may_pass(error):
        return not_now(path, error)
    return InputError(f"input: {path} is not a CSV file, or is damaged or cut short")
