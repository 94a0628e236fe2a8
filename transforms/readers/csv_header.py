"""The names of the columns of a CSV file, and the errors where they do not match a plan.

The names in a header are public. But the first row of a file without a header looks like names:
`transforms.readers.shown_names` decides whether a message shows them.
"""

import codecs
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.csv_encodings import UTF_8, NoByteOrderMark
from dptrees.transforms.readers.csv_format import CsvFormat
from dptrees.transforms.readers.csv_lines import MalformedHeader, read_header, read_start
from dptrees.transforms.readers.file_columns import path_columns
from dptrees.transforms.readers.shown_names import columns_found, may_show

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
    try:
        return _names_and_rest(stream, path, wanted, csv)
    except MalformedHeader as error:
        raise _no_header(path, error.start, csv) from None
    except NoByteOrderMark:
        raise InputError(
            f"input: {path} is not in utf-16, which begins with a byte order mark; without one it "
            "is utf-16-le or utf-16-be"
        ) from None


def _names_and_rest(
    stream: Any, path: str, wanted: Sequence[str], csv: CsvFormat
) -> tuple[list[str], bytes, CsvFormat]:
    path_values = path_columns(path)
    if csv.columns:
        check_named([name for name in wanted if name not in path_values], csv)
        return list(csv.columns), read_start(stream, csv), csv
    header, rest, csv = read_header(stream, csv)
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
    """How Arrow parts fields."""
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
    """What a file has instead of a column, and what may be meant."""
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
    """With which separator a file has a column."""
    for separator, written in _SEPARATORS.items():
        if separator != csv.separator and separator != csv.quote:
            other = CsvFormat(separator=separator, quote=csv.quote, texts=csv.texts)
            if name in _fields(header, other):
                return f"with separator: {written} it has the column"
    return ""
