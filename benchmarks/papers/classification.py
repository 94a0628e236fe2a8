"""Classification as in the paper: which nodes of a tree are heavy, with the accuracy proved.

Corrections to the paper:
- c = M / ((1 - alpha) tau) must be an integer, since c answers TOP are paid for; it is rounded up
  (with c rounded down the accuracy proof fails). In Algorithm 4 it is 1 + alpha, hence 2 here.
- The radius R of Algorithm 1 is that of Lemma 2.8 at delta / (2 c), though its proof has delta / c:
  half of delta is unused. Here R is the least integer that keeps (epsilon / (2 c), delta / c).
- Lemma 4.3's condition on tau implies Delta + 2 R <= alpha tau only while c <= 2 M / tau, which
  rounding c up may break: `Classification.check_accuracy` checks the condition itself.

Sources: Ghazi, Kamath, Kumar, Manurangsi, Wu, Algorithm 1, Lemma 4.3, Corollary 4.5, corrected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace, truncated_laplace
from dptrees.dpcore.thresholds.sparse_vector import (
    SparseVectorParameters,
    classify_forest,
    whole_tree,
)
from dptrees.dpcore.trees.shapes import Shape


@dataclass(frozen=True, kw_only=True)
class Classification:
    """The parameters of Classification (Problem 4.2), named as in the paper.

    Guarantee: `classify` is (epsilon, delta)-differentially private for one row added or removed,
    whatever the values of root_bound, eta, alpha and tau.

    Proof sketch. The queries f_i, the largest count among the nodes S_i left at a level, change by
    at most 1, since S_i depends on earlier answers only: the sparse vector technique costs
    epsilon / 2 (its stages and the steps below alternate, so they compose one after the other). A
    level is looked at node by node only after an answer TOP, hence at most c times, c an integer. A
    row is in one node of a level at most, so by parallel composition each such look costs what one
    node does: truncated Laplace noise at (epsilon / (2 c), delta / c). Together
    (epsilon / 2, delta). All else is post-processing. In a forest of disjoint trees a row is in one
    tree at most: parallel composition again (Corollary 4.5).

    Accuracy: where `check_accuracy` passes, each tree whose root has at most root_bound rows is,
    with a probability of at least 1 - eta, classified right throughout: TOP where a count is at
    least (1 + alpha) tau, BOTTOM where it is below (1 - alpha) tau (Lemma 4.3).

    Args:
        depth: d, the levels of the tree, at least 1.
        root_bound: M, the most rows a root may have for the accuracy to hold.
        eta: the probability of an error in a tree, above 0 and below 1/2.
        alpha: the relative width of the undecided zone, above 0 and below 1.
        tau: the threshold, positive.
        epsilon: positive.
        delta: above 0 and below 1.

    Raises:
        ValueError: an argument out of range.

    Source: Ghazi et al., Algorithm 1 and Lemma 4.3; c and R corrected.

    >>> parameters = Classification(
    ...     depth=3, root_bound=Fraction(4000), eta=Fraction(1, 20), alpha=Fraction(1, 2),
    ...     tau=Fraction(4000), epsilon=Fraction(1), delta=Fraction(1, 10**6))
    >>> parameters.cutoff, parameters.error, parameters.noise.radius  # c, Delta, R
    (2, 154, 50)
    """

    depth: int
    root_bound: Fraction
    eta: Fraction
    alpha: Fraction
    tau: Fraction
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ValueError(f"depth is {self.depth}; it must be at least 1")
        _check_between("eta", self.eta, Fraction(1, 2))
        _check_between("alpha", self.alpha, 1)
        _check_between("delta", self.delta, 1)
        for name in ("root_bound", "tau", "epsilon"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive")

    @property
    def is_trivial(self) -> bool:
        """Whether no node can reach the threshold: then all are BOTTOM and nothing is drawn."""
        return self.root_bound < self.tau

    @cached_property
    def cutoff(self) -> int:
        """c, M / ((1 - alpha) tau) rounded up: how many levels may be answered TOP."""
        return math.ceil(self.root_bound / ((1 - self.alpha) * self.tau))

    @cached_property
    def sparse_vector(self) -> SparseVectorParameters:
        """The search for levels, at epsilon / 2."""
        return SparseVectorParameters(
            epsilon=Fraction(self.epsilon) / 2, cutoff=self.cutoff, threshold=Fraction(self.tau)
        )

    @cached_property
    def error(self) -> int:
        """Delta, (16 c / epsilon) ln(2 d / eta) rounded up: the error of the search for levels."""
        # With a probability of at least 1 - eta every answer up to the c-th TOP is right within
        # (8 c / epsilon) ln(2 d / eta), of monotone queries half of that, rounded up to an even
        # integer: each of the at most 2 d noises exceeds its half with at most eta / (2 d).
        scale = float(self.sparse_vector.query_law.scale)
        return 2 * math.ceil(scale * (math.log(2 * self.depth) - math.log(self.eta)))

    @cached_property
    def noise(self) -> TruncatedLaplace:
        """The noise of a node, of radius R, at (epsilon / (2 c), delta / c)."""
        return truncated_laplace(
            Fraction(self.epsilon) / (2 * self.cutoff), Fraction(self.delta) / self.cutoff
        )

    @property
    def acceptance(self) -> int:
        """A node is TOP if its noisy count reaches tau - Delta - R."""
        return math.ceil(self.tau) - self.error - self.noise.radius

    def check_accuracy(self) -> None:
        """Refuse parameters for which the accuracy is not proved.

        The proof of Lemma 4.3 needs Delta + 2 R <= alpha tau; its bound on tau is sufficient only
        where c <= 2 M / tau, which rounding c up may break, so the condition itself is checked.

        Raises:
            ValueError: the condition fails.
        """
        needed = self.error + 2 * self.noise.radius
        if not self.is_trivial and not max(needed, self.error + 1) <= self.alpha * self.tau:
            raise ValueError(
                f"tau is {float(self.tau):.6g}; Delta + 2 R = {needed} must be at most alpha tau = "
                f"{float(self.alpha * self.tau):.6g} for the stated accuracy"
            )


def classify(
    tree: Shape,
    weights: Sequence[Integers],
    parameters: Classification,
    stream: RandomStream,
    forest: Sequence[Integers] | None = None,
) -> list[Flags]:
    """Classify the nodes of a forest: which have about tau rows or more.

    Guarantee and accuracy: see `Classification`.

    Args:
        tree: the shape.
        weights: from `tree_weights`.
        parameters: the mechanism.
        stream: the source of all noise, read from here on by nobody else.
        forest: as in `remaining_trees`; the whole tree by default.

    Returns:
        (n_level,) for each level: True for TOP, False for BOTTOM and outside the forest. With a
        node all its ancestors in its tree are TOP.

    Raises:
        ValueError: the tree has more levels than the parameters' depth.

    Source: Ghazi et al., Algorithm 1 and Corollary 4.5.
    """
    if tree.height + 1 > parameters.depth:
        raise ValueError(f"depth is {parameters.depth}; the tree has {tree.height + 1} levels")
    owners = whole_tree(tree) if forest is None else forest
    if parameters.is_trivial:
        return [np.zeros(size, dtype=np.bool_) for size in tree.level_sizes]
    return classify_forest(tree, weights, parameters, stream, owners)


def _check_between(name: str, value: Fraction, below: Fraction | int) -> None:
    if not 0 < value < below:
        raise ValueError(f"{name} is {value}; it must be above 0 and below {below}")
