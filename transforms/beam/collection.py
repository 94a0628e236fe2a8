"""Rows of a user's own pipeline as Arrow record batches.

Elements are batches or tables, or single rows (dictionaries, `beam.Row`, NamedTuples). Types are
declared before a row is seen, since guessed types would depend on rows. Each declared type takes
values of some Python classes; another class stops the job, and a value of a right class that the
type does not hold exactly is missing.
"""

import datetime
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from types import NoneType
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.typehints import row_type, typehints
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type
from apache_beam.utils.timestamp import Timestamp

from dptrees.dpcore.bounding.unit_ids import unit_families, unit_family
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms import flow
from dptrees.transforms.beam.adapter import RunStep
from dptrees.transforms.conservation import unit_types
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.file_columns import FileColumns, no_column
from dptrees.transforms.readers.read import BALANCE

_WHERE = "the PCollection"
_BATCH_ROWS = 2**16
_BATCHES = (pa.RecordBatch, pa.Table)
_MAPPINGS = (typehints.DictHint.DictConstraint, typehints.MappingHint.MappingTypeConstraint)

_ARROW_TYPES: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    bytes: pa.binary(),
    datetime.date: pa.date32(),
    datetime.datetime: pa.timestamp("us"),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
    Timestamp: pa.timestamp("us", "UTC"),
    float: pa.float64(),
    int: pa.int64(),
    str: pa.string(),
}


def _is_string(type: pa.DataType) -> bool:
    return unit_family(str(type)) == "text"


def _is_bytes(type: pa.DataType) -> bool:
    return unit_family(str(type)) == "bytes" or bool(pa.types.is_fixed_size_binary(type))


def _is_uuid(type: pa.DataType) -> bool:
    return str(type) == "extension<arrow.uuid>"


