"""Universes by reference: the public leaves of a hierarchy as a file of the release.

A universe may have millions of leaves, and every step of a job holds the plan. So the universe is
written into the release's folder before the job starts, and what travels is its place: a worker
reads it once, however many steps it runs. A universe is public by declaration.
"""

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.hierarchy.universe import Universe
from dpcore.hierarchy.universe_table import universe_from_table
from dpcore.questions.question import PublicTable
from dpcore.release.plan import ReleasePlan
from transforms import files
from transforms.errors import ReleaseError
from transforms.layout import parquet_bytes, sha256, universe_name

# Of this process, by digest: steps of one worker share what they read.
_LOADED: "dict[str, SharedUniverse]" = {}


class UniverseError(ReleaseError):
    """A universe cannot be read where it was written."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedUniverse(Universe):
    """A universe that lies in a file, and travels as the file's place.

    Args:
        path: of the file.
        checksum: SHA-256 of its bytes, in hexadecimal.
    """

    path: str
    checksum: str

    def __reduce__(self) -> tuple[Any, ...]:
        return _loaded, (self.path, self.digest, self.checksum)


def share_universes(plan: ReleasePlan, folder: str) -> ReleasePlan:
    """Writes the universes of a plan into a folder, and lets the plan travel with their places.

    Args:
        plan: the questions.
        folder: of the release, on any Beam filesystem.

    Returns:
        the plan; of the same digest.

    Raises:
        OutputError: a file cannot be written.
    """
    shared = partial(_shared, folder=folder)
    questions = tuple(question.with_public_tables(shared) for question in plan.questions)
    return replace(plan, questions=questions)


def universe_files(plan: ReleasePlan) -> dict[str, str]:
    """The checksums of the universes that a plan shares, by the names of their files."""
    return {
        universe_name(table.digest): table.checksum
        for question in plan.questions
        for table in question.public_tables
        if isinstance(table, SharedUniverse)
    }


def _shared(universe: PublicTable, folder: str) -> SharedUniverse:
    path = files.join(folder, universe_name(universe.digest))
    known = _LOADED.get(universe.digest)
    if known is not None and known.path == path and files.exists(path):
        return known
    data = _standing(path, universe.digest)
    if data is None:
        data = parquet_bytes(universe.to_table())
        files.write_whole(path, data)
    assert isinstance(universe, Universe)
    return _remember(universe, path, sha256(data))


def _standing(path: str, digest: str) -> bytes | None:
    """The bytes of a universe that stands at a place already: a release may name them, and another
    version would write the same universe with others."""
    if not files.exists(path):
        return None
    data = files.read_bytes(path)
    try:
        found = universe_from_table(_table(data))
    except (ValueError, TypeError, KeyError, pa.ArrowException):  # something else, or a part of it
        return None
    return data if found.digest == digest else None


def _table(data: bytes) -> pa.Table:
    # In Arrow's memory: of Python's bytes, a thread could drop the last hold as a process ends.
    sink = pa.BufferOutputStream()
    sink.write(data)
    return pq.read_table(sink.getvalue(), use_threads=False)


def _remember(universe: Universe, path: str, checksum: str) -> SharedUniverse:
    parts = {each.name: getattr(universe, each.name) for each in fields(Universe)}
    shared = SharedUniverse(**parts, path=path, checksum=checksum)
    _LOADED[universe.digest] = shared
    return shared


def _loaded(path: str, digest: str, checksum: str) -> SharedUniverse:
    """The universe at a place, read once in a process.

    Raises:
        UniverseError: the file is not there, or not the one that was written.
    """
    known = _LOADED.get(digest)
    if known is not None and known.path == path:
        return known
    data = files.read_bytes(path)
    if sha256(data) != checksum:
        raise UniverseError(f"output: {path} is not the file that the launcher wrote")
    return _remember(universe_from_table(_table(data)), path, checksum)
