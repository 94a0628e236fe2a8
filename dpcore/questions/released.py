"""A released tree: the answers about its nodes, each with its error.

`Released` has every asking that there is; what a kind of tree cannot answer it refuses by itself.
`ReleasedTree` answers about trees of known leaves, `dpcore.ordered.released` about ordered domains,
`dpcore.hierarchy.released` about paths, `dpcore.sparse.released` about what was published of a tree
too large to list. A query reads only the parts of a release that it needs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.errors.intervals import clipped_intervals
from dpcore.noise.randomness import RandomStream
from dpcore.questions.tables import NODES
from dpcore.questions.tree_question import TreeQuestion
from dpcore.trees.chunks import Chunk

# (kind of table, tree, code of the first key, index of the chunk, branch or spine) -> its rows
ReadPart = Callable[[str, str, int, int], pa.Table]

# Of which the totals are added up.
_MOST_KEYS = 256
_ESTIMATES = ("estimate", "std_error", "ci_low", "ci_high")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An estimated count with its error.

    Attributes:
        label: the part of the domain that was counted, in the domain's notation.
        estimate: in rows, unbiased where it has a standard error; None where only a node below it
            was published.
        std_error: its standard error, in rows; None where it is not known.
        ci_low, ci_high: the interval for the true count, at the release's confidence.
        count: the consistent nonnegative integer; it may lie outside the interval.
        fraction: count / total count, None where the total count is zero.
        asked: what was asked for, where the label is something else: rounded down to edges of
            cells, or cut off at the ends of the domain; None where the label is what was asked.
        remark: a sentence on what the interval is, where it is another than those beside it.
    """

    label: str
    estimate: float | None
    std_error: float | None
    ci_low: float
    ci_high: float
    count: int
    fraction: float | None
    asked: str | None = None
    remark: str | None = None


class Total(NamedTuple):
    """The rows of a tree over all keys.

    Attributes:
        name: of the tree.
        rows: the unbiased estimate.
        std_error: its standard error; 0 where the number is public.
    """

    name: str
    rows: float
    std_error: float


class Sampler(Protocol):
    """Draws synthetic rows of a released tree."""

    @property
    def total(self) -> int:
        """The released number of rows."""

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""

    def batches(self, rows: int, stream: RandomStream) -> Iterator[pa.RecordBatch]:
        """So many rows, some at a time, from uniform bits."""


