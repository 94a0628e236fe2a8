"""CSV files as record batches: well-formed rows, the names of columns, one split for each file.

Arrow's parser joins lines where a field begins with a stray quote. So rows are separated first,
in passes over the bytes of a block. A line is left out by itself: where a quoted field is open
at its end, where it is not UTF-8, too long, or has too many or too few fields. Where quoted
values may hold line ends, the same holds of records, whose ends follow from the whole file above
them.
"""

import codecs
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder.listing import path_columns
from dptrees.transforms.readers.csv_format import (
    DEFAULT_FORMAT,
    ROW_BYTES,
    UTF_8,
    CsvFormat,
    MalformedRow,
    NoByteOrderMark,
    as_utf8,
    is_utf8,
    line_ends,
    not_utf8,
    without_escapes,
)
from dptrees.transforms.readers.csv_values import is_moment, typed
from dptrees.transforms.readers.file_columns import (
    column_types,
    columns_found,
    may_show,
    path_constants,
    repeated,
)
from dptrees.transforms.readers.formats import reading, text_stream

_MARK = codecs.BOM_UTF8
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
# Excel's first line, which names the separator.
_STATED = re.compile(rb'(?i)("?)sep=([^\w"])\1[\r\n]')

_Flags = npt.NDArray[np.bool_]
# What is wrong with a malformed row: where it ends, its bytes, or the number of its fields.
OPEN, NOT_UTF8, TOO_LONG = "open", "not_utf8", "too_long"
FEWER, MORE, MORE_EMPTY = "fewer_fields", "more_fields", "last_empty"
# How many rows were malformed, by what is wrong and the fields of the header and of the row, which
# are 0 where they do not matter.
Malformed = Counter[tuple[str, int, int]]


class MalformedHeader(Exception):
    """The first row of the file is malformed, or there is none.

    Args:
        start: the first bytes of the file; none where it holds nothing.
    """

    def __init__(self, start: bytes) -> None:
        super().__init__()
        self.start = start


def read_header(stream: Any, csv: CsvFormat) -> tuple[bytes, bytes, CsvFormat]:
    """The first row that is not empty, what has been read behind it, and what a row is.

    Args:
        stream: a binary file at its start; a byte order mark is left out.
        csv: what a row is, but for a separator that the first line states as Excel has it, `sep=;`.

    Raises:
        MalformedHeader: it is malformed, or there is none.

    >>> import io
    >>> read_header(io.BytesIO(b"sep=;\\na;b\\n1;2\\n"), CsvFormat())[:2]
    (b'a;b\\n', b'1;2\\n')
    """
    header, rest = _first_row(read_start(stream, csv), stream, csv)
    stated = None if csv.skip_lines else _STATED.fullmatch(header)
    if stated:
        try:
            csv = replace(csv, separator=stated[2].decode())
        except ValueError:  # no character of ASCII, or one with another meaning
            return header, rest, csv
        header, rest = _first_row(rest, stream, csv)
    return without_last_separators(header, csv), rest, csv


def _first_row(text: bytes, stream: Any, csv: CsvFormat) -> tuple[bytes, bytes]:
    """The first row that is neither empty nor a comment, and what has been read behind it."""
    comment = re.escape(csv.marks.comment or b"\n")
    lead = re.compile(rb"\A(?:[\r\n]|" + comment + rb"[^\r\n]*[\r\n])*")
    start, text, data = text[:4], lead.sub(b"", text), b"\n"
    while not (end := _bounds(text, csv)[0]) and len(text) <= csv.row_bytes and data:
        data = stream.read(csv.block_bytes)
        start = (start + data)[:4]
        text = lead.sub(b"", text + (data or b"\n"))  # the last line of a file may lack its end
    header, rest = text[:end], text[end:]
    if not 0 < len(header) - 1 <= csv.row_bytes or np.any(_rows(header, csv)[1:]):
        raise MalformedHeader(start if text else b"")
    return header, rest


def read_start(stream: Any, csv: CsvFormat) -> bytes:
    """Read the start of a file; return it without the byte order mark and the skipped lines.

    Args:
        stream: a binary file at its start.
        csv: what a row is.
    """
    text, at = b"", 0
    while _MARK.startswith(text) and text != _MARK and (data := stream.read(csv.block_bytes)):
        text += data
    text = text.removeprefix(_MARK)
    for _ in range(csv.skip_lines):
        while (end := _LINE_END.search(text, at)) is None:
            text, at = text[at:][-1:], 0  # a CR whose LF may follow
            if not (data := stream.read(csv.block_bytes)):
                return b""
            text += data
        at = end.end()
    return text[at:]


def without_last_separators(text: bytes, csv: CsvFormat) -> bytes:
    """A text of whole, well-formed rows without a separator at the end of each, by the key.

    >>> without_last_separators(b"1,,\\n2,\\n3\\n", CsvFormat(trailing_separator=True))
    b'1,\\n2\\n3\\n'
    """
    if not csv.trailing_separator:
        return text
    separator, _, escape, _ = csv.marks
    codes = np.frombuffer(text, np.uint8)
    ends, inside = line_ends(text, newlines=csv.newlines, marks=csv.marks)
    last = ends[~inside & (ends > 0)] - 1
    plain = codes if escape is None else without_escapes(codes, escape)
    kept = np.ones(len(codes), bool)
    kept[last[plain[last] == ord(separator)]] = False
    return codes[kept].tobytes()


