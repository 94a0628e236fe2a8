"""The covariance of the estimate of all leaves by dense linear algebra, and random trees for it."""

from __future__ import annotations

import math

import numpy as np

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.trees.shapes import UniformTree


def design(tree: UniformTree, levels: list[int]) -> Floats:
    """One row per measured node: which leaves it sums."""
    rows = []
    for level in levels:
        for node in range(tree.level_sizes[level]):
            row = np.zeros(tree.leaves)
            row[list(tree.leaf_range(level, node))] = 1
            rows.append(row)
    return np.array(rows)


def leaf_covariance(tree: UniformTree, variances: list[float]) -> Floats:
    """(K, K) of the generalized least squares estimate of the leaves."""
    levels = [level for level, v in enumerate(variances) if 0 < v < math.inf]
    matrix = design(tree, levels)
    precisions = np.repeat(
        [1 / variances[level] for level in levels], [tree.level_sizes[level] for level in levels]
    )
    covariance: Floats = np.linalg.inv((matrix.T * precisions) @ matrix)
    if variances[0] == 0:
        with_total = covariance.sum(axis=1)
        covariance -= np.outer(with_total, with_total) / with_total.sum()
    return covariance


def random_case(rng: np.random.Generator) -> tuple[UniformTree, list[float]]:
    """A tree, mostly trimmed, with random variances, some levels not measured, any root."""
    while True:
        leaves = int(rng.integers(2, 80))
        fanouts: list[int] = []
        while math.prod(fanouts) < leaves:
            fanouts.insert(0, int(rng.integers(2, 7)))
        if math.prod(fanouts[1:]) < leaves:
            break
    variances = [float(v) for v in rng.uniform(0.1, 5, len(fanouts) + 1)]
    for level in range(1, len(fanouts)):
        if rng.random() < 0.3:
            variances[level] = math.inf
    variances[0] = [0.0, math.inf, variances[0]][int(rng.integers(3))]
    return UniformTree(leaves=leaves, fanouts=tuple(fanouts)), variances
