"""Exact counts per chunk: record batches to partial histograms, and their sum.

    batches -> partial histograms ((tree, key, chunk), bytes) -> GroupByKey -> sum per chunk

Partial histograms are made where the rows are read, in one of two ways chosen by the plan: a
dense array over all cells while that fits memory, else leaf ids are buffered, sorted and sent on as
sparse increments. Every chunk of the plan also gets an empty partial, so that empty ones exist.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from dpcore.chunked_forest import AnyChunk
from dpcore.noise import Integers
from dpcore.question import ChunkedQuestion
from dpcore.release_plan import ReleasePlan
from transforms.conservation import tree_chunks, tree_rows
from transforms.encoding import pack, pack_many, unpack, unpack_many
from transforms.errors import InputError
from transforms.read import BALANCE

# Leaf ids, and the values to add to them: None where each adds 1.
Increments = tuple[Integers, Integers | None]

ChunkKey = tuple[str, int, int]  # tree, code of the (first) key, index of the chunk

# Dense arrays of all trees together; 8 bytes a cell.
DENSE_CELLS = 2**25
# Sparse: how many leaf ids are buffered before they are sorted.
BUFFERED_ROWS = 2**23


def chunk_key(question: ChunkedQuestion, chunk: AnyChunk) -> ChunkKey:
    """What names a chunk in flight."""
    return question.name, chunk.key, chunk.index


def pack_dense(counts: Integers) -> bytes:
    """The counts of all leaves of a chunk, (leaves,)."""
    return pack_many([pack(counts)])


def pack_sparse(offsets: Integers, counts: Integers) -> bytes:
    """The counts of some leaves of a chunk: rising offsets within it, and their counts."""
    return pack_many([pack(np.diff(offsets, prepend=0)), pack(counts)])


class SumCounts(beam.CombineFn):
    """Sums partial histograms of one chunk; associative and commutative, on integers.

    Args:
        leaves: of the chunk.
    """

    def __init__(self, leaves: int) -> None:
        self._leaves = leaves

    def create_accumulator(self) -> Integers:
        return np.zeros(self._leaves, dtype=np.int64)

    def add_input(self, accumulator: Integers, element: bytes) -> Integers:
        parts = [unpack(part) for part in unpack_many(element)]
        if len(parts) == 1:
            accumulator += parts[0]
        elif len(parts) == 2:
            accumulator[np.cumsum(parts[0])] += parts[1]
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Integers]) -> Integers:
        merged = self.create_accumulator()
        for accumulator in accumulators:
            merged += accumulator
        return merged

    def extract_output(self, accumulator: Integers) -> Integers:
        return accumulator


class CountLeaves(beam.PTransform):
    """Record batches to the exact counts of every chunk of a plan.

    Args:
        plan: the questions.

    Returns:
        a pair: PCollection[tuple[ChunkKey, bytes]] with every chunk of the plan once, its counts
        packed; and the balance PCollection[tuple[str, int]].
    """

    def __init__(self, plan: ReleasePlan) -> None:
        super().__init__()
        self._plan = plan

    def expand(self, batches: Any) -> Any:
        partial = (
            batches
            # pa.RecordBatch -> (ChunkKey, bytes)
            | "Partial"
            >> beam.ParDo(_PartialCounts(self._plan)).with_outputs(BALANCE, main="counts")
        )
        empty = (
            batches.pipeline
            | "Trees" >> beam.Create(range(len(self._plan.chunked)), reshuffle=False)
            # tree -> (ChunkKey, b"")
            | "Empty" >> beam.ParDo(_EmptyChunks(self._plan))
        )
        summed = (
            (partial["counts"], empty)
            | "AllChunks" >> beam.Flatten()
            # -> (ChunkKey, [bytes])
            | "ByChunk" >> beam.GroupByKey()
            # -> (ChunkKey, bytes)
            | "Sum" >> beam.ParDo(_SumChunk(self._plan)).with_outputs(BALANCE, main="counts")
        )
        balance = (partial[BALANCE], summed[BALANCE]) | "Balance" >> beam.Flatten()
        return summed["counts"], balance


@beam.typehints.with_output_types(tuple[ChunkKey, bytes])
class _EmptyChunks(beam.DoFn):
    def __init__(self, plan: ReleasePlan) -> None:
        self._plan = plan

    def process(self, tree: int) -> Iterator[tuple[ChunkKey, bytes]]:
        question = self._plan.chunked[tree]
        for chunk in question.forest.chunking:
            yield chunk_key(question, chunk), b""


@beam.typehints.with_output_types(tuple[ChunkKey, bytes], **{BALANCE: tuple[str, int]})
class _PartialCounts(beam.DoFn):
    """Counts a bundle's rows, and hands the counts on when it ends."""

    def __init__(self, plan: ReleasePlan) -> None:
        self._plan = plan
        self._dense = sum(q.forest.chunking.cells for q in plan.chunked) <= DENSE_CELLS

    def start_bundle(self) -> None:
        self._rows = 0
        self._kept = dict.fromkeys((q.name for q in self._plan.chunked), 0)
        self._counts: dict[str, Integers] = {}
        self._waiting: dict[str, list[Increments]] = {}

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[ChunkKey, bytes]]:
        self._rows += batch.num_rows
        for question in self._plan.chunked:
            ids, values = self._increments(question, batch)
            self._kept[question.name] += len(ids) if values is None else int(values.sum())
            if self._dense:
                self._add_dense(question, ids, values)
            else:
                yield from self._add_sparse(question, ids, values)

    def _increments(
        self, question: ChunkedQuestion, batch: pa.RecordBatch
    ) -> tuple[Integers, Integers | None]:
        columns = {name: batch.column(name) for name in question.columns}
        try:
            return question.increments(columns)
        except (pa.ArrowException, ValueError, OverflowError):
            # The library's message may show a value.
            raise InputError(
                f"input: a column of tree {question.name} cannot be read as its domain asks"
            ) from None

    def _add_dense(self, question: ChunkedQuestion, ids: Integers, values: Integers | None) -> None:
        cells = question.forest.chunking.cells
        counts = self._counts.get(question.name)
        if counts is None:
            counts = self._counts[question.name] = np.zeros(cells, dtype=np.int64)
        if values is None and cells <= 4 * len(ids):
            counts += np.bincount(ids, minlength=cells)
        else:
            np.add.at(counts, ids, 1 if values is None else values)

    def _add_sparse(
        self, question: ChunkedQuestion, ids: Integers, values: Integers | None
    ) -> Iterator[tuple[ChunkKey, bytes]]:
        waiting = self._waiting.setdefault(question.name, [])
        waiting.append((ids, values))
        if sum(len(ids) for ids, _ in waiting) >= BUFFERED_ROWS:
            yield from _sparse_counts(question, self._waiting.pop(question.name))

    def finish_bundle(self) -> Iterator[Any]:
        for question in self._plan.chunked:
            for element in self._remaining(question):
                yield _in_window(element)
            yield _balance(tree_rows(question.name), self._kept[question.name])
        yield _balance("rows", -self._rows)
        self.start_bundle()

    def _remaining(self, question: ChunkedQuestion) -> Iterator[tuple[ChunkKey, bytes]]:
        if question.name in self._counts:
            yield from _dense_counts(question, self._counts.pop(question.name))
        if question.name in self._waiting:
            yield from _sparse_counts(question, self._waiting.pop(question.name))


