"""Files of a release that are held in this process and nowhere else.

``held://`` is a filesystem of Beam's, so that a release can be made on the local runner without a
byte on a disk: whenever and however the process ends, nothing is left. Of a part only the checksum
is kept, since nobody reads a part again. ``memory://`` is another one, which keeps parts too: for a
release that is queried where it was made.
"""

import io
from collections.abc import Iterator
from typing import Any, ClassVar

from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem

from dptrees.transforms.layout import PART_KINDS, sha256

SCHEME, KEPT_SCHEME = "held", "memory"


class HeldFiles(FileSystem):
    """Objects of this process by their paths: no folders, no renaming.

    Several threads may release at once: a look through the objects is a look through a copy.
    """

    # The checksum, and the bytes but for parts.
    objects: ClassVar[dict[str, tuple[str, bytes]]] = {}

    @classmethod
    def hold(cls, path: str, data: bytes) -> None:
        """Makes an object."""
        cls.objects[path] = sha256(data), data if cls._keeps(path) else b""

    @classmethod
    def _keeps(cls, path: str) -> bool:
        return path.split("/")[-2] not in PART_KINDS

    @classmethod
    def taken(cls, folder: str) -> dict[str, tuple[str, bytes]]:
        """The objects below a folder by their names in it, which are then forgotten."""
        names = [path for path in cls.objects.copy() if path.startswith(f"{folder}/")]
        return {path.removeprefix(f"{folder}/"): cls.objects.pop(path) for path in names}

    @classmethod
    def scheme(cls) -> str:
        return SCHEME

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath.rstrip("/"), *paths])

    def split(self, path: str) -> tuple[str, str]:
        head, _, tail = path.rpartition("/")
        return head, tail

    def mkdirs(self, path: str) -> None:
        raise BeamIOError(f"{path}: there are no folders")

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        for path, (_, data) in sorted(self.objects.copy().items()):
            if path.startswith(dir_or_prefix):
                yield FileMetadata(path, len(data))

    def create(self, path: str, mime_type: str = "", compression_type: str = "auto") -> Any:
        return _Upload(type(self), path)

    def open(self, path: str, mime_type: str = "", compression_type: str = "auto") -> Any:
        if path not in self.objects:
            raise BeamIOError(f"{path}: there is no such file")
        return io.BytesIO(self.objects[path][1])

    def copy(self, source_file_names: Any, destination_file_names: Any) -> None:
        raise BeamIOError("files that are held are not copied")

    rename = copy

    def exists(self, path: str) -> bool:
        return path in self.objects

    def size(self, path: str) -> int:
        return len(self.objects[path][1])

    def last_updated(self, path: str) -> float:
        return 0.0

    def checksum(self, path: str) -> str:
        return self.objects[path][0]

    def metadata(self, path: str) -> FileMetadata:
        return FileMetadata(path, self.size(path))

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            self.objects.pop(path, None)


class KeptFiles(HeldFiles):
    """Objects of this process, all of them with their bytes."""

    objects: ClassVar[dict[str, tuple[str, bytes]]] = {}

    @classmethod
    def scheme(cls) -> str:
        return KEPT_SCHEME

    @classmethod
    def _keeps(cls, path: str) -> bool:
        return True


class _Upload(io.BytesIO):
    """What is written; closing it makes the object."""

    def __init__(self, held: type[HeldFiles], path: str) -> None:
        super().__init__()
        self._held, self._path = held, path

    def close(self) -> None:
        if not self.closed:
            self._held.hold(self._path, self.getvalue())
        super().close()
