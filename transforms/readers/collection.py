"""Rows of somebody's own pipeline as Arrow record batches.

Elements are record batches, which are handed on as they are, or single rows: dictionaries,
`beam.Row` or NamedTuples, which are gathered into batches. The types of their columns are declared
before a row is seen, by the fields of the element type or by a schema, as in a Parquet file:
guessed from values they would depend on rows.
"""

import datetime
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.typehints import row_type, typehints
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.counting import in_window
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.file_columns import FileColumns, no_column
from dptrees.transforms.readers.read import BALANCE

_WHERE = "the PCollection"
_BATCH_ROWS = 2**16
_MAPPINGS = (typehints.DictHint.DictConstraint, typehints.MappingHint.MappingTypeConstraint)

_ARROW_TYPES: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    bytes: pa.binary(),
    datetime.date: pa.date32(),
    datetime.datetime: pa.timestamp("us"),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
    float: pa.float64(),
    int: pa.int64(),
    str: pa.string(),
}
# Of a type's values those that it may not hold are missing; a value of another class is a mistake.
_CLASSES: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...] = (
    (pa.types.is_boolean, (bool, np.bool_)),
    (pa.types.is_integer, (int, np.integer)),
    (pa.types.is_floating, (float, int, np.floating, np.integer)),
    (pa.types.is_decimal, (Decimal, int)),
    (pa.types.is_string, (str,)),
    (pa.types.is_large_string, (str,)),
    (pa.types.is_date, (datetime.date,)),
    (pa.types.is_timestamp, (datetime.datetime,)),
    (pa.types.is_time, (datetime.time,)),
    (pa.types.is_duration, (datetime.timedelta,)),
)


class ReadCollection(beam.PTransform):
    """The record batches of a PCollection of batches or rows, with the columns that a plan reads.

    Args:
        plan: says which columns are read and which types they may have.
        schema: the types of the columns, by name; None: as the elements' type has them.

    Returns:
        a pair: PCollection[pa.RecordBatch], and the balance PCollection[tuple[str, int]].

    Raises:
        InputError: the elements are no rows, no column declares its type, or one is missing or of a
            type that cannot be used: when the graph is built, of batches on a worker.
    """

    def __init__(self, plan: ReleasePlan, schema: pa.Schema | None = None) -> None:
        super().__init__()
        self._plan, self._schema = plan, schema

    def expand(self, rows: Any) -> Any:
        schema = row_schema(element_type(rows), self._plan.columns, self._schema)
        step: beam.DoFn
        if schema is None:
            step = _Batches(self._plan)
        else:
            FileColumns.from_schema(schema, _WHERE, self._plan)
            step = _Gather(schema)
        read = rows | "Batches" >> beam.ParDo(step).with_outputs(BALANCE, main="batches")
        return read["batches"], read[BALANCE]


def element_type(rows: Any) -> Any:
    """Return the type of a PCollection's elements; after `beam.Select`, with types of its fields.

    Beam infers what `beam.Select` makes of rows with typed fields, but reads no types of the fields
    of a NamedTuple.
    """
    declared, step = rows.element_type, rows.producer
    selected = step and step.parent and step.parent.transform
    if isinstance(selected, beam.Select) and isinstance(declared, row_type.RowTypeConstraint):
        fields = _fields(element_type(step.inputs[0]))
        if fields is not None and typehints.Any in dict(declared._fields).values():
            row = row_type.RowTypeConstraint.from_fields(list(fields.items()))
            return selected.infer_output_type(row)
    return declared


def row_schema(
    element_type: Any, columns: Sequence[str], schema: pa.Schema | None = None
) -> pa.Schema | None:
    """The schema of the columns of rows, of those that there are; None of record batches.

    Args:
        element_type: of a PCollection.
        columns: those that are read.
        schema: what was declared.

    Raises:
        InputError: the elements are no rows, or the type of a column is not declared.

    >>> row_schema(typing.NamedTuple("Visit", [("x", float), ("day", str)]), ["x"])
    x: double
    """
    if schema is None and _are_batches(element_type):
        return None
    fields = _fields(element_type)
    if fields is None and not _may_be_rows(element_type):
        raise InputError(
            f"rows: the elements are of type {_name(element_type)}, but a release takes Arrow "
            "record batches, dictionaries, beam.Row or NamedTuples"
        )
    if schema is not None:
        for name in columns:
            if schema.get_field_index(name) < 0:
                raise no_column(_WHERE, name, schema.names)
        return pa.schema([field for field in schema if field.name in columns])
    if fields is None:
        raise InputError(
            "rows: dictionaries do not define the types of their columns: give "
            f"schema=pa.schema(...) of {', '.join(columns)}"
        )
    for name in columns:
        if name not in fields:
            raise no_column(_WHERE, name, list(fields))
    return pa.schema([(name, _arrow_type(name, fields[name])) for name in columns])


