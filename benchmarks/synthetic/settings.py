"""What each choice of a grown tree is worth: expected distances over PMM's, one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.reproduction.markdown import table
from benchmarks.synthetic import pmm_reference
from benchmarks.synthetic.bounds import level_budgets
from benchmarks.synthetic.generators import effective_depth, grown_steps
from benchmarks.synthetic.grown_tree import (
    ExactCounts,
    Rule,
    Step,
    above_noise,
    everything,
    grow,
    largest,
    least_squares,
)
from benchmarks.synthetic.hierarchy import depth as deepest
from benchmarks.synthetic.partition import Partition
from benchmarks.synthetic.sources import SOURCES
from benchmarks.synthetic.study import COLUMNS, Extent, distance, mapped, streams
from dptrees.dpcore.arrays import Floats

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
        pmm = pmm_reference.release(points, epsilon, noise)
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
