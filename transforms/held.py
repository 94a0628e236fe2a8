"""Rows and files that this process holds.

The graph of an engine travels pickled, so it has only the number under which rows are held;
workers in other processes find none. ``held://`` is a store that keeps only the checksum of each
part; ``memory://`` keeps parts too, for queries.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, BinaryIO

import pyarrow as pa

from dptrees.transforms import flow
from dptrees.transforms.conservation import advance
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder.layout import PART_KINDS, sha256
from dptrees.transforms.folder.stores import OWN_STORES, FileInfo, glob_expression
from dptrees.transforms.readers.read import BALANCE

SCHEME, KEPT_SCHEME = "held", "memory"


class Memory:
    """Objects of this process by their paths: a checksum, and the bytes.

    Several threads may release at once: a look through the objects is a look through a copy.

    Args:
        keeps_parts: whether the bytes of parts of a release are kept.
    """

    def __init__(self, *, keeps_parts: bool) -> None:
        self.objects: dict[str, tuple[str, bytes]] = {}
        self._keeps_parts = keeps_parts

    def hold(self, path: str, data: bytes) -> None:
        """Make an object."""
        keeps = self._keeps_parts or path.split("/")[-2] not in PART_KINDS
        self.objects[path] = sha256(data), data if keeps else b""

    def taken(self, folder: str) -> dict[str, tuple[str, bytes]]:
        """Return the objects below a folder by their names in it, and forget them."""
        names = [path for path in self.objects.copy() if path.startswith(f"{folder}/")]
        return {path.removeprefix(f"{folder}/"): self.objects.pop(path) for path in names}

    def exists(self, path: str) -> bool:
        return path in self.objects

    def open(self, path: str) -> BinaryIO:
        if path not in self.objects:
            raise FileNotFoundError(f"{path}: there is no such file")
        return io.BytesIO(self.objects[path][1])

    def create(self, path: str, mime_type: str) -> BinaryIO:
        return _Upload(self, path)

    def delete(self, path: str) -> None:
        self.objects.pop(path, None)

    def info(self, path: str) -> FileInfo:
        return FileInfo(path, len(self.objects[path][1]))

    def match(self, pattern: str) -> list[FileInfo]:
        matches = glob_expression(pattern).fullmatch
        return [self.info(path) for path in sorted(self.objects.copy()) if matches(path)]


class _Upload(io.BytesIO):
    """What is written; closing it makes the object."""

    def __init__(self, memory: Memory, path: str) -> None:
        super().__init__()
        self._memory, self._path = memory, path

    def close(self) -> None:
        if not self.closed:
            self._memory.hold(self._path, self.getvalue())
        super().close()


HELD_FILES, KEPT_FILES = Memory(keeps_parts=False), Memory(keeps_parts=True)
OWN_STORES |= {SCHEME: HELD_FILES, KEPT_SCHEME: KEPT_FILES}


_held: dict[int, Sequence[pa.RecordBatch]] = {}
_numbers = count()


@contextmanager
def held(batches: Sequence[pa.RecordBatch]) -> Iterator[int]:
    """Holds rows until the block ends, under a number of this process.

    >>> with held([pa.record_batch({"age": [30, 41]})]) as number:
    ...     [batch.num_rows for batch in held_rows(number)]
    [2]
    """
    number = next(_numbers)
    _held[number] = batches
    try:
        yield number
    finally:
        del _held[number]


def held_rows(number: int) -> Sequence[pa.RecordBatch]:
    """The rows that are held under a number.

    Raises:
        InputError: they are held in another process.
    """
    if number not in _held:
        raise InputError(
            "rows: they are held in the memory of the process that started the job, where this "
            "engine's workers cannot read them; write them to files and give their paths"
        )
    return _held[number]


class GivenRows(flow.Transform):
    """The record batches that are held under a number.

    Args:
        number: as `held` gives it.

    Returns:
        as `transforms.readers.read.ReadFiles`: Collection[pa.RecordBatch], and the balance
        Collection[tuple[str, int]].
    """

    def __init__(self, number: int) -> None:
        self._number = number

    def expand(self, pbegin: Any) -> Any:
        given = (
            pbegin
            | "Number" >> flow.Given([self._number])
            # int -> pa.RecordBatch
            | "Give" >> flow.Each(_Give(), also=(BALANCE,), main="batches")
        )
        return given["batches"], given[BALANCE]


@flow.gives(pa.RecordBatch, **{BALANCE: tuple[str, int]})
class _Give(flow.Step):
    def process(self, number: int) -> Iterator[Any]:
        rows = 0
        for batch in held_rows(number):
            rows += batch.num_rows
            yield batch
            advance("read", batch.nbytes)
        yield flow.Tagged(BALANCE, ("rows", rows))
