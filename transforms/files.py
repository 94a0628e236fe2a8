"""Files of a release, written whole or not at all, on a local disk or any Beam filesystem.

On a local disk a file appears under its name by one atomic step, after its bytes have reached the
disk. Object stores show an object whole or not at all by themselves, and a rename there is a copy,
so the object is made straight at its final name.
"""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from transforms.errors import ReleaseError

TEMPORARY_SUFFIX = ".tmp"

Result = TypeVar("Result")


class OutputError(ReleaseError):
    """The output cannot be written; the message names the place and the system's reason."""


def is_local(path: str) -> bool:
    """Whether a path lies on a local disk."""
    return FileSystems.get_scheme(path) in (None, "file")


def join(folder: str, *names: str) -> str:
    """A path below a folder, on whatever filesystem the folder lies."""
    return str(FileSystems.join(folder, *names))


def exists(path: str) -> bool:
    """Whether there is a file."""
    return bool(FileSystems.exists(path))


def read_bytes(path: str) -> bytes:
    """The whole of a small file."""
    with FileSystems.open(path, compression_type="uncompressed") as file:
        return bytes(file.read())


def write_whole(path: str, data: bytes) -> None:
    """Writes a file that is seen whole or not at all; replaces one of the same name.

    Raises:
        OutputError: disk full, no permission, or whatever else the system says.
    """
    _guarded(path, lambda: _write_local(path, data) if is_local(path) else _write(path, data))


def write_once(path: str, data: bytes) -> bool:
    """Writes a file unless there is one: of two writers at once only one succeeds, where the
    filesystem is local. Returns whether this call wrote it."""
    if is_local(path):
        return _guarded(path, lambda: _link_local(path, data))
    if exists(path):
        return False
    _guarded(path, lambda: _write(path, data))
    return True


def _guarded(path: str, write: Callable[[], Result]) -> Result:
    try:
        return write()
    except (OSError, BeamIOError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise OutputError(f"output: {path} cannot be written: {reason}") from None


def _write(path: str, data: bytes) -> None:
    with FileSystems.create(path, mime_type="application/octet-stream") as file:
        file.write(data)


def _temporary(path: str, data: bytes) -> str:
    """A file beside ``path`` that holds the data, safely on disk."""
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    name = os.path.join(folder, f".{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
    try:
        with open(name, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return name


def _write_local(path: str, data: bytes) -> None:
    name = _temporary(path, data)
    try:
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _link_local(path: str, data: bytes) -> bool:
    name = _temporary(path, data)
    try:
        os.link(name, path)
        return True
    except FileExistsError:
        return False
    finally:
        os.unlink(name)


def names_below(folder: str) -> Iterator[str]:
    """The paths of all files directly in a folder; nothing where there is none."""
    try:
        # Unlike a shell's, Beam's star also matches names that begin with a dot.
        matches = FileSystems.match([join(folder, "*")])
    except BeamIOError:
        return
    for match in matches:
        for metadata in match.metadata_list:
            yield metadata.path


def delete(paths: list[str]) -> None:
    """Deletes files."""
    if paths:
        FileSystems.delete(paths)
