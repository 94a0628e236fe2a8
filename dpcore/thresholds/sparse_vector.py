"""The sparse vector technique: which of many queries are large, paying only for those found.

Queries arrive one by one, each perhaps chosen after the answers to those before it. Each is
answered TOP (about the threshold or more) or BOTTOM; after c answers TOP all further answers are
BOTTOM. Noise and price depend on c, not on the number of queries.

Sources: Ghazi, Kamath, Kumar, Manurangsi, Wu, Lemma 2.9 and Algorithm 3; Dwork, Roth, "The
Algorithmic Foundations of Differential Privacy" (2014), Algorithm 2 and Theorem 3.25 at delta = 0.
There the noise is continuous; here it is discrete Laplace on integers. The paper applies it with a
c that is no integer: then ceil(c) answers TOP are given and c are paid for. Here c is an integer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import RandomStream

_MOST_VALUE = 2**60


@dataclass(frozen=True, kw_only=True)
class SparseVectorParameters:
    """The parameters that fix the law of the answers of the sparse vector technique.

    Guarantee: the answers to any number of adaptively chosen integer queries, each of them
    changing by at most 1 between neighbors, are epsilon-differentially private.

    Proof sketch. A run is at most c stages in sequence, each ending with an answer TOP; a fresh
    noisy threshold makes a stage a mechanism of its own, so the losses of the stages add up, and
    what else is released between two stages composes in the ordinary way. Take a stage that ends
    at query k and its neighbor, primed, and fix the noise of the queries before k. Let g be the
    largest noisy value of those. The stage ends at k if and only if g < T + y <= f_k + x with y
    the noise of the threshold and x that of query k. Replacing y by y + (g' - g) and x by
    x + (g' - g) - (f_k' - f_k) maps this event onto the neighbour's, one to one on the integers. y
    moves by at most 1 and x by at most 2, which costs a factor of at most
    exp(1 / (2 c / epsilon) + 2 / (4 c / epsilon)) = exp(epsilon / c). A last stage without TOP
    costs half of it at most.

    Monotone queries, where no query falls while another rises between neighbors, need half of the
    noise of a query: g' - g and f_k' - f_k are then both from 0 to 1 or both from -1 to 0, so x
    moves by at most 1, which costs exp(1 / (2 c / epsilon)).

    Args:
        epsilon: of all the answers together, positive.
        cutoff: c, how many answers may be TOP, a positive integer.
        threshold: any rational number; integer values reach it if they reach it rounded up.
        is_monotone: whether the queries are monotone, such as counts when one row is added.

    Raises:
        ValueError: an argument out of range.

    Source: Ghazi et al., Lemma 2.9 and Algorithm 3; monotone queries as in Lyu, Su, Li,
    "Understanding the Sparse Vector Technique" (2017), Theorem 5.

    >>> parameters = SparseVectorParameters(epsilon=Fraction(1), cutoff=2, threshold=Fraction(50))
    >>> parameters.threshold_law.scale, parameters.query_law.scale
    (Fraction(4, 1), Fraction(8, 1))
    """

    epsilon: Fraction
    cutoff: int
    threshold: Fraction
    is_monotone: bool = False

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise ValueError(f"epsilon is {self.epsilon}; it must be positive")
        if isinstance(self.cutoff, bool) or not isinstance(self.cutoff, int) or self.cutoff < 1:
            raise ValueError(
                f"cutoff is {self.cutoff!r}; it must be a positive integer, for otherwise more "
                "answers are given than are paid for"
            )
        if not abs(self.threshold) <= _MOST_VALUE:
            raise ValueError("threshold is beyond 2^60; no 64-bit count reaches it")

    @property
    def threshold_law(self) -> DiscreteLaplace:
        """The noise of the threshold, of scale 2 c / epsilon."""
        return DiscreteLaplace(scale=2 * self.cutoff / Fraction(self.epsilon))

    @property
    def query_law(self) -> DiscreteLaplace:
        """The noise of a query, of scale 4 c / epsilon; of a monotone one 2 c / epsilon."""
        moved = 1 if self.is_monotone else 2
        return DiscreteLaplace(scale=2 * moved * self.cutoff / Fraction(self.epsilon))


class SparseVector:
    """Independent runs of the sparse vector technique, side by side.

    Runs on disjoint sets of rows are parallel: a row is in one of them, so all together are
    epsilon-differentially private. The answers (and nothing else) may be released.

    Args:
        parameters: of every run.
        stream: the source of all noise; read by nobody else meanwhile, or read in a fixed order.
        runs: how many runs.

    Source: Ghazi et al., Algorithm 3.

    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> parameters = SparseVectorParameters(epsilon=Fraction(9), cutoff=1, threshold=Fraction(50))
    >>> sparse = SparseVector(parameters, public_stream("doc"))
    >>> [bool(sparse.answer(np.array([value]))[0]) for value in (0, 100, 0, 100)]
    [False, True, False, False]
    """

    def __init__(
        self, parameters: SparseVectorParameters, stream: RandomStream, runs: int = 1
    ) -> None:
        self._parameters = parameters
        self._stream = stream
        self._found = np.zeros(runs, dtype=np.int64)
        self._thresholds = self._drawn_thresholds(runs)

    @property
    def found(self) -> Integers:
        """(runs,) how many answers of each run were TOP."""
        result: Integers = self._found.copy()
        return result

    def answer(self, values: Integers, runs: Integers | None = None) -> Flags:
        """Answer one query of each of several runs.

        Args:
            values: (n,) the exact values of the queries, integers that change by at most 1 between
                neighbors.
            runs: (n,) the runs that the queries belong to, each at most once; all of them by
                default.

        Returns:
            (n,) True for TOP.
        """
        queried = np.arange(self._found.size) if runs is None else runs
        noisy = values + self._parameters.query_law.sample(self._stream, queried.size)
        top: Flags = noisy >= self._thresholds[queried]
        top &= self._found[queried] < self._parameters.cutoff
        found = queried[top]
        self._found[found] += 1
        self._thresholds[found] = self._drawn_thresholds(found.size)
        return top

    def _drawn_thresholds(self, size: int) -> Integers:
        # Integers reach a threshold with integer noise exactly if they reach it rounded up.
        noise = self._parameters.threshold_law.sample(self._stream, size)
        thresholds: Integers = math.ceil(self._parameters.threshold) + noise
        return thresholds
