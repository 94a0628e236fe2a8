"""Odd rows by the command: the same exit code, the same files with as many rows, nothing said.

`tests/dpcore/test_row_fates.py` tries many more of them on arrays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.pipelines.run import releasing
from tests.dpcore.odd_rows import as_texts
from tests.pipelines.conftest import Outcome, Workspace, update

CODES = ["0100", "0101", "0110", "1200"]
WORDS = [f"word {number}" for number in range(4200)]  # too many for Arrow's index_in
EACH = 60
TEXTS = ("word", "place", "url", "label")
WHOLE = ("number", "address", "key", "rank", "year")
Fates = dict[str, int]


class Everything(Workspace):
    """Rows of every kind of column, many alike, so that the same nodes pass any threshold."""

    def write_rows(self, **_: Any) -> None:
        self.rows.mkdir(exist_ok=True)
        pq.write_table(pa.table({"place": CODES}), self.folder / "codes.parquet")
        pq.write_table(self.ordinary, self.rows / "rows.parquet")

    @property
    def ordinary(self) -> pa.Table:
        place = np.arange(4 * EACH) % 4
        return pa.table(
            {
                "x": pa.array(place * 1.5),
                "number": pa.array(place),
                "key": pa.array(place),
                "rank": pa.array(place // 2),
                "year": pa.array(2000 + place),
                "address": pa.array((10 << 24) + place // 2),
                "word": pa.array([WORDS[i] for i in place]),
                "place": pa.array([CODES[i] for i in place]),
                "url": pa.array([("a/b", "a/c")[i // 2] for i in place]),
                "label": pa.array(["US"] * len(place)),
                "amount": pa.array(place),
            }
        )

    @property
    def settings(self) -> dict[str, Any]:
        number = {"column": "number", "type": "integer", "lower": 0, "upper": 8}
        words = {"column": "word", "type": "category", "categories": WORDS}
        years = {"column": "year", "type": "category", "categories": [2000, 2001, 2003]}
        codes = {"kind": "hierarchy", "column": "place", "digits": [2, 2]}
        codes |= {"levels": ["state", "county"], "table": str(self.folder / "codes.parquet")}
        sums = {"column": "amount", "lower": -5, "upper": 50}
        sparse = {"kind": "sparse"}
        x = {"column": "x", "lower": 0, "upper": 8, "cells": 8}
        two_words = {"column": "word", "keys": WORDS[:2], "unknown": "other"}
        trees: dict[str, dict[str, Any]] = {
            "numbers": {"domain": number, "group_by": {"column": "key", "keys": [0, 3, 2**53 + 1]}},
            "words": {"domain": words},
            "years": {"domain": years | {"unknown": "first", "missing": "last"}},
            "keyed": {"domain": x, "group_by": two_words},
            "places": {"domain": codes | {"unknown": "other"}, "measure": sums},
            "addresses": {"domain": sparse | {"column": "address", "bits": [8, 24]}},
            "urls": {"domain": sparse | {"column": "url", "separator": "/", "depth": 2}},
            "labels": {"domain": sparse | {"columns": ["label", "rank"]}},
        }
        return super().settings | {
            "privacy": {"epsilon": 80, "delta": 1e-6, "neighbors": "add_remove"},
            "trees": [{"name": name} | tree for name, tree in trees.items()],
        }


def fates(workspace: Everything, outcome: Outcome) -> tuple[int, str, Fates]:
    """The exit code, what it said on the error stream, and the rows of each file of the output."""
    said = outcome.err.replace(str(workspace.folder), "")
    found = {}
    for path in sorted(workspace.output.rglob("*")):
        name = re.sub("[0-9a-f]{16}", "digest", str(path.relative_to(workspace.output)))
        if path.is_file():
            found[name] = pq.read_metadata(path).num_rows if path.suffix == ".parquet" else 0
    return outcome.code, said, found


@pytest.fixture(scope="module", autouse=True)
def without_a_page() -> Iterator[None]:
    """No release has a page, which is tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(releasing, "write_report", lambda output: None)
        yield


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a release of the ordinary rows leaves."""
    workspace = Everything(tmp_path_factory.mktemp("ordinary"))
    found = fates(workspace, workspace.release())
    assert found[0] == 0, found[1]
    return found


def changed(rows: pa.Table, **columns: pa.Array) -> pa.Table:
    for name, column in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows


def with_null_numbers(rows: pa.Table) -> pa.Table:
    """What pandas writes of integers with a null among them; and other numbers that are none."""
    odd = pa.array([None, np.nan, np.inf, 0.5, 2.0**53, -1e300])
    return _extended(rows, dict.fromkeys((*WHOLE, "amount", "x"), odd), len(odd))


def with_bytes(rows: pa.Table) -> pa.Table:
    """Strings that are not UTF-8, which no reader of Parquet files looks at."""
    odd = as_texts([b"\xff", b"word 1\xff", b"a/\xc3", b"\xed\xa0\x80", b"", b"\0"], pa.string())
    return _extended(rows, dict.fromkeys(TEXTS, odd), len(odd))


def as_views(rows: pa.Table) -> pa.Table:
    rows = _extended(rows, {}, 1)
    return changed(rows, **{name: rows[name].cast(pa.string_view()) for name in TEXTS})


def as_binary(rows: pa.Table) -> pa.Table:
    """What becomes of a column of strings in which one value is bytes."""
    odd = pa.array([b"\xff\x00", None])
    return _extended(rows, dict.fromkeys(TEXTS, odd), len(odd))


def as_dictionaries(rows: pa.Table) -> pa.Table:
    rows = _extended(rows, {}, 1)
    return changed(rows, **{name: rows[name].dictionary_encode() for name in TEXTS})


def _extended(rows: pa.Table, odd: dict[str, pa.Array], many: int) -> pa.Table:
    """The rows, and odd ones at their beginning; the others' columns are null there."""
    columns = {}
    for name in rows.column_names:
        own = rows[name].combine_chunks()
        more = odd.get(name, pa.nulls(many, own.type))
        columns[name] = pa.concat_arrays([more, own.cast(more.type)])
    return pa.table(columns)


