"""Public tables by reference: the leaves of a hierarchy, or many keys, as a file of the release.

A universe may have millions of leaves, and every step of a job holds the plan. So the launcher
writes it into the release's folder, and each worker reads it once: whole, or a row group at a
time where its leaves are read in parts. A universe is public by declaration; a table of keys
too, or it was released before.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dptrees.dpcore.hierarchy.leaf_codes import universe_from_table
from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.questions.question import PublicTable
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.key_tables import KeyTable
from dptrees.transforms.errors import UniverseError
from dptrees.transforms.folder import files
from dptrees.transforms.folder.layout import (
    parquet_bytes,
    part_checksums,
    sha256,
    universe_of_parquet,
    write_universe,
)
from dptrees.transforms.folder.names import keys_name, universe_name

# Of this process, by digest: steps of one worker share what they read.
_LOADED: "dict[str, Shared]" = {}


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedUniverse(Universe):
    """A universe that lies in a file, and travels as the file's place.

    Args:
        path: of the file.
        checksum: SHA-256 of its bytes, in hexadecimal.
        parts: of a universe in parts, whose file no process reads whole: their checksums.
    """

    path: str
    checksum: str
    parts: tuple[bytes, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.parts:
            state = self.digest, self.checksum, self.upper_digest, self.parts
            return _loaded_parts, (self.path, *state)
        return _loaded, (universe_from_table, self.path, self.digest, self.checksum)


class SharedKeys(KeyTable):
    """A table of keys that lies in a file, and travels as the file's place.

    Args:
        table: the keys.
        path: of the file.
        checksum: SHA-256 of its bytes, in hexadecimal.
    """

    def __init__(self, table: KeyTable, *, path: str, checksum: str) -> None:
        # With what was computed of it.
        self.__dict__.update(table.__dict__)
        self.path, self.checksum = path, checksum

    def __reduce__(self) -> tuple[Any, ...]:
        return _loaded, (KeyTable, self.path, self.digest, self.checksum)


Shared = SharedUniverse | SharedKeys
# Makes a public table from the rows of its file.
_Read = Callable[[pa.Table], PublicTable]


def _file_name(table: PublicTable) -> str:
    name = universe_name if isinstance(table, Universe) else keys_name
    return name(table.digest)


def share_universes(plan: ReleasePlan, folder: str) -> ReleasePlan:
    """Writes the public tables of a plan into a folder, and lets the plan travel with their places.

    Args:
        plan: the questions.
        folder: of the release, on any Beam filesystem.

    Returns:
        the plan; of the same digest.

    Raises:
        OutputError: a file cannot be written.
    """
    shared = partial(_share, folder=folder)
    questions = tuple(question.with_public_tables(shared) for question in plan.questions)
    return replace(plan, questions=questions)


def universe_files(plan: ReleasePlan) -> dict[str, str]:
    """The checksums of the public tables that a plan shares, by the names of their files."""
    return {
        _file_name(table): table.checksum
        for question in plan.questions
        for table in question.public_tables
        if isinstance(table, SharedUniverse | SharedKeys)
    }


def _share(table: PublicTable, folder: str) -> Shared:
    path = files.join(folder, _file_name(table))
    known = _LOADED.get(table.digest)
    if known is not None and known.path == path and files.exists(path):
        return known
    if isinstance(table, Universe) and table.is_parted:
        return _share_parts(table, path)
    read = universe_from_table if isinstance(table, Universe) else KeyTable
    data = _existing_file(read, path, table.digest)
    if data is None:
        data = parquet_bytes(table.to_table())
        files.write_whole(path, data)
    return _remember(table, path, sha256(data))


def _share_parts(universe: Universe, path: str) -> Shared:
    """A universe in parts; what is read of it from now on is read from its file."""
    found = _existing_parts(path, universe.digest)
    if found is None:
        try:
            files.write_whole(path, partial(write_universe, universe))
        except (ValueError, pa.ArrowException):
            raise _changed() from None
        found = universe_of_parquet(_opened(path))
        if found.digest != universe.digest:
            raise _changed()
    return _remember(found, path, _file_checksum(path), part_checksums(found))


def _changed() -> UniverseError:
    """Make the error of a list of leaves that changed between planning, which reads it once, and
    writing."""
    return UniverseError(
        "the table of leaves changed while it was read, or cannot be read any more; run again",
        again=True,
    )


def _existing_parts(path: str, digest: str) -> Universe | None:
    """Return the universe whose parts exist already, as `_existing_file` does."""
    if not files.exists(path):
        return None
    try:
        universe = universe_of_parquet(_opened(path))
        return universe if universe.digest == digest else None
    except (ValueError, TypeError, KeyError, pa.ArrowException):
        return None


def not_as_written(path: str) -> UniverseError:
    """Make the error of a file that changed since the launcher wrote it."""
    return UniverseError(f"output: {path} is not the file that the launcher wrote")


def _opened(path: str) -> pq.ParquetFile:
    if files.is_local(path):
        return pq.ParquetFile(path.removeprefix("file://"), pre_buffer=False)
    return pq.ParquetFile(pa.PythonFile(files.open_file(path), mode="r"), pre_buffer=False)


def _file_checksum(path: str) -> str:
    with files.open_file(path) as file:
        digest = hashlib.sha256()
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _loaded_parts(
    path: str, digest: str, checksum: str, upper_digest: str, parts: tuple[bytes, ...]
) -> Shared:
    """The universe in parts at a place, its upper levels read once in a process.

    Raises:
        UniverseError: the file is not there, or not the one that was written.
    """
    known = _LOADED.get(digest)
    if known is not None and known.path == path:
        return known
    if not files.exists(path):
        raise files.OutputError(f"output: {path} cannot be read: there is no such file")
    try:
        universe = universe_of_parquet(_opened(path), parts)
    except (pa.ArrowException, ValueError, KeyError):
        raise not_as_written(path) from None
    if universe.upper_digest != upper_digest:
        raise not_as_written(path)
    universe.remember_digest(digest)
    return _remember(universe, path, checksum, parts)


def _existing_file(read: _Read, path: str, digest: str) -> bytes | None:
    """The bytes of a table that already exists: a release may name them, and another version would
    write the same table with others."""
    if not files.exists(path):
        return None
    data = files.read_bytes(path)
    try:
        found = read(_table(data))
    except (ValueError, TypeError, KeyError, pa.ArrowException):  # something else, or a part of it
        return None
    return data if found.digest == digest else None


def _table(data: bytes) -> pa.Table:
    # In Arrow's memory: of Python's bytes, a thread could drop the last hold as a process ends.
    sink = pa.BufferOutputStream()
    sink.write(data)
    return pq.read_table(sink.getvalue(), use_threads=False)


def _remember(
    table: PublicTable, path: str, checksum: str, parts: tuple[bytes, ...] = ()
) -> Shared:
    """Return a table that travels as the place of its file; this process reads it no more."""
    shared: Shared
    if isinstance(table, KeyTable):
        shared = SharedKeys(table, path=path, checksum=checksum)
    else:
        held = {each.name: getattr(table, each.name) for each in fields(Universe)}
        shared = SharedUniverse(**held, path=path, checksum=checksum, parts=parts)
        shared.remember_digest(table.digest)
    _LOADED[table.digest] = shared
    return shared


def _loaded(read: _Read, path: str, digest: str, checksum: str) -> Shared:
    """The public table at a place, read once in a process.

    Raises:
        UniverseError: the file is not there, or not the one that was written.
    """
    known = _LOADED.get(digest)
    if known is not None and known.path == path:
        return known
    data = files.read_bytes(path)
    if sha256(data) != checksum:
        raise not_as_written(path)
    return _remember(read(_table(data)), path, checksum)
