"""Sensitivity of a strategy's measurements to one privacy unit, and the noise that hides it.

The one owner of the sensitivity of integer strategies.
"""

from __future__ import annotations

from dptrees.dpcore.factorised.strategy import MatrixStrategy
from dptrees.dpcore.noise.laws import DiscreteGaussian, NoiseLaw
from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.privacy.unit import PrivacyUnit


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

    >>> from dptrees.dpcore.factorised.toeplitz import ToeplitzStrategy
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
