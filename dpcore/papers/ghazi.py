"""Ghazi, Kamath, Kumar, Manurangsi, Wu: "On Differentially Private Counting on Trees".

The definitions, algorithms and bounds of the paper in its order and notation. A tree is a `Shape`
of depth d (levels, the root's included), w_u is the count of node u, and neighbors add or remove a
row. Noise is integer, from a stream that nobody else reads meanwhile.

Corrections:

- Algorithm 1: c = M / ((1 - alpha) tau) must be an integer, since c answers TOP are paid for; it is
  rounded up (with c rounded down the accuracy proof fails). So Lemma 4.3's condition on tau, which
  supposes c <= 2 M / tau, may not be enough: the condition of its proof, Delta + 2 R <= alpha tau,
  is checked instead. Its R is Lemma 2.8's at delta / (2 c), though its proof has delta / c, so half
  of delta is unused; here R is the least integer that keeps (epsilon / (2 c), delta / c).
- Algorithm 2 hands on only the trees below a deepest TOP node: a tree without any TOP, and a BOTTOM
  node beside a TOP sibling, would get no estimate. Here every maximal subtree of BOTTOM nodes goes
  on, as the proof of Lemma 4.6 supposes. Its line 7 sets M_i at ancestors "in T", which would
  overwrite the larger values of rounds before; it must be within the round's own trees.
- Algorithm 4, Theorem A.1: epsilon_i and delta_i are printed with r^(i-1), whose sum is infinite;
  they need 1/r, and C changes with it. Algorithm 4 prints tau_i with r^i, its proof with r^(i-1),
  which is right. The least tau_min grows by r^2.

Baselines, closed forms and lower bounds are in `dpcore.papers.ghazi_bounds`. What the product has
is in the table of docs/reproduction.md, by number. In place of Algorithms 1, 2 and 4 it calibrates:
every round's threshold, acceptance, number of levels and split of the budget are free, and the
search is monotone (half of the noise). With 20 levels, alpha 1/2, epsilon 1 and delta 10^-6 the
published constants promise alpha tau_min = 248,841 rows for all but one node in 400, and the
calibrated plan an alpha-mRMSE of 119.8 for trees of up to 10^6 rows (docs/relative-error.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.elementary import expm1, log, log1p
from dptrees.dpcore.arithmetic.sums import hypotenuse
from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace, truncated_laplace
from dptrees.dpcore.privacy.sensitivity import check_budget, rounded_down
from dptrees.dpcore.thresholds.sparse_vector import (
    SparseVectorParameters,
    classify_forest,
    remaining_trees,
    tree_weights,
    whole_tree,
)
from dptrees.dpcore.trees.shapes import Shape

# Section 3: thresholds of their own for the nodes.


def is_accurate(
    estimates: npt.ArrayLike, w: npt.ArrayLike, tau: npt.ArrayLike, *, alpha: float
) -> Flags:
    """Problem 3.1, Equation (1): whether each |w~_u - w_u| is at most alpha max(w_u, tau_u).

    Args:
        estimates, w: (...) of nodes u.
        tau: (...) their thresholds, at least 0. Only the least of them, tau_min, enters the
            algorithms: an estimate that is accurate for tau_min is so for every tau_u.
        alpha: at least 0.

    >>> is_accurate([15, 15, 80], [10, 10, 60], [10, 4, 0], alpha=0.5).tolist()
    [True, True, True]
    >>> is_accurate([3, 3], [0, 0], [10, 4], alpha=0.5).tolist()
    [True, False]
    """
    truth = np.asarray(w, np.float64)
    allowed = alpha * np.maximum(truth, np.asarray(tau, np.float64))
    flags: Flags = np.abs(np.asarray(estimates, np.float64) - truth) <= allowed
    return flags


@dataclass(frozen=True, kw_only=True)
class ErrorBound:
    """Lemma 3.3: the parameters of a conversion, after which no estimate is far off.

    Guarantee: `bound_error` costs (epsilon, delta), besides what its estimate costs. Proof sketch:
    the d levels get truncated Laplace noise at (epsilon / d, delta / d) each, and a row is in one
    node of a level at most. The rest is post-processing.

    Args:
        depth: d.
        epsilon, delta: of the conversion alone (the paper gives it half of the whole).

    Raises:
        ValueError: an argument out of range.

    >>> bound = ErrorBound(depth=4, epsilon=Fraction(1, 2), delta=Fraction(1, 10**6))
    >>> bound.noise.scale, bound.noise.radius
    (Fraction(8, 1), 100)
    """

    depth: int
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        _check_depth(self.depth)

    @cached_property
    def noise(self) -> TruncatedLaplace:
        """The noise of every node, of radius R."""
        return truncated_laplace(
            Fraction(self.epsilon) / self.depth, Fraction(self.delta) / self.depth
        )

    def alpha_mrmse(self, *, alpha: float, tau_max: float, eta: float) -> float:
        """Bound the alpha-mRMSE after the conversion of an (alpha, eta)-accurate estimate.

        Returns:
            sqrt((alpha tau_max)^2 + 4 eta R^2); at eta = d^-2 and the tau of Corollary 4.7, each
            for half of the budget, this is Theorem 4.1 with its constants.

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
    """Lemma 3.3: estimates clipped to within R of a noisy count; none worse, all within 2 R.

    Args:
        tree, leaf_counts, stream: the tree, (K,) int64 exact counts, the source of all noise.
        estimates: (n_level,) int64 for each level.
        parameters: the mechanism, with its guarantee.

    Raises:
        ValueError: counts out of range, or a tree deeper than the parameters'.

    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> from dptrees.dpcore.trees.shapes import UniformTree
    >>> tree, bound = UniformTree(leaves=2, fanouts=(2,)), ErrorBound(
    ...     depth=2, epsilon=Fraction(8), delta=Fraction(1, 100))
    >>> clipped = bound_error(tree, np.array([5, 9]), [np.array([0]), np.array([5, 99])],
    ...                       bound, public_stream("doc"))
    >>> [bool(np.abs(clipped[1] - [5, 9]).max() <= 2 * bound.noise.radius), int(clipped[1][0])]
    [True, 5]
    """
    _check_tree(tree, parameters.depth)
    clipped = []
    for weights, guess in zip(tree_weights(tree, leaf_counts), estimates, strict=True):
        noisy = weights + parameters.noise.sample(stream, weights.size)
        radius = parameters.noise.radius
        clipped.append(np.clip(guess, noisy - radius, noisy + radius))
    return clipped