class Released(ABC):
    """What may be asked of a released tree, for one key at a time (None for a tree without).

    A kind overrides what it answers. The others are refused with a `ValueError`.

    Attributes:
        question: the tree.
    """

    # How the tree is told to be without an order, where it has none.
    unordered: ClassVar[str] = "has no order"

    question: Any

    @property
    @abstractmethod
    def height(self) -> int:
        """The level of the leaves, the root being level 0."""

    @abstractmethod
    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        """The nodes of a level with the largest counts.

        Raises:
            ValueError: there is no such level or key.
        """

    def rows_in_all(self) -> Total | None:
        """The rows of the tree over all keys; None where rows are not what it counts, the error is
        not known, or there are too many keys to add up at once."""
        question = self.question
        if not question.counts_rows or question.key_count > _MOST_KEYS:
            return None
        labels = question.labels_between(0, question.key_count)
        roots = [self.top(1, 0, label)[0] for label in labels]
        rows = [root.estimate for root in roots if root.estimate is not None]
        errors = [root.std_error for root in roots if root.std_error is not None]
        if len(rows) < len(roots) or len(errors) < len(roots):
            return None
        # The noise of each key is its own.
        return Total(self._name, math.fsum(rows), math.hypot(*errors))

    def at_confidence(self, confidence: float) -> Released:
        """The same answers with intervals of another confidence.

        Raises:
            ValueError: it is not above 0 and at most 0.9999; or the intervals are only known at
                the release's.
        """
        raise ValueError(f"confidence: the intervals of tree {self._name} are those of the release")

    def level_of(self, name: str) -> int:
        """The level of a number written out, or of a name where levels have names.

        Raises:
            ValueError: there is none.
        """
        if not (name.isdecimal() and int(name) <= self.height):
            raise ValueError(f"level: {name} is not between 0 and {self.height}")
        return int(name)

    def numbered_level(self, name: str | None) -> int:
        """The level of a node that is told by its number, or by a value.

        Raises:
            ValueError: there is none, or nodes have no numbers.
        """
        raise self._has_no_numbers()

    def node_of(self, value: object, level: int) -> int:
        """The node of a level that holds a value, or that a path leads to.

        Raises:
            ValueError: there is none, or nodes have no numbers.
        """
        raise self._has_no_numbers()

    def node(self, level: int, node: int, key: object = None) -> Answer:
        """The count of one node, by its number.

        Raises:
            ValueError: there is no such node or key, or nodes have no numbers.
        """
        raise self._has_no_numbers()

    def at_path(self, path: str, key: object = None) -> Answer:
        """The count of the node that a path leads to.

        Raises:
            ValueError: there is no such path or key.
        """
        raise ValueError(f"path: tree {self._name} is no hierarchy; use --value")

    def children(self, path: str, key: object = None) -> list[Answer]:
        """The counts of the children of the node that a path leads to.

        Raises:
            ValueError: there is no such path or key, or it leads to a leaf.
        """
        raise ValueError(f"path: tree {self._name} is no hierarchy; use --value")

    def top_below(self, path: str, count: int, level: int, key: object = None) -> list[Answer]:
        """The nodes of a level below the node of a path with the largest counts.

        Raises:
            ValueError: there is no such path, level or key, or the level is above the path's.
        """
        raise ValueError(f"path: tree {self._name} is no hierarchy")

    def sum(self, paths: Sequence[object], key: object = None) -> Answer:
        """The count of several nodes together, with the error of the sum of their estimates.

        Args:
            paths: of the nodes; of an ordered tree its values or intervals of them.
            key: of a tree with keys.

        Raises:
            ValueError: there is no such path or key; rows would count twice, as nodes are the same
                or lie within each other; or the error of a sum is not known for this tree.
        """
        raise ValueError(f"sum: the error of a sum of nodes of tree {self._name} is not known")

    def cdf(self, value: object, key: object = None, *, simultaneous: bool = False) -> Answer:
        """The count of rows below a value.

        Raises:
            ValueError: the tree has no order, or no such value or key.
        """
        raise self._has_no_order("cdf")

    def range(self, lower: object, upper: object, key: object = None) -> Answer:
        """The count of rows in [lower, upper).

        Raises:
            ValueError: the tree has no order, or no such values or key.
        """
        raise self._has_no_order("range")

    def of_column(self, column: str) -> Released:
        """The answers about one of several columns.

        Raises:
            ValueError: the tree has one column, or none of this name.
        """
        raise ValueError(f"column: tree {self._name} has one; leave --column out")

    def box(self, sides: Mapping[str, tuple[object, object]], key: object = None) -> Answer:
        """The count of rows in a box.

        Args:
            sides: of some columns [lower, upper); an empty text leaves a side open.
            key: of a tree with keys.

        Raises:
            ValueError: the tree is of no box, or no such column, values or key.
        """
        raise ValueError(f"box: tree {self._name} is of no box of columns")

    def sampler(self) -> Sampler:
        """What draws synthetic rows of the tree.

        Raises:
            ValueError: rows cannot be drawn of this kind of tree, or all its counts are zero.
        """
        raise ValueError(f"sample: tree {self._name} is of no box of columns")

    def quantile(self, quantile: float | str, key: object = None) -> dict[str, object]:
        """The value below which a fraction of the count lies, and its interval.

        Args:
            quantile: a number, or one as it is written.
            key: of a tree with keys.

        Raises:
            ValueError: the tree has no order or no such key, or it is not between 0 and 1.
        """
        raise self._has_no_order("quantile")

    @property
    def told_quantiles(self) -> tuple[float, ...] | None:
        """Those that alone can be asked for, with margins of their ranks; None: any."""
        return None

    @property
    def _name(self) -> str:
        return str(self.question.name)

    def _has_no_numbers(self) -> ValueError:
        return ValueError(f"node: in tree {self._name} nodes are found by --path")

    def _has_no_order(self, asking: str) -> ValueError:
        return ValueError(f"{asking}: tree {self._name} {self.unordered}")


