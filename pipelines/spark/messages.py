"""Messages between tasks of Spark and the driver, as rows of one table of Arrow.

    outputs of a step -> Message -> pieces in record batches -> shuffle, or the driver -> Message

A piece has at most `PIECE_BYTES`: Spark puts 10,000 rows into one Arrow batch, whose bytes are
addressed with 32 bits. Each task ends with a digest of all its messages. The receiver of all
messages compares the sum of these digests with the sum over what it received: if Spark runs a task
again after its first output was partly used, and the rows of the DataFrame came out differently,
the two do not agree, and nothing is released. A digest names its task, because a task whose output
came twice, or not at all, agrees with itself: the tasks must be 0, 1, 2, ..., each once. (Spark
does not report how many there are. So a loss of all output of the last ones is not seen.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from dptrees.transforms.errors import ConservationError
from dptrees.transforms.readers.read import BALANCE

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

# Outputs of tasks, in addition to the outputs of the counting steps.
ROWS, FAULT, SENT, RECEIVED = "rows", "fault", "sent", "received"
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
