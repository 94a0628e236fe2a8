"""Files of JSON lines as record batches, each file one split.

A row is a line with one object; what becomes of it depends on it alone. A value becomes the type
that its domain reads, whatever the values of other lines look like: a number and the text of one
are the same, and a value that is none of the type is missing, and follows the column's policy. So
does what is absent, null, a list or an object.
"""

import itertools
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow as pa

from dptrees.dpcore.privacy.unit import NullUnits
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.column_types import column_types
from dptrees.transforms.readers.csv_format import ROW_BYTES
from dptrees.transforms.readers.csv_values import typed
from dptrees.transforms.readers.file_columns import path_columns, path_constants, repeated
from dptrees.transforms.readers.first_bytes import START_BYTES, text_stream
from dptrees.transforms.readers.formats import reading
from dptrees.transforms.readers.json_format import DEFAULT_FORMAT, JsonFormat
from dptrees.transforms.readers.json_objects import MalformedLine, Objects, names_in
from dptrees.transforms.readers.json_start import check_lines, with_line_feeds

COUNTS_ROWS = 0
# Its beginning says how it is read.
WHOLE_BYTES = 0

_NOT_JSON = "cannot be read as JSON lines"

_MARK = b"\xef\xbb\xbf"  # the byte order mark


def splits(
    file: Any, path: str, plan: ReleasePlan, json: JsonFormat = DEFAULT_FORMAT
) -> tuple[list[tuple[int, int]], int]:
    """One split, and no count of rows. Names are not looked for: which an object has is data.

    Raises:
        InputError: the file cannot be read, or two trees read one column as different types.
    """
    column_types(plan, of="JSON")
    with reading(path, _NOT_JSON), closing(text_stream(file, path, "json")) as stream:
        _first_block(stream, path, json)
    return [(0, 0)], 0


def batches(
    file: Any, split: Any, plan: ReleasePlan, json: JsonFormat = DEFAULT_FORMAT
) -> Iterator[pa.RecordBatch]:
    """The record batches of a file, each column of the type that its domain reads.

    Raises:
        InputError: the file is damaged; or a line is malformed, and the policy is to fail.
    """
    types = column_types(plan, of="JSON")
    path_values = path_constants(split.path, path_columns(split.path).keys() & types.keys(), plan)
    inner = {name: type for name, type in types.items() if name not in path_values}
    # Rows without a unit are each their own, but not those that share one of another kind.
    units = plan.unit.columns if plan.unit.nulls is NullUnits.OWN else ()
    objects = Objects(inner, fails=json.malformed == "fail", distinct=units)
    try:
        with (
            reading(split.path, _NOT_JSON),
            closing(text_stream(file, split.path, "json")) as stream,
        ):
            for text in _whole_lines(stream, split.path, json):
                rows, texts = objects.read(text)
                if not rows:
                    continue
                columns = [
                    repeated(path_values[name], rows)
                    if name in path_values
                    else _read(texts[name], types[name])
                    for name in plan.columns
                ]
                yield pa.RecordBatch.from_arrays(columns, names=list(plan.columns))
    except MalformedLine:
        raise _malformed(split.path) from None


def describe_columns(file: Any, path: str, json: JsonFormat = DEFAULT_FORMAT) -> dict[str, str]:
    """The names in the first lines of a file, and what their values are.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        with reading(path, _NOT_JSON), closing(text_stream(file, path, "json")) as stream:
            return names_in(next(_whole_lines(stream, path, json), b""))
    except MalformedLine:
        raise _malformed(path) from None


def _read(column: pa.Array, target_type: pa.DataType) -> pa.Array:
    return column if column.type == target_type else typed(column, target_type)


def _first_block(stream: Any, path: str, json: JsonFormat) -> bytes:
    """The beginning of a file, without a byte order mark.

    Raises:
        InputError: it is not that of JSON lines.
    """
    text = b""
    while len(text) < json.block_bytes and (data := stream.read(json.block_bytes - len(text))):
        text += data
    check_lines(text[:START_BYTES], path, whole=len(text) < min(json.block_bytes, START_BYTES))
    return text.removeprefix(_MARK)


def _whole_lines(stream: Any, path: str, json: JsonFormat) -> Iterator[bytes]:
    """Blocks that end where a line ends, without lines that are too long.

    Raises:
        InputError: the file is not one of JSON lines.
        MalformedLine: a line is too long, and the policy is to fail.
    """
    text, too_long = b"", False
    blocks = iter(partial(stream.read, json.block_bytes), b"")
    for data in itertools.chain([_first_block(stream, path, json)], blocks, [b"\n"]):
        text += with_line_feeds(data)
        first, last = text.find(b"\n") + 1, text.rfind(b"\n") + 1
        too_long = too_long or (first - 1 if first else len(text)) > json.row_bytes
        if too_long and json.malformed == "fail":
            raise MalformedLine
        if last:
            # Only the first line has begun in an earlier block: the others are no longer than one.
            yield text[first if too_long else 0 : last]
            text, too_long = text[last:], False
        elif too_long:
            text = b""


def _malformed(path: str) -> InputError:
    return InputError(
        f"input: {path} has a malformed line, and input.malformed is fail: each holds one JSON "
        f"object, in UTF-8, in at most {ROW_BYTES // 2**20} MiB"
    )
