"""The work of Spark's tasks: each runs one counting step over the Arrow batches of a partition.

Spark's workers import this module, so dptrees must be installed there in the version of the driver.
A task gives an error of the user as a message, which Spark neither logs nor tries again. The text
of any other error may show a value of a row, and Spark writes it to logs: only its type and its
place in the code are passed on.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from itertools import groupby
from typing import Any

import pyarrow as pa

from dptrees.dpcore import __version__
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.spark.messages import (
    FAULT,
    RECEIVED,
    ROWS,
    SENT,
    SHARDS_TASK,
    Digest,
    Message,
    from_batches,
    to_batches,
)
from dptrees.transforms.errors import InputError, ReleaseError
from dptrees.transforms.held import COUNTS, run_bundle
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.file_columns import FileColumns
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.steps.count import CountBounded, CountBundle, EmptyShards, SendRows

Batches = Iterable[pa.RecordBatch]
# The rows that are counted together: they fit a processor's caches with their scratch arrays.
_BATCH_ROWS = 2**17
# The driver finds it in the text of an error.
FAULT_MARK = "a fault of dptrees"


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of all tasks of a job.

    Args:
        plan: the plan.
        key: the place of the release key.
        names: the columns of the rows, in their order.
        shards: the number of shards of privacy units.
    """

    plan: ReleasePlan
    key: KeyReference
    names: tuple[str, ...]
    shards: int


class UnusedKey(KeyReference):
    """A reference in place of the key, for a plan whose rows are counted without the key."""

    def load(self) -> ReleaseKey:
        """Return an object that fails if it is used."""
        return NoKey()  # type: ignore[return-value]


class NoKey:
    """The absence of a key."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise KeyIsUsedError(name)


class KeyIsUsedError(Exception):
    """The release key is used where there is none."""


def count_rows(version: str, work: bytes, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Count the rows of a partition; each row is a privacy unit.

    Args:
        version: the version of dptrees on the driver.
        work: the pickled `Work`.
        batches: the rows.

    Yields:
        the partial counts and the increments to the balance, as `messages.TABLE`.
    """

    def messages() -> Iterator[Message]:
        job = _unpickled(version, work)
        return _counted(CountBundle(job.plan, job.key), _Rows(job, batches), COUNTS)

    return _task(messages, batches, _partition())


def send_rows(version: str, work: bytes, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Send the rows of a partition to the shards of their privacy units; as `count_rows`."""

    def messages() -> Iterator[Message]:
        job = _unpickled(version, work)
        return _counted(SendRows(job.plan, job.key, job.shards), _Rows(job, batches), ROWS)

    return _task(messages, batches, _partition())


def give_shards(version: str, work: bytes, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Give every shard without rows, so that each exists; as `count_rows`."""

    def messages() -> Iterator[Message]:
        job = _unpickled(version, work)
        trees = range(len(job.plan.questions))
        step = EmptyShards(job.plan, job.shards)
        for output, value in run_bundle(step, trees, ROWS):
            yield Message.from_output(output, value)

    return _task(messages, batches, SHARDS_TASK)


def count_shards(version: str, work: bytes, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Bound and count the rows of whole shards, and pass all other messages on.

    Args:
        version: the version of dptrees on the driver.
        work: the pickled `Work`.
        batches: messages sorted by `messages.ORDER`; all messages of a shard are among them.
    """

    def messages() -> Iterator[Message]:
        job, received = _unpickled(version, work), Digest()
        passed: list[Message] = []

        def shards() -> Iterator[tuple[tuple[str, int], Iterator[bytes]]]:
            arrived = received.passing(from_batches(batches))
            for (output, name, _, number), group in groupby(arrived, lambda each: each[:4]):
                if output == ROWS:
                    yield (name, number), (each.data for each in group)
                else:
                    passed.extend(group)

        for output, value in run_bundle(CountBounded(job.plan, job.key), shards(), COUNTS):
            yield Message.from_output(output, value)
        yield from passed
        yield received.message(RECEIVED)

    return _task(messages, batches, _partition(), sends_digest=False)


class _Rows:
    """The rows of a partition in batches, which count the rows that were read.

    Args:
        job: the work, with the names of the columns.
        batches: as Spark gives them.
    """

    def __init__(self, job: Work, batches: Batches) -> None:
        self._job, self._batches = job, batches
        self.number = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        columns: FileColumns | None = None
        for batch in _gathered(self._batches):
            named = named_batch(batch, self._job.names)
            if columns is None:
                columns = FileColumns.from_schema(named.schema, "rows", self._job.plan)
            self.number += named.num_rows
            yield columns.batch(named)


def named_batch(batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
    """Return a batch of Spark under the names of its columns, with timestamps in UTC.

    Spark labels timestamps with the time zone of the session. The label changes no value.

    >>> zone = pa.timestamp("us", "America/New_York")
    >>> named_batch(pa.record_batch({"c0": pa.array([0], zone)}), ["at"]).schema.field("at").type
    TimestampType(timestamp[us, tz=UTC])
    """
    columns = [column.cast(in_utc(column.type)) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=list(names))


def in_utc(type: pa.DataType) -> pa.DataType:
    """Return a type whose timestamps with a time zone are in UTC."""
    if pa.types.is_timestamp(type) and type.tz is not None:
        return pa.timestamp(type.unit, "UTC")
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(in_utc(field.type)) for field in type])
    return type


def _gathered(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Join the small batches of Spark: each tree has a cost for each batch."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _BATCH_ROWS:
            yield from _joined(waiting)
            waiting, rows = [], 0
    if waiting:
        yield from _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _counted(step: Any, rows: _Rows, main: str) -> Iterator[Message]:
    for output, value in run_bundle(step, rows, main):
        yield Message.from_output(output, value)
    yield Message(BALANCE, "rows", 0, rows.number, b"")


def _task(
    messages: Callable[[], Iterator[Message]],
    batches: Batches,
    sender: int,
    *,
    sends_digest: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Run a task, and pass on no text of an error that may show a value."""
    try:
        yield from to_batches(_with_digest(messages(), sender, sends_digest), sender)
    except ReleaseError as error:
        if error.again:
            raise type(error)(error.sentence, again=True) from None
        yield from to_batches([Message(FAULT, "", 0, 0, error.sentence.encode())], sender)
        for _ in batches:  # Spark waits until all rows are taken
            pass
    except MemoryError:
        raise
    except Exception as error:
        raise RuntimeError(f"{FAULT_MARK}: {_place(error)}") from None


def _with_digest(messages: Iterator[Message], sender: int, sends_digest: bool) -> Iterator[Message]:
    digest = Digest()
    yield from digest.passing(messages) if sends_digest else messages
    if sends_digest:
        yield digest.message(SENT, sender)


def _place(error: Exception) -> str:
    """The type of an error, and its place in the code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    file = os.path.basename(trace.tb_frame.f_code.co_filename)
    return f"{type(error).__name__} in {file}, line {trace.tb_lineno}"


def _unpickled(version: str, work: bytes) -> Work:
    """Return the work, after checking that the driver has this version.

    Raises:
        InputError: it has another one.
    """
    if version != __version__:
        raise InputError(
            f"spark: an executor has dptrees {__version__}, and the driver {version}: install one "
            "version on both"
        )
    return _read(work)


@lru_cache(maxsize=4)
def _read(work: bytes) -> Work:
    """Read the work once in a process that runs several tasks."""
    job: Work = pickle.loads(work)
    return job


def _partition() -> int:
    context = import_module("pyspark").TaskContext.get()  # an optional dependency
    return 0 if context is None else int(context.partitionId())
