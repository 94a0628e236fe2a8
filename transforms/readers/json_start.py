"""Whether a file is one of JSON lines, by its first lines.

A malformed line is left out by itself. But a file of another format is nothing but such lines: an
array, an object that goes over several lines, XML. Its rows would be lost without a word, so it is
refused. One line with an object is enough for a file to be read.
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
        return _not_json(text) if text.strip() else ""
    is_array, is_open = (
        lines[begun].lstrip().startswith(b"["),
        not whole and begun == len(lines) - 1,
    )
    if is_open:
        return _ARRAY if is_array else ""
    if parse_object(lines[begun]) is not None:
        return ""
    fault = _fault_of_lines(lines[begun:] if whole else lines[begun:-1], whole)
    return _ARRAY if fault and is_array else fault


def _fault_of_lines(lines: Sequence[bytes], whole: bool) -> str:
    """The fault of lines; the first one begins with a bracket and is no object alone."""
    lines = [each for each in lines if each.strip()]
    text = b"\n".join(lines).strip().decode(errors="replace")
    first = len(lines[0].strip().decode(errors="replace"))
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        is_long = error.pos >= len(text) - 1  # it goes on behind all that was read
    except RecursionError:
        is_long = False
    else:
        has_comma = text[end:].lstrip().startswith(",")  # then at most the last line is an object
        is_long = end > first or (has_comma and not _hold_object(lines[:-1]))
    if is_long:
        return f"holds objects that go over several lines, or end in commas: {_CURE}"
    is_undecided = not whole and len(lines) == 1
    return "" if is_undecided or _hold_object(lines) else _not_json(text.encode())


def _hold_object(lines: Sequence[bytes]) -> bool:
    return any(parse_object(each) is not None for each in lines)


def _not_json(text: bytes) -> str:
    kind = text_kind(text)
    more = "" if not kind or "JSON" in kind else f"; {kind}"
    return f"is not a file of JSON lines: none of its first lines is an object{more}"
