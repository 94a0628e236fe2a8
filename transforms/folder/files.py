"""Files of a release, written whole or not at all, on a local disk or any Beam filesystem.

On a local disk a file appears under its name by one atomic step, after its bytes have reached
the disk. Object stores show whole objects only, and a rename there is a copy, so objects are
written at their final name.
"""

import contextlib
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, BinaryIO, TypeVar

from dptrees.transforms.errors import ReleaseError, may_pass
from dptrees.transforms.folder.stores import OWN_STORES, beam_store, scheme_of, store_of

TEMPORARY_SUFFIX = ".tmp"
_TRIES = 3

Result = TypeVar("Result")
# The bytes of a file, or a function that writes them one after the other: a large file need not be
# in memory.
Content = bytes | Callable[[BinaryIO], None]


class OutputError(ReleaseError):
    """The output cannot be written; the message names the place and the system's reason."""


def is_local(path: str) -> bool:
    """Whether a path lies on a local disk."""
    return not scheme_of(path)


def absolute(path: str) -> str:
    """A path that means the same on a worker, which may run in another folder than the launcher.

    >>> absolute("gs://bucket/rows/*.parquet")
    'gs://bucket/rows/*.parquet'
    """
    return path if path.startswith("file://") or scheme_of(path) else os.path.abspath(path)


def join(folder: str, *names: str) -> str:
    """Return a path below a folder, on whatever filesystem the folder is.

    >>> join("gs://bucket/out/", "a", "b"), join("out", "a")
    ('gs://bucket/out/a/b', 'out/a')
    """
    if not scheme_of(folder):
        return os.path.join(folder, *names)
    return "/".join([folder.rstrip("/"), *(name.strip("/") for name in names[:-1]), names[-1]])


def needs_beam(path: str) -> bool:
    """Whether the files of a path are reached by Beam."""
    return scheme_of(path) not in OWN_STORES


def is_known(path: str) -> bool:
    """Whether there is a filesystem for a path here, and the options that it needs."""
    if not needs_beam(path):
        return not path.startswith("file://")  # a path of this machine is written without it
    return bool(beam_store().is_known(path))


def use_options(options: Any) -> None:
    """Reach filesystems from this process as the options of a job say.

    Args:
        options: Beam's; None: as the environment says, whatever an earlier job said.
    """
    if options is not None or "apache_beam.io.filesystems" in sys.modules:
        beam_store().use_options(options)


def failure_reason(error: BaseException) -> str:
    """Return why a filesystem failed, in one line: the reason of the system, without the text
    that Beam puts around it.

    >>> failure_reason(OSError(13, "Denied"))
    'Denied'
    >>> failure_reason(AssertionError("Missing boto3 requirement"))
    's3:// needs dptrees[aws] installed here and on the workers'
    """
    while isinstance(details := getattr(error, "exception_details", None), dict) and details:
        inner = next(iter(details.values()))
        if not isinstance(inner, BaseException):
            break
        error = inner
    text = str(getattr(error, "strerror", None) or error).strip()
    if text == "Missing boto3 requirement":  # Beam's own words, which name no extra
        return "s3:// needs dptrees[aws] installed here and on the workers"
    return text.splitlines()[0][:200] if text else type(error).__name__


def exists(path: str) -> bool:
    """Whether there is a file.

    Raises:
        OutputError: the filesystem does not answer.
    """
    return _guarded(path, "looked up", lambda: store_of(path).exists(path))


def read_bytes(path: str) -> bytes:
    """The whole of a small file.

    Raises:
        OutputError: it is not there, or cannot be read.
    """
    return _guarded(path, "read", lambda: _read(path))


def write_whole(path: str, data: Content, *, private: bool = False) -> None:
    """Write a file that is seen whole or not at all; replaces one of the same name.

    Args:
        path: of the file.
        data: its bytes, or a function that writes them.
        private: on a local disk only its owner may read it, from its first byte on, and a folder
            that is made for it is of its owner alone.

    Raises:
        OutputError: disk full, no permission, or whatever else the system says.
    """
    if is_local(path):
        _guarded(path, "written", lambda: _finished(path, data, os.replace, private))
    else:
        _guarded(path, "written", lambda: _write(path, data))