# Section 4.1: classification.


@dataclass(frozen=True, kw_only=True)
class Classification:
    """Problem 4.2, Algorithm 1 (corrected): the parameters of Classification.

    Guarantee: `classify` is (epsilon, delta)-differentially private, whatever the values of
    root_bound, eta, alpha and tau.

    Proof sketch. The queries f_i, the largest count among the nodes S_i left at a level, change by
    at most 1, since S_i depends on earlier answers only: the sparse vector technique costs
    epsilon / 2 (its stages and the steps below alternate, so they compose one after the other). A
    level is looked at node by node only after an answer TOP, hence at most c times, c an integer. A
    row is in one node of a level at most, so by parallel composition each such look costs what one
    node does: truncated Laplace noise at (epsilon / (2 c), delta / c). Together
    (epsilon / 2, delta). All else is post-processing. In a forest of disjoint trees a row is in one
    tree at most: parallel composition again (Corollary 4.5).

    Accuracy (Lemma 4.3, Problem 4.4): where `check_accuracy` passes, each tree whose root has at
    most root_bound rows is, with a probability of at least 1 - eta, classified right throughout:
    TOP where a count is at least (1 + alpha) tau, BOTTOM where it is below (1 - alpha) tau.

    Args:
        depth: d.
        root_bound: M, the most rows a root may have for the accuracy to hold.
        eta: the probability of an error in a tree, above 0 and below 1/2.
        alpha: the relative width of the undecided zone, above 0 and below 1.
        tau: the threshold, positive.
        epsilon, delta: positive, delta below 1.

    Raises:
        ValueError: an argument out of range.

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
        _check_depth(self.depth)
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
        return 2 * math.ceil(scale * (log(2.0 * self.depth) - log(float(self.eta))))

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

    @property
    def published_threshold(self) -> float:
        """Lemma 4.3: the tau from which accuracy is proved where c need not be an integer.

        sqrt(2 M / (alpha epsilon)) max(sqrt(48 ln(2 d / eta)),
        sqrt(6 ln(1 + (e^(epsilon / 2) - 1) / delta))).
        """
        search = 48 * log(2 * self.depth / float(self.eta))
        looks = 6 * log1p(expm1(float(self.epsilon) / 2) / float(self.delta))
        scale = 2 * self.root_bound / (self.alpha * self.epsilon)
        return math.sqrt(float(scale) * max(search, looks))

    def check_accuracy(self) -> None:
        """Refuse parameters for which the accuracy is not proved (Lemma 4.3, corrected).

        Raises:
            ValueError: Delta + 2 R is above alpha tau.
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
    """Algorithm 1, Classification (corrected); Corollary 4.5 for a forest.

    Args:
        tree, weights: the shape, and what `tree_weights` gives.
        parameters: the mechanism, with its guarantee and accuracy.
        stream: the source of all noise.
        forest: as in `remaining_trees`; the whole tree by default.

    Returns:
        (n_level,) for each level: True for TOP, False for BOTTOM and outside the forest. With a
        node all its ancestors in its tree are TOP.

    Raises:
        ValueError: the tree has more levels than the parameters' depth.

    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> from dptrees.dpcore.trees.shapes import UniformTree
    >>> tree = UniformTree(leaves=2, fanouts=(2,))
    >>> parameters = Classification(
    ...     depth=2, root_bound=Fraction(9000), eta=Fraction(1, 20), alpha=Fraction(1, 2),
    ...     tau=Fraction(4000), epsilon=Fraction(1), delta=Fraction(1, 10**6))
    >>> weights = tree_weights(tree, np.array([8000, 100]))
    >>> [top.tolist() for top in classify(tree, weights, parameters, public_stream("doc"))]
    [[True], [True, False]]
    """
    _check_tree(tree, parameters.depth)
    owners = whole_tree(tree) if forest is None else forest
    if parameters.is_trivial:
        return [np.zeros(size, dtype=np.bool_) for size in tree.level_sizes]
    return classify_forest(tree, weights, parameters, stream, owners)


