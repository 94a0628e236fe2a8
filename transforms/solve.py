"""From exact counts to the answer of every chunk: noise once, then estimation in parts.

    counts -> digests -> global digest -> record
    counts, record -> noisy counts of a chunk, z of its roots -> spine -> solutions of its roots
    noisy counts, solutions -> answer

The exact counts go no further than the step that adds noise; what leaves it is noisy but for the
exact counts of chunk roots, which the spine needs for its own noise and which end there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np

from dpcore.noise.randomness import NONCE_BYTES
from dpcore.noise.source import NoiseSource, combine_digests, counts_digest
from dpcore.questions.question import ChunkedQuestion
from dpcore.questions.tables import spine_table
from dpcore.release.plan import ReleasePlan
from dpcore.trees.chunks import Chunk
from dpcore.trees.forest import Measurements, RootSolutions
from transforms.conservation import check_balance, check_digests, check_once
from transforms.encoding import pack, pack_many, unpack, unpack_many
from transforms.histogram import ChunkKey
from transforms.key_reference import KeyReference
from transforms.metrics import CHUNKS_MEASURED
from transforms.parts import parquet_bytes
from transforms.record import check_record

SpineKey = tuple[str, int]  # tree, code of the (first) key

ROOTS, SPINE_ANSWER = "roots", "spine"
_MEASURED, _SOLVED = b"M", b"S"


def chunk_of(plan: ReleasePlan, key: ChunkKey) -> tuple[ChunkedQuestion, Chunk]:
    """The question and the chunk that a key in flight names."""
    name, first_key, index = key
    question = plan.chunked_question(name)
    chunking = question.forest.chunking
    return question, chunking[chunking.number(first_key, index)]


class KeyedDoFn(beam.DoFn):
    """A step that needs the release key, which it loads on its worker when it is set up."""

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        self._plan, self._reference = plan, key

    def setup(self) -> None:
        self._key = self._reference.load()

    def source(self, draw: Sequence[bytes]) -> NoiseSource:
        """The source of noise from the folder's nonce and the global digest behind it, which are to
        come exactly once."""
        check_once("the global digest", [len(each) for each in draw], [NONCE_BYTES + 32])
        return NoiseSource(
            key=self._key,
            release=self._plan.name,
            spec_digest=self._plan.digest,
            global_digest=draw[0][NONCE_BYTES:],
            nonce=draw[0][:NONCE_BYTES],
        )


def pack_digest(digest: int, chunks: int) -> bytes:
    """A sum of keyed digests, and of how many chunks, as bytes."""
    return combine_digests(digest) + chunks.to_bytes(8, "big")


def unpack_digest(data: bytes) -> tuple[int, int]:
    """The inverse of `pack_digest`.

    >>> unpack_digest(pack_digest(5, 2))
    (5, 2)
    """
    return int.from_bytes(data[:32], "big"), int.from_bytes(data[32:], "big")


class SumDigests(beam.CombineFn):
    """Sums keyed digests modulo 2^256, and counts their chunks: the same whatever their order."""

    def create_accumulator(self) -> bytes:
        return pack_digest(0, 0)

    def add_input(self, accumulator: bytes, element: bytes) -> bytes:
        (total, chunks), (digest, more) = unpack_digest(accumulator), unpack_digest(element)
        return pack_digest(total + digest, chunks + more)

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        merged = self.create_accumulator()
        for accumulator in accumulators:
            merged = self.add_input(merged, accumulator)
        return merged

    def extract_output(self, accumulator: bytes) -> bytes:
        return accumulator


class RecordDraw(beam.PTransform):
    """Lets noise be drawn: nothing was lost, and the draw is recorded beside the output.

    Args:
        plan: the questions.
        key: where the release key lies.
        output: the folder of the release.
        nonce: of the folder.

    Returns:
        PCollection[bytes] of one element: the nonce and the global digest, after the draw was
        recorded. The input is PCollection[bytes], a digest of each chunk and shard, and the
        balance.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference, output: str, nonce: bytes) -> None:
        super().__init__()
        self._plan, self._key, self._output, self._nonce = plan, key, output, nonce

    def expand(self, inputs: Any) -> Any:
        digests, balance = inputs
        balanced = balance | "SumBalance" >> beam.CombinePerKey(sum)
        return (
            digests
            | "GlobalDigest" >> beam.CombineGlobally(SumDigests()).without_defaults()
            # bytes -> the nonce and the same bytes, once the balance holds and the draw is recorded
            | "Record"
            >> beam.ParDo(
                _Record(self._plan, self._key, self._output, self._nonce),
                beam.pvalue.AsDict(balanced),
            )
        )


class DigestChunks(beam.PTransform):
    """Exact counts of all chunks to keyed digests: PCollection[bytes]."""

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        super().__init__()
        self._plan, self._key = plan, key

    def expand(self, counts: Any) -> Any:
        # (ChunkKey, bytes) -> bytes
        return counts | "Digest" >> beam.ParDo(_Digest(self._plan, self._key))


