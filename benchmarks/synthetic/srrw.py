"""The superregular random walk of Boedihardjo, Strohmer and Vershynin, in one column.

"Private measures, random walks, and synthetic data": to the distribution function at the edges of
2^L cells they add a walk W = sum_j lambda_j phi_j, phi_j Schauder's tents of height 1 and the line
from 0 to 1, lambda_j independent Laplace variables; it strays by log^(3/2), where independent steps
would stray by a root. The result is replaced by a close distribution.

Calibrated here: in this basis a row's step function has the coefficient 1 on the line and at most
1/2 on one tent of each level (value at the middle less the mean of the ends), so the coefficients'
sensitivity is 1 + L / 2, and lambda_j of the scale (1 + L / 2) / epsilon are epsilon-private for
neighbors that add or remove a row. The published scale is 2 (L + 2) / epsilon, for replacement
and by a bound of densities: four times as much. Published: the closest measure in W1; here:
isotonic regression, closest in the mean square. The total is taken as public, as published.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import isotonic_regression

from benchmarks.synthetic.partition import Partition
from dptrees.dpcore.arrays import Floats


def walk(levels: int, scale: float, rng: np.random.Generator) -> Floats:
    """(2^levels + 1,) values of the walk at the edges of equal cells, from 0.

    Midpoint displacement is the same as adding tents: half a level's tents are zero at each edge.
    """
    values = np.array([0.0, rng.laplace(0, scale)])
    for _ in range(levels):
        middles = (values[:-1] + values[1:]) / 2
        middles += rng.laplace(0, scale, middles.size)
        wider = np.empty(2 * values.size - 1)
        wider[::2], wider[1::2] = values, middles
        values = wider
    return values


def release(points: Floats, epsilon: float, rng: np.random.Generator) -> Partition:
    """The generator of (n, 1) points, over 2^ceil(log2(epsilon n)) cells."""
    levels = max(1, math.ceil(math.log2(epsilon * len(points))))
    counts, edges = np.histogram(points[:, 0], 2**levels, (0, 1))
    noisy = np.concatenate(([0], np.cumsum(counts)))
    noisy = noisy + walk(levels, (1 + levels / 2) / epsilon, rng)
    inner = np.clip(isotonic_regression(noisy[1:-1]).x, 0, len(points))
    mass = np.diff(np.concatenate(([0.0], inner, [len(points)])))
    return Partition(lower=edges[:-1, None], upper=edges[1:, None], mass=mass)
