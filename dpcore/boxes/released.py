"""Answers about a released box of columns: boxes, columns, nodes and synthetic rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arithmetic.sums import hypotenuse, interpolated
from dptrees.dpcore.boxes.domain import HypercubeDomain, cell_bits
from dptrees.dpcore.boxes.parts import (
    AddedParts,
    BoxParts,
    BoxSums,
    ReleasedPartition,
    RowSampler,
    Sides,
    WeightedSum,
    box_sums,
)
from dptrees.dpcore.boxes.plan import Estimation, PartitionPlan
from dptrees.dpcore.boxes.question import HypercubeQuestion, interval, standard_margin
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.questions.released import NODES, Answer, ReadPart, Released

# What is said of answers without a stated error.
NO_ERRORS = (
    "no error is stated for a box that is planned for counts: the measurements also decide the "
    "divisions, which biases them; use optimize_for: estimates for exact errors"
)


class ReleasedHypercube(Released):
    """The answers about one partition.

    Args:
        question: the tree.
        read: gives the rows of a part; each depth is one.
        confidence: of the intervals, by default the release's.
    """

    draws_rows = True

    def __init__(
        self, question: HypercubeQuestion, read: ReadPart, confidence: float | None = None
    ) -> None:
        if confidence is not None and not 0 < confidence <= 0.9999:
            raise ValueError(f"confidence: {confidence} is not above 0 and at most 0.9999")
        self.question, self._read = question, read
        self.confidence = question.confidence if confidence is None else confidence

    @property
    def height(self) -> int:
        return int(self.question.plan.depths[-1])

    def at_confidence(self, confidence: float) -> Released:
        plan = self.question.plan
        shared = isinstance(plan, PartitionPlan) and plan.estimation is Estimation.EVEN_SHARES
        if shared or not plan.states_errors:
            return super().at_confidence(confidence)
        return ReleasedHypercube(self.question, self._read, confidence)

    def with_others(self, others: Sequence[Released]) -> Released:
        found = [own for own in others if isinstance(own, ReleasedHypercube)]
        return AddedHypercubes([self, *found])

    @cached_property
    def partition(self) -> ReleasedPartition:
        """Its parts as arrays."""
        plan = self.question.plan
        return ReleasedPartition(
            domain=self.question.domain,
            depths=plan.depths,
            variances=plan.variances if plan.states_errors else None,
            read=lambda depth: self._read(NODES, self.question.name, 0, depth),
        )

    @property
    def spread(self) -> BoxParts:
        """Its parts, to draw rows from and to add up along columns."""
        return self.partition

    @property
    def total(self) -> int:
        """The consistent count of all rows."""
        return int(self._rows(0)["count"][0].as_py())

    def _interval(self, inner: WeightedSum, outer: WeightedSum) -> tuple[float, float]:
        """Interval from the lower end of what lies inside to the upper end of all that is touched;
        without ends where the plan states no errors."""
        if not self.question.plan.states_errors:
            return -math.inf, math.inf
        most = float(self.total) if self.question.plan.public_total else math.inf
        if inner.std_error is None or outer.std_error is None:
            return 0.0, most
        margin = standard_margin(self.question.plan.measure, self.confidence)
        low, _ = interval(inner.estimate, inner.std_error, margin, most)
        _, high = interval(outer.estimate, outer.std_error, margin, most)
        return float(low), float(high)

    def select_column(self, column: str) -> Released:
        return ReleasedColumn(self, self._axis(column))

    def cdf(self, value: object, key: object = None, *, simultaneous: bool = False) -> Answer:
        """Return a point of the CDF of the only column, as `Released.cdf` does."""
        return self._only_column("cdf").cdf(value, key, simultaneous=simultaneous)

    def range(self, lower: object, upper: object, key: object = None) -> Answer:
        """Return the count of a range of the only column, as `Released.range` does."""
        return self._only_column("range").range(lower, upper, key)

    def quantile(self, quantile: float | str, key: object = None) -> dict[str, object]:
        """Return a quantile of the only column, as `Released.quantile` does."""
        return self._only_column("quantile").quantile(quantile, key)

    def _only_column(self, query: str) -> Released:
        first, *others = self.question.columns
        if others:
            raise ValueError(
                f"{query}: say of which column; there are {', '.join([first, *others])}"
            )
        return self.select_column(first)

    def sampler(self) -> RowSampler:
        return RowSampler(name=self._name, partition=self.spread)

    def box(self, sides: Mapping[str, tuple[object, object]], key: object = None) -> Answer:
        """The count of the rows in a box, rounded down to edges of cells.

        What lies inside a part of the partition is not known: where the box cuts parts, the
        estimate spreads their rows evenly, has no standard error, and an interval from the parts
        that lie inside to all parts that the box touches.
        """
        self._check_key(key)
        wanted = {self._axis(column): bounds for column, bounds in sides.items()}
        cells = [(0, axis.cells) for axis in self.question.domain.axes]
        rounded = False
        for place, (lower, upper) in wanted.items():
            axis = self.question.domain.axes[place]
            start, stop = _boundary(axis, lower, 0), _boundary(axis, upper, axis.cells)
            if start > stop:
                raise ValueError(f"box: {lower} is above {upper}")
            cells[place] = start, stop
            rounded |= not (_is_edge(axis, lower) and _is_edge(axis, upper))
        words = self.question.domain.box_in_words(cells, names_all=False)
        answer = replace(self.box_count(cells, self._label(cells)), in_words=words)
        if not rounded:
            return answer
        named = [
            f"{column} [{lower or '...'}, {upper or '...'})"
            for column, (lower, upper) in sides.items()
        ]
        return replace(answer, asked=", ".join(named))

    def sum(self, paths: Sequence[object], key: object = None) -> Answer:
        """Refused: the nodes of a partition have no paths, and boxes are requested one by one."""
        raise ValueError(
            f"sum: tree {self._name} is a partition, whose nodes have no paths; query a box"
        )

    def box_sums(self, sides: Sides) -> BoxSums:
        """The rows of a box of cells.

        Args:
            sides: of each axis.
        """
        return box_sums(self.partition, sides)

    def box_count(self, sides: Sides, label: str) -> Answer:
        """The count of the rows in a box of cells.

        Args:
            sides: of each axis.
            label: of the answer.
        """
        found, inner, outer, cuts = self.box_sums(sides)
        low, high = self._interval(inner, outer)
        count = int(min(max(0, round(found.rows)), self.total))
        return Answer(
            label=label,
            estimate=found.estimate,
            std_error=None if cuts else found.std_error,
            ci_low=low,
            ci_high=high,
            count=count,
            fraction=count / self.total if self.total else None,
            remark=None if self.question.plan.states_errors else NO_ERRORS,
        )

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        """The nodes of a level with the largest counts, of those that the partition looked at."""
        self._check_key(key)
        rows = self._rows(level)
        order = np.argsort(-rows["count"].to_numpy(), kind="stable")[:count]
        return [self._answer(row) for row in rows.take(pa.array(order)).to_pylist()]

    def find_level(self, name: str) -> int:
        depths = self.question.plan.depths
        if not (name.isdecimal() and int(name) in depths):
            raise ValueError(f"level: {name} is none of {', '.join(map(str, depths))}")
        return int(name)

    def numbered_level(self, name: str | None) -> int:
        if name is None:
            raise ValueError("level: is needed with --node and --value")
        return self.find_level(name)

    def find_node(self, value: object, level: int) -> int:
        """The node of a level that holds a value of the only column."""
        axis: OrderedDomain
        (axis, *others) = self.question.domain.axes
        if others:
            raise ValueError("value: the tree has several columns; query a box")
        domain: HypercubeDomain = self.question.domain
        position: int = axis.find_cell(value) >> (cell_bits(axis) - domain.depths[0])
        return position >> (domain.bits - level)

    def node(self, level: int, node: int, key: object = None) -> Answer:
        """Return a node that the partition looked at, as `Released.node` does."""
        self._check_key(key)
        rows = self._rows(level)
        found = rows.filter(pc.equal(rows["node"], node)).to_pylist()
        if not found:
            raise ValueError(f"node: the partition did not look at node {node} of level {level}")
        return self._answer(found[0])

    def _rows(self, level: int) -> pa.Table:
        if level not in self.question.plan.depths:
            depths = ", ".join(map(str, self.question.plan.depths))
            raise ValueError(f"level: {level} is none of {depths}")
        return self._read(NODES, self.question.name, 0, level)

    def _axis(self, column: str) -> int:
        columns: tuple[str, ...] = self.question.domain.columns
        if column not in columns:
            raise ValueError(f"column: {column!r} is none of {', '.join(columns)}")
        return columns.index(column)

    def _check_key(self, key: object) -> None:
        if key is not None:
            raise ValueError(f"key: tree {self.question.name} has no keys")

    def _label(self, sides: Sides) -> str:
        texts = []
        for axis, (start, stop) in zip(self.question.domain.axes, sides, strict=True):
            if (start, stop) != (0, axis.cells):
                inside = "nothing"
                if start < stop:
                    inside = axis.range_labels(np.array([start]), np.array([stop]))[0].as_py()
                texts.append(f"{axis.column} {inside}")
        return ", ".join(texts) or "all"

    def _answer(self, row: Mapping[str, Any]) -> Answer:
        names = ("label", "estimate", "std_error", "ci_low", "ci_high", "count")
        known = {name: row[name] for name in names}
        if self.confidence != self.question.confidence and row["std_error"] is not None:
            alone = WeightedSum(row["estimate"], row["std_error"], row["count"])
            known["ci_low"], known["ci_high"] = self._interval(alone, alone)
        remark = None
        if row["ci_low"] is None:
            known["ci_low"], known["ci_high"], remark = -math.inf, math.inf, NO_ERRORS
        fraction = row["count"] / self.total if self.total else None
        domain: HypercubeDomain = self.question.domain
        ranges = domain.ranges(row["level"], np.array([row["node"]], np.int64).view(np.uint64))
        sides = [(int(start[0]), int(stop[0])) for start, stop in zip(*ranges, strict=True)]
        words = domain.box_in_words(sides, names_all=True)
        return Answer(**known, fraction=fraction, remark=remark, in_words=words)


class AddedHypercubes(ReleasedHypercube):
    """The answers about several releases of a box, each with rows of its own: a window of periods
    that are not released together.

    Their noise is independent, so estimates add up and so do variances. Rows are drawn from the
    parts of all of them.

    Args:
        each: the releases, at least one, at one confidence.
    """

    def __init__(self, each: Sequence[ReleasedHypercube]) -> None:
        self._each = each
        first = each[0]
        super().__init__(first.question, first._read, first.confidence)

    def at_confidence(self, confidence: float) -> Released:
        found = [own.at_confidence(confidence) for own in self._each]
        return AddedHypercubes([own for own in found if isinstance(own, ReleasedHypercube)])

    @cached_property
    def partition(self) -> ReleasedPartition:
        """Refused: there are several."""
        raise self._has_no_nodes()

    @cached_property
    def spread(self) -> BoxParts:
        """The parts of all of them."""
        return AddedParts(domain=self.question.domain, each=[own.spread for own in self._each])

    @property
    def total(self) -> int:
        """The consistent count of all rows."""
        return sum(own.total for own in self._each)

    def box_sums(self, sides: Sides) -> BoxSums:
        """Return the rows of a box of cells, added up."""
        found = [own.box_sums(sides) for own in self._each]
        even, inner, outer = (
            _added([getattr(own, name) for own in found]) for name in ("even", "inner", "outer")
        )
        return BoxSums(even, inner, outer, any(own.cuts for own in found))

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        if level == 0 and count > 0:
            self._check_key(key)
            return [self.box_count([(0, axis.cells) for axis in self.question.domain.axes], "all")]
        raise self._has_no_nodes()

    def node(self, level: int, node: int, key: object = None) -> Answer:
        raise self._has_no_nodes()

    def _has_no_nodes(self) -> ValueError:
        return ValueError(
            f"node: these periods of tree {self._name} are several partitions, which have no nodes "
            "in common; query a box"
        )


class ReleasedColumn(Released):
    """The answers about one column of a box: its CDF, ranges and quantiles.

    Args:
        whole: the box.
        place: of the column among its axes.
    """

    def __init__(self, whole: ReleasedHypercube, place: int) -> None:
        self.question, self._whole, self._place = whole.question, whole, place

    @property
    def height(self) -> int:
        return self._whole.height

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        raise ValueError("column: the nodes of the tree are of all its columns")

    @property
    def axis(self) -> OrderedDomain:
        """The domain of the column."""
        result: OrderedDomain = self.question.domain.axes[self._place]
        return result

    def cdf(self, value: object, key: object = None, *, simultaneous: bool = False) -> Answer:
        """Return a point of the CDF of the column, as `Released.cdf` does; see
        `ReleasedHypercube.box`."""
        if simultaneous:
            raise ValueError("cdf: a partition has no simultaneous band")
        return self._whole.box({self.axis.column: ("", value)}, key)

    def range(self, lower: object, upper: object, key: object = None) -> Answer:
        """Return the count of a range of the column, as `Released.range` does; see
        `ReleasedHypercube.box`."""
        return self._whole.box({self.axis.column: (lower, upper)}, key)

    def quantile(self, quantile: float | str, key: object = None) -> dict[str, object]:
        """The value below which a fraction of the consistent count lies, rows being spread evenly
        in their parts; its interval is not known."""
        self._whole._check_key(key)
        try:
            fraction = float(quantile)
        except ValueError:
            raise ValueError(f"quantile: {quantile!r} is not a number") from None
        if not 0 <= fraction <= 1:
            raise ValueError(f"quantile: {fraction} is not between 0 and 1")
        edges, rows = self._whole.spread.below(self._place)
        value = None
        if rows[-1] > 0:
            exact = float(interpolated(fraction * rows[-1], rows, edges))
            cell = min(int(exact), self.axis.cells - 1)
            share = min(max(exact - cell, 0.0), 1.0)
            value = self.axis.value_at(np.array([cell]), np.array([share]))[0].as_py()
        numeric = isinstance(value, (int, float))
        return self.axis.quantile_in_words(
            {
                "q": fraction,
                "value": value if numeric else None,
                "ci_low": None,
                "ci_high": None,
                "value_text": None if value is None else str(value),
                "ci_low_text": None,
                "ci_high_text": None,
            }
        )


def _is_edge(axis: OrderedDomain, value: object) -> bool:
    return value in ("", None) or axis.is_edge(value)


def _boundary(axis: OrderedDomain, value: object, open_: int) -> int:
    """The number of cells below a value; an empty text leaves the side open."""
    return open_ if value in ("", None) else axis.find_boundary(value)


def _added(sums: Sequence[WeightedSum]) -> WeightedSum:
    """The sum of independent estimates."""
    errors = [own.std_error for own in sums if own.std_error is not None]
    return WeightedSum(
        estimate=float(np.sum([own.estimate for own in sums])),
        std_error=hypotenuse(*errors) if len(errors) == len(sums) else None,
        rows=float(np.sum([own.rows for own in sums])),
    )
