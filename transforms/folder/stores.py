"""Places of files by the scheme of their paths: the local disk, memory, and the rest through Beam.

The local disk and memory need no Beam, which takes a second to import. Globs mean the same on all:
`*` matches within a folder, `**` also across folders, and both match names that begin with a dot.
"""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple, Protocol

from dptrees.transforms import IMPORT_LOCK

_SCHEME = re.compile(r"([a-zA-Z][-a-zA-Z0-9+.]*)://")
# Takes a second to import, which files of this machine need not wait for.
_BEAM = "dptrees.transforms.folder.beam_store"
_WILDCARD = re.compile(r"[*?[]")
_TOKENS = re.compile(
    r"(?P<deep>\*\*)|(?P<star>\*)|(?P<one>\?)|\[(?P<set>!.[^\]]*|[^!][^\]]*)\]|(?P<own>.)",
    re.DOTALL,
)


class FileInfo(NamedTuple):
    """A file as its store lists it.

    Attributes:
        path: of the file.
        size: in bytes.
        changed: when, in seconds since 1970; 0: the store does not say.
    """

    path: str
    size: int
    changed: float = 0.0


class Store(Protocol):
    """A place of files. Its methods raise what its client raises."""

    def exists(self, path: str) -> bool:
        """Whether there is a file."""

    def open(self, path: str) -> BinaryIO:
        """Return a file for reading, without decompression."""

    def create(self, path: str, mime_type: str) -> BinaryIO:
        """Return a new file, which is there once it is closed."""

    def delete(self, path: str) -> None:
        """Delete a file."""

    def info(self, path: str) -> FileInfo:
        """Return what the store says of a file."""

    def match(self, pattern: str) -> list[FileInfo]:
        """Return the files that a glob matches, in any order."""


def scheme_of(path: str) -> str:
    """Return the scheme of a path; "": a local one.

    >>> scheme_of("gs://bucket/rows"), scheme_of("rows/a.csv"), scheme_of("file:///rows")
    ('gs', '', '')
    """
    found = _SCHEME.match(path.strip())
    return found[1] if found and found[1] != "file" else ""


def glob_expression(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a glob.

    >>> bool(glob_expression("a/*.csv").fullmatch("a/.b.csv"))
    True
    >>> [bool(glob_expression(each).fullmatch("a/b/c")) for each in ("a/*", "a/**", "a/[!x]/c")]
    [False, True, True]
    """
    return re.compile("".join(_translated(each) for each in _TOKENS.finditer(pattern)), re.DOTALL)


def _translated(token: re.Match[str]) -> str:
    if (members := token["set"]) is not None:
        negated = members.startswith("!")
        inner = members[negated:].replace("\\", "\\\\").replace("[", "\\[")
        inner = "\\" + inner if inner[:1] in ("]", "^") else inner
        return f"[{'^' if negated else ''}{inner}]"
    fixed = {"deep": ".*", "star": r"[^/\\]*", "one": "."}
    return fixed.get(str(token.lastgroup)) or re.escape(token["own"])


class LocalDisk:
    """Files of this machine, by paths with or without ``file://``."""

    def exists(self, path: str) -> bool:
        return os.path.exists(_plain(path))

    def open(self, path: str) -> BinaryIO:
        return open(_plain(path), "rb")

    def create(self, path: str, mime_type: str) -> BinaryIO:
        return open(_plain(path), "wb")

    def delete(self, path: str) -> None:
        os.unlink(_plain(path))

    def info(self, path: str) -> FileInfo:
        found = os.stat(_plain(path))
        return FileInfo(path, found.st_size, found.st_mtime)

    def match(self, pattern: str) -> list[FileInfo]:
        fixed = _WILDCARD.split(pattern, maxsplit=1)[0]
        if fixed == pattern:
            return self._infos([pattern] if self.exists(pattern) else [])
        matches = glob_expression(pattern).fullmatch
        return self._infos(path for path in self._below(os.path.dirname(fixed)) if matches(path))

    def _infos(self, paths: Iterable[str]) -> list[FileInfo]:
        """Return the files that exist: a link to nowhere and a file that is gone by now do not."""
        found = []
        for path in paths:
            try:
                found.append(self.info(path))
            except OSError as error:
                # A file that cannot be looked at for another reason may have rows.
                if error.errno not in (errno.ENOENT, errno.ELOOP):
                    raise
        return found

    def _below(self, folder: str) -> Iterator[str]:
        start = "file://" if folder.startswith("file://") else ""
        for inner, _, names in os.walk(_plain(folder) or "."):
            yield from (os.path.join(start + inner, name) for name in names)


def _plain(path: str) -> str:
    return path.removeprefix("file://")


# Stores without Beam, by scheme.
OWN_STORES: dict[str, Store] = {"": LocalDisk()}


def store_of(path: str) -> Store:
    """Return the store of a path.

    Raises:
        ValueError, OSError: Beam has none for its scheme, or it lacks an option.
    """
    own = OWN_STORES.get(scheme_of(path))
    return own or beam_store().ready_store()


def beam_store() -> Any:
    """Return the module of the filesystems that Beam reaches."""
    with IMPORT_LOCK:
        return import_module(_BEAM)
