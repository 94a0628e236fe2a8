"""The made-up rows of the old releases: the same ones whenever they are written."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 400


def write_rows(folder: Path) -> None:
    """Writes the rows of a release, and the rows of two days of a series."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, first in (("rows", 0), ("2026-11-01", 1), ("2026-11-02", 2)):
        pq.write_table(_table(range(first, first + ROWS)), folder / f"{name}.parquet")


def _table(numbers: range) -> pa.Table:
    begin = date(2020, 1, 1)
    return pa.table(
        {
            "n": pa.array([(each * 37) % 100 for each in numbers], pa.int64()),
            "m": pa.array([(each * each) % 64 for each in numbers], pa.int64()),
            "colour": ["red" if each % 3 else "blue" for each in numbers],
            "town": [f"t{(each * each) % 7}" for each in numbers],
            "street": [f"s{(each * 11) % 5}" for each in numbers],
            "day": pa.array([begin + timedelta(days=each % 700) for each in numbers], pa.date32()),
            "person": [f"p{each % 150}" for each in numbers],
        }
    )
