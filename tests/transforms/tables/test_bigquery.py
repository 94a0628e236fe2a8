"""Rows of BigQuery: the real client against a stand-in for the service."""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dptrees.dpcore.bounding.unit_ids import UnitIds
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.transforms.errors import InputError
from dptrees.transforms.tables.table import BigqueryTable
from tests.optional import table_library

table_library("google.cloud.bigquery_storage_v1", "DPTREES_REQUIRE_GCP")

RowsOf = Callable[..., list[tuple[Any, ...]]]
FIRST, SECOND = (datetime(year, 1, 1, tzinfo=timezone.utc) for year in (2024, 2025))
# Neighbors that a double cannot distinguish.
LARGE = tuple(range(2**53, 2**53 + 6))
VISITS = BigqueryTable(table="shop.web.visits")


@contextmanager
def serving(rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in, to which clients go."""
    import grpc
    from google.cloud.bigquery_storage_v1 import BigQueryReadClient
    from google.cloud.bigquery_storage_v1.services.big_query_read.transports import (
        BigQueryReadGrpcTransport,
    )

    from tests.transforms.tables.read_service import ReadService

    made = ReadService((FIRST, rows.slice(0, 4)), (SECOND, rows))
    with made.served() as address:

        def client() -> Any:
            channel = grpc.insecure_channel(address)
            return BigQueryReadClient(transport=BigQueryReadGrpcTransport(channel=channel))

        monkeypatch.setattr("dptrees.transforms.tables.table._client", client)
        yield made


@pytest.fixture
def service(rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in with a few rows."""
    with serving(rows, monkeypatch) as made:
        yield made


def test_rows_of_a_stream_that_breaks(service: Any, rows: pa.Table, read_pinned: RowsOf) -> None:
    with VISITS.pinned() as pinned:
        assert pinned.schema() == rows.schema
        table = pickle.loads(pickle.dumps(pinned.divided(["age"])))
        sessions = len(service.sessions)
        assert len(table.splits(["age"])) == 3
        ages = sorted(((age,) for age in rows["age"].to_pylist()), key=repr)
        assert read_pinned(table, ("age",)) == ages
        assert len(service.sessions) == sessions  # whoever lists the parts finds the same ones
    assert service.broken
    assert list(service.sessions[-1].read_session.read_options.selected_fields) == ["age"]
    assert service.sessions[-1].parent == "projects/shop"


def test_a_moment(service: Any, read_pinned: RowsOf) -> None:
    old = BigqueryTable(table="shop.web.visits", version="2024-06-01T00:00Z", billed="other")
    with old.pinned() as table:
        assert len(read_pinned(table.divided(["age"]), ("age",))) == 4
    assert service.sessions[-1].parent == "projects/other"


def test_refused(service: Any) -> None:
    none = BigqueryTable(table="shop.web.none")
    with none.pinned() as table, pytest.raises(InputError, match="none does not exist") as caught:
        table.schema()
    assert "secret" not in caught.value.sentence
    named = BigqueryTable(table="shop.web.visits", version="main")
    with pytest.raises(InputError, match="main is not a time"), named.pinned():
        pass


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(LARGE, pa.int64()),  # INTEGER
        pa.array(map(Decimal, LARGE), pa.decimal128(38, 9)),  # NUMERIC
        pa.array(map(str, LARGE)),  # STRING
    ],
    ids=lambda ids: str(ids.type),
)
def test_units_are_exact(ids: pa.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that a double cannot distinguish stay units of their own."""
    with serving(pa.table({"id": ids}), monkeypatch), VISITS.pinned() as pinned:
        table = pinned.with_units(["id"]).divided(["id"])
        read = [row for split in table.splits(["id"]) for row in table.batches(split, ["id"])]
    column = pa.chunked_array([batch.column("id") for batch in read]).combine_chunks()
    choices = KeyedChoices(key=ReleaseKey(bytes(range(32))), release="units")
    made, missing = UnitIds(choices, None).row_ids([column])
    assert missing is None and len({each.tobytes() for each in made}) == len(LARGE)