def open_file(path: str) -> BinaryIO:
    """A file for reading pieces of it.

    Raises:
        OutputError: it is not there, or cannot be read.
    """
    return _guarded(path, "read", lambda: store_of(path).open(path))


def write_once(path: str, data: bytes, *, private: bool = False) -> bool:
    """Writes a file unless there is one, `private` as `write_whole` does. Of two writers at once
    only one succeeds where the filesystem is local; Beam's object stores cannot create on
    condition, so there the last one stays, and who must be sure reads the file again. Returns
    whether this call wrote it.

    Raises:
        OutputError: as of `write_whole`.
    """
    if is_local(path):
        return _guarded(path, "written", lambda: _finished(path, data, _linked, private))
    if exists(path):
        return False
    _guarded(path, "written", lambda: _write(path, data))
    return True


def _guarded(path: str, done: str, act: Callable[[], Result]) -> Result:
    try:
        return act()
    except Exception as error:
        # Clients of object stores have errors of their own; on a local disk others are our faults.
        if is_local(path) and not isinstance(error, OSError):
            raise
        raise OutputError(
            f"output: {path} cannot be {done}: {failure_reason(error)}", again=may_pass(error)
        ) from None


def _read(path: str) -> bytes:
    with store_of(path).open(path) as file:
        return bytes(file.read())


def _put(file: BinaryIO, content: Content) -> None:
    if isinstance(content, bytes):
        file.write(content)
    else:
        content(file)


def _write(path: str, data: Content) -> None:
    # Browsers show a page only where the store calls it one.
    mime_type = "text/html" if path.endswith(".html") else "application/octet-stream"
    file = store_of(path).create(path, mime_type)
    try:
        _put(file, data)
    except BaseException:
        _abandon(file, path)
        raise
    file.close()


def _abandon(file: BinaryIO, path: str) -> None:
    """Closes a file that could not be written. Closing makes the object of what was written so far,
    which must not stay."""
    with contextlib.suppress(Exception):
        file.close()
    with contextlib.suppress(Exception):
        store_of(path).delete(path)


def _temporary(path: str, data: Content, private: bool) -> str:
    """A file beside ``path`` that holds the data, safely on disk."""
    folder = os.path.dirname(path)
    os.makedirs(folder, 0o700 if private else 0o777, exist_ok=True)
    name = os.path.join(folder, f".{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
    try:
        with open(name, "xb", opener=_open_private if private else None) as file:
            _put(file, data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return name


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _linked(name: str, path: str) -> bool:
    try:
        os.link(name, path)
    except FileExistsError:
        return False
    return True


def _finished(
    path: str, data: Content, finish: Callable[[str, str], Result], private: bool
) -> Result:
    """Gives a temporary file with the data its name, in one step; returns what that returns."""
    path = path.removeprefix("file://")
    left = _TRIES
    while True:
        left -= 1
        name = _temporary(path, data, private)
        try:
            return finish(name, path)
        except FileNotFoundError:
            # A run of the same release that has just ended sweeps what others left, and took this.
            if not left:
                raise
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


def names_below(folder: str) -> Iterator[str]:
    """The paths of all files directly in a folder, each once; nothing where there is none.

    Raises:
        OutputError: the folder cannot be listed.
    """
    if is_local(folder):
        yield from _guarded(folder, "listed", lambda: _local_names(folder))
        return
    # Unlike a shell's, Beam's star also matches names that begin with a dot. A folder's own name
    # may hold letters that mean something in a pattern; they must not lead into other folders.
    found = _guarded(folder, "listed", lambda: store_of(folder).match(join(folder, "*")))
    paths = {file.path for file in found}
    yield from sorted(path for path in paths if path == join(folder, path.rsplit("/", 1)[-1]))


def _local_names(folder: str) -> list[str]:
    try:
        with os.scandir(folder.removeprefix("file://")) as entries:
            return sorted(join(folder, entry.name) for entry in entries if entry.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []


def delete(paths: list[str]) -> None:
    """Deletes files; one that somebody else deleted meanwhile is gone all the same.

    Raises:
        OutputError: one cannot be deleted.
    """
    for path in paths:
        _guarded(path, "deleted", partial(_delete, path))


def _delete(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        store_of(path).delete(path)
