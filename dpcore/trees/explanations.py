"""Weights of two explanations of what was measured below a node, for averages over trees.

The score of an explanation is half of Akaike's criterion with its sign changed: the logarithm of
the likelihood of normal errors with the variances of the noise, less `PENALTY` for each parameter.
*Even* says that all rows below a node are spread evenly; *split* says that each child has an
explanation of its own.

Source: Willems, Shtarkov, Tjalkens 1995 (averages over pruned trees); Buckland, Burnham, Augustin
1997 (weights by Akaike's criterion).
"""

from __future__ import annotations

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, log1p
from dptrees.dpcore.arrays import Floats

# What an explanation pays for each of its parameters: half of Akaike's 2.
PENALTY = 1.0
# A difference of scores beyond which the worse explanation has no weight that a float could hold.
_CERTAIN = 700.0


def weigh_explanations(even: Floats, split: Floats) -> tuple[Floats, Floats]:
    """Return the weight of even, w = e^even / (e^even + e^split), and log(e^even + e^split).

    Args:
        even, split: the scores of the two explanations, of one shape.

    >>> weight, score = weigh_explanations(np.array([1.0, 0.0]), np.array([1.0, 900.0]))
    >>> weight.tolist(), score.round(3).tolist()
    ([0.5, 0.0], [1.693, 900.0])
    """
    behind = even - split
    rest = exp(-np.minimum(np.abs(behind), _CERTAIN))  # of the worse one, beside 1 of the better
    better = 1.0 / (1.0 + rest)
    weight = np.where(behind > 0, better, np.where(behind < -_CERTAIN, 0.0, rest * better))
    return weight, np.maximum(even, split) + log1p(rest)
