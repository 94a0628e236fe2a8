"""A query that a driver executes, as a table: read once and kept, or repeatable.

A driver of a database offers no snapshot that several connections could read. Two kinds of tables
follow:

- `KeptQuery` executes the query once, in the process that starts the job, and keeps its rows
  there (`transforms.tables.spool`). A retry reads the same rows, whatever is written meanwhile.
  Workers in other processes cannot read them.
- `RepeatableQuery` is for a query whose every execution gives the same rows, as the user states.
  Any worker executes it. A second number of rows ends the job before any noise is drawn.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar

import pyarrow as pa
from typing_extensions import Self

from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.file_columns import described
from dptrees.transforms.tables.adbc import AdbcSource
from dptrees.transforms.tables.driver_calls import DriverCalls, driver_calls
from dptrees.transforms.tables.spool import BLOCK_BYTES, BLOCK_ROWS, RowStream, Spool
from dptrees.transforms.tables.sql_columns import EXACT_NUMBER
from dptrees.transforms.tables.table import UNKNOWN_ROWS, TableSplit

# Parts of kept rows: a few for each thread that counts them.
_PARTS = 16

_spools: dict[int, Spool] = {}
_numbers = count()


def _opened(
    calls: DriverCalls, source: AdbcSource, query: str | None = None, *, heads: bool = False
) -> RowStream:
    """The rows of a source, over a connection that lasts as long as its calls."""
    stream = calls.run(lambda: calls.held.enter_context(source.opened(query, heads=heads)))
    calls.cancel = stream.cancel
    return stream


def _called(calls: DriverCalls, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches, by calls that take several of them: some drivers give few rows at once."""
    while some := calls.run(lambda: _some(batches)):
        yield from some


