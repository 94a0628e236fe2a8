"""Holland, Camtepe, Thapa, Xue: "Private Synthetic Data Generation in Small Memory" (PrivHP).

The definitions, algorithms and bounds of the paper in its order and notation: n rows in a binary
hierarchy of depth r, a node theta of level l with c_theta rows and the diameter gamma_l (of
[0, 1]^d in l-infinity), k nodes of a level that are split at most, L_k the last level of at most k
nodes, sketches of j rows of w cells below it, and the budget sigma_l of each level. What the
product has is in the table of docs/reproduction.md, by number; `mechanism: privhp_paper` is
Algorithm 2, and PMM, which is k = n, is `pmm`.

In place of the paper's, releases have integer noise that is drawn once; pairwise independent keyed
hashes; of a sketch's estimators the one that its noisy table shows to be the best; least squares in
place of Algorithm 4; splits by a threshold in place of k; levels some bits apart at about equal
budgets in place of Lemma 5 (benchmarks.synthetic measures both); and rows drawn systematically,
each part having within one of its share.

Corrections:

- Neighbors "differ in one element", yet the proof of Theorem 2 adds one. Added or removed, noise is
  as printed; replaced, it doubles. Paths have L_k + 1 counters. Equation (23) at l = 0 takes 1.
- Algorithm 3: the top k belong to level l, which was just added; the last level is r.
- Section 6: a branch to the right subtracts the count of the left child.
- Algorithm 1: the minimum of several noisy rows is biased low.
- Lemma 6 is false. Two siblings' estimates have collisions of their own, which do not cancel where
  c_0 = c_1: E|e_0 - e_1| <= |c_0 - c_1| / w is what Lemma 4 says of the difference of the means.
  Its case 2 is wrong too: setting one count to 0 may widen the difference of two errors. With it
  fall (11), (13), Lemmas 9 and 10, Theorems 1 and 3, Corollary 1 and the "key result" of Appendix
  D. Here each error counts by itself, which puts min(k / w, 1) n in place of n / w.
- Lemma 9 has "about" twice; here every miss counts on every level below it.
- Lemma 11 is false below the first level that is pruned: the hot nodes may hold more than B n.
- Lemma 12: the constant is bounded for every d, but not over d and n together.

The authors' fourth version (arXiv 2412.09756v4) has O(k log^2 n) memory and another bound, with
tail_k; of it `row_error` has what is proved here: with rows of more than k cells the mass of the k
largest nodes falls away as (k / w)^(j-1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.elementary import exp2, log2
from dptrees.dpcore.arithmetic.sums import dot, integer_power
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.boxes.partition import GrownTree
from dptrees.dpcore.boxes.plan import PartitionPlan
from dptrees.dpcore.boxes.planner import (
    PartitionChoices,
    PartitionSetting,
    plan_partition,
)
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.sketches.sketch import SketchKind

# Section 3: preliminaries.


def multifractal(
    uniforms: Callable[[tuple[int, int]], Floats],
    rows: int,
    dimensions: int,
    *,
    skew: float,
    bits: int = 53,
) -> Floats:
    """Section 3.3: points of the multifractal law, where a left half has the fraction B of a node.

    So all bits of all columns are independent. Below the given bits a column is uniform.

    Args:
        uniforms: gives so many independent uniform numbers in [0, 1); not of a release.
        rows: n.
        dimensions: d.
        skew: B, in [1/2, 1].
        bits: a column's depth, up to the 62 that a code can have; a float keeps the first 53
            or, near zero, more.

    Returns:
        (n, d) in [0, 1).

    Raises:
        ValueError: the skew or the bits are out of range.

    >>> points = multifractal(lambda shape: np.full(shape, 0.7), 1, 2, skew=0.8, bits=4)
    >>> points.tolist(), multifractal(np.zeros, 1, 1, skew=0.8).tolist()
    ([[0.04375, 0.04375]], [[0.0]])
    """
    if not 0.5 <= skew <= 1 or not 0 <= bits <= 62:
        raise ValueError(f"the skew {skew} is not in [1/2, 1] or {bits} bits are not in [0, 62]")
    points = uniforms((rows, dimensions)) * exp2(float(-bits))
    for bit in range(bits, 0, -1):
        points += (uniforms(points.shape) >= skew) * exp2(float(-bit))
    return np.minimum(points, np.nextafter(1.0, 0.0))


# Section 4: sketches.


def row_error(
    n: float, c: float, w: int, *, j: int = 1, k: int = 0, tail: float = math.inf
) -> float:
    """Lemma 4: a bound of E e_theta, what collisions add to a count in a count-min sketch.

    (n - c) / w; with several rows also, for any k < w (derived here),

        tail_k / (w - k) + (k / w)^(j-1) (n - c) / w.

    Proof sketch. A row errs by its collisions with the k largest nodes, which it has with a
    probability of at most k / w, and by the others, tail_k / w in the mean. The first row without
    the former has the tail alone; rows are independent, so the sum over which row that is, is
    geometric. Where there is none, any row is above the minimum. In absolute value it holds of one
    row of a count sketch too.

    Args:
        n, c, w, j: rows of data, rows of the node, cells of a row and rows of the sketch.
        k, tail: a number of nodes, and the rows that all but the k largest have.

    >>> row_error(6400, 0, 64), row_error(6400, 0, 64, j=7, k=16, tail=48)
    (100.0, 1.0244140625)
    """
    one = (n - c) / w
    if not k < w:
        return one
    return min(one, tail / (w - k) + float(integer_power(k / w, j - 1)) * one)


# Section 5: the algorithms.


def privhp(
    *,
    k: int,
    r: int,
    epsilon: Fraction,
    dimensions: int = 1,
    w: int | None = None,
    j: int = 1,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
) -> PartitionPlan:
    """Algorithm 2, PrivHP: its plan, with the noise D_l of Theorem 2 and the budgets of Lemma 5.

    Args:
        k, r, dimensions: as in the paper; PMM is k = 2^r.
        epsilon: of all levels.
        w, j: of a count-min sketch of each level below L_k; None: exact counts, with noise.
        unit: what neighbors differ in.

    >>> plan = privhp(k=4, r=5, epsilon=Fraction(1), w=64)
    >>> plan.sketches.counters, [round(float(amount), 3) for amount in plan.amounts]
    (2, [0.192, 0.192, 0.192, 0.192, 0.136, 0.096])
    """
    setting = PartitionSetting(
        bits=r,
        diameters=lambda depth: gamma(depth, dimensions),
        dimensions=dimensions,
        budget=Budget(measure=Measure.EPSILON, amount=epsilon),
        unit=unit,
    )
    sketch = {} if w is None else {"width": w, "hash_rows": j, "sketch": SketchKind.COUNT_MIN}
    return plan_partition(
        setting, PartitionChoices.from_mechanism("privhp_paper", most=k, depth=r, **sketch)
    )


# Section 6: synthetic rows, and the bound.


def sampled_leaf(tree: GrownTree, counts: Sequence[Integers], u: float) -> tuple[int, int]:
    """Section 6 (corrected): the leaf that a root-to-leaf walk ends in, for u in [0, root's count].

    A branch to the right subtracts the count of the left child, not of the node. At u = 0 a left
    child without rows is passed over.

    Args:
        tree: halved level by level.
        counts: of each level (n,), consistent; the root's above 0.
        u: uniform.

    Returns:
        the leaf's level, and its place there.

    >>> from dptrees.dpcore.boxes.partition import GrownLevel
    >>> level = lambda depth, *parents: GrownLevel(
    ...     depth, np.arange(len(parents), dtype=np.uint64), np.array(parents), *np.ones((2, 1)))
    >>> tree = GrownTree(levels=(level(0, 0), level(1, 0, 0), level(2, 1, 1)))
    >>> counts = [np.array([9]), np.array([4, 5]), np.array([2, 3])]
    >>> [sampled_leaf(tree, counts, u) for u in (3.5, 5.5, 6.5)]
    [(1, 0), (2, 0), (2, 1)]
    """
    place = 0
    for number, above, below in tree.pairs():
        split = below.split(above)
        at = int(np.searchsorted(split, place))
        if at == len(split) or split[at] != place:
            return number - 1, place
        place = 2 * at
        left = float(counts[number][place])
        if u > left or not left:
            u, place = u - left, place + 1
    return len(tree.levels) - 1, place


def gamma(level: int, dimensions: int) -> float:
    """Section 6.2: gamma_l, the largest diameter of a level of [0, 1]^d in l-infinity.

    Of whole rounds of halvings, so with l = 0, ..., d - 1 it is 1 (the paper's 2^(-l/d) is below).

    >>> [gamma(level, 2) for level in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    return exp2(float(-(level // dimensions)))


def gamma_sum(level: int, dimensions: int) -> float:
    """Section 6.2: Gamma_l, the sum of the diameters of a level.

    >>> gamma_sum(7, 1), gamma_sum(4, 2)
    (1.0, 4.0)
    """
    return exp2(float(level)) * gamma(level, dimensions)


def candidate_sum(counts: npt.ArrayLike, first: int, last: int) -> float:
    """Equation (4): sum_l^{i,j}, the rows of the candidates ranked i to j, from 0.

    >>> candidate_sum([5, 1, 8, 2], 2, 3)
    3.0
    """
    return float(np.sort(np.asarray(counts, np.float64))[::-1][first : last + 1].sum())


def tail(counts: npt.ArrayLike, k: int) -> float:
    """The fourth version's tail_k: the rows of all nodes of a level but the k largest.

    For any candidates it is at least sum_l^{k,2k-1}.

    >>> tail([5, 1, 8, 2], 2)
    3.0
    """
    return candidate_sum(counts, k, np.asarray(counts).size - 1)


def noise_term(levels: Floats, epsilon_n: float) -> float:
    """Lemma 5: Delta_noise at the best budgets, (sum_l sqrt(A_l))^2 / (epsilon n).

    Args:
        levels: A_l, Gamma_{l-1} down to L_k (1 at the root) and k gamma_{l-1} below.
        epsilon_n: epsilon n.

    >>> noise_term(np.array([1.0, 1.0, 1.0, 0.25]), 100.0)
    0.1225
    """
    total = float(np.sqrt(levels).sum())
    return total * total / epsilon_n


def miss_bound(e_0: float, e_1: float, noise: float) -> float:
    """Lemma 6 (corrected): a bound of E miss(theta), what is moved between two siblings.

    (E|e_0| + E|e_1|) / 2 + E max|lambda|. Proof sketch. Let D be exact less consistent counts. What
    a parent moves is miss = (|D_0| + |D_1| - |D|) / 2, the distance of a child's count from the
    interval between c_0 and c_0 - D. The even share of (7) is at most |error_0 - error_1| / 2 off,
    so at most half of |error_0| + |error_1|; correction 1 makes neither error larger, and
    correction 2 is a projection on [0, parent], which meets the interval.

    Args:
        e_0, e_1: bounds of E e of the children, as of `row_error`; 0 without a sketch.
        noise: E|lambda| of one count, 1 / sigma_l; of j rows the largest, j H_j / sigma_l.

    >>> miss_bound(row_error(6400, 0, 64), row_error(6400, 64, 64), 2.0)
    101.5
    """
    return (e_0 + e_1) / 2 + noise


def sibling_difference(n: float, c_0: float, c_1: float, w: int) -> float:
    """Lemma 6 (corrected): a bound of E|e_0 - e_1| in one row of a count-min sketch.

    (2 (n - c_0 - c_1) + |c_0 - c_1|) / w, below (2 n - c_0 - c_1) / w: any other row falls into one
    of the two cells with a chance of 2 / w, and the siblings into one cell with a chance of 1 / w.
    As printed only the last part is left, |c_0 - c_1| / w.

    >>> sibling_difference(6400, 100, 100, 64)
    193.75
    """
    return (2 * (n - c_0 - c_1) + abs(c_0 - c_1)) / w


class WassersteinBound(NamedTuple):
    """Theorem 3 (corrected): a bound of E W1 of rows and their generator, with its constants.

    Attributes:
        noise: what noise moves (Lemma 10), and what its ranking loses (Lemma 9).
        sketch: the same of collisions; min(k / w, 1) n in the order of each level, where the paper
            has n / w.
        pruning: what is pruned although exact counts would have ranked it the same (Lemma 8).
        resolution: gamma_r (Lemma 7).
    """

    noise: float
    sketch: float
    pruning: float
    resolution: float

    @property
    def total(self) -> float:
        """The bound."""
        return math.fsum(self)


def wasserstein_bound(
    n: float,
    *,
    k: int,
    gammas: Floats,
    sigmas: Floats,
    collisions: float,
    tails: Floats,
    j: int = 1,
) -> WassersteinBound:
    """Theorem 3 (corrected): E W1 for n rows, with constants.

    With H_l = min(2^l, k) nodes split, M_l = min(H_{l-1} `miss_bound` of level l, n), G_l = sum_{i
    >= l, i > L_k, i < r} gamma_i, the rows of the k largest nodes of a level all but t_l,

        n E W1 <= n gamma_r + (gamma_0 + G_0) E|lambda_root| + sum_l M_l (gamma_{l-1} + 2 G_l)
                  + sum_{l = L_k + 1}^{r-1} gamma_l t_l.

    Proof sketch. Spread the exact counts of the leaves of the grown tree: that moves the rows of a
    leaf by at most its diameter, of the last level gamma_r, of those that were pruned gamma_l.
    Then move rows between siblings, from the root down: that costs miss(theta) diam(Omega_theta),
    besides the error of the root's count (Appendix C); a miss is at most c_theta. Pruned at a level
    are at most the rows of the bottom k candidates, at most t_l, and the error |D| of all
    candidates that the ranking suffers; sum |D| is that of the root and 2 miss of every node split
    above. The sketch of a level is independent of the nodes that were split above it, so
    expectations multiply.

    Args:
        n: rows.
        k: nodes of a level that are split at most.
        gammas: (r + 1,) of the levels.
        sigmas: (r + 1,) the budget of each level; infinite for none of its noise.
        collisions: a bound of E|e| of any node in a sketch, such as `row_error`; 0 without.
        tails: (r + 1,) t_l, such as `tail` of each level, at most n.
        j: rows of a sketch; their minimum is taken.

    >>> gammas = np.array([gamma(level, 1) for level in range(11)])
    >>> found = wasserstein_bound(1e4, k=16, gammas=gammas, sigmas=np.full(11, 1 / 11),
    ...                           collisions=row_error(1e4, 0, 256), tails=np.full(11, 1e3))
    >>> [round(part, 4) for part in found]
    [0.0136, 0.0216, 0.0061, 0.001]
    """
    r, last = len(gammas) - 1, min(k.bit_length() - 1, len(gammas) - 1)
    levels = np.arange(r + 1)
    pruned = np.where((levels > last) & (levels < r), gammas, 0.0)
    below = np.cumsum(pruned[::-1])[::-1]
    split = np.minimum(exp2(levels[:-1].astype(np.float64)), float(k))
    weights, sketched = gammas[:-1] + 2 * below[1:], levels[1:] > last
    # E max of j Laplace variables of scale j / sigma.
    rows = j * math.fsum(1 / row for row in range(1, j + 1))
    noise = split * np.where(sketched & (collisions > 0), float(rows), 1.0) / sigmas[1:]
    collided = split * np.where(sketched, collisions, 0.0)
    most = n / np.maximum(noise + collided, n)
    root = (gammas[0] + below[0]) / sigmas[0]
    return WassersteinBound(
        noise=(dot(weights, noise * most) + float(root)) / n,
        sketch=dot(weights, collided * most) / n,
        pruning=dot(pruned, tails) / n,
        resolution=float(gammas[-1]),
    )


# Section 9: the hypercube.


def multifractal_tails(skew: float, k: int, depth: int) -> Floats:
    """Lemma 11 (corrected): (r + 1,) sum_l^{k,2k-1} / n in the mean, of the multifractal law.

    The candidates are what exact pruning leaves, by the probabilities of nodes. It is at most 1 - B
    of what the hot nodes hold, so at most 1 - B (the bound), while (1 - B) B^(l - L_k - 1), as
    printed, may be passed from the second pruned level on. With B = 1/2, the uniform law, it is
    2^(L_k - l).

    >>> multifractal_tails(0.9, 4, 4).round(4).tolist()  # as printed .1 and .09
    [0.0, 0.0, 0.0, 0.028, 0.0972]
    """
    hot, tails = np.ones(1), np.zeros(depth + 1)
    for level in range(1, depth + 1):
        candidates = np.concatenate((skew * hot, (1 - skew) * hot))
        hot = np.sort(candidates)[::-1][:k]
        tails[level] = candidate_sum(candidates, k, 2 * k - 1)
    return tails


def pruned_diameters(k: int, r: int, dimensions: int) -> float:
    """Lemma 12, Equation (14): sum_{l = L_k + 1}^r 2^(-(l-1)/d), with L_k = log2 k.

    k^(-1/d) (1 - (k / 2^r)^(1/d)) / (1 - 2^(-1/d)). The last factor is at most 1 / (1 - 2^(-1/d)),
    for every d; but it tends to r - log2 k for d to infinity, so no constant holds for all d and n.

    >>> pruned_diameters(4, 6, 1), round(pruned_diameters(4, 20, 10**6), 3)
    (0.46875, 18.0)
    """
    start = k.bit_length() - 1
    terms = (exp2(-level / dimensions) for level in range(start, r))
    return math.fsum(terms)


def rate(k: int, w: int, *, dimensions: int, epsilon_n: float, f: float) -> float:
    """Theorem 1, Corollary 1 (corrected): the order of E W1 on [0, 1]^d, without constants.

    log2(k)^2 / (epsilon n) + (m + f) / k for d = 1, k^(1-1/d) / (epsilon n) + k^(-1/d) (m + f)
    otherwise, with m = min(k / w, 1); f is 1 for uniform data and 1 - B for the multifractal law.
    As printed 1 / w has the place of m, so that the sketch would cost 1 / (k w) where d = 1.

    >>> rate(64, 4096, dimensions=1, epsilon_n=1e5, f=0.2)
    0.0037...
    """
    bits = log2(float(k))
    side = exp2(-bits / dimensions)
    noise = bits * bits if dimensions == 1 else k * side
    return noise / epsilon_n + side * (min(k / w, 1.0) + f)
