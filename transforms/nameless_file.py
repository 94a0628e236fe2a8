"""A temporary file without a name, encrypted, for rows that wait.

No row of it remains when its process ends, however it ends. Its blocks stay on the medium until
others overwrite them, so it is encrypted under a key that this process draws and nobody stores
(AES-256 in counter mode, a stream of bits for each value; `dpcore.noise.randomness`).
"""

import errno
import os
import tempfile
import threading
import weakref
import zlib
from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.transforms.errors import ReleaseError, may_pass, system_reason


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredBytes:
    """Bytes in a file.

    Args:
        file: where they are.
        start: the position of the first.
        size: their number.
        check: the checksum of what was written, since a disk may return other bytes.
    """

    file: "NamelessFile"
    start: int
    size: int
    check: int

    def read(self) -> bytes:
        """Read the bytes.

        Raises:
            ReleaseError: the disk does not return them.
        """
        return self.file.read(self)


class NamelessFile:
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

    def write(self, data: bytes) -> StoredBytes:
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
        return StoredBytes(file=self, start=start, size=len(data), check=zlib.crc32(sealed))

    def read(self, place: StoredBytes) -> bytes:
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
        f"the temporary file of waiting rows cannot be {done} in {folder}: "
        f"{system_reason(error)}; {solution}",
        again=may_pass(error),
    )
