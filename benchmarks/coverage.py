"""How often stated intervals hold, and how wide they are, for each kind of tree and shape of rows.

Run as ``python -m benchmarks.coverage [--trees box table] [--shapes ring]``; the exit code is 1
where intervals do not hold as often as stated, or, where their law is exact, hold too often. Key
and nonces are fixed, so the numbers are too.

Each release answers one query of each line, so a line has independent draws between 0 and 1, and
Wald's sequential test decides it (1945, Annals of Mathematical Statistics 16, section 3). With the
coverage p to test against q, a draw x multiplies the evidence by
(q / p)^x ((1 - q) / (1 - p))^(1 - x). Its mean is at most 1 where the coverage is p or on its other
side from q, and that of its reciprocal where the coverage is q or beyond. So, by Ville's
inequality, a line whose coverage is .95 is ever called too low with a probability of at most
`FALSE_ALARM` by the number of lines, and one whose coverage is .90 passes with at most `MISSED`.
Where the law is exact, `HIGH` are tested in the same way. These trees have a tenth of the
budget, so that steps of whole numbers add less than .01 to the coverage.

``needed`` is the width of an interval of +- 1.96 root mean square errors of what was answered.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.harness import table
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.questions.released import Released, StatisticKind
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_rows
from dptrees.pipelines.config.configuration import parse_configuration

FALSE_ALARM, MISSED = 1e-6, 1e-4
# Coverages that hold, and those that are tested against them.
LOW, HIGH = (0.95, 0.90), (0.96, 0.985)
# About how many lines there are; and how many releases a line has, at most and at least.
LINES, MOST, LEAST = 100, 5000, 60
SIDE, GROUPS, PARTS = 1000, [f"g{place}" for place in range(5)], [f"h{place}" for place in range(9)]
FRACTIONS = (0.1, 0.5, 0.8)
BOXES = ((0, 500, 0, 250), (500, 1000, 250, 1000), (100, 400, 50, 700), (0, 77, 0, 9))
_X, _Y = (f"{{column: {name}, type: integer, lower: 0, upper: {SIDE}}}" for name in "xy")
_GROUPS, _PARTS = ", ".join(GROUPS), ", ".join(PARTS)
_NODES = f"domain: {{kind: hierarchy, columns: [g, h], leaves: {{g: [{_GROUPS}], h: [{_PARTS}]}}}}"
# By the name of the tree, which is printed.
TREES = {
    "box": f"domain: {{kind: hypercube, columns: [{_X}, {_Y}]}}, rows: 3000",
    "adaptive": f"domain: {_X}, mechanism: adaptive",
    "levels": f"domain: {_X}, mechanism: tree",
    "sums": "domain: {column: x, type: integer, lower: 0, upper: 1000, cells: 100}, "
    "mechanism: factorised",
    "quantiles": f"domain: {_X}, mechanism: exponential, intervals: {{fraction: 0.3}}, "
    f"quantiles: [{', '.join(map(str, FRACTIONS))}]",
    "mean": f"domain: {_X}, objective: mean, group_by: {{column: g, keys: [{_GROUPS}]}}",
    "table": f"domain: {{kind: table, columns: [{_X}, {_Y}, "
    f"{{column: g, categories: [{_GROUPS}]}}]}}",
    "hierarchy": _NODES,
    "nodes": f"{_NODES}, mechanism: tree",
    "distinct": "domain: {kind: distinct, column: x}",
}
BUDGETS = {"sums": "rho: 1", **dict.fromkeys(("levels", "nodes", "distinct"), "epsilon: 0.1")}
# Lines whose law is exact: their intervals are its inverse.
EXACT = {"levels: CDF points", "nodes: nodes", "distinct: all"}
CONFIG = """
release: coverage
input: {{format: csv, path: rows.csv}}
output: out/coverage
key_file: release.key
privacy: {{{budget}, neighbors: add_remove}}
trees: [{{name: {name}, {tree}}}]
"""
# How many rows each shape has. The errors of boxes were not modelled on the last one.
SHAPES = {"skewed": 3_000, "heaps": 10_000, "clusters": 300, "ring": 3_000}


class Queried(NamedTuple):
    """One answer beside the truth: its error, and its interval's ends less the truth."""

    what: str
    error: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Whether the truth is inside."""
        return self.low <= 1e-9 and self.high >= -1e-9


class Line:
    """What was found of one line: its evidence, and sums for its figures.

    Args:
        exact: whether its law is.
    """

    def __init__(self, exact: bool) -> None:
        self._tests = (LOW, HIGH) if exact else (LOW,)
        self.evidence = [0.0] * len(self._tests)
        self._ended = [""] * len(self._tests)
        self._sums = np.zeros(4)

    def add(self, found: Queried) -> None:
        """Add a draw."""
        held = float(found.holds)
        self._sums += 1, held, found.high - found.low, found.error * found.error
        for place, (stated, other) in enumerate(self._tests):
            factors = (1 - other) / (1 - stated), other / stated
            self.evidence[place] += math.log(factors[int(held)])
            if self._ended[place]:
                continue
            if self.evidence[place] >= math.log(LINES / FALSE_ALARM):
                self._ended[place] = "too low" if other < stated else "too high"
            elif self.evidence[place] <= math.log(MISSED):
                self._ended[place] = "holds"
            elif self._sums[0] >= MOST:
                self._ended[place] = "undecided"

    @property
    def waits(self) -> bool:
        """Whether it needs more draws."""
        return self._sums[0] < LEAST or not all(self._ended)

    @property
    def fault(self) -> str:
        """What is wrong with it, or nothing."""
        return next((ended for ended in self._ended if ended != "holds"), "")

    def figures(self) -> list[str]:
        """How many draws, how many of them held, and the width by what is needed."""
        many, held, width, squares = self._sums
        needed = 2 * 1.96 * math.sqrt(squares * many)
        return [f"{many:,.0f}", f"{held / many:.3f}", f"{width / needed:.1f}" if needed else "-"]


def drawn_rows(shape: str) -> dict[str, Any]:
    """The columns of the rows of a shape."""
    many = SHAPES[shape]
    rng = np.random.default_rng(sum(shape.encode()))
    if shape == "skewed":
        place = rng.beta(0.4, 2.0, (many, 2))
    elif shape == "heaps":
        place = rng.integers(0, 50, (30, 2))[np.minimum(rng.zipf(1.5, many), 30) - 1] / 50
    elif shape == "clusters":
        place = rng.random((6, 2))[rng.integers(0, 6, many)] + rng.normal(0, 0.02, (many, 2))
    else:
        turn, far = rng.random(many) * 2 * np.pi, rng.normal(0.3, 0.05, many)
        place = 0.5 + far[:, None] * np.stack([np.cos(turn), np.sin(turn)], 1)
    x, y = (np.clip(place, 0, 1 - 1e-9) * SIDE).astype(np.int64).T
    # The last groups have few rows, or none.
    group = np.minimum(rng.geometric(0.7, many), len(GROUPS)) - 1
    part = np.minimum(rng.zipf(1.5, many), len(PARTS)) - 1
    g, h = np.array(GROUPS)[group], np.array(PARTS)[part]
    return {"x": x, "y": y, "g": g, "h": h}


def answers(name: str, tree: Any, rows: dict[str, Any], draw: int) -> Iterator[Queried]:
    """One query of each line of a tree; the draw chooses which."""
    x, y = rows["x"], rows["y"]
    group = GROUPS[draw % len(GROUPS)]
    own = rows["g"] == group
    if name == "box":
        sides = BOXES[draw % len(BOXES)]
        inside = (x >= sides[0]) & (x < sides[1]) & (y >= sides[2]) & (y < sides[3])
        yield _counted("boxes", tree.box({"x": sides[:2], "y": sides[2:]}), int(inside.sum()))
        column = "xy"[draw % 2]
        yield from _of_column(tree.select_column(column), rows[column], draw // 2)
    elif name == "levels":
        yield _point(tree, x, draw)
    elif name in ("adaptive", "sums"):
        yield from _of_column(tree, x, draw)
        yield from _statistics(tree, x, [StatisticKind.MEAN, StatisticKind.STD])
    elif name == "quantiles":
        yield _quantile(tree, x, draw)
    elif name == "mean":
        yield from _statistics(tree, x[own], [StatisticKind.MEAN], group)
    elif name == "table":
        yield _counted("groups", tree.box({"g": (group, group)}), int(own.sum()))
        edges = [tree.below(place)[0].tolist() for place in range(2)]
        ends = {name: (own[1], own[len(own) // 2]) for name, own in zip("xy", edges, strict=True)}
        inside = (x >= ends["x"][0]) & (x < ends["x"][1]) & (y >= ends["y"][0])
        truth = int((inside & (y < ends["y"][1])).sum())
        yield _counted("pairs", tree.box(ends), truth)
        yield _quantile(tree.select_column("x"), x, draw)
    elif name in ("hierarchy", "nodes"):
        level = 1 + draw % 2
        nodes = sorted(tree.top(len(GROUPS) * len(PARTS), level), key=lambda each: each.label)
        node = nodes[draw // 2 % len(nodes)]
        held = rows["g"] if level == 1 else np.char.add(np.char.add(rows["g"], "/"), rows["h"])
        yield _counted("nodes", node, int((held == node.label).sum()))
    else:
        yield _counted("all", tree.top(1, 0)[0], len(set(x.tolist())))


def _statistics(
    tree: Released, values: Integers, kinds: Sequence[StatisticKind], key: object = None
) -> Iterator[Queried]:
    for kind in kinds if len(values) else ():
        # There may be too few rows to divide by.
        with suppress(ValueError):
            found = tree.statistic(kind, key=key)
            truth = float(values.mean() if kind is StatisticKind.MEAN else values.std())
            yield _beside(kind.value, found.value, found.ci_low, found.ci_high, truth)


def _of_column(tree: Released, values: Integers, draw: int) -> Iterator[Queried]:
    yield _point(tree, values, draw)
    yield _quantile(tree, values, draw)


def _point(tree: Released, values: Integers, draw: int) -> Queried:
    point = 50 + 100 * (draw % 10)
    return _counted("CDF points", tree.cdf(point), int((values < point).sum()))


def _quantile(tree: Released, values: Integers, draw: int) -> Queried:
    fraction = FRACTIONS[draw % len(FRACTIONS)]
    ordered = np.sort(values)
    found: Any = tree.quantile(fraction)
    # Each value between two that are next to each other in rank is one.
    rank = fraction * len(ordered)
    least = int(ordered[max(0, math.ceil(rank) - 1)])
    most = int(ordered[min(len(ordered) - 1, math.floor(rank))])
    nearest = min(max(found["value"], least), most)
    inside = min(max(nearest, found["ci_low"]), most)
    truth = inside if least <= inside <= found["ci_high"] else nearest
    low, high = found["ci_low"] - truth, found["ci_high"] - truth
    return Queried("quantiles", found["value"] - nearest, low, high)


def _counted(what: str, found: Any, truth: int) -> Queried:
    return _beside(what, found.estimate, found.ci_low, found.ci_high, truth)


def _beside(what: str, value: float, low: float, high: float, truth: float) -> Queried:
    return Queried(what, value - truth, low - truth, high - truth)


@lru_cache
def planned(name: str) -> ReleasePlan:
    """The plan of a release of one tree, by default but for what its name says."""
    budget = BUDGETS.get(name, "epsilon: 1")
    return parse_configuration(CONFIG.format(name=name, tree=TREES[name], budget=budget)).plan()


def lines(name: str, shape: str) -> dict[str, Line]:
    """The lines of a tree and a shape of rows, of as many releases as they need."""
    rows, found = drawn_rows(shape), dict[str, Line]()
    batch, key, draw = pa.record_batch(rows), ReleaseKey(bytes(range(32))), 0
    while draw < LEAST or any(line.waits for line in found.values()):
        nonce = f"{name}, {shape}, {draw}".encode()
        tree = release_rows(planned(name), [batch], key, nonce=nonce).tree(name)
        for each in answers(name, tree, rows, draw):
            found.setdefault(each.what, Line(f"{name}: {each.what}" in EXACT)).add(each)
        draw += 1
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(description="How often stated intervals hold.")
    parser.add_argument("--trees", nargs="+", choices=TREES, default=list(TREES))
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    chosen = parser.parse_args(arguments)
    shown, faults = [], 0
    for name in chosen.trees:
        for shape in chosen.shapes:
            for what, line in sorted(lines(name, shape).items()):
                named = f"{name}: {what}, {shape}, {SHAPES[shape]:,} rows"
                draws, held, width = line.figures()
                mark = f" ({line.fault})" if line.fault else ""
                shown.append([named, draws, held + mark, width])
                faults += bool(line.fault)
    print("95 % intervals\n")
    print(table(["tree", "releases", "coverage", "width / needed"], shown))
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
