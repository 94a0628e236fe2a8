"""The release object: answers to questions about released trees, each with its error.

A release is asked through the parts it consists of, and a query reads only the parts it needs. All
answers are post-processing of what was released: they cost no budget.

`release_counts` makes one from arrays alone, for a notebook or a test; the pipeline makes the same
one in a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.bands import band_margin, simultaneous_width
from dpcore.chunks import Chunk
from dpcore.forest import SPINE, PrefixSolution
from dpcore.noise import Integers, NoiseSource, combine_digests, counts_digest
from dpcore.plan_errors import widths_of
from dpcore.quantiles import Totals, chunk_quantiles
from dpcore.question import Question, ReleasePlan
from dpcore.randomness import ReleaseKey
from dpcore.ranges import range_margin, range_variance
from dpcore.solution import solve_tree
from dpcore.tables import quantiles_table
from dpcore.uncertainty import IntervalWidths, clipped_intervals, prefix_margin

NODES, CDF = "nodes", "cdf"

# (NODES or CDF, tree, code of the chunk's first key, index of the chunk or SPINE) -> its rows
ReadPart = Callable[[str, str, int, int], pa.Table]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An estimated count with its error.

    Attributes:
        label: the part of the domain that was counted, in the domain's notation.
        estimate: the unbiased least squares estimate, in rows.
        std_error: its standard error, in rows.
        ci_low, ci_high: the interval for the true count, at the release's confidence.
        count: the consistent nonnegative integer; it may lie outside the interval.
        fraction: count / total count, None where the total count is zero.
    """

    label: str
    estimate: float
    std_error: float
    ci_low: float
    ci_high: float
    count: int
    fraction: float | None


class Release:
    """A release as questions and the means to read their answers.

    Args:
        plan: its specification.
        read: gives the rows of a part.
        quantiles: the table of quantiles, None where no tree asked for any.
    """

    def __init__(self, plan: ReleasePlan, read: ReadPart, quantiles: pa.Table | None) -> None:
        self.plan, self._read, self.quantiles = plan, read, quantiles

    def tree(self, name: str) -> ReleasedTree:
        """One of its trees.

        Raises:
            KeyError: there is none of this name.
        """
        return ReleasedTree(self.plan.question(name), self._read, self.quantiles)


