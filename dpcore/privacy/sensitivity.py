"""How far one row moves what is measured, and the noise that hides it.

The one owner of every sensitivity of a level: the design, section 4, in integers.
"""

from __future__ import annotations

from dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dpcore.privacy.budget import Budget, Measure, Neighbors


def level_sensitivity(neighbors: Neighbors, *, single_node: bool) -> tuple[int, int]:
    """The L1 and the squared L2 sensitivity of the counts of one level, for one row.

    The nodes of a level, over all keys, are disjoint sets of rows, so a row counts in at most one
    of them. Under ``add_remove`` one count moves by one: L1 = 1, L2^2 = 1. Under ``substitute`` a
    row may leave one node and enter another: L1 = 2, L2^2 = 2. A level of a single node can only
    gain or lose that row (when a policy drops it in one data set): L1 = L2^2 = 1 under either.

    Args:
        neighbors: the neighbouring relation.
        single_node: the level has one node in all, that is the root of a tree without keys.

    Returns:
        (L1, L2^2).

    >>> level_sensitivity(Neighbors.SUBSTITUTE, single_node=False)
    (2, 2)
    """
    if neighbors is Neighbors.ADD_REMOVE or single_node:
        return 1, 1
    return 2, 2


def sum_sensitivity(
    neighbors: Neighbors, lower: int, upper: int, *, single_node: bool
) -> tuple[int, int]:
    """The L1 and the squared L2 sensitivity of bounded sums over one level, for one row.

    A row adds a whole number in [lower, upper] to at most one node of a level; where a policy drops
    it, it adds 0. Let B = max(|lower|, |upper|) be the most that it adds, and W = max(upper, 0) -
    min(lower, 0) the largest distance between two of its contributions; B <= W <= 2 B.

    Under ``add_remove`` one sum moves by at most B: L1 = B, L2^2 = B^2. Under ``substitute`` a row
    may take x from one node and add y to another, L1 = |x| + |y| <= 2 B and L2^2 = x^2 + y^2 <=
    2 B^2, or stay in its node, which moves by |y - x| <= W: L1 = 2 B, L2^2 = max(2 B^2, W^2). A
    single node moves by at most W: L1 = W, L2^2 = W^2. All are attained where a policy may drop
    rows. A count has lower = upper = 1, see `level_sensitivity`.

    Args:
        neighbors: the neighbouring relation.
        lower: the least value of a row.
        upper: the largest.
        single_node: as in `level_sensitivity`.

    Returns:
        (L1, L2^2), whole numbers.

    Raises:
        ValueError: the bounds are not in order, or both 0.

    Source: the design, section 4; all are compared with brute force in the tests.

    >>> sum_sensitivity(Neighbors.SUBSTITUTE, 0, 10, single_node=False)
    (20, 200)
    >>> sum_sensitivity(Neighbors.SUBSTITUTE, -10, 10, single_node=False)
    (20, 400)
    """
    if lower > upper or lower == upper == 0:
        raise ValueError(
            f"lower {lower}, upper {upper}: lower must not be above upper, nor both be 0"
        )
    largest, width = max(abs(lower), abs(upper)), max(upper, 0) - min(lower, 0)
    if neighbors is Neighbors.ADD_REMOVE:
        return largest, largest**2
    if single_node:
        return width, width**2
    return 2 * largest, max(2 * largest**2, width**2)


def prefix_sensitivity(
    neighbors: Neighbors, leaves: int, *, public_total: bool, keyed: bool
) -> tuple[int, int]:
    """The L1 and the squared L2 sensitivity of the counts of all prefixes, for one row.

    A row in leaf i counts in the prefixes i to K - 1, so one row more moves at most K of them by
    one. Substituting a row between two leaves of a tree moves at most the K - 1 prefixes between
    them, but where a policy may drop rows it may also leave, which moves K. With keys it may leave
    one key's tree and enter another's: 2 K. Where the total is public the last prefix is not
    measured and no row is dropped: K - 1. All move by one, so L2^2 = L1.

    Args:
        neighbors: the neighbouring relation.
        leaves: K.
        public_total: the number of rows is public (substitute without keys only).
        keyed: there is a tree for each key.

    Returns:
        (L1, L2^2).

    Source: Rameshwar, Tandon, Sharma, Section II-C (K - 1); the others derived here.

    >>> prefix_sensitivity(Neighbors.SUBSTITUTE, 10, public_total=True, keyed=False)
    (9, 9)
    """
    if public_total:
        moved = leaves - 1
    else:
        moved = 2 * leaves if keyed and neighbors is Neighbors.SUBSTITUTE else leaves
    return moved, moved


def sketch_sensitivity(neighbors: Neighbors, rows: int, *, signed: bool) -> tuple[int, int]:
    """The L1 and the squared L2 sensitivity of a sketch's table, for one row of data.

    A row of data counts in one cell of each of the sketch's j rows, by 1 or, if signed, by -1; its
    hash functions do not depend on the data, so they are the same for both neighbours, and nothing
    is asked of them: not even that they are random.

    ``add_remove``: one cell of each row moves by one: L1 = j, L2^2 = j. ``substitute``: one count
    leaves a cell and another enters a cell, by row of the sketch. In two cells they move each by
    one: 2 and 2. In one cell the counts of a count-min sketch cancel; those of a count sketch
    cancel or, of opposite signs, move that cell by two: 2 and 4. So L1 = 2 j, L2^2 = 2 j unsigned
    and 4 j signed; all are attained, in all rows at once. A row that a policy drops from one of
    the data sets moves no more than under ``add_remove``.

    Args:
        neighbors: the neighbouring relation.
        rows: of the sketch, j.
        signed: whether rows of data count with a sign (a count sketch).

    Returns:
        (L1, L2^2).

    Source: Holland et al., section 4.1, for L1 under add_remove; all are compared with brute force
    in the tests.

    >>> sketch_sensitivity(Neighbors.SUBSTITUTE, 3, signed=True)
    (6, 12)
    """
    if neighbors is Neighbors.ADD_REMOVE:
        return rows, rows
    return 2 * rows, (4 if signed else 2) * rows


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


def level_law(neighbors: Neighbors, budget: Budget, *, single_node: bool) -> NoiseLaw:
    """The noise that spends ``budget`` on the counts of one level, for one row; see `noise_law`.

    Args:
        neighbors: the neighbouring relation.
        budget: what the level may spend.
        single_node: as in `level_sensitivity`.

    Raises:
        ValueError: the noise would be too large for 64-bit counts.

    >>> from fractions import Fraction
    >>> level_law(Neighbors.SUBSTITUTE, Budget(measure=Measure.EPSILON, amount=Fraction(1, 2)),
    ...           single_node=False)
    DiscreteLaplace(scale=Fraction(4, 1))
    """
    return noise_law(budget, *level_sensitivity(neighbors, single_node=single_node))
