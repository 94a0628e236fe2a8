"""Expected distances of generators of synthetic rows from their data, by independent runs.

    python -m benchmarks.synthetic [--write docs/accuracy.md]
    python -m benchmarks.synthetic --predicted [--write docs/synthetic-accuracy.md]

W1 in one column is the integral of |F - G| (Vallender), exact for a sample against a partition. In
more columns it is an upper bound of W1 by a tree metric that dominates l-infinity.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.harness import show_page, table
from benchmarks.reproduction.simulation import Mean
from benchmarks.synthetic.generators import (
    GENERATORS,
    Partition,
    box,
    box_intervals,
    depth,
    encode_points,
    planned,
    real,
)
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.boxes.question import HypercubeQuestion, predicted_distance
from dptrees.dpcore.papers.holland import multifractal

Place = TypeVar("Place")
Answer = TypeVar("Answer")
Source = Callable[[np.random.Generator, int, int], Floats]
COLUMNS = (1, 2, 5)
BETA = "Beta(2, 8)"


def uniform(rng: np.random.Generator, rows: int, dimensions: int) -> Floats:
    """(rows, d) uniform points: the flattest data, where a tree has nothing to find."""
    return rng.random((rows, dimensions))


def beta(rng: np.random.Generator, rows: int, dimensions: int) -> Floats:
    """(rows, d) points with independent columns of the law Beta(2, 8)."""
    return rng.beta(2, 8, (rows, dimensions))


def skewed(rng: np.random.Generator, rows: int, dimensions: int) -> Floats:
    """(rows, d) points of the multifractal law of Holland et al. with B = .8."""
    return multifractal(rng.random, rows, dimensions, skew=0.8)


SOURCES: dict[str, Source] = {
    "Beta(2, 8)": beta,
    "multifractal, B = .8": skewed,
    "uniform": uniform,
}


# --- distances ---


def marginal(partition: Partition, column: int) -> tuple[Floats, Floats]:
    """The distribution function of a column: (e,) edges, (e,) its values there, linear between."""
    low, high = partition.lower[:, column], partition.upper[:, column]
    edges, place = np.unique(np.concatenate((low, high)), return_inverse=True)
    density = partition.probability / (high - low)
    steps = np.bincount(place, np.concatenate((density, -density)), edges.size)
    rises = np.maximum(np.cumsum(steps)[:-1], 0) * np.diff(edges)
    cumulative = np.concatenate(([0.0], np.cumsum(rises)))
    return edges, cumulative / cumulative[-1]


def line_distance(sample: Floats, partition: Partition) -> float:
    """W1 of (n, 1) points and a partition of [0, 1], exact but for rounding.

    >>> whole = Partition(lower=np.zeros((1, 1)), upper=np.ones((1, 1)), mass=np.ones(1))
    >>> line_distance(np.array([[0.5]]), whole)
    0.25
    """
    if sample.shape[1] != 1 or partition.dimensions != 1:
        raise ValueError("the distance on a line is of one column")
    values = np.sort(sample[:, 0])
    edges, cumulative = marginal(partition, 0)
    points = np.sort(np.concatenate((values, edges)))
    below = np.searchsorted(values, points[:-1], side="right") / values.size
    released = np.interp(points, edges, cumulative)
    left, right = released[:-1] - below, released[1:] - below
    crossing = left * right < 0
    spread = np.where(crossing, np.abs(left - right), 1.0)
    mean = np.where(crossing, (left**2 + right**2) / (2 * spread), np.abs(left + right) / 2)
    return float(mean @ np.diff(points))


def tree_bound(sample: Floats, partition: Partition, *, rounds: int | None = None) -> float:
    """An upper bound of W1 in l-infinity, exact in what it bounds by: no sampling.

    Points whose last common node has sides 2^-j are at most 2^-j apart. The tree with edges of
    2^-(j+1) above the cells of side 2^-j, j = 1, ..., J, puts leaves 2^-j - 2^-J apart, so

        W1 <= sum_j 2^-j * 1/2 sum_cells |P(cell) - Q(cell)| + 2^-J.

    Args:
        sample: (n, d) points.
        partition: whose boxes are nodes of the binary midpoint hierarchy.
        rounds: J; by default the first where the cells are more than the points.
    """
    dimensions = partition.dimensions
    most = depth(dimensions) // dimensions
    if rounds is None:
        rounds = min(most, 1 + int(np.ceil(np.log2(len(sample)) / dimensions)))
    first, last = box_intervals(partition)
    order = np.argsort(first)
    edges = np.stack((first[order], last[order]), axis=1).ravel()
    ends = np.cumsum(partition.probability[order])
    cumulative = np.stack((ends - partition.probability[order], ends), axis=1).ravel()
    codes = np.sort(encode_points(sample))
    total = 2.0**-rounds
    for level in range(1, rounds + 1):
        bits = level * dimensions
        cells, counts = np.unique(codes >> depth(dimensions) - bits, return_counts=True)
        mass = np.interp((cells + 1) / 2.0**bits, edges, cumulative)
        mass -= np.interp(cells / 2.0**bits, edges, cumulative)
        apart = np.abs(mass - counts / codes.size).sum() + max(0.0, 1 - mass.sum())
        total += 2.0**-level * apart / 2
    return float(total)


# --- the study ---


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much is run.

    Attributes:
        sizes: n and epsilon of the main tables.
        runs: of a table cell, for up to 10,000 rows; a third for ten times as many, and so on.
    """

    sizes: tuple[tuple[int, float], ...]
    runs: int

    def run_count(self, rows: int) -> int:
        """Return the number of runs for a size: at least 3."""
        return max(3, self.runs // 3 ** max(0, len(str(rows)) - 5))


LONG = Extent(sizes=((1_000, 1.0), (10_000, 1.0), (100_000, 1.0)), runs=8)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A cell of a main table, for all generators."""

    source: str
    rows: int
    epsilon: float
    columns: int
    runs: int


def distance(sample: Floats, partition: Partition) -> float:
    """W1 of one column; the tree bound of more."""
    if sample.shape[1] == 1:
        return line_distance(sample, partition)
    return tree_bound(sample, partition)


def streams(*place: int | str) -> tuple[np.random.Generator, np.random.Generator]:
    """The data's and the noise's random numbers of a run, always the same."""
    words = [
        each if isinstance(each, int) else int.from_bytes(each.encode(), "big") for each in place
    ]
    data, noise = np.random.SeedSequence(words).spawn(2)
    return np.random.default_rng(data), np.random.default_rng(noise)


def run_case(case: Case) -> dict[str, Mean]:
    """Return the distance for each generator that supports the case."""
    chosen = [each for each in GENERATORS if each.columns >= case.columns]
    found: dict[str, list[float]] = {each.name: [] for each in chosen}
    for run in range(case.runs):
        data, noise = streams(case.source, case.rows, case.columns, run)
        points = SOURCES[case.source](data, case.rows, case.columns)
        for generator in chosen:
            partition = generator.release(points, case.epsilon, noise)
            found[generator.name].append(distance(points, partition))
    return {name: Mean.of(np.asarray(values)) for name, values in found.items()}


def short_number(value: float) -> str:
    """Three significant digits."""
    return f"{value:.3g}" if value >= 1e-4 or value == 0 else f"{value:.2e}"


def shown(mean: Mean) -> str:
    """A mean and its standard error."""
    return f"{short_number(mean.value)} ± {mean.standard_error:.1g}"


def mapped(function: Callable[[Place], Answer], cases: Sequence[Place]) -> list[Answer]:
    """On all cores; the answers do not depend on how many there are."""
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(function, cases))


# The default, and the published mechanisms beside it.
SHOWN = ("planned", "PrivTree", "PMM", "SRRW", "PrivHP, k 64, sketch 1 x 512")


def main_table(extent: Extent) -> str:
    """Geometric means over the sources, in thousandths: sizes down, generators across."""
    places = list(itertools.product(COLUMNS, extent.sizes))
    cases = [
        Case(source=source, rows=n, epsilon=epsilon, columns=columns, runs=extent.run_count(n))
        for columns, (n, epsilon) in places
        for source in SOURCES
    ]
    found = dict(zip(cases, mapped(run_case, cases), strict=True))
    lines = []
    for columns, (n, epsilon) in places:
        size = (columns, n, epsilon)
        here = [found[at] for at in cases if (at.columns, at.rows, at.epsilon) == size]
        cells = [
            shown(_geometric_mean([each[name] for each in here])) if name in here[0] else "-"
            for name in SHOWN
        ]
        lines.append([f"{columns}; {n:,}, {epsilon:g}", *cells])
    return table(["columns; n, epsilon", *SHOWN], lines)


def _geometric_mean(means: Sequence[Mean]) -> Mean:
    """In thousandths."""
    value = 1000 * math.exp(float(np.mean([math.log(each.value) for each in means])))
    parts = [each.standard_error / each.value for each in means]
    return Mean(value=value, standard_error=value * math.hypot(*parts) / len(parts))


# --- what a plan predicts ---

PREDICTED_EXTENT = Extent(sizes=((1_000, 1.0), (10_000, 1.0)), runs=4)
PREDICTED = ("planned", "privhp", "privhp_paper", "privtree", "pmm")


def predicted_case(place: tuple[str, int, int, float, int]) -> list[tuple[float, bool]]:
    """Return what a plan predicts over what is measured, and whether that is in its range, of each
    source."""
    mechanism, columns, rows, epsilon, runs = place
    domain = box(columns)
    plan = planned(mechanism, domain, rows, epsilon)
    question = HypercubeQuestion(name="box", domain=domain, plan=plan)
    found = predicted_distance(question.held, domain, rows)
    if found is None:
        return []
    generator, ratios = real(mechanism, mechanism), []
    for source, draw in SOURCES.items():
        values = []
        for run in range(runs):
            data, noise = streams(source, rows, columns, run)
            points = draw(data, rows, columns)
            values.append(distance(points, generator.release(points, epsilon, noise)))
        mean = float(np.mean(values))
        ratios.append((found.typical / mean, found.least <= mean <= found.most))
    return ratios


def predicted_table(extent: Extent) -> str:
    """W1 as `dptrees plan` predicts it, over what is measured on the sources, which are others than
    it simulates."""
    places = [
        (mechanism, columns, rows, epsilon, extent.run_count(rows))
        for mechanism, columns, (rows, epsilon) in itertools.product(
            PREDICTED, COLUMNS, extent.sizes
        )
    ]
    found, lines = mapped(predicted_case, places), []
    for mechanism in (*PREDICTED, "all"):
        ratios = [
            pair
            for place, pairs in zip(places, found, strict=True)
            for pair in pairs
            if mechanism in (place[0], "all")
        ]
        off = np.array([ratio for ratio, _ in ratios])
        values = (math.exp(float(np.log(off).mean())), off.min(), off.max())
        within = sum(inside for _, inside in ratios)
        lines.append([mechanism, str(off.size), *(f"{value:.2f}" for value in values), str(within)])
    headers = ["mechanism", "cases", "geometric mean", "smallest", "largest", "in the range"]
    return table(headers, lines)


# --- the page ---


def main(arguments: list[str] | None = None) -> int:
    """Prints the tables or writes them between the marks of a page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.synthetic", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--predicted", action="store_true", help="only what plans predict")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page to write")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    if options.predicted:
        show_page(f"{predicted_table(PREDICTED_EXTENT)}\n", options.write, "predicted")
    else:
        show_page(f"{main_table(LONG)}\n", options.write, "w1")
    print(f"{time.perf_counter() - start:.0f} seconds", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
