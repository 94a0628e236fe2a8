"""A bound on the error of any estimate of a tree's counts: the conversion of Lemma 3.3.

An estimate that is mostly good may be far off now and then. Noisy counts with noise of at most R
give, for a part of the budget, an interval that surely holds the true count; the estimate is
clipped to it. So an (alpha, eta)-accurate estimate gets a small alpha-RMSE.

Source: Ghazi, Kamath, Kumar, Manurangsi, Wu, Lemma 3.3 and its proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from dptrees.dpcore.arithmetic.sums import hypotenuse
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace, truncated_laplace
from dptrees.dpcore.thresholds.sparse_vector import tree_weights
from dptrees.dpcore.trees.shapes import Shape


@dataclass(frozen=True, kw_only=True)
class ErrorBound:
    """The parameters of the conversion of Lemma 3.3.

    Guarantee: `bound_error` costs (epsilon, delta) for one row added or removed, besides what the
    estimate that it is given costs.

    Proof sketch. The d levels get truncated Laplace noise at (epsilon / d, delta / d) each; a row
    is in one node of a level at most. The rest is post-processing.

    Accuracy: no estimate gets worse, and none is further than 2 R from the count, whatever it was.

    Args:
        depth: d, the levels of the tree.
        epsilon, delta: the budget of the bound alone (the paper gives half of the whole to it).

    Raises:
        ValueError: an argument out of range.

    Source: Ghazi et al., Lemma 3.3.

    >>> bound = ErrorBound(depth=4, epsilon=Fraction(1, 2), delta=Fraction(1, 10**6))
    >>> bound.noise.scale, bound.noise.radius
    (Fraction(8, 1), 100)
    """

    depth: int
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise ValueError(f"epsilon is {self.epsilon}; it must be positive")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta is {self.delta}; it must be above 0 and below 1")
        if self.depth < 1:
            raise ValueError(f"depth is {self.depth}; it must be at least 1")

    @cached_property
    def noise(self) -> TruncatedLaplace:
        """The noise of every node, of radius R."""
        return truncated_laplace(
            Fraction(self.epsilon) / self.depth, Fraction(self.delta) / self.depth
        )

    def alpha_mrmse(self, *, alpha: float, tau_max: float, eta: float) -> float:
        """Bound the alpha-mRMSE after the conversion of an (alpha, eta)-accurate estimate.

        Returns:
            sqrt((alpha tau_max)^2 + 4 eta R^2).

        >>> bound = ErrorBound(depth=4, epsilon=Fraction(1, 2), delta=Fraction(1, 10**6))
        >>> bound.alpha_mrmse(alpha=0.5, tau_max=60.0, eta=0.01)
        36.05...
        """
        return hypotenuse(alpha * tau_max, 2 * self.noise.radius * math.sqrt(eta))


def bound_error(
    tree: Shape,
    leaf_counts: Integers,
    estimates: Sequence[Integers],
    parameters: ErrorBound,
    stream: RandomStream,
) -> list[Integers]:
    """Clip every estimate to within R of a noisy count: the conversion of Lemma 3.3.

    Guarantee and accuracy: see `ErrorBound`.

    Args:
        tree: the shape.
        leaf_counts: (K,) int64, the exact counts.
        estimates: (n_level,) int64 for each level, of the same tree.
        parameters: the mechanism.
        stream: the source of all noise, read from here on by nobody else.

    Returns:
        (n_level,) int64 for each level.

    Raises:
        ValueError: counts out of range, or a tree deeper than the parameters'.

    Source: Ghazi et al., Lemma 3.3.

    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> from dptrees.dpcore.trees.shapes import UniformTree
    >>> tree, bound = UniformTree(leaves=2, fanouts=(2,)), ErrorBound(
    ...     depth=2, epsilon=Fraction(8), delta=Fraction(1, 100))
    >>> clipped = bound_error(tree, np.array([5, 9]), [np.array([0]), np.array([5, 99])],
    ...                       bound, public_stream("doc"))
    >>> [bool(np.abs(clipped[1] - [5, 9]).max() <= 2 * bound.noise.radius), int(clipped[1][0])]
    [True, 5]
    """
    if tree.height + 1 > parameters.depth:
        raise ValueError(f"depth is {parameters.depth}; the tree has {tree.height + 1} levels")
    clipped = []
    for weights, guess in zip(tree_weights(tree, leaf_counts), estimates, strict=True):
        noisy = weights + parameters.noise.sample(stream, weights.size)
        radius = parameters.noise.radius
        clipped.append(np.clip(guess, noisy - radius, noisy + radius))
    return clipped