def _in_window(element: object) -> Any:
    return beam.transforms.window.GlobalWindows.windowed_value(element)


def _balance(name: str, increment: int) -> Any:
    return beam.pvalue.TaggedOutput(BALANCE, _in_window((name, increment)))


def _dense_counts(question: ChunkedQuestion, counts: Integers) -> Iterator[tuple[ChunkKey, bytes]]:
    for chunk in question.forest.chunking:
        part = counts[chunk.start : chunk.start + chunk.leaves]
        if part.any():
            yield chunk_key(question, chunk), pack_dense(part)


def _sparse_counts(
    question: ChunkedQuestion, waiting: list[Increments]
) -> Iterator[tuple[ChunkKey, bytes]]:
    chunking = question.forest.chunking
    ids, counts = _summed(waiting)
    numbers = chunking.numbers(ids)
    edges = np.flatnonzero(np.diff(numbers, prepend=-1, append=-1))
    for start, stop in pairwise(edges):
        chunk = chunking[int(numbers[start])]
        yield (
            chunk_key(question, chunk),
            pack_sparse(ids[start:stop] - chunk.start, counts[start:stop]),
        )


def _summed(waiting: list[Increments]) -> tuple[Integers, Integers]:
    """The leaf ids that occur, in order, and the count of each, or its sum."""
    ids = np.concatenate([part for part, _ in waiting])
    values = [part for _, part in waiting if part is not None]
    if not values:
        found, counts = np.unique(ids, return_counts=True)
        return found, counts
    order = np.argsort(ids, kind="stable")
    found, first = np.unique(ids[order], return_index=True)
    return found, np.add.reduceat(np.concatenate(values)[order], first) if len(found) else found


@beam.typehints.with_output_types(tuple[ChunkKey, bytes], **{BALANCE: tuple[str, int]})
class _SumChunk(beam.DoFn):
    def __init__(self, plan: ReleasePlan) -> None:
        self._plan = plan

    def process(self, element: tuple[ChunkKey, Iterable[bytes]]) -> Iterator[Any]:
        key, partials = element
        name, first_key, index = key
        chunking = self._plan.chunked_question(name).forest.chunking
        combine = SumCounts(chunking[chunking.number(first_key, index)].leaves)
        counts = combine.create_accumulator()
        for partial in partials:
            counts = combine.add_input(counts, partial)
        yield key, pack(counts)
        yield beam.pvalue.TaggedOutput(BALANCE, (tree_rows(name), -int(counts.sum())))
        yield beam.pvalue.TaggedOutput(BALANCE, (tree_chunks(name), 1))