# Section 4.2: a reduction from estimation to classification.


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """Lemma 4.6: the parameters of Reduction, which are the classifications of all rounds.

    Guarantee: `reduce_to_classification` is (sum epsilon_i, sum delta_i)-differentially private,
    whatever the other parameters. Proof sketch: round i classifies a forest of disjoint subtrees
    that depends on earlier answers only; the rounds compose; the estimates are post-processing.

    Args:
        least: M_0, the estimate of what is below all thresholds, at least 0.
        steps: the classifications i = 1, 2, ...; applied from the last, the largest tau, down.

    Raises:
        ValueError: thresholds that do not rise with i, a negative M_0, or a total delta of 1.
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
        """Refuse parameters for which the estimates are not proved (alpha, eta)-accurate.

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
    """Algorithm 2, Reduction (corrected): every count, by classifying with falling thresholds.

    A node found TOP in round i is estimated as M_i rounded down, which is never further from its
    count than M_i where the classification is right; what is never TOP as M_0 rounded down.

    Args:
        tree, leaf_counts, stream: the tree, (K,) int64 exact counts, the source of all noise.
        parameters: the mechanism, with its guarantee.

    Returns:
        (n_level,) int64 for each level.

    Raises:
        ValueError: counts out of range, or a tree deeper than the parameters'.
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


# Section 4.3 and Appendix A.5: all together.


@dataclass(frozen=True, kw_only=True)
class Estimation:
    """Theorem A.1, Corollary 4.7 (corrected): the parameters of Estimation.

    With beta = alpha / (6 + 5 alpha) and r = (1 + alpha)(1 - beta) / (1 + beta) = 1 + 2 alpha / 3,

        M_i = alpha tau_min r^i,  tau_i = alpha tau_min r^(i-1) / (1 + beta),  eta_i = eta / 2^i,
        epsilon_i = (epsilon / (2 C)) i r^-(i-1),  delta_i likewise,  C = (1 - 1/r)^-2.

    Guarantee: `estimate` is (epsilon, delta)-differentially private. Proof sketch: the root's count
    with truncated Laplace noise costs (epsilon / 2, delta / 2). How many rounds follow depends on
    it alone; round i costs (epsilon_i, delta_i), and the sums over all i up to infinity are
    epsilon / 2 and delta / 2, since sum i r^-(i-1) = (1 - 1/r)^-2 = C.

    Accuracy: (alpha, eta), of `is_accurate`, for all thresholds of at least tau_min.

    Args:
        depth: d.
        alpha: the relative error, above 0 and below 1.
        epsilon, delta: the budget; positive, delta below 1.
        eta: above 0 and below 1/2.
        tau_min: the least of the thresholds of Problem 3.1, from `smallest_threshold` on.

    Raises:
        ValueError: an argument out of range, or a tau_min for which accuracy is not proved.

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
        """The rounds needed below a bound M of the root: the least l with M_l >= M, checked."""
        least = self.alpha * self.tau_min
        steps: list[Classification] = []
        while (steps[-1].root_bound if steps else least) < root_bound:
            steps.append(self.step(len(steps) + 1))
        found = Reduction(least=least, steps=tuple(steps))
        found.check_accuracy(
            alpha=self.alpha, eta=self.eta, tau_min=self.tau_min, root_bound=Fraction(root_bound)
        )
        return found


