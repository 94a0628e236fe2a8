"""Random rectangles of two columns: the adaptive partition against other ways to release them.

Run as ``python -m benchmarks.rectangles [--write docs/synthetic-accuracy.md] [--releases 20]``. A
data set is an exact table of two columns; a mechanism answers with a table of the same cells, in
rows, whose sums are its answers. Errors are measured on random rectangles, in rows times epsilon:
the mean of their absolute values over rectangles and releases, with its Monte Carlo error over
releases.

Peers, reimplemented from their papers: the grids of `benchmarks.grids`, and the quadtree of
Cormode, Procopiuc, Srivastava, Shen, Yu 2012 (all cells, geometric budgets, least squares). n is
known to all of them, also to this project's plans, as their guess.
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

from benchmarks import two_columns
from benchmarks.grids import adaptive_grid, uniform_grid
from benchmarks.two_columns import Data
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.hypercube.domain import HypercubeDomain
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.ordered.integer import IntegerDomain
from dptrees.dpcore.partitions.adaptive_planner import plan_adaptive
from dptrees.dpcore.partitions.choices import PartitionChoices, PartitionSetting
from dptrees.dpcore.partitions.growth import GrowthRule
from dptrees.dpcore.partitions.measurement import CodeCounts, NodeNoise
from dptrees.dpcore.partitions.mechanism import EstimatedTree, PartitionMechanism
from dptrees.dpcore.partitions.plan import Estimation, PartitionPlan
from dptrees.dpcore.partitions.planner import plan_partition, plan_privtree
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW

SHARED_DATA = Path("../shared/data")
# n epsilon; n is that of the data.
PRODUCTS = (100, 1_000, 10_000, 100_000)
# Of the sides of a rectangle, at most, of the columns' extent.
SIZES = {"small": 1 / 16, "middle": 1 / 4, "large": 1.0}
RECTANGLES = 2_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Rectangles:
    """Random rectangles of cells.

    Args:
        corners: (m, 4) first and last cell + 1 of the first column, then of the second.
    """

    corners: Integers

    @classmethod
    def drawn(cls, shape: tuple[int, ...], most: float, rng: np.random.Generator) -> Rectangles:
        """Sides uniform from one cell to a share of the column, anywhere."""
        sides = []
        for cells in shape:
            width = rng.integers(1, max(1, round(cells * most)) + 1, RECTANGLES)
            first = rng.integers(0, cells - width + 1)
            sides += [first, first + width]
        return cls(corners=np.stack(sides, axis=1))

    def sums(self, table: Floats) -> Floats:
        """(m,) of a table of cells."""
        below = np.zeros((table.shape[0] + 1, table.shape[1] + 1))
        below[1:, 1:] = table.cumsum(axis=0).cumsum(axis=1)
        a, b, c, d = self.corners.T
        found: Floats = below[b, d] - below[a, d] - below[b, c] + below[a, c]
        return found


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


def _table(
    domain: HypercubeDomain, found: EstimatedTree, shape: tuple[int, ...], *, counts: bool
) -> Floats:
    """The leaves spread evenly over their cells."""
    change = np.zeros((shape[0] + 1, shape[1] + 1))
    for level, estimates, whole, ends in zip(
        found.tree.levels, found.estimates, found.counts, found.tree.leaves(), strict=True
    ):
        own = ends & domain.has_cells(level.depth, level.nodes)
        starts, stops = domain.ranges(level.depth, level.nodes[own])
        values = (whole if counts else estimates.estimate)[own]
        dense = values / ((stops[0] - starts[0]) * (stops[1] - starts[1]))
        for first, sign in ((starts[0], 1.0), (stops[0], -1.0)):
            for second, other in ((starts[1], 1.0), (stops[1], -1.0)):
                np.add.at(change, (first, second), sign * other * dense)
    found_table: Floats = change.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
    return found_table


def released(make: Callable[[Data, HypercubeDomain, float], PartitionMechanism]) -> Release:
    """A mechanism of this project, by its plan."""

    def release(data: Data, epsilon: float, rng: np.random.Generator) -> dict[str, Floats]:
        domain = _domain(data)
        plan = make(data, domain, epsilon)
        one, two = np.nonzero(data.counts)
        columns = {"x0": pa.array(one), "x1": pa.array(two)}
        codes = domain.codes(columns) >> np.uint64(domain.bits - plan.depths[-1])
        nodes, inverse = np.unique(codes, return_inverse=True)
        own = np.zeros(len(nodes), np.int64)
        np.add.at(own, inverse, data.counts[one, two])
        noise = NodeNoise(
            tree="t",
            counts=CodeCounts.from_codes(plan.depths[-1], nodes, own),
            laws=plan.laws,
            source=NoiseSource(
                key=ReleaseKey(rng.bytes(32)), release="r", spec_digest=b"", global_digest=b""
            ),
        )
        found = plan.estimated(domain, noise)
        return {
            name: _table(domain, found, data.counts.shape, counts=name == "count")
            for name in ("count", "estimate")
        }

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
        name: Rectangles.drawn(data.counts.shape, most, np.random.default_rng(3))
        for name, most in SIZES.items()
    }
    truth = {name: own.sums(data.counts) for name, own in rectangles.items()}
    errors: dict[tuple[str, str], list[float]] = {}
    for _ in range(releases):
        for read, table in MECHANISMS[mechanism](data, epsilon, rng).items():
            for name, own in rectangles.items():
                off = np.abs(own.sums(table) - truth[name]).mean() * epsilon
                errors.setdefault((read, name), []).append(float(off))
    for (read, name), each in errors.items():
        known = Measured(mean=float(np.mean(each)), error=float(np.std(each) / len(each) ** 0.5))
        yield (data.name, f"{mechanism}, {read}" if read else mechanism, product, name), known


def table_lines(
    found: dict[Key, Measured], names: Sequence[str], others: Sequence[str] = ()
) -> Iterator[str]:
    """Geometric means over the data sets and sizes first, and over others, then each by itself.

    Where there are others, these means relative to the means of `OURS` come before all.
    """
    rows = list(dict.fromkeys(row for _, row, _, _ in found))
    heads = [f"n epsilon = {product:,}" for product in PRODUCTS]
    if others:
        yield from _lines(
            [f"over those of {OURS}", *heads],
            [row for row in rows if row != OURS],
            lambda row, place: ", ".join(
                f"{_mean(found, sets, row, place).mean / _mean(found, sets, OURS, place).mean:.2f}"
                for sets in (names, others)
            ),
        )
        yield ""
    for title, sets in (("geometric mean", names), (f"of {', '.join(others)}", others)):
        if sets:
            yield from _lines(
                [title, *heads],
                rows,
                lambda row, place, sets=sets: str(  # type: ignore[misc]
                    _mean(found, sets, row, place)
                ),
            )
            yield ""
    for name in names:
        for size in SIZES:
            yield from _lines(
                [f"{name}, {size}", *heads],
                rows,
                lambda row, place, name=name, size=size: str(  # type: ignore[misc]
                    found[name, row, PRODUCTS[place], size]
                ),
            )
            yield ""


def _mean(found: dict[Key, Measured], names: Sequence[str], row: str, place: int) -> Measured:
    own = [found[name, row, PRODUCTS[place], size] for name in names for size in SIZES]
    mean = math.exp(np.mean([math.log(each.mean) for each in own]))
    # Of logarithms, which are independent of one another but for the sizes of one release.
    error = mean * math.sqrt(sum((each.error / each.mean) ** 2 for each in own)) / len(own)
    return Measured(mean=mean, error=error)


def _lines(heads: list[str], rows: list[str], cell: Callable[[str, int], str]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"| --- |{' ---: |' * len(PRODUCTS)}"
    for row in rows:
        yield f"| {row} | {' | '.join(cell(row, place) for place in range(len(PRODUCTS)))} |"


def main() -> int:
    """Print the tables, or write them between the marks of a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", type=int, default=20)
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help="a folder with adult.csv")
    parser.add_argument("--write", type=Path, help="a page with the marks of the tables")
    arguments = parser.parse_args()
    sets, others = list(two_columns.known(arguments.data)), list(two_columns.others())
    found: dict[Key, Measured] = {}
    for data in (*sets, *others):
        for mechanism in MECHANISMS:
            for product in PRODUCTS:
                found |= measured(data, mechanism, product, arguments.releases)
    names = [[data.name for data in some] for some in (sets, others)]
    text = "\n".join(table_lines(found, *names)).rstrip()
    if arguments.write is None:
        print(text)
        return 0
    page = arguments.write.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    arguments.write.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    return 0


BEGIN, END = "<!-- rectangles: begin -->", "<!-- rectangles: end -->"


if __name__ == "__main__":
    sys.exit(main())
