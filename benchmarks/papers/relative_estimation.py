"""Estimation of all counts of a tree within a relative error alpha, by thresholds (Ghazi et al.).

*Estimation* bounds the root's count, lays a geometric sequence of thresholds below it and runs
Reduction. With beta = alpha / (6 + 5 alpha) and r = (1 + alpha)(1 - beta) / (1 + beta), which is
1 + 2 alpha / 3,

    M_i = alpha tau_min r^i,  tau_i = alpha tau_min r^(i-1) / (1 + beta),  eta_i = eta / 2^i,
    epsilon_i = (epsilon / (2 C)) i r^-(i-1),  delta_i likewise,  C = (1 - 1/r)^-2.

Corrections to the paper: the sequences of epsilon_i and delta_i are printed with r^(i-1), whose sum
is infinite; they need 1/r, and C changes with it. Algorithm 4 prints tau_i with r^i, its proof with
r^(i-1), which is right. The least tau_min grows by r^2 with it.

The constants are so large that this serves trees of enormous depth only; `smallest_threshold`
computes the threshold. One row added or removed is the unit of the proofs; `GroupPrivacy` converts.

Sources: Ghazi, Kamath, Kumar, Manurangsi, Wu, Theorem A.1, Corollary 4.7, Algorithm 4,
corrected; Fact 2.2 (group privacy).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from benchmarks.papers.classification import Classification
from benchmarks.papers.reduction import Reduction, reduce_to_classification
from dptrees.dpcore.arithmetic.elementary import expm1, log, log1p
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace, truncated_laplace
from dptrees.dpcore.privacy.sensitivity import check_budget, rounded_down
from dptrees.dpcore.thresholds.sparse_vector import tree_weights
from dptrees.dpcore.trees.shapes import Shape

# Covers that rounding and float64's.
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Estimation:
    """The parameters of Estimation, named as in the paper.

    Guarantee: `estimate` is (epsilon, delta)-differentially private for one row added or removed.

    Proof sketch. The root's count with truncated Laplace noise costs (epsilon / 2, delta / 2). How
    many rounds follow depends on it alone; round i costs (epsilon_i, delta_i), and the sums over
    all i up to infinity are epsilon / 2 and delta / 2, since sum i r^-(i-1) = (1 - 1/r)^-2 = C.

    Accuracy: each node's |estimate - w| is, with a probability of at least 1 - eta, at most
    alpha max(w, tau_min).

    Args:
        depth: d, the levels of the tree.
        alpha: the relative error, above 0 and below 1.
        epsilon, delta: the budget; positive, delta below 1.
        eta: above 0 and below 1/2.
        tau_min: the least of the thresholds of Problem 3.1, from `smallest_threshold` on.

    Raises:
        ValueError: an argument out of range, or a tau_min for which accuracy is not proved.

    Source: Ghazi et al., Corollary 4.7 and Algorithm 4, corrected.

    >>> parameters = Estimation(
    ...     depth=20, alpha=Fraction(1, 2), epsilon=Fraction(1), delta=Fraction(1, 10**6),
    ...     eta=Fraction(1, 400), tau_min=Fraction(2 * 10**6))
    >>> parameters.ratio, parameters.step(1).cutoff
    (Fraction(4, 3), 2)
    """

    depth: int
    alpha: Fraction
    epsilon: Fraction
    delta: Fraction
    eta: Fraction
    tau_min: Fraction

    def __post_init__(self) -> None:
        least = smallest_threshold(
            depth=self.depth,
            alpha=self.alpha,
            epsilon=self.epsilon,
            delta=self.delta,
            eta=self.eta,
        )
        if not self.tau_min >= least:
            raise ValueError(
                f"tau_min is {float(self.tau_min):.6g}; it must be at least {least:.6g}, below "
                "which the relative error is not guaranteed"
            )

    @property
    def beta(self) -> Fraction:
        """alpha / (6 + 5 alpha), the alpha_i of every round."""
        return _beta(self.alpha)

    @property
    def ratio(self) -> Fraction:
        """r = (1 + alpha)(1 - beta) / (1 + beta)."""
        return _ratio(self.alpha)

    @property
    def normalizer(self) -> Fraction:
        """C = 1 + 2/r + 3/r^2 + ... = (1 - 1/r)^-2."""
        return (1 - 1 / self.ratio) ** -2

    @cached_property
    def root_noise(self) -> TruncatedLaplace:
        """The noise of the root's count, at (epsilon / 2, delta / 2)."""
        return truncated_laplace(Fraction(self.epsilon) / 2, Fraction(self.delta) / 2)

    def step(self, i: int) -> Classification:
        """The classification of round i = 1, 2, ..., in the order of rising thresholds."""
        share = i / (self.ratio ** (i - 1) * 2 * self.normalizer)
        base = self.alpha * self.tau_min
        return Classification(
            depth=self.depth,
            root_bound=base * self.ratio**i,
            eta=Fraction(self.eta) / 2**i,
            alpha=self.beta,
            tau=base * self.ratio ** (i - 1) / (1 + self.beta),
            epsilon=rounded_down(self.epsilon * share),
            delta=rounded_down(self.delta * share),
        )

    def reduction(self, root_bound: int) -> Reduction:
        """The rounds needed below a bound M of the root: the least l with M_l >= M.

        Args:
            root_bound: M; up to alpha tau_min no round is needed.

        Returns:
            Parameters whose accuracy has been checked.
        """
        least = self.alpha * self.tau_min
        steps: list[Classification] = []
        while (steps[-1].root_bound if steps else least) < root_bound:
            steps.append(self.step(len(steps) + 1))
        found = Reduction(least=least, steps=tuple(steps))
        found.check_accuracy(
            alpha=self.alpha, eta=self.eta, tau_min=self.tau_min, root_bound=Fraction(root_bound)
        )
        return found


