"""Division of a budget among the levels of a partition.

Lemma 5 (Holland et al., Appendix B, corrected: at the root, where Gamma_{l-1} is not defined, 1 is
taken) minimizes the noise term of Theorem 3, sum_l A_l / sigma_l over sum sigma_l = epsilon, with
A_l = Gamma_{l-1}, the diameters of all nodes above level l together, down to level L_k, and
k gamma_{l-1} below it: sigma_l is proportional to sqrt(A_l). Gaussian noise has the scale
rho_l^-1/2, so under a rho the same sum is least where rho_l is proportional to A_l^(2/3).

Measured against exact least squares, these shares lose to equal ones (docs/synthetic-accuracy.md):
the bound adds the effects of noise on different levels, while estimates combine the levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp2, power
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.privacy.budget import Measure


def lemma_5_shares(
    depths: Sequence[int], diameter: Callable[[int], float], most: int, measure: Measure
) -> Floats:
    """(h + 1,) the shares of the levels, of sum 1, root first.

    Args:
        depths: (h + 1,) of the levels, in bits.
        diameter: gamma of the nodes of a depth, gamma of the whole being 1.
        most: k, at most so many nodes of a level are split.
        measure: of the budget.

    Source: Lemma 5 and Equation 23 (corrected).

    >>> lemma_5_shares((0, 1, 2, 3), lambda depth: 2.0**-depth, 2, Measure.EPSILON).round(3)
    array([0.27 , 0.27 , 0.27 , 0.191])
    """
    weights = [1.0]
    for above in depths[:-1]:
        # All nodes above, or the k that were split: down to L_k there are no more than these.
        weights.append(min(1 << above, most) * diameter(above))
    shares = np.sqrt(weights) if measure is Measure.EPSILON else power(np.array(weights), 2 / 3)
    return np.asarray(shares / shares.sum(), np.float64)


def falling_shares(levels: int, falls: float) -> Floats:
    """(levels,) shares of sum 1, each 2^-falls of the one before.

    >>> falling_shares(3, 1.0)
    array([0.57142857, 0.28571429, 0.14285714])
    """
    shares = exp2(-falls * np.arange(levels, dtype=np.float64))
    return np.asarray(shares / shares.sum(), np.float64)
