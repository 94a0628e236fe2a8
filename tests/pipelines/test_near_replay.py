"""Releases whose floats depended on the processor are made again to a relative 1e-9, no wider."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dptrees.dpcore.release.guarantee import ARITHMETIC_VERSION
from dptrees.pipelines.check.replay import _Comparison

TABLE = pa.table(
    {
        "label": ["a", "b", "c"],
        "count": pa.array([3, 0, 12], pa.int64()),
        "estimate": pa.array([2.75, -1e-13, None], pa.float64()),
    }
)


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def is_near(folder: Path, again: pa.Table, *, arithmetic: int | None = None) -> bool:
    (folder / "nodes").mkdir(parents=True)
    (folder / "nodes" / "one.parquet").write_bytes(parquet(TABLE))
    comparison = _Comparison(
        manifest={} if arithmetic is None else {"arithmetic": arithmetic},
        folder=str(folder),
        again={"nodes/other.parquet": parquet(again)},
    )
    return comparison._is_near("nodes/one.parquet", "nodes/other.parquet")


def replaced(name: str, values: list[object]) -> pa.Table:
    place = TABLE.column_names.index(name)
    return TABLE.set_column(place, name, pa.array(values, TABLE.column(name).type))


def test_last_digits_of_floats_may_differ(tmp_path: Path) -> None:
    assert is_near(tmp_path, replaced("estimate", [2.7500000000000004, 1e-13, None]))


def test_they_may_not_where_the_arithmetic_is_the_same_everywhere(tmp_path: Path) -> None:
    again = replaced("estimate", [2.7500000000000004, -1e-13, None])
    assert not is_near(tmp_path, again, arithmetic=ARITHMETIC_VERSION)


def test_what_differs_more_is_found(tmp_path: Path) -> None:
    for place, again in enumerate(
        (
            replaced("estimate", [2.75 * (1 + 1e-8), -1e-13, None]),
            replaced("estimate", [2.75, -1e-13, 0.0]),
            replaced("count", [3, 1, 12]),
            replaced("label", ["a", "b", "d"]),
            TABLE.slice(0, 2),
            TABLE.drop_columns(["label"]),
            TABLE.set_column(1, "count", pa.array([3.0, 0.0, 12.0])),
        )
    ):
        assert not is_near(tmp_path / str(place), again)