def _are_batches(element_type: Any) -> bool:
    """Whether elements are record batches, or of an undeclared type, which means the same."""
    is_untyped = element_type is typehints.Any or element_type is object or element_type is None
    return is_untyped or element_type is pa.RecordBatch


def _may_be_rows(element_type: Any) -> bool:
    is_untyped = _are_batches(element_type) and element_type is not pa.RecordBatch
    return is_untyped or isinstance(convert_to_beam_type(element_type), _MAPPINGS)


def _fields(element_type: Any) -> dict[str, Any] | None:
    """The types of the fields of rows, by name; None where the type of elements declares none."""
    if isinstance(element_type, row_type.RowTypeConstraint):
        return dict(element_type._fields)
    if row_type.match_is_named_tuple(element_type):
        return typing.get_type_hints(element_type)
    return None


def _arrow_type(name: str, hint: Any) -> pa.DataType:
    """The type of a column of a field."""
    hint = convert_to_beam_type(hint)
    if typehints.is_nullable(hint):
        hint = typehints.get_concrete_type_from_nullable(hint)
    if isinstance(hint, type) and issubclass(hint, np.generic):
        return pa.from_numpy_dtype(hint)
    result = _ARROW_TYPES.get(hint)
    if result is None:
        raise InputError(
            f"rows: the field {name!r} is of type {_name(hint)}, which is no type of Arrow: give "
            "schema=pa.schema(...) of the columns"
        )
    return result


def _name(type: Any) -> str:
    return str(getattr(type, "__name__", type))


@beam.typehints.with_output_types(pa.RecordBatch, **{BALANCE: tuple[str, int]})
class _Batches(beam.DoFn):
    """Hands batches on, once each is seen to have what is read."""

    def __init__(self, plan: ReleasePlan) -> None:
        self._plan = plan

    def setup(self) -> None:
        self._checked: pa.Schema | None = None

    def process(self, batch: Any) -> Iterator[Any]:
        if not isinstance(batch, pa.RecordBatch):
            raise InputError(
                f"rows: an element is of type {_name(type(batch))}, which was not declared when "
                "the graph was built: declare it by with_output_types, or give "
                "schema=pa.schema(...)"
            )
        if batch.schema is not self._checked and batch.schema != self._checked:
            self._columns = FileColumns.from_schema(batch.schema, _WHERE, self._plan)
            self._checked = batch.schema
        yield self._columns.batch(batch)
        yield beam.pvalue.TaggedOutput(BALANCE, ("rows", batch.num_rows))


@beam.typehints.with_output_types(pa.RecordBatch, **{BALANCE: tuple[str, int]})
class _Gather(beam.DoFn):
    """Gathers rows into batches of the declared types."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def start_bundle(self) -> None:
        self._rows: list[Any] = []

    def process(self, row: Any) -> Iterator[Any]:
        self._rows.append(row)
        if len(self._rows) == _BATCH_ROWS:
            yield from self._taken()

    def finish_bundle(self) -> Iterator[Any]:
        for element in self._taken():
            if isinstance(element, beam.pvalue.TaggedOutput):
                yield beam.pvalue.TaggedOutput(element.tag, in_window(element.value))
            else:
                yield in_window(element)

    def _taken(self) -> Iterator[Any]:
        """The rows that wait, as a batch."""
        rows, self._rows = self._rows, []
        yield to_batch(rows, self._schema)
        yield beam.pvalue.TaggedOutput(BALANCE, ("rows", len(rows)))


def to_batch(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as a record batch.

    Args:
        rows: dictionaries or objects with attributes.
        schema: of the columns to take.

    Returns:
        a batch in which a value beyond its type's range is null, whatever the others are.

    Raises:
        InputError: a row lacks a column, or has a value of another class than its type's.

    >>> rows = [{"x": 1, "y": "a"}, {"x": 2**70, "y": None}]
    >>> to_batch(rows, pa.schema({"x": pa.int64(), "y": pa.string()})).to_pylist()
    [{'x': 1, 'y': 'a'}, {'x': None, 'y': None}]
    """
    columns = [_column(_values(rows, field.name), field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _values(rows: Sequence[Any], name: str) -> list[Any]:
    try:
        return [row[name] if isinstance(row, Mapping) else getattr(row, name) for row in rows]
    except (KeyError, AttributeError):
        raise InputError(
            f"rows: an element has no column {name!r}; where a value is missing, write None"
        ) from None


def _column(values: list[Any], field: pa.Field) -> pa.Array:
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.concat_arrays([_value(each, field) for each in values])


def _value(value: Any, field: pa.Field) -> pa.Array:
    """One value; null where the type cannot hold it."""
    try:
        return pa.array([value], type=field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        if any(of_type(field.type) and isinstance(value, own) for of_type, own in _CLASSES):
            return pa.nulls(1, field.type)
    raise InputError(
        f"rows: column {field.name!r} has type {field.type}, but a value of it is of Python's type "
        f"{_name(type(value))}"
    ) from None
