"""Counts of a grown tree averaged over all its pruned trees that could explain its measurements.

A node that was split has two explanations. *Even*: all rows below it are spread evenly over its
cells, one parameter. *Split*: each of its children has an explanation of its own. Both are weighed
by how well they fit all that was measured below the node (`dpcore.trees.explanations`), and the
average is released as counts. Nothing new is measured: it is a function of noisy numbers, and costs
no budget.

Bottom up, with L the cells of a node, y its measurement of variance s (1/s = 0 where there is
none), and for each explanation the estimate z of the node's rows and its variance a:

    leaf    z = y, a = s, score = -1
    even    d = the mean of y / L over all measurements below, weighted by L^2 / s
            z = L d,  a = L^2 / sum (L^2 / s);  score = -sum (y - L d)^2 / 2 s - 1
    split   S = sum z_c, A = sum a_c over the children, 1/a = 1/s + 1/A, z = a (y/s + S/A)
            score = sum score_c - (y - S)^2 / 2 (s + A)

    w = e^even / (e^even + e^split), the weight of even;  score = log(e^even + e^split)
    z = w z_even + (1 - w) z_split,  a likewise

Top down, where m is the weight of the explanations that split every node above, u the estimate of
the node's rows under them, and e the rows that it has under all others:

    root    m = 1, e = 0, u = z
    child   e_c = (e + m w u) L_c / L,  m_c = m (1 - w),  u_c = z_c + (a_c / A) (u - S)

so e_c + m_c u_c is the average, and the averages of children sum to their parent's. Both
explanations of a node get the total u that both together have, and on the way up their mixture is
replaced by its mean and variance, so the result is near the average over all pruned trees and not
equal to it. A node without cells has no rows, no parameter and no part in any sum. The averages
have no known law, so intervals belong to the estimates, which are not averaged.

Source: the same of trees over ordered cells is in `dpcore.adaptive.averaging`; of boxes,
`benchmarks/box_regret.py` (docs/synthetic-accuracy.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.partitions.tree import GrownLevel, GrownTree
from dptrees.dpcore.trees.explanations import PENALTY, weigh_explanations

# The variance that a known count has among measurements: too small to matter, and not 0.
_KNOWN = 2.0**-100


@dataclass(kw_only=True, eq=False)
class _Explained:
    """What explains the measurements of the nodes of one level and below, (n,) each.

    Attributes:
        z, a: the averaged estimate of the node's rows, and its variance; 0 without cells.
        score: of both explanations together.
        density: d, rows a cell if all below is even.
        precision: of the density, sum (L^2 / s).
        misfit: sum (y - L d)^2 / s over all measurements below.
        even: w; 0 where a node is not split.
    """

    z: Floats
    a: Floats
    score: Floats
    density: Floats
    precision: Floats
    misfit: Floats
    even: Floats

    @classmethod
    def from_leaves(cls, level: GrownLevel, cells: Floats) -> _Explained:
        """Explain every node of a level as though it were not split."""
        filled = (cells > 0) & np.isfinite(level.variance)
        variance = np.where(filled, np.maximum(level.variance, _KNOWN), 1.0)
        value = np.where(filled, level.value, 0.0)
        size = np.where(filled, cells, 1.0)
        return cls(
            z=value,
            a=np.where(filled, variance, 0.0),
            score=np.where(filled, -PENALTY, 0.0),
            density=value / size,
            precision=np.where(filled, np.square(size) / variance, 0.0),
            misfit=np.zeros(len(level)),
            even=np.zeros(len(level)),
        )

    def families(self, fanout: int) -> _Explained:
        """The same as (m, n) children of m nodes."""
        shaped = {name: each.reshape(-1, fanout) for name, each in vars(self).items()}
        return _Explained(**shaped)

    def put(self, places: Integers, **values: Any) -> None:
        """Replace the values of some nodes."""
        for name, each in values.items():
            getattr(self, name)[places] = each


def averaged_estimates(tree: GrownTree, cells: Sequence[Floats]) -> list[Floats]:
    """(h + 1,) for each level (n,) the averaged estimates, in rows; children sum to their parent.

    Args:
        tree: the tree; a node that is split has a child with cells.
        cells: for each level (n,) how many cells of the domain each node has.

    Source: the docstring of this module.

    >>> def level(depth, value, variance):
    ...     n = len(value)
    ...     return GrownLevel(depth=depth, nodes=np.arange(n, dtype=np.uint64), value=value,
    ...                       parents=np.zeros(n, np.int64), variance=variance)
    >>> top = level(0, np.zeros(1), np.array([np.inf]))
    >>> tree = GrownTree(levels=(top, level(1, np.array([52.0, 48.0]), np.full(2, 50.0))))
    >>> [each.round(2).tolist() for each in averaged_estimates(tree, [np.ones(1), np.full(2, 0.5)])]
    [[100.0], [50.57, 49.43]]
    """
    explained = [
        _Explained.from_leaves(level, own) for level, own in zip(tree.levels, cells, strict=True)
    ]
    for place, above, level in reversed(list(tree.pairs())):
        split = level.split(above)
        _explain_parents(
            explained[place - 1],
            explained[place].families(level.fanout(above)),
            (above, split, cells[place - 1][split]),
        )
    mass, rows, even = np.ones(1), explained[0].z, np.zeros(1)
    averages = [rows]
    for place, above, level in tree.pairs():
        split, fanout = level.split(above), level.fanout(above)
        parents, children = explained[place - 1], explained[place]
        weight = parents.even[split]
        density = (even[split] + mass[split] * weight * rows[split]) / cells[place - 1][split]
        z, a = children.z.reshape(-1, fanout), children.a.reshape(-1, fanout)
        share = a / a.sum(axis=1, keepdims=True)
        apart = rows[split] - z.sum(axis=1)
        rows = (z + share * apart[:, np.newaxis]).reshape(-1)
        even = np.repeat(density, fanout) * cells[place]
        mass = np.repeat(mass[split] * (1.0 - weight), fanout)
        averages.append(even + mass * rows)
    return averages


def _explain_parents(
    parents: _Explained, children: _Explained, own: tuple[GrownLevel, Integers, Floats]
) -> None:
    """One step up: explain the nodes of a level that are split.

    Args:
        parents: of the level, which is changed.
        children: of the nodes that are split, (m, n) each.
        own: the level, which of its nodes are split, (m,), and their cells, (m,).
    """
    level, split, size = own
    variance = np.maximum(level.variance[split], _KNOWN)
    weight = 1.0 / variance  # 0 where nothing is measured
    y = np.where(weight > 0, level.value[split], 0.0)

    precision = children.precision.sum(axis=1) + np.square(size) * weight
    density = (children.precision * children.density).sum(axis=1) + size * y * weight
    density = density / precision
    apart = np.square(children.density - density[:, np.newaxis])
    misfit = (children.misfit + children.precision * apart).sum(axis=1)
    misfit = misfit + np.square(y - size * density) * weight

    sum_z, sum_a = children.z.sum(axis=1), children.a.sum(axis=1)
    kept = 1.0 / (1.0 + sum_a * weight)  # a / A
    split_score = children.score.sum(axis=1) - 0.5 * np.square(y - sum_z) * weight * kept
    even, score = weigh_explanations(-0.5 * misfit - PENALTY, split_score)
    parents.put(
        split,
        z=even * size * density + (1.0 - even) * (kept * sum_z + (1.0 - kept) * y),
        a=even * np.square(size) / precision + (1.0 - even) * kept * sum_a,
        score=score,
        density=density,
        precision=precision,
        misfit=misfit,
        even=even,
    )
