"""How often stated intervals hold, and how wide they are, for each kind of tree and shape of rows.

Run as ``python -m benchmarks.coverage [--releases 120] [--trees box table]``; the exit code is 1
where intervals hold less often than stated. Key and nonces are fixed, so the numbers are too.

``needed`` is the width of an interval of +- 1.96 root mean square errors of what was answered.
Answers of one release depend on each other, so a release counts as one draw between 0 and 1. The
mean of R such draws of mean p is at most x with a probability of at most exp(-R KL(x, p))
(Hoeffding 1963, theorem 1), which is `FALSE_ALARM` over all lines at the limit of x.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.harness import table
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.questions.released import Released, StatisticKind
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_rows
from dptrees.pipelines.config.configuration import parse_configuration

CONFIDENCE, FALSE_ALARM = 0.95, 1e-6
SIDE, GROUPS, PARTS = 1000, [f"g{place}" for place in range(5)], [f"h{place}" for place in range(9)]
_X, _Y = (f"{{column: {name}, type: integer, lower: 0, upper: {SIDE}}}" for name in "xy")
_GROUPS, _PARTS = ", ".join(GROUPS), ", ".join(PARTS)
# By the name of the tree, which is printed.
TREES = {
    "box": f"domain: {{kind: hypercube, columns: [{_X}, {_Y}]}}, rows: 3000",
    "adaptive": f"domain: {_X}, mechanism: adaptive",
    "mean": f"domain: {_X}, objective: mean, group_by: {{column: g, keys: [{_GROUPS}]}}",
    "table": f"domain: {{kind: table, columns: [{_X}, {_Y}, "
    f"{{column: g, categories: [{_GROUPS}]}}]}}",
    "hierarchy": "domain: {kind: hierarchy, columns: [g, h], "
    f"leaves: {{g: [{_GROUPS}], h: [{_PARTS}]}}}}",
    "distinct": "domain: {kind: distinct, column: t}",
}
CONFIG = """
release: coverage
input: {{format: csv, path: rows.csv}}
output: out/coverage
key_file: release.key
privacy: {{epsilon: 1, neighbors: add_remove}}
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
    return {"x": x, "y": y, "g": g, "h": h, "t": (x * x + y).astype(str)}


