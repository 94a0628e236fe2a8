"""Rows and a catalog for tests of tables."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dptrees.transforms.tables.table import InputTable
from tests import postgresql

# Doctests are looked for in every module, and this one needs a client that not everybody has.
collect_ignore = ["read_service.py"]

ROWS = pa.table(
    {
        "age": pa.array([30, 41, None, 7, 7, 99], pa.int32()),
        "city": ["Oslo", "Bergen", None, "Oslo", "Roma", "Bergen"],
        "at": pa.array([{"zip": "1"}, None, {"zip": None}, {"zip": "2"}, {"zip": "3"}, None]),
    }
)


@pytest.fixture
def rows() -> pa.Table:
    """A few rows with nulls and fields."""
    return ROWS


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A catalog of Iceberg tables in SQLite, which pyiceberg's environment names."""
    from pyiceberg.catalog import load_catalog

    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__DEFAULT__{name.upper()}", value)
    (tmp_path / "warehouse").mkdir()
    made = load_catalog("default", **properties)
    made.create_namespace("shop")
    return made


@pytest.fixture(scope="session")
def server() -> Iterator[postgresql.Server]:
    """A PostgreSQL server of these tests alone."""
    yield from postgresql.started()


@pytest.fixture
def read_pinned() -> Callable[[InputTable, Sequence[str]], list[tuple[Any, ...]]]:
    """The rows of a pinned table, read part by part, in an order of their own."""

    def read(table: InputTable, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for split in table.splits(columns):
            for batch in table.batches(split, columns):
                found += zip(*(batch[name].to_pylist() for name in columns), strict=True)
        return sorted(found, key=repr)

    return read
