"""Answers about a released box of columns: boxes, columns, nodes and synthetic rows."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arithmetic.sums import hypotenuse
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.boxes.domain import cell_bits
from dptrees.dpcore.boxes.parts import (
    Box,
    BoxSums,
    Parts,
    ReleasedPartition,
    WeightedSum,
    box_sums,
    collided_interval,
    weighted_sum,
)
from dptrees.dpcore.boxes.plan import Estimation, LevelVariances, PartitionPlan
from dptrees.dpcore.boxes.question import (
    COLLISION_ERROR,
    MEASURED_ERROR,
    HypercubeQuestion,
)
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.ordered.columns import ReleasedColumn, ReleasedColumns, Sides
from dptrees.dpcore.questions.answer_errors import unpublished_answer
from dptrees.dpcore.questions.released import NODES, Answer, Released

# What is said of boxes that cut parts.
CUTS = (
    "the box cuts parts that were not divided: their rows are taken to lie evenly in them, there "
    "is no standard error, and the interval reaches from the parts inside to all that it touches"
)


class ReleasedHypercube(ReleasedColumns):
    """The answers about one partition; each depth is a part.

    What lies inside a part of the partition is not known: where a box cuts parts, the estimate
    spreads their rows evenly, has no standard error, and an interval from the parts that lie inside
    to all parts that the box touches.
    """

    question: HypercubeQuestion
    form = "partition"

    @property
    def height(self) -> int:
        return self.question.plan.depths[-1]

    def at_confidence(self, confidence: float) -> Released:
        plan = self.question.plan
        shared = isinstance(plan, PartitionPlan) and plan.estimation is Estimation.EVEN_SHARES
        if shared:
            return super().at_confidence(confidence)
        return ReleasedHypercube(self.question, self._read, confidence)

    def with_others(self, others: Sequence[Released]) -> Released:
        found = [own for own in others if isinstance(own, ReleasedHypercube)]
        return AddedHypercubes([self, *found])

    @cached_property
    def partition(self) -> ReleasedPartition:
        """Its parts as arrays."""
        plan, errors = self.question.plan, None
        variances = plan.variances
        tables = [self._rows(depth) for depth in plan.depths]
        if isinstance(plan, PartitionPlan) and MEASURED_ERROR in tables[0].column_names:
            measured = [pc.max(table[MEASURED_ERROR]).as_py() for table in tables]
            own = tuple(math.inf if error is None else error * error for error in measured)
            variances, errors = LevelVariances(split=own, ended=own), plan.sketch_errors(own)
        return ReleasedPartition(
            domain=self.question.domain,
            depths=plan.depths,
            variances=variances,
            errors=errors,
            bias=plan.selection_bias,
            read=lambda depth: self._read(NODES, self.question.name, 0, depth),
        )

    @property
    def parts(self) -> Parts:
        """Its parts, to draw rows from and to add up along columns."""
        return self.partition.parts

    @property
    def total(self) -> int:
        """The consistent count of all rows."""
        return int(self._rows(0)["count"][0].as_py())

    def _interval(self, inner: WeightedSum, outer: WeightedSum) -> tuple[float, float]:
        """Interval from the lower end of what lies inside to the upper end of all that is
        touched."""
        most = float(self.total) if self.question.plan.public_total else math.inf
        ends = []
        for own in (inner, outer):
            if own.std_error is None:
                return 0.0, most
            known = self.confidence, own.estimate, own.std_error, own.collisions, most
            ends.append(collided_interval(self.question.plan.measure, *known))
        return float(ends[0][0]), float(ends[1][1])

    def select_column(self, column: str) -> ReleasedColumn:
        return ReleasedBoxColumn(self, self.question.domain.find_column(column))

    def cdf(self, value: object, key: object = None, *, simultaneous: bool = False) -> Answer:
        """Return a point of the CDF of the only column, as `Released.cdf` does."""
        return self._only_column("cdf").cdf(value, key, simultaneous=simultaneous)

    def range(self, lower: object, upper: object, key: object = None) -> Answer:
        """Return the count of a range of the only column, as `Released.range` does."""
        return self._only_column("range").range(lower, upper, key)

    def quantile(self, quantile: float | str, key: object = None) -> dict[str, object]:
        """Return a quantile of the only column, as `Released.quantile` does."""
        return self._only_column("quantile").quantile(quantile, key)

    def _only_column(self, query: str) -> ReleasedColumn:
        first, *others = self.question.columns
        if others:
            raise ValueError(
                f"{query}: say of which column; there are {', '.join([first, *others])}"
            )
        return self.select_column(first)

    def _drawn(self, rows: int, stream: RandomStream) -> Iterator[list[pa.Array]]:
        return self.parts.drawn(rows, stream)

    def sum(self, paths: Sequence[object], key: object = None) -> Answer:
        """Refused: the nodes of a partition have no paths, and boxes are requested one by one."""
        raise ValueError(
            f"sum: tree {self._name} is a partition, whose nodes have no paths; query a box"
        )

    def box_sums(self, sides: Box) -> BoxSums:
        """The rows of a box of cells.

        Args:
            sides: of each axis.
        """
        return box_sums(self.partition, sides)

    def weighted(self, cells: Box, weights: Callable[[Floats], Floats]) -> WeightedSum:
        """The sum of the parts, each by what the share weighs that a box of cells covers of it."""
        return weighted_sum(self.partition, cells, weights)

    def reach(self, found: WeightedSum) -> float:
        """Half the width of the interval of a sum that may be negative."""
        assert found.std_error is not None
        measure, error = self.question.plan.measure, found.std_error
        return float(
            collided_interval(measure, self.confidence, 0.0, error, found.collisions, math.inf)[1]
        )

    def below(self, place: int) -> tuple[Integers, Floats]:
        return self.parts.below(place)

    def count(self, sides: Sides) -> Answer:
        domain = self.question.domain
        cells = [sides.get(place, (0, axis.cells)) for place, axis in enumerate(domain.axes)]
        found, inner, outer, cuts = self.box_sums(cells)
        low, high = self._interval(inner, outer)
        count = int(min(max(0, round(found.rows)), self.total))
        return self._labelled(
            domain.box_label(cells),
            domain.box_label(cells, clamped=True),
            count,
            estimate=found.estimate,
            std_error=None if cuts else found.std_error,
            ci_low=low,
            ci_high=high,
            remark=CUTS if cuts and inner.std_error is not None else None,
        )

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
        domain = self.question.domain
        (axis, *others) = domain.axes
        if others:
            raise ValueError("value: the tree has several columns; query a box")
        position = axis.find_cell(value) >> (cell_bits(axis) - domain.depths[0])
        return position >> (domain.bits - level)

    def node(self, level: int, node: int, key: object = None) -> Answer:
        """Return a node that the partition looked at, as `Released.node` does."""
        self._check_no_key(key)
        rows = self._rows(level)
        found = rows.filter(pc.equal(rows["node"], node)).to_pylist()
        if not found:
            raise ValueError(f"node: the partition did not look at node {node} of level {level}")
        return self._answer(found[0])

    def named(self, name: str, key: object = None) -> Answer:
        raise ValueError(f"path: the nodes of partition {self._name} have no names; query a box")

    def unpublished(self, level: int | None, path: str | None = None) -> list[Answer]:
        return [unpublished_answer(math.inf)] if level else []

    def _rows(self, level: int) -> pa.Table:
        if level not in self.question.plan.depths:
            depths = ", ".join(map(str, self.question.plan.depths))
            raise ValueError(f"level: {level} is none of {depths}")
        return self._read(NODES, self.question.name, 0, level)

    def _answer(self, row: Mapping[str, Any]) -> Answer:
        names = ("label", "estimate", "std_error", "ci_low", "ci_high", "count")
        known = {name: row[name] for name in names}
        domain, node = self.question.domain, np.array([row["node"]], np.int64).view(np.uint64)
        ranges = zip(*domain.ranges(row["level"], node), strict=True)
        sides = [(int(start[0]), int(stop[0])) for start, stop in ranges]
        words = domain.box_label(sides, names_all=True, clamped=True)
        alone = WeightedSum(
            row["estimate"], row["std_error"], row["count"], row.get(COLLISION_ERROR)
        )
        if row["ci_low"] is None:
            # Earlier versions stated no error of what had decided the partition.
            alone = self.box_sums(sides).even
            known["std_error"] = alone.std_error
        if row["ci_low"] is None or (
            self.confidence != self.question.confidence and alone.std_error is not None
        ):
            known["ci_low"], known["ci_high"] = self._interval(alone, alone)
        return self._labelled(words=words, **known)


class ReleasedBoxColumn(ReleasedColumn):
    """The answers about one column of a partition.

    A boundary of parts lies below a quantile where even all parts that have cells below it hold too
    few rows, and above it where those wholly below it hold too many: more than the interval of a
    sum of parts less the quantile's part of all. The interval of the quantile is of all others.
    """

    _whole: ReleasedHypercube

    def _quantile_ends(self, fraction: float, edges: Integers) -> Sequence[Any]:
        def excess(boundary: int, rounded: Callable[[Floats], Floats]) -> WeightedSum:
            cells = [(0, axis.cells) for axis in self.question.domain.axes]
            cells[self._place] = (0, int(edges[boundary]))
            return self._whole.weighted(cells, lambda share: rounded(share) - fraction)

        def is_low(run: int) -> bool:
            found = excess(run + 1, np.ceil)
            return found.estimate + self._whole.reach(found) < 0

        def is_high(run: int) -> bool:
            found = excess(run, np.floor)
            return found.estimate - self._whole.reach(found) > 0

        if excess(0, np.floor).std_error is None:
            return super()._quantile_ends(fraction, edges)
        runs = range(len(edges) - 1)
        first = min(bisect_left(runs, True, key=lambda run: not is_low(run)), runs[-1])
        stop = max(bisect_left(runs, True, key=is_high), first + 1)
        return self._value(float(edges[first])), self._value_below(int(edges[stop]))


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
    def parts(self) -> Parts:
        """The parts of all of them."""
        return Parts.joined([own.parts for own in self._each])

    @property
    def total(self) -> int:
        """The consistent count of all rows."""
        return sum(own.total for own in self._each)

    def box_sums(self, sides: Box) -> BoxSums:
        """Return the rows of a box of cells, added up."""
        found = [own.box_sums(sides) for own in self._each]
        even, inner, outer = (
            _added([getattr(own, name) for own in found]) for name in ("even", "inner", "outer")
        )
        return BoxSums(even, inner, outer, any(own.cuts for own in found))

    def weighted(self, cells: Box, weights: Callable[[Floats], Floats]) -> WeightedSum:
        return _added([own.weighted(cells, weights) for own in self._each])

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        if level == 0 and count > 0:
            self._check_no_key(key)
            return [self.count({})]
        raise self._has_no_nodes()

    def node(self, level: int, node: int, key: object = None) -> Answer:
        raise self._has_no_nodes()

    def _has_no_nodes(self) -> ValueError:
        return ValueError(
            f"node: these periods of tree {self._name} are several partitions, which have no nodes "
            "in common; query a box"
        )


def _added(sums: Sequence[WeightedSum]) -> WeightedSum:
    """The sum of independent estimates."""
    errors = [
        math.sqrt(max(0.0, own.std_error * own.std_error - own.bias * own.bias))
        for own in sums
        if own.std_error is not None
    ]
    bias = math.fsum(own.bias for own in sums)
    collisions = [own.collisions for own in sums if own.collisions is not None]
    return WeightedSum(
        estimate=float(np.sum([own.estimate for own in sums])),
        std_error=hypotenuse(bias, *errors) if len(errors) == len(sums) else None,
        bias=bias,
        rows=float(np.sum([own.rows for own in sums])),
        collisions=hypotenuse(*collisions) if len(collisions) == len(sums) else None,
    )
