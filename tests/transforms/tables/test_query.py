"""Queries of any driver: what is reported if the driver fails where no row is read any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from dptrees.transforms.errors import InputError
from dptrees.transforms.tables.query import KeptQuery, RepeatableQuery
from dptrees.transforms.tables.query_rows import RowStream
from dptrees.transforms.tables.table import reading_table

ROWS = pa.record_batch({"n": [1, 2, 3]})


class DriverError(Exception):
    """A driver's error, in whose words are a password and a value."""


@dataclass(frozen=True, kw_only=True)
class FailsAtTheEnd:
    """A source whose connection cannot be closed."""

    name: str = "the query"
    query: str = "SELECT 1"
    connection: str = "env:VISITS"
    inexact: tuple[str, ...] = ()

    @contextmanager
    def opened(self, query: str | None = None, *, heads: bool = False) -> Iterator[RowStream]:
        try:
            yield RowStream(schema=ROWS.schema, batches=iter([ROWS]))
        finally:
            raise DriverError("Pwd=kumquat")

    @contextmanager
    def translated(self) -> Iterator[None]:
        with reading_table(self.name, "adbc"):
            yield


def not_read(_: Any) -> None:
    """A job that fails before a row is read."""
    raise KeyboardInterrupt


def read(table: Any) -> None:
    """A job that reads all rows."""
    (split,) = table.splits(["n"])
    assert list(table.batches(split, ["n"])) == [ROWS]


@pytest.mark.parametrize(
    ("job", "fault"), [(not_read, KeyboardInterrupt), (read, InputError)], ids=["failed", "read"]
)
def test_a_connection_that_cannot_be_closed(
    job: Callable[[Any], None], fault: type[BaseException]
) -> None:
    """The fault of the job stays, and no fault has the words of the driver."""
    with pytest.raises(fault) as no, KeptQuery(source=FailsAtTheEnd()).pinned() as table:
        job(table)
    assert "kumquat" not in str(no.value)


def test_all_rows_of_a_connection_that_cannot_be_closed() -> None:
    read(RepeatableQuery(source=FailsAtTheEnd(), columns=ROWS.schema, rows=3))
