"""Counts of an adaptive tree averaged over all trees that could explain its measurements.

A node that was split has two explanations. *Even*: all rows below it are spread evenly over its
leaves, one parameter. *Split*: each of its children has an explanation of its own. Noisy counts
split many nodes whose rows are as good as even, and estimates below such a node are noise. So both
explanations are weighed by how well they fit all that was measured below the node, and counts are
made of the average. Nothing new is measured: it costs no budget.

The score of an explanation is half of Akaike's criterion with its sign changed: the logarithm of
the likelihood of normal errors with the variances of the noise, less 1 for each parameter. Bottom
up, with L the leaves of a node, y its measurement of variance s, and for each explanation the
estimate z of the node's rows and its variance a:

    leaf of the drawn tree   z, a as estimated;  score = -sum (y - z)^2 / 2 s - 1
    even    d = the mean of y / L over all measurements below, weighted by L^2 / s
            z = L d,  a = L^2 / sum (L^2 / s);  score = -sum (y - L d)^2 / 2 s - 1
    split   S = sum z_c, A = sum a_c over the children, 1/a = 1/s + 1/A, z = a (y/s + S/A)
            score = sum score_c - (y - S)^2 / 2 (s + A)

    w = e^even / (e^even + e^split), the weight of even;  score = log(e^even + e^split)
    z = w z_even + (1 - w) z_split,  a likewise

Top down, where m is the weight of the explanations that split every node above, u the estimate of
the node's rows under them, and e the rows that it has under all others:

    root    m = 1, e = 0
    child   e_c = (e + m w u) L_c / L,  m_c = m (1 - w),  u_c = z_c + (a_c / A) (u - S)

so e_c + m_c u_c is the average, and the averages of children sum to their parent's. They have no
known law: intervals belong to the estimates, which are not averaged.

Source: derived here; averages over pruned trees: Willems, Shtarkov, Tjalkens 1995 (context tree
weighting); weights by Akaike's criterion: Buckland, Burnham, Augustin 1997.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.trees.explanations import PENALTY, weigh_explanations
from dptrees.dpcore.trees.shape import Shape

# A measurement and its variance, infinite where a node has none.
Measured = tuple[Integers | None, Floats | float]


@dataclass(frozen=True, kw_only=True, eq=False)
class Explained:
    """What explains the measurements of the nodes of one level and below, (rows, n) each.

    Attributes:
        z, a: the averaged estimate of the node's rows, and its variance.
        score: of both explanations together.
        density: d, rows a leaf if all below is even.
        precision: of the density, sum (L^2 / s).
        misfit: sum (y - L d)^2 / s over all measurements below.
        even: w; None of the lowest level of a part.
        sum_z, sum_a: S and A over the children; None of the lowest level of a part.
    """

    z: Floats
    a: Floats
    score: Floats
    density: Floats
    precision: Floats
    misfit: Floats
    even: Floats | None = None
    sum_z: Floats | None = None
    sum_a: Floats | None = None

    def to_roots(self) -> list[Floats]:
        """(units,) each: what the spine needs to know of the roots of a chunk."""
        sent = (self.z, self.a, self.score, self.density, self.precision, self.misfit)
        shape = self.z.shape
        return [np.broadcast_to(each, shape).reshape(-1) for each in sent]

    @classmethod
    def from_roots(cls, roots: Sequence[Floats]) -> Explained:
        """Read what `to_roots` writes."""
        z, a, score, density, precision, misfit = roots
        return cls(z=z, a=a, score=score, density=density, precision=precision, misfit=misfit)


def explain_leaf(
    leaf: tuple[Floats, Floats], leaves: Integers | Floats, measured: Sequence[Measured]
) -> Explained:
    """Explain nodes that are not split: their rows are even.

    Args:
        leaf: (z, a) of the nodes.
        leaves: L of each.
        measured: the measurements that z is the mean of.
    """
    z, a = leaf
    misfit = np.zeros_like(z)
    for number, variance in measured:
        if number is not None:
            misfit = misfit + np.square(number - z) / variance
    return Explained(
        z=z,
        a=a,
        score=-0.5 * misfit - PENALTY,
        density=z / leaves,
        precision=np.square(np.asarray(leaves, dtype=np.float64)) / a,
        misfit=misfit,
    )


def explain_parents(
    tree: Shape,
    depth: int,
    children: Explained,
    own: Measured,
    leaf: Explained,
    leaves: Integers,
    split: Flags,
) -> Explained:
    """One step up.

    Args:
        tree: the shape of the part.
        depth: of the parents.
        children: the level below.
        own: the measurements of split parents.
        leaf: of parents that are not split.
        leaves: (1, n) or (rows, n) L of the parents.
        split: which are.
    """
    number, variance = own
    y: Integers | float = 0.0 if number is None else number
    # One over the variance; 0 where there is no measurement.
    weight = 1.0 / np.asarray(variance, dtype=np.float64)
    size = np.asarray(leaves, dtype=np.float64)

    precision = tree.child_sum(depth, children.precision) + np.square(size) * weight
    density = (
        tree.child_sum(depth, children.precision * children.density) + size * (y * weight)
    ) / precision
    apart = np.square(children.density - tree.to_children(depth, density))
    misfit = tree.child_sum(depth, children.misfit + children.precision * apart)
    misfit = misfit + np.square(y - size * density) * weight
    even_score = -0.5 * misfit - PENALTY
    even_z, even_a = size * density, np.square(size) / precision

    sum_z, sum_a = tree.child_sum(depth, children.z), tree.child_sum(depth, children.a)
    kept = 1.0 / (1.0 + sum_a * weight)  # a / A
    split_z, split_a = kept * sum_z + (1.0 - kept) * y, kept * sum_a
    split_score = tree.child_sum(depth, children.score)
    split_score = split_score - 0.5 * np.square(y - sum_z) * weight * kept

    even, score = _weigh(even_score, split_score, split)
    return Explained(
        z=np.where(split, even * even_z + (1.0 - even) * split_z, leaf.z),
        a=np.where(split, even * even_a + (1.0 - even) * split_a, leaf.a),
        score=np.where(split, score, leaf.score),
        density=np.where(split, density, leaf.density),
        precision=np.where(split, precision, leaf.precision),
        misfit=np.where(split, misfit, leaf.misfit),
        even=even,
        sum_z=sum_z,
        sum_a=sum_a,
    )


def _weigh(even: Floats, split: Floats, is_split: Flags) -> tuple[Floats, Floats]:
    """Return the weight of even and the score of both, from the scores of each.

    >>> weight, score = _weigh(np.array([1.0, 0.0]), np.array([1.0, 900.0]), np.array([True, True]))
    >>> weight.tolist(), score.round(3).tolist()
    ([0.5, 0.0], [1.693, 900.0])
    """
    weights, scores = np.ones(even.shape), np.zeros(even.shape)
    weights[is_split], scores[is_split] = weigh_explanations(even[is_split], split[is_split])
    return weights, scores


@dataclass(frozen=True, kw_only=True, eq=False)
class Average:
    """The average over explanations for the nodes of one level, (rows, n) each.

    Attributes:
        mass: m, the weight of the explanations that split every node above.
        rows: u, the estimate of the node's rows under them.
        even: e, the rows that it has under all others.
    """

    mass: Floats
    rows: Floats
    even: Floats

    @classmethod
    def from_total(cls, total: Floats) -> Average:
        """Begin at the roots of whole trees, from their estimates."""
        return cls(mass=np.ones_like(total), rows=total, even=np.zeros_like(total))

    @property
    def estimate(self) -> Floats:
        """The averaged estimate of each node."""
        average: Floats = self.even + self.mass * self.rows
        return average


def average_down(
    tree: Shape,
    depth: int,
    above: Average,
    nodes: tuple[Explained, Explained],
    leaves: tuple[Integers, Integers],
) -> Average:
    """One step down.

    Args:
        tree: the shape of the part.
        depth: of the parents.
        above: of the parents.
        nodes: parents and children.
        leaves: L of the parents, and of the children.
    """
    parents, children = nodes
    assert parents.even is not None and parents.sum_z is not None and parents.sum_a is not None
    density = (above.even + above.mass * parents.even * above.rows) / leaves[0]
    share = children.a / tree.to_children(depth, parents.sum_a)
    return Average(
        mass=tree.to_children(depth, above.mass * (1.0 - parents.even)),
        rows=children.z + share * tree.to_children(depth, above.rows - parents.sum_z),
        even=tree.to_children(depth, density) * leaves[1],
    )
