"""Questions that are no trees: counts of known cells, or of keys in shards, released in one part.

The number of messages follows from the plan alone: a place sends its counts also where it has no
rows, since how many there are must not reveal which keys there are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.questions.messages import (
    ChunkCounts,
    Counter,
    DenseCounter,
    Gathered,
    Increments,
    Part,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
    merged_chunk,
    pack_dense,
)
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.released import (
    NODES,
    NODES_SCHEMA,
    Answer,
    Released,
    tree_and_key,
)
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.trees.chunks import UniformChunking, split_words, words_total
from dptrees.dpcore.trees.shapes import UniformTree


@dataclass(frozen=True, kw_only=True)
class OnePart(Question):
    """A question whose results are one table of one part."""

    output_only: ClassVar[tuple[str, ...]] = ("confidence", "weight")

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        return self.regrouped(self.row_increments(columns).increments)

    def parts(self) -> Iterator[Part]:
        yield Part(kind=NODES, tree=self.name, key=0, index=0)

    def released(self, table: pa.Table) -> Gathered:
        """Return the table as the outcome of `gather`."""
        (part,) = self.parts()
        return Gathered({}, [ReleasedPart(part, table)])


def nodes_table(
    question: Question,
    level: int,
    estimates: Floats,
    error: float,
    reach: float,
    labels: Sequence[str],
) -> pa.Table:
    """Return the rows of the table of nodes of one level, whose nodes have one error.

    Args:
        question: the tree.
        level: which.
        estimates: (keys, nodes), of counts.
        error: the standard error.
        reach: half of the width of each interval.
        labels: (nodes,) of each key.
    """
    keys, wide = estimates.shape
    flat = estimates.reshape(-1)
    return pa.Table.from_arrays(
        [
            *tree_and_key(question, 0, keys, wide),
            pa.array(np.full(keys * wide, level, np.int32)),
            pa.array(np.tile(np.arange(wide, dtype=np.int64), keys)),
            pa.array([*labels] * keys, pa.string()),
            pa.array(flat),
            pa.array(np.full(keys * wide, error)),
            pa.array(np.maximum(flat - reach, 0.0)),
            pa.array(np.maximum(flat + reach, 0.0)),
            pa.array(np.maximum(np.rint(flat), 0).astype(np.int64)),
        ],
        schema=NODES_SCHEMA,
    )


class ReleasedTable(Released):
    """The answers about a question of one part."""

    @property
    def height(self) -> int:
        """0: lower levels are for the numbers at the root, and are no counts."""
        return 0

    @property
    def table(self) -> pa.Table:
        """All rows."""
        return self._read(NODES, self.question.name, 0, 0)


class ReleasedNumbers(ReleasedTable):
    """One number for each key, in tables of nodes."""

    # What messages say that the tree has.
    only: ClassVar[str]

    def _level(self, level: int) -> pa.Table:
        return self.table.filter(pc.equal(self.table["level"], level))

    @property
    def rows(self) -> pa.Table:
        """The rows of the table of nodes at the root, one for each key."""
        return self._level(0)

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        """The number of a key, the only node.

        Raises:
            ValueError: there is no such level or key.
        """
        if level != 0:
            raise ValueError(f"level: {level} is not 0; tree {self._name} has {self.only}")
        return [self.at_path("", key)][:count]

    def at_path(self, path: str, key: object = None) -> Answer:
        """The number of a key.

        Raises:
            ValueError: a path, or no such key.
        """
        if path:
            raise ValueError(f"path: tree {self._name} has {self.only}; use --path ''")
        return self._answer(self.rows.slice(self._code(key), 1).to_pylist()[0])

    def _answer(self, row: dict[str, Any]) -> Answer:
        names = ("label", "estimate", "std_error", "ci_low", "ci_high", "count")
        return Answer(**{name: row[name] for name in names}, fraction=None)

    def node(self, level: int, node: int, key: object = None) -> Answer:
        if (level, node) != (0, 0):
            raise ValueError(f"node: tree {self._name} has node 0 of level 0 alone")
        return self.at_path("", key)


ONE_PLACE = Place(0, 0)


@dataclass(frozen=True, kw_only=True)
class KnownCells(OnePart):
    """A question whose cells are known and few: they are one chunk of one place."""

    @property
    @abstractmethod
    def dense_cells(self) -> int:
        """The number of cells."""

    @property
    def places(self) -> list[Place]:
        """One."""
        return [ONE_PLACE]

    @cached_property
    def _chunking(self) -> UniformChunking:
        cells = self.dense_cells
        tree = UniformTree(leaves=cells, fanouts=(cells,))
        return UniformChunking(tree=tree, keys=1, chunk_leaves=cells)

    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        return DenseCounter(self._chunking)

    def merge(self, place: Place, partials: Iterable[bytes]) -> ChunkCounts:
        return merged_chunk(self.dense_cells, partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut the exact counts by cell into partial counts.

        Raises:
            ValueError: they are not (cells,) whole numbers from 0 on.
        """
        given = np.asarray(counts)
        if given.shape != (self.dense_cells,) or given.dtype.kind not in "iu" or given.min() < 0:
            raise ValueError(
                f"counts: tree {self.name} needs {self.dense_cells} whole numbers from 0"
            )
        numbers = given.astype(np.int64)
        yield Partial(ONE_PLACE, pack_dense(numbers), words_total(split_words(numbers)))


