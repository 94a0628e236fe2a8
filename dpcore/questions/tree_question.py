"""A question about a tree of known leaves, which workers measure and solve in chunks.

It has a map from rows to leaves, a forest (`dpcore.trees.forests`) whose chunks any worker can
measure and solve, names for the nodes of a level and intervals for their counts. An accumulated
tree is released from several measurements, such as the periods of a series: their noisy counts
are added node by node before anything is estimated, and each has noise of its own, a fixed number
however often it is read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.unit import Budget, PrivacyUnit
from dptrees.dpcore.questions.answer_errors import IntervalRule, Intervals
from dptrees.dpcore.questions.messages import (
    ChunkCounts,
    Counter,
    DenseCounter,
    Drawn,
    Gathered,
    Increments,
    Part,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
    SentRoots,
    SortedCounter,
    chunk_place,
    merged_chunk,
    pack_dense,
    pack_measured,
    pack_roots,
    pack_solutions,
    unpack_measured,
    unpack_solutions,
)
from dptrees.dpcore.questions.planning import (
    ChunkAnswer,
    ChunkLayout,
    Domain,
    Mechanism,
    MechanismPlan,
)
from dptrees.dpcore.questions.question import PublicTable, Question
from dptrees.dpcore.questions.released import NODES, NODES_SCHEMA, number_column, tree_and_key
from dptrees.dpcore.rows.columns import pack, unpack
from dptrees.dpcore.rows.key_tables import TableKeys
from dptrees.dpcore.rows.policies import RowOutcome
from dptrees.dpcore.specification import INLINE, Coded
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES, SPINE, Chunk
from dptrees.dpcore.trees.error_laws import QuantileWidths
from dptrees.dpcore.trees.forests import Forest, Known, LevelSolution, Measurements, RootSolutions

Q = TypeVar("Q", bound="KeyedQuestion")
T = TypeVar("T", bound="TreeQuestion[Any]")


def budget_entry(question: Question) -> dict[str, object]:
    """Budget of a tree, by its measure; nothing where that is an epsilon with a delta."""
    own = question.budget
    return {} if own is None else {own.measure.value: str(own.amount)}


@dataclass(frozen=True, kw_only=True)
class KeyedQuestion(Question):
    """A question about the columns of a domain, once for each key.

    Args:
        domain: the map from rows to cells.
    """

    domain: Any

    @property
    def public_tables(self) -> tuple[PublicTable, ...]:
        return (self.keys.table,) if isinstance(self.keys, TableKeys) else ()

    def with_public_tables(self: Q, shared: Callable[[PublicTable], PublicTable]) -> Q:
        if not isinstance(self.keys, TableKeys):
            return self
        return replace(self, keys=self.keys.with_table(shared(self.keys.table)))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, each once."""
        by = () if self.keys is None else self.keys.columns
        return tuple(dict.fromkeys((*self.domain.columns, *by)))

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """The type of each column where a file does not give one, as CSV does not.

        Raises:
            ValueError: two parts of the question read one column as different types.
        """
        types: dict[str, pa.DataType] = dict(self.domain.value_types)
        if self.keys is not None:
            for name, type in self.keys.value_types.items():
                self._add_type(types, name, type)
        return types

    @staticmethod
    def _add_type(types: dict[str, pa.DataType], column: str, target_type: pa.DataType) -> None:
        if types.setdefault(column, target_type) != target_type:
            raise ValueError(
                f"the column {column!r} is read as {types[column]} and as {target_type} by one tree"
            )

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        """Refuse columns of types that cannot be read.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """
        for name in self.domain.columns:
            self.domain.check_column_type(name, types[name])
        if self.keys is not None:
            self.keys.check_types(types)

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        of_keys = [] if self.keys is None else self.keys.row_outcomes(columns)
        return [*self.domain.row_outcomes(columns), *of_keys]

    @property
    def value_policies(self) -> dict[str, object]:
        """Policies for values that the domain does not list."""
        spec = self.domain.spec()
        return {name: spec[name] for name in ("outside", "missing", "unknown") if name in spec}


def column_policies(question: KeyedQuestion) -> dict[str, dict[str, object]]:
    """Policies for values that a tree's domain or keys do not list, by column."""
    policies = {", ".join(question.domain.columns): question.value_policies}
    if question.keys is not None:
        by = ", ".join(question.keys.columns)
        policies.setdefault(by, {})["unknown key"] = question.keys.unknown
    return policies


M = TypeVar("M", bound=Mechanism[Any, Any], covariant=True)


