"""PrivTree (Zhang, Xiao, Xie), on the midpoint hierarchy: all columns are halved at once.

A node of depth i is split where max(c - i delta, theta - delta) + Lap(lambda) > theta, with
theta = 0, lambda = (2 b - 1) / (b - 1) / epsilon_1 and delta = lambda ln b for fan-out b = 2^d:
that is epsilon_1-private at any depth. The leaves' counts then have noise of the scale
1 / epsilon_2. As published the budget is halved; neighbors add or remove a row. Here the deepest
level is bounded.
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks.synthetic.grown_tree import ExactCounts
from benchmarks.synthetic.hierarchy import depth, make_partition
from benchmarks.synthetic.partition import Partition
from dptrees.dpcore.arrays import Floats

DEEPEST = 40


def release(points: Floats, epsilon: float, rng: np.random.Generator) -> Partition:
    """The generator of (n, d) points."""
    counts = ExactCounts(points)
    dimensions = counts.dimensions
    fanout = 2**dimensions
    scale = (2 * fanout - 1) / (fanout - 1) / (epsilon / 2)
    decay = scale * math.log(fanout)
    nodes, leaves, levels = np.zeros(1, np.int64), [], []
    for level in range(min(DEEPEST, depth(dimensions)) // dimensions + 1):
        exact = counts(nodes, level * dimensions)
        judged = np.maximum(exact - level * decay, -decay) + rng.laplace(0, scale, nodes.size)
        split = (judged > 0) & ((level + 1) * dimensions <= min(DEEPEST, depth(dimensions)))
        leaves.append(nodes[~split])
        levels.append(np.full(leaves[-1].size, level * dimensions))
        nodes = ((nodes[split] * fanout)[:, None] + np.arange(fanout)).ravel()
        if not nodes.size:
            break
    mass = np.concatenate(
        [counts(each, int(at[0])) for each, at in zip(leaves, levels, strict=True) if each.size]
    )
    noisy = np.maximum(mass + rng.laplace(0, 2 / epsilon, mass.size), 0)
    return make_partition(np.concatenate(leaves), np.concatenate(levels), noisy, dimensions)
