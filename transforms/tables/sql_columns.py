"""Rows of a query, with types and exact values that the driver alone would not give.

PostgreSQL: the driver gives 7.0 and 7 of the type `numeric` as two strings, fails at the date
`infinity`, and gives some other types as bytes. So the types are read first, without a row and in
the same transaction, and the query is wrapped in one that converts such columns.

SQLite: a value has a type, and a column has none: next to the integer 1 the string '01' may be
stored. The driver chooses a type from the first rows and converts later values to it where it can:
a large integer is rounded to a double, and 1 becomes '1'. Then two people could become one. So the
storage classes of all values are read first, in the same transaction. A column with two of them is
refused; a column without values has the type of its declaration.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dptrees.transforms.errors import InputError
from dptrees.transforms.tables.spool import RowStream

# Of a column of strings that are exact numbers: a tree reads them as the nearest doubles.
EXACT_NUMBER = {b"dptrees": b"exact number"}

# By the function that sends a value to clients: a domain has the function of its base type.
_POSTGRESQL_TYPES = {
    "boolsend": pa.bool_(),
    "int2send": pa.int16(),
    "int4send": pa.int32(),
    "int8send": pa.int64(),
    "float4send": pa.float32(),
    "float8send": pa.float64(),
    "byteasend": pa.binary(),
    "date_send": pa.date32(),
    "time_send": pa.time64("us"),
    "timestamp_send": pa.timestamp("us"),
    "timestamptz_send": pa.timestamp("us", "UTC"),
}
_NUMERIC = "numeric_send"
_FINITE = ("date_send", "timestamp_send", "timestamptz_send")
# Timestamps and floats have the same strings whatever the settings of a user or a database are.
_BEGIN = (
    "SELECT set_config('TimeZone', 'UTC', true), set_config('extra_float_digits', '1', true), "
    "set_config('lock_timeout', '60s', true), set_config('transaction_read_only', 'on', true), "
    "current_setting('server_encoding')"
)
_SENDS = """
SELECT t.typsend::text FROM (SELECT 1) AS one
LEFT JOIN (SELECT * FROM (\n{1}\n) AS q WHERE false) AS q ON true,
LATERAL unnest(ARRAY[{0}]::oid[]) WITH ORDINALITY AS s (type, position)
JOIN pg_type t ON t.oid = s.type ORDER BY s.position
"""


@contextmanager
def postgresql_query(
    cursor: Any, query: str, name: str, *, heads: bool = False
) -> Iterator[RowStream]:
    """The rows of a query.

    Args:
        cursor: of a connection in a transaction.
        query: in the SQL of PostgreSQL.
        name: what the query is called in messages.
        heads: give its columns alone.

    Raises:
        InputError: the database has no encoding.
    """
    cursor.execute(_BEGIN)
    if cursor.fetchone()[-1] == "SQL_ASCII":
        raise InputError(
            f"input: {name} is in a database with the encoding SQL_ASCII, in which the meaning of "
            "strings is unknown; use UTF8"
        )
    cursor.execute(without_rows(query))
    columns = cursor.fetch_arrow_table().column_names
    types = ", ".join(f"pg_typeof(q.{_quoted(column)})" for column in columns)
    cursor.execute(_SENDS.format(types, query))
    sends = dict(zip(columns, (str(row[0]) for row in cursor.fetchall()), strict=True))
    wanted = ", ".join(_postgresql_value(*each) for each in sends.items())
    wrapped = f"SELECT {wanted} FROM (\n{query}\n) AS q"
    cursor.execute(without_rows(wrapped) if heads else wrapped)
    schema = pa.schema([_postgresql_field(*each) for each in sends.items()])
    batches = (batch.cast(schema) for batch in cursor.fetch_record_batch())
    yield RowStream(schema=schema, batches=batches, cancel=cursor.adbc_cancel)


def _postgresql_field(name: str, send: str) -> pa.Field:
    type = _POSTGRESQL_TYPES.get(send, pa.string())
    return pa.field(name, type, metadata=EXACT_NUMBER if send == _NUMERIC else None)


def _postgresql_value(name: str, send: str) -> str:
    """The value of a column as it is read.

    >>> _postgresql_value("at", "date_send"), _postgresql_value("mood", "enum_send")
    ('CASE WHEN isfinite("at") THEN "at" END AS "at"', '"mood"::text AS "mood"')
    """
    value = column = _quoted(name)
    if send == _NUMERIC:  # equal numbers have one text
        value = f"CASE WHEN {column} <> 'NaN' THEN trim_scale({column})::text END"
    elif send in _FINITE:
        value = f"CASE WHEN isfinite({column}) THEN {column} END"
    elif send not in _POSTGRESQL_TYPES:
        value = f"{column}::text"
    return f"{value} AS {column}"


_VIEW = "dptrees_query"
_TYPES = {
    "integer": pa.int64(),
    "real": pa.float64(),
    "text": pa.string(),
    "blob": pa.binary(),
}
# A value of each class: with a row of them first, the driver chooses the types above.
_EXAMPLES = {"integer": "0", "real": "0.5", "text": "''", "blob": "x''"}
_MARK = "dptrees_example"


@contextmanager
def sqlite_query(cursor: Any, query: str, name: str, *, heads: bool = False) -> Iterator[RowStream]:
    """The rows of a query.

    Args:
        cursor: of a connection in a transaction.
        query: in the SQL of SQLite.
        name: what the query is called in messages.
        heads: give its columns alone, with the type null: types follow from values, and no value
            is read.

    Raises:
        InputError: a column has values of two storage classes.
    """
    cursor.execute(f"CREATE TEMP VIEW {_VIEW} AS\n{query}")
    cursor.execute(f"PRAGMA table_info({_VIEW})")
    declared = {str(row[1]): str(row[2] or "") for row in cursor.fetchall()}
    if heads:
        yield RowStream(
            schema=pa.schema([(each, pa.null()) for each in declared]), batches=iter(())
        )
        return
    classes = _storage_classes(cursor, list(declared), name)
    for column, declaration in declared.items():
        classes.setdefault(column, _affinity(declaration))
    schema = pa.schema([(column, _TYPES[classes[column]]) for column in declared])
    examples = ", ".join(_EXAMPLES[classes[column]] for column in declared)
    cursor.execute(f"SELECT {examples}, 1 AS {_MARK} UNION ALL SELECT *, NULL FROM temp.{_VIEW}")
    yield RowStream(schema=schema, batches=_without_example(cursor.fetch_record_batch(), schema))


def _storage_classes(cursor: Any, columns: list[str], name: str) -> dict[str, str]:
    """The class of the values of each column that has values.

    Raises:
        InputError: there are two.
    """
    found = {}
    for first in range(0, len(columns), _AT_ONCE):
        some = columns[first : first + _AT_ONCE]
        wanted = ", ".join(
            f"{least}(CASE WHEN {_quoted(column)} IS NOT NULL THEN typeof({_quoted(column)}) END)"
            for column in some
            for least in ("min", "max")
        )
        cursor.execute(f"SELECT {wanted} FROM temp.{_VIEW}")
        (row,) = cursor.fetchall()
        for column, low, high in zip(some, row[::2], row[1::2], strict=True):
            if low != high:
                raise InputError(
                    f"input: {name} has values of the types {low} and {high} in {column!r}, which "
                    f"SQLite allows: choose one in input.query, as CAST({column} AS TEXT)"
                )
            if low is not None:
                found[column] = str(low)
    return found


# SQLite has at most 2,000 columns in a result.
_AT_ONCE = 500


def _affinity(declaration: str) -> str:
    """The class that SQLite prefers for a declared type (its documentation, "Datatypes", 3.1).

    >>> [_affinity(each) for each in ("BIGINT", "varchar(9)", "", "DOUBLE", "DECIMAL(9, 2)")]
    ['integer', 'text', 'blob', 'real', 'integer']
    """
    upper = declaration.upper()
    if "INT" in upper:
        return "integer"
    if any(each in upper for each in ("CHAR", "CLOB", "TEXT")):
        return "text"
    if not upper or "BLOB" in upper:
        return "blob"
    return "real" if any(each in upper for each in ("REAL", "FLOA", "DOUB")) else "integer"


def _without_example(reader: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        mark = batch.column(batch.num_columns - 1)
        rows = batch.filter(pc.is_null(mark)) if mark.null_count < batch.num_rows else batch
        yield pa.RecordBatch.from_arrays(
            [rows.column(number).cast(type) for number, type in enumerate(schema.types)],
            schema=schema,
        )


def without_rows(query: str) -> str:
    """The query with its columns and without its rows, in standard SQL."""
    return f"SELECT * FROM (\n{query}\n) AS q WHERE 1 = 0"


def quoted_table(name: str) -> str:
    """A name of a table, with its schema or without, as standard SQL writes it.

    >>> quoted_table('web.my "visits"')
    '"web"."my ""visits\"""'
    """
    return ".".join(map(_quoted, name.split(".")))


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