class SolveTrees(beam.PTransform):
    """Exact counts of all chunks to the answers of all chunks.

    Args:
        plan: the questions.
        key: where the release key lies.

    Returns:
        PCollection[tuple[ChunkKey, Iterable[bytes]]], the two messages of every chunk that
        `read_answer` reads; and PCollection[tuple[SpineKey, bytes]], the node tables of the spines
        as Parquet. The input is the counts, and the global digest from `RecordDraw`.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        super().__init__()
        self._plan, self._key = plan, key

    def expand(self, inputs: Any) -> Any:
        counts, recorded = inputs
        measured = (
            counts
            # (ChunkKey, bytes) -> (ChunkKey, bytes), and (SpineKey, bytes)
            | "Measure"
            >> beam.ParDo(
                _Measure(self._plan, self._key), beam.pvalue.AsList(recorded)
            ).with_outputs(ROOTS, main="measured")
        )
        solved = (
            measured[ROOTS]
            # -> (SpineKey, [bytes])
            | "BySpine" >> beam.GroupByKey()
            # -> (ChunkKey, bytes), and (SpineKey, bytes)
            | "Spine"
            >> beam.ParDo(
                _SolveSpine(self._plan, self._key), beam.pvalue.AsList(recorded)
            ).with_outputs(SPINE_ANSWER, main="solved")
        )
        chunks = (
            (measured["measured"], solved["solved"])
            | "BothWays" >> beam.Flatten()
            # -> (ChunkKey, [bytes, bytes])
            | "ByChunk" >> beam.GroupByKey()
        )
        return chunks, solved[SPINE_ANSWER]


@beam.typehints.with_output_types(bytes)
class _Digest(KeyedDoFn):
    def process(self, element: tuple[ChunkKey, bytes]) -> Iterator[bytes]:
        (tree, first_key, index), counts = element
        digest = counts_digest(self._key, self._plan.name, tree, first_key, index, unpack(counts))
        yield pack_digest(digest, 1)


@beam.typehints.with_output_types(bytes)
class _Record(KeyedDoFn):
    """Lets the noise be drawn once nothing was lost and the draw is recorded."""

    def __init__(self, plan: ReleasePlan, key: KeyReference, output: str, nonce: bytes) -> None:
        super().__init__(plan, key)
        self._output, self._nonce = output, nonce

    def process(self, summed: bytes, balance: Mapping[str, int]) -> Iterator[bytes]:
        check_balance(self._plan, balance)
        total, chunks = unpack_digest(summed)
        check_digests(self._plan, chunks)
        draw = self._nonce + combine_digests(total)
        check_record(self._output, self.source([draw]).record())
        yield draw


@beam.typehints.with_output_types(tuple[ChunkKey, bytes], **{ROOTS: tuple[SpineKey, bytes]})
class _Measure(KeyedDoFn):
    def process(self, element: tuple[ChunkKey, bytes], digest: Sequence[bytes]) -> Iterator[Any]:
        key, packed = element
        question, chunk = chunk_of(self._plan, key)
        forest, counts = question.forest, unpack(packed)
        measured = forest.measure(question.name, chunk, counts, self.source(digest))
        yield key, _MEASURED + pack_many([b"" if m is None else pack(m) for m in measured])
        CHUNKS_MEASURED.inc()
        roots = forest.chunk_roots(chunk, measured)
        totals = forest.chunk_totals(chunk, counts)
        yield beam.pvalue.TaggedOutput(
            ROOTS,
            (
                (question.name, chunk.key),
                pack_many([pack(np.array([chunk.index])), roots.tobytes(), pack(totals)]),
            ),
        )


@beam.typehints.with_output_types(tuple[ChunkKey, bytes], **{SPINE_ANSWER: tuple[SpineKey, bytes]})
class _SolveSpine(KeyedDoFn):
    def process(
        self, element: tuple[SpineKey, Iterable[bytes]], digest: Sequence[bytes]
    ) -> Iterator[Any]:
        (name, first_key), messages = element
        question = self._plan.chunked_question(name)
        forest = question.forest
        parts = sorted(
            (
                (int(unpack(index)[0]), np.frombuffer(roots), unpack(totals))
                for index, roots, totals in map(unpack_many, messages)
            ),
            key=lambda part: part[0],
        )
        check_once(
            f"the chunks of tree {name}",
            (index for index, _, _ in parts),
            range(forest.chunking.chunks_per_key),
        )
        solutions, levels = forest.solve_spine(
            name,
            first_key,
            np.concatenate([roots for _, roots, _ in parts]),
            np.concatenate([totals for _, _, totals in parts]),
            self.source(digest),
        )
        start = 0
        for index, roots, _ in parts:
            stop = start + len(roots)
            part = solutions.slice(start, stop).to_array()
            yield (name, first_key, index), _SOLVED + part.tobytes()
            start = stop
        if levels:
            table = parquet_bytes(spine_table(question, first_key, solutions, levels))
            yield beam.pvalue.TaggedOutput(SPINE_ANSWER, ((name, first_key), table))


def read_answer(
    plan: ReleasePlan, key: ChunkKey, messages: Iterable[bytes]
) -> tuple[Measurements, RootSolutions]:
    """The measurements and the roots' solutions of a chunk from the two messages that carry them.

    Args:
        plan: the questions.
        key: names the chunk.
        messages: as `SolveTrees` gives them.

    Raises:
        ConservationError: one of them is missing or came twice.
    """
    received = list(messages)
    check_once(f"the messages of tree {key[0]}", (m[:1] for m in received), (_MEASURED, _SOLVED))
    by_kind = {message[:1]: message[1:] for message in received}
    _, chunk = chunk_of(plan, key)
    measured = [
        unpack(part).reshape(chunk.rows, -1) if part else None
        for part in unpack_many(by_kind[_MEASURED])
    ]
    array = np.frombuffer(by_kind[_SOLVED], dtype=np.int64)
    return measured, RootSolutions.from_array(array.reshape(RootSolutions.width(), -1))