def well_formed_rows(
    rest: bytes, stream: Any, csv: CsvFormat, malformed: Malformed | None = None
) -> Iterator[bytes]:
    """The rows of a file that are well-formed but for the number of their fields.

    Args:
        rest: what has been read behind the header.
        stream: a binary file, read to its end.
        csv: what a row is.
        malformed: to which the others are added; None: nobody counts them.

    Returns:
        Blocks of whole rows, each row with its end. None begins with a byte order mark, which a
        parser would take for the file's.

    Raises:
        MalformedRow: a row is malformed, and the policy is to fail.

    >>> import io
    >>> list(well_formed_rows(b"", io.BytesIO(b'1,2\\n3,"4\\n5,6'), CsvFormat()))
    [b'1,2\\n', b'5,6\\n']
    """
    malformed = Counter() if malformed is None else malformed
    for text in _whole_rows(rest, stream, csv, malformed):
        kept = without_last_separators(_without_malformed(text, csv, malformed), csv)
        if kept:
            yield b"\n" + kept if kept.startswith(_MARK) else kept


def _whole_rows(rest: bytes, stream: Any, csv: CsvFormat, malformed: Malformed) -> Iterator[bytes]:
    """Blocks that end where a row ends, without the rows that are too long."""
    text, too_long = b"", False
    for data in itertools.chain([rest], iter(partial(stream.read, csv.block_bytes), b"")):
        text += data
        first, last = _bounds(text, csv)
        if not too_long and (first - 1 if first else len(text)) > csv.row_bytes:
            too_long = True
            malformed[TOO_LONG, 0, 0] += 1
        if too_long and csv.malformed == "fail":
            raise MalformedRow
        if last:
            # Only the first row has begun in an earlier block: the others are no longer than one.
            yield text[first if too_long else 0 : last]
            text, too_long = text[last:], False
        elif too_long:
            text = _shortened(text, csv)
    if text and not too_long:
        yield text + b"\n"


def _has_marks(text: bytes, csv: CsvFormat) -> bool:
    """Whether a text has a byte that decides where its rows end, or whether they are rows."""
    return any(mark is not None and mark in text for mark in csv.marks[1:])


def _bounds(text: bytes, csv: CsvFormat) -> tuple[int, int]:
    """Return the positions behind the first row and behind the last one; 0, 0 without a row."""
    if csv.newlines and _has_marks(text, csv):
        ends, inside = line_ends(text, newlines=True, marks=csv.marks)
        ends = ends[~inside]
        return (int(ends[0]) + 1, int(ends[-1]) + 1) if len(ends) else (0, 0)
    first = text.find(b"\n") + 1
    last = text.rfind(b"\n") + 1
    # A lone CR ends a line too.
    first = text.find(b"\r", 0, first or len(text)) + 1 or first
    return first, max(last, text.rfind(b"\r", last) + 1)


def _shortened(text: bytes, csv: CsvFormat) -> bytes:
    """A short text behind which a row ends just where it would behind this one."""
    separator, quote, escape, comment = csv.marks
    if not csv.newlines or quote is None:
        return b""
    if comment is not None and text.startswith(comment):
        return comment
    open_escape = b""
    if escape is not None:
        open_escape = escape * ((len(text) - len(text.rstrip(escape))) % 2)
        codes = np.frombuffer(text.removesuffix(open_escape), np.uint8)
        text = without_escapes(codes, escape).tobytes()
    body = text.rstrip(quote)
    if line_ends(body + b"\n", newlines=True, marks=csv.marks)[1][-1]:
        before = quote + b"x"
    else:
        before = separator if body.endswith(separator) or not body else b"x"
    return before + quote * ((len(text) - len(body)) % 2) + open_escape


def _without_malformed(text: bytes, csv: CsvFormat, malformed: Malformed) -> bytes:
    """A text of whole rows without comments and those that are malformed, which are counted."""
    if not _has_marks(text, csv) and is_utf8(text):
        return text
    ends, is_open, is_odd = _rows(text, csv)
    bounds = np.concatenate([[0], ends + 1])
    comments = np.zeros(len(ends), bool)
    if csv.marks.comment is not None:
        comments = np.frombuffer(text, np.uint8)[bounds[:-1]] == ord(csv.marks.comment)
    is_open, is_odd = is_open & ~comments, is_odd & ~comments
    dropped = comments | is_open | is_odd
    if not dropped.any():
        return text
    malformed[OPEN, 0, 0] += int(np.count_nonzero(is_open))
    malformed[NOT_UTF8, 0, 0] += int(np.count_nonzero(is_odd & ~is_open))
    if csv.malformed == "fail" and (is_open | is_odd).any():
        raise MalformedRow
    # One slice for each run of rows that are kept.
    turns = np.flatnonzero(np.diff(np.concatenate([[True], dropped, [True]])))
    edges = bounds[turns].tolist()
    return b"".join(text[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True))