def smallest_threshold(
    *, depth: int, alpha: Fraction, epsilon: Fraction, delta: Fraction, eta: Fraction
) -> float:
    """Return the least tau_min for which Estimation is proved to be accurate.

    Round i needs Delta_i + 2 R_i <= beta tau_i. With c = ceil(1 + alpha) = 2 and

        Delta_i = (16 c / epsilon_i) ln(2 d / eta_i),
        R_i <= (2 c / epsilon_i) ln(1 + c (e^(epsilon / (4 c)) - 1) / delta),

    both, divided by tau_i, fall with i, so that i = 1 decides; 4 covers their rounding. (The bound
    of R_i is Lemma 2.8's at (epsilon_i / (2 c), delta_i / c), where epsilon_i = lambda epsilon / 2,
    delta_i = lambda delta / 2 and (e^(lambda a) - 1) / lambda <= e^a - 1 for lambda <= 1.) The
    paper's closed form requires 3 max(Delta, R) instead of Delta + 2 R, and with the corrected C is

        324 (1 + alpha)^2 (1 + 2 alpha / 3)^2 / (alpha^4 epsilon)
        max(8 ln(4 d / eta), ln(1 + 2 (e^(epsilon / 4) - 1) / delta)).

    Args:
        depth, alpha, epsilon, delta, eta: as in `Estimation`.

    Raises:
        ValueError: an argument out of range.

    Source: Ghazi et al., Theorem A.1 and Corollary 4.7, corrected.

    >>> smallest_threshold(depth=20, alpha=Fraction(1, 2), epsilon=Fraction(1),
    ...                    delta=Fraction(1, 10**6), eta=Fraction(1, 400))
    4976...
    """
    if depth < 1:
        raise ValueError(f"depth is {depth}; it must be at least 1")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}; it must be above 0 and below 1")
    if not 0 < eta < Fraction(1, 2):
        raise ValueError(f"eta is {eta}; it must be above 0 and below 1/2")
    check_budget(epsilon, delta)
    beta, ratio, cutoff = _beta(alpha), _ratio(alpha), math.ceil(1 + alpha)
    first = float(epsilon * (1 - 1 / ratio) ** 2 / 2)
    error = 16 * cutoff / first * log(float(4 * depth / eta))
    growth = expm1(float(epsilon) / (4 * cutoff))
    radius = 2 * cutoff / first * log1p(cutoff * growth / float(delta))
    needed = (error + 2 * radius) * (1 + _ROUNDING) + 4
    return float((1 + beta) / (alpha * beta)) * needed


def estimate(
    tree: Shape, leaf_counts: Integers, parameters: Estimation, stream: RandomStream
) -> list[Integers]:
    """Estimate every node's count within a relative error.

    Guarantee and accuracy: see `Estimation`.

    Args:
        tree: the shape.
        leaf_counts: (K,) int64, the exact counts.
        parameters: the mechanism.
        stream: the source of all noise, read from here on by nobody else.

    Returns:
        (n_level,) int64 for each level, root first.

    Raises:
        ValueError: counts out of range, or a tree deeper than the parameters'.

    Source: Ghazi et al., Algorithm 4, corrected.

    >>> import numpy as np
    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> from dptrees.dpcore.trees.shapes import UniformTree
    >>> parameters = Estimation(
    ...     depth=2, alpha=Fraction(1, 2), epsilon=Fraction(1), delta=Fraction(1, 10**6),
    ...     eta=Fraction(1, 100), tau_min=Fraction(5 * 10**5))
    >>> counts = np.array([0, 10**7])
    >>> estimate(UniformTree(leaves=2, fanouts=(2,)), counts, parameters, public_stream("doc"))
    [array([10523097]), array([  250000, 10523097])]
    """
    root = tree_weights(tree, leaf_counts)[0]
    noise = parameters.root_noise
    bound = int(root[0]) + noise.radius + int(noise.sample(stream, 1)[0])
    return reduce_to_classification(tree, leaf_counts, parameters.reduction(bound), stream)


def _beta(alpha: Fraction) -> Fraction:
    return Fraction(alpha) / (6 + 5 * Fraction(alpha))


def _ratio(alpha: Fraction) -> Fraction:
    return (1 + alpha) * (1 - _beta(alpha)) / (1 + _beta(alpha))