_Classes = tuple[type, ...]
# The classes of values that a type takes, and subclasses of these that it does not take. Arrow
# would take more, and change values: a float in an integer, a time in a date, seconds in a time.
_CLASSES: tuple[tuple[Callable[[pa.DataType], bool], _Classes, _Classes], ...] = (
    (pa.types.is_boolean, (bool, np.bool_), ()),
    (pa.types.is_integer, (int, np.integer), (bool, np.timedelta64)),
    (
        pa.types.is_float64,
        (float, int, np.float32, np.float16, np.integer),
        (bool, np.timedelta64),
    ),
    (pa.types.is_float32, (np.float32, np.float16, int), (bool,)),
    (pa.types.is_float16, (np.float16,), ()),
    (pa.types.is_decimal, (Decimal, int), (bool,)),
    (_is_string, (str,), ()),
    (_is_bytes, (bytes,), ()),
    (pa.types.is_date, (datetime.date,), (datetime.datetime,)),
    (pa.types.is_timestamp, (datetime.datetime, Timestamp), ()),
    (pa.types.is_time, (datetime.time,), ()),
    (pa.types.is_duration, (datetime.timedelta,), ()),
    (_is_uuid, (uuid.UUID,), ()),
)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class ReadCollection(beam.PTransform):
    """The record batches of a PCollection of batches, tables or rows, with the columns that a plan
    reads.

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
        if schema is not None:
            FileColumns.from_schema(schema, _WHERE, self._plan)
        step = beam.ParDo(RunStep(_Read(self._plan, schema)))
        read = rows | "Batches" >> step.with_outputs(BALANCE, main="batches")
        return read["batches"], read[BALANCE]

    def unit_families(self, rows: Any) -> Mapping[str, str] | None:
        """Return the families of types of the unit's columns; None where none is declared."""
        schema = row_schema(element_type(rows), self._plan.columns, self._schema)
        if schema is None:
            return None
        return unit_families(self._plan.unit, {field.name: str(field.type) for field in schema})


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
    """The schema of the columns of rows, of those that there are; None of record batches or tables
    without a declared schema.

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
    if fields is None and not (_are_batches(element_type) or _are_mappings(element_type)):
        raise InputError(
            f"rows: the elements are of type {_name(element_type)}, but a release takes Arrow "
            "record batches or tables, dictionaries, beam.Row or NamedTuples"
        )
    if schema is not None:
        for name in columns:
            if schema.get_field_index(name) < 0:
                raise no_column(_WHERE, name, schema.names, columns, in_schema=True)
        return pa.schema([field for field in schema if field.name in columns])
    if fields is None:
        raise InputError(
            "rows: dictionaries do not define the types of their columns: give "
            f"schema=pa.schema(...) of {', '.join(columns)}"
        )
    for name in columns:
        if name not in fields:
            raise no_column(_WHERE, name, list(fields), columns)
    return pa.schema([(name, _arrow_type(name, fields[name])) for name in columns])


def _are_batches(element_type: Any) -> bool:
    """Whether elements are batches or tables, or of an undeclared type, which means the same."""
    return element_type in (typehints.Any, object, None, *_BATCHES)


def _are_mappings(element_type: Any) -> bool:
    return isinstance(convert_to_beam_type(element_type), _MAPPINGS)


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
    if isinstance(hint, type) and issubclass(hint, np.floating):
        return pa.float64()  # Beam's coders make Python's floats of all
    if isinstance(hint, type) and issubclass(hint, np.generic):
        return pa.from_numpy_dtype(hint)
    result = _ARROW_TYPES.get(hint)
    if result is None:
        raise InputError(
            f"rows: the field {name!r} is of type {_name(hint)}, which is no type of Arrow: give "
            "schema=pa.schema(...) of the columns; in Beam YAML state its output_type"
        )
    return result


def _name(type: Any) -> str:
    return str(getattr(type, "__name__", type))


@flow.gives(pa.RecordBatch, **{BALANCE: tuple[str, int]})
class _Read(flow.Step):
    """Hands batches on, once each is seen to have what is read; gathers rows into batches.

    Args:
        plan: says which columns are read.
        schema: of the columns; None: elements are batches or tables of any types.
    """

    def __init__(self, plan: ReleasePlan, schema: pa.Schema | None) -> None:
        self._plan, self._schema = plan, schema

    def setup(self) -> None:
        self._checked: pa.Schema | None = None

    def start_bundle(self) -> None:
        self._rows: list[Any] = []
        self._unit_types: set[str] = set()

    def process(self, element: Any) -> Iterator[Any]:
        if isinstance(element, _BATCHES):
            batches = element.to_batches() if isinstance(element, pa.Table) else [element]
            for batch in batches or [pa.RecordBatch.from_pylist([], schema=element.schema)]:
                yield from self._handed_on(batch)
            return
        if self._schema is None:
            raise InputError(
                f"rows: an element is of type {_name(type(element))}, which was not declared when "
                "the graph was built: declare it by with_output_types, or give "
                "schema=pa.schema(...)"
            )
        self._rows.append(element)
        if len(self._rows) == _BATCH_ROWS:
            yield from self._taken(self._schema)

    def _handed_on(self, batch: pa.RecordBatch) -> Iterator[Any]:
        if batch.schema is not self._checked and batch.schema != self._checked:
            self._columns = FileColumns.from_schema(batch.schema, _WHERE, self._plan)
            self._checked = batch.schema
        read = self._columns.batch(batch)
        _check_declared(read.schema, self._schema)
        yield read
        yield flow.Tagged(BALANCE, ("rows", read.num_rows))
        types = {name: str(read.schema.field(name).type) for name in self._plan.unit.columns}
        for name in unit_types(unit_families(self._plan.unit, types)) - self._unit_types:
            self._unit_types.add(name)
            yield flow.Tagged(BALANCE, (name, 1))

    def finish_bundle(self) -> Iterator[Any]:
        if self._schema is not None:
            yield from self._taken(self._schema)

    def _taken(self, schema: pa.Schema) -> Iterator[Any]:
        """The rows that wait, as a batch."""
        rows, self._rows = self._rows, []
        yield to_batch(rows, schema)
        yield flow.Tagged(BALANCE, ("rows", len(rows)))


def _check_declared(schema: pa.Schema, declared: pa.Schema | None) -> None:
    """Refuse batches whose columns have other types than declared.

    Raises:
        InputError: naming the column and both types.
    """
    for field in declared or ():
        found = schema.field(field.name).type
        if found != field.type:
            raise InputError(
                f"rows: column {field.name!r} is declared as {field.type}, but a batch has {found}"
            )


def to_batch(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as a record batch.

    Args:
        rows: dictionaries or objects with attributes.
        schema: of the columns to take.

    Returns:
        a batch in which a value that its type does not hold exactly is null, whatever the others
        are.

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
    value_type = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    for own in set(map(type, values)):
        if not _takes(value_type, own):
            raise _other_class(field, _name(own))
    if hasattr(value_type, "unit"):
        values = [_moment(each, value_type, field) for each in values]
    if _is_uuid(value_type):  # Arrow 23 takes no objects of them
        values = [None if each is None else each.bytes for each in values]
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.concat_arrays([_value(each, field) for each in values])


def _takes(type: pa.DataType, own: type) -> bool:
    """Whether values of a class are values of a type."""
    return own is NoneType or any(
        of_type(type) and issubclass(own, classes) and not issubclass(own, others)
        for of_type, classes, others in _CLASSES
    )


def _moment(value: Any, value_type: pa.DataType, field: pa.Field) -> Any:
    """Return a time or duration as Arrow reads it; None where the type cannot hold it.

    Raises:
        InputError: a time has a zone and the type has none, or the reverse.
    """
    if value is None or value != value:  # pandas' NaT
        return None
    zone = getattr(value_type, "tz", None)
    is_zoned = isinstance(value, Timestamp) or getattr(value, "tzinfo", None) is not None
    if is_zoned != (zone is not None) and not isinstance(value, datetime.timedelta):
        name = _name(type(value))
        raise _other_class(field, f"{name} {'with' if is_zoned else 'without'} a time zone")
    per_second = _PER_SECOND[value_type.unit]
    if isinstance(value, Timestamp):
        number, rest = divmod(value.micros * per_second, 10**6)
        return None if rest else number
    micros = getattr(value, "microsecond", 0) or getattr(value, "microseconds", 0)
    nanos = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
    return None if (1000 * micros + nanos) % (10**9 // per_second) else value


def _value(value: Any, field: pa.Field) -> pa.Array:
    """One value of a right class; null where the type cannot hold it."""
    try:
        return pa.array([value], type=field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.nulls(1, field.type)


def _other_class(field: pa.Field, name: str) -> InputError:
    return InputError(
        f"rows: column {field.name!r} has type {field.type}, but a value of it is of Python's type "
        f"{name}: convert the values, or declare their type"
    )