def answers(name: str, tree: Any, rows: dict[str, Any]) -> Iterator[Queried]:
    """What is queried of a tree."""
    x, y = rows["x"], rows["y"]
    if name == "box":
        for sides in ((0, 500, 0, 250), (500, 1000, 250, 1000), (100, 400, 50, 700), (0, 77, 0, 9)):
            inside = (x >= sides[0]) & (x < sides[1]) & (y >= sides[2]) & (y < sides[3])
            found = tree.box({"x": sides[:2], "y": sides[2:]})
            yield _counted("boxes", found, int(inside.sum()))
        for column in "xy":
            yield from _of_column(tree.select_column(column), rows[column], range(50, SIDE, 200))
    elif name == "adaptive":
        yield from _of_column(tree, x, range(50, SIDE, 100))
        mean = tree.statistic(StatisticKind.MEAN)
        yield _beside("mean", mean.value, mean.ci_low, mean.ci_high, float(x.mean()))
    elif name == "mean":
        for group in GROUPS:
            own = rows["g"] == group
            try:
                mean = tree.statistic(StatisticKind.MEAN, key=group)
            except ValueError:  # too few rows to divide by
                continue
            if own.any():
                true = float(x[own].mean())
                yield _beside("means of groups", mean.value, mean.ci_low, mean.ci_high, true)
    elif name == "table":
        for group in GROUPS:
            own = rows["g"] == group
            yield _counted("groups", tree.box({"g": (group, group)}), int(own.sum()))
        edges = [tree.below(place)[0].tolist() for place in range(2)]
        sides = {name: (own[1], own[len(own) // 2]) for name, own in zip("xy", edges, strict=True)}
        inside = (x >= sides["x"][0]) & (x < sides["x"][1]) & (y >= sides["y"][0])
        truth = int((inside & (y < sides["y"][1])).sum())
        yield _counted("pairs", tree.box(sides), truth)
        yield from _of_column(tree.select_column("x"), x, ())
    elif name == "hierarchy":
        paths = [f"{g}/{h}" for g, h in zip(rows["g"], rows["h"], strict=True)]
        for level, held in ((1, rows["g"]), (2, np.array(paths))):
            for node in tree.top(len(GROUPS) * len(PARTS), level):
                yield _counted("nodes", node, int((held == node.label).sum()))
    else:
        yield _counted("all", tree.top(1, 0)[0], len(set(rows["t"])))


def _of_column(tree: Released, values: Integers, points: Sequence[int]) -> Iterator[Queried]:
    for point in points:
        yield _counted("CDF points", tree.cdf(point), int((values < point).sum()))
    ordered = np.sort(values)
    for fraction in (0.1, 0.5, 0.8):
        found: Any = tree.quantile(fraction)
        # Each value between two that are next to each other in rank is one.
        rank = fraction * len(ordered)
        least = int(ordered[max(0, int(np.ceil(rank)) - 1)])
        most = int(ordered[min(len(ordered) - 1, int(np.floor(rank)))])
        nearest = float(np.clip(found["value"], least, most))
        inside = min(max(nearest, found["ci_low"]), most)
        truth = inside if least <= inside <= found["ci_high"] else nearest
        yield Queried(
            "quantiles",
            found["value"] - nearest,
            found["ci_low"] - truth,
            found["ci_high"] - truth,
        )


def _counted(what: str, found: Any, truth: int) -> Queried:
    return _beside(what, found.estimate, found.ci_low, found.ci_high, truth)


def _beside(what: str, value: float, low: float, high: float, truth: float) -> Queried:
    return Queried(what, value - truth, low - truth, high - truth)


@lru_cache
def planned(name: str) -> ReleasePlan:
    """The plan of a release of one tree, by default but for what its name says."""
    return parse_configuration(CONFIG.format(name=name, tree=TREES[name])).plan()


def least_coverage(releases: int, lines: int) -> float:
    """The coverage that is seen less often than `FALSE_ALARM` where the stated one is true."""
    most = np.log(lines / FALSE_ALARM) / releases
    seen = np.arange(1, 10_000) / 10_000 * CONFIDENCE
    other, stated = 1 - seen, 1 - CONFIDENCE
    beyond = seen * np.log(seen / CONFIDENCE) + other * np.log(other / stated) > most
    return float(seen[beyond].max(initial=0.0))


def covered(name: str, shape: str, releases: int) -> dict[str, list[float]]:
    """For each thing that is queried: the coverage, its standard error, and the width by what is
    needed."""
    rows, found = drawn_rows(shape), dict[str, list[list[Queried]]]()
    batch, key = pa.record_batch(rows), ReleaseKey(bytes(range(32)))
    for draw in range(releases):
        nonce = f"{name}, {shape}, {draw}".encode()
        tree = release_rows(planned(name), [batch], key, nonce=nonce).tree(name)
        own = list(answers(name, tree, rows))
        for what in {each.what for each in own}:
            found.setdefault(what, []).append([each for each in own if each.what == what])
    return {what: _summary(found[what]) for what in sorted(found)}


def _summary(draws: list[list[Queried]]) -> list[float]:
    numbers: Floats = np.array([each[1:] for own in draws for each in own])
    error, low, high = numbers.T
    inside = (low <= 1e-9) & (high >= -1e-9)
    ends = np.cumsum([0, *map(len, draws)])
    held = np.array([inside[start:stop].mean() for start, stop in pairwise(ends)])
    needed = 2 * 1.96 * np.sqrt(np.square(error).mean())
    width = (high - low).mean() / needed if needed else np.inf
    return [held.mean(), held.std() / np.sqrt(len(held)), width]


def main(arguments: Sequence[str]) -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(description="How often stated intervals hold.")
    parser.add_argument("--releases", type=int, default=120)
    parser.add_argument("--trees", nargs="+", choices=TREES, default=list(TREES))
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    chosen = parser.parse_args(arguments)
    found = {
        (name, what, shape): numbers
        for name in chosen.trees
        for shape in chosen.shapes
        for what, numbers in covered(name, shape, chosen.releases).items()
    }
    limit = least_coverage(chosen.releases, len(found))
    print(f"95 % intervals, epsilon 1, {chosen.releases} releases; limit {limit:.3f}\n")
    lines, low = [], 0
    for (name, what, shape), (held, error, width) in found.items():
        low += held <= limit
        mark = " (too low)" if held <= limit else ""
        rows = f"{name}: {what}, {shape}, {SHAPES[shape]:,} rows"
        lines.append([rows, f"{held:.3f}{mark}", f"{error:.3f}", f"{width:.1f}"])
    print(table(["tree", "coverage", "standard error", "width / needed"], lines))
    return int(low > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
