"""The work of Spark's tasks: counting steps over a partition, and their messages to the driver.

    outputs of a step -> Message -> pieces in record batches -> shuffle, or the driver -> Message

Workers import this module, so dptrees must be installed there in the driver's version. A task
sends an error of the user as a message, which Spark neither logs nor retries; of any other error
only its type and place in the code pass, since its text may show a value. A piece has at most
`PIECE_BYTES`, because Spark puts 10,000 rows into one Arrow batch, addressed with 32 bits. Each
task ends with a digest of its messages. If Spark runs a task again after its output was partly
used, and the rows came out differently, the sums of digests differ and nothing is released. A
digest names its task, and the tasks must be 0, 1, 2, ..., each once. (Spark does not report how
many there are, so a loss of all output of the last ones is not seen.)
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from dptrees.dpcore import __version__
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms import flow
from dptrees.transforms.errors import ConservationError, InputError, ReleaseError
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.file_columns import FileColumns
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.steps.count import CountBounded, CountBundle, EmptyShards, SendRows

# The columns of a piece, in the language of Spark.
TABLE = (
    "output string, name string, part bigint, number bigint, sender bigint, serial bigint, "
    "piece bigint, last boolean, data binary"
)
# Messages of a shard come together, and the pieces of a message in their order.
SHARD_COLUMNS = ("output", "name", "part", "number")
ORDER = (*SHARD_COLUMNS, "sender", "serial", "piece")
PIECE_BYTES = 2**17
_SCHEMA = pa.schema(
    [
        pa.field("output", pa.string()),
        pa.field("name", pa.string()),
        *(pa.field(name, pa.int64()) for name in ("part", "number", "sender", "serial", "piece")),
        pa.field("last", pa.bool_()),
        pa.field("data", pa.binary()),
    ]
)
# Bytes of the pieces in a batch that a task gives.
_BATCH_BYTES = 2**24

# Outputs of tasks; `SLOTS` and `BALANCE` are others.
COUNTS, ROWS, FAULT, SENT, RECEIVED = "counts", "rows", "fault", "sent", "received"
# The task that gives every shard without rows; others have the number of their partition.
SHARDS_TASK = -1
_DIGEST_MODULUS = 2**256


class Message(NamedTuple):
    """An output of a step.

    Attributes:
        output: its name.
        name: of the tree, or of a balance.
        part: the group of a place; else 0.
        number: of the place or of the shard; of a balance the increment; of a digest of what was
            sent the task.
        data: the counts, the rows of units, or the digest.
    """

    output: str
    name: str
    part: int
    number: int
    data: bytes

    @classmethod
    def from_output(cls, output: str, value: Any) -> Message:
        """Return the message of an output.

        Args:
            output: its name.
            value: as the steps of `transforms.steps.counting` and `transforms.steps.count` give it.
        """
        if output == BALANCE:
            name, increment = value
            return cls(output, name, 0, increment, b"")
        (name, *parts, number), data = value
        return cls(output, name, parts[0] if parts else 0, number, data)

    @property
    def value(self) -> Any:
        """The output's value, as `from_output` takes it."""
        if self.output == BALANCE:
            return self.name, self.number
        if self.output == ROWS:
            return (self.name, self.number), self.data
        return (self.name, self.part, self.number), self.data

    @property
    def is_digest(self) -> bool:
        """Whether it is a digest of messages, and in no digest itself."""
        return self.output in (SENT, RECEIVED)

    @property
    def digest(self) -> int:
        """A digest, to be summed over messages in any order."""
        head = repr((self.output, self.name, self.part, self.number, len(self.data)))
        whole = hashlib.sha256(head.encode() + b"\0" + self.data)
        return int.from_bytes(whole.digest(), "big")


