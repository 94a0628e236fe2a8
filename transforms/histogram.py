"""Exact counts per chunk: record batches to partial histograms, and their sum.

    batches -> partial histograms ((tree, key, chunk), bytes) -> GroupByKey -> sum per chunk

Partial histograms are made where the rows are read, in one of two ways chosen by the plan: a
dense array over all cells while that fits memory, else leaf ids are buffered, sorted and sent on as
sparse increments. Every chunk of the plan also gets an empty partial, so that empty ones exist.

Engines count elements. In the dense way a bundle sends every chunk of the plan, with rows or
without, so that these counters tell nothing of the rows; in the sparse way, of trees of more cells,
they tell which chunks a bundle touched (docs/engines.md).
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from dpcore.arrays import Integers
from dpcore.questions.question import ChunkedQuestion
from dpcore.release.plan import ReleasePlan
from dpcore.trees.chunks import Chunk
from dpcore.trees.exact_sums import LeafSums, saturated_sums, words_of, words_total
from transforms.conservation import residue, tree_chunks, tree_partials, tree_rows
from transforms.encoding import pack, pack_many, unpack, unpack_many
from transforms.errors import InputError
from transforms.readers.read import BALANCE

# Leaf ids, and the values to add to them: None where each adds 1.
Increments = tuple[Integers, Integers | None]

ChunkKey = tuple[str, int, int]  # tree, code of the (first) key, index of the chunk

# Dense arrays of all trees together; 8 bytes a cell.
DENSE_CELLS = 2**25
# Sparse: how many leaf ids are buffered before they are sorted.
BUFFERED_ROWS = 2**23


def chunk_key(question: ChunkedQuestion, chunk: Chunk) -> ChunkKey:
    """What names a chunk in flight."""
    return question.name, chunk.key, chunk.index


def pack_dense(*words: Integers) -> bytes:
    """The counts of all leaves of a chunk, (leaves,); or their low and their high words."""
    return pack_many([b"", *map(pack, words)])


def pack_sparse(offsets: Integers, counts: Integers) -> bytes:
    """The counts of some leaves of a chunk: rising offsets within it, and their counts."""
    return pack_many([pack(np.diff(offsets, prepend=0)), pack(counts)])


class SumCounts(beam.CombineFn):
    """Sums partial histograms of one chunk; associative and commutative, on integers.

    Sums are held in two words, so that none wraps; see `dpcore.trees.exact_sums`.

    Args:
        leaves: of the chunk.
    """

    def __init__(self, leaves: int) -> None:
        self._leaves = leaves

    def create_accumulator(self) -> Integers:
        return np.zeros((2, self._leaves), dtype=np.int64)

    def add_input(self, accumulator: Integers, element: bytes) -> Integers:
        if not element:
            return accumulator
        offsets, low, *high = unpack_many(element)
        places = np.cumsum(unpack(offsets)) if offsets else slice(None)
        _add_words(accumulator, places, unpack(low))
        for word in high:
            accumulator[1][places] += unpack(word)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Integers]) -> Integers:
        merged = self.create_accumulator()
        for accumulator in accumulators:
            merged += accumulator
        return merged

    def extract_output(self, accumulator: Integers) -> Integers:
        return saturated_sums(accumulator)


def _add_words(accumulator: Integers, places: Integers | slice, values: Integers) -> None:
    if values.size and values.min() >= -(2**31) and values.max() < 2**31:
        accumulator[0][places] += values
    else:
        low, high = words_of(values)
        accumulator[0][places] += low
        accumulator[1][places] += high


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
        names = [question.name for question in self._plan.chunked]
        self._rows = 0
        self._kept = dict.fromkeys(names, 0)
        self._sent = dict.fromkeys(names, 0)
        self._counts: dict[str, LeafSums] = {}
        self._waiting: dict[str, list[Increments]] = {}
        self._buffered = 0

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[ChunkKey, bytes]]:
        # Usually one part: no batch is so large that its sums come near 64 bits.
        for start in range(0, batch.num_rows, BUFFERED_ROWS):
            yield from self._count(batch.slice(start, BUFFERED_ROWS))

    def _count(self, batch: pa.RecordBatch) -> Iterator[tuple[ChunkKey, bytes]]:
        self._rows += batch.num_rows
        self._buffered += batch.num_rows
        # When partial histograms leave follows from the rows read, not from those that are kept.
        is_full = self._buffered >= BUFFERED_ROWS
        for question in self._plan.chunked:
            ids, values = self._increments(question, batch)
            self._kept[question.name] += len(ids) if values is None else int(values.sum())
            if self._dense:
                self._leaf_sums(question).add(ids, values)
                continue
            self._waiting.setdefault(question.name, []).append((ids, values))
            if is_full:
                yield from self._sparse(question)
        if is_full:
            self._buffered = 0

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

    def _leaf_sums(self, question: ChunkedQuestion) -> LeafSums:
        if question.name not in self._counts:
            self._counts[question.name] = LeafSums(question.forest.chunking.cells)
        return self._counts[question.name]

    def _sparse(self, question: ChunkedQuestion) -> Iterator[tuple[ChunkKey, bytes]]:
        for element in _sparse_counts(question, self._waiting.pop(question.name, [])):
            self._sent[question.name] += 1
            yield element

    def finish_bundle(self) -> Iterator[Any]:
        for question in self._plan.chunked:
            name = question.name
            for element in self._remaining(question):
                yield _in_window(element)
            yield _balance(tree_rows(name), residue(self._kept[name]))
            yield _balance(tree_partials(name), self._sent[name])
        yield _balance("rows", -self._rows)
        self.start_bundle()

    def _remaining(self, question: ChunkedQuestion) -> Iterator[tuple[ChunkKey, bytes]]:
        if not self._dense:
            yield from self._sparse(question)
            return
        self._sent[question.name] += len(question.forest.chunking)
        yield from _dense_counts(question, self._counts.pop(question.name, None))


def _in_window(element: object) -> Any:
    return beam.transforms.window.GlobalWindows.windowed_value(element)


def _balance(name: str, increment: int) -> Any:
    return beam.pvalue.TaggedOutput(BALANCE, _in_window((name, increment)))


def _dense_counts(
    question: ChunkedQuestion, sums: LeafSums | None
) -> Iterator[tuple[ChunkKey, bytes]]:
    """Every chunk, also those without rows: how many there are must not tell where rows are."""
    for chunk in question.forest.chunking:
        words = () if sums is None else sums.words
        parts = [word[chunk.start : chunk.start + chunk.leaves] for word in words]
        is_empty = not any(part.any() for part in parts)
        yield chunk_key(question, chunk), b"" if is_empty else pack_dense(*parts)


def _sparse_counts(
    question: ChunkedQuestion, waiting: list[Increments]
) -> Iterator[tuple[ChunkKey, bytes]]:
    if not waiting:
        return
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
        sums, received = combine.create_accumulator(), 0
        for partial in partials:
            sums = combine.add_input(sums, partial)
            received += 1
        yield key, pack(combine.extract_output(sums))
        # Of the exact sums: what saturates does not stop the job, which would tell of the data.
        yield beam.pvalue.TaggedOutput(BALANCE, (tree_rows(name), residue(-words_total(sums))))
        # One is the empty partial.
        yield beam.pvalue.TaggedOutput(BALANCE, (tree_partials(name), 1 - received))
        yield beam.pvalue.TaggedOutput(BALANCE, (tree_chunks(name), 1))
