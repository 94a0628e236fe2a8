"""Columns in the path of a file, as Hive and Spark write them: `year=2024/month=07/`.

A folder `NAME=VALUE` gives every row of the files below it the value VALUE of the column NAME; both
may be written with %XX. `__HIVE_DEFAULT_PARTITION__` means null.
"""

from collections.abc import Mapping
from urllib.parse import unquote

import pyarrow as pa

NULL = "__HIVE_DEFAULT_PARTITION__"


def path_columns(path: str) -> Mapping[str, str | None]:
    """The columns in the folders of a path, the deepest one where two have one name.

    >>> path_columns("gs://visits/year=2024/place=S%C3%A3o%20Paulo/month=07/part=0.parquet")
    {'year': '2024', 'place': 'São Paulo', 'month': '07'}
    >>> path_columns("visits/year=__HIVE_DEFAULT_PARTITION__/0.parquet")
    {'year': None}
    """
    folders = [folder.partition("=") for folder in path.split("/")[:-1]]
    return {
        unquote(name): None if value == NULL else unquote(value)
        for name, equals, value in folders
        if name and equals
    }


def repeated(value: pa.Array, rows: int) -> pa.Array:
    """A value, (1,), in every row.

    >>> repeated(pa.array(["a"]), 2).to_pylist()
    ['a', 'a']
    """
    return pa.repeat(value[0], rows) if value[0].is_valid else pa.nulls(rows, value.type)
