"""Answers about a released tree of known leaves, from the parts that hold its nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.questions.answer_errors import AnswerErrors, LeafRun, SumBounds, SumError
from dptrees.dpcore.questions.released import NODES, Answer, Released
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.trees.chunks import Chunk, Chunking
from dptrees.dpcore.trees.error_laws import clipped_intervals

# The codes of one key, or of all keys whose trees lie in a chunk together.
KeyCodes = range

_ESTIMATES = ("estimate", "std_error", "ci_low", "ci_high")
_BOUND = (
    "A part of it lies inside a node that was not split, whose rows are taken to lie evenly in it: "
    "the interval is a bound, from what is known of that node, and there is no standard error."
)


class ReleasedTree(Released):
    """The answers about one tree of known leaves."""

    question: TreeQuestion[Any]

    @property
    def height(self) -> int:
        return int(self.question.plan.tree.height)

    def numbered_level(self, name: str | None) -> int:
        if name is None:
            raise ValueError("level: is needed with --node and --value")
        return self.find_level(name)

    @cached_property
    def errors(self) -> AnswerErrors:
        """Errors of the answers, at this confidence."""
        question, mechanism = self.question, self.question.mechanism
        is_own = self.confidence == question.confidence
        widths = question.widths if is_own else mechanism.widths(self.confidence)
        errors: AnswerErrors = mechanism.answer_errors(question.forest, widths, self._shape_rows)
        return errors

    def _shape_rows(self, codes: KeyCodes) -> pa.Table:
        """All rows of nodes of one key, or of all whose trees lie in a chunk, without what was
        counted."""
        sizes, chunking = self.question.plan.tree.level_sizes, self._chunking
        # One part may hold several levels.
        above = {
            holder
            for level in range(chunking.split_level)
            for holder in chunking.holders(level, 0, sizes[level] - 1)
        }
        name = self.question.name
        parts = [self._read(NODES, name, codes.start, each) for each in sorted(above)]
        parts += self._rows_by_chunk(NODES, codes)
        return pa.concat_tables(part.select(["level", "node", "ended"]) for part in parts)

    @abstractmethod
    def _counted(self, runs: Sequence[LeafRun], code: int) -> tuple[float, int]:
        """Return the estimate and the count of several runs of leaves together."""

    def node(self, level: int, node: int, key: object = None) -> Answer:
        sizes = self.question.plan.tree.level_sizes
        if not (0 <= level < len(sizes) and 0 <= node < sizes[level]):
            raise ValueError(f"node: level {level} has no node {node} in this tree")
        code = self._code(key)
        rows = self._rows_at(level, node, code).to_pylist()
        if not rows:
            raise ValueError(f"node: {node} of level {level} only repeats a leaf above it")
        return self._answer(rows[0], self._total_count(code))

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
        rows = self.rows_between(level, first, last, code)
        order = np.argsort(-rows["count"].to_numpy(), kind="stable")[:count]
        total = self._total_count(code)
        return [self._answer(row, total) for row in rows.take(pa.array(order)).to_pylist()]

    def _check_level(self, level: int) -> None:
        if not 0 <= level <= self.height:
            raise ValueError(f"level: {level} is not between 0 and {self.height}")

    @property
    def _chunking(self) -> Chunking:
        chunking: Chunking = self.question.forest.chunking
        return chunking

    @property
    def _whole(self) -> bool:
        return self._chunking.split_level == 0

    def _chunks(self, code: int) -> list[Chunk]:
        return self._chunking.chunks_of_key(code)

    def _key_rows(self, kind: str, chunk: Chunk, code: int) -> pa.Table:
        """The rows of a part that belong to a key."""
        table = self._read(kind, self.question.name, chunk.key, chunk.index)
        if self.question.keys is None or not self._whole:
            return table
        # Labels are compared once each, and not in every row: all keys may be queried in turn.
        keys = table["key"].unify_dictionaries().combine_chunks()
        place = pc.index(keys.dictionary, self.question.key_label(code)).as_py()
        return table.take(pa.array(np.flatnonzero(keys.indices.to_numpy() == place)))

    def _keys_by_chunk(self) -> list[KeyCodes]:
        """The codes of all keys, by chunk where chunks hold whole trees; else each key alone."""
        if not self._whole:
            return [range(code, code + 1) for code in range(self.question.key_count)]
        return [range(chunk.key, chunk.key + chunk.rows) for chunk in self._chunking]

    def _rows_by_chunk(self, kind: str, codes: KeyCodes) -> list[pa.Table]:
        """The rows of one key in every part of a table; or a whole part, where `codes` are all the
        keys in it: its rows are in their order."""
        chunks = self._chunks(codes.start)
        if self._whole and codes == range(chunks[0].key, chunks[0].key + chunks[0].rows):
            return [self._read(kind, self.question.name, chunks[0].key, chunks[0].index)]
        assert len(codes) == 1
        return [self._key_rows(kind, chunk, codes.start) for chunk in chunks]

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
        return self.rows_between(level, node, node, code)

    def rows_between(self, level: int, first: int, last: int, code: int) -> pa.Table:
        """Return the rows of the nodes ``first`` to ``last`` of a level, from the parts that hold
        them.

        Args:
            level: of the nodes, the root being level 0.
            first, last: their places in the level.
            code: of the key.
        """
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

    def select_rows(self, level: int, nodes: Sequence[int], code: int) -> pa.Table:
        """Return the rows of some nodes of a level, from the parts that hold them.

        Args:
            level: of the nodes, the root being level 0.
            nodes: their places in the level.
            code: of the key.
        """
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

    def _total_estimates(self, codes: KeyCodes) -> Floats:
        """(keys,) the estimates of the roots, as `_rows_by_chunk` takes keys."""
        if not self._whole:
            return np.array([self._total(code)["estimate"] for code in codes])
        (rows,) = self._rows_by_chunk(NODES, codes)
        estimates: Floats = rows.filter(pc.equal(rows["level"], 0))["estimate"].to_numpy()
        return estimates

    def _answer(self, row: Mapping[str, Any], total: int) -> Answer:
        known = {name: row[name] for name in ("label", *_ESTIMATES, "count")}
        error = row["std_error"]
        remark = _BOUND if error is None else None
        if self.confidence != self.question.confidence:
            if error is None:
                leaves = self.question.plan.tree.leaf_range(row["level"], row["node"])
                code, found = self._code(row["key"]), (row["estimate"], row["count"])
                bounds = self.errors.sum([(leaves.start, leaves.stop)], code)
                return self._sum_answer(row["label"], found, bounds, code)
            margin = self.errors.node(row["level"], error)
            known |= self._estimates(row["estimate"], error * error, margin, total)
        return Answer(**known, fraction=row["count"] / total if total else None, remark=remark)

    def _sum_answer(
        self, label: str, found: tuple[float, int], error: SumError | SumBounds, code: int
    ) -> Answer:
        """The answer about several nodes together.

        Args:
            label: what they are called.
            found: the estimate and the count of all.
            error: of the estimate.
            code: of the key.
        """
        (estimate, count), total = found, self._total_count(code)
        fraction = count / total if total else None
        if isinstance(error, SumError):
            known = self._estimates(estimate, error.variance, error.margin, total)
            return Answer(label=label, count=count, fraction=fraction, **known)  # type: ignore[arg-type]
        least, most = (self._edges_answer(runs, code) for runs in (error.inner, error.outer))
        # Noise may have put the low end above the high one.
        low, high = sorted((least.ci_low, most.ci_high))
        return Answer(
            label=label,
            estimate=estimate,
            std_error=None,
            ci_low=low,
            ci_high=high,
            count=count,
            fraction=fraction,
            remark=_BOUND,
        )

    def _edges_answer(self, runs: Sequence[LeafRun], code: int) -> Answer:
        """The answer about runs of leaves between edges of nodes that were estimated."""
        return self._sum_answer("", self._counted(runs, code), self.errors.sum(runs, code), code)

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