def _rows(text: bytes, csv: CsvFormat) -> tuple[npt.NDArray[np.int64], _Flags, _Flags]:
    """Return the ends of rows, which rows are open there, and which are not UTF-8; (n,) each."""
    ends, is_open = line_ends(text, newlines=csv.newlines, marks=csv.marks)
    if csv.newlines:
        row_ends = ~is_open
        row_ends[-1] = True  # open there only at the end of the file
        ends, is_open = ends[row_ends], is_open[row_ends]
    is_odd = np.zeros(len(ends), bool)
    if not is_utf8(text):
        is_odd[np.searchsorted(ends, not_utf8(text))] = True
    return ends, is_open, is_odd


_SEPARATORS = {";": '";"', "\t": '"\\t"', "|": '"|"', ",": '","'}


def check_named(wanted: Sequence[str], csv: CsvFormat) -> None:
    """Refuses a file without a header that has not all columns.

    Raises:
        InputError: one that is wanted is not among those that are listed.
    """
    for name in wanted if csv.columns else ():
        if name not in csv.columns:
            raise InputError(f"input.columns: has no {name!r}, which a tree or the unit reads")


def column_names(
    stream: Any, path: str, wanted: Sequence[str], csv: CsvFormat
) -> tuple[list[str], bytes, CsvFormat]:
    """The names of all columns of a file, what has been read behind them, and what a row is.

    Args:
        stream: a binary file in UTF-8 at its start.
        path: of it, for messages.
        wanted: the columns that are read.
        csv: what a row is, but for a separator that the file states.

    Raises:
        InputError: there is no header where one is awaited, or it is malformed; or a column that is
            wanted is not there, or is there twice.
    """
    path_values = path_columns(path)
    try:
        if csv.columns:
            check_named([name for name in wanted if name not in path_values], csv)
            return list(csv.columns), read_start(stream, csv), csv
        header, rest, csv = read_header(stream, csv)
    except MalformedHeader as error:
        raise _no_header(path, error.start, csv) from None
    except NoByteOrderMark:
        raise InputError(
            f"input: {path} is not in utf-16, which begins with a byte order mark; without one it "
            "is utf-16-le or utf-16-be"
        ) from None
    names = _fields(header, csv)
    for name in wanted:
        if name not in names and name not in path_values:
            raise InputError(
                f"input: {path} has no column {name!r}; {_hint(name, wanted, header, csv)}"
            )
        if names.count(name) > 1:
            raise InputError(f"input: {path} has the column {name!r} twice")
    return names, rest, csv


def parse_options(csv: CsvFormat, **options: Any) -> pa_csv.ParseOptions:
    """Return the rules by which Arrow separates fields."""
    return pa_csv.ParseOptions(
        delimiter=csv.separator,
        quote_char=False if csv.quote is None else csv.quote,
        escape_char=False if csv.escape is None else csv.escape,
        **options,
    )


def _fields(header: bytes, csv: CsvFormat) -> list[str]:
    names = pa_csv.read_csv(
        pa.BufferReader(header), parse_options=parse_options(csv, newlines_in_values=True)
    ).column_names
    return [name.strip() for name in names] if csv.texts.trim else list(names)


def _no_header(path: str, start: bytes, csv: CsvFormat) -> InputError:
    if not start:
        return InputError(f"input: {path} is empty, without even a header")
    encoding = "UTF-8" if csv.encoding == UTF_8 else csv.encoding
    quoted = "" if csv.quote is None else ", in which every quote is closed"
    more = "; if it is in another encoding, say which by encoding" if csv.encoding == UTF_8 else ""
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        more = "; it begins as UTF-16 does: say encoding: utf-16"
    return InputError(
        f"input: {path} is not a CSV file in {encoding} that begins with a header{quoted}{more}"
    )


def _hint(name: str, wanted: Sequence[str], header: bytes, csv: CsvFormat) -> str:
    """Return the columns of a file that lacks one, and the column that may be meant."""
    names = _fields(header, csv)
    if separated := _separated(name, header, csv):
        return f"its first line has {len(names)} field{'s' * (len(names) > 1)}; {separated}"
    if name in [each.strip() for each in names]:
        return "with trim: true it has the column"
    found = columns_found(name, names, wanted, start=header)
    if may_show(names, wanted):
        return found
    return (
        f"{found}; if the file has no header, say header: false and columns: [...]; if lines are "
        "before the header, say skip_lines or comment"
    )


def _separated(name: str, header: bytes, csv: CsvFormat) -> str:
    """Return the separator with which a file has a column; "" without one."""
    for separator, written in _SEPARATORS.items():
        if separator != csv.separator and separator != csv.quote:
            other = CsvFormat(separator=separator, quote=csv.quote, texts=csv.texts)
            if name in _fields(header, other):
                return f"with separator: {written} it has the column"
    return ""


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
            if key == "date_format" and not is_moment(types[column]):
                raise InputError(f"input.{key}.{column}: the column is read as {types[column]}")
    _check_zones(types, csv)


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