MOST_ROWS = 2**21
# Keys that wait to be grouped, in bytes: many batches together, since a key that is rare
# in each would be sorted in each.
_MOST_BYTES = 2**26


class KeyCounter(Counter):
    """Counts the rows of many batches by key, in memory that does not grow with them.

    Args:
        key_type: of packed keys, uint64 or large_string.
        shards: in how many parts they are handled.

    >>> counter = KeyCounter(pa.uint64(), shards=2)
    >>> counter.add(Increments(pa.array([3, 1, 3], pa.uint64())), 4), counter.is_due
    (3, False)
    >>> [(partial.place.number, partial.total) for partial in counter.take()]
    [(1, 3), (0, 0)]
    """

    def __init__(self, key_type: pa.DataType, shards: int) -> None:
        self._key_type, self._shards = key_type, shards
        self._read, self._rows, self._grouped = 0, [pa.array([], key_type)], list[NodeCounts]()

    def add(self, increments: Increments, rows: int, /) -> int:
        """Counts a batch.

        Args:
            increments: the key of each row that has one, in any order.
            rows: of the batch.
        """
        assert isinstance(increments.cells, pa.Array) and increments.values is None
        self._read += rows
        self._rows.append(increments.cells)
        if sum(each.nbytes for each in self._rows) > _MOST_BYTES:
            self._group()
        return len(increments.cells)

    def _group(self) -> None:
        self._grouped.append(NodeCounts.grouped(pa.concat_arrays(self._rows)))
        self._rows = [pa.array([], self._key_type)]

    @property
    def is_due(self) -> bool:
        """It follows from how many rows there were."""
        return self._read >= MOST_ROWS

    def take(self) -> Iterator[Partial]:
        """The counts of every shard since the last call, and start anew."""
        self._group()
        grouped, self._grouped, self._read = self._grouped, [], 0
        yield from _shard_partials(NodeCounts.merged(grouped), self._shards)


def place_partials(
    places: Iterable[Place], counts: Iterable[tuple[Place, NodeCounts]]
) -> Iterator[Partial]:
    """Yield the counts of every place, also of those without rows.

    Args:
        places: all of them.
        counts: of those that have rows.
    """
    without = set(places)
    for place, own in counts:
        without.remove(place)
        yield Partial(place, own.to_bytes(), own.total)
    for place in sorted(without):
        yield Partial(place, b"")


def _shard_partials(counts: NodeCounts, shards: int) -> Iterator[Partial]:
    places = [Place(0, shard) for shard in range(shards)]
    return place_partials(places, ((places[shard], own) for shard, own in counts.split(shards)))


def key_increments(keys: pa.Array) -> RowIncrements:
    """Return the key of each row that has one.

    Args:
        keys: (rows,) null where a row has none.
    """
    if not keys.null_count:
        return RowIncrements(Increments(keys))
    kept = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
    return RowIncrements(Increments(keys.drop_null()), kept)


SHARDS = 32


@dataclass(frozen=True, kw_only=True)
class ShardedKeys(OnePart):
    """A question whose cells are keys that nobody lists: the places are shards of them.

    Args:
        shards: in how many parts the keys are handled.

    Raises:
        ValueError: no shard.
    """

    shards: int = SHARDS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shards < 1:
            raise ValueError(f"shards: {self.shards} is not at least 1")

    @property
    @abstractmethod
    def key_type(self) -> pa.DataType:
        """Type of packed keys: uint64 or large_string."""

    @property
    def counts_rows(self) -> bool:
        return False

    @property
    def places(self) -> list[Place]:
        """The shards."""
        return [Place(0, shard) for shard in range(self.shards)]

    @property
    def is_keyed(self) -> bool:
        return True

    def cell_keys(self, cells: Integers) -> Integers:
        """Each cell is a key, under which a unit counts once."""
        return cells

    def counter(self, *, dense: bool, choices: KeyedChoices) -> KeyCounter:
        return KeyCounter(self.key_type, self.shards)

    def merge(self, place: Place, partials: Iterable[bytes]) -> NodeCounts:
        return NodeCounts.from_partials(self.key_type, partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut the exact counts of keys, packed as rows have them, into partial counts.

        Raises:
            ValueError: they are no counts of nodes.
        """
        if not isinstance(counts, NodeCounts):
            raise ValueError(f"counts: those of tree {self.name} are no counts of nodes")
        return _shard_partials(counts, self.shards)
