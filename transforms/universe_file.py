"""Public tables by reference: the leaves of a hierarchy, or many keys, as a file of the release.

A universe may have millions of leaves, and every step of a job holds the plan. So the universe is
written into the release's folder before the job starts, and what travels is its place: a worker
reads it once, however many steps it runs. A universe is public by declaration; a table of keys too,
or it was released before.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.hierarchy.universe import Universe
from dpcore.hierarchy.universe_table import universe_from_table
from dpcore.questions.question import PublicTable
from dpcore.release.plan import ReleasePlan
from dpcore.rows.key_table import KeyTable
from transforms import files
from transforms.errors import ReleaseError
from transforms.layout import keys_name, parquet_bytes, sha256, universe_name

# Of this process, by digest: steps of one worker share what they read.
_LOADED: "dict[str, Shared]" = {}


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
        return _loaded, ("universe", self.path, self.digest, self.checksum)


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
        return _loaded, ("keys", self.path, self.digest, self.checksum)


Shared = SharedUniverse | SharedKeys


class _Form(NamedTuple):
    """What is known of one form of public table.

    Attributes:
        name: of its file, from its digest.
        read: makes it of what the file holds.
        shared: it, with the path and the checksum of the file.
    """

    name: Callable[[str], str]
    read: Callable[[pa.Table], PublicTable]
    shared: Callable[[Any, str, str], Shared]


def _shared_universe(universe: Universe, path: str, checksum: str) -> SharedUniverse:
    parts = {each.name: getattr(universe, each.name) for each in fields(Universe)}
    return SharedUniverse(**parts, path=path, checksum=checksum)


def _shared_keys(table: KeyTable, path: str, checksum: str) -> SharedKeys:
    return SharedKeys(table, path=path, checksum=checksum)


_FORMS = {
    "universe": _Form(universe_name, universe_from_table, _shared_universe),
    "keys": _Form(keys_name, KeyTable, _shared_keys),
}


def _form_of(table: PublicTable) -> _Form:
    return _FORMS["universe" if isinstance(table, Universe) else "keys"]


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
        _form_of(table).name(table.digest): table.checksum
        for question in plan.questions
        for table in question.public_tables
        if isinstance(table, SharedUniverse | SharedKeys)
    }


def _share(table: PublicTable, folder: str) -> Shared:
    form = _form_of(table)
    path = files.join(folder, form.name(table.digest))
    known = _LOADED.get(table.digest)
    if known is not None and known.path == path and files.exists(path):
        return known
    data = _standing(form, path, table.digest)
    if data is None:
        data = parquet_bytes(table.to_table())
        files.write_whole(path, data)
    return _remember(form, table, path, sha256(data))


def _standing(form: _Form, path: str, digest: str) -> bytes | None:
    """The bytes of a table that stands at a place already: a release may name them, and another
    version would write the same table with others."""
    if not files.exists(path):
        return None
    data = files.read_bytes(path)
    try:
        found = form.read(_table(data))
    except (ValueError, TypeError, KeyError, pa.ArrowException):  # something else, or a part of it
        return None
    return data if found.digest == digest else None


def _table(data: bytes) -> pa.Table:
    # In Arrow's memory: of Python's bytes, a thread could drop the last hold as a process ends.
    sink = pa.BufferOutputStream()
    sink.write(data)
    return pq.read_table(sink.getvalue(), use_threads=False)


def _remember(form: _Form, table: PublicTable, path: str, checksum: str) -> Shared:
    shared = form.shared(table, path, checksum)
    _LOADED[table.digest] = shared
    return shared


def _loaded(form: str, path: str, digest: str, checksum: str) -> Shared:
    """The public table at a place, read once in a process.

    Raises:
        UniverseError: the file is not there, or not the one that was written.
    """
    known = _LOADED.get(digest)
    if known is not None and known.path == path:
        return known
    data = files.read_bytes(path)
    if sha256(data) != checksum:
        raise UniverseError(f"output: {path} is not the file that the launcher wrote")
    return _remember(_FORMS[form], _FORMS[form].read(_table(data)), path, checksum)
