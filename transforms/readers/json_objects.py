"""Objects of JSON, one a line, as columns of strings and numbers.

Arrow's parser reads a block at a time and refuses all of it for one line, joins lines, and takes
several objects of one line as rows. So it gets only blocks for which it certainly agrees with the
slow reader, which reads each line by itself with Python's parser:

- each line begins with `{` and ends with `}`, and there are as many rows as lines. Then no object
  goes on over the end of a line: what follows a complete value in an object or a list is a comma or
  a bracket, and no text of JSON holds an end of line;
- no object is nested more than 100 deep: such a line is malformed, whatever the parser could bear;
- all is UTF-8, and there is no letter of half a pair (`\\ud83d`), and no `NaN` or `Inf`, which
  the two parsers treat differently;
- every value is of the type that its column is read as; else Arrow refuses.

A name that an object has twice has its last value; Arrow refuses such a block.
"""

import io
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from dptrees.transforms.readers.csv_encodings import is_utf8

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


class MalformedLine(Exception):
    """There is a malformed line, and the policy is to fail."""


class Objects:
    """Reads blocks of lines.

    Args:
        columns: by name, the type that is read of each. A name with dots is that of a field, unless
            an object has a value of this very name.
        fails: whether a malformed line is refused.
        told_apart: columns whose lists, objects and strings with half a letter are not missing, but
            values, each as it is written with its names in order.
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
            MalformedLine: a line holds no object.
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
                raise MalformedLine
        return len(objects), {name: self._texts(name, objects) for name in self._columns}

    def _texts(self, name: str, objects: Sequence[dict[str, Any]]) -> pa.Array:
        find, number = self._finders[name], _is_number(self._columns[name])
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
        read = type if _is_number(type) else pa.string()
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


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type))


def _plain_lines(text: bytes) -> int | None:
    """How many lines there are; None where Arrow might read one otherwise."""
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
    """What finds the value of a column in an object."""
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
