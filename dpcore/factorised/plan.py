"""The plan of a strategy: its budget, the sensitivity of its sums, their noise, and all errors.

Estimates are M^-1 y. Where the number of rows N is public, they are moved to sum to it by least
squares: x + Cov(x, U) (N - U) / Var U, U the estimate of the total; a sum s of cells then has the
variance Var s - Cov(s, U)^2 / Var U (Rao 1973, section 4a.9).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dptrees.dpcore.arithmetic.sums import dot
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.factorised.optimum import Read
from dptrees.dpcore.factorised.strategies import MatrixStrategy
from dptrees.dpcore.noise.laws import DiscreteGaussian, NoiseLaw
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.specification import CONTEXT, INLINE, Coded
from dptrees.dpcore.trees.shapes import UniformTree


def strategy_sensitivity(unit: PrivacyUnit, strategy: MatrixStrategy, *, keyed: bool) -> int:
    """The squared L2 sensitivity of M x, over all keys, for one privacy unit.

    A row in cell i adds the column m_i to what is measured of its key's tree. Let n = max |m_i|^2
    and d = max |m_i - m_j|^2 over all pairs (d <= 4 n), both exact whole numbers, and let a unit
    have at most c rows; with keys at most r under each, in q keys with r rows and one with the rest
    (`PrivacyUnit.heaviest`), of squares that sum to m_2 (`PrivacyUnit.moved`).

    Under ``add_remove`` the sums of a key with v_k rows of the unit move by at most v_k sqrt(n), so
    the sums of all keys move by L2^2 = n sum v_k^2 <= n m_2, without keys n c^2. Attained by v_k
    rows in the cell of the longest column.

    Under ``substitute`` and without keys, v rows leave and w come, both at most c: of these, min(v,
    w) pairs move the sums by at most sqrt(d) each, and the others by sqrt(n): at most c times the
    larger of both, L2^2 = c^2 max(d, n). (The others: in one of the data sets a policy drops some.)

    With keys, v_k rows leave a key and w_k come: its sums move by f(v_k, w_k) = min sqrt(d) +
    |v_k - w_k| sqrt(n), which is convex since sqrt(d) <= 2 sqrt(n), so that the sum of its squares
    is largest where v and w are at corners: keys with r rows, and one with the rest. If no two keys
    share rows of both, that is 2 n m_2; a key with r of both gives r^2 d. Where there is a rest it
    is counted as if it were r, which bounds the keys that it meets: L2^2 = q' r^2 max(2 n, d), q'
    the keys with any.

    Args:
        unit: what neighbors differ in.
        strategy: M.
        keyed: there is a tree for each key.

    Source: derived here; compared with brute force in the tests.

    >>> from dptrees.dpcore.factorised.strategies import ToeplitzStrategy
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW
    >>> one = ToeplitzStrategy(cells=1, scale=1, steps=1)
    >>> [strategy_sensitivity(each, one, keyed=True) for each in (ADD_REMOVE_ROW, SUBSTITUTE_ROW)]
    [1, 2]
    """
    norm = strategy.column_norm
    if not unit.substitutes:
        return norm * unit.moved(keyed=keyed)[1]
    distance = strategy.column_distance
    if not keyed:
        return unit.rows**2 * max(distance, norm)
    full, per_key, rest = unit.heaviest(keyed=True)
    return (full + (rest > 0)) * per_key**2 * max(2 * norm, distance)


def strategy_law(
    unit: PrivacyUnit, strategy: MatrixStrategy, budget: Budget, *, keyed: bool
) -> NoiseLaw:
    """The noise of every sum: discrete Gaussian of sigma^2 = L2^2 / (2 rho), which is rho-zCDP.

    Raises:
        ValueError: the noise would be too large for 64-bit numbers.

    Source: Canonne, Kamath, Steinke 2020, Theorem 14 (many coordinates).
    """
    sensitivity = strategy_sensitivity(unit, strategy, keyed=keyed)
    return DiscreteGaussian(sigma_squared=sensitivity / (2 * budget.amount))


# The most rows of a tree: every sum with its noise is then within 64 bits.
ROWS = 2**33
# The chance that a noise is larger than its bound.
_BEYOND = 1e-30
_MOST = 2**62


@dataclass(frozen=True, kw_only=True)
class FactorizedPlan(Coded):
    """The plan of one tree's cells: how they are measured.

    Args:
        tree: whose nodes are released, and whose counts add up; nothing is measured by its levels.
        unit: what neighbors differ in.
        budget: the rho that all sums together spend.
        strategy: which sums get noise.
        public_total: the number of rows N is public.
        keyed: there is one tree per key of a group-by column.

    Raises:
        ValueError: a budget that is no rho, a strategy of other cells than the tree's, a public
            total where relation or keys forbid it, noise too large for 64 bits.
    """

    written = ("tree", "budget", "public_total", "strategy")

    tree: UniformTree = field(metadata=INLINE)
    unit: PrivacyUnit = field(metadata=CONTEXT)
    budget: Budget = field(metadata=INLINE)
    strategy: MatrixStrategy
    public_total: bool = False
    keyed: bool = field(default=False, metadata=CONTEXT)

    def __post_init__(self) -> None:
        if self.budget.measure is not Measure.RHO:
            raise ValueError("budget: strategies past trees spend a rho")
        if self.strategy.leaves != self.tree.leaves:
            raise ValueError(
                f"strategy: of {self.strategy.leaves} cells for {self.tree.leaves} leaves"
            )
        if self.public_total and (self.unit != SUBSTITUTE_ROW or self.keyed):
            raise ValueError(
                "public_total: the number of rows is public only under substitute and without keys"
            )

    @cached_property
    def law(self) -> NoiseLaw:
        """Noise law of every sum.

        Raises:
            ValueError: it is too large for 64-bit numbers.
        """
        law = strategy_law(self.unit, self.strategy, self.budget, keyed=self.keyed)
        if self.strategy.largest * ROWS + law.bound(_BEYOND) >= _MOST:
            raise ValueError("budget: it is too small for noise within 64 bits")
        return law


# Ranges of a width, or of all, whose errors are looked at.
_LOOKED_AT = 2048
_IRRATIONAL = [[0.6180339887498949], [math.sqrt(2.0)]]


class FactorizedErrors:
    """The variances of a plan's estimates, in rows^2.

    Args:
        plan: of the tree.
    """

    def __init__(self, plan: FactorizedPlan) -> None:
        self._strategy, self._noise = plan.strategy, plan.law.variance
        self._public_total, self._tree = plan.public_total, plan.tree

    @cached_property
    def alpha(self) -> Floats:
        """(K,) the coefficient of the total's estimate in each prefix's, Cov(P, U) / Var U."""
        covariances = self._strategy.total_covariances
        return np.asarray(covariances / covariances[-1])

    @cached_property
    def measured_total(self) -> float:
        """The variance of the total, as measured."""
        return float(self._strategy.total_covariances[-1]) * self._noise

    @property
    def total(self) -> float:
        """The variance of the total's estimate: 0 where it is public."""
        return 0.0 if self._public_total else self.measured_total

    @cached_property
    def prefixes(self) -> Floats:
        """(K,) of every prefix."""
        return self._less_total(self._strategy.prefix_variances * self._noise, self.alpha)

    def rmse(self, read: Read) -> float:
        """The root mean square error of what is read, in rows: of a prefix, over all K; of prefix -
        q total, over these and the q; of a range, over the widths and the places of each."""
        if read.kind == "ranges":
            return math.sqrt(np.mean([self._mean_variance(*each) for each in self._ranges(read)]))
        found = self.prefixes
        if read.kind == "quantiles":
            shares = np.array(read.shares)[:, None]
            found = found + self.total * (shares * shares - 2 * shares * self.alpha)
        return math.sqrt(found.mean())

    def _ranges(self, read: Read) -> Iterator[tuple[Integers, Integers]]:
        """Ranges of each width, or of all, that are spread evenly."""
        cells = self._tree.leaves
        for width in read.widths:
            starts = np.unique(np.linspace(0, cells - width, _LOOKED_AT).astype(np.int64))
            yield starts, starts + width
        if not read.widths:
            # Multiples of the golden ratio and of the root of two are spread evenly together.
            place = np.arange(1, _LOOKED_AT + 1) * np.array(_IRRATIONAL)
            ends = np.sort((place % 1 * cells).astype(np.int64), axis=0)
            yield ends[0], ends[1] + 1

    def _mean_variance(self, starts: Integers, stops: Integers) -> float:
        return float(self.ranges(starts, stops).mean())

    @cached_property
    def levels(self) -> list[Floats]:
        """Per level (n,) of the tree's nodes."""
        result = []
        for level, size in enumerate(self._tree.level_sizes):
            below = self._tree.leaves_below(level)
            starts = np.arange(size, dtype=np.int64) * below
            result.append(self.ranges(starts, np.minimum(starts + below, self._tree.leaves)))
        return result

    def ranges(self, starts: Integers, stops: Integers) -> Floats:
        """(n,) of the sums of cells start..stop - 1."""
        alpha = np.concatenate([[0.0], self.alpha])
        variances = self._strategy.range_variances(starts, stops) * self._noise
        return self._less_total(variances, alpha[stops] - alpha[starts])

    def runs(self, runs: Sequence[tuple[int, int]]) -> float:
        """The variance of several runs of cells together, [start, stop) each."""
        weights = np.zeros(self._tree.leaves)
        for start, stop in runs:
            weights[start:stop] = 1.0
        row = self._strategy.coefficients(weights)
        alpha = np.concatenate([[0.0], self.alpha])
        own = math.fsum(alpha[stop] - alpha[start] for start, stop in runs)
        return float(self._less_total(np.array(dot(row, row) * self._noise), np.array(own)))

    def weighted(self, weights: Floats) -> float:
        """The variance of a weighted sum of the cells, (K,) weights."""
        row = self._strategy.coefficients(weights)
        own = dot(weights, np.diff(self.alpha, prepend=0.0))
        return float(self._less_total(np.array(dot(row, row) * self._noise), np.array(own)))

    def _less_total(self, variances: Floats, alpha: Floats) -> Floats:
        """Variances less the part of the total, where the total is public."""
        if not self._public_total:
            return variances
        return np.maximum(variances - alpha * alpha * self.measured_total, 0.0)
