"""A tree over an ordered domain: its counting, its tables of nodes, CDF and quantiles.

The q-quantile is the first leaf whose prefix of the consistent counts reaches max(1, ceil(q
total)). Its interval inverts the errors of D_b = prefix_b - q total, of half-width w: it begins
at the first b where D_b + w_b reaches 0, and ends one past the last b where D_b - w_b does not.
Estimates of D fluctuate where few rows lie, and the first of many to reach 0 does so too early.
So the limits are replaced by the closest rising ones (isotonic regression; Robertson, Wright,
Dykstra 1988, theorems 1.3.1 and 1.4.4), which reach 0 where the sum of all limits before is the
smallest. That they cover as often is measured, not proved (docs/quantiles.md). Plans of earlier
versions have one half-width, and their limits are read as they are. Chunks are merged by a
minimum and a maximum, so an interval around the edge of two chunks is no narrower than over all
leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.answer_errors import Differences, Ends, Intervals
from dptrees.dpcore.questions.messages import Increments, Part, RowIncrements
from dptrees.dpcore.questions.planning import ChunkAnswer
from dptrees.dpcore.questions.released import CDF as CDF_TABLE
from dptrees.dpcore.questions.released import NODES, QUANTILES, number_column, tree_and_key
from dptrees.dpcore.questions.tree_question import (
    KeyedQuestion,
    M,
    TreeQuestion,
    budget_entry,
    column_policies,
)
from dptrees.dpcore.rows.columns import unpack
from dptrees.dpcore.rows.keys import keys_from_spec
from dptrees.dpcore.rows.unit_values import NO_AMOUNT, UnitValue
from dptrees.dpcore.trees.chunks import Chunk
from dptrees.dpcore.trees.error_laws import QuantileMargin, prefix_margin
from dptrees.dpcore.trees.forests import Measurements, PrefixSolution, RootSolutions
from dptrees.dpcore.trees.shapes import UniformTree


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantileCells:
    """Positions of quantiles, (trees, quantiles) each.

    Attributes:
        cell: the leaf that holds the quantile, -1 where unknown (or the total count is 0).
        share: the fraction of this leaf's count that lies below the quantile.
        low, high: the first and the last leaf of the interval.
    """

    cell: Integers
    share: Floats
    low: Integers
    high: Integers

    def merge(self, other: QuantileCells) -> QuantileCells:
        """The knowledge of two chunks of the same trees; associative and commutative."""
        known = self.cell >= 0
        return QuantileCells(
            cell=np.where(known, self.cell, other.cell),
            share=np.where(known, self.share, other.share),
            low=np.minimum(self.low, other.low),
            high=np.maximum(self.high, other.high),
        )

    def collapse(self) -> QuantileCells:
        """The knowledge of all rows, as subtrees of one tree, in one row."""
        known = self.cell.argmax(axis=0)[None]
        return QuantileCells(
            cell=np.take_along_axis(self.cell, known, axis=0),
            share=np.take_along_axis(self.share, known, axis=0),
            low=self.low.min(axis=0, keepdims=True),
            high=self.high.max(axis=0, keepdims=True),
        )

    def to_array(self) -> npt.NDArray[np.int64]:
        """(4, trees, quantiles) int64; floats keep their bits."""
        return np.stack([self.cell, self.share.view(np.int64), self.low, self.high])

    @classmethod
    def from_array(cls, array: npt.NDArray[np.int64]) -> QuantileCells:
        """The inverse of `to_array`."""
        cell, share, low, high = array
        return cls(cell=cell, share=share.view(np.float64), low=low, high=high)


@dataclass(frozen=True, kw_only=True, eq=False)
class Totals:
    """The state of the rest of their trees that subtrees need for quantiles, (units,) each.

    Attributes:
        count: the final count of the whole tree; before_count, of all left of the subtree.
    """

    count: Integers
    before_count: Integers


def chunk_quantiles(
    quantiles: Sequence[float],
    counts: Integers,
    totals: Totals,
    *,
    first_leaf: int,
    leaves: int,
    ends: Ends,
) -> QuantileCells:
    """Quantiles of trees as far as the subtrees of a chunk determine them.

    Args:
        quantiles: each in [0, 1].
        counts: (units, n) the final counts of the chunk's CDF points.
        totals: (units,) of the trees.
        first_leaf: the leaf, within its tree, of the chunk's first.
        leaves: K of the whole tree.
        ends: of the intervals of D_b.

    Returns:
        (units, quantiles): a row for each subtree.
    """
    units, size = counts.shape
    # Where a subtree is a whole tree, every row is another key's and starts anew.
    starts = np.zeros(units, np.int64) if size == leaves else first_leaf + size * np.arange(units)
    # Else all rows are one tree's, and follow each other.
    trees = units if size == leaves else 1
    wide, first = units * size // trees, 0 if size == leaves else first_leaf
    rows = []
    for quantile in quantiles:
        reached, share = _value(quantile, counts, totals)
        low, high = _interval(ends(quantile), trees)
        low = np.where(low < wide, first + low, leaves - 1)
        high = np.where(high >= 0, np.minimum(first + high + 1, leaves - 1), 0)
        rows.append(
            QuantileCells(
                cell=np.where(reached >= 0, starts + reached, -1),
                share=share,
                low=np.broadcast_to(low, units),
                high=np.broadcast_to(high, units),
            )
        )
    return QuantileCells.from_array(np.stack([row.to_array() for row in rows], axis=-1))


def _value(quantile: float, counts: Integers, totals: Totals) -> tuple[Integers, Floats]:
    """(units,) the place of the leaf that holds the quantile, -1 where none of the subtree's does;
    and the share of its count below the quantile."""
    exact = quantile * totals.count
    nearest = np.rint(exact)  # 0.55 * 100 is a little above 55 in floating point
    whole = np.abs(exact - nearest) <= 1e-12 * np.maximum(nearest, 1.0)
    wanted = np.maximum(1, np.where(whole, nearest, np.ceil(exact))).astype(np.int64)
    holds = (totals.before_count < wanted) & (wanted <= counts[:, -1])
    reached = (counts >= wanted[:, None]).argmax(axis=1)
    rows = np.arange(len(reached))
    before = np.where(reached > 0, counts[rows, np.maximum(reached - 1, 0)], totals.before_count)
    inside = np.maximum(counts[rows, reached] - before, 1)
    share = np.clip((quantile * totals.count - before) / inside, 0.0, 1.0)
    return np.where(holds, reached, -1), np.where(holds, share, 0.0)


def _interval(differences: Differences, trees: int) -> tuple[Integers, Integers]:
    """(trees,) the place of the first leaf whose upper limit reaches 0 (n where there is none), and
    of the last one whose lower limit does not (-1 where there is none)."""
    margin, *numbers = differences[-1], *(each.reshape(trees, -1) for each in differences[:-1])
    low, high, low_variance, high_variance = numbers
    if not isinstance(margin, QuantileMargin):
        below = low - prefix_margin(margin, low_variance)
        above = high + prefix_margin(margin, high_variance)
        return _as_they_are(np.minimum(below, above), np.maximum(below, above))
    # The rows between the edges that decide whether a leaf holds the quantile: the one at or after
    # its end, and the one at or before its start. Of the first leaf of a chunk it is not known.
    apart = np.zeros((trees, high.shape[1] + 1))
    apart[:, 1:-1] = np.maximum(high[:, 1:] - low[:, :-1], 0.0)
    below = low - margin.rows(low_variance, apart[:, 1:])
    above = high + margin.rows(high_variance, apart[:, :-1])
    return _reached(np.maximum(below, above)), _reached(np.minimum(below, above)) - 1


def _as_they_are(lowest: Floats, highest: Floats) -> tuple[Integers, Integers]:
    size = highest.shape[1]
    not_below, below = highest >= 0, lowest < 0
    low = np.where(not_below.any(axis=1), not_below.argmax(axis=1), size)
    high = np.where(below.any(axis=1), size - 1 - below[:, ::-1].argmax(axis=1), -1)
    return low, high


def _reached(limits: Floats) -> Integers:
    """(trees,) the place of the first leaf where the closest rising limits reach 0; n: there is
    none.

    >>> _reached(np.array([[-3.0, 1.0, -2.0, 1.5, 4.0], [-1.0, -1.0, -1.0, -1.0, 0.5]])).tolist()
    [3, 4]
    """
    sums = np.cumsum(limits, axis=1)
    return np.asarray(np.pad(sums, ((0, 0), (1, 0))).argmin(axis=1))


class OrderedRows(KeyedQuestion):
    """A question over an ordered domain: what rows add to it, or one value of each unit.

    Where values of units have cells, a row is the code of its key and its amount until all rows of
    its unit are together; then the unit's value is put into a cell (`dpcore.rows.unit_values`). A
    unit adds 1 to one cell under each of its keys, at most m of them (`OrderedDomain.counted`).
    """

    domain: OrderedDomain

    @property
    def counts_rows(self) -> bool:
        return not self.domain.counts_units and self.unit_value is None

    @property
    def unit_value(self) -> UnitValue | None:
        return self.domain.per_unit

    def unit_increments(self, rows: Integers) -> Increments | None:
        cells = self.domain.unit_cells(rows)
        return None if cells is None else Increments(cells)

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        if self.unit_value is None:
            return super().row_increments(columns)  # type: ignore[safe-super]
        return self.amount_increments(columns)

    def regrouped(self, increments: Increments) -> Increments:
        if self.unit_value is None:
            return super().regrouped(increments)
        codes, cells = self.amount_cells(increments)
        return Increments(codes * self.domain.cells + cells)

    def cell_keys(self, cells: Integers) -> Integers | None:
        if self.unit_value is None:
            return super().cell_keys(cells)
        return cells if self.is_keyed else None

    def amount_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        """The code of each row's key, and its amount; of rows with a value and a key."""
        amounts = self.domain.amounts(columns[self.domain.column])
        codes = np.zeros(len(amounts), np.int64)
        if self.keys is not None:
            codes = self.keys.row_codes(columns)
        kept = np.flatnonzero((amounts != NO_AMOUNT) & (codes >= 0))
        return RowIncrements(Increments(codes[kept], amounts[kept]), kept)

    def amount_cells(self, increments: Increments) -> tuple[Integers, Integers]:
        """The codes and the cells of values of units that no policy drops."""
        codes, amounts = increments
        assert amounts is not None and not isinstance(codes, pa.Array)
        cells = self.domain.amount_cells(amounts)
        kept = cells >= 0
        return codes[kept], cells[kept]


@dataclass(frozen=True, kw_only=True)
class OrderedQuestion(OrderedRows, TreeQuestion[M]):
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
    domain, left, keys = make_domain(spec["domain"]), dict(spec), keys_from_spec(spec["keys"])
    mechanism = read(left, domain.counted(unit, keyed=keys is not None))
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
