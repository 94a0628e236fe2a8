"""Files of JSON lines as record batches: a row is a line with one object, each file one split.

A value becomes the type that its domain reads, whatever the values of other lines are. Arrow's
parser refuses a whole block for one line, so it gets only blocks for which it certainly agrees
with Python's parser, which reads each line by itself: each line begins with `{` and ends with
`}`, there are as many rows as lines, no object is nested more than 100 deep, all is UTF-8
without half surrogate pairs, `NaN` or `Inf`, and every value has its column's type. Where a name
occurs twice in an object its last value counts. A file of another format (an array, XML) is
refused by its first lines, since its rows would all be lost as malformed ones.
"""

import codecs
import io
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from dptrees.dpcore.privacy.unit import NullUnits
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder.listing import path_columns
from dptrees.transforms.readers.csv_format import ROW_BYTES, MalformedRow, TextFormat, is_utf8
from dptrees.transforms.readers.csv_values import is_number, typed
from dptrees.transforms.readers.file_columns import column_types, path_constants, repeated
from dptrees.transforms.readers.formats import (
    START_BYTES,
    binary_kind,
    compression_of,
    decompressed_start,
    is_utf16,
    reading,
    text_kind,
    text_stream,
)


@dataclass(frozen=True, kw_only=True)
class JsonFormat(TextFormat):
    """The rules for a row of a file of JSON lines: a line that holds one object, in UTF-8.

    Args:
        malformed: ``drop`` leaves out every other line, by itself, but for empty ones, which are no
            rows; ``fail`` refuses the file, which reveals something about a row.
        row_bytes: the longest line that is not malformed, without its end.
        block_bytes: how much is read at a time, at most `row_bytes`.

    >>> JsonFormat().malformed
    'drop'
    """


DEFAULT_FORMAT = JsonFormat()


_OPEN, _CLOSE, _LIST = b"{}["
_DOUBTFUL = (b"\\ud", b"\\uD", b"NaN", b"Inf")
_LINES_SEEN = 1000
_DEEPEST = 100
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(rb"[][{}]")
_KINDS = {str: "text", list: "list", type(None): "null"}
_TRUTHS = {True: "true", False: "false"}

# Numbers as they are written: their values depend on their column.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


