"""Rows, partial counts and files that this process holds, in place of files and engines.

A graph travels pickled, also within one process, so it has only the number under which rows or
counts are held; workers in other processes find none. ``held://`` is a Beam filesystem that
keeps only the checksum of each part; ``memory://`` keeps parts too, for queries. A step can run
over elements at hand as one bundle, without a runner: other engines count so.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, ClassVar

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem
from apache_beam.utils.windowed_value import WindowedValue

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.conservation import advance
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder.layout import PART_KINDS, sha256
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.steps.counting import SLOTS, PlaceKey, matched_trees


def run_bundle(step: beam.DoFn, elements: Iterable[Any], main: str) -> Iterator[tuple[str, Any]]:
    """Yield every output of a step, with the name of the output.

    Args:
        step: a step without side inputs; it is set up, and torn down, here.
        elements: its input, read one by one.
        main: the name of the output of elements without a tag.

    >>> class Halves(beam.DoFn):
    ...     def process(self, number):
    ...         yield number // 2
    ...         yield beam.pvalue.TaggedOutput("rest", number % 2)
    >>> list(run_bundle(Halves(), [5], "halves"))
    [('halves', 2), ('rest', 1)]
    """
    step.setup()
    try:
        step.start_bundle()
        for element in elements:
            for output in step.process(element) or ():
                yield _named(output, main)
        for output in step.finish_bundle() or ():
            yield _named(output, main)
    finally:
        step.teardown()


def _named(output: Any, main: str) -> tuple[str, Any]:
    name, value = main, output
    if isinstance(output, beam.pvalue.TaggedOutput):
        name, value = output.tag, output.value
    return name, value.value if isinstance(value, WindowedValue) else value


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


class GivenRows(beam.PTransform):
    """The record batches that are held under a number.

    Args:
        number: as `held` gives it.

    Returns:
        as `transforms.readers.read.ReadBatches`: PCollection[pa.RecordBatch], and the balance
        PCollection[tuple[str, int]].
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def expand(self, pbegin: Any) -> Any:
        given = (
            pbegin
            | "Number" >> beam.Create([self._number], reshuffle=False)
            # int -> pa.RecordBatch
            | "Give" >> beam.ParDo(_Give()).with_outputs(BALANCE, main="batches")
        )
        return given["batches"], given[BALANCE]


@beam.typehints.with_output_types(pa.RecordBatch, **{BALANCE: tuple[str, int]})
class _Give(beam.DoFn):
    def process(self, number: int) -> Iterator[Any]:
        rows = 0
        for batch in held_rows(number):
            rows += batch.num_rows
            yield batch
            advance("read", batch.nbytes)
        yield beam.pvalue.TaggedOutput(BALANCE, ("rows", rows))


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


class HeldCounting(beam.PTransform):
    """The number of a held counting, in place of rows; and an empty balance.

    Args:
        number: from `held_counting`.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def expand(self, pbegin: Any) -> Any:
        numbers = pbegin | "Number" >> beam.Create([self._number], reshuffle=False)
        return numbers, pbegin | "NoBalance" >> beam.Create([], reshuffle=False)


class GivenCounts(beam.PTransform):
    """The partial counts that a held counting gives, in place of the steps that count rows.

    Args:
        plan: the questions.
        key: the place of the release key.

    Returns:
        by name: `counts`, PCollection[tuple[PlaceKey, bytes]]; the balance
        PCollection[tuple[str, int]]; and `SLOTS`, if counts of the plan are to be matched.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        super().__init__()
        self._plan, self._key = plan, key

    def expand(self, numbers: Any) -> Any:
        tags = [BALANCE, *([SLOTS] if matched_trees(self._plan) else [])]
        step = beam.ParDo(_GiveCounts(self._plan, self._key))
        return numbers | "Given" >> step.with_outputs(*tags, main=COUNTS)


@beam.typehints.with_output_types(
    tuple[PlaceKey, bytes], **{BALANCE: tuple[str, int], SLOTS: tuple[PlaceKey, bytes]}
)
class _GiveCounts(beam.DoFn):
    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        self._plan, self._key = plan, key

    def process(self, number: int) -> Iterator[Any]:
        if number not in _held_countings:
            raise InputError("rows: they are counted by the process that started the job alone")
        for name, output in _held_countings[number](self._plan, self._key):
            yield output if name == COUNTS else beam.pvalue.TaggedOutput(name, output)
