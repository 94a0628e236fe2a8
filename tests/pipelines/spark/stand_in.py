"""A stand-in for Spark: the few methods of a DataFrame that a release calls, in plain Python.

Tasks run in this process, one after the other. A test can change what an engine might do to the
data: `shuffled` what a shuffle hands on, `collected` what the driver gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from dptrees.pipelines.spark import tasks

Piece = dict[str, Any]
_NAMES = {
    pa.int64(): "long",
    pa.uint64(): "long",
    pa.timestamp("us"): "timestamp_ntz",
    pa.int32(): "integer",
    pa.float64(): "double",
    pa.string(): "string",
    pa.date32(): "date",
    pa.bool_(): "boolean",
    pa.list_(pa.int64()): "void",
}


class DataType:
    """A type of Spark.

    Args:
        name: as Spark names it.
    """

    def __init__(self, name: str, **given: Any) -> None:
        self._name = name
        self.__dict__.update(given)

    def typeName(self) -> str:
        """Return the name."""
        return self._name

    def simpleString(self) -> str:
        """Return the name."""
        return self._name


@dataclass
class Engine:
    """A session.

    Args:
        reduce_tasks: the partitions of a shuffle.
    """

    reduce_tasks: int = 3
    shuffled: Callable[[list[Piece]], list[Piece]] = lambda pieces: pieces
    collected: Callable[[list[Piece]], list[Piece]] = lambda pieces: pieces
    actions: int = 0
    partition: int = 0
    conf: Any = field(default_factory=lambda: SimpleNamespace(get=lambda name: "auto"))

    def range(self, *_: int) -> Frame:
        """Return a frame of one row."""
        return Frame(self, lambda: [[pa.record_batch({"id": [0]})]])

    def frame(self, table: pa.Table, partitions: int = 3) -> Frame:
        """Return a frame of a table's rows."""
        size = -(-table.num_rows // partitions) or 1
        parts = [table.slice(start, size) for start in range(0, table.num_rows, size)]
        return Frame(
            self, lambda: [part.to_batches(max_chunksize=700) for part in parts], table.schema
        )


class Frame:
    """A DataFrame.

    Args:
        engine: its session.
        partitions: gives the batches of each partition.
        schema: of the batches, unless they are messages.
    """

    def __init__(
        self,
        engine: Engine,
        partitions: Callable[[], Sequence[Sequence[pa.RecordBatch]]],
        schema: pa.Schema | None = None,
    ) -> None:
        self.sparkSession, self.partitions, self._schema = engine, partitions, schema

    @property
    def schema(self) -> Any:
        """The names and types of the columns."""
        found = self._schema or pa.schema([])
        fields = [
            SimpleNamespace(name=each.name, dataType=DataType(_NAMES[each.type])) for each in found
        ]
        return SimpleNamespace(names=found.names, fields=fields)

    def toDF(self, *names: str) -> Frame:
        """Rename the columns."""

        def renamed() -> list[list[pa.RecordBatch]]:
            return [
                [batch.rename_columns(list(names)) for batch in part] for part in self.partitions()
            ]

        assert self._schema is not None
        types = self._schema.types
        return Frame(self.sparkSession, renamed, pa.schema(list(zip(names, types, strict=True))))

    def select(self, *names: str) -> Frame:
        """Choose columns."""
        return Frame(
            self.sparkSession,
            lambda: [[batch.select(list(names)) for batch in part] for part in self.partitions()],
        )

    def mapInArrow(self, task: Callable[..., Iterator[pa.RecordBatch]], _: str) -> Frame:
        """Run a task over each partition, once the frame is collected."""

        def run() -> list[list[pa.RecordBatch]]:
            results = []
            for number, part in enumerate(self.partitions()):
                self.sparkSession.partition = number
                results.append(list(task(iter(part))))
            return results

        return Frame(self.sparkSession, run)

    def union(self, other: Frame) -> Frame:
        """Join two frames."""
        return Frame(self.sparkSession, lambda: [*self.partitions(), *other.partitions()])

    def repartition(self, *names: str) -> Frame:
        """Bring the rows with equal columns together."""

        def run() -> list[list[pa.RecordBatch]]:
            engine = self.sparkSession
            moved: list[list[Piece]] = [[] for _ in range(engine.reduce_tasks)]
            for piece in engine.shuffled(_pieces(self.partitions())):
                place = hash(tuple(str(piece[name]) for name in names)) % engine.reduce_tasks
                moved[place].append(piece)
            return [[pa.RecordBatch.from_pylist(part)] for part in moved if part]

        return Frame(self.sparkSession, run)

    def sortWithinPartitions(self, *names: str) -> Frame:
        """Sort each partition."""

        def run() -> list[list[pa.RecordBatch]]:
            results = []
            for part in self.partitions():
                order = [(name, "ascending") for name in names]
                table = pa.Table.from_batches(part).sort_by(order)
                results.append(table.to_batches(max_chunksize=50))
            return results

        return Frame(self.sparkSession, run)

    def collect(self) -> list[tuple[Any, ...]]:
        """Return all rows: an action."""
        self.sparkSession.actions += 1
        pieces = self.sparkSession.collected(_pieces(self.partitions()))
        return [tuple(piece.values()) for piece in pieces]


def _pieces(partitions: Sequence[Sequence[pa.RecordBatch]]) -> list[Piece]:
    return [piece for part in partitions for batch in part for piece in batch.to_pylist()]


def engine_in(monkeypatch: Any) -> Engine:
    """Return an engine whose tasks know the number of their partition."""
    engine = Engine()
    monkeypatch.setattr(tasks, "_partition", lambda: engine.partition)
    return engine
