"""Where two folders of plans and releases differ: file, column or field, first differing values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

# Digests follow from the rest: names of parts and fields of manifests hold them.
_DIGEST = re.compile(r"\b[0-9a-f]{16,128}\b")


def differences(one: Path, other: Path) -> Iterator[str]:
    """Yield the differences of two folders, file by file."""
    ours, theirs = _files(one), _files(other)
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in ours or name not in theirs:
            yield f"{name}: only in {one if name in ours else other}"
        elif ours[name].read_bytes() != theirs[name].read_bytes():
            mine, yours = _fields(ours[name]), _fields(theirs[name])
            found = [
                f"{name}: {field}: {_first(mine.get(field, []), yours.get(field, []))}"
                for field in sorted(mine.keys() | yours.keys())
                if mine.get(field) != yours.get(field)
            ]
            yield from found or [f"{name}: other bytes, the same values"]


def _files(folder: Path) -> dict[str, Path]:
    return {
        _DIGEST.sub("#", path.relative_to(folder).as_posix()): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".run.json")
    }


def _fields(path: Path) -> dict[str, list[str]]:
    """The values of each column, of each field of JSON, or of each line, as strings: a NaN is like
    itself, and -0.0 is not like 0.0."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        return {name: [*map(repr, table[name].to_pylist())] for name in table.column_names}
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return dict(_leaves(json.loads(text)))
    return {f"part {place}": [part] for place, part in enumerate(re.split(r"[\n<>]", text))}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, list[str]]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{_DIGEST.sub('#', key)}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _leaves(each, f"{path}[{index}]")
    else:
        yield path, [_DIGEST.sub("#", repr(value))]


def _first(one: list[str], other: list[str]) -> str:
    """The first values that differ."""
    pairs = zip_longest(one, other, fillvalue="nothing")
    mine, yours = next(pair for pair in pairs if pair[0] != pair[1])
    return f"{mine[:60]} and {yours[:60]}"
