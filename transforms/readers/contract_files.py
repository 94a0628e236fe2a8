"""The check of a contract about columns against the heads of all files of an input."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dptrees.transforms.readers.file_columns import path_columns
from dptrees.transforms.readers.formats import find_reader
from dptrees.transforms.readers.read import open_file
from dptrees.transforms.readers.schema_contract import SchemaContract

# A head takes a store tens of milliseconds, in which no processor works.
_THREADS = 16


def check_contract(
    contract: SchemaContract, paths: Iterable[str], format: str, options: Mapping[str, Any]
) -> None:
    """Refuse files that break a contract; the head of each one is read, and no row.

    Args:
        contract: about the columns.
        paths: of the files.
        format: one of `transforms.readers.formats.FORMATS` whose files state types.
        options: of its reader.

    Raises:
        InputError: a file breaks it, or cannot be read; the first one in order.
    """
    pool = ThreadPoolExecutor(_THREADS)
    try:
        found = [pool.submit(file_types, path, format, options) for path in paths]
        for path, types in zip(paths, found, strict=True):
            contract.check(types.result(), path)
    finally:
        pool.shutdown(cancel_futures=True)


def file_types(path: str, format: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The names of the types of a file's columns, and of the columns in its path.

    Args:
        path: of the file.
        format: one of `transforms.readers.formats.FORMATS`.
        options: of its reader.

    Raises:
        InputError: it cannot be read.
    """
    # A folder of the path states a string.
    stated: dict[str, str] = dict.fromkeys(path_columns(path), "string")
    return stated | find_reader(format).describe_columns(open_file(path), path, **options)
