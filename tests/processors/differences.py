"""Where two folders of plans and releases differ: file, column or field, first differing values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

# Digests follow from the rest: names of parts and fields of manifests hold them.
_DIGEST = re.compile(r"\b[0-9a-f]{16,128}\b")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One place where two folders differ.

    Attributes:
        file: the path within the folder, without digests.
        field: a column, a field of a plan or a line.
        count: how many values differ.
        values: the first pair of differing values.
    """

    file: str
    field: str
    count: int
    values: tuple[Any, Any]

    def __str__(self) -> str:
        one, other = self.values
        return f"{self.file}: {self.field}: {self.count} differ, first {one!r} and {other!r}"


def differences(one: Path, other: Path) -> Iterator[Difference]:
    """Yield the differences of two folders, file by file."""
    ours, theirs = _files(one), _files(other)
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in ours or name not in theirs:
            where = ("absent", "present") if name not in ours else ("present", "absent")
            yield Difference(file=name, field="file", count=1, values=where)
        elif (mine := ours[name].read_bytes()) != (yours := theirs[name].read_bytes()):
            yield from _of_file(name, ours[name], theirs[name], mine, yours)


def _files(folder: Path) -> dict[str, Path]:
    return {
        _DIGEST.sub("#", path.relative_to(folder).as_posix()): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".run.json")
    }


def _of_file(name: str, one: Path, other: Path, mine: bytes, yours: bytes) -> Iterator[Difference]:
    if name.endswith(".parquet"):
        found = list(_of_tables(name, pq.read_table(one), pq.read_table(other)))
    elif name.endswith(".json"):
        found = list(_of_values(name, json.loads(mine), json.loads(yours)))
    else:
        found = list(_of_lines(name, mine.decode(), yours.decode()))
    yield from found or [Difference(file=name, field="bytes", count=1, values=("same", "values"))]


def _of_tables(name: str, one: pa.Table, other: pa.Table) -> Iterator[Difference]:
    for column in sorted({*one.column_names, *other.column_names}):
        if not {column} <= {*one.column_names} & {*other.column_names}:
            yield Difference(file=name, field=column, count=1, values=("column", "no column"))
            continue
        pairs = _pairs(one[column].to_pylist(), other[column].to_pylist())
        if pairs:
            yield Difference(file=name, field=column, count=len(pairs), values=pairs[0])


def _pairs(one: list[Any], other: list[Any]) -> list[tuple[Any, Any]]:
    """The values that differ, by their text: a NaN is like itself, and -0.0 is not like 0.0."""
    if len(one) != len(other):
        return [(f"{len(one)} values", f"{len(other)} values")]
    return [pair for pair in zip(one, other, strict=True) if repr(pair[0]) != repr(pair[1])]


def _of_values(name: str, one: Any, other: Any) -> Iterator[Difference]:
    """Differences of JSON values by the path of their field; elements of lists together."""
    ours, theirs = dict(_leaves(one)), dict(_leaves(other))
    by_field: dict[str, list[tuple[Any, Any]]] = {}
    for path in ours.keys() | theirs.keys():
        pair = ours.get(path, "absent"), theirs.get(path, "absent")
        if repr(pair[0]) != repr(pair[1]):
            by_field.setdefault(re.sub(r"\[\d+\]", "[]", path), []).append(pair)
    for field, pairs in sorted(by_field.items()):
        yield Difference(file=name, field=field, count=len(pairs), values=pairs[0])


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{_DIGEST.sub('#', key)}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _leaves(each, f"{path}[{index}]")
    elif isinstance(value, str):
        yield path, _DIGEST.sub("#", value)
    else:
        yield path, value


def _of_lines(name: str, one: str, other: str) -> Iterator[Difference]:
    """Differences of a page, tag by tag."""
    pairs = _pairs(re.split(r"[\n<>]", one), re.split(r"[\n<>]", other))
    if pairs:
        short = str(pairs[0][0])[:60], str(pairs[0][1])[:60]
        yield Difference(file=name, field="text", count=len(pairs), values=short)
