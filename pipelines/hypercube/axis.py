"""A column of a box as an axis of a figure: where its cells lie, and how their runs are written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arithmetic.sums import interpolated
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.pipelines.page.extent import clip

_DAY = 86_400_000.0
# Timestamps over fewer days than these are counted by the hour.
_DAYS_BY_HOUR = 60
# The middle of a column's rows that a figure begins with, where they lie in half of its cells.
_MIDDLE = (0.005, 0.995)


@dataclass(frozen=True, kw_only=True)
class FigureAxis:
    """A column on a figure: numbers lie where they are, times at their milliseconds, each category
    around its place in the list.

    Args:
        domain: of the column.
    """

    domain: OrderedDomain

    @property
    def name(self) -> str:
        """Name of the column, shortened."""
        return clip(self.domain.column)

    @property
    def is_category(self) -> bool:
        """Whether its cells have names and no widths."""
        return not self.domain.has_intervals

    @property
    def is_temporal(self) -> bool:
        """Whether it has dates or times."""
        return bool(pa.types.is_temporal(self.domain.value_type))

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """Where the first cell begins and the last ends."""
        if self.is_category:
            return -0.5, self.domain.cells - 0.5
        cells = self.domain.cells
        ends = self.domain.lower_edges(0, 1), self.domain.upper_edges(cells - 1, cells)
        low, high = (_position(each) for each in ends)
        return low, high

    def at(self, boundary: Integers) -> Floats:
        """(n,) where boundaries of cells lie, 0 to K; all cells are equally wide."""
        low, high = self.bounds
        share = boundary / self.domain.cells
        result: Floats = low * (1 - share) + high * share
        return result

    def texts(self, start: Integers, stop: Integers) -> list[str]:
        """Return the labels of runs of cells, (n,)."""
        return [clip(text) for text in self.domain.range_labels(start, stop).to_pylist()]

    @property
    def unit(self) -> tuple[str, float]:
        """What a density is per, and how wide that is on the axis."""
        if self.is_category:
            return "category", 1.0
        if not self.is_temporal:
            return "unit", 1.0
        low, high = self.bounds
        by_hour = self.domain.kind == "timestamp" and high - low < _DAYS_BY_HOUR * _DAY
        return ("hour", _DAY / 24) if by_hour else ("day", _DAY)

    def window(self, edges: Integers, rows: Floats) -> tuple[int, int]:
        """Return the cells that a figure shows at first: all cells, or fewer than half of them
        where these hold nearly all rows.

        Args:
            edges: (m,) rising boundaries of cells, from 0 to K.
            rows: (m,) the rows below each; some in all.
        """
        cells = self.domain.cells
        low, high = interpolated(np.array(_MIDDLE) * rows[-1], rows, edges)
        start, stop = int(low), min(int(np.ceil(high)), cells)
        if self.is_category or 2 * (stop - start) > cells:
            return 0, cells
        return start, max(stop, start + 1)


def _position(edge: pa.Array) -> float:
    if pa.types.is_temporal(edge.type):
        return (
            float(
                edge.cast(pa.timestamp("us", tz=getattr(edge.type, "tz", None)))
                .cast(pa.int64())[0]
                .as_py()
            )
            / 1000.0
        )
    return float(edge[0].as_py())


def halved_edges(start: int, stop: int, cells: int, most: int) -> Integers:
    """Boundaries at multiples of a power of two that enclose some cells: a node's sides are all
    among them, or between two of them.

    Args:
        start: the first cell.
        stop: the cell after the last.
        cells: of the column.
        most: how many intervals at most, at least 2.

    >>> halved_edges(5, 21, 25, 4).tolist()
    [0, 8, 16, 24]
    """
    width = 1
    while -(-stop // width) - start // width > most:
        width *= 2
    edges = np.arange(start // width, -(-stop // width) + 1, dtype=np.int64) * width
    return np.minimum(edges, cells)
