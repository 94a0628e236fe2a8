"""Rows, configurations and the key of the scripts: all follow from formulas."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 900


def table(rows: int = ROWS, first: int = 0) -> pa.Table:
    """Rows of every type of column, some of them missing."""
    numbers = range(first, first + rows)
    begin = datetime(2024, 1, 1)
    return pa.table(
        {
            "n": pa.array([(i * 37) % 100 for i in numbers], pa.int64()),
            "m": pa.array([None if i % 90 == 7 else (i * i) % 64 for i in numbers], pa.int32()),
            "x": pa.array([None if i % 70 == 3 else (i * 29 % 1000) / 10 for i in numbers]),
            "pay": pa.array([(i % 71) ** 2 for i in numbers], pa.int64()),
            "colour": ["red" if i % 3 else "blue" for i in numbers],
            "town": [f"t{(i * i) % 7}" for i in numbers],
            "street": [f"s{(i * 11) % 5}" for i in numbers],
            "code": [f"{(i * i) % 300:04d}" for i in numbers],
            "path": [f"/a{i % 3}/b{i % 4}/c{i % 50}" for i in numbers],
            "address": [f"10.{i % 3}.{i % 5}.{i % 11}" for i in numbers],
            "day": pa.array(
                [date(2024, 1, 1) + timedelta(days=i % 364) for i in numbers], pa.date32()
            ),
            "at": pa.array(
                [begin + timedelta(minutes=i * 97) for i in numbers], pa.timestamp("us")
            ),
            "clock": pa.array([time((i * 7) % 24, i % 60) for i in numbers], pa.time64("us")),
            "stay": pa.array([timedelta(minutes=i % 300) for i in numbers], pa.duration("s")),
            "person": [None if i % 100 == 99 else f"p{i * 7919 % 307}" for i in numbers],
        }
    )


def write_place(folder: Path) -> None:
    """Write the rows, the lists of leaves and keys, and the key of releases."""
    rows = table()
    pq.write_table(rows, folder / "rows.parquet", row_group_size=200)
    pq.write_table(pa.table({"code": [f"{i:04d}" for i in range(300)]}), folder / "codes.parquet")
    towns = [(f"t{t}", f"s{s}") for t in range(7) for s in range(5)]
    lines = [f"{town},{street}\n" for town, street in towns]
    (folder / "places.csv").write_text("town,street\n" + "".join(lines))
    (folder / "towns.txt").write_text("".join(f"t{i}\n" for i in range(5)))
    parents = ["street,of\nall,\n", *(f"{t},all\n" for t in ("even", "odd"))]
    parents += [f"s{s},{'odd' if s % 2 else 'even'}\n" for s in range(5)]
    (folder / "parents.csv").write_text("".join(parents))
    for name, start in (("release.key", 7), ("other.key", 40)):
        key = folder / name
        secret = urlsafe_b64encode(bytes(range(start, start + 32))).decode()
        key.write_text(f"dptrees-key-1:{secret}\n")
        key.chmod(0o600)


def config(name: str, *trees: str, **sections: str) -> str:
    """Return a configuration: its trees in flow style, and sections in place of the usual ones."""
    usual = {
        "release": name,
        "input": "{format: parquet, path: rows.parquet}",
        "output": f"out/{name}",
        "key_file": "release.key",
        "privacy": "{epsilon: 4, neighbors: add_remove}",
    }
    chosen: dict[str, Any] = usual | sections
    lines = [f"{key}: {value}" for key, value in chosen.items() if value]
    return "\n".join([*lines, "trees:", *(f"- {{{tree}}}" for tree in trees), ""])


def write_config(name: str, *trees: str, **sections: str) -> str:
    """Write a configuration into the working directory; return its path."""
    path = Path(f"{name}.yaml")
    path.write_text(config(name, *trees, **sections))
    return str(path)
