"""Rows of a query that was executed once, for any number of readers in this process.

A query over a connection has no state that a second execution could be sure to read again. So it
is executed once, and its rows are kept until the job ends: the first megabytes in memory, all
others in an encrypted file without a name (`transforms.nameless_file`). Every reader, retry and
stage gets the same bytes. Rows are taken from the connection as readers need them, by one reader at
a time.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from dptrees.transforms.errors import InputError
from dptrees.transforms.nameless_file import NamelessFile, StoredBytes
from dptrees.transforms.tables.driver_calls import CANCEL_SECONDS

# Bytes of rows that stay in memory.
MEMORY_BYTES = 2**25
# Drivers give batches of a few rows to many thousands. Blocks are joined up to either limit.
BLOCK_ROWS, BLOCK_BYTES = 2**16, 2**23


@dataclass(frozen=True, kw_only=True)
class RowStream:
    """The rows of an executed query.

    Args:
        schema: their columns.
        batches: their rows, once.
        cancel: ends a call of the driver from another thread, if the driver can do that.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    cancel: Callable[[], object] = lambda: None


class Spool:
    """The rows of a stream, in blocks by number.

    Args:
        stream: read once.
        close: called after the last row, so that no connection stays open for longer.

    >>> batch = pa.record_batch({"age": [30, 41]})
    >>> spool = Spool(RowStream(schema=batch.schema, batches=iter([batch])))
    >>> spool.block(0).to_pydict(), spool.block(0).num_rows, spool.block(1)
    ({'age': [30, 41]}, 2, None)
    """

    def __init__(self, stream: RowStream, close: Callable[[], object] = lambda: None) -> None:
        self.schema = stream.schema
        self._batches, self._close_stream = stream.batches, close
        self._blocks: list[bytes | StoredBytes] = []
        self._lock = threading.Lock()
        self._bytes, self._is_whole = 0, False
        self._file: NamelessFile | None = None
        self._fault: BaseException | None = None

    def block(self, number: int) -> pa.RecordBatch | None:
        """A block of rows; None after the last one. Several threads may read.

        Raises:
            BaseException: of the stream. It ended early, so every later reader gets the same error:
                no query is executed a second time.
        """
        with self._lock:
            while not self._is_whole and number >= len(self._blocks):
                self._take()
            if number >= len(self._blocks):
                return None
            stored = self._blocks[number]
        sealed = stored if isinstance(stored, bytes) else stored.read()
        with pa.ipc.open_stream(pa.py_buffer(sealed)) as reader:
            return reader.read_next_batch()

    def close(self) -> None:
        """Free the memory and the file; a reader that is late gets an error, and no end of rows."""
        self._fault = InputError("input: the rows are gone, because the job has ended")
        # A reader that waits for its driver has the lock; then the process is about to end.
        if not self._lock.acquire(timeout=CANCEL_SECONDS):
            return
        try:
            self._is_whole = False
            self._blocks.clear()
            if self._file is not None:
                self._file.close()
        finally:
            self._lock.release()

    def _take(self) -> None:
        """Take a block of rows from the stream."""
        if self._fault is not None:
            raise self._fault
        try:
            waiting, rows, size = list[pa.RecordBatch](), 0, 0
            while rows < BLOCK_ROWS and size < BLOCK_BYTES:
                batch = next(self._batches, None)
                if batch is None:
                    self._is_whole = True
                    self._close_stream()
                    break
                # What a library decoded could make others read beyond their memory.
                batch.validate()
                waiting.append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows:
                self._keep(pa.Table.from_batches(waiting, self.schema).combine_chunks())
        except BaseException as error:  # rows that were taken and not kept would be missing
            self._fault, self._is_whole = error, False
            raise

    def _keep(self, rows: pa.Table) -> None:
        for batch in rows.to_batches():
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self.schema) as writer:
                writer.write_batch(batch)
            data = sink.getvalue().to_pybytes()
            self._bytes += len(data)
            if self._bytes > MEMORY_BYTES and self._file is None:
                self._file = NamelessFile()
            self._blocks.append(data if self._file is None else self._file.write(data))