def _some(batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    found, rows, size = list[pa.RecordBatch](), 0, 0
    while rows < BLOCK_ROWS and size < BLOCK_BYTES and (batch := next(batches, None)) is not None:
        found.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    return found


@dataclass(frozen=True, kw_only=True)
class SqlQuery:
    """What tables of both kinds share.

    Args:
        source: the query and its driver.
        units: the columns that name the privacy unit.
        heads: its columns are looked at and no row is read.
    """

    source: AdbcSource
    units: tuple[str, ...] = ()
    heads: bool = False

    @property
    def name(self) -> str:
        """What it is called in messages: a query may contain values."""
        return self.source.name

    @property
    def paths(self) -> tuple[str, ...]:
        """None: a driver reads it."""
        return ()

    @property
    def secret(self) -> str | None:
        """The place of what a connection needs."""
        return self.source.connection

    def with_units(self, columns: Sequence[str]) -> Self:
        """The query, which refuses columns of the unit that may be rounded; see `InputTable`."""
        return replace(self, units=tuple(columns))

    def _read_as(self, schema: pa.Schema) -> pa.Schema:
        """The columns as they are read: exact numbers are strings for the unit alone."""
        rounded = {
            each.name
            for each in schema
            if each.metadata == EXACT_NUMBER and each.name not in self.units
        }
        return pa.schema(
            [pa.field(each.name, pa.float64()) if each.name in rounded else each for each in schema]
        )

    def _selected(self, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        """Some columns of a batch, as they are read."""
        batch = batch.select(list(columns))
        return batch.cast(self._read_as(batch.schema))

    def _checked(self, schema: pa.Schema) -> pa.Schema:
        """The columns as they are read, if the unit has exact values."""
        schema = self._read_as(schema)
        types = described(schema)
        for name in self.units:
            if types.get(name, "").startswith(self.source.inexact):
                raise InputError(
                    f"privacy.unit: {self.name} gives {name!r} as {types[name]}, "
                    "so that a driver may have rounded two units to one: cast it to an integer or "
                    "a string in input.query"
                )
        return schema


@dataclass(frozen=True, kw_only=True)
class KeptQuery(SqlQuery):
    """A query that is executed once, by the process that starts the job.

    Args:
        number: of its rows in this process, once it is pinned.
        parts: of its rows, once it is divided.
    """

    held: ClassVar[bool] = True

    number: int | None = None
    parts: int = 1

    @contextmanager
    def pinned(self) -> Iterator[Self]:
        """The query with its rows, which last as long as the block; see `InputTable`."""
        number = next(_numbers)
        with driver_calls() as calls, ExitStack() as held:
            with self.source.translated():
                stream = _opened(calls, self.source, heads=self.heads)
                spool = Spool(
                    replace(stream, batches=_called(calls, stream.batches)),
                    lambda: calls.run(calls.held.close),
                )
            held.callback(spool.close)
            held.callback(calls.stop)  # before: it may hold a lock of the rows
            _spools[number] = spool
            held.callback(_spools.pop, number)
            yield replace(self, number=number)

    def schema(self) -> pa.Schema:
        """The columns of the query."""
        return self._checked(self._spool.schema)

    def divided(self, columns: Sequence[str]) -> Self:
        """The query in parts for several threads."""
        return replace(self, parts=_PARTS)

    def splits(self, columns: Sequence[str]) -> list[TableSplit]:
        """Parts of the blocks: which blocks there are is not known before they are read."""
        return [TableSplit(str(part).encode(), UNKNOWN_ROWS, 0) for part in range(self.parts)]

    def batches(self, split: TableSplit, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Every block of a part: the blocks with these numbers."""
        spool = self._spool
        for number in count(int(split.token), self.parts):
            with self.source.translated():
                block = spool.block(number)
                if block is None:
                    return
                selected = self._selected(block, columns)
            yield selected

    @property
    def _spool(self) -> Spool:
        spool = _spools.get(-1 if self.number is None else self.number)
        if spool is None:
            raise InputError(
                f"input: the rows of {self.name} are in the process that started the job, where "
                "this engine's workers cannot read them: write them to files, or set "
                "input.repeatable: true if every execution of the query gives the same rows"
            )
        return spool


@dataclass(frozen=True, kw_only=True)
class RepeatableQuery(SqlQuery):
    """A query whose every execution gives the same rows, as the user states.

    Args:
        columns: of the query, once it is pinned.
        rows: their number, once it is pinned.
    """

    held: ClassVar[bool] = False

    columns: pa.Schema | None = None
    rows: int | None = None

    @contextmanager
    def pinned(self) -> Iterator[Self]:
        """The query with its columns and their number of rows; see `InputTable`."""
        counting = f"SELECT count(*) AS n FROM (\n{self.source.query}\n) AS q"
        with self.source.translated():
            with driver_calls() as calls:
                columns = _opened(calls, self.source, heads=self.heads).schema
            rows = None if self.heads else self._count(counting)
        yield replace(self, columns=columns, rows=rows)

    def _count(self, counting: str) -> int:
        """The number of rows, by a query of it."""
        with driver_calls() as calls:
            batches = _called(calls, _opened(calls, self.source, counting).batches)
            (rows,) = [int(row) for batch in batches for row in batch[0].to_pylist()]
        return rows

    def schema(self) -> pa.Schema:
        """The columns of the query."""
        assert self.columns is not None
        return self._checked(self.columns)

    def divided(self, columns: Sequence[str]) -> Self:
        """The query itself: it is one part."""
        return self

    def splits(self, columns: Sequence[str]) -> list[TableSplit]:
        """One part: two executions may give the rows in two orders."""
        return [TableSplit(b"all", UNKNOWN_ROWS, 0)]

    def batches(self, split: TableSplit, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows, executed again by each reader.

        Raises:
            InputError: the columns or the number of rows differ from the first execution.
        """
        assert self.columns is not None
        rows = 0
        with driver_calls() as calls:
            with self.source.translated():
                stream = _opened(calls, self.source)
            taken = _called(calls, stream.batches)
            if not stream.schema.equals(self.columns, check_metadata=True):
                raise self._changed("columns")
            while True:
                with self.source.translated():
                    batch = next(taken, None)
                    if batch is None:
                        break
                    selected = self._selected(batch, columns)
                rows += batch.num_rows
                yield selected
        if rows != self.rows:
            raise self._changed("a number of rows")

    def _changed(self, what: str) -> InputError:
        return InputError(
            f"input.repeatable: {self.name} gave {what} that the first execution of the query did "
            "not give: name one state of its tables in input.query, or set input.repeatable: false"
        )
