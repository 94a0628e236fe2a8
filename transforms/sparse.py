"""Large sparse trees: exact counts per shard of each level, noise and threshold, settled levels.

    batches -> partial counts ((tree, level, shard), bytes) -> GroupByKey -> counts per shard
    counts, record -> published nodes of a shard -> all of a tree together -> a part per level

Shards follow from the plan: each gets an empty partial, so that empty ones exist. What is gathered
per tree is what was published, and grows with the data's nodes of more rows than the threshold.

Engines count elements. Whenever counts leave a bundle, all shards do, with rows or without; how
often they leave before it ends depends on how many leaves its rows touch (docs/engines.md).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from dpcore.questions.tables import NODES
from dpcore.release.plan import ReleasePlan
from dpcore.rows.packing import pack_many, unpack_many
from dpcore.sparse.counter import SparseCounter, merge_shard
from dpcore.sparse.node_counts import NodeCounts
from dpcore.sparse.publication import publish_shard, shard_digest
from dpcore.sparse.question import SparseQuestion
from dpcore.sparse.solution import sparse_tables
from transforms.conservation import check_once, level_rows, tree_chunks, tree_partials, tree_rows
from transforms.errors import InputError
from transforms.key_reference import KeyReference
from transforms.layout import Part, parquet_bytes
from transforms.readers.read import BALANCE
from transforms.solve import KeyedDoFn, pack_digest
from transforms.write import PartsWriter

ShardKey = tuple[str, int, int]  # tree, level, shard

_DIGEST = "digest"


class CountShards(beam.PTransform):
    """Record batches to the exact counts of every shard of the sparse trees of a plan.

    Args:
        plan: the questions.
        key: where the release key lies.

    Returns:
        PCollection[tuple[ShardKey, bytes]] with every shard of the plan once; PCollection[bytes],
        a digest of each; and the balance PCollection[tuple[str, int]].
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        super().__init__()
        self._plan, self._key = plan, key

    def expand(self, batches: Any) -> Any:
        partial = (
            batches
            # pa.RecordBatch -> (ShardKey, bytes)
            | "Partial"
            >> beam.ParDo(_PartialShards(self._plan)).with_outputs(BALANCE, main="counts")
        )
        empty = (
            batches.pipeline
            | "Trees" >> beam.Create(range(len(self._plan.sparse)), reshuffle=False)
            # tree -> (ShardKey, b"")
            | "Empty" >> beam.ParDo(_EmptyShards(self._plan))
        )
        merged = (
            (partial["counts"], empty)
            | "AllShards" >> beam.Flatten()
            # -> (ShardKey, [bytes])
            | "ByShard" >> beam.GroupByKey()
            # -> (ShardKey, bytes)
            | "Merge"
            >> beam.ParDo(_MergeShard(self._plan, self._key)).with_outputs(
                BALANCE, _DIGEST, main="counts"
            )
        )
        balance = (partial[BALANCE], merged[BALANCE]) | "Balance" >> beam.Flatten()
        return merged["counts"], merged[_DIGEST], balance


