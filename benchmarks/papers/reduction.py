"""Counts between thresholds: Reduction of Ghazi et al., which estimates by classifying.

A tree is classified with falling thresholds, each time only what was below the one before, so that
every node's count ends up between two thresholds (dpcore/thresholds/sparse_vector.py classifies,
benchmarks/papers/relative_estimation.py chooses the thresholds).

Corrections to the paper:
- Algorithm 2 hands on only the trees below a deepest TOP node: a tree without any TOP, and a BOTTOM
  node beside a TOP sibling, would get no estimate. Here every maximal subtree of BOTTOM nodes goes
  on to the next round, as the proof of Lemma 4.6 supposes.
- Its line 7 sets M_i at ancestors "in T", which would overwrite the larger values of rounds before;
  it must be within the round's own trees, that is at the nodes classified TOP.

Sources: Ghazi, Kamath, Kumar, Manurangsi, Wu, Algorithm 2 and Lemma 4.6, corrected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from benchmarks.papers.classification import Classification, classify
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.thresholds.sparse_vector import remaining_trees, tree_weights, whole_tree
from dptrees.dpcore.trees.shapes import Shape


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """The parameters of Reduction: the classifications of all rounds, named as in Lemma 4.6.

    Guarantee: `reduce_to_classification` is (sum epsilon_i, sum delta_i)-differentially private for
    one row added or removed, whatever the other parameters.

    Proof sketch. Round i classifies a forest of disjoint subtrees that depends on earlier answers
    only, at (epsilon_i, delta_i); the rounds compose; the estimates are post-processing.

    Args:
        least: M_0, the estimate of what is below all thresholds, at least 0.
        steps: the classifications i = 1, 2, ...; applied from the last, the largest tau, down.

    Raises:
        ValueError: thresholds that do not rise with i, a negative M_0, or a total delta of 1.

    Source: Ghazi et al., Algorithm 2 and Lemma 4.6, corrected.
    """

    least: Fraction
    steps: tuple[Classification, ...]

    def __post_init__(self) -> None:
        if self.least < 0:
            raise ValueError(f"least is {self.least}; it must be at least 0")
        taus = [step.tau for step in self.steps]
        if any(low >= high for low, high in pairwise(taus)):
            raise ValueError("steps: the thresholds tau must rise from step to step")
        if self.delta >= 1:
            raise ValueError(f"steps: their deltas add up to {float(self.delta):.6g}, 1 or more")

    @property
    def epsilon(self) -> Fraction:
        """The sum of the rounds' epsilons."""
        return sum((Fraction(step.epsilon) for step in self.steps), Fraction(0))

    @property
    def delta(self) -> Fraction:
        """The sum of the rounds' deltas."""
        return sum((Fraction(step.delta) for step in self.steps), Fraction(0))

    def check_accuracy(
        self, *, alpha: Fraction, eta: Fraction, tau_min: Fraction, root_bound: Fraction
    ) -> None:
        """Refuse parameters for which the estimate is not proved (alpha, eta)-accurate.

        Accurate: each node's |estimate - w| is, with a probability of at least 1 - eta, at most
        alpha max(w, tau_min), if the root has at most root_bound rows.

        Raises:
            ValueError: an assumption (2) to (6) of Lemma 4.6 fails.
        """
        bounds = [self.least, *(step.root_bound for step in self.steps)]
        for i, step in enumerate(self.steps, start=1):
            step.check_accuracy()
            bottom = (1 - step.alpha) * step.tau
            if not bottom <= bounds[i] <= (1 + alpha) * bottom:
                raise ValueError(
                    f"steps: assumption (5), (1 - alpha_i) tau_i <= M_i <= "
                    f"(1 + alpha)(1 - alpha_i) tau_i, fails at i = {i}"
                )
            if bounds[i - 1] < (1 + step.alpha) * step.tau:
                raise ValueError(
                    f"steps: assumption (4), M_(i-1) >= (1 + alpha_i) tau_i, fails at i = {i}"
                )
        if sum(step.eta for step in self.steps) > eta:
            raise ValueError("steps: assumption (3), the sum of eta_i at most eta, fails")
        if bounds[-1] < root_bound:
            raise ValueError("steps: assumption (4), the last M_i at least M, fails")
        if self.least > alpha * tau_min:
            raise ValueError("least: assumption (6), M_0 <= alpha tau_min, fails")


def reduce_to_classification(
    tree: Shape, leaf_counts: Integers, parameters: Reduction, stream: RandomStream
) -> list[Integers]:
    """Estimate every node's count by classifying with falling thresholds.

    A node found TOP in round i is estimated as M_i rounded down, which is never further from its
    count than M_i where the classification is right; what is never TOP as M_0 rounded down.

    Guarantee: see `Reduction`.

    Args:
        tree: the shape.
        leaf_counts: (K,) int64, the exact counts.
        parameters: the mechanism.
        stream: the source of all noise, read from here on by nobody else.

    Returns:
        (n_level,) int64 for each level.

    Raises:
        ValueError: counts out of range, or a tree deeper than the parameters'.

    Source: Ghazi et al., Algorithm 2, corrected.
    """
    weights = tree_weights(tree, leaf_counts)
    forest = whole_tree(tree)
    least = math.floor(parameters.least)
    estimates = [np.full(size, least, dtype=np.int64) for size in tree.level_sizes]
    for step in reversed(parameters.steps):
        top = classify(tree, weights, step, stream, forest)
        for estimate, is_top in zip(estimates, top, strict=True):
            estimate[is_top] = math.floor(step.root_bound)
        forest = remaining_trees(tree, forest, top)
    return estimates
