"""Elements that wait for a grouping: in memory up to a limit, the others in a file without a name.

If rows of a privacy unit are bounded, all rows of the input wait at once, at 3 to 20 bytes each for
every tree over numbers. Engines write them to their disks. Here they go to a temporary file, so
that the memory of a release hardly grows with its rows.

`transforms.nameless_file` describes the file. Only the order in which values are written depends on
threads; the same bytes are read back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dptrees.transforms.nameless_file import NamelessFile, StoredBytes

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
        self._file: NamelessFile | None = None
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

    def _file_beyond(self, size: int) -> NamelessFile | None:
        """The file, where so many bytes more are beyond the limit."""
        with self._lock:
            self._bytes += size
            if self._bytes > MEMORY_BYTES and self._file is None:
                self._file = NamelessFile()
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
            yield value.read() if isinstance(value, StoredBytes) else value
