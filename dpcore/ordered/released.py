"""Answers about a released tree over an ordered domain: its CDF, ranges and quantiles."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.ordered.question import OrderedQuestion, quantiles_from_points
from dptrees.dpcore.questions.answer_errors import (
    BlockedValues,
    LeafRun,
    merged_runs,
)
from dptrees.dpcore.questions.released import (
    CDF,
    Answer,
    NamedRun,
    ReadPart,
    Statistic,
    StatisticKind,
    check_apart,
    quantile_number,
    sum_label,
)
from dptrees.dpcore.questions.released_tree import KeyCodes, ReleasedTree

# Below, one cell may well hold most rows.
_FEW_CELLS = 8
# Statistics of values hold an array of all cells for each level.
MOST_VALUES = 1 << 22
# An interval as labels are written.
_INTERVAL = re.compile(r"\[(.+), (.+)\)")


class ReleasedCdf(ReleasedTree):
    """The answers about one tree over an ordered domain, by any mechanism."""

    empty_label = '""'
    question: OrderedQuestion[Any]

    def __init__(
        self,
        question: OrderedQuestion[Any],
        read: ReadPart,
        quantiles: pa.Table | None,
        confidence: float | None = None,
    ) -> None:
        super().__init__(question, read, confidence)
        self._quantiles = quantiles

    def at_confidence(self, confidence: float) -> ReleasedCdf:
        return ReleasedCdf(self.question, self._read, self._quantiles, confidence)

    def cdf(self, value: object, key: object = None, *, simultaneous: bool = False) -> Answer:
        """The count of rows below a value: of all cells that lie wholly below it.

        Args:
            value: of the domain; one inside a cell is rounded down, which `Answer.asked` says.
            key: of a tree with keys.
            simultaneous: the interval belongs to a band that holds at all values at once.

        Raises:
            ValueError: the value is none of the domain's, or there is no such key; a band of one of
                the papers' estimates; categories have no order.
        """
        self._check_order("cdf")
        domain = self.question.domain
        asked = None if domain.is_edge(value) else f"below {value}"
        answer = self._range(0, domain.find_boundary(value), key, simultaneous=simultaneous)
        return replace(answer, asked=asked)

    def band(self, variances: Floats) -> Floats:
        """Return the margins of points of the CDF that hold at all points at once.

        Args:
            variances: (n,) of the points, in rows^2.

        Raises:
            ValueError: no such band is known.
        """
        self._check_order("cdf")
        return self.errors.band(variances)

    def range(self, lower: object, upper: object, key: object = None) -> Answer:
        """The count of rows in [lower, upper), rounded down to edges of cells.

        Raises:
            ValueError: lower above upper, no values of the domain, or no such key; categories have
                no order.
        """
        start, stop, asked = self._interval_cells(lower, upper)
        return replace(self._range(start, stop, key), asked=asked)

    def ends(self) -> list[tuple[str, Answer]]:
        question, cells = self.question, self.question.domain.cells
        counts_rows = question.keys is None and question.counts_rows
        if not (counts_rows and question.is_ordered and question.domain.clamps):
            return []
        if cells < _FEW_CELLS:
            return []
        cut = {"lower": 0, "upper": cells - 1}
        return [(bound, self._range(cell, cell + 1, None)) for bound, cell in cut.items()]

    def labels_in_words(self, rows: pa.Table) -> list[str]:
        return self.question.labels_in_words(rows)

    def _in_words(self, start: int, stop: int) -> str | None:
        """Name of a run of cells that also counts values outside the domain."""
        return self.question.domain.clamped_label(start, stop)

    def _answer(self, row: Mapping[str, object], total: int) -> Answer:
        tree = self.question.tree
        below = tree.leaves_below(int(str(row["level"])))
        start = int(str(row["node"])) * below
        words = self._in_words(start, min(start + below, tree.leaves))
        return replace(super()._answer(row, total), in_words=words)

    def _interval_cells(self, lower: object, upper: object) -> tuple[int, int, str | None]:
        """The cells of an interval, and how it was put where it is rounded."""
        self._check_order("range")
        domain = self.question.domain
        start, stop = domain.find_boundary(lower), domain.find_boundary(upper)
        if start > stop:
            raise ValueError(f"range: {lower} is above {upper}")
        exact = domain.is_edge(lower) and domain.is_edge(upper)
        return start, stop, None if exact else f"[{lower}, {upper})"

    def sum(self, paths: Sequence[object], key: object = None) -> Answer:
        """Return the sum of cells, as `Released.sum` does: values, each for the cell that holds it,
        pairs (lower, upper), or intervals as labels are written."""
        parts = [self._named_run(path) for path in paths]
        check_apart([run for run, _ in parts])
        labels = [asked or run.name for run, asked in parts]
        rounded = any(asked for _, asked in parts)
        runs = sorted((run.start, run.stop) for run, _ in parts if run.start < run.stop)
        answer = self._sum_runs(merged_runs(runs), sum_label([run.name for run, _ in parts]), key)
        return replace(answer, asked=sum_label(labels) if rounded else None)

    def _named_run(self, path: object) -> tuple[NamedRun, str | None]:
        """The cells that a value or an interval represents, and how it was put if it is rounded."""
        if isinstance(path, (tuple, list)):
            return self._interval(*path)
        domain = self.question.domain
        try:
            cell = domain.find_cell(path)
        except ValueError:
            match = _INTERVAL.fullmatch(str(path))
            if match is None:
                raise
            return self._interval(*match.groups())
        label = self._label(cell, cell + 1)
        exact = domain.is_edge(path) and _INTERVAL.fullmatch(label) is None
        return NamedRun(label, cell, cell + 1), None if exact else str(path)

    def _interval(self, lower: object, upper: object) -> tuple[NamedRun, str | None]:
        start, stop, asked = self._interval_cells(lower, upper)
        return NamedRun(self._label(start, stop), start, stop), asked

    def _sum_runs(self, runs: list[tuple[int, int]], label: str, key: object) -> Answer:
        """The count of several runs of cells together."""
        if len(runs) <= 1:
            start, stop = runs[0] if runs else (0, 0)
            return replace(self._range(start, stop, key), label=label)
        code = self._code(key)
        count, error = self._counted(runs, code), self.errors.sum(runs, code)
        return self._sum_answer(label, count, error, code)

    def _range(self, start: int, stop: int, key: object, *, simultaneous: bool = False) -> Answer:
        """Return the count of a run of cells, which may count values outside the domain too."""
        code = self._code(key)
        if start == 0:
            error = self.errors.prefix(stop, code, simultaneous=simultaneous)
        else:
            error = self.errors.sum([(start, stop)], code)
        count = self._counted([(start, stop)], code)
        answer = self._sum_answer(self._label(start, stop), count, error, code)
        return replace(answer, in_words=self._in_words(start, stop))

    def _counted(self, runs: Sequence[LeafRun], code: int) -> tuple[float, int]:
        estimates, count = list[float](), 0
        for start, stop in runs:
            (low, before), (high, upto) = self._prefix(start, code), self._prefix(stop, code)
            estimates.append(high - low)
            count += upto - before
        return math.fsum(estimates), count

    def _cdf_rows(self, code: int) -> pa.Table:
        """The points of the CDF of a key."""
        return pa.concat_tables(self._key_rows(CDF, chunk, code) for chunk in self._chunks(code))

    def quantile(self, quantile: float | str, key: object = None) -> dict[str, object]:
        """Return a quantile: the value below which this fraction of the count lies, with its
        interval. Released quantiles are looked up, others follow from the CDF.

        Returns:
            a row of the quantiles table (`dpcore.questions.released`).

        Raises:
            ValueError: no number between 0 and 1, or no such key; categories have no order.
        """
        number = quantile_number(quantile)
        place = self._released_place(number)
        if place is None:
            return self.computed_quantile(number, key)
        return self._quantile_rows(key, place, 1)[0]

    def _released_place(self, quantile: float) -> int | None:
        """The place of a quantile among those released at this confidence; None: it is none."""
        question = self.question
        if quantile not in question.quantiles or self.confidence != question.confidence:
            return None
        return None if self._own_quantiles is None else question.quantiles.index(quantile)

    def computed_quantile(self, quantile: float, key: object) -> dict[str, object]:
        """Return the row of any quantile, from the points of the CDF."""
        self._check_order("quantile")
        code = self._code(key)
        row = self._computed((quantile,), range(code, code + 1)).to_pylist()
        found: dict[str, object] = self.question.domain.quantiles_in_words(row)[0]
        return found

    def _computed(self, quantiles: Sequence[float], codes: KeyCodes) -> pa.Table:
        """The rows of quantiles of one key, or of all keys of a chunk, from points of the CDF."""
        question = replace(self.question, quantiles=tuple(quantiles))
        points = pa.concat_tables(self._rows_by_chunk(CDF, codes))
        ends = self.errors.quantile_ends(points, self._total_estimates(codes), codes)
        parts = self._leaves_by_chunk(codes.start)
        return quantiles_from_points(question, codes, points["count"].to_numpy(), parts, ends)

    def quantiles_by_key(self, quantiles: Sequence[float | str]) -> list[dict[str, object]]:
        """Return quantiles of all keys, from arrays of all keys of a chunk; else as `Released`."""
        numbers, listed = list(map(quantile_number, quantiles)), len(self.question.quantiles)
        places = [self._released_place(each) for each in numbers]
        others = [each for each, place in zip(numbers, places, strict=True) if place is None]
        released, computed = list[dict[str, Any]](), list[dict[str, Any]]()
        if len(others) < len(numbers):
            assert self._own_quantiles is not None
            released = self._own_quantiles.to_pylist()
        if others:
            self._check_order("quantile")
            for codes in self._keys_by_chunk():
                computed += self._computed(others, codes).to_pylist()
        next_other = iter(range(len(others)))
        columns = [
            computed[next(next_other) :: len(others)] if place is None else released[place::listed]
            for place in places
        ]
        rows = [row for together in zip(*columns, strict=True) for row in together]
        return self.question.domain.quantiles_in_words(rows)

    def _leaves_by_chunk(self, code: int) -> list[slice]:
        """The leaves of a key's tree that each chunk has."""
        leaves = self.question.mechanism.plan.tree.leaves
        if self._whole:
            return [slice(0, leaves)]
        starts = [chunk.start % leaves for chunk in self._chunks(code)]
        return [slice(*ends) for ends in pairwise([*starts, leaves])]

    @cached_property
    def _own_quantiles(self) -> pa.Table | None:
        """The released quantiles of all keys of this tree; None where there are none."""
        if self._quantiles is None or not self.question.quantiles:
            return None
        mine = pc.equal(self._quantiles["tree"].cast(pa.string()), self.question.name)
        return self._quantiles.filter(mine)

    def quantiles(self, key: object = None) -> list[dict[str, Any]]:
        """The released quantiles, rows of the quantiles table in the order they were requested."""
        return self._quantile_rows(key, 0, len(self.question.quantiles))

    def _quantile_rows(self, key: object, first: int, count: int) -> list[dict[str, Any]]:
        """Return so many released quantiles of a key, from a place in the order of requests."""
        if self._own_quantiles is None:
            return []
        place = self._code(key) * len(self.question.quantiles) + first
        rows: list[dict[str, Any]] = self._own_quantiles.slice(place, count).to_pylist()
        return self.question.domain.quantiles_in_words(rows)

    def statistic(
        self,
        kind: StatisticKind,
        lower: object = None,
        upper: object = None,
        key: object = None,
    ) -> Statistic:
        """Return the mean, the variance, the standard deviation or the total of the values, or the
        share of a range.

        Args:
            kind: which of them.
            lower, upper: only of values in [lower, upper); None leaves a side open. A share of one
                of several categories without an order has its name as lower.
            key: of a tree with keys.

        Raises:
            ValueError: values that are no numbers, or count missing ones; bounds that are no edges;
                no such key; too few rows; or the mechanism does not know the error.
        """
        code = self._code(key)
        try:
            if kind is StatisticKind.SHARE:
                return self._shares(lower, upper, code).statistic(kind)
            return self._values(lower, upper, code).statistic(kind)
        except ValueError as error:
            raise ValueError(f"{kind.value}: {error}") from None

    def _values(self, lower: object, upper: object, code: int) -> BlockedValues:
        """The values of a range whose ends may be open, in blocks that were estimated.

        Raises:
            ValueError: as of `statistic`, without its name.
        """
        domain, name = self.question.domain, self.question.name
        missing, half, spread = getattr(domain, "missing", "drop"), domain.half_width, domain.spread
        if missing != "drop":
            raise ValueError(
                f"tree {name} counts missing values in its {missing} cell, where they would be "
                "values; say missing: drop in the domain"
            )
        self._check_size()
        start, stop = self._cells_between(lower, upper)
        blocks = self._blocks(code)
        edges = blocks[(blocks >= start) & (blocks <= stop)]
        if edges.size < 2 or edges[0] != start or edges[-1] != stop:
            raise ValueError(
                f"the tree was not divided at an end of {self._label(start, stop)}: the rows "
                "around it are known together; leave the range out or take a wider one"
            )
        middles, cells = domain.middles(0, domain.cells), np.diff(edges).astype(np.float64)
        first, last = middles[edges[:-1]], middles[edges[1:] - 1]
        step = (last - first) / np.maximum(cells - 1, 1)
        return BlockedValues(
            label=self._label(start, stop),
            in_words=domain.counted_as(start, stop),
            estimates=self._block_rows(edges, code),
            middles=first + (last - first) / 2,
            halves=(last - first) / 2 + half,
            spreads=spread + np.square(step) * (np.square(cells) - 1) / 12,
            variance=self._weighted_variance(edges, code),
            confidence=self.confidence,
        )

    def _shares(self, lower: object, upper: object, code: int) -> BlockedValues:
        """What is 1 in a range, or in one category, and 0 outside, in blocks that were estimated.

        Raises:
            ValueError: as of `statistic`, without its name.
        """
        self._check_size()
        if self.question.is_ordered:
            start, stop = self._cells_between(lower, upper)
        elif lower is None or upper is not None:
            raise ValueError(f"name one category: those of tree {self.question.name} have no order")
        else:
            start = self.question.domain.find_cell(lower)
            stop = start + 1
        edges = self._blocks(code)
        middles, halves = BlockedValues.shares(edges, start, stop)
        return BlockedValues(
            label=self._in_words(start, stop) or self._label(start, stop),
            estimates=self._block_rows(edges, code),
            middles=middles,
            halves=halves,
            spreads=np.zeros_like(middles),
            variance=self._weighted_variance(edges, code),
            confidence=self.confidence,
        )

    def _check_size(self) -> None:
        domain, name = self.question.domain, self.question.name
        if domain.cells > MOST_VALUES:
            raise ValueError(
                f"tree {name} has {domain.cells:,} cells, and all of them are held in memory: at "
                f"most {MOST_VALUES:,} can be; a tree with fewer cells answers it"
            )

    def _blocks(self, code: int) -> Integers:
        """The edges of the blocks of cells that were estimated, from 0 to the number of cells."""
        blocks = self.errors.leaf_blocks(code)
        return np.arange(self.question.domain.cells + 1) if blocks is None else blocks

    def _block_rows(self, edges: Integers, code: int) -> Floats:
        """The estimated rows between cells of a key."""
        prefixes = np.concatenate([[0.0], self._cdf_rows(code)["estimate"].to_numpy()])
        return np.diff(prefixes[edges])

    def _weighted_variance(self, edges: Integers, code: int) -> Callable[[Floats], float]:
        """What gives the variance of a weighted sum of estimates between cells of a key."""

        def variance(weights: Floats) -> float:
            whole = np.zeros(self.question.domain.cells)
            whole[edges[0] : edges[-1]] = np.repeat(weights, np.diff(edges))
            return self.errors.weighted(whole, code)

        return variance

    def _cells_between(self, lower: object, upper: object) -> tuple[int, int]:
        """The cells of a range whose ends may be open."""
        domain, ends = self.question.domain, list[int]()
        for value, otherwise in ((lower, 0), (upper, domain.cells)):
            if value is not None and not domain.is_edge(value):
                raise ValueError(f"{value} is no edge of a cell of column {domain.column}")
            ends.append(otherwise if value is None else domain.find_boundary(value))
        start, stop = ends
        if start >= stop:
            raise ValueError(f"{lower} is not below {upper}")
        return start, stop

    def numbered_level(self, name: str | None) -> int:
        # A category without an order is answered by its count.
        if name is None and not self.question.is_ordered:
            return self.height
        return super().numbered_level(name)

    def at_path(self, path: str, key: object = None) -> Answer:
        # A category without an order is a node by its name.
        if self.question.is_ordered:
            return super().at_path(path, key)
        return self.node(self.height, self.find_node(path, self.height), key)

    def named(self, name: str, key: object = None) -> Answer:
        return self.sum([name], key) if self.question.is_ordered else self.at_path(name, key)

    def find_node(self, value: object, level: int) -> int:
        """The node of a level that holds a value.

        Raises:
            ValueError: the value is none of the domain's, or there is no such level.
        """
        self._check_level(level)
        return self.question.domain.find_cell(value) // self.question.tree.leaves_below(level)

    def _check_order(self, query: str) -> None:
        if not self.question.is_ordered:
            raise ValueError(
                f"{query}: the categories of tree {self.question.name} have no order; query node "
                "or top (if the order has a meaning, set `ordered: true` in the domain of the tree)"
            )

    def _prefix(self, boundary: int, code: int) -> tuple[float, int]:
        """The estimate and the count of all leaves before a boundary."""
        if boundary == 0:
            return 0.0, 0
        leaf = code * self.question.mechanism.plan.tree.leaves + boundary - 1
        chunk = self._chunking[int(self._chunking.numbers(np.array([leaf]))[0])]
        rows = self._key_rows(CDF, chunk, code)
        place = leaf - chunk.start if not self._whole else boundary - 1
        row = rows.slice(place, 1)
        return row["estimate"][0].as_py(), row["count"][0].as_py()

    def _label(self, start: int, stop: int) -> str:
        if start == stop:
            return "nothing"
        labels = self.question.domain.range_labels(np.array([start]), np.array([stop]))
        return str(labels[0].as_py())
