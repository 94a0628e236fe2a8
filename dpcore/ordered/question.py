"""A question about an ordered domain: its nodes, CDF and quantiles, by any mechanism."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.ordered.make import OrderedDomain, make_domain
from dptrees.dpcore.ordered.quantiles import QuantileCells, Totals, chunk_quantiles
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.entry import budget_entry, column_policies
from dptrees.dpcore.questions.intervals import Ends, Intervals
from dptrees.dpcore.questions.parts import ChunkAnswer
from dptrees.dpcore.questions.place import Increments, Part
from dptrees.dpcore.questions.tables import CDF as CDF_TABLE
from dptrees.dpcore.questions.tables import NODES, QUANTILES, number_column, tree_and_key
from dptrees.dpcore.questions.tree_question import M, TreeQuestion
from dptrees.dpcore.rows.keys import keys_from_spec
from dptrees.dpcore.rows.packing import unpack
from dptrees.dpcore.trees.chunks import Chunk
from dptrees.dpcore.trees.forest import Measurements, PrefixSolution, RootSolutions
from dptrees.dpcore.trees.uniform import UniformTree


@dataclass(frozen=True, kw_only=True)
class OrderedQuestion(TreeQuestion[M]):
    """One tree over an ordered domain: its nodes, CDF and quantiles, however they are measured.

    Args:
        quantiles: those requested, each in [0, 1].

    Raises:
        ValueError: parts that do not fit each other.
    """

    written = (
        *("name", "domain", "keys", "quantiles", "confidence", "weight"),
        *("chunk_leaves", "mechanism"),
    )
    leading = ("kind",)
    tables = ("nodes", "cdf")
    output_only = ("quantiles", "confidence", "weight")

    domain: OrderedDomain
    quantiles: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.public_total and self.domain.drops_rows:
            raise ValueError("plan: the total is not public where a policy drops rows")
        if not self.is_ordered and not self.mechanism.errors_are_known:
            raise ValueError("domain: categories without an order have no parts to divide")
        if not self.is_ordered and self.quantiles:
            raise ValueError("quantiles: categories without an order have none")
        if self.domain.counts_units and self.keys is not None:
            raise ValueError("keys: a unit has rows under several, and counts once")
        outside = [quantile for quantile in self.quantiles if not 0 <= quantile <= 1]
        if outside:
            raise ValueError(f"quantiles: {outside[0]} is not between 0 and 1")

    @property
    def is_ordered(self) -> bool:
        """Whether the order of the cells means something; else there are counts alone."""
        return self.domain.is_ordered

    @property
    def counts_rows(self) -> bool:
        return not self.domain.counts_units

    def unit_increments(self, rows: Integers) -> Increments | None:
        cells = self.domain.unit_cells(rows)
        return None if cells is None else Increments(cells)

    @property
    def tree(self) -> UniformTree:
        """Its shape."""
        shape = self.plan.tree
        assert isinstance(shape, UniformTree)
        return shape

    def node_labels(self, level: int, nodes: Integers) -> pa.StringArray:
        tree = self.tree
        below = tree.leaves_below(level)
        return self.domain.range_labels(nodes * below, np.minimum((nodes + 1) * below, tree.leaves))

    def labels_in_words(self, rows: pa.Table) -> list[str]:
        """Return the labels of nodes; "95 and above" where values outside the domain are counted.

        Args:
            rows: of the table of nodes.
        """
        tree, cells = self.tree, self.domain.cells
        below = np.array([tree.leaves_below(level) for level in range(tree.height + 1)], np.int64)
        widths = below[rows["level"].to_numpy()]
        start = rows["node"].to_numpy() * widths
        stop = np.minimum(start + widths, cells)
        labels: list[str] = rows["label"].to_pylist()
        for place in np.flatnonzero((start == 0) | (stop == cells)).tolist():
            words = self.domain.clamped_label(int(start[place]), int(stop[place]))
            labels[place] = labels[place] if words is None else words
        return labels

    def prefix_intervals(self, prefixes: PrefixSolution, total: float | None) -> Intervals:
        """Return the estimates of CDF points with their errors.

        Args:
            prefixes: (units, n) of a chunk.
            total: the public number of rows, None where it is private.
        """
        return self.rule.prefixes(prefixes, total)

    def difference_ends(self, prefixes: PrefixSolution, roots: RootSolutions) -> Ends:
        """Return the intervals that quantiles are found by.

        Args:
            prefixes: (units, n) of a chunk.
            roots: (units,) the solutions of its subtrees' roots.
        """
        return self.rule.differences(prefixes, roots)

    def chunk_answer(
        self, chunk: Chunk, measured: Measurements, roots: RootSolutions
    ) -> ChunkAnswer:
        levels, prefixes = self.forest.solve(chunk, measured, roots)
        assert prefixes is not None  # leaves have an order
        roots = roots.with_counts(levels[0])
        total = self.released_total(roots)
        tables = {
            NODES: self.nodes_table(chunk.key, levels, total),
            CDF_TABLE: cdf_table(self, chunk, prefixes, roots, total),
        }
        cells = solved_quantiles(self, chunk, prefixes, roots)
        return ChunkAnswer(tables, None if cells is None else cells.to_array())

    def conclude(self, notes: Mapping[Part, bytes]) -> Mapping[str, pa.Table]:
        if not self.quantiles:
            return {}
        rows = [
            reduce(QuantileCells.merge, (self._cells(note) for _, note in chunks))
            for _, chunks in groupby(notes.items(), key=lambda each: each[0].key)
        ]
        together = np.concatenate([cells.to_array() for cells in rows], axis=1)
        return {QUANTILES: quantiles_table(self, QuantileCells.from_array(together))}

    def _cells(self, note: bytes) -> QuantileCells:
        return QuantileCells.from_array(unpack(note).reshape(4, -1, len(self.quantiles)))

    def entry(self) -> dict[str, object]:
        return (
            {"name": self.name}
            | budget_entry(self)
            | self.mechanism.entry(None)
            | {"policies": column_policies(self), "interval_widths": self.widths.spec()}
        )


def ordered_question_from_spec(
    spec: Mapping[str, Any], unit: PrivacyUnit, read: Callable[[dict[str, Any], PrivacyUnit], M]
) -> OrderedQuestion[M]:
    """Return the question of a specification, as `OrderedQuestion.spec` writes it.

    Args:
        spec: plain JSON values.
        unit: of the release.
        read: takes the mechanism of a specification, for the unit that the domain counts.
    """
    domain, left = make_domain(spec["domain"]), dict(spec)
    mechanism, keys = read(left, domain.counted(unit)), keys_from_spec(spec["keys"])
    return OrderedQuestion.from_spec(left, domain=domain, mechanism=mechanism, keys=keys)


_CDF_COLUMNS = (
    *("tree", "key", "upper"),
    *("estimate", "std_error", "ci_low", "ci_high", "count", "fraction"),
)


def cdf_table(
    question: OrderedQuestion[Any],
    chunk: Chunk,
    prefixes: PrefixSolution,
    roots: RootSolutions,
    total: float | None,
) -> pa.Table:
    """The rows of the CDF points that end in a chunk, in the order of keys and leaves.

    ``fraction`` is count / total count, null where the total count is zero.
    """
    whole_trees = question.forest.chunking.split_level == 0
    rows, wide = (
        (chunk.units, chunk.tree.leaves) if whole_trees else (1, chunk.units * chunk.tree.leaves)
    )
    with np.errstate(invalid="ignore"):
        fraction = (
            prefixes.count / np.where(roots.total_count > 0, roots.total_count, np.nan)[:, None]
        )
    return pa.Table.from_arrays(
        [
            *tree_and_key(question, chunk.key, rows, wide),
            _upper_edges(question, chunk, rows, wide),
            *map(number_column, question.prefix_intervals(prefixes, total)),
            pa.array(prefixes.count.reshape(-1)),
            pa.array(fraction.reshape(-1), mask=np.isnan(fraction.reshape(-1))),
        ],
        names=_CDF_COLUMNS,
    )


def _upper_edges(question: OrderedQuestion[Any], chunk: Chunk, rows: int, wide: int) -> pa.Array:
    """Return the upper edges of the leaves of a chunk, (rows * wide,)."""
    start = chunk.start % question.plan.tree.leaves
    upper = question.domain.upper_edges(start, start + wide)
    if pa.types.is_integer(upper.type):
        # One type for all numbers, over all trees; beyond 2^53 the nearest.
        upper = upper.cast(pa.float64(), safe=False)
    return upper.take(pa.array(np.tile(np.arange(wide), rows))) if rows > 1 else upper


def solved_quantiles(
    question: OrderedQuestion[Any], chunk: Chunk, prefixes: PrefixSolution, roots: RootSolutions
) -> QuantileCells | None:
    """The question's quantiles as far as a solved chunk determines them; None where none were
    requested."""
    if not question.quantiles:
        return None
    leaves = question.plan.tree.leaves
    cells = chunk_quantiles(
        question.quantiles,
        prefixes.count,
        Totals(count=roots.total_count, before_count=roots.before_count),
        first_leaf=chunk.start % leaves,
        leaves=leaves,
        ends=question.difference_ends(prefixes, roots),
    )
    return cells if question.forest.chunking.split_level == 0 else cells.collapse()


def quantiles_from_points(
    question: OrderedQuestion[Any],
    keys: range,
    counts: Integers,
    parts: Sequence[slice],
    ends: Ends,
) -> pa.Table:
    """The rows of the question's quantiles of some keys, from the points of their CDFs.

    Args:
        question: the tree.
        keys: the codes of the keys.
        counts: (keys * leaves,) of the points, in the order of keys and leaves.
        parts: the leaves of each chunk of a tree, in order.
        ends: of the intervals, (keys, leaves).
    """
    counts = counts.reshape(len(keys), -1)
    before, cells = np.zeros(len(keys), np.int64), list[QuantileCells]()
    for part in parts:
        own = counts[:, part]
        cells.append(
            chunk_quantiles(
                question.quantiles,
                own,
                Totals(count=counts[:, -1], before_count=before),
                first_leaf=part.start,
                leaves=counts.shape[1],
                ends=lambda quantile, part=part: ends(quantile).of_leaves(part),  # type: ignore[misc]
            )
        )
        before = own[:, -1]
    return quantiles_table(question, reduce(QuantileCells.merge, cells), keys.start)


def quantiles_table(
    question: OrderedQuestion[Any], cells: QuantileCells, first_key: int = 0
) -> pa.Table:
    """The rows of the quantiles of keys in a row, by default of all.

    ``value``, ``ci_low``, ``ci_high`` are numbers, null where the domain's values are none (dates,
    times, categories); ``*_text`` always say them in the domain's notation.

    Args:
        question: the tree.
        cells: (keys, quantiles).
        first_key: the code of the first of the keys.
    """
    domain, keys = question.domain, cells.cell.shape[0]
    quantile_count = len(question.quantiles)
    known = pa.array(cells.cell.reshape(-1) < 0)  # the mask: true is null
    inside = np.maximum(cells.cell, 0).reshape(-1)
    values = domain.value_at(inside, cells.share.reshape(-1))
    nothing = pa.scalar(None, values.type)
    columns = [
        pc.if_else(known, nothing, values),
        # From the least value of the first cell to the largest of the last.
        domain.value_at(cells.low.reshape(-1), np.zeros(cells.low.size)),
        domain.value_at(cells.high.reshape(-1), np.ones(cells.high.size)),
    ]
    names = ("value", "ci_low", "ci_high")
    return pa.table(
        dict(
            zip(
                ("tree", "key"),
                tree_and_key(question, first_key, keys, quantile_count),
                strict=True,
            )
        )
        | {"q": pa.array(np.tile(np.asarray(question.quantiles, np.float64), keys))}
        | {name: _numbers(column) for name, column in zip(names, columns, strict=True)}
        | {
            f"{name}_text": column.cast(pa.string())
            for name, column in zip(names, columns, strict=True)
        }
    )


def _numbers(column: pa.Array) -> pa.Array:
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return column.cast(pa.float64(), safe=False)
    return pa.nulls(len(column), pa.float64())