class ReleasedTree:
    """The answers about one tree, for one key at a time (the key is None for a tree without)."""

    def __init__(
        self,
        question: Question,
        read: ReadPart,
        quantiles: pa.Table | None,
        confidence: float | None = None,
    ) -> None:
        self.question, self._read, self._quantiles = question, read, quantiles
        self._chunking = question.forest.chunking
        self.confidence = question.confidence if confidence is None else confidence

    def at_confidence(self, confidence: float) -> ReleasedTree:
        """The same answers with intervals of another confidence.

        Raises:
            ValueError: it is not above 0 and at most 0.9999.
        """
        if not 0 < confidence <= 0.9999:
            raise ValueError(f"confidence: {confidence} is not above 0 and at most 0.9999")
        return ReleasedTree(self.question, self._read, self._quantiles, confidence)

    @cached_property
    def _widths(self) -> IntervalWidths:
        if self.confidence == self.question.confidence:
            return self.question.widths
        return widths_of(self.question.plan, self.confidence)

    def cdf(self, value: object, key: object = None, *, simultaneous: bool = False) -> Answer:
        """The count of rows below a value: of all cells that lie wholly below it.

        Args:
            value: of the domain.
            key: of a tree with keys.
            simultaneous: the interval belongs to a band that holds at all values at once.

        Raises:
            ValueError: the value is none of the domain's, or there is no such key; a band of one of
                the papers' estimates.
        """
        stop = self.question.domain.boundary_of(value)
        return self._range(0, stop, key, simultaneous=simultaneous)

    def range(self, lower: object, upper: object, key: object = None) -> Answer:
        """The count of rows in [lower, upper), rounded down to edges of cells.

        Raises:
            ValueError: lower above upper, no values of the domain, or no such key.
        """
        boundary_of = self.question.domain.boundary_of
        start, stop = boundary_of(lower), boundary_of(upper)
        if start > stop:
            raise ValueError(f"range: {lower} is above {upper}")
        return self._range(start, stop, key)

    def quantile(self, quantile: float, key: object = None) -> dict[str, object]:
        """Any quantile: the value below which this fraction of the count lies, and its interval.

        Returns:
            a row of the quantiles table (`dpcore.tables`).

        Raises:
            ValueError: not between 0 and 1, or no such key.
        """
        asked = replace(self.question, quantiles=(quantile,))
        code, leaves = self._code(key), self.question.plan.tree.leaves
        rows = pa.concat_tables(self._key_rows(CDF, chunk, code) for chunk in self._chunks(code))
        weights = [self.question.forest.prefix_variances(chunk) for chunk in self._chunks(code)]
        variance, alpha = (
            np.concatenate(
                [
                    np.ravel(np.broadcast_to(w[part], _shape(chunk, self._whole)))
                    for w, chunk in zip(weights, self._chunks(code), strict=True)
                ]
            )[None]
            for part in (0, 1)
        )
        estimate = rows["estimate"].to_numpy()[None]
        count = rows["count"].to_numpy()[None]
        totals = Totals(
            estimate=self._nodes_at(0, code)["estimate"].to_numpy(),
            variance=self.question.forest.root_variance,
            count=count[:, -1],
            before_count=np.zeros(1, np.int64),
        )
        cells = chunk_quantiles(
            (quantile,),
            PrefixSolution(estimate=estimate, variance=variance, alpha=alpha, count=count),
            totals,
            first_leaf=0,
            leaves=leaves,
            width=self._widths.sloped,
        )
        row: dict[str, object] = quantiles_table(asked, cells).to_pylist()[0]
        return row | {"key": self.question.key_labels[code]}

    def quantiles(self, key: object = None) -> list[dict[str, Any]]:
        """The released quantiles, rows of the quantiles table in the order they were asked for."""
        if self._quantiles is None or not self.question.quantiles:
            return []
        mine = pc.equal(self._quantiles["tree"].cast(pa.string()), self.question.name)
        wanted = len(self.question.quantiles)
        rows: list[dict[str, Any]] = (
            self._quantiles.filter(mine).slice(self._code(key) * wanted, wanted).to_pylist()
        )
        return rows

    def node(self, level: int, node: int, key: object = None) -> Answer:
        """The count of one node.

        Raises:
            ValueError: there is no such node or key.
        """
        sizes = self.question.plan.tree.level_sizes
        if not (0 <= level < len(sizes) and 0 <= node < sizes[level]):
            raise ValueError(f"node: level {level} has no node {node} in this tree")
        code = self._code(key)
        rows = self._nodes_at(level, code)
        chosen = rows.filter(pc.equal(rows["node"], node)).to_pylist()[0]
        return self._answer(chosen, self._total_count(code))

    def node_of(self, value: object, level: int) -> int:
        """The node of a level that holds a value.

        Raises:
            ValueError: the value is none of the domain's, or there is no such level.
        """
        self._check_level(level)
        below = self.question.plan.tree.leaves_below(level)
        return self.question.domain.cell_of(value) // below

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        """The nodes of a level with the largest counts, ties in the order of nodes.

        Raises:
            ValueError: there is no such level or key.
        """
        self._check_level(level)
        code = self._code(key)
        rows = self._nodes_at(level, code)
        order = np.argsort(-rows["count"].to_numpy(), kind="stable")[:count]
        total = self._total_count(code)
        return [self._answer(row, total) for row in rows.take(pa.array(order)).to_pylist()]

    def _check_level(self, level: int) -> None:
        height = self.question.plan.tree.height
        if not 0 <= level <= height:
            raise ValueError(f"level: {level} is not between 0 and {height}")

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
        label = self.question.key_labels[code]
        return table.filter(pc.equal(table["key"].cast(pa.string()), label))

    def _nodes_at(self, level: int, code: int) -> pa.Table:
        if level < self._chunking.split_level:
            table = self._read(NODES, self.question.name, code, SPINE)
        else:
            table = pa.concat_tables(self._key_rows(NODES, c, code) for c in self._chunks(code))
        return table.filter(pc.equal(table["level"], level))

    def _total_count(self, code: int) -> int:
        return int(self._nodes_at(0, code)["count"][0].as_py())

    def _answer(self, row: Mapping[str, object], total: int) -> Answer:
        known = {name: row[name] for name in ("label", *_ESTIMATES, "count")}
        if self.confidence != self.question.confidence:
            error = float(str(row["std_error"]))
            margin = self._widths.levels[int(str(row["level"]))] * error
            known |= self._estimates(float(str(row["estimate"])), error**2, margin, total)
        return Answer(**known, fraction=int(str(row["count"])) / total if total else None)  # type: ignore[arg-type]

    def _prefix(self, boundary: int, code: int) -> tuple[float, int]:
        """The estimate and the count of all leaves before a boundary."""
        if boundary == 0:
            return 0.0, 0
        leaf = code * self.question.plan.tree.leaves + boundary - 1
        chunk = self._chunking[int(self._chunking.numbers(np.array([leaf]))[0])]
        rows = self._key_rows(CDF, chunk, code)
        place = leaf - chunk.start if not self._whole else boundary - 1
        row = rows.slice(place, 1)
        return row["estimate"][0].as_py(), row["count"][0].as_py()

    def _range(self, start: int, stop: int, key: object, *, simultaneous: bool = False) -> Answer:
        code, question = self._code(key), self.question
        (low, before), (high, upto) = self._prefix(start, code), self._prefix(stop, code)
        variance = max(0.0, range_variance(question.plan, start, stop))
        if simultaneous:
            width = simultaneous_width(question.plan, self.confidence)
            margin = float(band_margin(width, np.array(variance)))
        elif start == 0:  # as in the table of the CDF
            margin = float(prefix_margin(self._widths.sloped, np.array(variance)))
        else:
            margin = range_margin(question.plan, start, stop, self.confidence)
        total = self._total_count(code)
        return Answer(
            label=self._label(start, stop),
            **self._estimates(high - low, variance, margin, total),
            count=upto - before,
            fraction=(upto - before) / total if total else None,
        )

    def _estimates(
        self, estimate: float, variance: float, margin: float, total: int
    ) -> dict[str, float]:
        top = float(total) if self.question.plan.public_total else np.inf
        values = clipped_intervals(np.array(estimate), np.array(variance), np.array(margin), top)
        return {name: float(value) for name, value in zip(_ESTIMATES, values, strict=True)}

    def _label(self, start: int, stop: int) -> str:
        if start == stop:
            return "nothing"
        labels = self.question.domain.range_labels(np.array([start]), np.array([stop]))
        return str(labels[0].as_py())