class PublishShards(beam.PTransform):
    """Exact counts of all shards to the written parts of the sparse trees.

    Args:
        plan: the questions.
        key: where the release key lies.
        output: the folder of the release.

    Returns:
        PCollection[bytes], a receipt of each part.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference, output: str) -> None:
        super().__init__()
        self._plan, self._key, self._output = plan, key, output

    def expand(self, inputs: Any) -> Any:
        counts, recorded = inputs
        return (
            counts
            # (ShardKey, bytes) -> (tree, bytes)
            | "Publish" >> beam.ParDo(_Publish(self._plan, self._key), beam.pvalue.AsList(recorded))
            # -> (tree, [bytes])
            | "ByTree" >> beam.GroupByKey()
            # -> bytes
            | "WriteLevels" >> beam.ParDo(_WriteLevels(self._plan, self._output))
        )


@beam.typehints.with_output_types(tuple[ShardKey, bytes])
class _EmptyShards(beam.DoFn):
    def __init__(self, plan: ReleasePlan) -> None:
        self._plan = plan

    def process(self, tree: int) -> Iterator[tuple[ShardKey, bytes]]:
        question = self._plan.sparse[tree]
        for level, shard in question.places():
            yield (question.name, level, shard), b""


@beam.typehints.with_output_types(tuple[ShardKey, bytes], **{BALANCE: tuple[str, int]})
class _PartialShards(beam.DoFn):
    """Counts a bundle's rows, and hands the counts on when they are many or the bundle ends."""

    def __init__(self, plan: ReleasePlan) -> None:
        self._plan = plan

    def start_bundle(self) -> None:
        self._counters = {
            question.name: SparseCounter(question.domain, question.shards)
            for question in self._plan.sparse
        }
        # How many increments a bundle gives follows from the plan, whatever its rows.
        self._balance = {
            name: 0
            for question in self._plan.sparse
            for level in range(question.plan.height + 1)
            for name in (tree_partials(question.name), level_rows(question.name, level))
        }

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[ShardKey, bytes]]:
        for question in self._plan.sparse:
            counter = self._counters[question.name]
            columns = {name: batch.column(name) for name in question.columns}
            try:
                kept = counter.add(columns)
            except (pa.ArrowException, ValueError, OverflowError):
                # The library's message may show a value.
                raise InputError(
                    f"input: a column of tree {question.name} cannot be read as its domain asks"
                ) from None
            # Every row that is kept counts at the root.
            self._balance[tree_rows(question.name)] += kept
            if counter.is_full:
                yield from self._taken(question)

    def finish_bundle(self) -> Iterator[Any]:
        in_window = beam.transforms.window.GlobalWindows.windowed_value
        for question in self._plan.sparse:
            for element in self._taken(question):
                yield in_window(element)
        for increment in self._balance.items():
            yield beam.pvalue.TaggedOutput(BALANCE, in_window(increment))

    def _taken(self, question: SparseQuestion) -> Iterator[tuple[ShardKey, bytes]]:
        """What is counted, of every shard: how many there are must not tell where rows are."""
        without = set(question.places())
        self._balance[tree_partials(question.name)] += len(without)
        for partial in self._counters[question.name].take():
            without.remove((partial.level, partial.shard))
            if partial.level > 0:
                self._balance[level_rows(question.name, partial.level)] += partial.rows
            yield (question.name, partial.level, partial.shard), partial.data
        for level, shard in sorted(without):
            yield (question.name, level, shard), b""


@beam.typehints.with_output_types(
    tuple[ShardKey, bytes], **{BALANCE: tuple[str, int], _DIGEST: bytes}
)
class _MergeShard(KeyedDoFn):
    def process(self, element: tuple[ShardKey, Iterable[bytes]]) -> Iterator[Any]:
        key, received = element
        name, level, shard = key
        partials = list(received)
        counts = merge_shard(self._plan.sparse_question(name).domain, partials)
        yield key, counts.to_bytes()
        digest = shard_digest(self._key, self._plan.name, name, level, shard, counts)
        yield beam.pvalue.TaggedOutput(_DIGEST, pack_digest(digest, 1))
        yield beam.pvalue.TaggedOutput(BALANCE, (tree_chunks(name), 1))
        yield beam.pvalue.TaggedOutput(BALANCE, (level_rows(name, level), -counts.total))
        # One is the empty partial.
        yield beam.pvalue.TaggedOutput(BALANCE, (tree_partials(name), 1 - len(partials)))


@beam.typehints.with_output_types(tuple[str, bytes])
class _Publish(KeyedDoFn):
    def process(
        self, element: tuple[ShardKey, bytes], digest: Sequence[bytes]
    ) -> Iterator[tuple[str, bytes]]:
        (name, level, shard), packed = element
        question = self._plan.sparse_question(name)
        counts, noise = NodeCounts.from_bytes(packed), self.source(digest)
        nodes = publish_shard(question.plan, question.domain, name, level, shard, counts, noise)
        yield name, pack_many([bytes([level]), shard.to_bytes(4, "big"), nodes.to_bytes()])


@beam.typehints.with_output_types(bytes)
class _WriteLevels(PartsWriter):
    def process(self, element: tuple[str, Iterable[bytes]]) -> Iterator[bytes]:
        name, messages = element
        question = self._plan.sparse_question(name)
        received = [
            ((level[0], int.from_bytes(shard, "big")), nodes)
            for level, shard, nodes in map(unpack_many, messages)
        ]
        check_once(
            f"the shards of tree {name}", (place for place, _ in received), question.places()
        )
        published = {place: NodeCounts.from_bytes(nodes) for place, nodes in received}
        for level, table in enumerate(sparse_tables(question, published)):
            part = Part(kind=NODES, tree=name, key=0, index=level)
            yield self.write(part, table.num_rows, parquet_bytes(table))