class Digest:
    """The sum of the digests of messages.

    >>> digest = Digest()
    >>> passed = list(digest.passing([Message("counts", "age", 0, 0, b"1")]))
    >>> digest.message(SENT).output, len(digest.message(SENT).data)
    ('sent', 32)
    """

    def __init__(self) -> None:
        self._sum = 0

    def passing(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield messages unchanged, each added to the sum."""
        for message in messages:
            if not message.is_digest:
                self._sum = (self._sum + message.digest) % _DIGEST_MODULUS
            yield message

    def message(self, output: str, sender: int = 0) -> Message:
        """Return the sum as a message, with the number of the task that sent the messages."""
        return Message(output, "", 0, sender, self._sum.to_bytes(32, "big"))


def check_digests(messages: Iterable[Message], *, gives_shards: bool) -> None:
    """Compare the messages that tasks sent with those that were received.

    Args:
        messages: the digests of all tasks, and the digest of what was received.
        gives_shards: whether `SHARDS_TASK` is among the tasks.

    Raises:
        ConservationError: they differ, or a task is missing or came twice.
    """
    total, senders = 0, []
    for each in messages:
        number = int.from_bytes(each.data, "big")
        total += number if each.output == SENT else -number
        senders += [each.number] if each.output == SENT else []
    first = SHARDS_TASK if gives_shards else 0
    is_each_once = sorted(senders) == list(range(first, first + len(senders)))
    if total % _DIGEST_MODULUS or not is_each_once or (gives_shards and not senders):
        raise ConservationError(
            "spark: it lost or repeated data, or ran a task again and got other rows, so nothing "
            "was released; write the DataFrame to a table, and release the table"
        )


def to_batches(messages: Iterable[Message], sender: int) -> Iterator[pa.RecordBatch]:
    """Yield messages as record batches of the columns `TABLE`.

    Args:
        messages: read one by one.
        sender: the number of the task.
    """
    pieces: list[tuple[Any, ...]] = []
    size = 0
    for serial, message in enumerate(messages):
        starts = range(0, max(len(message.data), 1), PIECE_BYTES)
        for piece, start in enumerate(starts):
            data = message.data[start : start + PIECE_BYTES]
            is_last = piece == len(starts) - 1
            pieces.append((*message[:4], sender, serial, piece, is_last, data))
            size += len(data)
            if size >= _BATCH_BYTES:
                yield _batch(pieces)
                pieces, size = [], 0
    if pieces:
        yield _batch(pieces)


def _batch(pieces: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*pieces, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def from_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[Message]:
    """Yield the messages of record batches, as `from_pieces` does."""
    for_all = (batch.to_pydict() for batch in batches)
    rows = (row for columns in for_all for row in zip(*columns.values(), strict=True))
    return from_pieces(rows)


def from_pieces(pieces: Iterable[Any]) -> Iterator[Message]:
    """Yield the messages of pieces; the pieces of one message follow each other.

    Args:
        pieces: rows of the columns `TABLE`.

    Raises:
        ConservationError: a piece of a message is missing.
    """
    parts: list[bytes] = []
    begun: tuple[Any, ...] | None = None
    for output, name, part, number, sender, serial, piece, is_last, data in pieces:
        message = (output, name, part, number, sender, serial)
        if piece != len(parts) or (parts and message != begun):
            raise _lost_piece()
        begun = message
        parts.append(bytes(data))
        if is_last:
            yield Message(output, name, part, number, b"".join(parts))
            parts = []
    if parts:
        raise _lost_piece()


def _lost_piece() -> ConservationError:
    return ConservationError("spark: a piece of a message was lost, so nothing was released")


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
        nonce: of the folder.
    """

    plan: ReleasePlan
    key: KeyReference
    names: tuple[str, ...]
    shards: int
    nonce: bytes


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
    """Count the rows of a partition, or send them to the shards of their privacy units.

    Args:
        version: the version of dptrees on the driver.
        work: the pickled `Work`.
        batches: the rows.

    Yields:
        the partial counts or the rows of units, and the increments to the balance, as `TABLE`.
    """

    def messages() -> Iterator[Message]:
        job = _unpickled(version, work)
        rows = _Rows(job, batches)
        if job.plan.unit.is_row:
            yield from _outputs(CountBundle(job.plan, job.key, job.nonce), rows, COUNTS)
        else:
            step = SendRows(job.plan, job.key, job.shards, job.nonce)
            yield from _outputs(step, rows, ROWS)
        yield Message(BALANCE, "rows", 0, rows.number, b"")

    return _task(messages, batches, _partition())


def give_shards(version: str, work: bytes, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Give every shard without rows, so that each exists; as `count_rows`."""

    def messages() -> Iterator[Message]:
        job = _unpickled(version, work)
        return _outputs(EmptyShards(job.plan, job.shards), range(len(job.plan.questions)), ROWS)

    return _task(messages, batches, SHARDS_TASK)


def count_shards(version: str, work: bytes, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Bound and count the rows of whole shards, and pass all other messages on.

    Args:
        version: the version of dptrees on the driver.
        work: the pickled `Work`.
        batches: messages sorted by `ORDER`; all messages of a shard are among them.
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

        yield from _outputs(CountBounded(job.plan, job.key, job.nonce), shards(), COUNTS)
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


def _outputs(step: flow.Step, elements: Iterable[Any], main: str) -> Iterator[Message]:
    """Run a step over elements as one bundle, and yield its outputs.

    Args:
        step: a step without sides; it is set up, and torn down, here.
        elements: its input, read one by one.
        main: the name of the main output.
    """
    step.setup()
    try:
        step.start_bundle()
        for element in elements:
            for given in step.process(element):
                yield _message(given, main)
        for given in step.finish_bundle():
            yield _message(given, main)
    finally:
        step.teardown()


def _message(given: Any, main: str) -> Message:
    if isinstance(given, flow.Tagged):
        return Message.from_output(given.output, given.element)
    return Message.from_output(main, given)


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