_ESTIMATES = ("estimate", "std_error", "ci_low", "ci_high")


def _shape(chunk: Chunk, whole: bool) -> tuple[int, int]:
    return (1 if whole else chunk.units, chunk.tree.leaves)


def release_counts(plan: ReleasePlan, counts: Mapping[str, Integers], key: ReleaseKey) -> Release:
    """A release of exact counts held in memory, the same as the pipeline's.

    Args:
        plan: the questions.
        counts: of every tree by name: (keys * K,) or (keys, K) exact counts of the leaves.
        key: the release key; noise is a pure function of it, the plan and the counts.

    Returns:
        the release. The exact counts are not part of it.
    """
    digest = 0
    exact = {question.name: _exact_counts(question, counts) for question in plan.questions}
    for question in plan.questions:
        flat = exact[question.name]
        for chunk in question.forest.chunking:
            part = flat[chunk.start : chunk.start + chunk.leaves]
            digest += counts_digest(key, plan.name, question.name, chunk.key, chunk.index, part)
    noise = NoiseSource(
        key=key,
        release=plan.name,
        spec_digest=plan.digest,
        global_digest=combine_digests(digest),
    )
    parts: dict[tuple[str, str, int, int], pa.Table] = {}
    quantiles = []
    for question in plan.questions:
        tables, cells = solve_tree(question, exact[question.name], noise)
        parts |= {
            (kind, question.name, first_key, index): table
            for (kind, first_key, index), table in tables.items()
        }
        if cells is not None:
            quantiles.append(quantiles_table(question, cells))
    return Release(
        plan, lambda *part: parts[part], pa.concat_tables(quantiles) if quantiles else None
    )


def _exact_counts(question: Question, counts: Mapping[str, Integers]) -> Integers:
    """(keys * K,) int64.

    Raises:
        ValueError: counts of a tree are missing, no integers, negative or of another number.
    """
    name, size = question.name, question.forest.chunking.cells
    if name not in counts:
        raise ValueError(f"counts: there are none of tree {name}")
    flat = np.ravel(np.asarray(counts[name]))
    if not np.issubdtype(flat.dtype, np.integer):
        raise ValueError(f"counts: those of tree {name} are {flat.dtype}, not integers")
    if flat.size != size:
        raise ValueError(f"counts: tree {name} has {size} leaves, not {flat.size}")
    if flat.size and flat.min() < 0:
        raise ValueError(f"counts: one of tree {name} is negative")
    return flat.astype(np.int64)
