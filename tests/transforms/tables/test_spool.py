"""Rows that are read once: the same blocks for every reader, and a fault that stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from dptrees.transforms.errors import InputError
from dptrees.transforms.nameless_file import NamelessFile
from dptrees.transforms.tables import query_rows
from dptrees.transforms.tables.query_rows import RowStream, Spool

SCHEMA = pa.schema({"n": pa.int64()})


def batches(number: int, rows: int) -> Iterator[pa.RecordBatch]:
    """So many batches of rows that count on."""
    for each in range(number):
        numbers = range(each * rows, (each + 1) * rows)
        yield pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)


def read(rows: Spool) -> list[int]:
    """The numbers of all blocks."""
    found, number = list[int](), 0
    while (block := rows.block(number)) is not None:
        found += block["n"].to_pylist()
        number += 1
    return found


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_rows, "BLOCK_ROWS", 10)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("memory", [0, 2**25], ids=["in a file", "in memory"])
def test_every_reader_gets_the_same_rows(monkeypatch: pytest.MonkeyPatch, memory: int) -> None:
    monkeypatch.setattr(query_rows, "MEMORY_BYTES", memory)
    ends: list[int] = []
    rows = Spool(RowStream(schema=SCHEMA, batches=batches(40, 3)), lambda: ends.append(1))
    found: list[list[int]] = []
    readers = [threading.Thread(target=lambda: found.append(read(rows))) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert found == [list(range(120))] * 4
    assert ends == [1]
    rows.close()


@pytest.mark.usefixtures("small_blocks")
def test_rows_in_the_file_are_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_rows, "MEMORY_BYTES", 0)
    sealed: list[bytes] = []
    monkeypatch.setattr(
        NamelessFile,
        "_ciphered",
        lambda self, data, start, cipher=NamelessFile._ciphered: (
            sealed.append(cipher(self, data, start)) or sealed[-1]
        ),
    )
    planted = pa.record_batch({"name": ["a planted Smith"] * 10})
    rows = Spool(RowStream(schema=planted.schema, batches=iter([planted])))
    assert rows.block(0) == planted
    assert b"Smith" not in sealed[0]
    assert b"Smith" in sealed[1]  # deciphered


@pytest.mark.usefixtures("small_blocks")
def test_a_stream_that_ends_early_is_never_begun_again() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(10, 3)
        raise OSError("a connection that broke")

    rows = Spool(RowStream(schema=SCHEMA, batches=broken()))
    assert rows.block(0) is not None
    for _ in range(2):
        with pytest.raises(OSError, match="broke"):
            read(rows)


def test_a_late_reader_gets_no_end_of_rows() -> None:
    """A part of the rows that seems whole would be counted as if it were."""
    for taken in (0, 1):
        rows = Spool(RowStream(schema=SCHEMA, batches=batches(2, 3)))
        for number in range(taken):
            assert rows.block(number) is not None
        rows.close()
        with pytest.raises(InputError, match="the rows are gone"):
            rows.block(1)


def test_no_rows() -> None:
    assert read(Spool(RowStream(schema=SCHEMA, batches=batches(3, 0)))) == []
