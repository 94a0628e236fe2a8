"""Answers about a released box of columns: boxes, columns, nodes and synthetic rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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

# What is said of answers without a stated error.
NO_ERRORS = (
    "no error is stated for a box that is planned for counts: the measurements also decide the "
    "divisions, which biases them; use optimize_for: estimates for exact errors"
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
        if shared or not plan.states_errors:
            return super().at_confidence(confidence)
        return ReleasedHypercube(self.question, self._read, confidence)

    def with_others(self, others: Sequence[Released]) -> Released:
        found = [own for own in others if isinstance(own, ReleasedHypercube)]
        return AddedHypercubes([self, *found])

    @cached_property
    def partition(self) -> ReleasedPartition:
        """Its parts as arrays."""
        plan, errors = self.question.plan, None
        variances = plan.variances if plan.states_errors else None
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
        """Interval from the lower end of what lies inside to the upper end of all that is touched;
        without ends where the plan states no errors."""
        if not self.question.plan.states_errors:
            return -math.inf, math.inf
        most = float(self.total) if self.question.plan.public_total else math.inf
        ends = []
        for own in (inner, outer):
            if own.std_error is None:
                return 0.0, most
            known = self.confidence, own.estimate, own.std_error, own.collisions, most
            ends.append(collided_interval(self.question.plan.measure, *known))
        return float(ends[0][0]), float(ends[1][1])

    def select_column(self, column: str) -> ReleasedColumn:
        return ReleasedColumn(self, self.question.domain.find_column(column))

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
            remark=None if self.question.plan.states_errors else NO_ERRORS,
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
        if self.confidence != self.question.confidence and row["std_error"] is not None:
            own = row["estimate"], row["std_error"], row["count"], row.get(COLLISION_ERROR)
            alone = WeightedSum(*own)
            known["ci_low"], known["ci_high"] = self._interval(alone, alone)
        remark = None
        if row["ci_low"] is None:
            known["ci_low"], known["ci_high"], remark = -math.inf, math.inf, NO_ERRORS
        domain, node = self.question.domain, np.array([row["node"]], np.int64).view(np.uint64)
        ranges = zip(*domain.ranges(row["level"], node), strict=True)
        sides = [(int(start[0]), int(stop[0])) for start, stop in ranges]
        words = domain.box_label(sides, names_all=True, clamped=True)
        return self._labelled(words=words, remark=remark, **known)


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
    errors = [own.std_error for own in sums if own.std_error is not None]
    collisions = [own.collisions for own in sums if own.collisions is not None]
    return WeightedSum(
        estimate=float(np.sum([own.estimate for own in sums])),
        std_error=hypotenuse(*errors) if len(errors) == len(sums) else None,
        rows=float(np.sum([own.rows for own in sums])),
        collisions=hypotenuse(*collisions) if len(collisions) == len(sums) else None,
    )