class Objects:
    """Reads blocks of lines.

    Args:
        columns: by name, the type that is read of each. A name with dots is that of a field, unless
            an object has a value of this very name.
        fails: whether a malformed line is refused.
        distinct: columns in which lists, objects and strings with half a letter are values, as they
            are written with their names in order; in other columns they are missing.
    """

    def __init__(
        self, columns: dict[str, pa.DataType], *, fails: bool, distinct: Collection[str] = ()
    ) -> None:
        self._columns, self._fails, self._distinct = columns, fails, frozenset(distinct)
        self._schema = _arrow_schema(columns)
        self._finders = {name: _finder(name) for name in columns}

    def read(self, text: bytes) -> tuple[int, dict[str, pa.Array]]:
        """The number of rows of a block and its columns: of numbers in the requested type or as
        strings, all others as strings.

        Args:
            text: whole lines.

        Raises:
            MalformedRow: a line holds no object.
        """
        return self._parsed(text) or self._line_by_line(text)

    def _parsed(self, text: bytes) -> tuple[int, dict[str, pa.Array]] | None:
        lines = None if self._schema is None else _plain_lines(text)
        if lines is None:
            return None
        try:
            table = pa_json.read_json(
                io.BytesIO(text),
                read_options=pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
                parse_options=pa_json.ParseOptions(
                    explicit_schema=self._schema, unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowException:
            return None
        if table.num_rows != lines:
            return None
        whole = table.combine_chunks()
        return lines, {name: _within(whole, name) for name in self._columns}

    def _line_by_line(self, text: bytes) -> tuple[int, dict[str, pa.Array]]:
        objects = []
        for line in text.split(b"\n"):
            if line.isspace() or not line:
                continue
            found = parse_object(line)
            if found is not None:
                objects.append(found)
            elif self._fails:
                raise MalformedRow
        return len(objects), {name: self._texts(name, objects) for name in self._columns}

    def _texts(self, name: str, objects: Sequence[dict[str, Any]]) -> pa.Array:
        find, number = self._finders[name], is_number(self._columns[name])
        found = map(find, objects)
        if name in self._distinct:
            found = map(_as_written, found)
        return _array([_text(each, as_number=number) for each in found])


def names_in(text: bytes) -> dict[str, str]:
    """The names of the objects of some lines, fields with dots, and what their values are.

    >>> names_in(b'{"a": 1, "b": {"c": "x"}}\\n{"a": "y", "d": null}\\n')
    {'a': 'number or text', 'b.c': 'text', 'd': 'null'}
    """
    kinds: dict[str, dict[str, None]] = {}
    for line in text.split(b"\n")[:_LINES_SEEN]:
        for name, value in _flattened(parse_object(line, json.JSONDecoder()) or {}):
            kinds.setdefault(name, {})[_json_kind(value)] = None
    return {name: _in_words(list(found)) for name, found in kinds.items()}


def _flattened(found: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in found.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{before}{name}.")
        else:
            yield before + name, value


def _json_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    return _KINDS.get(type(value), "number")


def _in_words(kinds: Sequence[str]) -> str:
    return " or ".join(kind for kind in kinds if kind != "null" or len(kinds) == 1)


def _arrow_schema(columns: dict[str, pa.DataType]) -> pa.Schema | None:
    """The schema for Arrow's parser; None where a column is both a value and an object."""
    tree: dict[str, Any] = {}
    for name, type in columns.items():
        read = type if is_number(type) else pa.string()
        parts = name.split(".")
        places = [parts, [name]] if len(parts) > 1 else [parts]
        for place in places:
            inner = tree
            for part in place[:-1]:
                inner = inner.setdefault(part, {})
                if not isinstance(inner, dict):
                    return None
            if inner.setdefault(place[-1], read) != read:
                return None
    return pa.schema(_fields(tree))


def _fields(tree: dict[str, Any]) -> list[pa.Field]:
    return [
        pa.field(name, pa.struct(_fields(type)) if isinstance(type, dict) else type)
        for name, type in tree.items()
    ]


def _plain_lines(text: bytes) -> int | None:
    """Return the number of lines; None if Arrow might read one of them differently."""
    if any(mark in text for mark in _DOUBTFUL) or not is_utf8(text):
        return None
    codes = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(codes == ord(b"\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    last = ends - 1
    if not (starts < last).all():
        return None
    opened = np.add.reduceat((codes == _OPEN) | (codes == _LIST), starts, dtype=np.int64)
    plain = (codes[starts] == _OPEN) & (codes[last] == _CLOSE) & (opened <= _DEEPEST)
    return len(ends) if plain.all() else None


def _within(table: pa.Table, name: str) -> pa.Array:
    """A column of what Arrow read: of its very name, or of a field."""
    own = _whole(table, name)
    if "." not in name:
        return own
    first, *inner = name.split(".")
    column = _whole(table, first)
    for part in inner:
        column = pc.struct_field(column, column.type.get_field_index(part))
    return pc.coalesce(own, column)


def _whole(table: pa.Table, name: str) -> pa.Array:
    (chunk,) = table.column(name).chunks
    return chunk


def parse_object(line: bytes, decoder: json.JSONDecoder = _DECODER) -> dict[str, Any] | None:
    """The object of a line; None where it holds none, or is nested too deep.

    >>> parse_object(b'{"age": 41}'), parse_object(b"[41]")
    ({'age': '41'}, None)
    """
    if _is_deep(line):
        return None
    try:
        found = decoder.decode(line.decode())
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _is_deep(line: bytes) -> bool:
    """Whether values lie in more others than are read."""
    if line.count(b"{") + line.count(b"[") <= _DEEPEST:
        return False
    depths = itertools.accumulate(
        1 if bracket in b"[{" else -1 for bracket in _BRACKET.findall(_TEXT.sub(b"", line))
    )
    return max(depths, default=0) > _DEEPEST


def _finder(name: str) -> Callable[[dict[str, Any]], Any]:
    """Return a function that finds the value of a column in an object."""
    if "." not in name:
        return lambda found: found.get(name)
    parts = name.split(".")

    def find(found: dict[str, Any]) -> Any:
        own = _text(found.get(name), as_number=False)
        if own is not None:
            return found[name]
        value: Any = found
        for part in parts:
            value = value.get(part) if isinstance(value, dict) else None
        return value

    return find


def _text(value: Any, *, as_number: bool) -> str | None:
    """The text of a value; None of null, and of an object or list, which is no value."""
    if isinstance(value, bool):
        return str(int(value)) if as_number else _TRUTHS[value]
    return value if isinstance(value, str) else None


def _as_written(value: Any) -> Any:
    """A value; of one that would be missing, and is something, how it is written."""
    is_odd = isinstance(value, (dict, list)) or (isinstance(value, str) and not _is_written(value))
    return json.dumps(value, sort_keys=True) if is_odd else value


def _array(texts: list[str | None]) -> pa.Array:
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:  # half of a pair is no letter
        return pa.array([each if _is_written(each) else None for each in texts], pa.string())


def _is_written(text: str | None) -> bool:
    try:
        return text is not None and bool(text.encode() or True)
    except UnicodeEncodeError:
        return False


_BEGUN = re.compile(rb"\s*[{[]")
# The mark of XML, or bytes that no text has.
_OTHER = re.compile(rb"\s*<|.*[\x00-\x08\x0e-\x19\x1c-\x1f]", re.DOTALL)
# So many lines that begin as objects, and are none, are no file of JSON lines.
_ENOUGH = 10
_CURE = "write each object on a line of its own, as by jq -c"
_ARRAY = f"holds an array, which is not read: {_CURE} '.[]'"


def with_line_feeds(text: bytes) -> bytes:
    """A text in which every line ends with LF: no text of JSON holds an end of line.

    >>> with_line_feeds(b"{}\\r\\n{}\\r")
    b'{}\\n{}\\n'
    """
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in text else text


def check_lines(start: bytes, path: str, *, whole: bool) -> None:
    """Refuse a file that is not one of JSON lines.

    Args:
        start: its first bytes, decompressed.
        path: of it, for messages.
        whole: whether they are all bytes; else the last line may go on.

    Raises:
        InputError: it is in UTF-16, holds an array or objects over several lines, or has no line
            with an object.
    """
    if fault := _fault(start, whole):
        raise InputError(f"input: {path} {fault}")


def check_stored_lines(start: bytes, path: str) -> None:
    """Refuse a file that is not one of JSON lines, as `check_lines` does.

    Args:
        start: its first bytes as they are stored, at most `START_BYTES`.
        path: of it, for messages.

    Raises:
        InputError: as of `check_lines`.
    """
    text = decompressed_start(start)[:START_BYTES]
    check_lines(text, path, whole=max(len(start), len(text)) < START_BYTES)


def _fault(start: bytes, whole: bool) -> str:
    if compression_of(start):
        return "is compressed twice: decompress it"
    # The bytes of a compressed file may be of any kind, and a line of them may begin as an object.
    if kind := binary_kind(start, "json"):
        return kind
    if is_utf16(start):
        return "is in UTF-16: write UTF-8"
    text = with_line_feeds(start.removeprefix(codecs.BOM_UTF8))
    lines = text.split(b"\n")
    begun = next((place for place, each in enumerate(lines) if _BEGUN.match(each)), None)
    if begun is None:
        is_one = sum(bool(each.strip()) for each in lines) < 2 and not _OTHER.match(text)
        return "" if is_one else _not_json(text)
    is_array, is_open = (
        lines[begun].lstrip().startswith(b"["),
        not whole and begun == len(lines) - 1,
    )
    if is_open:
        return _ARRAY if is_array else ""
    if parse_object(lines[begun]) is not None:
        return ""
    read = [each for each in (lines[begun:] if whole else lines[begun:-1]) if each.strip()]
    earlier = sum(bool(each.strip()) for each in lines[:begun])
    holds, are_enough = _hold_object(read), earlier + len(read) >= _ENOUGH
    spans, goes_on = _first_value(read)
    if is_array:
        return _ARRAY if spans or not holds else ""
    joined = (are_enough and _end_in_commas(read)) or read[0].count(b"}{") >= _ENOUGH
    if spans or joined or (goes_on and are_enough and not holds):
        return f"holds objects that go over several lines, or end in commas: {_CURE}"
    return _not_json(text) if are_enough and not holds else ""


def _first_value(lines: Sequence[bytes]) -> tuple[bool, bool]:
    """Whether the first value of lines ends on a later line, and whether it goes on behind all."""
    text = b"\n".join(lines).strip().decode(errors="replace")
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        return False, error.pos >= len(text) - 1
    except RecursionError:
        return False, False
    return end > len(lines[0].strip().decode(errors="replace")), False


def _end_in_commas(lines: Sequence[bytes]) -> bool:
    """Whether all lines but the last are objects with a comma."""
    objects = (each.strip()[:-1] for each in lines[:-1] if each.strip().endswith(b","))
    return sum(parse_object(each) is not None for each in objects) == len(lines) - 1


def _hold_object(lines: Sequence[bytes]) -> bool:
    return any(parse_object(each) is not None for each in lines)


def _not_json(text: bytes) -> str:
    kind = text_kind(text)
    more = "" if not kind or "JSON" in kind else f"; {kind}"
    return f"is not a file of JSON lines: none of its first lines is an object{more}"


COUNTS_ROWS = 0
# Its beginning says how it is read.
WHOLE_BYTES = 0

_NOT_JSON = "cannot be read as JSON lines"


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
    except MalformedRow:
        raise _malformed(split.path) from None


def describe_columns(file: Any, path: str, json: JsonFormat = DEFAULT_FORMAT) -> dict[str, str]:
    """The names in the first lines of a file, and what their values are.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        with reading(path, _NOT_JSON), closing(text_stream(file, path, "json")) as stream:
            return names_in(next(_whole_lines(stream, path, json), b""))
    except MalformedRow:
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
    return text.removeprefix(codecs.BOM_UTF8)


def _whole_lines(stream: Any, path: str, json: JsonFormat) -> Iterator[bytes]:
    """Blocks that end where a line ends, without lines that are too long.

    Raises:
        InputError: the file is not one of JSON lines.
        MalformedRow: a line is too long, and the policy is to fail.
    """
    text, too_long = b"", False
    blocks = iter(partial(stream.read, json.block_bytes), b"")
    for data in itertools.chain([_first_block(stream, path, json)], blocks, [b"\n"]):
        text += with_line_feeds(data)
        first, last = text.find(b"\n") + 1, text.rfind(b"\n") + 1
        too_long = too_long or (first - 1 if first else len(text)) > json.row_bytes
        if too_long and json.malformed == "fail":
            raise MalformedRow
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
