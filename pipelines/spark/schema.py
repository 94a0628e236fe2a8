"""The schema of a Spark DataFrame as the Arrow schema of its batches, before a row is read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dptrees.transforms.errors import InputError

# By the name that every version of Spark gives a type.
_TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "char": pa.string(),
    "varchar": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "daytimeinterval": pa.duration("us"),
}


def arrow_schema(frame: Any) -> pa.Schema:
    """Return the Arrow types of the columns of a DataFrame.

    A column of another type is not there: Arrow batches cannot hold it, or a release not read it.

    Args:
        frame: the DataFrame.
    """
    return pa.schema(
        [
            pa.field(field.name, type)
            for field in frame.schema.fields
            if (type := arrow_type(field.dataType)) is not None
        ]
    )


def arrow_type(type: Any) -> pa.DataType | None:
    """Return the Arrow type of a Spark type; None if a release cannot read it."""
    name = type.typeName()
    if name == "struct":
        inner = [(field.name, arrow_type(field.dataType)) for field in type.fields]
        return pa.struct([(name, each) for name, each in inner if each is not None])
    if name == "decimal" or name.startswith("decimal("):
        return pa.decimal128(type.precision, type.scale)
    if name == "array":
        inner_type = arrow_type(type.elementType)
        return None if inner_type is None else pa.list_(inner_type)
    return _TYPES.get(name.split("(")[0].replace(" ", "").split("collate")[0])


def check_readable(frame: Any, names: list[str]) -> None:
    """Refuse columns whose type no release reads.

    Args:
        frame: the DataFrame.
        names: the columns that are read.

    Raises:
        InputError: naming the column and its type.
    """
    for field in frame.schema.fields:
        if field.name in names and arrow_type(field.dataType) is None:
            raise InputError(
                f"input: rows: column {field.name!r} has the type {field.dataType.simpleString()} "
                "of Spark, which no tree and no privacy unit reads: cast it first"
            )
