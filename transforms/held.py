"""Rows, partial counts and files that this process holds, in place of files and engines.

The graph of an engine travels pickled, so it has only the number under which rows or counts are
held; workers in other processes find none. ``held://`` is a store that
keeps only the checksum of each part; ``memory://`` keeps parts too, for queries. A step can run
over elements at hand as one bundle, without a runner: other engines count so.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, BinaryIO

import pyarrow as pa

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms import flow
from dptrees.transforms.conservation import advance
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder.layout import PART_KINDS, sha256
from dptrees.transforms.folder.stores import OWN_STORES, FileInfo, glob_expression
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.steps.counting import SLOTS, PlaceKey, matched_trees


def run_bundle(step: flow.Step, elements: Iterable[Any], main: str) -> Iterator[tuple[str, Any]]:
    """Yield every output of a step, with the name of the output.

    Args:
        step: a step without side inputs; it is set up, and torn down, here.
        elements: its input, read one by one.
        main: the name of the output of elements without a tag.

    >>> class Halves(flow.Step):
    ...     def process(self, number):
    ...         yield number // 2
    ...         yield flow.Tagged("rest", number % 2)
    >>> list(run_bundle(Halves(), [5], "halves"))
    [('halves', 2), ('rest', 1)]
    """
    step.setup()
    try:
        step.start_bundle()
        for element in elements:
            for given in step.process(element):
                yield _named(given, main)
        for given in step.finish_bundle():
            yield _named(given, main)
    finally:
        step.teardown()


def _named(given: Any, main: str) -> tuple[str, Any]:
    return tuple(given) if isinstance(given, flow.Tagged) else (main, given)


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


COUNTS = "counts"
# From a plan and the place of the release key to outputs, each with its name: partial counts
# (`COUNTS`, or `SLOTS` if they are yet to be matched), and increments to the balance.
Counting = Callable[[ReleasePlan, KeyReference], Iterator[tuple[str, Any]]]

_held_countings: dict[int, Counting] = {}


@contextmanager
def held_counting(counting: Counting) -> Iterator[int]:
    """Hold a way to count until the block ends, under a number of this process.

    Args:
        counting: called once by each job.
    """
    number = next(_numbers)
    _held_countings[number] = counting
    try:
        yield number
    finally:
        del _held_countings[number]


class HeldCounting(flow.Transform):
    """The number of a held counting, in place of rows; and an empty balance.

    Args:
        number: from `held_counting`.
    """

    def __init__(self, number: int) -> None:
        self._number = number

    def expand(self, pbegin: Any) -> Any:
        numbers = pbegin | "Number" >> flow.Given([self._number])
        return numbers, pbegin | "NoBalance" >> flow.Given([])


class GivenCounts(flow.Transform):
    """The partial counts that a held counting gives, in place of the steps that count rows.

    Args:
        plan: the questions.
        key: the place of the release key.

    Returns:
        by name: `counts`, Collection[tuple[PlaceKey, bytes]]; the balance
        Collection[tuple[str, int]]; and `SLOTS`, if counts of the plan are to be matched.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        self._plan, self._key = plan, key

    def expand(self, numbers: Any) -> Any:
        tags = [BALANCE, *([SLOTS] if matched_trees(self._plan) else [])]
        step = flow.Each(_GiveCounts(self._plan, self._key), also=tags, main=COUNTS)
        return numbers | "Given" >> step


@flow.gives(tuple[PlaceKey, bytes], **{BALANCE: tuple[str, int], SLOTS: tuple[PlaceKey, bytes]})
class _GiveCounts(flow.Step):
    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        self._plan, self._key = plan, key

    def process(self, number: int) -> Iterator[Any]:
        if number not in _held_countings:
            raise InputError("rows: they are counted by the process that started the job alone")
        for name, output in _held_countings[number](self._plan, self._key):
            yield output if name == COUNTS else flow.Tagged(name, output)
