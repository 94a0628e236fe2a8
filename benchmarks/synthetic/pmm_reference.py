"""PMM (He, Vershynin, Zhu), as Holland et al. have it: PrivHP that prunes nothing.

All levels down to r = ceil(log2(epsilon n)) are counted, with the budgets of Lemma 5 for k = n and
the consistency of Algorithm 4. It is the yardstick of the study.
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks.synthetic.partition import Partition
from benchmarks.synthetic.privhp_reference import PrivHP
from dptrees.dpcore.arrays import Floats


def mechanism(rows: int, epsilon: float) -> PrivHP:
    """PMM for n rows; n is taken as public, as published.

    >>> mechanism(1000, 1.0).depth
    10
    """
    depth = max(1, math.ceil(math.log2(epsilon * rows)))
    return PrivHP(k=2**depth, depth=depth)


def release(points: Floats, epsilon: float, rng: np.random.Generator) -> Partition:
    """The generator of (n, d) points."""
    return mechanism(len(points), epsilon).release(points, epsilon, rng)