@dataclass(frozen=True, kw_only=True)
class TreeQuestion(KeyedQuestion, Generic[M]):
    """A question about a tree of known leaves, which workers measure and solve in chunks.

    Args:
        domain: the map from rows to leaves.
        mechanism: how the tree is measured.
        chunk_leaves: the most leaves of a chunk. Streams of noise follow the chunks.

    Raises:
        ValueError: parts that do not fit each other.
    """

    # The kinds of tables: "nodes", and "cdf" where leaves have an order.
    tables: ClassVar[tuple[str, ...]]
    domain: Domain
    mechanism: M = field(metadata=INLINE)
    chunk_leaves: int = CHUNK_LEAVES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plan.tree.leaves != self.domain.cells:
            raise ValueError(
                f"plan: {self.plan.tree.leaves} leaves for a domain of {self.domain.cells} cells"
            )
        if self.chunk_leaves < 1:
            raise ValueError(f"chunk_leaves: {self.chunk_leaves} is not at least 1")
        if (self.keys is not None) != self.plan.keyed:
            raise ValueError("plan: keyed must say whether the question has keys")
        self.mechanism.check(self.layout, lambda: self.forest)

    @property
    def plan(self) -> MechanismPlan:
        """The plan of the mechanism."""
        return self.mechanism.plan

    def law_spec(self) -> dict[str, object]:
        hidden = {*self.output_only, *self.mechanism.output_only}
        return {name: value for name, value in self.spec().items() if name not in hidden}

    @property
    def layout(self) -> ChunkLayout:
        """Division of the trees of all keys into chunks."""
        return ChunkLayout(
            keys=self.key_count, chunk_leaves=self.chunk_leaves, signed=self.is_signed
        )

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The name of the domain's and the mechanism's kind in specifications."""
        return self.mechanism.kind

    @property
    def unit(self) -> PrivacyUnit:
        return self.plan.unit

    @property
    def budget(self) -> Budget | None:
        return self.plan.budget

    @property
    def spending(self) -> Spending:
        return self.mechanism.spending

    def with_public_tables(self: T, shared: Callable[[PublicTable], PublicTable]) -> T:
        copy = super().with_public_tables(shared)
        if copy is not self and "widths" in self.__dict__:
            copy.remember_widths(self.widths)
        return copy

    @cached_property
    def forest(self) -> Forest:
        """The trees in chunks."""
        forest: Forest = self.mechanism.forest(self.layout)
        return forest

    @cached_property
    def widths(self) -> Coded:
        """Half-widths of the confidence intervals."""
        widths: Coded = self.mechanism.widths(self.confidence)
        return widths

    @cached_property
    def rule(self) -> IntervalRule:
        """Rule that gives estimates their intervals."""
        return self.mechanism.intervals(self.forest, self.widths)

    def prepare(self) -> None:
        _ = self.widths

    def recall(self, entry: Mapping[str, object]) -> None:
        widths = entry["interval_widths"]
        assert isinstance(widths, Mapping)
        self.remember_widths(self.mechanism.widths_kind.from_spec(widths))

    def follow(self, entry: Mapping[str, object]) -> None:
        stored = entry.get("interval_widths")
        # Quantiles that were chosen one after the other have none.
        if isinstance(stored, Mapping) and isinstance(self.widths, QuantileWidths):
            self.remember_widths(self.widths.as_stored(stored))

    def remember_widths(self, widths: Coded) -> None:
        """Store widths that were computed before."""
        self.__dict__["widths"] = widths

    @property
    def public_total(self) -> bool:
        """Whether the number of rows is public and the root exact."""
        return self.mechanism.public_total

    @property
    def is_signed(self) -> bool:
        """Whether what is counted may be negative."""
        return False

    @abstractmethod
    def node_labels(self, level: int, nodes: Integers) -> pa.StringArray:
        """The part of the domain that each node of a level covers, in the domain's notation."""

    def intervals(self, solved: LevelSolution, total: float | None) -> Intervals:
        """Return the estimates of a solved level with their errors.

        Args:
            solved: the level.
            total: the public number of rows, None where it is private.
        """
        bottom, top = -np.inf if self.is_signed else 0.0, np.inf if total is None else total
        return self.rule.nodes(solved, bottom, top)

    @abstractmethod
    def chunk_answer(
        self, chunk: Chunk, measured: Measurements, roots: RootSolutions
    ) -> ChunkAnswer:
        """Solve a chunk.

        Args:
            chunk: one of the forest's.
            measured: the noisy counts of its levels.
            roots: (units,) the solutions of its subtrees' roots.
        """

    def released_total(self, roots: RootSolutions) -> float | None:
        """The public number of rows, None where it is private; there are no keys where it is
        public."""
        return float(roots.total[0]) if self.public_total else None

    def listed(self, level: int, nodes: Integers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Flags of the nodes of a level that are rows of the output, (n,): those that repeat a leaf
        are not."""
        return np.ones(nodes.size, dtype=bool)

    def nodes_table(
        self, first_key: int, levels: Sequence[LevelSolution], total: float | None
    ) -> pa.Table:
        """Return the rows of nodes of a chunk or spine: by level, then by key and node.

        Args:
            first_key: the code of the first key.
            levels: the solved levels, (units, n) each.
            total: the public number of rows, None where it is private.
        """
        parts = [self._level_rows(first_key, level, total) for level in levels]
        return pa.concat_tables(parts) if parts else self._nodes_schema.empty_table()

    def _level_rows(self, first_key: int, level: LevelSolution, total: float | None) -> pa.Table:
        units, size = level.estimate.shape
        whole_trees = self.forest.chunking.split_level == 0
        # A row of units is one key's tree, or all units lie side by side in one key's level.
        rows, wide = (units, size) if whole_trees else (1, units * size)
        nodes = np.arange(level.first_node, level.first_node + wide)
        labels = self.node_labels(level.level, nodes)
        table = pa.Table.from_arrays(
            [
                *tree_and_key(self, first_key, rows, wide),
                pa.array(np.full(rows * wide, level.level, np.int32)),
                pa.array(np.tile(nodes, rows)),
                labels.take(pa.array(np.tile(np.arange(wide), rows))) if rows > 1 else labels,
                *map(number_column, self.intervals(level, total)),
                pa.array(level.count.reshape(-1)),
                *self.mechanism.node_columns(level),
            ],
            schema=self._nodes_schema,
        )
        listed = self.listed(level.level, nodes)
        return table if listed.all() else table.filter(pa.array(np.tile(listed, rows)))

    @property
    def _nodes_schema(self) -> pa.Schema:
        return pa.schema([*NODES_SCHEMA, *self.mechanism.node_fields])

    def spine_table(
        self, first_key: int, roots: RootSolutions, levels: Sequence[LevelSolution]
    ) -> pa.Table:
        """Return the rows of the nodes above the chunks of a key.

        Args:
            first_key: the code of the (first) key.
            roots: the solutions of all chunk roots of the key.
            levels: the solved levels of the spine.
        """
        return self.nodes_table(first_key, levels, self.released_total(roots))

    def leaf_ids(self, columns: Mapping[str, pa.Array]) -> Integers:
        """The global leaf id of every row that a policy keeps.

        Args:
            columns: the columns of a batch by name, (rows,) each.

        Returns:
            (kept rows,) int64: key code * K + cell.
        """
        ids = self._all_leaf_ids(columns)
        return ids[ids >= 0] if self._drops_rows else ids

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        return Increments(self.leaf_ids(columns))

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        increments, kept = self._all_increments(columns)
        if kept is None or kept.all():
            return RowIncrements(increments)
        return RowIncrements(increments.select(kept), np.flatnonzero(kept))

    def cell_keys(self, cells: Integers) -> Integers | None:
        return None if self.keys is None else cells // self.domain.cells

    def _all_increments(self, columns: Mapping[str, pa.Array]) -> tuple[Increments, Flags | None]:
        """Increment of every row, and whether a policy keeps it, (rows,); None: all are kept."""
        ids = self._all_leaf_ids(columns)
        return Increments(ids), ids >= 0 if self._drops_rows else None

    @property
    def _drops_rows(self) -> bool:
        return self.keys is not None or self.domain.drops_rows

    def _all_leaf_ids(self, columns: Mapping[str, pa.Array]) -> Integers:
        """(rows,) the global leaf id of every row, below 0 where a policy drops it."""
        cells = self.domain.leaf_ids(columns)
        if self.keys is None:
            return cells
        codes = self.keys.row_codes(columns)
        ids = codes * self.domain.cells + cells
        ids[(cells < 0) | (codes < 0)] = -1
        return ids

    @property
    def dense_cells(self) -> int:
        return self.forest.chunking.cells

    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        return (DenseCounter if dense else SortedCounter)(self.forest.chunking)

    @property
    def places(self) -> Sequence[Place]:
        return [chunk_place(chunk) for chunk in self.forest.chunking]

    def _chunk(self, place: Place) -> Chunk:
        chunking = self.forest.chunking
        return chunking[chunking.number(*place)]

    def merge(self, place: Place, partials: Iterable[bytes]) -> ChunkCounts:
        return merged_chunk(self._chunk(place).leaves, partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut the exact counts of all leaves, (keys * K,) or (keys, K) integers, into partial
        counts.

        Raises:
            ValueError: counts that are no integers, negative or of another number.
        """
        flat = self._checked_counts(counts)
        for chunk in self.forest.chunking:
            own = flat[chunk.start : chunk.start + chunk.leaves]
            yield Partial(chunk_place(chunk), pack_dense(own))

    def _checked_counts(self, counts: object) -> Integers:
        flat, size = np.ravel(np.asarray(counts)), self.forest.chunking.cells
        if not np.issubdtype(flat.dtype, np.integer):
            raise ValueError(f"counts: those of tree {self.name} are {flat.dtype}, not integers")
        if flat.size != size:
            raise ValueError(f"counts: tree {self.name} has {size} leaves, not {flat.size}")
        if flat.size and flat.min() < 0 and not self.is_signed:
            raise ValueError(f"counts: one of tree {self.name} is negative")
        return flat.astype(np.int64)

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        forest, chunk, exact = self.forest, self._chunk(place), unpack(counts)
        measured = forest.measure(self.name, chunk, exact, noise)
        roots, totals = forest.chunk_roots(chunk, measured), forest.chunk_totals(chunk, exact)
        return Drawn(sent=pack_roots(roots, totals), kept=pack_measured(measured))

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        """The spine of a key, above its chunks or its branches."""
        roots = SentRoots.from_messages(sent)
        solutions, levels = self.forest.solve_spine(
            self.name, group, roots.roots, roots.totals, noise
        )
        released = () if not levels else [self._spine(Place(group, SPINE), solutions, levels)]
        return Gathered(pack_solutions(solutions, roots.places, roots.stops), released)

    def _spine(
        self, place: Place, roots: RootSolutions, levels: Sequence[LevelSolution]
    ) -> ReleasedPart:
        """The part of a spine, or of a branch."""
        return ReleasedPart(self._part(NODES, place), self.spine_table(place.group, roots, levels))

    def finish(self, place: Place, kept: bytes, returned: bytes) -> Sequence[ReleasedPart]:
        measured = unpack_measured(kept, self._chunk(place).rows)
        return self.released_chunk(place, measured, returned)

    def released_chunk(
        self, place: Place, measured: Known, returned: bytes
    ) -> Sequence[ReleasedPart]:
        """The parts of a chunk.

        Args:
            place: of the chunk.
            measured: per level (rows, n), what was measured, or estimates of it.
            returned: to the place, by `gather`.
        """
        roots = unpack_solutions(returned, self.mechanism.roots_kind)
        answer = self.chunk_answer(self._chunk(place), measured, roots)  # type: ignore[arg-type]
        note = b"" if answer.note is None else pack(answer.note)
        parts = [ReleasedPart(self._part(kind, place), answer.tables[kind]) for kind in self.tables]
        return [*parts[:-1], parts[-1]._replace(note=note)]

    def _part(self, kind: str, place: Place) -> Part:
        return Part(kind=kind, tree=self.name, key=place.group, index=place.number)

    def holds_upper(self, part: Part, levels: int) -> bool:
        """Return whether a part holds the levels above the split: spines and branches do."""
        if part.index == SPINE:
            return True
        chunking = self.forest.chunking
        return levels > (chunking.split_level if part.index >= 0 else chunking.spine.height)

    def parts(self) -> Iterator[Part]:
        for place in self.places:
            for kind in self.tables:
                yield self._part(kind, place)
        if self.forest.chunking.spine.height > 0:
            for key in range(self.key_count):
                yield Part(kind=NODES, tree=self.name, key=key, index=SPINE)
        for branch in self.branches:
            yield self._part(NODES, branch)

    def __getstate__(self) -> dict[str, object]:
        # The forest and its intervals hold arrays, which a worker makes for itself.
        made = ("forest", "rule")
        return {name: value for name, value in self.__dict__.items() if name not in made}


class Measured(NamedTuple):
    """One of several measurements.

    Attributes:
        tree: an `AccumulatedTree`, as it is measured.
        sent: by every place, from `Question.draw` of that tree.
        noise: its source.
    """

    tree: Any
    sent: Mapping[Place, bytes]
    noise: NoiseSource


@dataclass(frozen=True, kw_only=True)
class AccumulatedTree(Question, ABC):
    """A tree whose noisy counts of several measurements can be added."""

    @property
    @abstractmethod
    def accumulates(self) -> bool:
        """Whether the noise of a node depends on the node alone, and not on what else was looked
        at: only then is one measurement private however many sums it is a part of."""

    @property
    @abstractmethod
    def node_variance(self) -> float:
        """The variance of the noise of a finest node, in rows^2."""

    @abstractmethod
    def with_budget(self, budget: Budget) -> AccumulatedTree:
        """Return the same tree at another budget, split over its levels in the same proportions."""

    @abstractmethod
    def together(self, trees: Sequence[Any]) -> AccumulatedTree:
        """Return the tree whose noise has the variance of several measurements together.

        Nothing is drawn by it: it says how far off the sum is.

        Args:
            trees: this tree at the budgets of the measurements, at least one.
        """

    @abstractmethod
    def gather_together(self, measured: Sequence[Measured]) -> Sequence[ReleasedPart]:
        """Release the tree of all measurements together.

        Args:
            measured: as this tree is `together` of them.
        """
