"""What the figures of a box show: curves, densities and grids of a bounded size, from its parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dptrees.dpcore.arithmetic.sums import interpolated
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.boxes.released import ReleasedHypercube
from dptrees.pipelines.hypercube.axis import FigureAxis, halved_edges

# A part of a map is seen where it is so small a piece of one side of it.
_SEEN = 200
Bounds = tuple[float, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram:
    """The density of a column.

    Args:
        axis: the column.
        edges: (m + 1,) rising boundaries of cells.
        rows: (m,) consistent counts, spread evenly in their parts.
        bounds: what is shown first.
    """

    axis: FigureAxis
    edges: Integers
    rows: Floats
    bounds: Bounds

    @property
    def density(self) -> Floats:
        """(m,) rows per unit of the axis."""
        result: Floats = self.rows / np.diff(self.axis.at(self.edges)) * self.axis.unit[1]
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """The CDF of a column.

    Args:
        axis: the column.
        edges: (m,) rising boundaries of cells.
        rows: (m,) the consistent counts below.
        places: (p,) of the edges between parts at which the error is known.
        low, high: (p,) the ends of their intervals; None where no error is known.
        bounds: what is shown first.
    """

    axis: FigureAxis
    edges: Integers
    rows: Floats
    places: Integers
    low: Floats | None
    high: Floats | None
    bounds: Bounds


@dataclass(frozen=True, kw_only=True, eq=False)
class Rectangles:
    """Parts of a box of two columns.

    Args:
        axes: the columns.
        starts, stops: of each column (n,) the first cells, and those after the last.
        rows: (n,) consistent counts.
        bounds: of each column, what is shown first.
    """

    axes: tuple[FigureAxis, FigureAxis]
    starts: Sequence[Integers]
    stops: Sequence[Integers]
    rows: Integers
    bounds: tuple[Bounds, Bounds]

    @property
    def density(self) -> Floats:
        """(n,) rows per unit of one axis and of the other; NaN of parts without rows."""
        area = np.ones(len(self.rows))
        for axis, start, stop in zip(self.axes, self.starts, self.stops, strict=True):
            area *= (axis.at(stop) - axis.at(start)) / axis.unit[1]
        return np.where(self.rows > 0, self.rows / area, np.nan)


@dataclass(frozen=True, kw_only=True, eq=False)
class DensityGrid:
    """The rows of two columns in rectangles of one size.

    Args:
        axes: the columns.
        edges: of each (m + 1,) rising boundaries of cells.
        rows: (m, m') consistent counts, spread evenly in their parts.
    """

    axes: tuple[FigureAxis, FigureAxis]
    edges: tuple[Integers, Integers]
    rows: Floats


@dataclass(frozen=True, kw_only=True)
class Densities:
    """What is drawn of a released box whose counts are not all zero.

    Args:
        tree: the box.
    """

    tree: ReleasedHypercube

    def axis(self, place: int) -> FigureAxis:
        """One of its columns."""
        return FigureAxis(domain=self.tree.question.domain.axes[place])

    def histogram(self, place: int, most: int) -> Histogram:
        """The density of a column.

        Args:
            place: of the column.
            most: how many steps.
        """
        axis = self.axis(place)
        edges, rows = self.tree.partition.below(place)
        start, stop = axis.window(edges, rows)
        kept = _thinned(edges, most)
        below = interpolated(kept, edges, rows)
        low, high = axis.at(np.array([start, stop]))
        return Histogram(
            axis=axis, edges=kept, rows=np.diff(below), bounds=(float(low), float(high))
        )

    def curve(self, most: int, most_known: int) -> Curve:
        """The CDF of the only column.

        Args:
            most: how many points.
            most_known: at how many of them there is an interval.
        """
        axis = self.axis(0)
        edges, rows = self.tree.partition.below(0)
        start, stop = axis.window(edges, rows)
        kept = _thinned(edges, most)
        places = np.unique(np.linspace(0, len(kept) - 1, min(len(kept), most_known)).astype(int))
        low = high = None
        if self.tree.partition.variances is not None:
            answers = [self.tree.box_count([(0, int(kept[each]))], "") for each in places]
            low = np.array([answer.ci_low for answer in answers])
            high = np.array([answer.ci_high for answer in answers])
        ends = axis.at(np.array([start, stop]))
        return Curve(
            axis=axis,
            edges=kept,
            rows=interpolated(kept, edges, rows),
            places=places,
            low=low,
            high=high,
            bounds=(float(ends[0]), float(ends[1])),
        )

    def rectangles(self, most: int) -> Rectangles:
        """Return the leaf regions of a box of two columns.

        Args:
            most: how many; regions with the smallest counts are merged, as are all regions that
                are too small to be seen.
        """
        axes = self.axis(0), self.axis(1)
        bounds, seen = [], []
        for place, axis in enumerate(axes):
            start, stop = axis.window(*self.tree.partition.below(place))
            low, high = axis.at(np.array([start, stop]))
            bounds.append((float(low), float(high)))
            seen.append((stop - start) / axis.domain.cells / _SEEN)
        starts, stops, counts = self.tree.partition.coarsened(most, self._seen_depth(seen))
        return Rectangles(
            axes=axes, starts=starts, stops=stops, rows=counts, bounds=(bounds[0], bounds[1])
        )

    def _seen_depth(self, seen: Sequence[float]) -> int:
        """The first depth whose nodes are no wider than what is seen of each column."""
        domain = self.tree.question.domain
        return next(
            depth
            for depth in range(domain.bits + 1)
            if depth == domain.bits
            or all(wide <= least for wide, least in zip(domain.widths(depth), seen, strict=True))
        )

    def grids(self, columns: int, most: int) -> Iterator[DensityGrid]:
        """The counts of every two of the first columns.

        Args:
            columns: how many.
            most: how many steps of a column.
        """
        axes = [self.axis(place) for place in range(columns)]
        edges = []
        for place, axis in enumerate(axes):
            start, stop = axis.window(*self.tree.partition.below(place))
            edges.append(halved_edges(start, stop, axis.domain.cells, most))
        found = self.tree.partition.grids(edges)
        for first, second in combinations(range(columns), 2):
            yield DensityGrid(
                axes=(axes[first], axes[second]),
                edges=(edges[first], edges[second]),
                rows=found[first, second],
            )


def _thinned(edges: Integers, most: int) -> Integers:
    """Boundaries, brought to multiples of a power of two until they are few: narrow steps are
    joined, and wide ones stay."""
    kept, width = edges, 1
    while len(kept) > most + 1:
        width *= 2
        kept = np.unique(np.minimum(-(-kept // width) * width, edges[-1]))
    return kept
