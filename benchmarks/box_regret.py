"""What `mechanism: planned` costs beside the best mechanism of boxes, on public shapes.

    python -m benchmarks.box_regret [--columns 1 2 3 4] [--releases 3] [--measure epsilon]

measures the counts of every mechanism below on shapes of seven families, in one to four columns, at
several numbers of rows times epsilon, and prints for each mechanism its *regret*: its error over
the smallest of all mechanisms for the same shape and rows; the mean (geometric) and the worst, over
the families, of the mean over a family's shapes. Two shapes of each family were used to choose the
rules of the planners; the other two, *held out*, took no part in it.

An error is the geometric mean, over kinds of boxes, of the mean absolute error of random boxes, in
rows times epsilon: small, middle and large ones (sides up to 1/16, 1/4, all of a column; from three
columns on 1/4, 1/2, all), and ranges of one column. Epsilon is 1/10, rho the one whose noise for
one count has the same variance. Every plan has the number of rows as its guess.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import geometric_mean, public_noise
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.partition import CodeCounts, NodeNoise, Nodes
from dptrees.dpcore.boxes.plan import EstimatedTree, PartitionMechanism
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import ReleaseTerms, Share
from dptrees.pipelines.kinds.boxes import HypercubeTree

# Bits of each column, by the number of columns.
BITS = {1: (12,), 2: (8, 8), 3: (6, 6, 6), 4: (5, 5, 5, 5)}
PRODUCTS = (100, 1_000, 10_000, 100_000)
EPSILON = Fraction(1, 10)
BUDGETS = {
    Measure.EPSILON: Budget(measure=Measure.EPSILON, amount=EPSILON),
    Measure.RHO: Budget(measure=Measure.RHO, amount=EPSILON**2 / 4),
}
BOXES = 1_000
MECHANISMS: Mapping[str, Mapping[str, str]] = {
    "planned": {},
    "planned, for estimates": {"optimize_for": "estimates"},
    "privhp": {"mechanism": "privhp"},
    "privtree": {"mechanism": "privtree"},
}

# From the number of the shape, of columns and of rows, and generators of the shape and of the rows,
# to (n, d) points; all outside of 0 to 1 count at its ends.
Draw = Callable[[int, int, int, np.random.Generator, np.random.Generator], Floats]


def clusters(
    which: int, columns: int, rows: int, shape: np.random.Generator, rng: np.random.Generator
) -> Floats:
    """Gaussians of different weights and widths."""
    many = (6, 3, 12, 4)[which]
    least, most = ((0.02, 0.1), (0.05, 0.2), (0.005, 0.05), (0.01, 0.15))[which]
    centers = shape.uniform(0.15, 0.85, (many, columns))
    widths = shape.uniform(least, most, (many, columns))
    own = rng.choice(many, rows, p=shape.dirichlet(np.ones(many)))
    return centers[own] + widths[own] * rng.standard_normal((rows, columns))


def uniform(
    which: int, columns: int, rows: int, shape: np.random.Generator, rng: np.random.Generator
) -> Floats:
    """Evenly spread rows: everywhere, in a corner, in the middle, in two boxes."""
    points = rng.random((rows, columns))
    if which == 1:
        return points * 0.5
    if which == 2:
        return 0.3 + 0.4 * points
    if which == 3:
        points[:, 0] = points[:, 0] * 0.37 + 0.21 * (rng.random(rows) < 0.3)
    return points


def heavy_tailed(
    which: int, columns: int, rows: int, shape: np.random.Generator, rng: np.random.Generator
) -> Floats:
    """Most rows near 0, few far from it."""
    size = rows, columns
    if which == 0:
        return rng.beta(0.5, 8, size)
    if which == 1:
        return rng.lognormal(-3.0, 1.2, size)
    return rng.pareto(1.2, size) / 60 if which == 2 else np.abs(rng.standard_t(1.5, size)) / 30


def heaped(
    which: int, columns: int, rows: int, shape: np.random.Generator, rng: np.random.Generator
) -> Floats:
    """Most values are rounded to multiples, which are no powers of two, as a grid of heaps."""
    size = rows, columns
    base = rng.normal(0.4, 0.15, size) if which % 2 == 0 else rng.exponential(0.15, size)
    sides = np.exp2(np.array(BITS[columns]))
    cells = np.floor(base * sides)
    steps = ((10, 5, 4, 4), (16, 16, 8, 4), (12, 7, 3, 3), (5, 30, 4, 6))[which][:columns]
    rounded = rng.random(size) < (0.8, 0.95, 1.0, 0.6)[which]
    heaps = np.round(cells / np.array(steps)) * np.array(steps)
    return (np.where(rounded, heaps, cells) + 0.5) / sides


def diagonal(
    which: int, columns: int, rows: int, shape: np.random.Generator, rng: np.random.Generator
) -> Floats:
    """Rows near a diagonal, or a curve."""
    along = rng.random((rows, 1)) if which != 1 else rng.beta(2, 6, (rows, 1))
    falls = np.arange(columns) % 2 * (which >= 2) > 0
    points = np.where(falls, 1 - along, along)
    if which == 3:
        points = points ** np.arange(1, columns + 1)
    noise = (0.01, 0.03, 0.004, 0.05)[which]
    return points + noise * rng.standard_normal((rows, columns))


def sparse(
    which: int, columns: int, rows: int, shape: np.random.Generator, rng: np.random.Generator
) -> Floats:
    """Few points that hold all rows."""
    many = (40, 400, 15, 150)[which]
    points = shape.random((many, columns))
    weights = shape.pareto((1.0, 2.0, 3.0, 0.7)[which], many) + 0.1
    return points[rng.choice(many, rows, p=weights / weights.sum())]


def independent(
    which: int, columns: int, rows: int, shape: np.random.Generator, rng: np.random.Generator
) -> Floats:
    """Independent columns: skewed, of five values, normal, and near 0."""
    draws: tuple[Callable[[], Floats], ...] = (
        lambda: rng.beta(2, 8, rows),
        lambda: rng.integers(0, 5, rows) / 5 + 0.02,
        lambda: rng.normal(0.5, 0.1, rows),
        lambda: rng.random(rows) ** 3,
    )
    return np.stack([draws[(place + which) % 4]() for place in range(columns)], axis=1)


FAMILIES: Mapping[str, Draw] = {
    draw.__name__: draw
    for draw in (clusters, uniform, heavy_tailed, heaped, diagonal, sparse, independent)
}
PARTS = {"shapes of the rules": (0, 1), "held out": (2, 3)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Boxes:
    """Random boxes of cells.

    Args:
        sides: of each column (m,) the first cell, and the one after the last.
    """

    sides: tuple[tuple[Integers, Integers], ...]

    @classmethod
    def drawn(cls, shape: tuple[int, ...], most: float, *, one: bool = False) -> Boxes:
        """Sides uniform from one cell to a share of the column, anywhere; with `one` all but one
        column whole."""
        rng = np.random.default_rng(3)
        free, sides = rng.integers(0, len(shape), BOXES), []
        for column, cells in enumerate(shape):
            width = rng.integers(1, max(1, round(cells * most)) + 1, BOXES)
            first = rng.integers(0, cells - width + 1)
            if one:
                width = np.where(free == column, width, cells)
                first = np.where(free == column, first, 0)
            sides.append((first, first + width))
        return cls(sides=tuple(sides))

    def sums(self, table: Floats) -> Floats:
        """(m,) of a table of cells."""
        below = np.pad(table, [(1, 0)] * table.ndim)
        for axis in range(table.ndim):
            np.cumsum(below, axis=axis, out=below)
        total = np.zeros(len(self.sides[0][0]))
        for corner in np.ndindex(*(2,) * table.ndim):
            place = tuple(ends[end] for ends, end in zip(self.sides, corner, strict=True))
            total += (-1) ** (table.ndim - sum(corner)) * below[place]
        return total


@cache
def box_kinds(columns: int) -> dict[str, Boxes]:
    """The boxes that are measured."""
    shape = tuple(1 << bits for bits in BITS[columns])
    shares = (1 / 16, 1 / 4, 1.0) if columns <= 2 else (1 / 4, 1 / 2, 1.0)
    kinds = {name: Boxes.drawn(shape, most) for name, most in zip("sml", shares, strict=True)}
    return kinds if columns == 1 else kinds | {"one": Boxes.drawn(shape, 1.0, one=True)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """Rows of some columns.

    Args:
        cells: (n, d) of each row.
        seed: of the keys of its releases.
    """

    cells: Integers
    seed: tuple[int, ...]

    @classmethod
    def drawn(cls, family: str, which: int, columns: int, rows: int) -> Data:
        """Draw rows of a shape."""
        seed = [list(FAMILIES).index(family), which, columns]
        shape, rng = (np.random.default_rng([*seed, each]) for each in (0, rows))
        points = FAMILIES[family](which, columns, rows, shape, rng)
        sides = np.array([1 << bits for bits in BITS[columns]])
        cells = np.clip(np.floor(points * sides), 0, sides - 1).astype(np.int64)
        return cls(cells=cells, seed=(*seed, rows))

    @property
    def columns(self) -> int:
        return self.cells.shape[1]

    @cached_property
    def domain(self) -> HypercubeDomain:
        axes = tuple(
            IntegerDomain(column=f"x{place}", lower=0, upper=1 << bits)
            for place, bits in enumerate(BITS[self.columns])
        )
        return HypercubeDomain(axes=axes, depths=BITS[self.columns])

    @cached_property
    def codes(self) -> tuple[Nodes, Integers]:
        """The codes that rows touch, rising, and their counts."""
        arrays = {f"x{place}": pa.array(cells) for place, cells in enumerate(self.cells.T)}
        return np.unique(self.domain.codes(arrays), return_counts=True)

    @cached_property
    def table(self) -> Floats:
        """The exact counts of the cells."""
        table = np.zeros([1 << bits for bits in BITS[self.columns]])
        np.add.at(table, tuple(self.cells.T), 1)
        return table


def released(data: Data, measure: Measure, keys: Mapping[str, str], key: bytes) -> Floats:
    """The counts of a release, spread evenly over the cells of each part."""
    domain = {
        "kind": "hypercube",
        "columns": [
            {"column": axis.column, "type": "integer", "lower": 0, "upper": axis.cells}
            for axis in data.domain.axes
        ],
    }
    section = HypercubeTree.model_validate(
        {"name": "t", "domain": domain, "rows": len(data.cells), **keys}
    )
    share, terms = Share(budget=BUDGETS[measure]), ReleaseTerms(unit=ADD_REMOVE_ROW)
    plan = section.workload().planned(share, terms).plan
    found = estimated(plan, data.domain, *data.codes, key)
    return spread(data.domain, found, found.counts)


def estimated(
    plan: PartitionMechanism, domain: HypercubeDomain, codes: Nodes, counts: Integers, key: bytes
) -> EstimatedTree:
    """Release exact counts of the codes of cells, under a key that is known."""
    codes = codes >> np.uint64(domain.bits - plan.depths[-1])
    nodes, inverse = np.unique(codes, return_inverse=True)
    own = np.zeros(len(nodes), np.int64)
    np.add.at(own, inverse, counts)
    noise = NodeNoise(
        tree="t",
        counts=CodeCounts.from_codes(plan.depths[-1], nodes, own),
        laws=plan.laws,
        source=public_noise(key, "r"),
    )
    return plan.estimated(domain, noise)


def spread(domain: HypercubeDomain, found: EstimatedTree, values: Sequence[Any]) -> Floats:
    """Spread values of the nodes of each level, where these are parts, evenly over their cells."""
    shape = tuple(axis.cells + 1 for axis in domain.axes)
    change = np.zeros(math.prod(shape))
    ends = found.tree.leaves()
    for level, each, parts in zip(found.tree.levels, values, ends, strict=True):
        own = parts & domain.has_cells(level.depth, level.nodes)
        ranges = np.stack(domain.ranges(level.depth, level.nodes[own]))
        dense = each[own] / np.prod(ranges[1] - ranges[0], axis=0)
        for corner in np.ndindex(*(2,) * len(shape)):
            places = [ranges[end, column] for column, end in enumerate(corner)]
            sign = (-1) ** sum(corner)
            np.add.at(change, np.ravel_multi_index(places, shape), sign * dense)
    table = change.reshape(shape)
    for axis in range(len(shape)):
        np.cumsum(table, axis=axis, out=table)
    return table[(slice(0, -1),) * len(shape)]


def measure_shape(data: Data, measure: Measure, releases: int) -> dict[str, float]:
    """Return the error of each mechanism, in rows times epsilon."""
    kinds, result = box_kinds(data.columns), {}
    exact = {name: boxes.sums(data.table) for name, boxes in kinds.items()}
    for name, keys in MECHANISMS.items():
        if measure is Measure.RHO and name == "privtree":
            continue
        errors: dict[str, list[float]] = {kind: [] for kind in kinds}
        rng = np.random.default_rng(data.seed)  # one key for all mechanisms
        for _ in range(releases):
            table = released(data, measure, keys, rng.bytes(32))
            for kind, boxes in kinds.items():
                errors[kind].append(float(np.abs(boxes.sums(table) - exact[kind]).mean()))
        result[name] = float(EPSILON) * geometric_mean(
            [math.fsum(e) / releases for e in errors.values()]
        )
    return result


def table_lines(columns: int, measure: Measure, releases: int, part: str) -> Iterator[str]:
    """Yield one table: of each mechanism the error, and the mean and the worst regret."""
    yield f"| {columns} columns, {part} | {' | '.join(f'{each:,}' for each in PRODUCTS)} |"
    yield "|---" + "|---:" * len(PRODUCTS) + "|"
    found: dict[tuple[str, int], list[dict[str, Any]]] = {
        (family, product): [
            measure_shape(
                Data.drawn(family, which, columns, round(product / EPSILON)), measure, releases
            )
            for which in PARTS[part]
        ]
        for family in FAMILIES
        for product in PRODUCTS
    }
    for name in next(iter(found.values()))[0]:
        cells = []
        for product in PRODUCTS:
            own = [shapes for (_, other), shapes in found.items() if other == product]
            regrets = [geometric_mean([e[name] / min(e.values()) for e in each]) for each in own]
            error = geometric_mean([each[name] for shapes in own for each in shapes])
            cells.append(f"{error:.3g}; {geometric_mean(regrets):.2f}, {max(regrets):.2f}")
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--columns", type=int, nargs="+", choices=BITS, default=list(BITS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--releases", type=int, default=3)
    parser.add_argument("--measure", choices=[each.value for each in Measure], default="epsilon")
    chosen = parser.parse_args()
    for columns in chosen.columns:
        for part in chosen.parts:
            print("", flush=True)
            for line in table_lines(columns, Measure(chosen.measure), chosen.releases, part):
                print(line, flush=True)


if __name__ == "__main__":
    main()
