"""Rows that are read once, the same blocks for every reader; calls of a driver that take long."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from dptrees.transforms.errors import InputError
from dptrees.transforms.nameless_file import NamelessFile
from dptrees.transforms.tables import query_rows
from dptrees.transforms.tables.query_rows import DriverCalls, RowStream, Spool, end_driver_calls

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


# --- calls of a driver: a signal ends the wait, and no connection in use is closed ---


def test_a_call_has_its_result_or_its_fault() -> None:
    calls = DriverCalls()
    assert calls.run(lambda: None) is None and calls.run(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        calls.run(lambda: 1 / 0)


@pytest.fixture
def hears_interrupts() -> Iterator[None]:
    """This process hears SIGINT, which a shell lets its background jobs ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_interrupts")
@pytest.mark.parametrize("can_cancel", [True, False])
def test_a_signal_ends_the_wait(can_cancel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_rows, "CANCEL_SECONDS", 0.2)
    calls, over, order = DriverCalls(), threading.Event(), list[str]()

    def long() -> None:
        over.wait(20)
        order.append("call")

    calls.held.callback(order.append, "closed")
    calls.cancel = over.set if can_cancel else (lambda: None)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        calls.run(long)
    calls.close()
    assert time.monotonic() - begun < 5
    assert order == (["call", "closed"] if can_cancel else [])
    over.set()
    deadline = time.monotonic() + 5
    while len(order) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert order == ["call", "closed"]


def test_a_job_that_is_stopped_ends_the_waits_of_its_threads() -> None:
    calls, over, faults = DriverCalls(), threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            calls.run(lambda: over.wait(20))
        except InputError as error:
            faults.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    end_driver_calls()
    thread.join(5)
    assert not thread.is_alive() and "stopped" in str(faults[0])
    over.set()
