"""Who is one person, whatever the format: two ids that differ stay two units, none is rounded."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.unit import UnitType
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.formats import find_reader
from tests.transforms.readers.read_files import (
    column_unit,
    make_plan,
    read_batches,
    unit_ids,
    unit_plan,
)

FORMATS = ("parquet", "arrow", "csv", "json")
# Neighbors that a double cannot distinguish, of 16 and of 20 digits.
LARGE = (2**53, 2**53 + 1, 20261123000000001, 20261123000000002)
LONGER = (12345678901234567890, 12345678901234567891)


def written(format: str, ids: pa.Array, folder: Path) -> str:
    """Write a file of one row for each id, and return its path."""
    table = pa.table({"id": ids, "x": pa.array([1] * len(ids))})
    path = str(folder / f"rows.{format}")
    if format == "parquet":
        pq.write_table(table, path)
    elif format == "arrow":
        feather.write_feather(table, path, version=2)
    else:
        texts = [each if isinstance(each, str) else f"{each}" for each in ids.to_pylist()]
        Path(path).write_text("".join(_lines(format, texts, ids)))
    return path


def _lines(format: str, written: list[str], ids: pa.Array) -> list[str]:
    if format == "csv":
        return ["id,x\n", *(f"{each},1\n" for each in written)]
    quoted = pa.types.is_string(ids.type)
    return [f'{{"id": {json.dumps(each) if quoted else each}, "x": 1}}\n' for each in written]


def units(
    format: str, ids: pa.Array, folder: Path, type: UnitType | None = None
) -> list[str | None]:
    """Return the id of each row's unit; None of a row without one."""
    batches = read_batches(format, written(format, ids, folder), unit_plan(type))
    return [unit for batch in batches for unit in unit_ids(batch["id"], type)]


@pytest.mark.parametrize("format", FORMATS)
def test_large_ids_stay_apart(format: str, tmp_path: Path) -> None:
    decimals = pa.array([Decimal(each) for each in (*LARGE, *LONGER)], pa.decimal128(30, 0))
    for type in (None, UnitType.INTEGER):
        for ids in (pa.array(LARGE, pa.int64()), decimals):
            found = units(format, ids, tmp_path, type)
            assert len(set(found)) == len(ids) and None not in found, (type, ids.type)


@pytest.mark.parametrize("format", FORMATS)
def test_an_integer_is_one_unit_however_it_is_written(format: str, tmp_path: Path) -> None:
    """In files of numbers, of floats because another row has none, of decimals, and of strings."""
    ids = [
        pa.array([7, 8]),
        pa.array([7.0, 8.0]),
        pa.array([Decimal("7.00"), Decimal("8.00")]),
        pa.array(["7.0", "008"]),
    ]
    found = [units(format, each, tmp_path, UnitType.INTEGER) for each in ids]
    assert len(set(found[0])) == 2 and found.count(found[0]) == len(ids)


@pytest.mark.parametrize("format", ["csv", "json"])
def test_without_a_type_a_text_is_a_unit(format: str, tmp_path: Path) -> None:
    """Check units without a type, as docs/bounding.md describes them."""
    found = units(format, pa.array(["7", "7.0", "07", "7x"]), tmp_path)
    assert len(set(found)) == 4


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_no_integer_has_no_unit(format: str, tmp_path: Path) -> None:
    """It follows the policy of nulls, and stops nothing."""
    texts = pa.array(["7", "7.5", "1e3", "x", "--1", "٣", "0x10", "1_000", "\t9 "])
    found = units(format, texts, tmp_path, UnitType.INTEGER)
    assert [each is None for each in found] == [False, *[True] * 7, False]
    if format == "parquet":  # 2^53 as a double may have been 2^53 + 1
        floats = [2.0**53 - 1, 2.0**53, -(2.0**60), 0.5, float("nan"), float("inf"), None]
        found = units(format, pa.array(floats), tmp_path, UnitType.INTEGER)
        assert [each is None for each in found] == [False, *[True] * 6]


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_unit_that_a_tree_reads_as_numbers_is_refused(format: str) -> None:
    """Both would be read as the tree's numbers: 2^53 + 1 as 2^53, 3.7 as 3."""
    for kind in ("number", "integer"):
        domain = make_domain({"column": "id", "type": kind, "lower": 0, "upper": 10, "cells": 10})
        text = io.BytesIO(b'{"id": 1}\n' if format == "json" else b"id\n1\n")
        plan = make_plan(domain, unit=column_unit("id"))
        with pytest.raises(InputError, match=r"privacy.unit: .* a second column of the same va"):
            find_reader(format).splits(text, "rows", plan)
