"""A question: one tree over one domain, once per key, and all that shapes its answer.

`Question` is what every kind has; `ChunkedQuestion` adds a map from rows to known leaves, chunks
that any worker can measure and solve, how the nodes of a level are named and how wide their
intervals are. `OrderedQuestion` asks for the CDF of an ordered domain, `dpcore.hierarchy.question`
for the counts of a hierarchy, `dpcore.sparse.question` for those of a tree too large to list. A
release answers several in one pass over the rows (`dpcore.release.plan`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dpcore.arrays import Floats, Integers
from dpcore.errors.intervals import clipped_intervals
from dpcore.noise.laws import NoiseLaw
from dpcore.privacy.budget import Budget, Measure, Neighbors
from dpcore.questions.parts import ChunkAnswer, Domain, Plan, Widths
from dpcore.rows.keys import KeyList
from dpcore.trees.forest import ChunkedForest, LevelSolution, Measurements, RootSolutions

# Estimates, standard errors (NaN where they are not known), and the ends of intervals: (units, n).
Intervals = tuple[Floats, Floats, Floats, Floats]
MovedCounts = tuple[tuple[NoiseLaw, int], ...]


@dataclass(frozen=True, kw_only=True)
class Question(ABC):
    """One tree of a release.

    Args:
        name: of the tree; names the rows of the output.
        keys: the public group-by keys, None for one tree over all rows.
        confidence: of the intervals, above 0 and at most 0.9999.
        weight: the question's share of the budget, relative to the others'.

    Raises:
        ValueError: a confidence out of range.
    """

    # Its kind of tree, as `domain: kind` of a configuration names it.
    kind: ClassVar[str]
    # What shapes the output alone, by its name in the specification.
    output_only: ClassVar[tuple[str, ...]]
    # The kinds of tables: "nodes", and "cdf" where leaves have an order.
    tables: ClassVar[tuple[str, ...]]

    name: str
    keys: KeyList | None = None
    confidence: float = 0.95
    weight: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if not 0 < self.confidence <= 0.9999:
            raise ValueError(f"confidence: {self.confidence} is not above 0 and at most 0.9999")

    @property
    def key_count(self) -> int:
        """How many trees there are."""
        return 1 if self.keys is None else self.keys.size

    @property
    def key_labels(self) -> list[str | None]:
        """The name of every key, in the order of key codes; one None without keys."""
        return [None] if self.keys is None else list(self.keys.labels)

    @property
    @abstractmethod
    def neighbors(self) -> Neighbors:
        """The neighbouring relation that the plan is for."""

    @property
    @abstractmethod
    def budget(self) -> Budget | None:
        """What the plan may spend; None where that is an epsilon with a delta."""

    @property
    @abstractmethod
    def approximate(self) -> tuple[Fraction, Fraction]:
        """The (epsilon, delta) that the plan spends in a release that states one; (0, 0) where it
        shares a rho with others."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, each once."""

    @property
    @abstractmethod
    def value_types(self) -> dict[str, pa.DataType]:
        """The type of each column where a file does not tell one, as CSV does not.

        Raises:
            ValueError: two parts of the question read one column as different types.
        """

    @abstractmethod
    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        """Refuses columns of types that cannot be read.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """

    @abstractmethod
    def spec(self) -> dict[str, object]:
        """All that shapes the law of the answer, as plain JSON values."""

    def law_spec(self) -> dict[str, object]:
        """The specification without what shapes the output alone: asking for another quantile of
        the same data must draw the same noise."""
        return {name: value for name, value in self.spec().items() if name not in self.output_only}


