"""Expected distances of generators from their data, by independent runs, in Markdown.

The last table has what each choice of a grown tree is worth: distances over the distances of PMM,
one by one.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from benchmarks.harness import table
from benchmarks.reproduction.simulation import Mean
from benchmarks.synthetic import bounds, measures
from benchmarks.synthetic.bounds import level_budgets
from benchmarks.synthetic.generators import (
    GENERATORS,
    PrivHP,
    SketchSize,
    effective_depth,
    grown_steps,
    pmm_release,
)
from benchmarks.synthetic.grown_tree import (
    ExactCounts,
    Partition,
    Rule,
    Step,
    above_noise,
    everything,
    grow,
    largest,
    least_squares,
)
from benchmarks.synthetic.grown_tree import depth as deepest
from benchmarks.synthetic.sources import SOURCES, multifractal
from dptrees.dpcore.arrays import Floats

# Of PMM, one column of Beta(2, 8), epsilon 1: rows and expected W1.
KNOWN = {1_000: 0.0113, 4_000: 0.0029, 8_000: 0.0017}
Place = TypeVar("Place")
Answer = TypeVar("Answer")

COLUMNS = (1, 2, 5)
# Rows of each side of an assignment.
TRANSPORTED = 1000
MAIN_SOURCES = ("Beta(2, 8)", "multifractal, B = .8", "uniform")


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much is run.

    Attributes:
        sizes: n and epsilon of the main tables.
        runs: of a table cell, for up to 10,000 rows; a third for ten times as many, and so on.
        rows: of the tables at one size.
    """

    sizes: tuple[tuple[int, float], ...]
    runs: int
    rows: int

    def run_count(self, rows: int) -> int:
        """Return the number of runs for a size: at least 3."""
        return max(3, self.runs // 3 ** max(0, len(str(rows)) - 5))


SHORT = Extent(sizes=((1_000, 1.0), (10_000, 1.0), (100_000, 0.1)), runs=8, rows=10_000)
LONG = Extent(
    sizes=(
        (1_000, 1.0),
        (10_000, 0.1),
        (10_000, 1.0),
        (100_000, 0.1),
        (100_000, 1.0),
        (1_000_000, 0.1),
        (1_000_000, 1.0),
    ),
    runs=24,
    rows=100_000,
)


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
        return measures.line_distance(sample, partition)
    return measures.tree_bound(sample, partition)


def streams(*place: int | str) -> tuple[np.random.Generator, np.random.Generator]:
    """The data's and the noise's random numbers of a run, always the same."""
    words = [
        each if isinstance(each, int) else int.from_bytes(each.encode(), "big") for each in place
    ]
    data, noise = np.random.SeedSequence(words).spawn(2)
    return np.random.default_rng(data), np.random.default_rng(noise)


def run_case(case: Case) -> dict[str, tuple[Mean, float]]:
    """Return for each generator that supports the case: the distance, and the mean bytes of
    state."""
    chosen = [each for each in GENERATORS if each.columns >= case.columns]
    found: dict[str, list[tuple[float, int]]] = {each.name: [] for each in chosen}
    for run in range(case.runs):
        data, noise = streams(case.source, case.rows, case.columns, run)
        points = SOURCES[case.source](data, case.rows, case.columns)
        for generator in chosen:
            released = generator.release(points, case.epsilon, noise)
            found[generator.name].append(
                (distance(points, released.partition), released.state_bytes)
            )
    return {
        name: (_mean([each for each, _ in runs]), float(np.mean([size for _, size in runs])))
        for name, runs in found.items()
    }


def _mean(values: Sequence[float]) -> Mean:
    return Mean.of(np.asarray(values, np.float64))


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


# --- the main tables ---


def main_tables(extent: Extent) -> str:
    """For every number of columns and source: sizes down, generators across."""
    cases = [
        Case(
            source=source, rows=rows, epsilon=epsilon, columns=columns, runs=extent.run_count(rows)
        )
        for columns, source, (rows, epsilon) in itertools.product(
            COLUMNS, MAIN_SOURCES, extent.sizes
        )
    ]
    found = dict(zip(cases, mapped(run_case, cases), strict=True))
    parts = []
    for columns in COLUMNS:
        measure = "W1" if columns == 1 else "the tree bound of W1"
        parts.append(f"### {columns} column{'s' * (columns > 1)}: {measure}")
        for source in MAIN_SOURCES:
            here = [case for case in cases if (case.columns, case.source) == (columns, source)]
            parts += [f"{source}:", _error_table(here, found)]
        first = [
            case for case in cases if (case.columns, case.source) == (columns, MAIN_SOURCES[0])
        ]
        parts += [f"Bytes of state, {MAIN_SOURCES[0]}:", _size_table(first, found)]
    parts += ["### Where PMM's figures are known", known_table(extent)]
    parts += ["### The bounds of the papers", _bounds_table(extent)]
    return "\n\n".join(parts)


def known_table(extent: Extent) -> str:
    """One column of Beta(2, 8) at epsilon 1, beside .0113, .0029 and .0017 of PMM."""
    cases = [
        Case(source=MAIN_SOURCES[0], rows=rows, epsilon=1.0, columns=1, runs=2 * extent.runs)
        for rows in KNOWN
    ]
    found = dict(zip(cases, mapped(run_case, cases), strict=True))
    names = [name for name in _names(cases[0]) if name not in ("uniform", "SRRW")]
    rows = [
        [
            f"{case.rows:,}",
            f"{KNOWN[case.rows]:g}",
            *(shown(found[case][name][0]) for name in names),
        ]
        for case in cases
    ]
    return table(["n", "PMM, known", *names], rows)


Found = dict[Case, dict[str, tuple[Mean, float]]]


def _names(case: Case) -> list[str]:
    return [each.name for each in GENERATORS if each.columns >= case.columns]


def _error_table(cases: Sequence[Case], found: Found) -> str:
    rows = []
    for case in cases:
        values = found[case]
        best = min(mean.value for mean, _ in values.values())
        cells = [shown(values[name][0]) for name in _names(case)]
        marked = [
            f"**{cell}**" if values[name][0].value <= 1.1 * best else cell
            for name, cell in zip(_names(case), cells, strict=True)
        ]
        rows.append([f"{case.rows:,}, {case.epsilon:g}", *marked])
    return table(["n, epsilon", *_names(cases[0])], rows)


def _size_table(cases: Sequence[Case], found: Found) -> str:
    rows = [
        [
            f"{case.rows:,}, {case.epsilon:g}",
            *(f"{found[case][name][1]:,.0f}" for name in _names(case)),
        ]
        for case in cases
    ]
    return table(["n, epsilon", *_names(cases[0])], rows)


def _bounds_table(extent: Extent) -> str:
    rows = []
    for columns, (n, epsilon) in itertools.product(COLUMNS, extent.sizes):
        depth = effective_depth(n, epsilon)
        k, width = 64, 512
        terms = bounds.theorem3(
            n, epsilon, dimensions=columns, k=k, depth=depth, width=width, skew=0.8
        )
        rate = bounds.corollary1(n, epsilon, dimensions=columns, k=k, width=width, skew=0.8)
        values = (
            bounds.pmm_rate(n, epsilon, dimensions=columns),
            bounds.srrw_rate(n, epsilon, dimensions=columns),
            bounds.smooth_rate(n, epsilon, dimensions=columns, order=1),
            rate,
            terms.total,
        )
        rows.append([f"{columns}, {n:,}, {epsilon:g}", *map(short_number, values)])
    headers = ["d, n, epsilon", "PMM's rate", "SRRW's rate", "Smooth's rate, K = 1"]
    return table([*headers, "Corollary 1's rate", "Theorem 3 with constants"], rows)


# --- PrivHP's parameters ---


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """A row of the table of PrivHP's parameters."""

    columns: int
    k: int
    sketch: SketchSize | None
    skew: float
    rows: int
    runs: int

    @property
    def mechanism(self) -> PrivHP:
        """At epsilon = 1."""
        return PrivHP(k=self.k, depth=effective_depth(self.rows, 1.0), sketch=self.sketch)


def run_parameters(case: Parameters) -> Mean:
    """The distance of PrivHP from multifractal data at epsilon = 1."""
    found = []
    for run in range(case.runs):
        data, noise = streams("parameters", case.rows, case.columns, run)
        points = multifractal(data, case.rows, case.columns, skew=case.skew)
        found.append(distance(points, case.mechanism.release(points, 1.0, noise)))
    return _mean(found)


def parameter_tables(extent: Extent) -> str:
    """W1 of PrivHP against k, w, j and the skew, one at a time, with Theorem 3 beside it."""
    usual = SketchSize(rows=1, width=512)
    widths = [SketchSize(rows=1, width=each) for each in (64, 512, 4096)]
    choices = [
        *((k, usual, 0.8) for k in (8, 32, 64, 128, 512)),
        *((64, each, 0.8) for each in (*widths, None)),
        *((64, SketchSize(rows=rows, width=512), 0.8) for rows in (2, 3, 5)),
        *((64, usual, skew) for skew in (0.5, 0.65, 0.95)),
        *((64, None, skew) for skew in (0.5, 0.65, 0.95)),
    ]
    cases = [
        Parameters(
            columns=d,
            k=k,
            sketch=sketch,
            skew=skew,
            rows=extent.rows,
            runs=extent.run_count(extent.rows),
        )
        for d in (1, 2)
        for k, sketch, skew in dict.fromkeys(choices)
    ]
    rows = []
    for case, mean in zip(cases, mapped(run_parameters, cases), strict=True):
        sketch = case.sketch
        terms = bounds.theorem3(
            case.rows,
            1.0,
            dimensions=case.columns,
            k=case.k,
            depth=case.mechanism.depth,
            width=sketch.width if sketch else float("inf"),
            hash_rows=sketch.rows if sketch else 1,
            skew=case.skew,
        )
        size = f"{sketch.width}, {sketch.rows}" if sketch else "exact counts"
        state = f"{case.mechanism.state_bytes:,}" if sketch else "-"
        label = f"{case.columns}, {case.k}, {size}, {case.skew:g}"
        rows.append([label, shown(mean), short_number(terms.total), state])
    return table(["d, k, w and j, B", "measured", "Theorem 3", "bytes of state"], rows)


# --- other measures ---


def run_measures(case: tuple[int, int, int]) -> dict[str, list[float]]:
    """All measures of all generators on one run: (columns, rows, run)."""
    columns, rows, run = case
    data, noise = streams("measures", rows, columns, run)
    points = SOURCES["multifractal, B = .8"](data, rows, columns)
    size = min(TRANSPORTED, rows)
    chosen = points[data.choice(rows, size, replace=False)]
    boxes = measures.random_boxes(data, 500, columns)
    found = {}
    for generator in GENERATORS:
        if generator.columns < columns:
            continue
        partition = generator.release(points, 1.0, noise).partition
        sample = partition.sample(noise, size)
        errors = measures.box_errors(points, partition, boxes)
        found[generator.name] = [
            measures.transport_distance(chosen, sample),
            measures.sliced_distance(
                points, partition.sample(noise, rows), rng=noise, directions=20
            ),
            measures.kolmogorov_smirnov(points, partition),
            float(errors.mean()),
            float(errors.max()),
        ]
    other = points[data.choice(rows, size, replace=False)]
    found["the data itself"] = [measures.transport_distance(chosen, other), 0.0, 0.0, 0.0, 0.0]
    return found


def measure_tables(extent: Extent) -> str:
    """Other measures at one size, in one table."""
    rows, runs = min(extent.rows, 20_000), max(4, extent.runs // 4)
    headers = ["d, generator", "transport of 1,000 rows", "sliced W1", "Kolmogorov-Smirnov"]
    lines = []
    for columns in COLUMNS:
        found = mapped(run_measures, [(columns, rows, run) for run in range(runs)])
        for name in found[0]:
            means = [_mean(values) for values in zip(*(each[name] for each in found), strict=True)]
            lines.append([f"{columns}, {name}", *(short_number(each.value) for each in means)])
    return table([*headers, "mean of 500 boxes", "worst of 500 boxes"], lines)


Steps = Callable[[int, float, int], list[Step]]
SIZES = ((10_000, 1.0), (100_000, 0.1))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A grown tree's settings.

    Attributes:
        name: in the table.
        steps: of (n, epsilon, d).
        rule: which nodes are split.
        opposite: shrink in one column and not in several, against the usual.
    """

    name: str
    steps: Steps
    rule: Rule
    opposite: bool = False

    def release(self, points: Floats, epsilon: float, rng: np.random.Generator) -> Partition:
        """The generator of (n, d) points."""
        steps = self.steps(len(points), epsilon, points.shape[1])
        tree = grow(ExactCounts(points), steps, self.rule, rng=rng)
        shrink = (points.shape[1] > 1) != self.opposite
        return tree.partition(least_squares(tree, shrink=shrink))


def binary_steps(rows: int, epsilon: float, dimensions: int) -> list[Step]:
    """PMM's levels and budgets, but for the root."""
    depth = effective_depth(rows, epsilon)
    budgets = level_budgets(epsilon, dimensions=dimensions, k=2**depth, depth=depth)[1:]
    return [Step(bits=1, epsilon=float(each) * epsilon / budgets.sum()) for each in budgets]


def other_steps(*, more: int = 0, fall: float | None = None, rounds: int | None = None) -> Steps:
    """The usual steps with one thing changed.

    Args:
        more: measured levels more, or fewer.
        fall: budgets are 2^-fall times the budget of the level above.
        rounds: halvings of every column at once, down to about the usual depth.
    """

    def steps(rows: int, epsilon: float, dimensions: int) -> list[Step]:
        usual = grown_steps(rows, epsilon, dimensions)
        bits = usual[0].bits if rounds is None else rounds * dimensions
        count = max(1, round(len(usual) * usual[0].bits / bits) + more)
        count = min(count, deepest(dimensions) // bits)
        ratio = usual[-1].epsilon / usual[0].epsilon if len(usual) > 1 else 1.0
        ratio = ratio ** (1 / max(1, len(usual) - 1)) if fall is None else 2.0**-fall
        weights = ratio ** np.arange(count)
        return [Step(bits=bits, epsilon=float(each)) for each in epsilon * weights / weights.sum()]

    return steps


USUAL = Choice(name="grown tree", steps=grown_steps, rule=above_noise(4))
CHOICES = (
    Choice(name="PMM's tree, least squares", steps=binary_steps, rule=everything),
    Choice(name="... nodes above 4 sd", steps=binary_steps, rule=above_noise(4)),
    USUAL,
    replace(USUAL, name="shrunk in one column, not in several", opposite=True),
    replace(USUAL, name="nodes above 1 sd", rule=above_noise(1)),
    replace(USUAL, name="the largest 64", rule=largest(64)),
    replace(USUAL, name="the largest 512", rule=largest(512)),
    replace(USUAL, name="nodes above 2 sd", rule=above_noise(2)),
    replace(USUAL, name="nodes above 8 sd", rule=above_noise(8)),
    replace(USUAL, name="one level less", steps=other_steps(more=-1)),
    replace(USUAL, name="one level more", steps=other_steps(more=1)),
    replace(USUAL, name="equal budgets", steps=other_steps(fall=0.0)),
    replace(USUAL, name="budgets falling by 2^-1/2", steps=other_steps(fall=0.5)),
    replace(USUAL, name="budgets falling by 1/2", steps=other_steps(fall=1.0)),
    replace(USUAL, name="one round at once", steps=other_steps(rounds=1)),
    replace(USUAL, name="two rounds at once", steps=other_steps(rounds=2)),
)


def run_place(place: tuple[int, str, int, float, int]) -> list[float]:
    """Mean distances of PMM and of every choice, at (columns, source, rows, epsilon, runs)."""
    columns, source, rows, epsilon, runs = place
    found = []
    for run in range(runs):
        data, noise = streams("settings", source, rows, columns, run)
        points = SOURCES[source](data, rows, columns)
        pmm = pmm_release(points, epsilon, noise)
        partitions = [pmm, *(each.release(points, epsilon, noise) for each in CHOICES)]
        found.append([distance(points, each) for each in partitions])
    return [float(each) for each in np.mean(found, axis=0)]


def settings_table(extent: Extent) -> str:
    """Each choice's distance over PMM's: geometric mean over sources and sizes, and the worst."""
    places = [
        (columns, source, rows, epsilon, max(2, extent.runs // 4))
        for columns in COLUMNS
        for source in SOURCES
        for rows, epsilon in SIZES
        if rows <= extent.rows
    ]
    found = dict(zip(places, mapped(run_place, places), strict=True))
    rows = []
    for number, choice in enumerate(CHOICES):
        cells = []
        for columns in COLUMNS:
            values = [each for place, each in found.items() if place[0] == columns]
            cells.append(_ratio([each[number + 1] / each[0] for each in values]))
        rows.append([choice.name, *cells])
    return table(["over PMM: mean (worst)", *(f"d = {each}" for each in COLUMNS)], rows)


def _ratio(ratios: Sequence[float]) -> str:
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{mean:.2f} ({max(ratios):.2f})"
