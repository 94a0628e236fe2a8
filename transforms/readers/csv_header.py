"""The names of the columns of a CSV file, and the errors where they do not match a plan.

The names in a header are public. But who reads a file without a header as if it had one takes its
first row for names: where one of them is a number, a date or nothing, or too long, none is shown.
"""

import codecs
import difflib
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.csv_encodings import UTF_8, NoByteOrderMark
from dptrees.transforms.readers.csv_format import CsvFormat
from dptrees.transforms.readers.csv_lines import MalformedHeader, read_header, read_start
from dptrees.transforms.readers.file_columns import path_columns

_SHOWN_NAMES = 20
_LETTERS = 100  # of a name; what is longer is text of a file that is read in a wrong way
_SEPARATORS = {";": '";"', "\t": '"\\t"', "|": '"|"', ",": '","'}
_LINES_BEFORE = "if lines are before the header, say skip_lines or comment"
_DATA = re.compile(r"\s*|\s*[-+(]?[$€£]?[0-9][0-9 .,:/T+Z%-]*\)?\s*")


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
            raise InputError(f"input: {path} has no column {name!r}; {_hint(name, header, csv)}")
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
    encoding = "UTF-8" if csv.encoding == UTF_8 else csv.encoding
    quoted = "" if csv.quote is None else ", in which every quote is closed"
    more = "; if it is in another encoding, say which by encoding" if csv.encoding == UTF_8 else ""
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        more = "; it begins as UTF-16 does: say encoding: utf-16"
    return InputError(
        f"input: {path} is not a CSV file in {encoding} that begins with a header{quoted}{more}"
    )


def _hint(name: str, header: bytes, csv: CsvFormat) -> str:
    """What a file has instead of a column, and what may be meant."""
    names = _fields(header, csv)
    separated = _separated(name, header, csv)
    if len(names) == 1 and separated:
        # It has a requested name: so this is a header, however long it is.
        more = "..." if len(names[0]) > _LETTERS else ""
        return f"its one column is {_shown(names[0][:_LETTERS])}{more}; {separated}"
    if any(_DATA.fullmatch(each) or len(each) > _LETTERS for each in names):
        return (
            "its first line does not look like a header, since a name in it is empty, a number, a "
            f"date or over {_LETTERS} letters (none is shown); if the file has no header, say "
            f"header: false and columns: [...]; {_LINES_BEFORE}"
        )
    listed = ", ".join(map(_shown, names[:_SHOWN_NAMES]))
    more = "" if len(names) <= _SHOWN_NAMES else f" and {len(names) - _SHOWN_NAMES} more"
    found = f"its columns are {listed}{more}" if len(names) > 1 else f"its one column is {listed}"
    meant = _meant(name, names, header, csv) or (_LINES_BEFORE if len(names) == 1 else "")
    return f"{found}; {meant}" if meant else found


def _separated(name: str, header: bytes, csv: CsvFormat) -> str:
    """With which separator a file has a column."""
    for separator, written in _SEPARATORS.items():
        if separator != csv.separator and separator != csv.quote:
            other = CsvFormat(separator=separator, quote=csv.quote, texts=csv.texts)
            if name in _fields(header, other):
                return f"with separator: {written} it has the column"
    return ""


def _meant(name: str, names: list[str], header: bytes, csv: CsvFormat) -> str:
    if separated := _separated(name, header, csv):
        return separated
    if name in [each.strip() for each in names]:
        return "with trim: true it has the column"
    plain = {each.strip().casefold(): each for each in reversed(names)}
    near = difflib.get_close_matches(name.casefold(), plain, n=1)
    return f"did you mean {_shown(plain[near[0]])}?" if near else ""


def _shown(name: str) -> str:
    """A name as it is, where it is plain."""
    return name if name.isprintable() and name == name.strip() else repr(name)
