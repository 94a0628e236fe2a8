"""Checks of the heads of files, before a row is read: a contract, and types of the privacy unit."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from dptrees.dpcore.bounding.unit_ids import unit_families
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.file_columns import path_columns
from dptrees.transforms.readers.formats import find_reader
from dptrees.transforms.readers.read import for_each_file, open_file, spread
from dptrees.transforms.readers.schema_contract import SchemaContract

# Formats whose files have no types: the unit's values are text.
_OF_TEXT = ("csv", "json")


def check_contract(
    contract: SchemaContract, paths: Sequence[str], format: str, options: Mapping[str, Any]
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
    for path, types in _all_types(paths, format, options):
        contract.check(types, path)


def file_unit_families(
    unit: PrivacyUnit, paths: Sequence[str], format: str, options: Mapping[str, Any]
) -> dict[str, str]:
    """Return the families of the types of the unit's columns in files.

    Heads of some files are read, and more until one has a type for each column; workers compare
    the others (`transforms.readers.file_columns`).

    Args:
        unit: the privacy unit.
        paths: of the files.
        format: one of `transforms.readers.formats.FORMATS`; files of text have one type.
        options: of its reader.

    Raises:
        InputError: files have types of two families, or one cannot be read.
    """
    if format in _OF_TEXT:
        return unit_families(unit, dict.fromkeys(unit.columns, "text"))
    found: dict[str, str] = {}
    looked = spread(paths) if unit.columns else []
    for path, types in _all_types(looked, format, options):
        found = joined_families(unit, path, types, found)
    for path in paths:
        if found.keys() >= set(unit.columns):
            break
        found = joined_families(unit, path, file_types(path, format, options), found)
    return found


def joined_families(
    unit: PrivacyUnit, path: str, types: Mapping[str, str], others: Mapping[str, str]
) -> dict[str, str]:
    """Return the families of the unit's columns in one more file, and in the others.

    Raises:
        InputError: they differ; it names the file.
    """
    try:
        return unit_families(unit, types, others)
    except ValueError as error:
        raise InputError(f"input: {path}: {error}") from None


def _all_types(
    paths: Sequence[str], format: str, options: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, str]]]:
    look = partial(file_types, format=format, options=options)
    return zip(paths, for_each_file(look, paths), strict=True)


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
