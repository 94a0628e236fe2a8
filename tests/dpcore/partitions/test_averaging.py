"""Averages over pruned trees against their formulas node by node, and against every pruned tree by
itself, weighed by dense algebra."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.partitions.averaging import averaged_estimates
from dptrees.dpcore.partitions.least_squares import least_squares
from dptrees.dpcore.partitions.tree import GrownLevel, GrownTree

Node = tuple[int, int]


def make_tree(seed: int, *, root: float = math.inf) -> tuple[GrownTree, list[Floats]]:
    """Return a tree of three levels below the root, the middle one of them not measured where it is
    split, and the cells of its nodes; two have none."""
    rng = np.random.default_rng(seed)
    counts = [1, 2, 4, 4]
    parents = [np.zeros(1, int), np.zeros(2, int), np.repeat([0, 1], 2), np.repeat([0, 3], 2)]
    cells = [np.array([10.0]), np.array([6.0, 4.0]), np.array([4.0, 2.0, 0.0, 4.0])]
    cells.append(np.array([3.0, 1.0, 4.0, 0.0]))
    levels = []
    for depth, many in enumerate(counts):
        variance = rng.uniform(1, 9, many)
        if depth == 0:
            variance[:] = root
        if depth == 2:
            variance[[0, 3]] = math.inf
        variance[cells[depth] == 0] = 0.0
        value = 2 * cells[depth] + rng.normal(0, 2, many) * (cells[depth] > 0)
        level = GrownLevel(
            depth=depth,
            nodes=np.arange(many, dtype=np.uint64),
            parents=parents[depth].astype(np.int64),
            value=np.where(np.isinf(variance), 0.0, value),
            variance=variance,
        )
        levels.append(level)
    return GrownTree(levels=tuple(levels)), cells


def children(tree: GrownTree, node: Node) -> list[Node]:
    level, place = node
    if level + 1 == len(tree.levels):
        return []
    return [(level + 1, int(n)) for n in np.flatnonzero(tree.levels[level + 1].parents == place)]


def prunings(tree: GrownTree, node: Node) -> Iterator[list[Node]]:
    """Yield the ends of every pruned tree below a node."""
    yield [node]
    below = children(tree, node)
    if below:
        for ends in itertools.product(*(list(prunings(tree, child)) for child in below)):
            yield list(itertools.chain(*ends))


def descend(tree: GrownTree, node: Node) -> list[Node]:
    below = [each for child in children(tree, node) for each in descend(tree, child)]
    return [node, *below]


def brute_force(tree: GrownTree, cells: list[Floats]) -> dict[Node, float]:
    """The average over all pruned trees of least squares with one density for each end."""
    nodes = descend(tree, (0, 0))
    below = {node: set(descend(tree, node)) for node in nodes}
    found, scores = [], []
    for ends in prunings(tree, (0, 0)):
        filled = [end for end in ends if cells[end[0]][end[1]] > 0]
        design = np.zeros((len(nodes), len(filled)))
        for row, node in enumerate(nodes):
            for column, end in enumerate(filled):
                inside = node if node in below[end] else end
                if node in below[end] or end in below[node]:
                    design[row, column] = cells[inside[0]][inside[1]]
        value = np.array([tree.levels[level].value[place] for level, place in nodes])
        variance = np.array([tree.levels[level].variance[place] for level, place in nodes])
        known = np.isfinite(variance) & (variance > 0)
        scale = 1 / np.sqrt(variance[known])
        density = np.linalg.lstsq(design[known] * scale[:, None], value[known] * scale)[0]
        off = (value - design @ density)[known] * scale
        found.append(design @ density)
        scores.append(-0.5 * float(off @ off) - len(filled))
    weights = np.exp(np.array(scores) - max(scores))
    average = weights @ np.array(found) / weights.sum()
    return dict(zip(nodes, average.tolist(), strict=True))


@dataclass(kw_only=True)
class Explained:
    """A node by itself, as the formulas have it."""

    z: float
    a: float
    score: float
    below: list[tuple[float, float, float]]  # L, y, s of all measurements
    even: float = 0.0
    split_sum: float = 0.0


def explain(
    tree: GrownTree, cells: list[Floats], node: Node, all_of: dict[Node, Explained]
) -> None:
    level, place = node
    size, y = float(cells[level][place]), float(tree.levels[level].value[place])
    s = float(tree.levels[level].variance[place])
    own = [(size, y, s)] if size and math.isfinite(s) else []
    family = children(tree, node)
    if not family:
        score = -1.0 if size else 0.0
        all_of[node] = Explained(z=y if size else 0.0, a=s, score=score, below=own)
        return
    for child in family:
        explain(tree, cells, child, all_of)
    below = own + [each for child in family for each in all_of[child].below]
    precision = sum(cell**2 / spread for cell, _, spread in below)
    density = sum(cell * value / spread for cell, value, spread in below) / precision
    misfit = sum((value - cell * density) ** 2 / spread for cell, value, spread in below)
    total, spread = (sum(getattr(all_of[c], name) for c in family) for name in ("z", "a"))
    score = sum(all_of[child].score for child in family)
    z, a = total, spread
    if own:
        a = 1 / (1 / s + 1 / spread)
        z = a * (y / s + total / spread)
        score -= (y - total) ** 2 / (2 * (s + spread))
    first = -misfit / 2 - 1
    best = max(first, score)
    both = best + math.log(math.exp(first - best) + math.exp(score - best))
    w = math.exp(first - both)
    all_of[node] = Explained(
        z=w * size * density + (1 - w) * z,
        a=w * size**2 / precision + (1 - w) * a,
        score=both,
        below=below,
        even=w,
        split_sum=total,
    )


def reference(tree: GrownTree, cells: list[Floats]) -> dict[Node, float]:
    """The formulas node by node."""
    explained: dict[Node, Explained] = {}
    explain(tree, cells, (0, 0), explained)
    down = {(0, 0): (1.0, explained[0, 0].z, 0.0)}
    for node in descend(tree, (0, 0)):
        (mass, rows, even), own, family = down[node], explained[node], children(tree, node)
        spread = sum(explained[child].a for child in family)
        for child in family:
            share = cells[child[0]][child[1]] / cells[node[0]][node[1]]
            moved = explained[child].a / spread * (rows - own.split_sum)
            down[child] = (
                mass * (1 - own.even),
                explained[child].z + moved,
                float((even + mass * own.even * rows) * share),
            )
    return {node: even + mass * rows for node, (mass, rows, even) in down.items()}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("root", [math.inf, 4.0])
def test_averages_are_those_of_the_formulas(seed: int, root: float) -> None:
    tree, cells = make_tree(seed, root=root)
    found = averaged_estimates(tree, cells)
    for (level, place), expected in reference(tree, cells).items():
        assert found[level][place] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("root", [math.inf, 4.0])
def test_averages_are_near_the_average_over_all_pruned_trees(root: float) -> None:
    """Nearer than least squares: not equal, as both explanations get the total that both together
    have, and on the way up a mixture is replaced by its mean and variance."""
    off, plain = [], []
    for seed in range(20):
        tree, cells = make_tree(seed, root=root)
        found, solved = averaged_estimates(tree, cells), least_squares(tree).estimates
        for (level, place), expected in brute_force(tree, cells).items():
            off.append(found[level][place] - expected)
            plain.append(solved[level].estimate[place] - expected)
    assert np.mean(np.square(off)) < 0.5 * np.mean(np.square(plain))


def test_averages_add_up_and_need_no_cells_without_rows() -> None:
    tree, cells = make_tree(1)
    found = averaged_estimates(tree, cells)
    for place, above, level in tree.pairs():
        sums = found[place].reshape(-1, level.fanout(above)).sum(axis=1)
        assert sums == pytest.approx(found[place - 1][level.split(above)])
    assert found[2][2] == 0 and found[3][3] == 0


def test_a_public_total_stays() -> None:
    tree, cells = make_tree(2, root=0.0)
    tree.levels[0].value[:] = 40.0
    assert averaged_estimates(tree, cells)[0] == pytest.approx(40.0)