def nothing(rows: pa.Table) -> pa.Table:
    return pa.table({name: pa.nulls(1) for name in rows.column_names})


CHANGES: list[Callable[[pa.Table], pa.Table]] = [with_null_numbers, with_bytes, as_views]
FILES = [*CHANGES, as_binary, as_dictionaries, nothing]


@pytest.mark.parametrize("change", CHANGES)
def test_an_odd_row_leaves_the_release_as_it_is(
    change: Callable[[pa.Table], pa.Table],
    expected: tuple[int, str, Fates],
    tmp_path: Path,
) -> None:
    workspace = Everything(tmp_path)
    pq.write_table(change(workspace.ordinary), workspace.rows / "rows.parquet")
    assert fates(workspace, workspace.release()) == expected


def test_files_of_several_types(expected: tuple[int, str, Fates], tmp_path: Path) -> None:
    workspace = Everything(tmp_path)
    for number, change in enumerate(FILES):
        pq.write_table(change(workspace.ordinary), workspace.rows / f"rows-{number}.parquet")
    assert fates(workspace, workspace.release()) == expected


def test_odd_fields_of_csv_lines(expected: tuple[int, str, Fates], tmp_path: Path) -> None:
    workspace = Everything(tmp_path)
    path = workspace.rows / "rows.csv"
    # A file without types has addresses as they are written.
    dotted = pa.array([f"10.0.0.{n % 4 // 2}" for n in range(4 * EACH)])
    rows = changed(workspace.ordinary, address=dotted)
    lines = [",".join(map(str, row)) for row in zip(*rows.to_pydict().values(), strict=True)]
    odd = ["", "kumquat", "1e400", "-0", " 1", "٣", "9" * 30, "NaN", "2013-02-30", "a//b"]
    lines += [",".join([field] * rows.num_columns) for field in odd]
    path.write_text("\n".join([",".join(rows.column_names), *lines]) + "\n", encoding="utf-8")

    csv = update(input={"format": "csv", "path": str(path)})
    assert fates(workspace, workspace.release(csv)) == expected
