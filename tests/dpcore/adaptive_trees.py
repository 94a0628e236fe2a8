"""What tests of adaptive trees share: random plans, the plain loop that draws and solves a forest,
and whole tables of what came out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dptrees.dpcore.adaptive.drawn_trees import AdaptiveRoots, DrawnPrefixes
from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.messages import (
    Place,
    SentRoots,
    pack_measured,
    pack_roots,
    pack_solutions,
    unpack_measured,
    unpack_solutions,
)
from dptrees.dpcore.trees.shapes import Shape

PREFIXES = tuple(DrawnPrefixes.__dataclass_fields__)
LEVELS = ("estimate", "variance", "count", "ended", "holder_estimate", "holder_variance")


def random_adaptive_plan(
    rng: np.random.Generator,
    tree: Shape,
    *,
    public: bool = False,
    keyed: bool = False,
    counts: bool = True,
    measure: Measure = Measure.EPSILON,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
) -> AdaptivePlan:
    """Unequal levels, some of them not measured, and thresholds near what small counts are."""
    units = rng.integers(1, 9, tree.height + 1)
    units[:-1][rng.random(tree.height) < 0.2] = 0
    if public:
        units[0] = 0
    amounts = [Fraction(int(each), max(1, int(units.sum()))) for each in units]
    return AdaptivePlan(
        tree=tree,
        unit=SUBSTITUTE_ROW if public else unit,
        budget=Budget(measure=measure, amount=Fraction(1)),
        level_amounts=tuple(amounts),
        thresholds=tuple(rng.integers(-3, 40, tree.height).tolist()),
        decision_part=Fraction(0) if counts else Fraction(1, 5),
        public_total=public,
        keyed=keyed,
    )


def source(number: int, digest: bytes = b"") -> NoiseSource:
    """Noise source of one of many releases."""
    key = ReleaseKey(number.to_bytes(32, "big"))
    return NoiseSource(key=key, release="r", spec_digest=b"s", global_digest=digest)


@dataclass(frozen=True, kw_only=True)
class Solved:
    """All answers by the name of a field, with the keys in front: of each level, of prefixes."""

    levels: list[dict[str, Any]]
    prefixes: dict[str, Any] | None
    roots: AdaptiveRoots


def solve_adaptive(forest: AdaptiveForest, counts: Integers, noise: Any) -> Solved:
    """Draws and solves a forest chunk by chunk through its messages, as the pipeline does."""
    flat, keys = counts.reshape(-1), forest.chunking.keys
    levels: list[list[Any]] = [[] for _ in forest.plan.tree.level_sizes]
    prefixes, reported = [], []
    for chunks in _groups(forest):
        sent, kept = {}, {}
        for chunk in chunks:
            exact, place = (
                flat[chunk.start : chunk.start + chunk.leaves],
                Place(chunk.key, chunk.index),
            )
            measured = forest.measure("t", chunk, exact, noise)
            kept[place] = pack_measured(measured)
            roots, totals = forest.chunk_roots(chunk, measured), forest.chunk_totals(chunk, exact)
            sent[place] = pack_roots(roots, totals)
        known = SentRoots.from_messages(sent)
        solutions, spine = forest.solve_spine("t", chunks[0].key, known.roots, known.totals, noise)
        down = pack_solutions(solutions, known.places, known.stops)
        reported.append(solutions)
        found: list[Any] = list(spine)
        for chunk in chunks:
            place = Place(chunk.key, chunk.index)
            mine = unpack_solutions(down[place], AdaptiveRoots)
            assert isinstance(mine, AdaptiveRoots)
            solved, points = forest.solve(chunk, unpack_measured(kept[place], chunk.rows), mine)
            found += solved
            prefixes.append(points)
        for level in found:
            levels[level.level].append(level)

    def joined(parts: list[Any], name: str) -> Any:
        return np.concatenate([getattr(part, name).reshape(-1) for part in parts]).reshape(keys, -1)

    return Solved(
        levels=[{name: joined(parts, name) for name in LEVELS} for parts in levels],
        prefixes=({name: joined(prefixes, name) for name in PREFIXES} if forest.prefixes else None),
        roots=reported[0],
    )


def _groups(forest: AdaptiveForest) -> Iterator[list[Any]]:
    chunking = forest.chunking
    for first in range(0, len(chunking), chunking.chunks_per_key):
        yield [chunking[first + index] for index in range(chunking.chunks_per_key)]


def dense_drawn(
    forest: AdaptiveForest, numbers: list[Any], ended: list[Integers]
) -> tuple[Floats, Floats]:
    """(estimates, covariance) of the leaves of the drawn tree of one key, by matrices.

    Args:
        forest: of whole trees.
        numbers: of its one chunk.
        ended: per level (n_l,).
    """
    plan, tree = forest.plan, forest.plan.tree
    cells = [
        (level, node)
        for level, ends in enumerate(ended)
        for node in np.flatnonzero(ends == level).tolist()
    ]
    cells.sort(key=lambda cell: tree.leaf_range(*cell).start)
    starts = np.array([tree.leaf_range(*cell).start for cell in cells])
    rows, values, spread = [], [], []

    def measured(level: int, node: int, value: float, variance: float) -> None:
        leaves = tree.leaf_range(level, node)
        rows.append((starts >= leaves.start) & (starts < leaves.stop))
        values.append(float(value))
        spread.append(variance)

    for level, ends in enumerate(ended):
        chains = np.broadcast_to(plan.chains(level), ends.shape)
        single = np.broadcast_to(plan.passed_on(level), ends.shape)
        for node in np.flatnonzero((ends < 0) | (ends == level)).tolist():
            law = plan.law(level, int(chains[node]))
            if law is not None and not single[node]:
                measured(level, node, numbers[3 * level][0, node], law.variance)
            if level < tree.height and ends[node] == level:
                last = plan.last_law(level)
                assert last is not None
                measured(level, node, numbers[3 * level + 2][0, node], last.variance)
    matrix = np.array(rows, dtype=np.float64)
    weighted = matrix.T / np.array(spread)
    covariance = np.linalg.inv(weighted @ matrix)
    return covariance @ (weighted @ np.array(values)), covariance