class ReleasedTree(Released):
    """The answers about one tree of known leaves.

    Args:
        question: the tree.
        read: gives the rows of a part.
        confidence: of the intervals, by default the release's.

    Raises:
        ValueError: the confidence is not above 0 and at most 0.9999.
    """

    def __init__(
        self, question: TreeQuestion, read: ReadPart, confidence: float | None = None
    ) -> None:
        if confidence is not None and not 0 < confidence <= 0.9999:
            raise ValueError(f"confidence: {confidence} is not above 0 and at most 0.9999")
        self.question, self._read = question, read
        self._chunking = question.forest.chunking
        self.confidence = question.confidence if confidence is None else confidence

    @property
    def height(self) -> int:
        return int(self.question.plan.tree.height)

    def numbered_level(self, name: str | None) -> int:
        if name is None:
            raise ValueError("level: is needed with --node and --value")
        return self.level_of(name)

    @abstractmethod
    def _margin(self, level: int, std_error: float) -> float:
        """The half-width of a node's interval at this confidence, in rows."""

    def node(self, level: int, node: int, key: object = None) -> Answer:
        sizes = self.question.plan.tree.level_sizes
        if not (0 <= level < len(sizes) and 0 <= node < sizes[level]):
            raise ValueError(f"node: level {level} has no node {node} in this tree")
        code = self._code(key)
        found = self._rows_at(level, node, code).to_pylist()
        if not found:
            raise ValueError(f"node: {node} of level {level} only repeats a leaf above it")
        return self._answer(found[0], self._total_count(code))

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        """The nodes of a level with the largest counts, ties in the order of nodes.

        Raises:
            ValueError: there is no such level or key.
        """
        self._check_level(level)
        code = self._code(key)
        best: pa.Table | None = None
        for rows in self._parts_at(level, code):
            both = rows if best is None else pa.concat_tables([best, rows])
            order = np.argsort(-both["count"].to_numpy(), kind="stable")[:count]
            best = both.take(pa.array(np.sort(order)))
        assert best is not None
        order = np.argsort(-best["count"].to_numpy(), kind="stable")
        total = self._total_count(code)
        return [self._answer(row, total) for row in best.take(pa.array(order)).to_pylist()]

    def _largest_between(
        self, level: int, first: int, last: int, count: int, code: int
    ) -> list[Answer]:
        """The nodes ``first`` to ``last`` of a level with the largest counts."""
        rows = self._rows_between(level, first, last, code)
        order = np.argsort(-rows["count"].to_numpy(), kind="stable")[:count]
        total = self._total_count(code)
        return [self._answer(row, total) for row in rows.take(pa.array(order)).to_pylist()]

    def _check_level(self, level: int) -> None:
        if not 0 <= level <= self.height:
            raise ValueError(f"level: {level} is not between 0 and {self.height}")

    @property
    def _whole(self) -> bool:
        return self._chunking.split_level == 0

    def _code(self, key: object) -> int:
        keys = self.question.keys
        if (keys is None) != (key is None):
            needed = "has no keys" if keys is None else "needs a key"
            raise ValueError(f"key: tree {self.question.name} {needed}")
        return 0 if keys is None else keys.code_of(key)

    def _chunks(self, code: int) -> list[Chunk]:
        chunking = self._chunking
        first = chunking.number(code, 0)
        return [chunking[first + index] for index in range(chunking.chunks_per_key)]

    def _key_rows(self, kind: str, chunk: Chunk, code: int) -> pa.Table:
        """The rows of a part that belong to a key."""
        table = self._read(kind, self.question.name, chunk.key, chunk.index)
        if self.question.keys is None or not self._whole:
            return table
        # Labels are compared once each, and not in every row: all keys may be asked in turn.
        keys = table["key"].unify_dictionaries().combine_chunks()
        place = pc.index(keys.dictionary, self.question.label_of(code)).as_py()
        return table.take(pa.array(np.flatnonzero(keys.indices.to_numpy() == place)))

    def _parts_at(self, level: int, code: int) -> Iterator[pa.Table]:
        """The rows of a level, a part at a time."""
        if level < self._chunking.split_level:
            size = self.question.plan.tree.level_sizes[level]
            parts = self._above_chunks(level, 0, size - 1, code)
        else:
            parts = (self._key_rows(NODES, chunk, code) for chunk in self._chunks(code))
        for table in parts:
            yield table.filter(pc.equal(table["level"], level))

    def _above_chunks(self, level: int, first: int, last: int, code: int) -> Iterator[pa.Table]:
        """The parts above the chunks that hold the nodes ``first`` to ``last`` of a level."""
        for holder in self._chunking.holders(level, first, last):
            yield self._read(NODES, self.question.name, code, holder)

    def _rows_at(self, level: int, node: int, code: int) -> pa.Table:
        """The row of a node, or none where it only repeats a leaf above it."""
        return self._rows_between(level, node, node, code)

    def _rows_between(self, level: int, first: int, last: int, code: int) -> pa.Table:
        """The rows of the nodes ``first`` to ``last`` of a level, of the parts that hold them."""
        if level < self._chunking.split_level:
            parts = list(self._above_chunks(level, first, last, code))
        else:
            tree = self.question.plan.tree
            leaves = [tree.leaf_range(level, node).start for node in (first, last)]
            ids = np.array(leaves, np.int64) + code * tree.leaves
            low, high = self._chunking.numbers(ids).tolist()
            parts = [
                self._key_rows(NODES, self._chunking[number], code)
                for number in range(low, high + 1)
            ]
        table = pa.concat_tables(parts)
        inside = pc.and_(pc.greater_equal(table["node"], first), pc.less_equal(table["node"], last))
        return table.filter(pc.and_(pc.equal(table["level"], level), inside))

    def _rows_of(self, level: int, nodes: Sequence[int], code: int) -> pa.Table:
        """The rows of some nodes of a level, of the parts that hold them."""
        if level < self._chunking.split_level:
            holders = {self._chunking.holders(level, node, node)[0] for node in nodes}
            parts = [self._read(NODES, self.question.name, code, each) for each in holders]
        else:
            tree = self.question.plan.tree
            leaves = [tree.leaf_range(level, node).start for node in nodes]
            numbers = self._chunking.numbers(np.array(leaves, np.int64) + code * tree.leaves)
            parts = [
                self._key_rows(NODES, self._chunking[number], code)
                for number in np.unique(numbers).tolist()
            ]
        wanted = pa.array(nodes, pa.int64())
        return pa.concat_tables(
            part.filter(pc.and_(pc.equal(part["level"], level), pc.is_in(part["node"], wanted)))
            for part in parts
        )

    def _total(self, code: int) -> Mapping[str, Any]:
        """The row of the root."""
        row: dict[str, Any] = self._rows_at(0, 0, code).to_pylist()[0]
        return row

    def _total_count(self, code: int) -> int:
        return int(self._total(code)["count"])

    def _answer(self, row: Mapping[str, object], total: int) -> Answer:
        known = {name: row[name] for name in ("label", *_ESTIMATES, "count")}
        if self.confidence != self.question.confidence:
            error = float(str(row["std_error"]))
            margin = self._margin(int(str(row["level"])), error)
            known |= self._estimates(float(str(row["estimate"])), error**2, margin, total)
        return Answer(**known, fraction=int(str(row["count"])) / total if total else None)  # type: ignore[arg-type]

    def _answer_of(
        self, label: str, estimate: float, error: tuple[float, float], count: int, code: int
    ) -> Answer:
        """The answer about several nodes together.

        Args:
            label: what they are called.
            estimate: of all, in rows.
            error: its variance, and half its interval.
            count: of all.
            code: of the key.
        """
        total = self._total_count(code)
        known = self._estimates(estimate, *error, total)
        fraction = count / total if total else None
        return Answer(label=label, count=count, fraction=fraction, **known)  # type: ignore[arg-type]

    def _estimates(
        self, estimate: float, variance: float, margin: float, total: int
    ) -> dict[str, float]:
        values = clipped_intervals(
            np.array(estimate),
            np.array(variance),
            np.array(margin),
            float(total) if self.question.public_total else np.inf,
            bottom=-np.inf if self.question.is_signed else 0.0,
        )
        return {name: float(value) for name, value in zip(_ESTIMATES, values, strict=True)}


def named_level(names: Sequence[str], name: str) -> int:
    """The level of a name, or of a number written out.

    Args:
        names: of the levels, root first.
        name: the one that is asked for.

    Raises:
        ValueError: there is none.
    """
    if name in names:
        return names.index(name)
    if name.isdecimal() and int(name) < len(names):
        return int(name)
    raise ValueError(f"level: {name!r} is none of {', '.join(names)}")