@dataclass(frozen=True, kw_only=True)
class ChunkedQuestion(Question):
    """A question about a tree of known leaves, which workers measure and solve in chunks.

    Args:
        domain: the map from rows to leaves.
        plan: how the tree is measured.

    Raises:
        ValueError: parts that do not fit each other.
    """

    domain: Domain
    plan: Plan

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plan.tree.leaves != self.domain.cells:
            raise ValueError(
                f"plan: {self.plan.tree.leaves} leaves for a domain of {self.domain.cells} cells"
            )
        if (self.keys is not None) != self.plan.keyed:
            raise ValueError("plan: keyed must say whether the question has keys")

    @property
    def neighbors(self) -> Neighbors:
        return self.plan.neighbors

    @property
    def budget(self) -> Budget | None:
        return self.plan.budget

    @property
    def approximate(self) -> tuple[Fraction, Fraction]:
        own = self.budget
        pure = own is not None and own.measure is Measure.EPSILON
        return own.amount if own is not None and pure else Fraction(0), Fraction(0)

    @property
    @abstractmethod
    def forest(self) -> ChunkedForest:
        """The trees in chunks."""

    @property
    @abstractmethod
    def widths(self) -> Widths:
        """Of the intervals."""

    @abstractmethod
    def read_widths(self, spec: Mapping[str, object]) -> Widths:
        """Widths as their ``spec()`` tells them."""

    def remember_widths(self, widths: Widths) -> None:
        """Takes widths that were computed before: they follow from the plan, but not at once."""
        self.__dict__["widths"] = widths

    @property
    @abstractmethod
    def public_total(self) -> bool:
        """Whether the number of rows is public and the root exact."""

    @property
    def is_signed(self) -> bool:
        """Whether what is counted may be negative."""
        return False

    @property
    @abstractmethod
    def moved_counts(self) -> MovedCounts | None:
        """The noise laws, and how many counts of each a row moves by one; None where a row may move
        them otherwise, or other counts of other laws."""

    @abstractmethod
    def node_labels(self, level: int, nodes: Integers) -> pa.StringArray:
        """The part of the domain that each node of a level covers, in the domain's notation."""

    @abstractmethod
    def margins(self, solved: LevelSolution) -> Floats:
        """The half-widths of the intervals of a solved level, in rows: its shape, or (n,)."""

    def intervals(self, solved: LevelSolution, total: float | None) -> Intervals:
        """The estimates of a solved level with their errors.

        Args:
            solved: the level.
            total: the public number of rows, None where it is private.
        """
        return clipped_intervals(
            solved.estimate,
            solved.variance,
            self.margins(solved),
            np.inf if total is None else total,
            bottom=-np.inf if self.is_signed else 0.0,
        )

    @abstractmethod
    def chunk_answer(self, chunk: Any, measured: Measurements, roots: RootSolutions) -> ChunkAnswer:
        """Solves a chunk.

        Args:
            chunk: one of the forest's.
            measured: the noisy counts of its levels.
            roots: (units,) the solutions of its subtrees' roots.
        """

    def conclude(self, notes: Sequence[Sequence[Integers]]) -> pa.Table | None:
        """What is released once all chunks are solved: the table of quantiles, None where there is
        none.

        Args:
            notes: of every (first) key's chunks in order, as `chunk_answer` gave them, flat.
        """
        return None

    def released_total(self, roots: RootSolutions) -> float | None:
        """The public number of rows, None where it is private; there are no keys where it is
        public."""
        return float(roots.total[0]) if self.public_total else None

    def listed(self, level: int, nodes: Integers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which nodes of a level are rows of the output, (n,): those that repeat a leaf are not."""
        return np.ones(nodes.size, dtype=bool)

    def leaf_ids(self, columns: Mapping[str, pa.Array]) -> Integers:
        """The global leaf id of every row that a policy keeps.

        Args:
            columns: the columns of a batch by name, (rows,) each.

        Returns:
            (kept rows,) int64: key code * K + cell.
        """
        ids = self._all_leaf_ids(columns)
        return ids[ids >= 0] if self.keys is not None or self.domain.drops_rows else ids

    def increments(self, columns: Mapping[str, pa.Array]) -> tuple[Integers, Integers | None]:
        """What every row that a policy keeps adds, and to which leaf.

        Args:
            columns: as for `leaf_ids`.

        Returns:
            (kept rows,) the global leaf ids; and the values that are summed, None where rows are
            counted.
        """
        return self.leaf_ids(columns), None

    def _all_leaf_ids(self, columns: Mapping[str, pa.Array]) -> Integers:
        """(rows,) the global leaf id of every row, below 0 where a policy drops it."""
        cells = self.domain.leaf_ids(columns)
        if self.keys is None:
            return cells
        codes = self.keys.codes(columns[self.keys.column])
        ids = codes * self.domain.cells + cells
        ids[(cells < 0) | (codes < 0)] = -1
        return ids

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, each once."""
        by = () if self.keys is None else (self.keys.column,)
        return tuple(dict.fromkeys((*self.domain.columns, *by)))

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """The type of each column where a file does not tell one, as CSV does not.

        Raises:
            ValueError: two parts of the question read one column as different types.
        """
        types: dict[str, pa.DataType] = dict(self.domain.value_types)
        if self.keys is not None:
            self._add_type(types, self.keys.column, self.keys.value_type)
        return types

    @staticmethod
    def _add_type(types: dict[str, pa.DataType], column: str, wanted: pa.DataType) -> None:
        if types.setdefault(column, wanted) != wanted:
            raise ValueError(
                f"the column {column!r} is read as {types[column]} and as {wanted} by one tree"
            )

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        """Refuses columns of types that cannot be read.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """
        for name in self.domain.columns:
            self.domain.check_column_type(name, types[name])
        if self.keys is not None:
            self.keys.check_type(types[self.keys.column])

    def __getstate__(self) -> dict[str, object]:
        # The forest holds arrays of weights, which a worker makes for itself.
        return {name: value for name, value in self.__dict__.items() if name != "forest"}
