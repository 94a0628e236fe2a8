"""Rows in memory as Arrow record batches without a copy, and the budgets spent on them.

The record of spending is no ledger: it ends with the process and refuses nothing. It warns
people who run a cell twice.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa

from dptrees.dpcore.privacy.unit import Budget, amount_text
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.columns import value_type
from dptrees.pipelines.python.error import Error
from dptrees.transforms import flow
from dptrees.transforms.errors import InputError
from dptrees.transforms.held import GivenRows
from dptrees.transforms.readers.file_columns import FileColumns, described, no_column

# As of Parquet: batches fit a core's caches with their scratch arrays.
_BATCH_ROWS = 2**17
# The message about a column of strings that a tree cannot read.
_COLUMN_TYPE = re.compile(r"column '([^']*)' has type (?:large_)?string,")
# The name of the rows in place of the name of a file.
_NAME = "rows"


def file_paths(rows: object) -> tuple[str, ...] | None:
    """Return the paths of files, if rows are given by paths; None for rows in memory.

    >>> file_paths("rows/*.parquet"), file_paths([{"age": 30}])
    (('rows/*.parquet',), None)
    """
    if isinstance(rows, (str, os.PathLike)):
        return (os.fspath(rows),)
    listed = isinstance(rows, (list, tuple)) and len(rows) > 0
    if listed and all(isinstance(each, (str, os.PathLike)) for each in rows):  # type: ignore[attr-defined]
        return tuple(map(os.fspath, rows))  # type: ignore[call-overload]
    return None


def is_held(rows: object) -> bool:
    """Return whether rows are in memory: they are given, and not by paths."""
    return rows is not None and file_paths(rows) is None


def to_batches(rows: Any, columns: Sequence[str]) -> list[pa.RecordBatch]:
    """Return the columns that a plan reads, in batches.

    Args:
        rows: an Arrow table, batch or reader; a pandas or Polars frame, a DuckDB relation, or
            another object with an Arrow stream; a dictionary of columns; a list of dictionaries.
        columns: the columns to read.

    Raises:
        InputError: if a column is missing or exists twice, or has values that no Arrow column
            holds.
        Error: if the rows have another type.
    """
    if type(rows).__module__.startswith("pyspark."):
        raise Error(
            "rows: the rows of a Spark DataFrame would all come to this process: use "
            "dptrees.spark.release, which counts them in Spark, or give rows.toArrow()"
        )
    if _is_pandas(rows):
        return _in_batches(_read_pandas(rows, columns), columns)
    if isinstance(rows, Mapping):
        return _in_batches(_column_by_column(rows, columns), columns)
    if isinstance(rows, (list, tuple)):
        return _in_batches(_read_dictionaries(rows, columns), columns)
    if type(rows).__module__.startswith("polars."):
        rows = _polars_columns(_collected(rows, columns), columns)
    reader = _to_reader(rows)
    if reader is not None:
        return _read_batches(reader, columns)
    raise Error(
        f"rows: {type(rows).__name__} is no table: give an Arrow table, batch or reader, a pandas "
        "or Polars DataFrame, a DuckDB relation, dictionaries, or paths of files"
    )


def column_type(rows: Any, name: str) -> pa.DataType | None:
    """Return the type of the values of a column of rows in memory; None if it is not known.

    >>> column_type({"age": [30.5, None]}, "age")
    DataType(double)
    """
    try:
        if hasattr(rows, "__arrow_c_stream__") and not _is_pandas(rows):
            stated = getattr(rows, "schema", None)
            if hasattr(stated, "__arrow_c_schema__"):
                return value_type(pa.schema(stated).field(name).type)
            if not hasattr(rows, "limit"):
                return None  # it may be read only once
            rows = rows.limit(0)
        return value_type(to_batches(rows, [name])[0].schema.field(0).type)
    except (Error, InputError, KeyError):
        return None


def _is_pandas(rows: object) -> bool:
    return hasattr(rows, "__dataframe__") and type(rows).__module__.startswith("pandas")


def _to_reader(rows: Any) -> pa.RecordBatchReader | None:
    """Return a reader of record batches; None if there are none, such as for a single column."""
    try:
        if hasattr(rows, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(rows)
        if hasattr(rows, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(rows)]).to_reader()
    except (pa.ArrowException, ValueError):
        pass
    return None


def _collected(frame: Any, columns: Sequence[str]) -> Any:
    """Return the columns to read of a LazyFrame as a DataFrame; another frame as it is."""
    if not hasattr(frame, "collect"):
        return frame
    from polars.exceptions import PolarsError

    try:
        return frame.select(_present(columns, frame.collect_schema().names())).collect()
    except PolarsError:  # its message may show values
        raise Error("rows: the LazyFrame cannot be collected: rows.collect() shows why") from None


def _polars_columns(frame: Any, columns: Sequence[str]) -> Any:
    """Return the columns to read of a Polars frame: the others may have types that Arrow lacks."""
    if not hasattr(frame, "columns"):
        return frame  # a single column
    chosen = frame.select(_present(columns, frame.columns))
    for name, type in chosen.schema.items():
        # Polars sends addresses of memory in place of Python's objects.
        if "Object" in str(type) or _to_reader(chosen.select(name)) is None:
            raise Error(f"rows: column {name!r} has type {type}, which Arrow cannot hold: cast it")
    return chosen


def _read_pandas(frame: Any, columns: Sequence[str]) -> pa.Table:
    """Return the columns to read from a pandas frame, without its index.

    NaN is null, as in the files that pandas writes.
    """
    names = list(frame.columns)
    for name in columns:
        if name in names:
            continue
        if name in frame.index.names:
            raise Error(f"rows: {name!r} is in the index of the frame: give rows.reset_index()")
        if getattr(frame.columns, "nlevels", 1) > 1:
            raise Error(
                "rows: the columns of the frame have names of several levels: give one level, as "
                f"by rows.droplevel(0, axis=1), with the name {name!r}"
            )
        if name in map(str, names):
            raise Error(
                f"rows: the name of column {name} is no text: give rows.rename(columns=str)"
            )
    there = _present(columns, names)
    return _column_by_column({name: frame[name] for name in there}, columns)


def _column_by_column(rows: Mapping[str, Any], columns: Sequence[str]) -> pa.Table:
    there = _present(columns, list(rows))
    arrays = {name: _array(name, rows[name]) for name in there}
    if len({len(each) for each in arrays.values()}) > 1:
        raise Error(f"rows: the columns {', '.join(arrays)} are not of one length")
    return pa.table(arrays)


def _array(name: str, values: Any) -> Any:
    try:
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            return values
        return pa.array(values, from_pandas=hasattr(values, "dtype"))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # The library's message may show a value.
        raise InputError(
            f"input: {_NAME}: column {name!r} holds values of several types, or of one that no "
            "column of Arrow has"
        ) from None


def _read_dictionaries(rows: Sequence[Any], columns: Sequence[str]) -> pa.Table:
    for row in rows:
        if not isinstance(row, Mapping):
            raise Error(f"rows: a list holds dictionaries or paths, and not {type(row).__name__}")
    if not rows:
        raise Error("rows: an empty list has no columns; give an Arrow table without rows")
    there = _present(columns, list(dict.fromkeys(name for row in rows for name in row)))
    return _column_by_column({name: [row.get(name) for row in rows] for name in there}, columns)


def _read_batches(reader: pa.RecordBatchReader, columns: Sequence[str]) -> list[pa.RecordBatch]:
    """Read batch by batch, so that only the needed columns of a large stream are in memory."""
    schema = reader.schema
    there = _present(columns, schema.names)
    held = [batch.select(there) for batch in reader]
    chosen = pa.schema([schema.field(name) for name in there])
    return _in_batches(pa.Table.from_batches(held, chosen), columns)


def _present(columns: Sequence[str], names: Sequence[Any]) -> list[str]:
    """Return the columns to read, after checking that each exists once.

    Raises:
        InputError: if one is missing, or exists twice.
    """
    for name in columns:
        if list(names).count(name) != 1:
            raise no_column(_NAME, name, list(map(str, names)), columns)
    return list(columns)


def _in_batches(table: pa.Table, columns: Sequence[str]) -> list[pa.RecordBatch]:
    chosen = _plain_types(table.select(_present(columns, table.column_names)))
    # Also without rows there is a batch, with the types of its columns.
    return chosen.to_batches(max_chunksize=_BATCH_ROWS) or [
        pa.RecordBatch.from_pylist([], schema=chosen.schema)
    ]


def _plain_types(table: pa.Table) -> pa.Table:
    """Convert string views, which some programs hold in memory, to the strings of files."""
    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    for place, column in enumerate(table.schema):
        kind = column.type
        if pa.types.is_dictionary(kind) and kind.value_type in views:
            kind = pa.dictionary(kind.index_type, views[kind.value_type])
        kind = views.get(kind, kind)
        if kind != column.type:
            table = table.set_column(place, column.name, table.column(place).cast(kind))
    return table


class HeldSource:
    """A source of rows in memory, for a stage of a release.

    Args:
        batches: the batches, all of one schema.
        number: the number under which they are held.
    """

    def __init__(self, batches: Sequence[pa.RecordBatch], number: int) -> None:
        self._batches, self._number = batches, number

    @property
    def name(self) -> str:
        """The name of the rows in messages."""
        return _NAME

    @property
    def paths(self) -> tuple[str, ...]:
        """An empty tuple: the rows are in the memory of this process."""
        return ()

    def types(self, units: Sequence[str] = ()) -> dict[str, str]:
        """Return the names of the types of the columns."""
        return described(self._batches[0].schema)

    def checked(self, plan: ReleasePlan) -> list[tuple[str, int]]:
        """Return the size of the rows, after checking that they have the columns of a plan.

        Raises:
            InputError: if a column is missing, or has a type that cannot be used.
        """
        schema = self._batches[0].schema
        try:
            FileColumns.from_schema(schema, _NAME, plan)
        except InputError as error:
            match = _COLUMN_TYPE.search(error.sentence)
            if match is None or "needs" not in error.sentence:
                raise
            name = match[1]
            raise InputError(
                f"{error.sentence} Convert strings first, with pandas for instance by "
                f"pd.to_numeric(rows[{name!r}]) or pd.to_datetime(rows[{name!r}])."
            ) from None
        return [(_NAME, sum(batch.nbytes for batch in self._batches))]

    def reading(self, plan: ReleasePlan) -> flow.Transform:
        """Return the transform that reads the rows."""
        return GivenRows(self._number)


_budgets: dict[Hashable, list[Budget]] = {}


def note_spent(rows: Any, budget: Budget) -> str | None:
    """Record the budget of one more release of rows.

    Args:
        rows: the data, as for `dptrees.release`.
        budget: the budget that the release spent.

    Returns:
        A sentence with the spending of all releases of these rows; None if this is the first, or
        the rows cannot be recognized.

    >>> from dptrees.dpcore.privacy.unit import Measure
    >>> budget = Budget(measure=Measure.EPSILON, amount=Fraction(1, 2))
    >>> note_spent("rows/*.parquet", budget)
    >>> note_spent("rows/*.parquet", budget)
    '2 releases of these rows in this process spend epsilon = 1 together'
    """
    key = _key(rows)
    if key is None:
        return None
    budgets = _budgets.setdefault(key, [])
    budgets.append(budget)
    if len(budgets) == 1:
        return None
    sums: dict[str, Fraction] = {}
    for each in budgets:
        name = each.measure.value
        sums[name] = sums.get(name, Fraction(0)) + each.amount
    amounts = " and ".join(f"{name} = {amount_text(amount)}" for name, amount in sums.items())
    return f"{len(budgets)} releases of these rows in this process spend {amounts} together"


def _key(rows: Any) -> Hashable | None:
    """Return the identity of rows as long as they exist; None if they have none."""
    paths = file_paths(rows)
    if paths is not None:
        return tuple(map(os.path.abspath, paths))
    key = id(rows)
    if key not in _budgets:
        try:
            weakref.finalize(rows, _budgets.pop, key, None)
        except TypeError:
            return None
    return key
