"""Sensitivity of measurements to a privacy unit or a group of units, and the noise that hides it.

Every sensitivity of a level is computed here, in integers. Source: the design, section 4; for
groups Dwork, Roth 2014, section 2.3, and Ghazi, Kamath, Kumar, Manurangsi, Wu, Theorem A.1,
corrected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from dptrees.dpcore.arithmetic.elementary import log1p
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.exact_sampling import exp_bounds
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.privacy.unit import Budget, Measure, PrivacyUnit


def level_sensitivity(
    unit: PrivacyUnit, *, single_node: bool, keyed: bool = False
) -> tuple[int, int]:
    """The L1 and the squared L2 sensitivity of the counts of one level, for one privacy unit.

    The nodes of a level, over all keys, are disjoint sets of rows, so a row counts in at most one
    of them, and what a unit's rows add to the level is a vector v of whole numbers >= 0, of norms
    that `PrivacyUnit.moved` bounds: |v| <= m_1, |v|^2 <= m_2 (of a unit that is a row 1 and 1).
    Under ``add_remove`` the counts move by v: L1 = m_1, L2^2 = m_2. Under ``substitute`` they move
    by v - w, w of the unit's other rows: L1 <= |v| + |w| = 2 m_1, and since v w >= 0, |v - w|^2 <=
    |v|^2 + |w|^2: L2^2 = 2 m_2. Attained where v and w lie in other nodes (of other keys). A level
    of a single node can only gain or lose the unit's rows (where some are dropped in one data set):
    L1 = m_1, L2^2 = m_1^2 under either.

    Args:
        unit: what neighbors differ in.
        single_node: the level has one node in all, that is the root of a tree without keys.
        keyed: there is a tree for each key.

    Returns:
        (L1, L2^2).

    Source: the design, section 4; all are compared with brute force in the tests.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> level_sensitivity(SUBSTITUTE_ROW, single_node=False)
    (2, 2)
    """
    l1, l2_squared = unit.moved(keyed=keyed)
    if single_node:
        return l1, l1**2
    both = 2 if unit.substitutes else 1
    return both * l1, both * l2_squared


def sum_sensitivity(
    unit: PrivacyUnit, lower: int, upper: int, *, single_node: bool, keyed: bool = False
) -> tuple[int, int]:
    """The L1 and the squared L2 sensitivity of bounded sums over one level, for one privacy unit.

    A row adds a whole number in [lower, upper] to at most one node of a level; where a policy drops
    it, it adds 0. Let B = max(|lower|, |upper|) be the most that it adds, and W = max(upper, 0) -
    min(lower, 0) the largest distance between two of its contributions; B <= W <= 2 B. Let m_1 and
    m_2 bound the counts that a unit's rows add, as in `level_sensitivity`.

    The sums move by a convex function of the counts and values of a unit, so most at corners: nodes
    with r rows and one with the rest (`PrivacyUnit.heaviest`), all of the value that is farthest
    from 0. Let m_1 and m_2 be their sum and sum of squares.

    Under ``add_remove``: L1 = B m_1, L2^2 = B^2 m_2. Under ``substitute`` the rows before and those
    after may lie in nodes of their own, or in the same with values at both ends. L1 = 2 B m_1. For
    the squares a node with v rows before and w after moves by v B + w (W - B) at most, where v >= w
    > 0, or by v B. Nodes of equally many rows: max(2 B^2, W^2) times their square, in all

        L2^2 = max(2 B^2, W^2) m_2.

    Where there is a rest, it may also meet r rows, once or twice (before, after). With x =
    (r B + rest (W - B))^2 the three cases are that, 2 x + max(2 B^2, W^2) (q - 1) r^2, and
    x + (r^2 + rest^2) B^2 + max(2 B^2, W^2) (q - 1) r^2, and L2^2 is the largest. (The design has
    the first alone, which is too small where values of both signs meet a rest.) A single node moves
    by at most W m_1: L1 = W m_1, L2^2 = (W m_1)^2. All are attained where a policy may drop rows. A
    count has lower = upper = 1, see `level_sensitivity`.

    Args:
        unit: what neighbors differ in.
        lower: the least value of a row.
        upper: the largest.
        single_node: as in `level_sensitivity`.
        keyed: there is a tree for each key.

    Returns:
        (L1, L2^2), whole numbers.

    Raises:
        ValueError: the bounds are not in order, or both 0.

    Source: the design, section 4; all are compared with brute force in the tests.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> sum_sensitivity(SUBSTITUTE_ROW, 0, 10, single_node=False)
    (20, 200)
    >>> sum_sensitivity(SUBSTITUTE_ROW, -10, 10, single_node=False)
    (20, 400)
    """
    if lower > upper or lower == upper == 0:
        raise ValueError(
            f"lower {lower}, upper {upper}: lower must not be above upper, nor both be 0"
        )
    largest, width = max(abs(lower), abs(upper)), max(upper, 0) - min(lower, 0)
    l1, l2_squared = unit.moved(keyed=keyed)
    if not unit.substitutes:
        return largest * l1, largest**2 * l2_squared
    if single_node:
        return width * l1, (width * l1) ** 2
    alike = max(2 * largest**2, width**2)
    full, per_key, rest = unit.heaviest(keyed=keyed)
    met = (per_key * largest + rest * (width - largest)) ** 2 if rest else 0
    others = alike * (full - 1) * per_key**2
    return 2 * largest * l1, max(
        alike * l2_squared,
        2 * met + others,
        met + (per_key**2 + rest**2) * largest**2 + others if rest else 0,
    )


def prefix_sensitivity(
    unit: PrivacyUnit, leaves: int, *, public_total: bool, keyed: bool
) -> tuple[int, int]:
    """The L1 and the squared L2 sensitivity of the counts of all prefixes, for one privacy unit.

    A row in leaf i counts in the prefixes i to K - 1, so one row more moves at most K of them by
    one. Substituting a row between two leaves of a tree moves at most the K - 1 prefixes between
    them, but where a policy may drop rows it may also leave, which moves K. With keys it may leave
    one key's tree and enter another's: 2 K. Where the total is public the last prefix is not
    measured and no row is dropped: K - 1. All move by one, so L2^2 = L1. The rows of a unit of
    several move most where they all lie in the first leaf of their trees: as many prefixes, each by
    the rows of a key. With m_1 and m_2 of `PrivacyUnit.moved`, L1 is m_1 times and L2^2 is m_2
    times that of a row.

    Args:
        unit: what neighbors differ in.
        leaves: K.
        public_total: the number of rows is public (substitute of rows without keys only).
        keyed: there is a tree for each key.

    Returns:
        (L1, L2^2).

    Source: Rameshwar, Tandon, Sharma, Section II-C (K - 1); the others derived here.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> prefix_sensitivity(SUBSTITUTE_ROW, 10, public_total=True, keyed=False)
    (9, 9)
    """
    trees = 2 if keyed and unit.substitutes else 1
    moved = leaves - 1 if public_total else trees * leaves
    l1, l2_squared = unit.moved(keyed=keyed)
    return l1 * moved, l2_squared * moved


def sketch_sensitivity(unit: PrivacyUnit, rows: int, *, signed: bool) -> tuple[int, int]:
    """The L1 and the squared L2 sensitivity of a sketch's table, for one privacy unit.

    A row of data counts in one cell of each of the sketch's j rows, by 1 or, if signed, by -1; its
    hash functions do not depend on the data, so they are the same for both neighbors, and nothing
    is required of them: not even that they are random.

    ``add_remove``: one cell of each row moves by one: L1 = j, L2^2 = j. ``substitute``: one count
    leaves a cell and another enters a cell, by row of the sketch. In two cells they move each by
    one: 2 and 2. In one cell the counts of a count-min sketch cancel; counts of a count sketch
    cancel or, of opposite signs, move that cell by two: 2 and 4. So L1 = 2 j, L2^2 = 2 j unsigned
    and 4 j signed; all are attained, in all rows at once. A row that a policy drops from one of
    the data sets moves no more than under ``add_remove``. The rows of a unit of c may all hash into
    one cell of each row of the sketch: L1 is c times and L2^2 is c^2 times that.

    Args:
        unit: what neighbors differ in.
        rows: of the sketch, j.
        signed: whether rows of data count with a sign (a count sketch).

    Returns:
        (L1, L2^2).

    Source: Holland et al., section 4.1, for L1 under add_remove; all are compared with brute force
    in the tests.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> sketch_sensitivity(SUBSTITUTE_ROW, 3, signed=True)
    (6, 12)
    """
    l1, l2_squared = unit.moved(keyed=False)
    if not unit.substitutes:
        return rows * l1, rows * l2_squared
    return 2 * rows * l1, (4 if signed else 2) * rows * l2_squared


def rank_sensitivity(
    unit: PrivacyUnit, part: Fraction, *, whole: bool, keyed: bool
) -> tuple[Fraction, Fraction]:
    """Sensitivity of the distances of ranks to one privacy unit: L1, and squared L2, over the
    parts.

    A part of the cells in order (of a key: all of them, or the rows between two chosen quantiles)
    has n rows, and the rank ``part`` n =: t is wanted, with q for ``part``. A candidate is a place
    with rank x, or a cell with ranks from L to R; its distance is d = |x - t|, or max(0, L - t,
    t - R). The exponential mechanism's loss is its rate times the *range*, the largest less the
    smallest change of d over the candidates.

    One row more: t rises by q, and x, L and R by 0 or 1 (a place inside the row's cell by some
    number between). So x - t changes by between -q and 1 - q, and d, which is |.| of it or the
    distance from a run of ranks, by no more than m = max(q, 1 - q) in size: the range is at most
    r = 2 m, from 1 to 2. One row exchanged for another of the same part: t stays, x, L and R all
    rise or all fall, by 0 or 1: d changes by at most 1, the range is at most 2.

    A unit with v rows before and w after in a part is max(v, w) - min(v, w) rows more or less, and
    min(v, w) exchanged: a range of at most r |v - w| + 2 min(v, w). Parts are disjoint sets of
    rows, whichever were chosen before: what is split is split by a rule under which one row more in
    a part is one row more on one of its sides. So sums over parts are, with m_1 and m_2 of
    `PrivacyUnit.moved`,

        add_remove   L1 = r m_1, L2^2 = r^2 m_2 (w = 0),
        substitute   L1 = 2 r m_1, since 2 <= 2 r; and, as (r v + (2 - r) w)^2 <= (r^2 + (2 - r)^2)
                     (v^2 + w^2) (Cauchy and Schwarz), L2^2 = 2 (r^2 + (2 - r)^2) m_2,
        the same     where the one part is a whole tree without keys: v, w <= c, so a range of at
                     most 2 c, since r <= 2: L1 = 2 c, L2^2 = 4 c^2.

    No range is less than 1 where a unit has rows.

    Args:
        unit: what neighbors differ in.
        part: q, the wanted rank among the rows of the part, from 0 to 1.
        whole: the part is a whole tree, not what lies between chosen quantiles.
        keyed: there is a tree for each key.

    Returns:
        (L1, L2^2).

    Source: derived here; the exponential mechanism of bounded range is by Dong, Durfee and Rogers,
    "Optimal Differential Privacy Composition for Exponential Mechanisms", 2020.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW
    >>> l1, l2_squared = rank_sensitivity(ADD_REMOVE_ROW, Fraction(9, 10), whole=True, keyed=False)
    >>> float(l1), float(l2_squared)
    (1.8, 3.24)
    >>> [int(each) for each in
    ...  rank_sensitivity(SUBSTITUTE_ROW, Fraction(1, 2), whole=True, keyed=False)]
    [2, 4]
    """
    moved, squared = unit.moved(keyed=keyed)
    apart = 2 * max(part, 1 - part)
    if not unit.substitutes:
        return apart * moved, apart**2 * squared
    if whole and not keyed:
        return Fraction(2 * moved), Fraction(4 * moved**2)
    return 2 * apart * moved, 2 * (apart**2 + (2 - apart) ** 2) * squared


def split_sensitivity(unit: PrivacyUnit, parts: int, *, keyed: bool) -> tuple[int, int]:
    """The L1 and the squared L2 sensitivity of two sums per key between which rows are split.

    A row adds i to one sum of its key and p - i to the other, with 0 <= i <= p. So the sums of a
    key move by two numbers >= 0 that add up to p times its rows, and the numbers of all keys are a
    vector v >= 0 with |v|_1 = p |u|_1 and |v|_2 <= p |u|_2, where u are the rows by key, which
    `PrivacyUnit.moved` bounds: |u|_1 <= m_1, |u|_2^2 <= m_2. Under ``add_remove`` L1 = p m_1 and
    L2^2 = p^2 m_2, attained where all rows lie at one end. Under ``substitute`` the sums move by
    v - w, both of this form: L1 <= 2 p m_1, and since v w >= 0, L2^2 <= 2 p^2 m_2; attained where
    the rows move from one end to the other. (One number of rows alone could not change under
    ``substitute`` unless rows are dropped; here that gains nothing.)

    Args:
        unit: what neighbors differ in.
        parts: p, of a row.
        keyed: there are two sums for each key.

    Returns:
        (L1, L2^2).

    Source: derived here; compared with brute force in the tests.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW
    >>> split_sensitivity(ADD_REMOVE_ROW, 100, keyed=False)
    (100, 10000)
    >>> split_sensitivity(SUBSTITUTE_ROW, 100, keyed=False)
    (200, 20000)
    """
    l1, l2_squared = level_sensitivity(unit, single_node=False, keyed=keyed)
    return parts * l1, parts**2 * l2_squared


def distinct_sensitivity(unit: PrivacyUnit, values: int, *, keyed: bool) -> tuple[int, int]:
    """The L1 and the squared L2 sensitivity of numbers of different values, for one privacy unit.

    Let S be the pairs of a key and a value of a unit that count, at most m of them, a function of
    the unit's rows alone. The number of a key k is the size of the union of all units' pairs under
    k. A unit more makes it larger by a_k, from 0 to the number of its own pairs under k, so the a_k
    sum to at most m, and their squares to at most m^2.

    ``add_remove``: L1 = m, L2^2 = m^2, attained where all m pairs are new and under one key.
    ``substitute``: beside the same pairs of all others, the unit adds a_k before and b_k after, and
    the numbers move by b_k - a_k. Without keys there is one, and both are from 0 to m: L1 = m,
    L2^2 = m^2. With keys L1 <= sum a_k + sum b_k = 2 m, and since a_k b_k >= 0 the squares sum to
    at most sum a_k^2 + sum b_k^2 <= 2 m^2; attained where the pairs before are under one key and
    those after under another.

    Args:
        unit: what neighbors differ in; its bounds do not matter here.
        values: m.
        keyed: there is a number for each key.

    Returns:
        (L1, L2^2).

    Source: derived here; compared with brute force in the tests.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> distinct_sensitivity(SUBSTITUTE_ROW, 1, keyed=False)
    (1, 1)
    >>> distinct_sensitivity(SUBSTITUTE_ROW, 1, keyed=True)
    (2, 2)
    """
    both = 2 if unit.substitutes and keyed else 1
    return both * values, both * values**2


def distance_sensitivity(unit: PrivacyUnit) -> int:
    """The most by which the distance of a table from a public one moves, in either direction.

    A table has the counts x of disjoint cells (groups of the cells of one or two columns), m is a
    public table of whole numbers, and the distance is the L1 norm of x - m, in rows. For neighbors
    x and y, | |x - m| - |y - m| | <= |x - y| by the triangle inequality, and |x - y| is at most the
    L1 sensitivity of the counts of one level (`level_sensitivity`): m_1 under ``add_remove``, twice
    that under ``substitute``. A public number that is subtracted changes nothing. Attained where
    m is 0 in all cells (``add_remove``), or where a unit leaves a cell below m for one above it.

    Args:
        unit: what neighbors differ in.

    Source: McKenna, Miklau, Sheldon 2021, of the scores of MST; compared with brute force in the
    tests.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> distance_sensitivity(SUBSTITUTE_ROW)
    2
    """
    return level_sensitivity(unit, single_node=False)[0]


def excess_sensitivity(unit: PrivacyUnit) -> int:
    """The range of the distances by which a bound of a unit is chosen, for one privacy unit: 1.

    The distance of a size t is D(t) = max(0, N(t) - m), with N(t) the number of units that have
    more than t rows (or keys) and m public. The exponential mechanism's loss is its rate times the
    *range*, the largest less the smallest change of D over the sizes.

    ``add_remove``: a unit of n rows more makes N(t) larger by 1 for t < n, and changes no other.
    ``substitute``: its n rows become n', so N(t) moves by 1 for t between them, and by nothing
    elsewhere; up if n' > n, else down. So all N(t) move in one direction, by 0 or 1, and
    max(0, x - m) moves with x, by no more than x: the range is at most 1. It does not grow with the
    rows that a unit has, since each is counted once, and it is attained where N(t) is at least m
    for some t < n and some t is at least n.

    Args:
        unit: what neighbors differ in, counted once.

    Source: derived here; compared with brute force in the tests.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> excess_sensitivity(SUBSTITUTE_ROW)
    1
    """
    moved, _ = unit.once.moved(keyed=False)
    return moved


def periods_sensitivity(max_periods: int, span: int) -> tuple[int, int]:
    """The factors by which L1 and the squared L2 of one period grow over the nodes of a temporal
    level, for a unit that is counted in at most p periods.

    Let v_t be what the unit adds to the counts of period t, at one level of a tree, |v_t|_1 <= m_1
    and |v_t|_2^2 <= m_2; v_t = 0 but for p periods. A node of a temporal level with spans of s
    periods is moved by the sum of its v_t, and each period is in at most one node. So the nodes
    move by at most p m_1 in L1. A node with k of the p periods moves by at most k sqrt(m_2) in L2
    (triangle inequality), and the squares of nodes add up: m_2 sum k^2, where every k is at most
    s and they sum to p. That is convex, so largest where as many nodes as possible have s of them:
    q = floor(p / s) nodes, and one with the rest. Attained by rows of one leaf in p successive
    periods from the first period of a node on.

    Under ``substitute`` it does not hold: the unit and the one in its place may be counted in
    2 p periods together, where the root of one period moves by m_1 in each.

    Args:
        max_periods: p, at least 1.
        span: s, the periods of a node.

    Returns:
        (p, q s^2 + (p - q s)^2).

    >>> periods_sensitivity(5, 1), periods_sensitivity(5, 2), periods_sensitivity(5, 8)
    ((5, 5), (5, 9), (5, 25))
    """
    full, rest = divmod(max_periods, span)
    return max_periods, full * span**2 + rest**2


def weighted_periods_sensitivity(products: Integers, max_periods: int) -> int:
    """The factor by which the squared L2 of one period grows over weighted sums of periods, for a
    unit that is counted in at most p periods.

    Sum i of a strategy M of integers >= 0 is M_i1 x_1 + ... + M_iT x_T, x_t the counts of period t
    at one level of a tree. Let v_t be what the unit adds to x_t, as in `periods_sensitivity`: v_t
    >= 0, |v_t|_2^2 <= m_2, v_t = 0 but for a set S of p periods. With G = M'M the sums move by

        sum_ij G_ij v_i v_j <= m_2 sum_(i, j in S) G_ij <= m_2 p max_i (the p largest of row i of G)

    (Cauchy and Schwarz; every G_ij is >= 0). With p = 1 that is the largest squared norm of a
    column, since no product of two columns is larger, and is attained. Under ``substitute`` it
    holds with p = 1, v_t being the difference in the one period in which neighbors differ.

    Args:
        products: (T, T) G.
        max_periods: p, from 1 to T.

    >>> import numpy as np
    >>> strategy = np.array([[2, 0], [1, 3]])
    >>> [weighted_periods_sensitivity(strategy.T @ strategy, p) for p in (1, 2)]
    [9, 24]
    """
    largest = np.sort(products, axis=1)[:, products.shape[1] - max_periods :]
    return max_periods * int(largest.sum(axis=1).max())


def noise_law(budget: Budget, l1: int, l2_squared: int) -> NoiseLaw:
    """The noise that spends ``budget`` on counts of the given sensitivity.

    Epsilon: discrete Laplace of scale L1 / epsilon is epsilon-DP. Rho: discrete Gaussian of
    sigma^2 = L2^2 / (2 rho) is rho-zCDP.

    Raises:
        ValueError: the noise would be too large for 64-bit counts.

    >>> from fractions import Fraction
    >>> noise_law(Budget(measure=Measure.RHO, amount=Fraction(1, 4)), 1, 1)
    DiscreteGaussian(sigma_squared=Fraction(2, 1))
    """
    if budget.measure is Measure.EPSILON:
        return DiscreteLaplace(scale=l1 / budget.amount)
    return DiscreteGaussian(sigma_squared=l2_squared / (2 * budget.amount))


def amount_factor(measure: Measure, own: float, wanted: float) -> float:
    """The factor of an amount of budget at which noise has another variance.

    Discrete Laplace noise of scale 1 / e has the variance 1 / (cosh e - 1), so e is the acosh of
    1 + 1 / variance.

    Args:
        measure: of the amount.
        own: the variance of the noise that the amount buys, above 0.
        wanted: the other one, above 0.

    >>> amount_factor(Measure.RHO, 2.0, 4.0)
    0.5
    """
    if measure is Measure.RHO:
        return own / wanted
    return _laplace_rate(wanted) / _laplace_rate(own)


def _laplace_rate(variance: float) -> float:
    """1 / scale of discrete Laplace noise."""
    excess = 1 / variance
    return log1p(excess + math.sqrt(excess * (excess + 2)))


def level_law(
    unit: PrivacyUnit, budget: Budget, *, single_node: bool, keyed: bool = False
) -> NoiseLaw:
    """The noise that spends ``budget`` on the counts of one level, for one unit; see `noise_law`.

    Args:
        unit: what neighbors differ in.
        budget: what the level may spend.
        single_node, keyed: as in `level_sensitivity`.

    Raises:
        ValueError: the noise would be too large for 64-bit counts.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> level_law(SUBSTITUTE_ROW, Budget(measure=Measure.EPSILON, amount=Fraction(1, 2)),
    ...           single_node=False)
    DiscreteLaplace(scale=Fraction(4, 1))
    """
    return noise_law(budget, *level_sensitivity(unit, single_node=single_node, keyed=keyed))


# Budgets are rounded down to so many bits, so that scales stay short fractions.
BUDGET_BITS = 40
FACTOR_BITS = 128
# A row's delta is below a unit's by e^-epsilon or so, and must be a number that floats hold.
_MOST_EPSILON = 500


@dataclass(frozen=True, kw_only=True)
class GroupPrivacy:
    """Budget of one row such that a unit of several rows keeps (epsilon, delta).

    A mechanism that is (row_epsilon, row_delta)-DP for one row added or removed is (epsilon, delta)
    -DP for units of at most c rows. Such a unit, added or removed, is a path of k = c steps of one
    row each; substituted, of k = 2 c steps. Along it epsilon is the sum of k row_epsilon,
    and delta = row_delta (1 + e^row_epsilon + ... + e^((k - 1) row_epsilon)).

    Args:
        epsilon, delta: the claim for a unit; positive, delta below 1.
        unit: what neighbors differ in, with c, the most of its rows in the tree.

    Raises:
        ValueError: an argument out of range.

    Source: Ghazi et al., Fact 2.2.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> unit = GroupPrivacy(epsilon=Fraction(1), delta=Fraction(1, 1000), unit=SUBSTITUTE_ROW)
    >>> unit.row_epsilon, round(float(unit.row_delta), 9)
    (Fraction(1, 2), 0.000377541)
    """

    epsilon: Fraction
    delta: Fraction
    unit: PrivacyUnit

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)

    @property
    def steps(self) -> int:
        """k = ||x - x'||_1 at most: c, or twice as many under substitution."""
        return level_sensitivity(self.unit, single_node=False)[0]

    @property
    def row_epsilon(self) -> Fraction:
        """epsilon / k."""
        return Fraction(self.epsilon) / self.steps

    @cached_property
    def row_delta(self) -> Fraction:
        """delta (e^row_epsilon - 1) / (e^epsilon - 1), rounded down; delta itself where k is 1."""
        if self.steps == 1:
            return Fraction(self.delta)
        if self.epsilon > _MOST_EPSILON:
            raise ValueError(
                f"epsilon: it is {float(self.epsilon):g}, and must be at most {_MOST_EPSILON} "
                f"where a unit moves {self.steps} rows: the delta of each would be next to 0"
            )
        # (e^a - 1) / (e^b - 1) = e^(a - b) (1 - e^-a) / (1 - e^-b).
        bits = FACTOR_BITS + 2 * math.ceil(self.epsilon)
        one = 1 << bits
        shrink = exp_bounds(self.epsilon - self.row_epsilon, bits)[0]
        above = one - exp_bounds(self.row_epsilon, bits)[1]
        below = one - exp_bounds(Fraction(self.epsilon), bits)[0]
        return rounded_down(Fraction(self.delta) * Fraction(shrink * above, one * below))


def check_budget(epsilon: Fraction, delta: Fraction) -> None:
    if not epsilon > 0:
        raise ValueError(f"epsilon is {epsilon}; it must be positive")
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}; it must be above 0 and below 1")


def rounded_down(value: Fraction, bits: int = BUDGET_BITS) -> Fraction:
    """The largest rational of so many bits over or times a power of 2 that is not above.

    >>> value = Fraction(1, 3)
    >>> rounded_down(value) <= value < rounded_down(value) * (1 + Fraction(1, 2**39))
    True
    """
    places = bits - value.numerator.bit_length() + value.denominator.bit_length()
    unit = Fraction(1, 2**places) if places >= 0 else Fraction(2**-places)
    return value // unit * unit
