"""Whether a file is one of JSON lines, by its first lines.

A malformed line is left out by itself. But a file of another format is nothing but such lines: an
array, an object that goes over several lines, XML. Its rows would be lost without a word, so it is
refused. One line with an object is enough for a file to be read. One line alone, or a few that
begin as objects, may be malformed rows: they decide nothing but as marks of another format.
"""

import codecs
import json
import re
from collections.abc import Sequence

from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.first_bytes import (
    START_BYTES,
    decompressed_start,
    is_utf16,
    text_kind,
)
from dptrees.transforms.readers.json_objects import parse_object

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
    holds, are_enough = _hold_object(read), len(read) >= _ENOUGH
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