# Covers rounding, and float64's.
_INTEGERS, _FLOATS = 4, 1e-9


def smallest_threshold(
    *, depth: int, alpha: Fraction, epsilon: Fraction, delta: Fraction, eta: Fraction
) -> float:
    """Theorem A.1 (corrected): the least tau_min for which Estimation is proved to be accurate.

    Round i needs Delta_i + 2 R_i <= beta tau_i. With c = ceil(1 + alpha) = 2 and

        Delta_i = (16 c / epsilon_i) ln(2 d / eta_i),
        R_i <= (2 c / epsilon_i) ln(1 + c (e^(epsilon / (4 c)) - 1) / delta),

    both, divided by tau_i, fall with i, so that i = 1 decides; 4 covers their rounding. (The bound
    of R_i is Lemma 2.8's at (epsilon_i / (2 c), delta_i / c), where epsilon_i = lambda epsilon / 2,
    delta_i = lambda delta / 2 and (e^(lambda a) - 1) / lambda <= e^a - 1 for lambda <= 1.) The
    paper's closed form, Corollary 4.7, requires 3 max(Delta, R) instead.

    Raises:
        ValueError: an argument out of range.

    >>> smallest_threshold(depth=20, alpha=Fraction(1, 2), epsilon=Fraction(1),
    ...                    delta=Fraction(1, 10**6), eta=Fraction(1, 400))
    4976...
    """
    _check_depth(depth)
    _check_between("alpha", alpha, 1)
    _check_between("eta", eta, Fraction(1, 2))
    check_budget(epsilon, delta)
    beta, ratio, cutoff = _beta(alpha), _ratio(alpha), math.ceil(1 + alpha)
    first = float(epsilon * (1 - 1 / ratio) ** 2 / 2)
    error = 16 * cutoff / first * log(float(4 * depth / eta))
    growth = expm1(float(epsilon) / (4 * cutoff))
    radius = 2 * cutoff / first * log1p(cutoff * growth / float(delta))
    needed = (error + 2 * radius) * (1 + _FLOATS) + _INTEGERS
    return float((1 + beta) / (alpha * beta)) * needed


def estimate(
    tree: Shape, leaf_counts: Integers, parameters: Estimation, stream: RandomStream
) -> list[Integers]:
    """Algorithm 4, Estimation (corrected): every count within a relative error.

    Args:
        tree, leaf_counts, stream: the tree, (K,) int64 exact counts, the source of all noise.
        parameters: the mechanism, with its guarantee and accuracy.

    Returns:
        (n_level,) int64 for each level, root first.

    Raises:
        ValueError: counts out of range, or a tree deeper than the parameters'.

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


def _check_depth(depth: int) -> None:
    if depth < 1:
        raise ValueError(f"depth is {depth}; it must be at least 1")


def _check_tree(tree: Shape, depth: int) -> None:
    if tree.height + 1 > depth:
        raise ValueError(f"depth is {depth}; the tree has {tree.height + 1} levels")


def _check_between(name: str, value: Fraction, below: Fraction | int) -> None:
    if not 0 < value < below:
        raise ValueError(f"{name} is {value}; it must be above 0 and below {below}")


def _beta(alpha: Fraction) -> Fraction:
    return Fraction(alpha) / (6 + 5 * Fraction(alpha))


def _ratio(alpha: Fraction) -> Fraction:
    return (1 + alpha) * (1 - _beta(alpha)) / (1 + _beta(alpha))
