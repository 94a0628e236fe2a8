"""Elements that wait for a grouping: in memory up to a limit, the others in a file without a name.

If rows of a privacy unit are bounded, all rows of the input wait at once, at 3 to 20 bytes each for
every tree over numbers. Engines write them to their disks. Here they go to a temporary file, so
that the memory of a release hardly grows with its rows.

The file has no name in its folder from the start (if the system makes no such files, an empty one
has a name for a moment), so no row of it remains when its process ends, however it ends. Its blocks
stay on the medium until others overwrite them, so it is encrypted under a key that this process
draws for it and nobody stores (AES-256 in counter mode, as a stream of bits for each value;
`dpcore.noise.randomness`). Only the order in which values are written depends on threads; the same
bytes are read back.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.transforms.errors import ReleaseError
from dptrees.transforms.passing import may_pass, system_reason

# Bytes of large values that stay in memory, of each grouping.
MEMORY_BYTES = 2**25
# Smaller values stay in memory: noting where one is takes as much.
LEAST_BYTES = 2**10

Group = tuple[Any, Iterable[Any]]


class WaitingPairs:
    """Pairs of a key and a value that wait for a grouping.

    Several threads may append at once; values that are bytes may lie in a file.

    >>> pairs = WaitingPairs()
    >>> for pair in [("a", b"x"), ("b", b"y"), ("a", b"z")]:
    ...     pairs.append(pair)
    >>> pairs.groups()
    [('a', [b'x', b'z']), ('b', [b'y'])]
    """

    def __init__(self) -> None:
        self._pairs: list[tuple[Any, Any]] = []
        self._lock = threading.Lock()
        self._bytes = 0
        self._file: _NamelessFile | None = None
        self._close: Callable[[], object] = _nothing

    def append(self, pair: tuple[Any, Any]) -> None:
        """Add a pair.

        Raises:
            ReleaseError: the temporary file cannot be made or written.
        """
        key, value = pair
        if isinstance(value, bytes) and len(value) >= LEAST_BYTES:
            file = self._file_beyond(len(value))
            if file is not None:
                value = file.write(value)
        self._pairs.append((key, value))

    def _file_beyond(self, size: int) -> _NamelessFile | None:
        """The file, where so many bytes more are beyond the limit."""
        with self._lock:
            self._bytes += size
            if self._bytes > MEMORY_BYTES and self._file is None:
                self._file = _NamelessFile()
                self._close = self._file.close
            return self._file

    def groups(self) -> list[Group]:
        """Return every key with its values, and forget them.

        Values in the file are read when they are iterated, each time anew.
        """
        found: dict[Any, list[Any]] = {}
        self._pairs.reverse()
        while self._pairs:  # let go on the way
            key, value = self._pairs.pop()
            found.setdefault(key, []).append(value)
        if self._file is None:
            return list(found.items())
        self._file = None  # closed with the last value that lies there
        return [(key, _Values(values)) for key, values in found.items()]

    def close(self) -> None:
        """Close the file after a fault, when nobody reads the values that are left."""
        self._close()


def _nothing() -> None:
    """There is no file to close."""


class _Values:
    """Values of a key, some in a file.

    Args:
        values: in the order in which they came.
    """

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        for value in self._values:
            yield value.read() if isinstance(value, _StoredBytes) else value


@dataclass(frozen=True, kw_only=True, slots=True)
class _StoredBytes:
    """Bytes in a file.

    Args:
        file: where they are.
        start: the position of the first.
        size: their number.
        check: the checksum of what was written, since a disk may return other bytes.
    """

    file: _NamelessFile
    start: int
    size: int
    check: int

    def read(self) -> bytes:
        """Read the bytes.

        Raises:
            ReleaseError: the disk does not return them.
        """
        return self.file.read(self)


class _NamelessFile:
    """A temporary file that no folder names, encrypted under a key of its own.

    It is closed, and its space is free again, when the last value that lies there is gone.

    Attributes:
        close: closes it before.

    Raises:
        ReleaseError: it cannot be made.
    """

    def __init__(self) -> None:
        # Python would look for another folder where the named one cannot be used.
        self._folder = os.environ.get("TMPDIR") or _default_folder()
        try:
            self._file = tempfile.TemporaryFile(buffering=0, dir=self._folder)  # noqa: SIM115 - closed below
        except OSError as error:
            raise _disk_error("made", self._folder, error) from None
        self.close = weakref.finalize(self, self._file.close)
        self._key = ReleaseKey.generate()
        self._lock = threading.Lock()
        self._end = 0

    def write(self, data: bytes) -> _StoredBytes:
        """Write bytes behind those that are there; several threads may.

        Raises:
            ReleaseError: the disk is full.
        """
        with self._lock:
            start, self._end = self._end, self._end + len(data)
        sealed = self._ciphered(data, start)
        left, position = memoryview(sealed), start
        try:
            while left:
                written = os.pwrite(self._file.fileno(), left, position)
                left, position = left[written:], position + written
        except OSError as error:
            raise _disk_error("written", self._folder, error) from None
        return _StoredBytes(file=self, start=start, size=len(data), check=zlib.crc32(sealed))

    def read(self, place: _StoredBytes) -> bytes:
        """Read what `write` wrote.

        Raises:
            ReleaseError: the disk returns something else.
        """
        sealed, position = b"", place.start
        try:
            while len(sealed) < place.size:
                part = os.pread(self._file.fileno(), place.size - len(sealed), position)
                if not part:
                    break
                sealed, position = sealed + part if sealed else part, position + len(part)
        except OSError as error:
            raise _disk_error("read", self._folder, error) from None
        if zlib.crc32(sealed) != place.check:
            raise ReleaseError(
                f"a temporary file in {self._folder} was damaged on its disk; set TMPDIR to a "
                "folder on another one",
                again=True,
            )
        return self._ciphered(sealed, place.start)

    def _ciphered(self, data: bytes, start: int) -> bytes:
        """Encrypt or decrypt: no position is written twice, so no stream is used for two values."""
        stream = np.frombuffer(self._key.stream("waiting", start).bytes(len(data)), np.uint8)
        return (np.frombuffer(data, np.uint8) ^ stream).tobytes()


def _default_folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError as error:
        raise _disk_error("made", "any folder of the system's", error) from None


def _disk_error(done: str, folder: str, error: OSError) -> ReleaseError:
    no_space = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    solution = "free space there, or set TMPDIR to a folder with space"
    if not no_space:
        solution = "set TMPDIR to another folder"
    return ReleaseError(
        f"the temporary file of rows that wait to be grouped cannot be {done} in {folder}: "
        f"{system_reason(error)}; {solution}",
        again=may_pass(error),
    )
