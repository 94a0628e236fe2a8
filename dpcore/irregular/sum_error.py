"""The noise in the sum of some estimates of an irregular tree: each measurement's coefficient.

A sum of estimates u_v with weights w_v is followed backwards through the passes of
`dpcore.trees.least_squares`. In the notation of `dpcore.irregular.errors`, with u_c = z_c +
k_c (u_p - S_p), the weight b of u and the coefficient t of z are

    up:    r_v = sum b_c k_c over the children, b_v = w_v + r_v
    down:  t_root = b_root, t_c = m_v t_v - r_v + b_c

and the measurement y_v has the coefficient (1 - m_v) t_v. The covariances of the estimates need not
be known: they are in the coefficients. The leaves below one parent that are not chosen are alike.

Source: derived here; equal to unit noise sent through the estimator, and to dense least squares
(tests).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.trees.irregular import IrregularTree


class SumCoefficients(NamedTuple):
    """The coefficients of z in a sum of estimates.

    Attributes:
        inner: per level l < h (n_l,).
        leaves: (n_{h-1},) of the leaves below each lowest parent that were not chosen.
        chosen: (n_{h-1},) how many leaves below each lowest parent were chosen; their coefficients
            are larger by 1.
    """

    inner: list[Floats]
    leaves: Floats
    chosen: Integers


def sum_coefficients(
    tree: IrregularTree,
    children: Sequence[Floats],
    gains: Sequence[Floats],
    chosen: Sequence[Integers],
) -> SumCoefficients:
    """The coefficients of z in the sum of the estimates of some nodes.

    Args:
        tree: of height 1 or more.
        children: m per level l < h, the weight of the children in z.
        gains: k per level 1 to h; the leaves' by their parent.
        chosen: per level 0 to h, the nodes, each once.
    """
    height = tree.height
    parents = np.searchsorted(tree.child_starts[-1], chosen[-1], side="right") - 1
    counts = np.bincount(parents, minlength=tree.level_sizes[height - 1])
    passed, weights = counts * gains[-1], list[Floats]()
    below = [passed]
    for level in reversed(range(height)):
        own = below[0].copy()
        own[chosen[level]] += 1.0
        weights.insert(0, own)
        if level:
            below.insert(0, tree.child_sum(level - 1, own * gains[level - 1]))
    inner = [weights[0]]
    for level in range(height - 1):
        left = children[level] * inner[level] - below[level]
        inner.append(tree.to_children(level, left) + weights[level + 1])
    leaves: Floats = children[-1] * inner[-1] - below[-1]
    return SumCoefficients(inner, leaves, counts)
